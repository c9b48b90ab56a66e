// Effects: idem_effect, which hands one out, and idem_effect_report, which says what became of it.
#pragma once

#include <optional>
#include <string_view>

#include "core/effect.hpp"
#include "core/identity.hpp"
#include "pg/pg.hpp"
#include "store/settled.hpp"

namespace idem::protocol {

struct EffectCall {
    core::Identity identity;
    core::Token token;
    std::string_view name;
    core::EffectRequest request;
    Jsonb* request_json = nullptr;
};

struct EffectAnswer {
    core::EffectState state;
    Datum downstream_key;
    store::Nullable response;
    core::Time first_sent_at;
    std::optional<core::Time> send_before; // of call
};

// An owner call. What is to be called is committed with the transaction, and may be called only then. Raises IDM02,
// IDM04, IDM09, IDM10.
EffectAnswer effect(const EffectCall& call);

// Raises 22023: an effect needs a leased claim.
[[noreturn]] void raise_no_token(const core::Identity& identity);

struct ReportCall {
    Datum downstream_key;
    core::Report said;
    store::Nullable response;
};

// True: it is on record. False: the key is not known (any more), or `absent` came too early. Raises IDM04, IDM06.
bool report_effect(const ReportCall& call);

} // namespace idem::protocol
