-- G5 An operator decides about an operation in review or in flight: idem_resolve. G6 That ends the old owner's token.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
\set t2 '''00000000-0000-0000-0000-000000000002'''
INSERT INTO idem_policies (action, on_interrupt, max_attempts, retention, keep_request) VALUES
    ('retry', 'retry', 1, '1 hour', true), ('fail', 'fail', 1, '1 hour', true), ('review', 'review', 1, '1 hour', true), ('call', 'call', 1, '1 hour', true);
DELETE FROM idem_audit;
CREATE VIEW resolve_rules AS SELECT unnest('{retry,fail,review,call}'::text[]) AS action;
-- In flight with every rule, at one o'clock
CREATE PROCEDURE pg_temp.claim(k text) LANGUAGE plpgsql AS $$
BEGIN
    PERFORM set_config('pg_idem.test_now', '2030-01-01 01:00:00+00', false);
    PERFORM FROM resolve_rules, idem_claim('g5r', action, k, '{"n": 1}', lease => '1 min', owner => 'one', token => '00000000-0000-0000-0000-000000000001');
    PERFORM idem_checkpoint('g5r', action, k, '00000000-0000-0000-0000-000000000001', 'half', '[1]', lease => '1 min') FROM resolve_rules;
END $$;
-- What an owner of attempt one is answered by each of its calls.
CREATE FUNCTION pg_temp.owner_calls(a text, k text) RETURNS TABLE (call text, answer text) LANGUAGE plpgsql AS $$
BEGIN
    FOR call IN SELECT format(c, a, k, '00000000-0000-0000-0000-000000000001') FROM unnest(ARRAY['idem_guard(''g5r'', %L, %L, %L)',
            'idem_renew(''g5r'', %L, %L, %L)', 'idem_checkpoint(''g5r'', %L, %L, %L, ''c'')', 'idem_complete(''g5r'', %L, %L, token => %L)',
            'idem_fail(''g5r'', %L, %L, token => %L)', 'idem_release(''g5r'', %L, %L, %L)']) AS c LOOP
        BEGIN
            EXECUTE 'SELECT ' || call INTO answer;
        EXCEPTION WHEN OTHERS THEN
            answer := SQLSTATE;
        END;
        call := split_part(call, '(', 1);
        RETURN NEXT;
    END LOOP;
END $$;

-- G5 completed and failed: recorded as a settlement, whatever the rule
CALL pg_temp.claim('completed');
CALL pg_temp.claim('failed');
SET pg_idem.test_now = '2030-01-01 01:00:30+00';
SELECT action, idem_resolve('g5r', action, 'completed', 'completed', result => '{"by": "hand"}', status => 201, body => 'by hand', note => 'called the bank') AS expires_at FROM resolve_rules;
SELECT action, idem_resolve('g5r', action, 'failed', verdict => 'failed', attempt => 1) AS expires_at FROM resolve_rules;
SELECT action, outcome, replayed, attempt, settled_as, status, result, body, body_bytes, settled_at, expires_at
  FROM resolve_rules, unnest('{completed,failed}'::text[]) AS k, idem_claim('g5r', action, k, '{"n": 1}') ORDER BY action, k;
SELECT r.action, state, request, claimed_at, settled_at, expires_at, forget_at FROM resolve_rules AS r, idem_lookup('g5r', r.action, 'completed');
-- G4 the fingerprint of the attempt is kept
SELECT action, outcome FROM resolve_rules, idem_claim('g5r', action, 'completed', '{"n": 2}');
-- G6 the old owner is told, by every call; and its transaction cannot commit
BEGIN;
SELECT r.action, o.* FROM resolve_rules r, pg_temp.owner_calls(r.action, 'completed') o WHERE r.action = 'retry';
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT idem_guard('g5r', 'retry', 'failed', :t1);
ROLLBACK TO s;
COMMIT;
-- G3 what is settled stays so
SELECT idem_resolve('g5r', 'retry', 'completed', 'failed');
SELECT idem_resolve('g5r', 'retry', 'completed', 'retry');
SELECT idem_resolve('g5r', 'retry', 'completed', 'completed', attempt => 7);

-- G5 retry: one attempt, past rule and max_attempts, due at once
CALL pg_temp.claim('again');
SET pg_idem.test_now = '2030-01-01 01:00:30+00';
SELECT action, idem_resolve('g5r', action, 'again', 'retry', note => 'worker is stuck') AS due_at FROM resolve_rules;
SELECT r.action, state, attempt, lease_expires_at, due_at, reason, state_since, checkpoint, progress FROM resolve_rules AS r, idem_lookup('g5r', r.action, 'again');
-- G6 the old owner is out, the repetition of its claim included: that is a claim like any other, and may be granted
BEGIN;
SELECT r.action, o.* FROM resolve_rules r, pg_temp.owner_calls(r.action, 'again') o;
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT idem_complete('g5r', 'retry', 'again', token => :t1);
ROLLBACK TO s;
COMMIT;
BEGIN;
SELECT action, outcome, attempt FROM resolve_rules, idem_claim('g5r', action, 'again', '{"n": 1}', lease => '1 min', token => :t1);
ROLLBACK;
-- G4 other inputs are a mismatch still
SELECT action, outcome FROM resolve_rules, idem_claim('g5r', action, 'again', '{"n": 2}', lease => '1 min');
-- G5 granted, with the checkpoint
SELECT action, outcome, attempt, checkpoint, progress FROM resolve_rules, idem_claim('g5r', action, 'again', '{"n": 1}', lease => '1 min', token => :t2);
SELECT action, outcome, attempt FROM resolve_rules, idem_claim('g5r', action, 'again', '{"n": 1}', lease => '1 min');
-- G5 exactly one: when that is lost, rule and max_attempts apply again
SET pg_idem.test_now = '2030-01-01 01:01:30+00';
SELECT action, outcome, status FROM resolve_rules, idem_claim('g5r', action, 'again', '{"n": 1}', lease => '1 min');
-- G5 and that of review may be granted again, any number of times
SELECT action, idem_resolve('g5r', action, 'again', 'retry') AS due_at FROM resolve_rules WHERE action <> 'fail';
SELECT action, outcome, attempt FROM resolve_rules, idem_claim('g5r', action, 'again', '{"n": 1}', lease => '1 min', token => :t1);
-- G5 an attempt granted and released with an error is used up, one released without is not counted
SELECT action, idem_release('g5r', action, 'again', :t1, error => 'again', retry_after => '0') FROM resolve_rules WHERE action <> 'fail';
SELECT action, outcome FROM resolve_rules, idem_claim('g5r', action, 'again', '{"n": 1}', lease => '1 min', token => :t1);
-- G5 a transaction-scoped attempt is used only by settling
SELECT idem_resolve('g5r', 'review', 'again', 'retry') AS due_at;
BEGIN;
SELECT outcome, attempt FROM idem_claim('g5r', 'review', 'again', '{"n": 1}');
ROLLBACK;
BEGIN;
SELECT outcome, attempt FROM idem_claim('g5r', 'review', 'again', '{"n": 1}');
SELECT idem_complete('g5r', 'review', 'again', '"at last"') AS expires_at;
COMMIT;
SELECT outcome, attempt, result FROM idem_claim('g5r', 'review', 'again', '{"n": 1}');

-- G5 in review, by lost lease and by attempts used up: all three verdicts
CALL pg_temp.claim('review completed');
CALL pg_temp.claim('review failed');
CALL pg_temp.claim('review retry');
SET pg_idem.test_now = '2030-01-01 02:00:00+00';
SELECT action, k, outcome FROM unnest('{retry,review}'::text[]) AS action, unnest('{review completed,review failed,review retry}'::text[]) AS k, idem_claim('g5r', action, k, '{"n": 1}') ORDER BY action, k;
SELECT action, idem_resolve('g5r', action, 'review completed', 'completed', '1') AS expires_at, idem_resolve('g5r', action, 'review failed', 'failed', '2') AS failed_expires_at,
       idem_resolve('g5r', action, 'review retry', 'retry') AS due_at FROM unnest('{retry,review}'::text[]) AS action;
SELECT action, k, outcome, attempt, result FROM unnest('{retry,review}'::text[]) AS action, unnest('{review completed,review failed,review retry}'::text[]) AS k, idem_claim('g5r', action, k, '{"n": 1}', lease => '1 min') ORDER BY action, k;

-- G5 interrupted, and recorded by nobody: under fail it counts as failed, else it is open
CALL pg_temp.claim('over');
SET pg_idem.test_now = '2030-01-01 01:00:59.999999+00';
BEGIN;
SELECT action, idem_resolve('g5r', action, 'over', 'completed') AS expires_at FROM resolve_rules;
ROLLBACK;
SET pg_idem.test_now = '2030-01-01 01:01:00+00';
SELECT idem_resolve('g5r', 'fail', 'over', 'completed');
SELECT idem_resolve('g5r', 'fail', 'over', 'retry');
SELECT action, idem_resolve('g5r', action, 'over', 'completed') AS expires_at FROM resolve_rules WHERE action <> 'fail';
SELECT action, outcome, status FROM resolve_rules, idem_claim('g5r', action, 'over', '{"n": 1}');
-- G5 a transaction that guarded in time may decide about it still
CALL pg_temp.claim('guarded');
BEGIN;
SELECT idem_guard('g5r', 'fail', 'guarded', :t1);
SET pg_idem.test_now = '2030-01-01 01:02:00+00';
SELECT idem_resolve('g5r', 'fail', 'guarded', 'completed', '"in time"') AS expires_at;
COMMIT;
SELECT outcome, result FROM idem_claim('g5r', 'fail', 'guarded', '{"n": 1}');
-- G5 released, by its owner
CALL pg_temp.claim('released');
SELECT action, idem_release('g5r', action, 'released', :t1, error => 'e') FROM resolve_rules;
SELECT action, outcome, retry_after FROM resolve_rules, idem_claim('g5r', action, 'released', '{"n": 1}');
SELECT action, idem_resolve('g5r', action, 'released', 'retry') AS due_at FROM resolve_rules;
SELECT action, outcome, attempt FROM resolve_rules, idem_claim('g5r', action, 'released', '{"n": 1}', lease => '1 min');

-- attempt: given, and moved on
SELECT idem_resolve('g5r', 'retry', 'released', 'completed', attempt => 1);
SELECT idem_resolve('g5r', 'retry', 'released', 'completed', attempt => 3);
-- which dooms nothing: there is no token
BEGIN;
SAVEPOINT s;
SELECT idem_resolve('g5r', 'retry', 'released', 'completed', attempt => 1);
ROLLBACK TO s;
SELECT idem_resolve('g5r', 'retry', 'released', 'completed', attempt => 2, note => 'moved on') AS expires_at;
COMMIT;
SELECT outcome, attempt FROM idem_claim('g5r', 'retry', 'released', '{"n": 1}');

-- Nothing is stored; forgotten; claimed by this very transaction
SELECT idem_resolve('g5r', 'retry', 'never claimed', 'completed');
SELECT idem_resolve('g5r', 'retry', 'never claimed', 'retry');
SET pg_idem.test_now = '2031-01-01 00:00:00+00';
SELECT idem_resolve('g5r', 'retry', 'completed', 'completed');
BEGIN;
SELECT outcome FROM idem_claim('g5r', 'retry', 'here', '{"n": 1}');
SELECT idem_resolve('g5r', 'retry', 'here', 'completed');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('g5r', 'retry', 'here', '{"n": 1}');
SELECT idem_release('g5r', 'retry', 'here');
SELECT idem_resolve('g5r', 'retry', 'here', 'completed');
ROLLBACK;

-- G1 Everything in one transaction: claimed with a lease, and decided about
BEGIN;
SELECT outcome FROM idem_claim('g5r', 'review', 'one', '{"n": 1}', lease => '1 min', session_bound => true);
SELECT idem_resolve('g5r', 'review', 'one', 'completed', '"one"') IS NOT NULL AS ok;
SELECT idem_complete('g5r', 'review', 'one');
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('g5r', 'review', 'one', '{"n": 1}', lease => '1 min', token => :t1);
SELECT idem_resolve('g5r', 'review', 'one', 'retry') IS NOT NULL AS ok;
SELECT outcome, attempt FROM idem_claim('g5r', 'review', 'one', '{"n": 1}', lease => '1 min', token => :t2);
SELECT idem_resolve('g5r', 'review', 'one', 'completed', '"one"') IS NOT NULL AS ok;
SELECT idem_resolve('g5r', 'review', 'one', 'completed', '"one"') IS NOT NULL AS ok;
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('g5r', 'review', 'one', '{"n": 1}', lease => '1 min', token => :t1);
SELECT idem_resolve('g5r', 'review', 'one', 'failed', '"one"') IS NOT NULL AS ok;
COMMIT;
SELECT outcome, result FROM idem_claim('g5r', 'review', 'one', '{"n": 1}');
-- G6 the owner's transaction, in which an operator's call decided: its earlier guard stays good, also where the savepoint of it is gone
SELECT k, outcome FROM unnest('{guard,back,back again}'::text[]) AS k, idem_claim('g5r', 'review', k, '{"n": 1}', lease => '1 min', token => :t1);
BEGIN;
SELECT idem_guard('g5r', 'review', 'guard', :t1) IS NOT NULL AS ok;
SELECT idem_resolve('g5r', 'review', 'guard', 'completed') IS NOT NULL AS ok;
COMMIT;
BEGIN;
SAVEPOINT s;
SELECT idem_guard('g5r', 'review', 'back', :t1) IS NOT NULL AS ok;
ROLLBACK TO s;
SELECT idem_resolve('g5r', 'review', 'back', 'retry') IS NOT NULL AS ok;
COMMIT;
-- G6 and a decision that was rolled back leaves the owner what it was
BEGIN;
SAVEPOINT s;
SELECT idem_resolve('g5r', 'review', 'back again', 'retry') IS NOT NULL AS ok;
ROLLBACK TO s;
SELECT idem_guard('g5r', 'review', 'back again', :t1) IS NOT NULL AS ok;
SAVEPOINT s;
SELECT idem_resolve('g5r', 'review', 'back again', 'completed', '"lost"') IS NOT NULL AS ok;
ROLLBACK TO s;
SELECT idem_complete('g5r', 'review', 'back again', '"kept"', token => :t1) IS NOT NULL AS ok;
COMMIT;
SELECT key, state, result FROM unnest('{guard,back,back again}'::text[]) AS k, idem_lookup('g5r', 'review', k);
-- G1 its lock goes with the savepoint, and is kept to the end of the transaction else; the timeout of an idle transaction likewise
CREATE VIEW resolve_locks AS SELECT count(*) AS locks, current_setting('idle_in_transaction_session_timeout') AS timeout FROM pg_locks
 WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
SET idle_in_transaction_session_timeout = 0;
BEGIN;
SAVEPOINT s;
SELECT idem_resolve('g5r', 'review', 'back', 'retry') IS NOT NULL AS ok;
SELECT * FROM resolve_locks;
ROLLBACK TO s;
SELECT * FROM resolve_locks;
SELECT idem_resolve('g5r', 'review', 'back', 'completed') IS NOT NULL AS ok;
SELECT * FROM resolve_locks;
COMMIT;
SELECT * FROM resolve_locks;
RESET idle_in_transaction_session_timeout;
-- at every level of isolation, and in a procedure that commits
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT 1;
SELECT idem_resolve('g5r', 'call', 'released', 'failed', '"rr"') IS NOT NULL AS ok;
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT 1;
SELECT idem_resolve('g5r', 'review', 'released', 'failed', '"ser"') IS NOT NULL AS ok;
COMMIT;
DO $$
BEGIN
    PERFORM idem_resolve('g5r', 'review', 'review retry', 'retry');
    COMMIT;
    PERFORM idem_resolve('g5r', 'review', 'review retry', 'failed', '"in a procedure"');
END $$;
SELECT action, key, state, result FROM idempotent_operations WHERE account = 'g5r' AND result IN ('"rr"', '"ser"', '"in a procedure"') ORDER BY action, key;

-- The record of what was called: with the change, or not at all
SELECT count(*), count(DISTINCT id), bool_and(substr(id::text, 15, 1) = '7') AS v7, bool_and(session_user_name = session_user AND user_name = current_user) AS users FROM idem_audit;
SELECT called_at, call, account, action, key, verdict, attempt, rows, note FROM idem_audit WHERE action = 'retry' OR key = 'one' ORDER BY called_at, key, verdict;
-- in the order of the clock
SELECT count(*) FROM (SELECT called_at, lag(called_at) OVER (ORDER BY id) AS before FROM idem_audit) AS a WHERE called_at < before;

-- G12 Limits and bad arguments
INSERT INTO idem_policies (action, max_outcome_bytes) VALUES ('small', 5);
SELECT outcome FROM idem_claim('g5r', 'small', 'k', '{}', lease => '1 min', token => :t1);
SELECT idem_resolve('g5r', 'small', 'k', 'completed', body => '123456');
SELECT idem_resolve('g5r', 'small', 'k', 'completed', '"12"', body => '123');
SELECT idem_resolve('g5r', 'small', 'k', NULL);
SELECT idem_resolve('g5r', 'small', 'k', '');
SELECT idem_resolve('g5r', 'small', 'k', 'done');
SELECT idem_resolve('g5r', 'small', 'k', 'Completed');
SELECT idem_resolve('g5r', 'small', 'k', 'retry', result => '1');
SELECT idem_resolve('g5r', 'small', 'k', 'retry', status => 1);
SELECT idem_resolve('g5r', 'small', 'k', 'retry', body => '');
SELECT idem_resolve(NULL, 'small', 'k', 'retry');
SELECT idem_resolve('g5r', ' ', 'k', 'retry');
SELECT idem_resolve('g5r', 'small', repeat('k', 256), 'retry');
SELECT idem_resolve('g5r', 'small', 'k', 'retry', note => repeat('n', 8001));
BEGIN READ ONLY;
SELECT idem_resolve('g5r', 'small', 'k', 'retry');
ROLLBACK;
SELECT idem_guard('g5r', 'small', 'k', :t1) IS NOT NULL AS "still the owner";
SELECT idem_resolve('g5r', 'small', 'k', 'completed', NULL, NULL, body => '12345', note => repeat('n', 8000), attempt => NULL) IS NOT NULL AS ok;
SELECT key, attempt, octet_length(note) FROM idem_audit WHERE action = 'small';
-- SQLSTATE aside, what is said
\set VERBOSITY default
SELECT idem_resolve('g5r', 'small', 'k', 'done');
SELECT idem_resolve('g5r', 'small', 'k', 'retry', status => 1);
SELECT idem_resolve('g5r', 'small', 'k', 'retry');
SELECT idem_resolve('g5r', 'small', 'nothing', 'retry');
SELECT outcome FROM idem_claim('g5r', 'small', 'moved', '{}', lease => '1 min', token => :t1);
SELECT idem_resolve('g5r', 'small', 'moved', 'retry', attempt => 2);
BEGIN;
SELECT outcome FROM idem_claim('g5r', 'small', 'here', '{}');
SELECT idem_resolve('g5r', 'small', 'here', 'retry');
ROLLBACK;
\set VERBOSITY sqlstate

-- Who may: EXECUTE is the gate, and opens no table; the account is not asked for
CREATE ROLE regress_idem_operator;
GRANT EXECUTE ON FUNCTION idem_resolve TO regress_idem_operator;
CREATE FUNCTION resolve_wrapper(k text) RETURNS boolean LANGUAGE sql SECURITY DEFINER AS
    $$ SELECT idem_resolve('g5r', 'small', k, 'failed', note => 'by wrapper') IS NOT NULL $$;
CREATE ROLE regress_idem_definer;
GRANT EXECUTE ON FUNCTION idem_resolve TO regress_idem_definer;
ALTER FUNCTION resolve_wrapper OWNER TO regress_idem_definer;
SELECT outcome FROM idem_claim('g5r', 'small', 'wrapped', '{}', lease => '1 min', token => :t1);
SET pg_idem.account_from = 'role';
SET ROLE regress_idem_operator;
SELECT idem_resolve('g5r', 'small', 'moved', 'retry', note => 'by operator') IS NOT NULL AS ok;
SELECT resolve_wrapper('wrapped');
SELECT count(*) FROM idem_audit;
SELECT count(*) FROM idem_inflight;
SELECT outcome FROM idem_claim('g5r', 'small', 'moved', '{}');
RESET ROLE;
RESET pg_idem.account_from;
SELECT key, note, session_user_name = session_user AS session, user_name FROM idem_audit WHERE note LIKE 'by %' AND action = 'small' ORDER BY key;
DROP FUNCTION resolve_wrapper;
DROP OWNED BY regress_idem_operator, regress_idem_definer;
DROP ROLE regress_idem_operator, regress_idem_definer;

-- idem_audit altered by hand: refused, or done
DELETE FROM idem_audit;
CREATE FUNCTION resolve_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE FUNCTION pg_temp.altered(ddl text) RETURNS text LANGUAGE plpgsql AS $$
DECLARE answer text := 'ok';
BEGIN
    EXECUTE ddl;
    BEGIN
        PERFORM idem_resolve('g5r', 'small', 'moved', 'retry');
    EXCEPTION WHEN OTHERS THEN
        answer := SQLSTATE;
    END;
    RAISE SQLSTATE 'UNDO0';
EXCEPTION WHEN SQLSTATE 'UNDO0' THEN
    RETURN answer;
END $$;
SELECT ddl, pg_temp.altered(ddl) FROM unnest(ARRAY[
    'SELECT 1',
    'CREATE TRIGGER t BEFORE INSERT ON idem_audit FOR EACH ROW EXECUTE FUNCTION resolve_trigger()',
    'ALTER TABLE idem_audit ENABLE ROW LEVEL SECURITY',
    'ALTER TABLE idem_audit ADD CHECK (note <> '''')',
    'ALTER TABLE idem_audit ALTER note SET NOT NULL',
    'ALTER TABLE idem_audit RENAME note TO remark',
    'ALTER TABLE idem_audit DROP CONSTRAINT idem_audit_pkey',
    'ALTER TABLE idem_audit DROP CONSTRAINT idem_audit_pkey, ADD PRIMARY KEY (id, called_at)',
    'ALTER TABLE idem_audit DROP CONSTRAINT idem_audit_pkey, ADD PRIMARY KEY (called_at)',
    'CREATE UNIQUE INDEX ON idem_audit (called_at)',
    'CREATE UNIQUE INDEX ON idem_audit (account, action, key, call)',
    'DROP TABLE idem_audit',
    'CREATE UNIQUE INDEX ON idem_audit (called_at, id)',
    'CREATE INDEX ON idem_audit (account)',
    'ALTER TABLE idem_audit ADD added text'
  ]) AS ddl;
DROP FUNCTION resolve_trigger;
RESET pg_idem.test_now;
DROP VIEW resolve_rules, resolve_locks;
DELETE FROM idem_policies;
DELETE FROM idem_audit;
DELETE FROM idem_inflight WHERE account = 'g5r';
DELETE FROM idem_settled WHERE account = 'g5r';
