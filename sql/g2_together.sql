-- G2 Together or not at all: a transaction-scoped claim, its outcome and the business change.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE TABLE g2_charge (op text);

-- G2 First attempt: claimed, charged, completed
BEGIN;
SELECT outcome, replayed, attempt, token, settled_as, status, result, body, checkpoint, progress, holder, retry_after,
       settled_at, expires_at
  FROM idem_claim('g2', 'charge', 'k1', '{"amount": 10}');
INSERT INTO g2_charge VALUES ('k1');
SELECT t - clock_timestamp() BETWEEN '71:59:00' AND '72:00:00' AS replayed_for_three_days
  FROM idem_complete('g2', 'charge', 'k1', '{"charge": 1}', 201) AS t;
COMMIT;
-- G2 Retry: the recorded outcome, and nothing to settle
SELECT outcome, replayed, attempt, token, settled_as, status, result, body, checkpoint, progress, holder, retry_after
  FROM idem_claim('g2', 'charge', 'k1', '{"amount": 10}');
SELECT op, count(*) FROM g2_charge GROUP BY op;

-- G2 Rolled back: neither the change nor the outcome
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k2', '{}');
INSERT INTO g2_charge VALUES ('k2');
SELECT idem_complete('g2', 'charge', 'k2') IS NOT NULL AS ok;
ROLLBACK;
SELECT count(*) FROM idem_lookup('g2', 'charge', 'k2');
SELECT count(*) FROM g2_charge WHERE op = 'k2';

-- G2 An error after settling takes the outcome along
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k2', '{}');
SELECT idem_complete('g2', 'charge', 'k2') IS NOT NULL AS ok;
SELECT 1 / 0;
COMMIT;
SELECT count(*) FROM idem_lookup('g2', 'charge', 'k2');

-- G2 A deferred constraint that fails at commit takes the outcome along
CREATE TABLE g2_deferred (id int UNIQUE DEFERRABLE INITIALLY DEFERRED);
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k2', '{}');
INSERT INTO g2_deferred VALUES (1), (1);
SELECT idem_complete('g2', 'charge', 'k2') IS NOT NULL AS ok;
COMMIT;
SELECT count(*) FROM idem_lookup('g2', 'charge', 'k2');

-- G2 A final failure is recorded and replayed like a success
BEGIN;
SELECT outcome, replayed FROM idem_claim('g2', 'charge', 'k3', '{}');
SELECT idem_fail('g2', 'charge', 'k3', '{"error": "card declined"}', 402, 'declined') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, replayed, settled_as, status, result, body FROM idem_claim('g2', 'charge', 'k3', '{}');

-- G2 Settled within this transaction: the claim is answered from it
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k4', '{}');
SELECT idem_complete('g2', 'charge', 'k4', '4') IS NOT NULL AS ok;
SELECT outcome, replayed, result FROM idem_claim('g2', 'charge', 'k4', '{}');
COMMIT;

-- G2 A second settle raises, whatever the outcome given: in the same transaction
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k5', '{}');
SELECT idem_complete('g2', 'charge', 'k5', '5') IS NOT NULL AS ok;
SELECT idem_complete('g2', 'charge', 'k5', '5');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k5', '{}');
SELECT idem_complete('g2', 'charge', 'k5', '5') IS NOT NULL AS ok;
SELECT idem_fail('g2', 'charge', 'k5', '5');
ROLLBACK;
-- G2 and in a later one, where it undoes what was done again
BEGIN;
INSERT INTO g2_charge VALUES ('k1');
SELECT idem_complete('g2', 'charge', 'k1', '{"charge": 1}', 201);
COMMIT;
BEGIN;
INSERT INTO g2_charge VALUES ('k1');
SELECT idem_fail('g2', 'charge', 'k1');
COMMIT;
SELECT op, count(*) FROM g2_charge GROUP BY op;
SELECT outcome, settled_as, status, result FROM idem_claim('g2', 'charge', 'k1', '{"amount": 10}');

-- G2 What this transaction has not claimed cannot be settled
SELECT idem_complete('g2', 'charge', 'never', '1');
SELECT idem_fail('g2', 'charge', 'never', '1');
SELECT count(*) FROM idem_lookup('g2', 'charge', 'never');

-- Release: nothing recorded, the key is free afterwards
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k6', '{}');
SELECT idem_release('g2', 'charge', 'k6');
-- and it is not ours any more
SELECT idem_release('g2', 'charge', 'k6');
SAVEPOINT s;
SELECT idem_complete('g2', 'charge', 'k6');
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM idem_lookup('g2', 'charge', 'k6');
-- The same transaction may claim it again
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k6', '{}');
SELECT idem_release('g2', 'charge', 'k6', retry_after => '1 hour', error => 'is not recorded');
SELECT outcome FROM idem_claim('g2', 'charge', 'k6', '{}');
SELECT idem_complete('g2', 'charge', 'k6', '6') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, attempt, result FROM idem_claim('g2', 'charge', 'k6', '{}');

-- A second claim of what this transaction holds
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k7', '{}');
SELECT outcome FROM idem_claim('g2', 'charge', 'k7', '{}');
ROLLBACK;
-- with a lease too, and of a leased one
BEGIN;
SELECT outcome FROM idem_claim('g2', 'charge', 'k7', '{}');
SELECT outcome FROM idem_claim('g2', 'charge', 'k7', '{}', lease => '1 min');
ROLLBACK;
-- (f()).* calls a function once for each column
BEGIN;
SELECT (idem_claim('g2', 'charge', 'k7', '{}')).*;
ROLLBACK;
SELECT count(*) FROM idem_lookup('g2', 'charge', 'k7');

-- Several operations in one transaction, settled in another order
BEGIN;
SELECT n, outcome FROM generate_series(1, 4) AS n, idem_claim('g2', 'many', 'm' || n, '{}');
SELECT n, idem_complete('g2', 'many', 'm' || n, to_jsonb(n)) IS NOT NULL AS ok FROM unnest('{3,1,4,2}'::int[]) AS n;
COMMIT;
SELECT n, outcome, result FROM generate_series(1, 4) AS n, idem_claim('g2', 'many', 'm' || n, '{}');

-- At REPEATABLE READ and SERIALIZABLE
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM idem_claim('g2', 'levels', 'rr', '{}');
SELECT idem_complete('g2', 'levels', 'rr', '"rr"') IS NOT NULL AS ok;
SELECT outcome, result FROM idem_claim('g2', 'levels', 'rr', '{}');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT outcome FROM idem_claim('g2', 'levels', 'ser', '{}');
SELECT idem_complete('g2', 'levels', 'ser', '"ser"') IS NOT NULL AS ok;
SELECT outcome, result FROM idem_claim('g2', 'levels', 'ser', '{}');
COMMIT;
SELECT key, state, result FROM idempotent_operations WHERE action = 'levels' ORDER BY key;

-- Nothing is left in the lock table
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
DROP TABLE g2_charge, g2_deferred;
