# on_interrupt = 'call': what becomes of an operation whose handler succeeds, refuses, fails, hangs, dies, or cannot be run.
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
	'handler',
	conf => q{
	autovacuum = off
	max_prepared_transactions = 10
	pg_idem.naptime = 50ms
});
my $s = session($node);
my $version = $s->ok('SHOW server_version_num');
my $token = '22222222-2222-2222-2222-222222222222';
my $setup = q{
	CREATE TABLE jobs.gate (open boolean);
	GRANT SELECT ON jobs.gate TO worker;
	CREATE FUNCTION jobs.wait() RETURNS void LANGUAGE plpgsql AS
		$$ BEGIN WHILE NOT EXISTS (SELECT FROM jobs.gate) LOOP PERFORM pg_sleep(0.01); END LOOP; END $$;
	CREATE FUNCTION jobs.note(request jsonb) RETURNS void LANGUAGE sql AS
		$$ INSERT INTO jobs.done (key) VALUES (request ->> 'id') $$;
};
$s->ok(policies() . $setup);

# An action with a handler of that name, in PL/pgSQL.
sub action
{
	my ($name, $body, %policy) = @_;
	$s->ok("CREATE FUNCTION jobs.$name(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS \$\$ BEGIN PERFORM jobs.note(request); $body END \$\$") if $body;
	my %row = (action => "'$name'", on_interrupt => q('call'), handler => "'jobs.$name'", handler_role => q('worker'),
		keep_request => 'true', retry_backoff => q('1 h'), %policy);
	my @columns = sort keys %row;
	$s->ok('INSERT INTO idem_policies (' . join(', ', @columns) . ') VALUES (' . join(', ', @row{@columns}) . ')');
	return;
}

# An operation of that action, the first attempt of which was released.
sub leave
{
	my ($action, $key, %named) = @_;
	$key //= $action;
	my $id = [ 'acme', $action, $key ];
	$s->ok('BEGIN; ' . claim($id, request => qq('{"id": "$key"}'), lease => q('1 h'), token => "'$token'", %named)
		  . '; ' . call('idem_release', $id, token => "'$token'") . '; COMMIT');
	return;
}

sub state_is
{
	my ($key, $expected, $name) = @_;
	my $got = wait_recorded($s, "key = '$key'", "$key $expected");
	return ok($got, $name);
}

sub done { my ($key) = @_; return $s->ok("SELECT count(*) FROM jobs.done WHERE key = '$key'"); }
sub column { my ($key, $columns) = @_; return $s->ok("SELECT $columns FROM idempotent_operations WHERE key = '$key'"); }
my $handlers = q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_idem handler');

# --- one that ignores its cancellation takes the longest: it begins now, and is looked after at the end
action('stubborn', q{
	LOOP
		BEGIN
			LOOP PERFORM pg_sleep(0.01); END LOOP;
		EXCEPTION WHEN query_canceled THEN NULL;
		END;
	END LOOP;}, max_attempts => 1, retry_backoff => q('0'));
leave('stubborn', undef, lease => q('1 s'));

# --- success
action('good', q{
	RETURN (SELECT jsonb_build_object('account', c.account, 'action', c.action, 'key', c.key, 'attempt', c.attempt, 'user', current_user,
		'session', session_user, 'superuser', current_setting('is_superuser')) FROM idem_current() c);});
$s->ok('GRANT EXECUTE ON FUNCTION idem_current() TO worker');
leave('good');
state_is('good', 'completed', 'success settles the operation');
is(column('good', q(result ->> 'account', result ->> 'action', result ->> 'key', result ->> 'attempt')), 'acme|good|good|2', 'idem_current() in a handler');
is(column('good', q(result ->> 'user', result ->> 'session', result ->> 'superuser')), 'worker|worker|off', 'it runs as the role, and nothing else');
is(column('good', q(attempt, request ->> 'id', status)), '2|good|', 'it was the second attempt');
is($s->ok(q(SELECT who FROM jobs.done WHERE key = 'good')), 'worker', 'G2: what it did is there');
is($s->ok(claim([ 'acme', 'good', 'good' ], request => q('{"id": "good"}'), columns => q(outcome, result ->> 'attempt'))), 'completed|2', 'G3: and replayed');
action('nothing', 'RETURN NULL;');
leave('nothing');
state_is('nothing', 'completed', 'a handler that returns NULL');
is(column('nothing', 'result IS NULL'), 't', 'settles without a result');
action('strictly', undef, handler => q('jobs.strictly(jsonb)'));
$s->ok(q(CREATE FUNCTION jobs.strictly(r jsonb) RETURNS jsonb LANGUAGE sql STRICT AS $$ SELECT r $$));
leave('strictly');
state_is('strictly', 'completed', 'a STRICT handler, named with its argument');
$s->ok(q(INSERT INTO idem_policies (action, handler, handler_role) VALUES ('*', 'jobs.work', 'worker')));
action('starry', undef, handler => 'NULL', handler_role => 'NULL');
leave('starry');
state_is('starry', 'completed', q(handler and role of row '*'));
$s->ok(q(DELETE FROM idem_policies WHERE action = '*'));

# --- a final refusal
action('refused', q(PERFORM idem_reject('{"why": "no money"}', 402); RETURN NULL;));
$s->ok('GRANT EXECUTE ON FUNCTION idem_reject(jsonb, integer) TO worker');
leave('refused');
state_is('refused', 'failed 402', 'idem_reject settles it as failed');
is(done('refused') . column('refused', 'result'), '0{"why": "no money"}', 'G2: and undoes what the handler did');
action('swallowed', q(BEGIN PERFORM idem_reject('{}'); EXCEPTION WHEN OTHERS THEN NULL; END; RETURN '{}';));
leave('swallowed');
state_is('swallowed', 'waits error', 'a handler that swallows idem_reject has failed');

# --- errors: counted, noted, further and further apart
set_clock($s, '2036-01-01 00:00:00+00');
action('bad', q(RAISE EXCEPTION 'no luck today';), retry_backoff => q('10 s'), max_backoff => q('30 s'), max_attempts => 4);
leave('bad');
my @at = ('00:00:00', '00:00:10', '00:00:30', '00:01:00');
foreach my $n (1 .. 4)
{
	my $due = ('', '00:00:10', '00:00:30', '00:01:00', '00:01:30')[$n];
	wait_until($s, q(SELECT failures || ' ' || attempt || ' ' || due_at FROM idem_inflight WHERE key = 'bad'),
		"$n " . ($n + 1) . " 2036-01-01 $due+00");
	pass("G5: error $n is counted, the next attempt is due at $due");
	is(column('bad', 'state, reason, last_error'), 'interrupted|error|no luck today', 'and noted');
	is($s->ok(claim([ 'acme', 'bad', 'bad' ], request => q('{"id": "bad"}'))), 'in_progress', 'a claim does not come before that either');
	set_clock($s, "2036-01-01 $due+00");
}
state_is('bad', 'review attempts_exhausted', 'G5: max_attempts ends in review');
is(done('bad'), '0', 'G2: none of its attempts left anything behind');
$s->ok('ALTER ROLE worker SET exit_on_error = on'); # an error would end the process before it is noted
action('badfail', q(RAISE EXCEPTION 'no luck';), max_attempts => 2, retry_backoff => q('0'));
leave('badfail');
state_is('badfail', 'waits error', 'without back-off, the next attempt waits all the same');
is(column('badfail', 'attempt, due_at - state_since'), '2|00:00:00.05', 'for a nap: else all of them could come within one pass');
set_clock($s, '2036-01-01 00:01:31+00');
wait_until($s, q(SELECT failures FROM idem_inflight WHERE key = 'badfail'), '2', 'the second one');
set_clock($s, '2036-01-01 00:01:32+00');
state_is('badfail', 'review attempts_exhausted', 'then one comes after the other');
is(column('badfail', 'attempt, last_error'), '3|no luck', 'no more than max_attempts of them');
$s->ok('ALTER ROLE worker RESET exit_on_error');

# Under a clock that stands still no lease ends; only the handler's own timer runs.
action('slow', 'PERFORM pg_sleep(600); RETURN NULL;');
leave('slow', undef, lease => q('500 ms'));
state_is('slow', 'waits error', 'G5: a handler is cancelled at the end of its lease');
is(column('slow', 'last_error, attempt'), 'handler was canceled at the end of its lease|2', 'which says so');
is(done('slow'), '0', 'G2: and leaves nothing');
real_clock($s);

# --- errors in places of their own
$s->ok(q{
	CREATE TABLE jobs.parent (id text PRIMARY KEY);
	CREATE TABLE jobs.child (id text REFERENCES jobs.parent DEFERRABLE INITIALLY DEFERRED);
	GRANT ALL ON jobs.parent, jobs.child TO worker;
	GRANT EXECUTE ON FUNCTION idem_claim TO worker;
	GRANT USAGE ON SCHEMA public TO worker;
	CREATE FUNCTION jobs.text_argument(r text) RETURNS jsonb LANGUAGE sql AS $$ SELECT r::jsonb $$;
	CREATE FUNCTION jobs.text_result(r jsonb) RETURNS text LANGUAGE sql AS $$ SELECT r::text $$;
	CREATE FUNCTION jobs.many(r jsonb) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT r $$;
	CREATE FUNCTION jobs.forbidden(r jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT r $$;
	REVOKE ALL ON FUNCTION jobs.forbidden(jsonb) FROM PUBLIC;
	CREATE FUNCTION public.unqualified(r jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT r $$;
	CREATE SCHEMA closed;
	CREATE FUNCTION closed.work(r jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT r $$;
	CREATE ROLE mortal LOGIN;
	CREATE ROLE climber LOGIN;
	CREATE ROLE mute NOLOGIN;
	CREATE ROLE outsider LOGIN;
	GRANT USAGE ON SCHEMA jobs TO mute, outsider, mortal, climber;
	GRANT ALL ON jobs.done TO mute;
	REVOKE CONNECT ON DATABASE postgres FROM PUBLIC;
	GRANT CONNECT ON DATABASE postgres TO worker, mute;
});
action('deferred', q(INSERT INTO jobs.child VALUES ('nobody'); RETURN NULL;));
action('large', q(RETURN to_jsonb(repeat('x', 1000));), max_outcome_bytes => 100);
action('unsettled', q(PERFORM public.idem_claim('acme', 'other', 'k', '{}'); RETURN NULL;));
action('absent', undef, handler => q('jobs.absent'));
action('noname', undef, handler => 'NULL');
action('norole', undef, handler => q('jobs.work'), handler_role => 'NULL');
action('text_argument', undef);
action('text_result', undef);
action('many', undef);
action('forbidden', undef);
action('unqualified', undef, handler => q('unqualified'));
action('notaname', undef, handler => q('jobs..work;'));
action('closed', undef, handler => q('closed.work'));
action('mortal', undef, handler => q('jobs.work'), handler_role => q('mortal'));
action('climber', undef, handler => q('jobs.work'), handler_role => q('climber'));
action('mute', undef, handler => q('jobs.work'), handler_role => q('mute'));
action('outsider', undef, handler => q('jobs.work'), handler_role => q('outsider'));
action('forgetful', undef, handler => q('jobs.work'), keep_request => 'false');
$s->ok('REVOKE ALL ON SCHEMA jobs FROM mortal; DROP ROLE mortal; ALTER ROLE climber SUPERUSER');
my $connect = 'handler worker could not connect as handler_role';
my @broken = (
	absent => 'handler "jobs.absent" does not exist',
	climber => 'handler_role is a superuser',
	closed => 'permission denied for schema closed',
	deferred => 'insert or update on table "child" violates foreign key constraint "child_id_fkey"',
	forbidden => 'permission denied for function forbidden',
	forgetful => 'request was not kept',
	large => 'outcome is larger than the policy allows',
	many => 'handler "jobs.many" is not a function (jsonb) that returns jsonb',
	mortal => 'handler_role does not exist',
	noname => 'policy names no handler',
	norole => 'policy names no handler_role',
	notaname => qr/./,
	outsider => $connect,
	text_argument => 'handler "jobs.text_argument" is not a function (jsonb) that returns jsonb',
	text_result => 'handler "jobs.text_result" is not a function (jsonb) that returns jsonb',
	unqualified => 'handler "unqualified" is not qualified with a schema',
	unsettled => qr/claim/,
	$version < 170000 ? (mute => $connect) : ());
leave('mute') if $version >= 170000;
# All of them wait at the same time, with one that is in order among them.
my %message = @broken;
leave($_) foreach sort keys %message;
leave('call', 'amid the broken');
state_is('amid the broken', 'completed', 'G5: what cannot be run does not stop the others');
foreach my $name (sort keys %message)
{
	state_is($name, 'waits error', "G5: $name: counts as a failed attempt");
	my $error = column($name, 'last_error');
	ref $message{$name} ? like($error, $message{$name}, "$name: and says why") : is($error, $message{$name}, "$name: and says why");
	is(column($name, 'attempt'), '2', "$name: once");
}
# The log says the same, and of which operation
my $log = slurp_file($node->logfile);
sub logged { my ($level, $message, $name) = @_; return $log =~ /$level:  $message\n(?:.*\n){0,6}?.*(?:DETAIL:  |handler of an interrupted operation: )Account "acme", action "\w+", key "$name"\.$/m; }
foreach my $name (sort keys %message)
{
	my $error = quotemeta column($name, 'last_error');
	ok(logged($error =~ /^(?:policy|handler_role|request|handler\\ worker)\b/ ? ('WARNING', "handler was not run: $error") : ('ERROR', $error), $name), "$name: the log names the operation")
	  or diag($error);
}
ok(logged('FATAL', 'permission denied for database "postgres"', 'outsider'), 'outsider: so it does where the worker cannot connect');
ok(logged('ERROR', 'no luck today', 'bad'), 'bad: and where the handler raises');
ok(logged('ERROR', 'canceling statement due to user request', 'slow'), 'slow: and where it is cancelled');
is(done('deferred'), '0', 'G2: a handler that fails at commit leaves nothing');
state_is('mute', 'completed', 'a handler_role without LOGIN') if $version >= 170000;
$s->ok('GRANT CONNECT ON DATABASE postgres TO PUBLIC');

# --- its process ended from outside: the next pass counts it, and runs it again
action('gated', q(PERFORM jobs.wait(); RETURN jsonb_build_object('pid', pg_backend_pid());), retry_backoff => q('0'), max_attempts => 3);
leave('gated');
foreach my $n (1, 2)
{
	wait_until($s, qq(SELECT count(*) FROM idem_inflight i JOIN pg_stat_activity a ON a.pid = i.session_pid
		WHERE i.key = 'gated' AND i.attempt = $n + 1 AND a.wait_event = 'PgSleep'), '1', "attempt $n + 1");
	is($s->ok(q(SELECT a.usename, a.backend_type, i.owner FROM idem_inflight i JOIN pg_stat_activity a ON a.pid = i.session_pid WHERE i.key = 'gated')),
		'worker|pg_idem handler|pg_idem handler', 'pg_stat_activity shows the handler and its role');
	is(column('gated', 'state'), 'in_progress', 'G1: while it runs the operation is in progress');
	$s->ok(q(SELECT pg_terminate_backend(session_pid, 10000) FROM idem_inflight WHERE key = 'gated'));
}
wait_until($s, q(SELECT failures || ' ' || attempt FROM idem_inflight WHERE key = 'gated'), '2 4');
pass('G5: handlers that were ended are counted');
$s->ok('INSERT INTO jobs.gate VALUES (true)');
state_is('gated', 'completed', 'and run again');
is(done('gated'), '1', 'G1: effect once');

# --- taken over while it runs
$s->ok('TRUNCATE jobs.gate');
set_clock($s, '2037-01-01 00:00:00+00');
leave('gated', 'overtaken');
wait_until($s, q(SELECT attempt FROM idem_inflight WHERE key = 'overtaken' AND session_pid IS NOT NULL), '2');
set_clock($s, '2037-01-01 01:00:00+00');
wait_until($s, q(SELECT attempt FROM idem_inflight WHERE key = 'overtaken' AND session_pid IS NOT NULL), '3');
$s->ok('INSERT INTO jobs.gate VALUES (true)');
state_is('overtaken', 'completed', 'lease over while the handler runs: the next one carries it out');
is(column('overtaken', 'attempt') . done('overtaken'), '31', 'G6: what the first one did is undone');
$s->ok('TRUNCATE jobs.gate');
set_clock($s, '2038-01-01 00:00:00+00');
leave('gated', 'claimed');
wait_until($s, q(SELECT attempt FROM idem_inflight WHERE key = 'claimed' AND session_pid IS NOT NULL), '2');
$s->ok('ALTER SYSTEM SET pg_idem.worker = off');
set_clock($s, '2038-01-01 01:00:00+00');
wait_until($s, q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_idem maintenance'), '0');
is($s->ok(claim([ 'acme', 'gated', 'claimed' ], request => q('{"id": "claimed"}'), lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|3', 'somebody claims it while the handler runs');
$s->ok('INSERT INTO jobs.gate VALUES (true)');
wait_until($s, "SELECT ($handlers) <= 1", 't', 'the end of the handler');
is($s->ok(recorded(q(key = 'claimed'))) . done('claimed'), 'claimed held0', 'G6: the handler did not commit, and does not touch the new attempt');
is(column('claimed', 'last_error IS NULL, attempt'), 't|3', 'nor its count');
$s->ok('ALTER SYSTEM RESET pg_idem.worker');
real_clock($s);

# --- the stubborn one
wait_until($s, $handlers, '0', 'the stubborn handler');
state_is('stubborn', 'review attempts_exhausted', 'G5: a handler that catches its cancellation and goes on is ended');
is(done('stubborn'), '0', 'G2: and leaves nothing');
is($s->ok('SELECT 1'), '1', 'without harm to the server');

# --- no more of them than fit
$s->ok('TRUNCATE jobs.gate');
leave('gated', "crowd-$_") foreach 1 .. 6;
wait_until($s, "$handlers AND wait_event = 'PgSleep'", '2', 'two handlers');
leave('retry', 'beside');
state_is('beside', 'announced released', 'pg_idem.max_workers = 3: two handlers, and one worker for everything else');
next_pass($s);
is($s->ok($handlers), '2', 'not one more');
is($s->ok(q(SELECT count(*) FROM idem_inflight WHERE key LIKE 'crowd-%' AND attempt = 1 AND failures = 0)), '4', 'the others wait, and nothing counts against them');
$s->ok('INSERT INTO jobs.gate VALUES (true)');
wait_until($s, q(SELECT count(*) FROM idem_settled WHERE key LIKE 'crowd-%' AND succeeded AND attempt = 2), '6');
pass('all come to their turn');
is($s->ok(q(SELECT count(*) FROM jobs.done WHERE key LIKE 'crowd-%')), '6', 'G1: effect once each');
$s->quit;
$node->stop;

# --- without the preload: idem_maintain starts them
my $plain = new_node('plain', preload => 0, conf => "max_prepared_transactions = 10\n");
$s = session($plain);
$s->ok(policies() . $setup);
is($s->ok('SELECT count(*) FROM idem_worker_status'), '0', 'without the preload: idem_worker_status has no rows');
is($s->ok('SELECT idem_wake_workers()'), 'f', 'and there is nobody to wake');
leave('call', 'plain');
is($s->ok(recorded(q(key = 'plain'))), 'plain waits released', 'nothing happens by itself');
is($s->ok(q(SELECT rows FROM idem_maintain() WHERE task = 'called')), '1', 'idem_maintain starts the handler');
state_is('plain', 'completed', 'which settles the operation');
is($s->ok(q(SELECT who FROM jobs.done WHERE key = 'plain')), 'worker', 'as its role');
my %undo = (
	ROLLBACK => 'ROLLBACK',
	'ROLLBACK TO' => 'ROLLBACK TO a; COMMIT',
	'the end of the session' => '');
my $waiting = 0;
foreach my $how (sort keys %undo)
{
	leave('call', $how);
	$waiting++;
	my $starter = session($plain);
	is($starter->ok(q(BEGIN; SAVEPOINT a; SELECT rows FROM idem_maintain() WHERE task = 'called')), $waiting, 'started in a transaction');
	is($s->ok($handlers), $waiting, 'it waits for the commit');
	$undo{$how} ? $starter->ok($undo{$how}) : $starter->quit;
	wait_until($s, $handlers, '0', 'the end of the handler');
	is($s->ok(recorded("key = '$how'")) . done($how), "$how waits released0", "G2: $how: nothing has happened");
	is(column($how, 'attempt'), '1', "$how: nor been counted");
	$starter->quit;
}
is($s->ok(q(BEGIN; SELECT rows FROM idem_maintain() WHERE task = 'called')), '3', 'started in a transaction');
is($s->ok($handlers), '3', 'they wait');
$s->ok('COMMIT');
state_is($_, 'completed', "G2: $_: run when it commits") foreach sort keys %undo;
leave('call', "bounded-$_") foreach 1 .. 3;
is($s->ok(q(SELECT rows FROM idem_maintain(2) WHERE task = 'called')), '2', 'at most max_rows');
is($s->ok(q(SELECT rows FROM idem_maintain(2) WHERE task = 'called')), '1', 'the rest with the next call');
wait_recorded($s, q(key LIKE 'bounded%'), join ', ', map { "bounded-$_ completed" } 1 .. 3);

# The lease runs from the attempt, not from the commit of whoever started the handler
leave('call', 'late', lease => q('1 s'));
is($s->ok(q(BEGIN; SELECT rows FROM idem_maintain() WHERE task = 'called')), '1', 'started by a transaction that outlasts the lease');
wait_until($s, q(SELECT clock_timestamp() >= lease_expires_at FROM idem_inflight WHERE key = 'late'), 't', 'the end of the lease');
$s->ok('COMMIT');
wait_until($s, q(SELECT last_error FROM idem_inflight WHERE key = 'late'), 'lease ended before the handler could begin', 'the handler');
is(done('late'), '0', 'G6: no handler begins under a lease that is over');
$log = slurp_file($plain->logfile);
ok(logged('WARNING', 'handler was not run: lease ended before the handler could begin', 'late'), 'which is logged');

# What cannot be started takes no place of the others
my $segments = $plain->data_dir . '/pg_dynshmem';
$plain->append_conf('postgresql.conf', 'dynamic_shared_memory_type = mmap');
$s->quit;
$plain->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_idem'\npg_idem.worker = off");
$plain->restart;
$s = session($plain);
leave('call', 'no segment');
chmod 0500, $segments;
is($s->ok(q(SELECT rows FROM idem_maintain() WHERE task = 'called')), '0', 'no shared memory to be had') foreach 1 .. 4;
like($s->err, qr/WARNING:.*could not deal with an operation: could not open shared memory segment/, 'it says so');
chmod 0700, $segments;
$s->ok('SELECT * FROM idem_maintain()');
state_is('no segment', 'completed', 'G5: handlers run again when there is some');
$s->quit;
$plain->stop;

done_testing();
