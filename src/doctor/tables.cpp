// Our tables: as they were made, vacuumed, and written by nobody else.
#include <string_view>

#include "doctor/checks.hpp"

#include "doctor/facts.hpp"
#include "pg/catalog_query.hpp"
#include "pg/subtransaction.hpp"
#include "pg/table.hpp"
#include "store/policies.hpp"

namespace idem::doctor {

namespace {

// As every call that needs the table does it.
void use(pg::TableId id) {
    pg::close_table(pg::open_table(id, pg::Access::look));
    if (id == pg::TableId::policies) {
        (void)store::read_all_policies();
    }
}

void check_tables(Report& report) {
    for (int i = 0; i < pg::table_count; i++) {
        ErrorData* error = pg::in_subtransaction([i] {
            use(static_cast<pg::TableId>(i));
            return false;
        });
        if (error == nullptr) {
            continue;
        }
        if (error->sqlerrcode == ERRCODE_FEATURE_NOT_SUPPORTED) {
            report.critical(psprintf("%s: %s", error->message, error->detail == nullptr ? "" : error->detail),
                            "Undo the change: calls that need the table fail with 0A000.");
        } else if (error->sqlerrcode == ERRCODE_UNDEFINED_TABLE) {
            report.critical(error->message, "Create the extension again.");
        } else {
            ReThrowError(error);
        }
    }
    report.ok("the tables are as the extension made them");
}

pg::QueryArgument our_tables() {
    return {OIDARRAYOID, table_oids(busy_tables)};
}

void check_autovacuum(Report& report) {
    if (setting("autovacuum") == "off" || setting("track_counts") == "off") {
        report.warning("autovacuum does not run: autovacuum or track_counts is off",
                       "Turn autovacuum and track_counts on.");
    }
    const pg::Texts off = pg::query_catalog(R"(
        SELECT c.relname
          FROM pg_catalog.pg_class c, pg_catalog.pg_class storage, pg_catalog.pg_options_to_table(storage.reloptions) AS o
         WHERE c.oid OPERATOR(pg_catalog.=) ANY ($1)
           AND (storage.oid OPERATOR(pg_catalog.=) c.oid OR storage.oid OPERATOR(pg_catalog.=) c.reltoastrelid)
           AND o.option_name OPERATOR(pg_catalog.=) 'autovacuum_enabled' AND NOT o.option_value::pg_catalog.bool
         GROUP BY c.relname)",
                                            {our_tables()});
    for (int i = 0; i < off.rows; i++) {
        report.warning(psprintf("autovacuum is off for table %s", off.at(i)),
                       "Reset autovacuum_enabled and toast.autovacuum_enabled of the table.");
    }
    report.ok("autovacuum is on");
}

// Over 100,000 dead rows, more than a fifth of the live ones, and no vacuum within an hour.
void check_vacuum(Report& report) {
    const pg::Texts hot = pg::query_catalog(R"(
        SELECT pg_catalog.format('table %s has %s dead rows and %s live ones, last vacuumed: %s', c.relname, s.dead, s.live,
                                 COALESCE(s.vacuumed::pg_catalog.text, 'never'))
          FROM pg_catalog.pg_class c, LATERAL (
               SELECT pg_catalog.pg_stat_get_dead_tuples(c.oid) AS dead, pg_catalog.pg_stat_get_live_tuples(c.oid) AS live,
                      GREATEST(pg_catalog.pg_stat_get_last_vacuum_time(c.oid),
                               pg_catalog.pg_stat_get_last_autovacuum_time(c.oid)) AS vacuumed) AS s
         WHERE c.oid OPERATOR(pg_catalog.=) ANY ($1)
           AND s.dead OPERATOR(pg_catalog.>) 100000
           AND s.dead OPERATOR(pg_catalog.>) (s.live OPERATOR(pg_catalog./) 5)
           AND COALESCE(s.vacuumed OPERATOR(pg_catalog.<) (pg_catalog.clock_timestamp() OPERATOR(pg_catalog.-)
                                                           '1 hour'::pg_catalog.interval), true))",
                                            {our_tables()});
    for (int i = 0; i < hot.rows; i++) {
        report.warning(hot.at(i), "VACUUM the table, and look for old transactions, replication slots and prepared "
                                  "transactions that hold vacuum back.");
    }
    report.ok("dead rows are vacuumed");
}

// The outbox may be: change data capture reads it so.
void check_published(Report& report) {
    const pg::Texts published = pg::query_catalog(R"(
        SELECT pg_catalog.format('publication "%s"%s publishes %s', p.pubname,
                                 CASE WHEN p.puballtables THEN ' (FOR ALL TABLES)' END,
                                 pg_catalog.string_agg(c.relname::pg_catalog.text, ', ' ORDER BY c.relname))
          FROM pg_catalog.pg_publication p, pg_catalog.pg_class c
         WHERE c.oid OPERATOR(pg_catalog.=) ANY ($1)
           AND (p.puballtables
                OR EXISTS (SELECT FROM pg_catalog.pg_publication_rel r
                            WHERE r.prpubid OPERATOR(pg_catalog.=) p.oid AND r.prrelid OPERATOR(pg_catalog.=) c.oid)
                OR EXISTS (SELECT FROM pg_catalog.pg_publication_namespace n
                            WHERE n.pnpubid OPERATOR(pg_catalog.=) p.oid AND n.pnnspid OPERATOR(pg_catalog.=) c.relnamespace))
         GROUP BY p.pubname, p.puballtables)",
                                                  {{OIDARRAYOID, table_oids(operation_tables)}});
    for (int i = 0; i < published.rows; i++) {
        report.warning(published.at(i), "Publish your own tables by name: a subscriber that uses pg_idem too would "
                                        "have its rows changed without their key locks.");
    }
    report.ok("no publication has the tables");
}

void check_subscribed(Report& report) {
    const pg::Texts subscribed = pg::query_catalog(R"(
        SELECT pg_catalog.format('table %s is written by subscription "%s"', c.relname, s.subname)
          FROM pg_catalog.pg_subscription_rel r, pg_catalog.pg_subscription s, pg_catalog.pg_class c
         WHERE r.srrelid OPERATOR(pg_catalog.=) ANY ($1) AND s.oid OPERATOR(pg_catalog.=) r.srsubid
           AND c.oid OPERATOR(pg_catalog.=) r.srrelid)",
                                                   {our_tables()});
    for (int i = 0; i < subscribed.rows; i++) {
        report.critical(subscribed.at(i),
                        "Take the table out of the publication, or make no calls on this server: "
                        "what arrives takes no key lock, and claims here do not exclude claims there.");
    }
    report.ok("no subscription writes the tables");
}

constexpr Check checks[] = {
    {"tables", check_tables},       {"autovacuum", check_autovacuum}, {"vacuum", check_vacuum},
    {"published", check_published}, {"subscribed", check_subscribed},
};

} // namespace

std::span<const Check> tables_checks() {
    return checks;
}

} // namespace idem::doctor
