-- G3 Outcomes are immutable: every replay gives the same status, result and, byte for byte, body.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE FUNCTION pg_temp.settle(key text, status int, result jsonb, body text, bytes bytea) RETURNS void LANGUAGE plpgsql AS $$
BEGIN
    PERFORM FROM idem_claim('g3', 'reply', settle.key, '{}');
    PERFORM idem_complete('g3', 'reply', settle.key, settle.result, settle.status, settle.body, settle.bytes);
END $$;
CREATE TEMP TABLE reply (key text, status int, result jsonb, body text, bytes bytea);
INSERT INTO reply VALUES
    ('nothing',       NULL,        NULL,       NULL,                       NULL),
    ('json null',     200,         'null',     NULL,                       NULL),
    ('empty',         0,           '{}',       '',                         ''),
    ('white space',   200,         '" "',      E'  {"b":1,\t"a":2}\r\n ',  E'\\x20'),
    ('unicode',       2147483647,  '"ü€😀"',   E'e\u0301 is not é, 😀',    'Ã¼'),
    ('zero bytes',    -2147483648, '[1.10]',   E'\x01\x7f',                '\x0001ff00');
INSERT INTO reply
    SELECT 'every byte', 200, NULL, NULL, string_agg(decode(lpad(to_hex(n), 2, '0'), 'hex'), '' ORDER BY n)
      FROM generate_series(0, 255) AS n;
INSERT INTO reply
    SELECT 'large', 200, jsonb_build_object('a', repeat('x', 100000)), repeat('é', 100000),
           (SELECT string_agg(sha256(n::text::bytea), '') FROM generate_series(1, 10000) AS n);
SELECT count(pg_temp.settle(key, status, result, body, bytes)) FROM reply;

-- G3 Replayed as given
SELECT x.key, c.outcome, c.replayed, c.status IS NOT DISTINCT FROM x.status AS status,
       c.result IS NOT DISTINCT FROM x.result AS result, c.body COLLATE "C" IS NOT DISTINCT FROM x.body AS body,
       c.body_bytes IS NOT DISTINCT FROM x.bytes AS body_bytes
  FROM reply x, idem_claim('g3', 'reply', x.key, '{}') AS c ORDER BY x.key COLLATE "C";
-- G3 An SQL NULL is not a JSON null
SELECT result IS NULL AS sql_null FROM idem_claim('g3', 'reply', 'nothing', '{}');
SELECT result FROM idem_claim('g3', 'reply', 'json null', '{}');
-- G3 The numbers of a result keep their digits
SELECT result FROM idem_claim('g3', 'reply', 'zero bytes', '{}');

-- G3 idem_lookup tells the same
SELECT x.key, l.state, l.status IS NOT DISTINCT FROM x.status AS status, l.result IS NOT DISTINCT FROM x.result AS result,
       l.body COLLATE "C" IS NOT DISTINCT FROM x.body AS body, l.body_bytes IS NOT DISTINCT FROM x.bytes AS body_bytes
  FROM reply x, idem_lookup('g3', 'reply', x.key) AS l ORDER BY x.key COLLATE "C";

-- G3 Later attempts, of any kind, change nothing
SELECT settled_at, expires_at FROM idem_claim('g3', 'reply', 'empty', '{}') \gset first_
SELECT outcome, settled_at = :'first_settled_at' AS settled_at, expires_at = :'first_expires_at' AS expires_at
  FROM idem_claim('g3', 'reply', 'empty', '{}', lease => '1 min', token => '00000000-0000-0000-0000-00000000000a');
SELECT outcome, settled_at = :'first_settled_at' AS settled_at, expires_at = :'first_expires_at' AS expires_at
  FROM idem_claim('g3', 'reply', 'empty', '{}', wait => '5 s', session_bound => false);
-- G3 nor does a policy that is set afterwards
INSERT INTO idem_policies (action, retention, remember, max_outcome_bytes) VALUES ('reply', '1 min', '1 min', 1);
SELECT outcome, settled_at = :'first_settled_at' AS settled_at, expires_at = :'first_expires_at' AS expires_at, status, result, body
  FROM idem_claim('g3', 'reply', 'empty', '{}');
DELETE FROM idem_policies WHERE action = 'reply';

-- G3 The time of settling and of expiry are those of the call that settled
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
BEGIN;
SELECT outcome FROM idem_claim('g3', 'time', 'k', '{}');
SET pg_idem.test_now = '2030-01-01 00:00:10+00';
SELECT idem_complete('g3', 'time', 'k');
SET pg_idem.test_now = '2030-01-01 00:00:20+00';
COMMIT;
SET pg_idem.test_now = '2030-01-01 00:01:00+00';
SELECT outcome, settled_at, expires_at FROM idem_claim('g3', 'time', 'k', '{}');
SELECT state, settled_at, expires_at, forget_at, state_since FROM idem_lookup('g3', 'time', 'k');
RESET pg_idem.test_now;

-- Outcome limit: result, body and body_bytes together
INSERT INTO idem_policies (action, max_outcome_bytes) VALUES ('small', 100);
BEGIN;
SELECT outcome FROM idem_claim('g3', 'small', 'k', '{}');
SAVEPOINT s;
SELECT idem_complete('g3', 'small', 'k', body => repeat('x', 101));
ROLLBACK TO s;
SELECT idem_complete('g3', 'small', 'k', body_bytes => decode(repeat('00', 101), 'hex'));
ROLLBACK TO s;
SELECT idem_complete('g3', 'small', 'k', body => repeat('x', 50), body_bytes => decode(repeat('00', 51), 'hex'));
ROLLBACK TO s;
SELECT idem_fail('g3', 'small', 'k', body => repeat('é', 51));
ROLLBACK TO s;
SELECT idem_complete('g3', 'small', 'k', to_jsonb(repeat('x', 120)));
ROLLBACK TO s;
SELECT idem_complete('g3', 'small', 'k', to_jsonb(repeat('x', 50)), body => repeat('x', 50));
ROLLBACK TO s;
-- Exactly the limit, after all these failures
SELECT idem_complete('g3', 'small', 'k', body => repeat('x', 50), body_bytes => decode(repeat('00', 50), 'hex')) IS NOT NULL AS ok;
COMMIT;
SELECT outcome, length(body), length(body_bytes) FROM idem_claim('g3', 'small', 'k', '{}');
-- It is the size given that counts, not that after compression
BEGIN;
SELECT outcome FROM idem_claim('g3', 'reply', 'too large', '{}');
SELECT idem_complete('g3', 'reply', 'too large', body => repeat('x', 1048577));
ROLLBACK;
BEGIN;
SELECT outcome FROM idem_claim('g3', 'reply', 'just right', '{}');
SELECT idem_complete('g3', 'reply', 'just right', body => repeat('x', 1048576)) IS NOT NULL AS ok;
COMMIT;
SELECT outcome, body = repeat('x', 1048576) AS body FROM idem_claim('g3', 'reply', 'just right', '{}');
-- Progress has the same limit
SELECT outcome FROM idem_claim('g3', 'small', 'lease', '{}', lease => '1 min', token => '00000000-0000-0000-0000-00000000000b');
SELECT idem_checkpoint('g3', 'small', 'lease', '00000000-0000-0000-0000-00000000000b', 'one', to_jsonb(repeat('x', 120)));
SELECT idem_checkpoint('g3', 'small', 'lease', '00000000-0000-0000-0000-00000000000b', 'one', to_jsonb(repeat('x', 20))) IS NOT NULL AS ok;
-- together with the name of the checkpoint
SELECT idem_checkpoint('g3', 'small', 'lease', '00000000-0000-0000-0000-00000000000b', repeat('x', 101));
SELECT idem_checkpoint('g3', 'small', 'lease', '00000000-0000-0000-0000-00000000000b', repeat('x', 70), to_jsonb(repeat('x', 40)));
SELECT idem_checkpoint('g3', 'small', 'lease', '00000000-0000-0000-0000-00000000000b', repeat('x', 100)) IS NOT NULL AS ok;
SELECT length(checkpoint), progress FROM idem_lookup('g3', 'small', 'lease');
DELETE FROM idem_policies WHERE action = 'small';
