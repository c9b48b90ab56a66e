// What the starter of a handler worker and that worker tell each other, in a segment of shared memory of their own:
// so it works without the preload too.
#pragma once

#include "core/decide.hpp"
#include "core/identity.hpp"

#include "pg/pg.hpp"
#include "pg/session.hpp"
#include "worker/handler_start.hpp"

extern "C" {
#include "port/atomics.h"
}

namespace idem::worker {

struct HandlerJob {
    // From the starter.
    Oid database;
    Oid role;
    Oid schema;        // of the extension
    int starter;       // process ID
    TransactionId xid; // the attempt is there, or not, when this transaction has ended
    core::StoredIdentity identity;
    core::Token token;
    int attempt;
    char function[max_handler_name + 1];

    // From the worker.
    pg_atomic_uint32 is_ready; // it has connected as the role; `session` is set
    pg::SessionId session;

    // Who takes the handler off the count of those that run: the starter, if the worker has not come when it goes.
    enum Counted : uint32 { nobody, starter_does, worker_does };
    pg_atomic_uint32 counted;

    // True: whoever asks takes over from `from`; of the starter and the worker only one can.
    bool hand_count(uint32 from, uint32 to) { return pg_atomic_compare_exchange_u32(&counted, &from, to); }
};

} // namespace idem::worker
