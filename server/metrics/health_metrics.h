// What an operator's alerts rest on and one place each knows of; metrics.h has what the engine
// counts.
#ifndef HEDDLE_SERVER_METRICS_HEALTH_METRICS_H_
#define HEDDLE_SERVER_METRICS_HEALTH_METRICS_H_

#include <prometheus/registry.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heddle::server {

// heddle_worker_failures_total{state}: a device's worker was told to be RESTARTING, UNHEALTHY or
// WEDGED when it was not before.
void CountWorkerFailure(prometheus::Registry& registry, const std::string& state);

// heddle_build_info{version,generator} is 1.
void SetBuildInfo(prometheus::Registry& registry, const std::string& version, int generator);

// When the first certificate of a PEM file is no longer valid. InvalidArgument where there is none.
absl::StatusOr<absl::Time> CertificateExpiry(const std::string& file);
// heddle_certificate_expiry_timestamp_seconds{certificate}: `name` says whose it is, "server".
void SetCertificateExpiry(prometheus::Registry& registry, const std::string& name, absl::Time when);

// heddle_replica_as_of_timestamp_seconds: when the primary was as this replica is.
void SetReplicaAsOf(prometheus::Registry& registry, absl::Time when);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_METRICS_HEALTH_METRICS_H_
