-- G4 Same key, different inputs: a mismatch, on every path and in every state.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
\set t2 '''00000000-0000-0000-0000-000000000002'''
INSERT INTO idem_policies (action, retention, remember, on_interrupt) VALUES
    ('review', '1 hour', '1 day', 'review'), ('fail', '1 hour', '1 day', 'fail'), ('act', '1 hour', '1 day', NULL);
CREATE FUNCTION g4_handler(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$ BEGIN RAISE 'the handler must not run'; END $$;
SET pg_idem.test_now = '2030-01-01 00:00:00+00';

-- One operation for each state, all with the request {"amount": 1}.
SELECT outcome FROM idem_claim('g4', 'act', 'alive', '{"amount": 1}', lease => '1 hour', owner => 'me', token => :t1);
SELECT outcome FROM idem_claim('g4', 'act', 'over', '{"amount": 1}', lease => '1 min', owner => 'me', token => :t1);
SELECT outcome FROM idem_claim('g4', 'fail', 'over', '{"amount": 1}', lease => '1 min', owner => 'me', token => :t1);
SELECT outcome FROM idem_claim('g4', 'review', 'over', '{"amount": 1}', lease => '1 min', owner => 'me', token => :t1);
SELECT outcome FROM idem_claim('g4', 'review', 'review', '{"amount": 1}', lease => '1 min', owner => 'me', token => :t1);
SELECT outcome FROM idem_claim('g4', 'act', 'released', '{"amount": 1}', lease => '1 min', owner => 'me', token => :t1);
SELECT idem_checkpoint('g4', 'act', 'released', :t1, 'secret', '"secret"') IS NOT NULL AS ok;
SELECT idem_release('g4', 'act', 'released', :t1);
SELECT outcome FROM idem_claim('g4', 'act', 'not due', '{"amount": 1}', lease => '1 min', owner => 'me', token => :t1);
SELECT idem_release('g4', 'act', 'not due', :t1, '1 hour');
BEGIN;
SELECT k, outcome FROM unnest('{completed,failed}'::text[]) AS k, idem_claim('g4', 'act', k, '{"amount": 1}');
SELECT idem_complete('g4', 'act', 'completed', '"secret"', 200, 'secret', '\x5ec4e7') IS NOT NULL AS ok;
SELECT idem_fail('g4', 'act', 'failed', '"secret"', 402, 'secret', '\x5ec4e7') IS NOT NULL AS ok;
COMMIT;
SET pg_idem.test_now = '2029-12-31 23:00:00+00';
BEGIN;
SELECT outcome FROM idem_claim('g4', 'act', 'expired', '{"amount": 1}');
SELECT idem_complete('g4', 'act', 'expired', '"secret"', 200, 'secret', '\x5ec4e7') IS NOT NULL AS ok;
COMMIT;
SET pg_idem.test_now = '2030-01-01 00:01:00+00';
SELECT outcome FROM idem_claim('g4', 'review', 'review', '{"amount": 1}');
CREATE TEMP VIEW op AS SELECT * FROM (VALUES
    ('act', 'alive'), ('act', 'over'), ('fail', 'over'), ('review', 'over'), ('review', 'review'), ('act', 'released'),
    ('act', 'not due'), ('act', 'completed'), ('act', 'failed'), ('act', 'expired')) AS v (action, key);

-- G4 Another request
SELECT op.*, l.state, c.outcome FROM op, idem_lookup('g4', op.action, op.key) AS l,
       idem_claim('g4', op.action, op.key, '{"amount": 2}') AS c;
-- G4 and nothing else in the answer
SELECT op.*, c.replayed, jsonb_strip_nulls(to_jsonb(c)) - '{outcome,replayed}'::text[] AS shown
  FROM op, idem_claim('g4', op.action, op.key, '{"amount": 2}') AS c;
-- G4 with a wait, with a lease, with the owner's own token, with a fingerprint of the caller's own
SELECT op.*, c.outcome, d.outcome, e.outcome, f.outcome
  FROM op, idem_claim('g4', op.action, op.key, '{"amount": 2}', wait => '10 ms') AS c,
       idem_claim('g4', op.action, op.key, '{"amount": 2}', lease => '1 min') AS d,
       idem_claim('g4', op.action, op.key, '{"amount": 2}', lease => '1 min', token => :t1) AS e,
       idem_claim('g4', op.action, op.key, fingerprint => '\x01') AS f;
-- G4 by idem_run, whose handler does not run
SELECT op.*, c.outcome, c.replayed, c.result FROM op, idem_run('g4', op.action, op.key, '{"amount": 2}', 'g4_handler(jsonb)') AS c;
-- G4 Nothing has changed
SELECT op.*, l.state, l.attempt FROM op, idem_lookup('g4', op.action, op.key) AS l;
SELECT op.*, c.outcome, c.status FROM op,
       idem_claim('g4', op.action, op.key, '{"amount": 1.0}', lease => '1 min', token => :t2) AS c;

-- G4 Under another account or action, or a key that differs in case: another operation
BEGIN;
SELECT a.outcome, b.outcome, c.outcome
  FROM idem_claim('other', 'act', 'completed', '{"amount": 2}') AS a, idem_claim('g4', 'other', 'completed', '{"amount": 2}') AS b,
       idem_claim('g4', 'act', 'Completed', '{"amount": 2}') AS c;
ROLLBACK;

-- G4 A fingerprint of the caller's own counts more than the request
BEGIN;
SELECT outcome FROM idem_claim('g4', 'act', 'own', '{"amount": 1}', '\x01');
SELECT idem_complete('g4', 'act', 'own') IS NOT NULL AS ok;
COMMIT;
SELECT fingerprint FROM idem_lookup('g4', 'act', 'own');
SELECT outcome FROM idem_claim('g4', 'act', 'own', '{"amount": 2}', '\x01');
SELECT outcome FROM idem_claim('g4', 'act', 'own', '{"amount": 1}', '\x02');
SELECT outcome FROM idem_claim('g4', 'act', 'own', '{"amount": 1}');
SELECT outcome FROM idem_claim('g4', 'act', 'own', fingerprint => '\x0100');
-- G4 its limits: 1 and 255 bytes
SELECT outcome FROM idem_claim('g4', 'act', 'limits', fingerprint => '');
SELECT outcome FROM idem_claim('g4', 'act', 'limits', fingerprint => decode(repeat('ff', 256), 'hex'));
BEGIN;
SELECT outcome FROM idem_claim('g4', 'act', 'limits', fingerprint => decode(repeat('ff', 255), 'hex'));
SELECT idem_complete('g4', 'act', 'limits') IS NOT NULL AS ok;
COMMIT;
SELECT outcome FROM idem_claim('g4', 'act', 'limits', fingerprint => decode(repeat('ff', 255), 'hex'));
SELECT outcome FROM idem_claim('g4', 'act', 'limits', fingerprint => decode(repeat('ff', 254), 'hex'));

-- G4 No fingerprint: required unless the policy says otherwise; then none may stand for one that is stored
SELECT outcome FROM idem_claim('g4', 'act', 'none');
SELECT outcome FROM idem_claim('g4', 'act', 'none', lease => '1 min');
SELECT outcome FROM idem_claim('g4', 'act', 'completed');
INSERT INTO idem_policies (action, fingerprint) VALUES ('optional', 'optional');
BEGIN;
SELECT outcome FROM idem_claim('g4', 'optional', 'none');
SELECT idem_complete('g4', 'optional', 'none', '0') IS NOT NULL AS ok;
SELECT outcome FROM idem_claim('g4', 'optional', 'one', '{}');
SELECT idem_complete('g4', 'optional', 'one', '1') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('g4', 'optional', 'none');
SELECT outcome, result FROM idem_claim('g4', 'optional', 'none', '{"any": 1}');
SELECT outcome, result FROM idem_claim('g4', 'optional', 'one', '{}');
SELECT outcome, result FROM idem_claim('g4', 'optional', 'one');
SELECT outcome, result FROM idem_claim('g4', 'optional', 'one', '{"any": 1}');
-- G4 a JSON null is a request
SELECT outcome FROM idem_claim('g4', 'act', 'json null', 'null', lease => '1 min');
SELECT outcome FROM idem_claim('g4', 'act', 'json null', '{}');

-- G4 A claim that is still open has no committed fingerprint; this transaction's own is its own
BEGIN;
SELECT outcome FROM idem_claim('g4', 'act', 'open', '{"amount": 1}');
SELECT outcome FROM idem_claim('g4', 'act', 'open', '{"amount": 2}');
ROLLBACK;
RESET pg_idem.test_now;
DROP FUNCTION g4_handler;
DELETE FROM idem_policies;
