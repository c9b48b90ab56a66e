// Background workers of the server.
#pragma once

#include "core/time.hpp"
#include "pg/pg.hpp"

extern "C" {
#include "postmaster/bgworker.h"
}

namespace idem::pg {

enum class Restart : std::uint8_t { never, soon };

// function: a C symbol of this library. type: as pg_stat_activity shows it.
BackgroundWorker describe_worker(const char* function, const char* type, Datum argument, Restart restart);

// Signal handlers, then signals: first thing in a worker's main function.
void accept_signals();

// Reads the configuration again if a signal said so. True: it did.
bool reload_configuration();

// Settings of the database or the server that are meant for clients: not for a worker.
void neutral_settings();

// Runs `work` in a transaction of its own, under a snapshot. An error ends it, and is returned in memory of the
// process, reported in the log where reports(error) says so. nullptr: committed.
template <typename Work, typename Reports>
ErrorData* in_transaction(Work work, Reports reports) {
    ErrorData* volatile error = nullptr;
    PG_TRY();
    {
        SetCurrentStatementStartTimestamp();
        StartTransactionCommand();
        PushActiveSnapshot(GetTransactionSnapshot());
        work();
        PopActiveSnapshot();
        CommitTransactionCommand();
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(TopMemoryContext);
        HOLD_INTERRUPTS();
        error = CopyErrorData();
        if (reports(*error)) {
            EmitErrorReport();
        }
        FlushErrorState();
        AbortCurrentTransaction();
        RESUME_INTERRUPTS();
    }
    PG_END_TRY();
    return error;
}

// Sleeps until the latch is set, or for so long, and serves interrupts.
void sleep_until(core::Time until, uint32 wait_event);

} // namespace idem::pg
