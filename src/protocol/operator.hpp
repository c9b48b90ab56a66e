// Calls of an operator about one operation: idem_resolve, idem_reset, idem_import. All wait for the key lock like an
// owner's call, keep it to the end of the transaction, and are written into idem_audit.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "core/time.hpp"
#include "store/settled.hpp"

namespace idem::protocol {

enum class Resolution : std::uint8_t { completed, failed, retry };

struct ResolveCall {
    core::Identity identity;
    Resolution verdict = Resolution::retry;
    std::string_view verdict_text;
    store::Nullable result, status, body;
    std::optional<std::string_view> note;
    std::optional<int> attempt; // the one that is decided about
};

// Until when the outcome is replayed, or when the next attempt is due.
core::Time resolve(const ResolveCall& call);

// True: the settled operation is forgotten.
bool reset(const core::Identity& identity, std::string_view note);

struct ImportCall {
    core::Identity identity;
    bool succeeded = false;
    std::string_view settled_as;
    store::Nullable status, result, body;
    core::Fingerprint fingerprint;
    core::Time settled_at = 0;
};

// False: already known.
bool import_outcome(const ImportCall& call);

} // namespace idem::protocol
