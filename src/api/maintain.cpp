// idem_maintain: one pass of what the workers do.
#include <algorithm>

#include "pg/entry.hpp"

#include "pg/args.hpp"
#include "pg/extension.hpp"
#include "pg/settings.hpp"
#include "protocol/pass.hpp"
#include "worker/call.hpp"

namespace idem::api {

namespace {

// Where the last call of this session stopped.
struct Circles {
    core::Circle inflight, calls, settled, seen, effects;
};
constinit Circles circles;

using Step = void (*)(core::Circle&, const protocol::StepLimits&, protocol::Counts&);

// Once around the table, from where the last call stopped, or until so many rows have been changed.
void go_around(core::Circle& circle, Step step, int64 max_rows, protocol::Counts& counts) {
    const int64 before = counts.total();
    circle.left = 0;
    do {
        const int64 left = max_rows - (counts.total() - before);
        step(circle, {static_cast<int>(left), PG_UINT32_MAX, pg::nap()}, counts);
    } while (!circle.is_closed() && !counts.stopped && counts.total() - before < max_rows);
    counts.stopped = false;
}

Datum maintain(FunctionCallInfo fcinfo) {
    pg::require_writable("idem_maintain()");
    const int max_rows = PG_ARGISNULL(0) ? pg::settings.batch_size : PG_GETARG_INT32(0);
    if (max_rows <= 0) {
        ereport(ERROR, (errcode(ERRCODE_INVALID_PARAMETER_VALUE), errmsg("max_rows must be greater than zero")));
    }
    InitMaterializedSRF(fcinfo, 0);
    auto* result = reinterpret_cast<ReturnSetInfo*>(fcinfo->resultinfo);

    pg::wait_for_extension_lock();
    protocol::Counts counts;
    go_around(circles.inflight, protocol::recover_some, max_rows, counts);
    go_around(circles.calls, worker::call_some, max_rows, counts);
    go_around(circles.settled, protocol::sweep_settled_some, max_rows, counts);
    go_around(circles.seen, protocol::sweep_seen_some, max_rows, counts);
    go_around(circles.effects, protocol::sweep_effects_some, max_rows, counts);

    for (int i = 0; i < protocol::task_count; i++) {
        Datum values[2] = {CStringGetTextDatum(protocol::task_names[i]), Int64GetDatum(counts.rows[i])};
        bool nulls[2] = {};
        tuplestore_putvalues(result->setResult, result->setDesc, values, nulls);
    }
    return Datum{0};
}

PG_IDEM_FUNCTION(maintain);

} // namespace

} // namespace idem::api
