#include <string_view>

#include "pg/handler_name.hpp"

extern "C" {
#include "utils/catcache.h"
#include "utils/varlena.h"
}

namespace idem::pg {

namespace {

// Cuts the argument list off. False: there is one, and it is not "(jsonb)".
bool cut_arguments(char* text) {
    bool quoted = false;
    char* p = text;
    for (; *p != '\0' && (quoted || *p != '('); p++) {
        quoted = quoted != (*p == '"');
    }
    if (*p == '\0') {
        return true;
    }
    *p++ = '\0';
    char* to = p;
    for (const char* from = p; *from != '\0'; from++) {
        if (*from != ' ') {
            *to++ = *from;
        }
    }
    *to = '\0';
    const std::string_view arguments = p;
    return arguments == "jsonb)" || arguments == "pg_catalog.jsonb)";
}

bool exists_with_other_arguments(const char* name, Oid schema) {
    CatCList* list = SearchSysCacheList1(PROCNAMEARGSNSP, CStringGetDatum(name));
    bool found = false;
    for (int i = 0; i < list->n_members; i++) {
        const auto* proc = reinterpret_cast<const FormData_pg_proc*>(GETSTRUCT(&list->members[i]->tuple));
        found = found || proc->pronamespace == schema;
    }
    ReleaseSysCacheList(list);
    return found;
}

bool returns_one_jsonb(Oid function) {
    HeapTuple tuple = SearchSysCache1(PROCOID, ObjectIdGetDatum(function));
    if (!HeapTupleIsValid(tuple)) {
        return false;
    }
    const auto* proc = reinterpret_cast<const FormData_pg_proc*>(GETSTRUCT(tuple));
    const bool fits = proc->prokind == PROKIND_FUNCTION && !proc->proretset && proc->prorettype == JSONBOID;
    ReleaseSysCache(tuple);
    return fits;
}

} // namespace

HandlerName find_handler(const char* text) {
    constexpr const char* other_signature = "is not a function (jsonb) that returns jsonb";
    HandlerName handler;
    char* name = pstrdup(text);
    if (!cut_arguments(name)) {
        handler.wrong = other_signature;
        return handler;
    }
    List* parts = NIL;
    if (!SplitIdentifierString(name, '.', &parts) || parts == NIL || list_length(parts) > 2) {
        handler.wrong = "is not the name of a function";
        return handler;
    }
    if (list_length(parts) == 1) {
        handler.wrong = "is not qualified with a schema";
        return handler;
    }
    const char* function = static_cast<const char*>(lsecond(parts));
    handler.schema = get_namespace_oid(static_cast<const char*>(linitial(parts)), true);
    const Oid jsonb = JSONBOID;
    handler.function =
        OidIsValid(handler.schema)
            ? GetSysCacheOid3(PROCNAMEARGSNSP, Anum_pg_proc_oid, CStringGetDatum(function),
                              PointerGetDatum(buildoidvector(&jsonb, 1)), ObjectIdGetDatum(handler.schema))
            : InvalidOid;
    if (OidIsValid(handler.function) ? !returns_one_jsonb(handler.function)
                                     : exists_with_other_arguments(function, handler.schema)) {
        handler.wrong = other_signature;
    } else if (!OidIsValid(handler.function)) {
        handler.wrong = "does not exist";
    }
    return handler;
}

} // namespace idem::pg
