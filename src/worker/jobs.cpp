#include "worker/jobs.hpp"

#include "pg/shared.hpp"
#include "worker/registry.hpp"

extern "C" {
#include "port/atomics.h"
}

namespace idem::worker {

namespace {

constexpr int none = -1;

struct Job {
    pg_atomic_uint32 state;
    Oid database;
};

struct Jobs {
    pg_atomic_uint32 handlers;
    Job jobs[max_jobs];
};

constinit Jobs* shared = nullptr;

Size size() {
    return sizeof(Jobs);
}

void init(void* area) {
    auto* fresh = static_cast<Jobs*>(area);
    pg_atomic_init_u32(&fresh->handlers, 0);
    for (Job& job : fresh->jobs) {
        pg_atomic_init_u32(&job.state, static_cast<uint32>(JobState::free));
    }
}

const pg::SharedArea area{"pg_idem jobs", size, init, reinterpret_cast<void**>(&shared)};

} // namespace

int add_job(Oid database) {
    for (int i = 0; i < max_jobs; i++) {
        Job& job = shared->jobs[i];
        if (job_state(i) == JobState::free) { // only the launcher takes one
            job.database = database;
            set_job_state(i, JobState::asked);
            return i;
        }
    }
    return none;
}

Oid job_database(int job) {
    return shared->jobs[job].database;
}

JobState job_state(int job) {
    return static_cast<JobState>(pg_atomic_read_u32(&shared->jobs[job].state));
}

void set_job_state(int job, JobState state) {
    pg_memory_barrier();
    pg_atomic_write_u32(&shared->jobs[job].state, static_cast<uint32>(state));
}

bool try_count_handler(int most) {
    if (shared == nullptr) {
        return true;
    }
    uint32 running = pg_atomic_read_u32(&shared->handlers);
    while (running < static_cast<uint32>(most)) {
        if (pg_atomic_compare_exchange_u32(&shared->handlers, &running, running + 1)) {
            return true;
        }
    }
    return false;
}

void uncount_handler() {
    if (shared != nullptr) {
        pg_atomic_fetch_sub_u32(&shared->handlers, 1);
        wake_launcher();
    }
}

int handlers_running() {
    return shared == nullptr ? 0 : static_cast<int>(pg_atomic_read_u32(&shared->handlers));
}

void init_jobs() {
    if (process_shared_preload_libraries_in_progress) {
        pg::add_shared_area(area);
    }
}

} // namespace idem::worker
