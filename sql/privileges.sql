-- Privileges: EXECUTE is the gate, the tables are granted to nobody, handlers run as the caller.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE ROLE regress_idem_none;
CREATE ROLE regress_idem_user;
CREATE SCHEMA privileges AUTHORIZATION regress_idem_user;
CREATE FUNCTION privileges_handler(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(current_user::text) $$;
REVOKE ALL ON FUNCTION privileges_handler FROM PUBLIC;

-- Nothing granted: no call is possible
SET ROLE regress_idem_none;
SELECT idem_claim('p', 'act', 'k', '{}');
SELECT idem_complete('p', 'act', 'k');
SELECT idem_fail('p', 'act', 'k');
SELECT idem_release('p', 'act', 'k');
SELECT idem_renew('p', 'act', 'k', '00000000-0000-0000-0000-000000000001');
SELECT idem_checkpoint('p', 'act', 'k', '00000000-0000-0000-0000-000000000001', 'c');
SELECT idem_guard('p', 'act', 'k', '00000000-0000-0000-0000-000000000001');
SELECT idem_lookup('p', 'act', 'k');
SELECT idem_once('p', 'act', 'k');
SELECT idem_once_batch('p', 'act', '{k}');
SELECT idem_run('p', 'act', 'k', '{}', 'privileges_handler(jsonb)');
SELECT idem_current();
SELECT idem_reject('{}');
SELECT idem_fingerprint('{}');
SELECT idem_resolve('p', 'act', 'k', 'retry');
SELECT idem_reset('p', 'act', 'k', 'note');
SELECT idem_erase('p', 'note');
SELECT idem_import('p', 'act', 'k', 'failed', settled_at => '2020-01-01');
SELECT idem_publish('order', 'a', 't', '{}');
SELECT idem_outbox_take();
SELECT idem_outbox_ack('{}');
SELECT idem_outbox_nack('{}');
SELECT idem_outbox_retry('{}');
SELECT count(*) FROM idem_outbox;
SELECT nextval('idem_outbox_position');
SELECT idem_now();
SELECT idem_stats_reset();
SELECT idem_stats_rows();
SELECT idem_holders_rows();
SELECT idem_gauges_row();
SELECT count(*) FROM idem_doctor();
SELECT count(*) FROM idem_settled;
SELECT count(*) FROM idem_inflight;
SELECT count(*) FROM idem_seen;
SELECT count(*) FROM idem_policies;
SELECT count(*) FROM idem_audit;
SELECT count(*) FROM idempotent_operations;
SELECT count(*) FROM idem_stats;
SELECT count(*) FROM idem_holders;
SELECT count(*) FROM idem_gauges;
INSERT INTO idem_policies (action) VALUES ('x');
TRUNCATE idem_settled;
RESET ROLE;

-- EXECUTE is enough for the functions; it opens no table
GRANT EXECUTE ON FUNCTION idem_claim, idem_complete, idem_fail, idem_release, idem_renew, idem_checkpoint, idem_guard, idem_lookup,
      idem_once, idem_once_batch, idem_run, idem_current, idem_reject, idem_fingerprint,
      idem_publish, idem_outbox_take, idem_outbox_ack, idem_outbox_nack, idem_outbox_retry TO regress_idem_user;
INSERT INTO idem_policies (action, keep_request) VALUES ('act', true);
SET ROLE regress_idem_user;
BEGIN;
SELECT outcome FROM idem_claim('p', 'act', 'k', '{}');
SELECT key FROM idem_current();
SELECT idem_complete('p', 'act', 'k', '1') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('p', 'act', 'k', '{}');
SELECT state, request, result FROM idem_lookup('p', 'act', 'k');
SELECT outcome FROM idem_claim('p', 'act', 'lease', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000001');
SELECT state FROM idem_lookup('p', 'act', 'lease');
SELECT idem_renew('p', 'act', 'lease', '00000000-0000-0000-0000-000000000001') IS NOT NULL AS ok;
SELECT idem_checkpoint('p', 'act', 'lease', '00000000-0000-0000-0000-000000000001', 'c') IS NOT NULL AS ok;
SELECT idem_guard('p', 'act', 'lease', '00000000-0000-0000-0000-000000000001') IS NOT NULL AS ok;
SELECT idem_release('p', 'act', 'lease', '00000000-0000-0000-0000-000000000001');
SELECT idem_once('p', 'act', 'k'), idem_once('p', 'act', 'k');
SELECT * FROM idem_once_batch('p', 'act', '{k,l}');
SELECT idem_publish('order', 'a', 't', '{}') IS NOT NULL AS ok;
SELECT idem_outbox_nack(array_agg(receipt), '0') FROM idem_outbox_take();
SELECT idem_outbox_ack(array_agg(receipt)) FROM idem_outbox_take();
SELECT idem_outbox_retry('{}');
SELECT count(*) FROM idem_outbox;
SELECT count(*) FROM idem_settled;
SELECT count(*) FROM idempotent_operations;
INSERT INTO idem_policies (action) VALUES ('x');
-- The functions of an owner are not those of an operator
SELECT idem_reset('p', 'act', 'k', 'note');
-- with row_security off as well as on
SET row_security = off;
SELECT outcome, result FROM idem_claim('p', 'act', 'k', '{}');
RESET row_security;
-- A session-bound claim of another role is seen to be alive
SELECT outcome FROM idem_claim('p', 'act', 'bound', '{}', lease => '1 min', session_bound => true);
RESET ROLE;
SELECT state FROM idem_lookup('p', 'act', 'bound');
SET ROLE regress_idem_user;

-- A handler is run as the caller, who needs EXECUTE on it
SELECT outcome, result FROM idem_run('p', 'act', 'handler', '{}', 'privileges_handler(jsonb)');
RESET ROLE;
GRANT EXECUTE ON FUNCTION privileges_handler TO regress_idem_user;
SET ROLE regress_idem_user;
SELECT outcome, result FROM idem_run('p', 'act', 'handler', '{}', 'privileges_handler(jsonb)');
-- SECURITY DEFINER and the search_path of a handler are its own business
CREATE TABLE privileges.secret (s text);
INSERT INTO privileges.secret VALUES ('of the handler');
CREATE FUNCTION privileges.definer(jsonb) RETURNS jsonb LANGUAGE sql SECURITY DEFINER SET search_path = privileges AS
    $$ SELECT jsonb_build_array(current_user, (SELECT s FROM secret)) $$;
CREATE FUNCTION privileges.invoker(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT jsonb_build_array(current_user, current_setting('search_path')) $$;
RESET ROLE;
SELECT result->0 = to_jsonb(current_user) AS caller, result->1 AS search_path FROM idem_run('p', 'act', 'invoker', '{}', 'privileges.invoker(jsonb)');
SELECT outcome, result FROM idem_run('p', 'act', 'definer', '{}', 'privileges.definer(jsonb)');

-- A SECURITY DEFINER wrapper is a way to grant less
CREATE FUNCTION privileges_wrapper(k text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE c idem_claim_result;
BEGIN
    SELECT * INTO c FROM idem_claim('p', 'wrapped', k, '{}');
    IF c.outcome = 'claimed' THEN PERFORM idem_complete('p', 'wrapped', k); END IF;
    RETURN c.outcome;
END $$;
SET ROLE regress_idem_none;
SELECT privileges_wrapper('k'), privileges_wrapper('k');
-- Settings for tests and for safety are the superuser's
SET pg_idem.test_now = '2030-01-01';
SET pg_idem.account_from = 'argument';
SET pg_idem.force_sync_commit = off;
SET pg_idem.max_claims_per_transaction = 1000000;
SET pg_idem.idle_claim_timeout = '1 min';
RESET ROLE;
DROP FUNCTION privileges_wrapper, privileges_handler;
DROP SCHEMA privileges CASCADE;
DELETE FROM idem_policies;
DROP OWNED BY regress_idem_user, regress_idem_none;
DROP ROLE regress_idem_none, regress_idem_user;
