-- CREATE, DROP and moves of the extension within one session: nothing cached survives its object.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
CREATE PROCEDURE pg_temp.use(what text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM idem_claim('lifecycle', 'act', what, '{}');
    PERFORM idem_complete('lifecycle', 'act', what, to_jsonb(what));
    PERFORM idem_once('lifecycle', 'act', what);
END $$;
SELECT outcome FROM idem_claim('lifecycle', 'act', 'leased', '{}', lease => '1 min', token => :t1);
CALL pg_temp.use('first');
SELECT outcome, result FROM idem_claim('lifecycle', 'act', 'first', '{}');
INSERT INTO idem_policies (action, retention) VALUES ('act', '1 min');

-- Dropped and created again: empty, and works; plans and caches are made anew
DROP EXTENSION pg_idem;
SELECT idem_lookup('lifecycle', 'act', 'first');
CREATE EXTENSION pg_idem;
SELECT count(*) FROM idem_policies;
SELECT count(*) FROM idem_lookup('lifecycle', 'act', 'first');
CALL pg_temp.use('first');
SELECT state, expires_at - settled_at AS retention FROM idem_lookup('lifecycle', 'act', 'first');
SELECT outcome, attempt FROM idem_claim('lifecycle', 'act', 'leased', '{}', lease => '1 min', token => :t1);

-- Dropped with what depends on it, refused without CASCADE
CREATE VIEW lifecycle_view AS SELECT key, state FROM idempotent_operations;
CREATE TABLE lifecycle_table (c idem_claim_result);
DROP EXTENSION pg_idem;
SELECT outcome FROM idem_claim('lifecycle', 'act', 'first', '{}');
DROP VIEW lifecycle_view;
DROP TABLE lifecycle_table;

-- Dropped and created in one transaction, and that rolled back
BEGIN;
DROP EXTENSION pg_idem;
CREATE EXTENSION pg_idem;
SELECT count(*) FROM idem_lookup('lifecycle', 'act', 'first');
CALL pg_temp.use('in the transaction');
SELECT outcome FROM idem_claim('lifecycle', 'act', 'in the transaction', '{}');
ROLLBACK;
SELECT count(*) FROM idem_lookup('lifecycle', 'act', 'in the transaction');
SELECT outcome, result FROM idem_claim('lifecycle', 'act', 'first', '{}');
-- Dropped in a transaction that has an open claim: the commit fails
BEGIN;
SELECT outcome FROM idem_claim('lifecycle', 'act', 'open', '{}');
DROP EXTENSION pg_idem;
COMMIT;
SELECT outcome, result FROM idem_claim('lifecycle', 'act', 'first', '{}');

-- In another schema
DROP EXTENSION pg_idem;
CREATE SCHEMA lifecycle;
CREATE EXTENSION pg_idem SCHEMA lifecycle;
SELECT idem_lookup('lifecycle', 'act', 'first');
BEGIN;
SELECT outcome FROM lifecycle.idem_claim('lifecycle', 'act', 'k', '{}');
SELECT lifecycle.idem_complete('lifecycle', 'act', 'k', '1') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM lifecycle.idem_claim('lifecycle', 'act', 'k', '{}');
SELECT state FROM lifecycle.idempotent_operations;
INSERT INTO lifecycle.idem_policies (action, retention) VALUES ('act', '2 min');
CREATE FUNCTION pg_temp.lookup(k text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT state FROM lifecycle.idem_lookup('lifecycle', 'act', k));
END $$;
SELECT pg_temp.lookup('k');

-- The schema renamed: the same session finds everything under the new name
PREPARE claim AS SELECT outcome, result FROM lifecycle.idem_claim('lifecycle', 'act', 'k', '{}');
EXECUTE claim;
ALTER SCHEMA lifecycle RENAME TO lifecycle_renamed;
EXECUTE claim;
SELECT outcome, result FROM lifecycle_renamed.idem_claim('lifecycle', 'act', 'k', '{}');
BEGIN;
SELECT outcome FROM lifecycle_renamed.idem_claim('lifecycle', 'act', 'k2', '{}');
SELECT lifecycle_renamed.idem_complete('lifecycle', 'act', 'k2', '2') IS NOT NULL AS ok;
COMMIT;
SELECT state, expires_at - settled_at AS retention FROM lifecycle_renamed.idem_lookup('lifecycle', 'act', 'k2');
SELECT outcome FROM lifecycle_renamed.idem_claim('lifecycle', 'act', 'k3', '{}', lease => '1 min', token => :t1);
SELECT lifecycle_renamed.idem_renew('lifecycle', 'act', 'k3', :t1) IS NOT NULL AS ok;
SELECT lifecycle_renamed.idem_once('lifecycle', 'act', 'k'), lifecycle_renamed.idem_once('lifecycle', 'act', 'k');
SELECT key, state FROM lifecycle_renamed.idempotent_operations ORDER BY key;
UPDATE lifecycle_renamed.idem_policies SET retention = '3 min';
BEGIN;
SELECT outcome FROM lifecycle_renamed.idem_claim('lifecycle', 'act', 'k4', '{}');
SELECT lifecycle_renamed.idem_complete('lifecycle', 'act', 'k4') IS NOT NULL AS ok;
SELECT expires_at - settled_at AS retention FROM lifecycle_renamed.idem_lookup('lifecycle', 'act', 'k4');
COMMIT;
-- renamed while a claim is open
BEGIN;
SELECT outcome FROM lifecycle_renamed.idem_claim('lifecycle', 'act', 'k5', '{}');
ALTER SCHEMA lifecycle_renamed RENAME TO lifecycle;
SELECT lifecycle.idem_complete('lifecycle', 'act', 'k5', '5') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM lifecycle.idem_claim('lifecycle', 'act', 'k5', '{}');
-- It cannot be moved
ALTER EXTENSION pg_idem SET SCHEMA public;

-- DROP SCHEMA CASCADE takes the extension along
DROP SCHEMA lifecycle CASCADE;
SELECT count(*) FROM pg_extension WHERE extname = 'pg_idem';
-- CREATE EXTENSION does not replace what is in its way
CREATE FUNCTION idem_lookup(account text, action text, key text) RETURNS int LANGUAGE sql AS 'SELECT 1';
CREATE EXTENSION pg_idem;
DROP FUNCTION idem_lookup;
CREATE EXTENSION pg_idem;
CALL pg_temp.use('at last');
SELECT outcome, result FROM idem_claim('lifecycle', 'act', 'at last', '{}');
