-- idem_stats, idem_holders and idem_gauges. statistics_1.out: with pg_idem in shared_preload_libraries, without which
-- the first two have no rows. The counters themselves: test/t/030_statistics.pl.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
\pset null -
TRUNCATE idem_settled, idem_inflight, idem_seen;
SELECT setting LIKE '%pg_idem%' AS preloaded FROM pg_settings WHERE name = 'shared_preload_libraries';
SELECT idem_stats_reset() IS NOT NULL AS ok;

-- Nothing yet
SELECT * FROM idem_gauges;
SELECT * FROM idem_holders;
SELECT idem_stats_reset('statistics');
SELECT idem_stats_reset('');

BEGIN;
SELECT outcome FROM idem_claim('s', 'statistics', 'k', '{}');
SELECT pid = pg_backend_pid() AS own, account, action, key, claimed_at <= clock_timestamp() AS past, age_seconds >= 0 AS age FROM idem_holders;
SAVEPOINT a;
SELECT idem_complete('s', 'statistics', 'k') IS NOT NULL AS ok;
SELECT key FROM idem_holders;
ROLLBACK TO a;
SELECT key FROM idem_holders;
SELECT idem_complete('s', 'statistics', 'k') IS NOT NULL AS ok;
COMMIT;
SELECT outcome FROM idem_claim('s', 'statistics', 'k', '{}');
SELECT idem_once('s', 'statistics', 'k');
SELECT outcome FROM idem_claim('s', 'statistics', 'leased', '{}', lease => '1 hour', token => '00000000-0000-0000-0000-000000000001');
SELECT outcome FROM idem_claim('s', 'statistics', 'released', '{}', lease => '1 hour', token => '00000000-0000-0000-0000-000000000001');
SELECT idem_release('s', 'statistics', 'released', '00000000-0000-0000-0000-000000000001', error => 'e');
SELECT idem_guard('s', 'statistics', 'leased', '00000000-0000-0000-0000-000000000002');
SELECT action, claims, recoveries, replays, in_progress, mismatches, expired, reviews, completed, failed, once_first, once_duplicate,
       fenced, unsettled, interrupted, forgotten, stats_reset <= clock_timestamp() AS past
  FROM idem_stats WHERE action = 'statistics';
SELECT in_flight, interrupted, review, settled, expired_not_swept, seen, seen_not_swept,
       oldest_in_flight_at = (SELECT claimed_at FROM idem_inflight WHERE key = 'leased') AS in_flight_at,
       oldest_interrupted_at = (SELECT due_at FROM idem_inflight WHERE key = 'released') AS interrupted_at, oldest_review_at
  FROM idem_gauges;

SELECT idem_stats_reset('statistics');
SELECT claims, completed FROM idem_stats WHERE action = 'statistics';

-- On a read-only transaction too
BEGIN READ ONLY;
SELECT count(*) < 2 AS ok FROM idem_stats WHERE action = 'statistics';
SELECT settled FROM idem_gauges;
SELECT idem_stats_reset(action => NULL) IS NOT NULL AS ok;
COMMIT;

-- pg_monitor sees numbers, but no keys, and resets nothing
CREATE ROLE regress_idem_watcher IN ROLE pg_monitor;
SET ROLE regress_idem_watcher;
SELECT settled FROM idem_gauges;
SELECT count(*) >= 0 AS ok FROM idem_stats;
SELECT * FROM idem_holders;
SELECT * FROM idem_holders_rows();
SELECT idem_stats_reset();
SELECT count(*) FROM idem_settled;
RESET ROLE;
DROP ROLE regress_idem_watcher;

-- Tables altered by hand are refused here too
ALTER TABLE idem_seen ALTER COLUMN fingerprint SET DEFAULT 'x';
SELECT * FROM idem_gauges;
ALTER TABLE idem_seen ALTER COLUMN fingerprint DROP DEFAULT;
TRUNCATE idem_settled, idem_inflight, idem_seen;
