#include "pg/hash.hpp"

#include "pg/pg.hpp"

extern "C" {
#include "common/cryptohash.h"
#include "common/sha2.h"
}

namespace idem::pg {

std::array<std::uint8_t, 32> sha256(const unsigned char* bytes, std::size_t size) {
    std::array<std::uint8_t, 32> digest{};
    pg_cryptohash_ctx* hash = pg_cryptohash_create(PG_SHA256);
    if (pg_cryptohash_init(hash) < 0 || pg_cryptohash_update(hash, bytes, size) < 0 ||
        pg_cryptohash_final(hash, digest.data(), digest.size()) < 0) {
        elog(ERROR, "could not compute SHA-256: %s", pg_cryptohash_error(hash));
    }
    pg_cryptohash_free(hash);
    return digest;
}

} // namespace idem::pg
