// Effects: what is answered to the owner, and what of a report, over everything that they may be asked; and G11 as a
// property of whole histories.

#include "core/effect.hpp"

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

namespace idem::core {
namespace {

constexpr Time start = 1000 * day;
constexpr std::array<Window, 6> windows{std::nullopt, 1, 10, 5 * minute, hour, day};
constexpr std::array<std::optional<Report>, 4> reports{std::nullopt, Report::confirmed, Report::rejected,
                                                       Report::absent};
constexpr std::array<Fingerprint, 3> prints{std::nullopt, "a", "b"};
constexpr std::array both{false, true};

Window shorter(Window a, Window b) {
    if (!a || !b) {
        return std::nullopt;
    }
    return *a < *b ? a : b;
}

// Around everything that may matter.
std::vector<Time> times_around(Window window) {
    std::vector<Time> times{start - day, start - 1, start, start + 1, end_of_time};
    for (const Time edge : {send_before(start, window), absent_from(start, window)}) {
        times.insert(times.end(), {edge - 1, edge, edge + 1});
    }
    return times;
}

EffectFacts handed_out(Window window, std::optional<Report> report = std::nullopt) {
    return {1, start, window, report, std::nullopt};
}

TEST(Effect, SendBeforeLeavesATenthAtMostAMinute) {
    EXPECT_EQ(send_before(start, 1 * second), start + 900'000);
    EXPECT_EQ(send_before(start, 100 * second), start + 90 * second);
    EXPECT_EQ(send_before(start, 10 * minute), start + 9 * minute);
    EXPECT_EQ(send_before(start, 11 * minute), start + 10 * minute);
    EXPECT_EQ(send_before(start, day), start + day - minute);
    EXPECT_EQ(send_before(start, longest_window), start + longest_window - minute);
    EXPECT_EQ(send_before(start, std::nullopt), start + minute);
    EXPECT_EQ(send_before(end_of_time, day), end_of_time);
}

TEST(Effect, AbsentIsBelievedWhenNothingCanBeUnderWay) {
    EXPECT_EQ(absent_from(start, day), start + day);
    EXPECT_EQ(absent_from(start, std::nullopt), start + 2 * minute);
    for (const Window window : windows) {
        EXPECT_GE(absent_from(start, window), send_before(start, window));
    }
}

// The answer, written from the design.
EffectVerdict expected(const std::optional<EffectFacts>& latest, const EffectRequest& request, Time now) {
    if (!latest) {
        return EffectVerdict::first;
    }
    if (latest->fingerprint != request.fingerprint) {
        return EffectVerdict::mismatch;
    }
    if (latest->report == Report::confirmed) {
        return EffectVerdict::confirmed;
    }
    if (latest->report) {
        return request.again ? EffectVerdict::next_generation : EffectVerdict::rejected;
    }
    const Window window = shorter(latest->window, request.window);
    return window && now < send_before(latest->first_sent_at, window) ? EffectVerdict::call : EffectVerdict::unknown;
}

TEST(Effect, G11_EverySituationIsAnsweredAsTheDesignSays) {
    std::set<EffectVerdict> seen;
    for (const Window stored : windows) {
        for (const Window given : windows) {
            for (const auto& report : reports) {
                for (const Fingerprint& mine : prints) {
                    for (const Fingerprint& other : prints) {
                        for (const bool again : both) {
                            EffectFacts row = handed_out(stored, report);
                            row.fingerprint = mine;
                            const EffectRequest request{other, given, again};
                            for (const Time now : times_around(shorter(stored, given))) {
                                const EffectDecision d = decide_effect(&row, request, now);
                                ASSERT_EQ(d.verdict, expected(row, request, now));
                                if (d.verdict == EffectVerdict::call) {
                                    ASSERT_LT(now, d.send_before);
                                    ASSERT_EQ(d.send_before, send_before(start, shorter(stored, given)));
                                }
                                if (d.verdict == EffectVerdict::next_generation) {
                                    ASSERT_EQ(d.send_before, send_before(now, given));
                                }
                                seen.insert(d.verdict);
                            }
                        }
                    }
                }
            }
        }
    }
    const EffectRequest request{"a", day, false};
    const EffectDecision first = decide_effect(nullptr, request, start);
    EXPECT_EQ(first.verdict, EffectVerdict::first);
    EXPECT_EQ(first.send_before, send_before(start, day));
    seen.insert(first.verdict);
    EXPECT_EQ(seen.size(), 7U);
}

TEST(Effect, TheStateIsWhatTheSameCallWouldBeAnswered) {
    for (const Window window : windows) {
        for (const auto& report : reports) {
            const EffectFacts row = handed_out(window, report);
            for (const Time now : times_around(window)) {
                const EffectVerdict verdict = decide_effect(&row, {std::nullopt, window, false}, now).verdict;
                const EffectState state = state_of(row, now);
                EXPECT_EQ(verdict == EffectVerdict::call, state == EffectState::call);
                EXPECT_EQ(verdict == EffectVerdict::unknown, state == EffectState::unknown);
                EXPECT_EQ(verdict == EffectVerdict::confirmed, state == EffectState::confirmed);
                EXPECT_EQ(verdict == EffectVerdict::rejected, state == EffectState::rejected);
                if (state == EffectState::unknown && now >= start) {
                    EXPECT_GE(now, unknown_from(row));
                }
            }
        }
    }
}

TEST(Effect, G11_WithoutAWindowItIsHandedOutOnceWhateverTheClockDoes) {
    const EffectFacts row = handed_out(std::nullopt);
    for (const Time now : {start_of_time, start - 1, start, start + 1, start + day, end_of_time}) {
        EXPECT_EQ(decide_effect(&row, {std::nullopt, day, true}, now).verdict, EffectVerdict::unknown);
    }
}

TEST(Report, EverySituationIsJudgedAsTheDesignSays) {
    for (const Window window : windows) {
        for (const auto& before : reports) {
            for (const Report said : {Report::confirmed, Report::rejected, Report::absent}) {
                for (const Time now : times_around(window)) {
                    const EffectFacts row = handed_out(window, before);
                    const ReportVerdict latest = judge_report(row, true, said, now);
                    const ReportVerdict earlier = judge_report(row, false, said, now);
                    if (!before) {
                        const bool early = said == Report::absent && now < absent_from(start, window);
                        EXPECT_EQ(latest, early ? ReportVerdict::too_early : ReportVerdict::record);
                        EXPECT_EQ(earlier, ReportVerdict::contradiction);
                    } else {
                        const bool same = (*before == Report::confirmed) == (said == Report::confirmed);
                        EXPECT_EQ(latest, same ? ReportVerdict::already_so : ReportVerdict::contradiction);
                        EXPECT_EQ(earlier, latest);
                    }
                }
            }
        }
    }
}

std::string hex(const unsigned char* bytes, std::size_t size) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (std::size_t i = 0; i < size; i++) {
        text += digits[bytes[i] >> 4U];
        text += digits[bytes[i] & 0xFU];
    }
    return text;
}

// Computed with hashlib and struct of Python: the domain, then each text behind its length ('>I'), then the generation.
constexpr Identity order{"shop", "charge", "order 1"};
TEST(DownstreamKey, StaysTheSameForEver) {
    const EffectName name = effect_name(order, "card", 1);
    EXPECT_EQ(hex(name.bytes, name.size), "70675f6964656d206566666563742076310000000473686f7000000006636861726765000000"
                                          "076f726465722031000000046361726400000001");
    constexpr std::array<std::uint8_t, 32> sha256{0x5a, 0x8f, 0xd0, 0xe4, 0x1c, 0x93, 0xf4, 0xca, 0x40, 0xc1, 0xe3,
                                                  0x7d, 0xc1, 0x6e, 0x53, 0x4e, 0x90, 0xba, 0xed, 0x1f, 0x2c, 0xf0,
                                                  0xab, 0x13, 0x9b, 0x05, 0x31, 0x98, 0x6c, 0xea, 0xa0, 0x73};
    const std::array<std::uint8_t, 16> key = downstream_key(sha256);
    EXPECT_EQ(hex(key.data(), key.size()), "5a8fd0e41c9384ca80c1e37dc16e534e");
    EXPECT_EQ(key[6] >> 4U, 8) << "version 8 of RFC 9562";
    EXPECT_EQ(key[8] >> 6U, 2) << "its variant";
}

TEST(DownstreamKey, NoTwoEffectsShareAName) {
    std::set<std::string> names;
    std::size_t made = 0;
    const std::array<std::string_view, 4> parts{"a", "b", "ab", std::string_view("a\0b", 3)};
    for (const std::string_view account : parts) {
        for (const std::string_view action : parts) {
            for (const std::string_view key : parts) {
                for (const std::string_view name : parts) {
                    for (const std::int32_t generation : {1, 2, 256}) {
                        const EffectName n = effect_name({account, action, key}, name, generation);
                        names.insert(hex(n.bytes, n.size));
                        made++;
                    }
                }
            }
        }
    }
    EXPECT_EQ(names.size(), made);
}

TEST(DownstreamKey, TheLongestNameFits) {
    const std::string a(max_account_bytes, 'a');
    const std::string b(max_action_bytes, 'b');
    const std::string c(max_key_bytes, 'c');
    const std::string d(max_effect_name_bytes, 'd');
    const EffectName name = effect_name({a, b, c}, d, 2'147'483'647);
    EXPECT_EQ(name.size, 17 + 4 * 4 + a.size() + b.size() + c.size() + d.size() + 4);
}

// ---- G11: whole histories. A provider honours a key for its window from the first request that reaches it, and
// charges again after that. Requests are sent before send_before, and are under way for no longer than the margin.

struct Provider {
    Duration window;
    std::optional<std::int32_t> key;
    Time first_seen = 0;
    int charges = 0;

    void receive(std::int32_t generation, Time now, bool declines) {
        if (key == generation && now < first_seen + window) {
            return; // the recorded answer again
        }
        key = generation;
        first_seen = now;
        charges += declines ? 0 : 1;
    }
};

TEST(Effect, G11_NoHistoryChargesTwice) {
    std::mt19937 random(20300101);
    auto up_to = [&random](std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(0, most)(random); };
    for (int history = 0; history < 20'000; history++) {
        const Duration window = up_to(20 * minute) + 10;
        Provider provider{window};
        std::optional<EffectFacts> latest;
        Time now = start;
        std::vector<bool> declined{false};
        for (int step = 0; step < 30; step++) {
            now += up_to(window / 4);
            if (up_to(3) > 0) { // an owner, whichever it is: the row is all that they share
                const EffectDecision d =
                    decide_effect(latest ? &*latest : nullptr, {std::nullopt, window, up_to(1) == 0}, now);
                if (d.verdict == EffectVerdict::first || d.verdict == EffectVerdict::next_generation) {
                    latest = EffectFacts{latest ? latest->generation + 1 : 1, now, window, std::nullopt, std::nullopt};
                    declined.push_back(up_to(3) == 0);
                } else if (d.verdict != EffectVerdict::call) {
                    continue;
                }
                const Time sent = now + up_to(d.send_before - now - 1);
                if (up_to(2) > 0 && sent < d.send_before) { // else it died before
                    const Duration margin = start + window - send_before(start, window);
                    now = sent + up_to(margin);
                    provider.receive(latest->generation, now, declined.back());
                }
            } else if (latest && !latest->report) { // a job that asks
                const bool known = provider.key == latest->generation;
                const Report said = !known ? Report::absent : declined.back() ? Report::rejected : Report::confirmed;
                if (judge_report(*latest, true, said, now) == ReportVerdict::record) {
                    latest->report = said;
                }
            }
            ASSERT_LE(provider.charges, 1);
        }
    }
}

} // namespace
} // namespace idem::core
