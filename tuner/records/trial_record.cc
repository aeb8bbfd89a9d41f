#include "tuner/records/trial_record.h"

#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/host.h"
#include "measure/codegen/codegen.h"
#include "tuner/records/feature_version.h"

namespace heddle::tuner {

Environment MakeEnvironment(const measure::DeviceInfo& device, measure::L2Policy l2) {
  Environment environment;
  environment.device_name = device.target.name;
  environment.device_uuid = device.uuid;
  environment.arch = device.target.arch;
  environment.sm_count = device.target.sm_count;
  environment.driver = device.driver;
  environment.compiler = device.compiler;
  environment.generator_version = measure::kGeneratorVersion;
  environment.feature_version = kFeatureVersion;
  environment.l2 = l2;
  if (!device.target.processor) {
    environment.memory_mib = device.target.memory_bytes >> 20;
    environment.power_limit_w = device.power_limit_w;
  }
  return environment;
}

Bench BenchOf(const Environment& e) {
  return {e.device_name, e.l2, e.sm_count, e.memory_mib, e.power_limit_w};
}

Bench BenchOf(const measure::DeviceInfo& device, measure::L2Policy l2) {
  return BenchOf(MakeEnvironment(device, l2));
}

// SelectBenches() says the same of rows.
bool Agree(const Bench& a, const Bench& b) {
  const auto same = [](int64_t x, int64_t y) { return x == y || x == 0 || y == 0; };
  return a.device_name == b.device_name && a.l2 == b.l2 && same(a.sm_count, b.sm_count) &&
         (same(a.memory_mib, b.memory_mib) ||
          std::abs(a.memory_mib - b.memory_mib) * 10 <= b.memory_mib) &&
         same(a.power_limit_w, b.power_limit_w);
}

Provenance LocalProvenance() {
  // Once a process: its runs are one run.
  static const auto& here = *new Provenance{
      "", 0, HostId(),
      absl::StrCat(absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone()), "-",
                   getpid())};
  return here;
}

}  // namespace heddle::tuner
