#include "store/operation.hpp"

#include "store/effects.hpp"

namespace idem::store {

namespace {

void read(const core::Identity& identity, Snapshot snapshot, pg::Access access, Stored& stored) {
    stored.is_inflight = find_inflight(identity, snapshot, access, stored.inflight);
    if (stored.is_inflight && stored.inflight.facts.rule == core::Rule::fail) { // others are never asked
        stored.inflight.facts.effect_open = has_open_effect(identity, snapshot);
    }
    stored.is_settled = find_settled(identity, snapshot, access, stored.settled);
}

} // namespace

void look_at_stored(const core::Identity& identity, Stored& stored) {
    read(identity, SnapshotSelf, pg::Access::look, stored);
}

void read_stored(const core::Identity& identity, Stored& stored) {
    read(identity, SnapshotSelf, pg::Access::change, stored);
}

void read_stored_mvcc(const core::Identity& identity, Stored& stored) {
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    read(identity, snapshot, pg::Access::look, stored);
    UnregisterSnapshot(snapshot);
}

} // namespace idem::store
