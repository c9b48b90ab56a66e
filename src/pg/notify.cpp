#include "pg/notify.hpp"

#include "pg/pg.hpp"

extern "C" {
#include "commands/async.h"
#include "utils/json.h"
}

namespace idem::pg {

void notify(std::string_view action, const char* state) {
    StringInfoData payload;
    initStringInfo(&payload);
    appendStringInfoString(&payload, "{\"action\": ");
    escape_json(&payload, pnstrdup(action.data(), action.size()));
    appendStringInfo(&payload, ", \"state\": \"%s\"}", state);
    Async_Notify("pg_idem", payload.data);
}

void notify_outbox() {
    Async_Notify("pg_idem_outbox", nullptr);
}

} // namespace idem::pg
