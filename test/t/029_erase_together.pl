# Several sessions erase one account, and others import into it: nobody waits in a circle.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('erase', conf => "pg_idem.batch_size = 50\n");
my ($status, $out, $err) = pgbench(
	$node,
	{
		'erase@2' => q{SELECT sum(rows) FROM idem_erase('shared', 'together');},
		'import@1' => q{SELECT count(idem_import('shared', chr(97 + (random() * 25)::int), md5(random()::text), settled_as => 'completed', result => '{}', settled_at => now())) FROM generate_series(1, 20);},
	},
	'-c', 8, '-T', 8, '-j', 2);
is($status, 0, 'clients ended well') or diag($err);
is(failed_transactions($out), 0, 'none failed');
unlike(slurp_file($node->logfile), qr/deadlock/, 'no deadlock');

my $s = session($node);
my $calls = 0;
$calls++ while $s->ok(q(SELECT sum(rows) FROM idem_erase('shared', 'to the end'))) ne '0' && $calls < 1000;
is($s->ok(q(SELECT count(*) FROM idem_settled WHERE account = 'shared' AND (result IS NOT NULL OR NOT stripped))), '0', 'G7: erased to the end');
cmp_ok($s->ok(q(SELECT count(*) FROM idem_settled WHERE account = 'shared')), '>', 0, 'G7: the keys are remembered');
$s->quit;
$node->stop;
done_testing();
