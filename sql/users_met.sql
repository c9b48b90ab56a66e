-- What users of retries, queues and idempotency keys elsewhere ran into, and reported. One case each; the guarantee in front.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
\set t2 '''00000000-0000-0000-0000-000000000002'''
\set t3 '''00000000-0000-0000-0000-000000000003'''
CREATE TABLE met_effect (what text);
SET pg_idem.test_now = '2030-01-01 00:00:00+00';

-- G2 A finished operation whose result cannot be stored, for it holds a zero byte: it looked as if it were running for ever.
-- Here the call fails, the claim is still there, and the bytes have a place of their own.
BEGIN;
SELECT outcome FROM idem_claim('met', 'zero byte', 'tx', '{}');
SAVEPOINT s;
SELECT idem_complete('met', 'zero byte', 'tx', '"a\u0000b"');
ROLLBACK TO s;
SELECT idem_complete('met', 'zero byte', 'tx', body => E'a\x00b');
ROLLBACK TO s;
SELECT idem_complete('met', 'zero byte', 'tx', body_bytes => '\x610062') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, body_bytes FROM idem_claim('met', 'zero byte', 'tx', '{}');
SELECT outcome FROM idem_claim('met', 'zero byte', 'leased', '{}', lease => '1 min', token => :t1);
SELECT idem_complete('met', 'zero byte', 'leased', '"a\u0000b"', token => :t1);
SELECT idem_fail('met', 'zero byte', 'leased', '"result cannot be stored"', 500, token => :t1) IS NOT NULL AS ok;
SELECT outcome, status, result FROM idem_claim('met', 'zero byte', 'leased', '{}');
-- G2 a handler that returns one: nothing of it has happened, and it may run again
CREATE FUNCTION met_zero_byte(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO met_effect VALUES ('zero byte');
    RETURN CASE WHEN request ->> 'zero' = 'yes' THEN ('"a' || '\u0000' || 'b"')::jsonb ELSE '"ab"' END;
END $$;
SELECT outcome FROM idem_run('met', 'zero byte', 'run', '{"zero": "yes"}', 'met_zero_byte(jsonb)');
SELECT outcome, result FROM idem_run('met', 'zero byte', 'run', '{"zero": "no"}', 'met_zero_byte(jsonb)');
SELECT count(*) FROM met_effect;

-- G4 A wrong code was answered with an error, and the right one, under the same key, with the same error until the next day.
-- What is to be tried again is rolled back or released; only what is final is failed.
BEGIN;
SELECT outcome FROM idem_claim('met', 'verify', 'rolled back', '{"code": 1}');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('met', 'verify', 'released', '{"code": 1}');
SELECT idem_release('met', 'verify', 'released');
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('met', 'verify', 'final', '{"code": 1}');
SELECT idem_fail('met', 'verify', 'final', '"blocked"', 403) IS NOT NULL AS ok;
COMMIT;
BEGIN;
SELECT k, outcome FROM unnest('{rolled back,released,final}'::text[]) AS k, idem_claim('met', 'verify', k, '{"code": 2}');
ROLLBACK;
-- G3 A provider's 503 was replayed for a day. Released with the error, it is not an outcome, and the next attempt runs
SELECT outcome FROM idem_claim('met', 'provider', 'down', '{}', lease => '1 min', token => :t1);
SELECT idem_release('met', 'provider', 'down', :t1, error => '503');
SELECT outcome, status, retry_after FROM idem_claim('met', 'provider', 'down', '{}', lease => '1 min');
SET pg_idem.test_now = '2030-01-01 00:00:05+00';
SELECT outcome, attempt, status, result FROM idem_claim('met', 'provider', 'down', '{}', lease => '1 min', token => :t2);
SELECT idem_complete('met', 'provider', 'down', '"up"', 200, token => :t2) IS NOT NULL AS ok;
SELECT outcome, replayed, status, result FROM idem_claim('met', 'provider', 'down', '{}');

-- G1 Recovery took over what the same process had started in the same millisecond, for the times were not in order.
-- An attempt is told by its token: at the same instant, from the same session, under the same label
SELECT outcome FROM idem_claim('met', 'instant', 'k', '{}', lease => '1 us', owner => 'me', token => :t1);
SELECT outcome, holder, retry_after FROM idem_claim('met', 'instant', 'k', '{}', lease => '1 us', owner => 'me', token => :t2);
SELECT outcome, attempt FROM idem_claim('met', 'instant', 'k', '{}', lease => '1 us', owner => 'me', token => :t1);

-- G5 Live work was taken over, for heartbeats went to one time and recovery looked at another
SET pg_idem.test_now = '2030-01-02 00:00:00+00';
SELECT outcome FROM idem_claim('met', 'heartbeat', 'k', '{}', lease => '1 min', token => :t1);
SET pg_idem.test_now = '2030-01-02 00:00:59+00';
SELECT idem_renew('met', 'heartbeat', 'k', :t1);
SET pg_idem.test_now = '2030-01-02 00:01:58.999999+00';
SELECT outcome, retry_after FROM idem_claim('met', 'heartbeat', 'k', '{}', lease => '1 min', token => :t2);
SELECT idem_checkpoint('met', 'heartbeat', 'k', :t1, 'half');
SET pg_idem.test_now = '2030-01-02 00:02:58.999998+00';
SELECT outcome, retry_after FROM idem_claim('met', 'heartbeat', 'k', '{}', lease => '1 min', token => :t2);
SELECT outcome FROM idem_claim('met', 'heartbeat', 'k', '{}', lease => '10 s', token => :t1);
SET pg_idem.test_now = '2030-01-02 00:03:08.999997+00';
SELECT outcome, retry_after FROM idem_claim('met', 'heartbeat', 'k', '{}', lease => '1 min', token => :t2);
-- G5 and not a microsecond later than that is it held
SET pg_idem.test_now = '2030-01-02 00:03:08.999998+00';
SELECT outcome, attempt, checkpoint FROM idem_claim('met', 'heartbeat', 'k', '{}', lease => '1 min', token => :t2);

-- G6 The time to run was as long as the lease: the first run ended when the second had begun, and its result won
BEGIN;
INSERT INTO met_effect VALUES ('late');
SELECT idem_complete('met', 'heartbeat', 'k', '"late"', token => :t1);
ROLLBACK;
SELECT idem_complete('met', 'heartbeat', 'k', '"second"', token => :t2) IS NOT NULL AS ok;
SELECT outcome, attempt, result FROM idem_claim('met', 'heartbeat', 'k', '{}');

-- G5 Nothing was left of the lease, 0, and that was taken for no lease at all
SELECT outcome FROM idem_claim('met', 'nothing left', 'k', '{}', lease => '2030-01-02 00:03:09+00'::timestamptz - '2030-01-02 00:03:09+00'::timestamptz);
SELECT count(*) FROM idem_lookup('met', 'nothing left', 'k');

-- G5 The last attempt allowed lost its lease, and stood in the way for ever
INSERT INTO idem_policies (action, max_attempts) VALUES ('last', 1);
SELECT outcome FROM idem_claim('met', 'last', 'k', '{}', lease => '1 min', token => :t1);
SET pg_idem.test_now = '2030-01-02 01:00:00+00';
SELECT outcome FROM idem_claim('met', 'last', 'k', '{}', lease => '1 min', token => :t2);
SELECT outcome FROM idem_claim('met', 'last', 'k', '{}', lease => '1 min', token => :t2);
SELECT idem_complete('met', 'last', 'k', token => :t1);

-- G4 The key alone was the identity: another customer, or another endpoint, got the stored answer
SELECT a, b, outcome, result FROM (VALUES ('met', 'provider'), ('someone else', 'provider'), ('met', 'another endpoint')) AS v (a, b),
       idem_claim(a, b, 'down', '{}', lease => '1 min');
-- G4 nor do parts run into each other
BEGIN;
SELECT a.outcome, b.outcome, c.outcome FROM idem_claim('met', 'a', 'bc', '{}') AS a, idem_claim('met', 'ab', 'c', '{}') AS b, idem_claim('meta', 'b', 'c', '{}') AS c;
ROLLBACK;

-- G3 A duplicate should cost one look: it writes nothing, and takes no transaction ID
BEGIN;
SELECT outcome FROM idem_claim('met', 'provider', 'down', '{}');
SELECT outcome FROM idem_claim('met', 'provider', 'down', '{"other": 1}');
SELECT outcome FROM idem_claim('met', 'provider', 'down', '{}', lease => '1 min', wait => '1 min');
SELECT outcome, replayed FROM idem_run('met', 'zero byte', 'run', '{"zero": "no"}', 'met_zero_byte(jsonb)');
SELECT state FROM idem_lookup('met', 'provider', 'down');
SELECT pg_current_xact_id_if_assigned() IS NULL AS nothing_written, count(*) AS locks FROM pg_locks
 WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
COMMIT;

-- G7 Retention ran from the claim: an operation that took longer than that was forgotten as soon as it was done
INSERT INTO idem_policies (action, retention, remember) VALUES ('long', '1 hour', '1 hour');
SELECT outcome FROM idem_claim('met', 'long', 'k', '{}', lease => '1 hour', token => :t1);
SET pg_idem.test_now = '2030-01-02 01:59:59+00';
SELECT idem_renew('met', 'long', 'k', :t1) IS NOT NULL AS ok;
SET pg_idem.test_now = '2030-01-02 02:59:58+00';
SELECT idem_complete('met', 'long', 'k', '"done"', token => :t1);
SET pg_idem.test_now = '2030-01-02 03:59:57+00';
SELECT outcome, result FROM idem_claim('met', 'long', 'k', '{}');
-- G7 an agent that retries days later is told so, instead of running again
SET pg_idem.test_now = '2030-01-02 03:59:58+00';
SELECT outcome, settled_as, result FROM idem_claim('met', 'long', 'k', '{}');
DELETE FROM idem_policies;

RESET pg_idem.test_now;
DROP FUNCTION met_zero_byte;
DROP TABLE met_effect;
