// Table idem_settled: outcomes that can never change again.
#pragma once

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "pg/table.hpp"
#include "store/columns.hpp"
#include "store/row.hpp"

namespace idem::store {

struct SettledRow : Row<settled::Field, settled::count> {
    core::SettledFacts facts;

    bool succeeded() const { return DatumGetBool(values[settled::succeeded]); }
    int attempt() const { return DatumGetInt32(values[settled::attempt]); }
    bool has_payload() const {
        return !nulls[settled::request] || !nulls[settled::result] || !nulls[settled::body] ||
               !nulls[settled::body_bytes];
    }
};

bool find_settled(const core::Identity& identity, Snapshot snapshot, pg::Access access, SettledRow& row);

// From a scan: the times of a row. True: it has a payload.
bool read_settled_times(TupleTableSlot* slot, core::SettledFacts& facts);

// The row at `tid`, found by a scan in this transaction, if it is still that of `identity`.
bool read_settled_at(const pg::Table& table, ItemPointer tid, const core::Identity& identity, SettledRow& row);

// A value that may be NULL.
struct Nullable {
    Datum value = Datum{0};
    bool is_null = true;
};

// What is recorded of an outcome.
struct Outcome {
    bool succeeded;
    int attempt;
    Nullable status, request, result, body, body_bytes;
    core::Fingerprint fingerprint;
    Nullable claimed_at; // of a leased claim
};

// Records the outcome at `now`, under the key lock; a forgotten record of the same identity makes room, and its effects
// with it. Returns until when it is replayed. Raises IDM04 if it is settled after all (the clock was
// set back).
core::Time insert_settled(const core::Identity& identity, const Outcome& outcome, const core::Policy& policy,
                          core::Time now);

// The same of an outcome that was settled before, and elsewhere: its times count from `settled_at`. What is expired by
// `now` is recorded without its payload.
void import_settled(const core::Identity& identity, const Outcome& outcome, const core::Policy& policy,
                    core::Time settled_at, core::Time now);

// Removes the payload: the operation is answered as expired from then on. Under the key lock, with a row found with
// Access::change.
void strip_settled(const SettledRow& row);

void delete_settled(const SettledRow& row); // the same

// The same for an operation that is forgotten: its effects go with it.
void forget_settled(const core::Identity& identity, const SettledRow& row);

} // namespace idem::store
