#include "measure/device/backend.h"

#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "measure/device/device.h"

namespace heddle::measure {
namespace {

constexpr const Backend* kBackends[] = {&kCudaBackend, &kOpenClBackend, &kFakeBackend};

}  // namespace

absl::Span<const Backend* const> Backends() { return kBackends; }

const Backend* FindBackend(const std::string& device_id) {
  for (const Backend* backend : kBackends) {
    if (device_id.substr(0, device_id.find(':')) == backend->name) return backend;
  }
  return nullptr;
}

const Backend& BackendOf(const DeviceInfo& device) {
  if (const Backend* named = FindBackend(device.id)) return *named;
  for (const Backend* backend : kBackends) {
    if (backend->api == device.target.api) return *backend;
  }
  HEDDLE_CHECK(false, "an API without a back end");
}

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& id) {
  const Backend* const backend = FindBackend(id);
  const std::pair<std::string, std::string> parts = absl::StrSplit(id, absl::MaxSplits(':', 1));
  int index = -1;
  if (backend != nullptr && absl::SimpleAtoi(parts.second, &index)) return backend->open(index);
  return absl::InvalidArgumentError(
      absl::StrCat("no device is called '", id, "': write cuda:N or opencl:N, N from 0"));
}

}  // namespace heddle::measure
