// jsonb as src/core reads it.
#pragma once

#include <span>
#include <string_view>

#include "core/json.hpp"
#include "pg/pg.hpp"

namespace idem::pg {

// The tape of `json`, in the current memory context; text in UTF-8. Points into `json` where it can.
std::span<const core::JsonToken> tape_of(Jsonb* json);

// Version byte and SHA-256 of the canonical form (RFC 8785) of `json`, less what `ignore` names (JSON Pointers in
// UTF-8).
inline constexpr int fingerprint_bytes = 33;
void fingerprint_of(Jsonb* json, std::span<const std::string_view> ignore, unsigned char* out);

// The string or number at `pointer` in JSON text, in server encoding; nullptr: no JSON, nothing there, another kind.
const char* json_text_at(const char* text, std::string_view pointer);

} // namespace idem::pg
