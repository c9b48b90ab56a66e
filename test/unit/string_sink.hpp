#pragma once

#include <cstddef>
#include <string>

namespace idem::test {

// A ByteSink whose state is the std::string to append to.
inline void append_to_string(void* state, const char* bytes, std::size_t size) noexcept {
    static_cast<std::string*>(state)->append(bytes, size);
}

} // namespace idem::test
