/* pg_idem 1.0: idempotent operations. See docs/sql-reference.md. */
\echo Use "CREATE EXTENSION pg_idem" to load this file. \quit

-- ---------------------------------------------------------------------------------------------------------
-- Types
-- ---------------------------------------------------------------------------------------------------------

CREATE TYPE idem_outcome AS ENUM
    ('claimed', 'recovered', 'completed', 'failed', 'in_progress', 'mismatch', 'expired', 'review');
COMMENT ON TYPE idem_outcome IS
'Answer to a claim. claimed, recovered: carry the operation out. completed, failed: the recorded outcome, replayed. in_progress: another attempt holds the claim. mismatch: the key was used with other inputs. expired: it was carried out, and its outcome is no longer kept. review: an operator must decide.';

CREATE TYPE idem_state AS ENUM
    ('in_progress', 'interrupted', 'review', 'completed', 'failed', 'expired');
COMMENT ON TYPE idem_state IS
'State of an operation. interrupted: the lease ran out, the session died, or the attempt was released, and nobody has taken it over.';

CREATE TYPE idem_claim_result AS (
    outcome      idem_outcome,
    replayed     boolean,
    attempt      integer,
    token        uuid,
    settled_as   text,
    status       integer,
    result       jsonb,
    body         text,
    body_bytes   bytea,
    checkpoint   text,
    progress     jsonb,
    holder       text,
    retry_after  integer,
    settled_at   timestamptz,
    expires_at   timestamptz
);
COMMENT ON TYPE idem_claim_result IS
'What idem_claim and idem_run answer. token: the fence of a leased claim, given with every later call of its owner. holder: owner label, or process ID, of the attempt in progress. retry_after: seconds, rounded up, at least 1 (the HTTP header of RFC 9110). expires_at: until when the outcome is replayed.';

-- ---------------------------------------------------------------------------------------------------------
-- Tables. C code reaches them directly (src/store): no trigger, constraint, default or generated column may be
-- added to any but idem_policies; an index may. They are granted to nobody.
-- ---------------------------------------------------------------------------------------------------------

CREATE TABLE idem_settled (
    settled_at   timestamptz NOT NULL,
    expires_at   timestamptz NOT NULL,
    forget_at    timestamptz NOT NULL,
    claimed_at   timestamptz,
    attempt      integer NOT NULL,
    status       integer,
    succeeded    boolean NOT NULL,
    stripped     boolean NOT NULL,
    account      text COLLATE pg_catalog."C" NOT NULL,
    action       text COLLATE pg_catalog."C" NOT NULL,
    key          text COLLATE pg_catalog."C" NOT NULL,
    fingerprint  bytea,
    request      jsonb,
    result       jsonb,
    body         text,
    body_bytes   bytea,
    PRIMARY KEY (account, action, key)
);
COMMENT ON TABLE idem_settled IS
'Outcomes that can never change again, one row an operation. Written by pg_idem only; read it through idempotent_operations.';
COMMENT ON COLUMN idem_settled.expires_at IS 'The outcome is replayed before this time, and answered as expired from then on.';
COMMENT ON COLUMN idem_settled.forget_at IS 'The key is known to have been used before this time.';
COMMENT ON COLUMN idem_settled.claimed_at IS 'When the attempt that settled was granted; NULL where it claimed and settled in one transaction.';
COMMENT ON COLUMN idem_settled.stripped IS 'The payload (request, result, body, body_bytes) has been removed.';

CREATE TABLE idem_inflight (
    claimed_at       timestamptz NOT NULL,
    state_since      timestamptz NOT NULL,
    lease_expires_at timestamptz,
    due_at           timestamptz,
    session_start    timestamptz,
    session_pid      integer,
    attempt          integer NOT NULL,
    failures         integer NOT NULL,
    max_attempts     integer NOT NULL,
    in_review        boolean NOT NULL,
    granted          boolean NOT NULL,
    announced        boolean NOT NULL,
    token            uuid,
    lease            interval NOT NULL,
    account          text COLLATE pg_catalog."C" NOT NULL,
    action           text COLLATE pg_catalog."C" NOT NULL,
    key              text COLLATE pg_catalog."C" NOT NULL,
    on_interrupt     text NOT NULL,
    owner            text,
    reason           text,
    last_error       text,
    fingerprint      bytea,
    request          jsonb,
    checkpoint       text,
    progress         jsonb,
    PRIMARY KEY (account, action, key)
) WITH (fillfactor = 50);
COMMENT ON TABLE idem_inflight IS
'Who may advance what is still open: one row for each operation with a leased claim that is not settled. Written by pg_idem only; read it through idempotent_operations.';
COMMENT ON COLUMN idem_inflight.token IS 'The current owner''s fence; NULL when the attempt was released.';
COMMENT ON COLUMN idem_inflight.failures IS 'Failed attempts and lost leases since the last new checkpoint.';
COMMENT ON COLUMN idem_inflight.granted IS 'An operator granted one more attempt past the rule and max_attempts.';
COMMENT ON COLUMN idem_inflight.announced IS 'That it waits for another attempt was announced on channel pg_idem.';
COMMENT ON COLUMN idem_inflight.on_interrupt IS 'The rule in force when the attempt was claimed.';
COMMENT ON COLUMN idem_inflight.session_pid IS 'With session_start: the database session to which the claim is bound.';

CREATE TABLE idem_seen (
    seen_at      timestamptz NOT NULL,
    forget_at    timestamptz NOT NULL,
    account      text COLLATE pg_catalog."C" NOT NULL,
    action       text COLLATE pg_catalog."C" NOT NULL,
    key          text COLLATE pg_catalog."C" NOT NULL,
    fingerprint  bytea,
    PRIMARY KEY (account, action, key)
);
COMMENT ON TABLE idem_seen IS
'Messages that consumers have taken with idem_once: a space of its own that never meets operations of the same name.';

CREATE TABLE idem_effect_calls (
    first_sent_at   timestamptz NOT NULL,
    reported_at     timestamptz,
    provider_window interval,
    downstream_key  uuid NOT NULL,
    account         text COLLATE pg_catalog."C" NOT NULL,
    action          text COLLATE pg_catalog."C" NOT NULL,
    key             text COLLATE pg_catalog."C" NOT NULL,
    name            text COLLATE pg_catalog."C" NOT NULL,
    generation      integer NOT NULL,
    report          text,
    fingerprint     bytea,
    request         jsonb,
    response        jsonb,
    PRIMARY KEY (account, action, key, name, generation)
);
CREATE INDEX idem_effect_calls_downstream_key ON idem_effect_calls (downstream_key);
CREATE INDEX idem_effect_calls_open ON idem_effect_calls (first_sent_at) WHERE report IS NULL;
COMMENT ON TABLE idem_effect_calls IS
'Calls to something outside the database, one row for each generation of an effect. Written by pg_idem only; read it through idem_effects.';
COMMENT ON COLUMN idem_effect_calls.first_sent_at IS 'When it was handed out first: from then on it may have been done.';
COMMENT ON COLUMN idem_effect_calls.provider_window IS 'How long the provider remembers the downstream key; NULL: it does not.';
COMMENT ON COLUMN idem_effect_calls.report IS 'confirmed, rejected, or absent; NULL: its fate is open.';

CREATE TABLE idem_policies (
    action            text COLLATE pg_catalog."C" PRIMARY KEY
                      CHECK (pg_catalog.octet_length(action) OPERATOR(pg_catalog.<=) 128
                             AND action OPERATOR(pg_catalog.!~) '^\s*$'),
    retention         interval CHECK (retention OPERATOR(pg_catalog.>=) '0'),
    remember          interval CHECK (remember OPERATOR(pg_catalog.>=) '0'),
    once_retention    interval CHECK (once_retention OPERATOR(pg_catalog.>) '0'),
    reject_older_than interval CHECK (reject_older_than OPERATOR(pg_catalog.>=) '0'),
    key_format        text CHECK (key_format OPERATOR(pg_catalog.=) ANY ('{"",any,uuid,uuidv7}')),
    fingerprint       text CHECK (fingerprint OPERATOR(pg_catalog.=) ANY ('{required,optional}')),
    max_lease         interval CHECK (max_lease OPERATOR(pg_catalog.>=) '0'),
    max_attempts      integer CHECK (max_attempts OPERATOR(pg_catalog.>) 0),
    on_interrupt      text CHECK (on_interrupt OPERATOR(pg_catalog.=) ANY ('{retry,fail,review,call}')),
    handler           text,
    handler_role      text,
    retry_backoff     interval CHECK (retry_backoff OPERATOR(pg_catalog.>=) '0'),
    max_backoff       interval CHECK (max_backoff OPERATOR(pg_catalog.>=) '0'),
    keep_request      boolean,
    max_outcome_bytes integer CHECK (max_outcome_bytes OPERATOR(pg_catalog.>=) 0)
);
COMMENT ON TABLE idem_policies IS
'Business decisions, one row an action; action ''*'' for all others. NULL: as in ''*'', else the built-in default. Interval ''0'' and empty text: none, where ''*'' sets something.';
COMMENT ON COLUMN idem_policies.retention IS 'How long an outcome is replayed, from settling. Default 3 days.';
COMMENT ON COLUMN idem_policies.remember IS 'How long after that the key is still known to have been used. Default 30 days.';
COMMENT ON COLUMN idem_policies.once_retention IS 'How long idem_once knows a message. Default 7 days.';
COMMENT ON COLUMN idem_policies.reject_older_than IS 'A request issued at least this long ago is answered as expired when nothing else is known. Default none; at most retention + remember less the tolerated skew.';
COMMENT ON COLUMN idem_policies.key_format IS 'any, uuid, or uuidv7 (RFC 9562), whose own time then counts as the time of issue. Default any.';
COMMENT ON COLUMN idem_policies.fingerprint IS 'required: a claim must give request or fingerprint. Default required.';
COMMENT ON COLUMN idem_policies.max_lease IS 'Longest lease. Default 1 hour.';
COMMENT ON COLUMN idem_policies.max_attempts IS 'Failed attempts or lost leases without a new checkpoint between them. Default 10.';
COMMENT ON COLUMN idem_policies.on_interrupt IS 'What becomes of an interrupted attempt: retry (claimable), fail (settled as failed), review (an operator decides), call (handler is run by a worker). Default retry.';
COMMENT ON COLUMN idem_policies.handler IS 'For on_interrupt = call: function (jsonb) returning jsonb, as schema-qualified text. Taken from the same row as handler_role: that of the action if it sets either, else ''*''.';
COMMENT ON COLUMN idem_policies.handler_role IS 'For on_interrupt = call: the role as which the handler is run.';
COMMENT ON COLUMN idem_policies.retry_backoff IS 'Delay after an attempt that ended in an error, doubled for each further one. Default 5 seconds.';
COMMENT ON COLUMN idem_policies.max_backoff IS 'Longest such delay. Default 1 hour.';
COMMENT ON COLUMN idem_policies.keep_request IS 'Store the request with the operation. Default false.';
COMMENT ON COLUMN idem_policies.max_outcome_bytes IS 'Largest result, body and body_bytes together, in bytes; also of checkpoint and progress. Default 1048576.';

CREATE TABLE idem_audit (
    id                uuid PRIMARY KEY,
    called_at         timestamptz NOT NULL,
    rows              bigint NOT NULL,
    attempt           integer,
    call              text COLLATE pg_catalog."C" NOT NULL,
    account           text COLLATE pg_catalog."C" NOT NULL,
    action            text COLLATE pg_catalog."C",
    key               text COLLATE pg_catalog."C",
    verdict           text COLLATE pg_catalog."C",
    note              text,
    session_user_name text NOT NULL,
    user_name         text NOT NULL
);
COMMENT ON TABLE idem_audit IS
'Which operator called what, one row a call, written with the change itself. Old rows may be deleted.';
COMMENT ON COLUMN idem_audit.id IS 'UUID version 7: in the order of the calls.';
COMMENT ON COLUMN idem_audit.rows IS 'How many rows the call changed; 0 where it answered false, or found nothing.';
COMMENT ON COLUMN idem_audit.attempt IS 'The attempt that was decided about, or whose outcome was forgotten.';
COMMENT ON COLUMN idem_audit.call IS 'resolve, reset, erase, import.';
COMMENT ON COLUMN idem_audit.verdict IS 'Of resolve: completed, failed, retry. Of import: completed, failed.';
COMMENT ON COLUMN idem_audit.session_user_name IS 'Who logged in.';
COMMENT ON COLUMN idem_audit.user_name IS 'As whom the call was made: after SET ROLE, or within a SECURITY DEFINER function, another.';

CREATE SEQUENCE idem_outbox_position CACHE 1;
COMMENT ON SEQUENCE idem_outbox_position IS
'Numbers the messages of idem_outbox. A cache would hand them out of order.';

-- The first names are what a router of change data capture expects. A message is inserted, updated in place when it is
-- handed out (no indexed column changes, and there is room in its page), and deleted when it is acknowledged: three
-- row versions a message, for which autovacuum must come often.
CREATE TABLE idem_outbox (
    id            uuid NOT NULL,
    aggregatetype text COLLATE pg_catalog."C" NOT NULL,
    aggregateid   text COLLATE pg_catalog."C" NOT NULL,
    type          text COLLATE pg_catalog."C" NOT NULL,
    payload       jsonb,
    headers       jsonb,
    account       text COLLATE pg_catalog."C",
    action        text COLLATE pg_catalog."C",
    key           text COLLATE pg_catalog."C",
    created_at    timestamptz NOT NULL,
    position      bigint NOT NULL,
    deliveries    integer NOT NULL,
    failures      integer NOT NULL,
    leased_until  timestamptz,
    due_at        timestamptz,
    parked_at     timestamptz,
    last_error    text,
    PRIMARY KEY (position)
) WITH (autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_insert_scale_factor = 0, autovacuum_vacuum_insert_threshold = 100000,
        autovacuum_vacuum_cost_delay = 0, toast.autovacuum_vacuum_scale_factor = 0,
        toast.autovacuum_vacuum_threshold = 1000, toast.autovacuum_vacuum_cost_delay = 0);
CREATE INDEX idem_outbox_aggregate ON idem_outbox (aggregatetype, aggregateid, position);
CREATE INDEX idem_outbox_leased ON idem_outbox (aggregatetype, aggregateid) WHERE leased_until IS NOT NULL;
CREATE INDEX idem_outbox_parked ON idem_outbox (id) WHERE parked_at IS NOT NULL;
COMMENT ON TABLE idem_outbox IS
'Published messages that are not acknowledged, one row each. Written by pg_idem only; read by relays through idem_outbox_take, or by change data capture.';
COMMENT ON COLUMN idem_outbox.id IS 'UUID version 7, as idem_publish returned it.';
COMMENT ON COLUMN idem_outbox.account IS 'With action and key: the operation that published it, where idem_current knew one.';
COMMENT ON COLUMN idem_outbox.position IS 'The order of the messages of an aggregate.';
COMMENT ON COLUMN idem_outbox.deliveries IS 'How often it was handed out.';
COMMENT ON COLUMN idem_outbox.failures IS 'Failed attempts: given back with an error, or lease run out, as the first of its aggregate.';
COMMENT ON COLUMN idem_outbox.leased_until IS 'End of the latest hand-out''s lease; NULL: not handed out, or given back.';
COMMENT ON COLUMN idem_outbox.due_at IS 'Given back: not handed out before.';
COMMENT ON COLUMN idem_outbox.parked_at IS 'Since when it waits for idem_outbox_retry, after pg_idem.outbox_max_attempts failures.';
COMMENT ON COLUMN idem_outbox.last_error IS 'Of the latest failed attempt.';
COMMENT ON INDEX idem_outbox_aggregate IS 'The order of the messages of one aggregate.';
COMMENT ON INDEX idem_outbox_leased IS 'Whether a message of an aggregate is handed out, wherever it stands.';
COMMENT ON INDEX idem_outbox_parked IS 'For idem_outbox_retry.';

SELECT pg_catalog.pg_extension_config_dump('idem_settled', '');
SELECT pg_catalog.pg_extension_config_dump('idem_inflight', '');
SELECT pg_catalog.pg_extension_config_dump('idem_seen', '');
SELECT pg_catalog.pg_extension_config_dump('idem_policies', '');
SELECT pg_catalog.pg_extension_config_dump('idem_audit', '');
SELECT pg_catalog.pg_extension_config_dump('idem_effect_calls', '');
SELECT pg_catalog.pg_extension_config_dump('idem_outbox', '');
SELECT pg_catalog.pg_extension_config_dump('idem_outbox_position', '');

CREATE FUNCTION idem_policies_changed() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'pg_idem_policies_changed';
COMMENT ON FUNCTION idem_policies_changed() IS 'Makes every session read the policies again after a change commits.';
-- For each row, because logical replication fires no other triggers.
CREATE TRIGGER idem_policies_changed
    AFTER INSERT OR UPDATE OR DELETE ON idem_policies
    FOR EACH ROW EXECUTE FUNCTION idem_policies_changed();
ALTER TABLE idem_policies ENABLE ALWAYS TRIGGER idem_policies_changed;
CREATE TRIGGER idem_policies_truncated
    AFTER TRUNCATE ON idem_policies
    FOR EACH STATEMENT EXECUTE FUNCTION idem_policies_changed();
ALTER TABLE idem_policies ENABLE ALWAYS TRIGGER idem_policies_truncated;

CREATE FUNCTION idem_policies_check() RETURNS trigger
    LANGUAGE c AS 'MODULE_PATHNAME', 'pg_idem_policies_check';
COMMENT ON FUNCTION idem_policies_check() IS 'Refuses a handler_role that the writer is not a member of, and any superuser.';
CREATE TRIGGER idem_policies_check
    BEFORE INSERT OR UPDATE ON idem_policies
    FOR EACH ROW EXECUTE FUNCTION idem_policies_check();
ALTER TABLE idem_policies ENABLE ALWAYS TRIGGER idem_policies_check;

-- ---------------------------------------------------------------------------------------------------------
-- The view over both tables, which is also a row type
-- ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION idem_now() RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL SAFE AS 'MODULE_PATHNAME', 'pg_idem_now';
COMMENT ON FUNCTION idem_now() IS
'The clock by which operations are judged: clock_timestamp(), or pg_idem.test_now where a test has set it.';

CREATE FUNCTION idem_session_ended(pid integer, started timestamptz) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL RESTRICTED AS 'MODULE_PATHNAME', 'pg_idem_session_ended';
COMMENT ON FUNCTION idem_session_ended(integer, timestamptz) IS
'Whether the database session to which a claim is bound has ended; NULL for no session. On a standby always false.';

CREATE VIEW idempotent_operations AS
    SELECT i.account, i.action, i.key,
           CASE WHEN i.in_review THEN 'review'::idem_state
                WHEN i.token IS NULL OR i.lease_expires_at OPERATOR(pg_catalog.<=) clock.now
                     OR idem_session_ended(i.session_pid, i.session_start) THEN 'interrupted'::idem_state
                ELSE 'in_progress'::idem_state END AS state,
           i.attempt, i.owner, i.lease_expires_at, i.due_at, i.reason, i.last_error, i.state_since, i.fingerprint,
           i.request, i.checkpoint, i.progress, NULL::pg_catalog.text AS settled_as, NULL::pg_catalog.int4 AS status,
           NULL::pg_catalog.jsonb AS result, NULL::pg_catalog.text AS body, NULL::pg_catalog.bytea AS body_bytes,
           i.claimed_at, NULL::pg_catalog.timestamptz AS settled_at, NULL::pg_catalog.timestamptz AS expires_at,
           NULL::pg_catalog.timestamptz AS forget_at
      FROM idem_inflight i, idem_now() AS clock(now)
    UNION ALL
    SELECT s.account, s.action, s.key,
           CASE WHEN NOT kept.payload THEN 'expired'::idem_state
                WHEN s.succeeded THEN 'completed'::idem_state
                ELSE 'failed'::idem_state END,
           s.attempt, NULL, NULL, NULL, NULL, NULL, s.settled_at, s.fingerprint,
           CASE WHEN kept.payload THEN s.request END, NULL, NULL,
           CASE WHEN s.succeeded THEN 'completed' ELSE 'failed' END, s.status,
           CASE WHEN kept.payload THEN s.result END, CASE WHEN kept.payload THEN s.body END,
           CASE WHEN kept.payload THEN s.body_bytes END,
           COALESCE(s.claimed_at, s.settled_at), s.settled_at, s.expires_at, s.forget_at
      FROM idem_settled s, idem_now() AS clock(now),
           LATERAL (SELECT NOT s.stripped AND clock.now OPERATOR(pg_catalog.<) s.expires_at) AS kept(payload)
     WHERE clock.now OPERATOR(pg_catalog.<) s.forget_at;
COMMENT ON VIEW idempotent_operations IS
'Every operation that is in flight or remembered. A transaction-scoped claim that is still open is not here (it has written nothing): ask idem_lookup.';

-- ---------------------------------------------------------------------------------------------------------
-- Operations
-- ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION idem_claim(account text, action text, key text, request jsonb DEFAULT NULL,
                           fingerprint bytea DEFAULT NULL, lease interval DEFAULT NULL, owner text DEFAULT NULL,
                           wait interval DEFAULT '0', issued_at timestamptz DEFAULT NULL,
                           session_bound boolean DEFAULT false, token uuid DEFAULT NULL)
    RETURNS idem_claim_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_claim';
COMMENT ON FUNCTION idem_claim(text, text, text, jsonb, bytea, interval, text, interval, timestamptz, boolean, uuid) IS
'May I carry out the operation (account, action, key)? Without lease the claim lasts for this transaction, which must settle or release it; with lease it is stored and lasts until settled, released, or the lease runs out. wait: how long to wait for another attempt before answering in_progress.';

CREATE FUNCTION idem_complete(account text, action text, key text, result jsonb DEFAULT NULL,
                              status integer DEFAULT NULL, body text DEFAULT NULL, body_bytes bytea DEFAULT NULL,
                              token uuid DEFAULT NULL)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_complete';
COMMENT ON FUNCTION idem_complete(text, text, text, jsonb, integer, text, bytea, uuid) IS
'Record success, together with this transaction''s changes; returns until when it will be replayed. token: of a leased claim.';

CREATE FUNCTION idem_fail(account text, action text, key text, result jsonb DEFAULT NULL,
                          status integer DEFAULT NULL, body text DEFAULT NULL, body_bytes bytea DEFAULT NULL,
                          token uuid DEFAULT NULL)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_fail';
COMMENT ON FUNCTION idem_fail(text, text, text, jsonb, integer, text, bytea, uuid) IS
'Record a final failure, replayed like a success; returns until when. For an error that a retry may cure, roll back or use idem_release.';

CREATE FUNCTION idem_release(account text, action text, key text, token uuid DEFAULT NULL,
                             retry_after interval DEFAULT NULL, error text DEFAULT NULL)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_release';
COMMENT ON FUNCTION idem_release(text, text, text, uuid, interval, text) IS
'End this attempt with nothing settled. With error it counts as a failed attempt, and the next one is due after a back-off; retry_after overrides when. False: the claim is no longer ours.';

CREATE FUNCTION idem_renew(account text, action text, key text, token uuid, lease interval DEFAULT NULL)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_renew';
COMMENT ON FUNCTION idem_renew(text, text, text, uuid, interval) IS
'Heartbeat of a leased claim, by the lease that it was made with unless given; returns the lease''s deadline. Never waits more than 100 ms.';

CREATE FUNCTION idem_checkpoint(account text, action text, key text, token uuid, checkpoint text,
                                progress jsonb DEFAULT NULL, lease interval DEFAULT NULL)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_checkpoint';
COMMENT ON FUNCTION idem_checkpoint(text, text, text, uuid, text, jsonb, interval) IS
'Record a recovery point together with this transaction''s changes, and renew the lease; returns its deadline. The next attempt receives it.';

CREATE FUNCTION idem_guard(account text, action text, key text, token uuid)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_guard';
COMMENT ON FUNCTION idem_guard(text, text, text, uuid) IS
'First statement of a business transaction of a leased claim: raise unless still the owner, and stay the owner until this transaction ends. Returns the lease''s deadline.';

CREATE FUNCTION idem_lookup(account text, action text, key text)
    RETURNS SETOF idempotent_operations
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1 AS 'MODULE_PATHNAME', 'pg_idem_lookup';
COMMENT ON FUNCTION idem_lookup(text, text, text) IS
'The authoritative state of an operation, or no row; never blocks. A transaction-scoped claim that is still open shows as in_progress with its process ID as owner. On a standby, absence proves nothing.';

CREATE FUNCTION idem_once(account text, action text, key text, request jsonb DEFAULT NULL,
                          fingerprint bytea DEFAULT NULL)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_once';
COMMENT ON FUNCTION idem_once(text, text, text, jsonb, bytea) IS
'Consumer''s boundary: true the first time, recorded with this transaction; false for a duplicate. Alone in its query, never in a WHERE clause.';

CREATE FUNCTION idem_once_batch(account text, action text, keys text[], fingerprints bytea[] DEFAULT NULL,
                                OUT key text, OUT verdict text)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_once_batch';
COMMENT ON FUNCTION idem_once_batch(text, text, text[], bytea[]) IS
'idem_once for a batch: one row for each distinct key in order of first appearance; verdict: first, duplicate, mismatch.';

CREATE FUNCTION idem_run(account text, action text, key text, request jsonb, handler regprocedure,
                         wait interval DEFAULT '1 second', issued_at timestamptz DEFAULT NULL,
                         fingerprint bytea DEFAULT NULL)
    RETURNS idem_claim_result
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_run';
COMMENT ON FUNCTION idem_run(text, text, text, jsonb, regprocedure, interval, timestamptz, bytea) IS
'Claim, call handler(request) as the caller, and record what it returns, in one round trip and one transaction. replayed tells whether the outcome was recorded before.';

CREATE FUNCTION idem_current(OUT account text, OUT action text, OUT key text, OUT attempt integer)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1 AS 'MODULE_PATHNAME', 'pg_idem_current';
COMMENT ON FUNCTION idem_current() IS
'The operation of the running handler, or the only claim of this transaction; else no row.';

CREATE FUNCTION idem_reject(result jsonb, status integer DEFAULT 422)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_reject';
COMMENT ON FUNCTION idem_reject(jsonb, integer) IS
'Called by a handler of idem_run: undo its changes and record a final failure with this result and status. Raises IDM08; never returns.';

CREATE FUNCTION idem_fingerprint(request jsonb, ignore text[] DEFAULT '{}')
    RETURNS bytea
    LANGUAGE c IMMUTABLE PARALLEL SAFE AS 'MODULE_PATHNAME', 'pg_idem_fingerprint';
COMMENT ON FUNCTION idem_fingerprint(jsonb, text[]) IS
'Version byte and SHA-256 of the request in canonical JSON (RFC 8785), numbers kept exact. ignore: JSON Pointers (RFC 6901) of what is left out.';

CREATE FUNCTION idem_take(action text, lease interval, batch integer DEFAULT 1, owner text DEFAULT NULL,
                          OUT account text, OUT key text, OUT request jsonb, OUT claim idem_claim_result)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_take';
COMMENT ON FUNCTION idem_take(text, interval, integer, text) IS
'For pools and completers: claim up to batch interrupted operations of the action that are due, those that have waited longest first, skipping what others hold. request: as kept by the policy (keep_request), else NULL. Without any the answer has no rows.';

-- ---------------------------------------------------------------------------------------------------------
-- Effects
-- ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION idem_effect(account text, action text, key text, token uuid, name text, provider_window interval,
                            request jsonb DEFAULT NULL, again boolean DEFAULT false,
                            OUT state text, OUT downstream_key uuid, OUT response jsonb,
                            OUT first_sent_at timestamptz, OUT send_before timestamptz)
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_effect';
COMMENT ON FUNCTION idem_effect(text, text, text, uuid, text, interval, jsonb, boolean) IS
'Record the intent to call something outside, under a leased claim; the provider may be called only after COMMIT. state: call (go ahead, but never after send_before, with downstream_key as the idempotency key), confirmed (done: here is the response), rejected (until again opens a new generation under a new key), unknown (handed out before, and may not be repeated: ask the provider, then idem_effect_report). provider_window: how long the provider remembers keys; NULL: it does not.';

CREATE FUNCTION idem_effect_report(downstream_key uuid, state text, response jsonb DEFAULT NULL)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_effect_report';
COMMENT ON FUNCTION idem_effect_report(uuid, text, jsonb) IS
'What the provider said of an effect: confirmed, rejected (it declined), or absent (it knows nothing of the key; believed only after first_sent_at + provider_window). A fact from whoever knows it: no token. True: it is on record, now or since an earlier report. False: the key is not known (any more), or absent came too early.';

CREATE FUNCTION idem_open_effects(account text, action text, key text,
                                  OUT name text, OUT generation integer, OUT state text, OUT downstream_key uuid,
                                  OUT request jsonb, OUT first_sent_at timestamptz, OUT send_before timestamptz,
                                  OUT absent_from timestamptz)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 1 AS 'MODULE_PATHNAME', 'pg_idem_open_effects';
COMMENT ON FUNCTION idem_open_effects(text, text, text) IS
'Effects of an operation whose fate is open: those to ask the provider about before it is settled. state: call or unknown. absent_from: from when the report absent is believed. Never blocks.';

CREATE VIEW idem_effects AS
    SELECT e.account, e.action, e.key, e.name, e.generation, e.downstream_key,
           CASE WHEN e.report OPERATOR(pg_catalog.=) 'confirmed' THEN 'confirmed'
                WHEN e.report IS NOT NULL THEN 'rejected'
                WHEN e.provider_window IS NOT NULL AND clock.now OPERATOR(pg_catalog.<) send.before THEN 'call'
                ELSE 'unknown' END AS state,
           e.first_sent_at, send.before AS send_before, e.provider_window, e.request, e.response, e.report,
           e.reported_at
      FROM idem_effect_calls e, idem_now() AS clock(now),
           LATERAL (SELECT e.first_sent_at OPERATOR(pg_catalog.+)
                           CASE WHEN e.provider_window IS NULL THEN '1 minute'::pg_catalog.interval
                                ELSE e.provider_window OPERATOR(pg_catalog.-)
                                     (LEAST(e.provider_window, '10 minutes'::pg_catalog.interval)
                                      OPERATOR(pg_catalog./) 10) END) AS send(before)
     WHERE NOT EXISTS (SELECT FROM idem_settled s
                        WHERE s.account OPERATOR(pg_catalog.=) e.account AND s.action OPERATOR(pg_catalog.=) e.action
                          AND s.key OPERATOR(pg_catalog.=) e.key
                          AND s.forget_at OPERATOR(pg_catalog.<=) clock.now);
COMMENT ON VIEW idem_effects IS
'Every effect of an operation that is in flight or remembered, one row a generation. state: what idem_effect would answer now. Open are those whose report is NULL.';

-- ---------------------------------------------------------------------------------------------------------
-- Outbox
-- ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION idem_publish(aggregatetype text, aggregateid text, type text, payload jsonb,
                             headers jsonb DEFAULT NULL)
    RETURNS uuid
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_publish';
COMMENT ON FUNCTION idem_publish(text, text, text, jsonb, jsonb) IS
'Publish a message together with this transaction''s changes; returns its id. Messages of one aggregate (aggregatetype, aggregateid) are handed out in the order in which they were published.';

CREATE FUNCTION idem_outbox_take(batch integer DEFAULT 100, lease interval DEFAULT '30 seconds',
                                 aggregatetypes text[] DEFAULT NULL, OUT receipt uuid, OUT id uuid,
                                 OUT aggregatetype text, OUT aggregateid text, OUT type text, OUT payload jsonb,
                                 OUT headers jsonb, OUT created_at timestamptz, OUT deliveries integer)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 100 AS 'MODULE_PATHNAME', 'pg_idem_outbox_take';
COMMENT ON FUNCTION idem_outbox_take(integer, interval, text[]) IS
'For relays: hand out up to batch messages in order, skipping aggregates of which others hold messages. Commit before sending; then idem_outbox_ack or idem_outbox_nack with the receipts. What is neither until the lease ends is handed out again. Alone in FROM.';

CREATE FUNCTION idem_outbox_ack(receipts uuid[]) RETURNS integer
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_outbox_ack';
COMMENT ON FUNCTION idem_outbox_ack(uuid[]) IS
'These messages were sent: delete them. Returns how many; receipts of messages that were given back or handed out again since change nothing.';

CREATE FUNCTION idem_outbox_nack(receipts uuid[], retry_after interval DEFAULT '5 seconds', error text DEFAULT NULL)
    RETURNS integer
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_outbox_nack';
COMMENT ON FUNCTION idem_outbox_nack(uuid[], interval, text) IS
'These messages were not sent: give them back, to be handed out again after retry_after. With error it counts as a failed attempt of the first message of each aggregate, which is parked after pg_idem.outbox_max_attempts of them. Returns how many were given back.';

CREATE FUNCTION idem_outbox_retry(ids uuid[]) RETURNS integer
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_outbox_retry';
COMMENT ON FUNCTION idem_outbox_retry(uuid[]) IS
'Hand out parked messages again, at once and with all their attempts. Returns how many were parked.';

-- ---------------------------------------------------------------------------------------------------------
-- Workers
-- ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION idem_maintain(max_rows integer DEFAULT NULL, OUT task text, OUT rows bigint)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 8 AS 'MODULE_PATHNAME', 'pg_idem_maintain';
COMMENT ON FUNCTION idem_maintain(integer) IS
'What the background workers do, once, in this transaction: interrupted operations by their rule, expired payloads stripped, rows past forget_at deleted, effects that a reset has left deleted when they are as old; at most max_rows a task (default pg_idem.batch_size). Again until every count is 0. For servers without the preload, from a scheduler.';

CREATE FUNCTION idem_wake_workers() RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_wake_workers';
COMMENT ON FUNCTION idem_wake_workers() IS
'The background workers look at this database as soon as this transaction commits. False: there are none (pg_idem is not in shared_preload_libraries).';

CREATE FUNCTION idem_worker_status_rows(OUT datid oid, OUT worker_pid integer, OUT passes bigint,
                                      OUT last_pass timestamptz, OUT last_ms double precision, OUT last_rows bigint,
                                      OUT next_due timestamptz, OUT last_error text, OUT last_error_at timestamptz)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_worker_status_rows';
COMMENT ON FUNCTION idem_worker_status_rows() IS 'Behind idem_worker_status.';

CREATE VIEW idem_worker_status AS
    SELECT w.datid, d.datname AS database, w.worker_pid, w.passes, w.last_pass, w.last_ms, w.last_rows, w.next_due,
           w.last_error, w.last_error_at
      FROM idem_worker_status_rows() w LEFT JOIN pg_catalog.pg_database d ON d.oid OPERATOR(pg_catalog.=) w.datid;
COMMENT ON VIEW idem_worker_status IS
'How the workers'' passes went in each database that has the extension; without rows where pg_idem is not in shared_preload_libraries. worker_pid: of the pass that is running. next_due: when something is due, as far as the last pass saw; the next one begins then, but a nap after the last one at the soonest, and twelve at the latest.';

-- ---------------------------------------------------------------------------------------------------------
-- Seeing it
-- ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION idem_stats_rows(OUT action text, OUT claims bigint, OUT recoveries bigint, OUT replays bigint,
                                OUT in_progress bigint, OUT mismatches bigint, OUT expired bigint, OUT reviews bigint,
                                OUT completed bigint, OUT failed bigint, OUT once_first bigint,
                                OUT once_duplicate bigint, OUT fenced bigint, OUT unsettled bigint,
                                OUT interrupted bigint, OUT forgotten bigint, OUT stats_reset timestamptz)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 20 AS 'MODULE_PATHNAME', 'pg_idem_stats_rows';
COMMENT ON FUNCTION idem_stats_rows() IS 'What view idem_stats shows.';

CREATE VIEW idem_stats AS
    SELECT s.action, s.claims, s.recoveries, s.replays, s.in_progress, s.mismatches, s.expired, s.reviews, s.completed,
           s.failed, s.once_first, s.once_duplicate, s.fenced, s.unsettled, s.interrupted, s.forgotten, s.stats_reset
      FROM idem_stats_rows() s;
COMMENT ON VIEW idem_stats IS
'Counters for each action of this database, since the server started or stats_reset. Answers are counted when given, what is recorded when its transaction commits or is prepared. Actions that find no room any more are counted together as *others*. Without pg_idem in shared_preload_libraries there are no rows.';
COMMENT ON COLUMN idem_stats.claims IS 'First attempts granted.';
COMMENT ON COLUMN idem_stats.recoveries IS 'Later attempts granted.';
COMMENT ON COLUMN idem_stats.replays IS 'Claims answered completed or failed from the record.';
COMMENT ON COLUMN idem_stats.in_progress IS 'Claims answered in_progress.';
COMMENT ON COLUMN idem_stats.mismatches IS 'Claims answered mismatch, and messages of idem_once and idem_once_batch with other inputs.';
COMMENT ON COLUMN idem_stats.expired IS 'Claims answered expired.';
COMMENT ON COLUMN idem_stats.reviews IS 'Claims answered review.';
COMMENT ON COLUMN idem_stats.completed IS 'Outcomes recorded: completed.';
COMMENT ON COLUMN idem_stats.failed IS 'Outcomes recorded: failed; also by rule.';
COMMENT ON COLUMN idem_stats.once_first IS 'Messages recorded by idem_once and idem_once_batch.';
COMMENT ON COLUMN idem_stats.once_duplicate IS 'Messages answered as duplicates.';
COMMENT ON COLUMN idem_stats.fenced IS 'Calls and commits of an owner refused with IDM02, IDM04 or IDM10.';
COMMENT ON COLUMN idem_stats.unsettled IS 'Commits refused with IDM01.';
COMMENT ON COLUMN idem_stats.interrupted IS 'Attempts found interrupted: announced, taken over, or ended by rule.';
COMMENT ON COLUMN idem_stats.forgotten IS 'Outcomes deleted past forget_at.';
COMMENT ON COLUMN idem_stats.stats_reset IS 'Since when is counted: when the server started, or the last idem_stats_reset.';

CREATE FUNCTION idem_stats_reset(action text DEFAULT NULL) RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_stats_reset';
COMMENT ON FUNCTION idem_stats_reset(text) IS
'Set the counters of an action of this database to 0, or of all actions; not undone by a rollback. False: there are none.';

CREATE FUNCTION idem_holders_rows(OUT pid integer, OUT account text, OUT action text, OUT key text,
                                  OUT claimed_at timestamptz, OUT age_seconds double precision)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 20 AS 'MODULE_PATHNAME', 'pg_idem_holders_rows';
COMMENT ON FUNCTION idem_holders_rows() IS 'What view idem_holders shows.';

CREATE VIEW idem_holders AS
    SELECT h.pid, h.account, h.action, h.key, h.claimed_at, h.age_seconds FROM idem_holders_rows() h;
COMMENT ON VIEW idem_holders IS
'Transaction-scoped claims of this database that are neither settled nor released, at most 8 of each session. Without pg_idem in shared_preload_libraries there are no rows.';

CREATE FUNCTION idem_gauges_row(OUT in_flight bigint, OUT interrupted bigint, OUT review bigint, OUT settled bigint,
                                OUT expired_not_swept bigint, OUT seen bigint, OUT seen_not_swept bigint,
                                OUT effects_open bigint, OUT effects_unknown bigint, OUT outbox_pending bigint,
                                OUT outbox_parked bigint, OUT oldest_in_flight_at timestamptz,
                                OUT oldest_interrupted_at timestamptz, OUT oldest_review_at timestamptz,
                                OUT oldest_effect_unknown_at timestamptz, OUT oldest_outbox_at timestamptz)
    RETURNS SETOF record
    LANGUAGE c VOLATILE PARALLEL RESTRICTED ROWS 1 AS 'MODULE_PATHNAME', 'pg_idem_gauges_row';
COMMENT ON FUNCTION idem_gauges_row() IS 'What view idem_gauges shows.';

CREATE VIEW idem_gauges AS
    SELECT g.in_flight, g.interrupted, g.review, g.oldest_in_flight_at, g.oldest_interrupted_at, g.oldest_review_at,
           g.settled, g.expired_not_swept, g.seen, g.seen_not_swept, g.effects_open, g.effects_unknown,
           g.oldest_effect_unknown_at, g.outbox_pending, g.outbox_parked, g.oldest_outbox_at
      FROM idem_gauges_row() g;
COMMENT ON VIEW idem_gauges IS
'What is stored now, in one row. Cheap enough to be asked every few seconds, however large the tables are: what is in flight is counted in up to 1024 blocks of idem_inflight, and messages in as many of idem_outbox, the others in up to 128 blocks of their tables; where a table has more, the numbers are estimates from so many blocks, spread evenly.';
COMMENT ON COLUMN idem_gauges.in_flight IS 'Leased claims that are alive. Transaction-scoped ones write nothing: see idem_holders.';
COMMENT ON COLUMN idem_gauges.interrupted IS 'Operations that wait for another attempt, also those that are not due yet.';
COMMENT ON COLUMN idem_gauges.review IS 'Operations in review.';
COMMENT ON COLUMN idem_gauges.oldest_in_flight_at IS 'When the oldest attempt in flight was claimed.';
COMMENT ON COLUMN idem_gauges.oldest_interrupted_at IS 'Since when the one that waits longest for another attempt is due.';
COMMENT ON COLUMN idem_gauges.oldest_review_at IS 'Since when the one that is longest in review is there.';
COMMENT ON COLUMN idem_gauges.settled IS 'Rows of idem_settled; an estimate above 128 blocks (1 MB).';
COMMENT ON COLUMN idem_gauges.expired_not_swept IS 'Of these, with a payload past expires_at, or past forget_at: what the workers have yet to remove. An estimate as well.';
COMMENT ON COLUMN idem_gauges.seen IS 'Rows of idem_seen; an estimate above 128 blocks (1 MB).';
COMMENT ON COLUMN idem_gauges.seen_not_swept IS 'Of these, past forget_at. An estimate as well.';
COMMENT ON COLUMN idem_gauges.effects_open IS 'Effects whose fate is open; counted up to 100,000.';
COMMENT ON COLUMN idem_gauges.effects_unknown IS 'Of these, those that may not be repeated any more: the provider must be asked.';
COMMENT ON COLUMN idem_gauges.oldest_effect_unknown_at IS 'Since when the one that is longest unknown is.';
COMMENT ON COLUMN idem_gauges.outbox_pending IS 'Messages that are not acknowledged and not parked.';
COMMENT ON COLUMN idem_gauges.outbox_parked IS 'Messages that wait for idem_outbox_retry.';
COMMENT ON COLUMN idem_gauges.oldest_outbox_at IS 'When the oldest pending message was published.';

-- ---------------------------------------------------------------------------------------------------------
-- Operator calls
-- ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION idem_resolve(account text, action text, key text, verdict text, result jsonb DEFAULT NULL,
                             status integer DEFAULT NULL, body text DEFAULT NULL, note text DEFAULT NULL,
                             attempt integer DEFAULT NULL)
    RETURNS timestamptz
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_resolve';
COMMENT ON FUNCTION idem_resolve(text, text, text, text, jsonb, integer, text, text, integer) IS
'Decide about an operation in review or in flight. verdict: completed or failed (record that outcome; returns until when it will be replayed), or retry (one more attempt, past the rule and max_attempts; returns when it is due). Ends the old owner''s token. attempt: refuse if it has moved on.';

CREATE FUNCTION idem_reset(account text, action text, key text, note text)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_reset';
COMMENT ON FUNCTION idem_reset(text, text, text, text) IS
'Forget a settled operation, so that it can be carried out once more. False: nothing was remembered. Refuses one in flight.';

CREATE FUNCTION idem_erase(account text, note text)
    RETURNS TABLE (what text, rows bigint)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 4 AS 'MODULE_PATHNAME', 'pg_idem_erase';
COMMENT ON FUNCTION idem_erase(text, text) IS
'Erase stored requests, results, bodies, progress and errors of an account, requests and responses of its effects, payloads and headers of its messages, at most pg_idem.batch_size rows a call: call again, each time in a transaction of its own, until all rows are 0. The protection against a second execution stays: replays are answered as expired.';

CREATE FUNCTION idem_import(account text, action text, key text, settled_as text, status integer DEFAULT NULL,
                            result jsonb DEFAULT NULL, body text DEFAULT NULL, fingerprint bytea DEFAULT NULL,
                            settled_at timestamptz DEFAULT NULL)
    RETURNS boolean
    LANGUAGE c VOLATILE PARALLEL UNSAFE AS 'MODULE_PATHNAME', 'pg_idem_import_outcome';
COMMENT ON FUNCTION idem_import(text, text, text, text, integer, jsonb, text, bytea, timestamptz) IS
'Bring over the record of an operation that was settled before, and elsewhere; its times count from settled_at. settled_as: completed or failed. False: the operation is already known here.';

-- ---------------------------------------------------------------------------------------------------------
-- Seeing
-- ---------------------------------------------------------------------------------------------------------

CREATE FUNCTION idem_doctor()
    RETURNS TABLE (check_name text, status text, detail text, advice text)
    LANGUAGE c VOLATILE PARALLEL UNSAFE ROWS 40 AS 'MODULE_PATHNAME', 'pg_idem_doctor';
COMMENT ON FUNCTION idem_doctor() IS
'What makes the guarantees weaker on this server and in this database: one row for each check, or for each finding. status: ok, info, warning, critical. advice: what to do, NULL where ok. As a role with pg_monitor it sees all sessions.';

-- ---------------------------------------------------------------------------------------------------------
-- Nobody may call anything until granted.
-- ---------------------------------------------------------------------------------------------------------

REVOKE ALL ON FUNCTION
    idem_policies_changed(), idem_policies_check(),
    idem_now(), idem_session_ended(integer, timestamptz),
    idem_claim(text, text, text, jsonb, bytea, interval, text, interval, timestamptz, boolean, uuid),
    idem_complete(text, text, text, jsonb, integer, text, bytea, uuid),
    idem_fail(text, text, text, jsonb, integer, text, bytea, uuid),
    idem_release(text, text, text, uuid, interval, text),
    idem_renew(text, text, text, uuid, interval),
    idem_checkpoint(text, text, text, uuid, text, jsonb, interval),
    idem_guard(text, text, text, uuid),
    idem_lookup(text, text, text),
    idem_once(text, text, text, jsonb, bytea),
    idem_once_batch(text, text, text[], bytea[]),
    idem_run(text, text, text, jsonb, regprocedure, interval, timestamptz, bytea),
    idem_current(), idem_reject(jsonb, integer), idem_fingerprint(jsonb, text[]),
    idem_take(text, interval, integer, text), idem_maintain(integer),
    idem_effect(text, text, text, uuid, text, interval, jsonb, boolean), idem_effect_report(uuid, text, jsonb),
    idem_open_effects(text, text, text),
    idem_publish(text, text, text, jsonb, jsonb), idem_outbox_take(integer, interval, text[]),
    idem_outbox_ack(uuid[]), idem_outbox_nack(uuid[], interval, text), idem_outbox_retry(uuid[]),
    idem_wake_workers(), idem_worker_status_rows(),
    idem_stats_rows(), idem_stats_reset(text), idem_holders_rows(), idem_gauges_row(),
    idem_resolve(text, text, text, text, jsonb, integer, text, text, integer),
    idem_reset(text, text, text, text), idem_erase(text, text),
    idem_import(text, text, text, text, integer, jsonb, text, bytea, timestamptz),
    idem_doctor()
FROM PUBLIC;

-- Except what names no account and no key.
GRANT SELECT ON idem_stats, idem_gauges, idem_worker_status TO pg_monitor;
GRANT EXECUTE ON FUNCTION idem_stats_rows(), idem_gauges_row(), idem_worker_status_rows() TO pg_monitor;

-- Last: the workers look at this database when this has committed.
SELECT idem_wake_workers();
