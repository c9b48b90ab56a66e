// One pass over the current database, in short transactions.
#pragma once

#include "worker/registry.hpp"

namespace idem::worker {

// False: the database does not have the extension. Errors are reported, and noted in `status`; none is raised but for
// the end of the process.
bool run_pass(PassStatus& status);

} // namespace idem::worker
