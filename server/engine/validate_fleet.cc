// Requests of the service Fleet: of daemons, and of who administrates them.
#include <algorithm>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/str_cat.h"
#include "measure/codegen/dialects.h"
#include "proto/values.h"
#include "server/engine/validate.h"
#include "server/engine/validate_fields.h"

namespace heddle::server {
namespace {

constexpr size_t kMaxDetail = 16 << 10;         // bytes of a reason: daemons cut theirs to 4 KiB
constexpr int64_t kMaxSize = int64_t{1} << 50;  // of anything that a device may have
constexpr int kMaxHeld = 1024;                  // leases and candidates of a daemon
constexpr double kMaxWait = 25;

void CheckSession(const std::string& session, Violations& wrong) {
  if (session.empty() || session.size() > kMaxText) {
    wrong.Add("session", "must be what Register returned");
  }
}

void CheckDeviceState(const v1::DeviceState& state, const std::string& field, Violations& wrong) {
  CheckAmount(state.sm_clock_mhz(), field + ".sm_clock_mhz", wrong);
  CheckAmount(state.max_sm_clock_mhz(), field + ".max_sm_clock_mhz", wrong);
  CheckCount(state.other_processes(), INT32_MAX, field + ".other_processes", wrong);
}

// Of a device; 0 = not known. Nothing is a hundred times as fast as the fastest there is.
void CheckRates(double peak_gflops, double memory_gbs, const std::string& prefix,
                Violations& wrong) {
  constexpr double kMostGflops = 1e7, kMostGbs = 1e6;
  const std::tuple<const char*, double, double> rates[] = {
      {"peak_gflops", peak_gflops, kMostGflops}, {"memory_gbs", memory_gbs, kMostGbs}};
  for (const auto& [name, rate, most] : rates) {
    if (rate >= 0 && rate <= most) continue;
    wrong.Add(prefix + name, absl::StrCat(rate, " is not in 0 .. ", most));
  }
}

// What the search divides by or multiplies with.
void CheckTarget(const v1::Target& target, const std::string& field, Violations& wrong) {
  if (target.name().empty()) wrong.Add(field + ".name", "must be the device's model");
  CheckText(target.name(), field + ".name", wrong);
  CheckText(target.arch(), field + ".arch", wrong);
  if (measure::FindDialect(target.api()) == nullptr) wrong.Add(field + ".api", KnownApis());
  const std::tuple<const char*, int64_t, int64_t> sizes[] = {
      {"max_threads_per_block", target.max_threads_per_block(), 1},
      {"max_shared_bytes_per_block", target.max_shared_bytes_per_block(), 0},
      {"static_shared_bytes", target.static_shared_bytes(), 0},
      {"shared_bytes_per_sm", target.shared_bytes_per_sm(), 0},
      {"registers_per_sm", target.registers_per_sm(), 1},
      {"max_registers_per_thread", target.max_registers_per_thread(), 1},
      {"max_threads_per_sm", target.max_threads_per_sm(), 1},
      {"max_blocks_per_sm", target.max_blocks_per_sm(), 1},
      {"max_grid", target.max_grid(), 1},
      {"warp_size", target.warp_size(), 1},
      {"sm_count", target.sm_count(), 1},
      {"l2_bytes", target.l2_bytes(), 0},
      {"memory_bytes", target.memory_bytes(), 0}};
  for (const auto& [name, value, least] : sizes) {
    if (value >= least && value <= kMaxSize) continue;
    wrong.Add(absl::StrCat(field, ".", name),
              absl::StrCat(value, " is not in ", least, " .. ", kMaxSize));
  }
  CheckAmount(target.clock_ghz(), field + ".clock_ghz", wrong);
  CheckRates(target.peak_gflops(), target.memory_gbs(), field + ".", wrong);
}

void CheckResult(const v1::TrialResult& result, const std::string& field, Violations& wrong) {
  CheckChosen(result.outcome(), field + ".outcome", wrong);
  const std::pair<const char*, double> times[] = {
      {"time_us", result.time_us()},
      {"ci_low_us", result.ci_low_us()},
      {"ci_high_us", result.ci_high_us()},
      {"compile_duration", SecondsOf(result.compile_duration())},
      {"load_duration", SecondsOf(result.load_duration())},
      {"validate_duration", SecondsOf(result.validate_duration())},
      {"time_duration", SecondsOf(result.time_duration())}};
  for (const auto& [name, value] : times) CheckAmount(value, absl::StrCat(field, ".", name), wrong);
  if (result.outcome() == v1::OUTCOME_OK && !(result.time_us() > 0)) {
    wrong.Add(field + ".time_us", "must be positive, as the outcome is OK");
  }
  if (result.ci_low_us() > result.ci_high_us() && result.ci_high_us() >= 0) {
    wrong.Add(field + ".ci_low_us", "must not be above ci_high_us");
  }
  const std::pair<const char*, int64_t> counts[] = {{"samples", result.samples()},
                                                    {"registers", result.registers()},
                                                    {"local_bytes", result.local_bytes()},
                                                    {"shared_bytes", result.shared_bytes()}};
  for (const auto& [name, value] : counts) {
    CheckCount(value, kMaxSize, absl::StrCat(field, ".", name), wrong);
  }
  // Without bound where an output is no number.
  if (result.max_error() < 0) wrong.Add(field + ".max_error", "must not be negative");
  CheckText(result.source_hash(), field + ".source_hash", wrong);
}

}  // namespace

absl::Status Check(const v1::RegisterRequest& request) {
  Violations wrong;
  if (!IsName(request.host_uuid(), 64, "-")) {
    wrong.Add("host_uuid", "1 to 64 letters, digits or '-'");
  }
  CheckText(request.boot_id(), "boot_id", wrong);
  if (!request.instance().empty() && !IsName(request.instance(), 64, "-")) {
    wrong.Add("instance", "at most 64 letters, digits or '-'");
  }
  CheckText(request.hostname(), "hostname", wrong);
  CheckText(request.build(), "build", wrong);
  if (request.generator() <= 0) wrong.Add("generator", "must be the generator's version");
  CheckSize(request.devices_size(), kMaxDevices, "devices", wrong);
  std::set<std::string> ids;
  for (int i = 0; i < std::min(request.devices_size(), kMaxDevices); ++i) {
    const v1::Device& device = request.devices(i);
    const std::string path = absl::StrCat("devices[", i, "]");
    if (!IsName(device.id(), 64, ":-_.") || !ids.insert(device.id()).second) {
      wrong.Add(path + ".id", "1 to 64 letters, digits, ':', '-', '_' or '.', unique in a session");
    }
    CheckTarget(device.target(), path + ".target", wrong);
    CheckText(device.uuid(), path + ".uuid", wrong);
    CheckText(device.driver(), path + ".driver", wrong);
    CheckText(device.compiler(), path + ".compiler", wrong);
    if (!device.usable()) wrong.Add(path + ".usable", "must be true: register usable devices only");
    CheckText(device.why_not(), path + ".why_not", wrong, kMaxDetail);
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::AcquireRequest& request) {
  Violations wrong;
  CheckSession(request.session(), wrong);
  CheckText(request.device(), "device", wrong);
  CheckRequestId(request.request_id(), "request_id", wrong);
  if (request.max() < 1 || request.max() > kMaxCandidates) {
    wrong.Add("max", absl::StrCat("1 to ", kMaxCandidates));
  }
  const double wait = SecondsOf(request.wait_duration());
  if (!(wait >= 0 && wait <= kMaxWait)) {
    wrong.Add("wait_duration", absl::StrCat("0 to ", kMaxWait, " seconds"));
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::ReportRequest& request) {
  Violations wrong;
  CheckSession(request.session(), wrong);
  if (request.lease() <= 0) wrong.Add("lease", "must be a lease's id");
  if (request.results_size() < 1 || request.results_size() > kMaxCandidates) {
    wrong.Add("results", absl::StrCat("1 to ", kMaxCandidates));
  }
  for (int i = 0; i < std::min(request.results_size(), kMaxCandidates); ++i) {
    const v1::CandidateResult& reported = request.results(i);
    const std::string path = absl::StrCat("results[", i, "]");
    if (reported.candidate() <= 0) wrong.Add(path + ".candidate", "must be a candidate's id");
    CheckResult(reported.result(), path + ".result", wrong);
    CheckDeviceState(reported.device_state(), path + ".device_state", wrong);
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::HeartbeatRequest& request) {
  Violations wrong;
  CheckSession(request.session(), wrong);
  CheckSize(request.device_states_size(), kMaxDevices, "device_states", wrong);
  for (int i = 0; i < std::min(request.device_states_size(), kMaxDevices); ++i) {
    const v1::WorkerStatus& status = request.device_states(i);
    const std::string path = absl::StrCat("device_states[", i, "]");
    CheckText(status.device(), path + ".device", wrong);
    CheckChosen(status.state(), path + ".state", wrong);
    CheckDeviceState(status.device_state(), path + ".device_state", wrong);
    CheckText(status.detail(), path + ".detail", wrong, kMaxDetail);
  }
  CheckSize(request.running_size(), kMaxHeld, "running", wrong);
  CheckSize(request.leases_size(), kMaxHeld, "leases", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::ReleaseRequest& request) {
  Violations wrong;
  CheckSession(request.session(), wrong);
  if (request.lease() <= 0) wrong.Add("lease", "must be a lease's id");
  CheckSize(request.unstarted_size(), kMaxCandidates, "unstarted", wrong);
  CheckEnum(request.fault(), "fault", wrong);
  if (v1::ReleaseRequest::Fault_IsValid(request.fault()) &&
      request.fault() > v1::ReleaseRequest::FAULT_NONE && request.detail().empty()) {
    wrong.Add("detail", "must say what the fault is");
  }
  CheckText(request.detail(), "detail", wrong, kMaxDetail);
  return wrong.ToStatus();
}

template <typename Request>
absl::Status CheckList(const Request& request) {
  Violations wrong;
  CheckPageSize(request.page_size(), wrong);
  return wrong.ToStatus();
}
absl::Status Check(const v1::ListDevicesRequest& request) { return CheckList(request); }
absl::Status Check(const v1::ListModelsRequest& request) { return CheckList(request); }
absl::Status Check(const v1::ListHostsRequest& request) { return CheckList(request); }

absl::Status Check(const v1::SetDeviceStateRequest& request) {
  Violations wrong;
  if (request.name().empty() || request.name().size() > kMaxText) {
    wrong.Add("name", "must be the name of a device, as `ListDevices` has it");
  }
  if (request.state() != v1::FleetDevice::STATE_ENABLED &&
      request.state() != v1::FleetDevice::STATE_DRAINING) {
    wrong.Add("state", "STATE_ENABLED or STATE_DRAINING");
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::PinModelRequest& request) {
  Violations wrong;
  if (request.name().empty()) wrong.Add("name", "must be the model, as `ListModels` has it");
  CheckText(request.name(), "name", wrong);
  CheckText(request.device(), "device", wrong);
  CheckRates(request.peak_gflops(), request.memory_gbs(), "", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::SetHostRequest& request) {
  Violations wrong;
  if (!IsName(request.host_uuid(), 64, "-")) {
    wrong.Add("host_uuid", "must be that of a host, as `ListHosts` has it");
  }
  CheckChosen(request.action(), "action", wrong);
  return wrong.ToStatus();
}

}  // namespace heddle::server
