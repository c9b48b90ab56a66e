# idem_stats, idem_holders and idem_gauges: each event is counted once, wherever it ends up; nothing is shown any longer
# than it is true.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The workers count what they find interrupted and what they forget, at times of their own: none here.
my $node = new_node('statistics', conf => "max_prepared_transactions = 10\nautovacuum = off\npg_idem.worker = off\n");
my $main = session($node);
my $rival = session($node);
my $admin = session($node);
my ($one, $two) = ('11111111-1111-1111-1111-111111111111', '22222222-2222-2222-2222-222222222222');

$admin->ok(q{
	INSERT INTO idem_policies (action, on_interrupt) VALUES ('act', NULL), ('by fail', 'fail'), ('by review', 'review');
	CREATE FUNCTION echo(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';
	CREATE FUNCTION refuse(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT to_jsonb(idem_reject($1))';
});

# The counters of an action that are not 0
sub counters
{
	my ($s, $action) = @_;
	return $s->ok(qq{
		SELECT string_agg(e.name || '=' || e.value, ' ' ORDER BY e.name COLLATE "C")
		  FROM idem_stats s, jsonb_each_text(to_jsonb(s) - 'action' - 'stats_reset') AS e (name, value)
		 WHERE s.action = '$action' AND e.value <> '0'});
}

# What the statements count for the action, from 0. later: by how much the clock is ahead. error: SQLSTATE.
sub counted
{
	my ($expected, $sql, $name, %opt) = @_;
	my $action = $opt{action} // 'act';
	my $s = $opt{session} // $main;
	$admin->ok("SELECT idem_stats_reset('$action')");
	$s->ok("SELECT set_config('pg_idem.test_now', (now() + interval '$opt{later}')::text, false)") if $opt{later};
	is($s->try($sql), $opt{error} // '', "$name: answer") or diag $s->err;
	$s->try('ROLLBACK') if $opt{error};
	$s->ok('RESET pg_idem.test_now') if $opt{later};
	is(counters($admin, $action), $expected, $name);
	return;
}

my $key = sub { return [ 'acme', $_[1] // 'act', $_[0] ]; };
my $settle = sub { return call('idem_complete', $key->(@_), result => q('1')); };
my $leased = sub { my ($k, $action) = @_; return claim($key->($k, $action), lease => q('1 min'), token => "'$one'"); };

# ---- answers

counted('claims=1', 'BEGIN; ' . claim($key->('rolled back')) . '; ROLLBACK', 'claims: rolled back');
counted('claims=1 completed=1', 'BEGIN; ' . claim($key->('k')) . '; ' . $settle->('k') . '; COMMIT', 'claims and completed');
counted('replays=1', claim($key->('k')), 'replays');
counted('replays=1', 'BEGIN; ' . claim($key->('k')) . '; ROLLBACK', 'replays: rolled back');
counted('mismatches=1', claim($key->('k'), request => q('{"amount": 2}')), 'mismatches');
counted('expired=1', claim($key->('k')), 'expired', later => '4 days');
counted('claims=1 failed=1', 'BEGIN; ' . claim($key->('failed')) . '; ' . call('idem_fail', $key->('failed')) . '; COMMIT', 'failed');
$rival->ok('BEGIN; ' . claim($key->('held')));
counted('in_progress=1', claim($key->('held')), 'in_progress');
counted('in_progress=1', claim($key->('held'), wait => q('50 ms')), 'in_progress: after waiting');
$rival->ok('ROLLBACK');
$rival->ok('BEGIN; ' . claim($key->('waited')));
$main->send(claim($key->('waited'), wait => q('1 min')));
wait_lock($admin, $main);
$admin->ok(q(SELECT idem_stats_reset('act')));
$rival->ok($settle->('waited') . '; COMMIT');
is($main->get, '', 'wait: answer');
is(counters($admin, 'act'), 'completed=1 replays=1', 'replays: after waiting, once');
counted('', 'BEGIN; ' . claim($key->('k'), request => 'NULL') . '; COMMIT', 'nothing: fingerprint required', error => 'IDM05');

# ---- leased claims

counted('claims=1', $leased->('leased'), 'claims: leased');
counted('', $leased->('leased'), 'nothing: the owner repeats its claim');
counted('in_progress=1', claim($key->('leased')), 'in_progress: leased');
counted('fenced=1', call('idem_guard', $key->('leased'), token => "'$two'"), 'fenced: another token', error => 'IDM02');
counted('fenced=1', 'BEGIN; SAVEPOINT s; ' . call('idem_guard', $key->('leased'), token => "'$two'") . '; ROLLBACK TO s; COMMIT',
	'fenced: once, though the commit is refused as well', error => 'IDM02');
$main->ok('BEGIN; SAVEPOINT s; ' . call('idem_guard', $key->('leased'), token => "'$one'") . '; ROLLBACK TO s');
counted('interrupted=1 recoveries=1', claim($key->('leased'), lease => q('1 h'), token => "'$two'"), 'recoveries', session => $rival, later => '2 min');
counted('fenced=1', 'COMMIT', 'fenced: found at commit', error => 'IDM02');
counted('completed=1', call('idem_complete', $key->('leased'), token => "'$two'"), 'completed: leased');
counted('fenced=1', call('idem_complete', $key->('leased'), token => "'$two'"), 'fenced: settled already', error => 'IDM04');
counted('fenced=1', call('idem_complete', $key->('leased')), 'fenced: settled already, without token', error => 'IDM04');
counted('', call('idem_complete', $key->('nothing')), 'nothing: not claimed', error => 'IDM03');
$main->ok($leased->('released') . '; ' . call('idem_release', $key->('released'), token => "'$one'"));
counted('recoveries=1', 'BEGIN; ' . claim($key->('released')) . '; ROLLBACK', 'recoveries: rolled back, so nothing was taken over');
counted('completed=1 interrupted=1 recoveries=1', 'BEGIN; ' . claim($key->('released')) . '; ' . $settle->('released') . '; COMMIT',
	'recoveries: in one transaction');
$main->ok($leased->('f', 'by fail'));
counted('failed=1 interrupted=1 replays=1', claim($key->('f', 'by fail')), 'failed: by rule', action => 'by fail', later => '2 min');
$main->ok($leased->('r', 'by review'));
counted('reviews=1', 'BEGIN; ' . claim($key->('r', 'by review')) . '; ROLLBACK', 'reviews: by rule, rolled back', action => 'by review', later => '2 min');
counted('interrupted=1 reviews=1', claim($key->('r', 'by review')), 'reviews: by rule', action => 'by review', later => '2 min');
counted('reviews=1', claim($key->('r', 'by review')), 'reviews', action => 'by review');
counted('fenced=1', call('idem_guard', $key->('r', 'by review'), token => "'$one'"), 'fenced: in review', action => 'by review', error => 'IDM10');

# ---- what is recorded, and how the transaction ends

counted('claims=1 unsettled=1', 'BEGIN; ' . claim($key->('u')) . '; COMMIT', 'unsettled', error => 'IDM01');
counted('claims=1', 'BEGIN; ' . claim($key->('undone')) . '; ' . $settle->('undone') . '; ROLLBACK', 'completed: rolled back');
counted('claims=1 completed=1', "BEGIN; SAVEPOINT a; " . claim($key->('sp')) . '; SAVEPOINT b; ' . $settle->('sp') . '; ROLLBACK TO b; '
	  . $settle->('sp') . '; RELEASE a; COMMIT', 'completed: once, after ROLLBACK TO');
counted('once_duplicate=1 once_first=3', q{BEGIN; SELECT idem_once('acme', 'act', 'a'); SAVEPOINT a; SELECT idem_once('acme', 'act', 'b');
	SELECT idem_once('acme', 'act', 'b'); ROLLBACK TO a; SELECT idem_once('acme', 'act', 'b'); SAVEPOINT b; SAVEPOINT c;
	SELECT idem_once('acme', 'act', 'c'); RELEASE c; RELEASE b; COMMIT}, 'once_first: savepoints');
counted('claims=1 completed=1', 'BEGIN; ' . claim($key->('prepared')) . '; ' . $settle->('prepared') . "; PREPARE TRANSACTION 'p'", 'completed: prepared');
counted('', q(ROLLBACK PREPARED 'p'), 'nothing: the end of a prepared transaction');
counted('claims=1 completed=1', q{SELECT outcome FROM idem_run('acme', 'act', 'run', '{}', 'echo(jsonb)')}, 'run');
counted('replays=1', q{SELECT outcome FROM idem_run('acme', 'act', 'run', '{}', 'echo(jsonb)')}, 'run: replayed');
counted('claims=1 failed=1', q{SELECT outcome FROM idem_run('acme', 'act', 'rejected', '{}', 'refuse(jsonb)')}, 'run: rejected');

# ---- messages

counted('once_first=1', q(SELECT idem_once('acme', 'act', 'm', '1')), 'once_first');
counted('once_duplicate=1', q(SELECT idem_once('acme', 'act', 'm', '1')), 'once_duplicate');
counted('mismatches=1', q(SELECT idem_once('acme', 'act', 'm', '2')), 'mismatches: message', error => 'IDM09');
my $batch = q{SELECT count(*) FROM idem_once_batch('acme', 'act', '{x,y,z,x,m}', '{a,b,c,a,d}')};
counted('mismatches=1 once_first=3', $batch, 'batch');
counted('mismatches=1 once_duplicate=3', $batch, 'batch: again');
counted('mismatches=1', q{BEGIN; SELECT count(*) FROM idem_once_batch('acme', 'act', '{n,m}', '{b,c}'); ROLLBACK}, 'batch: rolled back');

# ---- reset

my $before = $admin->ok(q(SELECT stats_reset FROM idem_stats WHERE action = 'by fail'));
is($admin->ok(q(SELECT idem_stats_reset('no such action'))), 'f', 'reset: no such action');
is($admin->ok(q(BEGIN; SELECT idem_stats_reset('by review'); ROLLBACK)), 't', 'reset: an action');
is(counters($admin, 'by review'), '', 'reset: is at 0, in spite of the rollback');
is($admin->ok(qq{SELECT stats_reset = '$before' FROM idem_stats WHERE action = 'by fail'}), 't', 'reset: others stay');
is($admin->ok(q(SELECT idem_stats_reset())), 't', 'reset: all');
is($admin->ok(qq{SELECT bool_and(stats_reset > '$before') AND count(DISTINCT stats_reset) = 1 AND sum(replays + claims + completed) = 0 FROM idem_stats}), 't', 'reset: all at once');

# ---- rights

$admin->ok('CREATE ROLE watcher LOGIN IN ROLE pg_monitor; CREATE ROLE stranger LOGIN; GRANT USAGE ON SCHEMA public TO PUBLIC');
my $watcher = session($node, user => 'watcher');
is($watcher->ok('SELECT count(*) > 0 FROM idem_stats'), 't', 'pg_monitor may read idem_stats');
is($watcher->ok('SELECT settled > 0 FROM idem_gauges'), 't', 'pg_monitor may read idem_gauges');
is($watcher->try($_), '42501', "pg_monitor may not: $_")
  foreach 'SELECT * FROM idem_holders', 'SELECT * FROM idem_holders_rows()', 'SELECT idem_stats_reset()';
$watcher->quit;
my $stranger = session($node, user => 'stranger');
is($stranger->try("SELECT * FROM $_"), '42501', "nobody else may read $_") foreach qw(idem_stats idem_gauges idem_holders idem_stats_rows() idem_gauges_row());
$stranger->quit;

# ---- concurrent clients: nothing is lost

my ($status, $out, $err) = pgbench(
	$node, {
		'once@1' => "\\set k random(1, 200)\nSELECT idem_once('acme', 'bench', 'k' || :k);\n",
		'run@1' => "\\set k random(1, 200)\nSELECT outcome FROM idem_run('acme', 'bench', 'k' || :k, '{}', 'echo(jsonb)', wait => '0');\n",
		'savepoint@1' => "\\set k random(1, 200)\nBEGIN;\nSAVEPOINT s;\nSELECT idem_once('acme', 'bench undone', 'k' || :client_id || ' ' || :k);\nROLLBACK TO s;\nSELECT outcome FROM idem_claim('acme', 'bench undone', 'k' || :client_id || ' ' || :k, '{}');\nROLLBACK;\n",
	},
	'-c', 8, '-j', 2, '-t', 400);
is($status, 0, 'pgbench') or diag $err;
my %ran = map { /SQL script \d+: \S*?(\w+)\n(?:.*\n)*? - (\d+) transactions/ ? ($1 => $2) : () } split /(?=^SQL script)/m, $out;
is($ran{once} + $ran{run} + $ran{savepoint}, 3200, 'pgbench: transactions');
is($admin->ok(q(SELECT once_first + once_duplicate, claims + replays + in_progress, claims = completed FROM idem_stats WHERE action = 'bench')),
	"$ran{once}|$ran{run}|t", 'concurrent: every answer is counted');
is($admin->ok(q{SELECT once_first = (SELECT count(*) FROM idem_seen WHERE action = 'bench'), completed = (SELECT count(*) FROM idem_settled WHERE action = 'bench')
	FROM idem_stats WHERE action = 'bench'}), 't|t', 'concurrent: and everything recorded');
is(counters($admin, 'bench undone'), "claims=$ran{savepoint}", 'concurrent: nothing that was undone');

# ---- databases, and more actions than there is room for

$admin->ok('CREATE DATABASE other');
my $other = session($node, dbname => 'other');
$other->ok('CREATE EXTENSION pg_idem');
is($other->ok('SELECT count(*) FROM idem_stats'), '0', 'another database has its own');
$other->ok(q(SELECT idem_once('acme', 'act', 'm')));
is(counters($other, 'act'), 'once_first=1', 'another database counts on its own');
$admin->ok(q(SELECT idem_stats_reset()));
is(counters($other, 'act'), 'once_first=1', 'and is reset on its own');

my $many = q{SELECT count(*) FROM generate_series(1, 600) i, LATERAL (SELECT idem_once('acme', 'a' || i, 'k')) x};
my $overflow = q{SELECT count(*), sum(once_first), max(once_first) FILTER (WHERE action = '*others*') FROM idem_stats};
$other->ok($many);
is($other->ok($overflow), '513|601|89', 'overflow: more actions than a database may have');
$other->ok(q(SELECT idem_once('acme', '*others*', 'k'), idem_once('acme', 'a600', 'k')));
is(counters($other, '*others*'), 'once_duplicate=1 once_first=90', 'overflow: an action of that name is counted there too');
is(counters($other, 'a1'), 'once_first=1', 'overflow: whoever was first keeps its counters');
$admin->ok('CREATE DATABASE third');
my $third = session($node, dbname => 'third');
$third->ok("CREATE EXTENSION pg_idem; $many");
my $room = 1024 - 512 - $admin->ok('SELECT count(*) FROM idem_stats');
is($third->ok($overflow), ($room + 1) . '|600|' . (600 - $room), 'overflow: more actions than there is room for');
$other->quit;
$third->ok('DROP DATABASE other; SELECT idem_stats_reset()');
$third->ok($many =~ s/'k'/'k2'/r);
is($third->ok($overflow), '513|600|88', 'overflow: a reset gives away the room of dropped databases');
$third->quit;

# ---- holders

my $holders = q{SELECT coalesce(string_agg(key, ' ' ORDER BY claimed_at, key), '') FROM idem_holders};
my $pid = $main->pid;
my $sees = sub { my ($expected, $name) = @_; is($admin->ok($holders), $expected, "holders: $name"); };
$sees->('', 'nobody');
$main->ok('BEGIN; ' . claim($key->('h1')) . '; SAVEPOINT a; ' . claim($key->('h2')));
is($admin->ok(q{SELECT pid, account, action, key, claimed_at BETWEEN now() - interval '1 min' AND clock_timestamp(), age_seconds BETWEEN 0 AND 60
	FROM idem_holders WHERE key = 'h1'}), "$pid|acme|act|h1|t|t", 'holders: all columns');
$sees->('h1 h2', 'two claims');
is($main->ok($holders), 'h1 h2', 'holders: of the own session too');
$rival->ok('BEGIN; ' . claim($key->('h3')));
$sees->('h1 h2 h3', 'two sessions');
$main->ok($settle->('h1'));
$sees->('h2 h3', 'settled');
$main->ok(call('idem_release', $key->('h2')));
$sees->('h3', 'released');
$main->ok('ROLLBACK TO a');
$sees->('h1 h3', 'the settlement is undone, and the second claim with its release');
$main->ok('SAVEPOINT b; ' . $settle->('h1') . '; RELEASE b');
$sees->('h3', 'settled in a savepoint that stays');
$main->ok('COMMIT; ' . 'BEGIN; ' . claim($key->('h4')) . '; ROLLBACK');
$sees->('h3', 'rolled back');
$main->ok('BEGIN; ' . claim($key->('h5')) . '; ' . $settle->('h5') . "; PREPARE TRANSACTION 'h'; COMMIT PREPARED 'h'");
$sees->('h3', 'prepared');
$main->ok($leased->('h6') . '; ' . call('idem_complete', $key->('h6'), token => "'$one'"));
$sees->('h3', 'leased claims are no matter of a session');
is($main->try('BEGIN; ' . claim($key->('h7')) . '; SELECT 1/0'), '22012', 'an error');
$sees->('h3', 'a failed transaction holds nothing');
$main->ok('ROLLBACK');

my $claims = sub { return 'SELECT count(*) FROM generate_series(1, 20) i, LATERAL ' . "idem_claim('acme', 'act', 'n' || to_char(i, 'FM00'), '{}')"; };
my $numbers = sub { return join ' ', map { sprintf 'n%02d', $_ } @_; };
my $complete = sub { my ($first, $last) = @_; return "SELECT count(idem_complete('acme', 'act', 'n' || to_char(i, 'FM00'))) FROM generate_series($first, $last) i"; };
$rival->ok('ROLLBACK');
$main->ok('BEGIN; ' . $claims->());
$sees->($numbers->(1 .. 8), 'many: eight of them');
$main->ok('SAVEPOINT a; ' . $complete->(1, 3));
$sees->($numbers->(4 .. 11), 'many: others take the place of those that are settled');
$main->ok($complete->(4, 15));
$sees->($numbers->(16 .. 20), 'many: the last ones');
$main->ok('ROLLBACK TO a');
is($admin->ok('SELECT count(*) FROM idem_holders'), '8', 'holders: many: open again');
$main->ok($complete->(1, 19));
$sees->('n20', 'many: the last one');
$main->ok('ROLLBACK');
$sees->('', 'many: none');

$main->ok('BEGIN; ' . $claims->());
$admin->ok("SELECT pg_terminate_backend($pid)");
wait_until($admin, 'SELECT count(*) = 0 FROM idem_holders');
pass('holders: terminated');
$main->quit;
my $idle = session($node);
$idle->ok('SET pg_idem.idle_claim_timeout = 100; BEGIN; ' . claim($key->('idle')));
wait_until($admin, 'SELECT count(*) = 0 FROM idem_holders');
pass('holders: ended by the timeout of idle claims');
$idle->quit;
$main = session($node);

# Whoever reads while others write sees whole claims.
($status, $out, $err) = pgbench(
	$node, {
		'claim@4' => "\\set k random(1, 1000000000)\nBEGIN;\nSELECT outcome FROM idem_claim('acme ' || :k, 'act ' || :k, 'key ' || :k, '{}');\nSELECT outcome FROM idem_claim('acme ' || :k, 'act ' || :k, 'key  ' || :k, '{}');\nROLLBACK;\n" =~ s/'act ' \|\| :k/'act'/gr,
		'read@1' => "SELECT 1 / (count(*) FILTER (WHERE replace(account, 'acme ', '') <> replace(replace(key, 'key  ', ''), 'key ', '') OR action <> 'act' OR age_seconds > 600) = 0)::int FROM idem_holders;\n",
	},
	'-c', 8, '-j', 2, '-t', 300);
is($status, 0, 'holders: never torn') or diag $err;
$sees->('', 'nothing is left behind');

# ---- gauges

$admin->ok('TRUNCATE idem_settled, idem_inflight, idem_seen');
my $gauges = 'SELECT in_flight, interrupted, review, settled, expired_not_swept, seen, seen_not_swept FROM idem_gauges';
is($admin->ok($gauges), '0|0|0|0|0|0|0', 'gauges: nothing');
is($admin->ok('SELECT oldest_in_flight_at, oldest_interrupted_at, oldest_review_at FROM idem_gauges'), '||', 'gauges: none is the oldest');
$main->ok($leased->('g1') . '; ' . $leased->('g2') . '; ' . $leased->('g3') . '; ' . call('idem_release', $key->('g2'), token => "'$one'"));
$main->ok(claim($key->('g4'), lease => q('1 h'), session_bound => 'true'));
$main->ok('BEGIN; ' . claim($key->('s')) . '; ' . $settle->('s') . q(; SELECT idem_once('acme', 'act', 's'); COMMIT));
is($admin->ok($gauges), '3|1|0|1|0|1|0', 'gauges: in flight, released, settled, seen');
is($admin->ok(q{SELECT oldest_in_flight_at = (SELECT min(claimed_at) FROM idem_inflight), oldest_interrupted_at = (SELECT due_at FROM idem_inflight WHERE key = 'g2')
	FROM idem_gauges}), 't|t', 'gauges: the oldest');
$main->quit;
wait_until($admin, qq{SELECT interrupted = 2 FROM idem_gauges});
pass('gauges: the session of a claim has ended');
$main = session($node);
$admin->ok(q(SELECT set_config('pg_idem.test_now', (now() + interval '2 min')::text, false)));
is($admin->ok($gauges), '0|4|0|1|0|1|0', 'gauges: leases are over');
is($admin->ok(q{SELECT oldest_interrupted_at = (SELECT due_at FROM idem_inflight WHERE key = 'g2') FROM idem_gauges}), 't', 'gauges: who waits longest');
$admin->ok(q(SELECT set_config('pg_idem.test_now', (now() + interval '1000 days')::text, false)));
is($admin->ok($gauges), '0|4|0|1|1|1|1', 'gauges: to be swept');
$admin->ok('RESET pg_idem.test_now');
$main->ok($leased->('gr', 'by review'));
$main->ok(q(SELECT set_config('pg_idem.test_now', (now() + interval '2 min')::text, false)) . '; ' . claim($key->('gr', 'by review')));
is($main->ok(q{SELECT review, oldest_review_at = (SELECT state_since FROM idem_inflight WHERE in_review) FROM idem_gauges}), '1|t', 'gauges: review');

# Large tables: written past the extension, as only the numbers count. A third is past its time.
$admin->ok(q{
	TRUNCATE idem_settled, idem_inflight, idem_seen;
	INSERT INTO idem_settled (settled_at, expires_at, forget_at, attempt, succeeded, stripped, account, action, key, result)
	  SELECT now(), now() + CASE WHEN i <= 50000 THEN '-1 day' ELSE '1 day' END::interval, now() + interval '9 days', 1, true, false, 'acme', 'big', i, '1' FROM generate_series(1, 150000) i;
	INSERT INTO idem_seen (seen_at, forget_at, account, action, key)
	  SELECT now(), now() + CASE WHEN i <= 50000 THEN '-1 day' ELSE '1 day' END::interval, 'acme', 'big', i FROM generate_series(1, 150000) i});
is($admin->ok(q{SELECT settled BETWEEN 145000 AND 155000, expired_not_swept BETWEEN 46000 AND 54000, seen BETWEEN 145000 AND 155000, seen_not_swept BETWEEN 46000 AND 54000
	FROM idem_gauges}), 't|t|t|t', 'gauges: estimates of large tables') or diag $admin->ok($gauges);
$admin->ok('SELECT pg_stat_force_next_flush()');
my $blocks = q{SELECT heap_blks_hit + heap_blks_read FROM pg_statio_user_tables WHERE relname = 'idem_settled'};
my $read = $admin->ok($blocks);
$admin->ok($gauges);
$admin->ok('SELECT pg_stat_force_next_flush()');
cmp_ok($admin->ok($blocks) - $read, '<=', 128, 'gauges: few blocks are read');

# ---- a crash empties them

$main->ok('BEGIN; ' . claim($key->('crash')));
$_->quit foreach $main, $rival, $admin;
kill9($node);
$node->start;
$admin = session($node);
is($admin->ok('SELECT count(*) FROM idem_stats'), '0', 'after a crash all counters begin anew');
is($admin->ok('SELECT count(*) FROM idem_holders'), '0', 'after a crash nobody holds anything');
$admin->ok('BEGIN; ' . claim($key->('crash')) . '; ROLLBACK');
is(counters($admin, 'act'), 'claims=1', 'and counting goes on');
is($admin->ok('SELECT stats_reset - pg_postmaster_start_time() < interval $$1 min$$ FROM idem_stats'), 't', 'since the server started');
$admin->quit;
$node->stop;
done_testing();
