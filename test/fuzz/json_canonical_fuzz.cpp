// Canonical form, read again, gives the same bytes; and no tape, however malformed, does worse than throw.

#include <cstddef>
#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

#include "../unit/json_reader.hpp"
#include "../unit/string_sink.hpp"
#include "core/json_canonical.hpp"

namespace {

using idem::core::JsonKind;
using idem::core::JsonToken;

void check(bool holds) {
    if (!holds) {
        __builtin_trap();
    }
}

// False where the tape is refused.
bool canonicalize(std::span<const JsonToken> tape, std::string& output) {
    try {
        idem::core::canonicalize(tape, {}, idem::test::append_to_string, &output);
        return true;
    } catch (const std::invalid_argument&) { // a malformed tape or a repeated key
        return false;
    } catch (const std::out_of_range&) { // an exponent too large
        return false;
    }
}

void check_text(std::string_view text) {
    const auto document = idem::test::JsonReader::read(text);
    std::string form;
    if (!document || !canonicalize(document->tape, form)) {
        return;
    }
    const auto again = idem::test::JsonReader::read(form);
    check(again.has_value() && again->tape.size() == document->tape.size());
    std::string form_again;
    check(canonicalize(again->tape, form_again) && form_again == form);
}

// A byte is a token: the low half its kind, the high half the size of its text, which is what follows.
void check_tape(std::string_view bytes) {
    std::vector<JsonToken> tape;
    for (std::size_t at = 0; at < bytes.size(); ++at) {
        const unsigned byte = static_cast<unsigned char>(bytes[at]);
        const std::string_view text = bytes.substr(at + 1, byte >> 4U);
        tape.push_back({static_cast<JsonKind>((byte & 0xFU) % 10), text.data(), text.size()});
    }
    std::string form;
    canonicalize(tape, form);
}

} // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
    const std::string_view input(reinterpret_cast<const char*>(data), size);
    check_text(input);
    check_tape(input);
    return 0;
}
