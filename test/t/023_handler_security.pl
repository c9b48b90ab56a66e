# A handler can do what its role can, whatever it tries; maintenance never runs the code of others as superuser; who may write
# idem_policies cannot become another role.
use strict;
use warnings;

use FindBin;
use lib "$FindBin::RealBin/../perl";

use PgIdemTest;
use PgIdemTest::Workers;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Test::More;

my $node = new_node(
	'security',
	init => [ allows_streaming => 'logical' ],
	conf => q{
	autovacuum = off
	pg_idem.naptime = 50ms
});
my $s = session($node);
my $token = '23232323-2323-2323-2323-232323232323';
$s->ok(policies());

sub leave
{
	my ($action, $key) = @_;
	my $id = [ 'acme', $action, $key ];
	$s->ok('BEGIN; ' . claim($id, request => qq('{"id": "$key"}'), lease => q('1 h'), token => "'$token'")
		  . '; ' . call('idem_release', $id, token => "'$token'") . '; COMMIT');
	return;
}
my $last_error = sub { my ($key) = @_; $s->ok("SELECT last_error FROM idempotent_operations WHERE key = '$key'") };

# --- a weak role, which owns a schema and may create in that of the extension; a rich one; traps wherever it may lay them
my $mark = PostgreSQL::Test::Utils::tempdir() . '/mark';
$s->ok(q{
	CREATE ROLE weak LOGIN;
	CREATE ROLE rich LOGIN;
	CREATE SCHEMA weak AUTHORIZATION weak;
	CREATE SCHEMA rich AUTHORIZATION rich;
	CREATE TABLE rich.secret AS SELECT 'gold' AS what;
	ALTER TABLE rich.secret OWNER TO rich;
	GRANT USAGE ON SCHEMA rich TO PUBLIC;
	GRANT CREATE, USAGE ON SCHEMA public TO weak;
	GRANT EXECUTE ON FUNCTION idem_current() TO weak;
	INSERT INTO idem_policies (action, on_interrupt, handler, handler_role, keep_request, retry_backoff)
		VALUES ('try', 'call', 'weak.try_all', 'weak', true, '1 h');
});
my $weak = session($node, user => 'weak');
$weak->ok(q{
	CREATE TABLE weak.trap (what text, as_user text DEFAULT current_user, as_session text DEFAULT session_user);
	GRANT INSERT ON weak.trap TO PUBLIC;
	GRANT USAGE ON SCHEMA weak TO PUBLIC;
	CREATE TABLE weak.log (n int, sql text, state text, message text, as_user text DEFAULT current_user, as_session text DEFAULT session_user,
		superuser text DEFAULT current_setting('is_superuser'));
	CREATE TABLE weak.attempts (n serial, sql text);
	CREATE FUNCTION weak.try_all(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
	DECLARE a record;
	BEGIN
		FOR a IN SELECT * FROM weak.attempts ORDER BY n LOOP
			BEGIN
				EXECUTE a.sql;
				INSERT INTO weak.log VALUES (a.n, a.sql, '00000', '');
			EXCEPTION WHEN OTHERS THEN
				INSERT INTO weak.log VALUES (a.n, a.sql, SQLSTATE, SQLERRM);
			END;
		END LOOP;
		RETURN jsonb_build_object('user', current_user, 'session', session_user);
	END $$;
	ALTER ROLE weak SET search_path = weak, public, pg_temp, pg_catalog;
});
# Traps: whoever meets one leaves his name.
foreach my $schema (qw(weak public))
{
	foreach my $type (qw(text timestamptz jsonb bytea uuid int4))
	{
		$weak->ok(qq{
			CREATE FUNCTION $schema.trap_$type($type, $type) RETURNS boolean LANGUAGE plpgsql AS
				'BEGIN INSERT INTO weak.trap (what) VALUES (''operator on $type''); RETURN true; END'});
		$weak->ok("CREATE OPERATOR $schema.$_ (LEFTARG = $type, RIGHTARG = $type, FUNCTION = $schema.trap_$type)") foreach '=', '<', '<=', '>', '>=', '<>';
	}
	foreach my $function ('now()', 'clock_timestamp()', 'octet_length(text)', 'pg_notify(text, text)', 'count(text)', 'idem_claim(text, text, text, jsonb)',
		'idem_complete(text, text, text)', 'idem_now()', 'idem_policies_check(text)', 'jsonb_in(cstring)')
	{
		next if $schema eq 'public' && $function eq 'idem_now()';    # it is there
		$weak->ok(qq{CREATE FUNCTION $schema.$function RETURNS text LANGUAGE plpgsql AS
			'BEGIN INSERT INTO weak.trap (what) VALUES (''function $function''); RETURN NULL; END'}) unless $function =~ /cstring/;
	}
}
$weak->ok(q{
	CREATE TABLE weak.idem_settled (account text, action text, key text, result jsonb);
	CREATE TABLE weak.idem_inflight (account text, action text, key text);
	CREATE TABLE weak.idem_policies (action text, handler text, handler_role text);
	INSERT INTO weak.idem_policies VALUES ('try', 'weak.try_all', 'postgres');
	CREATE TABLE public.pg_class (oid oid, relname text);
	CREATE TABLE public.pg_extension (oid oid, extname text, extnamespace oid);
});

# --- what it tries: the SQLSTATEs with which it may end
my $launcher = launcher_pid($s);
my @denied = (
	'SET ROLE rich', 'SET ROLE postgres', 'SET LOCAL ROLE postgres', 'SET SESSION AUTHORIZATION rich', 'SET SESSION AUTHORIZATION postgres',
	q(SELECT set_config('role', 'postgres', false)), q(SELECT set_config('session_authorization', 'postgres', true)),
	q(SELECT set_config('is_superuser', 'on', true)),
	'SELECT * FROM rich.secret', 'TRUNCATE rich.secret', 'ALTER TABLE rich.secret OWNER TO weak', 'GRANT rich TO weak',
	(map { ("SELECT * FROM public.$_", "DELETE FROM public.$_", "TRUNCATE public.$_", "LOCK TABLE public.$_ IN ACCESS EXCLUSIVE MODE",
			"ALTER TABLE public.$_ OWNER TO weak", "CREATE INDEX ON public.$_ (weak.octet_length(account))", "CREATE TRIGGER t BEFORE INSERT ON public.$_ EXECUTE FUNCTION weak.nothing()") }
		qw(idem_settled idem_inflight idem_seen)),
	q(UPDATE public.idem_inflight SET max_attempts = 1000000), q(INSERT INTO public.idem_policies (action) VALUES ('mine')),
	q(UPDATE public.idem_policies SET handler_role = 'postgres'), 'SELECT * FROM public.idempotent_operations',
	q(SELECT * FROM public.idem_claim('acme', 'pay', 'mine', '{}'::jsonb, lease => '1 h')), q(SELECT public.idem_complete('acme', 'try', 'one', result => '"forged"'::jsonb)),
	q(SELECT * FROM public.idem_lookup('acme', 'pay', 'mine')), 'SELECT * FROM public.idem_maintain()', 'SELECT public.idem_wake_workers()',
	'SELECT * FROM public.idem_worker_databases()', q(SELECT * FROM public.idem_take('try', '1 h')),
	"COPY (SELECT 1) TO PROGRAM 'touch $mark'", "COPY (SELECT 1) TO '$mark'", "COPY weak.log FROM PROGRAM 'touch $mark'", q(SELECT pg_read_file('postgresql.conf')),
	q(SELECT lo_import('/etc/passwd')),
	'ALTER ROLE weak SUPERUSER', 'CREATE ROLE other SUPERUSER', q(ALTER SYSTEM SET pg_idem.worker = off), 'SELECT pg_reload_conf()',
	q(SET pg_idem.test_now = '2000-01-01'), q(SET pg_idem.account_from = 'argument'), 'SET pg_idem.force_sync_commit = off', 'SET session_replication_role = replica',
	q(CREATE FUNCTION weak.c() RETURNS int LANGUAGE c AS 'pg_idem', 'pg_idem_wake_workers'),
	q(CREATE FUNCTION weak.i() RETURNS int LANGUAGE internal AS 'pg_backend_pid'), 'DROP EXTENSION pg_idem CASCADE', 'CREATE EXTENSION dblink',
	'ALTER EXTENSION pg_idem DROP TABLE public.idem_settled', "SELECT pg_terminate_backend($launcher)", "SELECT pg_cancel_backend($launcher)",
	q(ALTER DATABASE postgres SET search_path = weak), q(CREATE EVENT TRIGGER e ON ddl_command_end EXECUTE FUNCTION weak.nothing()));
my @refused = ('COMMIT', 'ROLLBACK', 'DO $d$ BEGIN COMMIT; END $d$', 'DISCARD ALL', q(PREPARE TRANSACTION 'x'), 'VACUUM');
my @harmless = (
	'RESET SESSION AUTHORIZATION', 'SET SESSION AUTHORIZATION DEFAULT', 'RESET ROLE', 'SET ROLE NONE', q(SET ROLE weak),
	'CREATE TEMP TABLE idem_settled (LIKE weak.idem_settled)', 'CREATE TEMP TABLE idem_inflight (account text, action text, key text)',
	'CREATE TEMP TABLE idem_policies (action text, handler_role text)', q(INSERT INTO idem_policies VALUES ('try', 'postgres')),
	'CREATE TEMP TABLE pg_extension (oid oid, extname text, extnamespace oid)', 'CREATE TEMP TABLE pg_authid (oid oid, rolname text, rolsuper bool)',
	'SET search_path = pg_temp, weak, public, pg_catalog', 'SET pg_idem.idle_claim_timeout = 0', 'SET default_transaction_read_only = on',
	'SELECT pg_advisory_unlock_all()', 'SET CONSTRAINTS ALL DEFERRED');
$weak->ok("INSERT INTO weak.attempts (sql) VALUES (\$q\$$_\$q\$)") foreach @denied, @refused, @harmless;
my %allowed = (
	(map { $_ => qr/^(42501|0LP01|22023|42710|42P16|55P02|0A000|42704|42883|42P01|25001)$/ } @denied),
	(map { $_ => qr/^(2D000|25001|0A000|42601)$/ } @refused),
	(map { $_ => qr/^00000$/ } @harmless));

leave('try', 'one');
wait_recorded($s, q(key = 'one'), 'one completed');
is($s->ok(q(SELECT result::text FROM idempotent_operations WHERE key = 'one')), '{"user": "weak", "session": "weak"}', 'the handler that tried everything has settled its operation, as its role');
my %log = map { my ($n, @rest) = split /\|/, $_, 3; $n => \@rest } split /\n/, $s->ok(q(SELECT n, state, replace(message, E'\n', ' ') FROM weak.log ORDER BY n));
my $n = 0;
foreach my $sql (@denied, @refused, @harmless)
{
	$n++;
	my ($state, $message) = @{ $log{$n} };
	like($state, $allowed{$sql}, "security: $sql") or diag($message);
	diag("$sql: $state $message") if grep({ $_ eq $sql } @denied) && $state =~ /^42(883|P01|704)$/;
}
is($s->ok(q(SELECT DISTINCT as_user, as_session, superuser FROM weak.log)), 'weak|weak|off', 'security: at every step it was its role, in session too');
ok(!-e $mark, 'security: no program has run');
is($s->ok(q(SELECT rolsuper FROM pg_roles WHERE rolname = 'weak')) . $s->ok('SELECT * FROM rich.secret'), 'fgold', 'security: nothing gained, nothing taken');
is($s->ok(q(SELECT count(*) FROM idem_settled WHERE key = 'one')), '1', 'security: the outcome is in our table, not in one of its own');
is($s->ok(q(SELECT count(*) FROM weak.idem_settled)), '0', 'security: the handler\'s own table is empty');

# The same from its own session is not more
foreach my $role (qw(rich postgres))
{
	$weak->try("ALTER ROLE weak SET role = '$role'");
	leave('try', "as-$role");
	wait_until($s, "SELECT state IN ('completed', 'interrupted') AND attempt = 2 FROM idempotent_operations WHERE key = 'as-$role' AND (reason IS NULL OR reason = 'error')");
	is($s->ok(q(SELECT count(*) FROM weak.log WHERE as_user <> 'weak' OR as_session <> 'weak' OR superuser <> 'off')), '0', "security: a setting of the role (role = $role) does not make it another");
	$weak->ok('ALTER ROLE weak RESET role');
}
# A role that hinders itself hinders nobody else.
my $rounds = 0;
foreach my $setting (q(default_transaction_read_only = on), q(default_transaction_isolation = 'serializable'), q(statement_timeout = 1), q(lock_timeout = 1),
	q(search_path = ''), q(default_transaction_deferrable = on), q(row_security = off), q(idle_in_transaction_session_timeout = 1))
{
	$weak->ok("ALTER ROLE weak SET $setting");
	$rounds++;
	leave('try', "hindered-$rounds");
	wait_until($s, "SELECT attempt FROM idempotent_operations WHERE key = 'hindered-$rounds' AND (state = 'completed' OR reason = 'error')", '2', "the end of the attempt with $setting");
	my $read_only = $setting =~ /read_only/;
	is($s->ok("SELECT state FROM idempotent_operations WHERE key = 'hindered-$rounds'"), $read_only ? 'interrupted' : 'completed', "handler_role with $setting: its attempt ends")
	  or diag($last_error->("hindered-$rounds"));
	$weak->ok('ALTER ROLE weak RESET ' . ($setting =~ /^(\w+)/)[0]);
}

# --- maintenance meets no trap, whatever the database sets
$s->ok(q{
	ALTER DATABASE postgres SET search_path = weak, public, pg_catalog;
	ALTER ROLE postgres SET search_path = weak, public, pg_catalog;
	DELETE FROM weak.trap;
});
set_clock($s, '2040-01-01 00:00:00+00');
my $user = session($node);
$user->ok('SET search_path = pg_catalog, public');
foreach my $rule (qw(retry fail review call))
{
	$user->ok(claim([ 'acme', $rule, "trapped-$rule" ], request => qq('{"id": "trapped-$rule"}'::jsonb), lease => q('1 h')));
}
$user->ok('BEGIN; ' . claim([ 'acme', 'retry', 'trapped' ]) . '; ' . call('idem_complete', [ 'acme', 'retry', 'trapped' ], result => q('{}')) . '; COMMIT');
$user->ok(call('idem_once', 'trapped'));
set_clock($s, '2040-01-01 01:00:00+00');
wait_recorded($s, q(key LIKE 'trapped-%'), 'trapped-call completed, trapped-fail failed 503, trapped-retry announced lease_expired, trapped-review review interrupted');
set_clock($s, '2040-01-04 00:00:00+00');
wait_until($s, q(SELECT stripped FROM idem_settled WHERE key OPERATOR(pg_catalog.=) 'trapped'), 't');
set_clock($s, '2041-01-01 00:00:00+00');
wait_until($s, q(SELECT pg_catalog.count(*) FROM idem_settled WHERE key OPERATOR(pg_catalog.=) 'trapped'), '0');
wait_until($s, q(SELECT pg_catalog.count(*) FROM idem_seen WHERE key OPERATOR(pg_catalog.=) 'trapped'), '0');
is($s->ok(q(SELECT pg_catalog.string_agg(DISTINCT what || ' as ' || as_user, ', ') FROM weak.trap)), '', 'security: operators and functions planted before pg_catalog are never met by workers');
$s->ok('ALTER DATABASE postgres RESET search_path; ALTER ROLE postgres RESET search_path');
real_clock($s);
$_->quit foreach $s, $user, $weak;
$s = session($node);

# --- tables given to another owner, who adds indexes with code of his own
$s->ok(q{
	CREATE ROLE keeper LOGIN;
	CREATE SCHEMA keeper AUTHORIZATION keeper;
	GRANT USAGE, CREATE ON SCHEMA public TO keeper;
	CREATE ROLE app LOGIN;
	GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA public TO app;
});
my $app = session($node, user => 'app');
foreach my $case ([ 'all of them', qw(idem_settled idem_inflight idem_seen) ], [ 'idem_settled alone', 'idem_settled' ], [ 'idem_inflight alone', 'idem_inflight' ])
{
	my ($name, @tables) = @$case;
	$s->ok("ALTER TABLE $_ OWNER TO keeper") foreach @tables;
	my $keeper = session($node, user => 'keeper');
	$keeper->ok(q{
		CREATE TABLE keeper.seen (what text, as_user text DEFAULT current_user, tried text);
		CREATE FUNCTION keeper.note(what text) RETURNS text LANGUAGE plpgsql AS $$
		DECLARE tried text := 'nothing';
		BEGIN
			BEGIN EXECUTE 'ALTER ROLE keeper CREATEROLE'; tried := 'became more'; EXCEPTION WHEN OTHERS THEN tried := SQLSTATE; END;
			BEGIN EXECUTE 'SET ROLE postgres'; tried := tried || ' became postgres'; EXCEPTION WHEN OTHERS THEN NULL; END;
			BEGIN EXECUTE 'RESET SESSION AUTHORIZATION; SET ROLE NONE'; EXCEPTION WHEN OTHERS THEN NULL; END;
			IF current_user = 'postgres' OR what LIKE '%leak%' THEN tried := tried || ' as ' || current_user; END IF;
			INSERT INTO keeper.seen (what, tried) VALUES (what, tried);
			RETURN what;
		END $$;
		CREATE FUNCTION keeper.expression(what text, b boolean) RETURNS text IMMUTABLE LANGUAGE plpgsql AS
			$$ BEGIN RETURN keeper.note(what || b); END $$;
		GRANT USAGE ON SCHEMA keeper TO PUBLIC; GRANT INSERT ON keeper.seen TO PUBLIC;
	});
	$keeper->ok(q(CREATE INDEX keeper_settled ON idem_settled (keeper.expression('settled', stripped)))) if grep { $_ eq 'idem_settled' } @tables;
	$keeper->ok(q(CREATE INDEX keeper_inflight ON idem_inflight (keeper.expression('inflight', announced)))) if grep { $_ eq 'idem_inflight' } @tables;
	set_clock($s, '2042-01-01 00:00:00+00');
	(my $p = "kept $name") =~ s/\W/-/g;
	# What claims do with the index they do as their caller, as with any table: nobody of importance.
	wait_until($app, 'SHOW pg_idem.test_now', '2042-01-01 00:00:00+00');
	$app->ok(claim([ 'acme', $_, "$p-$_" ], request => q('{"id": "kept"}'), lease => q('1 h'))) foreach qw(retry fail review);
	$app->ok('BEGIN; ' . claim([ 'acme', 'retry', $p ]) . '; ' . call('idem_complete', [ 'acme', 'retry', $p ], result => q('{}')) . '; COMMIT');
	$keeper->ok('TRUNCATE keeper.seen');
	set_clock($s, '2042-01-04 00:00:00+00');
	wait_recorded($s, "key LIKE '$p-%'", "$p-fail failed 503, $p-retry announced lease_expired, $p-review review interrupted");
	wait_until($s, "SELECT stripped FROM idem_settled WHERE key = '$p'", 't');
	isnt($keeper->ok('SELECT count(*) FROM keeper.seen'), '0', "owner of $name: maintenance keeps the index");
	is($keeper->ok(q(SELECT string_agg(DISTINCT what || ' by ' || as_user || ': ' || tried, ', ') FROM keeper.seen WHERE as_user <> 'keeper' OR tried <> '42501')),
		'', "security: owner of $name: its functions run as the owner, who becomes nobody else");
	$keeper->ok('DROP INDEX IF EXISTS keeper_settled, keeper_inflight');
	$s->ok("ALTER TABLE $_ OWNER TO postgres") foreach @tables;
	$keeper->quit;
	$s->ok('DROP TABLE keeper.seen; DROP FUNCTION keeper.expression, keeper.note; ALTER ROLE keeper NOCREATEROLE');
	real_clock($s);
	$s->ok('TRUNCATE idem_settled, idem_inflight');
}

$app->quit;

# --- who may write idem_policies
$s->ok(q{
	CREATE ROLE manager LOGIN;
	CREATE ROLE team LOGIN;
	GRANT team TO manager;
	GRANT ALL ON idem_policies TO manager;
	CREATE SCHEMA manager AUTHORIZATION manager;
	GRANT USAGE ON SCHEMA manager TO PUBLIC;
	CREATE TABLE manager.ran (key text, as_user text DEFAULT current_user);
	GRANT INSERT ON manager.ran TO PUBLIC;
	CREATE FUNCTION manager.evil(request jsonb) RETURNS jsonb LANGUAGE sql AS
		$$ INSERT INTO manager.ran (key) VALUES (request ->> 'id'); SELECT NULL::jsonb $$;
	INSERT INTO idem_policies (action, on_interrupt, handler, handler_role, keep_request) VALUES ('theirs', 'call', 'rich.work', 'rich', true);
});
my $manager = session($node, user => 'manager');
my %forbidden = (
	'INSERT' => q(INSERT INTO idem_policies (action, handler_role) VALUES ('m', 'ROLE')),
	'INSERT of the row for all others' => q(INSERT INTO idem_policies (action, handler_role) VALUES ('*', 'ROLE')),
	'UPDATE' => q(UPDATE idem_policies SET handler_role = 'ROLE' WHERE action = 'retry'),
	'ON CONFLICT' => q(INSERT INTO idem_policies (action) VALUES ('retry') ON CONFLICT (action) DO UPDATE SET handler_role = 'ROLE'),
	'MERGE' => q(MERGE INTO idem_policies USING (VALUES ('retry')) v (a) ON action = a WHEN MATCHED THEN UPDATE SET handler_role = 'ROLE'));
foreach my $how (sort keys %forbidden)
{
	is($manager->try($forbidden{$how} =~ s/ROLE/$_/r), '42501', "security: $how of a policy with role $_") foreach qw(rich postgres);
	is($manager->try($forbidden{$how} =~ s/ROLE/nobody/r), '42704', "security: $how of a policy with a role that does not exist");
}
my $refusal = '';
is($node->psql('postgres', "COPY idem_policies (action, handler_role) FROM STDIN;\nm\trich\n\\.\n", stderr => \$refusal, extra_params => [ '-U', 'manager' ]), 3, 'security: COPY');
like($refusal, qr/must be a member of role "rich"/, 'security: is refused for the same reason');
is($manager->try(q(UPDATE idem_policies SET handler = 'manager.evil' WHERE action = 'theirs')), '42501', 'security: another handler for the role of others');
is($manager->try(q(UPDATE idem_policies SET action = 'mine' WHERE action = 'theirs')), '42501', 'security: another action for the role of others');
is($s->try(q(UPDATE idem_policies SET handler_role = 'postgres' WHERE action = 'retry')), '42501', 'security: not even a superuser may name a superuser');
is($manager->try(q(ALTER TABLE idem_policies DISABLE TRIGGER ALL)), '42501', 'security: nor can the check be switched off');
is($manager->try(q(SET session_replication_role = replica)), '42501', 'security: nor passed by');
$s->ok(q(SET session_replication_role = replica));
is($s->try(q(UPDATE idem_policies SET handler_role = 'postgres' WHERE action = 'retry')), '42501', 'security: the check is there for replication too');
$s->ok('RESET session_replication_role');
is($manager->try(q(INSERT INTO idem_policies (action, on_interrupt, handler, handler_role, keep_request) VALUES ('ours', 'call', 'manager.evil', 'team', true))), '', 'a role of which the writer is a member');
leave('ours', 'ours');
wait_recorded($s, q(key = 'ours'), 'ours completed');
is($s->ok(q(SELECT as_user FROM manager.ran WHERE key = 'ours')), 'team', 'is the one that it runs as');

# The parts of a policy come from two rows: the role that an administrator gave to all others must not run the handler that
# somebody else names.
$s->ok(q(INSERT INTO idem_policies (action, on_interrupt, handler, handler_role, keep_request) VALUES ('*', 'call', 'rich.work', 'rich', true)));
$manager->ok(q(INSERT INTO idem_policies (action, handler, retry_backoff) VALUES ('mixed', 'manager.evil', '1 h')));
leave('mixed', 'mixed');
wait_until($s, q(SELECT state = 'completed' OR reason = 'error' FROM idempotent_operations WHERE key = 'mixed'));
is($s->ok(q(SELECT as_user FROM manager.ran WHERE key = 'mixed')), '', q(security: one's own handler is not run as the role of row '*'));
$s->ok(q(UPDATE idem_policies SET handler = NULL, handler_role = NULL WHERE action = '*'; INSERT INTO idem_policies (action, handler_role, retry_backoff) VALUES ('mixed2', 'rich', '1 h')));
$manager->ok(q(UPDATE idem_policies SET handler = 'manager.evil' WHERE action = '*'));
leave('mixed2', 'mixed2');
wait_until($s, q(SELECT state = 'completed' OR reason = 'error' FROM idempotent_operations WHERE key = 'mixed2'));
is($s->ok(q(SELECT as_user FROM manager.ran WHERE key = 'mixed2')), '', q(security: nor is the handler of row '*', written by one, as the role that another one named));
$s->ok(q(DELETE FROM idem_policies WHERE action IN ('*', 'mixed', 'mixed2')));
is($s->ok(q(SELECT string_agg(DISTINCT as_user, ' ') FROM manager.ran)), 'team', 'security: the manager\'s code ran as nobody else');

# --- rows that come by logical replication
$node->safe_psql('postgres', 'CREATE DATABASE publisher');
$node->safe_psql(
	'publisher', q{
	CREATE TABLE idem_policies (action text PRIMARY KEY, handler text, handler_role text);
	CREATE PUBLICATION p FOR TABLE idem_policies;
	SELECT pg_create_logical_replication_slot('policies', 'pgoutput');
});
my $connstr = $node->connstr('publisher') =~ s/'/''/gr;
$s->ok("CREATE SUBSCRIPTION s CONNECTION '$connstr' PUBLICATION p WITH (create_slot = false, slot_name = 'policies', copy_data = false)");
$node->safe_psql('publisher', q(INSERT INTO idem_policies VALUES ('harmless', 'manager.evil', 'team')));
wait_until($s, q(SELECT handler_role FROM idem_policies WHERE action = 'harmless'), 'team', 'replication');
my $offset = -s $node->logfile;
$node->safe_psql('publisher', q(INSERT INTO idem_policies VALUES ('replicated', 'manager.evil', 'postgres')));
$node->wait_for_log(qr/ERROR: .*handler_role must not be a superuser/, $offset);
is($s->ok(q(SELECT count(*) FROM idem_policies WHERE action = 'replicated')), '0', 'security: a superuser as handler_role does not come by replication either');
$s->ok('ALTER SUBSCRIPTION s DISABLE');
wait_until($s, q(SELECT count(*) FROM pg_stat_subscription WHERE pid IS NOT NULL), '0');
$s->ok('ALTER SUBSCRIPTION s SET (slot_name = NONE); DROP SUBSCRIPTION s');
$node->safe_psql('publisher', q(SELECT pg_drop_replication_slot('policies')));

$_->quit foreach $s, $manager;
$node->stop;
done_testing();
