# G10: the outbox across crashes, dumps, reversed commits, transactions held open, and relays that are killed.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $node = new_node('outbox', worker => 0, conf => "max_prepared_transactions = 10\nautovacuum = off\n");
my $s = session($node);
my $ack_all = q(SELECT COALESCE(idem_outbox_ack(COALESCE(array_agg(receipt), '{}')), 0) FROM idem_outbox_take(10000));
sub publish { my ($aggregate, $type) = @_; return qq{SELECT count(idem_publish('order', '$aggregate', '$type', '{"n": 1}'))}; }
sub take { my ($batch, $lease) = @_; return "SELECT aggregateid || type || '#' || deliveries FROM idem_outbox_take($batch, '$lease')"; }

# ---- crash between take and ack

$s->ok("SET synchronous_commit = off; " . publish('a', 1));
$s->ok(publish('a', 2));
my $rival = session($node);
$rival->ok('BEGIN; ' . publish('a', 'lost'));
is($s->ok(take(1, '1 s')), 'a1#1', 'handed out');
kill9($node);
$node->start;
$s = session($node);
wait_until($s, 'SELECT count(*) = 2 FROM idem_outbox WHERE leased_until IS NULL OR leased_until < clock_timestamp()');
is($s->ok(take(10, '1 min')), "a1#2\na2#1", 'after a crash: published and handed out are known, what had not committed is not');
is($s->ok('SELECT failures, last_error FROM idem_outbox ORDER BY position LIMIT 1'), '1|lease ran out before an acknowledgement', 'the lost hand-out counts');

# ---- prepared transactions

$s->ok('TRUNCATE idem_outbox');
$s->ok("BEGIN; " . publish('p', 1) . "; PREPARE TRANSACTION 'publish'");
is($s->ok(take(10, '1 min')), '', 'a prepared message is not handed out');
$s->ok(publish('q', 1));
$s->ok("BEGIN; " . take(10, '1 min') . "; PREPARE TRANSACTION 'take'");
my $other = session($node);
is($other->ok(take(10, '1 min')), '', 'what a prepared take holds neither');
usleep(60_000);
is($other->ok(take(10, '1 min')), '', 'also after a round of the floor') for 1 .. 3;
$node->restart;
($s, $other) = (session($node), session($node));
is($other->ok(take(10, '1 min')), '', 'nor after a restart') for 1 .. 3;
$s->ok("COMMIT PREPARED 'publish'");
is($other->ok(take(10, '1 min')), 'p1#1', 'it is, once it has committed, to a relay whose floor could have passed it');
$s->ok("ROLLBACK PREPARED 'take'");
is($other->ok(take(10, '1 min')), 'q1#1', 'a prepared take was rolled back');
$s->ok('TRUNCATE idem_outbox');

# ---- commits in reverse order, under a relay that never stops

my @publishers = map { session($node) } 1 .. 8;
my $n = 0;
foreach my $round (1 .. 5)
{
	$_->ok('BEGIN; ' . publish('r' . ++$n, 1)) foreach @publishers;
	my $seen = 0;
	foreach my $p (reverse @publishers)
	{
		$s->ok($ack_all);
		usleep(20_000);
		$p->ok('COMMIT');
		$seen += $s->ok($ack_all);
	}
	is($seen, 8, "round $round: none is lost, whatever the order of commits");
}

# ---- a transaction held open: it loses nothing and holds back nothing

my $open = session($node);
$open->ok('BEGIN; ' . publish('held', 1));
$s->ok(publish('free', $_)) foreach 1 .. 5;
is($s->ok($ack_all), '5', 'others are not held back');
usleep(60_000), $s->ok($ack_all) foreach 1 .. 5;
$open->ok('COMMIT');
is($s->ok($ack_all), '1', 'and the one held open is handed out');

# ---- skip_parked and outbox_max_attempts

sub set_for_all
{
	my ($name, $value) = @_;
	$node->append_conf('postgresql.conf', "$name = $value");
	$node->reload;
	wait_until($_, "SHOW $name", $value) foreach @_[ 2 .. $#_ ];
	return;
}
set_for_all('pg_idem.outbox_max_attempts', '1', $s);
$s->ok(publish('k', $_)) foreach 1 .. 3;
is($s->ok(q(SELECT idem_outbox_nack(array_agg(receipt), '0', 'poison') FROM idem_outbox_take(2))), '2', 'given back with an error');
is($s->ok(take(10, '1 ms')), '', 'parked: those behind it wait');
set_for_all('pg_idem.outbox_skip_parked', 'on', $s);
is($s->ok(take(10, '1 ms')), "k2#2\nk3#1", 'or go on without it');
wait_until($s, 'SELECT max(leased_until) < clock_timestamp() FROM idem_outbox');
is($s->ok(take(10, '1 ms')), 'k3#2', 'a lease that ran out parks the first, the take goes on with the next');
is($s->ok('SELECT type, failures, parked_at IS NOT NULL FROM idem_outbox ORDER BY position'), "1|1|t\n2|1|t\n3|0|f", 'counted for the first only');
is($s->ok('SELECT idem_outbox_retry(array_agg(id)) FROM idem_outbox'), '2', 'retried');
set_for_all('pg_idem.outbox_skip_parked', 'off', $s);
set_for_all('pg_idem.outbox_max_attempts', '0', $s);
wait_until($s, 'SELECT max(leased_until) < clock_timestamp() FROM idem_outbox');
is($s->ok(q(SELECT idem_outbox_nack(array_agg(receipt), '0', 'x') FROM idem_outbox_take(1))), '1', 'never parked') for 1 .. 12;
is($s->ok('SELECT count(*) FROM idem_outbox WHERE parked_at IS NOT NULL'), '0', '0 attempts: for ever');
set_for_all('pg_idem.outbox_skip_parked', 'on', $s);
set_for_all('pg_idem.outbox_max_attempts', '1', $s);
my $limited = session($node);
$limited->ok('SET pg_idem.max_claims_per_transaction = 2');
$s->ok('TRUNCATE idem_outbox');
$s->ok(publish("j$_", 1)) foreach 1 .. 5;
is($s->ok(q(SELECT idem_outbox_nack(array_agg(receipt), '0', 'poison') FROM idem_outbox_take(10))), '5', 'G10: many aggregates with nothing but parked messages');
$s->ok(publish('healthy', $_)) foreach 1 .. 4;
$limited->ok('BEGIN');
is($limited->ok('SELECT idem_outbox_ack(array_agg(receipt)) FROM idem_outbox_take(1)'), '1', 'G10: do not count against the claims of a take, and one aggregate counts once') for 1 .. 4;
$limited->ok('COMMIT');
$limited->quit;
set_for_all('pg_idem.outbox_skip_parked', 'off', $s);
set_for_all('pg_idem.outbox_max_attempts', '0', $s);
$s->ok('TRUNCATE idem_outbox');

# ---- NOTIFY

$s->ok(q(SET pg_idem.outbox_notify = on));
is($s->try("BEGIN; " . publish('n', 1) . "; PREPARE TRANSACTION 'n'"), '0A000', 'a notification forbids PREPARE');
$other->ok('LISTEN pg_idem_outbox');
$s->ok(publish('n', 1));
like($other->ok('SELECT 1'), qr/notification "pg_idem_outbox" received/, 'it wakes relays');
$s->ok('RESET pg_idem.outbox_notify; TRUNCATE idem_outbox');

# ---- dump, restore into a new cluster with smaller transaction IDs, and go on

$s->ok(publish('d', $_)) foreach 1 .. 4;
my $receipt = $s->ok(q(SELECT receipt FROM idem_outbox_take(1, '1 h')));
$s->ok(q(SELECT pg_current_xact_id())) foreach 1 .. 500;
my $dump = "$PostgreSQL::Test::Utils::tmp_check/outbox.sql";
$node->command_ok([ 'pg_dump', '-f', $dump, '-d', $node->connstr('postgres') ], 'pg_dump');
my $fresh = new_node('fresh', worker => 0, extension => 0);
$fresh->command_ok([ 'psql', '-X', '-v', 'ON_ERROR_STOP=1', '-q', '-f', $dump, '-d', $fresh->connstr('postgres') ], 'restored');
my $f = session($fresh);
cmp_ok($f->ok('SELECT pg_current_xact_id()'), '<', $s->ok('SELECT pg_current_xact_id()'), 'transaction IDs are smaller there');
$f->ok(publish('d', 5));
is($f->ok('SELECT string_agg(type, \' \' ORDER BY position) FROM idem_outbox'), '1 2 3 4 5', 'what is published later comes later');
is($f->ok(take(10, '1 min')), '', 'the lease is in force');
is($f->ok("SELECT idem_outbox_ack(ARRAY['$receipt'::uuid])"), '1', 'and so is the receipt');
is($f->ok(take(10, '1 min')), "d2#1\nd3#1\nd4#1\nd5#1", 'in order');
# rows that are restored under a relay that runs: found within 10 s
$f->ok($ack_all), usleep(60_000) foreach 1 .. 4;
$f->ok(q(TRUNCATE idem_outbox; SELECT setval('idem_outbox_position', 1, false)));
$f->ok(publish('e', 1));
is($f->ok($ack_all), '1', 'a floor is that of one table') ;
$f->ok($ack_all), usleep(60_000) foreach 1 .. 4;
$f->ok(q(INSERT INTO idem_outbox (id, aggregatetype, aggregateid, type, created_at, position, deliveries, failures) VALUES (gen_random_uuid(), 'order', 'old', '1', now(), 0, 0, 0)));
wait_until($f, $ack_all, '1', 'a restored row');
pass('a restored row is found');
$fresh->stop;

# ---- what a take costs while an old transaction pins 100,000 dead messages

$s->ok('TRUNCATE idem_outbox');
my $pin = session($node);
$pin->ok('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1');
$s->ok(q(SELECT count(idem_publish('order', (i % 100)::text, 'x', '{}')) FROM generate_series(1, 100000) i));
1 while $s->ok($ack_all) > 0;
my $buffers = q(SELECT (regexp_match(string_agg(l, ' '), 'Buffers: shared hit=(\d+)'))[1] FROM explain_take() l);
$s->ok(q(CREATE FUNCTION explain_take() RETURNS SETOF text LANGUAGE plpgsql AS $$ BEGIN RETURN QUERY EXECUTE 'EXPLAIN (ANALYZE, BUFFERS, TIMING OFF, SUMMARY OFF) SELECT * FROM idem_outbox_take()'; END $$));
$s->ok($ack_all), usleep(60_000) foreach 1 .. 4;
cmp_ok($s->ok($buffers), '<', 100, 'an empty take steps over none of them');
my $cold = session($node);
cmp_ok($cold->ok($buffers), '>', 500, 'which is the floor\'s merit');
$s->ok(publish('new', 1));
is($s->ok($ack_all), '1', 'and what is new is found');
$pin->ok('COMMIT');
$s->ok('VACUUM idem_outbox');

# ---- many relays, killed at random: order in each aggregate, and one batch of it at a time

my ($messages, $aggregates, $relays, $seconds) = (20_000, 40, 6, 40);
$s->ok('TRUNCATE idem_outbox');
$s->ok(q(CREATE TABLE sent (at bigserial, aggregate text, n int, receipt uuid, leased_from timestamptz, leased_until timestamptz)));
my @scripts = (
	{    # publishes in order within an aggregate
		"publish\@1" => qq{
			\\set a random(1, $aggregates)
			BEGIN;
			UPDATE counters SET n = n + 25 WHERE a = :a;
			SELECT count(idem_publish('order', :a::text, i::text, '{}')) FROM counters, generate_series(n - 24, n) i WHERE a = :a;
			COMMIT;
		} });
$s->ok("CREATE TABLE counters (a int PRIMARY KEY, n int); INSERT INTO counters SELECT i, 0 FROM generate_series(1, $aggregates) i");
# A relay: takes, sends (writes down, in transactions of their own), acknowledges. Killed, it leaves its leases behind.
my $relay = q{
DO $do$ DECLARE m record; BEGIN
	CREATE TEMP TABLE IF NOT EXISTS batch (receipt uuid, aggregate text, n int, k int);
	FOR i IN 1 .. 1000000 LOOP
		DELETE FROM batch;
		INSERT INTO batch SELECT receipt, aggregateid, type::int, row_number() OVER () FROM idem_outbox_take(20, '500 ms');
		COMMIT;
		FOR m IN SELECT * FROM batch ORDER BY k LOOP
			-- one that is slow does not send past its lease
			INSERT INTO sent (aggregate, n, receipt) SELECT m.aggregate, m.n, m.receipt FROM idem_outbox o WHERE o.aggregateid = m.aggregate AND o.type = m.n::text AND o.leased_until > clock_timestamp() + interval '100 ms';
			IF NOT FOUND THEN EXIT; END IF;
			COMMIT;
			PERFORM idem_outbox_ack(ARRAY[m.receipt]);
			COMMIT;
		END LOOP;
	END LOOP;
END $do$};
my @relays;
my $start_relay = sub { my $r = session($node, name => 'relay'); $r->send($relay); return $r; };
@relays = map { $start_relay->() } 1 .. $relays;
my $killed = 0;
my $kill_one = sub {
	my $victim = int(rand(@relays));
	$s->ok('SELECT pg_terminate_backend(' . $relays[$victim]->pid . ')');
	$relays[$victim] = $start_relay->();
	$killed++;
};
# Some while there are messages still to be sent, however fast they are.
my $rounds = 10;
my $codes = 0;
foreach my $round (1 .. $rounds)
{
	my ($code, $out, $err) = pgbench($node, $scripts[0], '-c', 4, '-t', $messages / 25 / 4 / $rounds);
	$codes += $code == 0 ? 0 : 1;
	diag($err) if $code != 0;
	$kill_one->();
}
is($codes, 0, 'published');
my $end = time + $seconds;
while (time < $end && $s->ok('SELECT EXISTS (SELECT FROM idem_outbox)') eq 't')
{
	$kill_one->();
	usleep(300_000);
}
wait_until($s, 'SELECT count(*) FROM idem_outbox', '0', 'the relays');
$s->ok(q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'relay'));
note("$killed relays killed, " . $s->ok('SELECT count(*) - count(DISTINCT (aggregate, n)) FROM sent') . ' messages sent twice');
cmp_ok($killed, '>=', $rounds, 'relays were killed');
is($s->ok('SELECT sum(n) FROM counters'), $messages, 'so many were published');
is($s->ok('SELECT count(DISTINCT (aggregate, n)) FROM sent'), $messages, 'each was sent, at least once');
# The first time that a message was sent comes after the first time of those before it; a repeat goes back at most to the first unacknowledged one.
is($s->ok(q(SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY aggregate ORDER BY first) AS before FROM (SELECT aggregate, n, min(at) AS first FROM sent GROUP BY 1, 2) x) y WHERE n <> COALESCE(before, 0) + 1)),
	'0', 'in order, for each aggregate');
is($s->ok(q(SELECT count(*) FROM (SELECT n, lag(n) OVER (PARTITION BY aggregate ORDER BY at) AS before FROM sent) x WHERE n NOT IN (before, before + 1))),
	'0', 'nobody else sent in between');
is($s->ok('SELECT count(*) FROM pg_locks WHERE objsubid = ' . (LOCK_CLASS + 1)), '0', 'no lock is left behind');

done_testing();
