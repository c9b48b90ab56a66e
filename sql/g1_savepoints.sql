-- G1 One owner, with savepoints: what a rolled-back savepoint did has not happened, what it did not do has.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE FUNCTION pg_temp.locks() RETURNS bigint LANGUAGE sql AS
    $$ SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid() $$;

-- G1 Claimed before the savepoint: still ours after it is rolled back
BEGIN;
SELECT outcome FROM idem_claim('g1', 'sp', 'k1', '{}');
SAVEPOINT s;
ROLLBACK TO s;
SELECT pg_temp.locks();
SELECT outcome FROM idem_claim('g1', 'sp', 'k1', '{}');
ROLLBACK TO s;
SELECT idem_complete('g1', 'sp', 'k1', '1') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('g1', 'sp', 'k1', '{}');

-- G1 Claimed after the savepoint: gone with it, and claimable again
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('g1', 'sp', 'k2', '{}');
ROLLBACK TO s;
SELECT pg_temp.locks();
SELECT idem_complete('g1', 'sp', 'k2', '2');
ROLLBACK TO s;
SELECT outcome FROM idem_claim('g1', 'sp', 'k2', '{}');
RELEASE s;
SELECT idem_complete('g1', 'sp', 'k2', '2') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('g1', 'sp', 'k2', '{}');

-- G1 Settled in a savepoint that is rolled back: the claim is open again
BEGIN;
SELECT outcome FROM idem_claim('g1', 'sp', 'k3', '{}');
SAVEPOINT s;
SELECT idem_complete('g1', 'sp', 'k3', '"lost"') IS NOT NULL AS ok;
SELECT outcome, result FROM idem_claim('g1', 'sp', 'k3', '{}');
ROLLBACK TO s;
SELECT state FROM idem_lookup('g1', 'sp', 'k3');
SELECT idem_fail('g1', 'sp', 'k3', '"kept"') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('g1', 'sp', 'k3', '{}');

-- G1 Released in a savepoint that is rolled back: still claimed
BEGIN;
SELECT outcome FROM idem_claim('g1', 'sp', 'k4', '{}');
SAVEPOINT s;
SELECT idem_release('g1', 'sp', 'k4');
SELECT outcome FROM idem_claim('g1', 'sp', 'k4', '{}');
ROLLBACK TO s;
SELECT outcome FROM idem_claim('g1', 'sp', 'k4', '{}');
ROLLBACK TO s;
SELECT idem_complete('g1', 'sp', 'k4', '4') IS NOT NULL AS ok;
COMMIT;

-- G1 Nested: the inner one released, the outer one rolled back
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT outcome FROM idem_claim('g1', 'sp', 'k5', '{}');
SAVEPOINT c;
SELECT idem_complete('g1', 'sp', 'k5', '5') IS NOT NULL AS ok;
RELEASE c;
RELEASE b;
SELECT outcome FROM idem_claim('g1', 'sp', 'k5', '{}');
ROLLBACK TO a;
SELECT pg_temp.locks();
SELECT count(*) FROM idem_lookup('g1', 'sp', 'k5');
COMMIT;
SELECT count(*) FROM idem_lookup('g1', 'sp', 'k5');

-- G1 Claimed before, released and claimed again in a savepoint, rolled back, settled
BEGIN;
SELECT outcome FROM idem_claim('g1', 'sp', 'k6', '{}');
SAVEPOINT a;
SELECT idem_release('g1', 'sp', 'k6');
SAVEPOINT b;
SELECT outcome FROM idem_claim('g1', 'sp', 'k6', '{}');
ROLLBACK TO b;
SELECT idem_complete('g1', 'sp', 'k6');
ROLLBACK TO a;
SELECT idem_complete('g1', 'sp', 'k6', '6') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('g1', 'sp', 'k6', '{}');

-- G1 A leased claim made in a savepoint
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('g1', 'sp', 'k7', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000007');
ROLLBACK TO s;
SELECT pg_temp.locks();
SELECT count(*) FROM idem_lookup('g1', 'sp', 'k7');
SELECT outcome, attempt FROM idem_claim('g1', 'sp', 'k7', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000077');
RELEASE s;
COMMIT;
SELECT outcome FROM idem_claim('g1', 'sp', 'k7', '{}');
-- G1 A leased claim settled in a savepoint that is rolled back
BEGIN;
SAVEPOINT s;
SELECT idem_complete('g1', 'sp', 'k7', '"lost"', token => '00000000-0000-0000-0000-000000000077') IS NOT NULL AS ok;
SELECT state, result FROM idem_lookup('g1', 'sp', 'k7');
ROLLBACK TO s;
SELECT state, result FROM idem_lookup('g1', 'sp', 'k7');
SELECT idem_complete('g1', 'sp', 'k7', '"kept"', token => '00000000-0000-0000-0000-000000000077') IS NOT NULL AS ok;
COMMIT;
SELECT state, result FROM idem_lookup('g1', 'sp', 'k7');

-- G1 A leased claim made and settled in a savepoint that is rolled back: nothing has happened, and nothing is held against it
BEGIN;
SAVEPOINT a;
SELECT outcome FROM idem_claim('g1', 'sp', 'k8', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000008');
SELECT idem_complete('g1', 'sp', 'k8', token => '00000000-0000-0000-0000-000000000008') IS NOT NULL AS ok;
ROLLBACK TO a;
SELECT outcome FROM idem_claim('g1', 'sp', 'k9', '{}', lease => '1 min');
SELECT idem_complete('g1', 'sp', 'k9') IS NOT NULL AS ok;
ROLLBACK TO a;
SELECT outcome FROM idem_claim('g1', 'sp', 'k10', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000010');
SELECT idem_release('g1', 'sp', 'k10', '00000000-0000-0000-0000-000000000010');
ROLLBACK TO a;
SELECT outcome FROM idem_claim('g1', 'sp', 'k11', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000011');
SELECT idem_checkpoint('g1', 'sp', 'k11', '00000000-0000-0000-0000-000000000011', 'c') IS NOT NULL AS ok;
ROLLBACK TO a;
COMMIT;
SELECT key, state FROM idempotent_operations WHERE account = 'g1' AND key IN ('k8', 'k9', 'k10', 'k11');
-- G1 the same with nested savepoints
BEGIN;
SAVEPOINT a;
SAVEPOINT b;
SELECT outcome FROM idem_claim('g1', 'sp', 'k8', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000008');
SAVEPOINT c;
SELECT idem_complete('g1', 'sp', 'k8', token => '00000000-0000-0000-0000-000000000008') IS NOT NULL AS ok;
RELEASE c;
RELEASE b;
ROLLBACK TO a;
COMMIT;
SELECT key, state FROM idempotent_operations WHERE account = 'g1' AND key IN ('k8', 'k9', 'k10', 'k11');
-- G1 the same with exception blocks, one within the other
DO $$
BEGIN
    BEGIN
        PERFORM FROM idem_claim('g1', 'sp', 'k8', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000008');
        BEGIN
            PERFORM idem_complete('g1', 'sp', 'k8', token => '00000000-0000-0000-0000-000000000008');
            RAISE division_by_zero;
        EXCEPTION WHEN division_by_zero THEN
            PERFORM idem_checkpoint('g1', 'sp', 'k8', '00000000-0000-0000-0000-000000000008', 'c');
        END;
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
END $$;
SELECT key, state FROM idempotent_operations WHERE account = 'g1' AND key IN ('k8', 'k9', 'k10', 'k11');
-- G1 An owner call in a savepoint that is rolled back, of a claim that is still ours
BEGIN;
SELECT outcome FROM idem_claim('g1', 'sp', 'k8', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000008');
SAVEPOINT a;
SELECT idem_release('g1', 'sp', 'k8', '00000000-0000-0000-0000-000000000008');
ROLLBACK TO a;
COMMIT;
SELECT state FROM idem_lookup('g1', 'sp', 'k8');
BEGIN;
SAVEPOINT a;
SELECT idem_checkpoint('g1', 'sp', 'k8', '00000000-0000-0000-0000-000000000008', 'c') IS NOT NULL AS ok;
SELECT idem_complete('g1', 'sp', 'k8', token => '00000000-0000-0000-0000-000000000008') IS NOT NULL AS ok;
ROLLBACK TO a;
COMMIT;
SELECT state, checkpoint FROM idem_lookup('g1', 'sp', 'k8');

-- G1 Exception blocks in a loop: every second attempt fails, and only those are open again
CREATE FUNCTION pg_temp.attempts() RETURNS SETOF text LANGUAGE plpgsql AS $$
DECLARE n int; c idem_claim_result;
BEGIN
    FOR n IN 1..4 LOOP
        BEGIN
            SELECT * INTO c FROM idem_claim('g1', 'loop', 'k' || n, '{}');
            PERFORM idem_complete('g1', 'loop', 'k' || n, to_jsonb(n));
            IF n % 2 = 0 THEN RAISE division_by_zero; END IF;
            RETURN NEXT c.outcome || ', done';
        EXCEPTION WHEN division_by_zero THEN
            RETURN NEXT c.outcome || ', undone';
        END;
    END LOOP;
END $$;
SELECT pg_temp.attempts();
SELECT pg_temp.attempts();
SELECT key, state, result FROM idempotent_operations WHERE action = 'loop' ORDER BY key;

-- G1 More subtransactions than the server caches for one transaction
CREATE FUNCTION pg_temp.many() RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    FOR n IN 1..200 LOOP
        BEGIN
            PERFORM FROM idem_claim('g1', 'subxacts', 'k' || n, '{}');
            PERFORM idem_complete('g1', 'subxacts', 'k' || n, to_jsonb(n));
            IF n % 2 = 0 THEN RAISE division_by_zero; END IF;
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END LOOP;
END $$;
SELECT pg_temp.many();
SELECT count(*), sum(result::int) FROM idempotent_operations WHERE action = 'subxacts';
SELECT pg_temp.locks();
