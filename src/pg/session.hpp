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
// For a look at many rows: a copy of the sessions that live now, and whether one of it is the session asked for. A
// session that began later is not in it: what follows from "it has ended" is to be asked again with is_session_alive.
void remember_sessions();
bool was_session_alive(const SessionId& session);

bool is_session_alive(const SessionId& session);

} // namespace idem::pg
