-- G8 idem_lookup: the authoritative answer in every state. (Against open claims of others: test/isolation.)
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
-- G8 Nothing there
SELECT * FROM idem_lookup('g8', 'act', 'nothing');
-- G8 This transaction's own claim: in progress, held by this process; then what it settled
BEGIN;
SELECT outcome FROM idem_claim('g8', 'act', 'own', '{}');
SELECT account, action, key, state, owner = pg_backend_pid()::text AS owner, settled_as, status, result, settled_at FROM idem_lookup('g8', 'act', 'own');
SELECT count(*) FROM idempotent_operations WHERE account = 'g8';
SELECT idem_complete('g8', 'act', 'own', '1', 201, 'text', '\x00') IS NOT NULL AS ok;
SELECT account, action, key, state, settled_as, status, result, body, body_bytes FROM idem_lookup('g8', 'act', 'own');
ROLLBACK;
SELECT count(*) FROM idem_lookup('g8', 'act', 'own');
-- G8 Claimed and released within the transaction
BEGIN;
SELECT outcome FROM idem_claim('g8', 'act', 'own', '{}');
SELECT idem_release('g8', 'act', 'own');
SELECT state FROM idem_lookup('g8', 'act', 'own');
COMMIT;
SELECT count(*) FROM idem_lookup('g8', 'act', 'own');
-- G8 At REPEATABLE READ and SERIALIZABLE, in a read-only transaction, in a cursor
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;
SELECT count(*) FROM idem_lookup('g8', 'act', 'own');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT count(*) FROM idem_lookup('g8', 'act', 'own');
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('g8', 'act', 'cursor', '{}', lease => '1 min');
DECLARE c CURSOR FOR SELECT state FROM idem_lookup('g8', 'act', 'cursor');
FETCH ALL c;
COMMIT;
-- G8 It acquires nothing
BEGIN;
SELECT count(*) FROM idem_lookup('g8', 'act', 'nothing');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid();
COMMIT;
-- G8 in a lateral join over many keys, one row or none for each
SELECT n, l.state FROM generate_series(1, 3) AS n LEFT JOIN LATERAL idem_lookup('g8', 'act', CASE n WHEN 2 THEN 'cursor' ELSE 'nothing' END) AS l ON true ORDER BY n;
-- G8 A row type like any other: a function may return it
CREATE FUNCTION g8_find(k text) RETURNS SETOF idempotent_operations LANGUAGE sql AS $$ SELECT * FROM idem_lookup('g8', 'act', k) $$;
SELECT state FROM g8_find('cursor');
DROP FUNCTION g8_find;
-- G8 An interrupted operation that this transaction has taken over without a lease is in progress again, held by this process
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SELECT outcome FROM idem_claim('g8', 'act', 'taken', '{}', lease => '1 min', owner => 'first');
SET pg_idem.test_now = '2030-01-01 00:01:00+00';
SELECT state, owner FROM idem_lookup('g8', 'act', 'taken');
BEGIN;
SELECT outcome FROM idem_claim('g8', 'act', 'taken', '{}');
SELECT state, owner = pg_backend_pid()::text AS owner FROM idem_lookup('g8', 'act', 'taken');
ROLLBACK;
SELECT state, owner FROM idem_lookup('g8', 'act', 'taken');
RESET pg_idem.test_now;
