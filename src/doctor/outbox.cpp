// Messages that nobody takes.
#include "doctor/checks.hpp"

#include "core/time.hpp"
#include "doctor/facts.hpp"
#include "pg/catalog_query.hpp"
#include "pg/clock.hpp"
#include "pg/settings.hpp"
#include "store/gauges.hpp"

extern "C" {
#include "access/xlog.h"
}

namespace idem::doctor {

namespace {

constexpr core::Duration long_pending = 10 * core::minute;

void check_parked(Report& report) {
    const store::Gauges gauges = store::read_outbox_gauges();
    if (gauges.outbox_parked > 0) {
        report.warning(
            psprintf("%lld message(s) of the outbox are parked", static_cast<long long>(gauges.outbox_parked)),
            pg::settings.outbox_skip_parked
                ? "Read last_error in idem_outbox, and hand them out again with idem_outbox_retry."
                : "Read last_error in idem_outbox, and hand them out again with idem_outbox_retry: until then "
                  "the later messages of their aggregates wait.");
    }
    report.ok("no message of the outbox is parked");
}

void check_pending(Report& report) {
    const store::Gauges gauges = store::read_outbox_gauges();
    if (gauges.oldest_outbox && core::between(pg::now(), *gauges.oldest_outbox) > long_pending) {
        report.warning(psprintf("%lld message(s) wait in the outbox, the oldest since %s",
                                static_cast<long long>(gauges.outbox_pending), time_text(*gauges.oldest_outbox)),
                       "See whether a relay runs that takes these messages and acknowledges them.");
    }
    report.ok("no message has waited in the outbox for over ten minutes");
}

void check_mode(Report& report) {
    if (pg::settings.outbox != pg::outbox_wal) {
        report.ok("messages are published into table idem_outbox");
        return;
    }
    if (!XLogLogicalInfoActive()) {
        report.critical("pg_idem.outbox is wal, and wal_level is not logical: idem_publish fails with 55000",
                        "Set wal_level to logical and restart the server.");
    } else if (pg::query_count("SELECT pg_catalog.count(*) FROM pg_catalog.pg_replication_slots s "
                               "WHERE s.slot_type OPERATOR(pg_catalog.=) 'logical' "
                               "AND s.database OPERATOR(pg_catalog.=) pg_catalog.current_database()") == 0) {
        report.critical("pg_idem.outbox is wal, and this database has no logical replication slot: nobody will hear of "
                        "what is published",
                        "Create a logical replication slot for the reader before messages are published.");
    }
    report.ok("messages are published into the write-ahead log");
}

constexpr Check checks[] = {
    {"outbox_parked", check_parked},
    {"outbox_pending", check_pending},
    {"outbox_mode", check_mode},
};

} // namespace

std::span<const Check> outbox_checks() {
    return checks;
}

} // namespace idem::doctor
