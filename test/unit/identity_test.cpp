#include "core/identity.hpp"

#include <cstddef>
#include <cstring>
#include <random>
#include <string>
#include <string_view>
#include <type_traits>

#include <gtest/gtest.h>

namespace idem::core {
namespace {

using namespace std::string_view_literals;

static_assert(std::is_trivially_copyable_v<StoredIdentity>);
static_assert(std::is_trivially_destructible_v<StoredIdentity>);
static_assert(std::is_trivially_copyable_v<IdentityText>);

// As the server counts them in UTF-8.
std::size_t first_characters(std::string_view text) {
    std::size_t characters = 0;
    for (std::size_t i = 0; i < text.size(); i++) {
        const bool continues = (static_cast<unsigned char>(text[i]) & 0xC0U) == 0x80U;
        if (!continues && ++characters > shown_key_characters) {
            return i;
        }
    }
    return text.size();
}

std::string described(const Identity& identity) {
    const IdentityText text = describe(identity, first_characters(identity.key));
    EXPECT_NE(std::memchr(text.text, '\0', sizeof text.text), nullptr) << "no end";
    return text.text;
}

std::string key_of(std::string_view key) {
    const std::string text = described({"a", "b", key});
    const std::string before = R"(Account "a", action "b", key ")";
    EXPECT_EQ(text.substr(0, before.size()), before);
    EXPECT_EQ(text.substr(text.size() - 2), "\".");
    return text.substr(before.size(), text.size() - before.size() - 2);
}

std::string repeated(std::string_view text, std::size_t times) {
    std::string result;
    for (std::size_t i = 0; i < times; i++) {
        result += text;
    }
    return result;
}

TEST(Describe, NamesThePartsInOrder) {
    EXPECT_EQ(described({"acme", "charge", "k-1"}), R"(Account "acme", action "charge", key "k-1".)");
}

TEST(Describe, OrdinaryTextIsLeftAlone) {
    EXPECT_EQ(key_of(R"(a"b\c 'd')"), R"(a"b\c 'd')");
    EXPECT_EQ(key_of("äöü€😀"), "äöü€😀");
    EXPECT_EQ(key_of("%s{}%n"), "%s{}%n");
}

TEST(Describe, ControlCharactersAreEscapedInEveryPart) {
    EXPECT_EQ(described({"a\nb"sv, "\x1b[31m"sv, "\0\x7f\t"sv}),
              R"(Account "a\x0ab", action "\x1b[31m", key "\x00\x7f\x09".)");
}

TEST(Describe, UnicodeControlsAreEscaped) {
    EXPECT_EQ(key_of("a\u009bb"), R"(a\x9bb)");   // C1: an escape sequence's first byte on some terminals
    EXPECT_EQ(key_of("a\u202eb"), R"(a\u202eb)"); // right-to-left override
    EXPECT_EQ(key_of("a\u2028b"), R"(a\u2028b)"); // line separator
    EXPECT_EQ(key_of("a\u2066b"), R"(a\u2066b)"); // isolate
    EXPECT_EQ(key_of("a\u061cb"), R"(a\u061cb)"); // Arabic letter mark
    EXPECT_EQ(key_of("\u00a0\u2010\u2030\u2060"), "\u00a0\u2010\u2030\u2060");
}

TEST(Describe, NoControlCharacterGetsThrough) {
    for (int byte = 0; byte < 256; byte++) {
        const char c = static_cast<char>(byte);
        const std::string text = key_of(std::string_view(&c, 1));
        const bool control = byte < 0x20 || byte == 0x7F;
        EXPECT_EQ(text.size(), control ? 4U : 1U) << byte;
        if (!control) {
            EXPECT_EQ(text[0], c);
        }
    }
}

TEST(Describe, TheKeyIsCutAt64Characters) {
    const std::string whole(64, 'x');
    EXPECT_EQ(key_of(whole), whole);
    EXPECT_EQ(key_of(whole + "y"), whole + "...");
    EXPECT_EQ(key_of(std::string(255, 'x')), whole + "...");
}

TEST(Describe, TheCutCountsCharactersNotBytes) {
    for (const std::string_view character : {"é"sv, "€"sv}) {
        const std::string whole = repeated(character, 64);
        EXPECT_EQ(key_of(whole), whole);
        EXPECT_EQ(key_of(whole + std::string(character)), whole + "...");
        EXPECT_EQ(key_of(whole + "y"), whole + "...");
    }
    EXPECT_EQ(key_of(repeated("😀", 63)), repeated("😀", 63)); // 252 bytes
    EXPECT_EQ(key_of(std::string(63, 'x') + "😀"), std::string(63, 'x') + "😀");
    EXPECT_EQ(key_of(std::string(64, 'x') + "😀"), std::string(64, 'x') + "...");
    EXPECT_EQ(key_of(std::string(63, 'x') + "€y"), std::string(63, 'x') + "€...");
}

TEST(Describe, AnEscapedCharacterCountsOnce) {
    EXPECT_EQ(key_of(std::string(64, '\n')), repeated(R"(\x0a)", 64));
    EXPECT_EQ(key_of(std::string(65, '\n')), repeated(R"(\x0a)", 64) + "...");
}

TEST(Describe, AccountAndActionAreNotCut) {
    const std::string account(max_account_bytes, 'a');
    const std::string action(max_action_bytes, 'b');
    EXPECT_EQ(described({account, action, "k"}), "Account \"" + account + "\", action \"" + action + "\", key \"k\".");
}

TEST(Describe, TheLongestInputsFit) {
    for (const char filler : {'x', '\x01', '\x7f', '\x80', '\xbf', '\xff'}) {
        const std::string account(max_account_bytes, filler);
        const std::string action(max_action_bytes, filler);
        const std::string key(max_key_bytes, filler);
        EXPECT_LT(described({account, action, key}).size(), sizeof(IdentityText));
    }
    // As long as it can get: every byte is escaped, and none is cut.
    const std::string key(max_key_bytes, '\x01');
    const std::string account(max_account_bytes, '\x01');
    const std::string action(max_action_bytes, '\x01');
    EXPECT_LT(std::strlen(describe({account, action, key}, key.size()).text), sizeof(IdentityText));
}

TEST(StoredIdentity, GivesBackWhatItWasGiven) {
    const StoredIdentity stored({"acme", "charge", "k-1"});
    EXPECT_EQ(stored.get(), (Identity{"acme", "charge", "k-1"}));
    const StoredIdentity copy = stored;
    EXPECT_EQ(copy.get(), stored.get());
    EXPECT_NE(copy.get().key.data(), stored.get().key.data());
}

TEST(StoredIdentity, EmptyUntilGivenOne) {
    EXPECT_EQ(StoredIdentity().get(), (Identity{"", "", ""}));
}

TEST(StoredIdentity, KeepsThePartsApart) {
    EXPECT_NE(StoredIdentity({"ab", "c", "d"}).get(), StoredIdentity({"a", "bc", "d"}).get());
    EXPECT_NE(StoredIdentity({"a", "bc", "d"}).get(), StoredIdentity({"a", "b", "cd"}).get());
}

TEST(StoredIdentity, AnyBytesUpToTheLimits) {
    std::mt19937 random(1); // NOLINT(cert-msc51-cpp): the same cases every time
    auto part = [&](std::size_t most) {
        std::string text(random() % 4 == 0 ? most : random() % (most + 1), '\0');
        for (char& c : text) {
            c = static_cast<char>(random());
        }
        return text;
    };
    for (int round = 0; round < 2000; round++) {
        const std::string account = part(max_account_bytes);
        const std::string action = part(max_action_bytes);
        const std::string key = part(max_key_bytes);
        const Identity identity{account, action, key};
        StoredIdentity raw;
        const StoredIdentity stored(identity);
        std::memcpy(&raw, &stored, sizeof raw); // as server memory would hold it
        ASSERT_EQ(raw.get(), identity);
        ASSERT_LT(described(identity).size(), sizeof(IdentityText));
    }
}

} // namespace
} // namespace idem::core
