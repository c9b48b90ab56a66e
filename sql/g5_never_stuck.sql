-- G5 Never stuck: what becomes of an interrupted attempt, by the rule that was in force at its claim.
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
INSERT INTO idem_policies (action, on_interrupt) VALUES
    ('retry', 'retry'), ('fail', 'fail'), ('review', 'review'), ('call', 'call');
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SELECT action, outcome, attempt
  FROM unnest('{retry,fail,review,call}'::text[]) AS action, idem_claim('g5', action, 'k', '{}', lease => '60 s', owner => 'one', token => :t1);

-- G5 One microsecond before the end of the lease nobody may take it
SET pg_idem.test_now = '2030-01-01 00:00:59.999999+00';
SELECT action, outcome, attempt, holder, retry_after
  FROM unnest('{retry,fail,review,call}'::text[]) AS action, idem_claim('g5', action, 'k', '{}', lease => '60 s', token => :t2);
SELECT action, state FROM unnest('{retry,fail,review,call}'::text[]) AS a, idem_lookup('g5', a, 'k');
-- G5 At the end it is interrupted, whatever the rule
SET pg_idem.test_now = '2030-01-01 00:01:00+00';
SELECT action, state, attempt, owner FROM unnest('{retry,fail,review,call}'::text[]) AS a, idem_lookup('g5', a, 'k');
SELECT action, state FROM idempotent_operations WHERE account = 'g5' ORDER BY action;
-- G5 and the rule decides what a claim is answered
SELECT action, outcome, replayed, attempt, token, settled_as, status, result
  FROM unnest('{retry,fail,review,call}'::text[]) AS action, idem_claim('g5', action, 'k', '{}', lease => '60 s', token => :t2);
SELECT action, state, attempt, settled_as, status, result, settled_at, expires_at
  FROM unnest('{retry,fail,review,call}'::text[]) AS a, idem_lookup('g5', a, 'k');
-- G5 The same answer to everybody afterwards, the first owner included
SELECT action, outcome, replayed, attempt, token, status, result, retry_after
  FROM unnest('{retry,fail,review,call}'::text[]) AS action, idem_claim('g5', action, 'k', '{}', lease => '60 s', token => :t1);

-- G5 retry: until it is taken over, the owner may go on
SELECT outcome FROM idem_claim('g5', 'retry', 'late', '{}', lease => '60 s', token => :t1);
SET pg_idem.test_now = '2030-01-01 01:00:00+00';
SELECT idem_renew('g5', 'retry', 'late', :t1);
SET pg_idem.test_now = '2030-01-01 02:00:00+00';
SELECT outcome, attempt, token FROM idem_claim('g5', 'retry', 'late', '{}', lease => '60 s', token => :t1);
SET pg_idem.test_now = '2030-01-01 03:00:00+00';
SELECT idem_guard('g5', 'retry', 'late', :t1);
SELECT idem_complete('g5', 'retry', 'late', '"late"', token => :t1);
SELECT outcome, attempt, result FROM idem_claim('g5', 'retry', 'late', '{}');
-- G5 fail and review: the end of the lease is final for the owner, whether or not it has been recorded
SELECT action, outcome FROM unnest('{fail,review}'::text[]) AS action, idem_claim('g5', action, 'late', '{}', lease => '60 s', token => :t1);
SET pg_idem.test_now = '2030-01-01 03:00:59.999999+00';
SELECT action, idem_guard('g5', action, 'late', :t1) FROM unnest('{fail,review}'::text[]) AS action;
SET pg_idem.test_now = '2030-01-01 03:01:00+00';
SELECT idem_guard('g5', 'fail', 'late', :t1);
SELECT idem_renew('g5', 'fail', 'late', :t1);
SELECT idem_checkpoint('g5', 'fail', 'late', :t1, 'x');
SELECT idem_complete('g5', 'fail', 'late', token => :t1);
SELECT idem_fail('g5', 'fail', 'late', token => :t1);
SELECT idem_guard('g5', 'review', 'late', :t1);
SELECT idem_renew('g5', 'review', 'late', :t1);
SELECT idem_checkpoint('g5', 'review', 'late', :t1, 'x');
SELECT idem_complete('g5', 'review', 'late', token => :t1);
SELECT idem_fail('g5', 'review', 'late', token => :t1);
SELECT action, state FROM unnest('{fail,review}'::text[]) AS a, idem_lookup('g5', a, 'late');
SELECT action, outcome, token, status FROM unnest('{fail,review}'::text[]) AS action,
       idem_claim('g5', action, 'late', '{}', lease => '60 s', token => :t1);
-- G5 what is recorded then: settled, in review
SELECT idem_complete('g5', 'fail', 'late', token => :t1);
SELECT idem_complete('g5', 'review', 'late', token => :t1);
SELECT idem_release('g5', 'review', 'late', :t1);
-- G5 A transaction that guarded in time is not judged by the clock again
SELECT action, outcome FROM unnest('{fail,review}'::text[]) AS action, idem_claim('g5', action, 'guarded', '{}', lease => '60 s', token => :t1);
BEGIN;
SELECT action, idem_guard('g5', action, 'guarded', :t1) FROM unnest('{fail,review}'::text[]) AS action;
SET pg_idem.test_now = '2030-01-01 04:00:00+00';
SELECT action, idem_complete('g5', action, 'guarded', '"in time"', token => :t1) IS NOT NULL AS ok FROM unnest('{fail,review}'::text[]) AS action;
COMMIT;
SELECT action, outcome, result FROM unnest('{fail,review}'::text[]) AS action, idem_claim('g5', action, 'guarded', '{}');

-- G5 The rule in force at the claim counts, not that of today
SELECT outcome FROM idem_claim('g5', 'retry', 'rule', '{}', lease => '60 s', token => :t1);
SELECT outcome FROM idem_claim('g5', 'fail', 'rule', '{}', lease => '60 s', token => :t1);
UPDATE idem_policies SET on_interrupt = CASE on_interrupt WHEN 'retry' THEN 'fail' ELSE 'retry' END WHERE action IN ('retry', 'fail');
SET pg_idem.test_now = '2030-01-01 04:01:00+00';
SELECT outcome, attempt, status FROM idem_claim('g5', 'retry', 'rule', '{}', lease => '60 s', token => :t2);
SELECT outcome, attempt, status FROM idem_claim('g5', 'fail', 'rule', '{}', lease => '60 s', token => :t2);
-- G5 which is stored anew by the attempt that takes over
SET pg_idem.test_now = '2030-01-01 04:02:00+00';
SELECT outcome, attempt, status FROM idem_claim('g5', 'retry', 'rule', '{}', lease => '60 s', token => :t3);
DELETE FROM idem_policies;

-- G5 Lost leases are counted: the third is the last of max_attempts 3
INSERT INTO idem_policies (action, max_attempts, on_interrupt) VALUES ('three', 3, NULL), ('three or fail', 3, 'fail');
CREATE TEMP TABLE answer (n serial, outcome idem_outcome, attempt int, replayed boolean, status int, checkpoint text);
-- Claims once a minute, with a lease of a minute, each time in a transaction of its own; checkpoints where a name is given.
CREATE PROCEDURE pg_temp.lose(a text, k text, checkpoints text[]) LANGUAGE plpgsql AS $$
DECLARE c idem_claim_result;
BEGIN
    TRUNCATE answer RESTART IDENTITY;
    FOR n IN 1..cardinality(checkpoints) LOOP
        PERFORM set_config('pg_idem.test_now', ('2030-01-15 00:00:00+00'::timestamptz + n * interval '1 min')::text, false);
        SELECT * INTO c FROM idem_claim('g5', a, k, '{}', lease => '60 s');
        IF checkpoints[n] <> '' AND c.outcome IN ('claimed', 'recovered') THEN
            PERFORM idem_checkpoint('g5', a, k, c.token, checkpoints[n], lease => '60 s');
        END IF;
        INSERT INTO answer (outcome, attempt, replayed, status, checkpoint) VALUES (c.outcome, c.attempt, c.replayed, c.status, c.checkpoint);
        COMMIT;
    END LOOP;
END $$;
CALL pg_temp.lose('three', 'lost', '{"","","","",""}');
SELECT * FROM answer ORDER BY n;
SELECT state, attempt FROM idem_lookup('g5', 'three', 'lost');
CALL pg_temp.lose('three or fail', 'lost', '{"","",""}');
SELECT * FROM answer ORDER BY n;
-- G5 A new checkpoint starts the count again; the same name again does not
CALL pg_temp.lose('three', 'new', '{a,"",b,"",c,"",d,"","",""}');
SELECT * FROM answer ORDER BY n;
CALL pg_temp.lose('three', 'same', '{a,a,a,a,a}');
SELECT * FROM answer ORDER BY n;

-- G5 Released with an error: backs off 5 s, 10 s, 20 s, and counts
CREATE FUNCTION pg_temp.errors(a text, k text, attempts int) RETURNS TABLE (outcome idem_outcome, attempt int, due interval, again idem_outcome, retry_after int, last_error text) LANGUAGE plpgsql AS $$
DECLARE c idem_claim_result; d timestamptz := '2030-02-01 00:00:00+00'; l idempotent_operations; r idem_claim_result;
BEGIN
    FOR n IN 1..attempts LOOP
        PERFORM set_config('pg_idem.test_now', d::text, false);
        SELECT * INTO c FROM idem_claim('g5', a, k, '{}', lease => '60 s');
        IF c.outcome IN ('claimed', 'recovered') THEN
            PERFORM idem_release('g5', a, k, c.token, error => 'error ' || n);
            SELECT * INTO l FROM idem_lookup('g5', a, k);
            r := NULL;
            IF l.due_at > d THEN
                SELECT * INTO r FROM idem_claim('g5', a, k, '{}', lease => '60 s');
            END IF;
            RETURN QUERY SELECT c.outcome, c.attempt, l.due_at - d, r.outcome, r.retry_after, l.last_error;
            d := l.due_at;
        ELSE
            RETURN QUERY SELECT c.outcome, c.attempt, NULL::interval, NULL::idem_outcome, c.retry_after, NULL::text;
        END IF;
    END LOOP;
END $$;
SELECT * FROM pg_temp.errors('three', 'errors', 5);
SELECT * FROM pg_temp.errors('three or fail', 'errors', 5);
INSERT INTO idem_policies (action, max_backoff, retry_backoff) VALUES ('backoff', '30 s', '8 s'), ('no backoff', NULL, '0');
SELECT * FROM pg_temp.errors('backoff', 'errors', 12);
SELECT * FROM pg_temp.errors('no backoff', 'errors', 3);
-- G5 retry_after takes the place of the back-off, and the failure still counts
SET pg_idem.test_now = '2030-03-01 00:00:00+00';
SELECT outcome FROM idem_claim('g5', 'three', 'override', '{}', lease => '60 s', token => :t1);
SELECT idem_release('g5', 'three', 'override', :t1, '1 hour', 'once');
SELECT state, due_at, last_error FROM idem_lookup('g5', 'three', 'override');
SELECT outcome, retry_after FROM idem_claim('g5', 'three', 'override', '{}');
SET pg_idem.test_now = '2030-03-01 01:00:00+00';
SELECT outcome FROM idem_claim('g5', 'three', 'override', '{}', lease => '60 s', token => :t2);
SELECT idem_release('g5', 'three', 'override', :t2, '0', 'twice');
SELECT outcome, attempt FROM idem_claim('g5', 'three', 'override', '{}', lease => '60 s', token => :t3);
SELECT idem_release('g5', 'three', 'override', :t3, '0', 'three times');
SELECT outcome FROM idem_claim('g5', 'three', 'override', '{}', lease => '60 s');
-- G5 Released without an error does not count: a hundred times
CREATE FUNCTION pg_temp.releases() RETURNS TABLE (outcome idem_outcome, attempts bigint, last int) LANGUAGE sql AS $$
    SELECT c.outcome, count(*), max(c.attempt)
      FROM generate_series(1, 100) AS n, idem_claim('g5', 'three', 'releases', '{}', lease => '60 s', owner => 'worker ' || n) AS c,
           idem_release('g5', 'three', 'releases', c.token) AS r
     WHERE r GROUP BY c.outcome ORDER BY c.outcome $$;
SELECT * FROM pg_temp.releases();
-- G5 A released attempt is claimable under every rule
INSERT INTO idem_policies (action, on_interrupt) VALUES ('fail', 'fail'), ('review', 'review'), ('call', 'call');
SELECT a, c.outcome, r, d.outcome, d.attempt
  FROM unnest('{fail,review,call}'::text[]) AS a, idem_claim('g5', a, 'released', '{}', lease => '60 s') AS c,
       idem_release('g5', a, 'released', c.token) AS r, idem_claim('g5', a, CASE WHEN r THEN 'released' END, '{}', lease => '60 s') AS d;
-- G5 An operation in review: answered so to every claim, in the view and in the lookup
SELECT outcome, replayed, token, result, status FROM idem_claim('g5', 'three', 'override', '{}', wait => '50 ms');
SELECT state FROM idem_lookup('g5', 'three', 'override');
SELECT state FROM idempotent_operations WHERE account = 'g5' AND key = 'override';
DELETE FROM idem_policies;
