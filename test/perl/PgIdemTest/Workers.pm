# Helpers of the tests of the background workers.
package PgIdemTest::Workers;

use strict;
use warnings;

use Exporter 'import';
use PgIdemTest;
use PostgreSQL::Test::Cluster;
use PostgreSQL::Test::Utils;
use Time::HiRes qw(time usleep);

our @EXPORT = qw(set_clock real_clock next_pass recorded wait_recorded wait_for_start policies launcher_pid seconds_until);

# The test clock of the whole server, seen by this session and by every worker started from now on.
sub set_clock
{
	my ($session, $time) = @_;
	$session->ok("ALTER SYSTEM SET pg_idem.test_now = '$time'; SELECT pg_reload_conf()");
	return wait_until($session, 'SHOW pg_idem.test_now', $time, 'the clock');
}

sub real_clock
{
	my ($session) = @_;
	return set_clock($session, '');
}

# Until a whole pass over the session's database has begun and ended after this call.
sub next_pass
{
	my ($session) = @_;
	my $passes = q{SELECT coalesce(max(passes), 0) FROM idem_worker_status WHERE database = current_database()};
	for (1 .. 2)    # the first may have begun before
	{
		my $before = $session->ok($passes);
		$session->ok('SELECT idem_wake_workers()');
		wait_until($session, "SELECT ($passes) > $before", 't', 'a pass');
	}
	return;
}

# What is recorded of operations, not what the clock says of them: key and state, in one line.
sub recorded
{
	my ($where) = @_;
	$where //= 'true';
	return qq{SELECT coalesce(string_agg(key || ' ' || state, ', ' ORDER BY key COLLATE "C"), '') FROM (
		SELECT account, action, key, CASE WHEN in_review THEN 'review ' || reason
			WHEN announced THEN 'announced ' || reason WHEN token IS NULL THEN 'waits ' || reason ELSE 'held' END
		  FROM idem_inflight
		UNION ALL
		SELECT account, action, key, CASE WHEN succeeded THEN 'completed' ELSE 'failed' END || coalesce(' ' || status, '')
		  FROM idem_settled) r (account, action, key, state) WHERE $where};
}

sub wait_recorded
{
	my ($session, $where, $expected) = @_;
	return wait_until($session, recorded($where), $expected, $expected);
}

# After a crash of one process.
sub wait_for_start
{
	my ($node) = @_;
	for (1 .. 10 * $PostgreSQL::Test::Utils::timeout_default)
	{
		return if $node->psql('postgres', 'SELECT 1') == 0;
		usleep(100_000);
	}
	die 'the server did not come back';
}

# SQL: one action for each rule, named like it; the handlers of `call` are run as the role "worker".
sub policies
{
	return q{
		CREATE ROLE worker LOGIN;
		CREATE SCHEMA jobs;
		GRANT USAGE ON SCHEMA jobs TO worker;
		CREATE TABLE jobs.done (key text, attempt int, who text DEFAULT current_user, pid int DEFAULT pg_backend_pid());
		GRANT ALL ON jobs.done TO worker;
		CREATE FUNCTION jobs.work(request jsonb) RETURNS jsonb LANGUAGE sql AS
			$$ INSERT INTO jobs.done (key) VALUES (request ->> 'id'); SELECT jsonb_build_object('by', current_user) $$;
		INSERT INTO idem_policies (action, on_interrupt) VALUES ('retry', 'retry'), ('fail', 'fail'), ('review', 'review');
		INSERT INTO idem_policies (action, on_interrupt, handler, handler_role, keep_request)
			VALUES ('call', 'call', 'jobs.work', 'worker', true);
	};
}

sub launcher_pid
{
	my ($session) = @_;
	return $session->ok(q(SELECT pid FROM pg_stat_activity WHERE backend_type = 'pg_idem launcher'));
}

# How long the code takes.
sub seconds_until
{
	my ($code) = @_;
	my $start = time;
	$code->();
	return time - $start;
}

1;
