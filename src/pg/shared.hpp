// Memory shared by all sessions: there only where the library is in shared_preload_libraries.
#pragma once

#include "pg/pg.hpp"

extern "C" {
#include "storage/lwlock.h"
}

namespace idem::pg {

// A named area. size() is asked when the server starts and MaxBackends is known; init() fills the fresh area, which is
// zeroed. *where is set in every process; nullptr without the preload.
struct SharedArea {
    const char* name;
    Size (*size)();
    void (*init)(void* area);
    void** where;
};

// From _PG_init, before init_shared(). `area` must be static.
void add_shared_area(const SharedArea& area);

// Registers the server's hooks, where the library is being preloaded; from _PG_init.
void init_shared();

// Guards what is changed rarely: the registry of databases, new slots of the statistics. Only where preloaded.
LWLock* shared_lock();

bool is_preloaded();

} // namespace idem::pg
