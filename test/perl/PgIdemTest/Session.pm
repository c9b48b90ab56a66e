# An interactive session: psql over pipes, so that several can be open at once and one can wait for another.
#
#   $s->ok($sql)      output of the statements; dies where one fails
#   $s->try($sql)     SQLSTATE of the first error, '' where none; then $s->out, $s->err
#   $s->send($sql)    starts it; $s->busy tells whether it still runs, $s->get waits and answers like try
package PgIdemTest::Session;

use strict;
use warnings;

use IO::Select;
use IPC::Open3;
use PostgreSQL::Test::Utils;
use Symbol 'gensym';
use Time::HiRes qw(time);

# dbname, user, connstr: where to; options: PGOPTIONS
sub new
{
	my ($class, $node, %opt) = @_;
	my $connstr = $opt{connstr} // $node->connstr($opt{dbname} // 'postgres');
	$connstr .= " user=$opt{user}" if $opt{user};
	local $ENV{PGOPTIONS} = $opt{options} // '';
	local $ENV{PGAPPNAME} = $opt{name} // 'session';
	my ($in, $out, $err) = (undef, undef, gensym);
	my $child = open3($in, $out, $err, 'psql', '-XAtq', '-d', $connstr);
	my $self = bless { in => $in, out_fh => $out, err_fh => $err, child => $child, n => 0 }, $class;
	$SIG{PIPE} = 'IGNORE';
	my $state = $self->try("\\set VERBOSITY verbose\nSELECT pg_backend_pid()");
	$self->{pid} = $self->{out};
	die "cannot connect: $self->{err}" if !$opt{may_fail} && ($state ne '' || $self->{closed});
	return $self;
}

sub pid { return $_[0]{pid}; }
sub out { return $_[0]{out}; }
sub err { return $_[0]{err}; }
sub closed { return $_[0]{closed}; }

sub send    ## no critic (ProhibitBuiltinHomonyms)
{
	my ($self, $sql) = @_;
	die 'the session is still busy' if $self->{pending};
	$self->{n}++;
	$self->{text} = { out => '', err => '' };
	$self->{done} = {};
	$self->{pending} = 1;
	$self->{sql} = $sql;
	my $end = "#end $self->{n}#";
	my $text = "$sql\n;\n\\echo '$end'\n\\warn '$end'\n";
	while (length $text)
	{
		my $n = syswrite($self->{in}, $text);
		last unless defined $n;
		substr($text, 0, $n) = '';
	}
	return $self;
}

# Takes in what has come within the seconds given.
sub _pump
{
	my ($self, $seconds) = @_;
	my $end = "#end $self->{n}#\n";
	my %name = (fileno($self->{out_fh}) => 'out', fileno($self->{err_fh}) => 'err');
	my $select = IO::Select->new(grep { !$self->{done}{ $name{ fileno $_ } } } $self->{out_fh}, $self->{err_fh});
	foreach my $fh ($select->can_read($seconds))
	{
		my $name = $name{ fileno $fh };
		my $n = sysread($fh, $self->{text}{$name}, 65536, length $self->{text}{$name});
		if (!$n)
		{
			$self->{closed} = 1;
			$self->{done}{$name} = 1;
		}
		$self->{done}{$name} = 1 if $self->{text}{$name} =~ s/\Q$end\E$//;
	}
	$self->{pending} = 0 if $self->{done}{out} && $self->{done}{err};
	return;
}

sub busy
{
	my ($self) = @_;
	$self->_pump(0.01) if $self->{pending};
	return $self->{pending};
}

sub get
{
	my ($self) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	while ($self->{pending})
	{
		die "no answer in time to: $self->{sql}" if time > $end;
		$self->_pump(1);
	}
	$self->{out} = $self->{text}{out} =~ s/\n\z//r;
	$self->{err} = $self->{text}{err};
	return $1 if $self->{err} =~ /(?:ERROR|FATAL|PANIC):  ([0-9A-Z]{5}):/;
	return 'closed' if $self->{closed};
	return '';
}

sub try    ## no critic (ProhibitBuiltinHomonyms)
{
	my ($self, $sql) = @_;
	return $self->send($sql)->get;
}

# Until the server has closed the connection; whether it did. A statement that is sent just then fails, and only the
# next one finds out.
sub wait_closed
{
	my ($self) = @_;
	my $end = time + $PostgreSQL::Test::Utils::timeout_default;
	$self->try('SELECT pg_sleep(1)') while !$self->{closed} && time < $end;
	return $self->{closed};
}

sub ok
{
	my ($self, $sql) = @_;
	my $state = $self->try($sql);
	die "$state: $self->{err}\nin: $sql" if $state ne '';
	return $self->{out};
}

# The connection is gone afterwards.
sub quit
{
	my ($self) = @_;
	return unless $self->{child};
	local ($?, $@, $!);
	close $self->{in};
	kill 'TERM', $self->{child} if $self->{pending};
	waitpid $self->{child}, 0;
	delete $self->{child};
	return;
}

sub DESTROY { $_[0]->quit; return; }

1;
