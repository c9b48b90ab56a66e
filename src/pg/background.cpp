#include <algorithm>

#include "pg/background.hpp"

extern "C" {
#include "postmaster/interrupt.h"
#include "storage/latch.h"
#include "tcop/tcopprot.h"
}

namespace idem::pg {

namespace {

constexpr int restart_seconds = 5;

struct NeutralSetting {
    const char* name;
    const char* value;
};
constexpr NeutralSetting neutral[] = {
    {"search_path", "pg_catalog, pg_temp"},
    {"default_transaction_isolation", "read committed"},
    {"default_transaction_read_only", "off"},
    {"default_transaction_deferrable", "off"},
    {"statement_timeout", "0"},
    {"lock_timeout", "0"},
    {"idle_in_transaction_session_timeout", "0"},
    {"transaction_timeout", "0"},  // 17
    {"synchronous_commit", "off"}, // what must be durable says so
    {"exit_on_error", "off"},      // an error is the end of its row's turn, not of the process
};

} // namespace

BackgroundWorker describe_worker(const char* function, const char* type, Datum argument, Restart restart) {
    BackgroundWorker worker{};
    worker.bgw_flags = BGWORKER_SHMEM_ACCESS | BGWORKER_BACKEND_DATABASE_CONNECTION;
    worker.bgw_start_time = BgWorkerStart_RecoveryFinished;
    worker.bgw_restart_time = restart == Restart::never ? BGW_NEVER_RESTART : restart_seconds;
    strlcpy(worker.bgw_library_name, "pg_idem", BGW_MAXLEN);
    strlcpy(worker.bgw_function_name, function, BGW_MAXLEN);
    strlcpy(worker.bgw_name, type, BGW_MAXLEN);
    strlcpy(worker.bgw_type, type, BGW_MAXLEN);
    worker.bgw_main_arg = argument;
    worker.bgw_notify_pid = MyProcPid;
    return worker;
}

void accept_signals() {
    pqsignal(SIGHUP, SignalHandlerForConfigReload);
    pqsignal(SIGTERM, die);
    BackgroundWorkerUnblockSignals();
}

bool reload_configuration() {
    if (!ConfigReloadPending) {
        return false;
    }
    ConfigReloadPending = 0;
    ProcessConfigFile(PGC_SIGHUP);
    return true;
}

void neutral_settings() {
    for (const NeutralSetting& setting : neutral) {
        if (GetConfigOption(setting.name, true, false) != nullptr) {
            SetConfigOption(setting.name, setting.value, PGC_SUSET, PGC_S_OVERRIDE);
        }
    }
}

void sleep_until(core::Time until, uint32 wait_event) {
    const core::Duration left = core::between(until, GetCurrentTimestamp());
    const core::Duration ms = std::clamp<core::Duration>((left + 999) / 1000, 0, PG_INT32_MAX);
    (void)WaitLatch(MyLatch, WL_LATCH_SET | WL_TIMEOUT | WL_EXIT_ON_PM_DEATH, static_cast<long>(ms), wait_event);
    ResetLatch(MyLatch);
    CHECK_FOR_INTERRUPTS();
}

} // namespace idem::pg
