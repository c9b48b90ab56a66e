#include "core/json_canonical.hpp"

#include <algorithm>
#include <array>
#include <cstddef>
#include <memory_resource>
#include <stdexcept>
#include <vector>

#include "core/decimal.hpp"
#include "core/json_pointer.hpp"
#include "core/unicode.hpp"

namespace idem::core {
namespace {

using Tape = std::span<const JsonToken>;
using Indices = std::pmr::vector<std::size_t>; // of tokens

bool is_begin(JsonKind kind) noexcept {
    return kind == JsonKind::array_begin || kind == JsonKind::object_begin;
}

bool is_end(JsonKind kind) noexcept {
    return kind == JsonKind::array_end || kind == JsonKind::object_end;
}

void require(bool well_formed) {
    if (!well_formed) {
        throw std::invalid_argument("not one well-formed JSON value");
    }
}

// For each token that begins a value, the index past the end of that value. Checks that the tape is well
// formed, on which all that follows relies.
Indices find_ends(Tape tape, std::pmr::memory_resource* memory) {
    Indices ends(tape.size(), memory);
    std::size_t open = npos; // innermost container not yet closed; its entry in `ends` holds the next outer
    bool after_key = false;
    for (std::size_t at = 0; at < tape.size(); ++at) {
        const JsonKind kind = tape[at].kind;
        const bool in_object = open != npos && tape[open].kind == JsonKind::object_begin;
        if (kind == JsonKind::key) {
            require(in_object && !after_key);
            after_key = true;
            continue;
        }
        if (is_end(kind)) {
            require(open != npos && !after_key && in_object == (kind == JsonKind::object_end));
            const std::size_t outer = ends[open];
            ends[open] = at + 1;
            open = outer;
            continue;
        }
        require(in_object ? after_key : open != npos || at == 0);
        after_key = false;
        if (is_begin(kind)) {
            ends[at] = open;
            open = at;
        } else {
            ends[at] = at + 1;
        }
    }
    require(!tape.empty() && open == npos);
    return ends;
}

// The values that `ignore` names, in ascending order.
Indices find_ignored(Tape tape, std::span<const std::string_view> ignore, std::pmr::memory_resource* memory) {
    Indices ignored(memory);
    ignored.reserve(ignore.size());
    for (const std::string_view pointer : ignore) {
        const std::size_t at = find_json_pointer(tape, pointer);
        if (at != npos) {
            ignored.push_back(at);
        }
    }
    std::sort(ignored.begin(), ignored.end());
    return ignored;
}

constexpr std::array<bool, 256> make_escape_table() noexcept {
    std::array<bool, 256> table{};
    std::fill_n(table.begin(), 0x20, true);
    table['"'] = true;
    table['\\'] = true;
    return table;
}

constexpr std::array<bool, 256> must_escape = make_escape_table();

void put_escaped(unsigned char byte, BufferedSink& out) noexcept {
    constexpr std::string_view hex_digits = "0123456789abcdef";
    out.put('\\');
    switch (byte) {
    case '"':
    case '\\':
        out.put(static_cast<char>(byte));
        break;
    case '\b':
        out.put('b');
        break;
    case '\t':
        out.put('t');
        break;
    case '\n':
        out.put('n');
        break;
    case '\f':
        out.put('f');
        break;
    case '\r':
        out.put('r');
        break;
    default:
        out.put("u00");
        out.put(hex_digits[byte >> 4U]);
        out.put(hex_digits[byte & 0xFU]);
    }
}

void put_string(std::string_view text, BufferedSink& out) noexcept {
    out.put('"');
    std::size_t plain = 0; // start of the run that needs no escape
    for (std::size_t at = 0; at < text.size(); ++at) {
        const auto byte = static_cast<unsigned char>(text[at]);
        if (must_escape[byte]) {
            out.put(text.substr(plain, at - plain));
            put_escaped(byte, out);
            plain = at + 1;
        }
    }
    out.put(text.substr(plain));
    out.put('"');
}

// Walks the tape in canonical order. No recursion: what is still to be written waits on a stack, the next on
// top, as the indices of values, keys (each standing for its member) and closing brackets.
class Canonicalizer {
public:
    Canonicalizer(Tape tape, std::span<const std::string_view> ignore, BufferedSink& out,
                  std::pmr::memory_resource* memory)
        : tape_(tape), ends_(find_ends(tape, memory)), ignored_(find_ignored(tape, ignore, memory)), pending_(memory),
          out_(out) {
        pending_.reserve(tape.size()); // no token waits twice
    }

    void run() {
        pending_.push_back(0);
        bool first = true; // in its container, or the document itself
        while (!pending_.empty()) {
            std::size_t at = pending_.back();
            pending_.pop_back();
            if (!first && !is_end(tape_[at].kind)) {
                out_.put(',');
            }
            if (tape_[at].kind == JsonKind::key) {
                put_string(tape_[at].view(), out_);
                out_.put(':');
                ++at;
            }
            put_token(tape_[at]);
            first = is_begin(tape_[at].kind);
            if (first) {
                push_content(at);
            }
        }
    }

private:
    void put_token(const JsonToken& token) {
        switch (token.kind) {
        case JsonKind::null:
            out_.put("null");
            break;
        case JsonKind::boolean_false:
            out_.put("false");
            break;
        case JsonKind::boolean_true:
            out_.put("true");
            break;
        case JsonKind::number:
            write_decimal(token.view(), out_);
            break;
        case JsonKind::string:
        case JsonKind::key:
            put_string(token.view(), out_);
            break;
        case JsonKind::array_begin:
            out_.put('[');
            break;
        case JsonKind::array_end:
            out_.put(']');
            break;
        case JsonKind::object_begin:
            out_.put('{');
            break;
        case JsonKind::object_end:
            out_.put('}');
            break;
        }
    }

    void push_content(std::size_t container) {
        const bool is_object = tape_[container].kind == JsonKind::object_begin;
        const std::size_t closing = ends_[container] - 1;
        pending_.push_back(closing);
        const std::size_t base = pending_.size();
        for (std::size_t at = container + 1; at < closing;) {
            const std::size_t value = is_object ? at + 1 : at;
            if (!is_ignored(value)) {
                pending_.push_back(at);
            }
            at = ends_[value];
        }
        const std::span<std::size_t> content = std::span(pending_).subspan(base);
        if (is_object) {
            sort_members(content);
        }
        std::reverse(content.begin(), content.end());
    }

    void sort_members(std::span<std::size_t> keys) const {
        const auto before = [this](std::size_t a, std::size_t b) noexcept {
            return compare_utf16(tape_[a].view(), tape_[b].view()) < 0;
        };
        const auto not_before = [before](std::size_t a, std::size_t b) noexcept { return !before(a, b); };
        if (std::adjacent_find(keys.begin(), keys.end(), not_before) == keys.end()) {
            return; // in order already
        }
        std::sort(keys.begin(), keys.end(), before);
        if (std::adjacent_find(keys.begin(), keys.end(), not_before) != keys.end()) {
            throw std::invalid_argument("a key occurs twice in a JSON object");
        }
    }

    bool is_ignored(std::size_t value) const noexcept {
        return !ignored_.empty() && std::binary_search(ignored_.begin(), ignored_.end(), value);
    }

    Tape tape_;
    Indices ends_;
    Indices ignored_;
    Indices pending_;
    BufferedSink& out_;
};

} // namespace

void canonicalize(std::span<const JsonToken> tape, std::span<const std::string_view> ignore, ByteSink sink,
                  void* state) {
    std::array<std::byte, 4096> small; // enough for some two hundred tokens
    std::pmr::monotonic_buffer_resource memory(small.data(), small.size());
    BufferedSink out(sink, state);
    Canonicalizer(tape, ignore, out, &memory).run();
    out.flush();
}

} // namespace idem::core
