# A throw-away RabbitMQ: everything of its own in a temporary directory, on the loopback interface only. A broker that
# the machine may have is another node, with another cookie, on other ports.
#
#   my $broker = PgIdemTest::Broker->new;    # nothing where it is not installed
#   $broker->url                             # for its clients
#   $broker->kill9; $broker->start;          # the same again, with what was on disk
package PgIdemTest::Broker;

use strict;
use warnings;

use IO::Socket::INET;
use IPC::Run;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time usleep);

# Ends when the test does, even where that is killed.
my @with_us = ('setpriv', '--pdeathsig', 'KILL');

sub new
{
	my ($class) = @_;
	my ($program) = grep { -x } '/usr/lib/rabbitmq/bin/rabbitmq-server', map { "$_/rabbitmq-server" } split /:/, $ENV{PATH};
	return unless $program;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	my ($port, $epmd_port, $dist_port) = map { PostgreSQL::Test::Cluster::get_free_port() } 1 .. 3;
	my $self = bless { dir => $dir, port => $port, epmd_port => $epmd_port, program => $program, starts => 0 }, $class;
	my %file = (
		'rabbitmq.conf' => "listeners.tcp.1 = 127.0.0.1:$port\ndisk_free_limit.absolute = 1MB\nmax_message_size = 65536\nlog.file.level = warning\n",
		'env.conf' => '',                                                # not the machine's
		'enabled_plugins' => "[].\n",
		'.erlang.cookie' => join('', map { ('A' .. 'Z')[ rand 26 ] } 1 .. 40));
	foreach my $name (keys %file)
	{
		append_to_file("$dir/$name", $file{$name});
		chmod 0400, "$dir/$name";
	}
	$self->{env} = {
		HOME => $dir,
		ERL_EPMD_PORT => $epmd_port,
		ERL_EPMD_ADDRESS => '127.0.0.1',
		RABBITMQ_NODENAME => 'pg_idem@localhost',
		RABBITMQ_DIST_PORT => $dist_port,
		RABBITMQ_MNESIA_BASE => "$dir/mnesia",
		RABBITMQ_LOG_BASE => "$dir/log",
		RABBITMQ_CONF_ENV_FILE => "$dir/env.conf",
		RABBITMQ_CONFIG_FILE => "$dir/rabbitmq.conf",
		RABBITMQ_ADVANCED_CONFIG_FILE => "$dir/none",
		RABBITMQ_CONFIG_FILES => "$dir/none.d",
		RABBITMQ_GENERATED_CONFIG_DIR => "$dir/generated",
		RABBITMQ_ENABLED_PLUGINS_FILE => "$dir/enabled_plugins",
		RABBITMQ_PID_FILE => "$dir/pid",
		# two schedulers that do not spin
		RABBITMQ_SERVER_ADDITIONAL_ERL_ARGS => '-kernel inet_dist_use_interface {127,0,0,1} +S 2:2 +sbwt none +sbwtdcpu none +sbwtdio none',
		RUNNING_UNDER_SYSTEMD => 'true',                                 # no shell around it: its pid is the broker's
	};
	delete local @ENV{ grep { /^(RABBITMQ|ERL)_/ } keys %ENV };
	local @ENV{ keys %{ $self->{env} } } = values %{ $self->{env} };
	# In the foreground: the broker would leave one behind.
	$self->{epmd} = IPC::Run::start [ @with_us, 'epmd', '-port', $epmd_port, '-address', '127.0.0.1' ], '<', \undef, '>', "$dir/epmd", '2>&1';
	$self->start;
	return $self;
}

sub url { return 'amqp://guest:guest@127.0.0.1:' . $_[0]{port}; }

sub start
{
	my ($self) = @_;
	delete local @ENV{ grep { /^(RABBITMQ|ERL)_/ } keys %ENV };
	local @ENV{ keys %{ $self->{env} } } = values %{ $self->{env} };
	my $log = "$PostgreSQL::Test::Utils::log_path/broker-" . ++$self->{starts} . '.log';
	$self->{run} = IPC::Run::start [ @with_us, $self->{program} ], '<', \undef, '>', $log, '2>&1';
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	until ($self->answers)
	{
		die "the broker does not start:\n" . slurp_file($log) if time > $end || !$self->{run}->pumpable;
		usleep(100_000);
	}
	return;
}

# Whether it greets a client.
sub answers
{
	my ($self) = @_;
	my $socket = IO::Socket::INET->new(PeerAddr => '127.0.0.1', PeerPort => $self->{port}, Timeout => 5) or return 0;
	print {$socket} "AMQP\0\0\x09\1";
	$socket->flush;
	my $ready = IO::Select->new($socket)->can_read(5) && sysread $socket, my $frame, 1;
	return $ready && $frame eq "\1";
}

sub kill9
{
	my ($self) = @_;
	$self->{run}->kill_kill(grace => 0);
	return;
}

sub stop
{
	my ($self) = @_;
	foreach my $name (qw(run epmd))
	{
		my $process = delete $self->{$name} or next;
		$process->kill_kill(grace => 20);
	}
	return;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@, $!);
	$self->stop;
	return;
}

1;
