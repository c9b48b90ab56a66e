#include "core/key_format.hpp"

#include "pg/random.hpp"

#include "pg/pg.hpp"

namespace idem::pg {

core::Token random_token() {
    core::Token token;
    if (!pg_strong_random(token.data(), token.size())) {
        ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg("could not generate random values")));
    }
    token[6] = static_cast<std::uint8_t>((token[6] & 0x0F) | 0x40); // version 4
    token[8] = static_cast<std::uint8_t>((token[8] & 0x3F) | 0x80); // variant
    return token;
}

core::Token ordered_uuid(core::Time time) {
    return core::uuidv7(time, random_token());
}

} // namespace idem::pg
