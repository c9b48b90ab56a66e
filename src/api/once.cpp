// idem_once, idem_once_batch: the consumer's boundary.
#include <algorithm>
#include <cstring>
#include <span>

#include "core/identity.hpp"
#include "pg/entry.hpp"

#include "pg/account.hpp"
#include "pg/args.hpp"
#include "pg/durability.hpp"
#include "pg/errors.hpp"
#include "store/datum.hpp"
#include "store/policies.hpp"
#include "store/seen.hpp"
#include "store/statistics.hpp"

namespace idem::api {

namespace {

using store::Seen;

constexpr int seen_kinds = 4;

void count_seen(std::string_view action, Seen seen, std::uint64_t n) {
    switch (seen) {
    case Seen::first:
        store::count_at_commit(action, store::Counter::once_first, n);
        break;
    case Seen::duplicate:
        store::count(action, store::Counter::once_duplicate, n);
        break;
    case Seen::mismatch:
    case Seen::fingerprint_missing: // of a batch only: alone it raises an error
        store::count(action, store::Counter::mismatches, n);
        break;
    }
}

Datum once(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_once()");
    const core::Identity identity = pg::identity_args(fcinfo);
    const core::Fingerprint fingerprint = pg::fingerprint_args(fcinfo, 3, 4);
    const core::Policy policy = store::policy_for(identity.action);

    store::SeenWriter writer(policy);
    const Seen seen = writer.record(identity, fingerprint);
    writer.finish();
    if (seen != Seen::fingerprint_missing) {
        count_seen(identity.action, seen, 1);
    }
    switch (seen) {
    case Seen::first:
        pg::require_durable_commit();
        PG_RETURN_BOOL(true);
    case Seen::duplicate:
        PG_RETURN_BOOL(false);
    case Seen::mismatch:
        pg::raise_mismatch(identity);
    case Seen::fingerprint_missing:
        pg::raise_fingerprint_required(identity);
    }
    pg_unreachable();
}

struct Message {
    std::string_view key;
    core::Fingerprint fingerprint;
    int position;           // of its first appearance
    bool conflicts = false; // the batch itself has it with different inputs
    const char* verdict = nullptr;
};

struct Batch {
    Message* messages;
    int size;

    std::span<Message> all() const { return {messages, static_cast<std::size_t>(size)}; }
};

struct Elements {
    Datum* values = nullptr;
    bool* nulls = nullptr;
    int size = 0;
};

Elements elements_of(FunctionCallInfo fcinfo, int n, Oid type, const char* name) {
    Elements e;
    ArrayType* array = PG_GETARG_ARRAYTYPE_P(n);
    if (ARR_NDIM(array) > 1) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("%s must be a one-dimensional array", name)));
    }
    deconstruct_array(array, type, -1, false, TYPALIGN_INT, &e.values, &e.nulls, &e.size);
    return e;
}

Batch read_batch(FunctionCallInfo fcinfo) {
    if (PG_ARGISNULL(2)) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("keys must not be NULL")));
    }
    const Elements keys = elements_of(fcinfo, 2, TEXTOID, "keys");
    Elements fingerprints;
    if (!PG_ARGISNULL(3)) {
        fingerprints = elements_of(fcinfo, 3, BYTEAOID, "fingerprints");
        if (fingerprints.size != keys.size) {
            ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE),
                            errmsg("fingerprints must have as many elements as keys")));
        }
    }
    Batch batch{};
    batch.size = keys.size;
    batch.messages = static_cast<Message*>(
        palloc_extended(sizeof(Message) * std::max(keys.size, 1), MCXT_ALLOC_HUGE | MCXT_ALLOC_ZERO));
    for (int i = 0; i < keys.size; i++) {
        Message& m = batch.messages[i];
        m = Message{};
        m.position = i;
        m.key = pg::identity_part(keys.nulls[i] ? std::nullopt
                                                : std::optional<std::string_view>(store::view_of(keys.values[i])),
                                  "key", core::max_key_bytes);
        if (i < fingerprints.size && !fingerprints.nulls[i]) {
            m.fingerprint = pg::checked_fingerprint(store::view_of(fingerprints.values[i]));
        }
    }
    return batch;
}

// By key, so that overlapping batches take the index entries in one order and do not deadlock; then as given.
void sort_by_key(Batch& batch) {
    std::sort(batch.messages, batch.messages + batch.size, [](const Message& a, const Message& b) {
        const int order = a.key.compare(b.key);
        return order != 0 ? order < 0 : a.position < b.position;
    });
}

// Leaves the first appearance of each key.
void merge_duplicates(Batch& batch) {
    int kept = 0;
    for (const Message& m : batch.all()) {
        if (kept > 0 && batch.messages[kept - 1].key == m.key) {
            batch.messages[kept - 1].conflicts |= batch.messages[kept - 1].fingerprint != m.fingerprint;
        } else {
            batch.messages[kept++] = m;
        }
    }
    batch.size = kept;
}

const char* verdict_text(Seen seen) {
    return seen == Seen::first ? "first" : seen == Seen::duplicate ? "duplicate" : "mismatch";
}

Datum once_batch(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_once_batch()");
    core::Identity identity;
    identity.account = pg::identity_part(pg::text_arg(fcinfo, 0), "account", core::max_account_bytes);
    identity.action = pg::identity_part(pg::text_arg(fcinfo, 1), "action", core::max_action_bytes);
    pg::check_account(identity.account);
    Batch batch = read_batch(fcinfo);
    sort_by_key(batch);
    merge_duplicates(batch);

    const core::Policy policy = store::policy_for(identity.action);
    store::SeenWriter writer(policy);
    std::uint64_t number_of[seen_kinds] = {};
    for (Message& m : batch.all()) {
        identity.key = m.key;
        const Seen seen = m.conflicts ? Seen::mismatch : writer.record(identity, m.fingerprint);
        m.verdict = verdict_text(seen);
        number_of[static_cast<int>(seen)]++;
    }
    writer.finish();
    for (int i = 0; i < seen_kinds; i++) {
        count_seen(identity.action, static_cast<Seen>(i), number_of[i]);
    }
    if (number_of[static_cast<int>(Seen::first)] > 0) {
        pg::require_durable_commit();
    }

    std::sort(batch.messages, batch.messages + batch.size,
              [](const Message& a, const Message& b) { return a.position < b.position; });
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    for (const Message& m : batch.all()) {
        Datum values[2] = {store::text_datum(m.key), CStringGetTextDatum(m.verdict)};
        bool nulls[2] = {};
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return Datum{0};
}

PG_IDEM_FUNCTION(once);
PG_IDEM_FUNCTION(once_batch);

} // namespace

} // namespace idem::api
