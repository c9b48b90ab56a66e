// Everything that is stored of one operation.
#pragma once

#include "store/inflight.hpp"
#include "store/settled.hpp"

namespace idem::store {

struct Stored {
    bool is_inflight = false;
    bool is_settled = false;
    InflightRow inflight;
    SettledRow settled;

    bool nothing() const { return !is_inflight && !is_settled; }
    const core::InflightFacts* inflight_facts() const { return is_inflight ? &inflight.facts : nullptr; }
    const core::SettledFacts* settled_facts() const { return is_settled ? &settled.facts : nullptr; }
};

// Reads idem_inflight, then idem_settled: an operation only ever moves that way, so that one which moves between the
// two reads is seen. With SnapshotSelf (latest committed and our own, no predicate locks) a row may be missed while it
// is being updated: "nothing" is believed only under the key lock, or under an MVCC snapshot.
void look_at_stored(const core::Identity& identity, Stored& stored);

// The same under the key lock, which the caller holds: what is read is true, and may be changed.
void read_stored(const core::Identity& identity, Stored& stored);

// The same without the lock, under a fresh MVCC snapshot for both tables: what is read was committed, and whole.
void read_stored_mvcc(const core::Identity& identity, Stored& stored);

} // namespace idem::store
