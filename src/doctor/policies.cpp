// Policies whose values do not fit together. Each row of idem_policies is looked at with what it takes from '*', but
// only if it sets one of the values itself: what comes from '*' alone is found there.
#include <string_view>

#include "doctor/checks.hpp"

#include "core/policy.hpp"
#include "core/time.hpp"
#include "doctor/facts.hpp"
#include "store/policies.hpp"

namespace idem::doctor {

namespace {

// For one row: what it sets itself, what '*' sets, and what is in force.
struct View {
    const char* action;
    const core::PolicyRow& own;
    const core::PolicyRow& star;
    core::Policy policy;

    core::Duration known() const { return core::later(policy.retention, policy.remember); }
};

template <typename Visit>
void for_each_policy(Visit visit) {
    const store::StoredPolicies all = store::read_all_policies();
    for (const store::StoredPolicy& stored : all) {
        visit(View{pnstrdup(stored.action.data(), stored.action.size()), stored.row, all.star.row,
                   core::effective_policy(stored.row, all.star.row)});
    }
}

bool sets_known(const core::PolicyRow& own) {
    return own.retention || own.remember;
}

void check_retention(Report& report) {
    for_each_policy([&report](const View& v) {
        if (!sets_known(v.own) && !v.own.max_lease) {
            return;
        }
        if (v.known() == 0) {
            report.warning(psprintf("action \"%s\": retention and remember are 0: a retry after the settlement is "
                                    "carried out again",
                                    v.action),
                           "Raise retention or remember above the time for which callers retry.");
        } else if (v.policy.max_lease && *v.policy.max_lease > v.known()) {
            report.warning(psprintf("action \"%s\": an outcome is known for %s (retention + remember), and a lease may "
                                    "last %s (max_lease)",
                                    v.action, duration_text(v.known()), duration_text(*v.policy.max_lease)),
                           "Raise retention or remember, or lower max_lease: else the key may be new again while an "
                           "attempt is under way.");
        }
    });
    report.ok("outcomes are known for longer than a lease may last");
}

void check_reject_older_than(Report& report) {
    for_each_policy([&report](const View& v) {
        if (!v.own.reject_older_than && !sets_known(v.own)) {
            return;
        }
        const core::Duration set = v.own.reject_older_than.value_or(v.star.reject_older_than.value_or(0));
        if (v.policy.reject_older_than && *v.policy.reject_older_than < set) {
            report.warning(psprintf("action \"%s\": reject_older_than is %s, but counts as %s: retention + remember "
                                    "less the tolerated skew",
                                    v.action, duration_text(set), duration_text(*v.policy.reject_older_than)),
                           "Lower reject_older_than, or raise retention or remember.");
        }
    });
    report.ok("reject_older_than holds as it is set");
}

void check_tolerated_skew(Report& report) {
    const core::Duration usual = core::Policy{}.tolerated_skew;
    for_each_policy([&report, usual](const View& v) {
        if (sets_known(v.own) && v.known() > 0 && v.policy.tolerated_skew < usual) {
            report.info(psprintf("action \"%s\": a request issued more than %s in the future is refused, not %s: half "
                                 "of retention + remember",
                                 v.action, duration_text(v.policy.tolerated_skew), duration_text(usual)),
                        "Raise retention or remember, or keep the clocks of callers that close.");
        }
    });
    report.ok("clocks of callers may be ten minutes ahead");
}

void check_retry_backoff(Report& report) {
    for_each_policy([&report](const View& v) {
        if ((v.own.retry_backoff || v.own.max_backoff) && v.policy.max_backoff &&
            v.policy.retry_backoff > *v.policy.max_backoff) {
            report.info(psprintf("action \"%s\": retry_backoff is %s, but counts as %s: max_backoff", v.action,
                                 duration_text(v.policy.retry_backoff), duration_text(*v.policy.max_backoff)),
                        "Lower retry_backoff, or raise max_backoff.");
        }
    });
    report.ok("retry_backoff holds as it is set");
}

// Only with reject_older_than does it matter when a request was issued.
void check_key_format(Report& report) {
    for_each_policy([&report](const View& v) {
        if ((v.own.key_format || v.own.reject_older_than) && v.policy.key_format == core::KeyFormat::uuidv7 &&
            !v.policy.reject_older_than) {
            report.info(psprintf("action \"%s\": key_format is uuidv7, but without reject_older_than a late retry is "
                                 "not told by the time in its key",
                                 v.action),
                        "Set reject_older_than.");
        }
    });
    report.ok("the time in keys is used where they have one");
}

void check_fingerprint(Report& report) {
    for_each_policy([&report](const View& v) {
        if (v.own.fingerprint_required && !v.policy.fingerprint_required) {
            report.info(psprintf("action \"%s\": fingerprint is optional: the same key with other inputs is not "
                                 "noticed where the first call gives none",
                                 v.action),
                        "Set fingerprint to required once every caller gives request or fingerprint.");
        }
    });
    report.ok("every claim gives its inputs");
}

constexpr Check checks[] = {
    {"retention", check_retention},           {"reject_older_than", check_reject_older_than},
    {"tolerated_skew", check_tolerated_skew}, {"retry_backoff", check_retry_backoff},
    {"key_format", check_key_format},         {"fingerprint", check_fingerprint},
};

} // namespace

std::span<const Check> policies_checks() {
    return checks;
}

} // namespace idem::doctor
