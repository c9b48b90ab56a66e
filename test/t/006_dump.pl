# pg_dump and restore, and pg_upgrade.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('dump', worker => 0);
my $token = '77777777-7777-7777-7777-777777777777';
my $s = session($node);
$s->ok(q{INSERT INTO idem_policies (action, retention, on_interrupt, keep_request, key_format)
	VALUES ('*', '10 days', NULL, NULL, NULL), ('once', NULL, 'fail', true, NULL), ('pay', NULL, NULL, true, NULL),
	       ('strict', NULL, NULL, NULL, 'uuid')});
$s->ok('BEGIN; ' . claim('done') . q(; INSERT INTO effects VALUES ('done'); )
	  . call('idem_complete', 'done', result => q('{"n": 1e2, "s": "\u00e4\\\\"}'), status => 201, body => q(E'line\n\ttab\\\\'), body_bytes => q('\x00ff'))
	  . '; COMMIT');
$s->ok('BEGIN; ' . claim('failed') . '; ' . call('idem_fail', 'failed', status => 402) . '; COMMIT');
$s->ok('BEGIN; ' . claim([ 'acme', 'pay', "o'dd \\ key\t\x{c3}\x{a4}" ]) . '; '
	  . call('idem_complete', [ 'acme', 'pay', "o'dd \\ key\t\x{c3}\x{a4}" ], result => q('"odd"')) . '; COMMIT');
$s->ok(claim('raw', fingerprint => q('\xdeadbeef'), lease => q('1 h'), token => "'$token'"));
$s->ok(claim('leased', lease => q('1 h'), owner => q('w1'), token => "'$token'"));
$s->ok(call('idem_checkpoint', 'leased', token => "'$token'", checkpoint => q('half'), progress => q('{"a": [1, null]}')));
$s->ok(claim('brief', lease => q('1 ms')));
$s->ok(claim([ 'acme', 'once', 'brief' ], lease => q('1 ms')));
$s->ok(claim('released', lease => q('1 h'), token => "'$token'") . '; ' . call('idem_release', 'released', token => "'$token'"));
$s->ok(call('idem_once', 'message', request => q('{"m": 1}')));
$s->ok(claim('granted', lease => q('1 h')) . '; ' . call('idem_resolve', 'granted', verdict => q('retry'), note => q(E'a\tnote')));
my $bound = session($node);
$bound->ok(claim('bound', lease => q('1 h'), session_bound => 'true'));
my $pid = $bound->pid;
my $everything = q{
	SELECT md5(string_agg(t, E'\n' ORDER BY t COLLATE "C")) FROM (
		SELECT 's' || s::text AS t FROM idem_settled s UNION ALL SELECT 'i' || i::text FROM idem_inflight i
		UNION ALL SELECT 'm' || m::text FROM idem_seen m UNION ALL SELECT 'p' || p::text FROM idem_policies p
		UNION ALL SELECT 'a' || a::text FROM idem_audit a) x};
my $before = $s->ok($everything);

sub check
{
	my ($node, $db, $how) = @_;
	my $s = session($node, dbname => $db);
	is($s->ok($everything), $before, "G3: $how: the same rows, byte for byte");
	is($s->ok(claim('done', columns => 'outcome, status, result, encode(convert_to(body, \'UTF8\'), \'hex\'), body_bytes, expires_at > now() + \'9 days\'')),
		"completed|201|{\"n\": 100, \"s\": \"\x{c3}\x{a4}\\\\\"}|6c696e650a097461625c|\\x00ff|t", "G3: $how: replayed");
	is($s->ok(claim('done', request => q('{"amount": 2}'))), 'mismatch', "G4: $how: mismatch");
	is($s->ok(claim('failed', columns => 'outcome, status')), 'failed|402', "G3: $how: failure replayed");
	is($s->ok(claim([ 'acme', 'pay', "o'dd \\ key\t\x{c3}\x{a4}" ], columns => 'outcome, result')), 'completed|"odd"', "G3: $how: odd key");
	is($s->ok(claim('raw', fingerprint => q('\xdeadbeef'))), 'in_progress', "G1: $how: caller's own fingerprint");
	is($s->ok(claim('raw', fingerprint => q('\xdeadbeee'))), 'mismatch', "G4: $how: another one");
	is($s->ok(claim('leased', columns => 'outcome, holder')), 'in_progress|w1', "G1: $how: leased claim is held");
	is($s->ok(call('idem_guard', 'leased', token => "'$token'", columns => 'r > now()')), 't', "G6: $how: its token is good");
	is($s->ok(call('idem_lookup', 'leased', columns => 'checkpoint, progress, request')),
		'half|{"a": [1, null]}|{"amount": 1}', "$how: its checkpoint, progress and request");
	is($s->ok(claim('bound', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', "G5: $how: session-bound claim is free");
	is($s->ok(claim('brief', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', "G5: $how: lease that is over is recovered");
	is($s->ok(claim('released', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', "G5: $how: released one is recovered");
	is($s->ok(claim('granted', lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', "G5: $how: granted attempt");
	is($s->ok(claim([ 'acme', 'once', 'brief' ], columns => 'outcome, status')), 'failed|503', "G5: $how: rule stored with the claim");
	is($s->ok(call('idem_once', 'message', request => q('{"m": 1}'))), 'f', "G10: $how: message is known");
	is($s->try(call('idem_once', 'message', request => q('{"m": 2}'))), 'IDM09', "G4: $how: message with other content");
	is($s->try(claim([ 'acme', 'strict', 'no-uuid' ])), 'IDM07', "$how: policies are in force");
	is($s->ok('BEGIN; ' . claim('new') . '; ' . call('idem_complete', 'new', columns => 'r > now()') . '; COMMIT'), "claimed\nt", "$how: new operations work");
	is($s->ok(q(SELECT key FROM effects)), 'done', "G2: $how: business changes");
	$s->quit;
	return;
}

$bound->quit;
wait_until($s, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", '0');
my $dir = PostgreSQL::Test::Utils::tempdir();
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-Fc', '-f', "$dir/dump" ], 'pg_dump -Fc');
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-f', "$dir/dump.sql" ], 'pg_dump plain');
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '--inserts', '-f', "$dir/inserts.sql" ], 'pg_dump --inserts');
$node->safe_psql('postgres', "CREATE DATABASE $_") foreach qw(custom plain inserts parallel copy);
$node->command_ok([ 'pg_restore', '-d', $node->connstr('custom'), '-e', "$dir/dump" ], 'pg_restore');
$node->command_ok([ 'pg_restore', '-d', $node->connstr('parallel'), '-e', '-j', '2', "$dir/dump" ], 'pg_restore -j2');
$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('plain'), '-f', "$dir/dump.sql" ], 'restore of plain text');
$node->command_ok([ 'psql', '-XqAt', '-v', 'ON_ERROR_STOP=1', '-d', $node->connstr('inserts'), '-f', "$dir/inserts.sql" ], 'restore of inserts');
check($node, 'custom', 'custom format');
check($node, 'parallel', 'parallel restore');
check($node, 'plain', 'plain text');
check($node, 'inserts', 'inserts');

# pg_upgrade refuses databases with columns of reg* types, with a few exceptions.
is( $s->ok(
		q{
	SELECT count(*) FROM pg_attribute a JOIN pg_depend d ON d.objid = a.attrelid AND d.classid = 'pg_class'::regclass
	  AND d.refclassid = 'pg_extension'::regclass AND d.deptype = 'e'
	 WHERE a.attnum > 0 AND a.atttypid IN (SELECT oid FROM pg_type WHERE typname LIKE 'reg%' AND typnamespace = 'pg_catalog'::regnamespace)
	    OR a.attrelid IN (SELECT typrelid FROM pg_type WHERE typname = 'idem_claim_result') AND a.atttypid::regtype::text LIKE 'reg%'}),
	'0', 'no column of a type that pg_upgrade refuses');
$s->quit;

# The real thing, to the same version.
my $new = PostgreSQL::Test::Cluster->new('upgraded');
init_node($new);
$new->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_idem'\npg_idem.worker = off");
my $bindir = $node->config_data('--bindir');
SKIP:
{
	skip 'no pg_upgrade', 1 unless -x "$bindir/pg_upgrade";
	$node->safe_psql('postgres', "DROP DATABASE $_") foreach qw(custom plain inserts parallel copy);
	$node->stop;
	chdir PostgreSQL::Test::Utils::tempdir();
	command_ok(
		[   'pg_upgrade', '--no-sync', '-b', $bindir, '-B', $bindir, '-d', $node->data_dir, '-D', $new->data_dir,
			'-s', $new->host, '-p', $node->port, '-P', $new->port
		],
		'pg_upgrade');
	$new->start;
	check($new, 'postgres', 'pg_upgrade');
	$new->stop;
}
done_testing();
