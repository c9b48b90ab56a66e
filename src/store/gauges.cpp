#include <algorithm>
#include <cmath>

#include "store/gauges.hpp"

#include "pg/clock.hpp"
#include "pg/session.hpp"
#include "pg/table.hpp"
#include "store/columns.hpp"
#include "store/effects.hpp"

extern "C" {
#include "common/pg_prng.h"
}

namespace idem::store {

namespace {

// 8 MB of what is in flight; of the others enough for an estimate.
constexpr BlockNumber most_inflight_blocks = 1024; // of the outbox too
constexpr BlockNumber most_blocks = 128;
constexpr int most_open_effects = 100'000;

// One row of a scan: columns up to the last one that is looked at.
struct Row {
    TupleTableSlot* slot;

    bool is_null(int field) const { return slot->tts_isnull[field]; }
    core::Time time(int field) const { return DatumGetTimestampTz(slot->tts_values[field]); }
    bool flag(int field) const { return DatumGetBool(slot->tts_values[field]); }
};

// Calls `take` for each row of at most `most` blocks, spread evenly; returns how many blocks each of them stands for.
// SnapshotSelf shows what is committed by now, at any isolation level and without conflicts at SERIALIZABLE. A row that
// is being updated may be met twice or not at all: no harm to a gauge.
template <typename Take>
double sample(pg::TableId id, BlockNumber most, int columns, Take take) {
    const pg::Table table = pg::open_table(id, pg::Access::look);
    const BlockNumber blocks = pg::block_count(table);
    const BlockNumber ranges = blocks <= most ? 1 : most;
    const double width = static_cast<double>(blocks) / ranges;
    const double offset = pg_prng_double(&pg_global_prng_state);
    for (BlockNumber i = 0; i < ranges && blocks > 0; i++) {
        CHECK_FOR_INTERRUPTS();
        const bool all = ranges == 1;
        const BlockNumber block = all ? 0 : std::min(static_cast<BlockNumber>((i + offset) * width), blocks - 1);
        pg::BlockScan scan = pg::begin_block_scan(table, block, all ? blocks : 1);
        while (pg::next_row(scan)) {
            slot_getsomeattrs(scan.slot, columns);
            take(Row{scan.slot});
        }
        pg::end_block_scan(scan);
    }
    pg::close_table(table);
    return ranges == 1 ? 1.0 : width;
}

int64 scaled(int64 rows, double factor) {
    return static_cast<int64>(std::llround(static_cast<double>(rows) * factor));
}

void keep_older(std::optional<core::Time>& oldest, core::Time time) {
    oldest = oldest ? std::min(*oldest, time) : time;
}

// When the attempt ended, by what the row tells; empty: it is in progress.
std::optional<core::Time> interrupted_since(const Row& row, core::Time now) {
    using namespace inflight;
    if (row.is_null(token)) {
        return row.is_null(due_at) ? row.time(state_since) : row.time(due_at);
    }
    if (now >= row.time(lease_expires_at)) {
        return row.time(lease_expires_at);
    }
    if (!row.is_null(session_pid) &&
        !pg::was_session_alive({DatumGetInt32(row.slot->tts_values[session_pid]), row.time(session_start)})) {
        return row.flag(announced) ? row.time(state_since) : now;
    }
    return std::nullopt;
}

void read_inflight_gauges(Gauges& g, core::Time now) {
    using namespace inflight;
    pg::remember_sessions();
    const double factor = sample(pg::TableId::inflight, most_inflight_blocks, token + 1, [&](const Row& row) {
        if (row.flag(in_review)) {
            g.review++;
            keep_older(g.oldest_review, row.time(state_since));
        } else if (const std::optional<core::Time> since = interrupted_since(row, now)) {
            g.interrupted++;
            keep_older(g.oldest_interrupted, *since);
        } else {
            g.in_flight++;
            keep_older(g.oldest_in_flight, row.time(claimed_at));
        }
    });
    g.in_flight = scaled(g.in_flight, factor);
    g.interrupted = scaled(g.interrupted, factor);
    g.review = scaled(g.review, factor);
}

void read_settled_gauges(Gauges& g, core::Time now) {
    using namespace settled;
    const double factor = sample(pg::TableId::settled, most_blocks, body_bytes + 1, [&](const Row& row) {
        const bool has_payload =
            !row.is_null(request) || !row.is_null(result) || !row.is_null(body) || !row.is_null(body_bytes);
        const bool to_strip = has_payload && now >= row.time(expires_at);
        g.settled++;
        g.expired_not_swept += to_strip || now >= row.time(forget_at) ? 1 : 0;
    });
    g.settled = scaled(g.settled, factor);
    g.expired_not_swept = scaled(g.expired_not_swept, factor);
}

void read_seen_gauges(Gauges& g, core::Time now) {
    const double factor = sample(pg::TableId::seen, most_blocks, seen::forget_at + 1, [&](const Row& row) {
        g.seen++;
        g.seen_not_swept += now >= row.time(seen::forget_at) ? 1 : 0;
    });
    g.seen = scaled(g.seen, factor);
    g.seen_not_swept = scaled(g.seen_not_swept, factor);
}

void read_effect_gauges(Gauges& g, core::Time now) {
    OpenEffectScan scan;
    EffectRow row;
    while (g.effects_open < most_open_effects && scan.next(row)) {
        g.effects_open++;
        if (core::state_of(row.facts, now) == core::EffectState::unknown) {
            g.effects_unknown++;
            keep_older(g.oldest_effect_unknown, core::unknown_from(row.facts));
        }
        heap_freetuple(row.tuple);
    }
    scan.finish();
}

void read_outbox_gauges(Gauges& g) {
    using namespace outbox;
    const double factor = sample(pg::TableId::outbox, most_inflight_blocks, parked_at + 1, [&](const Row& row) {
        if (!row.is_null(parked_at)) {
            g.outbox_parked++;
        } else {
            g.outbox_pending++;
            keep_older(g.oldest_outbox, row.time(created_at));
        }
    });
    g.outbox_pending = scaled(g.outbox_pending, factor);
    g.outbox_parked = scaled(g.outbox_parked, factor);
}

} // namespace

Gauges read_outbox_gauges() {
    Gauges g;
    read_outbox_gauges(g);
    return g;
}

Gauges read_gauges() {
    Gauges g;
    const core::Time now = pg::now();
    read_inflight_gauges(g, now);
    read_settled_gauges(g, now);
    read_seen_gauges(g, now);
    read_effect_gauges(g, now);
    read_outbox_gauges(g);
    return g;
}

} // namespace idem::store
