-- Our tables altered by hand: what direct access would skip is refused, what it can do is done.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE FUNCTION altered_trigger() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NEW; END $$;
CREATE FUNCTION pg_temp.answers() RETURNS TABLE (claim text, leased text, once text, lookup text) LANGUAGE plpgsql AS $$
DECLARE k text := gen_random_uuid()::text;
BEGIN
    BEGIN
        PERFORM FROM idem_claim('altered', 'act', k, '{}'); PERFORM idem_complete('altered', 'act', k, '1'); claim := 'ok';
    EXCEPTION WHEN OTHERS THEN claim := SQLSTATE; END;
    BEGIN
        PERFORM FROM idem_claim('altered', 'act', k || 'l', '{}', lease => '1 min'); PERFORM idem_complete('altered', 'act', k || 'l', '1'); leased := 'ok';
    EXCEPTION WHEN OTHERS THEN leased := SQLSTATE; END;
    BEGIN
        PERFORM idem_once('altered', 'act', k); once := 'ok';
    EXCEPTION WHEN OTHERS THEN once := SQLSTATE; END;
    BEGIN
        PERFORM FROM idem_lookup('altered', 'act', k); lookup := 'ok';
    EXCEPTION WHEN OTHERS THEN lookup := SQLSTATE; END;
    RETURN NEXT;
END $$;
-- Alters, asks, undoes.
CREATE FUNCTION pg_temp.altered(ddl text) RETURNS TABLE (claim text, leased text, once text) LANGUAGE plpgsql AS $$
DECLARE a record;
BEGIN
    BEGIN
        TRUNCATE idem_settled, idem_inflight, idem_seen;
        EXECUTE ddl;
        SELECT * INTO a FROM pg_temp.answers();
        RAISE SQLSTATE 'UNDO0';
    EXCEPTION WHEN SQLSTATE 'UNDO0' THEN NULL;
    END;
    RETURN QUERY SELECT a.claim, a.leased, a.once;
END $$;
-- A collation that takes different keys for the same one, where the server has ICU; else another than "C" at least
DO $$ BEGIN
    CREATE COLLATION altered_collation (provider = icu, locale = 'und-u-ks-level2', deterministic = false);
EXCEPTION WHEN OTHERS THEN
    CREATE COLLATION altered_collation FROM "POSIX";
END $$;
-- Unaltered
SELECT * FROM pg_temp.answers();
-- Refused
SELECT ddl, a.* FROM unnest(ARRAY[
    'CREATE TRIGGER t BEFORE INSERT ON idem_settled FOR EACH ROW EXECUTE FUNCTION altered_trigger()',
    'CREATE TRIGGER t AFTER UPDATE ON idem_settled FOR EACH STATEMENT EXECUTE FUNCTION altered_trigger()',
    'CREATE TRIGGER t AFTER DELETE ON idem_inflight FOR EACH ROW EXECUTE FUNCTION altered_trigger()',
    'CREATE CONSTRAINT TRIGGER t AFTER INSERT ON idem_seen DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION altered_trigger()',
    'ALTER TABLE idem_settled ENABLE ROW LEVEL SECURITY',
    'ALTER TABLE idem_inflight ENABLE ROW LEVEL SECURITY',
    'ALTER TABLE idem_seen ENABLE ROW LEVEL SECURITY',
    'ALTER TABLE idem_settled ADD CHECK (attempt < 100)',
    'ALTER TABLE idem_inflight ADD CHECK (attempt < 100) NOT VALID',
    'ALTER TABLE idem_seen ADD CHECK (account <> '''')',
    'ALTER TABLE idem_settled ADD FOREIGN KEY (action) REFERENCES idem_policies NOT VALID',
    'ALTER TABLE idem_settled ALTER status SET NOT NULL',
    'ALTER TABLE idem_inflight ADD added text NOT NULL DEFAULT ''x''',
    'ALTER TABLE idem_inflight ADD added text DEFAULT ''x''',
    'ALTER TABLE idem_settled ADD added text GENERATED ALWAYS AS (account || action) STORED',
    'ALTER TABLE idem_seen ADD added int GENERATED ALWAYS AS IDENTITY',
    'ALTER TABLE idem_settled ALTER attempt DROP NOT NULL',
    'ALTER TABLE idem_inflight RENAME reason TO cause',
    'CREATE RULE r AS ON INSERT TO idem_settled DO INSTEAD NOTHING',
    'ALTER TABLE idem_settled SET UNLOGGED',
    'ALTER TABLE idem_settled DROP CONSTRAINT idem_settled_pkey',
    'ALTER TABLE idem_settled ADD EXCLUDE USING btree (status WITH =)',
    'ALTER TABLE idem_inflight ADD EXCLUDE USING btree (owner WITH =)',
    'ALTER TABLE idem_seen ADD EXCLUDE USING btree (account WITH =, action WITH =, key WITH =)',
    'ALTER TABLE idem_settled ADD UNIQUE (account, key)',
    'CREATE UNIQUE INDEX ON idem_settled (upper(account), action, key)',
    'CREATE UNIQUE INDEX ON idem_inflight (token)',
    'CREATE UNIQUE INDEX ON idem_inflight (account, action) INCLUDE (key)',
    'CREATE UNIQUE INDEX ON idem_seen (seen_at) WHERE fingerprint IS NULL',
    'CREATE UNIQUE INDEX ON idem_seen (key)',
    'CREATE UNIQUE INDEX ON idem_seen (account, action, key COLLATE altered_collation)',
    'CREATE UNIQUE INDEX ON idem_seen (account, action, key COLLATE "default")',
    'CREATE UNIQUE INDEX ON idem_settled (key COLLATE altered_collation, action, account)',
    'CREATE UNIQUE INDEX ON idem_inflight (account COLLATE altered_collation, action, key, attempt)',
    'ALTER TABLE idem_seen DROP CONSTRAINT idem_seen_pkey, ALTER key TYPE text COLLATE altered_collation, ADD PRIMARY KEY (account, action, key)',
    'ALTER TABLE idem_seen ADD UNIQUE (account, action) DEFERRABLE',
    'ALTER TABLE idem_settled DROP CONSTRAINT idem_settled_pkey, ADD PRIMARY KEY (account, key, action)',
    'ALTER TABLE idem_inflight DROP CONSTRAINT idem_inflight_pkey, ADD PRIMARY KEY (account, action)',
    'ALTER TABLE idem_seen DROP CONSTRAINT idem_seen_pkey, ADD PRIMARY KEY (account, action, key, seen_at)',
    'ALTER TABLE idem_seen DROP CONSTRAINT idem_seen_pkey, ADD PRIMARY KEY (key)',
    'ALTER TABLE idem_seen DROP CONSTRAINT idem_seen_pkey, ADD UNIQUE (account, action, key)',
    'ALTER TABLE idem_inflight DROP CONSTRAINT idem_inflight_pkey, ADD PRIMARY KEY (account, action, key) DEFERRABLE'
  ]) AS ddl, pg_temp.altered(ddl) AS a;
-- with a hint and the name of the table, and nothing of it remains
\set VERBOSITY default
BEGIN;
CREATE TRIGGER t BEFORE INSERT ON idem_settled FOR EACH ROW EXECUTE FUNCTION altered_trigger();
SELECT idem_lookup('altered', 'act', 'k');
ROLLBACK;
\set VERBOSITY sqlstate
SELECT * FROM pg_temp.answers();

-- Tolerated
SELECT ddl, a.* FROM unnest(ARRAY[
    'ALTER TABLE idem_settled ADD added text',
    'ALTER TABLE idem_inflight ADD added int',
    'ALTER TABLE idem_seen ADD added jsonb',
    'ALTER TABLE idem_settled SET (fillfactor = 90, autovacuum_enabled = false)',
    'ALTER TABLE idem_settled ALTER result SET STORAGE EXTERNAL',
    'COMMENT ON TABLE idem_settled IS ''ours''',
    'CREATE STATISTICS altered_stats ON account, action FROM idem_settled',
    'CREATE INDEX altered_index ON idem_settled (settled_at)',
    'CREATE INDEX altered_index ON idem_inflight ((upper(account))) WHERE token IS NOT NULL',
    'CREATE INDEX altered_index ON idem_seen USING hash (key)',
    'CREATE INDEX altered_index ON idem_seen (key COLLATE altered_collation)',
    'CREATE UNIQUE INDEX altered_index ON idem_seen (key, action, account)',
    'CREATE UNIQUE INDEX altered_index ON idem_seen (account, action, key, seen_at)'
  ]) AS ddl, pg_temp.altered(ddl) AS a;
-- A column added and dropped again leaves its gap
ALTER TABLE idem_settled ADD added text;
ALTER TABLE idem_settled DROP added;
ALTER TABLE idem_inflight ADD added text, ADD kept text;
ALTER TABLE idem_inflight DROP added;
SELECT * FROM pg_temp.answers();
ALTER TABLE idem_inflight DROP kept;

-- An added index is maintained: by settling, by claiming, by every update, by deleting
CREATE INDEX altered_settled ON idem_settled (status);
CREATE INDEX altered_inflight ON idem_inflight (owner, checkpoint);
CREATE INDEX altered_expression ON idem_inflight ((owner || '/' || attempt)) WHERE owner IS NOT NULL;
CREATE INDEX altered_seen ON idem_seen (seen_at);
SET enable_seqscan = off;
SET enable_bitmapscan = off;
BEGIN;
SELECT outcome FROM idem_claim('altered', 'index', 'k1', '{}');
SELECT idem_complete('altered', 'index', 'k1', status => 4711) IS NOT NULL AS ok;
COMMIT;
SELECT key FROM idem_settled WHERE status = 4711;
SELECT outcome FROM idem_claim('altered', 'index', 'k2', '{}', lease => '1 min', owner => 'altered owner', token => '00000000-0000-0000-0000-000000000001');
SELECT key, checkpoint FROM idem_inflight WHERE owner = 'altered owner';
SELECT idem_checkpoint('altered', 'index', 'k2', '00000000-0000-0000-0000-000000000001', 'altered checkpoint') IS NOT NULL AS ok;
SELECT key, checkpoint FROM idem_inflight WHERE owner = 'altered owner' AND checkpoint = 'altered checkpoint';
SELECT key FROM idem_inflight WHERE owner || '/' || attempt = 'altered owner/1' AND owner IS NOT NULL;
SELECT idem_release('altered', 'index', 'k2', '00000000-0000-0000-0000-000000000001');
SELECT outcome FROM idem_claim('altered', 'index', 'k2', '{}', lease => '1 min', owner => 'altered owner', token => '00000000-0000-0000-0000-000000000002');
SELECT key FROM idem_inflight WHERE owner || '/' || attempt = 'altered owner/1' AND owner IS NOT NULL;
SELECT key FROM idem_inflight WHERE owner || '/' || attempt = 'altered owner/2' AND owner IS NOT NULL;
SELECT idem_complete('altered', 'index', 'k2', status => 4712, token => '00000000-0000-0000-0000-000000000002') IS NOT NULL AS ok;
SELECT count(*) FROM idem_inflight WHERE owner = 'altered owner';
SELECT key FROM idem_settled WHERE status = 4712;
SET pg_idem.test_now = '2001-02-03 04:05:06+00';
SELECT idem_once('altered', 'index', 'k3');
RESET pg_idem.test_now;
SELECT key FROM idem_seen WHERE seen_at = '2001-02-03 04:05:06+00';
RESET enable_seqscan;
RESET enable_bitmapscan;
DROP INDEX altered_settled, altered_inflight, altered_expression, altered_seen;
-- A rewrite of the tables under the feet of the session
VACUUM FULL idem_settled;
CLUSTER idem_inflight USING idem_inflight_pkey;
REINDEX TABLE idem_settled;
REINDEX TABLE CONCURRENTLY idem_seen;
SELECT * FROM pg_temp.answers();
SELECT outcome FROM idem_claim('altered', 'index', 'k2', '{}');
DROP FUNCTION altered_trigger;
DROP COLLATION altered_collation;

-- Other objects of ours, altered: refused as well, and never read as what they are not
SELECT idem_once('altered', 'objects', 'open plans');
CREATE FUNCTION altered_handler(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
CREATE FUNCTION pg_temp.altered_objects(ddl text) RETURNS TABLE (claim text, run text, lookup text, once text) LANGUAGE plpgsql AS $$
DECLARE answers text[] := '{}'; call text;
BEGIN
    BEGIN
        EXECUTE ddl;
        FOREACH call IN ARRAY ARRAY[
            $q$SELECT outcome FROM idem_claim('altered', 'objects', 'claim', '{}', lease => '1 min')$q$,
            $q$SELECT outcome FROM idem_run('altered', 'objects', 'run', '{}', 'altered_handler(jsonb)')$q$,
            $q$SELECT count(*) FROM idem_lookup('altered', 'objects', 'claim')$q$,
            $q$SELECT idem_once('altered', 'objects', gen_random_uuid()::text)$q$]
        LOOP
            BEGIN
                EXECUTE call;
                answers := answers || 'ok'::text;
            EXCEPTION WHEN OTHERS THEN
                answers := answers || SQLSTATE;
            END;
        END LOOP;
        RAISE SQLSTATE 'UNDO0';
    EXCEPTION WHEN SQLSTATE 'UNDO0' THEN NULL;
    END;
    RETURN QUERY SELECT answers[1], answers[2], answers[3], answers[4];
END $$;
-- One row, so that the policies are read
INSERT INTO idem_policies (action, retention) VALUES ('objects', '1 hour');
SELECT a.*, split_part(ddl, ' FROM (', 1) AS ddl FROM unnest(ARRAY[
    'SELECT 1',
    'ALTER TYPE idem_claim_result ADD ATTRIBUTE added int',
    'ALTER TYPE idem_claim_result DROP ATTRIBUTE holder',
    'ALTER TYPE idem_claim_result ALTER ATTRIBUTE body TYPE int',
    'CREATE OR REPLACE VIEW idempotent_operations AS SELECT *, 1 AS added FROM (' || rtrim(pg_get_viewdef('idempotent_operations'), ';') || ') AS v',
    'ALTER TABLE idem_policies DROP CONSTRAINT idem_policies_max_attempts_check, ALTER max_attempts TYPE text',
    'ALTER TABLE idem_policies ALTER max_attempts TYPE bigint',
    'ALTER TABLE idem_policies DROP CONSTRAINT idem_policies_retention_check, ALTER retention TYPE text',
    'ALTER TABLE idem_policies ALTER keep_request TYPE text',
    'ALTER TABLE idem_policies ALTER key_format TYPE varchar(10)',
    'ALTER TABLE idem_policies ADD added int'
  ]) AS ddl, pg_temp.altered_objects(ddl) AS a;
DELETE FROM idem_policies;
-- The trigger of idem_policies on a table where it does not belong
CREATE TABLE altered_other (n int, handler_role int);
CREATE TRIGGER t BEFORE INSERT OR UPDATE ON altered_other FOR EACH ROW EXECUTE FUNCTION idem_policies_check();
INSERT INTO altered_other VALUES (1, 2);
INSERT INTO altered_other VALUES (1, NULL);
DROP TABLE altered_other;
SELECT outcome FROM idem_claim('altered', 'index', 'k2', '{}');
DROP FUNCTION altered_handler;
