#include "core/effect.hpp"

#include <algorithm>

namespace idem::core {

namespace {

constexpr std::string_view domain = "pg_idem effect v1";
static_assert(domain.size() + 5 * 4 + max_identity_bytes + max_effect_name_bytes <= EffectName::most);

constexpr Duration longest_margin = minute;
constexpr Duration only_hand_out = minute; // without a window

bool is_shorter(Window a, Window b) noexcept {
    return b && (!a || *a < *b);
}

// Rejected and absent mean the same.
bool was_done(Report report) noexcept {
    return report == Report::confirmed;
}

} // namespace

Time send_before(Time first_sent_at, Window window) noexcept {
    if (!window) {
        return later(first_sent_at, only_hand_out);
    }
    const Duration margin = (std::min(*window, 10 * longest_margin) + 5) / 10; // to the nearest microsecond
    return later(first_sent_at, *window - margin);
}

Time absent_from(Time first_sent_at, Window window) noexcept {
    return later(first_sent_at, window ? *window : only_hand_out + longest_margin);
}

Time unknown_from(const EffectFacts& effect) noexcept {
    return effect.window ? send_before(effect.first_sent_at, effect.window) : effect.first_sent_at;
}

EffectState state_of(const EffectFacts& effect, Time now) noexcept {
    if (effect.report) {
        return was_done(*effect.report) ? EffectState::confirmed : EffectState::rejected;
    }
    const bool may_repeat = effect.window && now < unknown_from(effect); // without a window never: clocks go back
    return may_repeat ? EffectState::call : EffectState::unknown;
}

EffectDecision decide_effect(const EffectFacts* latest, const EffectRequest& request, Time now) noexcept {
    if (latest == nullptr) {
        return {EffectVerdict::first, send_before(now, request.window)};
    }
    if (latest->fingerprint != request.fingerprint) {
        return {EffectVerdict::mismatch};
    }
    EffectFacts effect = *latest;
    if (is_shorter(request.window, effect.window)) {
        effect.window = request.window;
    }
    switch (state_of(effect, now)) {
    case EffectState::confirmed:
        return {EffectVerdict::confirmed};
    case EffectState::rejected:
        if (request.again) {
            return {EffectVerdict::next_generation, send_before(now, request.window)};
        }
        return {EffectVerdict::rejected};
    case EffectState::call:
        return {EffectVerdict::call, send_before(effect.first_sent_at, effect.window)};
    case EffectState::unknown:
        break;
    }
    return {EffectVerdict::unknown};
}

ReportVerdict judge_report(const EffectFacts& effect, bool is_latest, Report said, Time now) noexcept {
    if (effect.report) {
        return was_done(*effect.report) == was_done(said) ? ReportVerdict::already_so : ReportVerdict::contradiction;
    }
    if (!is_latest) { // by hand: there is none
        return ReportVerdict::contradiction;
    }
    if (said == Report::absent && now < absent_from(effect.first_sent_at, effect.window)) {
        return ReportVerdict::too_early;
    }
    return ReportVerdict::record;
}

EffectName effect_name(const Identity& identity, std::string_view name, std::int32_t generation) noexcept {
    EffectName result;
    unsigned char* out = std::copy(domain.begin(), domain.end(), result.bytes);
    const auto put_number = [&out](std::size_t number) { // 4 bytes, the highest first
        for (const int shift : {24, 16, 8, 0}) {
            *out++ = static_cast<unsigned char>(number >> shift);
        }
    };
    for (const std::string_view part : {identity.account, identity.action, identity.key, name}) {
        put_number(part.size());
        out = std::copy(part.begin(), part.end(), out);
    }
    put_number(static_cast<std::uint32_t>(generation));
    result.size = static_cast<std::size_t>(out - result.bytes);
    return result;
}

std::array<std::uint8_t, 16> downstream_key(const std::array<std::uint8_t, 32>& sha256) noexcept {
    std::array<std::uint8_t, 16> uuid{};
    std::copy_n(sha256.begin(), uuid.size(), uuid.begin());
    uuid[6] = static_cast<std::uint8_t>((uuid[6] & 0x0F) | 0x80); // version 8
    uuid[8] = static_cast<std::uint8_t>((uuid[8] & 0x3F) | 0x80); // variant
    return uuid;
}

} // namespace idem::core
