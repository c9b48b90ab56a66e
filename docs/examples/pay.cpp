// One payment in one transaction, from libpqxx.
// prints: claimed; completed; mismatch
#include <iostream>
#include <pqxx/pqxx>
#include <string>

std::string pay(pqxx::connection& connection, const std::string& account, const std::string& key, int amount) {
    pqxx::work transaction(connection); // rolled back if not committed
    const std::string request = "{\"amount\": " + std::to_string(amount) + "}";
    const auto outcome =
        transaction
            .exec_params1("SELECT outcome FROM idem_claim($1, 'pay', $2, request => $3)", account, key, request)[0]
            .as<std::string>();
    if (outcome == "claimed" || outcome == "recovered") {
        const auto id = transaction.exec_params1("INSERT INTO payments (account, amount) VALUES ($1, $2) RETURNING id",
                                                 account, amount)[0];
        const std::string result = "{\"payment\": " + id.as<std::string>() + "}";
        transaction.exec_params1("SELECT idem_complete($1, 'pay', $2, result => $3)", account, key, result);
    }
    transaction.commit();
    return outcome;
}

int main() {
    pqxx::connection connection;
    for (const int amount : {10, 10, 11}) {
        std::cout << pay(connection, "acme", "k1", amount) << '\n';
    }
}
