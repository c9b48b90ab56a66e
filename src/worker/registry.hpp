// What the launcher, the workers and the sessions tell each other, in shared memory: which databases have the
// extension, when something is due in each, and how the last pass went. Without the preload all of it does nothing.
#pragma once

#include "core/bad_rows.hpp"
#include "core/circle.hpp"
#include "core/time.hpp"
#include "pg/pg.hpp"

extern "C" {
#include "port/atomics.h"
}

namespace idem::worker {

// A walk around a table over several passes.
struct Walk {
    core::Circle circle;
    core::Duration looked_for = 0; // time taken by looking for what is due, so far on this circle
    core::Time rest_until = 0;     // the next circle does not begin before; by the real clock

    // Around once more, beginning here.
    void start_over() {
        circle.left = 0;
        rest_until = 0;
    }
};

// How the passes over a database went.
struct PassStatus {
    int64 passes = 0;
    core::Time started = 0;   // when the pass that runs, or the last one, began
    core::Time last_pass = 0; // when the last one that came to its end began
    core::Duration last_took = 0;
    int64 last_rows = 0;
    core::Time next_due = 0;
    bool left_work = false;
    char last_error[256] = {};
    core::Time last_error_at = 0;
    core::Time reported_at = 0; // in the log, by a worker that has met it again and again since
    core::BadRows bad;
    core::Circle inflight; // closed, unless the last pass ran out of time
    core::Circle calls;
    Walk settled;
    Walk seen;
    Walk effects;
};

// ---- sessions

// When the current transaction commits, the launcher is told that something is due at `due` (of pg::now()'s clock).
void note_due(core::Time due);

// When it commits, the launcher is told that this database has the extension now, and to look at it at once.
void note_extension();

// The same, where the launcher does not know of it (CREATE EXTENSION was in a transaction that had been prepared).
// Looks once in a session.
void note_use();

// ---- the launcher

// Registers this process as the one to wake, until it exits.
void become_launcher();
int launcher_pid();
void wake_launcher();

// The sessions wake it for what is due before `planned`.
void publish_plan(core::Time planned);

struct Database {
    Oid oid = InvalidOid;
    bool left_work = false;
    core::Time due = 0;     // the sooner of what the last pass found and what was told since
    core::Time started = 0; // the last pass
};
// The known databases that have the extension; at most `room` of them.
inline constexpr int max_databases = 1024;
int list_databases(Database* databases, int room);
bool is_known(Oid database);
enum class Unless : std::uint8_t { never, told_meanwhile }; // that it has the extension
void forget_database(Oid database, Unless unless);
void start_over(); // everywhere: the configuration has changed, perhaps the clock

// ---- workers

// The current database's status, to begin a pass with: what is told from now on is for the next one. False: no room for
// so many databases.
bool begin_pass(PassStatus& status);
void end_pass(const PassStatus& status);

// ---- everybody

struct StatusRow {
    Oid database;
    int worker_pid;
    PassStatus status;
};
int read_status(StatusRow* rows, int room);

// Registers shared memory and callbacks; from _PG_init.
void init_registry();

} // namespace idem::worker
