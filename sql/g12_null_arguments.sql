-- G12 Every combination of NULL arguments to every function: only expected SQLSTATEs, and nothing left behind.
\set VERBOSITY sqlstate
\set SHOW_CONTEXT never
SET client_min_messages = warning;
CREATE EXTENSION IF NOT EXISTS pg_idem;
LOAD 'pg_idem';
SET timezone = 'UTC';
SET datestyle = 'ISO';
CREATE FUNCTION g12_null_handler(jsonb) RETURNS jsonb LANGUAGE sql AS $$ SELECT $1 $$;
-- Calls the function once for each set of arguments that may be NULL; undoes each call at once.
CREATE FUNCTION pg_temp.combinations(function text, arguments text) RETURNS TABLE (name text, calls int, answers text) LANGUAGE plpgsql AS $$
DECLARE
    args text[] := string_to_array(btrim(arguments), '; ');
    call text; answer text; seen text[] := '{}';
BEGIN
    FOR bits IN 0 .. (1 << cardinality(args)) - 1 LOOP
        SELECT format('SELECT * FROM %I(%s)', function,
                      string_agg(CASE WHEN bits & (1 << (n - 1)::int) <> 0 THEN 'NULL::' || split_part(arg, '::', -1) ELSE arg END, ', ' ORDER BY n))
          INTO call FROM unnest(args) WITH ORDINALITY AS a (arg, n);
        BEGIN
            EXECUTE call;
            answer := 'ok';
            RAISE SQLSTATE 'UNDO0';
        EXCEPTION
            WHEN SQLSTATE 'UNDO0' THEN NULL;
            WHEN OTHERS THEN answer := SQLSTATE;
        END;
        IF EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND objsubid = 7433 AND pid = pg_backend_pid()) THEN
            RAISE '% has left a lock behind', call;
        END IF;
        seen := seen || answer;
    END LOOP;
    RETURN QUERY SELECT function, cardinality(seen), (SELECT string_agg(DISTINCT s, ' ' ORDER BY s) FROM unnest(seen) AS s);
END $$;
SELECT outcome FROM idem_claim('n', 'a', 'mine', '{}', fingerprint => '\x01', lease => '1 hour', token => '00000000-0000-0000-0000-000000000001');
SELECT md5(i::text) AS before FROM idem_inflight AS i WHERE account = 'n' \gset
BEGIN;
SELECT * FROM pg_temp.combinations('idem_claim', $$ 'n'::text; 'a'::text; 'k'::text; '{}'::jsonb; '\x01'::bytea; '1 min'::interval; 'me'::text; '0'::interval; '2020-01-01'::timestamptz; false::boolean; '00000000-0000-0000-0000-000000000001'::uuid $$);
SELECT * FROM pg_temp.combinations('idem_claim', $$ 'n'::text; 'a'::text; 'mine'::text; '{}'::jsonb; '\x01'::bytea; '1 min'::interval; 'me'::text; '0'::interval; '2020-01-01'::timestamptz; true::boolean; '00000000-0000-0000-0000-000000000001'::uuid $$);
SELECT * FROM pg_temp.combinations('idem_complete', $$ 'n'::text; 'a'::text; 'mine'::text; '1'::jsonb; 200::integer; 'b'::text; '\x00'::bytea; '00000000-0000-0000-0000-000000000001'::uuid $$);
SELECT * FROM pg_temp.combinations('idem_fail', $$ 'n'::text; 'a'::text; 'mine'::text; '1'::jsonb; 200::integer; 'b'::text; '\x00'::bytea; '00000000-0000-0000-0000-000000000001'::uuid $$);
SELECT * FROM pg_temp.combinations('idem_release', $$ 'n'::text; 'a'::text; 'mine'::text; '00000000-0000-0000-0000-000000000001'::uuid; '1 s'::interval; 'e'::text $$);
SELECT * FROM pg_temp.combinations('idem_renew', $$ 'n'::text; 'a'::text; 'mine'::text; '00000000-0000-0000-0000-000000000001'::uuid; '1 s'::interval $$);
SELECT * FROM pg_temp.combinations('idem_checkpoint', $$ 'n'::text; 'a'::text; 'mine'::text; '00000000-0000-0000-0000-000000000001'::uuid; 'c'::text; '1'::jsonb; '1 s'::interval $$);
SELECT * FROM pg_temp.combinations('idem_guard', $$ 'n'::text; 'a'::text; 'mine'::text; '00000000-0000-0000-0000-000000000001'::uuid $$);
SELECT * FROM pg_temp.combinations('idem_lookup', $$ 'n'::text; 'a'::text; 'mine'::text $$);
SELECT * FROM pg_temp.combinations('idem_once', $$ 'n'::text; 'a'::text; 'k'::text; '{}'::jsonb; '\x01'::bytea $$);
SELECT * FROM pg_temp.combinations('idem_once_batch', $$ 'n'::text; 'a'::text; '{k}'::text[]; ARRAY['\x01'::bytea]::bytea[] $$);
SELECT * FROM pg_temp.combinations('idem_run', $$ 'n'::text; 'a'::text; 'k'::text; '{}'::jsonb; 'g12_null_handler(jsonb)'::regprocedure; '0'::interval; '2020-01-01'::timestamptz; '\x01'::bytea $$);
SELECT * FROM pg_temp.combinations('idem_current', '');
SELECT * FROM pg_temp.combinations('idem_publish', $$ 'order'::text; 'a'::text; 't'::text; '{}'::jsonb; '{}'::jsonb $$);
SELECT * FROM pg_temp.combinations('idem_outbox_take', $$ 10::integer; '1 min'::interval; '{order}'::text[] $$);
SELECT * FROM pg_temp.combinations('idem_outbox_ack', $$ '{00000000-0000-8000-8400-000000000001}'::uuid[] $$);
SELECT * FROM pg_temp.combinations('idem_outbox_nack', $$ '{00000000-0000-8000-8400-000000000001}'::uuid[]; '1 s'::interval; 'e'::text $$);
SELECT * FROM pg_temp.combinations('idem_outbox_retry', $$ '{00000000-0000-8000-8400-000000000001}'::uuid[] $$);
SELECT * FROM pg_temp.combinations('idem_resolve', $$ 'n'::text; 'a'::text; 'mine'::text; 'completed'::text; '1'::jsonb; 200::integer; 'b'::text; 'note'::text; 1::integer $$);
SELECT * FROM pg_temp.combinations('idem_resolve', $$ 'n'::text; 'a'::text; 'mine'::text; 'retry'::text; '1'::jsonb; 200::integer; 'b'::text; 'note'::text; 1::integer $$);
SELECT * FROM pg_temp.combinations('idem_reset', $$ 'n'::text; 'a'::text; 'k'::text; 'note'::text $$);
SELECT * FROM pg_temp.combinations('idem_erase', $$ 'n'::text; 'note'::text $$);
SELECT * FROM pg_temp.combinations('idem_import', $$ 'n'::text; 'a'::text; 'k'::text; 'failed'::text; 400::integer; '1'::jsonb; 'b'::text; '\x01'::bytea; '2020-01-01'::timestamptz $$);
SELECT * FROM pg_temp.combinations('idem_reject', $$ '{}'::jsonb; 400::integer $$);
SELECT * FROM pg_temp.combinations('idem_fingerprint', $$ '{}'::jsonb; '{/a}'::text[] $$);
-- Nothing left behind
SELECT (SELECT count(*) FROM idem_settled WHERE account = 'n') AS settled, (SELECT count(*) FROM idem_seen WHERE account = 'n') AS seen,
       (SELECT count(*) FROM idem_audit WHERE account = 'n') AS audit,
       (SELECT string_agg(key || CASE WHEN md5(i::text) = :'before' THEN ' as before' ELSE ' changed' END, ', ') FROM idem_inflight AS i WHERE account = 'n') AS inflight;
SELECT * FROM idem_current();
ROLLBACK;

-- For a defaulted argument an explicit NULL means the default
SELECT outcome, token IS NOT NULL AS token FROM idem_claim('n', 'a', 'k', '{}', NULL, '1 min', NULL, NULL, NULL, NULL, NULL);
SELECT outcome FROM idem_claim('n', 'a', 'k', '{}', NULL, NULL, NULL, NULL, NULL, NULL, NULL);
SELECT outcome, status FROM idem_run('n', 'a', 'k2', '{}', 'g12_null_handler(jsonb)', NULL, NULL, NULL);
SELECT idem_once('n', 'a', 'k', NULL, NULL);
SELECT * FROM idem_once_batch('n', 'a', '{k}', NULL);
SELECT idem_fingerprint('{"a": 1}', NULL) = idem_fingerprint('{"a": 1}') AS same;
DROP FUNCTION g12_null_handler;
