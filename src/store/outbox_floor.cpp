#include <algorithm>
#include <cstring>
#include <new>

#include "store/outbox_floor.hpp"

#include "pg/sequence.hpp"
#include "pg/writers.hpp"

extern "C" {
#include "storage/procarray.h"
}

namespace idem::store {

namespace {

// By the server's clock, never that of a test: these bound work, not answers.
constexpr int round_every_ms = 50;
constexpr int look_every_ms = 5;
constexpr int check_every_ms = 10'000;

// A round: every position up to `upto` was drawn by a transaction that had ended, or was among the writers, when the
// round began. When those have ended, a younger snapshot sees all messages up to there that there will ever be.
struct Round {
    bool open;
    bool over; // all its writers have ended
    std::int64_t upto;
    TimestampTz looked_at;
    VirtualTransactionId* writers;
    std::size_t size;
};

// A floor that holds if a transaction of this session commits: it had deleted messages itself, perhaps.
struct Pending {
    TransactionId transaction;
    TimestampTz since;
    std::int64_t floor;
};

struct State {
    MemoryContext memory; // of everything below; nullptr: nothing is known
    Oid table;
    Oid storage;
    std::string_view filter;
    std::int64_t floor;
    TimestampTz checked_at; // when a walk began at the very beginning
    TimestampTz round_at;
    Round round;
    Pending pending;
};
constinit State state{};

bool is_for(const pg::Table& table, std::string_view filter) {
    return state.memory != nullptr && state.table == RelationGetRelid(table.heap) &&
           state.storage == table.heap->rd_rel->relfilenode && state.filter == filter;
}

void begin_anew(const pg::Table& table, std::string_view filter) {
    if (state.memory != nullptr) {
        MemoryContextDelete(state.memory);
    }
    state = State{};
    state.memory = AllocSetContextCreate(TopMemoryContext, "pg_idem outbox floor", ALLOCSET_SMALL_SIZES);
    auto* copy = static_cast<char*>(MemoryContextAlloc(state.memory, filter.size() + 1));
    std::memcpy(copy, filter.data(), filter.size());
    state.filter = {copy, filter.size()};
    state.table = RelationGetRelid(table.heap);
    state.storage = table.heap->rd_rel->relfilenode;
    state.floor = PG_INT64_MIN;
    state.checked_at = GetCurrentTimestamp();
}

void begin_round(const pg::Table& table) {
    state.round.upto = pg::last_position(); // before the writers are listed
    const std::span<const VirtualTransactionId> writers = pg::find_writers(RelationGetRelid(table.heap));
    if (state.round.writers != nullptr) {
        pfree(state.round.writers);
    }
    state.round.writers = static_cast<VirtualTransactionId*>(
        MemoryContextAlloc(state.memory, sizeof(VirtualTransactionId) * (writers.size() + 1)));
    std::copy(writers.begin(), writers.end(), state.round.writers);
    state.round.size = writers.size();
    state.round.open = true;
    state.round.over = writers.empty();
}

bool is_in(std::span<const VirtualTransactionId> writers, const VirtualTransactionId& one) {
    return std::any_of(writers.begin(), writers.end(),
                       [&](const VirtualTransactionId& w) { return VirtualTransactionIdEquals(w, one); });
}

void look_after_round(const pg::Table& table) {
    const std::span<const VirtualTransactionId> writers = pg::find_writers(RelationGetRelid(table.heap));
    VirtualTransactionId* begin = state.round.writers;
    VirtualTransactionId* end = std::remove_if(begin, begin + state.round.size,
                                               [&](const VirtualTransactionId& one) { return !is_in(writers, one); });
    state.round.size = static_cast<std::size_t>(end - begin);
    state.round.over = state.round.size == 0;
}

bool has_passed(TimestampTz since, TimestampTz now, int ms) {
    return TimestampDifferenceExceeds(since, now, ms) || now < since;
}

// Where it is too old, or in progress (prepared, that is): never mind.
void settle_pending(TimestampTz now) {
    const Pending pending = state.pending;
    if (!TransactionIdIsValid(pending.transaction) || TransactionIdIsCurrentTransactionId(pending.transaction)) {
        return;
    }
    state.pending = Pending{};
    if (!has_passed(pending.since, now, check_every_ms) && !TransactionIdIsInProgress(pending.transaction) &&
        TransactionIdDidCommit(pending.transaction)) {
        state.floor = std::max(state.floor, pending.floor);
    }
}

// What this transaction has deleted may come back, with itself or with a savepoint of it.
void raise_floor(std::int64_t floor) {
    const TransactionId transaction = GetTopTransactionIdIfAny();
    if (!TransactionIdIsValid(transaction)) {
        state.floor = std::max(state.floor, floor);
    } else if (GetCurrentTransactionNestLevel() == 1) {
        state.pending = {transaction, GetCurrentTimestamp(), floor};
    }
}

} // namespace

FloorWalk& begin_floor_walk(const pg::Table& table, std::string_view filter) {
    return *new (palloc(sizeof(FloorWalk))) FloorWalk(table, filter);
}

void FloorWalk::begin() {
    if (!is_for(table, filter)) {
        begin_anew(table, filter);
    }
    const TimestampTz now = GetCurrentTimestamp();
    settle_pending(now);
    // Rows may have been restored, or the sequence set back.
    const bool check = has_passed(state.checked_at, now, check_every_ms);
    if (check) {
        state.checked_at = now;
    } else {
        start = state.floor;
    }
    if (state.round.open && !state.round.over && has_passed(state.round.looked_at, now, look_every_ms)) {
        state.round.looked_at = now;
        look_after_round(table);
    }
    proves = state.round.open && state.round.over;
}

void FloorWalk::end() {
    if (first && *first < state.floor) { // it was there all the same
        begin_anew(table, filter);
        return;
    }
    if (proves) {
        raise_floor(std::min(first.value_or(PG_INT64_MAX), state.round.upto + 1));
        state.round.open = false;
    }
    const TimestampTz now = GetCurrentTimestamp();
    if (!state.round.open && has_passed(state.round_at, now, round_every_ms)) {
        state.round_at = now;
        begin_round(table);
    }
}

} // namespace idem::store
