# Launcher and workers that are killed, ended, switched off, starved, misled by a database's settings, or met by a bad row; and
# deploys that kill whoever works.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PgIdemTest::Workers;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'lifecycle',
	conf => q{
	autovacuum = off
	restart_after_crash = on
	pg_idem.naptime = 50ms
});
my $s = session($node);
my $token = '24242424-2424-2424-2424-242424242424';
$s->ok(policies());

# An operation whose attempt was released: a pass announces it.
sub leave
{
	my ($session, $key, $action) = @_;
	my $id = [ 'acme', $action // 'retry', $key ];
	$session->ok('BEGIN; ' . claim($id, request => qq('{"id": "$key"}'), lease => q('1 h'), token => "'$token'")
		  . '; ' . call('idem_release', $id, token => "'$token'") . '; COMMIT');
	return;
}

sub recovers
{
	my ($session, $key, $name) = @_;
	leave($session, $key);
	return ok(wait_recorded($session, "key = '$key'", "$key announced released"), "G5: $name: recovery goes on by itself");
}
my $running = sub { my ($type) = @_; "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_idem $type'" };

# --- what an administrator sees
recovers($s, 'first', 'to begin with');
is($s->ok(q(SELECT datname IS NULL, wait_event_type FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher')),
	't|Extension', 'pg_stat_activity: the launcher is connected to no database, and waits');
is($s->ok(q(SELECT database, passes > 0, last_pass <= now(), last_ms >= 0, last_rows >= 0, last_error FROM idem_worker_status)),
	'postgres|t|t|t|t|', 'idem_worker_status');
$s->ok('CREATE ROLE watcher LOGIN IN ROLE pg_monitor; CREATE ROLE nobody_special LOGIN; GRANT USAGE ON SCHEMA public TO watcher');
my $watcher = session($node, user => 'watcher');
is($watcher->ok('SELECT count(*) FROM idem_worker_status'), '1', 'idem_worker_status is granted to pg_monitor');
is($watcher->try('SELECT idem_wake_workers()'), '42501', 'idem_wake_workers is not');
$watcher->quit;
$watcher = session($node, user => 'nobody_special');
is($watcher->try('SELECT count(*) FROM idem_worker_status'), '42501', 'nor is it to everybody');
$watcher->quit;

# --- a maintenance worker ended in the middle of a pass: only another pass follows
my $blocker = session($node);
my $stall = sub {
	$blocker->ok('BEGIN; LOCK TABLE idem_inflight IN ACCESS EXCLUSIVE MODE');
	$s->ok('SELECT idem_wake_workers()');
	wait_until($s, q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_idem maintenance' AND wait_event_type = 'Lock'), '1', 'a worker that waits');
	return $s->ok(q(SELECT worker_pid FROM idem_worker_status WHERE database = 'postgres'));
};
my $launcher = launcher_pid($s);
my $pid = $stall->();
is($s->ok("SELECT backend_type, datname FROM pg_stat_activity WHERE pid = $pid"), 'pg_idem maintenance|postgres', 'idem_worker_status shows the worker that runs');
foreach my $n (1 .. 3)
{
	$s->ok("SELECT pg_terminate_backend($pid, 10000)");
	wait_until($s, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_idem maintenance' AND wait_event_type = 'Lock' AND pid <> $pid", '1', 'the next worker');
	$pid = $s->ok(q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_idem maintenance'));
}
$s->ok("SELECT pg_cancel_backend($pid)");
$blocker->ok('COMMIT');
recovers($s, 'after-terminate', 'a maintenance worker ended by pg_terminate_backend, three times');
is(launcher_pid($s), $launcher, 'the launcher was not touched');

# --- the launcher ended: another one comes, and nobody else is disturbed
$s->ok("SELECT pg_terminate_backend($launcher, 10000)");
leave($s, 'while-away');
wait_until($s, "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher' AND pid <> $launcher", '1', 'the next launcher');
ok(wait_recorded($s, q(key = 'while-away'), 'while-away announced released'), 'G5: pg_terminate_backend of the launcher: what came meanwhile is recovered by the next one');
recovers($s, 'after-launcher', 'pg_terminate_backend of the launcher');
ok(!$s->closed, 'sessions go on');

# --- kill -9 of each kind: the server starts over, and so does everything else
$s->ok(q{
	CREATE FUNCTION jobs.hang(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	BEGIN
		IF (SELECT attempt FROM public.idem_current()) = 2 THEN PERFORM pg_sleep(600); END IF;
		RETURN '{}';
	END $$;
	GRANT EXECUTE ON FUNCTION idem_current() TO worker;
	GRANT USAGE ON SCHEMA public TO worker;
	INSERT INTO idem_policies (action, on_interrupt, handler, handler_role, keep_request) VALUES ('hang', 'call', 'jobs.hang', 'worker', true)});
my %victim = (
	maintenance => $stall,
	launcher => sub { launcher_pid($s) },
	handler => sub {
		leave($s, 'hanging', 'hang');
		wait_until($s, $running->('handler') . q( AND wait_event = 'PgSleep'), '1', 'the handler');
		return $s->ok(q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_idem handler'));
	});
foreach my $kind (sort keys %victim)
{
	my $victim = $victim{$kind}->();
	leave($blocker, "before-$kind") if $kind ne 'maintenance';
	kill 'KILL', $victim;
	ok($s->wait_closed && $blocker->wait_closed, "kill -9 of $kind: the server starts over, by its own rule");
	$_->quit foreach $s, $blocker;
	wait_for_start($node);
	$s = session($node);
	$blocker = session($node);
	recovers($s, "after-$kind", "kill -9 of $kind");
	ok(wait_recorded($s, "key = 'before-$kind'", "before-$kind announced released"), "G5: kill -9 of $kind: so does what had been left before") if $kind ne 'maintenance';
}
ok(wait_recorded($s, q(key = 'hanging'), 'hanging completed'), 'G5: the operation whose handler was killed is carried out by the next one');
is($s->ok(q(SELECT attempt FROM idem_settled WHERE key = 'hanging')), '3', 'which was one more attempt');

# --- switched off and on, naptime, by SIGHUP
my $reload = sub { $s->ok("ALTER SYSTEM SET $_") foreach @_; $s->ok('SELECT pg_reload_conf()'); };
$reload->('pg_idem.worker = off');
wait_until($s, q(SELECT query FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher'), 'switched off by pg_idem.worker', 'the launcher');
leave($s, 'off');
leave($s, 'off-call', 'call');
my $passes = $s->ok('SELECT passes FROM idem_worker_status');
$s->ok('SELECT idem_wake_workers()');
is($s->ok(q(SELECT state FROM idempotent_operations WHERE key = 'off')), 'interrupted', 'pg_idem.worker = off: the state is known all the same');
is($s->ok(claim([ 'acme', 'retry', 'off' ], request => q('{"id": "off"}'), columns => 'outcome, attempt', lease => q('1 h'))), 'recovered|2', 'G5: and claims recover lazily');
is($s->ok('SELECT passes FROM idem_worker_status'), $passes, 'no pass is made');
is($s->ok(q(SELECT rows FROM idem_maintain() WHERE task = 'called')), '1', 'but for that of idem_maintain');
ok(wait_recorded($s, q(key = 'off-call'), 'off-call completed'), 'which starts handlers too');
leave($s, 'off-2');
$reload->('pg_idem.worker = on');
ok(wait_recorded($s, q(key = 'off-2'), 'off-2 announced released'), 'pg_idem.worker = on: what waited is recovered');
$reload->(q(pg_idem.naptime = '1 h'));
wait_until($s, 'SHOW pg_idem.naptime', '1h');
next_pass($s);
next_pass($s);
$passes = $s->ok('SELECT passes FROM idem_worker_status');
leave($s, 'long nap');
is($s->ok('SELECT next_due > now() + interval \'1 min\' FROM idem_worker_status') . $s->ok(recorded(q(key = 'long nap'))), 'tlong nap waits released', 'a long nap');
$reload->(q(pg_idem.naptime = '50 ms'));
ok(wait_recorded($s, q(key = 'long nap'), 'long nap announced released'), 'a shorter naptime counts at once');

# --- whoever starts a handler goes before it has come: the next ones start all the same. (While the postmaster is stopped no
# process can come.)
my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
$reload->('pg_idem.worker = off');
wait_until($s, q(SELECT query FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher'), 'switched off by pg_idem.worker', 'the launcher');
foreach my $n (1 .. 3)
{
	leave($s, "orphan-$n", 'call');
	kill 'STOP', $postmaster;
	$s->ok(q(SET statement_timeout = '300 ms'));
	is($s->try('SELECT * FROM idem_maintain()'), '57014', 'idem_maintain cancelled while it starts a handler');
	$s->ok('RESET statement_timeout');
	kill 'CONT', $postmaster;
	wait_until($s, $running->('handler'), '0', 'nobody');
}
$reload->('pg_idem.worker = on');
ok(wait_recorded($s, q(key LIKE 'orphan-%'), 'orphan-1 completed, orphan-2 completed, orphan-3 completed'), 'G5: handlers are started all the same');

# --- ten deploys, each of which kills whoever works: owners, workers and handlers. The job goes on by its checkpoints.
my $deploy = sub {
	my ($owner) = @_;
	$s->ok('SELECT pg_terminate_backend(' . $owner->pid . ', 10000)');
	$s->ok(q(SELECT pg_terminate_backend(pid, 10000) FROM pg_stat_activity WHERE backend_type IN ('pg_idem maintenance', 'pg_idem handler')));
	$owner->quit;
};
my $hour = 0;
foreach my $bound ('false', 'true')
{
	my $name = $bound eq 'true' ? 'session-bound' : 'leased';
	my $key = "job-$name";
	set_clock($s, sprintf '2050-01-%02d %02d:00:00+00', 1 + int($hour / 24), $hour % 24);
	foreach my $phase (1 .. 10)
	{
		my $owner = session($node);
		my $claimed = $owner->ok(claim([ 'acme', 'retry', $key ], lease => q('1 h'), session_bound => $bound, columns => q(outcome, attempt, coalesce(checkpoint, 'none'), token)));
		my ($outcome, $attempt, $checkpoint, $t) = split /\|/, $claimed;
		is("$outcome $attempt $checkpoint", ($phase == 1 ? 'claimed 1 none' : "recovered $phase phase " . ($phase - 1)), "$name job: deploy $phase: goes on where it stopped");
		$owner->ok(call('idem_checkpoint', [ 'acme', 'retry', $key ], token => "'$t'", checkpoint => "'phase $phase'"));
		$owner->ok('BEGIN; ' . call('idem_guard', [ 'acme', 'retry', $key ], token => "'$t'") . "; INSERT INTO effects VALUES ('$key')");
		$deploy->($owner);
		$hour++;
		set_clock($s, sprintf '2050-01-%02d %02d:00:00+00', 1 + int($hour / 24), $hour % 24) if $bound eq 'false';
		wait_recorded($s, "key = '$key'", "$key announced " . ($bound eq 'true' ? 'session_ended' : 'lease_expired'));
	}
	is($s->ok("SELECT in_review, failures FROM idem_inflight WHERE key = '$key'"), 'f|0', "$name job: ten deploys do not send it to review");
	my ($outcome, $t) = split /\|/, $s->ok(claim([ 'acme', 'retry', $key ], lease => q('1 h'), columns => 'outcome, token'));
	$s->ok('BEGIN; ' . call('idem_guard', [ 'acme', 'retry', $key ], token => "'$t'") . "; INSERT INTO effects VALUES ('$key'); "
		  . call('idem_complete', [ 'acme', 'retry', $key ], token => "'$t'") . '; COMMIT');
	is($s->ok(recorded("key = '$key'")) . $s->ok("SELECT count(*) FROM effects WHERE key = '$key'"), "$key completed1", "G2: $name job: finished, effect once");
}
# The control: one that makes no progress does.
set_clock($s, '2051-01-01 00:00:00+00');
foreach my $n (1 .. 10)
{
	my $owner = session($node);
	$owner->ok(claim([ 'acme', 'retry', 'stuck' ], lease => q('1 h'), session_bound => 'true'));
	$deploy->($owner);
	wait_recorded($s, q(key = 'stuck'), $n < 10 ? 'stuck announced session_ended' : 'stuck review attempts_exhausted');
}
pass('control: a job without any progress goes to review after max_attempts');
real_clock($s);

# --- one bad row stops nobody: an index of which the expression fails for one key
$s->ok(q{
	CREATE TABLE jobs.poison (key text);
	GRANT SELECT ON jobs.poison TO worker;
	CREATE FUNCTION jobs.check_key(key text, b boolean) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		IF EXISTS (SELECT FROM jobs.poison p WHERE p.key = check_key.key) THEN RAISE EXCEPTION 'poisoned'; END IF;
		RETURN key;
	END $$;
	CREATE INDEX poison_inflight ON idem_inflight (jobs.check_key(key, announced OR in_review));
	CREATE INDEX poison_settled ON idem_settled (jobs.check_key(key, stripped));
});
$reload->('pg_idem.worker = off');
wait_until($s, q(SELECT query FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher'), 'switched off by pg_idem.worker', 'the launcher');
set_clock($s, '2052-01-01 00:00:00+00');
my @rules = qw(call fail retry review);
foreach my $rule (@rules)
{
	$s->ok(claim([ 'acme', $rule, "poison-$rule-$_" ], request => qq('{"id": "poison-$rule-$_"}'), lease => q('1 h'))) foreach 1 .. 5;
}
$s->ok('BEGIN; ' . claim("poison-settled-$_") . '; ' . call('idem_complete', "poison-settled-$_", result => q('{}')) . '; COMMIT') foreach 1 .. 5;
$s->ok(q(INSERT INTO jobs.poison SELECT 'poison-' || r || '-3' FROM unnest('{call,fail,retry,review,settled}'::text[]) r));
$s->ok(q(UPDATE idem_policies SET retention = '1 year' WHERE action = 'fail'));
my %good = (call => 'completed', fail => 'failed 503', retry => 'announced lease_expired', review => 'review interrupted');
$reload->('pg_idem.worker = on');
set_clock($s, '2052-01-04 00:00:00+00');
foreach my $rule (@rules)
{
	ok(wait_recorded($s, "key LIKE 'poison-$rule-%' AND key <> 'poison-$rule-3'", join ', ', map { "poison-$rule-$_ $good{$rule}" } 1, 2, 4, 5), "G5: $rule: one bad row does not stop the others");
}
wait_until($s, q(SELECT string_agg(stripped::text, ' ' ORDER BY key) FROM idem_settled WHERE key LIKE 'poison-settled%'), 'true true false true true');
pass('G7: nor does one bad row of idem_settled');
is($s->ok(recorded(q(key ~ '^poison-(call|fail|retry|review)-3'))), 'poison-call-3 waits error, poison-fail-3 held, poison-retry-3 held, poison-review-3 held', 'the bad ones are as they were');
is($s->ok('SELECT last_error, last_error_at > now() - interval \'1 min\' FROM idem_worker_status'), 'poisoned|t', 'idem_worker_status shows the error');
like(slurp_file($node->logfile), qr/WARNING:  (?:[0-9A-Z]{5}: )?could not deal with an operation: poisoned\n.*DETAIL:  Account "acme", action "fail", key "poison-fail-3"/, 'the log says which row');
my $error_count = () = slurp_file($node->logfile) =~ /could not deal with an operation: poisoned/g;
note("$error_count warnings of bad rows");
$s->ok('TRUNCATE jobs.poison');
set_clock($s, '2052-01-04 01:00:00+00');    # past the back-off of the handler that failed
ok(wait_recorded($s, q(key ~ '^poison-(call|fail|retry|review)-3'), join ', ', map { "poison-$_-3 $good{$_}" } @rules), 'G5: what has become good is dealt with without help');
$s->ok('DROP INDEX poison_inflight, poison_settled');
# A row that nobody could have written: an operator decides.
$s->ok(claim([ 'acme', 'retry', 'unknown-rule' ], lease => q('1 h')));
$s->ok(q(UPDATE idem_inflight SET on_interrupt = 'nonsense', lease_expires_at = '2052-01-03' WHERE key = 'unknown-rule'));
recovers($s, 'beside-unknown', 'a row of an unknown rule');
ok(wait_recorded($s, q(key = 'unknown-rule'), 'unknown-rule review interrupted'), 'a row of an unknown rule goes to review');
real_clock($s);

# --- a database with settings of its own
$s->ok('CREATE DATABASE odd');
my $odd = session($node, dbname => 'odd');
$odd->ok('CREATE EXTENSION pg_idem');
my @odd = (q(default_transaction_read_only = on), q(default_transaction_isolation = 'serializable'), 'default_transaction_deferrable = on', 'lock_timeout = 1',
	'statement_timeout = 1', q(search_path = 'nowhere'), 'row_security = off', 'idle_in_transaction_session_timeout = 1', 'client_min_messages = error',
	'enable_indexscan = off', q(session_replication_role = replica), 'synchronous_commit = remote_apply', q(timezone = 'Asia/Kathmandu'), q(datestyle = 'German'), q(intervalstyle = 'iso_8601'));
leave($odd, 'odd');
wait_recorded($odd, q(key = 'odd'), 'odd announced released');
$s->ok("ALTER DATABASE odd SET $_") foreach @odd;
leave($odd, 'odd-2');
ok(wait_recorded($odd, q(key = 'odd-2'), 'odd-2 announced released'), 'G5: settings of the database do not stop its workers');
set_clock($odd, '2060-01-01 00:00:00+00');
$odd->ok('BEGIN; ' . claim([ 'acme', 'x', 'kept' ]) . '; ' . call('idem_complete', [ 'acme', 'x', 'kept' ], result => q('{}')) . '; COMMIT');
set_clock($odd, '2060-01-04 00:00:00+00');
wait_until($odd, q(SELECT stripped FROM idem_settled WHERE key = 'kept'), 't', 'expiry');
pass('G7: nor its sweeper');
is($odd->ok(q(SELECT last_error FROM idem_worker_status WHERE database = 'odd')), '', 'without an error');
real_clock($odd);
# No longer to be connected to: given up, and found again
$s->ok('ALTER DATABASE odd CONNECTION LIMIT 0');
leave($odd, 'odd-3');
ok(wait_recorded($odd, q(key = 'odd-3'), 'odd-3 announced released'), 'a connection limit does not count for workers');
$odd->quit;
$s->ok('ALTER DATABASE odd ALLOW_CONNECTIONS false');
wait_until($s, q(SELECT count(*) FROM idem_worker_status WHERE database = 'odd'), '0', 'a database closed to connections is left alone');
$s->ok('ALTER DATABASE odd ALLOW_CONNECTIONS true; ALTER DATABASE odd CONNECTION LIMIT -1; ALTER DATABASE odd RESET ALL');
wait_until($s, q(SELECT count(*) FROM idem_worker_status WHERE database = 'odd' AND passes > 0), '1', 'one opened again');
pass('a database that is closed and opened again');

# --- template databases
my $template = session($node, dbname => 'template1');
$template->ok('CREATE EXTENSION pg_idem');
leave($template, 'template');
next_pass($s);
next_pass($s);
wait_until($s, q(SELECT count(*) FROM idem_worker_status WHERE database = 'template1'), '0', 'the launcher');
is($template->ok(recorded()), 'template waits released', 'nothing is done in a template database');
$template->quit;
$s->ok('CREATE DATABASE made');
my $made = session($node, dbname => 'made');
ok(wait_recorded($made, 'true', 'template announced released'), 'a database made of it is looked after');
is($made->ok(q(SELECT count(*) FROM idem_worker_status WHERE database = 'made')), '1', 'and in idem_worker_status');
$made->quit;
$_->quit foreach $s, $blocker;

# --- binary upgrade, and a server without room
$node->stop;
command_ok([ 'pg_ctl', '-D', $node->data_dir, '-w', '-l', $node->logfile, '-o', "-b --cluster-name=lifecycle", 'start' ], 'server for binary upgrade');
is($node->safe_psql('postgres', q(SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_idem%')), '0', 'no worker runs in binary upgrade mode');
command_ok([ 'pg_ctl', '-D', $node->data_dir, '-w', '-m', 'fast', 'stop' ], 'and it stops');
$node->append_conf('postgresql.conf', "max_worker_processes = 2\nmax_logical_replication_workers = 4");
$node->start;
$s = session($node);
leave($s, 'no room');
$node->wait_for_log(qr/no background worker slot is free for pg_idem/);
is($s->ok(claim([ 'acme', 'retry', 'no room' ], request => q('{"id": "no room"}'), columns => 'outcome, attempt', lease => q('1 h'))), 'recovered|2', 'G5: without a slot for workers claims recover lazily');
my $complaints = () = slurp_file($node->logfile) =~ /no background worker slot is free for pg_idem/g;
is($complaints, 1, 'and the log is not filled with complaints');
$s->quit;
$node->stop;
done_testing();
