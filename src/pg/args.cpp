#include <algorithm>
#include <cstring>

#include "core/unicode.hpp"
#include "pg/args.hpp"

#include "pg/account.hpp"
#include "pg/compat.hpp"
#include "pg/json.hpp"

extern "C" {
#include "mb/pg_wchar.h"
}

namespace idem::pg {

namespace {

constexpr std::size_t max_fingerprint_bytes = 255;

std::string_view varlena_view(Datum datum) {
    struct varlena* value = PG_DETOAST_DATUM_PACKED(datum);
    return {VARDATA_ANY(value), static_cast<std::size_t>(VARSIZE_ANY_EXHDR(value))};
}

bool is_blank(std::string_view text) {
    const int encoding = GetDatabaseEncoding();
    const bool plain = std::all_of(text.begin(), text.end(), [](char c) { return static_cast<signed char>(c) >= 0; });
    if (encoding != PG_UTF8 && encoding != PG_SQL_ASCII && !plain) {
        return core::is_blank_utf8(
            pg_server_to_any(pnstrdup(text.data(), text.size()), static_cast<int>(text.size()), PG_UTF8));
    }
    return core::is_blank_utf8(text); // in SQL_ASCII nobody knows what other bytes mean
}

[[noreturn]] void raise_bad_interval(const char* name, const char* what) {
    ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must %s", name, what)));
    pg_unreachable();
}

} // namespace

std::optional<std::string_view> text_arg(FunctionCallInfo fcinfo, int n) {
    if (PG_ARGISNULL(n)) {
        return std::nullopt;
    }
    return varlena_view(PG_GETARG_DATUM(n));
}

std::optional<std::string_view> bytes_arg(FunctionCallInfo fcinfo, int n) {
    return text_arg(fcinfo, n);
}

std::optional<core::Token> uuid_arg(FunctionCallInfo fcinfo, int n) {
    if (PG_ARGISNULL(n)) {
        return std::nullopt;
    }
    core::Token token;
    std::memcpy(token.data(), PG_GETARG_UUID_P(n)->data, token.size());
    return token;
}

Jsonb* jsonb_arg(FunctionCallInfo fcinfo, int n) {
    return PG_ARGISNULL(n) ? nullptr : PG_GETARG_JSONB_P(n);
}

std::optional<core::Time> time_arg(FunctionCallInfo fcinfo, int n) {
    if (PG_ARGISNULL(n)) {
        return std::nullopt;
    }
    return PG_GETARG_TIMESTAMPTZ(n);
}

core::Duration duration_of(const Interval* interval) {
    const int64 days = static_cast<int64>(interval->month) * 30 + interval->day;
    int64 sum = 0;
    if (pg_mul_s64_overflow(days, USECS_PER_DAY, &sum) || pg_add_s64_overflow(sum, interval->time, &sum)) {
        return days < 0 ? PG_INT64_MIN : core::end_of_time;
    }
    return sum;
}

Interval* interval_of(core::Duration duration) {
    auto* interval = static_cast<Interval*>(palloc0(sizeof(Interval)));
    interval->time = duration;
    return interval;
}

std::optional<core::Duration> duration_arg(FunctionCallInfo fcinfo, int n, const char* name, bool zero_allowed) {
    if (PG_ARGISNULL(n)) {
        return std::nullopt;
    }
    const Interval* interval = PG_GETARG_INTERVAL_P(n);
    if (compat::is_infinite(interval)) {
        raise_bad_interval(name, "be finite");
    }
    const core::Duration duration = duration_of(interval);
    if (duration < 0 || (duration == 0 && !zero_allowed)) {
        raise_bad_interval(name, zero_allowed ? "not be negative" : "be greater than zero");
    }
    return duration;
}

std::string_view identity_part(std::optional<std::string_view> part, const char* name, std::size_t limit) {
    if (!part) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be NULL", name)));
    }
    if (part->size() > limit) {
        ereport(ERROR,
                (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION), errmsg("%s is longer than %zu bytes", name, limit)));
    }
    if (is_blank(*part)) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must not be empty or blank", name)));
    }
    return *part;
}

core::Identity any_identity_args(FunctionCallInfo fcinfo) {
    core::Identity identity;
    identity.account = identity_part(text_arg(fcinfo, 0), "account", core::max_account_bytes);
    identity.action = identity_part(text_arg(fcinfo, 1), "action", core::max_action_bytes);
    identity.key = identity_part(text_arg(fcinfo, 2), "key", core::max_key_bytes);
    return identity;
}

core::Identity identity_args(FunctionCallInfo fcinfo) {
    const core::Identity identity = any_identity_args(fcinfo);
    check_account(identity.account);
    return identity;
}

core::Token token_arg(FunctionCallInfo fcinfo, int n) {
    const std::optional<core::Token> token = uuid_arg(fcinfo, n);
    if (!token) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("token must not be NULL")));
    }
    return *token;
}

core::Fingerprint checked_fingerprint(std::optional<std::string_view> given) {
    if (given && given->empty()) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("fingerprint must not be empty")));
    }
    if (given && given->size() > max_fingerprint_bytes) {
        ereport(ERROR, (errcode(ERRCODE_STRING_DATA_RIGHT_TRUNCATION),
                        errmsg("fingerprint is longer than %zu bytes", max_fingerprint_bytes)));
    }
    return given;
}

core::Fingerprint request_fingerprint(FunctionCallInfo fcinfo, int request) {
    Jsonb* json = jsonb_arg(fcinfo, request);
    if (json == nullptr) {
        return std::nullopt;
    }
    auto* bytes = static_cast<unsigned char*>(palloc(fingerprint_bytes));
    fingerprint_of(json, {}, bytes);
    return std::string_view(reinterpret_cast<const char*>(bytes), fingerprint_bytes);
}

core::Fingerprint fingerprint_args(FunctionCallInfo fcinfo, int request, int fingerprint) {
    const core::Fingerprint given = checked_fingerprint(bytes_arg(fcinfo, fingerprint));
    return given ? given : request_fingerprint(fcinfo, request);
}

void require_writable(const char* function) {
    PreventCommandIfReadOnly(function);
    PreventCommandDuringRecovery(function);
    PreventCommandIfParallelMode(function);
}

} // namespace idem::pg
