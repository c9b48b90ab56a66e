-- G7 Expiry in two phases: the payload goes at expires_at, the row at forget_at, messages at their own time; and no answer depends on it.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
TRUNCATE idem_settled, idem_inflight, idem_seen;
INSERT INTO idem_policies (action, retention, remember, once_retention, keep_request, max_outcome_bytes) VALUES
    ('act', '1 hour', '1 day', '2 hours', true, NULL), ('empty', '1 hour', '1 day', '2 hours', false, NULL),
    ('huge', '1 hour', '1 day', NULL, true, 50000000),
    ('no retention', '0', '1 day', NULL, NULL, NULL), ('no memory', '1 hour', '0', NULL, NULL, NULL), ('nothing', '0', '0', NULL, NULL, NULL);
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
CREATE PROCEDURE pg_temp.settle(a text, k text, ok boolean, result jsonb, status int, body text, bytes bytea) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM idem_claim('g7s', a, k, '{"amount": 1}');
    IF ok THEN PERFORM idem_complete('g7s', a, k, result, status, body, bytes);
    ELSE PERFORM idem_fail('g7s', a, k, result, status, body, bytes); END IF;
END $$;
CALL pg_temp.settle('act', 'bad', false, '"secret"', 400, 'secret', '\x5ec4e7');
CALL pg_temp.settle('act', 'good', true, '"secret"', 200, 'secret', '\x5ec4e7');
CALL pg_temp.settle('empty', 'k', true, NULL, NULL, NULL, NULL);
CALL pg_temp.settle('no memory', 'k', true, '"secret"', 200, NULL, NULL);
CALL pg_temp.settle('no retention', 'k', true, '"secret"', 200, NULL, NULL);
CALL pg_temp.settle('nothing', 'k', true, '"secret"', 200, NULL, NULL);
SELECT idem_once('g7s', 'act', 'm', '{"amount": 1}');
SELECT outcome FROM idem_claim('g7s', 'act', 'leased', '{"amount": 1}', lease => '1 min', token => '00000000-0000-0000-0000-000000000001');
SELECT idem_complete('g7s', 'act', 'leased', '"secret"', 201, token => '00000000-0000-0000-0000-000000000001') IS NOT NULL AS ok;
SELECT count(outcome) FROM idem_claim('g7s', 'act', 'open', '{"amount": 1}', lease => '1 hour', token => '00000000-0000-0000-0000-000000000001');

-- Every answer that the sweep could change. Claims that are granted are undone.
CREATE FUNCTION pg_temp.answers() RETURNS TABLE (line text) LANGUAGE plpgsql AS $$
DECLARE r record; c record; l record;
BEGIN
    FOR r IN SELECT a, k, p FROM (VALUES ('act', 'bad'), ('act', 'good'), ('act', 'leased'), ('act', 'open'), ('empty', 'k'), ('no memory', 'k'),
             ('no retention', 'k'), ('nothing', 'k')) AS v (a, k), (VALUES ('{"amount": 1}'::jsonb), ('{"amount": 2}')) AS w (p) LOOP
        SELECT NULL INTO l;
        BEGIN
            SELECT outcome, replayed, attempt, settled_as, status, result, body, body_bytes, settled_at, expires_at INTO c FROM idem_claim('g7s', r.a, r.k, r.p);
            RAISE SQLSTATE 'UNDO0';
        EXCEPTION WHEN SQLSTATE 'UNDO0' THEN NULL;
        END;
        SELECT o.state, o.attempt, o.settled_as, o.status, o.result, o.body, o.body_bytes, o.request, o.fingerprint IS NOT NULL AS print, o.settled_at,
               o.expires_at, o.forget_at INTO l FROM idem_lookup('g7s', r.a, r.k) o;
        line := concat_ws(' ', r.a || '/' || r.k, r.p, c, l, (SELECT ROW (v.state, v.settled_as, v.status, v.result, v.body, v.body_bytes, v.fingerprint IS NOT NULL, v.settled_at, v.expires_at, v.forget_at)
               FROM idempotent_operations v WHERE account = 'g7s' AND action = r.a AND key = r.k));
        RETURN NEXT;
    END LOOP;
    FOR r IN SELECT p FROM (VALUES ('{"amount": 1}'::jsonb), ('{"amount": 2}')) AS w (p) LOOP
        line := '';
        BEGIN
            BEGIN
                line := idem_once('g7s', 'act', 'm', r.p);
            EXCEPTION WHEN SQLSTATE 'IDM09' THEN line := 'IDM09';
            END;
            RAISE SQLSTATE 'UNDO0';
        EXCEPTION WHEN SQLSTATE 'UNDO0' THEN NULL;
        END;
        RETURN NEXT;
    END LOOP;
END $$;
CREATE TABLE g7_answers (at timestamptz, line text);
CREATE PROCEDURE pg_temp.sweep() LANGUAGE plpgsql AS $$
DECLARE before text[]; after text[];
BEGIN
    before := ARRAY(SELECT line FROM pg_temp.answers());
    INSERT INTO g7_done SELECT idem_now(), m.task, m.rows FROM idem_maintain() m WHERE m.rows > 0;
    after := ARRAY(SELECT line FROM pg_temp.answers());
    IF before <> after THEN RAISE WARNING 'G7 answers have changed: %  to  %', before, after; END IF;
    INSERT INTO g7_answers SELECT idem_now(), unnest(after);
END $$;
CREATE TABLE g7_done (at timestamptz, task text, rows bigint);
CREATE VIEW pg_temp.stored AS
    SELECT action, key, stripped, num_nonnulls(request, result, body, body_bytes) AS payloads, fingerprint IS NOT NULL AS print, succeeded, status, attempt,
           settled_at, expires_at, forget_at
      FROM idem_settled ORDER BY action, key;
SELECT * FROM pg_temp.stored;

-- G7 Only what is kept for no time goes at once
CALL pg_temp.sweep();
SELECT * FROM g7_done;
SELECT * FROM pg_temp.stored;
-- G7 A microsecond before expires_at nothing is touched
SET pg_idem.test_now = '2030-01-01 00:59:59.999999+00';
TRUNCATE g7_done;
CALL pg_temp.sweep();
SELECT * FROM g7_done;
-- G7 At expires_at the payload goes; what was only to be stripped, and has none, is not touched
SET pg_idem.test_now = '2030-01-01 01:00:00+00';
CREATE TEMP TABLE versions AS SELECT action, key, ctid AS tid FROM idem_settled;
CALL pg_temp.sweep();
SELECT * FROM g7_done;
SELECT * FROM pg_temp.stored;
SELECT v.action, v.key, v.tid = s.ctid AS untouched FROM versions v LEFT JOIN idem_settled s USING (action, key) ORDER BY 1, 2;
-- G7 once
TRUNCATE g7_done;
CALL pg_temp.sweep();
SELECT * FROM g7_done;
-- G7 Messages at their own time
SET pg_idem.test_now = '2030-01-01 01:59:59.999999+00';
CALL pg_temp.sweep();
SELECT * FROM g7_done;
SET pg_idem.test_now = '2030-01-01 02:00:00+00';
CALL pg_temp.sweep();
SELECT * FROM g7_done;
SELECT count(*) FROM idem_seen;
-- G7 A microsecond before forget_at every row is there
SET pg_idem.test_now = '2030-01-01 23:59:59.999999+00';
TRUNCATE g7_done;
CALL pg_temp.sweep();
SELECT * FROM g7_done;
SET pg_idem.test_now = '2030-01-02 00:59:59.999999+00';
TRUNCATE g7_done;
CALL pg_temp.sweep();
SELECT * FROM g7_done;
SELECT action, key FROM pg_temp.stored;
-- G7 At forget_at they go; what is in flight does not, however old
SET pg_idem.test_now = '2030-01-02 01:00:00+00';
TRUNCATE g7_done;
CALL pg_temp.sweep();
SELECT * FROM g7_done;
SELECT * FROM pg_temp.stored;
SELECT key, attempt, token FROM idem_inflight;
-- What was answered at each time
SELECT at, string_agg(DISTINCT split_part(line, ' {', 1) || ': ' || substring(line FROM '\(([a-z_]+)'), ', ') AS answers
  FROM g7_answers WHERE line LIKE '%{"amount": 1} (%' GROUP BY at ORDER BY at;
SELECT at, string_agg(DISTINCT line, ', ') AS once FROM g7_answers WHERE line NOT LIKE '%{%' GROUP BY at ORDER BY at;
DROP TABLE g7_answers;
TRUNCATE g7_done, idem_inflight;

-- G7 Not swept in between: stripped rows are not needed for the row to go
SET pg_idem.test_now = '2030-02-01 00:00:00+00';
CALL pg_temp.settle('act', 'late', true, '"secret"', 200, NULL, NULL);
SET pg_idem.test_now = '2030-02-10 00:00:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT count(*) FROM idem_settled;

-- G7 A key that is forgotten, and claimed anew, is not deleted
SET pg_idem.test_now = '2030-03-01 00:00:00+00';
CALL pg_temp.settle('act', 'again', true, '"first"', 200, NULL, NULL);
SET pg_idem.test_now = '2030-03-10 00:00:00+00';
CALL pg_temp.settle('act', 'again', true, '"second"', 200, NULL, NULL);
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT outcome, result FROM idem_claim('g7s', 'act', 'again', '{"amount": 1}');
-- G7 while this transaction holds the key the old row is left to it
SET pg_idem.test_now = '2030-03-20 00:00:00+00';
BEGIN;
SELECT outcome FROM idem_claim('g7s', 'act', 'again', '{"amount": 3}');
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT idem_complete('g7s', 'act', 'again', '"third"') IS NOT NULL AS ok;
SELECT * FROM idem_maintain() WHERE rows > 0;
COMMIT;
SELECT outcome, result FROM idem_claim('g7s', 'act', 'again', '{"amount": 3}');
TRUNCATE idem_settled;

-- G7 Payloads of megabytes, stored out of line: gone with all their pieces
SET pg_idem.test_now = '2030-04-01 00:00:00+00';
SELECT 'pg_toast.pg_toast_' || 'idem_settled'::regclass::oid AS toast \gset
CREATE PROCEDURE pg_temp.settle_huge() LANGUAGE plpgsql AS $$
DECLARE noise text := (SELECT string_agg(md5(i::text), '') FROM generate_series(1, 100000) AS i);
BEGIN
    PERFORM FROM idem_claim('g7s', 'huge', 'k', jsonb_build_object('noise', noise));
    PERFORM idem_complete('g7s', 'huge', 'k', to_jsonb(noise), 200, noise, decode(noise, 'hex'));
END $$;
CALL pg_temp.settle_huge();
SELECT length(result #>> '{}'), md5(body), length(body_bytes) FROM idem_settled;
SELECT count(DISTINCT chunk_id) FROM :toast;
SET pg_idem.test_now = '2030-04-01 01:00:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT key, stripped, num_nonnulls(request, result, body, body_bytes) AS payloads, fingerprint IS NOT NULL AS print FROM idem_settled;
SELECT count(DISTINCT chunk_id) FROM :toast;
SET pg_idem.test_now = '2030-04-02 01:00:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
-- forgotten without having been stripped
CALL pg_temp.settle_huge();
SELECT count(DISTINCT chunk_id) FROM :toast;
SET pg_idem.test_now = '2030-04-12 01:00:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT count(*) FROM idem_settled;
SELECT count(DISTINCT chunk_id) FROM :toast;

RESET pg_idem.test_now;
DROP TABLE g7_done;
TRUNCATE idem_settled, idem_inflight, idem_seen;
DELETE FROM idem_policies;
