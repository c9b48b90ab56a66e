# G10 for change data capture: what a reader of the write-ahead log hears of messages in the table, and of messages with
# pg_idem.outbox = wal.
use strict;
use warnings;

use FindBin;
use JSON::PP;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('outbox_wal', worker => 0, conf => "wal_level = logical\nmax_prepared_transactions = 10\n");
my $s = session($node);
my $doctor = q(SELECT status FROM idem_doctor() WHERE check_name = 'outbox_mode');
# Newer minor releases load only the plugins that are named.
if ($s->ok(q(SELECT count(*) FROM pg_settings WHERE name = 'output_plugin_libraries')))
{
	$node->append_conf('postgresql.conf', "output_plugin_libraries = 'wal2json'");
	$node->reload;
	wait_until($s, 'SHOW output_plugin_libraries', 'wal2json');
}
my $slot = q(SELECT pg_create_logical_replication_slot('w', 'wal2json'));
plan skip_all => 'wal2json is not installed' if $s->try($slot) eq '58P01';
$s->try(q(SELECT pg_drop_replication_slot('w')));

is($s->ok($doctor), 'ok', 'doctor: the table');
$s->ok('SET pg_idem.outbox = wal');
is($s->ok($doctor), 'critical', 'doctor: no slot');
$s->ok($slot);
is($s->ok($doctor), 'ok', 'doctor: a slot');
$s->ok('RESET pg_idem.outbox');

sub changes
{
	my ($session) = @_;
	my @changes = map { decode_json($_) } split /\n/, $session->ok(q(SELECT data FROM pg_logical_slot_get_changes('w', NULL, NULL, 'format-version', '2')));
	return grep { $_->{action} ne 'B' && $_->{action} ne 'C' } @changes;
}

# ---- the table: an insert each, of what commits

$s->ok(q(BEGIN; SELECT idem_publish('order', 'no', 'created', '{}'); ROLLBACK));
my $id = $s->ok(q(SELECT idem_publish('order', '7', 'created', '{"n": 1}', '{"h": "x"}')));
is($s->ok(q(SELECT idem_outbox_ack(array_agg(receipt)) FROM idem_outbox_take())), '1', 'deleted by who only reads the log');
my @changes = changes($s);
is(join(' ', map { $_->{action} } @changes), 'I U D', 'insert, hand-out, delete');
is($changes[0]{table}, 'idem_outbox', 'of the table');
my %row = map { $_->{name} => $_->{value} } @{ $changes[0]{columns} };
is($row{id}, $id, 'its id');
is(join('|', @row{qw(aggregatetype aggregateid type payload headers)}), 'order|7|created|{"n": 1}|{"h": "x"}', 'what an outbox router expects');

# ---- wal: a message each, of what commits

$s->ok('SET pg_idem.outbox = wal');
$s->ok(q(BEGIN; SELECT idem_publish('order', 'no', 'created', '{}'); ROLLBACK));
$s->ok(q(BEGIN; SAVEPOINT s; SELECT idem_publish('order', 'no', 'created', '{}'); ROLLBACK TO s; SELECT idem_publish('order', 'yes', 'created', 'null'); COMMIT));
$s->ok(q(SET pg_idem.test_now = '2030-01-02 03:04:05.678+02'));
$id = $s->ok(q(BEGIN; SELECT outcome FROM idem_claim('acme', 'pay', 'k1', '{}')) . ';'
	  . q(SELECT idem_publish('order', E'o"\u00e4', 'created', '{"n": [1, "x\"\\\\"]}', '{"h": null}')) . ';'
	  . q(SELECT idem_complete('acme', 'pay', 'k1') IS NULL; COMMIT)) =~ s/^claimed\n(.*)\nf$/$1/sr;
$s->ok('RESET pg_idem.test_now');
$s->ok(q(BEGIN; SELECT idem_publish('order', 'prepared', 'created', '{}'); PREPARE TRANSACTION 'p'));
@changes = grep { $_->{action} eq 'M' } changes($s);
is(scalar @changes, 2, 'none of what was rolled back or is only prepared');
ok(!(grep { $_->{prefix} ne 'pg_idem.outbox' || !$_->{transactional} } @changes), 'transactional, under our prefix');
is_deeply(
	JSON::PP->new->decode($changes[1]{content}),
	{
		id => $id,
		aggregatetype => 'order',
		aggregateid => "o\"\x{e4}",
		type => 'created',
		payload => { n => [ 1, 'x"\\' ] },
		headers => { h => undef },
		account => 'acme',
		action => 'pay',
		key => 'k1',
		created_at => '2030-01-02T01:04:05.678Z'
	},
	'the columns by name');
my $bare = JSON::PP->new->decode($changes[0]{content});
ok(exists $bare->{$_} && !defined $bare->{$_}, "$_ is null") foreach qw(payload headers account action key);
is($s->ok('SELECT count(*) FROM idem_outbox'), '0', 'no row is stored');
$s->ok(q(COMMIT PREPARED 'p'));
is(scalar(grep { $_->{action} eq 'M' } changes($s)), 1, 'the prepared one, when it has committed');
is($s->try(q(SELECT idem_publish('order', 'a', 't', NULL))), '22023', 'bad input is refused here too');

# ---- a database in another encoding: readers understand it all the same

$s->ok(q(CREATE DATABASE latin TEMPLATE template0 ENCODING 'LATIN1' LOCALE 'C'));
my $l = session($node, dbname => 'latin');
$l->ok(q(CREATE EXTENSION pg_idem; SET client_encoding = 'UTF8'));
$l->ok(q(SELECT pg_create_logical_replication_slot('l', 'wal2json')));
$l->ok(q(SET pg_idem.outbox = wal; SELECT idem_publish('order', U&'\00e4', 'created', to_jsonb(U&'\00fc'::text))));
like($l->ok(q(SELECT data FROM pg_logical_slot_get_changes('l', NULL, NULL, 'format-version', '2') WHERE data LIKE '%"M"%')), qr/u00e4.*u00fc/, 'escaped');
$l->ok(q(SELECT pg_drop_replication_slot('l')));

# ---- nothing to decode it

$s->ok(q(SELECT pg_drop_replication_slot('w')));
$node->append_conf('postgresql.conf', 'wal_level = replica');
$node->restart;
$s = session($node);
$s->ok('SET pg_idem.outbox = wal');
is($s->try(q(SELECT idem_publish('order', 'a', 't', '{}'))), '55000', 'wal_level is too low');
like($s->err, qr/HINT:.*wal_level/, 'the hint');
is($s->ok($doctor), 'critical', 'doctor: wal_level');

done_testing();
