// What the database is told of a lease: results that a daemon reports, and candidates that come
// back without one. All of it runs within a write, and may run again where that is tried again.
#ifndef HEDDLE_SERVER_FLEET_LEASES_REPORT_H_
#define HEDDLE_SERVER_FLEET_LEASES_REPORT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heddle/v1/fleet.pb.h"
#include "server/fleet/leases/lease.h"
#include "tuner/records/records.h"

namespace heddle::server {

// What became of a candidate that comes back.
struct Given {
  int64_t id = 0, seq = 0;
  int kills = 0;
  bool back = false;  // else quarantined
  v1::TrialResult result;
};

// A report on its way through the database.
struct Reported {
  struct Written {
    int64_t id = 0, seq = 0;
    measure::TrialResult stored;
    v1::TrialResult result;  // the same, for the searcher
  };
  v1::ReportRequest request;
  std::string host;
  int64_t token = 0;
  std::optional<LeaseEntry> lease;  // nullopt: closed, or never given
  std::string default_point;
  absl::Time now;
  // What was stored, as the transaction has it that was tried last.
  v1::ReportResponse response;
  std::vector<Written> written;  // counted in the job
  std::vector<Finalist> finals;
  std::vector<Given> lost;          // with their workers
  std::optional<std::string> best;  // after finals, the steps of what is served now
};

absl::Status StoreReport(tuner::Records& records, Reported& report);

// Another device gets the candidate, unless it has taken too many workers along, or its job has
// ended. `how` says what was lost.
absl::StatusOr<Given> GiveBack(tuner::Records& records, TrialRow row, const LeaseEntry& lease,
                               const std::string& how, absl::Time now);

// Whom the loss of a candidate is counted for that comes back: nobody, or those that were running
// at the last heartbeat; kLater: they came back before it was known that their host died.
enum class Blame : uint8_t { kNone, kRunning, kLater };

// The candidates of the lease that come back, and what became of each.
absl::StatusOr<std::vector<Given>> StoreReturn(tuner::Records& records, const LeaseEntry& lease,
                                               const std::vector<int64_t>& ids, Blame blame,
                                               const std::string& how, absl::Time now);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_LEASES_REPORT_H_
