#include "core/policy.hpp"

#include <algorithm>

namespace idem::core {

namespace {

template <typename T>
T decided(const std::optional<T>& own, const std::optional<T>& star, T built_in) noexcept {
    return own ? *own : star.value_or(built_in);
}

std::optional<Duration> unless_zero(Duration value) noexcept {
    return value > 0 ? std::optional<Duration>(value) : std::nullopt;
}

} // namespace

Policy effective_policy(const PolicyRow& own, const PolicyRow& star) noexcept {
    const Policy built_in;
    Policy p;
    p.retention = decided(own.retention, star.retention, built_in.retention);
    p.remember = decided(own.remember, star.remember, built_in.remember);
    p.once_retention = decided(own.once_retention, star.once_retention, built_in.once_retention);
    p.key_format = decided(own.key_format, star.key_format, built_in.key_format);
    p.fingerprint_required =
        decided(own.fingerprint_required, star.fingerprint_required, built_in.fingerprint_required);
    p.max_lease = unless_zero(decided(own.max_lease, star.max_lease, *built_in.max_lease));
    p.max_attempts = decided(own.max_attempts, star.max_attempts, built_in.max_attempts);
    p.on_interrupt = decided(own.on_interrupt, star.on_interrupt, built_in.on_interrupt);
    p.retry_backoff = decided(own.retry_backoff, star.retry_backoff, built_in.retry_backoff);
    p.max_backoff = unless_zero(decided(own.max_backoff, star.max_backoff, *built_in.max_backoff));
    p.keep_request = decided(own.keep_request, star.keep_request, built_in.keep_request);
    p.max_outcome_bytes = decided(own.max_outcome_bytes, star.max_outcome_bytes, built_in.max_outcome_bytes);

    const Duration known = later(p.retention, p.remember);
    p.tolerated_skew = std::min(built_in.tolerated_skew, known / 2);
    p.reject_older_than = unless_zero(decided(own.reject_older_than, star.reject_older_than, Duration{0}));
    if (p.reject_older_than) {
        p.reject_older_than = std::min(*p.reject_older_than, known - p.tolerated_skew);
    }
    return p;
}

Duration backoff(const Policy& policy, std::int32_t failures) noexcept {
    const Duration most = policy.max_backoff.value_or(end_of_time);
    Duration delay = std::min(policy.retry_backoff, most);
    for (std::int32_t i = 1; i < failures && delay > 0 && delay < most; i++) {
        delay = delay > most / 2 ? most : delay * 2;
    }
    return delay;
}

} // namespace idem::core
