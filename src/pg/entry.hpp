// The boundary between PostgreSQL and C++: every function that PostgreSQL calls passes through here.
//
// A C++ exception never leaves the library: it becomes an ereport after its handler has ended (raising inside the
// handler would leak the exception). PostgreSQL's own errors pass through with a longjmp; so code under this guard
// that calls PostgreSQL keeps only trivially destructible automatics alive across such calls.
#pragma once

#include <cstring>
#include <exception>
#include <new>

#include "pg/pg.hpp"
#include "pg/relations.hpp"

namespace idem::pg {

// What an exception said, in memory that needs no destructor.
struct CaughtException {
    bool out_of_memory = false;
    char message[256] = {};

    void take(const char* what) noexcept { std::strncpy(message, what, sizeof(message) - 1); }
    [[noreturn]] void raise() const {
        if (out_of_memory) {
            ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("out of memory")));
        }
        ereport(ERROR, (errcode(ERRCODE_INTERNAL_ERROR), errmsg_internal("pg_idem: %s", message)));
        pg_unreachable();
    }
};

// Runs `body`, which may throw; what it throws is raised as a PostgreSQL error.
template <typename Body>
auto guarded(Body body) {
    CaughtException caught;
    try {
        return body();
    } catch (const std::bad_alloc&) {
        caught.out_of_memory = true;
    } catch (const std::exception& e) {
        caught.take(e.what());
    } catch (...) {
        caught.take("unknown exception");
    }
    caught.raise();
}

template <Datum (*function)(FunctionCallInfo)>
Datum entry(FunctionCallInfo fcinfo) {
    return guarded([fcinfo] {
        enter_extension(fcinfo);
        return function(fcinfo);
    });
}

} // namespace idem::pg

// Defines the C symbol pg_idem_NAME for an SQL function whose body is `static Datum NAME(FunctionCallInfo)` in scope.
#define PG_IDEM_FUNCTION(name)                                                                                         \
    extern "C" {                                                                                                       \
    PGDLLEXPORT Datum pg_idem_##name(PG_FUNCTION_ARGS);                                                                \
    PG_FUNCTION_INFO_V1(pg_idem_##name);                                                                               \
    Datum pg_idem_##name(PG_FUNCTION_ARGS) {                                                                           \
        return idem::pg::entry<name>(fcinfo);                                                                          \
    }                                                                                                                  \
    }                                                                                                                  \
    static_assert(true)
