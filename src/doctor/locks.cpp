// The lock table, and transactions that hold claims for long. A claim or guard shows in pg_locks as its key lock.
#include "doctor/checks.hpp"

#include "core/time.hpp"
#include "doctor/facts.hpp"
#include "pg/catalog_query.hpp"
#include "pg/clock.hpp"
#include "pg/key_lock.hpp"
#include "pg/settings.hpp"

extern "C" {
#include "access/twophase.h"
}

namespace idem::doctor {

namespace {

constexpr core::Duration long_prepared = core::hour;
constexpr core::Duration long_open = 5 * core::minute;

pg::QueryArgument lock_class() {
    return {INT2OID, Int16GetDatum(static_cast<int16>(pg::key_lock_class))};
}

pg::QueryArgument before(core::Duration ago) {
    return {TIMESTAMPTZOID, TimestampTzGetDatum(pg::now() - ago)};
}

void check_lock_table(Report& report) {
    const int64 entries = static_cast<int64>(max_locks_per_xact) * (MaxBackends + max_prepared_xacts);
    const int64 held = pg::query_count("SELECT pg_catalog.count(*) FROM pg_catalog.pg_locks l "
                                       "WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory' "
                                       "AND l.objsubid OPERATOR(pg_catalog.=) $1",
                                       {lock_class()});
    constexpr const char* advice = "Raise max_locks_per_transaction and restart the server, or lower "
                                   "pg_idem.max_claims_per_transaction.";
    if (held > entries / 2) {
        const char* detail = psprintf("claims take %lld of about %lld entries of the lock table",
                                      static_cast<long long>(held), static_cast<long long>(entries));
        if (held > entries / 10 * 8) {
            report.critical(detail, advice);
        } else {
            report.warning(detail, advice);
        }
    }
    if (pg::settings.max_claims_per_transaction > entries / 2) {
        report.warning(psprintf("one transaction may make %d claims (pg_idem.max_claims_per_transaction), and the lock "
                                "table has about %lld entries for all",
                                pg::settings.max_claims_per_transaction, static_cast<long long>(entries)),
                       advice);
    }
    report.ok(psprintf("claims take %lld of about %lld entries of the lock table", static_cast<long long>(held),
                       static_cast<long long>(entries)));
}

// A prepared transaction has no process; it holds the lock on its own transaction ID.
constexpr const char* prepared_sql = R"(
    WITH locks AS MATERIALIZED (SELECT * FROM pg_catalog.pg_locks l WHERE l.pid IS NULL),
         held AS (SELECT own.transactionid, pg_catalog.count(*) AS claims
                    FROM locks own, locks key
                   WHERE own.locktype OPERATOR(pg_catalog.=) 'transactionid'
                     AND key.locktype OPERATOR(pg_catalog.=) 'advisory' AND key.objsubid OPERATOR(pg_catalog.=) $1
                     AND key.virtualtransaction OPERATOR(pg_catalog.=) own.virtualtransaction
                   GROUP BY own.transactionid)
    SELECT pg_catalog.format('transaction "%s" of %s, prepared %s, holds %s operation(s)',
                             p.gid, p.owner, p.prepared, held.claims)
      FROM pg_catalog.pg_prepared_xacts p, held
     WHERE held.transactionid OPERATOR(pg_catalog.=) p.transaction
       AND p.database OPERATOR(pg_catalog.=) pg_catalog.current_database()
       AND p.prepared OPERATOR(pg_catalog.<=) $2
     ORDER BY p.prepared)";

void check_prepared(Report& report) {
    const pg::Texts old = pg::query_catalog(prepared_sql, {lock_class(), before(long_prepared)});
    for (int i = 0; i < old.rows; i++) {
        report.warning(old.at(i), "End it with COMMIT PREPARED or ROLLBACK PREPARED, as its coordinator decided.");
    }
    report.ok("no transaction prepared over an hour ago holds an operation");
}

// Who may not see another's session sees no start of its transaction. The lock on the extension is that of a pass: of
// idem_maintain, where it is kept for long.
constexpr const char* open_sql = R"(
    SELECT pg_catalog.format('session %s of %s (%s), in a transaction since %s, holds %s operation(s)%s',
                             a.pid, a.usename, a.state, a.xact_start, held.claims,
                             CASE WHEN held.pass THEN ' and keeps every other pass away' END),
           a.xact_start IS NULL
      FROM (SELECT l.pid, pg_catalog.count(*) FILTER (WHERE l.locktype OPERATOR(pg_catalog.=) 'advisory') AS claims,
                   pg_catalog.bool_or(l.locktype OPERATOR(pg_catalog.=) 'object') AS pass
              FROM pg_catalog.pg_locks l
             WHERE (l.locktype OPERATOR(pg_catalog.=) 'advisory' AND l.objsubid OPERATOR(pg_catalog.=) $1
                    OR l.locktype OPERATOR(pg_catalog.=) 'object' AND l.mode OPERATOR(pg_catalog.=) 'ShareUpdateExclusiveLock'
                       AND l.classid OPERATOR(pg_catalog.=) 'pg_catalog.pg_extension'::pg_catalog.regclass)
               AND l.database OPERATOR(pg_catalog.=) $3 AND l.granted AND l.pid IS NOT NULL GROUP BY l.pid) AS held,
           pg_catalog.pg_stat_activity a
     WHERE a.pid OPERATOR(pg_catalog.=) held.pid
       AND (a.xact_start IS NULL OR a.xact_start OPERATOR(pg_catalog.<=) $2)
     ORDER BY a.xact_start)";

void check_open(Report& report) {
    const pg::Texts old =
        pg::query_catalog(open_sql, {lock_class(), before(long_open), {OIDOID, ObjectIdGetDatum(MyDatabaseId)}});
    int unseen = 0;
    for (int i = 0; i < old.rows; i++) {
        if (old.at(i, 1)[0] == 't') {
            unseen++;
        } else {
            report.warning(old.at(i), "See what it waits for; end it with pg_terminate_backend if nobody will.");
        }
    }
    if (unseen > 0) {
        report.info(psprintf("%d session(s) hold operations, since when cannot be seen", unseen),
                    "Grant pg_monitor to the role that asks, and keep track_activities on.");
    }
    report.ok("no transaction open for over five minutes holds an operation");
}

constexpr Check checks[] = {
    {"lock_table", check_lock_table},
    {"prepared_transactions", check_prepared},
    {"long_transactions", check_open},
};

} // namespace

std::span<const Check> locks_checks() {
    return checks;
}

} // namespace idem::doctor
