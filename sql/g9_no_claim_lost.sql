-- G9 No claim is lost by accident: a transaction that commits with a claim neither settled nor released fails.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE TABLE g9_effect (what text);

-- G9 Autocommit
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
INSERT INTO g9_effect SELECT 'autocommit' FROM idem_claim('g9', 'act', 'k1', '{}');
-- G9 COMMIT
BEGIN;
INSERT INTO g9_effect VALUES ('commit');
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
COMMIT;
-- G9 One of three is enough
BEGIN;
INSERT INTO g9_effect VALUES ('one of three');
SELECT n, outcome FROM generate_series(1, 3) AS n, idem_claim('g9', 'act', 'k' || n, '{}');
SELECT idem_complete('g9', 'act', 'k1') IS NOT NULL AS ok;
SELECT idem_release('g9', 'act', 'k3');
COMMIT;
-- G9 COMMIT AND CHAIN
BEGIN;
INSERT INTO g9_effect VALUES ('chain');
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
COMMIT AND CHAIN;
ROLLBACK;
-- G9 A simple query of several statements
INSERT INTO g9_effect VALUES ('several')\; SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
-- G9 DO
DO $$ BEGIN
    INSERT INTO g9_effect VALUES ('do');
    PERFORM FROM idem_claim('g9', 'act', 'k1', '{}');
END $$;
-- G9 COMMIT in a procedure
CREATE PROCEDURE g9_commit() LANGUAGE plpgsql AS $$ BEGIN
    INSERT INTO g9_effect VALUES ('procedure');
    PERFORM FROM idem_claim('g9', 'act', 'k1', '{}');
    COMMIT;
END $$;
CALL g9_commit();
-- G9 A cursor that is held is run to its end at COMMIT; a deferred trigger is too, and may settle as well
BEGIN;
INSERT INTO g9_effect VALUES ('held cursor');
DECLARE g9_cursor CURSOR WITH HOLD FOR SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
COMMIT;
CREATE TABLE g9_deferred (key text, settle boolean);
CREATE FUNCTION g9_at_commit() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN
    IF NEW.settle THEN PERFORM idem_complete('g9', 'deferred', NEW.key);
    ELSE PERFORM FROM idem_claim('g9', 'act', NEW.key, '{}'); END IF;
    RETURN NULL;
END $$;
CREATE CONSTRAINT TRIGGER at_commit AFTER INSERT ON g9_deferred DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION g9_at_commit();
INSERT INTO g9_deferred VALUES ('k1', false);
BEGIN;
SELECT outcome FROM idem_claim('other', 'deferred', 'k1', '{}');
SELECT idem_release('other', 'deferred', 'k1');
SELECT outcome FROM idem_claim('g9', 'deferred', 'k1', '{}');
INSERT INTO g9_deferred VALUES ('k1', true);
COMMIT;
SELECT key, state FROM idem_lookup('g9', 'deferred', 'k1');
SELECT key, settle FROM g9_deferred;
DROP TABLE g9_deferred;
DROP FUNCTION g9_at_commit;
-- G9 Nothing of it has happened
SELECT * FROM g9_effect;
SELECT count(*) FROM idempotent_operations WHERE account = 'g9' AND action = 'act';
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();

-- G9 A claim made in a savepoint that was released counts
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
RELEASE s;
COMMIT;
-- G9 one made in a savepoint that was rolled back does not
BEGIN;
SAVEPOINT s;
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
ROLLBACK TO s;
INSERT INTO g9_effect VALUES ('rolled back to savepoint');
COMMIT;
-- G9 A release that was rolled back has not happened
BEGIN;
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
SAVEPOINT s;
SELECT idem_release('g9', 'act', 'k1');
ROLLBACK TO s;
COMMIT;
-- G9 nor has a settlement
BEGIN;
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
SAVEPOINT s;
SELECT idem_complete('g9', 'act', 'k1') IS NOT NULL AS ok;
ROLLBACK TO s;
COMMIT;
-- G9 A claim in a function whose exception block caught an error
CREATE FUNCTION g9_caught() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM FROM idem_claim('g9', 'act', 'k1', '{}');
    RAISE division_by_zero;
EXCEPTION WHEN division_by_zero THEN
    RETURN 'caught';
END $$;
SELECT g9_caught();
-- G9 ROLLBACK needs no settling, and the session goes on
BEGIN;
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{}');
SELECT idem_complete('g9', 'act', 'k1', '"at last"') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('g9', 'act', 'k1', '{}');
-- G9 Only a claim that was granted must be settled: replay, mismatch, in_progress need nothing
SELECT outcome FROM idem_claim('g9', 'act', 'k1', '{"other": 1}');
SELECT outcome FROM idem_claim('g9', 'act', 'k8', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000008');
SELECT outcome FROM idem_claim('g9', 'act', 'k8', '{}');
-- G9 A leased claim made in this transaction may be left open
BEGIN;
SELECT outcome FROM idem_claim('g9', 'act', 'k9', '{}', lease => '1 min');
COMMIT;
SELECT state FROM idem_lookup('g9', 'act', 'k9');
-- and settled within it without its token
BEGIN;
SELECT outcome FROM idem_claim('g9', 'act', 'k10', '{}', lease => '1 min');
SELECT idem_complete('g9', 'act', 'k10', '10') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('g9', 'act', 'k10', '{}');
-- but not from another transaction
SELECT idem_complete('g9', 'act', 'k9');
SELECT idem_release('g9', 'act', 'k9');
SELECT state FROM idem_lookup('g9', 'act', 'k9');
SELECT * FROM g9_effect;
DROP TABLE g9_effect;
DROP PROCEDURE g9_commit;
DROP FUNCTION g9_caught;
