// Table idem_policies, through a cache of this session.
#pragma once

#include <string_view>

#include "core/policy.hpp"

namespace idem::store {

// The policy in force for `action`. Read with a fresh snapshot when the cache has been invalidated, so that a
// REPEATABLE READ transaction cannot leave an old policy in the cache for the life of its session.
const core::Policy& policy_for(std::string_view action);

// The handler of on_interrupt = call, in memory of the current context; nullptr: none. Not cached: it is rarely asked.
//
// Both come from one row, that of the action if it names either, else '*': whoever writes a row must be a member of the
// role that it names, and else could lend a role named in one row to a function named in another.
struct Handler {
    const char* function = nullptr;
    const char* role = nullptr;
};
Handler handler_for(std::string_view action);

// A row of the table as it stands; text in the current memory context.
struct StoredPolicy {
    std::string_view action;
    core::PolicyRow row;
    std::string_view handler;      // empty: none, or not set here
    std::string_view handler_role; // empty: none, or not set here
    bool sets_handler = false;
    bool sets_handler_role = false;
};

struct StoredPolicies {
    const StoredPolicy* rows;
    int count;
    StoredPolicy star; // nothing set where there is no row '*'

    const StoredPolicy* begin() const { return rows; }
    const StoredPolicy* end() const { return rows + count; }
};

// All of them, for those who look at the policies themselves.
StoredPolicies read_all_policies();

// Registers the cache's invalidation; from _PG_init.
void init_policies();

} // namespace idem::store
