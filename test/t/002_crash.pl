# Crashes at every step of a claim's life: of one backend (all sessions go) and of the whole server.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(usleep);

# The WAL writer sleeps, so that a commit with synchronous_commit = off is lost in a crash unless something forces it.
my $node = new_node(
	'crash',
	conf => q{
	restart_after_crash = on
	synchronous_commit = off
	wal_writer_delay = 10s
	autovacuum = off
	max_prepared_transactions = 10
	pg_idem.max_claims_per_transaction = 1000
});

sub wait_for_start
{
	for (1 .. 600)
	{
		return if $node->psql('postgres', 'SELECT 1') == 0;
		usleep(100_000);
	}
	die 'the server did not come back';
}

my %crash = (
	'backend killed' => sub {
		my ($victim) = @_;
		kill 'KILL', $victim->pid;
		$victim->send('SELECT 1')->get;
		wait_for_start();
	},
	'immediate shutdown' => sub { $node->stop('immediate'); $node->start; },
	'postmaster killed' => sub {
		kill9($node);
		$node->start;
	});

# Whether a commit is on disk when its answer comes.
sub durable
{
	my ($s, $sql) = @_;
	$s->ok("BEGIN; $sql");
	my $lsn = $s->ok('SELECT pg_current_wal_insert_lsn()');
	$s->ok('COMMIT');
	return $s->ok("SELECT pg_current_wal_flush_lsn() > '$lsn'");
}

my $s = session($node);
my $lazy = 0;
for (1 .. 10)
{
	$lazy ||= durable($s, q(INSERT INTO effects VALUES ('control'))) eq 'f';
}
ok($lazy, 'control: a commit without us is not on disk');
my $token = '11111111-1111-1111-1111-111111111111';
my @durable = (
	'leased claim' => claim('d1', lease => q('1 h'), token => "'$token'"),
	'checkpoint' => call('idem_checkpoint', 'd1', token => "'$token'", checkpoint => q('half')),
	'settlement of a leased claim' => call('idem_complete', 'd1', token => "'$token'"),
	'settlement' => claim('d2') . '; ' . call('idem_complete', 'd2'),
	'failure' => claim('d3') . '; ' . call('idem_fail', 'd3'),
	'settlement after a savepoint was rolled back' => 'SAVEPOINT a; ROLLBACK TO a; ' . claim('d4') . '; ' . call('idem_complete', 'd4'),
	'settlement in a savepoint' => claim('d5') . '; SAVEPOINT a; ' . call('idem_complete', 'd5') . '; RELEASE a',
	'message' => call('idem_once', 'd6'),
	'batch of messages' => q{SELECT * FROM idem_once_batch('acme', 'pay', '{d7, d8}')});
while (my ($name, $sql) = splice @durable, 0, 2)
{
	is(durable($s, $sql), 't', "G2: $name is on disk when COMMIT answers, although synchronous_commit is off");
}
$s->ok('BEGIN; SET pg_idem.force_sync_commit = off; ' . claim('d9') . '; ' . call('idem_complete', 'd9') . '; COMMIT');
pass('force_sync_commit can be switched off by a superuser');
$s->quit;

foreach my $how ('backend killed', 'immediate shutdown', 'postmaster killed')
{
	(my $p = $how) =~ s/\W//g;
	my $key = sub { "$p-$_[0]" };
	my $k = sub { $key->($_[0]) };
	my $main = session($node);
	my %open;
	my $open = sub {
		my ($name, @sql) = @_;
		$open{$name} = session($node);
		$open{$name}->ok("BEGIN; $_") foreach shift @sql;
		$open{$name}->ok($_) foreach @sql;
	};
	my $effect = sub { my $n = $k->($_[0]); "INSERT INTO effects VALUES ('$n')" };
	my $lease = sub { claim($k->($_[0]), lease => q('1 h'), token => "'$token'") };
	my $own = sub { my ($f, $n, %named) = @_; call($f, $k->($n), token => "'$token'", %named) };

	# Committed leased claims of every later step
	$main->ok($lease->($_)) foreach qw(leased guarded ckpt ckpt_open lsettle_open lsettled lprep);
	$main->ok(claim($k->('bound'), lease => q('1 h'), session_bound => 'true'));
	$main->ok($own->('idem_checkpoint', 'ckpt', checkpoint => q('c1'), progress => q('{"n": 1}')));
	# Open transactions
	$open->('claimed', claim($k->('claimed')), $effect->('claimed'));
	$open->('leased_open', $lease->('leased_open'), $effect->('leased_open'));
	$open->('guarded', $own->('idem_guard', 'guarded'), $effect->('guarded'));
	$open->('ckpt_open', $own->('idem_checkpoint', 'ckpt_open', checkpoint => q('c1')), $effect->('ckpt_open'));
	$open->('settled_open', claim($k->('settled_open')), $effect->('settled_open'), call('idem_complete', $k->('settled_open')));
	$open->('lsettle_open', $effect->('lsettle_open'), $own->('idem_complete', 'lsettle_open'));
	$open->('once_open', call('idem_once', $k->('once_open')), $effect->('once_open'));
	# Prepared transactions
	$main->ok('BEGIN; ' . claim($k->('prep')));
	$main->ok($effect->('prep') . '; ' . call('idem_complete', $k->('prep'), result => q('"prepared"')));
	$main->ok("PREPARE TRANSACTION '$p-1'");
	$main->ok('BEGIN; ' . $own->('idem_complete', 'lprep', result => q('"prepared"')));
	$main->ok($effect->('lprep') . "; PREPARE TRANSACTION '$p-2'");
	# Settled, and nothing after it that could flush the log
	$main->ok('BEGIN; ' . call('idem_once', $k->('once')) . '; ' . $effect->('once') . '; COMMIT');
	$main->ok('BEGIN; ' . $effect->('lsettled') . '; ' . $own->('idem_complete', 'lsettled', result => q('"l"')) . '; COMMIT');
	$main->ok('BEGIN; ' . claim($k->('failed')) . '; ' . $effect->('failed') . '; '
		  . call('idem_fail', $k->('failed'), status => 402, body => q('no money')) . '; COMMIT');
	$main->ok('BEGIN; ' . claim($k->('settled')) . '; ' . $effect->('settled') . '; '
		  . call('idem_complete', $k->('settled'), result => q('{"ok": true}'), status => 201) . '; COMMIT');
	$crash{$how}->($main);

	my $after = session($node);
	my $look = sub { my ($name, $columns) = @_; $after->ok(call('idem_lookup', $k->($name), columns => $columns // 'state')) };
	my $ask = sub { my ($name, $columns) = @_; $after->ok(claim($k->($name), columns => $columns // 'outcome')) };

	is($ask->('settled', 'outcome, result, status'), 'completed|{"ok": true}|201', "G2: $how: settled just before, replayed");
	is($ask->('failed', 'outcome, status, body'), 'failed|402|no money', "G3: $how: failure replayed");
	is($ask->('lsettled', 'outcome, result'), 'completed|"l"', "G2: $how: leased and settled, replayed");
	is($after->try($own->('idem_complete', 'lsettled')), 'IDM04', "G2: $how: sent again it is refused");
	is($after->ok(call('idem_once', $k->('once'))), 'f', "G10: $how: message is known");
	is($after->ok(call('idem_once', $k->('once_open'))), 't', "G10: $how: message of a lost transaction is new");

	foreach my $name (qw(claimed leased_open settled_open))
	{
		is($look->($name), '', "G1: $how: $name: nothing there");
		is($after->ok('BEGIN; ' . claim($k->($name)) . '; ' . call('idem_release', $k->($name), columns => 'r') . '; COMMIT'),
			"claimed\nt", "G1: $how: $name: free");
	}
	foreach my $name (qw(leased guarded ckpt ckpt_open lsettle_open))
	{
		is($look->($name, q(state, attempt, coalesce(checkpoint, '-'))),
			'in_progress|1|' . ($name eq 'ckpt' ? 'c1' : '-'), "G1: $how: $name: still leased");
		is($ask->($name), 'in_progress', "G1: $how: $name: nobody else gets it");
		is($after->ok($own->('idem_guard', $name, columns => 'r > now()')), 't', "G6: $how: $name: its token is good");
	}
	is($after->ok(claim($k->('bound'), lease => q('1 h'), columns => 'outcome, attempt')), 'recovered|2', "G5: $how: session-bound claim is free at once");

	is($after->ok(q(SELECT count(*) FROM pg_prepared_xacts)), '2', 'prepared transactions are there');
	is($look->('prep', 'state, owner'), 'in_progress|prepared transaction', "G8: $how: prepared settlement is not absent");
	is($ask->('prep', 'outcome, holder'), 'in_progress|prepared transaction', "G1: $how: prepared claim is held");
	is($ask->('lprep'), 'in_progress', "G1: $how: prepared settlement of a lease is held");
	is($after->try('SET lock_timeout = 100; ' . $own->('idem_guard', 'lprep')), '55P03', "G1: $how: its owner waits for it");
	$after->ok("RESET lock_timeout; COMMIT PREPARED '$p-1'; COMMIT PREPARED '$p-2'");
	is($ask->($_, 'outcome, result'), 'completed|"prepared"', "G1: $how: $_: committed and replayed") foreach qw(prep lprep);

	is( $after->ok("SELECT string_agg(key, ' ' ORDER BY key COLLATE \"C\") FROM effects WHERE key LIKE '$p-%'"),
		join(' ', map { $k->($_) } qw(failed lprep lsettled once prep settled)),
		"G2: $how: business changes are there exactly where the outcome is");
	$after->ok($own->('idem_complete', $_)) foreach qw(leased guarded ckpt ckpt_open lsettle_open);
	$after->quit;
}

$node->stop;
done_testing();
