#include <algorithm>

#include "protocol/take.hpp"

#include "pg/account.hpp"
#include "pg/clock.hpp"
#include "pg/key_lock.hpp"
#include "pg/session.hpp"
#include "protocol/grant.hpp"
#include "protocol/limits.hpp"
#include "store/candidates.hpp"
#include "store/datum.hpp"
#include "store/holdings.hpp"
#include "store/policies.hpp"

namespace idem::protocol {

namespace {

struct Waiting {
    core::Time since;
    core::StoredIdentity identity;

    friend bool operator<(const Waiting& a, const Waiting& b) { return a.since < b.since; }
};

// Those that have waited longest, at most `room`; the newest of them is on top of the heap.
struct Queue {
    Waiting* items;
    int room;
    int size = 0;
    int64 seen = 0;

    explicit Queue(int wanted)
        : items(static_cast<Waiting*>(MemoryContextAllocHuge(CurrentMemoryContext, sizeof(Waiting) * wanted))),
          room(wanted) {}
    void add(const Waiting& one) {
        seen++;
        if (size == room) {
            if (!(one < items[0])) {
                return;
            }
            std::pop_heap(items, items + size);
            size--;
        }
        items[size++] = one;
        std::push_heap(items, items + size);
    }
};

core::Time waiting_since(const store::InflightRow& row, core::Time now) {
    if (!row.facts.token) {
        return row.facts.due_at;
    }
    if (row.is_announced()) { // since its session ended, maybe
        return DatumGetTimestampTz(row.values[store::inflight::state_since]);
    }
    return std::min(row.facts.lease_expires_at, now);
}

bool is_claimable(const core::InflightFacts& facts, core::Time now) {
    return core::decide_unattended(facts, now).verdict == core::Verdict::grant_next;
}

Queue find_waiting(std::string_view action, int room) {
    Queue queue(room);
    const pg::Table table = pg::open_table(pg::TableId::inflight, pg::Access::look);
    pg::remember_sessions();
    const core::Time now = pg::now();
    const BlockNumber blocks = pg::block_count(table);
    if (blocks > 0) {
        pg::BlockScan scan = pg::begin_block_scan(table, 0, blocks);
        while (pg::next_row(scan)) {
            CHECK_FOR_INTERRUPTS();
            store::InflightRow row;
            store::read_inflight(scan.slot, row);
            Waiting one;
            if (row.text(store::inflight::action) == action && is_claimable(row.facts, now) &&
                store::read_identity(scan.slot, pg::TableId::inflight, one.identity) &&
                pg::is_account_permitted(one.identity.get().account)) {
                one.since = waiting_since(row, now);
                queue.add(one);
            }
        }
        pg::end_block_scan(scan);
    }
    pg::close_table(table);
    std::sort_heap(queue.items, queue.items + queue.size);
    return queue;
}

bool take_one(const ClaimCall& call, const core::Policy& policy, Taken taken, void* context) {
    if (store::find_holding(call.identity) != nullptr) {
        return false;
    }
    const LOCKTAG tag = pg::key_lock_tag(call.identity);
    if (!pg::try_key_lock(tag)) {
        return false;
    }
    store::Stored stored;
    store::read_stored(call.identity, stored);
    const core::Time now = pg::now();
    if (!stored.is_inflight || !is_claimable(stored.inflight.facts, now)) {
        pg::release_key_lock(tag);
        return false;
    }
    const int failures = core::decide_unattended(stored.inflight.facts, now).failures;
    const store::Nullable request{stored.inflight.values[store::inflight::request],
                                  stored.inflight.nulls[store::inflight::request]};
    const ClaimAnswer answer = grant_with_lease(call, policy, stored, failures, now);
    taken(call.identity, request, answer, context);
    return true;
}

} // namespace

void take(const TakeCall& call, Taken taken, void* context) {
    const core::Policy policy = store::policy_for(call.action);
    ClaimCall claim;
    claim.identity.action = call.action;
    check_lease(claim.identity, policy, call.lease);
    claim.lease = call.lease;
    claim.owner = call.owner;

    int granted = 0;
    int room = std::min(call.batch, 10'000) * 4 + 64; // others take from the same end of the queue
    for (;;) {
        const Queue queue = find_waiting(call.action, room);
        for (int i = 0; i < queue.size && granted < call.batch; i++) {
            CHECK_FOR_INTERRUPTS();
            claim.identity = queue.items[i].identity.get();
            granted += take_one(claim, policy, taken, context) ? 1 : 0;
        }
        if (granted == call.batch || queue.seen <= queue.room) {
            return;
        }
        room = std::min(room * 8, 2 * static_cast<int>(std::min<int64>(queue.seen, PG_INT32_MAX / 16)) + 64);
    }
}

} // namespace idem::protocol
