// idem_lookup, and the functions behind the view idempotent_operations.
#include "core/decide.hpp"
#include "pg/entry.hpp"

#include "api/records.hpp"
#include "pg/args.hpp"
#include "pg/clock.hpp"
#include "pg/key_lock.hpp"
#include "pg/relations.hpp"
#include "pg/session.hpp"
#include "store/datum.hpp"
#include "store/holdings.hpp"
#include "store/operation.hpp"

namespace idem::api {

namespace {

namespace column {
enum Column : int {
    account,
    action,
    key,
    state,
    attempt,
    owner,
    lease_expires_at,
    due_at,
    reason,
    last_error,
    state_since,
    fingerprint,
    request,
    checkpoint,
    progress,
    settled_as,
    status,
    result,
    body,
    body_bytes,
    claimed_at,
    settled_at,
    expires_at,
    forget_at,
    count
};
} // namespace column

enum class State : std::uint8_t { in_progress, interrupted, review, completed, failed, expired };
constexpr const char* state_labels[] = {"in_progress", "interrupted", "review", "completed", "failed", "expired"};

// Until somebody records what the rule says, the end of a lease shows as interrupted under every rule: a transaction
// of the owner that guarded in time may still settle.
State state_of(const core::InflightFacts& facts, core::Time now) {
    if (facts.in_review) {
        return State::review;
    }
    return core::is_over(facts, now) ? State::interrupted : State::in_progress;
}

State state_of(const core::SettledFacts& facts, bool succeeded, core::Time now) {
    if (core::is_expired(facts, now)) {
        return State::expired;
    }
    return succeeded ? State::completed : State::failed;
}

Datum state_datum(Oid type, State state) {
    return ObjectIdGetDatum(pg::enum_label(type, state_labels[static_cast<int>(state)]));
}

// A row of the view, built by hand.
struct Row {
    Datum values[column::count] = {};
    bool nulls[column::count];

    explicit Row(const core::Identity& identity) {
        for (bool& is_null : nulls) {
            is_null = true;
        }
        set(column::account, store::text_datum(identity.account));
        set(column::action, store::text_datum(identity.action));
        set(column::key, store::text_datum(identity.key));
    }
    void set(column::Column c, Datum value) {
        values[c] = value;
        nulls[c] = false;
    }
    void put(column::Column c, Datum value, bool is_null) {
        values[c] = value;
        nulls[c] = is_null;
    }
};

void fill(Row& row, const store::InflightRow& stored, Oid state_type) {
    using namespace store;
    auto copy = [&](column::Column to, inflight::Field from) { row.put(to, stored.values[from], stored.nulls[from]); };
    row.set(column::state, state_datum(state_type, state_of(stored.facts, pg::now())));
    copy(column::attempt, inflight::attempt);
    copy(column::owner, inflight::owner);
    copy(column::lease_expires_at, inflight::lease_expires_at);
    copy(column::due_at, inflight::due_at);
    copy(column::reason, inflight::reason);
    copy(column::last_error, inflight::last_error);
    copy(column::state_since, inflight::state_since);
    copy(column::fingerprint, inflight::fingerprint);
    copy(column::request, inflight::request);
    copy(column::checkpoint, inflight::checkpoint);
    copy(column::progress, inflight::progress);
    copy(column::claimed_at, inflight::claimed_at);
}

void fill(Row& row, const store::SettledRow& stored, Oid state_type) {
    using namespace store;
    auto copy = [&](column::Column to, settled::Field from) { row.put(to, stored.values[from], stored.nulls[from]); };
    row.set(column::state, state_datum(state_type, state_of(stored.facts, stored.succeeded(), pg::now())));
    row.set(column::settled_as, CStringGetTextDatum(stored.succeeded() ? "completed" : "failed"));
    copy(column::attempt, settled::attempt);
    copy(column::state_since, settled::settled_at);
    copy(column::fingerprint, settled::fingerprint);
    copy(column::request, settled::request);
    copy(column::status, settled::status);
    copy(column::result, settled::result);
    copy(column::body, settled::body);
    copy(column::body_bytes, settled::body_bytes);
    copy(column::claimed_at, stored.nulls[settled::claimed_at] ? settled::settled_at : settled::claimed_at);
    copy(column::settled_at, settled::settled_at);
    copy(column::expires_at, settled::expires_at);
    copy(column::forget_at, settled::forget_at);
}

bool fill_stored(Row& row, const core::Identity& identity, Oid state_type) {
    store::Stored stored;
    store::read_stored_mvcc(identity, stored);
    if (stored.is_settled && core::is_remembered(stored.settled.facts, pg::now())) {
        fill(row, stored.settled, state_type);
        return true;
    }
    if (stored.is_inflight) {
        fill(row, stored.inflight, state_type);
        return true;
    }
    return false;
}

// A claim that has written nothing: of this transaction, or of whoever holds the key lock.
bool fill_open_claim(Row& row, const core::Identity& identity, Oid state_type) {
    const store::Holding* own = store::find_holding(identity);
    if (own != nullptr && own->state == store::HoldingState::claimed) {
        row.set(column::attempt, Int32GetDatum(own->attempt));
        row.set(column::owner, CStringGetTextDatum(psprintf("%d", MyProcPid)));
    } else {
        const pg::KeyLockHolder holder = pg::find_key_lock_holder(pg::key_lock_tag(identity));
        if (!holder.held) {
            return false;
        }
        row.set(column::owner,
                CStringGetTextDatum(holder.pid != 0 ? psprintf("%d", holder.pid) : "prepared transaction"));
    }
    row.set(column::state, state_datum(state_type, State::in_progress));
    return true;
}

// Nothing read, then nobody at the lock, then nothing read under a newer snapshot: only then is it absent. A commit
// becomes visible before its locks are released.
bool fill_row(Row& row, const core::Identity& identity, Oid state_type) {
    return fill_stored(row, identity, state_type) || fill_open_claim(row, identity, state_type) ||
           fill_stored(row, identity, state_type);
}

Datum lookup(FunctionCallInfo fcinfo) {
    if (!SRF_IS_FIRSTCALL()) {
        FuncCallContext* done = SRF_PERCALL_SETUP();
        SRF_RETURN_DONE(done);
    }
    FuncCallContext* context = SRF_FIRSTCALL_INIT();
    PreventCommandIfParallelMode("idem_lookup()");
    const core::Identity identity = pg::identity_args(fcinfo);
    TupleDesc desc = nullptr;
    if (get_call_result_type(fcinfo, nullptr, &desc) != TYPEFUNC_COMPOSITE) {
        elog(ERROR, "return type must be a row type");
    }
    desc = BlessTupleDesc(desc);

    Row row(identity);
    if (!fill_row(row, identity, TupleDescAttr(desc, column::state)->atttypid)) {
        SRF_RETURN_DONE(context);
    }
    HeapTuple tuple = heap_form_tuple(desc, row.values, row.nulls);
    SRF_RETURN_NEXT(context, HeapTupleGetDatum(tuple));
}

Datum inflight_state(FunctionCallInfo fcinfo) {
    core::InflightFacts facts;
    facts.in_review = !PG_ARGISNULL(0) && PG_GETARG_BOOL(0);
    facts.token = pg::uuid_arg(fcinfo, 1);
    facts.lease_expires_at = pg::time_arg(fcinfo, 2).value_or(0);
    if (facts.token && !PG_ARGISNULL(3) && !PG_ARGISNULL(4)) {
        facts.session_over = !pg::is_session_alive({PG_GETARG_INT32(3), PG_GETARG_TIMESTAMPTZ(4)});
    }
    return state_datum(get_fn_expr_rettype(fcinfo->flinfo), state_of(facts, pg::now()));
}

Datum settled_state(FunctionCallInfo fcinfo) {
    core::SettledFacts facts;
    facts.stripped = !PG_ARGISNULL(1) && PG_GETARG_BOOL(1);
    facts.expires_at = pg::time_arg(fcinfo, 2).value_or(0);
    const bool succeeded = !PG_ARGISNULL(0) && PG_GETARG_BOOL(0);
    return state_datum(get_fn_expr_rettype(fcinfo->flinfo), state_of(facts, succeeded, pg::now()));
}

Datum remembered(FunctionCallInfo fcinfo) {
    core::SettledFacts facts;
    facts.forget_at = pg::time_arg(fcinfo, 0).value_or(0);
    PG_RETURN_BOOL(core::is_remembered(facts, pg::now()));
}

PG_IDEM_FUNCTION(lookup);
PG_IDEM_FUNCTION(inflight_state);
PG_IDEM_FUNCTION(settled_state);
PG_IDEM_FUNCTION(remembered);

} // namespace

} // namespace idem::api
