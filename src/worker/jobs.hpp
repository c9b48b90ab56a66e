// Which workers there are: what the launcher has asked maintenance workers for, and how many handlers run. In shared
// memory; without the preload there are none that count.
#pragma once

#include "pg/pg.hpp"

namespace idem::worker {

// A maintenance worker that the launcher has asked for.
enum class JobState : uint32 { free, asked, done, failed };
inline constexpr int max_jobs = 64;
int add_job(Oid database); // -1: no room
Oid job_database(int job);
JobState job_state(int job);
void set_job_state(int job, JobState state);

// Handlers of interrupted operations that run, of all databases. False: as many as may.
bool try_count_handler(int most);
void uncount_handler();
int handlers_running();

// Registers shared memory; from _PG_init.
void init_jobs();

} // namespace idem::worker
