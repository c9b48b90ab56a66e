# idem_doctor on servers of other kinds: settings, locks held for long, standbys, what it may not wait for. What can be
# staged in one session is in sql/doctor.sql.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

# status and detail of one check
sub doctor
{
	my ($s, $check) = @_;
	return $s->ok("SELECT status || ': ' || detail FROM idem_doctor() WHERE check_name = '$check'");
}

sub no_failures
{
	my ($s, $name) = @_;
	is($s->ok(q(SELECT check_name, detail FROM idem_doctor() WHERE starts_with(detail, 'cannot'))), '', "$name: every check can be made");
	return;
}

# --- as weak as can be
my $weak = new_node(
	'weak',
	preload => 0,
	conf => q(
		fsync = off
		full_page_writes = off
		synchronous_commit = off
		pg_idem.force_sync_commit = off
		wal_level = minimal
		max_wal_senders = 0
		autovacuum = off
		max_connections = 12
		max_worker_processes = 2
		max_locks_per_transaction = 10
		pg_idem.idle_claim_timeout = 0
		pg_idem.account_from = 'role'
	));
my $s = session($weak);
foreach my $case (
	[ fsync => 'critical', 'fsync is off' ],
	[ full_page_writes => 'critical', 'full_page_writes is off' ],
	[ synchronous_commit => 'warning', 'synchronous_commit and pg_idem.force_sync_commit are off' ],
	[ wal_level => 'info', 'wal_level is minimal' ],
	[ standbys => 'ok', 'no standby' ],
	[ preload => 'warning', 'pg_idem is not in shared_preload_libraries' ],
	[ account_from => 'warning', 'pg_idem.account_from is set, but pg_idem is not preloaded' ],
	[ idle_claims => 'warning', 'nothing ends a session that idles' ],
	[ client_connection => 'info', 'client_connection_check_interval is 0' ],
	[ lock_table => 'warning', 'one transaction may make 1000 claims' ],
	[ worker => 'warning', 'no background worker runs, as pg_idem is not preloaded' ],
	[ worker_pass => 'ok', 'no worker is expected' ],
	[ worker_slots => 'ok', 'max_worker_processes is 2' ],
	[ autovacuum => 'warning', 'autovacuum does not run' ])
{
	my ($check, $status, $detail) = @$case;
	like(doctor($s, $check), qr/^\Q$status: $detail\E/, "weak server: $check");
}
is($s->ok('SELECT count(*) FROM idem_doctor() WHERE advice IS NULL AND status <> ' . q('ok')), '0', 'weak server: every finding has its advice');
my $forged = session($weak, options => '-c pg_idem.account_from=argument');
like(doctor($forged, 'account_from'), qr/^critical: pg_idem.account_from was given by the client/, 'account_from: forged');
$forged->quit;

# The lock table fills up
$s->quit;
$weak->append_conf('postgresql.conf', "pg_idem.account_from = 'argument'\npg_idem.max_claims_per_transaction = 50");
$weak->restart;
$s = session($weak);
no_failures($s, 'weak server');
my $holder = session($weak);
my ($entries) = doctor($s, 'lock_table') =~ /^ok: claims take 0 of about (\d+) entries/ or die 'no size of the lock table';
$holder->ok('SET pg_idem.max_claims_per_transaction = 10000');
my $claimed = 0;
my $fill = sub {
	my ($share) = @_;
	my $until = int($entries * $share);
	$holder->ok("SELECT count(c.outcome) FROM generate_series($claimed + 1, $until) AS i, idem_claim('acme', 'pay', 'k' || i, request => '{}') AS c");
	$claimed = $until;
};
$holder->ok('BEGIN');
$fill->(0.4);
is(doctor($s, 'lock_table'), "ok: claims take $claimed of about $entries entries of the lock table", 'lock table: less than half');
$fill->(0.6);
is(doctor($s, 'lock_table'), "warning: claims take $claimed of about $entries entries of the lock table", 'lock table: over half');
$fill->(0.85);
is(doctor($s, 'lock_table'), "critical: claims take $claimed of about $entries entries of the lock table", 'lock table: nearly full');
$holder->ok('ROLLBACK');
like(doctor($s, 'lock_table'), qr/^ok: claims take 0/, 'lock table: free again');
$_->quit foreach $s, $holder;
$weak->stop;

# --- as it should be
my $node = new_node(
	'sound',
	init => [ allows_streaming => 'logical' ],
	conf => q(
		fsync = on
		max_prepared_transactions = 10
		client_connection_check_interval = '10s'
		pg_idem.account_from = 'role'
	));
$s = session($node);
wait_until($s, q(SELECT passes > 0 FROM idem_worker_status WHERE database = 'postgres'));
is($s->ok(q(SELECT check_name, status, detail FROM idem_doctor() WHERE status <> 'ok')), '', 'a sound server: nothing is found');
is(doctor($s, 'worker'), 'ok: the launcher of the background workers runs', 'worker: runs');
is(doctor($s, 'worker_pass'), 'ok: the workers go through this database', 'worker_pass: one has been made');
is(doctor($s, 'worker_slots'), 'ok: max_worker_processes is 8', 'worker_slots: enough');
$node->append_conf('postgresql.conf', q(pg_idem.account_from = 'argument'));
$node->reload;
wait_until($s, 'SHOW pg_idem.account_from', 'argument');
is(doctor($s, 'account_from'), 'ok: pg_idem.account_from is argument', 'account_from: as everybody has it');

# A pass meets an error
$s->ok('ALTER TABLE idem_seen SET UNLOGGED; SELECT idem_wake_workers()');
wait_until($s, q(SELECT last_error IS NOT NULL AND worker_pid IS NULL FROM idem_worker_status WHERE database = 'postgres'));
my $error = $s->ok(q(SELECT last_error FROM idem_worker_status WHERE database = 'postgres'));
like($error, qr/idem_seen/, 'worker_pass: an error that tells of the table');
$s->ok('ALTER TABLE idem_seen SET LOGGED');
is(doctor($s, 'worker_pass'), "warning: the last error of a pass over this database: $error", 'worker_pass: an error');

# Switched off, and left so: a worker that looks at dead rows further below would prune some of them
switch_workers($node, $s, 'off');
is( $s->ok(q(SELECT status, detail FROM idem_doctor() WHERE check_name = 'worker')),
	'warning|the background workers are switched off: interrupted operations wait for a claim, and nothing is forgotten',
	'worker: switched off');
is(doctor($s, 'worker_pass'), 'ok: no worker is expected', 'worker_pass: switched off');

# Who may ask, and see what
$s->ok(
	q{
	CREATE ROLE guest LOGIN; CREATE ROLE monitor LOGIN IN ROLE pg_monitor;
	GRANT EXECUTE ON FUNCTION idem_doctor TO guest, monitor;
});
my $guest = session($node, user => 'guest');
my $monitor = session($node, user => 'monitor');
no_failures($guest, 'with EXECUTE alone');
no_failures($monitor, 'with pg_monitor');
my $later = sub {
	my ($time) = @_;
	return "SELECT set_config('pg_idem.test_now', (clock_timestamp() + interval '$time')::text, false)";
};

# Transactions prepared long ago: the test clock makes them old
my $p = session($node);
$p->ok('BEGIN; ' . claim("p$_") . '; ' . call('idem_complete', "p$_")) foreach 1 .. 3;
$p->ok(q(PREPARE TRANSACTION 'old'));
$p->ok(q(BEGIN; INSERT INTO effects VALUES ('other'); PREPARE TRANSACTION 'without claims'));
is(doctor($s, 'prepared_transactions'), 'ok: no transaction prepared over an hour ago holds an operation', 'prepared transactions: a recent one');
$s->ok($later->('2 hours'));
like(doctor($s, 'prepared_transactions'), qr/^warning: transaction "old" of \w+, prepared [^\n]*, holds 3 operation\(s\)\z/, 'prepared transactions: an old one');
$p->ok('CREATE DATABASE other');
my $o = session($node, dbname => 'other');
$o->ok('CREATE EXTENSION pg_idem; ' . $later->('2 hours'));
is(doctor($o, 'prepared_transactions'), 'ok: no transaction prepared over an hour ago holds an operation', 'prepared transactions: of another database');
$_->quit foreach $o, $s, $guest, $monitor, $p;
$node->restart;
$s = session($node);
$s->ok($later->('2 hours'));
like(doctor($s, 'prepared_transactions'), qr/^warning: transaction "old"/, 'prepared transactions: recovered after a restart');
$s->ok(q(COMMIT PREPARED 'old'));
like(doctor($s, 'prepared_transactions'), qr/^ok/, 'prepared transactions: ended');
$s->ok(q(ROLLBACK PREPARED 'without claims'));

# Long transactions: who may not see other sessions is told so
$s->ok('RESET pg_idem.test_now');
$p = session($node);
$p->ok('BEGIN; ' . claim('open') . '; ' . claim('open too'));
is(doctor($s, 'long_transactions'), 'ok: no transaction open for over five minutes holds an operation', 'long transactions: a young one');
$s->ok($later->('6 minutes'));
my $long = 'warning: session ' . $p->pid . ' of \w+ \(idle in transaction\), in a transaction since [^\n]*, holds 2 operation\(s\)';
like(doctor($s, 'long_transactions'), qr/^$long\z/, 'long transactions: an old one');
$s->ok(q(ALTER ROLE guest SET pg_idem.test_now = '2100-01-01 00:00:00+00'; ALTER ROLE monitor SET pg_idem.test_now = '2100-01-01 00:00:00+00'));
$guest = session($node, user => 'guest');
$monitor = session($node, user => 'monitor');
is(doctor($guest, 'long_transactions'), 'info: 1 session(s) hold operations, since when cannot be seen', 'long transactions: with EXECUTE alone');
like(doctor($monitor, 'long_transactions'), qr/^$long\z/, 'long transactions: with pg_monitor');
$p->ok('ROLLBACK; BEGIN; SELECT 1');
like(doctor($s, 'long_transactions'), qr/^ok/, 'long transactions: one without claims');
$p->ok('ROLLBACK; BEGIN; SELECT * FROM idem_maintain()');
like(doctor($s, 'long_transactions'), qr/^warning: .* holds 0 operation\(s\) and keeps every other pass away\z/, 'long transactions: one with idem_maintain');
$p->ok('ROLLBACK');
$s->ok('RESET pg_idem.test_now');

# It waits for nobody, and says what it could not look at
$p->ok('BEGIN; LOCK TABLE idem_policies, idem_inflight, idem_settled, idem_seen, pg_catalog.pg_publication IN ACCESS EXCLUSIVE MODE');
foreach my $check (qw(review retention handler published tables))
{
	is(doctor($s, $check), 'info: cannot be checked: canceling statement due to lock timeout', "does not wait: $check");
}
is(doctor($s, 'fsync'), 'ok: fsync is on', 'does not wait: the others are made');
is($s->ok('SHOW lock_timeout'), '0', 'does not wait: the setting is as it was');
$p->ok('ROLLBACK');
no_failures($s, 'after that');
# A cancelled call is cancelled
$s->ok('BEGIN; SAVEPOINT a');
$s->ok(q(SET LOCAL statement_timeout = '1ms'));
is($s->try(q(SELECT count(d) FROM generate_series(1, 1000), idem_doctor() AS d)), '57014', 'a cancelled call raises');
$s->ok('ROLLBACK TO a');
is($s->ok('SELECT count(*) > 20 FROM idem_doctor()'), 't', 'and the next one answers');
$s->ok('ROLLBACK');

# A clock that cannot be read (in the file nobody looks at it) stops nothing but what needs one
$node->append_conf('postgresql.conf', q(pg_idem.test_now = 'no time'));
$node->reload;
$s->ok('RESET pg_idem.test_now');
wait_until($s, 'SHOW pg_idem.test_now', 'no time');
like(doctor($s, 'test_now'), qr/^critical: pg_idem.test_now is set: "no time"/, 'test_now: not even a time');
is( $s->ok(q(SELECT check_name, status FROM idem_doctor() WHERE starts_with(detail, 'cannot'))),
	"prepared_transactions|info\nlong_transactions|info\neffects|info",
	'test_now: what needs the clock says so');
$node->append_conf('postgresql.conf', q(pg_idem.test_now = ''));
$node->reload;
wait_until($s, 'SHOW pg_idem.test_now', '');

# Dead rows that nobody vacuums
$s->ok(
	q{
	ALTER TABLE idem_seen SET (autovacuum_enabled = off);
	INSERT INTO idem_seen (seen_at, forget_at, account, action, key) SELECT now(), now(), 'acme', 'mail', i::text FROM generate_series(1, 120000) i;
	DELETE FROM idem_seen;
});
wait_until($s, q(SELECT pg_stat_get_dead_tuples('idem_seen'::regclass) FROM pg_stat_force_next_flush()), '120000');
is(doctor($s, 'vacuum'), 'warning: table idem_seen has 120000 dead rows and 0 live ones, last vacuumed: never', 'vacuum: many dead rows');
is(doctor($s, 'autovacuum'), 'warning: autovacuum is off for table idem_seen', 'autovacuum: off for a table');
$s->ok('VACUUM idem_seen');
wait_until($s, q(SELECT pg_stat_get_dead_tuples('idem_seen'::regclass)), '0');
is(doctor($s, 'vacuum'), 'ok: dead rows are vacuumed', 'vacuum: done');
$s->ok('ALTER TABLE idem_seen RESET (autovacuum_enabled)');

# Published for real
$s->ok('CREATE PUBLICATION everything FOR ALL TABLES');
is(doctor($s, 'published'), 'warning: publication "everything" (FOR ALL TABLES) publishes idem_effect_calls, idem_inflight, idem_seen, idem_settled', 'published');
$s->ok('DROP PUBLICATION everything');
like(doctor($s, 'published'), qr/^ok/, 'published no more');

# --- a standby
$node->backup('base');
my $standby = PostgreSQL::Test::Cluster->new('standby');
$standby->init_from_backup($node, 'base', has_streaming => 1);
$standby->append_conf('postgresql.conf', 'pg_idem.worker = on');
$standby->start;
$s->ok(claim('leased', lease => q('1 h')));
$s->ok('BEGIN; ' . claim('prepared') . '; ' . call('idem_complete', 'prepared') . q(; PREPARE TRANSACTION 'p'));
$node->wait_for_catchup($standby, 'replay', $node->lsn('insert'));
wait_until($s, q(SELECT count(*) FROM pg_stat_replication), '1');
like(doctor($s, 'standbys'), qr/^info: 1 replication connection\(s\), and synchronous_standby_names is empty/, 'standbys: none is synchronous');
is(doctor($guest, 'standbys'), doctor($s, 'standbys'), 'standbys: seen with EXECUTE alone');
$node->append_conf('postgresql.conf', q(synchronous_standby_names = 'standby'));
$node->reload;
wait_until($s, 'SHOW synchronous_standby_names', 'standby');
is(doctor($s, 'standbys'), 'ok: synchronous standbys are named', 'standbys: named');
$s->ok('SET pg_idem.force_sync_commit = off');
foreach my $level (qw(local remote_write))
{
	$s->ok("SET synchronous_commit = $level");
	like(doctor($s, 'synchronous_commit'), qr/^warning: synchronous standbys are named, but synchronous_commit is $level/, "synchronous_commit: $level");
}
$s->ok('RESET synchronous_commit; RESET pg_idem.force_sync_commit');
my $on_standby = session($standby);
like(doctor($on_standby, 'standbys'), qr/^info: this server is a standby/, 'standby: told so');
no_failures($on_standby, 'standby');
is( $on_standby->ok(q(SELECT check_name, status, detail FROM idem_doctor() WHERE check_name LIKE 'worker%')),
	"worker|ok|on a standby no worker runs\nworker_pass|ok|no worker is expected\nworker_slots|ok|max_worker_processes is 8",
	'standby: no worker is expected');
is($on_standby->ok(q(BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT count(*) FROM idem_doctor() WHERE status = 'critical'; COMMIT)), '0', 'standby: at REPEATABLE READ');
$_->quit foreach $s, $p, $guest, $monitor;
$node->stop;
$standby->promote;
wait_until($on_standby, q(SELECT status || ': ' || detail FROM idem_doctor() WHERE check_name = 'worker_pass'), 'ok: the workers go through this database');
is(doctor($on_standby, 'worker'), 'ok: the launcher of the background workers runs', 'promoted: the workers run');
$on_standby->quit;
$standby->stop;

# --- no room for the launcher
my $full = new_node('full', conf => 'max_worker_processes = 0');
$s = session($full);
is( $s->ok(q(SELECT check_name, status, detail FROM idem_doctor() WHERE check_name LIKE 'worker%')),
	join("\n",
		'worker|critical|the launcher of the background workers does not run',
		'worker_pass|warning|no worker has been through this database yet',
		'worker_slots|warning|max_worker_processes is 0, but pg_idem may want 4'),
	'no room for the launcher');
$s->quit;
$full->stop;
done_testing();
