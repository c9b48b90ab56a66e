-- G5 idem_maintain does what the workers do, in this transaction: each rule, once, by the clock.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
-- It counts what it finds of every account.
TRUNCATE idem_settled, idem_inflight, idem_seen;
\set t1 '''00000000-0000-0000-0000-000000000001'''
\set t2 '''00000000-0000-0000-0000-000000000002'''
INSERT INTO idem_policies (action, on_interrupt, max_attempts, retry_backoff, max_backoff) VALUES
    ('retry', 'retry', NULL, '5 s', '1 min'), ('fail', 'fail', NULL, '5 s', '1 min'), ('review', 'review', NULL, '5 s', '1 min'),
    ('call', 'call', NULL, '2 h', '9 h'), ('once', 'retry', 1, '5 s', '1 min'), ('once or fail', 'fail', 1, '5 s', '1 min');
CREATE VIEW pg_temp.seen AS
    SELECT action, key, state, attempt, reason, last_error, state_since, due_at, settled_as, status, result
      FROM idempotent_operations WHERE account = 'g5m' ORDER BY action, key;

-- G5 Nothing to do: every task is listed
SELECT * FROM idem_maintain();
SELECT * FROM idem_maintain(NULL);
SELECT * FROM idem_maintain(max_rows => 2147483647);

-- G5 A microsecond before the end of the lease nothing is touched
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SELECT action, outcome
  FROM unnest('{retry,fail,review,call,once,once or fail}'::text[]) AS action, idem_claim('g5m', action, 'k', '{}', lease => '60 s', owner => 'one', token => :t1);
SET pg_idem.test_now = '2030-01-01 00:00:59.999999+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT action, state, state_since FROM pg_temp.seen;
-- G5 At its end each is where its rule says; under retry since when it was over, not since when that was found out
SET pg_idem.test_now = '2030-01-01 00:03:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT * FROM pg_temp.seen;
-- G5 once
SELECT * FROM idem_maintain() WHERE rows > 0;
-- G5 and whoever asks then is told so
SELECT action, outcome, replayed, attempt, status, result
  FROM unnest('{retry,fail,review,once,once or fail}'::text[]) AS action, idem_claim('g5m', action, 'k', '{}', lease => '60 s', token => :t2);
-- G5 an attempt that was announced, and taken over, is announced again when it is lost as well
SET pg_idem.test_now = '2030-01-01 00:10:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT state, attempt, reason, state_since FROM pg_temp.seen WHERE action = 'retry';
-- under 'call' without a handler the attempt counts as failed, with a backoff that doubles, until it is tried again (longer than a nap of any server
-- that this test is run on, which is the least)
SET pg_idem.test_now = '2030-01-01 04:03:00+00';
SELECT rows FROM idem_maintain() WHERE task = 'called';
SELECT state, attempt, reason, last_error, due_at FROM pg_temp.seen WHERE action = 'call';
TRUNCATE idem_settled, idem_inflight;

-- G5 retry: a late owner goes on after it was announced; the announcement is forgotten, and made again at the next end
SET pg_idem.test_now = '2030-01-02 00:00:00+00';
SELECT key, outcome FROM unnest('{again,check,done,guard,renew}'::text[]) AS key, idem_claim('g5m', 'retry', key, '{}', lease => '60 s', token => :t1);
SET pg_idem.test_now = '2030-01-02 00:02:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT key, state, reason, state_since FROM pg_temp.seen;
SET pg_idem.test_now = '2030-01-02 00:03:00+00';
SELECT idem_renew('g5m', 'retry', 'renew', :t1);
SELECT idem_checkpoint('g5m', 'retry', 'check', :t1, 'half');
SELECT outcome, attempt FROM idem_claim('g5m', 'retry', 'again', '{}', lease => '60 s', token => :t1);
SELECT idem_guard('g5m', 'retry', 'guard', :t1);
SELECT idem_complete('g5m', 'retry', 'done', '"late"', token => :t1) IS NOT NULL AS ok;
SELECT key, state, attempt, reason, state_since FROM pg_temp.seen;
SELECT * FROM idem_maintain() WHERE rows > 0;
SET pg_idem.test_now = '2030-01-02 00:04:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT key, state, reason, state_since FROM pg_temp.seen;
TRUNCATE idem_settled, idem_inflight;

-- G5 released: announced when it is due, whatever the rule
SET pg_idem.test_now = '2030-01-03 00:00:00+00';
SELECT action, key, outcome FROM unnest('{retry,fail,review}'::text[]) AS action, unnest('{error,later,now}'::text[]) AS key,
       idem_claim('g5m', action, key, '{}', lease => '60 s', token => :t1);
SELECT action, idem_release('g5m', action, 'error', :t1, error => 'no luck'), idem_release('g5m', action, 'later', :t1, retry_after => '1 min'),
       idem_release('g5m', action, 'now', :t1)
  FROM unnest('{retry,fail,review}'::text[]) AS action;
SELECT * FROM idem_maintain() WHERE rows > 0;
SET pg_idem.test_now = '2030-01-03 00:00:04.999999+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SET pg_idem.test_now = '2030-01-03 00:00:05+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SET pg_idem.test_now = '2030-01-03 00:00:59.999999+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SET pg_idem.test_now = '2030-01-03 00:01:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT action, key, state, reason, last_error, state_since, due_at FROM pg_temp.seen;
SELECT action, key, outcome, attempt FROM unnest('{retry,fail,review}'::text[]) AS action, unnest('{error,later,now}'::text[]) AS key,
       idem_claim('g5m', action, key, '{}', lease => '60 s', token => :t2);
TRUNCATE idem_settled, idem_inflight;

-- G5 attempts that are used up: by an error, at once when it is due
SET pg_idem.test_now = '2030-01-04 00:00:00+00';
SELECT action, outcome FROM unnest('{once,once or fail}'::text[]) AS action, idem_claim('g5m', action, 'k', '{}', lease => '60 s', token => :t1);
SELECT action, idem_release('g5m', action, 'k', :t1, error => 'no luck') FROM unnest('{once,once or fail}'::text[]) AS action;
SELECT * FROM idem_maintain() WHERE rows > 0;
SET pg_idem.test_now = '2030-01-04 00:00:05+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT action, state, attempt, reason, last_error, settled_as, status FROM pg_temp.seen;
TRUNCATE idem_settled, idem_inflight;

-- G5 at most max_rows a task; again until every count is 0
SET pg_idem.test_now = '2030-01-05 00:00:00+00';
SELECT count(outcome) FROM generate_series(1, 7) AS i, idem_claim('g5m', 'retry', 'r' || i, '{}', lease => '60 s');
SELECT count(outcome) FROM generate_series(1, 4) AS i, idem_claim('g5m', 'fail', 'f' || i, '{}', lease => '60 s');
SELECT count(idem_once('g5m', 'retry', 'm' || i)) FROM generate_series(1, 5) AS i;
SET pg_idem.test_now = '2030-01-15 00:00:00+00';
CREATE TEMP TABLE call (n int, task text, rows bigint);
DO $$
BEGIN
    FOR i IN 1 .. 100 LOOP
        INSERT INTO call SELECT i, m.task, m.rows FROM idem_maintain(3) m;
        EXIT WHEN (SELECT sum(c.rows) FROM call c WHERE c.n = i) = 0;
    END LOOP;
END $$;
SELECT n, sum(rows) FILTER (WHERE task IN ('interrupted', 'failed', 'review')) AS recovered, sum(rows) FILTER (WHERE task = 'seen_forgotten') AS seen_forgotten
  FROM call GROUP BY n ORDER BY n;
SELECT task, sum(rows) FROM call GROUP BY task HAVING sum(rows) > 0 ORDER BY task;
DROP TABLE call;
-- by default pg_idem.batch_size
SELECT count(*) FROM idem_once_batch('g5m', 'retry', ARRAY(SELECT 'b' || i FROM generate_series(1, 1001) AS i));
SET pg_idem.test_now = '2030-01-25 00:00:00+00';
SELECT * FROM idem_maintain() WHERE task = 'seen_forgotten';
SELECT * FROM idem_maintain() WHERE task = 'seen_forgotten';
SELECT count(*) FROM idem_seen;
TRUNCATE idem_settled, idem_inflight;

-- What this transaction itself holds is left to it
SET pg_idem.test_now = '2030-02-01 00:00:00+00';
SELECT outcome FROM idem_claim('g5m', 'retry', 'old', '{}', lease => '60 s', token => :t1);
BEGIN;
SELECT outcome FROM idem_claim('g5m', 'retry', 'mine', '{}', lease => '60 s', token => :t1);
SELECT outcome FROM idem_claim('g5m', 'fail', 'mine', '{}', lease => '60 s', token => :t1);
SELECT idem_guard('g5m', 'retry', 'old', :t1);
SET pg_idem.test_now = '2030-02-01 00:05:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT idem_complete('g5m', 'fail', 'mine', '"mine"', token => :t1) IS NOT NULL AS ok;
COMMIT;
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT action, key, state, result FROM pg_temp.seen;
TRUNCATE idem_settled, idem_inflight;

-- In a savepoint that is rolled back nothing has been done
SET pg_idem.test_now = '2030-02-02 00:00:00+00';
SELECT action, outcome FROM unnest('{retry,fail,review}'::text[]) AS action, idem_claim('g5m', action, 'k', '{}', lease => '60 s', token => :t1);
SET pg_idem.test_now = '2030-02-02 00:05:00+00';
BEGIN;
SAVEPOINT s;
SELECT * FROM idem_maintain() WHERE rows > 0;
ROLLBACK TO s;
SELECT action, state, reason FROM pg_temp.seen;
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT * FROM idem_maintain() WHERE rows > 0;
-- and it holds the keys until the end
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
COMMIT;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
SELECT action, state, reason FROM pg_temp.seen;
TRUNCATE idem_settled, idem_inflight;

-- at every isolation level, also over what was claimed after the snapshot
SET pg_idem.test_now = '2030-02-03 00:00:00+00';
SELECT outcome FROM idem_claim('g5m', 'fail', 'k', '{}', lease => '60 s');
SET pg_idem.test_now = '2030-02-03 00:05:00+00';
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT * FROM idem_maintain() WHERE rows > 0;
COMMIT;
SELECT state FROM pg_temp.seen;
TRUNCATE idem_settled, idem_inflight;

-- G5 a session that has ended (the workers may have been quicker)
SET pg_idem.test_now = '2030-02-04 00:00:00+00';
SELECT outcome FROM idem_claim('g5m', 'retry', 'bound', '{}', lease => '60 s', session_bound => true);
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT pg_backend_pid() AS pid \gset
\c
\set VERBOSITY sqlstate
SET client_min_messages = warning;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET pg_idem.test_now = '2030-02-04 00:00:30+00';
-- until it has gone
DO $$
BEGIN
    WHILE NOT (SELECT idem_session_ended(session_pid, session_start) FROM idem_inflight WHERE key = 'bound') LOOP
        PERFORM pg_sleep(0.01);
    END LOOP;
END $$;
SELECT count(*) >= 0 AS ok FROM idem_maintain();
SELECT state, reason, lease_expires_at FROM idempotent_operations WHERE account = 'g5m';
SELECT announced FROM idem_inflight WHERE account = 'g5m';
TRUNCATE idem_settled, idem_inflight;

-- No pass runs until its transaction ends: so an idle one is ended, as one with a claim is
SET pg_idem.idle_claim_timeout = '42 s';
BEGIN;
SELECT count(*) FROM idem_maintain() WHERE rows > 0;
SHOW idle_in_transaction_session_timeout;
COMMIT;
SHOW idle_in_transaction_session_timeout;
RESET pg_idem.idle_claim_timeout;

-- G12 Bad arguments, and where nothing can be written
SELECT * FROM idem_maintain(0);
SELECT * FROM idem_maintain(-1);
BEGIN READ ONLY;
SELECT * FROM idem_maintain();
ROLLBACK;
CREATE ROLE regress_g5m;
SET ROLE regress_g5m;
SELECT * FROM idem_maintain();
RESET ROLE;
-- With the grant it needs no right to the tables; settles rows of every account.
GRANT EXECUTE ON FUNCTION idem_maintain(integer) TO regress_g5m;
SET pg_idem.test_now = '2030-02-05 00:00:00+00';
SELECT outcome FROM idem_claim('g5m', 'fail', 'granted', '{}', lease => '60 s');
SET pg_idem.test_now = '2030-02-05 00:05:00+00';
SET ROLE regress_g5m;
SELECT * FROM idem_maintain() WHERE rows > 0;
RESET ROLE;
DROP OWNED BY regress_g5m;
DROP ROLE regress_g5m;

RESET pg_idem.test_now;
TRUNCATE idem_settled, idem_inflight, idem_seen;
DELETE FROM idem_policies;
