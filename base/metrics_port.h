// What Prometheus reads of a process. For those who link prometheus-cpp::pull.
#ifndef HEDDLE_BASE_METRICS_PORT_H_
#define HEDDLE_BASE_METRICS_PORT_H_

#include <prometheus/exposer.h>
#include <prometheus/registry.h>

#include <exception>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"

namespace heddle {

// What a process counts, and where it is read.
class MetricsPort {
 public:
  // Serves http://ADDRESS/metrics for as long as this lives. Unavailable when the port cannot be
  // had.
  absl::Status Listen(const std::string& address) {
    try {
      auto exposer = std::make_unique<prometheus::Exposer>(address, /*num_threads=*/1);
      exposer->RegisterCollectable(registry_);
      exposer_ = std::move(exposer);
      return absl::OkStatus();
    } catch (const std::exception& error) {
      return absl::UnavailableError(absl::StrCat("metrics cannot be served on ", address, ": ",
                                                 error.what(), "; give another --metrics"));
    }
  }

  prometheus::Registry& registry() { return *registry_; }

 protected:
  MetricsPort() = default;
  ~MetricsPort() = default;

  const std::shared_ptr<prometheus::Registry> registry_ = std::make_shared<prometheus::Registry>();

 private:
  std::unique_ptr<prometheus::Exposer> exposer_;
};

}  // namespace heddle

#endif  // HEDDLE_BASE_METRICS_PORT_H_
