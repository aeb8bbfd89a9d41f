#include "measure/run/measurer.h"

#include <thread>

#include "absl/strings/cord.h"
#include "base/process/subprocess.h"

namespace heddle::measure {
namespace {

// Marks the errors that IsWedged knows.
constexpr char kWedged[] = "heddle/wedged";

}  // namespace

absl::Status WedgedError(const std::string& message) {
  absl::Status status = absl::UnavailableError(message);
  status.SetPayload(kWedged, absl::Cord());
  return status;
}

bool IsWedged(const absl::Status& status) { return status.GetPayload(kWedged).has_value(); }

absl::StatusOr<std::vector<TrialResult>> MeasureFinalistsUnless(
    const std::function<bool()>& interrupted, Measurer& measurer,
    const std::vector<Candidate>& finalists, absl::Duration budget) {
  StopSignal done;
  std::thread watcher([&] {
    while (!done.Wait(absl::Milliseconds(50))) {
      if (interrupted()) return measurer.Stop();
    }
  });
  auto results = measurer.MeasureFinalists(finalists, budget);
  done.Set();
  watcher.join();
  return results;
}

}  // namespace heddle::measure
