// Effects: calls to something outside the database. What may be done about one is decided here, as pure functions of
// what is stored of it, what is asked or reported, and the clock.
//
// An effect is repeated only under the same downstream key, and only while the provider surely remembers that key. One
// that was handed out before, and of which nothing was heard, is asked about, not repeated.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "core/time.hpp"

namespace idem::core {

inline constexpr std::size_t max_effect_name_bytes = 255;

// How long the provider remembers a key; empty: it does not. A longer window counts as this one, so that its end is a
// time that can be told.
using Window = std::optional<Duration>;
inline constexpr Duration longest_window = 365'000 * day;

enum class Report : std::uint8_t { confirmed, rejected, absent };

// What is stored of one generation.
struct EffectFacts {
    std::int32_t generation = 1;
    Time first_sent_at = 0;
    Window window;
    std::optional<Report> report; // empty: open
    Fingerprint fingerprint;
};

enum class EffectState : std::uint8_t { call, unknown, confirmed, rejected };

// What the owner would be answered now, if it gave the same window again.
EffectState state_of(const EffectFacts& effect, Time now) noexcept;

// From when on an open one is unknown.
Time unknown_from(const EffectFacts& effect) noexcept;

// The call may be sent before this time: the end of the window, less a margin of a tenth, at most a minute, for the
// way there. Without a window, for a minute after the only hand-out.
Time send_before(Time first_sent_at, Window window) noexcept;

// From then on nothing that was sent in time can be under way any more, so that "it knows nothing of the key" is final.
Time absent_from(Time first_sent_at, Window window) noexcept;

struct EffectRequest {
    Fingerprint fingerprint;
    Window window;
    bool again = false; // after a rejection: once more, under a new key
};

enum class EffectVerdict : std::uint8_t { first, next_generation, call, unknown, confirmed, rejected, mismatch };

struct EffectDecision {
    EffectVerdict verdict;
    Time send_before = 0; // of first, next_generation and call
};

// latest: the last generation; nullptr: there is none.
EffectDecision decide_effect(const EffectFacts* latest, const EffectRequest& request, Time now) noexcept;

enum class ReportVerdict : std::uint8_t { record, already_so, contradiction, too_early };

// What the provider is said to have answered. Rejected and absent mean the same: it was not done. A generation is
// followed by another only when it is closed.
ReportVerdict judge_report(const EffectFacts& effect, bool is_latest, Report said, Time now) noexcept;

// What the downstream key is the SHA-256 of. This, and how the key is made of it, never changes.
struct EffectName {
    static constexpr std::size_t most = 1024;
    unsigned char bytes[most];
    std::size_t size;
};
EffectName effect_name(const Identity& identity, std::string_view name, std::int32_t generation) noexcept;

// UUID version 8 (RFC 9562) of the first 16 bytes.
std::array<std::uint8_t, 16> downstream_key(const std::array<std::uint8_t, 32>& sha256) noexcept;

} // namespace idem::core
