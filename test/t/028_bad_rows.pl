# A row that the workers cannot deal with, here because an index that somebody added fails for it: the others are done, it is reported with its
# identity, and it is tried again at leisure until it is mended.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $nap = 0.25;
my $node = new_node('bad_rows', conf => "pg_idem.naptime = '250ms'\npg_idem.worker = off\n");
my $s = session($node);
$s->ok(
	q{
	INSERT INTO idem_policies (action, retention, remember, on_interrupt) VALUES ('pay', '1 ms', '1 day', 'review');
	CREATE FUNCTION bad_row(key text, bad boolean) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
	BEGIN
		IF bad AND key = 'poison' THEN RAISE 'poisoned'; END IF;
		RETURN key;
	END $$;
	CREATE INDEX bad_settled ON idem_settled (bad_row(key, stripped));
	CREATE INDEX bad_inflight ON idem_inflight (bad_row(key, in_review));
});
foreach my $key ('before', 'poison', 'after')
{
	$s->ok('BEGIN; ' . claim($key) . '; ' . call('idem_complete', $key, result => q('"x"')) . '; COMMIT');
	$s->ok(claim([ 'other', 'pay', $key ], lease => q('1 ms')));
}
$s->ok('ALTER DATABASE postgres SET exit_on_error = on'); # would end the whole worker
my $offset = -s $node->logfile;
$s->ok('ALTER SYSTEM SET pg_idem.worker = on; SELECT pg_reload_conf()');
wait_until($s, 'SELECT last_error IS NOT NULL AND worker_pid IS NULL FROM idem_worker_status');
wait_until($s, q(SELECT count(*) FROM idem_settled WHERE key <> 'poison' AND NOT stripped), '0', 'the others');
wait_until($s, q(SELECT count(*) FROM idem_inflight WHERE key <> 'poison' AND NOT in_review), '0', 'the others in flight');
ok(1, 'G7: the others are done');
is($s->ok(q(SELECT last_error FROM idem_worker_status)), 'poisoned', 'the status says why');
is($s->ok(q(SELECT stripped FROM idem_settled WHERE key = 'poison')), 'f', 'the row is as it was');
is($s->ok(call('idem_lookup', 'poison', columns => 'state')), 'expired', 'G7: and so is its answer');
my $log = slurp_file($node->logfile, $offset);
like($log, qr/WARNING: .*could not deal with an operation: poisoned.*?DETAIL: .*Account "acme", action "pay", key "poison"\./s, 'the log names it');
like($log, qr/DETAIL: .*Account "other", action "pay", key "poison"\./, 'and the one in flight');
unlike($log, qr/DETAIL: .*key "(before|after)"/, 'and no other');
# Left alone, it is tried again after twelve naps, not after one.
wait_until($s, 'SELECT passes > 1 AND worker_pid IS NULL AND next_due > last_pass FROM idem_worker_status');
my $until = $s->ok('SELECT passes + 3 FROM idem_worker_status');
my $began = $s->ok('SELECT extract(epoch FROM last_pass) FROM idem_worker_status');
wait_until($s, "SELECT passes >= $until AND worker_pid IS NULL FROM idem_worker_status");
my $took = $s->ok('SELECT extract(epoch FROM last_pass) FROM idem_worker_status') - $began;
cmp_ok($took, '>=', 3 * 11 * $nap, 'it is not tried at every nap');
# Nor while there is other work at every nap.
$offset = -s $node->logfile;
foreach my $i (1 .. 8)
{
	$s->ok(claim([ 'other', 'pay', "more$i" ], lease => q('1 ms')));
	wait_until($s, qq(SELECT in_review FROM idem_inflight WHERE key = 'more$i'));
}
my $times = () = slurp_file($node->logfile, $offset) =~ /DETAIL: .*Account "other", action "pay", key "poison"/g;
cmp_ok($times, '<=', 2, "nor beside other work (reported $times times)");
# Mended
$s->ok('DROP INDEX bad_settled, bad_inflight');
wait_until($s, q(SELECT count(*) FROM idem_settled WHERE NOT stripped), '0', 'the mended one');
wait_until($s, q(SELECT count(*) FROM idem_inflight WHERE NOT in_review), '0', 'the mended one in flight');
ok(1, 'G7: mended, it is done');
$s->quit;
$node->stop;
done_testing();
