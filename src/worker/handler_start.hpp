// Starting the handler of an interrupted operation in a worker of its own.
#pragma once

#include "core/decide.hpp"
#include "core/identity.hpp"
#include "pg/pg.hpp"
#include "pg/session.hpp"

namespace idem::worker {

inline constexpr int max_handler_name = 2 * NAMEDATALEN + 64;

struct HandlerStart {
    core::Identity identity;
    core::Token token;
    int attempt;
    Oid role;
    const char* function; // at most max_handler_name bytes
};

enum class Started : std::uint8_t {
    yes,     // connected as the role, and waiting for this transaction to commit; its session is known
    no_room, // as many workers run as may, or it does not come in time: another time
    failed,  // it went again before it was connected; the server's log says why
};

// False: as many handlers run as may.
bool has_room_for_handler();

// Waits until it is connected. If this transaction is rolled back, it goes without having done anything.
Started start_handler(const HandlerStart& start, pg::SessionId& session);

} // namespace idem::worker
