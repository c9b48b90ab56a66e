# Interrupted attempts end where their rule says, without anybody claiming them: owners that are killed, servers that crash,
# standbys that are promoted.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PgIdemTest::Workers;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

my ($lease, $nap) = (2, 0.2);

# G5 says lease + nap. The rest is for the server's restart, the start of processes, and a machine that has other things to do.
my $slack = 15;
my $conf = qq{
	restart_after_crash = on
	autovacuum = off
	max_prepared_transactions = 10
	pg_idem.naptime = @{[ $nap * 1000 ]}ms
};
my @rules = qw(call fail retry review);
my %end = (
	call => 'completed',
	fail => 'failed 503',
	retry => 'announced lease_expired',
	review => 'review interrupted');
my %bound_end = (%end, retry => 'announced session_ended');

my $node = new_node('recovery', init => [ allows_streaming => 1 ], conf => $conf);
$node->safe_psql('postgres', policies());

sub claim_all
{
	my ($s, $prefix, %named) = @_;
	is($s->ok(claim([ 'acme', $_, "$prefix-$_" ], request => qq('{"id": "$prefix-$_"}'), lease => qq('$lease s'), %named)), 'claimed', "$prefix: $_ claimed")
	  foreach @rules;
	return;
}

sub ends
{
	my ($prefix, %ends) = @_;
	return join(', ', map { "$prefix-$_ $ends{$_}" } @rules);
}

# Until all of them are where their rule says, by the workers alone.
sub await
{
	my ($node, $prefix, $ends, $allowed, $started, $name) = @_;
	my $s = session($node);
	wait_recorded($s, "key LIKE '$prefix-%'", ends($prefix, %$ends));
	my $took = time - $started;
	cmp_ok($took, '<', $allowed + $slack, "G5: $name: every rule within lease + nap (plus $slack s for a busy machine)");
	note(sprintf '%s: %.2f s after the owner stopped, allowed %.2f s', $name, $took, $allowed);
	is($s->ok("SELECT count(*), count(DISTINCT who) FILTER (WHERE who = 'worker') FROM jobs.done WHERE key = '$prefix-call'"),
		'1|1', "G1: $name: handler took effect once, as its role");
	return $s;
}

# --- one session ended by the administrator; listeners hear of it
my $listener = session($node);
$listener->ok('LISTEN pg_idem');
my $owner = session($node);
claim_all($owner, 'terminated');
my $observer = session($node);
my $started = time;
$observer->ok('SELECT pg_terminate_backend(' . $owner->pid . ', 10000)');
await($node, 'terminated', \%end, $lease + $nap, $started, 'pg_terminate_backend')->quit;
my @heard = sort $listener->ok('SELECT 1') =~ /notification "pg_idem" with payload "(.*)" received/g;
is_deeply(\@heard, [ '{"action": "retry", "state": "interrupted"}', '{"action": "review", "state": "review"}' ],
	'channel pg_idem: who may take over or must decide hears of it, once each, without account and key');

# --- bound to the session: no lease to wait for
$owner = session($node);
claim_all($owner, 'bound', session_bound => 'true', lease => q('1 h'));
next_pass($observer);
is($observer->ok(recorded(q(key LIKE 'bound-%'))), ends('bound', map { $_ => 'held' } @rules), 'G1: while the session lives nothing happens');
$started = time;
$observer->ok('SELECT pg_terminate_backend(' . $owner->pid . ', 10000)');
await($node, 'bound', \%bound_end, $nap, $started, 'session-bound, pg_terminate_backend')->quit;
is($observer->ok(claim([ 'acme', 'retry', 'bound-retry' ], request => q('{"id": "bound-retry"}'), columns => 'outcome, attempt', lease => q('1 h'))),
	'recovered|2', 'G5: and the next one takes over');

# --- its process killed, so that the server starts over
$owner = session($node);
claim_all($owner, 'killed');
claim_all($owner, 'kbound', session_bound => 'true', lease => q('1 h'));
$_->quit foreach $observer, $listener;
$started = time;
kill 'KILL', $owner->pid;
wait_for_start($node);
await($node, 'kbound', \%bound_end, $nap, $started, 'session-bound, kill -9')->quit;
await($node, 'killed', \%end, $lease + $nap, $started, 'kill -9')->quit;

# --- the whole server, in the middle; a handler that had begun is begun again
$node->safe_psql(
	'postgres', q{
	CREATE TABLE jobs.gate (open boolean);
	GRANT SELECT ON jobs.gate TO worker;
	CREATE FUNCTION jobs.gated(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		INSERT INTO jobs.done (key) VALUES (request ->> 'id');
		WHILE NOT EXISTS (SELECT FROM jobs.gate) LOOP PERFORM pg_sleep(0.02); END LOOP;
		RETURN '{}';
	END $$;
	INSERT INTO idem_policies (action, on_interrupt, handler, handler_role, keep_request)
		VALUES ('gated', 'call', 'jobs.gated', 'worker', true);
});
my %stop = (
	'immediate stop' => sub { $node->stop('immediate'); $node->start; },
	'postmaster killed' => sub { kill9($node); $node->start; });
foreach my $how (sort keys %stop)
{
	(my $prefix = $how) =~ s/\W//g;
	$observer = session($node);
	$observer->ok('TRUNCATE jobs.gate');
	$owner = session($node);
	$owner->ok(claim([ 'acme', 'gated', "gated-$prefix" ], request => qq('{"id": "gated-$prefix"}'), lease => q('1 h'), session_bound => 'true'));
	$owner->quit;
	wait_until($observer, q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_idem handler' AND usename = 'worker'), '1', 'the handler');
	$owner = session($node);
	claim_all($owner, $prefix);
	$_->quit foreach $owner, $observer;
	$started = time;
	$stop{$how}->();
	$observer = await($node, $prefix, \%end, $lease + $nap, $started, $how);
	$observer->ok('INSERT INTO jobs.gate VALUES (true)');
	wait_recorded($observer, "key = 'gated-$prefix'", "gated-$prefix completed");
	is($observer->ok("SELECT count(*) FROM jobs.done WHERE key = 'gated-$prefix'"), '1', "G2: $how: what the handler had done was lost with it, and done once more");
	is($observer->ok("SELECT attempt FROM idem_settled WHERE key = 'gated-$prefix'"), '3', "G5: $how: the handler's attempt was the second, and was lost");
	$observer->quit;
}

# --- transactions that keep the operation
$observer = session($node);
$owner = session($node);
my ($idle, $open) = (session($node), session($node));
my $clock = sub {
	my ($time) = @_;
	set_clock($observer, $time);
	wait_until($_, 'SHOW pg_idem.test_now', $time, 'the clock') foreach @_[ 1 .. $#_ ];
};
$clock->('2034-01-01 00:00:00+00', $owner, $idle, $open);
my $token = '21212121-2121-2121-2121-212121212121';
my $take = sub {
	my ($key, %named) = @_;
	$owner->ok(claim([ 'acme', 'retry', $key ], lease => q('1 h'), token => "'$token'", %named));
};
my $guard = sub { my ($key) = @_; call('idem_guard', [ 'acme', 'retry', $key ], token => "'$token'") };
$take->($_) foreach qw(keep-idle keep-open keep-prepared keep-none);
$owner->ok('BEGIN; ' . $guard->('keep-prepared') . q(; PREPARE TRANSACTION 'kept'));
$idle->ok(q(SET pg_idem.idle_claim_timeout = '1 h'; BEGIN; ) . $guard->('keep-idle'));
$open->ok('BEGIN; ' . $guard->('keep-open'));
$clock->('2034-01-01 01:00:00+00', $owner);
wait_recorded($observer, q(key = 'keep-none'), 'keep-none announced lease_expired');
next_pass($observer);
is($observer->ok(recorded(q(key LIKE 'keep-%'))),
	'keep-idle held, keep-none announced lease_expired, keep-open held, keep-prepared held',
	'G6: leases that are over are left alone while a guarded or prepared transaction is open');
is($observer->ok(q(SELECT last_error IS NULL FROM idem_worker_status WHERE database = 'postgres')), 't', 'which is no error');
$open->ok('COMMIT');
wait_recorded($observer, q(key = 'keep-open'), 'keep-open announced lease_expired');
pass('G5: recovered when the guarded transaction has ended');
$observer->ok(q(COMMIT PREPARED 'kept'));
wait_recorded($observer, q(key = 'keep-prepared'), 'keep-prepared announced lease_expired');
pass('G5: recovered when the prepared transaction has ended, which nothing tells of');
is($observer->ok(recorded(q(key = 'keep-idle'))), 'keep-idle held', 'G6: the third is still kept');
$idle->ok(q(COMMIT; SET pg_idem.idle_claim_timeout = '200 ms'));
$take->('idle-owner');
$idle->ok('BEGIN; ' . $guard->('idle-owner'));
$clock->('2034-01-01 02:00:00+00');
wait_recorded($observer, q(key IN ('keep-idle', 'idle-owner')), 'idle-owner announced lease_expired, keep-idle announced lease_expired');
pass('G5: an owner that idles in its guarded transaction is ended by pg_idem.idle_claim_timeout, and recovered');
isnt($idle->try('SELECT 1'), '', 'its session has ended');
$_->quit foreach $idle, $open;

# --- the clock decides, to the microsecond
$observer->ok('DELETE FROM jobs.done');
$clock->('2035-01-01 00:00:00+00', $owner);
claim_all($owner, 'clock');
next_pass($observer);
is($observer->ok(recorded(q(key LIKE 'clock-%'))), ends('clock', map { $_ => 'held' } @rules), 'test clock: leases have begun');
set_clock($observer, '2035-01-01 00:00:01.999999+00');
next_pass($observer);
is($observer->ok(recorded(q(key LIKE 'clock-%'))), ends('clock', map { $_ => 'held' } @rules), 'G1: one microsecond before its end no lease is touched');
set_clock($observer, '2035-01-01 00:00:02+00');
wait_recorded($observer, q(key LIKE 'clock-%'), ends('clock', %end));
is($observer->ok(q(SELECT string_agg(DISTINCT coalesce(i.state_since, s.settled_at) || '', ' ')
		FROM idem_inflight i FULL JOIN idem_settled s USING (account, action, key) WHERE key IN ('clock-retry', 'clock-fail', 'clock-review'))),
	'2035-01-01 00:00:02+00', 'G5: at its end each is where its rule says, since then');
$listener = session($node);
$listener->ok('LISTEN pg_idem');
next_pass($observer);
is($listener->ok('SELECT 1'), '1', 'what was announced is not announced again');
$listener->quit;

# The rule of the claim counts, whatever the policy says since.
$clock->('2035-01-02 00:00:00+00', $owner);
claim_all($owner, 'rule');
$observer->ok(q(UPDATE idem_policies SET on_interrupt = 'review' WHERE action IN ('fail', 'retry')));
set_clock($observer, '2035-01-02 00:00:02+00');
wait_recorded($observer, q(key LIKE 'rule-%'), ends('rule', %end));
pass('the rule in force at the claim decides');
$observer->ok(q(UPDATE idem_policies SET on_interrupt = action WHERE action IN ('fail', 'retry')));

# Attempts used up: review, or failed where the rule says so.
$clock->('2035-01-03 00:00:00+00', $owner);
$observer->ok('UPDATE idem_policies SET max_attempts = 1');
$listener = session($node);
$listener->ok('LISTEN pg_idem');
claim_all($owner, 'last');
set_clock($observer, '2035-01-03 00:00:02+00');
wait_recorded($observer, q(key LIKE 'last-%'), 'last-call review attempts_exhausted, last-fail failed 503, last-retry review attempts_exhausted, last-review review attempts_exhausted');
is($observer->ok(q(SELECT count(*) FROM jobs.done WHERE key = 'last-call')), '0', 'the only attempt was the owner\'s: no handler');
@heard = sort $listener->ok('SELECT 1') =~ /notification "pg_idem" with payload "(.*)" received/g;
is_deeply(\@heard, [ map { qq({"action": "$_", "state": "review"}) } qw(call retry review) ], 'each that goes to review is announced');
$listener->quit;
$observer->ok('UPDATE idem_policies SET max_attempts = NULL');
real_clock($observer);
$_->quit foreach $owner, $observer;

# --- promotion of a standby in the middle
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('recovery_standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->start;
$owner = session($node);
claim_all($owner, 'pbound', session_bound => 'true', lease => q('1 h'));
claim_all($owner, 'promoted');
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
my $s = session($standby);
is($s->ok(q(SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_idem%')), '0', 'nothing runs on a standby');
is($s->ok('SELECT count(*) FROM idem_worker_status'), '0', 'where idem_worker_status has no rows');
is($s->ok(recorded(q(key LIKE 'pbound-%'))), ends('pbound', map { $_ => 'held' } @rules), 'and nothing is judged');
is($s->try('SELECT * FROM idem_maintain()'), '25006', 'G12: idem_maintain on a standby');
$s->quit;
$started = time;
$node->stop('immediate');
$owner->quit;
$standby->promote;
await($standby, 'pbound', \%bound_end, $nap, $started, 'session-bound, promotion')->quit;
await($standby, 'promoted', \%end, $lease + $nap, $started, 'promotion')->quit;
$standby->stop;

done_testing();
