#include "pg/idle_claim.hpp"

#include "pg/pg.hpp"
#include "pg/settings.hpp"

extern "C" {
#include "storage/proc.h"
}

namespace idem::pg {

void arm_idle_claim_timeout() {
    if (settings.idle_claim_timeout == 0 || IdleInTransactionSessionTimeout != 0) {
        return;
    }
    char milliseconds[16];
    pg_ltoa(settings.idle_claim_timeout, milliseconds);
    (void)set_config_option("idle_in_transaction_session_timeout", milliseconds, PGC_USERSET, PGC_S_SESSION,
                            GUC_ACTION_LOCAL, true, 0, false);
}

} // namespace idem::pg
