// How many rows there will be, by the statistics of ANALYZE and the policies.
#include <algorithm>
#include <string_view>

#include "doctor/checks.hpp"

#include "core/identity.hpp"
#include "core/time.hpp"
#include "doctor/facts.hpp"
#include "store/columns.hpp"
#include "store/datum.hpp"
#include "store/policies.hpp"

extern "C" {
#include "catalog/pg_class.h"
#include "catalog/pg_statistic.h"
}

namespace idem::doctor {

namespace {

constexpr double many_rows = 100e6;
constexpr core::Duration horizon = 3650 * core::day; // nobody plans further

// Statistics of one column; let go of by hand.
struct Statistics {
    HeapTuple tuple = nullptr;
    AttStatsSlot slot = {};
    bool found = false;
};

Statistics statistics(Oid table, int field, int kind, int parts) {
    Statistics s;
    s.tuple = SearchSysCache3(STATRELATTINH, ObjectIdGetDatum(table), Int16GetDatum(static_cast<int16>(field + 1)),
                              BoolGetDatum(false));
    if (HeapTupleIsValid(s.tuple)) {
        s.found = get_attstatsslot(&s.slot, s.tuple, kind, InvalidOid, parts);
    }
    return s;
}

void let_go(Statistics& s) {
    if (s.found) {
        free_attstatsslot(&s.slot);
    }
    if (HeapTupleIsValid(s.tuple)) {
        ReleaseSysCache(s.tuple);
    }
}

double rows_of(Oid table) {
    HeapTuple tuple = SearchSysCache1(RELOID, ObjectIdGetDatum(table));
    if (!HeapTupleIsValid(tuple)) {
        return 0;
    }
    const double rows = reinterpret_cast<const FormData_pg_class*>(GETSTRUCT(tuple))->reltuples;
    ReleaseSysCache(tuple);
    return std::max(rows, 0.0); // -1: never analyzed
}

// From the younger half of the rows, over at least a day. 0: not known.
double rows_a_day(Oid table, int time_field) {
    Statistics s = statistics(table, time_field, STATISTIC_KIND_HISTOGRAM, ATTSTATSSLOT_VALUES);
    double rate = 0;
    if (s.found && s.slot.nvalues >= 2) {
        const core::Time median = DatumGetTimestampTz(s.slot.values[s.slot.nvalues / 2]);
        const core::Time newest = DatumGetTimestampTz(s.slot.values[s.slot.nvalues - 1]);
        const double days = static_cast<double>(std::max(core::between(newest, median), core::day)) / core::day;
        rate = rows_of(table) / 2 / days;
    }
    let_go(s);
    return rate;
}

using Kept = core::Duration (*)(const core::Policy& policy);

double days_kept(std::string_view action, Kept kept) {
    return static_cast<double>(std::min(kept(store::policy_for(action)), horizon)) / core::day;
}

// The mean over the actions, by their shares of the rows.
double days_kept(Oid table, int action_field, Kept kept) {
    Statistics s = statistics(table, action_field, STATISTIC_KIND_MCV, ATTSTATSSLOT_VALUES | ATTSTATSSLOT_NUMBERS);
    double days = 0;
    double others = 1;
    for (int i = 0; s.found && i < s.slot.nvalues && i < s.slot.nnumbers; i++) {
        const std::string_view action = store::view_of(s.slot.values[i]);
        if (action.size() <= core::max_action_bytes) {
            days += s.slot.numbers[i] * days_kept(action, kept);
            others -= s.slot.numbers[i];
        }
    }
    let_go(s);
    return days + std::max(others, 0.0) * days_kept("*", kept);
}

void project(Report& report, pg::TableId id, int time_field, int action_field, Kept kept) {
    const Oid table = pg::named_table(id);
    const double rate = rows_a_day(table, time_field);
    const double rows = rate * days_kept(table, action_field, kept);
    if (rows > many_rows) {
        report.warning(psprintf("table %s will have about %.0f million rows, at the %.0f rows a day of late",
                                store::name_of(id), rows / 1e6, rate),
                       "Lower retention, remember or once_retention of the actions with most rows, or plan for the "
                       "disk and for the vacuum that this takes.");
    }
}

void check_rows(Report& report) {
    project(report, pg::TableId::settled, store::settled::settled_at, store::settled::action,
            [](const core::Policy& p) { return core::later(p.retention, p.remember); });
    project(report, pg::TableId::seen, store::seen::seen_at, store::seen::action,
            [](const core::Policy& p) { return p.once_retention; });
    report.ok("no table will have more than 100 million rows, by the statistics there are");
}

constexpr Check checks[] = {
    {"projected_rows", check_rows},
};

} // namespace

std::span<const Check> growth_checks() {
    return checks;
}

} // namespace idem::doctor
