// The rows that idem_doctor returns.
#pragma once

#include <cstdint>

#include "pg/pg.hpp"

namespace idem::doctor {

// From harmless to dangerous.
enum class Status : std::uint8_t { ok, info, warning, critical };

// A check calls info, warning or critical for each finding, and ok at its end, which counts only where nothing was
// found. `detail` names what was found, never a key or what is stored under it; `advice` is one sentence.
class Report {
public:
    explicit Report(ReturnSetInfo* set) : result(set) {}

    void ok(const char* detail);
    void info(const char* detail, const char* advice) { find(Status::info, detail, advice); }
    void warning(const char* detail, const char* advice) { find(Status::warning, detail, advice); }
    void critical(const char* detail, const char* advice) { find(Status::critical, detail, advice); }

    // Around each check. Of a great many findings only the first are shown.
    void begin(const char* name);
    void end();
    // The check raised an error.
    void cannot(const ErrorData& error);

private:
    void find(Status status, const char* detail, const char* advice);
    void put(Status status, const char* detail, const char* advice);

    ReturnSetInfo* result;
    const char* check = nullptr;
    int found = 0;
    Status worst_hidden = Status::ok;
};

} // namespace idem::doctor
