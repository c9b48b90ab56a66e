# Python programs of the examples as processes: started, tended (one that was killed starts again), stopped.
#
#   my $crew = PgIdemTest::Crew->new($dir_of_programs, 'pika', 'psycopg2') or plan skip_all => ...;
#   $crew->hire(name => [ 'relay.py', @arguments ], CHAOS => 2);
#   $crew->tend;         # again and again
#   $crew->dismiss;      # SIGTERM; says how each ended
package PgIdemTest::Crew;

use strict;
use warnings;

use Cwd 'realpath';
use FindBin;
use IPC::Run;
use POSIX ':sys_wait_h';
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time usleep);

# Undefined where no python3 has these modules.
sub new
{
	my ($class, $programs, @modules) = @_;
	my $imports = 'import ' . join ', ', 'sys', @modules;
	my ($python) = grep { -x && system("$_ -c '$imports; assert sys.version_info >= (3, 10)' 2>/dev/null") == 0 } map { "$_/python3" } split(/:/, $ENV{PATH}), '/usr/bin';
	return unless $python;
	my $dir = PostgreSQL::Test::Utils::tempdir();
	return bless {
		python => $python,
		programs => realpath("$FindBin::RealBin/../../examples/$programs"),
		tests => realpath("$FindBin::RealBin/../python"),
		log => "$dir/chaos",
		members => {},
	}, $class;
}

# The roles and grants that their README asks for, as SQL.
sub grants
{
	my ($self) = @_;
	return join '', slurp_file("$self->{programs}/README.md") =~ /^```\n((?:CREATE ROLE|GRANT) .*?)^```$/msg;
}

sub command
{
	my ($self, $program, @arguments) = @_;
	return ($self->{python}, '-B', "$self->{tests}/chaos.py", "$self->{programs}/$program", @arguments);
}

# Until it ends: (exit code or "signal N", output). Errors go to the log of the test.
sub run
{
	my ($self, $command, %env) = @_;
	local @ENV{ 'CHAOS_LOG', keys %env } = ($self->{log}, values %env);
	IPC::Run::run [ $self->command(@$command) ], '<', \undef, '>', \my $out;
	my $status = $?;
	chomp $out;
	return ($status & 127 ? 'signal ' . ($status & 127) : $status >> 8, $out);
}

sub hire
{
	my ($self, $name, $command, %env) = @_;
	$self->{members}{$name} = { command => [ $self->command(@$command) ], env => \%env };
	$self->_start($name);
	return;
}

sub _start
{
	my ($self, $name) = @_;
	my $m = $self->{members}{$name};
	defined($m->{pid} = fork()) or die "fork: $!";
	return if $m->{pid};
	local @ENV{ 'CHAOS_LOG', keys %{ $m->{env} } } = ($self->{log}, values %{ $m->{env} });
	open STDIN, '<', '/dev/null';
	open STDOUT, '>>', "$PostgreSQL::Test::Utils::log_path/$name.log";
	open STDERR, '>&', \*STDOUT;
	exec 'setpriv', '--pdeathsig', 'KILL', @{ $m->{command} } or POSIX::_exit(127);
}

# One that was killed starts again; one that ended otherwise is a mistake.
sub tend
{
	my ($self) = @_;
	foreach my $name (sort keys %{ $self->{members} })
	{
		my $m = $self->{members}{$name};
		next unless waitpid($m->{pid}, WNOHANG) > 0;
		my $status = $?;
		delete $m->{pid};
		$self->_check($name, $status || -1);
		$self->_start($name);
	}
	return;
}

# Tends them until the condition holds.
sub tend_until
{
	my ($self, $condition, $what) = @_;
	my $end = time + 2 * $PostgreSQL::Test::Utils::timeout_default;
	until ($condition->())
	{
		die "gave up waiting for $what" if time > $end;
		$self->tend;
		usleep(20_000);
	}
	return;
}

# Whether one is not (or no longer) at work.
sub gone
{
	my ($self, $name) = @_;
	my $m = $self->{members}{$name} or return 1;
	return 0 unless waitpid($m->{pid}, WNOHANG) > 0;
	$self->_check($name, $?);
	delete $self->{members}{$name};
	return 1;
}

sub _check
{
	my ($self, $name, $status) = @_;
	return if $status == 0 || $status == 9;
	die "$name ended with status $status:\n" . slurp_file("$PostgreSQL::Test::Utils::log_path/$name.log");
}

# Until one ends by itself, or is killed: its status.
sub wait_for
{
	my ($self, $name) = @_;
	my $m = delete $self->{members}{$name} or return 0;
	waitpid $m->{pid}, 0;
	return $?;
}

sub murder
{
	my ($self, $name) = @_;
	kill 'KILL', $self->{members}{$name}{pid};
	return $self->wait_for($name);
}

# All, or those named. How each ended: {name => status}; 0 is well.
sub dismiss
{
	my ($self, @names) = @_;
	@names = sort keys %{ $self->{members} } unless @names;
	my %ended;
	foreach my $name (@names) { kill 'TERM', $self->{members}{$name}{pid}; }
	foreach my $name (@names)
	{
		waitpid($self->{members}{$name}{pid}, 0);
		$ended{$name} = $?;
		delete $self->{members}{$name};
	}
	return \%ended;
}

# {point => deaths}
sub deaths
{
	my ($self) = @_;
	my %count;
	$count{$_}++ foreach split /\n/, -e $self->{log} ? slurp_file($self->{log}) : '';
	return \%count;
}

sub DESTROY
{
	my ($self) = @_;
	local ($?, $@, $!);
	foreach my $pid (grep { $_ } map { $_->{pid} } values %{ $self->{members} })
	{
		kill 'KILL', $pid;
		waitpid $pid, 0;
	}
	return;
}

1;
