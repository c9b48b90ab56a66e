// Table idem_audit: which operator called what, written with the change itself.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

#include "core/time.hpp"

namespace idem::store {

struct AuditEntry {
    const char* call;
    std::int64_t rows = 0; // changed
    std::optional<int> attempt;
    std::string_view account;
    std::optional<std::string_view> action;
    std::optional<std::string_view> key;
    std::optional<std::string_view> verdict;
    std::optional<std::string_view> note;
};

void insert_audit(const AuditEntry& entry, core::Time now);

} // namespace idem::store
