# 1,000 messages a second for a while, with an old transaction held open in between: table and indexes do not grow for
# ever, and takes stay quick. PG_IDEM_LARGE=1: ten minutes, two of them with the old transaction.
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
my ($seconds, $hold_from, $hold_to) = $large ? (600, 120, 240) : (48, 8, 18);
my $step = $large ? 10 : 4;
my $rate = 1000;

my $node = new_node('steady', worker => 0, conf => "autovacuum_naptime = 1s\nfsync = off\nsynchronous_commit = off\npg_idem.force_sync_commit = off\n");
my $s = session($node);
my $dir = PostgreSQL::Test::Utils::tempdir();
PostgreSQL::Test::Utils::append_to_file("$dir/publish.sql", q(\set a random(1, 1000)
SELECT idem_publish('order', :a::text, 'changed', '{"amount": 12345, "text": "some forty characters of an order, say"}');
));
$s->ok('CREATE UNLOGGED TABLE latency (ms double precision)');
my $relay = q{
DO $do$ DECLARE started timestamptz; receipts uuid[]; BEGIN
	LOOP
		started := clock_timestamp();
		SELECT array_agg(receipt) INTO receipts FROM idem_outbox_take(100);
		INSERT INTO latency VALUES (1000 * extract(epoch FROM clock_timestamp() - started));
		COMMIT;
		IF receipts IS NULL THEN PERFORM pg_sleep(0.01); ELSE PERFORM idem_outbox_ack(receipts); END IF;
		COMMIT;
	END LOOP;
END $do$};
my @relays = map { session($node, name => 'relay')->send($relay) } 1 .. 2;

local $ENV{PGHOST} = $node->host;
local $ENV{PGPORT} = $node->port;
my ($in, $out) = ('', '');
my $load = IPC::Run::start [ 'pgbench', '-n', '-f', "$dir/publish.sql", '-c', 4, '-T', $seconds, '-R', $rate, 'postgres' ], '<', \$in, '>', \$out, '2>&1';

my $began = time;
my $old;
my @seen;
note(sprintf '%6s %8s %8s %9s %9s %8s %8s %8s', qw(s waiting dead table_kB index_kB takes p50_ms p99_ms));
while (time - $began < $seconds - $step / 2)
{
	usleep(1_000_000 * $step);
	my $now = time - $began;
	if (!$old && $now >= $hold_from && $now < $hold_to)
	{
		$old = session($node, name => 'old');
		$old->ok('BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT pg_current_xact_id()');
		note('an old transaction begins');
	}
	if ($old && $now >= $hold_to)
	{
		$old->ok('COMMIT') if $old->pid;
		$old->quit;
		$old = undef;
		$hold_from = 1e9;
		note('it ends');
	}
	my $sizes = $s->ok(q{SELECT (SELECT count(*) FROM idem_outbox), pg_stat_get_dead_tuples('idem_outbox'::regclass), pg_relation_size('idem_outbox') / 1024, pg_indexes_size('idem_outbox') / 1024});
	my $takes = $s->ok(q{WITH l AS (DELETE FROM latency RETURNING ms) SELECT count(*), round(percentile_cont(0.5) WITHIN GROUP (ORDER BY ms)::numeric, 2), round(percentile_cont(0.99) WITHIN GROUP (ORDER BY ms)::numeric, 2) FROM l});
	my ($waiting, $dead, $table, $index) = split /\|/, $sizes;
	my ($count, $p50, $p99) = split /\|/, $takes;
	push @seen, { at => $now, waiting => $waiting, table => $table, index => $index, p50 => $p50, p99 => $p99, old => $old ? 1 : 0 };
	note(sprintf '%6.0f %8d %8d %9d %9d %8d %8.2f %8.2f', $now, $waiting, $dead, $table, $index, $count, $p50 || 0, $p99 || 0);
}
$load->finish;
like($out, qr/number of failed transactions: 0 /, 'nothing failed');
my ($published) = $out =~ /actually processed: (\d+)/;
cmp_ok($published, '>', $rate * $seconds / 2, "$published messages");
wait_until($s, 'SELECT count(*) FROM idem_outbox', '0', 'the relays');
pass('all were handed out and acknowledged');
$s->ok(q(SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'relay'));

my @after = grep { !$_->{old} && $_->{at} > $hold_to } @seen;
my @early = @after[ 0 .. $#after / 2 ];
my @late = @after[ $#after / 2 + 1 .. $#after ];
sub most { my ($what, @of) = @_; return (sort { $b <=> $a } map { $_->{$what} } @of)[0]; }
cmp_ok(most('table', @late), '<=', 1.2 * most('table', @early) + 1024, 'the table levels off');
cmp_ok(most('index', @late), '<=', 1.2 * most('index', @early) + 1024, 'the indexes level off');
# Held open long, dead entries pile up; the floor keeps them out of the way.
my @held = grep { $_->{old} && $_->{p50} } @seen;
cmp_ok(median(map { $_->{p50} } @held), '<', 20 + 5 * median(map { $_->{p50} || 0 } @after), 'takes stay quick while an old transaction is open') if @held;

done_testing();
