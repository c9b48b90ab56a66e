#include <algorithm>
#include <cstring>

#include "core/schedule.hpp"
#include "worker/pass.hpp"

#include "pg/background.hpp"
#include "pg/clock.hpp"
#include "pg/compat.hpp"
#include "pg/errors.hpp"
#include "pg/extension.hpp"
#include "pg/settings.hpp"
#include "protocol/pass.hpp"
#include "worker/call.hpp"

extern "C" {
#include "pgstat.h"
}

namespace idem::worker {

namespace {

// A worker goes after so long, and is started again if there is more to do: somebody may wait for the database to have
// no connections (DROP DATABASE, CREATE DATABASE ... TEMPLATE wait for 5 seconds).
constexpr core::Duration recover_for = core::second;
constexpr core::Duration settled_until = core::second * 15 / 10;
constexpr core::Duration effects_until = core::second * 16 / 10;
constexpr core::Duration longest_pass = 2 * core::second;

constexpr std::uint32_t blocks_a_step = 256;
constexpr core::Duration longest_pause = 100'000;

using Step = void (*)(core::Circle&, const protocol::StepLimits&, protocol::Counts&);

enum class Outcome : std::uint8_t { done, absent, busy, failed, unreadable };

// A walk, block by block where a block could not be read, up to that one, which is left out.
struct Careful {
    bool on = false;
    std::uint32_t bad_block = 0;

    std::uint32_t blocks() const { return on ? 1 : blocks_a_step; }
};

struct Pass {
    PassStatus& status;
    core::Time started = GetCurrentTimestamp();
    core::Duration nap = pg::nap();
    core::Time due = core::end_of_time; // by the real clock
    bool absent = false;
    int64 rows = 0;

    bool is_over(core::Duration limit) const { return core::between(GetCurrentTimestamp(), started) >= limit; }
    void saw_due(core::Time at) { due = std::min(due, at); }
    // Reported less than a minute ago, with the first words the same.
    bool is_known_error(const char* message) const {
        return std::strncmp(status.last_error, message, sizeof(status.last_error) - 8) == 0 &&
               core::between(GetCurrentTimestamp(), status.reported_at) < core::minute;
    }
    void note_error(const char* message) {
        if (!is_known_error(message)) {
            status.reported_at = GetCurrentTimestamp();
        }
        pg::copy_message(status.last_error, sizeof(status.last_error), message);
        status.last_error_at = GetCurrentTimestamp();
    }
};

// After an error, the circle as it was. True: a block could not be read, and the way up to it is gone again carefully.
bool go_back_to(const core::Circle& before, core::Circle& circle, Careful& careful) {
    const core::Circle failed = circle;
    circle = before;
    if (!failed.reading) {
        return false;
    }
    if (circle.is_closed()) { // it was begun by the step
        circle.begin(failed.end);
    }
    careful = {true, failed.next};
    return true;
}

Outcome outcome_of(pg::ExtensionState state) {
    switch (state) {
    case pg::ExtensionState::locked:
        return Outcome::done;
    case pg::ExtensionState::absent:
        return Outcome::absent;
    case pg::ExtensionState::busy:
        break;
    }
    return Outcome::busy;
}

// One step in a transaction of its own.
Outcome make_step(Pass& pass, Step step, core::Circle& circle, core::Time& soonest, protocol::Counts& counts,
                  Careful& careful) {
    if (careful.on && circle.next == careful.bad_block && !circle.is_closed()) {
        circle.step(PG_UINT32_MAX);
        careful.on = false;
        if (circle.is_closed()) {
            return Outcome::done;
        }
    }
    const core::Circle before = circle;
    Outcome outcome = Outcome::failed;
    ErrorData* error = pg::in_transaction(
        [&] {
            const pg::ExtensionState state = pg::lock_extension();
            if (state == pg::ExtensionState::locked) {
                step(circle, {PG_INT32_MAX, careful.blocks(), pass.nap, &pass.status.bad}, counts);
                soonest = core::translate(circle.soonest, pg::now(), GetCurrentTimestamp());
            }
            outcome = outcome_of(state);
        },
        [&](const ErrorData& e) { return !pass.is_known_error(e.message); }); // not the same one at every nap
    if (error != nullptr) {
        pass.note_error(error->message);
        FreeErrorData(error);
        outcome = go_back_to(before, circle, careful) ? Outcome::unreadable : Outcome::failed;
    }
    if (outcome == Outcome::done) {
        pass.rows += counts.total();
        if (counts.bad > 0) {
            pass.note_error(counts.last_error);
        }
    }
    pg::reload_configuration();
    CHECK_FOR_INTERRUPTS();
    return outcome;
}

// What a step says about the rest of the walk. True: go on.
bool go_on(Pass& pass, Outcome outcome) {
    if (outcome == Outcome::done || outcome == Outcome::unreadable) {
        return true;
    }
    pass.absent = outcome == Outcome::absent;
    pass.saw_due(core::later(GetCurrentTimestamp(), pass.nap));
    return false;
}

// Every pass looks at all that is in flight, of which there is not much; else the next pass goes on at once.
void recover(Pass& pass, Step step, core::Circle& circle) {
    core::Time soonest = core::end_of_time;
    Careful careful;
    bool stopped = false;
    do {
        protocol::Counts counts;
        if (!go_on(pass, make_step(pass, step, circle, soonest, counts, careful))) {
            return;
        }
        stopped = counts.stopped;
    } while (!circle.is_closed() && !stopped && !pass.is_over(recover_for));
    pass.status.left_work = pass.status.left_work || (!circle.is_closed() && !stopped);
    pass.saw_due(soonest);
}

// The large tables are walked around at leisure, over several passes.
void sweep(Pass& pass, Step step, Walk& walk, core::Duration until) {
    if (walk.circle.is_closed() && GetCurrentTimestamp() < walk.rest_until) {
        pass.saw_due(walk.rest_until);
        return;
    }
    Careful careful;
    for (;;) {
        const core::Time began = GetCurrentTimestamp();
        core::Time soonest = core::end_of_time;
        protocol::Counts counts;
        if (!go_on(pass, make_step(pass, step, walk.circle, soonest, counts, careful))) {
            return;
        }
        const core::Time ended = GetCurrentTimestamp();
        walk.looked_for += counts.looking;
        if (walk.circle.is_closed()) {
            walk.rest_until = core::next_walk(ended, walk.looked_for, soonest, pass.nap);
            walk.looked_for = 0;
            pass.saw_due(walk.rest_until);
            return;
        }
        if (pass.is_over(until)) {
            pass.status.left_work = true;
            return;
        }
        // Half of the time is for the others.
        pg::sleep_until(core::later(ended, std::min(core::between(ended, began), longest_pause)),
                        pg::compat::wait_event(pg::compat::Wait::sweep_rest));
    }
}

} // namespace

bool run_pass(PassStatus& status) {
    Pass pass{status};
    status.left_work = false;
    pgstat_report_activity(STATE_RUNNING, "pg_idem: recovering interrupted operations");
    recover(pass, protocol::recover_some, status.inflight);
    if (!pass.absent) {
        recover(pass, call_some, status.calls);
        pgstat_report_activity(STATE_RUNNING, "pg_idem: forgetting settled operations");
        sweep(pass, protocol::sweep_settled_some, status.settled, settled_until);
        pgstat_report_activity(STATE_RUNNING, "pg_idem: forgetting effects of operations that were reset");
        sweep(pass, protocol::sweep_effects_some, status.effects, effects_until);
        pgstat_report_activity(STATE_RUNNING, "pg_idem: forgetting messages of consumers");
        sweep(pass, protocol::sweep_seen_some, status.seen, longest_pass);
    }
    status.passes++;
    status.last_pass = status.started;
    status.last_took = core::between(GetCurrentTimestamp(), pass.started);
    status.last_rows = pass.rows;
    status.next_due = pass.due;
    return !pass.absent;
}

} // namespace idem::worker
