-- pg_idem.account_from: who may act for which account. Set here by a superuser after loading the library.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE ROLE regress_idem_alice;
CREATE ROLE regress_idem_bob;
CREATE ROLE regress_idem_tenant NOLOGIN;
GRANT regress_idem_tenant TO regress_idem_alice;
GRANT EXECUTE ON FUNCTION idem_claim, idem_complete, idem_fail, idem_release, idem_renew, idem_checkpoint, idem_guard, idem_lookup,
      idem_once, idem_once_batch, idem_run, idem_fingerprint TO regress_idem_alice, regress_idem_bob;
CREATE FUNCTION af_handler(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
-- Every call that takes an account, for that account.
CREATE FUNCTION pg_temp.calls(account text) RETURNS TABLE (call text, answer text) LANGUAGE plpgsql AS $$
BEGIN
    FOR call IN SELECT format(c, account) FROM unnest(ARRAY[
            'idem_claim(%L, ''af'', ''k'', ''{}'', lease => ''1 min'')', 'idem_complete(%L, ''af'', ''k'')', 'idem_fail(%L, ''af'', ''k'')',
            'idem_release(%L, ''af'', ''k'')', 'idem_renew(%L, ''af'', ''k'', ''00000000-0000-0000-0000-000000000001'')',
            'idem_checkpoint(%L, ''af'', ''k'', ''00000000-0000-0000-0000-000000000001'', ''c'')',
            'idem_guard(%L, ''af'', ''k'', ''00000000-0000-0000-0000-000000000001'')', 'idem_lookup(%L, ''af'', ''k'')',
            'idem_once(%L, ''af'', ''k'')', 'idem_once_batch(%L, ''af'', ''{k}'')',
            'idem_run(%L, ''af'', ''k'', ''{}'', ''af_handler(jsonb)'')']) AS c LOOP
        BEGIN
            EXECUTE 'SELECT * FROM ' || call;
            answer := 'permitted';
        EXCEPTION WHEN OTHERS THEN
            -- passed the gate: there is no such claim any more
            answer := CASE WHEN SQLSTATE IN ('IDM02', 'IDM03', 'IDM04') THEN 'permitted' ELSE SQLSTATE END;
        END;
        call := split_part(call, '(', 1);
        RETURN NEXT;
    END LOOP;
END $$;
GRANT EXECUTE ON FUNCTION pg_temp.calls TO PUBLIC;
CREATE FUNCTION pg_temp.gate(account text) RETURNS TABLE (answer text, calls bigint) LANGUAGE sql AS
    $$ SELECT answer, count(*) FROM pg_temp.calls(account) GROUP BY answer ORDER BY answer $$;

-- argument: whoever may call
SHOW pg_idem.account_from;
BEGIN;
SET LOCAL ROLE regress_idem_bob;
SELECT * FROM pg_temp.gate('regress_idem_alice');
ROLLBACK;

-- role: the account is a role that the user is, or is a member of
SET pg_idem.account_from = 'role';
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_idem_alice; SELECT * FROM pg_temp.gate('regress_idem_alice'); ROLLBACK;
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_idem_alice; SELECT * FROM pg_temp.gate('regress_idem_tenant'); ROLLBACK;
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_idem_alice; SELECT * FROM pg_temp.gate('regress_idem_bob'); ROLLBACK;
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_idem_alice; SELECT * FROM pg_temp.gate('no such role'); ROLLBACK;
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_idem_bob; SELECT * FROM pg_temp.gate('regress_idem_tenant'); ROLLBACK;
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_idem_bob; SELECT * FROM pg_temp.gate('public'); ROLLBACK;
-- SET ROLE to a role of its own narrows it
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_idem_alice; SET LOCAL ROLE regress_idem_tenant; SELECT outcome FROM idem_claim('regress_idem_alice', 'af', 'k', '{}'); ROLLBACK;
-- A SECURITY DEFINER wrapper keeps the outer user
CREATE FUNCTION af_wrapper(account text) RETURNS text LANGUAGE plpgsql SECURITY DEFINER AS $$
DECLARE c idem_claim_result;
BEGIN
    SELECT * INTO c FROM idem_claim(account, 'af', 'wrapped', '{}');
    PERFORM idem_release(account, 'af', 'wrapped');
    RETURN c.outcome;
EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE;
END $$;
BEGIN; SET LOCAL SESSION AUTHORIZATION regress_idem_bob; SELECT af_wrapper('regress_idem_bob'), af_wrapper('regress_idem_alice'); ROLLBACK;
BEGIN; SET LOCAL ROLE regress_idem_alice; SELECT af_wrapper('regress_idem_alice'), af_wrapper('regress_idem_tenant'), af_wrapper('regress_idem_bob'); ROLLBACK;
-- A refusal leaves nothing behind and tells nothing
SELECT count(*) FROM idempotent_operations WHERE action = 'af';

-- setting: the account must equal it
SET pg_idem.account_from = 'setting:af.tenant';
SELECT * FROM pg_temp.gate('t1');
SET af.tenant = 't1';
BEGIN; SELECT * FROM pg_temp.gate('t1'); ROLLBACK;
SELECT * FROM pg_temp.gate('T1');
SELECT * FROM pg_temp.gate('t2');
SET af.tenant = '';
SELECT * FROM pg_temp.gate('t1');
BEGIN; SET LOCAL af.tenant = 't3'; SELECT * FROM pg_temp.gate('t3'); ROLLBACK;
SELECT * FROM pg_temp.gate('t3');
-- a superuser is not exempt
BEGIN; SET LOCAL af.tenant = 't1'; SET LOCAL ROLE regress_idem_bob; SELECT * FROM pg_temp.gate('t1'); ROLLBACK;

-- setting with a JSON Pointer, as into the claims of a token
SET pg_idem.account_from = 'setting:request.jwt.claims#/app/tenant';
SELECT * FROM pg_temp.gate('t1');
SET request.jwt.claims = '{"app": {"tenant": "t1", "number": 7, "null": null, "list": ["t1"]}, "a/b": {"~": "t4"}}';
BEGIN; SELECT * FROM pg_temp.gate('t1'); ROLLBACK;
SELECT * FROM pg_temp.gate('t2');
SET pg_idem.account_from = 'setting:request.jwt.claims#/app/list/0';
BEGIN; SELECT * FROM pg_temp.gate('t1'); ROLLBACK;
SET pg_idem.account_from = 'setting:request.jwt.claims#/a~1b/~0';
BEGIN; SELECT * FROM pg_temp.gate('t4'); ROLLBACK;
-- what is not a string is no account; nor is what is not there
SET pg_idem.account_from = 'setting:request.jwt.claims#/app/null';
SELECT * FROM pg_temp.gate('null');
SET pg_idem.account_from = 'setting:request.jwt.claims#/app';
SELECT * FROM pg_temp.gate('t1');
SET pg_idem.account_from = 'setting:request.jwt.claims#/app/nothing';
SELECT * FROM pg_temp.gate('t1');
-- nor is anything in what is not JSON
SET pg_idem.account_from = 'setting:request.jwt.claims#/app/tenant';
SET request.jwt.claims = 'not json';
SELECT * FROM pg_temp.gate('t1');
SET request.jwt.claims = '';
SELECT * FROM pg_temp.gate('t1');
RESET request.jwt.claims;
-- Bad values of the setting
SET pg_idem.account_from = 'anybody';
SET pg_idem.account_from = '';
SET pg_idem.account_from = 'setting:';
SET pg_idem.account_from = 'setting:x.y#no pointer';
-- It is the superuser's
RESET pg_idem.account_from;
BEGIN; SET LOCAL ROLE regress_idem_bob; SET pg_idem.account_from = 'argument'; ROLLBACK;

-- Without the preload, a value that the session has given before the library is loaded closes every call
\c -
\set VERBOSITY sqlstate
SET client_min_messages = error;
SET pg_idem.account_from = 'argument';
\t on
SELECT CASE WHEN current_setting('shared_preload_libraries') ~ 'pg_idem' THEN 'preloaded' ELSE 'not preloaded' END AS how \gset
CREATE FUNCTION pg_temp.answer() RETURNS text LANGUAGE plpgsql AS $$ BEGIN
    PERFORM FROM idem_lookup('af', 'af', 'k');
    RETURN 'permitted';
EXCEPTION WHEN OTHERS THEN RETURN SQLSTATE; END $$;
SELECT pg_temp.answer() = CASE :'how' WHEN 'preloaded' THEN 'permitted' ELSE '42501' END AS as_documented;
\t off
\c -
\set VERBOSITY sqlstate
SET client_min_messages = warning;
SELECT count(*) FROM idem_lookup('af', 'af', 'k');
DROP OWNED BY regress_idem_alice, regress_idem_bob, regress_idem_tenant;
DROP ROLE regress_idem_alice, regress_idem_bob, regress_idem_tenant;
DROP FUNCTION af_handler, af_wrapper;
