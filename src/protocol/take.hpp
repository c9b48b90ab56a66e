// idem_take: interrupted operations for whoever has nothing but an action to ask for.
#pragma once

#include <string_view>

#include "protocol/claim.hpp"

namespace idem::protocol {

struct TakeCall {
    std::string_view action;
    core::Duration lease;
    int batch;
    std::optional<std::string_view> owner;
};

// Claims up to `batch` operations that are due, those that have waited longest first, skipping what others hold and
// accounts that the caller may not act for; each is given to `taken` as it is claimed. Raises 22023, 53200.
using Taken = void (*)(const core::Identity& identity, const store::Nullable& request, const ClaimAnswer& claim,
                       void* context);
void take(const TakeCall& call, Taken taken, void* context);

} // namespace idem::protocol
