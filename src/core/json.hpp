#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace idem::core {

enum class JsonKind : std::uint8_t {
    null,
    boolean_false,
    boolean_true,
    number,
    string,
    key,
    array_begin,
    array_end,
    object_begin,
    object_end,
};

// One step of a JSON value written out as a flat sequence, a tape: an array is its elements between
// array_begin and array_end, an object is key, value, key, value, ... between object_begin and object_end.
//
// Trivially copyable, so that the server-facing side can keep a tape in memory of its own.
struct JsonToken {
    JsonKind kind;
    const char* text; // unescaped UTF-8 of a string or key, ASCII of a number; not owned; else unused
    std::size_t size; // bytes in text

    std::string_view view() const noexcept { return {text, size}; }
};

} // namespace idem::core
