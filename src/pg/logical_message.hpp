// Messages for logical decoding, and notifications of them.
#pragma once

#include "pg/pg.hpp"

namespace idem::pg {

// Writes a message into the write-ahead log that is decoded if and only if this transaction commits. `json` is JSON in
// the server's encoding; where that is another than UTF-8, what is not ASCII is escaped, so that all readers understand
// it. Raises 55000 where nothing could decode it.
void emit_logical_message(const char* prefix, const StringInfoData& json);

// "2030-01-01T00:00:00.5Z", in the current memory context.
const char* iso_time_text(TimestampTz time);

} // namespace idem::pg
