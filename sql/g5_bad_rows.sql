-- G5, G7 A row that cannot be dealt with stops nobody: it is reported, and the others are done. All of it needs somebody who writes to our tables
-- by hand, or adds an index whose expression fails.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
TRUNCATE idem_settled, idem_inflight, idem_seen;
INSERT INTO idem_policies (action, on_interrupt, retention, remember) VALUES
    ('retry', 'retry', '1 hour', '1 day'), ('fail', 'fail', '1 hour', '1 day'), ('review', 'review', '1 hour', '1 day');
CREATE FUNCTION bad_row(key text, bad boolean) RETURNS text IMMUTABLE LANGUAGE plpgsql AS $$
BEGIN
    IF bad AND key LIKE 'poison%' THEN RAISE 'poisoned: %', key; END IF;
    RETURN key;
END $$;
CREATE INDEX bad_settled ON idem_settled (bad_row(key, stripped));
CREATE INDEX bad_inflight ON idem_inflight (bad_row(key, announced OR in_review));

-- settled: keys before and after the bad ones, and more than one step of them
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
DO $$
BEGIN
    FOR i IN 1 .. 250 LOOP
        PERFORM FROM idem_claim('bad', 'retry', 'k' || i, '{}');
        PERFORM idem_complete('bad', 'retry', 'k' || i, '"x"');
        IF i % 100 = 50 THEN
            PERFORM FROM idem_claim('bad', 'retry', 'poison' || i, '{}');
            PERFORM idem_complete('bad', 'retry', 'poison' || i, '"x"');
        END IF;
    END LOOP;
END $$;
SELECT a, k, outcome FROM unnest('{fail,retry,review}'::text[]) AS a, unnest('{after,before,poison}'::text[]) AS k, idem_claim('bad', a, k, '{}', lease => '1 min');
SET pg_idem.test_now = '2030-01-01 01:00:00+00';
\set VERBOSITY default
SELECT * FROM idem_maintain() WHERE rows > 0;
\set VERBOSITY sqlstate
SELECT action, key, state, reason FROM idempotent_operations WHERE key !~ '^k|\d$' ORDER BY action, key;
SELECT key LIKE 'poison%' AS poisoned, stripped, count(*) FROM idem_settled WHERE action = 'retry' GROUP BY 1, 2 ORDER BY 1, 2;
-- the answers are what they are
SELECT outcome FROM idem_claim('bad', 'retry', 'poison50', '{}');
-- reported again by the next call, and nothing else is done
SELECT * FROM idem_maintain() WHERE rows > 0;
-- also where fewer rows are asked for
SELECT count(*) FROM idem_maintain(1) WHERE rows > 0;
-- Deletion needs no index: they are forgotten at their time
SET pg_idem.test_now = '2030-01-02 01:00:00+00';
SET client_min_messages = error;
SELECT * FROM idem_maintain() WHERE rows > 0 AND task <> 'called';
SET client_min_messages = warning;
SELECT count(*) FROM idem_settled;
-- Mended, it goes on by itself
DROP INDEX bad_settled, bad_inflight;
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT action, key, state, reason FROM idempotent_operations ORDER BY action, key;
DROP FUNCTION bad_row;
TRUNCATE idem_settled, idem_inflight;

-- Written by hand: an identity that no call could have made is left alone; the rest is read as far as it makes sense
SET pg_idem.test_now = '2030-02-01 00:00:00+00';
SELECT outcome FROM idem_claim('bad', 'retry', 'good', '{}', lease => '1 min');
INSERT INTO idem_inflight (claimed_at, state_since, lease_expires_at, due_at, attempt, failures, max_attempts, in_review, granted, announced, token, lease,
                           account, action, key, on_interrupt)
SELECT '2030-01-31', '2030-01-31', '2030-02-01 00:01:00+00', NULL, 1, 0, 10, false, false, false, '00000000-0000-0000-0000-000000000001', '1 min', 'bad', 'retry', k, 'retry'
  FROM unnest(ARRAY['endless', 'long ago', 'negative lease', 'no rule', 'no attempts', 'many failures', 'few failures', 'long ' || repeat('x', 300)]) AS k;
UPDATE idem_inflight SET lease_expires_at = 'infinity' WHERE key = 'endless';
UPDATE idem_inflight SET lease_expires_at = '-infinity' WHERE key = 'long ago';
UPDATE idem_inflight SET lease = '-1 min' WHERE key = 'negative lease';
UPDATE idem_inflight SET on_interrupt = 'whatever' WHERE key = 'no rule';
UPDATE idem_inflight SET max_attempts = 0 WHERE key = 'no attempts';
UPDATE idem_inflight SET failures = 2147483647 WHERE key = 'many failures';
UPDATE idem_inflight SET failures = -2147483648 WHERE key = 'few failures';
SET pg_idem.test_now = '2030-02-01 00:02:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT left(key, 20) AS key, state, reason, state_since FROM idempotent_operations ORDER BY key;
SELECT * FROM idem_maintain() WHERE rows > 0;
INSERT INTO idem_settled (settled_at, expires_at, forget_at, attempt, succeeded, stripped, account, action, key, result)
SELECT '2030-01-01', '2030-01-01', '2030-01-01', 1, true, false, 'bad', 'retry', k, '1'
  FROM unnest(ARRAY['backwards', 'endless', 'long ago', 'long ' || repeat('x', 300), 'stripped']) AS k;
UPDATE idem_settled SET expires_at = '2040-01-01' WHERE key = 'backwards';
UPDATE idem_settled SET expires_at = 'infinity', forget_at = 'infinity' WHERE key = 'endless';
UPDATE idem_settled SET expires_at = '-infinity', forget_at = '-infinity' WHERE key = 'long ago';
UPDATE idem_settled SET expires_at = '2040-01-01', forget_at = '2040-01-01', stripped = true WHERE key = 'stripped';
INSERT INTO idem_seen (seen_at, forget_at, account, action, key)
SELECT '2030-01-01', '2030-01-01', 'bad', 'retry', k FROM unnest(ARRAY['m', 'long ' || repeat('x', 300)]) AS k;
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT left(key, 20) AS key, stripped, result FROM idem_settled ORDER BY key;
SELECT left(key, 20) AS key FROM idem_seen ORDER BY key;

RESET pg_idem.test_now;
TRUNCATE idem_settled, idem_inflight, idem_seen;
DELETE FROM idem_policies;
