// How a step deals with the candidates that it found.
#pragma once

#include <cstring>
#include <optional>

#include "core/schedule.hpp"
#include "protocol/pass.hpp"

#include "pg/errors.hpp"
#include "pg/key_lock.hpp"
#include "pg/subtransaction.hpp"
#include "store/candidates.hpp"

namespace idem::protocol {

// Errors that are nobody's fault in particular: the step ends with them.
inline bool stops_everything(int sqlstate) {
    const int category = ERRCODE_TO_CATEGORY(sqlstate);
    return category == ERRCODE_TO_CATEGORY(ERRCODE_QUERY_CANCELED) ||
           category == ERRCODE_TO_CATEGORY(ERRCODE_INSUFFICIENT_RESOURCES);
}

inline void note_bad_row(Counts& counts, const core::Identity& identity, const ErrorData* error) {
    counts.bad++;
    pg::copy_message(counts.last_error, sizeof(counts.last_error), error->message);
    ereport(WARNING, (errcode(error->sqlerrcode), errmsg("could not deal with an operation: %s", error->message),
                      pg::errdetail_identity(identity)));
}

inline std::uint64_t hash_of(const store::Candidate& candidate) {
    return pg::hash_of(pg::key_lock_tag(candidate.identity.get()));
}

// Calls work(candidate), which returns a Done, for one candidate after the other, until `limits.rows` have been
// changed. All in one subtransaction; if that fails, each in one of its own.
template <typename Work>
void work_through(const pg::Table& table, core::Circle& circle, const StepLimits& limits, core::Time now,
                  const store::Candidates& found, Counts& counts, Work work) {
    struct Progress {
        int tried = 0;
        int changed = 0;
        Counts counts;
        bool busy = false;
        bool left_alone = false;
        bool stopped = false;
    };
    Progress p;
    auto one = [&](int i) {
        const bool asked = limits.bad != nullptr && limits.bad->any(now);
        if (asked && limits.bad->is_left_alone(hash_of(found.items[i]), now)) {
            p.left_alone = true;
            return;
        }
        const Done done = work(found.items[i]);
        if (done.kind == Done::changed) {
            p.counts.add(done.task);
            p.changed++;
        }
        p.busy = p.busy || done.kind == Done::busy;
        p.stopped = done.kind == Done::stop;
    };
    auto goes_on = [&] { return p.tried < found.size && p.changed < limits.rows && !p.stopped; };
    const Progress none;
    ErrorData* error = found.size == 0 ? nullptr : pg::in_subtransaction([&] {
        while (goes_on()) {
            CHECK_FOR_INTERRUPTS();
            one(p.tried);
            p.tried += p.stopped ? 0 : 1;
        }
        return true;
    });
    if (error != nullptr) {
        if (stops_everything(error->sqlerrcode)) {
            ReThrowError(error);
        }
        p = none;
        while (goes_on()) {
            CHECK_FOR_INTERRUPTS();
            const Progress before = p;
            error = pg::in_subtransaction([&] {
                one(p.tried);
                return true;
            });
            if (error != nullptr) {
                if (stops_everything(error->sqlerrcode)) {
                    ReThrowError(error);
                }
                p = before;
                note_bad_row(p.counts, found.items[p.tried].identity.get(), error);
                if (limits.bad != nullptr) {
                    limits.bad->add(hash_of(found.items[p.tried]), core::later(now, core::most_naps * limits.nap));
                }
            }
            p.tried += p.stopped ? 0 : 1;
        }
    }
    for (int i = 0; i < task_count; i++) {
        counts.rows[i] += p.counts.rows[i];
    }
    if (p.counts.bad > 0) {
        counts.bad += p.counts.bad;
        strlcpy(counts.last_error, p.counts.last_error, sizeof(counts.last_error));
    }
    if (p.counts.bad > 0 || p.left_alone) {
        circle.saw_due(core::later(now, core::most_naps * limits.nap));
    }
    counts.stopped = counts.stopped || p.stopped;
    if (p.busy || p.stopped) {
        circle.saw_due(core::later(now, limits.nap));
    }
    if (p.tried < found.size) {
        circle.saw_due(p.stopped ? core::later(now, limits.nap) : now);
        store::go_back(table, circle, found, p.tried);
    }
}

} // namespace idem::protocol
