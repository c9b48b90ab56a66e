-- idem_take: interrupted operations of one action for whoever comes, those that have waited longest first.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
TRUNCATE idem_settled, idem_inflight, idem_seen;
\set t1 '''00000000-0000-0000-0000-000000000001'''
\set t2 '''00000000-0000-0000-0000-000000000002'''
INSERT INTO idem_policies (action, on_interrupt, keep_request, max_lease, max_attempts, retry_backoff) VALUES
    ('pay', 'retry', true, '1 hour', 3, '5 s'), ('bare', 'retry', false, '1 hour', 3, '5 s'), ('fail', 'fail', true, '1 hour', 3, '5 s'),
    ('review', 'review', true, '1 hour', 3, '5 s'), ('call', 'call', true, '1 hour', 3, '5 s');

-- Nothing there
SELECT * FROM idem_take('pay', '1 min');

-- Claimed in another order than they end; leases from 10 to 50 seconds
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SELECT k, outcome FROM unnest('{30,50,10,40,20}'::int[]) AS k,
       idem_claim('acct' || k % 3, 'pay', 'k' || k, jsonb_build_object('n', k), lease => k * interval '1 s', owner => 'first', token => :t1);
SELECT outcome FROM idem_claim('acct', 'bare', 'k', '{"n": 1}', lease => '1 s', token => :t1);
-- None is due
SELECT * FROM idem_take('pay', '1 min', 10);
SET pg_idem.test_now = '2030-01-01 00:00:09.999999+00';
SELECT * FROM idem_take('pay', '1 min', 10);
-- Exactly at its end, one is; one is also the default
SET pg_idem.test_now = '2030-01-01 00:00:10+00';
SELECT account, key, request, (claim).outcome, (claim).replayed, (claim).attempt, (claim).token IS NOT NULL AS token, (claim).holder, (claim).retry_after, (claim).expires_at
  FROM idem_take('pay', '1 min', 10);
SELECT key, state, attempt, owner = pg_backend_pid()::text AS me, lease_expires_at FROM idempotent_operations WHERE action = 'pay' ORDER BY key;
-- Those that have waited longest first, at most batch
SET pg_idem.test_now = '2030-01-01 00:00:59+00';
SELECT key FROM idem_take('pay', '1 min');
SELECT key FROM idem_take('pay', '1 min', 2, owner => 'pool 7');
SELECT key, owner, attempt, lease_expires_at FROM idem_lookup('acct1', 'pay', 'k40');
SELECT key FROM idem_take('pay', '1 min', 100);
SELECT key FROM idem_take('pay', '1 min', 100);
-- Another action is none of theirs; a request only where it was kept
SELECT account, key, request, (claim).outcome, (claim).attempt FROM idem_take('bare', '1 min');
-- The token is good, the old one is not
SET pg_idem.test_now = '2030-01-01 01:00:00+00';
SELECT account, key, (claim).token AS token, (claim).attempt AS attempt FROM idem_take('pay', '1 min') \gset
SELECT :'key' AS key, :'attempt' AS attempt;
SELECT idem_complete(:'account', 'pay', :'key', '"late"', token => :t1);
SELECT idem_complete(:'account', 'pay', :'key', '"taken"', token => :'token') IS NOT NULL AS ok;
SELECT outcome, attempt, result FROM idem_claim(:'account', 'pay', :'key', '{"n": 10}');
-- Two takes of one transaction never give the same
BEGIN;
SELECT key FROM idem_take('pay', '1 min', 2);
SELECT key FROM idem_take('pay', '1 min', 100);
SELECT key FROM idem_take('pay', '1 min', 100);
COMMIT;
TRUNCATE idem_settled, idem_inflight;

-- checkpoint and progress come along
SET pg_idem.test_now = '2030-01-02 00:00:00+00';
SELECT outcome FROM idem_claim('acct', 'pay', 'k', '{}', lease => '1 min', token => :t1);
SELECT idem_checkpoint('acct', 'pay', 'k', :t1, 'half', '{"done": 5}') IS NOT NULL AS ok;
SET pg_idem.test_now = '2030-01-02 00:02:00+00';
SELECT key, (claim).checkpoint, (claim).progress FROM idem_take('pay', '1 min');
TRUNCATE idem_inflight;

-- Released: when it is due; longest waiting by that time
SET pg_idem.test_now = '2030-01-03 00:00:00+00';
SELECT k, outcome FROM unnest('{error,later,now,lost}'::text[]) AS k, idem_claim('acct', 'pay', k, '{}', lease => '3 s', token => :t1);
SELECT idem_release('acct', 'pay', 'error', :t1, error => 'no luck'), idem_release('acct', 'pay', 'later', :t1, retry_after => '4 s'), idem_release('acct', 'pay', 'now', :t1);
SELECT key, (claim).outcome, (claim).attempt FROM idem_take('pay', '1 min', 10);
SET pg_idem.test_now = '2030-01-03 00:00:06+00';
SELECT key, (claim).outcome, (claim).attempt FROM idem_take('pay', '1 min', 10);
TRUNCATE idem_inflight;

-- That it was announced changes nothing
SET pg_idem.test_now = '2030-01-04 00:00:00+00';
SELECT outcome FROM idem_claim('acct', 'pay', 'k', '{}', lease => '3 s', token => :t1);
SET pg_idem.test_now = '2030-01-04 00:01:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT key, (claim).attempt FROM idem_take('pay', '1 min', 10);
SELECT state, reason, attempt FROM idem_lookup('acct', 'pay', 'k');
-- it is interrupted again at the end of the new lease
SET pg_idem.test_now = '2030-01-04 00:03:00+00';
SELECT * FROM idem_maintain() WHERE rows > 0;
TRUNCATE idem_inflight;

-- By rule: a lost lease is only handed out where the rule lets it go on, a released attempt always; never what is used up or in review
SET pg_idem.test_now = '2030-01-05 00:00:00+00';
SELECT a, k, outcome FROM unnest('{call,fail,pay,review}'::text[]) AS a, unnest('{lost,released}'::text[]) AS k, idem_claim('acct', a, k, '{}', lease => '3 s', token => :t1);
SELECT a, idem_release('acct', a, 'released', :t1) FROM unnest('{call,fail,pay,review}'::text[]) AS a;
SELECT outcome FROM idem_claim('acct', 'pay', 'used up', '{}', lease => '3 s', token => :t1);
SELECT idem_release('acct', 'pay', 'used up', :t1, error => '1');
UPDATE idem_inflight SET failures = 3 WHERE key = 'used up';
SET pg_idem.test_now = '2030-01-05 00:10:00+00';
SELECT outcome FROM idem_claim('acct', 'review', 'lost', '{}');
SELECT a, key FROM unnest('{call,fail,pay,review}'::text[]) AS a, idem_take(a, '1 min', 10) ORDER BY 1, 2;
SELECT action, key, state FROM idempotent_operations ORDER BY action, key;
-- granted by an operator: handed out past rule and max_attempts
UPDATE idem_inflight SET granted = true, token = NULL, in_review = false, lease_expires_at = NULL, due_at = '2030-01-05 00:10:00+00'
 WHERE key = 'used up' OR action = 'review' AND key = 'lost';
SELECT a, key, (claim).attempt FROM unnest('{pay,review}'::text[]) AS a, idem_take(a, '1 min', 10) ORDER BY 1, 2;
-- once
SELECT action, key, granted FROM idem_inflight WHERE key = 'used up' OR action = 'review' AND key = 'lost' ORDER BY 1, 2;
TRUNCATE idem_inflight;

-- More than fit on a page; not all in one transaction: at most pg_idem.max_claims_per_transaction
SET pg_idem.test_now = '2030-01-06 00:00:00+00';
CREATE PROCEDURE pg_temp.many(n int) LANGUAGE plpgsql AS $$
BEGIN
    FOR i IN 1 .. n LOOP
        PERFORM FROM idem_claim('acct', 'pay', 'k' || (i * 37) % n, '{}', lease => (1 + (i * 37) % n) * interval '1 s');
        IF i % 100 = 0 THEN COMMIT; END IF;
    END LOOP;
END $$;
CALL pg_temp.many(1200);
SET pg_idem.test_now = '2030-01-06 02:00:00+00';
BEGIN;
SELECT count(*) FROM idem_take('pay', '1 min', 1001);
ROLLBACK;
SELECT count(*) FROM idem_inflight WHERE attempt > 1;
SELECT count(*), array_agg(key ORDER BY n) = array_agg(key ORDER BY substr(key, 2)::int) AS in_order
  FROM idem_take('pay', '1 min', 1000) WITH ORDINALITY AS t (account, key, request, claim, n);
SELECT min(substr(key, 2)::int), max(substr(key, 2)::int), count(*) FROM idem_take('pay', '1 min', 1000) t;
TRUNCATE idem_inflight;

-- The account rule: what the caller may not act for is passed over
SET pg_idem.test_now = '2030-01-07 00:00:00+00';
SELECT a, outcome FROM unnest('{regress_take_a,regress_take_b}'::text[]) AS a, idem_claim(a, 'pay', 'k', '{}', lease => '3 s', token => :t1);
SET pg_idem.test_now = '2030-01-07 00:01:00+00';
CREATE ROLE regress_take_a LOGIN;
CREATE ROLE regress_take_b LOGIN;
GRANT EXECUTE ON FUNCTION idem_take(text, interval, integer, text) TO regress_take_a;
SET pg_idem.account_from = 'role';
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_take_a; SELECT account, key FROM idem_take('pay', '1 min', 10); ROLLBACK;
SET pg_idem.account_from = 'setting:app.tenant';
SET app.tenant = 'regress_take_b';
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_take_a; SELECT account, key FROM idem_take('pay', '1 min', 10); ROLLBACK;
RESET app.tenant;
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_take_a; SELECT account, key FROM idem_take('pay', '1 min', 10); ROLLBACK;
RESET pg_idem.account_from;

-- G12 Bad arguments
SELECT * FROM idem_take(NULL, '1 min');
SELECT * FROM idem_take('', '1 min');
SELECT * FROM idem_take(' ', '1 min');
SELECT * FROM idem_take(repeat('x', 129), '1 min');
SELECT * FROM idem_take('pay', NULL);
SELECT * FROM idem_take('pay', '0');
SELECT * FROM idem_take('pay', '-1 s');
SELECT * FROM idem_take('pay', '1 hour 1 microsecond');
SELECT * FROM idem_take('pay', '1 min', 0);
SELECT * FROM idem_take('pay', '1 min', -1);
SELECT * FROM idem_take('pay', '1 min', 1, '');
SELECT * FROM idem_take('pay', '1 min', 1, repeat('x', 256));
BEGIN READ ONLY;
SELECT * FROM idem_take('pay', '1 min');
ROLLBACK;
SET ROLE regress_take_b;
SELECT * FROM idem_take('pay', '1 min');
RESET ROLE;
-- None of it has left anything behind
SELECT count(*) FROM idem_inflight WHERE attempt > 1;
-- NULL is the default; any batch is fine; exactly max_lease too
SELECT key FROM idem_take('pay', '1 hour', NULL, NULL);
SELECT key FROM idem_take('pay', '1 hour', 2147483647, repeat('x', 255));
DROP OWNED BY regress_take_a, regress_take_b;
DROP ROLE regress_take_a, regress_take_b;

RESET pg_idem.test_now;
TRUNCATE idem_settled, idem_inflight;
DELETE FROM idem_policies;
