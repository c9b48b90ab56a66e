// C++ values as the server stores them, in the current memory context.
#pragma once

#include <cstring>
#include <string_view>

#include "core/decide.hpp"
#include "pg/pg.hpp"

namespace idem::store {

inline Datum text_datum(std::string_view text) {
    return PointerGetDatum(cstring_to_text_with_len(text.data(), static_cast<int>(text.size())));
}

// bytea and text have one layout.
inline Datum bytea_datum(std::string_view bytes) {
    return text_datum(bytes);
}

inline Datum uuid_datum(const core::Token& token) {
    auto* uuid = static_cast<pg_uuid_t*>(palloc(sizeof(pg_uuid_t)));
    std::memcpy(uuid->data, token.data(), token.size());
    return UUIDPGetDatum(uuid);
}

inline core::Token token_of(Datum uuid) {
    core::Token token;
    std::memcpy(token.data(), DatumGetUUIDP(uuid)->data, token.size());
    return token;
}

inline std::string_view view_of(Datum varlena_datum) {
    struct varlena* value = PG_DETOAST_DATUM_PACKED(varlena_datum);
    return {VARDATA_ANY(value), static_cast<std::size_t>(VARSIZE_ANY_EXHDR(value))};
}

} // namespace idem::store
