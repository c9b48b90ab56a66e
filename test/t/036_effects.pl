# G11 Effects outlive crashes, dumps and failover; a report wakes what waits for it.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PgIdemTest::Workers;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('effects', init => [ allows_streaming => 1 ], conf => qq{
	autovacuum = off
	max_prepared_transactions = 10
	pg_idem.naptime = 200ms
});
my $token = '36363636-3636-3636-3636-363636363636';
my $s = session($node);
$s->ok(q(INSERT INTO idem_policies (action, on_interrupt, keep_request) VALUES ('pay', 'retry', true), ('fail', 'fail', NULL)));

sub key
{
	my ($key) = @_;
	return ref $key ? $key : [ 'acme', 'pay', $key ];
}

# SQL: hand out, report, settle
sub effect
{
	my ($key, %named) = @_;
	$named{columns} //= 'state, downstream_key';
	return call('idem_effect', key($key), token => "'$token'", name => q('charge'), provider_window => q('1 day'), request => q('{"cents": 1}'), %named);
}
sub report { my ($id, $state, $response) = @_; return "SELECT idem_effect_report('$id', '$state'" . ($response ? ", '$response'" : '') . ')'; }
sub complete { my ($key) = @_; return call('idem_complete', key($key), token => "'$token'", columns => 'r > now()'); }
sub lease { my ($key, $lease) = @_; return claim(key($key), lease => "'$lease'", token => "'$token'"); }

# --- a crash after each step of the protocol: what was committed is there, what was not is not
foreach my $how ('immediate stop', 'postmaster killed')
{
	my $crash = sub {
		$s->quit;
		$how eq 'immediate stop' ? $node->stop('immediate') : kill9($node);
		$node->start;
		$s = session($node);
	};
	(my $key = $how) =~ s/\W/-/g;
	is($s->ok(lease($key, '1 h')), 'claimed', "$how: claimed");
	$s->ok('BEGIN; ' . effect($key));
	$crash->();
	is($s->ok("SELECT count(*) FROM idem_effects WHERE key = '$key'"), '0', "G11: $how: not committed, so not handed out: the call may not have been made");
	$s->ok('SET synchronous_commit = off');    # which effects do not heed
	my ($state, $id) = split /\|/, $s->ok(effect($key));
	is($state, 'call', "$how: handed out");
	my $sent = $s->ok(effect($key, columns => 'first_sent_at, send_before'));
	$crash->();
	is($s->ok(effect($key)), "call|$id", "G11: $how: the same key");
	is($s->ok(effect($key, columns => 'first_sent_at, send_before')), $sent, "G11: $how: the same window");
	is($s->try(complete($key)), 'IDM11', "G11: $how: open");
	$s->ok('BEGIN; ' . report($id, 'confirmed', '{"id": "ch"}'));
	$crash->();
	is($s->try(complete($key)), 'IDM11', "G11: $how: a report that did not commit is none");
	$s->ok('SET synchronous_commit = off; ' . report($id, 'confirmed', '{"id": "ch"}'));
	$crash->();
	is($s->ok(effect($key, columns => 'state, response')), 'confirmed|{"id": "ch"}', "G11: $how: confirmed, with its response");
	is($s->ok(complete($key)), 't', "$how: settled");
	$crash->();
	is($s->ok(report($id, 'confirmed')), 't', "$how: and reported once more");
	is($s->try(report($id, 'rejected')), 'IDM04', "G11: $how: a contradiction");
}

# --- in a prepared transaction: the key lock goes with it, a report waits
is($s->ok(lease('prepared', '1 h')), 'claimed', 'prepared: claimed');
$s->ok('BEGIN; ' . effect('prepared') . "; PREPARE TRANSACTION 'effect'");
my $other = session($node);
$other->send(effect('prepared'));
wait_lock($s, $other);
$s->ok(q(COMMIT PREPARED 'effect'));
is($other->get, '', 'prepared: a second owner call waited');
my ($state, $prepared_id) = split /\|/, $other->out;
is($state, 'call', 'prepared: and found it handed out');
is($s->ok("SELECT count(*) FROM idem_effects WHERE key = 'prepared'"), '1', 'prepared: once');
$s->ok('BEGIN; ' . report($prepared_id, 'rejected') . "; PREPARE TRANSACTION 'report'");
$other->send(report($prepared_id, 'confirmed'));
wait_lock($s, $other);
$s->ok(q(COMMIT PREPARED 'report'));
is($other->get, 'IDM04', 'prepared: the report stands');
$other->quit;

# --- rule fail: the worker puts it in review, a report lets it go on, and whoever listens hears of it
my $fail = [ 'acme', 'fail', 'k' ];
my $listener = session($node);
$listener->ok('LISTEN pg_idem');
my $heard = sub {
	my ($expected) = @_;
	my @all;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while (!@all && time < $end)
	{
		@all = $listener->ok('SELECT pg_sleep(0.02)') =~ /notification "pg_idem" with payload "(.*)" received/g;
	}
	return "@all";
};
is($s->ok(lease($fail, '1 s')), 'claimed', 'rule fail: claimed');
my $id = (split /\|/, $s->ok(effect($fail)))[1];
wait_recorded($s, "action = 'fail'", 'k review effect_open');
is($heard->(), '{"action": "fail", "state": "review"}', 'G11: rule fail over an open effect: review, and announced');
is($s->ok(claim($fail)), 'review', 'G11: a claim is told so');
is($s->try(effect($fail)), 'IDM10', 'G6: the owner too');
is($s->ok(report($id, 'confirmed', '{"id": "ch"}')), 't', 'the provider says what it did');
wait_recorded($s, "action = 'fail'", 'k announced effect_reported');
is($heard->(), '{"action": "fail", "state": "interrupted"}', 'G5: the report wakes it: announced to those who take over');
is($s->ok(claim($fail, lease => q('1 h'), token => "'$token'", columns => 'outcome, attempt')), 'recovered|2', 'rule fail: taken over');
is($s->ok(effect($fail, columns => 'state, response')), 'confirmed|{"id": "ch"}', 'rule fail: without a second call');
is($s->ok(complete($fail)), 't', 'rule fail: settled');
$listener->quit;

# --- a webhook's role: the grant is enough, whatever account it is for
$s->ok(q{
	CREATE ROLE hook LOGIN; CREATE ROLE acme LOGIN;
	GRANT EXECUTE ON FUNCTION idem_effect_report(uuid, text, jsonb) TO hook, acme;
	GRANT EXECUTE ON FUNCTION idem_effect(text, text, text, uuid, text, interval, jsonb, boolean), idem_open_effects(text, text, text) TO hook, acme;
});
is($s->ok(lease('hook', '1 h')), 'claimed', 'webhook: claimed');
$id = (split /\|/, $s->ok(effect('hook')))[1];
$node->append_conf('postgresql.conf', "pg_idem.account_from = 'role'");
$node->reload;
my ($hook, $acme) = map { session($node, user => $_) } qw(hook acme);
wait_until($hook, 'SHOW pg_idem.account_from', 'role');
is($hook->try(effect('hook')), '42501', 'account_from: idem_effect is for the account');
is($hook->try(call('idem_open_effects', key('hook'))), '42501', 'account_from: idem_open_effects too');
is($acme->ok(call('idem_open_effects', key('hook'), columns => 'name, state')), 'charge|call', 'account_from: the account sees what is open');
is($hook->try('SELECT * FROM idem_effects'), '42501', 'the view is granted to nobody');
is($hook->ok(report($id, 'confirmed', '{"by": "hook"}')), 't', 'account_from: a fact needs only the grant');
$_->quit foreach $hook, $acme;
$node->append_conf('postgresql.conf', "pg_idem.account_from = 'argument'");
$node->reload;
wait_until($s, 'SHOW pg_idem.account_from', 'argument');

# --- a standby reads, and does not write; promoted, it goes on
switch_workers($node, $s, 'off');
is($s->ok(lease('moved', '1 h')), 'claimed', 'standby: claimed');
my $moved = (split /\|/, $s->ok(effect('moved')))[1];
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $r = session($standby);
is($r->ok(call('idem_open_effects', key('moved'), columns => 'name, state, request, downstream_key')), qq(charge|call|{"cents": 1}|$moved), 'standby: what is open');
is($r->ok(q(SELECT state, response FROM idem_effects WHERE key = 'hook')), 'confirmed|{"by": "hook"}', 'standby: the view');
is($r->try(effect('moved')), '25006', 'G12: standby: idem_effect');
is($r->try(report($moved, 'confirmed')), '25006', 'G12: standby: idem_effect_report');
is($r->ok('BEGIN ISOLATION LEVEL REPEATABLE READ; ' . call('idem_open_effects', key('moved'), columns => 'name') . '; COMMIT'), 'charge', 'standby: at REPEATABLE READ');

# --- dump, and restore into another cluster: keys, hand-outs and reports are the same
my $all = q(SELECT md5(string_agg(e::text, E'\n' ORDER BY e::text COLLATE "C")), count(*) FROM idem_effect_calls e);
my $before = $s->ok($all);
my $dir = PostgreSQL::Test::Utils::tempdir();
$node->command_ok([ 'pg_dump', '-d', $node->connstr('postgres'), '-Fc', '-f', "$dir/dump" ], 'pg_dump');
my $new = new_node('restored', extension => 0, worker => 0);
$new->safe_psql('postgres', 'CREATE ROLE hook; CREATE ROLE acme');
$new->command_ok([ 'pg_restore', '-d', $new->connstr('postgres'), '-e', "$dir/dump" ], 'pg_restore');
my $restored = session($new);
is($restored->ok($all), $before, 'G11: restored: the same rows');

# --- failover
$r->quit;
$s->quit;
$node->stop('immediate');
$standby->promote;
$r = session($standby);
foreach my $where ([ 'promoted', $r ], [ 'restored', $restored ])
{
	my ($how, $t) = @$where;
	is($t->ok(effect('moved')), "call|$moved", "G11: $how: the same key");
	is($t->try(complete('moved')), 'IDM11', "G11: $how: open");
	is($t->ok(report($moved, 'confirmed')), 't', "$how: reported");
	is($t->ok(complete('moved')), 't', "$how: settled");
	is($t->ok(effect('prepared')), "rejected|$prepared_id", "G11: $how: rejected");
	my ($again, $second) = split /\|/, $t->ok(effect('prepared', again => 'true'));
	is($again, 'call', "$how: again");
	isnt($second, $prepared_id, "G11: $how: under a new key");
}
$_->quit foreach $r, $restored;
$_->stop foreach $standby, $new;
done_testing();
