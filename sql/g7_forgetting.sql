-- G7 Forgetting is loud, and decided by the clock to the microsecond.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
INSERT INTO idem_policies (action, retention, remember) VALUES ('act', '1 hour', '1 day');
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
CREATE PROCEDURE pg_temp.settle(a text, k text, ok boolean) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM idem_claim('g7', a, k, '{}');
    IF ok THEN PERFORM idem_complete('g7', a, k, '"secret"', 200, 'secret', '\x5ec4e7');
    ELSE PERFORM idem_fail('g7', a, k, '"secret"', 400, 'secret', '\x5ec4e7'); END IF;
END $$;
CALL pg_temp.settle('act', 'good', true);
CALL pg_temp.settle('act', 'bad', false);

-- G7 A microsecond before expires_at: replayed
SET pg_idem.test_now = '2030-01-01 00:59:59.999999+00';
SELECT outcome, replayed, settled_as, status, result, body, body_bytes, settled_at, expires_at
  FROM unnest('{good,bad}'::text[]) AS k, idem_claim('g7', 'act', k, '{}');
-- G7 At expires_at: expired, with what it was, and nothing of what it said
SET pg_idem.test_now = '2030-01-01 01:00:00+00';
SELECT outcome, replayed, attempt, token, settled_as, status, result, body, body_bytes, settled_at, expires_at
  FROM unnest('{good,bad}'::text[]) AS k, idem_claim('g7', 'act', k, '{}');
SELECT key, state, settled_as, status, result, body, body_bytes, request, settled_at, expires_at, forget_at
  FROM unnest('{good,bad}'::text[]) AS k, idem_lookup('g7', 'act', k);
SELECT key, state, result IS NULL AND body IS NULL AND body_bytes IS NULL AS hidden
  FROM idempotent_operations WHERE account = 'g7' ORDER BY key;
-- G7 with a lease, by idem_run, and again
SELECT outcome, token FROM idem_claim('g7', 'act', 'good', '{}', lease => '1 min');
CREATE FUNCTION g7_handler(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT '"done again"'::jsonb $$;
SELECT outcome, replayed, settled_as, status, result FROM idem_run('g7', 'act', 'good', '{}', 'g7_handler(jsonb)');
DROP FUNCTION g7_handler;
SELECT outcome FROM idem_claim('g7', 'act', 'good', '{}');
-- G7 What is expired is settled: owner calls are answered so
SELECT idem_complete('g7', 'act', 'good');
SELECT idem_complete('g7', 'act', 'good', token => '00000000-0000-0000-0000-000000000001');
-- G7 Other inputs are a mismatch even then
SELECT outcome, settled_as, status, settled_at, expires_at FROM idem_claim('g7', 'act', 'good', '{"other": 1}');
-- G7 A microsecond before forget_at: still expired
SET pg_idem.test_now = '2030-01-02 00:59:59.999999+00';
SELECT outcome, settled_as FROM unnest('{good,bad}'::text[]) AS k, idem_claim('g7', 'act', k, '{}');
SELECT key, state FROM unnest('{good,bad}'::text[]) AS k, idem_lookup('g7', 'act', k);
-- G7 At forget_at: unknown, although nobody has deleted it
SET pg_idem.test_now = '2030-01-02 01:00:00+00';
SELECT count(*) FROM idem_settled WHERE account = 'g7';
SELECT count(*) FROM unnest('{good,bad}'::text[]) AS k, idem_lookup('g7', 'act', k);
SELECT count(*) FROM idempotent_operations WHERE account = 'g7';
SELECT idem_complete('g7', 'act', 'good');
SELECT idem_complete('g7', 'act', 'good', token => '00000000-0000-0000-0000-000000000001');
-- G7 claimed anew, also with other inputs; rolled back it is as it was
BEGIN;
SELECT outcome, attempt FROM idem_claim('g7', 'act', 'good', '{"other": 1}');
SELECT state FROM idem_lookup('g7', 'act', 'good');
ROLLBACK;
SELECT count(*) FROM idem_settled WHERE account = 'g7' AND key = 'good';
BEGIN;
SELECT outcome, attempt FROM idem_claim('g7', 'act', 'good', '{"other": 1}');
SELECT idem_complete('g7', 'act', 'good', '"new"');
COMMIT;
SELECT outcome, result, settled_at, expires_at FROM idem_claim('g7', 'act', 'good', '{"other": 1}');
SELECT outcome FROM idem_claim('g7', 'act', 'good', '{}');
-- G7 with a lease
SELECT outcome, attempt FROM idem_claim('g7', 'act', 'bad', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000001');
SELECT state, settled_as FROM idem_lookup('g7', 'act', 'bad');
SELECT count(*) FROM idempotent_operations WHERE account = 'g7' AND key = 'bad';
SELECT idem_complete('g7', 'act', 'bad', '"new"', token => '00000000-0000-0000-0000-000000000001');
SELECT outcome, result FROM idem_claim('g7', 'act', 'bad', '{}');
SELECT count(*) FROM idem_settled WHERE account = 'g7';

-- G7 Retention 0: expired at once. Remember 0: forgotten when it expires
INSERT INTO idem_policies (action, retention, remember) VALUES ('at once', '0', '1 day'), ('short', '1 hour', '0'), ('nothing', '0', '0');
CALL pg_temp.settle('at once', 'k', true);
CALL pg_temp.settle('short', 'k', true);
CALL pg_temp.settle('nothing', 'k', true);
SELECT outcome, settled_as, result FROM idem_claim('g7', 'at once', 'k', '{}');
SELECT outcome, settled_as, result FROM idem_claim('g7', 'short', 'k', '{}');
SET pg_idem.test_now = '2030-01-02 02:00:00+00';
SELECT count(*) FROM idem_lookup('g7', 'short', 'k');
BEGIN;
SELECT outcome FROM unnest('{short,nothing}'::text[]) AS a, idem_claim('g7', a, 'k', '{}');
ROLLBACK;

-- G7 Retention far beyond the calendar ends where timestamps end
INSERT INTO idem_policies (action, retention, remember) VALUES ('for ever', '290000 years', '290000 years');
CALL pg_temp.settle('for ever', 'k', true);
SELECT outcome, expires_at > '200000-01-01' AS far FROM idem_claim('g7', 'for ever', 'k', '{}');

-- G7 reject_older_than: a late retry is expired even when nothing is known any more
INSERT INTO idem_policies (action, retention, remember, reject_older_than) VALUES ('late', '1 hour', '1 day', '2 hours');
SET pg_idem.test_now = '2030-01-10 00:00:00+00';
SELECT outcome, replayed, attempt, settled_as, status, result, settled_at, expires_at
  FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '2030-01-09 22:00:00+00');
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '2030-01-09 22:00:00+00', lease => '1 min');
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '1970-01-01 00:00:00+00');
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '-infinity');
SELECT count(*) FROM idem_lookup('g7', 'late', 'k');
BEGIN;
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '2030-01-09 22:00:00.000001+00');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}');
ROLLBACK;
-- G7 It keeps no lock
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '2030-01-09 22:00:00+00');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
-- G7 What is known is answered from the record, however late
CALL pg_temp.settle('late', 'known', true);
SELECT outcome, result FROM idem_claim('g7', 'late', 'known', '{}', issued_at => '2029-01-01 00:00:00+00');
SELECT outcome FROM idem_claim('g7', 'late', 'known', '{"other": 1}', issued_at => '2029-01-01 00:00:00+00');
SELECT outcome FROM idem_claim('g7', 'late', 'leased', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000001');
SELECT outcome FROM idem_claim('g7', 'late', 'leased', '{}', issued_at => '2029-01-01 00:00:00+00');
-- G7 Issued in the future: ten minutes are tolerated
BEGIN;
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '2030-01-10 00:10:00+00');
ROLLBACK;
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '2030-01-10 00:10:00.000001+00');
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => 'infinity');
SELECT outcome FROM idem_claim('g7', 'act', 'k', '{}', issued_at => '2030-01-10 00:10:00.000001+00');
-- G7 It is clamped, so that a request from the future is too old before its record is forgotten
UPDATE idem_policies SET reject_older_than = '100 days' WHERE action = 'late';
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '2030-01-10 00:00:00+00'::timestamptz - interval '25 hours' + interval '10 min');
BEGIN;
SELECT outcome FROM idem_claim('g7', 'late', 'k', '{}', issued_at => '2030-01-10 00:00:00.000001+00'::timestamptz - interval '25 hours' + interval '10 min');
ROLLBACK;
-- G7 Without reject_older_than the time of issue is only checked against the future
BEGIN;
SELECT outcome FROM idem_claim('g7', 'act', 'k', '{}', issued_at => '1970-01-01 00:00:00+00');
ROLLBACK;
RESET pg_idem.test_now;
DELETE FROM idem_policies;
