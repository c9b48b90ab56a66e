-- A hostile search_path: operators, functions, types and tables planted in front of everything are never called.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE SCHEMA hostile;
CREATE TABLE hostile.log (what text);
-- Whatever is called says so, and wrecks the call.
CREATE FUNCTION hostile.trap() RETURNS boolean LANGUAGE plpgsql AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'EVIL0', MESSAGE = 'planted code has run';
END $$;
DO $$
DECLARE t text; o text; f record;
BEGIN
    FOREACH t IN ARRAY '{text,bytea,uuid,timestamptz,integer,boolean,jsonb,interval,bigint}'::text[] LOOP
        EXECUTE format('CREATE FUNCTION hostile.op_%s(%1$s, %1$s) RETURNS boolean LANGUAGE sql AS ''SELECT hostile.trap()''', t);
        FOREACH o IN ARRAY '{=,<>,<,<=,>,>=}'::text[] LOOP
            EXECUTE format('CREATE OPERATOR hostile.%s (FUNCTION = hostile.op_%s, LEFTARG = %2$s, RIGHTARG = %2$s)', o, t);
        END LOOP;
    END LOOP;
    -- the functions that a store written in SQL would call, with their own signatures
    FOR f IN SELECT p.proname, pg_get_function_identity_arguments(p.oid) AS args, pg_get_function_result(p.oid) AS result
               FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.prokind = 'f'
                AND p.proname IN ('now', 'clock_timestamp', 'octet_length', 'length', 'btrim', 'sha256', 'digest', 'hashtext', 'hashtextextended',
                                  'gen_random_uuid', 'pg_advisory_xact_lock', 'pg_try_advisory_xact_lock', 'pg_backend_pid', 'jsonb_typeof',
                                  'interval_cmp', 'timestamptz_lt', 'texteq', 'bttextcmp', 'current_setting', 'set_config', 'format', 'coalesce')
                AND NOT p.proretset AND p.provariadic = 0 AND pg_get_function_arguments(p.oid) NOT LIKE '%OUT%' AND pg_get_function_arguments(p.oid) NOT LIKE '%internal%'
    LOOP
        EXECUTE format('CREATE FUNCTION hostile.%I(%s) RETURNS %s LANGUAGE sql AS $f$ SELECT NULL::%3$s FROM hostile.trap() $f$', f.proname, f.args, f.result);
    END LOOP;
END $$;
CREATE TYPE hostile.idem_outcome AS ENUM ('x');
CREATE TYPE hostile.idem_state AS ENUM ('x');
CREATE TYPE hostile.idem_claim_result AS (x int);
CREATE TABLE hostile.idem_settled (x int);
CREATE TABLE hostile.idem_inflight (x int);
CREATE TABLE hostile.idem_seen (x int);
CREATE TABLE hostile.idem_audit (x int);
CREATE TABLE hostile.idem_policies (action text, retention interval);
CREATE VIEW hostile.idempotent_operations AS SELECT 1 AS x;
CREATE FUNCTION hostile.idem_session_ended(integer, timestamptz) RETURNS boolean LANGUAGE sql AS 'SELECT hostile.trap()';
CREATE FUNCTION hostile.idem_now() RETURNS timestamptz LANGUAGE sql AS 'SELECT now() WHERE hostile.trap()';
CREATE DOMAIN hostile.text AS pg_catalog.text CHECK (hostile.trap());
CREATE DOMAIN hostile.jsonb AS pg_catalog.jsonb CHECK (hostile.trap());
CREATE DOMAIN hostile.uuid AS pg_catalog.uuid CHECK (hostile.trap());
CREATE FUNCTION public.hostile_handler(pg_catalog.jsonb) RETURNS pg_catalog.jsonb LANGUAGE sql AS 'SELECT pg_catalog.jsonb_build_object(''got'', $1)';
INSERT INTO idem_policies (action, retention, on_interrupt, key_format) VALUES ('hostile', '1 hour', 'fail', 'uuid'), ('h', '1 hour', NULL, NULL);

SET search_path = hostile, pg_catalog, public;
-- The trap works
SELECT 'a'::pg_catalog.text = 'a'::pg_catalog.text;
SELECT now();
SELECT 'a'::text;
-- The whole life of operations
BEGIN;
SELECT outcome FROM public.idem_claim('h', 'h', 'k1', '{"a": 1}', issued_at => '2020-01-01');
SELECT key FROM public.idem_current();
SELECT state FROM public.idem_lookup('h', 'h', 'k1');
SELECT public.idem_complete('h', 'h', 'k1', '{"r": 1}', 200, 'b', '\x00') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, status, result, body, body_bytes FROM public.idem_claim('h', 'h', 'k1', '{"a": 1}');
SELECT outcome FROM public.idem_claim('h', 'h', 'k1', '{"a": 2}');
SELECT state, status, result FROM public.idem_lookup('h', 'h', 'k1');
SELECT outcome FROM public.idem_claim('h', 'h', 'k2', '{}', lease => '1 min', owner => 'me', session_bound => true, token => '00000000-0000-0000-0000-000000000001');
SELECT outcome, holder FROM public.idem_claim('h', 'h', 'k2', '{}', wait => '30 ms');
SELECT public.idem_renew('h', 'h', 'k2', '00000000-0000-0000-0000-000000000001') IS NOT NULL AS ok;
SELECT public.idem_checkpoint('h', 'h', 'k2', '00000000-0000-0000-0000-000000000001', 'c', '{"p": 1}') IS NOT NULL AS ok;
SELECT public.idem_guard('h', 'h', 'k2', '00000000-0000-0000-0000-000000000001') IS NOT NULL AS ok;
SELECT state, downstream_key, send_before OPERATOR(pg_catalog.-) first_sent_at AS send_within FROM public.idem_effect('h', 'h', 'k2', '00000000-0000-0000-0000-000000000001', 'e', '1 day', '{"a": 1}');
SELECT name, state FROM public.idem_open_effects('h', 'h', 'k2');
SELECT name, state, send_before OPERATOR(pg_catalog.-) first_sent_at AS send_within FROM public.idem_effects;
SELECT public.idem_effect_report(downstream_key, 'confirmed', '{"b": 1}') FROM public.idem_effects;
SELECT name, state FROM public.idem_effects;
SELECT public.idem_release('h', 'h', 'k2', '00000000-0000-0000-0000-000000000001', error => 'e');
SELECT state, last_error FROM public.idem_lookup('h', 'h', 'k2');
SELECT outcome FROM public.idem_claim('h', 'hostile', 'no uuid', '{}');
SELECT public.idem_resolve('h', 'h', 'k2', 'retry', note => 'n') IS NOT NULL AS ok;
SELECT public.idem_resolve('h', 'h', 'k2', 'completed', '1', 200, 'b', 'n', 1) IS NOT NULL AS ok;
SELECT public.idem_reset('h', 'h', 'k2', 'n');
SELECT public.idem_import('h', 'h', 'k2', 'failed', 400, '1', 'b', '\x01', '2020-01-01');
SELECT what, rows FROM public.idem_erase('h/', 'n');
SELECT public.idem_once('h', 'h', 'k1', '{}'), public.idem_once('h', 'h', 'k1', '{}');
SELECT key, verdict FROM public.idem_once_batch('h', 'h', '{b,a,b}');
SELECT outcome, replayed, result FROM public.idem_run('h', 'h', 'k3', '{"a": 1}', 'public.hostile_handler(jsonb)');
SELECT outcome, replayed, result FROM public.idem_run('h', 'h', 'k3', '{"a": 1}', 'public.hostile_handler(pg_catalog.jsonb)');
SELECT public.idem_fingerprint('{"a": 1}', '{/b}');
-- The outbox
SELECT public.idem_publish('h', 'h', 't', '{"a": 1}', '{"b": 2}') IS NOT NULL AS ok;
SELECT public.idem_outbox_nack(ARRAY(SELECT receipt FROM public.idem_outbox_take(10, '1 min', '{h,i}')), '0', 'e');
SELECT public.idem_outbox_retry(ARRAY(SELECT id FROM public.idem_outbox));
SELECT public.idem_outbox_ack(ARRAY(SELECT receipt FROM public.idem_outbox_take()));
-- The view
SELECT key, state, result FROM public.idempotent_operations WHERE account OPERATOR(pg_catalog.=) 'h' ORDER BY key COLLATE "C";
-- What is seen of it
SELECT count(*) OPERATOR(pg_catalog.>=) 0 AS ok FROM public.idem_stats;
SELECT public.idem_stats_reset() IS NOT NULL AS ok;
SELECT settled OPERATOR(pg_catalog.>) 0 AS ok FROM public.idem_gauges;
BEGIN;
SELECT outcome FROM public.idem_claim('h', 'h', 'held', '{}');
SELECT count(*) OPERATOR(pg_catalog.>=) 0 AS ok FROM public.idem_holders;
ROLLBACK;
-- Policies: their constraints and triggers, and what the cache reads
UPDATE public.idem_policies SET retention = '2 hours', max_attempts = 3;
INSERT INTO public.idem_policies (action, retention, key_format, max_lease) VALUES ('h2', '1 hour', 'any', '1 min');
INSERT INTO public.idem_policies (action, retention) VALUES (' ', '-1 hour');
BEGIN;
SELECT outcome FROM public.idem_claim('h', 'h', 'k4', '{}');
SELECT public.idem_complete('h', 'h', 'k4') IS NOT NULL AS ok;
SELECT expires_at OPERATOR(pg_catalog.-) settled_at AS retention FROM public.idem_lookup('h', 'h', 'k4');
COMMIT;
-- account_from
SET pg_idem.account_from = 'setting:x.y#/tenant';
SET x.y = '{"tenant": "h"}';
SELECT outcome, result FROM public.idem_claim('h', 'h', 'k1', '{"a": 1}');
SELECT outcome, result FROM public.idem_claim('i', 'h', 'k1', '{"a": 1}');
RESET pg_idem.account_from;
-- The doctor: each check can be made, and finds what it finds elsewhere
SELECT check_name, detail FROM public.idem_doctor() WHERE pg_catalog.starts_with(detail, 'cannot');
SELECT check_name, status FROM public.idem_doctor() WHERE check_name OPERATOR(pg_catalog.=) ANY ('{tables,handler,autovacuum}');
-- In temporary objects, which come first even where the path does not say so
RESET search_path;
CREATE TEMP TABLE idem_settled (x int);
CREATE TEMP TABLE idem_policies (x int);
CREATE TYPE pg_temp.idem_outcome AS ENUM ('x');
SELECT outcome, result FROM idem_claim('h', 'h', 'k1', '{"a": 1}');
SELECT state FROM idem_lookup('h', 'h', 'k1');
DROP TABLE pg_temp.idem_settled, pg_temp.idem_policies;
DROP TYPE pg_temp.idem_outcome;
-- With an empty path
SET search_path = '';
SELECT outcome, result FROM public.idem_claim('h', 'h', 'k1', '{"a": 1}');
SELECT outcome, result FROM public.idem_run('h', 'h', 'k5', '1', 'public.hostile_handler(jsonb)');
SELECT count(*) FROM public.idempotent_operations WHERE account = 'h';
RESET search_path;
DELETE FROM idem_policies;
DELETE FROM idem_audit;
DROP FUNCTION hostile_handler;
SET client_min_messages = error;
DROP SCHEMA hostile CASCADE;
