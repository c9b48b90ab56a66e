#include <cstring>

#include "store/holdings.hpp"

#include "pg/clock.hpp"
#include "pg/entry.hpp"
#include "pg/errors.hpp"
#include "pg/idle_claim.hpp"
#include "pg/key_lock.hpp"
#include "pg/settings.hpp"
#include "store/holders.hpp"
#include "store/list.hpp"
#include "store/operation.hpp"
#include "store/statistics.hpp"
#include "worker/registry.hpp"

namespace idem::store {

namespace {

constexpr long recheck_wait_ms = 100;
constexpr int none = -1;

// An operation that this transaction has held at some time.
struct Operation {
    core::StoredIdentity identity;
    uint64 hash;
    int last_event = none;
    int shown = not_shown; // its place among the claims that other sessions can see
};

struct Event {
    int operation;
    int before; // the operation's event before this one
    int level;  // of subtransaction nesting
    Holding holding;
};

struct Promise {
    core::StoredIdentity identity;
    core::Token token;
};

struct TransactionState {
    List<Operation> operations;
    List<Event> events;
    List<Promise> promises;
    int unshown_from = PG_INT32_MAX; // no operation before this one has an open claim that found no place to be shown
    int held = 0;                    // operations with an event: each has a key lock
    bool active = false;
    bool doomed = false;
    core::StoredIdentity doomed_by;
};
constinit TransactionState xact;

int find_operation(const core::Identity& identity, uint64 hash) {
    for (int i = xact.operations.size - 1; i >= 0; i--) {
        if (xact.operations.items[i].hash == hash && xact.operations.items[i].identity.get() == identity) {
            return i;
        }
    }
    return none;
}

const Holding* holding_of(const Operation& operation) {
    return operation.last_event == none ? nullptr : &xact.events.items[operation.last_event].holding;
}

bool is_open_claim(const Holding* holding) {
    return holding != nullptr && (holding->state == HoldingState::claimed || holding->state == HoldingState::leased);
}

// Whether two events, one after the other in one subtransaction, say the same: then the first is enough.
bool is_same_owner_call(const Holding& a, const Holding& b) {
    return a.state == b.state && a.token && a.token == b.token && a.made_here == b.made_here &&
           a.session_bound == b.session_bound && (a.state == HoldingState::guarded || a.state == HoldingState::leased);
}

// Whether the operation's last event says the same already, in this very subtransaction: a thousand guards are one.
bool is_repeated(int operation, const Holding& holding) {
    if (operation == none || xact.operations.items[operation].last_event == none) {
        return false;
    }
    const Event& last = xact.events.items[xact.operations.items[operation].last_event];
    return last.level == GetCurrentTransactionNestLevel() && is_same_owner_call(last.holding, holding);
}

void on_transaction(XactEvent event, void*);

void activate() {
    if (xact.active) {
        return;
    }
    xact.active = true;
    worker::note_use();
    // Callbacks run last-registered-first. Ours moves to the head, so that a claim that is not settled stops the commit
    // before another extension has committed something elsewhere in its own callback (postgres_fdw). That one's
    // callback is registered when it is first used in a session: if that is later, it runs before ours.
    UnregisterXactCallback(on_transaction, nullptr);
    RegisterXactCallback(on_transaction, nullptr);
}

void forget_everything() noexcept {
    hide_all_claims();
    xact = TransactionState{};
}

bool is_open_for_transaction(const Operation& operation) {
    const Holding* holding = holding_of(operation);
    return holding != nullptr && holding->state == HoldingState::claimed;
}

// A place has become free.
void show_another() noexcept {
    for (; xact.unshown_from < xact.operations.size; xact.unshown_from++) {
        Operation& operation = xact.operations.items[xact.unshown_from];
        if (operation.shown == not_shown && is_open_for_transaction(operation)) {
            operation.shown = show_claim(operation.identity.get(), holding_of(operation)->claimed_at);
            return;
        }
    }
    xact.unshown_from = PG_INT32_MAX;
}

// After a new event of the operation, or the loss of its last one.
void show_or_hide(int at) noexcept {
    Operation& operation = xact.operations.items[at];
    const bool open = is_open_for_transaction(operation);
    if (open && operation.shown == not_shown) {
        operation.shown = show_claim(operation.identity.get(), holding_of(operation)->claimed_at);
        if (operation.shown == not_shown && at < xact.unshown_from) {
            xact.unshown_from = at;
        }
    } else if (!open && operation.shown != not_shown) {
        hide_claim(operation.shown);
        operation.shown = not_shown;
        show_another();
    }
}

void drop_last_event() noexcept {
    const Event& event = xact.events.items[--xact.events.size];
    xact.operations.items[event.operation].last_event = event.before;
    xact.held -= event.before == none ? 1 : 0;
    show_or_hide(event.operation);
}

void cut_off(int level) noexcept {
    while (xact.events.size > 0 && xact.events.items[xact.events.size - 1].level >= level) {
        drop_last_event();
    }
    while (xact.operations.size > 0 && xact.operations.items[xact.operations.size - 1].last_event == none) {
        xact.operations.size--; // so that a loop of claims that are rolled back does not search ever longer
    }
}

bool last_event_is_repeated() noexcept {
    const Event& last = xact.events.items[xact.events.size - 1];
    if (last.before == none) {
        return false;
    }
    const Event& before = xact.events.items[last.before];
    return before.level == last.level && is_same_owner_call(before.holding, last.holding);
}

void move_up(int level) noexcept {
    for (int i = xact.events.size - 1; i >= 0 && xact.events.items[i].level >= level; i--) {
        xact.events.items[i].level = level - 1;
    }
    while (xact.events.size > 0 && last_event_is_repeated()) {
        drop_last_event(); // a thousand guards, each in a block of its own, are one as well
    }
}

// Whether the key lock has been kept since an owner call with this token that passed: then nobody else can have
// advanced the operation meanwhile, whatever this transaction itself did with it since.
bool has_kept_lock_for(const Operation& operation, const core::Token& token) {
    for (int at = operation.last_event; at != none; at = xact.events.items[at].before) {
        if (xact.events.items[at].holding.token == token) {
            return true;
        }
    }
    return false;
}

[[noreturn]] void refuse_promise(const core::Identity& identity) {
    count(identity.action, Counter::fenced);
    pg::raise_doomed(identity);
}

// Is the token of a promise still the current one?
void check_promise(const Promise& promise) {
    const core::Identity identity = promise.identity.get();
    const LOCKTAG tag = pg::key_lock_tag(identity);
    const int at = find_operation(identity, pg::hash_of(tag));
    if (at != none && has_kept_lock_for(xact.operations.items[at], promise.token) && pg::holds_key_lock(tag)) {
        return;
    }
    // Not had in time: somebody holds it who may be taking the operation over.
    if (!pg::try_key_lock_for(tag, recheck_wait_ms)) {
        refuse_promise(identity);
    }
    Stored stored;
    read_stored(identity, stored);
    if (core::judge_owner(stored.settled_facts(), stored.inflight_facts(), promise.token, pg::now(), false) !=
        core::OwnerVerdict::current) {
        refuse_promise(identity);
    }
}

void check_before_commit(bool preparing) {
    if (xact.doomed) {
        pg::raise_doomed(xact.doomed_by.get());
    }
    for (int i = 0; i < xact.operations.size; i++) {
        const Holding* holding = holding_of(xact.operations.items[i]);
        if (holding == nullptr) {
            continue;
        }
        if (holding->state == HoldingState::claimed) {
            count(xact.operations.items[i].identity.get().action, Counter::unsettled);
            pg::raise_not_settled(xact.operations.items[i].identity.get());
        }
        if (preparing && holding->session_bound && holding->state != HoldingState::settled &&
            holding->state != HoldingState::released) {
            pg::raise_session_bound_prepared(xact.operations.items[i].identity.get());
        }
    }
    for (int i = 0; i < xact.promises.size; i++) {
        check_promise(xact.promises.items[i]);
    }
}

void on_transaction(XactEvent event, void*) {
    if (!xact.active) {
        return;
    }
    switch (event) {
    case XACT_EVENT_PRE_COMMIT:
    case XACT_EVENT_PRE_PREPARE:
        pg::guarded([event] {
            check_before_commit(event == XACT_EVENT_PRE_PREPARE);
            return 0;
        });
        break;
    case XACT_EVENT_COMMIT:
    case XACT_EVENT_ABORT:
    case XACT_EVENT_PREPARE:
        forget_everything();
        break;
    default:
        break;
    }
}

void on_subtransaction(SubXactEvent event, SubTransactionId, SubTransactionId, void*) {
    if (!xact.active) {
        return;
    }
    const int level = GetCurrentTransactionNestLevel();
    if (event == SUBXACT_EVENT_ABORT_SUB) {
        cut_off(level);
    } else if (event == SUBXACT_EVENT_COMMIT_SUB) {
        move_up(level);
    }
}

void promise_ownership(const core::Identity& identity, const core::Token& token) {
    for (int i = xact.promises.size - 1; i >= 0; i--) {
        if (xact.promises.items[i].token == token && xact.promises.items[i].identity.get() == identity) {
            return;
        }
    }
    if (xact.promises.size >= pg::settings.max_claims_per_transaction) {
        pg::raise_too_many_claims(pg::settings.max_claims_per_transaction); // each may have to take its lock again
    }
    Promise& promise = xact.promises.add();
    promise.identity = core::StoredIdentity(identity);
    promise.token = token;
}

} // namespace

const Holding* find_holding(const core::Identity& identity) {
    if (xact.operations.size == 0) {
        return nullptr;
    }
    const int at = find_operation(identity, pg::hash_of(pg::key_lock_tag(identity)));
    return at == none ? nullptr : holding_of(xact.operations.items[at]);
}

void note_holding(const core::Identity& identity, const Holding& holding) {
    activate();
    const uint64 hash = pg::hash_of(pg::key_lock_tag(identity));
    int at = find_operation(identity, hash);
    const bool newly_held = at == none || xact.operations.items[at].last_event == none;
    if (newly_held && xact.held >= pg::settings.max_claims_per_transaction) {
        pg::raise_too_many_claims(pg::settings.max_claims_per_transaction);
    }
    if (is_repeated(at, holding)) {
        return;
    }
    pg::arm_idle_claim_timeout();
    if (at == none) {
        at = xact.operations.size;
        Operation& operation = xact.operations.add();
        operation.identity = core::StoredIdentity(identity);
        operation.hash = hash;
    }
    Operation& operation = xact.operations.items[at];
    const int now = xact.events.size;
    Event& event = xact.events.add();
    event.operation = at;
    event.before = operation.last_event;
    event.level = GetCurrentTransactionNestLevel();
    event.holding = holding;
    operation.last_event = now;
    xact.held += newly_held ? 1 : 0;
    show_or_hide(at);
}

bool find_only_claim(OpenClaim& claim) {
    int found = 0;
    for (int i = 0; i < xact.operations.size; i++) {
        const Holding* holding = holding_of(xact.operations.items[i]);
        if (is_open_claim(holding)) {
            found++;
            claim.identity = xact.operations.items[i].identity.get();
            claim.attempt = holding->attempt;
        }
    }
    return found == 1;
}

void note_owner_call(const core::Identity& identity, Holding holding) {
    const Holding* before = find_holding(identity);
    const bool made_here = before != nullptr && before->made_here;
    if (made_here) {
        holding.made_here = true;
        holding.session_bound = before->session_bound;
        if (holding.state == HoldingState::guarded) {
            holding.state = HoldingState::leased; // still open
        }
    }
    note_holding(identity, holding);
    if (!made_here) {
        promise_ownership(identity, *holding.token);
    }
}

void doom_transaction(const core::Identity& identity) {
    activate();
    if (!xact.doomed) {
        xact.doomed = true;
        xact.doomed_by = core::StoredIdentity(identity);
    }
}

void init_holdings() {
    RegisterXactCallback(on_transaction, nullptr);
    RegisterSubXactCallback(on_subtransaction, nullptr);
}

} // namespace idem::store
