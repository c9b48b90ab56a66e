#include "core/json_canonical.hpp"

#include <algorithm>
#include <cstddef>
#include <random>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "json_reader.hpp"
#include "string_sink.hpp"

namespace idem::core {
namespace {

std::string canonical(std::span<const JsonToken> tape, std::span<const std::string_view> ignore = {}) {
    std::string output;
    canonicalize(tape, ignore, test::append_to_string, &output);
    return output;
}

std::string canonical(std::string_view text, const std::vector<std::string_view>& ignore = {}) {
    const auto document = test::JsonReader::read(text);
    if (!document) {
        ADD_FAILURE() << "not JSON: " << text.substr(0, 200);
        return {};
    }
    return canonical(document->tape, ignore);
}

TEST(JsonCanonical, Rfc8785Section322) {
    // RFC 8785 rounds 333333333.33333329, which no double holds, to 333333333.3333333. We keep it, on
    // purpose: amounts that differ must not become equal.
    EXPECT_EQ(canonical(R"({
        "numbers": [333333333.33333329, 1E30, 4.50, 2e-3, 0.000000000000000000000000001],
        "string": "\u20ac$\u000F\u000aA'\u0042\u0022\u005c\\\"\/",
        "literals": [null, true, false]
    })"),
              R"({"literals":[null,true,false],"numbers":[333333333.33333329,1e+30,4.5,0.002,1e-27],)"
              R"("string":"€$\u000f\nA'B\"\\\\\"/"})");
}

TEST(JsonCanonical, Rfc8785Section323) {
    EXPECT_EQ(canonical(R"({
        "\u20ac": "Euro Sign",
        "\r": "Carriage Return",
        "\ufb33": "Hebrew Letter Dalet With Dagesh",
        "1": "One",
        "\ud83d\ude00": "Emoji: Grinning Face",
        "\u0080": "Control",
        "\u00f6": "Latin Small Letter O With Diaeresis"
    })"),
              "{\"\\r\":\"Carriage Return\",\"1\":\"One\",\"\u0080\":\"Control\","
              "\"\u00f6\":\"Latin Small Letter O With Diaeresis\",\"\u20ac\":\"Euro Sign\","
              "\"\U0001F600\":\"Emoji: Grinning Face\",\"\ufb33\":\"Hebrew Letter Dalet With Dagesh\"}");
}

TEST(JsonCanonical, Scalars) {
    EXPECT_EQ(canonical(" null "), "null");
    EXPECT_EQ(canonical("true"), "true");
    EXPECT_EQ(canonical("false"), "false");
    EXPECT_EQ(canonical("-0.0"), "0");
    EXPECT_EQ(canonical("\"\""), "\"\"");
    EXPECT_EQ(canonical("{}"), "{}");
    EXPECT_EQ(canonical("[ ]"), "[]");
}

TEST(JsonCanonical, Escapes) {
    std::string expected = "\"";
    std::string text = "\"";
    constexpr std::string_view short_forms = "\b\t\n\f\r";
    constexpr std::string_view letters = "btnfr";
    for (int c = 0; c < 0x20; ++c) {
        const char hex[] = {"0123456789abcdef"[c / 16], "0123456789abcdef"[c % 16], 0};
        text += std::string("\\u00") + hex;
        const std::size_t at = short_forms.find(static_cast<char>(c));
        expected += at == std::string_view::npos ? std::string("\\u00") + hex : std::string("\\") + letters[at];
    }
    text += "\\\"\\\\\\/\\u007f\u0085\u2028\U0001F600\\ud83d\\ude00\"";
    expected += "\\\"\\\\/\x7f\u0085\u2028\U0001F600\U0001F600\"";
    EXPECT_EQ(canonical(text), expected);
}

TEST(JsonCanonical, NoUnicodeNormalisation) {
    EXPECT_EQ(canonical("\"\u00e9\""), "\"\u00e9\"");
    EXPECT_EQ(canonical("\"e\u0301\""), "\"e\u0301\"");
}

TEST(JsonCanonical, MembersAtEveryLevelAreSorted) {
    EXPECT_EQ(canonical(R"({"b":{"z":[{"y":1,"x":2}],"a":[]},"a":{},"":0,"ab":1})"),
              R"({"":0,"a":{},"ab":1,"b":{"a":[],"z":[{"x":2,"y":1}]}})");
    EXPECT_EQ(canonical("[3,1,2]"), "[3,1,2]");
}

TEST(JsonCanonical, Ignore) {
    const std::string_view text = R"({"id":1,"at":"now","items":[{"n":1,"t":2},{"n":3},4],"a/b":5,"m~n":6})";
    EXPECT_EQ(canonical(text, {"/at", "/a~1b", "/m~0n", "/items"}), R"({"id":1})");
    EXPECT_EQ(canonical(text, {"/items/0/t", "/items/1", "/at", "/a~1b", "/m~0n"}), R"({"id":1,"items":[{"n":1},4]})");
    EXPECT_EQ(canonical(text, {"/items/0", "/items/1", "/items/2"}),
              R"({"a/b":5,"at":"now","id":1,"items":[],"m~n":6})");
    EXPECT_EQ(canonical("{\"a\":1}", {"/a"}), "{}");
    EXPECT_EQ(canonical("[1]", {"/0", "/0"}), "[]");
    EXPECT_EQ(canonical(R"({"a":{"b":1,"c":2}})", {"/a/b", "/a"}), "{}");
}

TEST(JsonCanonical, IgnoreThatNamesNoMemberChangesNothing) {
    const std::string_view text = R"({"a":[1,2],"b":{"c":3}})";
    for (const std::string_view pointer :
         {"", "/", "/x", "/a/2", "/a/-", "/a/01", "/b/c/d", "a", "/~", "/b/", "/a/0/0"}) {
        EXPECT_EQ(canonical(text, {pointer}), text) << pointer;
    }
    EXPECT_EQ(canonical("1", {""}), "1");
}

TEST(JsonCanonical, RefusesATapeThatIsNoValue) {
    using enum JsonKind;
    const std::vector<std::vector<JsonKind>> tapes = {
        {},
        {key},
        {array_end},
        {object_end},
        {array_begin},
        {null, null},
        {array_begin, object_end},
        {object_begin, array_end},
        {array_begin, array_end, array_end},
        {array_begin, array_end, null},
        {array_begin, key, array_end},
        {array_begin, key, null, array_end},
        {object_begin, null, object_end},
        {object_begin, key, object_end},
        {object_begin, key, key, null, object_end},
        {object_begin, key, null, null, object_end},
        {object_begin, key, array_begin, object_end, array_end},
        {object_begin, object_begin, object_end, object_end},
    };
    for (const auto& kinds : tapes) {
        std::vector<JsonToken> tape;
        tape.reserve(kinds.size());
        for (const JsonKind kind : kinds) {
            tape.push_back({kind, nullptr, 0});
        }
        EXPECT_THROW(canonical(tape), std::invalid_argument) << testing::PrintToString(tape.size());
    }
    const std::vector<JsonToken> no_number = {{number, "NaN", 3}};
    EXPECT_THROW(canonical(no_number), std::invalid_argument);
    const std::vector<JsonToken> empty_texts = {
        {object_begin, nullptr, 0}, {key, nullptr, 0}, {string, nullptr, 0}, {object_end, nullptr, 0}};
    EXPECT_EQ(canonical(empty_texts), R"({"":""})");
}

TEST(JsonCanonical, RefusesARepeatedKey) {
    EXPECT_THROW(canonical(R"({"a":1,"a":1})"), std::invalid_argument);
    EXPECT_THROW(canonical(R"([{"b":1,"a":2,"b":3}])"), std::invalid_argument);
    EXPECT_THROW(canonical(R"({"a":1,"\u0061":1})"), std::invalid_argument);
    EXPECT_EQ(canonical(R"({"a":{"a":1}})"), R"({"a":{"a":1}})");
}

TEST(JsonCanonical, DepthOf200000) {
    constexpr std::size_t depth = 200'000;
    std::string mixed;
    std::string ends;
    for (std::size_t level = 0; level < depth; ++level) {
        mixed += level % 2 == 0 ? "{\"k\":" : "[";
        ends += (depth - 1 - level) % 2 == 0 ? "}" : "]";
    }
    const std::string text = mixed + "1" + ends;
    EXPECT_EQ(canonical(text), text);
}

TEST(JsonCanonical, AMillionMembers) {
    constexpr std::size_t count = 1'000'000;
    std::vector<std::string> members;
    members.reserve(count);
    for (std::size_t at = 0; at < count; ++at) {
        members.push_back("\"" + std::to_string(1'000'000 + at) + "\":" + std::to_string(at));
    }
    const auto joined = [&members] {
        std::string text = "{";
        for (const std::string& member : members) {
            text += (text.size() > 1 ? "," : "") + member;
        }
        return text + "}";
    };
    const std::string expected = joined();
    std::mt19937 random(1);
    std::shuffle(members.begin(), members.end(), random);
    EXPECT_TRUE(canonical(joined()) == expected); // not EQ, which would print 16 MB
}

TEST(JsonCanonical, LongStringsPassThroughTheBuffer) {
    for (const std::size_t size : {4093U, 4094U, 4095U, 4096U, 4097U, 8192U, 1'000'000U}) {
        const std::string text = "[\"" + std::string(size, 'x') + "\",\"\\n" + std::string(size, 'y') + "\"]";
        EXPECT_TRUE(canonical(text) == text) << size;
    }
}

// A random value that can be spelled in many ways.
struct Value {
    enum class Kind { literal, number, string, array, object };
    Kind kind = Kind::literal;
    std::string text;          // literal; digits of a number, neither end a zero; a string, a letter a byte
    int exponent = 0;          // number: text x 10^exponent
    std::vector<Value> values; // elements, or values of members
    std::vector<std::string> keys;
};

using Random = std::mt19937_64;

std::string random_string(Random& random) {
    constexpr std::string_view letters = "aAzZ019 \"\\/\n\t\x01~";
    std::string text;
    for (auto size = random() % 6; size > 0; --size) {
        text += letters[random() % letters.size()];
    }
    return text;
}

Value random_value(Random& random, int depth) {
    Value value;
    value.kind = static_cast<Value::Kind>(random() % (depth > 0 ? 5 : 3));
    switch (value.kind) {
    case Value::Kind::literal:
        value.text = std::vector<std::string>{"null", "true", "false"}[random() % 3];
        break;
    case Value::Kind::number:
        value.text = std::to_string(random() % 1000) + std::to_string(random() % 10'000 * 10 + 1);
        value.text.erase(0, value.text.find_first_not_of('0'));
        value.exponent = static_cast<int>(random() % 50) - 25;
        break;
    case Value::Kind::string:
        value.text = random_string(random);
        break;
    case Value::Kind::array:
    case Value::Kind::object:
        for (auto size = random() % 5; size > 0; --size) {
            std::string key = random_string(random);
            if (std::find(value.keys.begin(), value.keys.end(), key) == value.keys.end()) {
                value.keys.push_back(std::move(key));
                value.values.push_back(random_value(random, depth - 1));
            }
        }
        break;
    }
    return value;
}

std::string spell_string(const std::string& text, Random& random) {
    std::string spelled = "\"";
    for (const char letter : text) {
        const auto byte = static_cast<unsigned char>(letter);
        if (byte < 0x20 || letter == '"' || letter == '\\' || random() % 4 == 0) {
            const std::string_view digits = random() % 2 == 0 ? "0123456789abcdef" : "0123456789ABCDEF";
            spelled += std::string("\\u00") + digits[byte / 16] + digits[byte % 16];
        } else {
            spelled += letter;
        }
    }
    return spelled + "\"";
}

std::string spell_number(const Value& value, Random& random) {
    // Move the point anywhere, add zeros, and let the exponent make up for it.
    std::string digits = value.text + std::string(random() % 4, '0');
    int exponent = value.exponent - static_cast<int>(digits.size() - value.text.size());
    if (random() % 4 == 0 && exponent > 0) {
        digits += std::string(static_cast<std::size_t>(exponent), '0');
        exponent = 0;
    }
    const std::size_t behind = random() % (digits.size() + 5);
    if (behind > 0) {
        if (behind >= digits.size()) {
            digits.insert(0, behind + 1 - digits.size(), '0');
        }
        digits.insert(digits.size() - behind, ".");
        exponent += static_cast<int>(behind);
    }
    if (exponent == 0 && random() % 2 == 0) {
        return digits;
    }
    const std::string_view marks[] = {"e", "E"};
    const std::string sign = exponent >= 0 && random() % 2 == 0 ? "+" : "";
    return digits + std::string(marks[random() % 2]) + sign + std::to_string(exponent);
}

std::string space(Random& random) {
    const std::string_view spaces[] = {"", "", " ", "\n\t", "\r\n  "};
    return std::string(spaces[random() % std::size(spaces)]);
}

std::string spell(const Value& value, Random& random) {
    switch (value.kind) {
    case Value::Kind::literal:
        return value.text;
    case Value::Kind::number:
        return spell_number(value, random);
    case Value::Kind::string:
        return spell_string(value.text, random);
    default:
        break;
    }
    const bool object = value.kind == Value::Kind::object;
    std::vector<std::string> parts;
    for (std::size_t at = 0; at < value.values.size(); ++at) {
        std::string part = space(random) + spell(value.values[at], random) + space(random);
        if (object) {
            part.insert(0, space(random) + spell_string(value.keys[at], random) + space(random) + ":");
        }
        parts.push_back(std::move(part));
    }
    if (object) {
        std::shuffle(parts.begin(), parts.end(), random);
    }
    std::string text = object ? "{" : "[";
    for (std::size_t at = 0; at < parts.size(); ++at) {
        text += (at > 0 ? "," : "") + parts[at];
    }
    return text + (parts.empty() ? space(random) : "") + (object ? "}" : "]");
}

// Changes the value into another one, in one place.
void change(Value& value, Random& random) {
    if (!value.values.empty() && random() % 3 > 0) {
        const std::size_t at = random() % value.values.size();
        if (value.kind == Value::Kind::object && random() % 3 == 0) {
            value.keys[at] += "longer than any";
        } else {
            change(value.values[at], random);
        }
        return;
    }
    switch (value.kind) {
    case Value::Kind::literal:
        value.text = value.text == "null" ? "true" : "null";
        break;
    case Value::Kind::number:
        if (random() % 2 == 0) {
            value.exponent += 1;
        } else {
            value.text.back() = '2';
        }
        break;
    case Value::Kind::string:
        value.text.insert(random() % (value.text.size() + 1), "x");
        break;
    case Value::Kind::array:
    case Value::Kind::object:
        if (value.values.empty() || random() % 2 == 0) {
            value.keys.push_back("a new one");
            value.values.push_back(Value{.text = "null", .values = {}, .keys = {}});
        } else {
            value.keys.pop_back();
            value.values.pop_back();
        }
        break;
    }
}

TEST(JsonCanonical, SpellingDoesNotMatterAndAnyChangeDoes) {
    Random random(1);
    for (int round = 0; round < 20'000; ++round) {
        Value value = random_value(random, 4);
        const std::string text = spell(value, random);
        const std::string form = canonical(text);
        ASSERT_EQ(canonical(spell(value, random)), form) << text;
        ASSERT_EQ(canonical(form), form) << text;
        change(value, random);
        const std::string changed = spell(value, random);
        ASSERT_NE(canonical(changed), form) << text << "\n" << changed;
    }
}

} // namespace
} // namespace idem::core
