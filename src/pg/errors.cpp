#include <cstring>

#include "pg/errors.hpp"

extern "C" {
#include "mb/pg_wchar.h"
}

namespace idem::pg {

void copy_message(char* to, std::size_t size, const char* message) {
    const int all = static_cast<int>(std::strlen(message));
    const int bytes = pg_mbcliplen(message, all, static_cast<int>(size) - 1);
    std::memcpy(to, message, static_cast<std::size_t>(bytes));
    to[bytes] = '\0';
}

namespace {

core::IdentityText describe(const core::Identity& identity) {
    const int shown =
        pg_mbcharcliplen(identity.key.data(), static_cast<int>(identity.key.size()), core::shown_key_characters);
    return core::describe(identity, static_cast<std::size_t>(shown));
}

} // namespace

int errdetail_identity(const core::Identity& identity) {
    return errdetail_internal("%s", describe(identity).text);
}

void errcontext_identity(const char* what, const core::Identity& identity) {
    errcontext("%s: %s", what, describe(identity).text);
}

void raise_not_settled(const core::Identity& identity) {
    ereport(ERROR,
            (errcode(errcode_not_settled), errmsg("claimed operation was not settled"), errdetail_identity(identity),
             errhint("Call idem_complete, idem_fail or idem_release in the transaction that claims, or use idem_run. "
                     "Give idem_claim a lease for work outside the database.")));
    pg_unreachable();
}

void raise_not_owner(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_not_owner), errmsg("not the owner of the operation"), errdetail_identity(identity),
                    errhint("Another attempt may hold the claim. Roll back, and claim again to learn the outcome.")));
    pg_unreachable();
}

void raise_doomed(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_not_owner), errmsg("transaction of a former owner cannot commit"),
                    errdetail_identity(identity),
                    errhint("The operation was taken over, settled, or put in review. Roll back, and claim again to "
                            "learn the outcome.")));
    pg_unreachable();
}

void raise_not_claimed(const core::Identity& identity) {
    ereport(ERROR,
            (errcode(errcode_not_claimed), errmsg("operation is not claimed by this transaction"),
             errdetail_identity(identity),
             errhint("Settle only after idem_claim answered \"claimed\" or \"recovered\": in the same transaction, or "
                     "with the token of a leased claim.")));
    pg_unreachable();
}

void raise_already_settled(const core::Identity& identity) {
    ereport(ERROR,
            (errcode(errcode_already_settled), errmsg("operation is already settled"), errdetail_identity(identity),
             errhint("Roll back, and use idem_lookup or idem_claim to get the recorded outcome.")));
    pg_unreachable();
}

void raise_fingerprint_required(const core::Identity& identity) {
    ereport(ERROR,
            (errcode(errcode_fingerprint_required), errmsg("request or fingerprint is required"),
             errdetail_identity(identity),
             errhint("Give the inputs of the operation as request or fingerprint, so that another use of the key is "
                     "noticed.")));
    pg_unreachable();
}

void raise_outcome_too_large(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_outcome_too_large), errmsg("outcome is larger than the policy allows"),
                    errdetail_identity(identity),
                    errhint("Store a reference to the result, or raise max_outcome_bytes in idem_policies.")));
    pg_unreachable();
}

void raise_bad_key_format(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_bad_key_format), errmsg("key is not in the format that the policy requires"),
                    errdetail_identity(identity), errhint("See key_format in idem_policies.")));
    pg_unreachable();
}

void raise_issued_in_future(const core::Identity& identity) {
    ereport(ERROR,
            (errcode(errcode_bad_key_format), errmsg("request was issued in the future"), errdetail_identity(identity),
             errhint("Check the clock of the caller: more than the tolerated skew lies between.")));
    pg_unreachable();
}

void raise_swallowed_reject(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_rejected), errmsg("handler rejected the operation and went on"),
                    errdetail_identity(identity),
                    errhint("Do not catch the error of idem_reject in the handler, or catch it and raise it again.")));
    pg_unreachable();
}

void raise_mismatch(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_mismatch), errmsg("key was used before with other inputs"),
                    errdetail_identity(identity), errhint("Use a new key for a new operation.")));
    pg_unreachable();
}

void raise_in_review(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_in_review), errmsg("operation is in review"), errdetail_identity(identity),
                    errhint("An operator must decide about it. Roll back.")));
    pg_unreachable();
}

void raise_effect_open(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_effect_open), errmsg("operation has an effect whose fate is open"),
                    errdetail_identity(identity),
                    errhint("Ask the provider what became of it, and record the answer with idem_effect_report. "
                            "idem_open_effects lists what is open.")));
    pg_unreachable();
}

void raise_effect_mismatch(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_mismatch), errmsg("effect was recorded before with another request"),
                    errdetail_identity(identity), errhint("Give every effect of an operation a name of its own.")));
    pg_unreachable();
}

void raise_contradicting_report(const core::Identity& identity) {
    ereport(
        ERROR,
        (errcode(errcode_already_settled), errmsg("report contradicts what was reported before"),
         errdetail_identity(identity),
         errhint("The first report stays. Find out what the provider did: it may have been done twice, or undone.")));
    pg_unreachable();
}

void raise_already_claimed(const core::Identity& identity) {
    ereport(ERROR,
            (errcode(errcode_already_claimed), errmsg("operation is already claimed by this transaction"),
             errdetail_identity(identity),
             errhint("Call idem_claim once, in FROM: SELECT * FROM idem_claim(...). \"(idem_claim(...)).*\" calls "
                     "it for every column.")));
    pg_unreachable();
}

void raise_too_many_claims(int limit) {
    ereport(ERROR, (errcode(ERRCODE_OUT_OF_MEMORY), errmsg("too many claims in one transaction"),
                    errdetail("The limit is %d.", limit),
                    errhint("Commit in smaller batches, or raise \"pg_idem.max_claims_per_transaction\" together with "
                            "\"max_locks_per_transaction\".")));
    pg_unreachable();
}

void raise_not_in_flight(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_not_claimed), errmsg("operation is not in flight"), errdetail_identity(identity),
                    errhint("Nothing is stored of it. Claim it to carry it out, or to fail it.")));
    pg_unreachable();
}

void raise_moved_on(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_not_owner), errmsg("operation has moved on to another attempt"),
                    errdetail_identity(identity), errhint("Look at it with idem_lookup, and decide again.")));
    pg_unreachable();
}

void raise_claimed_here(const core::Identity& identity) {
    ereport(ERROR, (errcode(errcode_already_claimed), errmsg("operation is already claimed by this transaction"),
                    errdetail_identity(identity), errhint("Call idem_complete, idem_fail or idem_release for it.")));
    pg_unreachable();
}

void raise_in_flight(const core::Identity& identity) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("operation is in flight"), errdetail_identity(identity),
                    errhint("Decide about it with idem_resolve, or wait until it is settled.")));
    pg_unreachable();
}

void raise_held_here(const core::Identity& identity) {
    ereport(ERROR, (errcode(ERRCODE_OBJECT_IN_USE), errmsg("operation was claimed or settled by this transaction"),
                    errdetail_identity(identity), errhint("Commit first.")));
    pg_unreachable();
}

void raise_session_bound_prepared(const core::Identity& identity) {
    ereport(ERROR, (errcode(ERRCODE_FEATURE_NOT_SUPPORTED),
                    errmsg("cannot prepare a transaction that has made a session-bound claim"),
                    errdetail_identity(identity), errhint("Claim without session_bound.")));
    pg_unreachable();
}

void raise_altered(const char* object, const char* how) {
    ereport(ERROR,
            (errcode(ERRCODE_FEATURE_NOT_SUPPORTED), errmsg("object \"%s\" of extension pg_idem was altered", object),
             errdetail("It %s.", how),
             errhint("pg_idem reaches its tables directly and would bypass that: undo the change. An index that is not "
                     "unique may be added, and a column that may be NULL and has no default.")));
    pg_unreachable();
}

} // namespace idem::pg
