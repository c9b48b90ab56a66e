// The settings pg_idem.*.
#pragma once

#include "core/time.hpp"

namespace idem::pg {

// pg_idem.outbox: where messages are published.
enum OutboxMode : int { outbox_table, outbox_wal };

// Storage belongs to the server's settings module; read only. Times in milliseconds.
struct Settings {
    int max_claims_per_transaction = 1000;
    bool force_sync_commit = true;
    int idle_claim_timeout = 60'000;
    char* account_from = nullptr; // may be no rule, see account.hpp
    bool worker = true;
    int naptime = 5'000;
    int batch_size = 1000; // rows a task
    int max_workers = 3;
    int outbox = outbox_table;
    bool outbox_notify = false;
    int outbox_max_attempts = 10; // 0: for ever
    bool outbox_skip_parked = false;
    char* test_now = nullptr;

    // Without the preload: account_from was given by the client's connection. No account is permitted.
    bool account_from_is_forged = false;
};
extern Settings settings;

inline core::Duration nap() {
    return core::Duration{settings.naptime} * 1000;
}

// Defines them and reserves the prefix; from _PG_init.
void init_settings();

} // namespace idem::pg
