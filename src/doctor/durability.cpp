// What a crash or a failover can take away.
#include <string_view>

#include "doctor/checks.hpp"

#include "doctor/facts.hpp"
#include "pg/catalog_query.hpp"
#include "pg/settings.hpp"

namespace idem::doctor {

namespace {

void check_fsync(Report& report) {
    if (setting("fsync") == "off") {
        report.critical("fsync is off: a crash of the machine may lose or corrupt outcomes that were reported",
                        "Turn fsync on.");
    }
    report.ok("fsync is on");
}

void check_full_page_writes(Report& report) {
    if (setting("full_page_writes") == "off") {
        report.critical("full_page_writes is off: a crash of the machine may leave pages half written",
                        "Turn full_page_writes on, unless the file system cannot tear a page.");
    }
    report.ok("full_page_writes is on");
}

bool standbys_are_named() {
    return !setting("synchronous_standby_names").empty();
}

void check_synchronous_commit(Report& report) {
    const std::string_view level = setting("synchronous_commit");
    if (pg::settings.force_sync_commit) {
        report.ok(psprintf("pg_idem.force_sync_commit is on (synchronous_commit is %s)", level.data()));
        return;
    }
    constexpr const char* advice = "Turn pg_idem.force_sync_commit on, or synchronous_commit.";
    if (level == "off") {
        report.warning("synchronous_commit and pg_idem.force_sync_commit are off: a crash may lose the last outcomes "
                       "and claims after they were reported",
                       advice);
    } else if (standbys_are_named() && (level == "local" || level == "remote_write")) {
        report.warning(psprintf("synchronous standbys are named, but synchronous_commit is %s and "
                                "pg_idem.force_sync_commit is off: a failover may lose the last outcomes",
                                level.data()),
                       advice);
    }
    report.ok(psprintf("synchronous_commit is %s", level.data()));
}

void check_wal_level(Report& report) {
    if (setting("wal_level") == "minimal") {
        report.info("wal_level is minimal: there can be no standby and no archive, so what the disk loses is lost",
                    "Set wal_level to replica, and keep a standby or an archive.");
    }
    report.ok(psprintf("wal_level is %s", setting("wal_level").data()));
}

void check_standbys(Report& report) {
    if (RecoveryInProgress()) {
        report.info("this server is a standby: it answers idem_lookup only, and there absence proves nothing",
                    "Ask the primary where absence or a claim matters.");
        return;
    }
    const int64 connected =
        pg::query_count("SELECT pg_catalog.count(*) FROM pg_catalog.pg_stat_get_wal_senders() AS s");
    if (connected > 0 && !standbys_are_named()) {
        report.info(psprintf("%lld replication connection(s), and synchronous_standby_names is empty: after a failover "
                             "what the standby had not received is gone",
                             static_cast<long long>(connected)),
                    "Name synchronous standbys if a failover may lose no outcome.");
    }
    report.ok(standbys_are_named() ? "synchronous standbys are named" : "no standby is connected");
}

constexpr Check checks[] = {
    {"fsync", check_fsync},
    {"full_page_writes", check_full_page_writes},
    {"synchronous_commit", check_synchronous_commit},
    {"wal_level", check_wal_level},
    {"standbys", check_standbys},
};

} // namespace

std::span<const Check> durability_checks() {
    return checks;
}

} // namespace idem::doctor
