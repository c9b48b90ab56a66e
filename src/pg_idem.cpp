// The library's entry: settings and callbacks.
#include "pg/entry.hpp"

#include "pg/compat.hpp"
#include "pg/extension.hpp"
#include "pg/relations.hpp"
#include "pg/settings.hpp"
#include "pg/shared.hpp"
#include "store/holders.hpp"
#include "store/holdings.hpp"
#include "store/policies.hpp"
#include "store/statistics.hpp"
#include "worker/jobs.hpp"
#include "worker/registry.hpp"
#include "worker/worker.hpp"

extern "C" {

PG_IDEM_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void _PG_init(void) {
    idem::pg::guarded([] {
        idem::pg::init_settings();
        idem::pg::init_relations();
        idem::pg::init_extension();
        idem::store::init_policies();
        idem::store::init_holdings();
        idem::store::init_statistics();
        idem::worker::init_registry();
        idem::worker::init_jobs();
        idem::store::init_holders();
        idem::pg::init_shared();
        idem::worker::register_launcher();
        return 0;
    });
}
}
