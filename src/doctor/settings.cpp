// How the library is loaded, and what is set for this session.
#include <cstring>
#include <string_view>

#include "doctor/checks.hpp"

#include "doctor/facts.hpp"
#include "pg/account.hpp"
#include "pg/catalog_query.hpp"
#include "pg/compat.hpp"
#include "pg/settings.hpp"
#include "pg/shared.hpp"

namespace idem::doctor {

namespace {

void check_preload(Report& report) {
    if (!pg::is_preloaded()) {
        report.warning("pg_idem is not in shared_preload_libraries: no workers, no statistics, no idem_holders",
                       "Add pg_idem to shared_preload_libraries and restart the server.");
    }
    report.ok("pg_idem is preloaded");
}

void check_library_version(Report& report) {
    const pg::Texts extension = pg::query_catalog("SELECT e.extversion FROM pg_catalog.pg_extension e "
                                                  "WHERE e.extname OPERATOR(pg_catalog.=) 'pg_idem'");
    const char* installed = extension.rows == 1 ? extension.at(0) : "unknown";
    if (std::strcmp(installed, PG_IDEM_VERSION) != 0) {
        report.warning(
            psprintf("the library is version %s, the extension in this database %s", PG_IDEM_VERSION, installed),
            "Run ALTER EXTENSION pg_idem UPDATE, and restart the server where an old library is preloaded.");
    }
    report.ok("library and extension are version " PG_IDEM_VERSION);
}

void check_test_now(Report& report) {
    if (!setting("pg_idem.test_now").empty()) {
        report.critical(
            psprintf("pg_idem.test_now is set: \"%s\" stands in for the clock", setting("pg_idem.test_now").data()),
            "Reset pg_idem.test_now, which is for tests.");
    }
    report.ok("the clock is the server's");
}

void check_account_from(Report& report) {
    if (pg::settings.account_from_is_forged) {
        report.critical("pg_idem.account_from was given by the client: every call fails with 42501",
                        "Add pg_idem to shared_preload_libraries, and do not set it in connection options.");
    } else if (!pg::is_account_rule(pg::settings.account_from)) {
        report.critical("pg_idem.account_from is not valid: every call fails with 42501",
                        "Set it to argument, role, setting:NAME or setting:NAME#/json/pointer where it is set.");
    } else if (setting("pg_idem.account_from") != "argument" && !pg::is_preloaded()) {
        report.warning("pg_idem.account_from is set, but pg_idem is not preloaded: a client's connection option can "
                       "stand in its way, and its calls then fail with 42501",
                       "Add pg_idem to shared_preload_libraries and restart the server.");
    }
    report.ok(psprintf("pg_idem.account_from is %s", setting("pg_idem.account_from").data()));
}

// At its start the server only warns of a line that it cannot apply, and goes on with the default.
void check_configuration(Report& report) {
    if (pg::query_count("SELECT 1 WHERE pg_catalog.has_function_privilege("
                        "'pg_catalog.pg_show_all_file_settings()', 'EXECUTE')") == 0) {
        report.ok("only a superuser may look into the configuration files");
        return;
    }
    const pg::Texts lines = pg::query_catalog(
        "SELECT f.sourcefile, f.sourceline, f.name FROM pg_catalog.pg_show_all_file_settings() f WHERE f.error IS NOT "
        "NULL AND pg_catalog.starts_with(pg_catalog.lower(f.name), 'pg_idem.') ORDER BY f.seqno");
    for (int row = 0; row < lines.rows; row++) {
        report.warning(
            psprintf("\"%s\" line %s: %s could not be applied", lines.at(row, 0), lines.at(row, 1), lines.at(row, 2)),
            "Correct the line and reload: after a restart the default may be in force.");
    }
    report.ok("the configuration files set pg_idem as they say");
}

bool is_off(const char* timeout) {
    return setting(timeout) == "0" || setting(timeout).empty();
}

void check_idle_claims(Report& report) {
    if (pg::settings.idle_claim_timeout == 0 && is_off("idle_in_transaction_session_timeout") &&
        is_off("transaction_timeout")) {
        report.warning("nothing ends a session that idles in a transaction which holds a claim",
                       "Set pg_idem.idle_claim_timeout or idle_in_transaction_session_timeout.");
    }
    report.ok("a session that idles with a claim is ended by a timeout");
}

void check_client_connection(Report& report) {
    if (is_off("client_connection_check_interval")) {
        report.info("client_connection_check_interval is 0: a statement goes on, and keeps its claims, after its "
                    "client has gone",
                    "Set client_connection_check_interval to a few seconds.");
    }
    report.ok("statements end soon after their client has gone");
}

constexpr Check checks[] = {
    {"preload", check_preload},
    {"library_version", check_library_version},
    {"test_now", check_test_now},
    {"account_from", check_account_from},
    {"configuration", check_configuration},
    {"idle_claims", check_idle_claims},
    {"client_connection", check_client_connection},
};

} // namespace

std::span<const Check> settings_checks() {
    return checks;
}

} // namespace idem::doctor
