// Input: a JSON Pointer, a newline, JSON text. Every value is found under the pointer that is spelled out
// for it by walking the document, the given pointer finds what the walk says, and ignoring it is harmless.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../unit/json_reader.hpp"
#include "../unit/string_sink.hpp"
#include "core/json_canonical.hpp"
#include "core/json_pointer.hpp"

namespace {

using idem::core::JsonKind;
using idem::core::JsonToken;

constexpr std::size_t max_tokens = 300; // the walk takes quadratic time on a deep document

void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

bool canonicalize(std::span<const JsonToken> tape, std::span<const std::string_view> ignore, std::string& output) {
    try {
        idem::core::canonicalize(tape, ignore, idem::test::append_to_string, &output);
        return true;
    } catch (const std::invalid_argument&) {
        return false;
    } catch (const std::out_of_range&) {
        return false;
    }
}

std::string escaped(std::string_view key) {
    std::string reference;
    for (const char character : key) {
        reference += character == '~' ? "~0" : character == '/' ? "~1" : std::string(1, character);
    }
    return reference;
}

std::map<std::string, std::size_t> walk(std::span<const JsonToken> tape) {
    struct Level {
        std::string pointer;
        bool object;
        std::size_t next;
    };
    std::map<std::string, std::size_t> found;
    std::vector<Level> levels;
    std::string key;
    for (std::size_t at = 0; at < tape.size(); ++at) {
        const JsonKind kind = tape[at].kind;
        if (kind == JsonKind::key) {
            key = tape[at].view();
            continue;
        }
        if (kind == JsonKind::array_end || kind == JsonKind::object_end) {
            levels.pop_back();
            continue;
        }
        std::string pointer;
        if (!levels.empty()) {
            Level& level = levels.back();
            pointer = level.pointer + "/" + (level.object ? escaped(key) : std::to_string(level.next));
            ++level.next;
        }
        found.emplace(pointer, at);
        if (kind == JsonKind::array_begin || kind == JsonKind::object_begin) {
            levels.push_back({pointer, kind == JsonKind::object_begin, 0});
        }
    }
    return found;
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    const std::size_t end = std::min(input.find('\n'), input.size());
    const std::string_view pointer = input.substr(0, end);
    const std::string_view text = input.substr(std::min(end + 1, input.size()));
    const bool valid = idem::core::is_json_pointer(pointer);

    const auto document = idem::test::JsonReader::read(text);
    std::string whole;
    if (!document || document->tape.size() > max_tokens || !canonicalize(document->tape, {}, whole)) {
        return 0;
    }
    const std::span<const JsonToken> tape = document->tape;
    const auto values = walk(tape);
    for (const auto& [path, at] : values) {
        check(idem::core::is_json_pointer(path));
        check(idem::core::find_json_pointer(tape, path) == at);
    }
    const auto wanted = values.find(std::string(pointer));
    const std::size_t found = idem::core::find_json_pointer(tape, pointer);
    check(found == (wanted == values.end() ? idem::core::npos : wanted->second));
    check(valid || found == idem::core::npos);

    std::string rest;
    check(canonicalize(tape, {&pointer, 1}, rest));
    const bool removes = found != idem::core::npos && found != 0;
    check(removes ? rest.size() < whole.size() : rest == whole);
    return 0;
}
