// What is stored now, in numbers: cheap however large the tables are.
#pragma once

#include <optional>

#include "core/time.hpp"
#include "pg/pg.hpp"

namespace idem::store {

// Counted where a table is small, else estimated from a sample of its blocks.
struct Gauges {
    int64 in_flight = 0;
    int64 interrupted = 0;
    int64 review = 0;
    std::optional<core::Time> oldest_in_flight;   // when the attempt was claimed
    std::optional<core::Time> oldest_interrupted; // since when it waits for another attempt
    std::optional<core::Time> oldest_review;
    int64 settled = 0;
    int64 expired_not_swept = 0; // their payload or row is past its time
    int64 seen = 0;
    int64 seen_not_swept = 0;
    int64 effects_open = 0; // counted, up to a hundred thousand
    int64 effects_unknown = 0;
    std::optional<core::Time> oldest_effect_unknown; // since when it is
    int64 outbox_pending = 0;
    int64 outbox_parked = 0;
    std::optional<core::Time> oldest_outbox; // when the oldest pending message was published
};

Gauges read_gauges();
Gauges read_outbox_gauges(); // those only

} // namespace idem::store
