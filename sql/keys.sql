-- Keys are bytes: what differs in case, white space, Unicode form or position is another operation.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE TEMP TABLE identity (n serial, account text, action text, key text);
INSERT INTO identity (account, action, key) VALUES
    ('keys', 'a', 'k'), ('keys', 'a', 'K'), ('keys', 'a', 'k '), ('keys', 'a', ' k'), ('keys', 'a', E'k\n'), ('keys', 'a', E'k\t'),
    ('keys', 'a', E'k\x01'), ('keys', 'a', 'ｋ'), ('keys', 'a', E'k\u200b'), ('keys', 'a', E'\u212a'), ('keys', 'a', E'\ufeffk'),
    ('keys', 'a', E'\u00e9'), ('keys', 'a', E'e\u0301'), ('keys', 'a', 'ß'), ('keys', 'a', 'ss'), ('keys', 'a', 'ﬁ'), ('keys', 'a', 'fi'),
    ('keys', 'a', 'İ'), ('keys', 'a', 'I'), ('keys', 'a', 'ı'), ('keys', 'a', 'i'), ('keys', 'a', '😀'), ('keys', 'a', '😁'),
    ('keys', 'a', ''''), ('keys', 'a', '"'), ('keys', 'a', '\'), ('keys', 'a', '%s%n%'), ('keys', 'a', '{k}'), ('keys', 'a', '(,)'),
    ('keys', 'a', 'NULL'), ('keys', 'a', '0'), ('keys', 'a', '00'), ('keys', 'a', '1'), ('keys', 'a', '1.0'), ('keys', 'a', 'العربية'),
    ('keys', 'a', '鍵'), ('keys', 'a', repeat('k', 254)), ('keys', 'a', repeat('k', 255)), ('keys', 'a', repeat('é', 127)),
    ('keys', 'ab', 'c'), ('keys', 'abc', 'k'), ('keysa', 'b', 'c'), ('key', 'sab', 'c'), ('keys', 'a', 'bc'), ('keysa', 'a', 'k'),
    ('k', 'a', 'keys'), ('a', 'keys', 'k'), ('keys ', 'a', 'k'), ('keys', 'a ', 'k'), (repeat('k', 255), repeat('a', 128), repeat('k', 255));
-- Each is claimed, and completed with its own number
BEGIN;
SELECT c.outcome, count(*) FROM identity x, idem_claim(x.account, x.action, x.key, to_jsonb(x.n)) AS c GROUP BY c.outcome;
SELECT count(idem_complete(account, action, key, to_jsonb(n))) FROM identity;
COMMIT;
-- and is replayed with it, and looked up
SELECT count(*), bool_and(c.outcome = 'completed' AND c.result = to_jsonb(x.n)) AS own FROM identity x, idem_claim(x.account, x.action, x.key, to_jsonb(x.n)) AS c;
SELECT count(*), bool_and(l.state = 'completed' AND l.result = to_jsonb(x.n) AND (l.account, l.action, l.key) = (x.account, x.action, x.key)) AS own
  FROM identity x, idem_lookup(x.account, x.action, x.key) AS l;
-- As messages too
SELECT count(*), bool_and(verdict = 'first') AS first FROM idem_once_batch('keys', 'once', ARRAY(SELECT key FROM identity WHERE account = 'keys' AND action = 'a'));
SELECT count(*) FROM identity x WHERE account = 'keys' AND action = 'a' AND idem_once('keys', 'once', x.key);
-- and with a lease
SELECT c.outcome, count(*) FROM identity x, idem_claim(x.account, left(x.action, 120) || ' lease', x.key, '{}', lease => '1 min', token => lpad(x.n::text, 32, '0')::uuid) AS c GROUP BY c.outcome;
SELECT count(idem_complete(account, left(action, 120) || ' lease', key, to_jsonb(n), token => lpad(n::text, 32, '0')::uuid)) FROM identity;
SELECT count(*), bool_and(c.result = to_jsonb(x.n)) AS own FROM identity x, idem_claim(x.account, left(x.action, 120) || ' lease', x.key, '{}') AS c;

-- Arguments of type name, varchar and char are text
BEGIN;
SELECT outcome FROM idem_claim('keys'::name, 'types'::varchar(10), 'k'::char(3), '{}');
SELECT outcome FROM idem_claim('keys', 'types', 'k', '{}');
ROLLBACK;
-- A key that is stored out of line or compressed is the same key
CREATE TEMP TABLE toasted (k text);
ALTER TABLE toasted ALTER k SET STORAGE EXTERNAL;
INSERT INTO toasted SELECT repeat('k', 255);
SELECT c.outcome FROM toasted t, idem_claim('keys', 'a', t.k, (SELECT to_jsonb(n) FROM identity WHERE account = 'keys' AND action = 'a' AND key = repeat('k', 255))) AS c;
-- Requests, results and bodies that are: read from a table, and kept when the row goes
CREATE TEMP TABLE large (r jsonb, b text, bytes bytea);
ALTER TABLE large ALTER b SET STORAGE EXTERNAL, ALTER bytes SET STORAGE EXTERNAL;
INSERT INTO large SELECT jsonb_agg(n), string_agg(n::text, ' '), string_agg(n::text::bytea, ' ') FROM generate_series(1, 20000) AS n;
BEGIN;
SELECT c.outcome FROM large, idem_claim('keys', 'large', 'k', large.r) AS c;
SELECT idem_complete('keys', 'large', 'k', r, NULL, b, bytes) IS NOT NULL AS ok FROM large;
COMMIT;
TRUNCATE large;
SELECT outcome, jsonb_array_length(result), length(body), length(body_bytes) FROM idem_claim('keys', 'large', 'k', (SELECT jsonb_agg(n) FROM generate_series(1, 20000) AS n));
