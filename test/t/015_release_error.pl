# An error while our internal subtransaction is released: postgres_fdw commits its remote subtransaction in a callback there, and fails
# when the remote session has died in the handler.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('release_error', worker => 0);
my $admin = session($node);
if ($admin->ok(q(SELECT count(*) FROM pg_available_extensions WHERE name = 'postgres_fdw')) eq '0')
{
	plan skip_all => 'postgres_fdw is not installed';
}
my ($host, $port) = ($node->host, $node->port);
$node->safe_psql(
	'postgres', qq{
	CREATE DATABASE far;
	CREATE EXTENSION postgres_fdw;
	CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw
	  OPTIONS (host '$host', port '$port', dbname 'far', application_name 'the other end');
	CREATE USER MAPPING FOR CURRENT_USER SERVER far;
	CREATE FOREIGN TABLE far_effects (key text) SERVER far OPTIONS (table_name 'effects');
	-- Uses the other server, and ends the session there
	CREATE FUNCTION loses(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO effects VALUES (request ->> 'key');
		INSERT INTO far_effects VALUES (request ->> 'key');
		PERFORM pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE application_name = 'the other end';
		RETURN '"done"';
	END \$\$;
	CREATE FUNCTION works(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$
	BEGIN
		INSERT INTO effects VALUES (request ->> 'key');
		RETURN (SELECT jsonb_build_object('key', key, 'attempt', attempt) FROM idem_current());
	END \$\$;
});
$node->safe_psql('far', 'CREATE TABLE effects (key text)');
my $run = sub {
	my ($key, $handler) = @_;
	return "SELECT outcome, result FROM idem_run('acme', 'pay', '$key', '{\"key\": \"$key\"}', '$handler(jsonb)')";
};
my $current = 'SELECT * FROM idem_current()';
my $locks = 'SELECT count(*) FROM pg_locks WHERE objsubid = ' . LOCK_CLASS . q( AND locktype = 'advisory');
# Overwrites what a pointer to memory of the transaction before would point to.
my $stir = q(SELECT count(*) FROM (SELECT repeat(md5(g::text), 10) AS x FROM generate_series(1, 2000) AS g ORDER BY 1) AS z);
my $alive = sub {
	my ($s, $name) = @_;
	is($s->ok($stir), '2000', "$name: the session works");
	is($s->ok($current), '', "$name: idem_current: no operation");
	is($s->try(q(SELECT idem_reject('{}'))), 'IDM08', "$name: idem_reject: outside of idem_run");
	is($s->ok($current), '', "$name: idem_current: still none");
	is($s->ok(q(SELECT 'subtransactions', pg_current_xact_id_if_assigned() IS NULL)), 'subtransactions|t', "$name: no transaction is left open");
	return;
};

# --- a statement of its own
my $s = session($node);
my $pid = $s->pid;
my $state = $s->try($run->('alone', 'loses'));
isnt($state, '', 'G2: on its own: an error');
isnt($state, 'closed', 'G2: on its own: not the end of the session');
unlike($state, qr/^(IDM|XX)/, "G2: on its own: the wrapper's error, $state");
$alive->($s, 'on its own');
is($s->try('ROLLBACK; SELECT 1'), '', 'on its own: there is nothing to roll back');
like($s->err, qr/25P01/, 'on its own: as the server says');
is($admin->ok($locks), '0', 'G1: on its own: no key lock is left');
is($s->ok($run->('alone', 'works')), 'completed|{"key": "alone", "attempt": 1}', 'G2: on its own: the operation runs');
is($s->ok($run->('alone', 'loses')), 'completed|{"key": "alone", "attempt": 1}', 'G3: on its own: and is replayed');
is($s->ok(q(SELECT count(*) FROM effects WHERE key = 'alone')), '1', 'G2: on its own: it took effect once');

# --- in a block, after ROLLBACK TO
foreach my $end ('ROLLBACK', 'COMMIT')
{
	my $name = "in a block, $end";
	$s->ok('BEGIN; SAVEPOINT a');
	$state = $s->try($run->("block $end", 'loses'));
	isnt($state, '', "G2: $name: an error");
	isnt($state, 'closed', "G2: $name: not the end of the session");
	is($s->try('SELECT 1'), '25P02', "G2: $name: the block is aborted");
	is($s->try('ROLLBACK TO a'), '', "$name: ROLLBACK TO");
	is($s->ok($current), '', "$name: idem_current within the block: no operation");
	is($s->ok($stir), '2000', "$name: the block goes on");
	is($s->ok($current), '', "$name: idem_current: no operation");
	is($s->try(q(SELECT idem_reject('{}'))), 'IDM08', "$name: idem_reject: outside of idem_run");
	is($s->try('ROLLBACK TO a'), '', "$name: ROLLBACK TO again");
	is($s->ok($run->("block $end", 'works')), qq(completed|{"key": "block $end", "attempt": 1}), "$name: the operation runs, and knows itself");
	is($s->ok($current), '', "$name: idem_current: no operation afterwards");
	# With the other end lost, the wrapper may refuse the commit.
	my $there = $s->try($end) eq '' && $end eq 'COMMIT' ? '1' : '0';
	$s->ok('ROLLBACK') if $s->ok(q(SELECT pg_current_xact_id_if_assigned() IS NOT NULL)) eq 't';
	$alive->($s, $name);
	is($s->ok("SELECT count(*) FROM effects WHERE key = 'block $end'"), $there, "G2: $name: what was committed is there, once");
	is($s->ok(call('idem_lookup', "block $end", columns => 'state')), $there ? 'completed' : '', "G2: $name: with its outcome");
}
# --- caught within the statement
$s->ok('BEGIN');
is( $s->try(q{DO $$ BEGIN PERFORM idem_run('acme', 'pay', 'caught', '{"key": "caught"}', 'loses(jsonb)'); EXCEPTION WHEN OTHERS THEN NULL; END $$}),
	'', 'caught in a block of plpgsql');
is($s->ok($current), '', 'caught: idem_current: no operation');
is($s->ok($stir), '2000', 'caught: the transaction goes on');
is($s->ok($run->('caught', 'works')), 'completed|{"key": "caught", "attempt": 1}', 'caught: the operation runs');
$s->ok('ROLLBACK');
$alive->($s, 'caught');
# --- one idem_run within another: the outer one is the current operation again
$node->safe_psql(
	'postgres', q{
	CREATE FUNCTION outer_one(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		BEGIN
			PERFORM idem_run('acme', 'pay', 'inner', '{"key": "inner"}', 'loses(jsonb)');
		EXCEPTION WHEN OTHERS THEN NULL;
		END;
		-- With the other end lost this transaction cannot commit anyway.
		RAISE SQLSTATE 'OUTER' USING MESSAGE = (SELECT string_agg(key, ' ') FROM idem_current());
	END $$;
});
is($s->try($run->('outer', 'outer_one')), 'OUTER', 'within a handler: the error is caught there');
like($s->err, qr/OUTER: outer$/m, 'within a handler: idem_current is the outer operation');
$alive->($s, 'within a handler');

is($s->pid, $pid, 'the session is the same');
is($s->ok('SELECT pg_backend_pid()'), $pid, 'and its server process too');
is($admin->ok($locks), '0', 'G1: no key lock is left');
is($admin->try('SELECT 1'), '', 'no other session was ended by a crash');
unlike(slurp_file($node->logfile), qr/terminated by signal|PANIC|TRAP:/, 'no server process crashed');
$_->quit foreach $s, $admin;
$node->stop;
done_testing();
