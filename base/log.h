// The log of the service's processes: one JSON object a line on standard error.
#ifndef HEDDLE_BASE_LOG_H_
#define HEDDLE_BASE_LOG_H_

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

namespace heddle {

enum class Severity : uint8_t { kInfo, kWarning, kError };

// {"time": ..., "severity": "info", "event": ..., "pid": ..., FIELDS}. `event` is a constant that
// can be searched for, such as "job_ended". Fields never hold tokens or request metadata.
// Thread-safe.
void LogEvent(Severity severity, const std::string& event,
              const nlohmann::json& fields = nlohmann::json::object());

}  // namespace heddle

#endif  // HEDDLE_BASE_LOG_H_
