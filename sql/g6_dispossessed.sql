-- G6 The dispossessed cannot advance: a refused owner call takes the whole transaction with it.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
\set t2 '''00000000-0000-0000-0000-000000000002'''
CREATE TABLE g6_effect (what text);
INSERT INTO idem_policies (action, on_interrupt) VALUES ('review', 'review');
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SELECT outcome FROM idem_claim('g6', 'act', 'taken', '{}', lease => '1 min', owner => 'first', token => :t1);
SELECT outcome FROM idem_claim('g6', 'act', 'settled', '{}', lease => '1 min', token => :t1);
SELECT idem_complete('g6', 'act', 'settled', token => :t1) IS NOT NULL AS ok;
SELECT outcome FROM idem_claim('g6', 'review', 'review', '{}', lease => '1 min', token => :t1);
SET pg_idem.test_now = '2030-01-01 00:01:00+00';
SELECT outcome, attempt FROM idem_claim('g6', 'act', 'taken', '{}', lease => '10 min', owner => 'second', token => :t2);
SELECT outcome FROM idem_claim('g6', 'review', 'review', '{}');

-- G6 Every owner call of the first owner raises
SELECT idem_renew('g6', 'act', 'taken', :t1);
SELECT idem_checkpoint('g6', 'act', 'taken', :t1, 'mine');
SELECT idem_guard('g6', 'act', 'taken', :t1);
SELECT idem_complete('g6', 'act', 'taken', token => :t1);
SELECT idem_fail('g6', 'act', 'taken', token => :t1);
SELECT idem_release('g6', 'act', 'taken', :t1);
SELECT outcome, token, holder FROM idem_claim('g6', 'act', 'taken', '{}', lease => '1 min', token => :t1);
SELECT state, attempt, owner, lease_expires_at, checkpoint FROM idem_lookup('g6', 'act', 'taken');

-- G6 Caught or not, the business change is undone: one transaction for each call and each reason
CREATE PROCEDURE g6_try(call text) LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO g6_effect VALUES (call);
    BEGIN
        EXECUTE call;
    EXCEPTION WHEN OTHERS THEN
        INSERT INTO g6_effect VALUES (call || ' caught ' || SQLSTATE);
    END;
    INSERT INTO g6_effect VALUES (call || ' went on');
END $$;
\set fenced '''g6'', ''act'', ''taken'', token => ''00000000-0000-0000-0000-000000000001'''
\set settled '''g6'', ''act'', ''settled'', token => ''00000000-0000-0000-0000-000000000001'''
\set review '''g6'', ''review'', ''review'', token => ''00000000-0000-0000-0000-000000000001'''
\set call 'SELECT idem_complete(' :fenced ')'
CALL g6_try(:'call');
\set call 'SELECT idem_fail(' :fenced ')'
CALL g6_try(:'call');
\set call 'SELECT idem_guard(' :fenced ')'
CALL g6_try(:'call');
\set call 'SELECT idem_renew(' :fenced ')'
CALL g6_try(:'call');
\set call 'SELECT idem_checkpoint(' :fenced ', checkpoint => ''x'')'
CALL g6_try(:'call');
\set call 'SELECT idem_complete(' :settled ')'
CALL g6_try(:'call');
\set call 'SELECT idem_fail(' :settled ')'
CALL g6_try(:'call');
\set call 'SELECT idem_guard(' :settled ')'
CALL g6_try(:'call');
\set call 'SELECT idem_renew(' :settled ')'
CALL g6_try(:'call');
\set call 'SELECT idem_checkpoint(' :settled ', checkpoint => ''x'')'
CALL g6_try(:'call');
\set call 'SELECT idem_complete(' :review ')'
CALL g6_try(:'call');
\set call 'SELECT idem_fail(' :review ')'
CALL g6_try(:'call');
\set call 'SELECT idem_guard(' :review ')'
CALL g6_try(:'call');
\set call 'SELECT idem_renew(' :review ')'
CALL g6_try(:'call');
\set call 'SELECT idem_checkpoint(' :review ', checkpoint => ''x'')'
CALL g6_try(:'call');
SELECT * FROM g6_effect;
-- G6 a token of an operation that does not exist
CALL g6_try($$SELECT idem_guard('g6', 'act', 'unknown', '00000000-0000-0000-0000-000000000001')$$);
CALL g6_try($$SELECT idem_complete('g6', 'act', 'unknown', token => '00000000-0000-0000-0000-000000000001')$$);
SELECT * FROM g6_effect;

-- G6 With savepoints: rolled back past the refused call, it still cannot commit
BEGIN;
INSERT INTO g6_effect VALUES ('savepoint');
SAVEPOINT a;
SAVEPOINT b;
SELECT idem_guard('g6', 'act', 'taken', :t1);
ROLLBACK TO b;
ROLLBACK TO a;
INSERT INTO g6_effect VALUES ('savepoint, went on');
COMMIT;
-- G6 even where the right owner did its part
BEGIN;
SELECT idem_guard('g6', 'act', 'taken', :t2);
SAVEPOINT a;
SELECT idem_guard('g6', 'act', 'taken', :t1);
ROLLBACK TO a;
SELECT idem_checkpoint('g6', 'act', 'taken', :t2, 'right owner') IS NOT NULL AS ok;
COMMIT;
SELECT checkpoint FROM idem_lookup('g6', 'act', 'taken');
-- G6 COMMIT AND CHAIN
BEGIN;
SAVEPOINT a;
SELECT idem_guard('g6', 'act', 'taken', :t1);
ROLLBACK TO a;
INSERT INTO g6_effect VALUES ('chain');
COMMIT AND CHAIN;
ROLLBACK;
-- G6 COMMIT in a procedure
CREATE PROCEDURE g6_commit() LANGUAGE plpgsql AS $$
BEGIN
    INSERT INTO g6_effect VALUES ('procedure');
    BEGIN
        PERFORM idem_guard('g6', 'act', 'taken', '00000000-0000-0000-0000-000000000001');
    EXCEPTION WHEN SQLSTATE 'IDM02' THEN NULL;
    END;
    COMMIT;
    INSERT INTO g6_effect VALUES ('procedure, went on');
END $$;
CALL g6_commit();
SELECT * FROM g6_effect;
-- G6 The next transaction is free of it
BEGIN;
INSERT INTO g6_effect VALUES ('next');
COMMIT;

-- G6 Not doomed: idem_release, and calls without a token
CALL g6_try($$SELECT idem_release('g6', 'act', 'taken', '00000000-0000-0000-0000-000000000001')$$);
CALL g6_try($$SELECT idem_complete('g6', 'act', 'settled')$$);
CALL g6_try($$SELECT idem_complete('g6', 'act', 'unknown')$$);
CALL g6_try($$SELECT outcome FROM idem_claim('g6', 'act', 'taken', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000001')$$);
-- nor by bad arguments of the right owner
CALL g6_try($$SELECT idem_renew('g6', 'act', 'taken', '00000000-0000-0000-0000-000000000002', '-1 s')$$);
SELECT * FROM g6_effect;

-- G6 A guard inside a savepoint that is rolled back: verified again at commit
BEGIN;
SAVEPOINT a;
SELECT idem_guard('g6', 'act', 'taken', :t2);
ROLLBACK TO a;
INSERT INTO g6_effect VALUES ('guarded in a savepoint');
COMMIT;
-- G6 Settled and released by this very transaction: nothing to verify
BEGIN;
SELECT idem_guard('g6', 'act', 'taken', :t2);
SELECT idem_release('g6', 'act', 'taken', :t2);
COMMIT;
SELECT outcome, attempt FROM idem_claim('g6', 'act', 'taken', '{}', lease => '1 min', token => :t1);
BEGIN;
SELECT idem_guard('g6', 'act', 'taken', :t1);
SELECT idem_complete('g6', 'act', 'taken', '"done"', token => :t1) IS NOT NULL AS ok;
COMMIT;
SELECT outcome, attempt, result FROM idem_claim('g6', 'act', 'taken', '{}');
SELECT what FROM g6_effect WHERE what = 'guarded in a savepoint';

-- G6 A guard that was superseded: guarded in a savepoint that is rolled back, the lease ends, and the same transaction takes
-- the operation over from itself. The work that was guarded is that of a former owner.
SET pg_idem.test_now = '2030-02-01 00:00:00+00';
SELECT outcome FROM idem_claim('g6', 'act', 'superseded', '{}', lease => '1 min', token => :t1);
BEGIN;
INSERT INTO g6_effect VALUES ('superseded');
SAVEPOINT a;
SELECT idem_guard('g6', 'act', 'superseded', :t1);
ROLLBACK TO a;
SET pg_idem.test_now = '2030-02-01 00:01:00+00';
SELECT outcome, attempt FROM idem_claim('g6', 'act', 'superseded', '{}', lease => '1 min', token => :t2);
COMMIT;
-- G6 settled by the second attempt: all the same
BEGIN;
INSERT INTO g6_effect VALUES ('superseded');
SAVEPOINT a;
SELECT idem_guard('g6', 'act', 'superseded', :t1);
ROLLBACK TO a;
SET pg_idem.test_now = '2030-02-01 00:02:00+00';
SELECT outcome, attempt FROM idem_claim('g6', 'act', 'superseded', '{}', lease => '1 min', token => :t2);
SELECT idem_complete('g6', 'act', 'superseded', token => :t2) IS NOT NULL AS ok;
COMMIT;
-- G6 taken over without a lease
BEGIN;
INSERT INTO g6_effect VALUES ('superseded');
SAVEPOINT a;
SELECT idem_renew('g6', 'act', 'superseded', :t1);
ROLLBACK TO a;
SET pg_idem.test_now = '2030-02-01 00:04:00+00';
SELECT outcome, attempt FROM idem_claim('g6', 'act', 'superseded', '{}');
SELECT idem_complete('g6', 'act', 'superseded') IS NOT NULL AS ok;
COMMIT;
SELECT state, attempt FROM idem_lookup('g6', 'act', 'superseded');
SELECT what FROM g6_effect WHERE what = 'superseded';
-- G6 The takeover itself rolled back as well: still the owner
SET pg_idem.test_now = '2030-02-01 00:05:00+00';
BEGIN;
SAVEPOINT a;
SELECT idem_guard('g6', 'act', 'superseded', :t1);
ROLLBACK TO a;
SELECT outcome, attempt FROM idem_claim('g6', 'act', 'superseded', '{}', lease => '1 min', token => :t2);
ROLLBACK TO a;
SELECT idem_complete('g6', 'act', 'superseded', '"first"', token => :t1) IS NOT NULL AS ok;
COMMIT;
SELECT state, attempt, result FROM idem_lookup('g6', 'act', 'superseded');
RESET pg_idem.test_now;
DROP TABLE g6_effect;
DROP PROCEDURE g6_try, g6_commit;
DELETE FROM idem_policies;
