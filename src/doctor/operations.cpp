// What is in flight now.
#include <algorithm>
#include <cstring>

#include "doctor/checks.hpp"

#include "core/identity.hpp"
#include "core/time.hpp"
#include "doctor/facts.hpp"
#include "pg/clock.hpp"
#include "pg/table.hpp"
#include "store/effects.hpp"
#include "store/inflight.hpp"
#include "store/policies.hpp"

namespace idem::doctor {

namespace {

// What the rows of one action have in common.
struct Tally {
    char action[core::max_action_bytes + 1]; // the key of the hash table
    int64 in_review;
    core::Time oldest_in_review;
    core::Duration longest_lease; // of attempts that hold a claim
    int64 effects_unknown;        // for long
    core::Time oldest_effect_unknown;
};

HTAB* new_tallies() {
    HASHCTL control = {};
    control.keysize = sizeof(Tally::action);
    control.entrysize = sizeof(Tally);
    control.hcxt = CurrentMemoryContext;
    return hash_create("pg_idem operations by action", 64, &control, HASH_ELEM | HASH_STRINGS | HASH_CONTEXT);
}

Tally& tally_of(HTAB* tallies, std::string_view action) {
    char name[core::max_action_bytes + 1] = {};
    std::memcpy(name, action.data(), std::min(action.size(), core::max_action_bytes));
    bool found = false;
    auto* tally = static_cast<Tally*>(hash_search(tallies, name, HASH_ENTER, &found));
    if (!found) {
        tally->in_review = 0;
        tally->oldest_in_review = core::end_of_time;
        tally->longest_lease = 0;
        tally->effects_unknown = 0;
        tally->oldest_effect_unknown = core::end_of_time;
    }
    return *tally;
}

void count(Tally& tally, const store::InflightRow& row) {
    using namespace store;
    if (DatumGetBool(row.values[inflight::in_review])) {
        tally.in_review++;
        tally.oldest_in_review =
            std::min<core::Time>(tally.oldest_in_review, DatumGetTimestampTz(row.values[inflight::state_since]));
    } else if (!row.nulls[inflight::token]) {
        tally.longest_lease = std::max(tally.longest_lease, row.lease());
    }
}

HTAB* count_inflight() {
    HTAB* tallies = new_tallies();
    const pg::Table table = pg::open_table(pg::TableId::inflight, pg::Access::look);
    pg::Scan scan(table);
    store::InflightRow row{};
    for (row.tuple = scan.next(); row.tuple != nullptr; row.tuple = scan.next()) {
        pg::read_row(table, row.tuple, row.values, row.nulls, store::inflight::count);
        count(tally_of(tallies, *row.text(store::inflight::action)), row);
    }
    scan.finish();
    pg::close_table(table);
    return tallies;
}

constexpr core::Duration long_unknown = 15 * core::minute;

HTAB* count_effects() {
    HTAB* tallies = new_tallies();
    const core::Time now = pg::now();
    store::OpenEffectScan scan;
    store::EffectRow row;
    while (scan.next(row)) {
        const core::Time unknown_from = core::unknown_from(row.facts);
        if (core::between(now, unknown_from) >= long_unknown) {
            Tally& tally = tally_of(tallies, row.identity().action);
            tally.effects_unknown++;
            tally.oldest_effect_unknown = std::min(tally.oldest_effect_unknown, unknown_from);
        }
        heap_freetuple(row.tuple);
    }
    scan.finish();
    return tallies;
}

template <typename Visit>
void for_each_tally(HTAB* tallies, Visit visit) {
    HASH_SEQ_STATUS status;
    hash_seq_init(&status, tallies);
    while (const auto* tally = static_cast<const Tally*>(hash_seq_search(&status))) {
        visit(*tally);
    }
}

void check_review(Report& report) {
    for_each_tally(count_inflight(), [&report](const Tally& tally) {
        if (tally.in_review > 0) {
            report.warning(psprintf("action \"%s\": %lld operation(s) in review, the oldest since %s", tally.action,
                                    static_cast<long long>(tally.in_review), time_text(tally.oldest_in_review)),
                           "Find out what became of them, and decide with idem_resolve.");
        }
    });
    report.ok("no operation is in review");
}

void check_inflight_leases(Report& report) {
    for_each_tally(count_inflight(), [&report](const Tally& tally) {
        const core::Policy& policy = store::policy_for(tally.action);
        const core::Duration known = core::later(policy.retention, policy.remember);
        if (tally.longest_lease > known) {
            report.warning(psprintf("action \"%s\": an attempt holds a lease of %s, and an outcome is known for %s "
                                    "(retention + remember)",
                                    tally.action, duration_text(tally.longest_lease), duration_text(known)),
                           "Raise retention or remember above the longest lease: else the key may be new again while "
                           "an attempt is under way.");
        }
    });
    report.ok("every lease in flight is shorter than retention + remember");
}

void check_effects(Report& report) {
    for_each_tally(count_effects(), [&report](const Tally& tally) {
        report.warning(psprintf("action \"%s\": %lld effect(s) whose fate is unknown, the oldest since %s",
                                tally.action, static_cast<long long>(tally.effects_unknown),
                                time_text(tally.oldest_effect_unknown)),
                       "Ask the provider what became of them, and report it with idem_effect_report.");
    });
    report.ok("the fate of no effect has been unknown for long");
}

constexpr Check checks[] = {
    {"review", check_review},
    {"inflight_leases", check_inflight_leases},
    {"effects", check_effects},
};

} // namespace

std::span<const Check> operations_checks() {
    return checks;
}

} // namespace idem::doctor
