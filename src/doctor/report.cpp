#include <algorithm>
#include <iterator>

#include "doctor/report.hpp"

namespace idem::doctor {

namespace {

constexpr int most_shown = 10; // findings of one check
constexpr const char* status_names[] = {"ok", "info", "warning", "critical"};

} // namespace

void Report::begin(const char* name) {
    check = name;
    found = 0;
    worst_hidden = Status::ok;
}

void Report::ok(const char* detail) {
    if (found == 0) {
        put(Status::ok, detail, nullptr);
    }
}

void Report::find(Status status, const char* detail, const char* advice) {
    found++;
    if (found <= most_shown) {
        put(status, detail, advice);
    } else {
        worst_hidden = std::max(worst_hidden, status);
    }
}

void Report::end() {
    if (found > most_shown) {
        put(worst_hidden, psprintf("and %d more", found - most_shown), "Mend those above, and ask again.");
    }
}

// Objects of the extension that are altered or gone stop every call that needs them: that is a finding.
void Report::cannot(const ErrorData& error) {
    const bool broken =
        error.sqlerrcode == ERRCODE_FEATURE_NOT_SUPPORTED || error.sqlerrcode == ERRCODE_UNDEFINED_TABLE;
    find(broken ? Status::critical : Status::info, psprintf("cannot be checked: %s", error.message),
         broken ? "Mend the tables of pg_idem first, see the check \"tables\"."
                : "Ask again, as a role that may see what is needed.");
}

void Report::put(Status status, const char* detail, const char* advice) {
    Datum values[4] = {CStringGetTextDatum(check), CStringGetTextDatum(status_names[static_cast<int>(status)]),
                       CStringGetTextDatum(detail), Datum{0}};
    bool nulls[4] = {false, false, false, advice == nullptr};
    if (advice != nullptr) {
        values[3] = CStringGetTextDatum(advice);
    }
    tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
}

} // namespace idem::doctor
