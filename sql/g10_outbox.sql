-- The outbox: a message exists if and only if its transaction commits, and is handed out in order until acknowledged (G10).
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
TRUNCATE idem_outbox;
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
CREATE TEMP TABLE taken (n serial, receipt uuid, aggregateid text, type text, deliveries int);
CREATE FUNCTION pg_temp.take(batch int DEFAULT NULL, lease interval DEFAULT NULL, types text[] DEFAULT NULL) RETURNS TABLE (message text) LANGUAGE sql
    BEGIN ATOMIC
    INSERT INTO taken (receipt, aggregateid, type, deliveries) SELECT receipt, aggregateid, type, deliveries FROM idem_outbox_take(batch, lease, types);
    SELECT aggregateid || type || ' #' || deliveries FROM taken WHERE n > COALESCE((SELECT max(n) FROM taken t WHERE t.type = 'mark'), 0) ORDER BY n;
    END;
CREATE PROCEDURE pg_temp.mark() LANGUAGE sql BEGIN ATOMIC INSERT INTO taken (type) VALUES ('mark'); END;
-- The latest receipts of messages, given as aggregateid || type
CREATE FUNCTION pg_temp.r(VARIADIC names text[]) RETURNS uuid[] LANGUAGE sql
    RETURN ARRAY(SELECT (SELECT receipt FROM taken WHERE aggregateid || type = name ORDER BY n DESC LIMIT 1) FROM unnest(names) AS name);
CREATE VIEW pg_temp.outbox AS SELECT aggregateid || type AS message, deliveries, failures, leased_until, due_at, parked_at, last_error FROM idem_outbox ORDER BY position;

-- ---- together with the change
BEGIN;
SELECT idem_publish('order', 'x', '1', '{}') IS NOT NULL AS ok;
ROLLBACK;
BEGIN;
SAVEPOINT s;
SELECT idem_publish('order', 'x', '2', '{}') IS NOT NULL AS ok;
ROLLBACK TO s;
SELECT idem_publish('order', 'a', '1', '{"n": 1}', '{"trace": "t"}') IS NOT NULL AS ok;
COMMIT;
-- The row's columns; the id is a UUIDv7 of the time. No operation is known.
SELECT aggregatetype, aggregateid, type, payload, headers, account, action, key, created_at, deliveries, failures, substring(id::text, 15, 1) AS version FROM idem_outbox;
TRUNCATE idem_outbox;
-- Of the operation that the transaction carries out
BEGIN;
SELECT outcome FROM idem_claim('acct', 'act', 'k1', '{}');
SELECT idem_publish('order', 'a', '1', 'null') IS NOT NULL AS ok;
SELECT outcome FROM idem_claim('acct', 'act', 'k2', '{}');
SELECT idem_publish('order', 'a', '2', '[]') IS NOT NULL AS "two: which is not known";
SELECT idem_complete('acct', 'act', 'k2') IS NOT NULL AS ok;
SELECT idem_publish('order', 'a', '3', '"x"') IS NOT NULL AS "one again";
SELECT idem_complete('acct', 'act', 'k1') IS NOT NULL AS ok;
SELECT idem_publish('order', 'a', '4', '7') IS NOT NULL AS "none is open";
COMMIT;
SELECT type, payload, account, action, key FROM idem_outbox ORDER BY position;
CREATE FUNCTION outbox_handler(request jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT to_jsonb(idem_publish('order', 'a', '5', request) IS NOT NULL) $$;
SELECT result FROM idem_run('acct', 'act', 'k3', '{}', 'outbox_handler(jsonb)');
SELECT result FROM idem_run('acct', 'act', 'k3', '{}', 'outbox_handler(jsonb)');
SELECT type, account, action, key FROM idem_outbox WHERE type = '5';
DROP FUNCTION outbox_handler;
TRUNCATE idem_outbox;

-- ---- order, batches, one aggregate at a time
SELECT count(idem_publish('order', a, n, '{}')) FROM (VALUES (1, 'a', '1'), (2, 'b', '1'), (3, 'a', '2'), (4, 'c', '1'), (5, 'a', '3'), (6, 'b', '2')) AS m(i, a, n);
SELECT * FROM pg_temp.take(3);
-- a and b are being sent: neither a3 nor b2 may overtake
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
-- acknowledged in part: a3 waits for a1 all the same
SELECT idem_outbox_ack(pg_temp.r('a2', 'b1'));
SELECT * FROM pg_temp.take();
SELECT idem_outbox_ack(pg_temp.r('a1', 'a1', NULL));
SELECT idem_outbox_ack(pg_temp.r('a1')) AS "once is enough";
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
SELECT idem_outbox_ack(pg_temp.r('a3', 'b2', 'c1'));
SELECT count(*) FROM idem_outbox;

-- ---- the lease, to the microsecond
SELECT count(idem_publish('order', a, n, '{}')) FROM (VALUES (1, 'a', '1'), (2, 'a', '2'), (3, 'b', '1')) AS m(i, a, n);
CALL pg_temp.mark();
SELECT * FROM pg_temp.take(2, '1 min');
SELECT * FROM pg_temp.outbox;
SET pg_idem.test_now = '2030-01-01 00:00:59.999999+00';
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
SET pg_idem.test_now = '2030-01-01 00:01:00+00';
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
-- counted for the first only
SELECT message, deliveries, failures, leased_until, last_error FROM pg_temp.outbox;
-- receipts of the hand-out before are stale
SELECT idem_outbox_ack(ARRAY(SELECT receipt FROM taken WHERE n < (SELECT max(n) FROM taken WHERE type = 'mark'))) AS ack,
       idem_outbox_nack(ARRAY(SELECT receipt FROM taken WHERE n < (SELECT max(n) FROM taken WHERE type = 'mark')), error => 'late') AS nack;
SELECT message, deliveries, failures FROM pg_temp.outbox;
-- an acknowledgement after the lease's end counts, until the message is handed out again
SET pg_idem.test_now = '2030-01-02 00:00:00+00';
SELECT idem_outbox_ack(pg_temp.r('a1', 'a2', 'b1'));
-- the defaults: 100 messages, 30 seconds
SELECT count(idem_publish('order', 'a', i::text, '{}')) FROM generate_series(1, 101) i;
SELECT count(*), min(deliveries), max(deliveries) FROM idem_outbox_take(NULL, NULL, NULL);
SELECT DISTINCT leased_until FROM pg_temp.outbox WHERE leased_until IS NOT NULL;
TRUNCATE idem_outbox;
-- the receipt of a hand-out that was rolled back is stale too
SELECT count(idem_publish('order', 'a', '1', '{}'));
BEGIN;
SELECT receipt AS rolled_back FROM idem_outbox_take(lease => '1 min') \gset
ROLLBACK;
SELECT count(*) FROM idem_outbox_take(lease => '2 min');
SELECT idem_outbox_ack(ARRAY[:'rolled_back'::uuid]);
TRUNCATE idem_outbox;

-- ---- given back
SELECT count(idem_publish('order', a, n, '{}')) FROM (VALUES (1, 'a', '1'), (2, 'a', '2'), (3, 'b', '1')) AS m(i, a, n);
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
SELECT idem_outbox_nack(pg_temp.r('a1', 'a2'));
SELECT message, deliveries, failures, leased_until, due_at, last_error FROM pg_temp.outbox;
-- the receipt has been used up
SELECT idem_outbox_nack(pg_temp.r('a1', 'a2'), error => 'again') AS nack, idem_outbox_ack(pg_temp.r('a1')) AS ack;
SET pg_idem.test_now = '2030-01-02 00:00:04.999999+00';
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
SET pg_idem.test_now = '2030-01-02 00:00:05+00';
SELECT * FROM pg_temp.take();
-- with an error: the first of each aggregate counts
SELECT idem_outbox_nack(pg_temp.r('b1', 'a2', 'a1'), '0', 'no broker');
SELECT message, deliveries, failures, due_at, last_error FROM pg_temp.outbox;
-- the first is not yet due: those behind it wait as well
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
SELECT idem_outbox_nack(pg_temp.r('a1'), '1 min') AS first, idem_outbox_nack(pg_temp.r('a2'), '0') AS second;
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
TRUNCATE idem_outbox;

-- ---- parked after ten failed attempts
SELECT count(idem_publish('order', a, n, '{}')) FROM (VALUES (1, 'a', '1'), (2, 'a', '2'), (3, 'b', '1')) AS m(i, a, n);
DO $$ BEGIN
    FOR i IN 1..9 LOOP PERFORM idem_outbox_nack(array_agg(receipt), '0', 'attempt ' || i) FROM idem_outbox_take() WHERE aggregateid = 'a'; END LOOP;
END $$;
SELECT message, deliveries, failures, parked_at, last_error FROM pg_temp.outbox;
-- the tenth by a lease that runs out, found by the take
SELECT count(*) FROM idem_outbox_take(lease => '1 s');
SET pg_idem.test_now = '2030-01-02 00:01:00+00';
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
SELECT message, deliveries, failures, leased_until, parked_at, last_error FROM pg_temp.outbox;
-- the tenth by an error
SELECT idem_outbox_nack(pg_temp.r('b1'), '0', 'attempt');
SELECT count(idem_outbox_nack(ARRAY[receipt], '0', 'attempt ' || i)) FROM generate_series(1, 1) i, idem_outbox_take();
DO $$ BEGIN
    FOR i IN 3..20 LOOP PERFORM idem_outbox_nack(array_agg(receipt), '0', 'attempt ' || i) FROM idem_outbox_take() HAVING count(*) > 0; END LOOP;
END $$;
SELECT message, deliveries, failures, parked_at, last_error FROM pg_temp.outbox;
SELECT outbox_pending, outbox_parked, oldest_outbox_at FROM idem_gauges;
-- un-parked: at once, with all its attempts; deliveries go on
SELECT idem_outbox_retry(ARRAY(SELECT id FROM idem_outbox) || NULL::uuid || gen_random_uuid());
SELECT idem_outbox_retry(ARRAY(SELECT id FROM idem_outbox)) AS "none is parked";
CALL pg_temp.mark();
SELECT * FROM pg_temp.take();
SELECT message, failures, parked_at FROM pg_temp.outbox;
SELECT outbox_pending, outbox_parked, oldest_outbox_at FROM idem_gauges;
TRUNCATE idem_outbox;

-- ---- filter
SELECT count(idem_publish(t, 'a', '1', '{}')) FROM unnest('{order,invoice,order}'::text[]) AS t;
SELECT count(*) FROM idem_outbox_take(aggregatetypes => '{}');
SELECT pg_sleep(0.06) IS NOT NULL AS "a round of the floor later";
SELECT count(*) FROM idem_outbox_take(aggregatetypes => '{}');
SELECT count(*) FROM idem_outbox_take(aggregatetypes => '{}');
BEGIN;
SELECT count(*) FROM idem_outbox_take();
ROLLBACK;
SELECT aggregatetype FROM idem_outbox_take(1, '1 s', '{invoice,NULL,nothing}');
SELECT aggregatetype FROM idem_outbox_take(aggregatetypes => '{order,invoice}');
TRUNCATE idem_outbox;

-- ---- many aggregates: the limit of locks ends the batch
SELECT count(idem_publish('order', (i % 5)::text, 'm', '{}')) FROM generate_series(1, 20) i;
SET pg_idem.max_claims_per_transaction = 3;
BEGIN;
SELECT count(*), count(DISTINCT aggregateid) FROM idem_outbox_take();
SELECT count(*) FROM idem_outbox_take();
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7434 AND pid = pg_backend_pid();
COMMIT;
SELECT count(*), count(DISTINCT aggregateid) FROM idem_outbox_take();
RESET pg_idem.max_claims_per_transaction;
TRUNCATE idem_outbox;
-- a take that finds nothing keeps no lock
BEGIN;
SELECT count(*) FROM idem_outbox_take();
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7434 AND pid = pg_backend_pid();
COMMIT;

-- ---- take and acknowledge in one statement
SELECT count(idem_publish('order', i::text, 'm', '{}')) FROM generate_series(1, 20) i;
SELECT idem_outbox_ack(COALESCE(array_agg(receipt), '{}')) FROM idem_outbox_take(15);
SELECT idem_outbox_ack(COALESCE(array_agg(receipt), '{}')) FROM idem_outbox_take(15);
SELECT idem_outbox_ack(COALESCE(array_agg(receipt), '{}')) FROM idem_outbox_take(15);
-- deleted by this transaction, which is rolled back: still there for the next take of this session
SELECT count(idem_publish('order', 'back', 'm', '{}'));
BEGIN;
SELECT idem_outbox_ack(array_agg(receipt)) FROM idem_outbox_take();
SELECT count(*) FROM idem_outbox_take();
SELECT pg_sleep(0.06) IS NOT NULL AS "a round of the floor later";
SELECT count(*) FROM idem_outbox_take();
SELECT count(*) FROM idem_outbox_take();
ROLLBACK;
SELECT count(*) FROM idem_outbox_take();
TRUNCATE idem_outbox;

-- ---- at every isolation level
BEGIN ISOLATION LEVEL SERIALIZABLE;
SELECT count(idem_publish('order', 's', 'm', '{}'));
SELECT idem_outbox_ack(array_agg(receipt)) FROM idem_outbox_take();
COMMIT;
BEGIN ISOLATION LEVEL REPEATABLE READ;
SELECT count(idem_publish('order', 's', 'm', '{}'));
SELECT idem_outbox_ack(array_agg(receipt)) FROM idem_outbox_take();
COMMIT;

-- ---- erase: payload and headers go, the message stays
BEGIN;
SELECT outcome FROM idem_claim('erased', 'act', 'k', '{}');
SELECT count(idem_publish('order', 'e', i::text, '"secret"', '{"secret": 1}')) FROM generate_series(1, 3) i;
SELECT idem_complete('erased', 'act', 'k') IS NOT NULL AS ok;
COMMIT;
SELECT count(idem_publish('order', 'f', '1', '"kept"', '{}'));
SELECT * FROM idem_erase('erased', 'n') WHERE what = 'outbox';
SELECT * FROM idem_erase('erased', 'n') WHERE what = 'outbox';
SELECT aggregateid, type, payload, headers FROM idem_outbox_take();
TRUNCATE idem_outbox;

-- ---- bad input
SELECT idem_publish(NULL, 'a', 't', '{}');
SELECT idem_publish('order', '', 't', '{}');
SELECT idem_publish('order', 'a', E' \t', '{}');
SELECT idem_publish(repeat('o', 256), 'a', 't', '{}');
SELECT idem_publish('order', repeat('a', 256), 't', '{}');
SELECT idem_publish('order', 'a', repeat('t', 256), '{}');
SELECT idem_publish(repeat('o', 255), repeat('a', 255), repeat('t', 255), '{}', NULL) IS NOT NULL AS ok;
SELECT length(aggregatetype), length(aggregateid), length(type) FROM idem_outbox_take();
SELECT idem_publish('order', 'a', 't', NULL);
SELECT idem_publish('order', 'a', 't', '{}', '[]');
SELECT idem_publish('order', 'a', 't', '{}', 'null');
SELECT idem_outbox_take(0);
SELECT idem_outbox_take(10001);
SELECT idem_outbox_take(lease => '0');
SELECT idem_outbox_take(lease => '-1 s');
SELECT idem_outbox_take(lease => '1 day 1 microsecond');
SELECT idem_outbox_take(aggregatetypes => '{{a},{b}}');
SELECT count(*) FROM idem_outbox_take(10000, '1 day');
SELECT idem_outbox_ack(NULL);
SELECT idem_outbox_nack(NULL);
SELECT idem_outbox_retry(NULL);
SELECT idem_outbox_nack('{}', '-1 s');
SELECT idem_outbox_nack('{}', '1 day');
SELECT idem_outbox_nack('{}', '86401 s');
SELECT idem_outbox_ack('{}'), idem_outbox_ack(ARRAY[gen_random_uuid(), '00000000-0000-0000-0000-000000000000', NULL, '00000000-0000-8000-8400-000000000001']), idem_outbox_nack('{}', NULL, NULL), idem_outbox_retry('{}');
BEGIN READ ONLY;
SELECT idem_publish('order', 'a', 't', '{}');
ROLLBACK;
BEGIN READ ONLY;
SELECT idem_outbox_take();
ROLLBACK;
-- a message written by hand, whose names no call could have given, stops nobody
INSERT INTO idem_outbox (id, aggregatetype, aggregateid, type, created_at, position, deliveries, failures) VALUES (gen_random_uuid(), repeat('o', 5000), 'a', 't', now(), 0, 0, 0);
SELECT count(idem_publish('order', 'a', 't', '{}'));
SELECT aggregatetype FROM idem_outbox_take();
-- an error longer than is kept
SELECT count(idem_publish('order', 'long', 't', '{}'));
SELECT idem_outbox_nack(array_agg(receipt), error => repeat('é', 5000)) FROM idem_outbox_take();
SELECT octet_length(last_error) FROM idem_outbox WHERE aggregateid = 'long';
TRUNCATE idem_outbox;

-- ---- altered
ALTER SEQUENCE idem_outbox_position CACHE 10;
SELECT idem_publish('order', 'a', 't', '{}');
ALTER SEQUENCE idem_outbox_position CACHE 1;
DROP INDEX idem_outbox_aggregate;
SELECT idem_outbox_take();
CREATE INDEX idem_outbox_aggregate ON idem_outbox (aggregatetype, aggregateid, position) WHERE false;
SELECT idem_outbox_take();
DROP INDEX idem_outbox_aggregate;
CREATE INDEX idem_outbox_aggregate ON idem_outbox (aggregatetype, aggregateid, position);
SELECT count(*) FROM idem_outbox_take();
ALTER TABLE idem_outbox ADD CHECK (position > 0);
SELECT idem_publish('order', 'a', 't', '{}');
ALTER TABLE idem_outbox DROP CONSTRAINT idem_outbox_position_check;
SELECT idem_publish('order', 'a', 't', '{}') IS NOT NULL AS ok;
TRUNCATE idem_outbox;
RESET pg_idem.test_now;
