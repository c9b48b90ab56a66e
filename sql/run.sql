-- idem_run: claim, handler, outcome in one call. idem_current and idem_reject.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE TABLE run_effect (what text);
CREATE FUNCTION run_ok(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_effect SELECT format('ok %s/%s/%s #%s as %s: %s', account, action, key, attempt, current_user = session_user, request) FROM idem_current();
    RETURN jsonb_build_object('got', request);
END $$;
CREATE FUNCTION run_reject(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_effect VALUES ('reject');
    PERFORM idem_reject('{"error": "no stock"}', (request ->> 'status')::int);
    INSERT INTO run_effect VALUES ('after reject');
    RETURN '"not reached"';
END $$;
CREATE FUNCTION run_swallow(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_effect VALUES ('swallow');
    BEGIN
        PERFORM idem_reject('{"error": "no stock"}');
    EXCEPTION WHEN OTHERS THEN
        INSERT INTO run_effect VALUES ('swallowed ' || SQLSTATE);
    END;
    RETURN '"as if nothing had happened"';
END $$;
CREATE FUNCTION run_error(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_effect VALUES ('error');
    RAISE EXCEPTION USING ERRCODE = request ->> 'code', MESSAGE = 'as asked';
END $$;
CREATE FUNCTION run_strict(jsonb) RETURNS jsonb LANGUAGE sql STRICT AS $$ SELECT '"strict"'::jsonb $$;
CREATE FUNCTION run_null(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT NULL::jsonb $$;

-- The handler runs once; the outcome is replayed
SELECT outcome, replayed, attempt, token, settled_as, status, result, body, settled_at IS NOT NULL AS settled_at, expires_at > settled_at AS expires_at
  FROM idem_run('run', 'act', 'k1', '{"a": 1}', 'run_ok(jsonb)');
SELECT outcome, replayed, attempt, token, settled_as, status, result, body, settled_at IS NOT NULL AS settled_at, expires_at > settled_at AS expires_at
  FROM idem_run('run', 'act', 'k1', '{"a": 1}', 'run_ok(jsonb)');
SELECT outcome, replayed, result FROM idem_claim('run', 'act', 'k1', '{"a": 1}');
SELECT outcome, replayed, result FROM idem_run('run', 'act', 'k1', '{"a": 2}', 'run_ok(jsonb)');
SELECT * FROM run_effect;
DELETE FROM run_effect;
-- A handler that returns NULL has completed
SELECT outcome, replayed, result IS NULL AS sql_null FROM idem_run('run', 'act', 'null', '{}', 'run_null(jsonb)');
SELECT outcome, replayed, result IS NULL AS sql_null FROM idem_run('run', 'act', 'null', '{}', 'run_null(jsonb)');
-- Rolled back with its transaction
BEGIN;
SELECT outcome FROM idem_run('run', 'act', 'k2', '{}', 'run_ok(jsonb)');
ROLLBACK;
SELECT count(*) FROM idem_lookup('run', 'act', 'k2');
SELECT count(*) FROM run_effect;
-- Many in one statement
SELECT n, outcome, replayed, result FROM generate_series(0, 3) AS n, idem_run('run', 'act', 'many ' || n % 3, to_jsonb(n % 3), 'run_strict(jsonb)');

-- idem_reject: a final failure; the changes of the handler are undone
SELECT outcome, replayed, settled_as, status, result FROM idem_run('run', 'act', 'reject', '{"status": 409}', 'run_reject(jsonb)');
SELECT outcome, replayed, settled_as, status, result FROM idem_run('run', 'act', 'reject', '{"status": 409}', 'run_reject(jsonb)');
SELECT outcome, status FROM idem_run('run', 'act', 'reject null', '{}', 'run_reject(jsonb)');
SELECT * FROM run_effect;
-- swallowed by the handler, it is an error after all
SELECT outcome FROM idem_run('run', 'act', 'swallow', '{}', 'run_swallow(jsonb)');
SELECT count(*) FROM idem_lookup('run', 'act', 'swallow');
SELECT * FROM run_effect;
-- outside of idem_run an ordinary error
SELECT idem_reject('{}');
BEGIN;
SELECT outcome FROM idem_claim('run', 'act', 'outside', '{}');
SELECT idem_reject('{}');
ROLLBACK;
DO $$ BEGIN PERFORM idem_reject('{}'); EXCEPTION WHEN SQLSTATE 'IDM08' THEN NULL; END $$;
SELECT outcome FROM idem_run('run', 'act', 'after outside', '1', 'run_ok(jsonb)');
DELETE FROM run_effect;

-- Another error keeps its SQLSTATE and undoes everything, in every class of them
SELECT outcome FROM idem_run('run', 'act', 'error', '{"code": "22012"}', 'run_error(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'error', '{"code": "40001"}', 'run_error(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'error', '{"code": "ZZ999"}', 'run_error(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'error', '{"code": "IDM08"}', 'run_error(jsonb)');
SELECT count(*) FROM idem_lookup('run', 'act', 'error');
SELECT * FROM run_effect;
-- caught, the transaction may go on, and the key is free
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_run('run', 'act', 'error', '{"code": "22012"}', 'run_error(jsonb)');
ROLLBACK TO s;
SELECT outcome FROM idem_run('run', 'act', 'error', '1', 'run_ok(jsonb)');
COMMIT;
DO $$
BEGIN
    INSERT INTO run_effect VALUES ('before');
    BEGIN
        INSERT INTO run_effect VALUES ('undone');
        PERFORM FROM idem_run('run', 'act', 'caught', '{"code": "22012"}', 'run_error(jsonb)');
    EXCEPTION WHEN division_by_zero THEN
        INSERT INTO run_effect VALUES ('caught');
    END;
    BEGIN
        PERFORM FROM idem_run('run', 'act', 'caught', '{}', 'run_swallow(jsonb)');
    EXCEPTION WHEN SQLSTATE 'IDM08' THEN
        INSERT INTO run_effect VALUES ('caught IDM08');
    END;
    PERFORM FROM idem_run('run', 'act', 'caught', '1', 'run_ok(jsonb)');
END $$;
SELECT * FROM run_effect;
DELETE FROM run_effect;

-- In an exception block the levels of subtransactions are as they were: what came before is kept, and COMMIT keeps it
CREATE FUNCTION run_nesting(handler regprocedure) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_effect VALUES ('undone');
    PERFORM FROM idem_run('run', 'nesting', handler::text, '{"code": "22012"}', handler);
EXCEPTION WHEN OTHERS THEN
    RETURN 'caught ' || SQLSTATE;
END $$;
BEGIN;
INSERT INTO run_effect VALUES ('before');
SAVEPOINT a;
SELECT run_nesting('run_error(jsonb)'), run_nesting('run_swallow(jsonb)');
INSERT INTO run_effect VALUES ('between');
RELEASE a;
SAVEPOINT b;
SELECT run_nesting('run_error(jsonb)'), run_nesting('run_swallow(jsonb)');
INSERT INTO run_effect VALUES ('undone');
ROLLBACK TO b;
INSERT INTO run_effect VALUES ('after');
COMMIT;
-- in a procedure that commits
CREATE PROCEDURE run_committing() LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO run_effect VALUES ('procedure: ' || run_nesting('run_error(jsonb)'));
    COMMIT;
    INSERT INTO run_effect VALUES ('procedure: ' || run_nesting('run_swallow(jsonb)'));
    COMMIT;
END $$;
CALL run_committing();
SELECT * FROM run_effect;
SELECT count(*) FROM idempotent_operations WHERE account = 'run' AND action = 'nesting';
-- In a statement of its own the transaction is over, and the next is another
SELECT outcome FROM idem_run('run', 'act', 'alone', '{"code": "22012"}', 'run_error(jsonb)');
SAVEPOINT s;
SELECT outcome FROM idem_run('run', 'act', 'alone', '{}', 'run_swallow(jsonb)');
ROLLBACK TO s;
DROP FUNCTION run_nesting;
DROP PROCEDURE run_committing;
DELETE FROM run_effect;

-- Bad handlers
CREATE FUNCTION run_two(jsonb, jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION run_text(text) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION run_void(jsonb) RETURNS void LANGUAGE sql AS $$ $$;
CREATE FUNCTION run_json(jsonb) RETURNS json LANGUAGE sql AS $$ SELECT '1'::json $$;
CREATE FUNCTION run_set(jsonb) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION run_none() RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE FUNCTION run_default(jsonb, int = 1) RETURNS jsonb LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE PROCEDURE run_procedure(INOUT jsonb) LANGUAGE sql AS $$ SELECT '1'::jsonb $$;
CREATE AGGREGATE run_aggregate(jsonb) (SFUNC = jsonb_concat, STYPE = jsonb);
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_nosuch(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 999999::oid::regprocedure);
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 0::oid::regprocedure);
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', NULL);
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_two(jsonb,jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_text(text)');
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_void(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_json(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_set(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_none()');
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_default(jsonb,int)');
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_procedure(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'bad', '{}', 'run_aggregate(jsonb)');
-- a bad handler is an error even where the outcome could be replayed
SELECT outcome FROM idem_run('run', 'act', 'k1', '{"a": 1}', 'run_void(jsonb)');
SELECT count(*) FROM idem_lookup('run', 'act', 'bad');
DROP FUNCTION run_two, run_text, run_void, run_json, run_set, run_none, run_default;
DROP PROCEDURE run_procedure;
DROP AGGREGATE run_aggregate(jsonb);
-- A strict handler needs a request; another may do without where the policy allows it
INSERT INTO idem_policies (action, fingerprint) VALUES ('optional', 'optional');
SELECT outcome FROM idem_run('run', 'optional', 'strict', NULL, 'run_strict(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'strict', NULL, 'run_strict(jsonb)', fingerprint => '\x01');
SELECT outcome FROM idem_run('run', 'act', 'strict', '{}', 'run_strict(jsonb)');
SELECT outcome FROM idem_run('run', 'act', 'no request', NULL, 'run_ok(jsonb)');
SELECT outcome, result FROM idem_run('run', 'optional', 'no request', NULL, 'run_ok(jsonb)');
SELECT outcome, result FROM idem_run('run', 'act', 'no request', NULL, 'run_ok(jsonb)', fingerprint => '\x01');
DELETE FROM idem_policies;

-- Nested: each has its own outcome; an inner rejection fails the inner one only
CREATE FUNCTION run_outer(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE i idem_claim_result; before text; after text;
BEGIN
    INSERT INTO run_effect VALUES ('outer');
    SELECT key INTO before FROM idem_current();
    SELECT * INTO i FROM idem_run('run', 'inner', request ->> 'key', request, (request ->> 'handler')::regprocedure);
    SELECT key INTO after FROM idem_current();
    RETURN jsonb_build_object('before', before, 'after', after, 'inner', i.outcome, 'replayed', i.replayed, 'result', i.result);
END $$;
SELECT outcome, result FROM idem_run('run', 'outer', 'n1', '{"key": "i1", "handler": "run_ok(jsonb)"}', 'run_outer(jsonb)');
SELECT outcome, result FROM idem_run('run', 'outer', 'n2', '{"key": "i2", "status": 409, "handler": "run_reject(jsonb)"}', 'run_outer(jsonb)');
SELECT outcome, result FROM idem_run('run', 'outer', 'n3', '{"key": "i1", "handler": "run_ok(jsonb)"}', 'run_outer(jsonb)');
SELECT outcome FROM idem_run('run', 'outer', 'n4', '{"key": "i4", "handler": "run_swallow(jsonb)"}', 'run_outer(jsonb)');
SELECT outcome FROM idem_run('run', 'outer', 'n5', '{"key": "i5", "code": "22012", "handler": "run_error(jsonb)"}', 'run_outer(jsonb)');
SELECT key, state, status FROM idempotent_operations WHERE account = 'run' AND action IN ('inner', 'outer') ORDER BY key;
-- An operation that runs itself
CREATE FUNCTION run_self(request jsonb) RETURNS jsonb LANGUAGE sql AS
    $$ SELECT result FROM idem_run('run', 'act', 'self', '{}', 'run_self(jsonb)') $$;
SELECT outcome FROM idem_run('run', 'act', 'self', '{}', 'run_self(jsonb)');
-- A handler that rejects after an inner operation has completed undoes that as well
CREATE FUNCTION run_late_reject(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM idem_run('run', 'inner', 'undone', '1', 'run_ok(jsonb)');
    PERFORM idem_reject('"late"', 400);
    RETURN NULL;
END $$;
SELECT outcome, status, result FROM idem_run('run', 'outer', 'late', '{}', 'run_late_reject(jsonb)');
SELECT count(*) FROM idem_lookup('run', 'inner', 'undone');
-- A handler may not settle or release the operation for idem_run
CREATE FUNCTION run_settle(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_complete('run', 'act', 'settles', '"by hand"');
    RETURN '"by idem_run"';
END $$;
SELECT outcome FROM idem_run('run', 'act', 'settles', '{}', 'run_settle(jsonb)');
CREATE FUNCTION run_release(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_release('run', 'act', 'releases');
    RETURN '"by idem_run"';
END $$;
SELECT outcome FROM idem_run('run', 'act', 'releases', '{}', 'run_release(jsonb)');
SELECT count(*) FROM idem_lookup('run', 'act', 'settles');
SELECT count(*) FROM idem_lookup('run', 'act', 'releases');
-- A handler that leaves a claim of its own open
CREATE FUNCTION run_open(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM idem_claim('run', 'inner', 'left open', '{}');
    RETURN NULL;
END $$;
SELECT outcome FROM idem_run('run', 'act', 'open', '{}', 'run_open(jsonb)');
SELECT count(*) FROM idem_lookup('run', 'act', 'open');

-- In flight elsewhere, expired, in review: no handler runs
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
INSERT INTO idem_policies (action, on_interrupt) VALUES ('review', 'review');
DELETE FROM run_effect;
SELECT outcome FROM idem_claim('run', 'act', 'leased', '1', lease => '10 min', owner => 'other', token => '00000000-0000-0000-0000-000000000001');
SELECT outcome FROM idem_claim('run', 'review', 'leased', '1', lease => '10 min', token => '00000000-0000-0000-0000-000000000001');
SELECT outcome, holder, retry_after, result FROM idem_run('run', 'act', 'leased', '1', 'run_ok(jsonb)', wait => '0');
SET pg_idem.test_now = '2030-01-01 00:10:00+00';
SELECT outcome, result FROM idem_run('run', 'review', 'leased', '1', 'run_ok(jsonb)', wait => '0');
SELECT count(*) FROM run_effect;
-- An interrupted one is recovered by it
SELECT idem_checkpoint('run', 'act', 'leased', '00000000-0000-0000-0000-000000000001', 'half way') IS NOT NULL AS ok;
SET pg_idem.test_now = '2030-01-01 01:20:00+00';
SELECT outcome, replayed, attempt, result FROM idem_run('run', 'act', 'leased', '1', 'run_ok(jsonb)');
SELECT * FROM run_effect;
DELETE FROM idem_policies;
RESET pg_idem.test_now;

-- idem_current outside of handlers: with exactly one claim of this transaction
SELECT * FROM idem_current();
BEGIN;
SELECT outcome FROM idem_claim('run', 'current', 'k1', '{}');
SELECT * FROM idem_current();
SELECT outcome FROM idem_claim('run', 'current', 'k2', '{}');
SELECT * FROM idem_current();
SELECT idem_release('run', 'current', 'k1');
SELECT * FROM idem_current();
SELECT idem_complete('run', 'current', 'k2') IS NOT NULL AS ok;
SELECT * FROM idem_current();
COMMIT;
SELECT * FROM idem_current();
DROP FUNCTION run_ok, run_reject, run_swallow, run_error, run_strict, run_null, run_outer, run_self, run_late_reject, run_settle, run_release, run_open;
DROP TABLE run_effect;
