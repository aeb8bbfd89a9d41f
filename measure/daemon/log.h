// The daemon's log: one JSON object a line on standard error.
#ifndef HEDDLE_MEASURE_DAEMON_LOG_H_
#define HEDDLE_MEASURE_DAEMON_LOG_H_

#include <nlohmann/json.hpp>
#include <string>

namespace heddle::measure {

// {"time": ..., "severity": "info", "event": ..., FIELDS}. `event` is a constant that can be
// searched for. Thread-safe.
void LogEvent(const std::string& severity, const std::string& event,
              const nlohmann::json& fields = nlohmann::json::object());

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DAEMON_LOG_H_
