// Table idem_effect_calls: calls to something outside, one row a generation. Rows are inserted, updated and deleted
// only under the key lock of their operation.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/effect.hpp"
#include "core/identity.hpp"
#include "pg/index_scan.hpp"
#include "pg/table.hpp"
#include "store/columns.hpp"
#include "store/row.hpp"

namespace idem::store {

struct EffectRow : Row<effects::Field, effects::count> {
    core::EffectFacts facts;

    core::Identity identity() const; // points into the row
    std::string_view name() const;
    bool is_open() const { return nulls[effects::report]; }
    bool has_payload() const { return !nulls[effects::request] || !nulls[effects::response]; }
    core::Time last_heard_of() const; // reported, or handed out
};

const char* report_text(core::Report report);
std::optional<core::Report> report_of(std::string_view text);
const char* state_text(core::EffectState state);

// A row with its key and nothing else that may be NULL.
EffectRow new_effect(const core::Identity& identity, std::string_view name, std::int32_t generation);
void insert_effect(const EffectRow& row);
void update_effect(const EffectRow& row); // found with Access::change

// The last generation; false: the effect was never handed out. Under the key lock.
bool find_latest_effect(const core::Identity& identity, std::string_view name, EffectRow& row);

// By its downstream key, as the latest MVCC snapshot sees it.
bool find_effect(Datum downstream_key, EffectRow& row);

// The same generation again, under the key lock, to be changed.
bool find_generation(const core::Identity& identity, std::string_view name, std::int32_t generation, EffectRow& row);

// Whether the fate of any effect is open. "No" is believed only under the key lock, or with an MVCC snapshot.
bool has_open_effect(const core::Identity& identity, Snapshot snapshot);

// Forgets them with their operation.
void forget_effects(const core::Identity& identity);

// From a scan: valid as long as the slot's row is.
void read_effect(TupleTableSlot* slot, EffectRow& row);

// The row at `tid`, found by a scan in this transaction, if it is still one of `identity`.
bool read_effect_at(const pg::Table& table, ItemPointer tid, const core::Identity& identity, EffectRow& row);

// Request and response of all effects of an operation, under the key lock; returns of how many.
std::int64_t erase_effects(const core::Identity& identity);

// Those of one operation, in the order of name and generation.
class EffectScan {
public:
    EffectScan(const pg::Table& opened, const core::Identity& identity, Snapshot snapshot);
    bool next(EffectRow& row);
    void finish() { scan.finish(); }

private:
    pg::Table table;
    pg::IndexScan scan;
};

// Those whose fate is open, the oldest first, as the latest MVCC snapshot sees them.
class OpenEffectScan {
public:
    OpenEffectScan();
    bool next(EffectRow& row); // to be freed by the caller
    void finish();

private:
    pg::Table table;
    Relation index;
    Snapshot snapshot;
    pg::IndexScan scan;
};

} // namespace idem::store
