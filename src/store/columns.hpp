// The columns of our tables, in the order of the install script. C code addresses them by these positions; that a
// live table still has them is checked before it is used (pg/relations.cpp).
#pragma once

#include <iterator>
#include <span>

#include "pg/pg.hpp"
#include "pg/relations.hpp"

namespace idem::store {

namespace settled {
enum Field : int {
    settled_at,
    expires_at,
    forget_at,
    claimed_at,
    attempt,
    status,
    succeeded,
    stripped,
    account,
    action,
    key,
    fingerprint,
    request,
    result,
    body,
    body_bytes,
    count
};
} // namespace settled

namespace inflight {
enum Field : int {
    claimed_at,
    state_since,
    lease_expires_at,
    due_at,
    session_start,
    session_pid,
    attempt,
    failures,
    max_attempts,
    in_review,
    granted,
    announced,
    token,
    lease,
    account,
    action,
    key,
    on_interrupt,
    owner,
    reason,
    last_error,
    fingerprint,
    request,
    checkpoint,
    progress,
    count
};
} // namespace inflight

namespace seen {
enum Field : int { seen_at, forget_at, account, action, key, fingerprint, count };
} // namespace seen

namespace audit {
enum Field : int {
    id,
    called_at,
    rows,
    attempt,
    call,
    account,
    action,
    key,
    verdict,
    note,
    session_user_name,
    user_name,
    count
};
} // namespace audit

namespace effects {
enum Field : int {
    first_sent_at,
    reported_at,
    provider_window,
    downstream_key,
    account,
    action,
    key,
    name,
    generation,
    report,
    fingerprint,
    request,
    response,
    count
};
} // namespace effects

namespace outbox {
enum Field : int {
    id,
    aggregatetype,
    aggregateid,
    type,
    payload,
    headers,
    account,
    action,
    key,
    created_at,
    position,
    deliveries,
    failures,
    leased_until,
    due_at,
    parked_at,
    last_error,
    count
};
} // namespace outbox

const char* name_of(pg::TableId id);
std::span<const pg::Column> columns_of(pg::TableId id);

// The primary key as the install script makes it. Not of policies.
pg::PrimaryKey key_of(pg::TableId id);

} // namespace idem::store
