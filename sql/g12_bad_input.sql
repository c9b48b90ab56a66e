-- G12 Bad input gets an error of its own SQLSTATE, and leaves nothing behind.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
CREATE FUNCTION pg_temp.sqlstate_of(call text) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    EXECUTE 'SELECT * FROM ' || call;
    RETURN 'accepted';
EXCEPTION WHEN OTHERS THEN
    RETURN SQLSTATE;
END $$;
CREATE FUNCTION g12_handler(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
-- What takes an identity, with valid other arguments.
CREATE TEMP TABLE entry (n serial, call text);
INSERT INTO entry (call) VALUES
    ('idem_claim(%s, ''{}'')'), ('idem_claim(%s, ''{}'', lease => ''1 min'')'), ('idem_complete(%s)'), ('idem_fail(%s)'), ('idem_release(%s)'),
    ('idem_renew(%s, ''00000000-0000-0000-0000-000000000001'')'), ('idem_checkpoint(%s, ''00000000-0000-0000-0000-000000000001'', ''c'')'),
    ('idem_guard(%s, ''00000000-0000-0000-0000-000000000001'')'), ('idem_lookup(%s)'), ('idem_once(%s)'),
    ('idem_run(%s, ''{}'', ''g12_handler(jsonb)'')');
INSERT INTO entry (call) VALUES ('idem_once_batch(%s)');
CREATE TEMP TABLE part (n serial, what text, account text, action text, key text);
INSERT INTO part (what, account, action, key) VALUES
    ('account null', NULL, 'b', 'c'), ('action null', 'a', NULL, 'c'), ('key null', 'a', 'b', NULL),
    ('account empty', '', 'b', 'c'), ('action empty', 'a', '', 'c'), ('key empty', 'a', 'b', ''),
    ('account blank', '  ', 'b', 'c'), ('action blank', 'a', E'\t\r\n\x0b\f', 'c'), ('key blank', 'a', 'b', E'\u00a0\u1680\u2003\u2028\u202f\u205f\u3000\u0085'),
    ('key zero width', 'a', 'b', E'\u200b\u200c\u200d\u2060\ufeff'), ('key control', 'a', 'b', E'\x01\x1f\x7f'),
    ('account 256', repeat('a', 256), 'b', 'c'), ('action 129', 'a', repeat('b', 129), 'c'), ('key 256', 'a', 'b', repeat('c', 256)),
    ('account 2*128', repeat('é', 128), 'b', 'c'), ('action 2*65', 'a', repeat('é', 65), 'c'), ('key 4*64', 'a', 'b', repeat('😀', 64)),
    ('key 1 MB', 'a', 'b', repeat('c', 1000000)), ('key 1 MB blank', 'a', 'b', repeat(' ', 1000000));
-- G12 Identity parts: what is not answered by 22023 (nothing there) or 22001 (too long), on any entry point
BEGIN;
WITH answer AS (
    SELECT p.n, p.what, split_part(e.call, '(', 1) AS function,
           pg_temp.sqlstate_of(format(e.call, CASE WHEN e.call ~ 'batch' THEN format('%L, %L, ARRAY[%L, %L]', p.account, p.action, 'good', p.key)
                                              ELSE format('%L, %L, %L', p.account, p.action, p.key) END)) AS got
      FROM part p, entry e)
SELECT what, string_agg(DISTINCT got, ' ') AS sqlstates, count(*) FROM answer GROUP BY n, what ORDER BY n;
-- G12 Exactly the limits are accepted
SELECT pg_temp.sqlstate_of(format($$idem_claim('g12', 'act', 'owner %s', '{}', lease => '1 min', owner => %L)$$, length(o), o)) FROM (VALUES (repeat('x', 255)), (repeat('é', 127) || 'x')) AS v (o);
SELECT pg_temp.sqlstate_of(format('idem_claim(%L, %L, %L, ''{}'', lease => ''1 min'')', a, b, c)) FROM (VALUES
    (repeat('a', 255), repeat('b', 128), repeat('c', 255)),
    (repeat('é', 127) || 'a', repeat('é', 64), repeat('😀', 63) || 'abc'),
    ('a', 'b', E'\u200bx'), ('0', '*', '-'), (' a', 'b ', ' c ')) AS v (a, b, c);
ROLLBACK;

-- G12 Other arguments
SELECT outcome FROM idem_claim('g12', 'act', 'mine', '{}', lease => '1 min', token => '00000000-0000-0000-0000-000000000001');
SELECT call, pg_temp.sqlstate_of(call) FROM unnest(ARRAY[
    $$idem_claim('g12', 'act', 'k', '{}', lease => '0')$$,
    $$idem_claim('g12', 'act', 'k', '{}', lease => '-1 s')$$,
    $$idem_claim('g12', 'act', 'k', '{}', lease => '1 day -25 hours')$$,
    $$idem_claim('g12', 'act', 'k', '{}', lease => '1 hour 1 us')$$,
    $$idem_claim('g12', 'act', 'k', '{}', lease => '178000000 years')$$,
    $$idem_claim('g12', 'act', 'k', '{}', wait => '-1 us')$$,
    $$idem_claim('g12', 'act', 'k', '{}', token => '00000000-0000-0000-0000-000000000001')$$,
    $$idem_claim('g12', 'act', 'k', '{}', session_bound => true)$$,
    $$idem_claim('g12', 'act', 'k', '{}', lease => '1 min', owner => repeat('x', 256))$$,
    $$idem_claim('g12', 'act', 'k', '{}', lease => '1 min', owner => repeat('é', 128))$$,
    $$idem_claim('g12', 'act', 'k', '{}', owner => repeat('x', 256))$$,
    $$idem_claim('g12', 'act', 'k', '{}', lease => '1 min', owner => '')$$,
    $$idem_claim('g12', 'act', 'k', '{}', lease => '1 min', owner => E' \t\u3000')$$,
    $$idem_claim('g12', 'act', 'k', fingerprint => '')$$,
    $$idem_claim('g12', 'act', 'k', fingerprint => decode(repeat('00', 256), 'hex'))$$,
    $$idem_claim('g12', 'act', 'k')$$,
    $$idem_claim('g12', 'act', 'k', '{}', issued_at => '2100-01-01')$$,
    $$idem_claim('g12', 'act', 'k', '{}', issued_at => 'infinity')$$,
    $$idem_renew('g12', 'act', 'mine', NULL)$$,
    $$idem_renew('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001', '0')$$,
    $$idem_renew('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001', '-1 s')$$,
    $$idem_renew('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001', '2 hours')$$,
    $$idem_checkpoint('g12', 'act', 'mine', NULL, 'c')$$,
    $$idem_checkpoint('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001', NULL)$$,
    $$idem_checkpoint('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001', '')$$,
    $$idem_checkpoint('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001', 'c', lease => '0')$$,
    $$idem_guard('g12', 'act', 'mine', NULL)$$,
    $$idem_release('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001', '-1 s')$$,
    $$idem_run('g12', 'act', 'k', '{}', 'g12_handler(jsonb)', wait => '-1 s')$$,
    $$idem_run('g12', 'act', 'k', '{}', 'g12_handler(jsonb)', issued_at => '2100-01-01')$$,
    $$idem_run('g12', 'act', 'k', NULL, 'g12_handler(jsonb)')$$,
    $$idem_fingerprint('{}', '{no pointer}')$$,
    $$idem_reject('{}')$$
  ]) AS call;
-- G12 Nothing of it is left, and what was there is as it was
SELECT key, state, attempt, checkpoint, lease_expires_at FROM idempotent_operations WHERE account IN ('a', 'g12') ORDER BY key;
SELECT count(*) FROM idem_seen WHERE account IN ('a', 'g12');
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();

-- G12 In a read-only transaction
BEGIN READ ONLY;
SAVEPOINT s;
SELECT outcome FROM idem_claim('g12', 'act', 'k', '{}');
ROLLBACK TO s;
SELECT outcome FROM idem_claim('g12', 'act', 'k', '{}', lease => '1 min');
ROLLBACK TO s;
SELECT idem_once('g12', 'act', 'k');
ROLLBACK TO s;
SELECT * FROM idem_once_batch('g12', 'act', '{k}');
ROLLBACK TO s;
SELECT outcome FROM idem_run('g12', 'act', 'k', '{}', 'g12_handler(jsonb)');
ROLLBACK TO s;
SELECT idem_renew('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001');
ROLLBACK TO s;
SELECT idem_checkpoint('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001', 'c');
ROLLBACK TO s;
SELECT idem_complete('g12', 'act', 'mine', token => '00000000-0000-0000-0000-000000000001');
ROLLBACK TO s;
SELECT idem_fail('g12', 'act', 'mine', token => '00000000-0000-0000-0000-000000000001');
ROLLBACK TO s;
SELECT idem_release('g12', 'act', 'mine', '00000000-0000-0000-0000-000000000001');
ROLLBACK TO s;
SELECT state FROM idem_lookup('g12', 'act', 'mine');
ROLLBACK;
SELECT state, attempt FROM idem_lookup('g12', 'act', 'mine');

-- G12 Too many claims in one transaction
SET pg_idem.max_claims_per_transaction = 3;
BEGIN;
SELECT n, outcome FROM generate_series(1, 3) AS n, idem_claim('g12', 'many', 'k' || n, '{}');
SAVEPOINT s;
SELECT outcome FROM idem_claim('g12', 'many', 'k4', '{}');
ROLLBACK TO s;
SELECT n, idem_complete('g12', 'many', 'k' || n) IS NOT NULL AS ok FROM generate_series(1, 3) AS n;
COMMIT;
BEGIN;
SELECT outcome FROM idem_claim('g12', 'many', 'k5', '{}');
ROLLBACK;
RESET pg_idem.max_claims_per_transaction;
-- G12 A duplicate key is never 23505 in the caller's transaction
SELECT outcome FROM generate_series(1, 2) AS n, idem_claim('g12', 'many', CASE WHEN n > 0 THEN 'k1' END, '{}', owner => 'n' || n);
SELECT idem_once('g12', 'many', 'k1'), idem_once('g12', 'many', 'k1');

RESET pg_idem.test_now;
DROP FUNCTION g12_handler;
