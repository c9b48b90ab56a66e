-- Leased claims: token, renewal, checkpoint, guard, settling, release, session-bound claims.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
\set t2 '''00000000-0000-0000-0000-000000000002'''
\set t3 '''00000000-0000-0000-0000-000000000003'''
SET pg_idem.test_now = '2030-01-01 00:00:00+00';

-- Claimed in a statement of its own, with the caller's token
SELECT outcome, replayed, attempt, token, settled_as, status, result, checkpoint, progress, holder, retry_after, settled_at, expires_at
  FROM idem_claim('lease', 'act', 'k1', '{"a": 1}', lease => '90 s', owner => 'worker one', token => :t1);
SELECT state, attempt, owner, lease_expires_at, due_at, last_error, state_since, fingerprint = idem_fingerprint('{"a": 1}') AS fingerprint,
       request, checkpoint, progress, settled_as, status, result, claimed_at, settled_at, expires_at, forget_at
  FROM idem_lookup('lease', 'act', 'k1');
-- The view tells the same
SELECT (SELECT v FROM idempotent_operations AS v WHERE account = 'lease' AND action = 'act' AND key = 'k1')
     = (SELECT l FROM idem_lookup('lease', 'act', 'k1') AS l) AS same;

-- Others: in progress, with the holder and the seconds until the lease is over, rounded up
SELECT outcome, replayed, attempt, token, holder, retry_after FROM idem_claim('lease', 'act', 'k1', '{"a": 1}');
SET pg_idem.test_now = '2030-01-01 00:01:00.000001+00';
SELECT outcome, token, holder, retry_after FROM idem_claim('lease', 'act', 'k1', '{"a": 1}', lease => '1 min');
SET pg_idem.test_now = '2030-01-01 00:01:29.999999+00';
SELECT outcome, token, holder, retry_after FROM idem_claim('lease', 'act', 'k1', '{"a": 1}', lease => '1 min', token => :t2);

-- The owner repeats its claim: the same answer, the lease renewed
SELECT outcome, replayed, attempt, token, checkpoint, holder, retry_after
  FROM idem_claim('lease', 'act', 'k1', '{"a": 1}', lease => '90 s', owner => 'worker one', token => :t1);
SELECT state, attempt, lease_expires_at, claimed_at FROM idem_lookup('lease', 'act', 'k1');
-- in the same transaction as the first call too
BEGIN;
SELECT outcome, attempt, token FROM idem_claim('lease', 'act', 'twice', '{}', lease => '1 min', token => :t1);
SAVEPOINT s;
SELECT outcome, attempt, token FROM idem_claim('lease', 'act', 'twice', '{}', lease => '1 min', token => :t1);
ROLLBACK TO s;
-- but not without the token
SELECT outcome FROM idem_claim('lease', 'act', 'twice', '{}', lease => '1 min');
ROLLBACK;

-- Renew: by the lease of the claim, or by another
SET pg_idem.test_now = '2030-01-01 00:02:00+00';
SELECT idem_renew('lease', 'act', 'k1', :t1);
SELECT idem_renew('lease', 'act', 'k1', :t1, '10 min');
SELECT lease_expires_at FROM idem_lookup('lease', 'act', 'k1');
SELECT idem_renew('lease', 'act', 'k1', :t1, NULL);
SELECT idem_renew('lease', 'act', 'k1', :t1, '61 min');
SELECT idem_renew('lease', 'act', 'k1', :t1, '0');
SELECT idem_renew('lease', 'act', 'k1', :t2);
SELECT lease_expires_at FROM idem_lookup('lease', 'act', 'k1');

-- Checkpoint: recorded with the transaction, renews
SET pg_idem.test_now = '2030-01-01 00:03:00+00';
SELECT idem_checkpoint('lease', 'act', 'k1', :t1, 'charged', '{"charge": 7}');
SELECT idem_checkpoint('lease', 'act', 'k1', :t1, 'shipped', '{"parcel": 8}', '5 min');
SELECT lease_expires_at, checkpoint, progress FROM idem_lookup('lease', 'act', 'k1');
BEGIN;
SELECT idem_checkpoint('lease', 'act', 'k1', :t1, 'rolled back', '{}');
ROLLBACK;
SELECT lease_expires_at, checkpoint, progress FROM idem_lookup('lease', 'act', 'k1');
SELECT idem_checkpoint('lease', 'act', 'k1', :t2, 'thief');
SELECT idem_checkpoint('lease', 'act', 'k1', :t1, '');
-- The owner that repeats its claim receives it
SELECT outcome, attempt, checkpoint, progress FROM idem_claim('lease', 'act', 'k1', '{"a": 1}', lease => '5 min', token => :t1);

-- Guard: the deadline, unchanged
SET pg_idem.test_now = '2030-01-01 00:04:00+00';
SELECT idem_guard('lease', 'act', 'k1', :t1);
SELECT lease_expires_at FROM idem_lookup('lease', 'act', 'k1');
SELECT idem_guard('lease', 'act', 'k1', :t2);
SELECT idem_guard('lease', 'act', 'unknown', :t1);
-- A guarded transaction may go on past the lease
BEGIN;
SELECT idem_guard('lease', 'act', 'k1', :t1);
SET pg_idem.test_now = '2030-01-01 01:00:00+00';
SELECT idem_checkpoint('lease', 'act', 'k1', :t1, 'past the lease');
COMMIT;
SELECT state, lease_expires_at, checkpoint, progress FROM idem_lookup('lease', 'act', 'k1');

-- Settled with the token, in a transaction; replayed afterwards
SET pg_idem.test_now = '2030-01-01 01:01:00+00';
BEGIN;
SELECT idem_guard('lease', 'act', 'k1', :t1);
SELECT idem_complete('lease', 'act', 'k1', '{"done": true}', 200, token => :t1);
COMMIT;
SELECT outcome, replayed, attempt, token, status, result, checkpoint FROM idem_claim('lease', 'act', 'k1', '{"a": 1}');
SELECT state, attempt, claimed_at, settled_at, lease_expires_at, checkpoint FROM idem_lookup('lease', 'act', 'k1');
-- A repeated claim call of the late owner is answered by the outcome as well
SELECT outcome, replayed, token, result FROM idem_claim('lease', 'act', 'k1', '{"a": 1}', lease => '1 min', token => :t1);
-- Owner calls after settling
SELECT idem_complete('lease', 'act', 'k1', '{"done": true}', 200, token => :t1);
SELECT idem_fail('lease', 'act', 'k1', token => :t1);
SELECT idem_renew('lease', 'act', 'k1', :t1);
SELECT idem_checkpoint('lease', 'act', 'k1', :t1, 'x');
SELECT idem_guard('lease', 'act', 'k1', :t1);
SELECT idem_release('lease', 'act', 'k1', :t1);
SELECT idem_complete('lease', 'act', 'k1');

-- Failed with the token
SELECT outcome FROM idem_claim('lease', 'act', 'k2', '{}', lease => '1 min', token => :t1);
SELECT idem_fail('lease', 'act', 'k2', '"no"', 400, 'no', '\x00', :t1);
SELECT outcome, replayed, settled_as, status, result, body, body_bytes FROM idem_claim('lease', 'act', 'k2', '{}');

-- A generated token; the owner is the process without a label
SELECT outcome, token IS NOT NULL AS token FROM idem_claim('lease', 'act', 'k3', '{}', lease => '1 min');
SELECT outcome, holder = pg_backend_pid()::text AS pid FROM idem_claim('lease', 'act', 'k3', '{}');
SELECT state, owner = pg_backend_pid()::text AS pid FROM idem_lookup('lease', 'act', 'k3');
SELECT count(DISTINCT token) FROM generate_series(1, 20) AS n, idem_claim('lease', 'act', 'gen' || n, '{}', lease => '1 min');

-- The longest lease
SELECT outcome FROM idem_claim('lease', 'act', 'k4', '{}', lease => '60 min', token => :t1);
SELECT outcome FROM idem_claim('lease', 'act', 'k5', '{}', lease => '1 hour 0.000001 s');
SELECT count(*) FROM idem_lookup('lease', 'act', 'k5');

-- Released without an error: claimable at once, one attempt later
SELECT outcome, attempt FROM idem_claim('lease', 'act', 'k6', '{}', lease => '1 min', token => :t1);
SELECT idem_checkpoint('lease', 'act', 'k6', :t1, 'half', '{"n": 1}') IS NOT NULL AS ok;
SELECT idem_release('lease', 'act', 'k6', :t1);
SELECT state, attempt, due_at, last_error, checkpoint, progress FROM idem_lookup('lease', 'act', 'k6');
-- the old token is worth nothing
SELECT idem_release('lease', 'act', 'k6', :t1);
SELECT idem_renew('lease', 'act', 'k6', :t1);
SELECT idem_complete('lease', 'act', 'k6', token => :t1);
SELECT outcome, replayed, attempt, token, checkpoint, progress FROM idem_claim('lease', 'act', 'k6', '{}', lease => '1 min', token => :t2);
-- Released for later
SELECT idem_release('lease', 'act', 'k6', :t2, '10 s');
SELECT outcome, retry_after FROM idem_claim('lease', 'act', 'k6', '{}', lease => '1 min');
SELECT state, due_at FROM idem_lookup('lease', 'act', 'k6');
SET pg_idem.test_now = '2030-01-01 01:01:09.999999+00';
SELECT outcome, retry_after FROM idem_claim('lease', 'act', 'k6', '{}', lease => '1 min');
SET pg_idem.test_now = '2030-01-01 01:01:10+00';
SELECT outcome, attempt FROM idem_claim('lease', 'act', 'k6', '{}', lease => '1 min', token => :t3);
-- Released what is not ours: false, in every state, and the transaction may commit
BEGIN;
SELECT idem_release('lease', 'act', 'k6', :t1);
SELECT idem_release('lease', 'act', 'k6');
SELECT idem_release('lease', 'act', 'unknown', :t1);
SELECT idem_release('lease', 'act', 'unknown');
COMMIT;
SELECT state FROM idem_lookup('lease', 'act', 'k6');

-- A transaction-scoped claim takes over a released operation, and settles or leaves it
SELECT idem_release('lease', 'act', 'k6', :t3);
BEGIN;
SELECT outcome, attempt, token, checkpoint FROM idem_claim('lease', 'act', 'k6', '{}');
ROLLBACK;
SELECT state FROM idem_lookup('lease', 'act', 'k6');
BEGIN;
SELECT outcome, attempt, token, checkpoint FROM idem_claim('lease', 'act', 'k6', '{}');
SELECT idem_complete('lease', 'act', 'k6', '6') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('lease', 'act', 'k6', '{}');
SELECT count(*) FROM idem_inflight WHERE key = 'k6';

-- What a lease is needed for
SELECT outcome FROM idem_claim('lease', 'act', 'k7', '{}', token => :t1);
SELECT outcome FROM idem_claim('lease', 'act', 'k7', '{}', session_bound => true);
SELECT count(*) FROM idem_lookup('lease', 'act', 'k7');
RESET pg_idem.test_now;

-- Waiting for a lease that is alive ends with the wait
SELECT outcome FROM idem_claim('lease', 'wait', 'k', '{}', lease => '1 min', token => :t1);
SELECT clock_timestamp() AS start \gset
SELECT outcome FROM idem_claim('lease', 'wait', 'k', '{}', wait => '200 ms');
SELECT clock_timestamp() - :'start' BETWEEN '200 ms' AND '10 s' AS waited;
-- or with the lease
SELECT idem_renew('lease', 'wait', 'k', :t1, '300 ms') IS NOT NULL AS ok;
SELECT outcome, attempt FROM idem_claim('lease', 'wait', 'k', '{}', lease => '1 min', wait => '1 min', token => :t2);

-- Session-bound: held as long as its session lives
SELECT outcome FROM idem_claim('lease', 'session', 'k', '{}', lease => '1 hour', session_bound => true, token => :t1);
SELECT outcome FROM idem_claim('lease', 'session', 'free', '{}', lease => '1 hour', token => :t1);
SELECT outcome FROM idem_claim('lease', 'session', 'k', '{}');
\c -
SET client_min_messages = warning;
-- free when it has ended, although the lease is not over; the other is not
SELECT outcome, attempt FROM idem_claim('lease', 'session', 'k', '{}', lease => '1 hour', wait => '1 min', session_bound => true, token => :t2);
SELECT outcome FROM idem_claim('lease', 'session', 'free', '{}');
SELECT state FROM idem_lookup('lease', 'session', 'k');
-- The repeated claim call of the current owner binds it to the session that makes it
SELECT pg_backend_pid() AS pid \gset
\c -
SELECT state IN ('in_progress', 'interrupted') AS either, attempt FROM idem_lookup('lease', 'session', 'k');
SELECT outcome, attempt FROM idem_claim('lease', 'session', 'k', '{}', lease => '1 hour', session_bound => true, token => :t2);
-- also when the session before it has surely ended
SELECT set_config('leased.pid', :'pid', false) IS NOT NULL AS ok;
DO $$
BEGIN
    WHILE EXISTS (SELECT FROM pg_stat_activity WHERE pid = current_setting('leased.pid')::int) LOOP
        PERFORM pg_sleep(0.01);
        PERFORM pg_stat_clear_snapshot();
    END LOOP;
END $$;
SELECT state, attempt FROM idem_lookup('lease', 'session', 'k');
SELECT idem_complete('lease', 'session', 'k', token => :t2) IS NOT NULL AS ok;
