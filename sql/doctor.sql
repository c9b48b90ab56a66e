-- idem_doctor: each check that can be staged in one session, seen ok and not ok. The rest: test/t/032_doctor.pl
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET intervalstyle = 'postgres';
\pset format unaligned
\pset tuples_only on
DELETE FROM idem_policies;
TRUNCATE idem_settled, idem_inflight, idem_seen, idem_outbox;
ANALYZE idem_settled, idem_inflight, idem_seen;
CREATE FUNCTION pg_temp.preloaded() RETURNS boolean LANGUAGE sql AS $$
    SELECT 'pg_idem' = ANY (string_to_array(regexp_replace(current_setting('shared_preload_libraries'), '[\s"]', '', 'g'), ','))
$$;
CREATE FUNCTION pg_temp.doctor(VARIADIC checks text[]) RETURNS SETOF text LANGUAGE sql AS $$
    SELECT concat_ws(' | ', check_name, status, detail, advice) FROM idem_doctor() WHERE check_name = ANY (checks)
$$;

-- Every check, in its order, once; advice only where something is to be done; nothing that could not be checked
SELECT string_agg(DISTINCT status, ' ' ORDER BY status) FROM idem_doctor() WHERE status NOT IN ('ok', 'info', 'warning', 'critical');
SELECT check_name FROM idem_doctor();
SELECT check_name FROM idem_doctor() WHERE (advice IS NULL) <> (status = 'ok') OR detail IS NULL;
SELECT check_name, detail FROM idem_doctor() WHERE starts_with(detail, 'cannot');

-- The session's settings
SELECT pg_temp.doctor('synchronous_commit', 'test_now', 'account_from', 'idle_claims', 'client_connection', 'library_version');
SET synchronous_commit = off;
SELECT pg_temp.doctor('synchronous_commit');
SET pg_idem.force_sync_commit = off;
SELECT pg_temp.doctor('synchronous_commit');
SET synchronous_commit = local;
SELECT pg_temp.doctor('synchronous_commit');
RESET synchronous_commit;
RESET pg_idem.force_sync_commit;
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SELECT pg_temp.doctor('test_now');
RESET pg_idem.test_now;
SET pg_idem.idle_claim_timeout = 0;
SELECT pg_temp.doctor('idle_claims');
SET idle_in_transaction_session_timeout = '1 h';
SELECT pg_temp.doctor('idle_claims');
RESET idle_in_transaction_session_timeout;
RESET pg_idem.idle_claim_timeout;
SET client_connection_check_interval = '10 s';
SELECT pg_temp.doctor('client_connection');
RESET client_connection_check_interval;
SET pg_idem.account_from = 'role';
SELECT status = CASE WHEN pg_temp.preloaded() THEN 'ok' ELSE 'warning' END FROM idem_doctor() WHERE check_name = 'account_from';
RESET pg_idem.account_from;
SELECT status = CASE WHEN pg_temp.preloaded() THEN 'ok' ELSE 'warning' END FROM idem_doctor() WHERE check_name = 'preload';
SELECT status = CASE WHEN pg_temp.preloaded() THEN 'ok' ELSE 'warning' END FROM idem_doctor() WHERE check_name = 'worker';
SELECT status FROM idem_doctor() WHERE check_name = 'worker_slots';
BEGIN;
UPDATE pg_extension SET extversion = '0.9' WHERE extname = 'pg_idem';
SELECT pg_temp.doctor('library_version');
ROLLBACK;
SET pg_idem.max_claims_per_transaction = 1000000;
SELECT regexp_replace(d, 'about \d+', 'about N') FROM pg_temp.doctor('lock_table') AS d;
RESET pg_idem.max_claims_per_transaction;
SELECT status FROM idem_doctor() WHERE check_name = 'lock_table';

-- Policies
SELECT pg_temp.doctor('retention', 'reject_older_than', 'tolerated_skew', 'retry_backoff', 'key_format', 'fingerprint');
INSERT INTO idem_policies (action, retention, remember) VALUES ('short', '10 min', '20 min'), ('none', '0', '0'), ('equal', '30 min', '30 min');
SELECT pg_temp.doctor('retention', 'tolerated_skew');
INSERT INTO idem_policies (action, max_lease) VALUES ('unlimited', '0'), ('long lease', '40 days');
UPDATE idem_policies SET retention = '5 min', remember = '5 min' WHERE action = 'equal';
UPDATE idem_policies SET max_lease = '10 min' WHERE action = 'equal';
SELECT pg_temp.doctor('retention', 'tolerated_skew');
DELETE FROM idem_policies;
-- What '*' brings is found there; together with what a row sets itself, in that row
INSERT INTO idem_policies (action, reject_older_than) VALUES ('*', '60 days');
INSERT INTO idem_policies (action, keep_request) VALUES ('inherits', true);
INSERT INTO idem_policies (action, retention) VALUES ('longer', '40 days'), ('shorter', '1 day');
INSERT INTO idem_policies (action, reject_older_than) VALUES ('off', '0'), ('fits', '32 days 23:50');
SELECT pg_temp.doctor('reject_older_than');
DELETE FROM idem_policies;
INSERT INTO idem_policies (action, retry_backoff, max_backoff) VALUES ('clamped', '2 h', NULL), ('no limit', '2 h', '0'), ('fits', '1 h', '1 h'), ('low', NULL, '1 s');
SELECT pg_temp.doctor('retry_backoff');
DELETE FROM idem_policies;
INSERT INTO idem_policies (action, key_format, reject_older_than) VALUES ('timeless', 'uuidv7', NULL), ('timed', 'uuidv7', '1 day'), ('uuid', 'uuid', NULL);
INSERT INTO idem_policies (action, fingerprint) VALUES ('optional', 'optional'), ('required', 'required');
SELECT pg_temp.doctor('key_format', 'fingerprint');
DELETE FROM idem_policies;
-- Of very many findings the first are shown
INSERT INTO idem_policies (action, fingerprint) SELECT 'action ' || lpad(i::text, 3, '0'), 'optional' FROM generate_series(1, 40) i;
SELECT pg_temp.doctor('fingerprint');
DELETE FROM idem_policies;

-- Handlers
CREATE ROLE regress_idem_handler LOGIN;
CREATE ROLE regress_idem_other LOGIN;
CREATE SCHEMA doctor;
CREATE FUNCTION doctor.handler(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE FUNCTION doctor."Odd.name("(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE FUNCTION doctor.texts(text) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb($1) $$;
CREATE FUNCTION doctor.returns_text(jsonb) RETURNS text LANGUAGE sql AS $$ SELECT $1::text $$;
CREATE FUNCTION doctor.many(jsonb) RETURNS SETOF jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE PROCEDURE doctor.proc(jsonb) LANGUAGE sql AS $$ SELECT $1 $$;
REVOKE EXECUTE ON FUNCTION doctor.handler(jsonb) FROM PUBLIC;
SELECT pg_temp.doctor('on_interrupt', 'handler', 'handler_role');
INSERT INTO idem_policies (action, on_interrupt) VALUES ('bare', 'call');
INSERT INTO idem_policies (action, on_interrupt, handler) VALUES ('half', 'call', 'doctor.handler');
INSERT INTO idem_policies (action, on_interrupt, handler, handler_role, keep_request) VALUES
    ('complete', 'call', 'doctor.handler(jsonb)', 'regress_idem_handler', true), ('retried', 'retry', NULL, NULL, NULL);
SELECT pg_temp.doctor('on_interrupt', 'handler');
GRANT USAGE ON SCHEMA doctor TO regress_idem_handler;
SELECT pg_temp.doctor('handler');
GRANT EXECUTE ON FUNCTION doctor.handler(jsonb) TO regress_idem_handler;
SELECT pg_temp.doctor('handler');
-- A row takes handler and handler_role from '*', both or neither
DELETE FROM idem_policies WHERE action = 'half';
INSERT INTO idem_policies (action, handler, handler_role, keep_request) VALUES ('*', 'doctor.handler', 'regress_idem_handler', true);
SELECT pg_temp.doctor('on_interrupt', 'handler');
UPDATE idem_policies SET handler = 'doctor.handler' WHERE action = 'bare';
SELECT pg_temp.doctor('on_interrupt', 'handler');
UPDATE idem_policies SET handler_role = '' WHERE action = 'bare';
SELECT pg_temp.doctor('on_interrupt', 'handler');
DELETE FROM idem_policies;
GRANT USAGE ON SCHEMA doctor TO regress_idem_other;
CREATE FUNCTION pg_temp.handler(name text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    UPDATE idem_policies SET handler = name;
    RETURN (SELECT concat_ws(' | ', status, detail) FROM idem_doctor() WHERE check_name = 'handler');
END $$;
INSERT INTO idem_policies (action, handler_role) VALUES ('h', 'regress_idem_other');
SELECT pg_temp.handler(name) FROM unnest(ARRAY[
    'doctor.handler', 'DOCTOR.handler ( jsonb )', 'doctor.handler(pg_catalog.jsonb)', 'doctor."Odd.name("', 'doctor."Odd.name("(jsonb)', 'doctor.odd',
    'handler', 'handler(jsonb)', 'nowhere.handler(jsonb)', 'doctor.texts', 'doctor.texts(text)', 'doctor.returns_text', 'doctor.many',
    'doctor.proc', 'a.b.c(jsonb)', 'doctor.', '.', '"', '(jsonb)', 'doctor.handler(jsonb', 'doctor.handler; DROP TABLE x', repeat('x', 100) || '.y', ' ']) AS name;
DELETE FROM idem_policies;
INSERT INTO idem_policies (action, handler_role) VALUES ('h', 'regress_idem_handler');
SELECT pg_temp.doctor('handler_role');
ALTER ROLE regress_idem_handler SUPERUSER;
SELECT pg_temp.doctor('handler_role');
ALTER ROLE regress_idem_handler NOSUPERUSER;
ALTER ROLE regress_idem_handler NOLOGIN;
SELECT status = CASE WHEN current_setting('server_version_num')::int < 170000 THEN 'warning' ELSE 'ok' END FROM idem_doctor() WHERE check_name = 'handler_role';
ALTER ROLE regress_idem_handler LOGIN;
BEGIN;
SELECT format('REVOKE CONNECT ON DATABASE %I FROM PUBLIC', current_database()) \gexec
SELECT pg_temp.doctor('handler_role');
ROLLBACK;
DROP OWNED BY regress_idem_handler;
DROP ROLE regress_idem_handler;
SELECT pg_temp.doctor('handler_role');
DELETE FROM idem_policies;

-- Operations in review, and leases that outlive what is known of outcomes
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
INSERT INTO idem_policies (action, on_interrupt, max_lease) VALUES ('examined', 'review', NULL), ('leased', NULL, '0');
SELECT outcome FROM generate_series(1, 3) AS i, idem_claim('doctor', 'examined', i::text, '{}', lease => '1 min');
SELECT outcome FROM idem_claim('doctor', 'leased', 'long', '{}', lease => '20 min');
SELECT pg_temp.doctor('review', 'inflight_leases');
SET pg_idem.test_now = '2030-01-01 00:05:00+00';
SELECT outcome FROM idem_claim('doctor', 'examined', '1', '{}', lease => '1 min');
SET pg_idem.test_now = '2030-01-01 00:06:00+00';
SELECT outcome FROM idem_claim('doctor', 'examined', '2', '{}', lease => '1 min');
UPDATE idem_policies SET retention = '10 min', remember = '0' WHERE action = 'leased';
SELECT pg_temp.doctor('review', 'inflight_leases', 'retention');
RESET pg_idem.test_now;
DELETE FROM idem_policies;
DELETE FROM idem_inflight;

-- How many rows there will be: 30,000 a day for ten years
SELECT pg_temp.doctor('projected_rows');
INSERT INTO idem_settled (settled_at, expires_at, forget_at, attempt, succeeded, stripped, account, action, key)
    SELECT t, t, t, 1, true, true, 'doctor', CASE WHEN i % 2 = 0 THEN 'kept' ELSE 'brief' END, i::text
      FROM generate_series(1, 60000) i, LATERAL (SELECT '2030-01-01 00:00:00+00'::timestamptz + i * interval '1 s') AS s(t);
ANALYZE idem_settled;
SELECT pg_temp.doctor('projected_rows');
INSERT INTO idem_policies (action, retention) VALUES ('kept', '1000000 years');
SELECT pg_temp.doctor('projected_rows');
UPDATE idem_policies SET action = '*';
SELECT regexp_replace(d, 'about 1\d\d million', 'about N million') FROM pg_temp.doctor('projected_rows') AS d;
INSERT INTO idem_policies (action, retention) VALUES ('kept', '1 day'), ('brief', '1 day');
SELECT pg_temp.doctor('projected_rows');
TRUNCATE idem_settled;
ANALYZE idem_settled;
INSERT INTO idem_seen (seen_at, forget_at, account, action, key)
    SELECT t, t, 'doctor', 'kept', i::text
      FROM generate_series(1, 60000) i, LATERAL (SELECT '2030-01-01 00:00:00+00'::timestamptz + i * interval '1 s') AS s(t);
ANALYZE idem_seen;
SELECT pg_temp.doctor('projected_rows');
UPDATE idem_policies SET once_retention = '1000000 years' WHERE action = 'kept';
SELECT regexp_replace(d, 'about 1\d\d million', 'about N million') FROM pg_temp.doctor('projected_rows') AS d;
DELETE FROM idem_policies;
TRUNCATE idem_seen;
ANALYZE idem_seen;

-- Our tables, altered; with them, what cannot be checked any more
SELECT pg_temp.doctor('tables', 'autovacuum', 'published', 'subscribed');
BEGIN;
ALTER TABLE idem_settled ENABLE ROW LEVEL SECURITY;
ALTER TABLE idem_inflight SET UNLOGGED;
ALTER TABLE idem_seen DROP CONSTRAINT idem_seen_pkey;
SELECT pg_temp.doctor('tables', 'review', 'retention');
ROLLBACK;
BEGIN;
ALTER TABLE idem_policies ALTER keep_request TYPE text;
INSERT INTO idem_policies (action) VALUES ('x');
SELECT pg_temp.doctor('tables', 'review', 'retention');
ROLLBACK;
BEGIN;
ALTER TABLE idem_seen RENAME TO seen_before;
ALTER TABLE idem_inflight RENAME TO inflight_before;
SELECT pg_temp.doctor('tables', 'review', 'projected_rows', 'autovacuum', 'vacuum', 'published', 'subscribed');
ROLLBACK;
BEGIN;
ALTER TABLE idem_settled SET (autovacuum_enabled = 0);
ALTER TABLE idem_inflight SET (toast.autovacuum_enabled = no);
ALTER TABLE idem_seen SET (autovacuum_enabled = true);
ALTER TABLE idem_policies SET (autovacuum_enabled = false);
SELECT pg_temp.doctor('autovacuum') ORDER BY 1;
ROLLBACK;
-- Messages that nobody takes
SELECT pg_temp.doctor('outbox_parked', 'outbox_pending', 'outbox_mode');
BEGIN;
INSERT INTO idem_outbox (id, aggregatetype, aggregateid, type, created_at, position, deliveries, failures, parked_at)
    VALUES (gen_random_uuid(), 'order', 'a', 't', '2020-01-01Z', 1, 10, 10, '2020-01-02Z'), (gen_random_uuid(), 'order', 'b', 't', '2020-01-03Z', 2, 0, 0, NULL);
SELECT pg_temp.doctor('outbox_parked', 'outbox_pending');
ROLLBACK;
-- Published; policies and messages may be
BEGIN;
SET LOCAL client_min_messages = error;
CREATE PUBLICATION regress_idem_one FOR TABLE idem_policies, idem_outbox;
SELECT pg_temp.doctor('published');
ALTER PUBLICATION regress_idem_one ADD TABLE idem_seen;
CREATE PUBLICATION regress_idem_all FOR ALL TABLES;
CREATE PUBLICATION regress_idem_schema FOR TABLES IN SCHEMA public;
CREATE PUBLICATION regress_idem_other FOR TABLES IN SCHEMA doctor;
SELECT pg_temp.doctor('published') ORDER BY 1;
ROLLBACK;
-- Subscribed
BEGIN;
SET LOCAL client_min_messages = error;
CREATE SUBSCRIPTION regress_idem_sub CONNECTION '' PUBLICATION p WITH (connect = false, slot_name = NONE, enabled = false);
INSERT INTO pg_subscription_rel (srsubid, srrelid, srsubstate) SELECT oid, 'idem_settled'::regclass, 'i' FROM pg_subscription WHERE subname = 'regress_idem_sub';
SELECT pg_temp.doctor('subscribed');
ROLLBACK;

-- Any isolation level, read only, within a transaction that holds claims, which it keeps
BEGIN ISOLATION LEVEL SERIALIZABLE READ ONLY;
SELECT count(*) FROM idem_doctor() WHERE starts_with(detail, 'cannot');
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT outcome FROM idem_claim('doctor', 'claimed', 'k', '{}');
SAVEPOINT a;
SELECT count(*) FROM idem_doctor() WHERE starts_with(detail, 'cannot');
RELEASE a;
SELECT key FROM idem_current();
SELECT idem_complete('doctor', 'claimed', 'k') IS NOT NULL;
COMMIT;
SELECT state FROM idem_lookup('doctor', 'claimed', 'k');
-- It leaves no lock behind on what it has read
BEGIN;
SELECT count(*) FROM idem_doctor() WHERE starts_with(detail, 'cannot');
SELECT relation::regclass FROM pg_locks WHERE pid = pg_backend_pid() AND relation::regclass::text ~ '^(idem_|pg_publication|pg_subscription)';
COMMIT;

-- A role with EXECUTE and pg_monitor sees the same (a pass may end meanwhile); it is granted nothing else
GRANT EXECUTE ON FUNCTION idem_doctor TO regress_idem_other;
GRANT pg_monitor TO regress_idem_other;
CREATE TEMP TABLE seen_by_superuser AS SELECT check_name, status FROM idem_doctor();
GRANT SELECT ON seen_by_superuser TO regress_idem_other;
SET ROLE regress_idem_other;
SELECT check_name, status FROM idem_doctor() WHERE check_name <> 'worker_pass' EXCEPT SELECT check_name, status FROM seen_by_superuser;
RESET ROLE;
DROP TABLE seen_by_superuser;
DROP OWNED BY regress_idem_other;
DROP ROLE regress_idem_other;
DROP SCHEMA doctor CASCADE;
