// The text that names a handler in idem_policies: "schema.name" or "schema.name(jsonb)".
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

struct HandlerName {
    Oid schema = InvalidOid;
    Oid function = InvalidOid;
    const char* wrong = nullptr; // what is, as the end of a sentence
};

// Nothing but the schema that it names is searched, and no right is checked.
HandlerName find_handler(const char* text);

} // namespace idem::pg
