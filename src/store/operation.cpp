#include "store/operation.hpp"

namespace idem::store {

void read_stored(const core::Identity& identity, Snapshot snapshot, Stored& stored) {
    stored.is_inflight = find_inflight(identity, snapshot, stored.inflight);
    stored.is_settled = find_settled(identity, snapshot, stored.settled);
}

void read_stored_mvcc(const core::Identity& identity, Stored& stored) {
    Snapshot snapshot = RegisterSnapshot(GetLatestSnapshot());
    read_stored(identity, snapshot, stored);
    UnregisterSnapshot(snapshot);
}

} // namespace idem::store
