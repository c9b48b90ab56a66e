# G7 Settled rows expire, and are swept by the workers, while 8 clients keep claiming, settling and consuming: no error, no deadlock, nobody
# waits for the sweeper, and sizes level off over ten retention windows. PG_IDEM_LARGE=1: with 1,000,000 rows.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $large = $ENV{PG_IDEM_LARGE};
my $rows = $large ? 1_000_000 : 50_000;
my $clients = 8;
# A client that waited for a sweep would wait for a whole step, or for good. The machine may be busy with other things.
my $longest_wait = $large ? 10_000 : 5_000;

my $node = new_node('expiry_load', conf => <<'END');
pg_idem.worker = off
pg_idem.naptime = '100ms'
deadlock_timeout = '200ms'
log_lock_waits = on
log_statement = none
max_wal_size = '4GB'
shared_buffers = '256MB'
autovacuum = off
END
my $s = session($node);
$s->ok(
	q{
	INSERT INTO idem_policies (action, retention, remember, once_retention) VALUES
	    ('old', '1 hour', '1 hour', '1 hour'), ('pay', '3 days', '30 days', '7 days');
	-- What expired operations look like. Half of the rows are only to be stripped.
	CREATE FUNCTION expire(n int) RETURNS void LANGUAGE sql AS $$
		INSERT INTO idem_settled (settled_at, expires_at, forget_at, attempt, status, succeeded, stripped, account, action, key, fingerprint, result)
		SELECT now() - interval '3 hours', now() - interval '2 hours',
		       now() + CASE WHEN i % 2 = 0 THEN interval '-1 hour' ELSE interval '1 day' END,
		       1, 200, true, false, 'acme', 'old', 'k' || i, '\x01', jsonb_build_object('id', i, 'text', repeat('x', 100))
		  FROM generate_series(1, n) i;
		INSERT INTO idem_seen (seen_at, forget_at, account, action, key)
		SELECT now() - interval '3 hours', now() - interval '1 hour', 'acme', 'old', 'm' || i FROM generate_series(1, n / 2) i;
	$$;
	CREATE SEQUENCE fresh;
});

# Claims of keys of their own, of keys that are being swept, replays, messages, leases.
my %scripts = (
	'fresh@6' => q{
		\set k random(1, 1000000000)
		BEGIN;
		SELECT outcome FROM idem_claim('acme', 'pay', 'f' || :client_id || '-' || nextval('fresh') || '-' || :k, '{}');
		SELECT idem_complete('acme', 'pay', 'f' || :client_id || '-' || currval('fresh') || '-' || :k, '{"ok": true}', 200);
		COMMIT;
	},
	'old@6' => qq{
		\\set i random(1, $rows)
		SELECT old_again(:i, :client_id);
	},
	'once@4' => qq{
		\\set i random(1, $rows)
		SELECT idem_once('acme', 'old', 'm' || :i);
	},
	'leased@2' => q{
		SELECT leased_again(nextval('fresh'));
	},
);
$s->ok(
	q{
	-- A key that is expired (odd) or forgotten (even), which may be swept at this very moment: the answer does not tell.
	CREATE FUNCTION old_again(i int, client int) RETURNS text LANGUAGE plpgsql AS $$
	DECLARE answer idem_claim_result;
	BEGIN
		answer := idem_claim('acme', 'old', 'k' || i, fingerprint => '\x01', wait => '10 s');
		IF answer.outcome IN ('claimed', 'recovered') THEN
			IF i % 2 = 1 THEN RAISE 'k% was granted, but is remembered', i; END IF;
			PERFORM idem_complete('acme', 'old', 'k' || i, '{}');
		ELSIF answer.outcome <> (CASE WHEN i % 2 = 1 THEN 'expired' ELSE 'completed' END) ::idem_outcome THEN
			RAISE 'k% answers %', i, answer.outcome;
		END IF;
		RETURN answer.outcome;
	END $$;
	CREATE FUNCTION leased_again(i bigint) RETURNS timestamptz LANGUAGE plpgsql AS $$
	DECLARE t uuid := gen_random_uuid();
	BEGIN
		PERFORM FROM idem_claim('acme', 'pay', 'l' || i, '{}', lease => '1 min', token => t);
		PERFORM idem_checkpoint('acme', 'pay', 'l' || i, t, 'half');
		RETURN idem_complete('acme', 'pay', 'l' || i, '{}', token => t);
	END $$;
});

# Runs the clients for so many seconds; returns (tps, p99 ms, max ms, output).
sub run_clients
{
	my ($duration) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my ($code, $out, $err) = pgbench($node, \%scripts, '-c', $clients, '-j', 2, '-T', $duration, '-M', 'prepared', '-l', "--log-prefix=$dir/log");
	is($code, 0, 'pgbench') or diag($err);
	is($err =~ s/^pgbench .*\n//mr, '', 'G12: no client saw an error');
	my @ms;
	foreach my $file (glob "$dir/log*")
	{
		push @ms, map { (split)[2] / 1000 } split /\n/, slurp_file($file);
	}
	@ms = sort { $a <=> $b } @ms;
	my ($tps) = $out =~ /tps = ([\d.]+)/;
	return ($tps, $ms[ $#ms * 0.99 ], $ms[-1]);
}

my $left = q{
	SELECT (SELECT count(*) FROM idem_settled WHERE forget_at <= now() OR expires_at <= now() AND num_nonnulls(request, result, body, body_bytes) > 0)
	     + (SELECT count(*) FROM idem_seen WHERE forget_at <= now())};

sub sizes
{
	return $s->ok(q{SELECT pg_total_relation_size('idem_settled') / 1024, pg_total_relation_size('idem_seen') / 1024});
}

sub worker { return $s->ok("ALTER SYSTEM SET pg_idem.worker = $_[0]; SELECT pg_reload_conf()"); }

# --- what the clients do by themselves, and beside the sweep
my $seconds = $large ? 60 : 6;
$s->ok("SELECT expire($rows); VACUUM ANALYZE idem_settled, idem_seen");
my ($tps, $p99, $max) = run_clients($large ? 20 : 4);
note(sprintf 'without sweep: %.0f tps, p99 %.1f ms, max %.0f ms', $tps, $p99, $max);
my $before = $s->ok($left);
my $deadlocks = $s->ok(q{SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'});
my $began = time;
my $offset = -s $node->logfile;
worker('on');
my ($with, $p99_with, $max_with) = run_clients($seconds);
note(sprintf 'beside the sweep: %.0f tps, p99 %.1f ms, max %.0f ms', $with, $p99_with, $max_with);
my $after = $s->ok($left);
my $elapsed = time - $began;
note(sprintf '%d of %d rows swept in %.0f s beside %d clients: %.0f rows/s', $before - $after, $before, $elapsed, $clients, ($before - $after) / $elapsed);
cmp_ok($after, '<', $before, 'G7: it is swept meanwhile');
cmp_ok($max_with, '<', $longest_wait, 'G5: nobody waits for the sweeper');
my $alone = time;
wait_until($s, $left, '0', 'the end of the sweep');
note(sprintf 'the rest, %d rows, took %.1f s without clients; all in all %.0f s', $after, time - $alone, time - $began);
is($s->ok(q{SELECT count(*) FROM idem_settled WHERE action = 'old' AND expires_at < now() AND (NOT stripped OR result IS NOT NULL)}), '0', 'G7: every payload that has expired is gone');
is($s->ok(q{SELECT count(*) FROM idem_settled WHERE action = 'old' AND stripped AND fingerprint = '\x01' AND status = 200 AND succeeded}), $rows / 2,
	'G7: and the rows that are remembered are there, with their fingerprints');
is($s->ok(q{SELECT count(*) FROM idem_settled WHERE action = 'pay'}), $s->ok(q{SELECT last_value FROM fresh}), 'G3: every operation of the clients is there');
is($s->ok(q{SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'}), $deadlocks, 'G5: no deadlock');
is($s->ok(q{SELECT count(*) FROM idem_worker_status WHERE last_error IS NOT NULL}), '0', 'no pass failed');
my $log = slurp_file($node->logfile, $offset);
unlike($log, qr/ERROR:|PANIC:|deadlock detected/, 'nor is there an error in the log');
my @waits = $log =~ /still waiting for (?!.*transaction).*$/mg;
is(scalar grep({ !/advisory|7433/ } @waits), 0, 'G5: waits are for keys only') or diag(join "\n", @waits);

# --- ten retention windows: sizes level off
worker('off');
$s->ok(
	q{
	TRUNCATE idem_settled, idem_seen;
	UPDATE idem_policies SET (retention, remember, once_retention) = ('1 s', '1 s', '2 s') WHERE action = 'pay';
	ALTER TABLE idem_settled SET (autovacuum_vacuum_scale_factor = 0.1);
	-- n operations and messages; each window's keys are new
	CREATE PROCEDURE fill(w int, n int) LANGUAGE plpgsql AS $$
	BEGIN
		FOR i IN 1 .. n LOOP
			PERFORM FROM idem_claim('acme', 'pay', 'w' || w || '-' || i, '{}');
			PERFORM idem_complete('acme', 'pay', 'w' || w || '-' || i, to_jsonb(repeat('x', 200)));
			IF i % 100 = 0 THEN COMMIT; END IF;
		END LOOP;
		PERFORM FROM idem_once_batch('acme', 'pay', ARRAY(SELECT 'w' || w || '-' || i FROM generate_series(1, n) i));
	END $$;
});
worker('on');
my $n = $large ? 20_000 : 1_000;
my (@settled, @seen);
foreach my $window (1 .. 10)
{
	$s->ok("CALL fill($window, $n)");
	# Until this window's rows are past their time, and swept.
	wait_until($s, q{SELECT count(*) FROM idem_settled WHERE forget_at > now()}, '0', 'the window');
	wait_until($s, q{SELECT (SELECT count(*) FROM idem_settled) + (SELECT count(*) FROM idem_seen)}, '0', 'its sweep');
	$s->ok('VACUUM idem_settled, idem_seen');
	my ($settled, $seen) = split /\|/, sizes();
	push @settled, $settled;
	push @seen, $seen;
}
note("sizes after each window, kB: settled @settled; seen @seen");
cmp_ok($settled[-1], '<=', 1.1 * $settled[1], 'G7: idem_settled has levelled off over ten windows');
cmp_ok($seen[-1], '<=', 1.1 * $seen[1], 'G7: idem_seen has levelled off over ten windows');

# --- windows that overlap, as in real life: rows come all the time, and autovacuum is the only one who cleans
$s->ok(q{ALTER SYSTEM SET autovacuum = on; ALTER SYSTEM SET autovacuum_naptime = '1 s'; SELECT pg_reload_conf()});
$n = $large ? 4_000 : 1_000;
@settled = ();
my @stored;
my $start = $s->ok('SELECT clock_timestamp()');
foreach my $window (1 .. 20)
{
	$s->ok("CALL fill($window * 1000, $n)");
	push @stored, $s->ok('SELECT count(*) FROM idem_settled');
	push @settled, (split /\|/, sizes())[0];
	wait_until($s, "SELECT clock_timestamp() >= timestamptz '$start' + interval '$window s'");
}
note("while $n rows come each second: rows @stored; kB @settled");
# Two windows are kept; each row is stripped, and deleted a window later.
my $most = (sort { $a <=> $b } @stored[ 10 .. 19 ])[-1];
cmp_ok($most, '<=', 7 * $n, 'G7: the sweep keeps up with rows that come all the time');
my ($early, $late) = map { (sort { $a <=> $b } @settled[@$_])[-1] } [ 5 .. 10 ], [ 15 .. 19 ];
cmp_ok($late, '<=', 1.5 * $early, 'G7: and with autovacuum sizes level off');
is($s->ok(q{SELECT deadlocks FROM pg_stat_database WHERE datname = 'postgres'}), $deadlocks, 'G5: no deadlock');

$s->quit;
$node->stop;
done_testing();
