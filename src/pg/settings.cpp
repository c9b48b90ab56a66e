#include <cstring>

#include "pg/settings.hpp"

#include "pg/account.hpp"
#include "pg/compat.hpp"

extern "C" {
#include "access/parallel.h"
}

namespace idem::pg {

constinit Settings settings;

namespace {

constexpr const char* account_from_name = "pg_idem.account_from";

constexpr config_enum_entry outbox_modes[] = {
    {"table", outbox_table, false}, {"wal", outbox_wal, false}, {nullptr, 0, false}};

constinit bool is_defining = false;

// What was written down before the library was there to refuse it: in the configuration file at the start of the
// server, or for a role or database; or it comes from the leader of this parallel worker.
bool is_given_already(GucSource source) {
    return is_defining || InitializingParallelWorker || (source >= PGC_S_GLOBAL && source <= PGC_S_DATABASE_USER);
}

// Whoever sets a value that is no rule is told. Where it is given already the server would drop it for the default,
// which permits every account: so it is kept, and closes every call.
bool check_account_from(char** value, void**, GucSource source) noexcept {
    if (is_account_rule(*value) || is_given_already(source)) {
        return true;
    }
    GUC_check_errdetail(
        "Valid values are \"argument\", \"role\", \"setting:NAME\" and \"setting:NAME#/json/pointer\".");
    return false;
}

// Where the library is not preloaded, the server keeps whatever was set as a placeholder: a client's start-up option
// stands in front of what the superuser set for the role, the database or the server. It may not open what was meant to
// be closed.
bool is_forged(const char* name) {
    if (process_shared_preload_libraries_in_progress) {
        return false;
    }
    const config_generic* placeholder = compat::find_setting(name);
    return placeholder != nullptr && placeholder->source > PGC_S_DATABASE_USER;
}

// A finite timestamp. Parsing changes nothing that a rollback would have to undo. Where there is no transaction, as
// when the configuration file is read, a wrong value shows at the first call.
bool check_test_now(char** value, void**, GucSource) {
    if (**value == '\0' || !IsTransactionState()) {
        return true;
    }
    MemoryContext context = CurrentMemoryContext;
    volatile bool finite = false;
    PG_TRY();
    {
        const TimestampTz time = DatumGetTimestampTz(DirectFunctionCall3(
            timestamptz_in, CStringGetDatum(*value), ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
        finite = !TIMESTAMP_NOT_FINITE(time);
    }
    PG_CATCH();
    {
        MemoryContextSwitchTo(context);
        FlushErrorState();
    }
    PG_END_TRY();
    return finite;
}

} // namespace

void init_settings() {
    DefineCustomIntVariable("pg_idem.max_claims_per_transaction", "Limits the claims and guards of one transaction.",
                            "Each holds an entry of the lock table, see max_locks_per_transaction.",
                            &settings.max_claims_per_transaction, 1000, 1, 1'000'000, PGC_SUSET, 0, nullptr, nullptr,
                            nullptr);
    DefineCustomBoolVariable("pg_idem.force_sync_commit",
                             "Makes commits of leased claims, checkpoints, settlements and idem_once durable.",
                             "They flush where synchronous_commit is off, and wait for synchronous standbys where "
                             "any are named.",
                             &settings.force_sync_commit, true, PGC_SUSET, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable(
        "pg_idem.idle_claim_timeout", "Ends a session that idles in a transaction holding a claim or guard.",
        "Takes the place of idle_in_transaction_session_timeout where that is 0. 0 turns it off.",
        &settings.idle_claim_timeout, 60'000, 0, PG_INT32_MAX, PGC_USERSET, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    settings.account_from_is_forged = is_forged(account_from_name);
    is_defining = true;
    DefineCustomStringVariable(
        account_from_name, "Says what the account of a call must be.",
        "argument: whatever is given; role: a role of the calling user; setting:NAME: the "
        "value of that setting. Where the library is not preloaded, a client that sets it is refused.",
        &settings.account_from, "argument", PGC_SUSET, 0, check_account_from, nullptr, nullptr);
    is_defining = false;
    DefineCustomBoolVariable("pg_idem.worker", "Runs background workers that recover and forget operations.",
                             "They need shared_preload_libraries.", &settings.worker, true, PGC_SIGHUP, 0, nullptr,
                             nullptr, nullptr);
    DefineCustomIntVariable("pg_idem.naptime", "Time between two passes of the workers over a database, at least.",
                            "At most twelve of them where nothing is known to be due.", &settings.naptime, 5'000, 10,
                            PG_INT32_MAX / 12, PGC_SIGHUP, GUC_UNIT_MS, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("pg_idem.batch_size", "Rows of each task in one call of idem_maintain or idem_erase.",
                            nullptr, &settings.batch_size, 1000, 1, 1'000'000, PGC_SIGHUP, 0, nullptr, nullptr,
                            nullptr);
    DefineCustomIntVariable("pg_idem.max_workers", "Most background workers at a time, besides the launcher.",
                            "Handlers of interrupted operations leave one for maintenance.", &settings.max_workers, 3,
                            1, 64, PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
    DefineCustomEnumVariable("pg_idem.outbox", "Says where idem_publish puts messages.",
                             "table: into idem_outbox; wal: only into the write-ahead log, for logical decoding.",
                             &settings.outbox, outbox_table, outbox_modes, PGC_USERSET, 0, nullptr, nullptr, nullptr);
    DefineCustomBoolVariable("pg_idem.outbox_notify", "Notifies channel pg_idem_outbox when messages are published.",
                             "Serialises commits that publish, and forbids PREPARE TRANSACTION for them.",
                             &settings.outbox_notify, false, PGC_USERSET, 0, nullptr, nullptr, nullptr);
    DefineCustomIntVariable("pg_idem.outbox_max_attempts", "Failed attempts after which a message is parked.",
                            "0: never.", &settings.outbox_max_attempts, 10, 0, PG_INT32_MAX, PGC_SIGHUP, 0, nullptr,
                            nullptr, nullptr);
    DefineCustomBoolVariable("pg_idem.outbox_skip_parked",
                             "Hands out the messages of an aggregate that are behind a parked one.",
                             "Off: they wait until it is retried or deleted.", &settings.outbox_skip_parked, false,
                             PGC_SIGHUP, 0, nullptr, nullptr, nullptr);
    DefineCustomStringVariable("pg_idem.test_now", "Replaces the clock, for tests.",
                               "A timestamp with time zone; empty: the real clock.", &settings.test_now, "", PGC_SUSET,
                               GUC_NOT_IN_SAMPLE, check_test_now, nullptr, nullptr);
    MarkGUCPrefixReserved("pg_idem");
}

} // namespace idem::pg
