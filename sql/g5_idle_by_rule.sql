-- G5 A claim that is answered by rule writes, and keeps the key lock to the end of its transaction: the timeout of an idle
-- transaction is armed then too, though nothing was granted.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET idle_in_transaction_session_timeout = 0;
INSERT INTO idem_policies (action, on_interrupt, max_attempts) VALUES ('fail', 'fail', NULL), ('review', 'review', NULL), ('used up', NULL, 1);
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SELECT a, k, outcome FROM unnest('{fail,review,used up}'::text[]) AS a, unnest('{k,run}'::text[]) AS k,
       idem_claim('idle', a, k, '{}', lease => '1 min') ORDER BY 1, 2;
SET pg_idem.test_now = '2030-01-01 00:01:00+00';
CREATE VIEW idle_locks AS SELECT count(*) AS locks, current_setting('idle_in_transaction_session_timeout') AS timeout FROM pg_locks
 WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
CREATE FUNCTION idle_handler(jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT $1';

-- G5 recorded by this claim, whether it asked for a lease or not
BEGIN;
SELECT outcome FROM idem_claim('idle', 'fail', 'k', '{}');
SELECT * FROM idle_locks;
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('idle', 'review', 'k', '{}');
SELECT * FROM idle_locks;
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('idle', 'used up', 'k', '{}');
SELECT * FROM idle_locks;
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('idle', 'fail', 'k', '{}', lease => '1 min');
SELECT * FROM idle_locks;
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('idle', 'review', 'k', '{}', lease => '1 min');
SELECT * FROM idle_locks;
ROLLBACK;
-- G5 by idem_run
BEGIN;
SELECT outcome, replayed FROM idem_run('idle', 'fail', 'run', '{}', 'idle_handler(jsonb)');
SELECT * FROM idle_locks;
ROLLBACK;
BEGIN;
SELECT outcome, replayed FROM idem_run('idle', 'review', 'run', '{}', 'idle_handler(jsonb)');
SELECT * FROM idle_locks;
ROLLBACK;
-- G5 it goes with the savepoint, as the lock does, and with the transaction
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_claim('idle', 'fail', 'k', '{}');
ROLLBACK TO a;
SELECT * FROM idle_locks;
SAVEPOINT a;
SELECT outcome FROM idem_claim('idle', 'fail', 'k', '{}');
RELEASE a;
SELECT * FROM idle_locks;
COMMIT;
SELECT * FROM idle_locks;
-- G5 what has been recorded is answered without a lock, and arms nothing
BEGIN;
SELECT outcome, replayed FROM idem_claim('idle', 'fail', 'k', '{}');
SELECT * FROM idle_locks;
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('idle', 'review', 'k', '{}');
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('idle', 'review', 'k', '{}');
SELECT * FROM idle_locks;
COMMIT;
-- G5 a timeout of the caller's own, or ours turned off, stays as it is
SET idle_in_transaction_session_timeout = '1h';
BEGIN;
SELECT outcome FROM idem_claim('idle', 'used up', 'run', '{}');
SELECT * FROM idle_locks;
ROLLBACK;
RESET idle_in_transaction_session_timeout;
SET idle_in_transaction_session_timeout = 0;
SET pg_idem.idle_claim_timeout = 0;
BEGIN;
SELECT outcome FROM idem_claim('idle', 'used up', 'run', '{}');
SELECT * FROM idle_locks;
ROLLBACK;
RESET pg_idem.idle_claim_timeout;
RESET idle_in_transaction_session_timeout;
RESET pg_idem.test_now;
DROP VIEW idle_locks;
DROP FUNCTION idle_handler;
DELETE FROM idem_policies;
DELETE FROM idem_inflight WHERE account = 'idle';
DELETE FROM idem_settled WHERE account = 'idle';
