-- G6 An operation that this very transaction has taken over by a transaction-scoped claim: the row of the interrupted attempt
-- stays, with its token, until that claim is settled; yet the token's owner is dispossessed.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
\set t2 '''00000000-0000-0000-0000-000000000002'''
CREATE TABLE here_effect (what text);
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SELECT outcome FROM idem_claim('here', 'act', 'k', '{}', lease => '1 min', token => :t1);
SET pg_idem.test_now = '2030-01-01 00:01:00+00';

-- G6 Every owner call with the former token is refused, and the transaction cannot commit, though its claim is settled
CREATE PROCEDURE here_try(call text) LANGUAGE plpgsql AS $$
DECLARE claimed text; answer text;
BEGIN
    INSERT INTO here_effect VALUES (call);
    SELECT outcome || ' ' || attempt INTO claimed FROM idem_claim('here', 'act', 'k', '{}');
    BEGIN
        EXECUTE call INTO answer;
        answer := 'answered ' || answer;
    EXCEPTION WHEN OTHERS THEN
        answer := SQLSTATE;
    END;
    RAISE WARNING '% %: %', claimed, call, answer;
    PERFORM idem_release('here', 'act', 'k');
END $$;
\set VERBOSITY terse
\set owner '''here'', ''act'', ''k'', token => ''00000000-0000-0000-0000-000000000001'''
\set call 'SELECT idem_guard(' :owner ')'
CALL here_try(:'call');
\set call 'SELECT idem_renew(' :owner ')'
CALL here_try(:'call');
\set call 'SELECT idem_renew(' :owner ', lease => ''2 min'')'
CALL here_try(:'call');
\set call 'SELECT idem_checkpoint(' :owner ', checkpoint => ''x'')'
CALL here_try(:'call');
\set call 'SELECT idem_complete(' :owner ')'
CALL here_try(:'call');
\set call 'SELECT idem_fail(' :owner ')'
CALL here_try(:'call');
SELECT * FROM here_effect;
-- G6 idem_release says that it is not ours; without any such call the claim released commits
\set call 'SELECT idem_release(' :owner ')'
CALL here_try(:'call');
\set call 'SELECT idem_release(' :owner ', error => ''x'')'
CALL here_try(:'call');
\set call 'SELECT 1'
CALL here_try(:'call');
SELECT * FROM here_effect;
DELETE FROM here_effect;
\set VERBOSITY sqlstate
SELECT state, attempt, lease_expires_at, checkpoint, last_error FROM idem_lookup('here', 'act', 'k');

-- G6 Statement by statement, after ROLLBACK TO; and G9 the claim has still to be settled
BEGIN;
SELECT outcome, attempt FROM idem_claim('here', 'act', 'k', '{}');
SELECT idem_release('here', 'act', 'k', :t1);
INSERT INTO here_effect VALUES ('released by the former owner');
COMMIT;
BEGIN;
SELECT outcome, attempt FROM idem_claim('here', 'act', 'k', '{}');
INSERT INTO here_effect VALUES ('not settled');
COMMIT;
BEGIN;
SELECT outcome, attempt FROM idem_claim('here', 'act', 'k', '{}');
SAVEPOINT a;
SELECT idem_guard('here', 'act', 'k', :t1);
ROLLBACK TO a;
INSERT INTO here_effect VALUES ('guarded by the former owner');
SELECT idem_complete('here', 'act', 'k') IS NOT NULL AS ok;
COMMIT;
BEGIN;
SELECT outcome, attempt FROM idem_claim('here', 'act', 'k', '{}');
SAVEPOINT a;
SELECT idem_complete('here', 'act', 'k', '"former owner"', token => :t1);
ROLLBACK TO a;
INSERT INTO here_effect VALUES ('completed by the former owner');
SELECT idem_complete('here', 'act', 'k') IS NOT NULL AS ok;
COMMIT;
-- G6 a claim call with the former token is a second claim
BEGIN;
SELECT outcome, attempt FROM idem_claim('here', 'act', 'k', '{}');
SELECT outcome FROM idem_claim('here', 'act', 'k', '{}', lease => '1 min', token => :t1);
ROLLBACK;
-- G6 after the claim has been released in the same transaction, the attempt is again as it was: its owner may go on
BEGIN;
SELECT outcome, attempt FROM idem_claim('here', 'act', 'k', '{}');
SELECT idem_release('here', 'act', 'k');
SELECT idem_renew('here', 'act', 'k', :t1);
ROLLBACK;
-- G6 and so it may when the claim itself is rolled back
BEGIN;
SAVEPOINT a;
SELECT outcome, attempt FROM idem_claim('here', 'act', 'k', '{}');
ROLLBACK TO a;
SELECT idem_renew('here', 'act', 'k', :t1);
ROLLBACK;
-- G6 settled by the new claim: the former owner finds it settled
BEGIN;
SELECT outcome, attempt FROM idem_claim('here', 'act', 'k', '{}');
SELECT idem_complete('here', 'act', 'k') IS NOT NULL AS ok;
SAVEPOINT a;
SELECT idem_guard('here', 'act', 'k', :t1);
ROLLBACK TO a;
SELECT idem_release('here', 'act', 'k', :t1);
COMMIT;
SELECT * FROM here_effect;

-- G6 Inside a handler of idem_run, whose claim is one of this transaction
CREATE FUNCTION here_handler(request jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
DECLARE answer text;
BEGIN
    INSERT INTO here_effect VALUES ('handler');
    BEGIN
        EXECUTE request ->> 'call' INTO answer;
    EXCEPTION WHEN OTHERS THEN
        IF NOT (request ->> 'catch')::boolean THEN
            RAISE;
        END IF;
        answer := SQLSTATE;
    END;
    RETURN to_jsonb(answer);
END $$;
SET pg_idem.test_now = '2030-01-02 00:00:00+00';
SELECT outcome FROM idem_claim('here', 'run', 'k', fingerprint => '\x01', lease => '1 min', token => :t1);
SET pg_idem.test_now = '2030-01-02 00:01:00+00';
\set owner '''here'', ''run'', ''k'', token => ''00000000-0000-0000-0000-000000000001'''
\set call '{"catch": false, "call": "SELECT idem_guard(' :owner ')"}'
SELECT outcome, result FROM idem_run('here', 'run', 'k', :'call', 'here_handler(jsonb)', fingerprint => '\x01');
\set call '{"catch": false, "call": "SELECT idem_complete(' :owner ')"}'
SELECT outcome, result FROM idem_run('here', 'run', 'k', :'call', 'here_handler(jsonb)', fingerprint => '\x01');
-- G6 caught by the handler: the statement answers, its transaction does not commit
BEGIN;
\set call '{"catch": true, "call": "SELECT idem_checkpoint(' :owner ', checkpoint => ''x'')"}'
SELECT outcome, attempt, result FROM idem_run('here', 'run', 'k', :'call', 'here_handler(jsonb)', fingerprint => '\x01');
COMMIT;
SELECT outcome, attempt, result FROM idem_run('here', 'run', 'k', :'call', 'here_handler(jsonb)', fingerprint => '\x01');
SELECT * FROM here_effect;
SELECT state, attempt, checkpoint FROM idem_lookup('here', 'run', 'k');
-- G6 a release answers false, and the handler's outcome is recorded
\set call '{"catch": false, "call": "SELECT idem_release(' :owner ')"}'
SELECT outcome, attempt, result FROM idem_run('here', 'run', 'k', :'call', 'here_handler(jsonb)', fingerprint => '\x01');
SELECT * FROM here_effect;

-- G6 The fence comes first: what is wrong with the arguments is told to the owner alone. A dispossessed owner whose outcome is
-- over the limit, or whose lease is, learns that it is dispossessed, and cannot commit.
INSERT INTO idem_policies (action, max_outcome_bytes, max_lease) VALUES ('limit', 100, '10 min');
SET pg_idem.test_now = '2030-01-03 00:00:00+00';
SELECT outcome FROM idem_claim('here', 'limit', 'k', '{}', lease => '1 min', token => :t1);
-- the owner: refused, and not doomed
BEGIN;
SAVEPOINT a;
SELECT idem_complete('here', 'limit', 'k', body => repeat('x', 101), token => :t1);
ROLLBACK TO a;
SELECT idem_fail('here', 'limit', 'k', body => repeat('x', 101), token => :t1);
ROLLBACK TO a;
SELECT idem_checkpoint('here', 'limit', 'k', :t1, 'x', to_jsonb(repeat('x', 101)));
ROLLBACK TO a;
SELECT idem_checkpoint('here', 'limit', 'k', :t1, 'x', lease => '11 min');
ROLLBACK TO a;
SELECT idem_renew('here', 'limit', 'k', :t1, '11 min');
ROLLBACK TO a;
INSERT INTO here_effect VALUES ('owner');
COMMIT;
SET pg_idem.test_now = '2030-01-03 00:01:00+00';
SELECT outcome, attempt FROM idem_claim('here', 'limit', 'k', '{}', lease => '1 min', token => :t2);
CREATE PROCEDURE here_caught(call text) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO here_effect VALUES (call);
    BEGIN
        EXECUTE call;
    EXCEPTION WHEN OTHERS THEN
        RAISE WARNING '%: %', call, SQLSTATE;
    END;
END $$;
\set VERBOSITY terse
\set owner '''here'', ''limit'', ''k'', token => ''00000000-0000-0000-0000-000000000001'''
\set call 'SELECT idem_complete(' :owner ', body => repeat(''x'', 101))'
CALL here_caught(:'call');
\set call 'SELECT idem_fail(' :owner ', result => to_jsonb(repeat(''x'', 101)))'
CALL here_caught(:'call');
\set call 'SELECT idem_checkpoint(' :owner ', checkpoint => ''x'', progress => to_jsonb(repeat(''x'', 101)))'
CALL here_caught(:'call');
\set call 'SELECT idem_checkpoint(' :owner ', checkpoint => ''x'', lease => ''11 min'')'
CALL here_caught(:'call');
\set call 'SELECT idem_renew(' :owner ', lease => ''11 min'')'
CALL here_caught(:'call');
SELECT * FROM here_effect;

RESET pg_idem.test_now;
DELETE FROM idem_policies;
DELETE FROM idem_inflight WHERE account = 'here';
DELETE FROM idem_settled WHERE account = 'here';
DROP TABLE here_effect;
DROP FUNCTION here_handler;
DROP PROCEDURE here_try, here_caught;
