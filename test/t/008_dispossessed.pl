# Owners that were dispossessed, callers that repeat themselves, heartbeats, and all of it under stress.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run;
use List::Util 'min';
use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node('dispossessed', worker => 0);
my $alice = session($node);
my $bob = session($node);
my ($old, $new) = ('88888888-8888-8888-8888-888888888888', '99999999-9999-9999-9999-999999999999');
my $count = sub { $alice->ok("SELECT count(*) FROM effects WHERE key = '$_[0]'") };

# A claims, stops for longer than its lease, and B takes over.
sub take_over
{
	my ($key) = @_;
	$alice->ok(claim($key, lease => q('1 ms'), token => "'$old'"));
	wait_until($bob, call('idem_lookup', $key, columns => q(state = 'interrupted')));
	is($bob->ok(claim($key, lease => q('1 h'), token => "'$new'", columns => 'outcome, attempt')), 'recovered|2', "G5: $key: taken over");
	return;
}
my %owner_call = (
	guard => sub { call('idem_guard', $_[0], token => "'$_[1]'") },
	renew => sub { call('idem_renew', $_[0], token => "'$_[1]'") },
	checkpoint => sub { call('idem_checkpoint', $_[0], token => "'$_[1]'", checkpoint => q('c')) },
	complete => sub { call('idem_complete', $_[0], token => "'$_[1]'") },
	fail => sub { call('idem_fail', $_[0], token => "'$_[1]'") });
foreach my $name (sort keys %owner_call)
{
	my $key = "lost-$name";
	my $sql = $owner_call{$name}->($key, $old);
	take_over($key);
	is($alice->try($sql), 'IDM02', "G6: $name of the dispossessed is refused");
	$alice->ok("BEGIN; INSERT INTO effects VALUES ('$key')");
	is($alice->try($sql), 'IDM02', "G6: $name: in a transaction");
	$alice->ok('COMMIT');
	is($count->($key), '0', "G6: $name: its business changes are gone");

	$alice->ok("BEGIN; INSERT INTO effects VALUES ('$key'); SAVEPOINT a");
	is($alice->try($sql), 'IDM02', "G6: $name: in a savepoint");
	$alice->ok('ROLLBACK TO a');
	is($alice->try('COMMIT'), 'IDM02', "G6: $name: caught by a savepoint, COMMIT is refused");
	is($count->($key), '0', "G6: $name: its business changes are gone");

	is( $alice->try(
			"DO \$\$ BEGIN INSERT INTO effects VALUES ('$key'); BEGIN PERFORM * FROM ("
			  . $sql . ') x; EXCEPTION WHEN OTHERS THEN NULL; END; END $$'),
		'IDM02', "G6: $name: caught by an exception block, the statement's commit is refused");
	is($count->($key), '0', "G6: $name: its business changes are gone");
	is($alice->ok('SELECT 1'), '1', "G12: $name: the session goes on");

	is($bob->ok('BEGIN; ' . $owner_call{guard}->($key, $new) =~ s/\*/r > now()/r . "; INSERT INTO effects VALUES ('$key'); "
			  . $owner_call{complete}->($key, $new) =~ s/\*/r > now()/r . '; COMMIT'),
		"t\nt", "G6: $name: the new owner is undisturbed");
	is($count->($key), '1', "G1: $name: one effect");
	is($alice->try($sql), 'IDM04', "G2: $name after the settlement by another");
	$alice->ok("BEGIN; INSERT INTO effects VALUES ('$key'); SAVEPOINT a");
	is($alice->try($sql), 'IDM04', "G2: $name after it, in a savepoint");
	$alice->ok('ROLLBACK TO a');
	is($alice->try('COMMIT'), 'IDM02', "G6: $name: nor can that be committed");
	is($count->($key), '1', "G2: $name: still one effect");
}
take_over('lost-release');
is($alice->ok('BEGIN; ' . call('idem_release', 'lost-release', token => "'$old'") . q(; INSERT INTO effects VALUES ('lost-release'); COMMIT)),
	'f', 'G6: release of the dispossessed answers false, and dooms nothing');
is($count->('lost-release'), '1', 'it committed');
is($bob->ok(call('idem_guard', 'lost-release', token => "'$new'", columns => 'r > now()')), 't', 'G6: the new owner is undisturbed');

# The acknowledgement of COMMIT is lost, and the client sends its transaction again.
$alice->ok(claim('again', lease => q('1 h'), token => "'$old'"));
my $settle = 'BEGIN; ' . call('idem_guard', 'again', token => "'$old'") . q(; INSERT INTO effects VALUES ('again'); )
  . call('idem_complete', 'again', token => "'$old'") . '; COMMIT';
$alice->ok($settle);
is($alice->try($settle), 'IDM04', 'G2: a settlement sent again is refused');
is($count->('again'), '1', 'G2: and does nothing twice');
my $unguarded = q(BEGIN; INSERT INTO effects VALUES ('again'); ) . call('idem_complete', 'again', token => "'$old'") . '; COMMIT';
is($alice->try($unguarded), 'IDM04', 'G2: without guard too');
is($count->('again'), '1', 'G2: and does nothing twice');
my $whole = 'BEGIN; ' . claim('whole') . q(; INSERT INTO effects VALUES ('whole'); ) . call('idem_complete', 'whole') . '; COMMIT';
$alice->ok($whole);
is($_->try($whole), 'IDM04', 'G2: a whole transaction sent again, outcome ignored') foreach $alice, $bob;
is($count->('whole'), '1', 'G2: and does nothing twice');

# Code that ignores the outcome does nothing twice, whatever the outcome was.
$bob->ok('BEGIN; ' . claim('in_progress'));
$alice->ok('BEGIN; ' . claim('failed') . '; ' . call('idem_fail', 'failed') . '; COMMIT');
$alice->ok('BEGIN; ' . claim('completed') . '; ' . call('idem_complete', 'completed') . '; COMMIT');
$alice->ok('BEGIN; ' . claim('mismatch', request => q('{"other": 1}')) . '; ' . call('idem_complete', 'mismatch') . '; COMMIT');
$alice->ok(q(INSERT INTO idem_policies (action, retention) VALUES ('short', '0'); INSERT INTO idem_policies (action, on_interrupt) VALUES ('human', 'review')));
$alice->ok('BEGIN; ' . claim([ 'acme', 'short', 'expired' ]) . '; ' . call('idem_complete', [ 'acme', 'short', 'expired' ]) . '; COMMIT');
$alice->ok(claim([ 'acme', 'human', 'review' ], lease => q('1 ms')));
wait_until($alice, call('idem_lookup', [ 'acme', 'human', 'review' ], columns => 'lease_expires_at < clock_timestamp()'));
$alice->ok(claim('other_lease', lease => q('1 h'), token => "'$new'"));
my %ignored = (
	completed => [ 'pay', 'completed', 'IDM04' ],
	failed => [ 'pay', 'failed', 'IDM04' ],
	in_progress => [ 'pay', 'in_progress', 'IDM03' ],
	other_lease => [ 'pay', 'in_progress', 'IDM03' ],
	mismatch => [ 'pay', 'mismatch', 'IDM04' ],
	expired => [ 'short', 'expired', 'IDM04' ],
	review => [ 'human', 'review', 'IDM03' ]);
foreach my $key (sort keys %ignored)
{
	my ($action, $outcome, $state) = @{ $ignored{$key} };
	foreach my $how (qw(idem_complete idem_fail))
	{
		$alice->ok('BEGIN');
		is($alice->ok(claim([ 'acme', $action, $key ])), $outcome, "the outcome is $outcome");
		$alice->ok("INSERT INTO effects VALUES ('$key')");
		is($alice->try(call($how, [ 'acme', $action, $key ])), $state, "G2: $outcome ignored: $how is refused");
		$alice->ok('COMMIT');
		is($count->($key), '0', "G2: $outcome ignored: nothing is done twice");
	}
}
$bob->ok('ROLLBACK');

# Heartbeats: never more than 100 ms, measured on the server. The allowance of 20 ms is for the wake-up from the
# timer; on a busy machine the best of five counts, and none may wait for the owner's transaction to end.
my $beat = session($node);
my $timed_renew = sub { 'SELECT r > clock_timestamp(), extract(epoch FROM clock_timestamp() - statement_timestamp()) FROM idem_renew(' . ident($_[0]) . ", token => '$old') r" };
my %held = (
	guarded => sub { $owner_call{guard}->($_[0], $old) },
	checkpointed => sub { $owner_call{guard}->($_[0], $old) . '; ' . $owner_call{checkpoint}->($_[0], $old) },
	settled => sub { $owner_call{complete}->($_[0], $old) },
	failed => sub { $owner_call{fail}->($_[0], $old) });
foreach my $name (sort keys %held)
{
	$alice->ok(claim("beat-$name", lease => q('1 h'), token => "'$old'"));
	$alice->ok('BEGIN; ' . $held{$name}->("beat-$name"));
	my @times;
	for (1 .. 5)
	{
		my ($good, $time) = split /\|/, $beat->ok($timed_renew->("beat-$name"));
		is($good, 't', "G5: heartbeat while the owner's transaction is open ($name)");
		push @times, $time;
	}
	my $best = min(@times);
	cmp_ok($best, '<=', 0.120, "G5: heartbeat waits no more than 100 ms ($name)");
	# In the other order: the heartbeat's own transaction stays open, and the owner goes on all the same.
	$beat->ok('BEGIN; ' . $timed_renew->("beat-$name"));
	if ($name =~ /guarded|checkpointed/)
	{
		is($alice->ok($owner_call{checkpoint}->("beat-$name", $old) =~ s/\*/r > now()/r), 't', "G5: the owner is not held up by its heartbeat ($name)");
		is($alice->ok($owner_call{complete}->("beat-$name", $old) =~ s/\*/r > now()/r), 't', "G5: nor when it settles ($name)");
	}
	$alice->ok('COMMIT');
	$beat->ok('COMMIT');
	is($beat->try($owner_call{renew}->("beat-$name", $old)), 'IDM04', "G6: after the settlement a heartbeat is refused ($name)");
}
# No deadlock: the heartbeat waits just when the owner settles.
$alice->ok(claim("dl-$_", lease => q('1 h'), token => "'$old'")) foreach 1 .. 20;
my $bad = '';
foreach my $i (1 .. 20)
{
	$alice->ok('BEGIN; ' . $owner_call{guard}->("dl-$i", $old) . '; ' . $owner_call{checkpoint}->("dl-$i", $old));
	$beat->send('BEGIN; ' . $owner_call{renew}->("dl-$i", $old) . '; COMMIT');
	$bad .= $alice->try($owner_call{checkpoint}->("dl-$i", $old)) . $alice->try($owner_call{complete}->("dl-$i", $old)) . $alice->try('COMMIT');
	my $state = $beat->get;
	$bad .= "$state " . $beat->err unless $state =~ /^(IDM04|)$/;
	$beat->ok('ROLLBACK');
}
is($bad, '', 'G5: a heartbeat never deadlocks with its owner');
$_->quit foreach $alice, $bob, $beat;

# Stress: owners with leases shorter than their work, heartbeats, abandoned attempts, takeovers, rivals. psql goes on
# after an error, as a client would. Phase 1 is done where no checkpoint says that it was done.
my $s = session($node);
$s->ok(
	q{
	TRUNCATE effects;
	CREATE TABLE beats (key text, tok uuid);
	INSERT INTO idem_policies (action, max_attempts) VALUES ('stress', 1000000);
	CREATE FUNCTION ms(a int, b int) RETURNS text LANGUAGE sql VOLATILE AS $$ SELECT pg_sleep((a + random() * (b - a)) / 1000)::text $$;
});
my $keys = 40;
# abandon: share of attempts that stop half-way
sub owner_script
{
	my ($who, $seed, $turns, $abandon) = @_;
	srand $seed;
	my $sql = "\\set VERBOSITY verbose\n\\o /dev/null\n";
	foreach my $turn (1 .. $turns)
	{
		my $key = 's' . (1 + int rand $keys);
		my $lease = 15 + int rand 60;
		my $wait = rand() < 0.3 ? 20 : 0;
		my $level = ('READ COMMITTED', 'REPEATABLE READ', 'SERIALIZABLE')[ rand 3 ];
		my $id = "'acme', 'stress', '$key'";
		$sql .= "\\set mine f\n"
		  . "SELECT outcome IN ('claimed', 'recovered') AS mine, token AS tok, attempt AS att, checkpoint IS NULL AS fresh FROM idem_claim($id, "
		  . "request => '{}', lease => '$lease ms', wait => '$wait ms') \\gset\n"
		  . "\\if :mine\n"
		  . "INSERT INTO beats VALUES ('$key', :'tok');\n"
		  . "SELECT ms(0, 40);\n";
		$sql .= "\\if :fresh\nBEGIN ISOLATION LEVEL $level;\nSELECT idem_guard($id, :'tok');\n"
		  . "INSERT INTO effects VALUES ('$key phase', :att, '$who');\nSELECT ms(0, 20);\n"
		  . "SELECT idem_checkpoint($id, :'tok', 'phase', lease => '$lease ms');\nCOMMIT;\n\\endif\n";
		if (rand() >= $abandon)
		{
			my $settle = rand() < 0.8 ? 'idem_complete' : 'idem_fail';
			my $end = rand() < 0.1 ? 'ROLLBACK' : 'COMMIT';
			$sql .= "SELECT ms(0, 30);\nBEGIN ISOLATION LEVEL $level;\n"
			  . (rand() < 0.5 ? "SELECT idem_guard($id, :'tok');\n" : '')
			  . "INSERT INTO effects VALUES ('$key final', :att, '$who');\nSELECT ms(0, 20);\n"
			  . "SELECT $settle($id, token => :'tok', result => jsonb_build_object('att', :att));\n"
			  . "$end;\n";
		}
		elsif (rand() < 0.5)
		{
			$sql .= "SELECT idem_release($id, :'tok');\n";
		}
		$sql .= "\\endif\n";
	}
	return $sql;
}

sub beat_script
{
	my ($turns) = @_;
	return "\\set VERBOSITY verbose\n\\o /dev/null\n"
	  . ("SELECT idem_renew('acme', 'stress', b.key, b.tok) FROM (SELECT * FROM beats ORDER BY random() LIMIT 1) b;\nSELECT ms(0, 5);\n" x $turns);
}

sub rival_script
{
	my ($turns, $seed) = @_;
	srand $seed;
	my $sql = "\\set VERBOSITY verbose\n\\o /dev/null\n";
	foreach (1 .. $turns)
	{
		my $id = "'acme', 'stress', 's" . (1 + int rand $keys) . "'";
		# Looks, and takes a transaction-scoped claim that it gives up.
		$sql .= "SELECT * FROM idem_lookup($id);\n"
		  . "BEGIN;\nSELECT outcome FROM idem_claim($id, request => '{}', wait => '10 ms');\nSELECT ms(0, 3);\nROLLBACK;\n";
	}
	return $sql;
}

my $seed = $ENV{PG_IDEM_SEED} // time;
note("seed $seed (PG_IDEM_SEED)");
my @scripts = (
	(map { owner_script("w$_", $seed + $_, 60, 0.4) } 1 .. 8),
	beat_script(500), beat_script(500),
	rival_script(200, $seed + 100), rival_script(200, $seed + 101));
my $dsn = $node->connstr('postgres');
my $dir = PostgreSQL::Test::Utils::tempdir();
my @runs;
foreach my $sql (@scripts)
{
	my $file = "$dir/" . @runs;
	append_to_file($file, $sql);
	my ($out, $err) = ('', '');
	my $run = { out => \$out, err => \$err };
	$run->{h} = IPC::Run::start [ 'psql', '-XAtq', '-d', $dsn, '-f', $file ], '<', \undef, '>', \$out, '2>', \$err;
	push @runs, $run;
}
my %errors;
foreach my $run (@runs)
{
	$run->{h}->finish;
	$errors{$1}++ while ${ $run->{err} } =~ /(?:ERROR|FATAL|PANIC):  ([0-9A-Z]{5})/g;
	my @rest = grep { !/ERROR:  IDM0[24]|ERROR:  25P02|^(?:psql:\S+ )?(DETAIL|HINT|LOCATION|CONTEXT|QUERY|STATEMENT)|^SQL function|^PL\/pgSQL/ } split /\n/, ${ $run->{err} };
	diag(join "\n", @rest[ 0 .. ($#rest > 9 ? 9 : $#rest) ]) if @rest;
}
note('errors met: ' . join(', ', map { "$_ x $errors{$_}" } sort keys %errors));
is(join(' ', grep { !/^(IDM02|IDM04|25P02)$/ } sort keys %errors), '', 'G12: stress: the only errors are those of the dispossessed');
cmp_ok($errors{IDM02} // 0, '>', 0, 'stress: there were dispossessed owners');

# What is left over is brought to its end, as a pool would.
my $end = time + 30;
foreach my $i (1 .. $keys)
{
	while (1)
	{
		die "s$i never ends" if time > $end;
		my ($outcome, $tok, $att, $checkpoint) =
		  split /\|/, $s->ok(claim([ 'acme', 'stress', "s$i" ], request => q('{}'), lease => q('1 h'), wait => q('1 s'),
			columns => q(outcome, token, attempt, coalesce(checkpoint, ''))));
		last if $outcome =~ /completed|failed/;
		next if $outcome eq 'in_progress';
		die "s$i: $outcome" unless $outcome =~ /claimed|recovered/;
		$s->ok('BEGIN; ' . ($checkpoint ? '' : "INSERT INTO effects VALUES ('s$i phase', $att); ")
			  . "INSERT INTO effects VALUES ('s$i final', $att); "
			  . call('idem_complete', [ 'acme', 'stress', "s$i" ], token => "'$tok'", result => qq('{"att": $att}')) . '; COMMIT');
		last;
	}
}
is($s->ok(q(SELECT count(*), count(DISTINCT key) FROM idem_settled WHERE action = 'stress')), "$keys|$keys", 'G1: stress: one outcome for each operation');
is($s->ok(q(SELECT count(*) FROM idem_inflight WHERE action = 'stress')), '0', 'G1: stress: and none is open');
is( $s->ok(q(SELECT count(*), count(DISTINCT key), count(*) FILTER (WHERE key LIKE '% phase') FROM effects)),
	join('|', 2 * $keys, 2 * $keys, $keys), 'G6: stress: each business effect exactly once');
is($s->ok(q(SELECT count(*) FROM effects e JOIN idem_settled o ON e.key = o.key || ' final' AND o.action = 'stress'
		AND (o.result->>'att')::int = e.attempt AND o.attempt = e.attempt)), $keys, 'G2: stress: outcome and effect are of the same attempt');
is($s->ok("SELECT count(*) FROM pg_locks WHERE objsubid = ${\ LOCK_CLASS}"), '0', 'stress: no lock is left behind');

$s->quit;
$node->stop;
done_testing();
