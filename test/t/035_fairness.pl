# Nobody waits for ever behind others: neither a database behind a busy one, nor an operation behind newer ones.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('fair', worker => 0, conf => "pg_idem.max_workers = 1\npg_idem.naptime = '50ms'\nautovacuum = off\n");
my $s = session($node);

# --- one worker, and a database that always has more to do than it can in its two seconds
$node->safe_psql('postgres', 'CREATE DATABASE quiet');
$node->safe_psql('quiet', 'CREATE EXTENSION pg_idem');
$s->ok(q(INSERT INTO idem_settled SELECT now() - '2 days'::interval, now() - '1 day'::interval, now() - '1 hour'::interval, NULL, 1, NULL, true, false,
	'acme', 'old', n::text, NULL, NULL, '{}', NULL, NULL FROM generate_series(1, 600000) n));
$s->quit;
$node->restart;    # now nothing is known of either
$s = session($node);
$s->ok(q(ALTER SYSTEM SET pg_idem.worker = on; SELECT pg_reload_conf()));
wait_until($s, q(SELECT count(*) FROM idem_worker_status WHERE database = 'quiet' AND passes > 0), '1', 'a pass over the quiet one');
my $left = $s->ok('SELECT count(*) FROM idem_settled');
cmp_ok($left, '>', 0, "G5: a database is looked at though another has work for many passes ($left rows are left)");
$s->ok('TRUNCATE idem_settled');

# --- an operation whose session has ended has waited since then, not until the end of its lease
my $bound = session($node);
$bound->ok(claim([ 'acme', 'wait', 'bound' ], lease => q('1 h'), session_bound => 'true'));
$bound->quit;
my $announced = q(SELECT announced FROM idem_inflight WHERE key = '%s');
wait_until($s, sprintf($announced, 'bound'), 't', 'the pass that finds its session gone');
foreach my $key (qw(newer newest))
{
	$s->ok(claim([ 'acme', 'wait', $key ], lease => q('1 ms')));
	wait_until($s, sprintf($announced, $key), 't', "the pass over $key");
}
is($s->ok(q(SELECT key FROM idem_take('wait', '1 min'))), 'bound', 'G5: the one that waits longest is taken first');
$s->quit;
$node->stop;
done_testing();
