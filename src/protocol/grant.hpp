// Granting a claim, under the key lock.
#pragma once

#include "protocol/claim.hpp"

namespace idem::protocol {

// Writes the row of a leased claim: a new one, or over that of the interrupted attempt that is taken over.
// failure_count: the new count of attempts without progress.
ClaimAnswer grant_with_lease(const ClaimCall& call, const core::Policy& policy, store::Stored& stored,
                             int failure_count, core::Time now);

// Lease, deadline and session, as the call asks.
void fill_lease(const ClaimCall& call, store::InflightRow& row, core::Time now);

// claimed or recovered; with the checkpoint of the attempt before, if there was one.
ClaimAnswer granted_answer(int attempt, const store::InflightRow* previous);

// In the statistics.
void count_grant(const core::Identity& identity, int attempt);

// How a session is named where it gave no label: its process ID.
std::string_view session_label(int pid);

} // namespace idem::protocol
