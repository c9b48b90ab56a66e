# Other servers: postgres_fdw, which commits remotely, and logical replication of our tables.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('local', worker => 0, init => [ allows_streaming => 'logical' ]);
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
	CREATE SERVER far FOREIGN DATA WRAPPER postgres_fdw OPTIONS (host '$host', port '$port', dbname 'far');
	CREATE USER MAPPING FOR CURRENT_USER SERVER far;
	CREATE FOREIGN TABLE far_effects (key text) SERVER far OPTIONS (table_name 'effects');
});
$node->safe_psql('far', 'CREATE TABLE effects (key text)');
my $far = session($node, dbname => 'far');
my $count = sub { $far->ok("SELECT count(*) FROM effects WHERE key = '$_[0]'") };
my $write = sub { "INSERT INTO far_effects VALUES ('$_[0]'); INSERT INTO effects VALUES ('$_[0]')" };
my $warm_fdw = 'SELECT count(*) FROM far_effects';
my $warm_idem = sub { 'BEGIN; ' . claim($_[0]) . '; ' . call('idem_complete', $_[0]) . '; COMMIT' };

# What each session did before
my %before = (
	'fdw used' => sub { $_[0]->ok($warm_fdw) },
	'fdw used, then a claim settled' => sub { $_[0]->ok($warm_fdw); $_[0]->ok($warm_idem->("warm1-$_[1]")) },
	'claim settled, then fdw used' => sub { $_[0]->ok($warm_idem->("warm2-$_[1]")); $_[0]->ok($warm_fdw) });
my %trap = (
	'claim first' => sub { claim($_[0]) . '; ' . $write->($_[0]) },
	'write first' => sub { $write->($_[0]) . '; ' . claim($_[0]) },
	'in a savepoint' => sub { 'SAVEPOINT a; ' . claim($_[0]) . '; ' . $write->($_[0]) . '; RELEASE a' });
my $n = 0;
foreach my $before (sort keys %before)
{
	foreach my $trap (sort keys %trap)
	{
		my $key = 'fdw' . ++$n;
		my $s = session($node);
		$before{$before}->($s, $key);
		$s->ok('BEGIN; ' . $trap{$trap}->($key));
		is($s->try('COMMIT'), 'IDM01', "G9: $before, $trap: COMMIT is refused");
		is($count->($key), '0', "G9: $before, $trap: no remote row");
		is($admin->ok("SELECT count(*) FROM effects WHERE key = '$key'"), '0', "G9: $before, $trap: no local row");
		$s->ok('BEGIN; ' . $trap{$trap}->($key) . '; ' . call('idem_complete', $key) . '; COMMIT');
		is($count->($key), '1', "G2: $before, $trap: settled, both are there");
		is($admin->ok(claim($key)), 'completed', "G2: $before, $trap: with the outcome");
		# A doomed transaction leaves nothing remote either.
		$s->ok('BEGIN; ' . $write->("$key-doomed") . '; SAVEPOINT a');
		is($s->try(call('idem_guard', $key, token => q('cccccccc-cccc-cccc-cccc-cccccccccccc'))), 'IDM04', 'refused');
		$s->ok('ROLLBACK TO a');
		is($s->try('COMMIT'), 'IDM02', "G6: $before, $trap: a doomed transaction cannot commit");
		is($count->("$key-doomed"), '0', "G6: $before, $trap: and leaves no remote row");
		$s->quit;
	}
}
# First use of the wrapper in the session before the claim, but in the same transaction
my $s = session($node);
$s->ok('BEGIN; ' . $write->('same') . '; ' . claim('same'));
is($s->try('COMMIT'), 'IDM01', 'G9: the session\'s first use of the wrapper just before the claim: COMMIT is refused');
is($count->('same'), '0', 'G9: no remote row');
$s->quit;
# First use after the claim: the wrapper's callback is registered last and so runs first. Known; settle before COMMIT.
$s = session($node);
$s->ok('BEGIN; ' . claim('after') . '; ' . $write->('after'));
is($s->try('COMMIT'), 'IDM01', 'G9: the session\'s first use of the wrapper after the claim: COMMIT is refused');
is($admin->ok(q(SELECT count(*) FROM effects WHERE key = 'after')), '0', 'no local row');
TODO:
{
	local $TODO = 'the first use of postgres_fdw in a session after its claim commits remotely first';
	is($count->('after'), '0', 'G9: no remote row');
}
# Wherever the wrapper comes in, a settlement afterwards puts that right from the next transaction on.
$s->ok('BEGIN; ' . claim('next') . '; ' . $write->('next'));
is($s->try('COMMIT'), 'IDM01', 'G9: the next transaction: COMMIT is refused');
is($count->('next'), '0', 'G9: no remote row');
$s->quit;
$far->quit;

# Logical replication: our tables are ordinary ones, and the subscriber answers from what has arrived.
my $sub = new_node('subscriber', worker => 0);
$node->safe_psql('postgres', 'CREATE PUBLICATION p FOR TABLE idem_settled, idem_inflight, idem_seen, idem_policies');
my $token = 'dddddddd-dddd-dddd-dddd-dddddddddddd';
$admin->ok($warm_idem->('before'));
$sub->safe_psql('postgres', "CREATE SUBSCRIPTION s CONNECTION 'host=$host port=$port dbname=postgres' PUBLICATION p");
$sub->wait_for_subscription_sync($node, 's');
$admin->ok($warm_idem->('after'));
$admin->ok(claim($_, lease => q('1 h'), token => "'$token'", owner => q('w1'))) foreach qw(leased settled released);
$admin->ok(call('idem_checkpoint', 'leased', token => "'$token'", checkpoint => q('half')));
$admin->ok(call('idem_renew', 'leased', token => "'$token'", lease => q('30 min')));
$admin->ok(call('idem_complete', 'settled', token => "'$token'", result => q('{"big": ") . 'x' x 20000 . q("}')));
$admin->ok(call('idem_release', 'released', token => "'$token'"));
$admin->ok(call('idem_once', 'message'));
$admin->ok(q(INSERT INTO idem_policies (action, key_format) VALUES ('strict', 'uuid')));
$node->wait_for_catchup('s');
my $there = session($sub);
is($there->ok(claim($_)), 'completed', "G3: logical replication: $_ is replayed") foreach qw(before after settled);
is($there->ok(claim('settled', columns => q(length(result->>'big')))), '20000', 'G3: with its result');
is($there->ok(claim('after', request => q('{"x": 1}'))), 'mismatch', 'G4: logical replication: mismatch');
is($there->ok(claim('leased', columns => 'outcome, holder')), 'in_progress|w1', 'G1: logical replication: leased claim is held');
is($there->ok(call('idem_lookup', 'leased', columns => 'checkpoint')), 'half', 'logical replication: with its checkpoint');
is($there->ok(call('idem_once', 'message')), 'f', 'G10: logical replication: message is known');
is($there->try(claim([ 'acme', 'strict', 'no uuid' ])), 'IDM07', 'logical replication: policies, at once, in a session that may have them cached');
$admin->ok(q(DELETE FROM idem_policies WHERE action = 'strict'));
$node->wait_for_catchup('s');
is($there->try('BEGIN; ' . claim([ 'acme', 'strict', 'no uuid' ])), '', 'logical replication: a cached policy is read again');
$there->ok('ROLLBACK');
my $rows = q(SELECT md5(string_agg(t, E'\n' ORDER BY t COLLATE "C")) FROM (SELECT s::text AS t FROM idem_settled s UNION ALL SELECT i::text FROM idem_inflight i UNION ALL SELECT m::text FROM idem_seen m) x);
is($there->ok($rows), $admin->ok($rows), 'logical replication: the same rows');
# Failover to it
$there->ok('DROP SUBSCRIPTION s');
is($there->ok(call('idem_complete', 'leased', token => "'$token'", columns => q('settled'))), 'settled', 'G6: the owner goes on at the subscriber');
is($there->ok(claim('released', lease => q('1 h'))), 'recovered', 'G5: a released claim is recovered there');
$_->quit foreach $there, $admin;
$sub->stop;
$node->stop;
done_testing();
