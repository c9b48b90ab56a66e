#include "core/decide.hpp"

#include <limits>

namespace idem::core {

namespace {

enum class Inputs : std::uint8_t { same, different, unknown };

// Without a stored fingerprint nothing can differ; without a given one nothing may be revealed.
Inputs compare_inputs(const Fingerprint& stored, const Fingerprint& given) noexcept {
    if (!stored) {
        return Inputs::same;
    }
    if (!given) {
        return Inputs::unknown;
    }
    return *stored == *given ? Inputs::same : Inputs::different;
}

// Where the rule is fail or review, the end of the lease is final, whether or not anybody has recorded it.
bool end_is_final(Rule rule) noexcept {
    return rule == Rule::fail || rule == Rule::review;
}

// Over an effect that may have been done nothing is failed: an operator, or the provider's answer, decides.
bool fails(const InflightFacts& row) noexcept {
    return row.rule == Rule::fail && !row.effect_open;
}

Decision by_rule(const InflightFacts& row, std::int32_t failures) noexcept {
    return {fails(row) ? Verdict::fail_by_rule : Verdict::review_by_rule, 0, failures};
}

Decision decide_inflight(const InflightFacts& row, const ClaimRequest& request, Time now) noexcept {
    const bool released = !row.token;
    const bool over = is_over(row, now);

    if (!released && request.token == row.token && !row.in_review && (!over || !end_is_final(row.rule))) {
        return {Verdict::repeat_answer, 0, row.failures};
    }
    if (row.in_review) {
        return {Verdict::review};
    }
    if (!over) {
        return {Verdict::in_progress, row.lease_expires_at};
    }
    if (released && now < row.due_at) {
        return {Verdict::in_progress, row.due_at};
    }
    if (row.granted && released) {
        return {Verdict::grant_next, 0, row.failures};
    }
    const bool can_count = row.failures < std::numeric_limits<std::int32_t>::max();
    const std::int32_t failures = row.failures + (!released && can_count ? 1 : 0); // a lost lease counts
    if (failures >= row.max_attempts) {
        return by_rule(row, failures);
    }
    if (!released && end_is_final(row.rule)) {
        return by_rule(row, failures);
    }
    return {Verdict::grant_next, 0, failures};
}

} // namespace

bool is_over(const InflightFacts& inflight, Time now) noexcept {
    return !inflight.token || inflight.session_over || now >= inflight.lease_expires_at;
}

bool is_remembered(const SettledFacts& settled, Time now) noexcept {
    return now < settled.forget_at;
}

bool is_expired(const SettledFacts& settled, Time now) noexcept {
    return settled.stripped || now >= settled.expires_at;
}

Decision decide(const SettledFacts* settled, const InflightFacts* inflight, const ClaimRequest& request,
                const Policy& policy, Time now) noexcept {
    const bool known = settled != nullptr && is_remembered(*settled, now);
    if (known || inflight != nullptr) {
        switch (compare_inputs(known ? settled->fingerprint : inflight->fingerprint, request.fingerprint)) {
        case Inputs::different:
            return {Verdict::mismatch};
        case Inputs::unknown:
            return {Verdict::fingerprint_missing};
        case Inputs::same:
            break;
        }
    }
    if (known) {
        return {is_expired(*settled, now) ? Verdict::expired : Verdict::replay};
    }
    if (inflight != nullptr) {
        return decide_inflight(*inflight, request, now);
    }
    if (policy.reject_older_than && request.issued_at &&
        between(now, *request.issued_at) >= *policy.reject_older_than) {
        return {Verdict::too_old};
    }
    return {Verdict::grant_first};
}

Decision decide_unattended(const InflightFacts& inflight, Time now) noexcept {
    return decide_inflight(inflight, ClaimRequest{}, now);
}

OwnerVerdict judge_owner(const SettledFacts* settled, const InflightFacts* inflight, const Token& token, Time now,
                         bool kept) noexcept {
    if (inflight != nullptr) {
        if (inflight->token != token) {
            return OwnerVerdict::not_owner;
        }
        if (inflight->in_review) {
            return OwnerVerdict::in_review;
        }
        if (!kept && end_is_final(inflight->rule) && is_over(*inflight, now)) {
            return fails(*inflight) ? OwnerVerdict::not_owner : OwnerVerdict::in_review;
        }
        return OwnerVerdict::current;
    }
    if (settled != nullptr && is_remembered(*settled, now)) {
        return OwnerVerdict::settled;
    }
    return OwnerVerdict::not_owner;
}

OperatorVerdict judge_operator(const SettledFacts* settled, const InflightFacts* inflight, Time now,
                               bool kept) noexcept {
    if (inflight != nullptr) {
        const bool failed = !kept && decide_unattended(*inflight, now).verdict == Verdict::fail_by_rule;
        return failed ? OperatorVerdict::settled : OperatorVerdict::open;
    }
    if (settled != nullptr && is_remembered(*settled, now)) {
        return OperatorVerdict::settled;
    }
    return OperatorVerdict::nothing;
}

} // namespace idem::core
