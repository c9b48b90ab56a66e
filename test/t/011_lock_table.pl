# Limits on the number of claims.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# The smallest lock table that a server can have
my $node = new_node('lock_table', worker => 0, conf => "max_connections = 10\nmax_locks_per_transaction = 10\nautovacuum = off");
my $s = session($node);
my $other = session($node);
my $many = sub {
	my ($prefix, $n, $named) = @_;
	$named //= '';
	return "SELECT count(*) FROM generate_series(1, $n) i, LATERAL idem_claim('acme', 'pay', '$prefix' || i, request => '{}' $named) c "
	  . "WHERE c.outcome IN ('claimed', 'recovered')";
};
my $settle = sub { my ($prefix, $n) = @_; "SELECT count(*) FROM generate_series(1, $n) i, LATERAL idem_complete('acme', 'pay', '$prefix' || i) c" };

# Our own limit
foreach my $kind ('', ", lease => '1 h'")
{
	my $p = $kind ? 'l' : 't';
	my $name = $kind ? 'leased' : 'transaction-scoped';
	$s->ok('SET pg_idem.max_claims_per_transaction = 20');
	is($s->ok('BEGIN; ' . $many->("${p}ok", 20, $kind) . '; ' . $settle->("${p}ok", 20) . '; COMMIT'), "20\n20", "$name: as many claims as allowed");
	$s->ok('BEGIN');
	is($s->try($many->("${p}more", 21, $kind)), '53200', "G12: $name: one more is refused");
	like($s->err, qr/HINT:.*pg_idem\.max_claims_per_transaction/, "$name: the hint names the setting");
	is($s->ok('ROLLBACK; SELECT 1'), '1', "$name: the session goes on");
	is($s->ok(call('idem_lookup', "${p}more1")), '', "$name: nothing is left behind");
	# In a savepoint the others survive.
	is($s->ok('BEGIN; ' . $many->("${p}sp", 20, $kind) . '; SAVEPOINT a'), '20', "$name: full");
	is($s->try(claim("${p}sp21", lease => $kind ? q('1 h') : 'NULL')), '53200', "G12: $name: one more is refused");
	is($s->ok('ROLLBACK TO a; ' . $settle->("${p}sp", 20) . '; COMMIT'), '20', "$name: the claims before the savepoint are settled");
	is($s->ok($many->("${p}sp", 20, $kind)), '0', "G2: $name: and settled they are");
	# What is given back by a savepoint does not count, nor does what is not granted.
	is($s->ok('BEGIN; SAVEPOINT a; ' . $many->("${p}back", 20, $kind) . '; ROLLBACK TO a; ' . $many->("${p}again", 20, $kind) . '; ' . $settle->("${p}again", 20) . '; COMMIT'),
		"20\n20\n20", "$name: what a savepoint gave back does not count");
	is($s->ok('BEGIN; ' . $many->("${p}ok", 20, $kind) . '; ' . $many->("${p}again", 20, $kind) . '; ' . $many->("${p}new", 20, $kind) . '; ' . $settle->("${p}new", 20) . '; COMMIT'),
		"0\n0\n20\n20", "$name: replays do not count");
}
is($s->ok('BEGIN; SELECT count(*) FROM generate_series(1, 50000) i, LATERAL idem_once(\'acme\', \'pay\', i::text) o WHERE o; COMMIT'),
	'50000', 'G10: messages need no lock table');
is($s->ok(q(SELECT count(*) FROM (SELECT array_agg(i::text) AS a FROM generate_series(40001, 60000) i) x, LATERAL idem_once_batch('acme', 'pay', a) b WHERE verdict = 'first')),
	'10000', 'G10: nor do batches of them');

# Guards and other owner calls of leased claims hold locks too.
$s->ok('SET pg_idem.max_claims_per_transaction = 1000000');
$s->ok("BEGIN; $_; COMMIT") foreach map { $many->("g$_-", 100, ", lease => '1 h', token => 'bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb'") } 1 .. 40;

# The limit of the lock table itself
sub exhaust
{
	my ($name, $sql, $goes_on) = @_;
	$other->ok('BEGIN; ' . claim("other $name"));
	$s->ok('BEGIN; SAVEPOINT a');
	is($s->try($sql), '53200', "G12: $name: the lock table is full");
	like($s->err, qr/HINT:/, "$name: with a hint");
	is($s->ok('ROLLBACK TO a; SELECT 1'), '1', "$name: rolled back to the savepoint");
	# A guard is verified again at COMMIT, also where it was taken in a savepoint that was rolled back.
	is($s->ok('ROLLBACK; BEGIN; SELECT 1'), '1', "$name: rolled back") unless $goes_on // 1;
	is($s->ok(claim("small $name") . '; ' . call('idem_complete', "small $name", columns => q('settled')) . '; COMMIT'), "claimed\nsettled", "$name: the transaction goes on");
	is($s->try($sql), '53200', "G12: $name: full, in a transaction of its own");
	is($s->ok('SELECT 1'), '1', "$name: the session goes on");
	is($s->ok('BEGIN; ' . claim("again $name") . '; ' . call('idem_complete', "again $name", columns => q('settled')) . '; COMMIT'), "claimed\nsettled", "$name: and claims");
	is($other->ok(call('idem_complete', "other $name", columns => q('settled')) . '; COMMIT'), 'settled', "$name: another transaction settles all the same");
	is($s->ok("SELECT count(*) FROM pg_locks WHERE objsubid = ${\ LOCK_CLASS}"), '0', "$name: no lock is left behind");
	return;
}
exhaust('claims', $many->('full', 100000));
exhaust('leased claims', $many->('full', 100000, ", lease => '1 h'"));
exhaust('guards', q(SELECT count(*) FROM generate_series(1, 40) j, generate_series(1, 100) i,
	LATERAL idem_guard('acme', 'pay', 'g' || j || '-' || i, token => 'bbbbbbbb-bbbb-bbbb-bbbb-bbbbbbbbbbbb') g), 0);
is($s->ok(q(SELECT count(*) FROM idempotent_operations WHERE key LIKE 'full%')), '0', 'G12: nothing is left behind');
is($s->ok('BEGIN; ' . $many->('later', 100) . '; ' . $settle->('later', 100) . '; COMMIT'), "100\n100", 'the table is usable as before');

$_->quit foreach $s, $other;
$node->stop;
done_testing();
