-- G6 A long transaction of an owner: its calls do not add up in memory.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
\set t1 '''00000000-0000-0000-0000-000000000001'''
CREATE FUNCTION pg_temp.memory_is_small() RETURNS boolean LANGUAGE sql AS
    $$ SELECT sum(total_bytes) < 1024 * 1024 FROM pg_backend_memory_contexts WHERE name = 'TopTransactionContext' $$;
SELECT k, outcome FROM unnest('{guard,renew}'::text[]) AS k, idem_claim('g6', 'many', k, '{}', lease => '1 hour', token => :t1);

-- G6 100,000 guards
BEGIN;
SELECT count(idem_guard('g6', 'many', 'guard', :t1)) FROM generate_series(1, 100000);
SELECT pg_temp.memory_is_small();
SELECT idem_complete('g6', 'many', 'guard', token => :t1) IS NOT NULL AS ok;
COMMIT;
-- G6 renewals, of which each is a new version of the row
BEGIN;
SELECT count(idem_renew('g6', 'many', 'renew', :t1)) FROM generate_series(1, 10000);
SELECT pg_temp.memory_is_small();
SELECT idem_complete('g6', 'many', 'renew', token => :t1) IS NOT NULL AS ok;
COMMIT;
-- G6 guards of a claim that this very transaction made
BEGIN;
SELECT outcome FROM idem_claim('g6', 'many', 'own', '{}', lease => '1 hour', token => :t1);
SELECT count(idem_guard('g6', 'many', 'own', :t1)) FROM generate_series(1, 100000);
SELECT pg_temp.memory_is_small();
SELECT idem_complete('g6', 'many', 'own', token => :t1) IS NOT NULL AS ok;
COMMIT;
-- G6 guards, each in an exception block of its own
SELECT outcome FROM idem_claim('g6', 'many', 'blocks', '{}', lease => '1 hour', token => :t1);
BEGIN;
DO $$
BEGIN
    FOR i IN 1 .. 20000 LOOP
        BEGIN
            PERFORM idem_guard('g6', 'many', 'blocks', '00000000-0000-0000-0000-000000000001');
        EXCEPTION WHEN division_by_zero THEN NULL;
        END;
    END LOOP;
END $$;
SELECT pg_temp.memory_is_small();
SELECT idem_complete('g6', 'many', 'blocks', token => :t1) IS NOT NULL AS ok;
COMMIT;
SELECT key, state FROM idempotent_operations WHERE account = 'g6' AND action = 'many' ORDER BY key;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
