#include "measure/device/device.h"

#include <cstdlib>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "measure/device/drivers.h"

namespace heddle::measure {
namespace {

#ifndef HEDDLE_WITH_CUDA
constexpr char kNoCuda[] =
    "this program was built without CUDA: build it where the CUDA toolkit is installed";
#endif

}  // namespace

Outcome OutcomeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return Outcome::kOk;
    case absl::StatusCode::kResourceExhausted:
      return Outcome::kResourceLimit;
    case absl::StatusCode::kAborted:
      return Outcome::kIllegalAccess;
    case absl::StatusCode::kDeadlineExceeded:
      return Outcome::kRunTimeout;
    case absl::StatusCode::kUnavailable:
      return Outcome::kWorkerLost;
    default:
      return Outcome::kLaunchError;
  }
}

absl::StatusOr<std::unique_ptr<Device>> OpenDevice(const std::string& id) {
  absl::string_view number = id;
  int index = -1;
  if (absl::ConsumePrefix(&number, "cuda:") && absl::SimpleAtoi(number, &index)) {
    return OpenCudaDevice(index);
  }
  if (absl::ConsumePrefix(&number, "opencl:") && absl::SimpleAtoi(number, &index)) {
    return OpenOpenClDevice(index);
  }
  if (id == "fake:0") return OpenFakeDevice();
  return absl::InvalidArgumentError(
      absl::StrCat("no device is called '", id, "': write cuda:N or opencl:N, N from 0"));
}

#ifndef HEDDLE_WITH_CUDA
absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(int) {
  return absl::UnavailableError(kNoCuda);
}

std::vector<DeviceInfo> DetectCudaDevices() {
  DeviceInfo info;
  info.id = "cuda:0";
  info.usable = false;
  info.why_not = kNoCuda;
  return {info};
}
#endif

}  // namespace heddle::measure
