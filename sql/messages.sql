-- The wording of errors: message, DETAIL, HINT, one of each code.
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\set t1 '''00000000-0000-0000-0000-000000000001'''
\set t2 '''00000000-0000-0000-0000-000000000002'''
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
INSERT INTO idem_policies (action, on_interrupt, key_format, max_outcome_bytes) VALUES ('review', 'review', NULL, NULL), ('uuid', NULL, 'uuidv7', NULL), ('small', NULL, NULL, 1);
CREATE FUNCTION messages_swallow(jsonb) RETURNS jsonb LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_reject('"secret result"');
    RETURN NULL;
EXCEPTION WHEN OTHERS THEN
    RETURN NULL;
END $$;
CREATE FUNCTION messages_void(jsonb) RETURNS void LANGUAGE sql AS '';

-- IDM01
SELECT idem_claim('acct', 'act', 'k', '{}');
-- IDM02
SELECT idem_guard('acct', 'act', 'k', :t1);
BEGIN;
SAVEPOINT s;
SELECT idem_guard('acct', 'act', 'k', :t1);
ROLLBACK TO s;
COMMIT;
-- IDM03
SELECT idem_complete('acct', 'act', 'k');
-- IDM04
BEGIN;
SELECT outcome FROM idem_claim('acct', 'act', 'settled', '{}');
SELECT idem_complete('acct', 'act', 'settled', '"secret result"') IS NOT NULL AS ok;
COMMIT;
SELECT idem_complete('acct', 'act', 'settled');
SELECT idem_guard('acct', 'act', 'settled', :t1);
-- IDM05
SELECT idem_claim('acct', 'act', 'k');
SELECT idem_claim('acct', 'act', 'settled');
-- IDM06
BEGIN;
SELECT outcome FROM idem_claim('acct', 'small', 'k', '{}');
SELECT idem_complete('acct', 'small', 'k', body => 'secret result');
ROLLBACK;
-- IDM07
SELECT idem_claim('acct', 'uuid', 'order 7', '{}');
SELECT idem_claim('acct', 'act', 'k', '{}', issued_at => '2030-01-02');
-- IDM08
SELECT idem_reject('"secret result"');
SELECT idem_run('acct', 'act', 'k', '{}', 'messages_swallow(jsonb)');
-- IDM09
SELECT idem_once('acct', 'act', 'k', '{"secret": 1}');
SELECT idem_once('acct', 'act', 'k', '{"secret": 2}');
-- IDM10
SELECT outcome FROM idem_claim('acct', 'review', 'k', '{}', lease => '1 min', owner => 'secret owner', token => :t1);
SET pg_idem.test_now = '2030-01-01 00:01:00+00';
SELECT idem_guard('acct', 'review', 'k', :t1);
SELECT outcome FROM idem_claim('acct', 'review', 'k', '{}', lease => '1 min');
SELECT idem_guard('acct', 'review', 'k', :t1);
-- IDM12
BEGIN;
SELECT outcome FROM idem_claim('acct', 'act', 'k', '{}');
SELECT outcome FROM idem_claim('acct', 'act', 'k', '{}');
ROLLBACK;

-- 22023
SELECT idem_lookup(NULL, 'act', 'k');
SELECT idem_lookup('acct', '', 'k');
SELECT idem_lookup('acct', 'act', ' ');
SELECT idem_claim('acct', 'act', 'k', '{}', lease => '0');
SELECT idem_claim('acct', 'act', 'k', '{}', lease => '2 hours');
SELECT idem_claim('acct', 'act', 'k', '{}', wait => '-1 s');
SELECT idem_claim('acct', 'act', 'k', '{}', token => :t1);
SELECT idem_claim('acct', 'act', 'k', '{}', session_bound => true);
SELECT idem_claim('acct', 'act', 'k', fingerprint => '');
SELECT idem_renew('acct', 'act', 'k', NULL);
SELECT idem_checkpoint('acct', 'act', 'k', :t1, '');
SELECT idem_fingerprint('{}', '{a}');
SELECT idem_fingerprint(NULL);
SELECT idem_once_batch('acct', 'act', '{k,l}', '{"\\x00"}');
SET pg_idem.account_from = 'x';
-- 22001
SELECT idem_lookup(repeat('a', 256), 'act', 'k');
SELECT idem_lookup('acct', repeat('a', 129), 'k');
SELECT idem_lookup('acct', 'act', repeat('a', 256));
SELECT idem_claim('acct', 'act', 'k', fingerprint => decode(repeat('00', 256), 'hex'));
-- 25006
BEGIN READ ONLY;
SELECT idem_claim('acct', 'act', 'k', '{}');
ROLLBACK;
-- 42501
CREATE ROLE regress_idem_messages;
CREATE SCHEMA messages AUTHORIZATION regress_idem_messages;
REVOKE ALL ON FUNCTION messages_swallow FROM PUBLIC;
GRANT EXECUTE ON FUNCTION idem_run TO regress_idem_messages;
SET ROLE regress_idem_messages;
SELECT idem_run('acct', 'act', 'k', '{}', 'messages_swallow(jsonb)');
RESET ROLE;
SET pg_idem.account_from = 'role';
SET ROLE regress_idem_messages;
SELECT idem_run('acct', 'act', 'k', '{}', 'messages_void(jsonb)');
RESET ROLE;
RESET pg_idem.account_from;
-- 42883
SELECT idem_run('acct', 'act', 'k', '{}', 'messages_void(jsonb)');
SELECT idem_run('acct', 'act', 'k', '{}', 999999::oid::regprocedure);
-- 53200
SET pg_idem.max_claims_per_transaction = 1;
BEGIN;
SELECT outcome FROM idem_claim('acct', 'act', 'k', '{}');
SELECT outcome FROM idem_claim('acct', 'act', 'l', '{}');
ROLLBACK;
RESET pg_idem.max_claims_per_transaction;
-- DETAIL: control characters escaped, the key cut at 64 characters
SELECT idem_complete(E'a\nb', E'\x1b[31m"x"\x7f', repeat('é', 64));
SELECT idem_complete('a', 'b', repeat('é', 65));
-- C1 controls, line and paragraph separators, marks of writing direction
SELECT idem_complete(E'a\u0085', E'b\u2028\u2029', E'k\u009b\u200e\u200f\u202a\u202e\u2066\u2069');
SELECT idem_complete('a', 'b', E'\u2010 is none');
DROP OWNED BY regress_idem_messages;
DROP ROLE regress_idem_messages;
DROP FUNCTION messages_swallow, messages_void;
DELETE FROM idem_policies;
