// Where Prometheus reads what a process counts. For those who link prometheus-cpp::pull.
#ifndef HEDDLE_BASE_METRICS_PORT_H_
#define HEDDLE_BASE_METRICS_PORT_H_

#include <prometheus/exposer.h>
#include <prometheus/registry.h>

#include <exception>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"

namespace heddle {

// Serves http://ADDRESS/metrics for as long as the result lives. Unavailable when the port cannot
// be had.
inline absl::StatusOr<std::unique_ptr<prometheus::Exposer>> ServeMetrics(
    const std::string& address, const std::shared_ptr<prometheus::Registry>& registry) {
  try {
    auto exposer = std::make_unique<prometheus::Exposer>(address, /*num_threads=*/1);
    exposer->RegisterCollectable(registry);
    return exposer;
  } catch (const std::exception& error) {
    return absl::UnavailableError(absl::StrCat("metrics cannot be served on ", address, ": ",
                                               error.what(), "; give another --metrics"));
  }
}

}  // namespace heddle

#endif  // HEDDLE_BASE_METRICS_PORT_H_
