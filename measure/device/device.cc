#include "measure/device/device.h"

namespace heddle::measure {

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

}  // namespace heddle::measure
