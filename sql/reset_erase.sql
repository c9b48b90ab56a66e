-- idem_reset forgets a settled operation on purpose. idem_erase removes payloads of an account and keeps the protection (G4, G7).
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
DELETE FROM idem_audit;
INSERT INTO idem_policies (action, on_interrupt, max_attempts, keep_request) VALUES
    ('act', NULL, NULL, true), ('fail', 'fail', NULL, true), ('review', 'review', 1, true);
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
CREATE PROCEDURE pg_temp.settle(acc text, a text, k text, ok boolean) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM idem_claim(acc, a, k, '{"n": 1}');
    IF ok THEN PERFORM idem_complete(acc, a, k, '"secret"', 200, 'secret', '\x5ec4e7');
    ELSE PERFORM idem_fail(acc, a, k, '"secret"', 400, 'secret', '\x5ec4e7'); END IF;
END $$;

-- ---- idem_reset
CALL pg_temp.settle('reset', 'act', 'good', true);
CALL pg_temp.settle('reset', 'act', 'bad', false);
SELECT k, idem_reset('reset', 'act', k, note => 'wrong parcel') FROM unnest('{good,bad}'::text[]) AS k;
-- once
SELECT k, idem_reset('reset', 'act', k, 'again') FROM unnest('{good,bad,never}'::text[]) AS k;
SELECT count(*) FROM unnest('{good,bad}'::text[]) AS k, idem_lookup('reset', 'act', k);
-- and it is new, also with other inputs
BEGIN;
SELECT outcome, attempt FROM idem_claim('reset', 'act', 'good', '{"n": 2}');
SELECT idem_complete('reset', 'act', 'good', '"new"') AS expires_at;
COMMIT;
SELECT outcome, result FROM idem_claim('reset', 'act', 'good', '{"n": 2}');
-- also one that is expired; not one that is forgotten
CALL pg_temp.settle('reset', 'act', 'old', true);
SET pg_idem.test_now = '2030-01-04 00:00:00+00';
SELECT outcome FROM idem_claim('reset', 'act', 'old', '{"n": 1}');
SELECT idem_reset('reset', 'act', 'old', 'expired');
SET pg_idem.test_now = '2031-01-01 00:00:00+00';
SELECT idem_reset('reset', 'act', 'good', 'forgotten');
SELECT count(*) FROM idem_settled WHERE account = 'reset' AND key = 'good';
SET pg_idem.test_now = '2030-01-01 00:00:00+00';

-- What is in flight is refused: in progress, released, interrupted, in review
SELECT a, outcome FROM unnest('{act,fail,review}'::text[]) AS a, idem_claim('reset', a, 'flying', '{"n": 1}', lease => '1 min', token => :t1);
SELECT idem_reset('reset', 'act', 'flying', 'n');
SELECT idem_reset('reset', 'fail', 'flying', 'n');
SELECT idem_release('reset', 'act', 'flying', :t1);
SELECT idem_reset('reset', 'act', 'flying', 'n');
SET pg_idem.test_now = '2030-01-01 00:01:00+00';
SELECT idem_reset('reset', 'review', 'flying', 'n');
SELECT outcome FROM idem_claim('reset', 'review', 'flying', '{"n": 1}', lease => '1 min');
SELECT idem_reset('reset', 'review', 'flying', 'n');
-- an attempt that has failed by the clock counts as settled
SELECT idem_reset('reset', 'fail', 'flying', 'failed by rule');
SELECT idem_guard('reset', 'fail', 'flying', :t1);
BEGIN;
SELECT outcome, attempt FROM idem_claim('reset', 'fail', 'flying', '{"n": 2}');
ROLLBACK;
SELECT action, state FROM idempotent_operations WHERE account = 'reset' AND key = 'flying' ORDER BY action;

-- What this transaction itself has claimed or settled
BEGIN;
SELECT outcome FROM idem_claim('reset', 'act', 'here', '{}');
SAVEPOINT s;
SELECT idem_reset('reset', 'act', 'here', 'n');
ROLLBACK TO s;
SELECT idem_complete('reset', 'act', 'here') AS expires_at;
SAVEPOINT s;
SELECT idem_reset('reset', 'act', 'here', 'n');
ROLLBACK TO s;
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('reset', 'act', 'leased', '{}', lease => '1 min');
SELECT idem_reset('reset', 'act', 'leased', 'n');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('reset', 'act', 'leased', '{}');
SELECT idem_release('reset', 'act', 'leased');
SELECT idem_reset('reset', 'act', 'leased', 'released in this transaction');
COMMIT;
-- G2 with its transaction, or not at all; and claimed again in the very transaction
BEGIN;
SELECT idem_reset('reset', 'act', 'here', 'rolled back');
ROLLBACK;
SELECT outcome FROM idem_claim('reset', 'act', 'here', '{}');
BEGIN;
SAVEPOINT s;
SELECT idem_reset('reset', 'act', 'here', 'rolled back');
ROLLBACK TO s;
SELECT outcome FROM idem_claim('reset', 'act', 'here', '{}');
SELECT idem_reset('reset', 'act', 'here', 'once more');
SELECT outcome, attempt FROM idem_claim('reset', 'act', 'here', '{"other": 1}');
SELECT idem_complete('reset', 'act', 'here', '"other"') AS expires_at;
COMMIT;
SELECT outcome, result FROM idem_claim('reset', 'act', 'here', '{"other": 1}');
-- G6 the owner whose outcome was forgotten
SELECT outcome FROM idem_claim('reset', 'act', 'owner', '{}', lease => '1 min', token => :t1);
SELECT idem_complete('reset', 'act', 'owner', token => :t1) AS expires_at;
SELECT idem_complete('reset', 'act', 'owner', token => :t1);
SELECT idem_reset('reset', 'act', 'owner', 'n');
SELECT idem_complete('reset', 'act', 'owner', token => :t1);
-- A false answer keeps no lock, a true one does; the timeout of an idle transaction is armed with it
CREATE VIEW erase_locks AS SELECT count(*) AS locks, current_setting('idle_in_transaction_session_timeout') AS timeout FROM pg_locks
 WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
SET idle_in_transaction_session_timeout = 0;
BEGIN;
SELECT idem_reset('reset', 'act', 'never', 'n');
SELECT * FROM erase_locks;
SELECT idem_reset('reset', 'act', 'here', 'n');
SELECT * FROM erase_locks;
ROLLBACK;
-- The record
SELECT call, action, key, verdict, attempt, rows, note FROM idem_audit WHERE account = 'reset' ORDER BY called_at, note, key;
-- G12
SELECT idem_reset('reset', 'act', 'here', NULL);
SELECT idem_reset('reset', 'act', 'here', '');
SELECT idem_reset('reset', 'act', 'here', E' \t\n');
SELECT idem_reset('reset', 'act', 'here', repeat('n', 8001));
SELECT idem_reset('reset', NULL, 'here', 'n');
SELECT idem_reset('', 'act', 'here', 'n');
SELECT idem_reset('reset', repeat('a', 129), 'here', 'n');
BEGIN READ ONLY;
SELECT idem_reset('reset', 'act', 'here', 'n');
ROLLBACK;
\set VERBOSITY default
SELECT idem_reset('reset', 'act', 'here', NULL);
SELECT idem_reset('reset', 'act', 'flying', 'n');
BEGIN;
SELECT outcome FROM idem_claim('reset', 'act', 'mine', '{}');
SELECT idem_reset('reset', 'act', 'mine', 'n');
ROLLBACK;
\set VERBOSITY sqlstate

-- ---- idem_erase
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
CALL pg_temp.settle('erase', 'act', 'good', true);
CALL pg_temp.settle('erase', 'fail', 'bad', false);
BEGIN;
SELECT outcome FROM idem_claim('erase', 'act', 'empty', '{"n": 1}');
SELECT idem_complete('erase', 'act', 'empty') AS expires_at;
COMMIT;
CALL pg_temp.settle('erased not', 'act', 'good', true);
CALL pg_temp.settle('eras', 'act', 'good', true);
SELECT a, outcome FROM unnest('{act,review}'::text[]) AS a, idem_claim('erase', a, 'flying', '{"n": 1}', lease => '1 min', owner => 'me', token => :t1);
SELECT idem_checkpoint('erase', 'act', 'flying', :t1, 'half', '"secret"') AS deadline;
SELECT outcome FROM idem_claim('erase', 'act', 'error', '{"n": 1}', lease => '1 min', owner => 'me', token => :t1);
SELECT idem_release('erase', 'act', 'error', :t1, error => 'secret', retry_after => '0');
SELECT * FROM idem_erase('erase', note => 'asked to be forgotten');
-- G7 replays are expired, which still says what it was; G4 other inputs are a mismatch; G1 nothing is carried out again
SELECT a, k, o.outcome, settled_as, status, result, body, body_bytes, settled_at, expires_at
  FROM (VALUES ('act', 'good'), ('fail', 'bad'), ('act', 'empty')) AS x(a, k), idem_claim('erase', a, k, '{"n": 1}') AS o;
SELECT a, k, outcome FROM (VALUES ('act', 'good'), ('fail', 'bad'), ('act', 'empty')) AS x(a, k), idem_claim('erase', a, k, '{"n": 2}');
SELECT action, key, state, attempt, settled_as, status, request, result, body, body_bytes FROM idempotent_operations WHERE account = 'erase' AND settled_at IS NOT NULL ORDER BY 1, 2;
SELECT count(*) FROM idem_settled WHERE account = 'erase' AND num_nonnulls(request, result, body, body_bytes) > 0;
SELECT count(*) FROM idem_settled WHERE account = 'erase' AND fingerprint IS NULL;
SELECT idem_complete('erase', 'act', 'good');
-- what is in flight goes on, with its checkpoint
SELECT action, key, state, attempt, owner, last_error, request, checkpoint, progress FROM idempotent_operations WHERE account = 'erase' AND settled_at IS NULL ORDER BY 1, 2;
SELECT idem_guard('erase', 'act', 'flying', :t1) AS deadline;
SELECT outcome FROM idem_claim('erase', 'act', 'flying', '{"n": 2}');
SELECT outcome, attempt FROM idem_claim('erase', 'act', 'error', '{"n": 1}', lease => '1 min', token => :t1);
-- nobody else's
SELECT account, outcome, result FROM unnest('{erased not,eras}'::text[]) AS account, idem_claim(account, 'act', 'good', '{"n": 1}');
-- again until 0; what comes later is found by the next call
SELECT * FROM idem_erase('erase', 'n');
SELECT idem_complete('erase', 'act', 'flying', '"late secret"', token => :t1) AS expires_at;
SELECT * FROM idem_erase('erase', 'n');
SELECT * FROM idem_erase('erase', 'n');
SELECT outcome, result FROM idem_claim('erase', 'act', 'flying', '{"n": 1}');
SELECT * FROM idem_erase('erase nobody', 'n');
-- expired and forgotten rows too
CALL pg_temp.settle('erase', 'act', 'expired', true);
SET pg_idem.test_now = '2030-01-05 00:00:00+00';
SELECT * FROM idem_erase('erase', 'expired');
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
CALL pg_temp.settle('erase', 'act', 'forgotten', true);
SET pg_idem.test_now = '2031-01-01 00:00:00+00';
SELECT * FROM idem_erase('erase', 'forgotten');
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
-- G2 with its transaction, or not at all; what this transaction holds goes on
CALL pg_temp.settle('erase', 'act', 'back', true);
BEGIN;
SELECT outcome FROM idem_claim('erase', 'act', 'open', '{"n": 1}');
SELECT outcome FROM idem_claim('erase', 'act', 'open leased', '{"n": 1}', lease => '1 min', token => :t1);
SAVEPOINT s;
SELECT * FROM idem_erase('erase', 'n');
SELECT * FROM erase_locks;
ROLLBACK TO s;
SELECT * FROM erase_locks;
SELECT * FROM idem_erase('erase', 'n');
SELECT * FROM idem_erase('erase', 'n');
SELECT idem_complete('erase', 'act', 'open', '"open"') AS expires_at, idem_complete('erase', 'act', 'open leased', '"leased"') AS leased_expires_at;
ROLLBACK;
SELECT outcome, result FROM idem_claim('erase', 'act', 'back', '{"n": 1}');
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1;
SELECT * FROM idem_erase('erase', 'n');
COMMIT;
SELECT outcome, result FROM idem_claim('erase', 'act', 'back', '{"n": 1}');
-- an erased one may be reset
SELECT idem_reset('erase', 'act', 'back', 'n');
CALL pg_temp.settle('erase', 'act', 'back', true);
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT 1;
SELECT * FROM idem_erase('erase', 'n');
COMMIT;
-- The record
SELECT call, action, key, verdict, attempt, rows, note FROM idem_audit WHERE account = 'erase' AND call = 'erase' ORDER BY called_at, note, rows;
RESET idle_in_transaction_session_timeout;

-- A large account: at most batch_size rows a call, and each call goes on where the last one stopped
CREATE PROCEDURE pg_temp.fill(acc text, actions int, keys int) LANGUAGE sql AS $$
    INSERT INTO idem_settled (settled_at, expires_at, forget_at, attempt, succeeded, stripped, account, action, key, fingerprint, result)
    SELECT '2030-01-01', '2030-02-01', '2030-03-01', 1, true, false, acc, 'a' || a, 'k' || k, '\x01', '"secret"'
      FROM generate_series(1, actions) AS a, generate_series(1, keys) AS k
$$;
CREATE TEMP TABLE erase_call (n serial, rows bigint, read bigint);
-- Each call in a transaction of its own; read: index entries that it came by.
CREATE PROCEDURE pg_temp.erase_all(acc text) LANGUAGE plpgsql AS $$
DECLARE before bigint; read bigint; erased bigint;
BEGIN
    TRUNCATE erase_call RESTART IDENTITY;
    LOOP
        before := pg_stat_get_xact_tuples_returned('idem_settled_pkey'::regclass);
        SELECT sum(e.rows) INTO erased FROM idem_erase(acc, 'large') AS e;
        read := pg_stat_get_xact_tuples_returned('idem_settled_pkey'::regclass) - before;
        INSERT INTO erase_call (rows, read) VALUES (erased, read);
        COMMIT;
        EXIT WHEN erased = 0;
    END LOOP;
END $$;
SHOW pg_idem.batch_size;
CALL pg_temp.fill('large', 3, 3500);
CALL pg_temp.erase_all('large');
SELECT n, rows, read < 3 * 1000 + 200 AS "linear" FROM erase_call WHERE rows = 1000 ORDER BY n;
SELECT n, rows, read < 3 * 10500 + 200 AS "a whole round" FROM erase_call WHERE rows < 1000 ORDER BY n;
SELECT count(*), count(result), count(*) FILTER (WHERE stripped) AS stripped FROM idem_settled WHERE account = 'large';
-- as little when there is nothing to do any more
CALL pg_temp.erase_all('large');
SELECT n, rows, read < 3 * 10500 + 200 AS "a whole round" FROM erase_call ORDER BY n;
-- A call that was rolled back, rows that come in behind the others, and another account in between
CALL pg_temp.fill('large 2', 1, 2500);
CALL pg_temp.fill('large 3', 1, 1200);
BEGIN;
SELECT * FROM idem_erase('large 2', 'n');
ROLLBACK;
SELECT * FROM idem_erase('large 2', 'n');
CALL pg_temp.settle('large 2', 'a0', 'behind', true);
SELECT * FROM idem_erase('large 3', 'n');
SELECT * FROM idem_erase('large 2', 'n');
CALL pg_temp.erase_all('large 2');
SELECT n, rows FROM erase_call ORDER BY n;
CALL pg_temp.erase_all('large 3');
SELECT n, rows FROM erase_call ORDER BY n;
SELECT account, count(*), count(result), count(*) FILTER (WHERE stripped) AS stripped FROM idem_settled WHERE account LIKE 'large _' GROUP BY account ORDER BY account;

-- Who may: EXECUTE is the gate, and opens no table; the account is not asked for
CREATE ROLE regress_idem_operator;
SET ROLE regress_idem_operator;
SELECT idem_erase('large', 'n');
SELECT idem_reset('large', 'a1', 'k1', 'n');
RESET ROLE;
GRANT EXECUTE ON FUNCTION idem_erase, idem_reset TO regress_idem_operator;
SET pg_idem.account_from = 'role';
CALL pg_temp.fill('large 4', 1, 1);
SET ROLE regress_idem_operator;
SELECT * FROM idem_erase('large 4', 'by operator');
SELECT idem_reset('large 4', 'a1', 'k1', 'by operator');
SELECT count(*) FROM idem_settled;
RESET ROLE;
RESET pg_idem.account_from;
SELECT call, account, rows, session_user_name = session_user AS session, user_name FROM idem_audit WHERE note = 'by operator' ORDER BY call;
DROP OWNED BY regress_idem_operator;
DROP ROLE regress_idem_operator;
-- G12
SELECT * FROM idem_erase('large', NULL);
SELECT * FROM idem_erase('large', '');
SELECT * FROM idem_erase('large', U&'\00A0\2003');
SELECT * FROM idem_erase('large', repeat('n', 8001));
SELECT * FROM idem_erase(NULL, 'n');
SELECT * FROM idem_erase('  ', 'n');
SELECT * FROM idem_erase(repeat('a', 256), 'n');
BEGIN READ ONLY;
SELECT * FROM idem_erase('large', 'n');
ROLLBACK;
RESET pg_idem.test_now;
DROP VIEW erase_locks;
DELETE FROM idem_policies;
DELETE FROM idem_audit;
DELETE FROM idem_inflight WHERE account IN ('reset', 'erase');
DELETE FROM idem_settled WHERE account IN ('reset', 'erase', 'erased not', 'eras') OR account LIKE 'large%';
