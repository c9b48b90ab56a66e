// idem_doctor: what makes the guarantees weaker on this very server and database.
#include "doctor/checks.hpp"
#include "pg/entry.hpp"

namespace idem::api {

namespace {

Datum doctor(FunctionCallInfo fcinfo) {
    PreventCommandIfParallelMode("idem_doctor()");
    InitMaterializedSRF(fcinfo, 0);
    doctor::Report report(reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo));
    doctor::make_checks(report);
    return Datum{0};
}

PG_IDEM_FUNCTION(doctor);

} // namespace

} // namespace idem::api
