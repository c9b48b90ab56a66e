// SHA-256, by the server.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

namespace idem::pg {

std::array<std::uint8_t, 32> sha256(const unsigned char* bytes, std::size_t size);

} // namespace idem::pg
