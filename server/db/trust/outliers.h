// Hosts whose finals others contradict: what an administrator looks at before he retracts
// (docs/service.md).
#ifndef HEDDLE_SERVER_DB_TRUST_OUTLIERS_H_
#define HEDDLE_SERVER_DB_TRUST_OUTLIERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "tuner/records/records.h"

namespace heddle::server {

// One that is contradicted at least once.
struct Outlier {
  std::string host;
  int64_t compared = 0;      // schedules that it and others have finals of, on one bench
  int64_t contradicted = 0;  // of them
  int64_t others = 0;        // hosts that contradict it
  double ratio = 0;          // median of its times over the median of the others'
  absl::Time first, last;    // when the contradicted finals were measured
};

// Compares, schedule by schedule and bench by bench, the newest final of each host that was
// measured or collected, not imported. Two differ when their confidence intervals do not overlap
// and their times are further apart than hosts that agree may be (Agree, confirmations.h). A host
// is contradicted where at least as many differ from it as agree with it, itself included: of two
// nobody knows which is wrong, and both are told. The most contradicted first.
absl::StatusOr<std::vector<Outlier>> FindOutliers(tuner::Records& records);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_TRUST_OUTLIERS_H_
