#include <cstring>

#include "core/json_pointer.hpp"
#include "pg/account.hpp"

#include "pg/json.hpp"
#include "pg/pg.hpp"
#include "pg/settings.hpp"

namespace idem::pg {

namespace {

constexpr std::string_view setting_prefix = "setting:";

[[noreturn]] void raise_not_permitted() {
    ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("permission denied for this account"),
                    errhint("The setting \"pg_idem.account_from\" says whose operations a session may call.")));
    pg_unreachable();
}

char* terminated(std::string_view text) {
    return pnstrdup(text.data(), text.size());
}

// The user outside of any SECURITY DEFINER function, after SET ROLE.
bool is_role_of_caller(std::string_view account) {
    if (account.size() >= NAMEDATALEN) {
        return false;
    }
    const Oid role = get_role_oid(terminated(account), true);
    return OidIsValid(role) && is_member_of_role(GetOuterUserId(), role);
}

bool equals_setting(std::string_view rule, std::string_view account) {
    const std::size_t hash = rule.find('#');
    const char* value = GetConfigOption(terminated(rule.substr(0, hash)), true, false);
    if (value == nullptr || value[0] == '\0') {
        return false;
    }
    if (hash == std::string_view::npos) {
        return account == value;
    }
    const char* member = json_text_at(value, rule.substr(hash + 1));
    return member != nullptr && account == member;
}

} // namespace

bool is_account_rule(const char* rule_) noexcept {
    const std::string_view rule = rule_;
    if (rule == "argument" || rule == "role") {
        return true;
    }
    if (!rule.starts_with(setting_prefix)) {
        return false;
    }
    const std::string_view rest = rule.substr(setting_prefix.size());
    const std::size_t hash = rest.find('#');
    return hash != 0 && !rest.empty() &&
           (hash == std::string_view::npos || core::is_json_pointer(rest.substr(hash + 1)));
}

bool is_account_permitted(std::string_view account) {
    if (settings.account_from_is_forged) {
        ereport(ERROR, (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE),
                        errmsg("setting \"pg_idem.account_from\" was given by the client"),
                        errhint("Add pg_idem to shared_preload_libraries, and do not set it in connection options.")));
    }
    const std::string_view rule = settings.account_from;
    if (rule == "argument") {
        return true;
    }
    if (rule == "role") {
        return is_role_of_caller(account);
    }
    if (!is_account_rule(settings.account_from)) {
        ereport(ERROR,
                (errcode(ERRCODE_INSUFFICIENT_PRIVILEGE), errmsg("setting \"pg_idem.account_from\" is not valid"),
                 errhint("Set \"pg_idem.account_from\" to \"argument\", \"role\", \"setting:NAME\" or "
                         "\"setting:NAME#/json/pointer\" where it is set: in the configuration file, or for the "
                         "role or database.")));
    }
    return equals_setting(rule.substr(setting_prefix.size()), account);
}

void check_account(std::string_view account) {
    if (!is_account_permitted(account)) {
        raise_not_permitted();
    }
}

} // namespace idem::pg
