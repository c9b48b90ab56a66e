# Behind a proxy that pools transactions: the server's session changes from one transaction to the next.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run;
use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

$ENV{PATH} .= ':/usr/sbin:/usr/local/sbin';
my ($bouncer) = grep { -x } map { "$_/pgbouncer" } split /:/, $ENV{PATH};
plan skip_all => 'pgbouncer is not installed' unless $bouncer;

my $node = new_node('pooled', worker => 0);
my $dir = PostgreSQL::Test::Utils::tempdir_short();
my $port = PostgreSQL::Test::Cluster::get_free_port();
my $user = $node->safe_psql('postgres', 'SELECT current_user');
my $host = $node->host;
my $server_port = $node->port;
append_to_file(
	"$dir/pgbouncer.ini", qq{
[databases]
postgres = host=$host port=$server_port dbname=postgres user=$user
[pgbouncer]
listen_addr =
unix_socket_dir = $dir
listen_port = $port
auth_type = any
pool_mode = transaction
default_pool_size = 3
max_client_conn = 50
server_round_robin = 1
server_reset_query =
logfile = $dir/pgbouncer.log
ignore_startup_parameters = extra_float_digits,application_name
});
my ($log, $proxy) = ('');
$proxy = IPC::Run::start [ $bouncer, "$dir/pgbouncer.ini" ], '<', \undef, '>', \$log, '2>&1';
my $connstr = "host=$dir port=$port dbname=postgres user=$user";
for (1 .. 100)
{
	last if IPC::Run::run [ 'psql', '-XAtq', '-d', $connstr, '-c', 'SELECT 1' ], '>', \my $out, '2>', \my $err;
	usleep(50_000);
}

my $observer = session($node);
my ($alice, $bob, $carol) = map { session($node, connstr => $connstr) } 1 .. 3;

# Transactions
$alice->ok('BEGIN; ' . claim('tx'));
is($bob->ok(claim('tx')), 'in_progress', 'G1: two clients, one key: the other is told in_progress');
$bob->send(claim('tx', wait => q('1 min'), columns => 'outcome, result'));
wait_lock($observer, 1);
$alice->ok(q(INSERT INTO effects VALUES ('tx'); ) . call('idem_complete', 'tx', result => q('{"n": 1}')) . '; COMMIT');
is($bob->get, '', 'the waiter is answered');
is($bob->out, 'completed|{"n": 1}', 'G1: with the outcome');
is($_->ok(claim('tx', columns => 'outcome, result')), 'completed|{"n": 1}', 'G3: replayed over any server connection') foreach $alice, $bob, $carol;
is($alice->try(claim('lost')), 'IDM01', 'G9: a claim without transaction is not kept');

# A lease across transactions and server connections
my $token = $alice->ok(claim('leased', lease => q('1 h'), columns => 'token'));
my (%pids, $last);
for my $step (1 .. 12)
{
	# Another client occupies the server that the owner had before, so that it gets another one now.
	for my $other ($bob, $carol)
	{
		last if defined $last && $other->ok('BEGIN; SELECT pg_backend_pid()') eq $last;
	}
	$last = $alice->ok('SELECT pg_backend_pid()');
	$pids{$last} = 1;
	$_->ok('COMMIT') foreach $bob, $carol;
	is($alice->ok(call('idem_checkpoint', 'leased', token => "'$token'", checkpoint => "'step $step'", columns => 'r > now()')),
		't', "G6: the token is good over any server connection ($step)");
	is($carol->ok(claim('leased')), 'in_progress', "G1: and nobody else gets it ($step)");
}
cmp_ok(scalar keys %pids, '>', 1, 'more than one server connection was used');
$alice->ok('BEGIN; ' . call('idem_guard', 'leased', token => "'$token'") . q(; INSERT INTO effects VALUES ('leased'); )
	  . call('idem_complete', 'leased', token => "'$token'", result => q('"l"')) . '; COMMIT');
is($carol->ok(claim('leased', columns => 'outcome, result')), 'completed|"l"', 'G3: replayed to another client');

# The owner gives its token to another client.
$token = $alice->ok(claim('handed', lease => q('1 h'), columns => 'token'));
is($bob->ok(call('idem_complete', 'handed', token => "'$token'", columns => 'r > now()')), 't', 'G6: the token, not the connection, is the owner');
is($alice->try(call('idem_complete', 'handed', token => "'$token'")), 'IDM04', 'G2: settled once');

# A client that goes in the middle of a transaction
$alice->ok('BEGIN; ' . claim('gone') . q(; INSERT INTO effects VALUES ('gone')));
kill 'KILL', $alice->{child};
$alice->quit;
wait_until($observer, "SELECT count(*) FROM pg_locks WHERE objsubid = ${\ LOCK_CLASS}", '0');
is($bob->ok('BEGIN; ' . claim('gone') . '; ' . call('idem_complete', 'gone', columns => 'r > now()') . '; COMMIT'), "claimed\nt", 'G5: a client that vanished leaves its key free');
is($observer->ok(q(SELECT string_agg(key, ' ' ORDER BY key) FROM effects)), 'leased tx', 'G2: each effect once');

# Load over few server connections
my @clients = map { session($node, connstr => $connstr) } 1 .. 10;
foreach my $round (1 .. 20)
{
	$_->send(
		'BEGIN; '
		  . claim("hot $round", wait => q('1 min'), columns => q(outcome IN ('claimed') AS mine, result)) . " \\gset\n"
		  . "\\if :mine\nINSERT INTO effects VALUES ('hot $round'); "
		  . call('idem_complete', "hot $round", result => "'$round'")
		  . ";\n\\endif\nCOMMIT;\nSELECT 'done'") foreach @clients;
	my $right = grep { $_->get eq '' && $_->out =~ /done/ } @clients;
	is($right, 10, "no errors, round $round") or diag(map { $_->err } @clients);
}
is($observer->ok(q(SELECT count(*), count(DISTINCT key) FROM effects WHERE key LIKE 'hot %')), '20|20', 'G1: one effect for each hot key');
is($observer->ok("SELECT count(*) FROM pg_locks WHERE objsubid = ${\ LOCK_CLASS}"), '0', 'no lock is left behind');

$_->quit foreach @clients, $bob, $carol, $observer;
$proxy->signal('INT');
$proxy->finish;
$node->stop;
done_testing();
