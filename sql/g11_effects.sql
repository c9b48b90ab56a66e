-- G11 No blind repeat outside: idem_effect, idem_effect_report, idem_open_effects, idem_effects.
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
INSERT INTO idem_policies (action, on_interrupt, max_attempts, keep_request, max_outcome_bytes, retention, remember)
    VALUES ('pay', NULL, NULL, true, 100, '3 days', '30 days'),
           ('e fail', 'fail', NULL, NULL, NULL, NULL, NULL), ('e review', 'review', NULL, NULL, NULL, NULL, NULL),
           ('e once', 'retry', 1, NULL, NULL, NULL, NULL);
CREATE FUNCTION charged(key text, name text DEFAULT 'charge', action text DEFAULT 'pay') RETURNS uuid LANGUAGE sql AS
    $$ SELECT e.downstream_key FROM idem_effects e WHERE e.account = 'e' AND e.action = charged.action
          AND e.key = charged.key AND e.name = charged.name ORDER BY e.generation DESC LIMIT 1 $$;
CREATE VIEW shown AS
    SELECT key, name, generation, state, first_sent_at, send_before, provider_window, request, response, report, reported_at
      FROM idem_effects WHERE account = 'e' ORDER BY key COLLATE "C", name COLLATE "C", generation;
SET pg_idem.test_now = '2030-01-01 00:00:00+00';

-- G12 What a call must give
SELECT outcome FROM idem_claim('e', 'pay', 'bad', '{}', lease => '1 hour', token => :t1);
SELECT idem_effect('e', 'pay', 'bad', NULL, 'charge', '1 day');
SELECT idem_effect('e', 'pay', 'bad', :t1, NULL, '1 day');
SELECT idem_effect('e', 'pay', 'bad', :t1, '', '1 day');
SELECT idem_effect('e', 'pay', 'bad', :t1, E' \t', '1 day');
SELECT idem_effect('e', 'pay', 'bad', :t1, repeat('x', 256), '1 day');
SELECT idem_effect('e', 'pay', 'bad', :t1, 'charge', '0');
SELECT idem_effect('e', 'pay', 'bad', :t1, 'charge', '-1 day');
SELECT idem_effect(NULL, 'pay', 'bad', :t1, 'charge', '1 day');
SELECT idem_effect('e', 'pay', 'bad', :t2, 'charge', '1 day');
SELECT idem_effect('e', 'pay', 'absent', :t2, 'charge', '1 day');
SELECT idem_effect_report(NULL, 'confirmed');
SELECT idem_effect_report(:t1, NULL);
SELECT idem_effect_report(:t1, 'done');
SELECT idem_effect_report(:t1, 'confirmed');
SELECT idem_open_effects('e', 'pay', '');
SELECT count(*) FROM shown;
SELECT idem_complete('e', 'pay', 'bad', token => :t1) AS expires_at;
\set VERBOSITY default
BEGIN;
SELECT outcome FROM idem_claim('e', 'pay', 'bad 2', '{}');
SELECT idem_effect('e', 'pay', 'bad 2', NULL, 'charge', '1 day');
ROLLBACK;
SELECT idem_effect('e', 'pay', 'bad 2', NULL, 'charge', '1 day');
\set VERBOSITY sqlstate

-- The key: derived from identity, name and generation, the same for ever
SELECT outcome FROM idem_claim('e', 'pay', 'k', '{}', lease => '1 hour', token => :t1);
SELECT * FROM idem_effect('e', 'pay', 'k', :t1, 'charge', '1 day', '{"cents": 100}');
SELECT downstream_key = encode(set_byte(set_byte(h, 6, get_byte(h, 6) & 15 | 128), 8, get_byte(h, 8) & 63 | 128), 'hex')::uuid AS derived
  FROM idem_effects, LATERAL (
       SELECT substr(sha256('pg_idem effect v1' || string_agg(int4send(length(convert_to(part, 'UTF8'))) || convert_to(part, 'UTF8'), '' ORDER BY n)
                            || int4send(generation)), 1, 16)
         FROM unnest(ARRAY[account, action, key, name]) WITH ORDINALITY AS p (part, n)) AS hash (h)
 WHERE account = 'e';

-- call: the same key until send_before, and the first hand-out stays; the smaller window counts; again changes nothing
SET pg_idem.test_now = '2030-01-01 00:30:00+00';
SELECT state, downstream_key = charged('k') AS same, response, first_sent_at, send_before FROM idem_effect('e', 'pay', 'k', :t1, 'charge', '1 day', '{"cents": 1e2}', again => true);
SELECT state, send_before FROM idem_effect('e', 'pay', 'k', :t1, 'charge', '2 days', '{"cents": 100}');
SELECT state, send_before FROM idem_effect('e', 'pay', 'k', :t1, 'charge', '50 minutes', '{"cents": 100}');
SELECT state, send_before FROM idem_effect('e', 'pay', 'k', :t1, 'charge', '30 minutes', '{"cents": 100}');
SELECT state, send_before FROM idem_effect('e', 'pay', 'k', :t1, 'charge', NULL, '{"cents": 100}');
SELECT * FROM shown;
-- G4 other inputs under the same name
SELECT idem_effect('e', 'pay', 'k', :t1, 'charge', '1 day', '{"cents": 101}');
SELECT idem_effect('e', 'pay', 'k', :t1, 'charge', '1 day');
-- Two effects of one operation
SELECT state, downstream_key = charged('k') AS same FROM idem_effect('e', 'pay', 'k', :t1, 'mail', NULL);
SELECT name, generation, state, downstream_key = charged('k', name) AS same, request, first_sent_at, send_before, absent_from FROM idem_open_effects('e', 'pay', 'k');
-- Without a window: handed out once
SELECT state, first_sent_at, send_before FROM idem_effect('e', 'pay', 'k', :t1, 'mail', NULL);
SELECT state, first_sent_at, send_before FROM idem_effect('e', 'pay', 'k', :t1, 'mail', '1 day', again => true);
SELECT idem_effect('e', 'pay', 'k', :t1, 'mail', NULL, 'null');
-- Clocks go back
SET pg_idem.test_now = '2030-01-01 00:29:00+00';
SELECT state FROM idem_effect('e', 'pay', 'k', :t1, 'mail', NULL);

-- Nothing is settled over an open effect; that is no reason to give up
BEGIN;
SELECT state FROM idem_effect('e', 'pay', 'k', :t1, 'charge', '1 day', '{"cents": 100}');
SAVEPOINT s;
SELECT idem_complete('e', 'pay', 'k', token => :t1);
ROLLBACK TO s;
SELECT idem_fail('e', 'pay', 'k', token => :t1);
ROLLBACK TO s;
SELECT idem_effect_report(charged('k', 'mail'), 'rejected');
SELECT idem_complete('e', 'pay', 'k', token => :t1);
ROLLBACK TO s;
COMMIT;
SELECT idem_resolve('e', 'pay', 'k', 'completed');
SELECT idem_resolve('e', 'pay', 'k', 'failed');
BEGIN;
SELECT outcome FROM idem_claim('e', 'pay', 'made here', '{}', lease => '1 min');
SELECT c.token AS made FROM idempotent_operations o, idem_inflight c WHERE o.key = 'made here' AND c.key = o.key \gset
SELECT state FROM idem_effect('e', 'pay', 'made here', :'made', 'charge', '1 day');
SELECT idem_complete('e', 'pay', 'made here');
ROLLBACK;

-- Absent is believed at the end of the window, not before; without a window two minutes after
SET pg_idem.test_now = '2030-01-01 00:31:59.999999+00';
SELECT idem_effect_report(charged('k', 'mail'), 'absent') AS early, idem_effect_report(charged('k'), 'absent') AS early;
SET pg_idem.test_now = '2030-01-01 00:32:00+00';
SELECT idem_effect_report(charged('k', 'mail'), 'absent', '{"mail": "none"}');
SELECT idem_effect_report(charged('k', 'mail'), 'rejected', '{"another": "response"}') AS means_the_same;
SELECT idem_effect_report(charged('k', 'mail'), 'confirmed');
SELECT state, response, send_before FROM idem_effect('e', 'pay', 'k', :t1, 'mail', NULL);
SELECT idem_complete('e', 'pay', 'k', token => :t1);
SELECT idem_renew('e', 'pay', 'k', :t1, '1 hour');
-- send_before: not one microsecond later
SELECT outcome FROM idem_claim('e', 'pay', 'edge', '{}', lease => '1 hour', token => :t1);
SELECT send_before FROM idem_effect('e', 'pay', 'edge', :t1, 'charge', '100 seconds');
SET pg_idem.test_now = '2030-01-01 00:33:29.999999+00';
SELECT state, send_before FROM idem_effect('e', 'pay', 'edge', :t1, 'charge', '100 seconds');
SELECT state FROM shown WHERE key = 'edge';
SET pg_idem.test_now = '2030-01-01 00:33:30+00';
SELECT state, send_before FROM idem_effect('e', 'pay', 'edge', :t1, 'charge', '1 day', again => true);
SELECT state FROM shown WHERE key = 'edge';
SELECT name, state FROM idem_open_effects('e', 'pay', 'edge');
SELECT effects_open, effects_unknown, oldest_effect_unknown_at FROM idem_gauges;
SET pg_idem.test_now = '2030-01-01 00:33:39.999999+00';
SELECT idem_effect_report(charged('edge'), 'absent');
SET pg_idem.test_now = '2030-01-01 00:33:40+00';
SELECT idem_effect_report(charged('edge'), 'absent');
-- A doctor looks at what is unknown for long
SELECT status, detail FROM idem_doctor() WHERE check_name = 'effects';
SET pg_idem.test_now = '2030-01-02 00:14:00+00';
SELECT status, detail, advice FROM idem_doctor() WHERE check_name = 'effects';
SET pg_idem.test_now = '2030-01-01 00:34:00+00';

-- Confirmed: the response is kept, whoever says it again; too large a one is refused
SELECT idem_effect_report(charged('k'), 'confirmed', to_jsonb(repeat('x', 200)));
SELECT idem_effect_report(charged('k'), 'confirmed', '{"id": "ch_1"}');
SELECT idem_effect_report(charged('k'), 'confirmed', to_jsonb(repeat('x', 200)));
SELECT idem_effect_report(charged('k'), 'rejected');
SELECT idem_effect_report(charged('k'), 'absent');
SELECT state, response, send_before FROM idem_effect('e', 'pay', 'k', :t1, 'charge', '1 day', '{"cents": 100}', again => true);
SELECT name, state FROM idem_open_effects('e', 'pay', 'k');
-- again: a new generation under a new key
SELECT charged('edge') AS old_edge \gset
SELECT state, downstream_key <> :'old_edge' AS another, response, first_sent_at, send_before FROM idem_effect('e', 'pay', 'edge', :t1, 'charge', '1 hour', again => true);
SELECT state, downstream_key = charged('edge') AS same FROM idem_effect('e', 'pay', 'edge', :t1, 'charge', '1 hour', again => true);
SELECT idem_complete('e', 'pay', 'edge', token => :t1);
-- A report about the generation before: known already, or a contradiction
SELECT idem_effect_report(downstream_key, 'rejected') FROM idem_effects WHERE key = 'edge' AND generation = 1;
SELECT idem_effect_report(downstream_key, 'confirmed') FROM idem_effects WHERE key = 'edge' AND generation = 1;
SELECT idem_effect_report(charged('edge'), 'confirmed');
SELECT * FROM shown WHERE key = 'edge';
SELECT idem_complete('e', 'pay', 'edge', token => :t1) AS expires_at;
SELECT idem_effect('e', 'pay', 'edge', :t1, 'another', '1 hour');
-- Of a transaction that was rolled back nothing is known
BEGIN;
SELECT downstream_key AS gone FROM idem_effect('e', 'pay', 'k', :t1, 'rolled back', '1 hour') \gset
SELECT idem_effect_report(:'gone', 'confirmed');
ROLLBACK;
SELECT idem_effect_report(:'gone', 'confirmed');
SELECT name, state, response FROM shown WHERE key = 'k';
SELECT idem_complete('e', 'pay', 'k', '"paid"', token => :t1) AS expires_at;
-- Settled, and still a fact may be said again, or contradicted
SELECT idem_effect_report(charged('k'), 'confirmed');
SELECT idem_effect_report(charged('k'), 'rejected');

-- The next owner goes on where the first one stopped; a refused one cannot commit
SELECT outcome FROM idem_claim('e', 'pay', 'next', '{}', lease => '1 min', token => :t1);
SELECT state FROM idem_effect('e', 'pay', 'next', :t1, 'charge', '1 day');
SET pg_idem.test_now = '2030-01-01 00:36:00+00';
SELECT outcome, attempt FROM idem_claim('e', 'pay', 'next', '{}', lease => '1 min', token => :t2);
SELECT state, downstream_key = charged('next') AS same, first_sent_at FROM idem_effect('e', 'pay', 'next', :t2, 'charge', '1 day');
BEGIN;
SAVEPOINT s;
SELECT idem_effect('e', 'pay', 'next', :t1, 'charge', '1 day');
ROLLBACK TO s;
COMMIT;
-- ... also after a release, a retry by an operator, and by a claim for a transaction or a handler
SELECT idem_release('e', 'pay', 'next', :t2, error => 'timed out');
SELECT idem_resolve('e', 'pay', 'next', 'retry') AS due_at;
BEGIN;
SELECT outcome, attempt FROM idem_claim('e', 'pay', 'next', '{}');
SAVEPOINT s;
SELECT idem_complete('e', 'pay', 'next');
ROLLBACK TO s;
SELECT idem_fail('e', 'pay', 'next');
ROLLBACK TO s;
SELECT idem_effect('e', 'pay', 'next', :t2, 'charge', '1 day');
ROLLBACK TO s;
COMMIT;
CREATE FUNCTION g11_handler(request jsonb) RETURNS jsonb LANGUAGE sql AS 'SELECT request';
SELECT idem_run('e', 'pay', 'next', '{}', 'g11_handler(jsonb)');
SELECT state, attempt FROM idem_lookup('e', 'pay', 'next');
SELECT idem_effect_report(charged('next'), 'confirmed');
SELECT outcome, attempt, replayed FROM idem_run('e', 'pay', 'next', '{}', 'g11_handler(jsonb)');

-- Rule fail over an open effect: review, by the clock and when recorded; the report lets it go on
SELECT k, outcome FROM unnest(ARRAY['claimed', 'passed', 'reported', 'closed', 'kept', 'resolved']) AS k, idem_claim('e', 'e fail', k, '{}', lease => '1 min', token => :t1);
SELECT k, (idem_effect('e', 'e fail', k, :t1, 'charge', '1 day')).state FROM unnest(ARRAY['claimed', 'passed', 'reported', 'closed', 'kept', 'resolved']) AS k;
SELECT idem_effect_report(charged('closed', action => 'e fail'), 'confirmed');
BEGIN;
SELECT idem_guard('e', 'e fail', 'kept', :t1);
SET LOCAL pg_idem.test_now = '2030-01-01 00:40:00+00';
SELECT idem_effect_report(charged('kept', action => 'e fail'), 'confirmed');
SELECT idem_complete('e', 'e fail', 'kept', token => :t1) AS expires_at;
COMMIT;
SET pg_idem.test_now = '2030-01-01 00:40:00+00';
SELECT idem_guard('e', 'e fail', 'claimed', :t1);
SELECT idem_effect('e', 'e fail', 'claimed', :t1, 'charge', '1 day');
SELECT outcome, attempt FROM idem_claim('e', 'e fail', 'claimed', '{}', lease => '1 min', token => :t2);
SELECT outcome, status, result FROM idem_claim('e', 'e fail', 'closed', '{}');
-- reported before anybody has recorded the review: the same
SELECT idem_effect_report(charged('reported', action => 'e fail'), 'confirmed');
SELECT key, state, attempt, reason FROM idempotent_operations WHERE action = 'e fail' AND key IN ('claimed', 'reported') ORDER BY key COLLATE "C";
SELECT outcome, attempt FROM idem_claim('e', 'e fail', 'reported', '{}', lease => '1 min', token => :t2);
SELECT idem_reset('e', 'e fail', 'passed', 'note');
SELECT count(*) AS tasks FROM idem_maintain();
SELECT key, state, attempt, reason, due_at FROM idempotent_operations WHERE action = 'e fail' AND key IN ('claimed', 'passed') ORDER BY key COLLATE "C";
SELECT idem_effect_report(charged('claimed', action => 'e fail'), 'rejected');
SELECT key, state, attempt, reason, due_at FROM idempotent_operations WHERE action = 'e fail' AND key = 'claimed';
SELECT * FROM idem_maintain() WHERE rows > 0;
SELECT outcome, attempt FROM idem_claim('e', 'e fail', 'claimed', '{}', lease => '1 min', token => :t2);
SELECT state FROM idem_effect('e', 'e fail', 'claimed', :t2, 'charge', '1 day');
SELECT idem_fail('e', 'e fail', 'claimed', token => :t2) AS expires_at;
-- an operator may not settle it either, but may grant an attempt
SELECT idem_resolve('e', 'e fail', 'resolved', 'failed');
SELECT idem_resolve('e', 'e fail', 'resolved', 'retry') AS due_at;
-- with two open ones, the last report counts
SELECT outcome FROM idem_claim('e', 'e once', 'two', '{}', lease => '1 min', token => :t1);
SELECT (idem_effect('e', 'e once', 'two', :t1, n, '1 day')).state FROM unnest(ARRAY['a', 'b']) AS n;
SET pg_idem.test_now = '2030-01-01 00:42:00+00';
SELECT outcome FROM idem_claim('e', 'e once', 'two', '{}', lease => '1 min', token => :t2);
SELECT state, reason FROM idem_lookup('e', 'e once', 'two');
SELECT idem_effect_report(charged('two', 'a', 'e once'), 'confirmed');
SELECT state, reason FROM idem_lookup('e', 'e once', 'two');
SELECT idem_effect_report(charged('two', 'b', 'e once'), 'confirmed');
SELECT state, reason, attempt FROM idem_lookup('e', 'e once', 'two');
SELECT outcome, attempt FROM idem_claim('e', 'e once', 'two', '{}', lease => '1 min', token => :t3);
-- Rule review is for an operator
SELECT outcome FROM idem_claim('e', 'e review', 'r', '{}', lease => '1 min', token => :t1);
SELECT (idem_effect('e', 'e review', 'r', :t1, 'charge', '1 day')).state;
SET pg_idem.test_now = '2030-01-01 00:44:00+00';
SELECT outcome FROM idem_claim('e', 'e review', 'r', '{}', lease => '1 min');
SELECT idem_effect_report(charged('r', action => 'e review'), 'confirmed');
SELECT state, reason FROM idem_lookup('e', 'e review', 'r');

-- After a reset the operation finds its effects as they were
SELECT idem_reset('e', 'pay', 'k', 'once more');
SELECT outcome, attempt FROM idem_claim('e', 'pay', 'k', '{}', lease => '1 hour', token => :t2);
SELECT state, response, downstream_key = charged('k') AS same, first_sent_at FROM idem_effect('e', 'pay', 'k', :t2, 'charge', '1 day', '{"cents": 100}');
SELECT idem_complete('e', 'pay', 'k', token => :t2) AS expires_at;
-- Erased: what was asked and answered, not that it was done
SELECT * FROM idem_erase('e', 'on request');
SELECT * FROM idem_erase('e', 'on request');
SELECT name, generation, state, request, response, report FROM shown WHERE key IN ('k', 'edge');

-- G7 Forgotten with the operation, by the clock: view, report, a new operation
SET pg_idem.test_now = '2030-02-02 23:59:59+00';
SELECT key, count(*) FROM shown WHERE key IN ('k', 'edge') GROUP BY key ORDER BY key COLLATE "C";
SELECT charged('k') AS old_key \gset
SET pg_idem.test_now = '2030-02-03 00:44:00+00';
SELECT key, count(*) FROM shown WHERE key IN ('k', 'edge') GROUP BY key ORDER BY key COLLATE "C";
SELECT idem_effect_report(:'old_key', 'confirmed'), idem_effect_report(:'old_key', 'rejected');
SELECT outcome FROM idem_claim('e', 'pay', 'k', '{}', lease => '1 hour', token => :t1);
SELECT count(*) FROM shown WHERE key = 'k';
SELECT state, downstream_key = :'old_key' AS derived_again FROM idem_effect('e', 'pay', 'k', :t1, 'charge', '1 day', '{"cents": 200}');
BEGIN;
SELECT outcome FROM idem_claim('e', 'pay', 'edge', '{}');
SELECT idem_complete('e', 'pay', 'edge') AS expires_at;
COMMIT;
SELECT count(*) FROM idem_effect_calls WHERE key = 'edge';
SELECT count(*) FROM idem_effect_calls WHERE key = 'next';
SELECT rows > 0 AS forgotten FROM idem_maintain() WHERE task = 'forgotten';
SELECT count(*) FROM idem_effect_calls WHERE key = 'next';
-- Left by a reset: as long as if it had been settled by the report
SELECT outcome FROM idem_claim('e', 'pay', 'orphan', '{}', lease => '1 hour', token => :t1);
SELECT (idem_effect('e', 'pay', 'orphan', :t1, n, '1 day')).state FROM unnest(ARRAY['a', 'b']) AS n;
SELECT idem_effect_report(charged('orphan', 'a'), 'confirmed');
SET pg_idem.test_now = '2030-02-03 00:50:00+00';
SELECT idem_effect_report(charged('orphan', 'b'), 'confirmed');
SELECT idem_complete('e', 'pay', 'orphan', token => :t1) AS expires_at;
SELECT idem_reset('e', 'pay', 'orphan', 'once more');
SET pg_idem.test_now = '2030-03-08 00:49:59.999999+00';
SELECT * FROM idem_maintain() WHERE task = 'effects_forgotten';
SELECT name FROM shown WHERE key = 'orphan';
SELECT outcome FROM idem_claim('e', 'pay', 'orphan', '{}', lease => '1 hour', token => :t1);
SET pg_idem.test_now = '2030-03-08 00:50:00+00';
SELECT * FROM idem_maintain() WHERE task = 'effects_forgotten';
SELECT idem_complete('e', 'pay', 'orphan', token => :t1) AS expires_at, idem_reset('e', 'pay', 'orphan', 'note');
SELECT * FROM idem_maintain() WHERE task = 'effects_forgotten';
SELECT name FROM shown WHERE key = 'orphan';

-- A very long window counts as a thousand years
SELECT outcome FROM idem_claim('e', 'pay', 'long', '{}', lease => '1 hour', token => :t1);
SELECT state, send_before FROM idem_effect('e', 'pay', 'long', :t1, 'charge', '170000000 years');
SELECT state, send_before, provider_window FROM shown WHERE key = 'long';

-- 0A000 Altered by hand
ALTER TABLE idem_effect_calls ADD CHECK (generation > 0);
SELECT idem_effect('e', 'pay', 'long', :t1, 'charge', '1 day');
SELECT idem_effect_report(:t1, 'confirmed');
ALTER TABLE idem_effect_calls DROP CONSTRAINT idem_effect_calls_generation_check;
DROP INDEX idem_effect_calls_downstream_key;
SELECT idem_effect_report(:t1, 'confirmed');
CREATE INDEX idem_effect_calls_downstream_key ON idem_effect_calls (downstream_key);
SELECT idem_effect_report(:t1, 'confirmed');

-- Clean up
RESET pg_idem.test_now;
DELETE FROM idem_policies WHERE action IN ('pay', 'e fail', 'e review', 'e once');
DROP FUNCTION g11_handler, charged;
DROP VIEW shown;
DELETE FROM idem_inflight WHERE account = 'e';
DELETE FROM idem_settled WHERE account = 'e';
DELETE FROM idem_effect_calls WHERE account = 'e';
DELETE FROM idem_audit WHERE account = 'e';
