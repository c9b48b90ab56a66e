#include "pg/clock.hpp"

#include "pg/pg.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

core::Time now() {
    if (settings.test_now == nullptr || settings.test_now[0] == '\0') {
        return GetCurrentTimestamp();
    }
    return DatumGetTimestampTz(DirectFunctionCall3(timestamptz_in, CStringGetDatum(settings.test_now),
                                                   ObjectIdGetDatum(InvalidOid), Int32GetDatum(-1)));
}

} // namespace idem::pg
