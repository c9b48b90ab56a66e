# 100 databases, 3 of which use the extension: what the launcher costs where nothing is due.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run;
use PgIdemTest;
use PgIdemTest::Workers;
use POSIX ();
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time sleep);

plan skip_all => 'no /proc' unless -r '/proc/self/stat' && -r '/proc/self/status';

my $total = 100;
my @users = map { "user$_" } 1 .. 3;
my $node = new_node('many', extension => 0, conf => "autovacuum = off\n");
# The database "postgres" is one of them.
my @others = (@users, map { "other$_" } 1 .. $total - @users - 1);
$node->safe_psql('postgres', join ";\n", map { "CREATE DATABASE $_ TEMPLATE template0" } @others);
my $s = session($node);
is($s->ok('SELECT count(*) FROM pg_database WHERE NOT datistemplate'), $total, "$total databases");
foreach my $db (@users)
{
	my $in = session($node, dbname => $db);
	my $took = seconds_until(sub {
		$in->ok('CREATE EXTENSION pg_idem');
		wait_until($in, "SELECT count(*) FROM idem_worker_status WHERE database = '$db' AND passes > 0", '1', 'the workers');
	});
	cmp_ok($took, '<', 10, "CREATE EXTENSION in $db is noticed at once, naptime notwithstanding");
	note(sprintf '%s: first pass %.0f ms after CREATE EXTENSION began', $db, $took * 1000);
	$in->quit;
}

# From a start: every database is asked once.
$s->quit;
$node->restart;
$s = session($node, dbname => $users[0]);
my $status = q(SELECT string_agg(database, ' ' ORDER BY database), min(passes) > 0 FROM idem_worker_status);
my $start = time;
wait_until($s, $status, "@users|t", 'the first passes');
my $launcher = launcher_pid($s);
my $clock_ticks = (POSIX::sysconf(POSIX::_SC_CLK_TCK()) || 100);

# Wake-ups, and milliseconds of processor time
sub cost
{
	my ($pid) = @_;
	my ($wakes) = slurp_file("/proc/$pid/status") =~ /^voluntary_ctxt_switches:\s*(\d+)/m;
	my @stat = split ' ', slurp_file("/proc/$pid/stat") =~ s/^.*\) //sr;
	return ($wakes, ($stat[11] + $stat[12]) * 1000 / $clock_ticks);
}

# Until every database has been asked: the launcher sleeps.
my ($last, $quiet_since) = (-1, time);
while (time - $quiet_since < 2)
{
	my ($wakes) = cost($launcher);
	($last, $quiet_since) = ($wakes, time) if $wakes != $last;
	sleep 0.05;
	die 'the launcher does not come to rest' if time - $start > $PostgreSQL::Test::Utils::timeout_default;
}
note(sprintf 'all %d databases asked %.1f s after the start; by then: %d wake-ups, %.0f ms', $total, $quiet_since - $start, cost($launcher));
is($s->ok($status), "@users|t", 'idem_worker_status: only those that have the extension');

# What passes between two looks at it, which are the measure itself and not something waited for
sub measure
{
	my ($name, $seconds, $code, %limit) = @_;
	my $passes = $s->ok('SELECT sum(passes) FROM idem_worker_status');
	my @before = cost($launcher);
	my $began = time;
	$code->();
	sleep 0.1 while time - $began < $seconds;
	my @after = cost($launcher);
	my $took = time - $began;
	my ($wakes, $ms) = map { $after[$_] - $before[$_] } 0, 1;
	$passes = $s->ok('SELECT sum(passes) FROM idem_worker_status') - $passes;
	note(sprintf '%s, %.1f s: %d wake-ups, %.0f ms of processor time, %d passes', $name, $took, $wakes, $ms, $passes);
	cmp_ok($wakes, '<=', $limit{wakes}, "$name: the launcher wakes up at most $limit{wakes} times");
	cmp_ok($ms, '<=', $limit{ms}, "$name: and uses at most $limit{ms} ms");
	cmp_ok($passes, '<=', $limit{passes}, "$name: at most $limit{passes} passes");
	return;
}

# A pass over each of three databases each 12 naps (60 s); each costs the launcher a few wake-ups.
measure('nothing to do', 15, sub { }, wakes => 15, ms => 50, passes => 3);

# Claims that last or settle in their transaction wake nobody.
my %scripts = (busy => q{
	\set k random(1, 1000000000)
	BEGIN;
	SELECT outcome FROM idem_claim('acme', 'pay', 's' || :k, request => '{}');
	SELECT idem_complete('acme', 'pay', 's' || :k);
	COMMIT;
	SELECT token FROM idem_claim('acme', 'pay', 'l' || :k, request => '{}', lease => '1 h') \gset
	SELECT idem_complete('acme', 'pay', 'l' || :k, token => ':token');
	SELECT idem_once('acme', 'pay', 'm' || :k);
});
my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/busy", $scripts{busy});
my $bench = sub {
	my ($file) = @_;
	return sub {
		my ($out, $err) = ('', '');
		IPC::Run::run [ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 2, '-T', 5, '-f', "$dir/$file", $users[1] ], '<', \undef, '>', \$out, '2>', \$err;
		is($? >> 8, 0, "pgbench: $file") or diag($err);
		note("$file: $1 transactions") if $out =~ /actually processed: (\d+)/;
	};
};
measure('claims of one database', 5, $bench->('busy'), wakes => 20, ms => 100, passes => 5);

# Something falls due all the time: one pass a nap, in that database alone.
append_to_file("$dir/due", q{
	\set k random(1, 1000000000)
	SELECT outcome FROM idem_claim('acme', 'due', 'd' || :k, request => '{}', lease => '10 ms');
	BEGIN;
	SELECT outcome FROM idem_claim('acme', 'due', 'r' || :k, request => '{}', lease => '1 h');
	SELECT idem_release('acme', 'due', 'r' || :k);
	COMMIT;
});
measure('leases that end all the time', 5, $bench->('due'), wakes => 30, ms => 100, passes => 6);
is($s->ok(q(SELECT count(*) FROM idem_worker_status WHERE last_error IS NOT NULL)), '0', 'no pass had an error');

$s->quit;
$node->stop;
done_testing();
