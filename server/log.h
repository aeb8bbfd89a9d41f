// The service's log: one JSON object a line on standard error.
#ifndef HEDDLE_SERVER_LOG_H_
#define HEDDLE_SERVER_LOG_H_

#include <nlohmann/json.hpp>
#include <string>

namespace heddle::server {

enum class Severity : uint8_t { kInfo, kWarning, kError };

// {"time": ..., "severity": ..., "event": ..., FIELDS}. `event` is a constant that can be searched
// for, such as "job_ended". Fields never hold tokens or request metadata. Thread-safe.
void Log(Severity severity, const std::string& event,
         const nlohmann::json& fields = nlohmann::json::object());

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_LOG_H_
