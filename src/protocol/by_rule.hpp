// What becomes of an interrupted attempt by rule. Under the key lock.
#pragma once

#include <string_view>

#include "store/operation.hpp"

namespace idem::protocol {

// Counts that the attempt was found to be interrupted, unless that was counted when it was announced.
void count_interruption(const store::InflightRow& row);

// Settles it as failed: status 503, result {"error": "interrupted"}.
void fail_by_rule(const core::Identity& identity, const store::InflightRow& row, const core::Policy& policy,
                  core::Time now);

// The reason of a review that ends by itself when what became of every effect is known.
inline constexpr std::string_view effect_open_reason = "effect_open";

// Puts it in review. failure_count: the new count of attempts without progress.
void review_by_rule(const core::Identity& identity, store::InflightRow& row, int failure_count, core::Time now);

} // namespace idem::protocol
