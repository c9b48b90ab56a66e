// Table idem_seen: messages that consumers have taken.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "pg/table.hpp"

namespace idem::store {

enum class Seen : std::uint8_t { first, duplicate, mismatch, fingerprint_missing };

// Records messages of one transaction. No key lock is taken: the unique index decides, so that a batch of any size
// needs no lock table. Waits for a rival in flight.
class SeenWriter {
public:
    explicit SeenWriter(const core::Policy& policy);
    Seen record(const core::Identity& identity, const core::Fingerprint& fingerprint);
    void finish();

private:
    pg::Table table;
    pg::SpeculativeInserter inserter;
    core::Duration once_retention;
};

// From a scan: when the row may be deleted.
core::Time seen_forget_at(TupleTableSlot* slot);

// The row at `tid`, found by a scan in this transaction, if it is still that of `identity`.
struct SeenAt {
    bool exists = false;
    core::Time forget_at = 0;
};
SeenAt seen_at(const pg::Table& table, ItemPointer tid, const core::Identity& identity);

} // namespace idem::store
