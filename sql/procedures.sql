-- plpgsql, procedures with COMMIT, DO, cursors, deferred triggers, rules of evaluation.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE TABLE proc_effect (what text);

-- A function that claims, works, settles; called again it replays
CREATE FUNCTION proc_pay(k text, amount int) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE c idem_claim_result;
BEGIN
    SELECT * INTO c FROM idem_claim('proc', 'pay', k, to_jsonb(amount));
    IF c.outcome = 'claimed' THEN
        INSERT INTO proc_effect VALUES (k);
        PERFORM idem_complete('proc', 'pay', k, jsonb_build_object('paid', amount), 201);
        RETURN jsonb_build_object('paid', amount);
    END IF;
    RETURN jsonb_build_object('outcome', c.outcome, 'result', c.result);
END $$;
SELECT proc_pay('k1', 5), proc_pay('k1', 5), proc_pay('k1', 6);
SELECT proc_pay('k2', n % 2) FROM generate_series(1, 3) AS n;
SELECT what, count(*) FROM proc_effect GROUP BY what ORDER BY what;
-- As an expression: the composite value in one call
CREATE FUNCTION proc_value(k text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE c idem_claim_result;
BEGIN
    c := idem_claim('proc', 'value', k, '{}');
    PERFORM idem_release('proc', 'value', k);
    RETURN c.outcome;
END $$;
SELECT proc_value('k');

-- A procedure that commits after each operation
CREATE PROCEDURE proc_batch() LANGUAGE plpgsql AS $$
DECLARE c idem_claim_result;
BEGIN
    FOR n IN 1..4 LOOP
        SELECT * INTO c FROM idem_claim('proc', 'batch', 'k' || n, '{}');
        IF c.outcome = 'claimed' THEN
            INSERT INTO proc_effect VALUES ('batch ' || n);
            PERFORM idem_complete('proc', 'batch', 'k' || n, to_jsonb(n));
        END IF;
        IF n = 3 THEN ROLLBACK; ELSE COMMIT; END IF;
    END LOOP;
END $$;
CALL proc_batch();
SELECT key, state FROM idempotent_operations WHERE account = 'proc' AND action = 'batch' ORDER BY key;
CALL proc_batch();
CALL proc_batch();
SELECT what, count(*) FROM proc_effect WHERE what LIKE 'batch%' GROUP BY what ORDER BY what;
-- A procedure that leases, commits, works, commits, settles
CREATE PROCEDURE proc_lease() LANGUAGE plpgsql AS $$
DECLARE c idem_claim_result;
BEGIN
    SELECT * INTO c FROM idem_claim('proc', 'lease', 'k', '{}', lease => '1 min');
    COMMIT;
    PERFORM idem_guard('proc', 'lease', 'k', c.token);
    INSERT INTO proc_effect VALUES ('lease');
    PERFORM idem_checkpoint('proc', 'lease', 'k', c.token, 'one');
    COMMIT;
    PERFORM idem_complete('proc', 'lease', 'k', '1', token => c.token);
    COMMIT;
END $$;
CALL proc_lease();
SELECT outcome, result FROM idem_claim('proc', 'lease', 'k', '{}');
-- DO, with ROLLBACK and COMMIT
DO $$ BEGIN
    PERFORM FROM idem_claim('proc', 'do', 'k', '{}');
    PERFORM idem_complete('proc', 'do', 'k', '"rolled back"');
    ROLLBACK;
    PERFORM FROM idem_claim('proc', 'do', 'k', '{}');
    PERFORM idem_complete('proc', 'do', 'k', '"committed"');
    COMMIT;
END $$;
SELECT outcome, result FROM idem_claim('proc', 'do', 'k', '{}');

-- COMMIT AND CHAIN: the claims of the first transaction are not those of the next
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM idem_claim('proc', 'chain', 'k1', '{}');
SELECT idem_complete('proc', 'chain', 'k1', '1') IS NOT NULL AS ok;
COMMIT AND CHAIN;
SHOW transaction_isolation;
SELECT idem_complete('proc', 'chain', 'k1', '1');
ROLLBACK AND CHAIN;
SELECT outcome, result FROM idem_claim('proc', 'chain', 'k1', '{}');
COMMIT;

-- A cursor over claims: rows are claimed as they are fetched
BEGIN;
DECLARE c CURSOR FOR SELECT n, outcome FROM generate_series(1, 3) AS n, LATERAL idem_claim('proc', 'cursor', 'k' || n, '{}');
FETCH 2 FROM c;
SELECT idem_complete('proc', 'cursor', 'k' || n, to_jsonb(n)) IS NOT NULL AS ok FROM generate_series(1, 2) AS n;
COMMIT;
SELECT key, state FROM idempotent_operations WHERE account = 'proc' AND action = 'cursor' ORDER BY key;
-- WITH HOLD: all of it, at commit; what it claims then is open then
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT n, outcome FROM generate_series(1, 3) AS n, LATERAL idem_claim('proc', 'hold', 'k' || n, '{}');
FETCH 1 FROM h;
SELECT idem_complete('proc', 'hold', 'k1') IS NOT NULL AS ok;
COMMIT;
CLOSE ALL;
SELECT count(*) FROM idempotent_operations WHERE account = 'proc' AND action = 'hold';
-- a held cursor over lookups outlives its transaction
BEGIN;
DECLARE h CURSOR WITH HOLD FOR SELECT state FROM idem_lookup('proc', 'do', 'k');
COMMIT;
FETCH ALL FROM h;
CLOSE h;
-- A cursor opened before a savepoint, fetched in it, rolled back
BEGIN;
DECLARE c CURSOR FOR SELECT n, outcome FROM generate_series(1, 3) AS n, LATERAL idem_claim('proc', 'portal', 'k' || n, '{}');
SAVEPOINT s;
FETCH 1 FROM c;
ROLLBACK TO s;
COMMIT;
SELECT count(*) FROM idempotent_operations WHERE account = 'proc' AND action = 'portal';

-- A deferred trigger that claims and settles, at commit
CREATE FUNCTION proc_deferred() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM idem_claim('proc', 'deferred', NEW.what, '{}');
    IF NEW.what <> 'left open' THEN
        PERFORM idem_complete('proc', 'deferred', NEW.what, '"deferred"');
    END IF;
    RETURN NULL;
END $$;
CREATE TABLE proc_order (what text);
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON proc_order DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION proc_deferred();
BEGIN;
INSERT INTO proc_order VALUES ('order 1');
COMMIT;
SELECT outcome, result FROM idem_claim('proc', 'deferred', 'order 1', '{}');
-- that leaves a claim open: the commit fails
BEGIN;
INSERT INTO proc_order VALUES ('left open');
COMMIT;
SELECT * FROM proc_order;
-- that settles what was claimed before: in time
CREATE FUNCTION proc_settles() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_complete('proc', 'settles', NEW.what, '"by the trigger"');
    RETURN NULL;
END $$;
CREATE TABLE proc_settled (what text);
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON proc_settled DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION proc_settles();
BEGIN;
SELECT outcome FROM idem_claim('proc', 'settles', 'k', '{}');
INSERT INTO proc_settled VALUES ('k');
COMMIT;
SELECT outcome, result FROM idem_claim('proc', 'settles', 'k', '{}');
-- that is refused as an owner, and catches it
CREATE FUNCTION proc_fenced() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_guard('proc', 'pay', 'k1', '00000000-0000-0000-0000-000000000001');
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
CREATE TABLE proc_fence (what text);
CREATE CONSTRAINT TRIGGER deferred AFTER INSERT ON proc_fence DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION proc_fenced();
BEGIN;
INSERT INTO proc_fence VALUES ('x');
COMMIT;
SELECT count(*) FROM proc_fence;

-- Prepared statements, with a plan for every value and with a generic one
PREPARE claim(text) AS SELECT outcome, result FROM idem_claim('proc', 'prepared', $1, '{}', lease => '1 min');
EXECUTE claim('k1');
EXECUTE claim('k1');
SET plan_cache_mode = force_generic_plan;
EXECUTE claim('k1');
EXECUTE claim('k2');
RESET plan_cache_mode;
-- In a CTE, a subquery, an INSERT ... SELECT: once each
BEGIN;
WITH c AS MATERIALIZED (SELECT outcome FROM idem_claim('proc', 'cte', 'k1', '{}')) INSERT INTO proc_effect SELECT 'cte ' || outcome FROM c RETURNING what;
SELECT (SELECT outcome FROM idem_claim('proc', 'cte', 'k2', '{}')) AS outcome;
SELECT idem_complete('proc', 'cte', k) IS NOT NULL AS ok FROM unnest('{k1,k2}'::text[]) AS k;
COMMIT;
-- EXPLAIN does not claim
EXPLAIN (COSTS OFF) SELECT outcome FROM idem_claim('proc', 'explain', 'k', '{}');
-- A claim inside an error inside a function inside a savepoint: nothing is left
BEGIN;
SAVEPOINT s;
CREATE FUNCTION pg_temp.fails() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM idem_claim('proc', 'nested', 'k', '{}');
    RAISE division_by_zero;
END $$;
SELECT pg_temp.fails();
ROLLBACK TO s;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
COMMIT;
DROP TABLE proc_effect, proc_order, proc_settled, proc_fence;
DROP FUNCTION proc_pay, proc_value, proc_deferred, proc_settles, proc_fenced;
DROP PROCEDURE proc_batch, proc_lease;
