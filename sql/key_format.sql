-- key_format: uuid, and uuidv7, whose own time counts as the time of issue.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
INSERT INTO idem_policies (action, key_format, retention, remember, reject_older_than) VALUES
    ('any', NULL, '1 hour', '1 day', '2 hours'), ('uuid', 'uuid', '1 hour', '1 day', '2 hours'), ('v7', 'uuidv7', '1 hour', '1 day', '2 hours');
-- The UUID version 7 of a time, in milliseconds.
CREATE FUNCTION pg_temp.v7(at timestamptz) RETURNS text LANGUAGE sql AS $$
    SELECT format('%s-%s-7abc-8def-0123456789ab', left(h, 8), right(h, 4))
      FROM lpad(to_hex((extract(epoch FROM at) * 1000)::bigint), 12, '0') AS h $$;
CREATE FUNCTION pg_temp.claim(action text, key text, issued_at timestamptz = NULL) RETURNS text LANGUAGE plpgsql AS $$
DECLARE o text;
BEGIN
    SELECT outcome INTO o FROM idem_claim('kf', claim.action, claim.key, '{}', issued_at => claim.issued_at);
    IF o = 'claimed' THEN PERFORM idem_release('kf', claim.action, claim.key); END IF;
    RETURN o;
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SELECT pg_temp.v7('2030-01-01 00:00:00+00');

-- Formats
SELECT key, pg_temp.claim('any', key) AS "any", pg_temp.claim('uuid', key) AS uuid, pg_temp.claim('v7', key) AS v7 FROM (VALUES
    (1, pg_temp.v7('2030-01-01 00:00:00+00')),
    (2, upper(pg_temp.v7('2030-01-01 00:00:00+00'))),
    (3, '01234567-89ab-4def-8123-456789abcdef'),  -- version 4
    (4, '01b8d8f9-6800-7abc-7def-0123456789ab'),  -- another variant
    (5, '01b8d8f9-6800-7abc-cdef-0123456789ab'),
    (6, '01b8d8f968007abc8def0123456789ab'),
    (7, '{01b8d8f9-6800-7abc-8def-0123456789ab}'),
    (8, '01b8d8f9-6800-7abc-8def-0123456789a'),
    (9, '01b8d8f9-6800-7abc-8def-0123456789abc'),
    (10, '01b8d8f9-6800-7abc-8def-0123456789ag'),
    (11, '01b8d8f9-6800-7abc-8def_0123456789ab'),
    (12, ' 01b8d8f9-6800-7abc-8def-0123456789a'),
    (13, '00000000-0000-0000-0000-000000000000'),
    (14, 'order 7')
  ) AS v (n, key) ORDER BY n;

-- A key is the bytes as written: the two cases of a UUID are two keys
BEGIN;
SELECT outcome FROM idem_claim('kf', 'uuid', 'abcdef01-89ab-4def-8123-456789abcdef', '{}');
SELECT outcome FROM idem_claim('kf', 'uuid', 'ABCDEF01-89ab-4def-8123-456789abcdef', '{}');
ROLLBACK;

-- The time of a uuidv7 key: too old at two hours, from the future after ten minutes
SELECT age, pg_temp.claim('v7', pg_temp.v7('2030-01-01 00:00:00+00'::timestamptz - age)) AS v7 FROM unnest('{
    2 hours 0.001 s, 2 hours, 1 hour 59 min 59.999 s, 0, -10 min, -10 min -0.001 s, 60 years, -1000 years}'::interval[]) AS age;
-- is not read under another format
SELECT age, pg_temp.claim('any', pg_temp.v7('2030-01-01 00:00:00+00'::timestamptz - age)) AS "any",
       pg_temp.claim('uuid', pg_temp.v7('2030-01-01 00:00:00+00'::timestamptz - age)) AS uuid FROM unnest('{2 hours, -1 day}'::interval[]) AS age;
-- Nor does a good time in the key or in issued_at make up for a bad one in the other
SELECT pg_temp.claim('v7', pg_temp.v7('2030-01-01 00:00:00+00'), '2030-01-01 00:10:00.000001+00');
SELECT pg_temp.claim('v7', pg_temp.v7('2029-12-31 22:00:00+00'), '2030-01-01 00:00:00+00');

-- The other calls of an operation with such a key; the format is checked where it may begin
SELECT count(*) FROM idem_lookup('kf', 'v7', 'order 7');
SELECT idem_release('kf', 'v7', 'order 7');
CREATE FUNCTION kf_handler(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
SELECT outcome FROM idem_run('kf', 'v7', 'order 7', '{}', 'kf_handler(jsonb)');
SELECT outcome FROM idem_run('kf', 'v7', pg_temp.v7('2029-12-31 22:00:00+00'), '{}', 'kf_handler(jsonb)');
SELECT outcome FROM idem_run('kf', 'v7', pg_temp.v7('2030-01-01 00:00:00+00'), '{}', 'kf_handler(jsonb)');
SELECT outcome, replayed FROM idem_run('kf', 'v7', pg_temp.v7('2030-01-01 00:00:00+00'), '{}', 'kf_handler(jsonb)');
-- A retry two hours later finds the record, then the expiry, then is too old
SET pg_idem.test_now = '2030-01-01 00:59:59+00';
SELECT outcome FROM idem_claim('kf', 'v7', pg_temp.v7('2030-01-01 00:00:00+00'), '{}');
SET pg_idem.test_now = '2030-01-02 00:59:59+00';
SELECT outcome, settled_as FROM idem_claim('kf', 'v7', pg_temp.v7('2030-01-01 00:00:00+00'), '{}');
SET pg_idem.test_now = '2030-01-02 01:00:00+00';
SELECT outcome, settled_as FROM idem_claim('kf', 'v7', pg_temp.v7('2030-01-01 00:00:00+00'), '{}');
RESET pg_idem.test_now;
DROP FUNCTION kf_handler;
DELETE FROM idem_policies;
