-- idem_import brings over the records of a hand-made table, with their times.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
DELETE FROM idem_audit;
INSERT INTO idem_policies (action, retention, remember, max_outcome_bytes, on_interrupt) VALUES ('act', '1 day', '10 days', 20, NULL), ('fail', NULL, NULL, NULL, 'fail');
SET pg_idem.test_now = '2030-01-20 00:00:00+00';
CREATE TABLE import_old (account text, key text, done boolean, code int, answer jsonb, page text, request jsonb, at timestamptz);
INSERT INTO import_old VALUES
    ('import', 'fresh', true, 200, '"r"', 'body', '{"n": 1}', '2030-01-19 12:00:00+00'),
    ('import', 'failed', false, 400, NULL, NULL, '{"n": 1}', '2030-01-20 00:00:00+00'),
    ('import', 'no print', true, NULL, '"r"', NULL, NULL, '2030-01-19 00:00:00.000001+00'),
    ('import', 'expired', true, 201, '"secret"', 'secret', '{"n": 1}', '2030-01-19 00:00:00+00'),
    ('import', 'last', true, 202, '"secret"', 'secret', '{"n": 1}', '2030-01-09 00:00:00.000001+00'),
    ('import', 'forgotten', true, 203, '"secret"', 'secret', '{"n": 1}', '2030-01-09 00:00:00+00'),
    ('import', 'ancient', true, 203, '"secret"', 'secret', '{"n": 1}', '4000-01-01 00:00:00+00 BC');
SELECT key, idem_import(account, 'act', key, settled_as => CASE WHEN done THEN 'completed' ELSE 'failed' END, status => code, result => answer,
                        body => page, fingerprint => idem_fingerprint(request), settled_at => at) FROM import_old;
-- G3 replayed like what was settled here; G7 expired, forgotten, by the times that they had
SELECT key, o.outcome, replayed, attempt, settled_as, status, result, body, settled_at, expires_at
  FROM import_old AS i, idem_claim(i.account, 'act', i.key, COALESCE(request, '{}'), lease => '1 min') AS o;
SELECT i.key, state, attempt, claimed_at, forget_at FROM import_old AS i, idem_lookup(i.account, 'act', i.key);
-- G4
SELECT key, o.outcome FROM import_old AS i, idem_claim(i.account, 'act', i.key, '{"n": 2}') AS o WHERE key IN ('fresh', 'failed', 'no print', 'expired', 'last');
-- the payload of what is expired has not even been stored
SELECT key, stripped, num_nonnulls(request, result, body, body_bytes) AS payload FROM idem_settled WHERE account = 'import' ORDER BY key COLLATE "C";
-- Known already: settled and remembered, in flight, or failed by the clock
SELECT key, idem_import('import', 'act', key, 'failed', settled_at => '2030-01-20 00:00:00+00') FROM import_old WHERE key NOT IN ('forgotten', 'ancient');
SELECT key, idem_import('import', 'act', key, 'failed', settled_at => '2030-01-20 00:00:00+00') FROM import_old WHERE key IN ('forgotten', 'ancient');
SELECT outcome FROM idem_claim('import', 'fail', 'flying', '{}', lease => '1 min', token => :t1);
SELECT idem_import('import', 'fail', 'flying', 'completed', settled_at => '2030-01-01 00:00:00+00');
SET pg_idem.test_now = '2030-01-20 00:01:00+00';
SELECT idem_import('import', 'fail', 'flying', 'completed', settled_at => '2030-01-01 00:00:00+00');
BEGIN;
SELECT outcome FROM idem_claim('import', 'act', 'here', '{}');
SELECT idem_import('import', 'act', 'here', 'completed', settled_at => '2030-01-20 00:00:00+00');
SELECT idem_complete('import', 'act', 'here') AS expires_at;
SELECT idem_import('import', 'act', 'here', 'completed', settled_at => '2030-01-20 00:00:00+00');
COMMIT;
-- A forgotten record makes room
SET pg_idem.test_now = '2030-03-01 00:00:00+00';
SELECT idem_import('import', 'act', 'fresh', 'failed', 500, '"new"', settled_at => '2030-03-01 00:00:00+00');
SELECT outcome, status, result FROM idem_claim('import', 'act', 'fresh', '{"any": 1}');
-- G2 with its transaction, or not at all; reset after that
BEGIN;
SELECT idem_import('import', 'act', 'back', 'completed', settled_at => '2030-03-01 00:00:00+00');
SELECT outcome, settled_at FROM idem_claim('import', 'act', 'back', '{}');
SELECT idem_reset('import', 'act', 'back', 'n');
ROLLBACK;
SELECT count(*) FROM idem_lookup('import', 'act', 'back');
BEGIN;
SAVEPOINT s;
SELECT idem_import('import', 'act', 'back', 'completed', settled_at => '2030-03-01 00:00:00+00');
ROLLBACK TO s;
SELECT outcome FROM idem_claim('import', 'act', 'back', '{}');
SELECT idem_complete('import', 'act', 'back', '"claimed"') AS expires_at;
COMMIT;
SELECT idem_import('import', 'act', 'back', 'completed', settled_at => '2030-03-01 00:00:00+00');
SELECT idem_reset('import', 'act', 'back', 'n');
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT 1;
SELECT idem_import('import', 'act', 'back', 'completed', fingerprint => '\x01', settled_at => '2030-03-01 00:00:00+00');
COMMIT;
SELECT outcome FROM idem_claim('import', 'act', 'back', fingerprint => '\x01');
SELECT outcome FROM idem_claim('import', 'act', 'back', fingerprint => '\x02');
SELECT idem_claim('import', 'act', 'back');
-- False keeps no lock. Each one that was recorded has a lock: too many in one transaction are refused, and nothing of them remains
BEGIN;
SELECT idem_import('import', 'act', 'back', 'completed', settled_at => '2030-03-01 00:00:00+00');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
ROLLBACK;
SET pg_idem.max_claims_per_transaction = 10;
SELECT count(*) FROM generate_series(1, 10) AS n, idem_import('import many', 'act', n::text, 'completed', settled_at => '2030-03-01 00:00:00+00') AS i WHERE i;
SELECT count(*) FROM generate_series(11, 21) AS n, idem_import('import many', 'act', n::text, 'completed', settled_at => '2030-03-01 00:00:00+00') AS i WHERE i;
RESET pg_idem.max_claims_per_transaction;
SELECT count(*) FROM idem_settled WHERE account = 'import many';
-- in batches
DO $$
BEGIN
    FOR i IN 0..2 LOOP
        PERFORM idem_import('import many', 'act', n::text, 'completed', settled_at => '2030-03-01 00:00:00+00') FROM generate_series(i * 1000 + 1, (i + 1) * 1000) AS n;
        COMMIT;
    END LOOP;
END $$;
SELECT count(*) FROM idem_settled WHERE account = 'import many';
-- The record
SELECT call, action, key, verdict, attempt, rows, note FROM idem_audit WHERE account = 'import' AND called_at < '2030-02-01' ORDER BY called_at, key COLLATE "C", verdict, rows;
SELECT count(*), sum(rows) FROM idem_audit WHERE account = 'import many';

-- Who may: EXECUTE is the gate, and opens no table; the account is not asked for
CREATE ROLE regress_idem_operator;
SET ROLE regress_idem_operator;
SELECT idem_import('import', 'act', 'role', 'completed', settled_at => '2030-03-01 00:00:00+00');
RESET ROLE;
GRANT EXECUTE ON FUNCTION idem_import TO regress_idem_operator;
SET pg_idem.account_from = 'role';
SET ROLE regress_idem_operator;
SELECT idem_import('import', 'act', 'role', 'completed', settled_at => '2030-03-01 00:00:00+00');
SELECT count(*) FROM idem_settled;
RESET ROLE;
RESET pg_idem.account_from;
SELECT call, rows, session_user_name = session_user AS session, user_name FROM idem_audit WHERE key = 'role';
DROP OWNED BY regress_idem_operator;
DROP ROLE regress_idem_operator;

-- G12
SELECT idem_import('import', 'act', 'bad', 'completed');
SELECT idem_import('import', 'act', 'bad', 'completed', settled_at => NULL);
SELECT idem_import('import', 'act', 'bad', 'completed', settled_at => 'infinity');
SELECT idem_import('import', 'act', 'bad', 'completed', settled_at => '-infinity');
SELECT idem_import('import', 'act', 'bad', 'completed', settled_at => '2030-03-01 00:00:00.000001+00');
SELECT idem_import('import', 'act', 'bad', NULL, settled_at => '2030-03-01 00:00:00+00');
SELECT idem_import('import', 'act', 'bad', '', settled_at => '2030-03-01 00:00:00+00');
SELECT idem_import('import', 'act', 'bad', 'retry', settled_at => '2030-03-01 00:00:00+00');
SELECT idem_import('import', 'act', 'bad', 'completed', fingerprint => '', settled_at => '2030-03-01 00:00:00+00');
SELECT idem_import('import', 'act', 'bad', 'completed', fingerprint => decode(repeat('00', 256), 'hex'), settled_at => '2030-03-01 00:00:00+00');
SELECT idem_import('import', 'act', 'bad', 'completed', body => repeat('b', 21), settled_at => '2030-03-01 00:00:00+00');
SELECT idem_import('import', 'act', ' ', 'completed', settled_at => '2030-03-01 00:00:00+00');
SELECT idem_import(NULL, 'act', 'bad', 'completed', settled_at => '2030-03-01 00:00:00+00');
SELECT idem_import('import', 'act', repeat('k', 256), 'completed', settled_at => '2030-03-01 00:00:00+00');
BEGIN READ ONLY;
SELECT idem_import('import', 'act', 'bad', 'completed', settled_at => '2030-03-01 00:00:00+00');
ROLLBACK;
SELECT count(*) FROM idem_lookup('import', 'act', 'bad');
\set VERBOSITY default
SELECT idem_import('import', 'act', 'bad', 'done', settled_at => '2030-03-01 00:00:00+00');
SELECT idem_import('import', 'act', 'bad', 'completed');
SELECT idem_import('import', 'act', 'bad', 'completed', settled_at => '2031-03-01 00:00:00+00');
\set VERBOSITY sqlstate
RESET pg_idem.test_now;
DROP TABLE import_old;
DELETE FROM idem_policies;
DELETE FROM idem_audit;
DELETE FROM idem_inflight WHERE account = 'import';
DELETE FROM idem_settled WHERE account LIKE 'import%';
