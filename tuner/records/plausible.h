// Whether a time that somebody else has measured can be true.
#ifndef HEDDLE_TUNER_RECORDS_PLAUSIBLE_H_
#define HEDDLE_TUNER_RECORDS_PLAUSIBLE_H_

#include <string>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "tuner/records/records_fields.h"

namespace heddle::tuner {

// Remembers what it has worked out: one for many rows.
class Plausibility {
 public:
  // InvalidArgument: an OK time below measure::FastestPlausible of the device model, or, of a model
  // that does not ship with the program, of a device twice as fast as any that does. A workload
  // that this program cannot read is not judged: nothing can be made of its trials either.
  absl::Status Check(const StoredTrial& stored);

 private:
  double FastestOf(const StoredTrial& stored);  // microseconds
  absl::flat_hash_map<std::string, double> fastest_us_;
};

// A line of others' trials: what ParseLine makes of it, if its time can be true.
absl::StatusOr<StoredTrial> ReadPlausible(const std::string& line, Plausibility& plausibility);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_PLAUSIBLE_H_
