#include "protocol/publish.hpp"

#include "pg/clock.hpp"
#include "pg/durability.hpp"
#include "pg/random.hpp"
#include "protocol/run.hpp"

namespace idem::protocol {

core::Token publish(store::Message message) {
    int attempt = 0;
    message.created_at = pg::now();
    message.id = pg::ordered_uuid(message.created_at);
    message.has_operation = find_current(message.operation, attempt);
    store::insert_message(message);
    pg::require_durable_commit();
    return message.id;
}

} // namespace idem::protocol
