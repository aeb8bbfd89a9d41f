#include "measure/run/detect.h"

#include <memory>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/clock.h"
#include "base/process/subprocess.h"
#include "measure/codegen/dialects.h"
#include "measure/run/processes/messages.h"
#include "proto/worker.pb.h"

namespace heddle::measure {
namespace {

// Drivers take seconds when they are loaded for the first time after a boot.
constexpr absl::Duration kDetectionLimit = absl::Seconds(60);

DeviceInfo Unusable(const std::string& api, const std::string& why) {
  DeviceInfo device;
  device.id = absl::StrCat(api, ":0");
  device.usable = false;
  device.why_not = why;
  return device;
}

using Detection = absl::StatusOr<std::unique_ptr<Subprocess>>;

std::vector<DeviceInfo> Collect(const std::string& api, const Detection& child,
                                SteadyTime deadline) {
  if (!child.ok()) return {Unusable(api, std::string(child.status().message()))};
  worker::DeviceList list;
  absl::Status status = (*child)->Receive(list, deadline);
  if (absl::IsDeadlineExceeded(status)) {
    return {Unusable(api, absl::StrCat("the ", api, " driver did not answer within ",
                                       absl::FormatDuration(kDetectionLimit)))};
  }
  if (!status.ok()) {
    auto exit = (*child)->End(/*grace=*/absl::Seconds(2));
    return {Unusable(api, absl::StrCat("looking for ", api, " devices ended with ",
                                       exit.ok() ? exit->Describe() : "a stuck process", ": ",
                                       (*child)->Evidence()))};
  }
  std::vector<DeviceInfo> devices;
  for (const v1::Device& device : list.devices()) devices.push_back(FromProto(device));
  return devices;
}

}  // namespace

std::vector<DeviceInfo> ListDevices() {
  const SteadyTime deadline = SteadyNow() + kDetectionLimit;
  std::vector<std::pair<std::string, Detection>> children;
  for (const Dialect& dialect : Dialects()) {
    children.emplace_back(dialect.name, Subprocess::Start("__devices", {dialect.name}));
  }
  std::vector<DeviceInfo> devices;
  for (const auto& [api, child] : children) {
    for (DeviceInfo& device : Collect(api, child, deadline)) devices.push_back(std::move(device));
  }
  return devices;
}

absl::StatusOr<DeviceInfo> FindDevice(const std::string& id) {
  std::vector<DeviceInfo> devices = ListDevices();
  std::string found;
  for (DeviceInfo& device : devices) {
    if (device.usable && (id == "auto" || id == device.id)) return std::move(device);
    if (id == device.id) {
      return absl::UnavailableError(absl::StrCat(id, " cannot be used: ", device.why_not));
    }
    absl::StrAppend(&found, "\n  ", device.id, "  ",
                    device.usable ? device.target.name : "not usable: " + device.why_not);
  }
  return absl::NotFoundError(
      absl::StrCat(id == "auto" ? "there is no usable device" : "there is no device " + id,
                   found.empty() ? "" : "; this machine has:", found));
}

}  // namespace heddle::measure
