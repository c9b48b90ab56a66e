-- G12 What one transaction may hold and promise, what is refused at SET, and how long a loop takes.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';

-- G12 Guards whose subtransaction is rolled back hold no lock any more, but each is still verified at commit, and so counts
CREATE FUNCTION limits_token(n int) RETURNS uuid LANGUAGE sql AS $$ SELECT lpad(n::text, 32, '0')::uuid $$;
CREATE FUNCTION limits_guard(n int) RETURNS text LANGUAGE plpgsql AS $$
BEGIN
    PERFORM idem_guard('limits', 'act', 'k' || n, limits_token(n));
    RAISE SQLSTATE 'UNDO0';
EXCEPTION
    WHEN SQLSTATE 'UNDO0' THEN RETURN 'guarded';
    WHEN SQLSTATE '53200' OR SQLSTATE 'IDM02' THEN RETURN SQLSTATE;
END $$;
SELECT outcome, count(*) FROM generate_series(1, 10) AS n,
       idem_claim('limits', 'act', 'k' || n, '{}', lease => '1 hour', token => limits_token(n)) GROUP BY 1;
SET pg_idem.max_claims_per_transaction = 5;
BEGIN;
SELECT n, limits_guard(n) FROM generate_series(1, 6) AS n;
-- the same one again is not another one, and a new transaction begins anew
SELECT n, limits_guard(n) FROM generate_series(1, 5) AS n;
COMMIT;
BEGIN;
SELECT n, limits_guard(n) FROM generate_series(6, 10) AS n;
COMMIT;
-- by any owner call
BEGIN;
SELECT limits_guard(n) FROM generate_series(1, 5) AS n;
SAVEPOINT a;
SELECT idem_checkpoint('limits', 'act', 'k6', limits_token(6), 'x');
ROLLBACK TO a;
SELECT idem_renew('limits', 'act', 'k7', limits_token(7));
ROLLBACK TO a;
SELECT idem_guard('limits', 'act', 'k8', limits_token(8));
ROLLBACK;
-- 53200 is no refusal: without the call the transaction commits
BEGIN;
SELECT n, limits_guard(n) FROM generate_series(1, 7) AS n;
COMMIT;
SELECT count(*) AS claims_kept FROM idempotent_operations WHERE account = 'limits' AND checkpoint IS NULL AND attempt = 1;
RESET pg_idem.max_claims_per_transaction;

-- G12 pg_idem.test_now is a finite time, or nothing; refused at SET, and what was there before stays
SET pg_idem.test_now = '2030-01-01 00:00:00+00';
SET pg_idem.test_now = 'rubbish';
SET pg_idem.test_now = 'infinity';
SET pg_idem.test_now = '-infinity';
SET pg_idem.test_now = ' ';
SET pg_idem.test_now = '2030-02-30';
SET pg_idem.test_now = '2030-01-01 25:00:00';
SET pg_idem.test_now = '400000-01-01';
SET pg_idem.test_now = 'null';
SELECT set_config('pg_idem.test_now', 'rubbish', false);
CREATE FUNCTION limits_now() RETURNS int LANGUAGE sql SET pg_idem.test_now = 'rubbish' AS 'SELECT 1';
SHOW pg_idem.test_now;
-- inside a transaction it is an error as any other
BEGIN;
SAVEPOINT a;
SET pg_idem.test_now = 'rubbish';
ROLLBACK TO a;
SET LOCAL pg_idem.test_now = '2031-01-01 00:00:00+00';
SELECT outcome FROM idem_claim('limits', 'now', 'k', '{}', lease => '1 min');
SELECT lease_expires_at FROM idem_lookup('limits', 'now', 'k');
ROLLBACK;
SHOW pg_idem.test_now;
SET pg_idem.test_now = '';
SET pg_idem.test_now = '2030-01-01 12:00:00 +02';
SHOW pg_idem.test_now;
RESET pg_idem.test_now;

-- G12 A loop of claims that are each rolled back holds nothing, and does not search ever longer: four times as many take about four
-- times as long. The bound lies between that and the sixteen times of a search through all of them.
CREATE FUNCTION limits_loop(tag text, n int) RETURNS interval LANGUAGE plpgsql AS $$
DECLARE started timestamptz := clock_timestamp(); granted int := 0;
BEGIN
    FOR i IN 1..n LOOP
        BEGIN
            PERFORM FROM idem_claim('limits', 'loop', tag || i, '{}') WHERE outcome = 'claimed';
            granted := granted + FOUND::int;
            RAISE SQLSTATE 'UNDO0';
        EXCEPTION WHEN SQLSTATE 'UNDO0' THEN NULL;
        END;
    END LOOP;
    IF granted <> n THEN
        RAISE EXCEPTION '% of % granted', granted, n;
    END IF;
    RETURN clock_timestamp() - started;
END $$;
SET statement_timeout = '60s';
SET pg_idem.max_claims_per_transaction = 5;
SELECT limits_loop('warm', 100) IS NOT NULL AS ok;
SELECT extract(epoch FROM more) / extract(epoch FROM less) < 10 AS linear
  FROM (SELECT min(limits_loop('a' || i, 5000)) AS less FROM generate_series(1, 2) AS i) AS a,
       (SELECT min(limits_loop('b' || i, 20000)) AS more FROM generate_series(1, 2) AS i) AS b;
RESET statement_timeout;
RESET pg_idem.max_claims_per_transaction;
SELECT count(*) FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid();
DROP FUNCTION limits_loop, limits_guard, limits_token;
DELETE FROM idem_inflight WHERE account = 'limits';
