# Many sessions on one key, and many keys at once.
use strict;
use warnings;

use FindBin;
use List::Util 'min';
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('hot_key', worker => 0, conf => 'autovacuum = off');
my $observer = session($node);
my $winner = session($node);
my @waiters = map { session($node) } 1 .. 16;
my %short = ('READ COMMITTED' => 'rc', 'REPEATABLE READ' => 'rr', 'SERIALIZABLE' => 'ser');

sub wait_claim
{
	my ($key) = @_;
	return claim($key, wait => q('1 min'), columns => 'outcome, result, extract(epoch FROM clock_timestamp())');
}

foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	$_->ok("SET default_transaction_isolation TO '$level'") foreach $winner, @waiters;

	# The time runs from before COMMIT is sent until the last waiter has its answer, by the server's clock. The
	# promise is about the server, not about how 16 clients share a busy machine: the best of the rounds counts.
	my @last;
	foreach my $round (1 .. 7)
	{
		my $key = "$short{$level}-$round";
		$winner->ok('BEGIN; ' . claim($key));
		$winner->ok("INSERT INTO effects VALUES ('$key')");
		$winner->ok(call('idem_complete', $key, result => qq('{"n": $round}')));
		$_->send('BEGIN; ' . wait_claim($key)) foreach @waiters;
		wait_lock($observer, 16);
		my $start = $winner->ok('SELECT extract(epoch FROM clock_timestamp())');
		$winner->ok('COMMIT');
		my ($last, $right) = (0, 0);
		foreach my $waiter (@waiters)
		{
			my $state = $waiter->get;
			my ($outcome, $result, $at) = split /\|/, $waiter->out;
			diag("$state " . $waiter->err) if $state;
			$right++ if $state eq '' && $outcome eq 'completed' && $result eq qq({"n": $round});
			$last = $at - $start if $at && $at - $start > $last;
			$waiter->ok('COMMIT');
		}
		is($right, 16, "G1: $level: 16 waiters get the one outcome (round $round)");
		push @last, 1000 * $last;
		is($observer->ok("SELECT count(*) FROM pg_locks WHERE objsubid = ${\ LOCK_CLASS}"), '0', "no lock is left behind (round $round)");
	}
	my $best = min(@last);
	note("$level: last of 16 waiters answered after " . join(', ', map { sprintf '%.1f', $_ } @last) . ' ms');
	cmp_ok($best, '<=', 50, "G5: $level: 16 waiters are answered within 50 ms of the commit");

	# The winner rolls back.
	my $key = "$short{$level}-rollback";
	$winner->ok('BEGIN; ' . claim($key));
	$winner->ok(call('idem_complete', $key, result => q('{"by": "winner"}')));
	$_->send('BEGIN; ' . wait_claim($key)) foreach @waiters;
	wait_lock($observer, 16);
	$winner->ok('ROLLBACK');
	wait_lock($observer, 15);
	my @owners;
	wait_until($observer, 'SELECT true');
	for (1 .. 200)
	{
		@owners = grep { !$_->busy } @waiters;
		last if @owners;
	}
	is(scalar @owners, 1, "G1: $level: a rollback leaves exactly one waiter with the claim");
	my $owner = $owners[0];
	is($owner->get, '', 'it was granted without an error');
	like($owner->out, qr/^claimed[|]/, 'as a first claim');
	$owner->ok(call('idem_complete', $key, result => q('{"by": "next"}')) . "; INSERT INTO effects VALUES ('$key'); COMMIT");
	my $replayed = 0;
	foreach my $waiter (grep { $_ != $owner } @waiters)
	{
		$replayed++ if $waiter->get eq '' && $waiter->out =~ /^completed[|]\{"by": "next"\}[|]/;
		$waiter->ok('COMMIT');
	}
	is($replayed, 15, "G1: $level: the other 15 get its outcome");

	# Without waiting the answer comes at once, and says by whom.
	$winner->ok('BEGIN; ' . claim("$key-nowait"));
	my $answers = join ',', map { $_->ok(claim("$key-nowait", columns => 'outcome, holder, retry_after >= 1')) } @waiters;
	is($answers, join(',', ('in_progress|' . $winner->pid . '|t') x 16), "G1: $level: without wait all are told in_progress");
	$winner->ok('ROLLBACK');
	is($waiters[0]->ok(claim("$key-nowait", columns => "outcome, idem_release('acme', 'pay', '$key-nowait')")),
		'claimed|t', 'after the rollback the key is free');
}
is($observer->ok('SELECT count(*), count(DISTINCT key) FROM effects'), '24|24', 'G2: each key has exactly one effect');
$_->quit foreach $winner, @waiters;

# Load: 16 clients go through the same keys, each key hot for all of them at once.
$observer->ok(
	q{
	TRUNCATE effects;
	CREATE TABLE answers (level text, key text, outcome text, result text);
});
foreach my $level ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')
{
	my $name = $short{$level};
	my $script = qq{
		\\set i :i + 1
		BEGIN ISOLATION LEVEL $level;
		SELECT outcome, coalesce(result::text, '') AS result, outcome = 'claimed' AS mine
		  FROM idem_claim('acme', '$name', 'load-' || :i, request => '{}', wait => '30 s') \\gset
		\\if :mine
		INSERT INTO effects VALUES ('$name-' || :i);
		SELECT result FROM (SELECT ('{"by": ' || :client_id || '}')::jsonb AS result) r,
		  idem_complete('acme', '$name', 'load-' || :i, result => r.result) c \\gset
		\\endif
		INSERT INTO answers VALUES ('$name', 'load-' || :i, ':outcome', ':result');
		COMMIT;
	};
	my ($rc, $out, $err) = pgbench($node, { "hot-$name" => $script }, '-c', 16, '-j', 2, '-t', 60, '-D', 'i=0');
	is($rc, 0, "$level: 16 clients ran") or diag($err);
	is(failed_transactions($out), 0, "G12: $level: no errors on hot keys") or diag($err);
	is($observer->ok("SELECT count(*), count(DISTINCT key) FROM effects WHERE key LIKE '$name-%'"),
		'60|60', "G1: $level: one effect for each hot key");
	is( $observer->ok(
			"SELECT count(*) FROM (SELECT key FROM answers WHERE level = '$name' GROUP BY key
			 HAVING count(*) = 16 AND count(DISTINCT result) = 1 AND count(*) FILTER (WHERE outcome = 'claimed') = 1
			 AND count(*) FILTER (WHERE outcome = 'completed') = 15) s"),
		'60', "G3: $level: all 16 clients got the same outcome, one as its owner");
}

# Distinct keys at SERIALIZABLE: no serialization failures that the business statements do not have themselves. These
# read and insert but cannot conflict (nobody writes what they read), so every failure would be ours.
$observer->ok(
	q{
	CREATE TABLE prices AS SELECT i AS id, i * 10 AS price FROM generate_series(1, 100) i;
	CREATE TABLE sales (id int, price int);
	SELECT count(*) FROM generate_series(1, 20000) i,
	  LATERAL idem_once('acme', 'warm', i::text) o;
});
$observer->ok("SET pg_idem.max_claims_per_transaction = 2000");
$observer->ok(
	"BEGIN; SELECT count(*) FROM generate_series(1, 1000) i, LATERAL idem_claim('acme', 'warm-$_', i::text, request => '{}') c,
	 LATERAL idem_complete('acme', 'warm-$_', i::text) d WHERE c.outcome = 'claimed'; COMMIT") foreach 1 .. 10;
my $business = q{
	\set id random(1, 100)
	BEGIN ISOLATION LEVEL SERIALIZABLE;
	%s
	INSERT INTO sales SELECT id, price FROM prices WHERE id = :id;
	%s
	COMMIT;
};
my ($rc, $out, $err) =
  pgbench($node, { plain => sprintf($business, '', '') }, '-c', 16, '-j', 2, '-t', 200);
is($rc, 0, 'business alone ran') or diag($err);
my $without = failed_transactions($out);
($rc, $out, $err) = pgbench(
	$node,
	{   ours => sprintf(
			$business,
			q{\set k random(1, 1000000000000)
			SELECT outcome FROM idem_claim('acme', 'pay', 'r' || :k, request => '{}');},
			q{SELECT idem_complete('acme', 'pay', 'r' || :k, result => '{"ok": true}');})
	},
	'-c', 16, '-j', 2, '-t', 200);
is($rc, 0, 'business with claims ran') or diag($err);
cmp_ok(failed_transactions($out), '<=', $without, "G1: distinct keys at SERIALIZABLE: no more failures than without us ($without)")
  or diag($err);

# The same for leased claims and messages.
($rc, $out, $err) = pgbench(
	$node,
	{   leased => q{
		\set k random(1, 1000000000000)
		BEGIN ISOLATION LEVEL SERIALIZABLE;
		SELECT token FROM idem_claim('acme', 'pay', 'l' || :k, request => '{}', lease => '1 min') \gset
		COMMIT;
		BEGIN ISOLATION LEVEL SERIALIZABLE;
		SELECT idem_guard('acme', 'pay', 'l' || :k, token => ':token');
		INSERT INTO sales SELECT id, price FROM prices WHERE id = 7;
		SELECT idem_checkpoint('acme', 'pay', 'l' || :k, token => ':token', checkpoint => 'half');
		COMMIT;
		BEGIN ISOLATION LEVEL SERIALIZABLE;
		SELECT idem_complete('acme', 'pay', 'l' || :k, token => ':token');
		COMMIT;
	},
		once => q{
		\set k random(1, 1000000000000)
		BEGIN ISOLATION LEVEL SERIALIZABLE;
		SELECT idem_once('acme', 'pay', 'm' || :k, request => '{}');
		INSERT INTO sales SELECT id, price FROM prices WHERE id = 8;
		COMMIT;
	}
	},
	'-c', 16, '-j', 2, '-t', 100);
is($rc, 0, 'leased claims and messages ran') or diag($err);
is(failed_transactions($out), 0, 'G1: leased claims and messages at SERIALIZABLE: no failures of ours') or diag($err);

$observer->quit;
$node->stop;
done_testing();
