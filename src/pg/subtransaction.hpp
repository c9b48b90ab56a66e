// Internal subtransactions: what is done in one can be undone, and an error in it can be survived.
#pragma once

#include <type_traits>

#include "pg/pg.hpp"

extern "C" {
#include "utils/resowner.h"
}

namespace idem::pg {

// Runs `body`, a function without destructors to run that returns whether to keep what it did. It is rolled back when
// the answer is false, and on an error, which is returned in the current memory context: to raise it again, after
// whatever must be restored, is the caller's (ReThrowError). nullptr: no error. To swallow an error otherwise than
// after this rollback would leave its locks and half-done work behind; to raise it before, the subtransaction.
template <typename Body>
ErrorData* in_subtransaction(Body body) {
    static_assert(std::is_trivially_destructible_v<Body>);
    MemoryContext context = CurrentMemoryContext;
    ResourceOwner owner = CurrentResourceOwner;
    ErrorData* volatile error = nullptr;
    volatile bool keep = false;

    BeginInternalSubTransaction(nullptr);
    MemoryContextSwitchTo(context);
    PG_TRY();
    {
        keep = body();
        if (keep) {
            ReleaseCurrentSubTransaction(); // may raise: other extensions act on it
        }
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(context);
        error = CopyErrorData();
        FlushErrorState();
    }
    PG_END_TRY();
    if (error != nullptr || !keep) {
        RollbackAndReleaseCurrentSubTransaction();
    }
    MemoryContextSwitchTo(context);
    CurrentResourceOwner = owner;
    return error;
}

} // namespace idem::pg
