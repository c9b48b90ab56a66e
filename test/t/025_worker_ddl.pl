# DDL on databases and the extension, under load, with busy workers: each succeeds within its normal time or fails cleanly.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use IPC::Run;
use PgIdemTest;
use PgIdemTest::Workers;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;
use Time::HiRes qw(time);

# Workers come and go all the time, everywhere.
my $node = new_node(
	'workerddl',
	conf => q{
	pg_idem.naptime = 10ms
	pg_idem.max_workers = 4
	max_worker_processes = 16
	max_locks_per_transaction = 256
});
my $s = session($node, dbname => 'template1');
my $normal = 6;    # seconds: DROP DATABASE and others wait 5 for the last session to go
my %took;

# Load on a database: leases left to the workers, released ones, outcomes that expire at once, messages.
my $rules = q{
	INSERT INTO idem_policies (action, retention, remember, once_retention, on_interrupt) VALUES
		('retry', '0', '100 ms', '100 ms', 'retry'), ('fail', '0', '100 ms', '100 ms', 'fail');
};
my $load = q{
	\set k random(1, 1000000000)
	SELECT outcome FROM idem_claim('acme', 'fail', 'f' || :k, request => '{}', lease => '20 ms');
	BEGIN;
	SELECT outcome FROM idem_claim('acme', 'retry', 'r' || :k, request => '{}', lease => '1 h');
	SELECT idem_release('acme', 'retry', 'r' || :k);
	COMMIT;
	BEGIN;
	SELECT outcome FROM idem_claim('acme', 'retry', 's' || :k, request => '{}');
	SELECT idem_complete('acme', 'retry', 's' || :k, result => '{}');
	COMMIT;
	SELECT idem_once('acme', 'retry', 'm' || :k);
};
my $dir = PostgreSQL::Test::Utils::tempdir();
append_to_file("$dir/load", $load);

sub start_load
{
	my ($db, @options) = @_;
	my $run = { out => '', err => '' };
	$run->{h} = IPC::Run::start [ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 3, '-j', 1, '-T', 120, @options, '-f', "$dir/load", $db ],
	  '<', \undef, '>', \$run->{out}, '2>', \$run->{err};
	return $run;
}

sub stop_load
{
	my ($run) = @_;
	$run->{h}->signal('TERM');
	eval { $run->{h}->finish };
	return;
}

sub timed
{
	my ($name, $session, $sql) = @_;
	my $state;
	my $took = seconds_until(sub { $state = $session->try($sql) });
	$took{$name} = $took if $took > ($took{$name} // 0);
	cmp_ok($took, '<', $normal, "$name: in its normal time");
	return $state;
}

my $make = sub {
	my ($db) = @_;
	$s->ok("CREATE DATABASE $db");
	my $in = session($node, dbname => $db);
	$in->ok("CREATE EXTENSION pg_idem; $rules");
	wait_until($in, q(SELECT count(*) > 0 FROM idem_worker_status WHERE database = current_database() AND passes > 0), 't', 'the workers');
	return $in;
};
my $leave = sub {
	my ($session, $key) = @_;
	my $id = [ 'acme', 'lasting', $key ];
	$session->ok('BEGIN; ' . claim($id, lease => q('1 h')) . '; ' . call('idem_release', $id) . '; COMMIT');
};
my $works = sub {
	my ($session, $key, $name) = @_;
	$leave->($session, $key);
	return ok(wait_recorded($session, "key = '$key'", "$key announced released"), "$name: the workers look after it");
};

# --- CREATE EXTENSION in a new database is noticed at once; rolled back it is not, nor is DROP EXTENSION
$s->ok('CREATE DATABASE fresh');
my $in = session($node, dbname => 'fresh');
is($in->ok(q(SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'pg_idem maintenance' AND datname = 'fresh')) =~ /^[01]$/, 1, 'a new database is asked');
$in->ok('BEGIN; CREATE EXTENSION pg_idem; ROLLBACK');
$in->ok('BEGIN; SAVEPOINT a; CREATE EXTENSION pg_idem; ROLLBACK TO a; COMMIT');
my $watch = session($node);
wait_until($watch, q(SELECT count(*) FROM idem_worker_status WHERE database = 'fresh'), '0', 'the launcher');
pass('CREATE EXTENSION rolled back: nobody looks after it');
my $took = seconds_until(sub {
	$in->ok('CREATE EXTENSION pg_idem');
	wait_until($in, q(SELECT count(*) FROM idem_worker_status WHERE database = 'fresh' AND passes > 0), '1', 'the workers');
});
cmp_ok($took, '<', 3, 'CREATE EXTENSION is noticed at once');
note(sprintf 'CREATE EXTENSION to the first pass: %.0f ms', $took * 1000);
$works->($in, 'created', 'CREATE EXTENSION');
$in->ok('BEGIN; DROP EXTENSION pg_idem; ROLLBACK');
$works->($in, 'kept', 'DROP EXTENSION rolled back');
$leave->($in, 'while it is dropped');
$in->ok('BEGIN; DROP EXTENSION pg_idem');
is($watch->ok('SELECT idem_wake_workers()'), 't', 'while it is being dropped');
$in->ok('ROLLBACK');
ok(wait_recorded($in, q(key = 'while it is dropped'), 'while it is dropped announced released'), 'and after all not: nothing is lost');
foreach my $round (1 .. 5)
{
	is(timed('DROP EXTENSION', $in, 'DROP EXTENSION pg_idem'), '', 'dropped');
	is(timed('CREATE EXTENSION', $in, 'CREATE EXTENSION pg_idem'), '', 'and created in the same session');
	$works->($in, "again-$round", "round $round");
}
is($in->try('BEGIN; DROP EXTENSION pg_idem; CREATE EXTENSION pg_idem; COMMIT'), '', 'both in one transaction');
$works->($in, 'replaced', 'both in one transaction');
$in->ok('DROP EXTENSION pg_idem');
wait_until($watch, q(SELECT count(*) FROM idem_worker_status WHERE database = 'fresh'), '0', 'the launcher');
pass('DROP EXTENSION: nobody looks after it any more');
$in->ok('CREATE SCHEMA elsewhere; CREATE EXTENSION pg_idem SCHEMA elsewhere; SET search_path = elsewhere');
$works->($in, 'elsewhere', 'in another schema');
$in->ok('ALTER SCHEMA elsewhere RENAME TO moved; SET search_path = moved');
$works->($in, 'moved', 'schema renamed');
$in->quit;

# --- DROP EXTENSION under load, again and again
$in = $make->('shop');
my $run;
my %states;
foreach my $round (1 .. 4)
{
	$run = start_load('shop');    # its clients end with an error each time
	wait_until($in, q(SELECT count(*) > 0 FROM idem_settled), 't', 'the load');
	# As with any DROP of several tables in use, either side may be the victim of a deadlock.
	my $state;
	do { $state = timed('DROP EXTENSION under load', $in, 'DROP EXTENSION pg_idem'); $states{$state}++ } while $state eq '40P01';
	is($state, '', "dropped under load, round $round");
	is(timed('CREATE EXTENSION under load', $in, 'CREATE EXTENSION pg_idem'), '', 'created again in the same session');
	$in->ok($rules);
	$works->($in, "round-$round", "round $round");
	stop_load($run);
}
note('DROP EXTENSION under load ended: ' . join(', ', map { ($_ || 'done') . " $states{$_} times" } sort keys %states));

# --- DROP OWNED by the owner of everything
$s->ok(q(CREATE ROLE landlord SUPERUSER LOGIN));
my $landlord = session($node, dbname => 'shop', user => 'landlord');
$landlord->ok('DROP EXTENSION pg_idem; CREATE EXTENSION pg_idem; ' . $rules);
$works->($landlord, 'owned', 'extension of another superuser');
$run = start_load('shop');
wait_until($landlord, q(SELECT count(*) > 0 FROM idem_settled), 't', 'the load');
my $state;
do { $state = timed('DROP OWNED under load', $landlord, 'DROP OWNED BY landlord CASCADE') } while $state eq '40P01';
is($state, '', 'DROP OWNED under load');
stop_load($run);
is($landlord->ok(q(SELECT count(*) FROM pg_extension WHERE extname = 'pg_idem')), '0', 'took the extension');
is($landlord->try('CREATE EXTENSION pg_idem'), '', 'and it can be created again in the same session');
$landlord->ok($rules);
$works->($landlord, 'owned again', 'after DROP OWNED');
$landlord->quit;

# --- ALTER EXTENSION UPDATE: another version made here, next to the installed one
my $share = $node->config_data('--sharedir') . '/extension';
SKIP:
{
	skip 'the installation cannot be written to', 4 unless -w $share;
	unlink "$share/pg_idem--1.0--test.sql", "$share/pg_idem--test--1.0.sql";
	append_to_file("$share/pg_idem--1.0--test.sql", "CREATE FUNCTION idem_test_version() RETURNS integer LANGUAGE sql AS 'SELECT 2';\nALTER TABLE idem_policies ADD future text;\n");
	append_to_file("$share/pg_idem--test--1.0.sql", "ALTER TABLE idem_policies DROP future;\nDROP FUNCTION idem_test_version();\n");
	$run = start_load('shop');
	foreach my $round (1 .. 5)
	{
		is(timed('ALTER EXTENSION UPDATE', $in, q(ALTER EXTENSION pg_idem UPDATE TO 'test')), '', "updated under load, round $round");
		$works->($in, "updated-$round", 'updated');
		is(timed('ALTER EXTENSION UPDATE', $in, q(ALTER EXTENSION pg_idem UPDATE TO '1.0')), '', 'and back');
	}
	$run->{h}->pump_nb;
	ok($run->{h}->pumpable, 'the load went on') or diag($run->{err});
	stop_load($run);
	unlink "$share/pg_idem--1.0--test.sql", "$share/pg_idem--test--1.0.sql";
}
is(timed('ALTER EXTENSION UPDATE', $in, 'ALTER EXTENSION pg_idem UPDATE'), '', 'nothing to update');
$in->quit;

# --- databases: copied, renamed, dropped, while workers are in them all the time
foreach my $round (1 .. 2)
{
	my $db = "trade$round";
	$in = $make->($db);
	my ($out, $err) = ('', '');
	# Some load, which has to be gone before: a database with sessions can be neither copied, renamed nor dropped.
	IPC::Run::run [ 'pgbench', '-n', '-h', $node->host, '-p', $node->port, '-c', 3, '-j', 1, '-t', 40, '-f', "$dir/load", $db ], '<', \undef, '>', \$out, '2>', \$err;
	is($? >> 8, 0, "load of $db") or diag($err);
	# Leases that end while the database is copied: the workers have something to do in it all the time.
	$in->ok(claim([ 'acme', 'fail', "late-$_" ], lease => "'$_ ms'")) foreach map { $_ * 20 } 1 .. 100;
	$in->quit;
	is(timed('CREATE DATABASE TEMPLATE', $s, "CREATE DATABASE copy$round TEMPLATE $db"), '', "$db copied with workers in it") or diag($s->err);
	is(timed('ALTER DATABASE RENAME', $s, "ALTER DATABASE $db RENAME TO renamed$round"), '', "$db renamed") or diag($s->err);
	my $copy = session($node, dbname => "copy$round");
	$works->($copy, 'in the copy', 'copy');
	$copy->quit;
	my $renamed = session($node, dbname => "renamed$round");
	$works->($renamed, 'renamed', 'renamed database');
	is($renamed->ok("SELECT count(*) FROM idem_worker_status WHERE database = 'renamed$round'"), '1', 'idem_worker_status knows the new name');
	$renamed->quit;
	is(timed('DROP DATABASE', $s, "DROP DATABASE renamed$round"), '', 'dropped') or diag($s->err);
	$run = start_load("copy$round");
	$copy = session($node, dbname => "copy$round");
	wait_until($copy, q(SELECT count(*) > 0 FROM idem_settled), 't', 'the load');
	is(timed('DROP DATABASE in use', $s, "DROP DATABASE copy$round"), '55006', 'a database in use is not dropped') if $round == 1;
	is(timed('DROP DATABASE FORCE', $s, "DROP DATABASE copy$round WITH (FORCE)"), '', 'by force it is') or diag($s->err);
	stop_load($run);
	$copy->quit;
}

# The same where a worker always has more to do than it can in its two seconds.
$in = $make->('busy');
$in->ok(q(INSERT INTO idem_settled SELECT now() - '2 days'::interval, now() - '1 day'::interval, now() - '1 hour'::interval, NULL, 1, NULL, true, false,
	'acme', 'old', n::text, NULL, NULL, '{}', NULL, NULL FROM generate_series(1, 400000) n; SELECT pg_reload_conf()));
wait_until($in, q(SELECT last_rows > 0 FROM idem_worker_status WHERE database = 'busy'), 't', 'the sweeper');
$in->quit;
is(timed('CREATE DATABASE TEMPLATE, busy', $s, 'CREATE DATABASE busy2 TEMPLATE busy'), '', 'copied while the sweeper has work for many passes') or diag($s->err);
is(timed('ALTER DATABASE RENAME, busy', $s, 'ALTER DATABASE busy RENAME TO busy1'), '', 'renamed') or diag($s->err);
$in = session($node, dbname => 'busy1');
my $rest = $in->ok(q(SELECT count(*) FROM idem_settled WHERE action = 'old'));
cmp_ok($rest, '>', 0, "$rest rows are left: it still had work");
$in->quit;
is(timed('DROP DATABASE, busy', $s, "DROP DATABASE $_"), '', "$_ dropped") or diag($s->err) foreach qw(busy1 busy2);

wait_until($watch, q(SELECT count(*) FROM idem_worker_status WHERE database IS NULL OR database LIKE 'copy%' OR database LIKE 'renamed%' OR database LIKE 'busy%'), '0', 'the launcher');
pass('what was dropped is forgotten');
is($watch->ok(q(SELECT count(*) FROM idem_worker_status WHERE last_error IS NOT NULL)), '0', 'no pass had an error') or diag($watch->ok('SELECT * FROM idem_worker_status'));
$works->($watch, 'after all', 'the first database');
note(sprintf '%s: %.0f ms at most', $_, $took{$_} * 1000) foreach sort keys %took;
unlike(slurp_file($node->logfile), qr/PANIC|TRAP:|terminated by signal/, 'nothing crashed');
$_->quit foreach $s, $watch;
$node->stop;
done_testing();
