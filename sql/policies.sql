-- Policies: constraints, inheritance, who may set a handler_role, and that a change is seen at once.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET pg_idem.test_now = '2030-01-01 00:00:00+00';

-- Constraints
CREATE FUNCTION pg_temp.refused(col text, value text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    IF col = 'action' THEN
        INSERT INTO idem_policies (action) VALUES (value);
    ELSE
        EXECUTE format('INSERT INTO idem_policies (action, %I) VALUES (%L, %L)', col, 'constraint', value);
    END IF;
    DELETE FROM idem_policies;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
SELECT col, left(to_jsonb(value)::text, 12) AS value, pg_temp.refused(col, value) FROM (VALUES
    ('action', NULL), ('action', ''), ('action', E' \t\n'), ('action', repeat('a', 128)), ('action', repeat('a', 129)),
    ('action', repeat('é', 65)), ('action', '*'),
    ('retention', '-1 us'), ('retention', '0'), ('remember', '-1 s'), ('remember', '0'), ('once_retention', '0'), ('once_retention', '1 us'),
    ('reject_older_than', '-1 s'), ('reject_older_than', '0'), ('max_lease', '-1 s'), ('max_lease', '0'), ('max_attempts', '0'),
    ('max_attempts', '1'), ('retry_backoff', '-1 s'), ('retry_backoff', '0'), ('max_backoff', '-1 s'), ('max_backoff', '0'),
    ('max_outcome_bytes', '-1'), ('max_outcome_bytes', '0'), ('key_format', 'UUID'), ('key_format', ''), ('key_format', 'any'),
    ('key_format', 'uuidv7'), ('fingerprint', 'maybe'), ('fingerprint', ''), ('fingerprint', 'required'), ('fingerprint', 'optional'),
    ('on_interrupt', 'ignore'), ('on_interrupt', ''), ('on_interrupt', 'call'), ('keep_request', 'true'), ('handler', '')
  ) AS v (col, value);
INSERT INTO idem_policies (action) VALUES ('twice');
INSERT INTO idem_policies (action) VALUES ('twice');
DELETE FROM idem_policies;

-- Inheritance: the row of the action, then '*', then the built-in default
CREATE FUNCTION pg_temp.expiry(a text) RETURNS TABLE (action text, retention interval, remember interval) LANGUAGE plpgsql AS $$
DECLARE l idempotent_operations; k text := gen_random_uuid()::text;
BEGIN
    PERFORM FROM idem_claim('policies', a, k, '{}');
    PERFORM idem_complete('policies', a, k);
    SELECT * INTO l FROM idem_lookup('policies', a, k);
    RETURN QUERY SELECT a, l.expires_at - l.settled_at, l.forget_at - l.expires_at;
END $$;
SELECT * FROM pg_temp.expiry('own');
INSERT INTO idem_policies (action, retention, remember) VALUES ('*', '1 hour', '2 hours');
SELECT * FROM pg_temp.expiry('own');
INSERT INTO idem_policies (action, retention) VALUES ('own', '5 min');
SELECT * FROM pg_temp.expiry('own');
SELECT * FROM pg_temp.expiry('another');
UPDATE idem_policies SET remember = NULL WHERE action = '*';
SELECT * FROM pg_temp.expiry('own');
UPDATE idem_policies SET retention = '0' WHERE action = 'own';
SELECT * FROM pg_temp.expiry('own');
UPDATE idem_policies SET retention = NULL WHERE action = 'own';
SELECT * FROM pg_temp.expiry('own');
-- Months are 30 days, days 24 hours
UPDATE idem_policies SET retention = '1 month 1 day', remember = '1 year' WHERE action = 'own';
SELECT * FROM pg_temp.expiry('own');
-- An operation whose action is really named '*' has that policy
SELECT * FROM pg_temp.expiry('*');
DELETE FROM idem_policies;

-- '0' and '' mean none where '*' sets something
INSERT INTO idem_policies (action, reject_older_than, max_lease, max_backoff, key_format, fingerprint) VALUES
    ('*', '1 hour', '1 min', '10 s', 'uuid', 'optional'), ('free', '0', '0', '0', '', 'required');
SELECT outcome FROM idem_claim('policies', 'bound', 'not a uuid', '{}');
SELECT outcome FROM idem_claim('policies', 'bound', gen_random_uuid()::text, '{}', issued_at => '2029-12-31 23:00:00+00');
SELECT outcome FROM idem_claim('policies', 'bound', gen_random_uuid()::text, '{}', lease => '61 s');
SELECT outcome FROM idem_claim('policies', 'bound', '01234567-89ab-4def-8123-456789abcdef', lease => '60 s');
SELECT outcome FROM idem_claim('policies', 'free', 'not a uuid', '{}', issued_at => '2029-12-31 23:00:00+00', lease => '10 days');
SELECT outcome FROM idem_claim('policies', 'free', 'no fingerprint', lease => '10 days');

-- keep_request: with the operation in flight, then with its outcome
SELECT request FROM idem_lookup('policies', 'free', 'not a uuid');
UPDATE idem_policies SET keep_request = true, key_format = '' WHERE action = '*';
SELECT outcome FROM idem_claim('policies', 'keep', 'k1', '{"b": 1.0}', lease => '1 min', token => '00000000-0000-0000-0000-000000000001');
SELECT request FROM idem_lookup('policies', 'keep', 'k1');
SELECT idem_complete('policies', 'keep', 'k1', token => '00000000-0000-0000-0000-000000000001') IS NOT NULL AS ok;
SELECT request FROM idem_lookup('policies', 'keep', 'k1');
BEGIN;
SELECT outcome FROM idem_claim('policies', 'keep', 'k2', '{"b": 2.0}');
SELECT idem_complete('policies', 'keep', 'k2') IS NOT NULL AS ok;
COMMIT;
SELECT request FROM idem_lookup('policies', 'keep', 'k2');
DELETE FROM idem_policies;

-- A change is seen by the next statement of the same transaction; rolled back it never was
SELECT * FROM pg_temp.expiry('change');
BEGIN;
INSERT INTO idem_policies (action, retention, remember) VALUES ('change', '1 min', '1 min');
SELECT * FROM pg_temp.expiry('change');
SAVEPOINT s;
UPDATE idem_policies SET retention = '2 min';
SELECT * FROM pg_temp.expiry('change');
ROLLBACK TO s;
SELECT * FROM pg_temp.expiry('change');
SAVEPOINT s;
DELETE FROM idem_policies;
SELECT * FROM pg_temp.expiry('change');
RELEASE s;
ROLLBACK;
SELECT * FROM pg_temp.expiry('change');
-- at REPEATABLE READ and SERIALIZABLE
BEGIN ISOLATION LEVEL REPEATABLE READ;
INSERT INTO idem_policies (action, retention, remember) VALUES ('change', '3 min', '3 min');
SELECT * FROM pg_temp.expiry('change');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
UPDATE idem_policies SET retention = '4 min';
SELECT * FROM pg_temp.expiry('change');
ROLLBACK;
SELECT * FROM pg_temp.expiry('change');
-- by TRUNCATE, by COPY, and where ordinary triggers do not fire
TRUNCATE idem_policies;
SELECT * FROM pg_temp.expiry('change');
COPY idem_policies (action, retention, remember) FROM stdin;
change	5 min	5 min
\.
SELECT * FROM pg_temp.expiry('change');
SET session_replication_role = replica;
UPDATE idem_policies SET retention = '6 min';
SELECT * FROM pg_temp.expiry('change');
RESET session_replication_role;
-- within one function
CREATE FUNCTION pg_temp.within() RETURNS SETOF interval LANGUAGE plpgsql AS $$
BEGIN
    RETURN QUERY SELECT e.retention FROM pg_temp.expiry('change') AS e;
    UPDATE idem_policies SET retention = '7 min';
    RETURN QUERY SELECT e.retention FROM pg_temp.expiry('change') AS e;
    BEGIN
        UPDATE idem_policies SET retention = '8 min';
        RETURN QUERY SELECT e.retention FROM pg_temp.expiry('change') AS e;
        RAISE division_by_zero;
    EXCEPTION WHEN division_by_zero THEN NULL;
    END;
    RETURN QUERY SELECT e.retention FROM pg_temp.expiry('change') AS e;
END $$;
SELECT pg_temp.within();
SELECT * FROM pg_temp.expiry('change');
DELETE FROM idem_policies;

-- handler_role: one whose member the writer is, and no superuser
CREATE ROLE regress_idem_writer;
CREATE ROLE regress_idem_handler;
CREATE ROLE regress_idem_stranger;
CREATE ROLE regress_idem_super SUPERUSER;
GRANT regress_idem_handler TO regress_idem_writer;
GRANT SELECT, INSERT, UPDATE, DELETE ON idem_policies TO regress_idem_writer;
SET ROLE regress_idem_writer;
INSERT INTO idem_policies (action, handler_role) VALUES ('member', 'regress_idem_handler');
INSERT INTO idem_policies (action, handler_role) VALUES ('self', 'regress_idem_writer');
INSERT INTO idem_policies (action, handler_role) VALUES ('stranger', 'regress_idem_stranger');
INSERT INTO idem_policies (action, handler_role) VALUES ('super', 'regress_idem_super');
UPDATE idem_policies SET handler_role = 'regress_idem_stranger' WHERE action = 'member';
INSERT INTO idem_policies (action, handler_role) VALUES ('none', '') ON CONFLICT DO NOTHING;
INSERT INTO idem_policies (action, handler_role) VALUES ('member', 'regress_idem_stranger')
    ON CONFLICT (action) DO UPDATE SET handler_role = excluded.handler_role;
RESET ROLE;
-- a superuser may not name one either
INSERT INTO idem_policies (action, handler_role) VALUES ('super', 'regress_idem_super');
INSERT INTO idem_policies (action, handler_role) VALUES ('super', current_user);
SET session_replication_role = replica;
INSERT INTO idem_policies (action, handler_role) VALUES ('super', 'regress_idem_super');
RESET session_replication_role;
INSERT INTO idem_policies (action, handler_role) VALUES ('stranger', 'regress_idem_stranger');
-- nor one that is no role
INSERT INTO idem_policies (action, handler_role) VALUES ('nobody', 'regress_idem_nobody');
SELECT action, handler_role FROM idem_policies ORDER BY action;
DELETE FROM idem_policies;
REVOKE ALL ON idem_policies FROM regress_idem_writer;
DROP ROLE regress_idem_writer, regress_idem_handler, regress_idem_stranger, regress_idem_super;
RESET pg_idem.test_now;
