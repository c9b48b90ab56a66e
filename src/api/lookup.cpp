// idem_lookup, and the functions behind the view idempotent_operations.
#include "core/decide.hpp"
#include "pg/entry.hpp"

#include "api/records.hpp"
#include "pg/args.hpp"
#include "pg/clock.hpp"
#include "pg/errors.hpp"
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

// An expired outcome is not shown, whether or not it has been stripped yet.
void fill(Row& row, const store::SettledRow& stored, Oid state_type) {
    using namespace store;
    const State state = state_of(stored.facts, stored.succeeded(), pg::now());
    auto copy = [&](column::Column to, settled::Field from) { row.put(to, stored.values[from], stored.nulls[from]); };
    row.set(column::state, state_datum(state_type, state));
    row.set(column::settled_as, CStringGetTextDatum(stored.succeeded() ? "completed" : "failed"));
    copy(column::attempt, settled::attempt);
    copy(column::state_since, settled::settled_at);
    copy(column::fingerprint, settled::fingerprint);
    copy(column::status, settled::status);
    if (state != State::expired) {
        copy(column::request, settled::request);
        copy(column::result, settled::result);
        copy(column::body, settled::body);
        copy(column::body_bytes, settled::body_bytes);
    }
    copy(column::claimed_at, stored.nulls[settled::claimed_at] ? settled::settled_at : settled::claimed_at);
    copy(column::settled_at, settled::settled_at);
    copy(column::expires_at, settled::expires_at);
    copy(column::forget_at, settled::forget_at);
}

enum class Found : std::uint8_t { nothing, interrupted, answer };

Found fill_stored(Row& row, const core::Identity& identity, Oid state_type) {
    store::Stored stored;
    store::read_stored_mvcc(identity, stored);
    const core::Time now = pg::now();
    if (stored.is_settled && core::is_remembered(stored.settled.facts, now)) {
        fill(row, stored.settled, state_type);
        return Found::answer;
    }
    if (!stored.is_inflight) {
        return Found::nothing;
    }
    fill(row, stored.inflight, state_type);
    return state_of(stored.inflight.facts, now) == State::interrupted ? Found::interrupted : Found::answer;
}

// A claim that has written nothing, of this transaction or of whoever holds the key lock: on an operation of which
// nothing is stored, or whose interrupted attempt it takes over. (Or the late owner itself, in a guarded transaction.)
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
    if (fill_stored(row, identity, state_type) == Found::answer || fill_open_claim(row, identity, state_type)) {
        return true;
    }
    row = Row(identity);
    return fill_stored(row, identity, state_type) != Found::nothing;
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
    if (desc->natts != column::count) {
        pg::raise_altered("idempotent_operations", "has other columns");
    }
    desc = BlessTupleDesc(desc);

    Row row(identity);
    if (!fill_row(row, identity, TupleDescAttr(desc, column::state)->atttypid)) {
        SRF_RETURN_DONE(context);
    }
    HeapTuple tuple = heap_form_tuple(desc, row.values, row.nulls);
    SRF_RETURN_NEXT(context, HeapTupleGetDatum(tuple));
}

Datum now(FunctionCallInfo) {
    PG_RETURN_TIMESTAMPTZ(pg::now());
}

Datum session_ended(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(0) || PG_ARGISNULL(1)) {
        PG_RETURN_NULL();
    }
    PG_RETURN_BOOL(!pg::is_session_alive({PG_GETARG_INT32(0), PG_GETARG_TIMESTAMPTZ(1)}));
}

PG_IDEM_FUNCTION(lookup);
PG_IDEM_FUNCTION(now);
PG_IDEM_FUNCTION(session_ended);

} // namespace

} // namespace idem::api
