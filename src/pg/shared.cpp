#include <cstring>

#include "pg/shared.hpp"

#include "pg/entry.hpp"

extern "C" {
#include "storage/ipc.h"
#include "storage/shmem.h"
}

namespace idem::pg {

namespace {

constexpr int max_areas = 8;
constexpr const char* tranche = "pg_idem";

constinit const SharedArea* areas[max_areas] = {};
constinit int area_count = 0;
constinit LWLock* lock = nullptr;
constinit shmem_request_hook_type next_request_hook = nullptr;
constinit shmem_startup_hook_type next_startup_hook = nullptr;

void request() {
    if (next_request_hook != nullptr) {
        next_request_hook();
    }
    for (int i = 0; i < area_count; i++) {
        RequestAddinShmemSpace(areas[i]->size());
    }
    RequestNamedLWLockTranche(tranche, 1);
}

// Also after a crash, when the server starts with fresh memory.
void startup() {
    if (next_startup_hook != nullptr) {
        next_startup_hook();
    }
    LWLockAcquire(AddinShmemInitLock, LW_EXCLUSIVE);
    for (int i = 0; i < area_count; i++) {
        const SharedArea& area = *areas[i];
        bool found = false;
        void* memory = ShmemInitStruct(area.name, area.size(), &found);
        if (!found) {
            std::memset(memory, 0, area.size());
            area.init(memory);
        }
        *area.where = memory;
    }
    lock = &GetNamedLWLockTranche(tranche)->lock;
    LWLockRelease(AddinShmemInitLock);
}

} // namespace

void add_shared_area(const SharedArea& area) {
    if (area_count >= max_areas) {
        elog(ERROR, "too many shared memory areas of pg_idem");
    }
    areas[area_count++] = &area;
}

void init_shared() {
    if (!process_shared_preload_libraries_in_progress) {
        return;
    }
    next_request_hook = shmem_request_hook;
    shmem_request_hook = [] { request(); };
    next_startup_hook = shmem_startup_hook;
    shmem_startup_hook = [] { startup(); };
}

LWLock* shared_lock() {
    return lock;
}

bool is_preloaded() {
    return lock != nullptr;
}

} // namespace idem::pg
