#include "core/json_pointer.hpp"

#include <string>
#include <string_view>

#include <gtest/gtest.h>

#include "json_reader.hpp"

namespace idem::core {
namespace {

class JsonPointer : public testing::Test {
protected:
    void read(std::string_view text) {
        auto document = test::JsonReader::read(text);
        ASSERT_TRUE(document.has_value());
        document_ = std::move(*document);
    }

    // What the pointer names: its number or string, a bracket, or "nothing".
    std::string found(std::string_view pointer) const {
        const std::size_t at = find_json_pointer(document_.tape, pointer);
        if (at == npos) {
            return "nothing";
        }
        const JsonToken& token = document_.tape[at];
        switch (token.kind) {
        case JsonKind::object_begin:
            return "{";
        case JsonKind::array_begin:
            return "[";
        case JsonKind::number:
        case JsonKind::string:
            return std::string(token.view());
        default:
            return "other";
        }
    }

    test::JsonDocument document_;
};

// RFC 6901, section 5.
TEST_F(JsonPointer, Rfc6901Examples) {
    read(R"({"foo": ["bar", "baz"], "": 0, "a/b": 1, "c%d": 2, "e^f": 3, "g|h": 4, "i\\j": 5, "k\"l": 6,
             " ": 7, "m~n": 8})");
    EXPECT_EQ(find_json_pointer(document_.tape, ""), 0U);
    EXPECT_EQ(found("/foo"), "[");
    EXPECT_EQ(found("/foo/0"), "bar");
    EXPECT_EQ(found("/foo/1"), "baz");
    EXPECT_EQ(found("/"), "0");
    EXPECT_EQ(found("/a~1b"), "1");
    EXPECT_EQ(found("/c%d"), "2");
    EXPECT_EQ(found("/e^f"), "3");
    EXPECT_EQ(found("/g|h"), "4");
    EXPECT_EQ(found("/i\\j"), "5");
    EXPECT_EQ(found("/k\"l"), "6");
    EXPECT_EQ(found("/ "), "7");
    EXPECT_EQ(found("/m~0n"), "8");
}

TEST_F(JsonPointer, NamesNothing) {
    read(R"({"foo": ["bar", "baz"], "n": 1, "~1": 2, "m": {"x": 3}})");
    for (const std::string_view pointer : {"/fo",
                                           "/fooo",
                                           "/foo/2",
                                           "/foo/-",
                                           "/foo/00",
                                           "/foo/01",
                                           "/foo/+1",
                                           "/foo/-1",
                                           "/foo/ 1",
                                           "/foo/1 ",
                                           "/foo/",
                                           "/foo/1e0",
                                           "/foo/99999999999999999999999",
                                           "/foo/18446744073709551615",
                                           "/foo/0/0",
                                           "/n/0",
                                           "/n/",
                                           "/x",
                                           "//",
                                           "/m/x/",
                                           "foo",
                                           "/~",
                                           "/foo~",
                                           "/~2",
                                           "/m/"}) {
        EXPECT_EQ(found(pointer), "nothing") << pointer;
    }
    EXPECT_EQ(found("/~01"), "2"); // first ~1, then ~0, would give "/"
    EXPECT_EQ(found("/~1"), "nothing");
}

TEST_F(JsonPointer, SkipsNestedValues) {
    read(R"([{"a": [1, {"b": []}], "c": {}}, [], {}, [[[2]]], {"a": {"c": 3}, "c": {"a": 4}}])");
    EXPECT_EQ(found("/0/a/0"), "1");
    EXPECT_EQ(found("/0/a/1/b"), "[");
    EXPECT_EQ(found("/0/c"), "{");
    EXPECT_EQ(found("/3/0/0/0"), "2");
    EXPECT_EQ(found("/4/a/c"), "3");
    EXPECT_EQ(found("/4/c/a"), "4");
    EXPECT_EQ(found("/1/0"), "nothing");
    EXPECT_EQ(found("/5"), "nothing");
}

TEST_F(JsonPointer, MemberNamesThatLookLikeIndices) {
    read(R"({"0": 1, "01": 2, "-": 3})");
    EXPECT_EQ(found("/0"), "1");
    EXPECT_EQ(found("/01"), "2");
    EXPECT_EQ(found("/-"), "3");
}

TEST_F(JsonPointer, ScalarDocument) {
    read("5");
    EXPECT_EQ(found(""), "5");
    EXPECT_EQ(found("/"), "nothing");
    EXPECT_EQ(find_json_pointer({}, ""), npos);
}

TEST_F(JsonPointer, Deep) {
    constexpr std::size_t depth = 200'000;
    const std::string text = std::string(depth, '[') + "7" + std::string(depth, ']');
    read(text);
    std::string pointer;
    for (std::size_t level = 0; level < depth; ++level) {
        pointer += "/0";
    }
    EXPECT_EQ(found(pointer), "7");
    EXPECT_EQ(found("/1"), "nothing");
    EXPECT_EQ(found(pointer + "/0"), "nothing");
}

TEST_F(JsonPointer, Syntax) {
    for (const std::string_view pointer : {"", "/", "//", "/a", "/a/b", "/~0", "/~1", "/~01", "/a~0b~1c/", "/-"}) {
        EXPECT_TRUE(is_json_pointer(pointer)) << pointer;
    }
    for (const std::string_view pointer : {"a", " ", " /a", "#/a", "/~", "/a~", "/~2", "/~a", "/~/", "/a/~~0"}) {
        EXPECT_FALSE(is_json_pointer(pointer)) << pointer;
    }
}

} // namespace
} // namespace idem::core
