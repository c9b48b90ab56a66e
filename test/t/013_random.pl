# Many sessions do random things to few keys, against a model of who holds what. The driver sends one statement at a
# time and waits for its answer, except in transactions where a statement may have to wait for another session (outside
# transactions a short lock_timeout ends that). What such a statement gets it keeps until its transaction ends, so the
# model knows who holds a key at any moment. PG_IDEM_SEED repeats a run up to timing, PG_IDEM_SECONDS makes it longer.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

my $seed = $ENV{PG_IDEM_SEED} // int(1000 * time) % 2**31;
my $seconds = $ENV{PG_IDEM_SECONDS} // 20;
diag("seed $seed (PG_IDEM_SEED)");
srand $seed;

my $node = new_node('random', worker => 0, preload => int rand 2, conf => "deadlock_timeout = '100ms'\nlock_timeout = '30ms'");
my $admin = session($node);
$admin->ok(
	q{
	INSERT INTO idem_policies (action, max_attempts) VALUES ('pay', 1000000);
	CREATE TABLE nonces (key text, nonce int);
});
my ($n_sessions, $n_keys) = (8, 6);

# The model. Of a session: stack of savepoint levels, each with what was done in it since; begun, failed.
#   claims: key => nonce of transaction-scoped claims; leases: key => [token, attempt] made here;
#   settled: key => nonce; ended: key => 1 (released)
my %settled;    # key => nonce, committed
my %attempt;    # key => highest committed attempt of a leased claim
my %token;      # key => current token, committed
my $nonce = 0;
my $generation = 0;    # keys are replaced when they are settled, so that there is always something to do
my @keys = map { "k0-$_" } 1 .. $n_keys;
my (@violations, %seen, @history);
my @sessions = map { { s => session($node, name => "s$_"), name => "s$_", levels => [], begun => 0, failed => 0 } } 1 .. $n_sessions;

sub violation
{
	my ($text) = @_;
	push @violations, $text;
	diag("VIOLATION: $text");
	return if @violations > 1;
	my ($name) = $text =~ /(s\d)/;
	my @own = grep { /^$name/ } @history;
	my ($begin) = grep { $own[$_] =~ /BEGIN/ } reverse 0 .. $#own;
	diag(join "\n", 'its transaction:', @own[ ($begin // 0) .. $#own ], 'last of all:', @history[ ($#history > 30 ? -30 : 0) .. -1 ]);
	return;
}

sub merged
{
	my ($who, $what) = @_;
	my %all;
	%all = (%all, %{ $_->{$what} || {} }) foreach @{ $who->{levels} };
	return \%all;
}

# Who, other than $who, certainly holds the key's lock in an open transaction
sub holders
{
	my ($key, $who) = @_;
	return grep { $_ != $who && grep { $_->{locks}{$key} } @{ $_->{levels} } } @sessions;
}

sub open_level { my ($who) = @_; push @{ $who->{levels} }, {}; return; }
sub level { my ($who) = @_; return $who->{levels}[-1]; }

sub end_transaction
{
	my ($who, $committed) = @_;
	if ($committed)
	{
		my $settled = merged($who, 'settled');
		foreach my $key (keys %$settled)
		{
			violation("G1: $who->{name}: second outcome of $key") if defined $settled{$key};
			$settled{$key} = $settled->{$key};
			delete $token{$key};
		}
		my $leases = merged($who, 'leases');
		foreach my $key (grep { !defined $settled->{$_} } keys %$leases)
		{
			violation("G1: $who->{name}: attempt $leases->{$key}[1] of $key after $attempt{$key}") if ($attempt{$key} // 0) >= $leases->{$key}[1];
			($token{$key}, $attempt{$key}) = @{ $leases->{$key} };
		}
		# A token released in the transaction is worth nothing.
		my $ended = merged($who, 'ended');
		delete $token{$_} foreach grep { ($token{$_} // '') eq $ended->{$_} } keys %$ended;
	}
	@$who{qw(levels begun failed)} = ([], 0, 0);
	return;
}

# An error undoes what was done since the last savepoint; without one, all.
sub failed
{
	my ($who) = @_;
	return end_transaction($who, 0) unless $who->{begun};
	if (@{ $who->{levels} } == 1) { $who->{levels} = [ {} ]; }
	else { $who->{levels}[-1] = {}; }
	$who->{failed} = 1;
	return;
}

# What the answer must be, and what it does to the model
sub answered
{
	my ($who) = @_;
	my $job = delete $who->{job};
	my $state = $who->{s}->get;
	my $out = $who->{s}->out;
	push @history, sprintf '%s: %s -> %s', $who->{name}, $job->{text}, $state || $out;
	$seen{"$job->{kind} " . ($state || ($out =~ /^([a-z_]+)/ ? $1 : 'ok'))}++;
	if ($state =~ /closed|57P01/)
	{
		end_transaction($who, 0);
		return;
	}
	if ($state !~ /^(|IDM0[1234]|IDM12|40P01|40001|55P03)$/)
	{
		violation("G12: $who->{name}: $state $who->{s}{err} from $job->{text}");
	}
	violation("G1: $who->{name}: deadlock is no answer to a claim") if $state eq '40P01' && $job->{kind} eq 'claim';
	$job->{then}->($state, $out);
	# What an error gave back, others may have had before we knew.
	foreach my $suspect (@{ $job->{suspects} || [] })
	{
		violation($suspect->[1]) if grep { $_->{locks}{ $suspect->[0] } } @{ $who->{levels} };
	}
	return;
}

# Nobody else may hold the key's lock now.
sub alone
{
	my ($who, $key, $text) = @_;
	foreach my $holder (holders($key, $who))
	{
		my $full = "$text, which $holder->{name} holds";
		if ($holder->{job}) { push @{ $holder->{job}{suspects} }, [ $key, $full ]; }
		else { violation($full); }
	}
	return;
}

# Sends; waits for the answer unless the statement may wait for others.
sub run
{
	my ($who, $kind, $sql, $may_wait, $then) = @_;
	my $auto = !$who->{begun} && $kind ne 'begin';
	$may_wait &&= !$auto;
	open_level($who) unless $who->{begun};
	$who->{job} = {
		kind => $kind,
		text => $sql,
		then => sub {
			my ($state, $out) = @_;
			$then->($state, $out);
			if ($auto)
			{
				end_transaction($who, $state eq '');
			}
			elsif ($state ne '' && $who->{begun})
			{
				failed($who);
			}
		}
	};
	push @history, "$who->{name}: sends $sql" if $may_wait;
	$who->{s}->send($sql);
	answered($who) unless $may_wait;
	return;
}

sub reconnect
{
	my ($who) = @_;
	$who->{s}->quit;
	$who->{s} = session($node, name => $who->{name});
	@$who{qw(levels begun failed job)} = ([], 0, 0, undef);
	return;
}

sub uuid { return sprintf 'eeeeeeee-0000-4000-8000-%012d', $_[0]; }

sub claim_answer
{
	my ($who, $key, $leased) = @_;
	my $was_settled = defined $settled{$key};
	return sub {
		my ($state, $out) = @_;
		return if $state ne '';
		my ($outcome, $attempt, $token, $result) = split /\|/, $out;
		my $mine = merged($who, 'settled')->{$key};
		if ($outcome =~ /claimed|recovered/)
		{
			alone($who, $key, "G1: $who->{name}: granted $key");
			violation("G1: $who->{name}: granted $key, which is settled") if defined $settled{$key} || defined $mine;
			level($who)->{locks}{$key} = 1;
			if ($leased)
			{
				violation("G1: $who->{name}: $key: attempt $attempt granted after $attempt{$key}") if $attempt <= ($attempt{$key} // 0);
				level($who)->{leases}{$key} = [ $token, $attempt ];
				$who->{known}{$key} = $token;
			}
			else
			{
				level($who)->{claims}{$key} = 1;
				level($who)->{released}{$key} = 0;
			}
		}
		elsif ($outcome =~ /completed|failed/)
		{
			my $want = $mine // $settled{$key};
			violation("G3: $who->{name}: $key answers $result, not " . ($want // 'nothing')) if !defined $want || $result ne $want;
		}
		elsif ($outcome eq 'in_progress')
		{
			violation("G3: $who->{name}: $key is settled, but answers in_progress") if $was_settled;
		}
		else
		{
			violation("$who->{name}: $key: $outcome");
		}
	};
}

sub step
{
	my ($who) = @_;
	my $key = $keys[ rand @keys ];
	my $dice = rand;
	my $token = $who->{known}{$key} // ($dice < 0.3 && $token{$key}) // undef;
	my $level = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')[ rand 3 ];
	if ($who->{failed})
	{
		if (@{ $who->{levels} } > 1 && $dice < 0.7) { return rollback_to($who); }
		return run($who, 'end', 'ROLLBACK', 0, sub { end_transaction($who, 0) });
	}
	if (!$who->{begun})
	{
		if ($dice < 0.6)
		{
			return run($who, 'begin', "BEGIN ISOLATION LEVEL $level; SET LOCAL lock_timeout = 0", 0, sub { $who->{begun} = 1; });
		}
		return lease($who, $key) if $dice < 0.75;
	}
	else
	{
		if ($dice < 0.12)
		{
			my $how = rand() < 0.75 ? 'COMMIT' : 'ROLLBACK';
			my $open = merged($who, 'claims');
			my $done = merged($who, 'settled');
			my $released = merged($who, 'released');
			my @left = grep { !defined $done->{$_} && !$released->{$_} } keys %$open;
			return run($who, 'end', $how, 0,
				sub {
					my ($state) = @_;
					violation("G9: $who->{name}: committed with @left open") if $how eq 'COMMIT' && @left && $state eq '';
					violation("G9: $who->{name}: IDM01 with nothing open") if $state eq 'IDM01' && !@left;
					end_transaction($who, $how eq 'COMMIT' && $state eq '');
				});
		}
		if ($dice < 0.2 && @{ $who->{levels} } < 4)
		{
			return run($who, 'savepoint', 'SAVEPOINT p' . @{ $who->{levels} }, 0, sub { open_level($who) if $_[0] eq ''; });
		}
		if ($dice < 0.25 && @{ $who->{levels} } > 1) { return rollback_to($who); }
		if ($dice < 0.28 && @{ $who->{levels} } > 1)
		{
			return run($who, 'release', 'RELEASE p' . $#{ $who->{levels} }, 0,
				sub {
					my $top = pop @{ $who->{levels} };
					foreach my $what (keys %$top)
					{
						$who->{levels}[-1]{$what}{$_} = $top->{$what}{$_} foreach keys %{ $top->{$what} };
					}
				});
		}
		return lease($who, $key) if $dice < 0.33;
		if ($dice < 0.55)
		{
			my $wait = rand() < 0.5 ? "'100 ms'" : rand() < 0.5 ? "'3 s'" : "'0'";
			return run($who, 'claim', claim($key, wait => $wait, columns => q(outcome, attempt, token, result)), 1, claim_answer($who, $key, 0));
		}
		my @open = grep { !defined merged($who, 'settled')->{$_} && !merged($who, 'released')->{$_} } keys %{ merged($who, 'claims') };
		if (@open && $dice < 0.85)
		{
			$key = $open[ rand @open ];
			return settle($who, $key, undef) if $dice < 0.8;
			return run($who, 'release', call('idem_release', $key), 1, sub { level($who)->{released}{$key} = 1 if $_[1] eq 't' });
		}
	}
	if ($dice < 0.87 && $token) { return settle($who, $key, $token); }
	if ($dice < 0.94 && $token)
	{
		my $function = ('idem_guard', 'idem_renew', 'idem_checkpoint')[ rand 3 ];
		my %more = $function eq 'idem_checkpoint' ? (checkpoint => "'c" . ++$nonce . "'") : ();
		return run($who, $function, call($function, $key, token => "'$token'", %more, columns => 'true'), 1,
			sub {
				return if $_[0] ne '' || $function eq 'idem_renew';
				violation("G6: $who->{name}: $function of $key with a token that is not current") unless current($who, $key, $token);
				alone($who, $key, "G1: $who->{name}: $function of $key");
				level($who)->{locks}{$key} = 1;
			});
	}
	if ($dice < 0.96 && $token)
	{
		my $error = rand() < 0.3 ? q('failed') : 'NULL';
		return run($who, 'release', call('idem_release', $key, token => "'$token'", retry_after => q('0'), error => $error), 1,
			sub {
				return unless $_[0] eq '' && $_[1] eq 't';
				violation("G6: $who->{name}: release of $key with a token that is not current") unless current($who, $key, $token);
				level($who)->{ended}{$key} = $token;
				level($who)->{locks}{$key} = 1;
			});
	}
	if ($dice > 0.985)
	{
		my $pid = $who->{s}->pid;
		push @history, "$who->{name} is terminated";
		$admin->ok("SELECT pg_terminate_backend($pid)");
		wait_until($admin, "SELECT count(*) FROM pg_stat_activity WHERE pid = $pid", '0');
		end_transaction($who, 0);
		return reconnect($who);
	}
	return run($who, 'lookup', call('idem_lookup', $key, columns => 'state, result'), 0,
		sub {
			return if $_[0] ne '';
			my ($state, $result) = split /\|/, $_[1];
			my $want = merged($who, 'settled')->{$key} // $settled{$key};
			violation("G8: $who->{name}: lookup of $key answers nothing, but it is settled") if defined $want && !defined $state;
			violation("G8: $who->{name}: lookup of $key: $state $result, not $want") if defined $want && $state && ($state !~ /completed|failed/ || $result ne $want);
			violation("G8: $who->{name}: lookup of $key: $state, but nobody settled it") if !defined $want && ($state // '') =~ /completed|failed/;
			alone($who, $key, "G8: $who->{name}: lookup finds nothing of $key") unless defined $state;
		});
}

sub lease
{
	my ($who, $key) = @_;
	my $token = uuid(++$nonce);
	my $bound = rand() < 0.3 ? 'true' : 'false';
	my $lease = 5 + int rand 150;
	return run($who, 'lease',
		claim($key, lease => "'$lease ms'", token => "'$token'", session_bound => $bound, wait => q('20 ms'),
			columns => q(outcome, attempt, token, result)),
		1, claim_answer($who, $key, 1));
}

sub current
{
	my ($who, $key, $token) = @_;
	return 0 if (merged($who, 'ended')->{$key} // '') eq $token;
	my $own = merged($who, 'leases')->{$key};
	return $token eq ($own ? $own->[0] : $token{$key} // '');
}

sub settle
{
	my ($who, $key, $token) = @_;
	my $n = ++$nonce;
	my $function = rand() < 0.8 ? 'idem_complete' : 'idem_fail';
	# One statement, so that the business change is in the same transaction also where none was begun.
	my $sql = "WITH e AS (INSERT INTO nonces VALUES ('$key', $n)) "
	  . call($function, $key, result => "'$n'", ($token ? (token => "'$token'") : ()), columns => 'true');
	return run($who, 'settle', $sql, 1,
		sub {
			my ($state) = @_;
			return if $state ne '';
			violation("G6: $who->{name}: settled $key with a token that is not current") if $token && !current($who, $key, $token);
			alone($who, $key, "G1: $who->{name}: settled $key");
			violation("G1: $who->{name}: settled $key, which is settled") if defined $settled{$key};
			level($who)->{settled}{$key} = $n;
			level($who)->{locks}{$key} = 1;
		});
}

sub rollback_to
{
	my ($who) = @_;
	my $i = $#{ $who->{levels} };
	return run($who, 'rollback to', "ROLLBACK TO p$i", 0,
		sub {
			$who->{levels}[-1] = {};
			$who->{failed} = 0;
		});
}

my $end = time + $seconds;
my $steps = 0;
while (time < $end && !@violations)
{
	foreach my $who (@sessions)
	{
		if ($who->{job})
		{
			$who->{s}->_pump(0);
			answered($who) unless $who->{s}{pending};
		}
		reconnect($who) if $who->{s}->closed;
	}
	my @ready = grep { !$_->{job} } @sessions;
	if (!@ready) { usleep(2000); next; }
	step($ready[ rand @ready ]);
	$steps++;
	if ($steps % 20 == 0)
	{
		for my $i (0 .. $#keys)
		{
			$keys[$i] = 'k' . ++$generation . "-$i" if defined $settled{ $keys[$i] } && rand() < 0.3;
		}
	}
}
foreach my $who (@sessions)
{
	my $stop = time + 30;
	while ($who->{job} && time < $stop)
	{
		foreach my $waiting (grep { $_->{job} } @sessions)
		{
			$waiting->{s}->_pump(0.01);
			answered($waiting) unless $waiting->{s}{pending};
		}
		# Whoever waits, waits for somebody here.
		foreach my $other (grep { !$_->{job} && $_->{begun} } @sessions)
		{
			run($other, 'end', 'ROLLBACK', 0, sub { end_transaction($other, 0) });
		}
	}
}
foreach my $who (@sessions)
{
	violation("G5: $who->{name} is stuck in $who->{job}{text}") if $who->{job};
	$who->{s}->quit;
}
note("$steps steps: " . join ', ', map { "$_ x $seen{$_}" } sort keys %seen);
is(scalar @violations, 0, "G1 G2 G3 G6 G8 G9: no answer contradicts the model (seed $seed)");
cmp_ok(scalar keys %settled, '>=', 10, 'the run settled something');

my %nonces = map { split /\|/ } split /\n/, $admin->ok(q(SELECT key, string_agg(nonce::text, ' ') FROM nonces GROUP BY key));
my %rows = map { split /\|/ } split /\n/, $admin->ok(q(SELECT key, result FROM idem_settled));
is_deeply(\%rows, \%settled, 'G3: the outcomes are those of the model');
is_deeply(\%nonces, \%settled, 'G2: the business changes are there exactly where the outcome is');
my %tokens = map { split /\|/ } split /\n/, $admin->ok(q(SELECT key, token FROM idem_inflight WHERE token IS NOT NULL));
is_deeply(\%tokens, \%token, 'G1: the tokens are those of the model');
ok(wait_until($admin, "SELECT count(*) FROM pg_locks WHERE objsubid = ${\ LOCK_CLASS}", '0'), 'no lock is left behind');

$admin->quit;
$node->stop;
done_testing();
