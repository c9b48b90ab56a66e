-- G10 idem_once at the consumer: the first time true, duplicates false, for single messages and for batches.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
CREATE TABLE once_effect (what text);

-- G10 First, duplicate
SELECT idem_once('once', 'mail', 'm1');
SELECT idem_once('once', 'mail', 'm1');
SELECT idem_once('once', 'mail', 'm1'), idem_once('once', 'mail', 'm2'), idem_once('once', 'mail', 'm2');
-- G10 Another account or action is another message
SELECT idem_once('other', 'mail', 'm1'), idem_once('once', 'other', 'm1'), idem_once('once', 'mail', 'M1');
-- G10 Recorded with the transaction
BEGIN;
SELECT idem_once('once', 'mail', 'm3');
INSERT INTO once_effect VALUES ('m3');
SELECT idem_once('once', 'mail', 'm3');
ROLLBACK;
SELECT idem_once('once', 'mail', 'm3');
BEGIN;
SAVEPOINT s;
SELECT idem_once('once', 'mail', 'm4');
ROLLBACK TO s;
SELECT idem_once('once', 'mail', 'm4');
SAVEPOINT s;
SELECT idem_once('once', 'mail', 'm4');
ROLLBACK TO s;
SELECT idem_once('once', 'mail', 'm4');
COMMIT;
SELECT idem_once('once', 'mail', 'm4');
-- G10 At REPEATABLE READ and SERIALIZABLE
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT idem_once('once', 'mail', 'm1'), idem_once('once', 'mail', 'rr'), idem_once('once', 'mail', 'rr');
COMMIT;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT idem_once('once', 'mail', 'm1'), idem_once('once', 'mail', 'ser'), idem_once('once', 'mail', 'ser');
COMMIT;

-- G4 Other inputs raise, also after the error, in the same transaction and in a savepoint
SELECT idem_once('once', 'mail', 'f1', '{"a": 1, "b": 2}');
SELECT idem_once('once', 'mail', 'f1', '{"b": 2.0, "a": 1}');
SELECT idem_once('once', 'mail', 'f1', '{"a": 2}');
SELECT idem_once('once', 'mail', 'f1', fingerprint => '\x01');
SELECT idem_once('once', 'mail', 'f1', '{"a": 1, "b": 2}', '\x01');
BEGIN;
SELECT idem_once('once', 'mail', 'f2', '{}');
SAVEPOINT s;
SELECT idem_once('once', 'mail', 'f2', '{"a": 2}');
ROLLBACK TO s;
SELECT idem_once('once', 'mail', 'f2', '{}');
COMMIT;
-- G4 none given against one stored; one given against none stored
SELECT idem_once('once', 'mail', 'f1');
SELECT idem_once('once', 'mail', 'm1', '{"any": 1}');
SELECT idem_once('once', 'mail', 'f3', fingerprint => '');
SELECT idem_once('once', 'mail', 'f3', fingerprint => decode(repeat('00', 256), 'hex'));

-- G10 A space of its own: an operation of the same name knows nothing of it
BEGIN;
SELECT outcome FROM idem_claim('once', 'mail', 'm1', '{}');
SELECT idem_complete('once', 'mail', 'm1') IS NOT NULL AS ok;
COMMIT;
SELECT count(*) FROM idem_lookup('once', 'mail', 'm2');
SELECT idem_once('once', 'mail', 'm1');

-- G10 Known until once_retention is over, to the microsecond
SET pg_idem.test_now = '2030-01-07 23:59:59.999999+00';
SELECT idem_once('once', 'mail', 'm1');
SELECT idem_once('once', 'mail', 'f1', '{"a": 2}');
SET pg_idem.test_now = '2030-01-08 00:00:00+00';
SELECT idem_once('once', 'mail', 'm1');
SELECT idem_once('once', 'mail', 'm1');
SELECT idem_once('once', 'mail', 'f1', '{"a": 2}');
SELECT idem_once('once', 'mail', 'f1', '{"a": 2}');
SELECT idem_once('once', 'mail', 'f1', '{"a": 1, "b": 2}');
-- G10 a forgotten one taken again and rolled back
BEGIN;
SELECT idem_once('once', 'mail', 'm2');
ROLLBACK;
SELECT idem_once('once', 'mail', 'm2');
SELECT idem_once('once', 'mail', 'm2');
INSERT INTO idem_policies (action, once_retention) VALUES ('mail', '1 min');
SELECT idem_once('once', 'mail', 'short');
SET pg_idem.test_now = '2030-01-08 00:01:00+00';
SELECT idem_once('once', 'mail', 'short');
DELETE FROM idem_policies;

-- G10 In an UPDATE: in a MATERIALIZED query of its own
CREATE TEMP TABLE stock (id int, n int);
INSERT INTO stock VALUES (1, 10);
WITH o AS MATERIALIZED (SELECT idem_once('once', 'stock', 's1') AS first) UPDATE stock SET n = n - 1 FROM o WHERE o.first;
WITH o AS MATERIALIZED (SELECT idem_once('once', 'stock', 's1') AS first) UPDATE stock SET n = n - 1 FROM o WHERE o.first;
SELECT * FROM stock;

-- Batch: one row for each distinct key, in order of first appearance
SELECT * FROM idem_once_batch('once', 'batch', '{c,a,b,a,c}');
SELECT * FROM idem_once_batch('once', 'batch', '{d,b,a,e}');
SELECT * FROM idem_once_batch('once', 'batch', '{}');
SELECT idem_once('once', 'batch', 'a'), idem_once('once', 'batch', 'z');
SELECT * FROM idem_once_batch('once', 'batch', '{z}');
-- Batch: fingerprints; one bad message spoils nothing
SELECT * FROM idem_once_batch('once', 'batch', '{f1,f2,f3}', '{"\\x01","\\x02",NULL}');
SELECT * FROM idem_once_batch('once', 'batch', '{f1,f2,f3,f4}', '{"\\x01","\\x03","\\x04","\\x05"}');
SELECT * FROM idem_once_batch('once', 'batch', '{f1,f4,f5}');
SELECT * FROM idem_once_batch('once', 'batch', '{f1,f5}', NULL);
-- Batch: the same key twice: with the same fingerprint, with two
SELECT * FROM idem_once_batch('once', 'batch', '{g1,g1,g2,g3,g2}', '{"\\x01","\\x01","\\x01","\\x02","\\x02"}');
SELECT * FROM idem_once_batch('once', 'batch', '{g2}', '{"\\x01"}');
SELECT * FROM idem_once_batch('once', 'batch', '{g1,g2,g3}', '{"\\x01","\\x01","\\x02"}');
-- Batch: one and the other agree
SELECT idem_once('once', 'batch', 'g1', fingerprint => '\x01'), idem_once('once', 'batch', 'f1', fingerprint => '\x01');
-- Batch: bad input, of which nothing is recorded
SELECT * FROM idem_once_batch('once', 'batch', '{h1,NULL}');
SELECT * FROM idem_once_batch('once', 'batch', '{h1,""}');
SELECT * FROM idem_once_batch('once', 'batch', '{h1," "}');
SELECT * FROM idem_once_batch('once', 'batch', ARRAY['h1', repeat('x', 256)]);
SELECT * FROM idem_once_batch('once', 'batch', '{h1,h2}', '{"\\x01"}');
SELECT * FROM idem_once_batch('once', 'batch', '{h1}', '{"\\x01","\\x02"}');
SELECT * FROM idem_once_batch('once', 'batch', '{h1}', '{""}');
SELECT * FROM idem_once_batch('once', 'batch', NULL);
SELECT * FROM idem_once_batch('once', 'batch', '{h1}');
-- Batch: large, with duplicates, at every level
SELECT verdict, count(*) FROM idem_once_batch('once', 'large', ARRAY(SELECT 'k' || n % 20000 FROM generate_series(1, 30000) AS n)) GROUP BY verdict;
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT verdict, count(*) FROM idem_once_batch('once', 'large', ARRAY(SELECT 'k' || n FROM generate_series(19000, 21000) AS n)) GROUP BY verdict ORDER BY verdict;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
ROLLBACK;
SELECT verdict, count(*) FROM idem_once_batch('once', 'large', ARRAY(SELECT 'k' || n FROM generate_series(19000, 21000) AS n)) GROUP BY verdict ORDER BY verdict;
-- Batch: rolled back
BEGIN;
SELECT * FROM idem_once_batch('once', 'batch', '{i1,i2}');
ROLLBACK;
SELECT * FROM idem_once_batch('once', 'batch', '{i2,i1}');
RESET pg_idem.test_now;
DROP TABLE once_effect;
