// Whether a database session still lives: for claims that are bound to one.
#pragma once

#include "core/time.hpp"

namespace idem::pg {

// A session is its process ID and start time: process IDs come back.
struct SessionId {
    int pid;
    core::Time start;
};

SessionId this_session();

// On a standby always true: sessions of the primary are not known there.
bool is_session_alive(const SessionId& session);

} // namespace idem::pg
