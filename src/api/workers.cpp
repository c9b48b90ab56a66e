// idem_wake_workers, and the function behind idem_worker_status.
#include "pg/entry.hpp"

#include "pg/shared.hpp"
#include "store/datum.hpp"
#include "worker/registry.hpp"

namespace idem::api {

namespace {

Datum wake_workers(FunctionCallInfo) {
    worker::note_extension();
    PG_RETURN_BOOL(pg::is_preloaded());
}

// Written in the encoding of that database, which may be another.
Datum message_datum(Oid database, char* message) {
    for (char* c = message; database != MyDatabaseId && *c != '\0'; c++) {
        *c = IS_HIGHBIT_SET(*c) ? '?' : *c;
    }
    return CStringGetTextDatum(message);
}

void put_time(Datum& value, bool& is_null, core::Time time) {
    is_null = time <= 0 || time >= core::end_of_time;
    value = TimestampTzGetDatum(time);
}

Datum worker_status_rows(FunctionCallInfo fcinfo) {
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);
    auto* rows = static_cast<worker::StatusRow*>(palloc(sizeof(worker::StatusRow) * worker::max_databases));
    const int count = worker::read_status(rows, worker::max_databases);
    for (int i = 0; i < count; i++) {
        worker::StatusRow& row = rows[i];
        worker::PassStatus& status = row.status;
        Datum values[9] = {};
        bool nulls[9] = {};
        values[0] = ObjectIdGetDatum(row.database);
        values[1] = Int32GetDatum(row.worker_pid);
        nulls[1] = row.worker_pid == 0;
        values[2] = Int64GetDatum(status.passes);
        put_time(values[3], nulls[3], status.last_pass);
        values[4] = Float8GetDatum(static_cast<double>(status.last_took) / 1000);
        nulls[4] = status.passes == 0;
        values[5] = Int64GetDatum(status.last_rows);
        nulls[5] = status.passes == 0;
        put_time(values[6], nulls[6], status.next_due);
        values[7] = message_datum(row.database, status.last_error);
        nulls[7] = status.last_error[0] == '\0';
        put_time(values[8], nulls[8], status.last_error_at);
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return Datum{0};
}

PG_IDEM_FUNCTION(wake_workers);
PG_IDEM_FUNCTION(worker_status_rows);

} // namespace

} // namespace idem::api
