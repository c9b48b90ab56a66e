# A block that cannot be read stops the workers at nothing but itself.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('block', conf => "pg_idem.naptime = 100ms\npg_idem.worker = off\nautovacuum = off\n");
my $s = session($node);

# Some thirty blocks of each table
$s->ok(q(INSERT INTO idem_policies (action, retention, remember) VALUES ('done', '0', '0')));
$s->ok(q(SELECT count(idem_claim('acme', 'wait', 'k' || i, request => '{}', lease => '1 ms')) FROM generate_series(1, 400) i));
$s->ok(q(DO $$ BEGIN
	FOR i IN 1 .. 900 LOOP
		PERFORM idem_claim('acme', 'done', 'k' || i, request => '{}'); PERFORM idem_complete('acme', 'done', 'k' || i, result => to_jsonb(repeat('x', 100)));
	END LOOP; END $$));
my %file = map { $_ => $node->data_dir . '/' . $s->ok("SELECT pg_relation_filepath('$_')") } qw(idem_inflight idem_settled);
my %blocks = map { $_ => $s->ok("SELECT pg_relation_size('$_') / 8192") } keys %file;
cmp_ok($blocks{$_}, '>', 10, "$_ has some blocks") foreach sort keys %file;
$s->quit;
$node->stop;
foreach my $table (keys %file)
{
	open my $data, '+<', $file{$table} or die $!;
	binmode $data;
	seek $data, 8192 * 7, 0;
	print $data 'x' x 8192;
	close $data;
}
$node->append_conf('postgresql.conf', 'pg_idem.worker = on');
$node->start;
$s = session($node);
wait_until($s, "SELECT count(*) FROM (SELECT announced FROM idem_inflight WHERE ctid < '(7,0)' UNION ALL SELECT announced FROM idem_inflight WHERE ctid >= '(8,0)') r WHERE NOT announced", '0', 'all others to be announced');
ok(1, 'G5: all others are recovered');
wait_until($s, "SELECT (SELECT count(*) FROM idem_settled WHERE ctid < '(7,0)') + (SELECT count(*) FROM idem_settled WHERE ctid >= '(8,0)')", '0', 'all others to be forgotten');
ok(1, 'G7: all others are forgotten');
like($s->ok('SELECT last_error FROM idem_worker_status'), qr/invalid page in block 7/, 'the status says which');
is($s->ok(q(SELECT status FROM idem_doctor() WHERE check_name = 'worker_pass')), 'warning', 'the doctor sees it');
$s->quit;
$node->stop;
done_testing();
