#include <algorithm>
#include <cstring>

#include "core/key_format.hpp"
#include "protocol/claim.hpp"

#include "pg/args.hpp"
#include "pg/clock.hpp"
#include "pg/durability.hpp"
#include "pg/errors.hpp"
#include "pg/key_lock.hpp"
#include "pg/subtransaction.hpp"
#include "protocol/by_rule.hpp"
#include "protocol/grant.hpp"
#include "protocol/limits.hpp"
#include "store/datum.hpp"
#include "store/holdings.hpp"
#include "store/policies.hpp"
#include "store/statistics.hpp"

namespace idem::protocol {

namespace {

using core::Verdict;

constexpr long reread_every_ms = 20;

struct Look {
    store::Stored stored;
    core::Decision decision;
    core::Time now;
};

// A claim under way.
struct Claiming {
    const ClaimCall& call;
    const core::Policy& policy;
    LOCKTAG tag;
    core::Time started; // of the real clock, for `wait`
};

// Waiting goes by the real clock, also where pg_idem.test_now stands still.
long wait_left_ms(const Claiming& c) {
    const core::Duration left = c.call.wait - core::between(GetCurrentTimestamp(), c.started);
    return left <= 0 ? 0 : static_cast<long>(std::min<core::Duration>((left + 999) / 1000, PG_INT32_MAX));
}

using Reader = void (*)(const core::Identity&, store::Stored&);

void look(const Claiming& c, Look& l, Reader read) {
    read(c.call.identity, l.stored);
    l.now = pg::now();
    l.decision = core::decide(l.stored.settled_facts(), l.stored.inflight_facts(), c.call.request, c.policy, l.now);
}

ClaimAnswer answer_settled(const store::SettledRow& row, bool with_payload) {
    ClaimAnswer a;
    a.attempt = row.attempt();
    a.succeeded = row.succeeded();
    a.settled_at = DatumGetTimestampTz(row.values[store::settled::settled_at]);
    a.expires_at = row.facts.expires_at;
    auto get = [&](store::settled::Field field) { return store::Nullable{row.values[field], row.nulls[field]}; };
    a.status = get(store::settled::status);
    if (!with_payload) {
        a.outcome = Answer::expired;
        return a;
    }
    a.outcome = row.succeeded() ? Answer::completed : Answer::failed;
    a.replayed = true;
    a.result = get(store::settled::result);
    a.body = get(store::settled::body);
    a.body_bytes = get(store::settled::body_bytes);
    return a;
}

// The transaction that holds the key lock, if any.
ClaimAnswer answer_locked(const Claiming& c, const Look& l) {
    ClaimAnswer a;
    a.outcome = Answer::in_progress;
    a.retry_after = 1;
    if (l.stored.is_inflight) {
        a.attempt = l.stored.inflight.attempt();
    }
    const pg::KeyLockHolder holder = pg::find_key_lock_holder(c.tag);
    if (holder.pid != 0) {
        a.holder = session_label(holder.pid);
    } else if (holder.held) {
        a.holder = "prepared transaction";
    }
    return a;
}

// Verdicts that are answers: nothing changes.
ClaimAnswer answer(const Claiming& c, const Look& l) {
    ClaimAnswer a;
    const store::InflightRow& row = l.stored.inflight;
    switch (l.decision.verdict) {
    case Verdict::mismatch:
        a.outcome = Answer::mismatch;
        return a;
    case Verdict::fingerprint_missing:
        pg::raise_fingerprint_required(c.call.identity);
    case Verdict::replay:
        return answer_settled(l.stored.settled, true);
    case Verdict::expired:
        return answer_settled(l.stored.settled, false);
    case Verdict::review:
        a.outcome = Answer::review;
        a.attempt = row.attempt();
        return a;
    case Verdict::in_progress:
        a.outcome = Answer::in_progress;
        a.attempt = row.attempt();
        a.holder = row.facts.token ? row.text(store::inflight::owner) : std::nullopt;
        a.retry_after = core::retry_after_seconds(l.now, l.decision.ready_at);
        return a;
    case Verdict::too_old:
        a.outcome = Answer::expired;
        return a;
    default:
        elog(ERROR, "claim verdict %d is not an answer", static_cast<int>(l.decision.verdict));
    }
    return a;
}

struct varlena* copy_for_transaction(std::string_view bytes) {
    MemoryContext old = MemoryContextSwitchTo(TopTransactionContext);
    text* copy = cstring_to_text_with_len(bytes.data(), static_cast<int>(bytes.size()));
    MemoryContextSwitchTo(old);
    return copy;
}

struct varlena* copy_for_transaction(Jsonb* json) {
    auto* copy = static_cast<struct varlena*>(MemoryContextAlloc(TopTransactionContext, VARSIZE(json)));
    std::memcpy(copy, json, VARSIZE(json));
    return copy;
}

// Transaction-scoped: nothing is written until it is settled; an interrupted attempt's row stays until then.
ClaimAnswer grant_for_transaction(const Claiming& c, const Look& l) {
    const store::InflightRow* previous = l.stored.is_inflight ? &l.stored.inflight : nullptr;
    const int attempt = previous == nullptr ? 1 : previous->attempt() + 1;
    store::Holding holding{store::HoldingState::claimed, attempt};
    holding.claimed_at = l.now;
    const core::Fingerprint stored = previous == nullptr ? std::nullopt : previous->facts.fingerprint;
    if (const core::Fingerprint& fingerprint = stored ? stored : c.call.request.fingerprint) {
        holding.fingerprint = copy_for_transaction(*fingerprint);
    }
    if (c.policy.keep_request && c.call.request_json != nullptr) {
        holding.request = copy_for_transaction(c.call.request_json);
    }
    store::note_holding(c.call.identity, holding);
    count_grant(c.call.identity, attempt);
    return granted_answer(attempt, previous);
}

// The current owner repeats its claim call: the same answer as before, and the lease renewed. A session-bound claim
// now belongs to the calling session.
ClaimAnswer repeat_answer(const Claiming& c, Look& l) {
    store::InflightRow& row = l.stored.inflight;
    fill_lease(c.call, row, l.now);
    pg::require_durable_commit();
    store::update_inflight(row);
    store::note_owner_call(c.call.identity,
                           {store::HoldingState::leased, row.attempt(), c.call.request.token, c.call.session_bound});
    ClaimAnswer a = granted_answer(row.attempt(), &row);
    a.token = c.call.request.token;
    return a;
}

// Under the key lock: carries out what was decided. Whoever is granted nothing, and has written nothing, lets go of the
// lock within the very call.
ClaimAnswer carry_out(const Claiming& c, Look& l) {
    switch (l.decision.verdict) {
    case Verdict::grant_first:
    case Verdict::grant_next:
        return c.call.lease ? grant_with_lease(c.call, c.policy, l.stored, l.decision.failures, l.now)
                            : grant_for_transaction(c, l);
    case Verdict::repeat_answer:
        return repeat_answer(c, l);
    case Verdict::fail_by_rule: {
        fail_by_rule(c.call.identity, l.stored.inflight, c.policy, l.now);
        store::SettledRow row;
        if (!store::find_settled(c.call.identity, SnapshotSelf, pg::Access::look, row)) {
            elog(ERROR, "operation failed by rule is not there");
        }
        return answer_settled(row, true);
    }
    case Verdict::review_by_rule: {
        review_by_rule(c.call.identity, l.stored.inflight, l.decision.failures, l.now);
        ClaimAnswer a;
        a.outcome = Answer::review;
        a.attempt = l.stored.inflight.attempt();
        return a;
    }
    case Verdict::too_old:
        pg::release_key_lock(c.tag);
        return answer(c, l);
    default:
        break;
    }
    elog(ERROR, "claim verdict %d changes nothing", static_cast<int>(l.decision.verdict));
    pg_unreachable();
}

// The lock is not to be had. A probe may have missed a row that is just being updated: one more look, under an MVCC
// snapshot, so that a committed outcome or fingerprint is never answered as merely in progress.
ClaimAnswer answer_without_lock(const Claiming& c, Look& l) {
    if (!l.stored.is_inflight) { // nothing, or a forgotten outcome
        look(c, l, store::read_stored_mvcc);
        if (!core::needs_lock(l.decision.verdict)) {
            return answer(c, l);
        }
    }
    return answer_locked(c, l);
}

// The wait timed out, or closed a circle of waits, which giving it up breaks.
bool is_wait_over(int sqlstate) {
    return sqlstate == ERRCODE_LOCK_NOT_AVAILABLE || sqlstate == ERRCODE_T_R_DEADLOCK_DETECTED;
}

bool changes_something(Verdict verdict) {
    return core::needs_lock(verdict) && verdict != Verdict::too_old;
}

enum class Wait : std::uint8_t { had, look_again, answered, over };

// Waits for what stands in the way of a claim that needs the lock. Beside a row in flight nobody queues: a waiting
// claim would stop the owner's own calls. Where no row is seen, the holder is a transaction-scoped claim (or one not
// yet committed), and the lock manager's queue is fair, knows deadlocks, and can be cancelled.
Wait wait_for_lock(const Claiming& c, Look& l) {
    const long left = wait_left_ms(c);
    if (left == 0) {
        return Wait::over;
    }
    if (l.stored.is_inflight) {
        pg::pause_ms(std::min(left, reread_every_ms));
        return Wait::look_again;
    }
    volatile bool had = false;
    ErrorData* error = pg::in_subtransaction([&] {
        pg::wait_for_key_lock(c.tag, left);
        had = true;
        look(c, l, store::read_stored);
        return changes_something(l.decision.verdict); // then the lock moves up, else it is released here
    });
    if (error != nullptr) {
        if (had || !is_wait_over(error->sqlerrcode)) {
            ReThrowError(error);
        }
        return Wait::over;
    }
    if (changes_something(l.decision.verdict)) {
        return Wait::had;
    }
    return l.decision.verdict == Verdict::too_old ? Wait::answered : Wait::look_again;
}

ClaimAnswer run_claim(const Claiming& c) {
    Look l{};
    int tries = 3; // for a lock whose holder ended between our asking for it and our asking who it is
    for (;;) {
        look(c, l, store::look_at_stored);
        if (core::needs_lock(l.decision.verdict)) {
            if (pg::try_key_lock(c.tag)) {
                look(c, l, store::read_stored); // again, now under the lock
                if (core::needs_lock(l.decision.verdict)) {
                    return carry_out(c, l);
                }
                pg::release_key_lock(c.tag);
            } else {
                switch (wait_for_lock(c, l)) {
                case Wait::had:
                    return carry_out(c, l);
                case Wait::answered:
                    return answer(c, l);
                case Wait::over:
                    if (tries-- > 0 && !pg::find_key_lock_holder(c.tag).held) {
                        continue; // let go of meanwhile
                    }
                    return answer_without_lock(c, l);
                case Wait::look_again:
                    continue;
                }
            }
        }
        const long left = wait_left_ms(c);
        if (l.decision.verdict != Verdict::in_progress || left == 0) {
            return answer(c, l);
        }
        pg::pause_ms(std::min(left, reread_every_ms));
    }
}

// Every answer but a grant, which is counted where it is made: the owner's repeated call is no grant.
void count_answer(const core::Identity& identity, Answer answer) {
    switch (answer) {
    case Answer::claimed:
    case Answer::recovered:
        break;
    case Answer::completed:
    case Answer::failed:
        store::count(identity.action, store::Counter::replays);
        break;
    case Answer::in_progress:
        store::count(identity.action, store::Counter::in_progress);
        break;
    case Answer::mismatch:
        store::count(identity.action, store::Counter::mismatches);
        break;
    case Answer::expired:
        store::count(identity.action, store::Counter::expired);
        break;
    case Answer::review:
        store::count(identity.action, store::Counter::reviews);
        break;
    }
}

// What this transaction holds already: an open claim may not be claimed again, except that the owner of a leased one
// may repeat its call with its own token.
void refuse_second_claim(const ClaimCall& call) {
    const store::Holding* holding = store::find_holding(call.identity);
    if (holding == nullptr || holding->state == store::HoldingState::settled ||
        holding->state == store::HoldingState::released) {
        return;
    }
    const bool repeats = holding->token && call.request.token == holding->token;
    if (!repeats) {
        pg::raise_already_claimed(call.identity);
    }
}

void refuse_future(const core::Identity& identity, std::optional<core::Time> issued_at, const core::Policy& policy) {
    if (issued_at && core::between(*issued_at, pg::now()) > policy.tolerated_skew) {
        pg::raise_issued_in_future(identity);
    }
}

void check_policy(ClaimCall& call, const core::Policy& policy) {
    if (!core::has_format(call.identity.key, policy.key_format)) {
        pg::raise_bad_key_format(call.identity);
    }
    refuse_future(call.identity, call.request.issued_at, policy);
    if (policy.key_format == core::KeyFormat::uuidv7) {
        // Both given: the earlier counts, so that a caller who stamps every retry anew does not look fresh.
        const std::optional<core::Time> own = core::uuidv7_time(call.identity.key);
        refuse_future(call.identity, own, policy);
        std::optional<core::Time>& issued = call.request.issued_at;
        issued = issued && own ? std::min(*issued, *own) : (own ? own : issued);
    }
    if (!call.request.fingerprint && policy.fingerprint_required) {
        pg::raise_fingerprint_required(call.identity);
    }
    check_lease(call.identity, policy, call.lease);
}

} // namespace

ClaimAnswer claim(ClaimCall call) {
    const core::Policy policy = store::policy_for(call.identity.action);
    check_policy(call, policy);
    refuse_second_claim(call);
    const Claiming c{call, policy, pg::key_lock_tag(call.identity), GetCurrentTimestamp()};
    const ClaimAnswer a = run_claim(c);
    count_answer(call.identity, a.outcome);
    return a;
}

} // namespace idem::protocol
