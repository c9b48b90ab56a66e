# Helpers of the TAP tests: a server with the extension, and interactive sessions (BackgroundPsql comes only with 16).
package PgIdemTest;

use strict;
use warnings;

use Exporter 'import';
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

use PgIdemTest::Session;

our @EXPORT = qw(new_node init_node kill9 session claim call ident wait_until wait_lock switch_workers pgbench failed_transactions median LOCK_CLASS);

# objsubid of the key locks in pg_locks
use constant LOCK_CLASS => 7433;

# A started server with the extension and the table "effects" in database postgres.
# preload: in shared_preload_libraries (default 1); worker: pg_idem.worker (default 1), 0 where they would change what is tested; conf: more settings; init: arguments of init.
sub new_node
{
	my ($name, %opt) = @_;
	my $node = PostgreSQL::Test::Cluster->new($name);
	init_node($node, @{ $opt{init} || [] });
	$node->append_conf('postgresql.conf', "shared_preload_libraries = 'pg_idem'") if $opt{preload} // 1;
	$node->append_conf('postgresql.conf', 'pg_idem.worker = off') unless $opt{worker} // 1;
	$node->append_conf('postgresql.conf', "max_connections = 60\n" . ($opt{conf} // ''));
	$node->start;
	install($node, 'postgres') if $opt{extension} // 1;
	return $node;
}

# initdb of any server: whatever the environment's locale, and 17 has a template cluster in that one.
sub init_node
{
	my ($node, @args) = @_;
	$node->init(extra => [ '--encoding=UTF8', '--locale=C' ], @args);
	return;
}

# Whether a process still runs: one that nobody waits for (PID 1 of many containers does not) stays as a zombie.
sub runs
{
	my ($pid) = @_;
	return 0 unless kill 0, $pid;
	open my $stat, '<', "/proc/$pid/stat" or return -e '/proc/self' ? 0 : 1;
	return (<$stat> // '') =~ /^.*\) [ZX]/s ? 0 : 1;
}

# Kills the postmaster, and waits until it and all its children, who notice at their own pace, are gone.
sub kill9
{
	my ($node) = @_;
	my @pids = split /\n/, $node->safe_psql('postgres', 'SELECT pid FROM pg_stat_activity');
	my ($postmaster) = split /\n/, slurp_file($node->data_dir . '/postmaster.pid');
	$node->kill9;
	for (1 .. 600)
	{
		last unless grep { runs($_) } $postmaster, @pids;
		usleep(100_000);
	}
	# The next server takes a zombie for one that runs.
	unlink $node->data_dir . '/postmaster.pid', $node->host . '/.s.PGSQL.' . $node->port . '.lock' if kill 0, $postmaster;
	return;
}

sub install
{
	my ($node, $db) = @_;
	$node->safe_psql(
		$db, q{
		CREATE EXTENSION pg_idem;
		CREATE TABLE effects (key text, attempt int, who text DEFAULT pg_backend_pid()::text);
	});
	return;
}

sub session
{
	my ($node, %opt) = @_;
	return PgIdemTest::Session->new($node, %opt);
}

# SQL for an identity: 'key' in the default account and action, or [account, action, key]
sub ident
{
	my ($key) = @_;
	my @parts = ref $key ? @$key : ('acme', 'pay', $key);
	return join(', ', map { s/'/''/gr =~ s/^(.*)$/'$1'/sr } @parts);
}

sub call
{
	my ($function, $key, %named) = @_;
	my $columns = delete $named{columns};
	my $order = '';
	my $args = join('', map { ", $_ => $named{$_}" } sort keys %named);
	$columns //= '*';
	return "SELECT $columns FROM $function(" . ident($key) . "$args) r";
}

# SQL of a claim; values are SQL. columns: select list (default outcome).
sub claim
{
	my ($key, %named) = @_;
	$named{columns} //= 'outcome';
	$named{request} = q('{"amount": 1}') unless exists $named{request} || exists $named{fingerprint};
	return call('idem_claim', $key, %named);
}

# Until the query answers what is expected (default t), in an observer's session.
sub wait_until
{
	my ($session, $sql, $expected, $name) = @_;
	$expected //= 't';
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	my $got;
	while (time < $end)
	{
		$got = $session->ok($sql);
		return 1 if $got eq $expected;
		usleep(5_000);
	}
	die 'gave up waiting' . ($name ? " for $name" : '') . ": $sql\nlast answer: $got";
}

# Until so many sessions (or the very one given) queue for a key lock.
sub wait_lock
{
	my ($observer, $who) = @_;
	my $class = LOCK_CLASS;
	my $sql = "FROM pg_locks WHERE locktype = 'advisory' AND objsubid = $class AND NOT granted";
	if (ref $who)
	{
		my $pid = $who->pid;
		return wait_until($observer, "SELECT count(*) > 0 $sql AND pid = $pid");
	}
	return wait_until($observer, "SELECT count(*) $sql", $who);
}

# pg_idem.worker on, or off: then none runs any more. In a superuser's session.
sub switch_workers
{
	my ($node, $s, $state) = @_;
	$node->append_conf('postgresql.conf', "pg_idem.worker = $state");
	$node->reload;
	wait_until($s, 'SHOW pg_idem.worker', $state);
	my $query = q(SELECT query = 'switched off by pg_idem.worker' FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher');
	wait_until($s, $query, $state eq 'off' ? 't' : 'f', "the launcher to be $state");
	wait_until($s, q(SELECT count(*) FROM pg_stat_activity WHERE backend_type LIKE 'pg_idem%' AND backend_type <> 'pg_idem launcher'), '0', 'the workers to end')
	  if $state eq 'off';
	return;
}

# Runs pgbench with the scripts given (name@weight => text); returns (exit code, stdout, stderr).
sub pgbench
{
	my ($node, $scripts, @options) = @_;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my @files;
	foreach my $name (sort keys %$scripts)
	{
		my ($file, $weight) = split /@/, $name;
		PostgreSQL::Test::Utils::append_to_file("$dir/$file", $scripts->{$name});
		push @files, '-f', "$dir/$file" . ($weight ? "\@$weight" : '');
	}
	my ($out, $err) = ('', '');
	local $ENV{PGHOST} = $node->host;
	local $ENV{PGPORT} = $node->port;
	IPC::Run::run [ 'pgbench', '-n', @files, @options, 'postgres' ], '<', \undef, '>', \$out, '2>', \$err;
	return ($? >> 8, $out, $err);
}

sub failed_transactions
{
	my ($out) = @_;
	return $out =~ /number of failed transactions: (\d+)/ ? $1 : die "no count of failures in: $out";
}

sub median
{
	my @sorted = sort { $a <=> $b } @_;
	return $sorted[ $#sorted / 2 ];
}

1;
