#include "core/json_pointer.hpp"

#include <algorithm>
#include <charconv>

namespace idem::core {
namespace {

// The index past the value that begins at `at`.
std::size_t skip_value(std::span<const JsonToken> tape, std::size_t at) noexcept {
    std::size_t depth = 0;
    for (; at < tape.size(); ++at) {
        switch (tape[at].kind) {
        case JsonKind::array_begin:
        case JsonKind::object_begin:
            ++depth;
            continue;
        case JsonKind::key:
            continue;
        case JsonKind::array_end:
        case JsonKind::object_end:
            --depth;
            break;
        default:
            break;
        }
        if (depth == 0) {
            return at + 1;
        }
    }
    return at;
}

// Whether a reference token, in which ~1 stands for '/' and ~0 for '~', names `key`.
bool names(std::string_view reference, std::string_view key) noexcept {
    std::size_t at = 0;
    for (const char wanted : key) {
        if (at == reference.size()) {
            return false;
        }
        char character = reference[at++];
        if (character == '~') {
            character = reference[at++] == '1' ? '/' : '~';
        }
        if (character != wanted) {
            return false;
        }
    }
    return at == reference.size();
}

// The array index that a reference token spells, or npos.
std::size_t to_index(std::string_view reference) noexcept {
    if (reference.empty() || (reference.front() == '0' && reference.size() > 1)) {
        return npos;
    }
    std::size_t index = 0;
    const char* const last = reference.data() + reference.size();
    const auto [end, error] = std::from_chars(reference.data(), last, index); // takes no sign, no white space
    return error == std::errc() && end == last ? index : npos;
}

std::size_t find_member(std::span<const JsonToken> tape, std::size_t at, std::string_view reference) noexcept {
    while (at < tape.size() && tape[at].kind == JsonKind::key) {
        if (names(reference, tape[at].view())) {
            return at + 1;
        }
        at = skip_value(tape, at + 1);
    }
    return npos;
}

std::size_t find_element(std::span<const JsonToken> tape, std::size_t at, std::size_t index) noexcept {
    if (index == npos) {
        return npos;
    }
    for (; at < tape.size() && tape[at].kind != JsonKind::array_end; --index) {
        if (index == 0) {
            return at;
        }
        at = skip_value(tape, at);
    }
    return npos;
}

} // namespace

bool is_json_pointer(std::string_view pointer) noexcept {
    if (!pointer.empty() && pointer.front() != '/') {
        return false;
    }
    for (std::size_t at = 0; at < pointer.size(); ++at) {
        if (pointer[at] == '~' && (at + 1 == pointer.size() || (pointer[at + 1] != '0' && pointer[at + 1] != '1'))) {
            return false;
        }
    }
    return true;
}

std::size_t find_json_pointer(std::span<const JsonToken> tape, std::string_view pointer) noexcept {
    if (tape.empty() || !is_json_pointer(pointer)) {
        return npos;
    }
    std::size_t at = 0;
    while (!pointer.empty() && at < tape.size()) {
        pointer.remove_prefix(1); // the '/'
        const std::string_view reference = pointer.substr(0, pointer.find('/'));
        pointer.remove_prefix(reference.size());
        switch (tape[at].kind) {
        case JsonKind::object_begin:
            at = find_member(tape, at + 1, reference);
            break;
        case JsonKind::array_begin:
            at = find_element(tape, at + 1, to_index(reference));
            break;
        default:
            return npos;
        }
    }
    return at;
}

} // namespace idem::core
