// Whether a worker will be able to call the handlers of on_interrupt = 'call'.
#include <string_view>

#include "doctor/checks.hpp"

#include "core/policy.hpp"
#include "pg/compat.hpp"
#include "pg/handler_name.hpp"
#include "store/policies.hpp"

extern "C" {
#include "catalog/pg_authid.h"
}

namespace idem::doctor {

namespace {

// One row of idem_policies with what it takes from '*'. Empty names: none.
struct View {
    const char* action;
    bool calls;
    bool keeps_request;
    const char* handler;
    const char* role;
};

const char* terminated(std::string_view text) {
    return pnstrdup(text.data(), text.size());
}

// Those that set one of the values themselves.
template <typename Visit>
void for_each_policy(Visit visit) {
    const store::StoredPolicies all = store::read_all_policies();
    for (const store::StoredPolicy& own : all) {
        if (own.row.on_interrupt || own.row.keep_request || own.sets_handler || own.sets_handler_role) {
            const core::Policy policy = core::effective_policy(own.row, all.star.row);
            const store::StoredPolicy& named = own.sets_handler || own.sets_handler_role ? own : all.star;
            visit(View{terminated(own.action), policy.on_interrupt == core::Rule::call, policy.keep_request,
                       terminated(named.handler), terminated(named.handler_role)});
        }
    }
}

bool is_set(const char* name) {
    return name[0] != '\0';
}

Oid role_oid(const char* name) {
    return std::string_view(name).size() < NAMEDATALEN ? get_role_oid(name, true) : InvalidOid;
}

bool can_log_in(Oid role) {
    HeapTuple tuple = SearchSysCache1(AUTHOID, ObjectIdGetDatum(role));
    if (!HeapTupleIsValid(tuple)) {
        return false;
    }
    const bool can = reinterpret_cast<const FormData_pg_authid*>(GETSTRUCT(tuple))->rolcanlogin;
    ReleaseSysCache(tuple);
    return can;
}

const char* what_is_missing(const View& v) {
    const char* missing[3];
    int count = 0;
    auto note = [&](bool is_there, const char* what) {
        if (!is_there) {
            missing[count++] = what;
        }
    };
    note(is_set(v.handler), "handler is not set");
    note(is_set(v.role), "handler_role is not set");
    note(v.keeps_request, "keep_request is false");
    const char* list = missing[0];
    for (int i = 1; i < count; i++) {
        list = psprintf("%s, %s", list, missing[i]);
    }
    return list;
}

void check_call(Report& report) {
    for_each_policy([&report](const View& v) {
        if (v.calls && (!is_set(v.handler) || !is_set(v.role) || !v.keeps_request)) {
            report.warning(psprintf("action \"%s\": on_interrupt is call, but no handler can be called: %s", v.action,
                                    what_is_missing(v)),
                           "Set handler, handler_role and keep_request, or choose another rule.");
        }
    });
    report.ok("every action with the rule call has handler, handler_role and keep_request");
}

void check_role(Report& report) {
    for_each_policy([&report](const View& v) {
        if (!is_set(v.role)) {
            return;
        }
        const Oid role = role_oid(v.role);
        if (!OidIsValid(role)) {
            report.warning(psprintf("action \"%s\": handler_role \"%s\" does not exist", v.action, v.role),
                           "Create the role, or name another one.");
        } else if (superuser_arg(role)) {
            report.critical(psprintf("action \"%s\": handler_role \"%s\" is a superuser", v.action, v.role),
                            "Name a role that may do no more than the handler needs.");
        } else if (pg::compat::worker_role_needs_login && !can_log_in(role)) {
            report.warning(psprintf("action \"%s\": handler_role \"%s\" cannot log in", v.action, v.role),
                           "ALTER ROLE ... LOGIN: before PostgreSQL 17 a worker needs it.");
        } else if (!pg::compat::may_connect(role)) {
            report.warning(
                psprintf("action \"%s\": handler_role \"%s\" may not connect to this database", v.action, v.role),
                "GRANT CONNECT ON DATABASE to the role.");
        }
    });
    report.ok("every handler_role can be used");
}

void check_handler(Report& report) {
    for_each_policy([&report](const View& v) {
        if (!is_set(v.handler)) {
            return;
        }
        const pg::HandlerName handler = pg::find_handler(v.handler);
        if (handler.wrong != nullptr) {
            report.warning(psprintf("action \"%s\": handler \"%s\" %s", v.action, v.handler, handler.wrong),
                           "Name a function (jsonb) that returns jsonb, as schema.name(jsonb).");
            return;
        }
        const Oid role = is_set(v.role) ? role_oid(v.role) : InvalidOid;
        if (OidIsValid(role) && (!pg::compat::may_use_schema(handler.schema, role) ||
                                 pg::compat::check_execute(handler.function, role) != ACLCHECK_OK)) {
            report.warning(psprintf("action \"%s\": handler_role \"%s\" may not execute handler \"%s\"", v.action,
                                    v.role, v.handler),
                           "Grant EXECUTE on the function, and USAGE on its schema, to the role.");
        }
    });
    report.ok("every handler can be called by its handler_role");
}

constexpr Check checks[] = {
    {"on_interrupt", check_call},
    {"handler_role", check_role},
    {"handler", check_handler},
};

} // namespace

std::span<const Check> handlers_checks() {
    return checks;
}

} // namespace idem::doctor
