// The library's entry: settings and callbacks.
#include "pg/entry.hpp"

#include "pg/compat.hpp"
#include "pg/relations.hpp"
#include "pg/settings.hpp"
#include "pg/shared.hpp"
#include "store/holdings.hpp"
#include "store/policies.hpp"

extern "C" {

PG_IDEM_MODULE_MAGIC;

PGDLLEXPORT void _PG_init(void);

void _PG_init(void) {
    idem::pg::guarded([] {
        idem::pg::init_settings();
        idem::pg::init_relations();
        idem::store::init_policies();
        idem::store::init_holdings();
        idem::pg::init_shared();
        return 0;
    });
}
}
