#include "protocol/limits.hpp"

#include "pg/errors.hpp"

extern "C" {
#include "access/detoast.h"
}

namespace idem::protocol {

void check_outcome_size(const core::Identity& identity, const core::Policy& policy,
                        std::initializer_list<store::Nullable> parts) {
    Size bytes = 0;
    for (const store::Nullable& part : parts) {
        if (!part.is_null) {
            bytes += toast_raw_datum_size(part.value) - VARHDRSZ;
        }
    }
    if (bytes > static_cast<Size>(policy.max_outcome_bytes)) {
        pg::raise_outcome_too_large(identity);
    }
}

void check_lease(const core::Identity& identity, const core::Policy& policy, std::optional<core::Duration> lease) {
    if (!lease || !policy.max_lease || *lease <= *policy.max_lease) {
        return;
    }
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("lease is longer than the policy allows"),
                    identity.account.empty() ? 0 : pg::errdetail_identity(identity),
                    errhint("Renew a shorter lease while the work goes on, or raise max_lease in idem_policies.")));
}

} // namespace idem::protocol
