#include "base/log.h"

#include <unistd.h>

#include "absl/time/clock.h"
#include "absl/time/time.h"

namespace heddle {

void LogEvent(Severity severity, const std::string& event, const nlohmann::json& fields) {
  constexpr const char* kNames[] = {"info", "warning", "error"};
  nlohmann::ordered_json line{
      {"time", absl::FormatTime("%Y-%m-%dT%H:%M:%E6SZ", absl::Now(), absl::UTCTimeZone())},
      {"severity", kNames[static_cast<int>(severity)]},
      {"event", event},
      {"pid", getpid()}};
  for (const auto& [key, value] : fields.items()) line[key] = value;
  const std::string text =
      line.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
  // One write a line keeps the lines of several threads and processes whole.
  [[maybe_unused]] ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace heddle
