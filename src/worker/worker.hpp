// Background workers: see README.md.
#pragma once

namespace idem::worker {

// Where the library is preloaded; from _PG_init.
void register_launcher();

} // namespace idem::worker
