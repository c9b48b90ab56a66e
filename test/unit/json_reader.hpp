#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "core/json.hpp"

namespace idem::test {

// A JSON value and the memory its strings are in. Keys and strings point into `strings`, numbers into the
// text that was read.
struct JsonDocument {
    std::unique_ptr<char[]> strings;
    std::vector<core::JsonToken> tape;
};

// Reads JSON text by the letter of RFC 8259, for tests and fuzzers: one value, no extensions, valid UTF-8
// only, no lone surrogates. Repeated keys pass. Any depth: no recursion.
class JsonReader {
public:
    static std::optional<JsonDocument> read(std::string_view text) {
        JsonReader reader(text);
        if (!reader.read_document()) {
            return std::nullopt;
        }
        return std::move(reader.document_);
    }

private:
    using Kind = core::JsonKind;

    explicit JsonReader(std::string_view text) : rest_(text) {
        // No escape is shorter than what it stands for, so the text's size is room enough.
        document_.strings = std::make_unique<char[]>(text.size() + 1);
        free_ = document_.strings.get();
    }

    bool read_document() {
        for (;;) {
            // Here a value is due, or after an opening bracket perhaps the closing one.
            skip_space();
            if (may_close_ && take(open_.back() == Kind::object_begin ? '}' : ']')) {
                close();
            } else {
                may_close_ = false;
                if (!read_key() || !read_value()) {
                    return false;
                }
                if (may_close_) {
                    continue;
                }
            }
            skip_space();
            while (!open_.empty() && !take(',')) {
                if (!take(open_.back() == Kind::object_begin ? '}' : ']')) {
                    return false;
                }
                close();
                skip_space();
            }
            if (open_.empty()) {
                return rest_.empty();
            }
        }
    }

    void close() {
        push(open_.back() == Kind::object_begin ? Kind::object_end : Kind::array_end);
        open_.pop_back();
        may_close_ = false;
    }

    bool read_key() {
        if (open_.empty() || open_.back() != Kind::object_begin) {
            return true;
        }
        if (!read_string(Kind::key)) {
            return false;
        }
        skip_space();
        const bool colon = take(':');
        skip_space();
        return colon;
    }

    bool read_value() {
        if (rest_.empty()) {
            return false;
        }
        switch (rest_.front()) {
        case '{':
            return read_open(Kind::object_begin);
        case '[':
            return read_open(Kind::array_begin);
        case '"':
            return read_string(Kind::string);
        case 'n':
            return read_literal("null", Kind::null);
        case 't':
            return read_literal("true", Kind::boolean_true);
        case 'f':
            return read_literal("false", Kind::boolean_false);
        default:
            return read_number();
        }
    }

    bool read_open(Kind kind) {
        rest_.remove_prefix(1);
        push(kind);
        open_.push_back(kind);
        may_close_ = true;
        return true;
    }

    bool read_literal(std::string_view word, Kind kind) {
        if (!rest_.starts_with(word)) {
            return false;
        }
        rest_.remove_prefix(word.size());
        push(kind);
        return true;
    }

    bool read_number() {
        const std::string_view start = rest_;
        take('-');
        if (!take('0') && !take_digits()) {
            return false;
        }
        if (take('.') && !take_digits()) {
            return false;
        }
        if (take('e') || take('E')) {
            if (!take('-')) {
                take('+');
            }
            if (!take_digits()) {
                return false;
            }
        }
        push(Kind::number, start.substr(0, start.size() - rest_.size()));
        return true;
    }

    bool read_string(Kind kind) {
        if (!take('"')) {
            return false;
        }
        char* const start = free_;
        while (!take('"')) {
            if (rest_.empty() || static_cast<unsigned char>(rest_.front()) < 0x20) {
                return false;
            }
            if (!(take('\\') ? read_escape() : read_plain())) {
                return false;
            }
        }
        push(kind, std::string_view(start, static_cast<std::size_t>(free_ - start)));
        return true;
    }

    bool read_escape() {
        constexpr std::string_view names = "\"\\/bfnrt";
        constexpr std::string_view meanings = "\"\\/\b\f\n\r\t";
        if (rest_.empty()) {
            return false;
        }
        const char name = rest_.front();
        rest_.remove_prefix(1);
        if (const std::size_t at = names.find(name); at != std::string_view::npos) {
            *free_++ = meanings[at];
            return true;
        }
        unsigned unit = 0;
        if (name != 'u' || !read_hex(unit) || is_low_surrogate(unit)) {
            return false;
        }
        if (unit < 0xD800 || unit > 0xDBFF) {
            put_utf8(unit);
            return true;
        }
        unsigned low = 0;
        if (!take('\\') || !take('u') || !read_hex(low) || !is_low_surrogate(low)) {
            return false;
        }
        put_utf8(0x10000 + ((unit - 0xD800) << 10) + (low - 0xDC00));
        return true;
    }

    bool read_hex(unsigned& unit) {
        if (rest_.size() < 4) {
            return false;
        }
        unit = 0;
        for (const char digit : rest_.substr(0, 4)) {
            unsigned value = 0;
            if (digit >= '0' && digit <= '9') {
                value = static_cast<unsigned>(digit - '0');
            } else if (digit >= 'a' && digit <= 'f') {
                value = static_cast<unsigned>(digit - 'a') + 10;
            } else if (digit >= 'A' && digit <= 'F') {
                value = static_cast<unsigned>(digit - 'A') + 10;
            } else {
                return false;
            }
            unit = unit << 4 | value;
        }
        rest_.remove_prefix(4);
        return true;
    }

    // Copies one code point as it stands, if it is well-formed UTF-8 (Unicode table 3-7).
    bool read_plain() {
        const auto lead = static_cast<unsigned char>(rest_.front());
        const std::size_t size = lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
        if ((lead >= 0x80 && lead < 0xC2) || lead > 0xF4 || rest_.size() < size) {
            return false;
        }
        for (std::size_t at = 1; at < size; ++at) {
            const auto byte = static_cast<unsigned char>(rest_[at]);
            unsigned low = 0x80;
            unsigned high = 0xBF;
            if (at == 1) {
                low = lead == 0xE0 ? 0xA0 : lead == 0xF0 ? 0x90 : low;
                high = lead == 0xED ? 0x9F : lead == 0xF4 ? 0x8F : high;
            }
            if (byte < low || byte > high) {
                return false;
            }
        }
        free_ += rest_.copy(free_, size);
        rest_.remove_prefix(size);
        return true;
    }

    void put_utf8(unsigned code_point) {
        const auto put = [this](unsigned byte) { *free_++ = static_cast<char>(byte); };
        const auto continuation = [code_point](unsigned shift) { return 0x80U | ((code_point >> shift) & 0x3FU); };
        if (code_point < 0x80) {
            put(code_point);
        } else if (code_point < 0x800) {
            put(0xC0U | code_point >> 6);
            put(continuation(0));
        } else if (code_point < 0x10000) {
            put(0xE0U | code_point >> 12);
            put(continuation(6));
            put(continuation(0));
        } else {
            put(0xF0U | code_point >> 18);
            put(continuation(12));
            put(continuation(6));
            put(continuation(0));
        }
    }

    static bool is_low_surrogate(unsigned unit) { return unit >= 0xDC00 && unit <= 0xDFFF; }

    bool take(char wanted) {
        const bool found = !rest_.empty() && rest_.front() == wanted;
        rest_.remove_prefix(found ? 1 : 0);
        return found;
    }

    bool take_digits() {
        const std::size_t before = rest_.size();
        while (!rest_.empty() && rest_.front() >= '0' && rest_.front() <= '9') {
            rest_.remove_prefix(1);
        }
        return rest_.size() < before;
    }

    void skip_space() {
        while (take(' ') || take('\t') || take('\n') || take('\r')) {
        }
    }

    void push(Kind kind, std::string_view text = {}) { document_.tape.push_back({kind, text.data(), text.size()}); }

    std::string_view rest_;
    char* free_ = nullptr;
    JsonDocument document_;
    std::vector<Kind> open_;
    bool may_close_ = false; // just after an opening bracket
};

} // namespace idem::test
