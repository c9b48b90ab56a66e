# G7 Random histories over all states, with a clock that moves at random and often exactly to where an answer must change, against an
# oracle. idem_maintain, or the workers, come by at any moment, and now and then the server crashes: no answer may depend on it, only
# what is forgotten may be gone, and nothing in flight is lost. PG_IDEM_SEED repeats a run (the workers' moments apart),
# PG_IDEM_SECONDS makes it longer.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time usleep);

use constant S => 1_000_000;    # times are microseconds since $base

my $seed = $ENV{PG_IDEM_SEED} // int(1000 * time) % 2**31;
my $seconds = $ENV{PG_IDEM_SECONDS} // 15;
diag("seed $seed (PG_IDEM_SEED)");
srand $seed;

my $base = q(timestamptz '2030-01-01 00:00:00+00');
my @actions = map { "act$_" } 0 .. 5;
my @keys = map { "k$_" } 0 .. 4;
my %max_backoff = (s => 8);

my ($node, $session, $workers);
my $tries = 400;    # of 5 ms, while a worker may be at the row
my ($now, $nonce, %policy, %op, @active, %seen_row, @history, @violations, %count);
my $generation = 0;

sub pick { return $_[ rand @_ ]; }

sub violation
{
	my ($text) = @_;
	push @violations, $text;
	diag("VIOLATION: $text");
	diag(join "\n", 'before:', @history[ ($#history > 40 ? -40 : 0) .. -1 ]) if @violations == 1;
	return;
}

sub sql
{
	my ($text) = @_;
	my $state = $session->try($text);
	push @history, sprintf '%d: %s -> %s', $now, $text =~ s/\s+/ /gr, $state || $session->out;
	violation("$state: " . $session->err) if $state ne '' && $state !~ /^IDM/;
	return ($state, $session->out);
}

sub us { return "(extract(epoch FROM $_[0] - $base) * 1000000)::bigint"; }

# ---- the oracle: $op{action key} = { settled => {...}, inflight => {...} }

sub known
{
	my ($o) = @_;
	return $o->{settled} && $now < $o->{settled}{forget_at};
}
sub expired { return $now >= $_[0]{settled}{expires_at}; }
sub over { return !defined $_[0]{token} || $now >= $_[0]{lease_end}; }
sub is_final { return $_[0]{rule} =~ /fail|review/; }

# What becomes of an operation in flight
sub unattended
{
	my ($f) = @_;
	return 'review' if $f->{in_review};
	return 'in_progress' unless over($f);
	return 'in_progress' if !defined $f->{token} && $now < $f->{due_at};
	my $failures = $f->{failures} + (defined $f->{token} ? 1 : 0);
	my $by_rule = $f->{rule} eq 'fail' ? 'failed' : 'to review';
	return $by_rule if $failures >= $f->{max_attempts} || (defined $f->{token} && is_final($f));
	return 'recovered';
}

# The answer to a claim
sub claim_oracle
{
	my ($o, $print, $token) = @_;
	my $f = $o->{inflight};
	if (known($o))
	{
		return 'mismatch' if $o->{settled}{print} ne $print;
		return expired($o) ? 'expired' : $o->{settled}{as};
	}
	return 'claimed' unless $f;
	return 'mismatch' if $f->{print} ne $print;
	if (defined $token && defined $f->{token} && $token eq $f->{token} && !$f->{in_review} && (!over($f) || !is_final($f)))
	{
		return $f->{attempt} > 1 ? 'recovered' : 'claimed';
	}
	return unattended($f) =~ s/^to //r;
}

# SQLSTATE of an owner call; '' where it passes
sub owner_oracle
{
	my ($o, $token) = @_;
	my $f = $o->{inflight};
	if ($f)
	{
		return 'IDM02' if ($f->{token} // '') ne $token;
		return 'IDM10' if $f->{in_review};
		return $f->{rule} eq 'fail' ? 'IDM02' : 'IDM10' if is_final($f) && over($f);
		return '';
	}
	return known($o) ? 'IDM04' : 'IDM02';
}

sub lookup_oracle
{
	my ($o) = @_;
	my $f = $o->{inflight};
	if (known($o))
	{
		my $s = $o->{settled};
		return "expired|$s->{as}|$s->{status}||$s->{settled_at}" if expired($o);
		return "$s->{as}|$s->{as}|$s->{status}|$s->{result}|$s->{settled_at}";
	}
	return '' unless $f;
	return ($f->{in_review} ? 'review' : over($f) ? 'interrupted' : 'in_progress') . '||||';
}

# ---- one operation

sub name { my ($id) = @_; return [ 'acme', split / /, $id ]; }

sub settle_in_oracle
{
	my ($id, $as, $status, $result, $print) = @_;
	my $p = $policy{ (split / /, $id)[0] };
	my $expires = $now + $p->{retention};
	$op{$id} = {
		settled => {
			as => $as, status => $status, result => $result, print => $print, settled_at => $now,
			expires_at => $expires, forget_at => $expires + $p->{remember}
		}
	};
	return;
}

# A worker may have recorded what the rule says between the look at the tables and the call that got this answer: then the answer is
# judged by what is recorded. Without workers nothing changes.
sub answered_by_record
{
	my ($id, $got) = @_;
	my $f = $op{$id}{inflight};
	return unless $workers && $f && unattended($f) eq 'failed';
	# A new claim has taken the place of what was forgotten, so the tables show it no more.
	return forgotten_by_rule($id) if $got =~ /claimed/;
	return compare();
}

# Failed by rule, and forgotten since. The record may have been made under the policy before this one.
sub forgotten_by_rule
{
	my ($id) = @_;
	my $f = delete $op{$id}{inflight};
	violation("$id: failed by rule, and gone before it is forgotten")
	  if ($f->{lease_end} // $f->{due_at}) + $policy{ (split / /, $id)[0] }{shortest} > $now;
	$count{'recorded failed, and forgotten'}++;
	return;
}

# Claims in a transaction that may change its mind; asked: only the answer is wanted.
sub claim_in_transaction
{
	my ($id, $print, $asked) = @_;
	compare() if $workers;    # what the workers have recorded until now
	my $want = claim_oracle($op{$id}, $print);
	my ($state, $got);
	for (0 .. ($workers ? $tries : 0))
	{
		($state, $got) = sql('BEGIN; ' . claim(name($id), fingerprint => "'\\x$print'"));
		last if $got ne 'in_progress' || $want eq 'in_progress';
		sql('ROLLBACK');    # a pass holds the key
		usleep(5_000);
	}
	$count{"claim $got"}++;
	if ($got ne $want)
	{
		answered_by_record($id, $got);
		$want = claim_oracle($op{$id}, $print);
	}
	violation("claim of $id answers $got$state, not $want") if $got ne $want;
	if ($asked || $got !~ /claimed|recovered/ || rand() < 0.1)
	{
		# What a rule made of it is rolled back as well, or kept.
		sql($asked || $got =~ /claimed|recovered/ ? 'ROLLBACK' : 'COMMIT');
		return;
	}
	my ($function, $as) = rand() < 0.7 ? ('idem_complete', 'completed') : ('idem_fail', 'failed');
	my $n = ++$nonce;
	sql(call($function, name($id), result => "'$n'", status => 200, body => "repeat('x', " . pick(1, 100, 20000) . ')') . '; COMMIT');
	settle_in_oracle($id, $as, 200, $n, $print);
	return;
}

sub claim_with_lease
{
	my ($id, $print) = @_;
	compare() if $workers;
	my $o = $op{$id};
	my $f = $o->{inflight};
	my $token = $f && defined $f->{token} && rand() < 0.3 ? $f->{token} : sprintf('eeeeeeee-0000-4000-8000-%012d', ++$nonce);
	my $lease = pick(2, 5, 20) * S;
	my $want = claim_oracle($o, $print, $token);
	my ($state, $got);
	for (0 .. ($workers ? $tries : 0))
	{
		($state, $got) = sql(claim(name($id), fingerprint => "'\\x$print'", lease => "$lease * interval '1 us'", token => "'$token'",
				columns => 'outcome, attempt, checkpoint'));
		last if $got !~ /^in_progress/ || $want eq 'in_progress';
		usleep(5_000);    # a pass holds the key
	}
	my ($outcome, $attempt, $checkpoint) = split /\|/, $got, -1;
	$count{"leased claim $outcome"}++;
	if ($outcome ne $want)
	{
		answered_by_record($id, $outcome);
		$f = $o->{inflight};
		$want = claim_oracle($o, $print, $token);
	}
	violation("leased claim of $id answers $outcome, not $want") if $outcome ne $want;
	return if $outcome !~ /claimed|recovered/;
	my $p = $policy{ (split / /, $id)[0] };
	if ($f)
	{
		violation("$id lost its checkpoint: $checkpoint") if $checkpoint ne ($f->{checkpoint} // '');
		if (($f->{token} // '') ne $token)
		{
			$f->{failures}++ if defined $f->{token};
			$f->{attempt}++;
			@$f{qw(rule max_attempts)} = @$p{qw(rule max_attempts)};
		}
	}
	else
	{
		$f = $o->{inflight} = { attempt => 1, failures => 0, print => $print, rule => $p->{rule}, max_attempts => $p->{max_attempts} };
	}
	@$f{qw(token lease lease_end due_at)} = ($token, $lease, $now + $lease, undef);
	violation("$id: attempt $attempt, not $f->{attempt}") if $attempt != $f->{attempt};
	return;
}

sub owner_call
{
	my ($id) = @_;
	# mostly of one that has an owner
	my @owned = grep { $op{$_}{inflight} && defined $op{$_}{inflight}{token} && !$op{$_}{inflight}{in_review} } @active;
	$id = pick(@owned) if @owned && rand() < 0.7;
	my $o = $op{$id};
	my $f = $o->{inflight};
	my $token = ($f && rand() < 0.9 ? $f->{token} : undef) // 'dddddddd-0000-4000-8000-000000000000';
	my $want = owner_oracle($o, $token);
	my $what = pick(qw(renew checkpoint complete fail release release));
	my $n = ++$nonce;
	my ($state, $out);
	if ($what eq 'release')
	{
		my %more = pick({}, { error => q('no luck') }, { retry_after => q('4 s') }, { error => q('no luck'), retry_after => q('1 s') })->%*;
		($state, $out) = sql(call('idem_release', name($id), token => "'$token'", %more));
		$count{"release $out"}++;
		violation("release of $id answers $out$state, but $want") if $state ne '' || $out ne ($want eq '' ? 't' : 'f');
		return unless $out eq 't';
		my $delay = 0;
		if ($more{error})
		{
			my $doubled = 2 * 2**$f->{failures}++;
			$delay = ($doubled < $max_backoff{s} ? $doubled : $max_backoff{s}) * S;
		}
		$delay = ($more{retry_after} =~ /(\d+)/)[0] * S if $more{retry_after};
		@$f{qw(token lease_end due_at)} = (undef, undef, $now + $delay);
		return;
	}
	my %more =
	    $what eq 'checkpoint' ? (checkpoint => "'c$n'")
	  : $what eq 'renew' ? ()
	  : (result => "'$n'", status => 200);
	($state) = sql(call("idem_$what", name($id), token => "'$token'", %more));
	$count{"$what $state"}++;
	if ($state ne $want)
	{
		answered_by_record($id, $state);
		$want = owner_oracle($o, $token);
	}
	violation("$what of $id: '$state', not '$want'") if $state ne $want;
	return if $state ne '';
	if ($what =~ /complete|fail/)
	{
		settle_in_oracle($id, $what eq 'complete' ? 'completed' : 'failed', 200, $n, $f->{print});
		return;
	}
	$f->{lease_end} = $now + $f->{lease};
	@$f{qw(checkpoint failures)} = ("c$n", 0) if $what eq 'checkpoint';
	return;
}

sub once
{
	my $action = pick(@actions);
	my $key = pick(@keys);
	my $print = pick('aa', 'aa', 'bb');
	my $row = $seen_row{"$action $key"};
	my $want = !$row || $now >= $row->{forget_at} ? 't' : $row->{print} eq $print ? 'f' : 'IDM09';
	my ($state, $got) = sql(call('idem_once', [ 'acme', $action, $key ], fingerprint => "'\\x$print'"));
	$count{'once ' . ($state || $got)}++;
	violation("once of $action $key answers $state$got, not $want") if ($state || $got) ne $want;
	$seen_row{"$action $key"} = { print => $print, forget_at => $now + $policy{$action}{once_retention} } if $want eq 't';
	return;
}

sub lookup
{
	my ($id) = @_;
	my $want = lookup_oracle($op{$id});
	my $ask = call('idem_lookup', name($id), columns => 'state, settled_as, status, result, ' . us('settled_at'));
	my ($state, $got) = sql($ask);
	$count{ 'lookup ' . ($got =~ /^(\w+)/ ? $1 : 'nothing') }++;
	for (1 .. ($workers ? $tries : 0))
	{
		last if $got eq $want;
		compare();    # they may have recorded what the rule says, or be about to: then the key is held
		$want = lookup_oracle($op{$id});
		usleep(5_000);
		($state, $got) = sql($ask);
	}
	violation("lookup of $id answers $got, not $want") if $got ne $want;
	return;
}

# ---- policies, the clock, the sweep, the server

sub change_policy
{
	my ($action) = @_;
	compare() if $policy{$action};    # what was recorded so far was under the old one
	my %p = (
		retention => pick(0, 1, 5, 20) * S,
		remember => pick(0, 2, 10, 40) * S,
		once_retention => pick(1, 5, 20) * S,
		rule => pick(qw(retry retry fail review)),
		max_attempts => 1 + int rand 4);
	# Of this policy and the one before: under which of them a rule is recorded now is the worker's luck.
	my $before = $policy{$action} // \%p;
	my @remembered = sort { $a <=> $b } map { $_->{retention} + $_->{remember} } \%p, $before;
	$p{shortest} = $remembered[0];
	$policy{$action} = \%p;
	my $interval = sub { return "$_[0] * interval '1 us'" };
	sql(      "INSERT INTO idem_policies (action, retention, remember, once_retention, on_interrupt, max_attempts, retry_backoff, max_backoff, max_outcome_bytes)"
		  . " VALUES ('$action', "
		  . join(', ', map { $interval->($p{$_}) } qw(retention remember once_retention))
		  . ", '$p{rule}', $p{max_attempts}, '2 s', '$max_backoff{s} s', 1000000)"
		  . ' ON CONFLICT (action) DO UPDATE SET (retention, remember, once_retention, on_interrupt, max_attempts)'
		  . ' = (excluded.retention, excluded.remember, excluded.once_retention, excluded.on_interrupt, excluded.max_attempts)');
	return;
}

sub set_clock
{
	my ($to) = @_;
	return if $to < $now;
	$now = $to;
	my $text = $session->ok("SELECT set_config('pg_idem.test_now', ($base + $now * interval '1 us')::text, false)");
	$session->ok("ALTER SYSTEM SET pg_idem.test_now = '$text'; SELECT pg_reload_conf()") if $workers;
	push @history, "clock: $now";
	return;
}

# The operation whose answer changes next, and when
sub next_change
{
	my ($at, $which);
	foreach my $id (keys %op)
	{
		my ($s, $f) = @{ $op{$id} }{qw(settled inflight)};
		foreach my $t (grep { defined && $_ > $now } $s ? @$s{qw(expires_at forget_at)} : (), $f ? @$f{qw(lease_end due_at)} : ())
		{
			($at, $which) = ($t, $id) if !defined $at || $t < $at;
		}
	}
	return ($at, $which);
}

sub ask_all_about
{
	my ($id) = @_;
	lookup($id);
	claim_in_transaction($id, $_, 1) foreach 'aa', 'bb';
	return;
}

# One microsecond before, and exactly then; before a sweep, and after it
sub walk_over_a_change
{
	my ($at, $id) = next_change();
	return set_clock($now + S) unless defined $at;
	set_clock($at - 1);
	foreach my $time ($at - 1, $at)
	{
		set_clock($time);
		ask_all_about($id) if rand() < 0.8;
		next unless rand() < 0.5;
		sweep(rand() < 0.8 ? undef : 1 + int rand 5);
		ask_all_about($id);
	}
	$count{changes}++;
	return;
}

sub sweep
{
	my ($max_rows) = @_;
	return if $workers;    # they come by themselves
	my ($state, $out) = sql('SELECT task, rows FROM idem_maintain(' . ($max_rows // '') . ') WHERE rows > 0');
	$count{"swept $1"} += $2 while $out =~ /^(\w+)\|(\d+)$/mg;
	compare();
	return;
}

sub crash
{
	push @history, 'crash';
	$session->quit;
	kill9($node);
	$node->start;
	$session = session($node);
	my $clock = $now;
	$now = -1;
	set_clock($clock);
	$count{crashes}++;
	return;
}

# ---- the tables against the oracle

# final: everything that is due has been done.
sub compare
{
	my ($final) = @_;
	# one statement, one snapshot: the workers may be at it
	my @lines = split /\n/, $session->ok(
		    q(SELECT 'S', action || ' ' || key, succeeded, status, result, encode(fingerprint, 'hex'), stripped, )
		  . join(', ', map { us($_) } qw(settled_at expires_at forget_at))
		  . q(, '', body IS NOT NULL OR result IS NOT NULL FROM idem_settled UNION ALL )
		  . q(SELECT 'I', action || ' ' || key, in_review, attempt, NULL, encode(fingerprint, 'hex'), announced, )
		  . us('lease_expires_at') . ', ' . us('due_at') . ', failures, token::text, NULL FROM idem_inflight UNION ALL '
		  . q(SELECT 'O', action || ' ' || key, NULL, NULL, NULL, encode(fingerprint, 'hex'), NULL, )
		  . us('forget_at')
		  . q(, NULL, NULL, NULL, NULL FROM idem_seen));
	my (%settled, %inflight, %seen);
	foreach (@lines)
	{
		my ($kind, $id, @v) = split /\|/, $_, -1;
		if ($kind eq 'S') { @{ $settled{$id} }{qw(succeeded status result print stripped settled_at expires_at forget_at token payload)} = @v; }
		elsif ($kind eq 'I') { @{ $inflight{$id} }{qw(in_review attempt result print announced lease_end due_at failures token)} = @v; }
		else { @{ $seen{$id} }{qw(a b c print e forget_at)} = @v; }
	}
	foreach my $id (keys %op)
	{
		my $o = $op{$id};
		my ($f, $i, $s) = ($o->{inflight}, $inflight{$id}, $settled{$id});
		# What a rule says may have been recorded meanwhile.
		if ($f && !$i && unattended($f) eq 'failed' && $s)
		{
			violation("$id: failed by rule, but as $s->{status} $s->{result}")
			  if !($s->{status} eq '503' && $s->{succeeded} eq 'f' && $s->{settled_at} <= $now && $s->{settled_at} >= ($f->{lease_end} // $f->{due_at}));
			$o->{settled} = {
				as => 'failed', status => 503, result => '{"error": "interrupted"}', print => $f->{print},
				map { $_ => $s->{$_} } qw(settled_at expires_at forget_at)
			};
			delete $o->{inflight};
			$count{'recorded failed'}++;
		}
		elsif ($f && $i && $i->{in_review} eq 't' && unattended($f) eq 'to review')
		{
			$f->{failures}++ if defined $f->{token};
			$f->{in_review} = 1;
			$count{'recorded review'}++;
		}
		elsif ($f && !$i && unattended($f) eq 'failed')
		{
			forgotten_by_rule($id);
		}
		$f = $o->{inflight};
		if ($f)
		{
			if (!$i) { violation("$id: lost in flight"); next; }
			foreach my $column (qw(attempt failures print token lease_end due_at))
			{
				violation("$id: in flight with $column $i->{$column}, not " . ($f->{$column} // ''))
				  if ($f->{$column} // '') ne $i->{$column};
			}
			violation("$id: in_review is $i->{in_review}") if ($i->{in_review} eq 't') != !!$f->{in_review};
			violation("$id: announced, but not interrupted") if $i->{announced} eq 't' && unattended($f) eq 'in_progress';
			violation("$id: interrupted, and nobody was told") if $final && $i->{announced} ne 't' && unattended($f) eq 'recovered';
			violation("$id: the rule was not applied") if $final && unattended($f) =~ /failed|to review/;
		}
		elsif ($i)
		{
			violation("$id: in flight, but nobody claimed it");
		}
		if (known($o))
		{
			my $want = $o->{settled};
			if (!$s) { violation("$id: gone before it is forgotten"); next; }
			violation("$id: fingerprint $s->{print}") if $s->{print} ne $want->{print};
			violation("$id: now $s->{succeeded} $s->{status}")
			  if ($s->{succeeded} eq 't') != ($want->{as} eq 'completed') || $s->{status} ne $want->{status};
			violation("$id: $_ $s->{$_}, not $want->{$_}") foreach grep { $s->{$_} != $want->{$_} } qw(settled_at expires_at forget_at);
			violation("$id: stripped before its time") if $s->{stripped} eq 't' && !expired($o);
			violation("$id: result $s->{result}") if $s->{stripped} eq 'f' && $s->{result} ne $want->{result};
			violation("$id: stripped, but a payload is left") if $s->{stripped} eq 't' && $s->{payload} eq 't';
			violation("$id: expired, but not stripped") if $final && expired($o) && $s->{payload} eq 't';
			$count{'stripped rows seen'}++ if $s->{stripped} eq 't';
		}
		elsif ($s)
		{
			violation("$id: settled, but nobody did") unless $o->{settled};
			violation("$id: forgotten, but not deleted") if $final;
		}
		elsif ($o->{settled})
		{
			delete $o->{settled};
			$count{'forgotten rows gone'}++;
		}
	}
	foreach my $id (grep { !$op{$_} } keys %settled, keys %inflight) { violation("$id: a row of nobody"); }
	foreach my $id (keys %seen_row)
	{
		my $row = $seen_row{$id};
		if ($now < $row->{forget_at})
		{
			violation("$id: the message is gone before its time") if !$seen{$id} || $seen{$id}{forget_at} != $row->{forget_at} || $seen{$id}{print} ne $row->{print};
		}
		elsif (!$seen{$id}) { delete $seen_row{$id}; $count{'messages forgotten'}++; }
		else { violation("$id: the message is not deleted") if $final; }
	}
	foreach my $id (grep { !$seen_row{$_} } keys %seen) { violation("$id: a message of nobody"); }
	return;
}

# ---- the walk

sub step
{
	my $dice = rand;
	my $i = int rand @active;
	my $id = $active[$i];
	# What is in review stays there; others take its place.
	if ($op{$id}{inflight} && $op{$id}{inflight}{in_review} && rand() < 0.3)
	{
		$id =~ s/(?:-\d+)?$/'-' . ++$generation/e;
		$active[$i] = $id;
		$op{$id} = {};
	}
	my $print = pick('aa', 'aa', 'aa', 'bb');
	# Before anything is asked: what the workers have recorded since counts.
	compare() if $workers || rand() < 0.2;
	return claim_in_transaction($id, $print, 0) if $dice < 0.15;
	return claim_with_lease($id, $print) if $dice < 0.43;
	return owner_call($id) if $dice < 0.71;
	return once() if $dice < 0.77;
	return lookup($id) if $dice < 0.79;
	return set_clock($now + int(rand(S))) if $dice < 0.82;
	return walk_over_a_change() if $dice < 0.90;
	return sweep(rand() < 0.5 ? undef : 1 + int rand 5) if $dice < 0.96;
	return change_policy(pick(@actions)) if $dice < 0.995;
	return crash();
}

# What a run must have seen. It goes on until then, ten times as long at most.
my @wanted = ("stripped rows seen", "forgotten rows gone", "messages forgotten", "recorded failed", "recorded review",
	'claim expired', 'claim mismatch', 'leased claim recovered', 'complete ', 'checkpoint ', 'release t', 'changes');

sub goes_on
{
	my ($end) = @_;
	return 0 if @violations;
	return 1 if time < $end;
	return time < $end + 9 * $seconds && grep { !$count{$_} } @wanted;
}

foreach my $mode (qw(idem_maintain workers))
{
	$workers = $mode eq 'workers';
	$node = new_node($mode, preload => $workers, conf => "pg_idem.naptime = '20ms'\n");
	$session = session($node);
	$session->ok(q(LOAD 'pg_idem'));
	($now, $nonce) = (-1, 0);
	set_clock(0);
	%count = ();
	@history = ();
	%policy = ();
	%seen_row = ();
	%op = ();
	foreach my $action (@actions)
	{
		change_policy($action);
		$op{"$action $_"} = {} foreach @keys;
	}
	@active = sort keys %op;
	my $end = time + $seconds;
	my $steps = 0;
	while (goes_on($end))
	{
		step();
		$steps++;
	}
	is(scalar @violations, 0, "G7: $mode: no answer contradicts the oracle (seed $seed)");
	compare();
	# Everything that is due
	if ($workers)
	{
		wait_until(
			$session, q(
			SELECT (SELECT count(*) FROM idem_settled WHERE forget_at <= idem_now()
			           OR expires_at <= idem_now() AND num_nonnulls(request, result, body, body_bytes) > 0)
			     + (SELECT count(*) FROM idem_seen WHERE forget_at <= idem_now())
			     + (SELECT count(*) FROM idem_inflight WHERE NOT in_review AND NOT announced
			           AND (token IS NULL AND due_at <= idem_now() OR lease_expires_at <= idem_now()))), '0', 'the workers');
	}
	else
	{
		my $rounds = 0;
		$rounds++ while $rounds < 1000 && $session->ok('SELECT sum(rows) FROM idem_maintain(7)') ne '0';
		cmp_ok($rounds, '<', 1000, 'G7: again until every count is 0: it ends');
	}
	compare();
	compare(1);
	lookup($_) foreach sort keys %op;
	is(scalar @violations, 0, "G7: $mode: what is forgotten is gone, and nothing else");
	note("$mode: $steps steps: " . join ', ', map { "$_ x $count{$_}" } sort keys %count);
	foreach my $what (@wanted)
	{
		cmp_ok($count{$what} // 0, '>', 0, "$mode: $what");
	}
	$session->quit;
	$node->stop;
	last if @violations;
}
done_testing();
