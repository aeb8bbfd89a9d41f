#include "server/metrics/health_metrics.h"

#include <openssl/asn1.h>
#include <openssl/pem.h>
#include <openssl/x509.h>
#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <stdio.h>
#include <time.h>

#include <memory>

#include "absl/strings/str_cat.h"

namespace heddle::server {

void CountWorkerFailure(prometheus::Registry& registry, const std::string& state) {
  // A family that is there already is found again.
  prometheus::BuildCounter()
      .Name("heddle_worker_failures_total")
      .Help("Workers of devices that failed, by what became of them")
      .Register(registry)
      .Add({{"state", state}})
      .Increment();
}

void SetBuildInfo(prometheus::Registry& registry, const std::string& version, int generator) {
  prometheus::BuildGauge()
      .Name("heddle_build_info")
      .Help("What runs; always 1")
      .Register(registry)
      .Add({{"version", version}, {"generator", std::to_string(generator)}})
      .Set(1);
}

absl::StatusOr<absl::Time> CertificateExpiry(const std::string& file) {
  const std::unique_ptr<FILE, int (*)(FILE*)> in(fopen(file.c_str(), "re"), fclose);
  if (in == nullptr) return absl::InvalidArgumentError(absl::StrCat(file, ": cannot be read"));
  const std::unique_ptr<X509, void (*)(X509*)> certificate(
      PEM_read_X509(in.get(), nullptr, nullptr, nullptr), X509_free);
  struct tm end = {};
  if (certificate == nullptr || ASN1_TIME_to_tm(X509_get0_notAfter(certificate.get()), &end) != 1) {
    return absl::InvalidArgumentError(absl::StrCat(file, ": holds no certificate in PEM"));
  }
  return absl::FromTimeT(timegm(&end));
}

void SetCertificateExpiry(prometheus::Registry& registry, const std::string& name,
                          absl::Time when) {
  prometheus::BuildGauge()
      .Name("heddle_certificate_expiry_timestamp_seconds")
      .Help("When the certificate is no longer valid, in seconds since 1970")
      .Register(registry)
      .Add({{"certificate", name}})
      .Set(static_cast<double>(absl::ToUnixSeconds(when)));
}

void SetReplicaAsOf(prometheus::Registry& registry, absl::Time when) {
  prometheus::BuildGauge()
      .Name("heddle_replica_as_of_timestamp_seconds")
      .Help("When the primary was as this replica is, in seconds since 1970")
      .Register(registry)
      .Add({})
      .Set(static_cast<double>(absl::ToUnixMillis(when)) / 1000);
}

}  // namespace heddle::server
