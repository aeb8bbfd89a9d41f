// Leases of candidates to devices, and the results that come back.
#ifndef HEDDLE_SERVER_FLEET_LEASES_LEASES_H_
#define HEDDLE_SERVER_FLEET_LEASES_LEASES_H_

#include <cstdint>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "heddle/v1/fleet.pb.h"
#include "server/db/trust/auth.h"
#include "server/fleet/devices/devices.h"
#include "server/fleet/devices/hosts.h"
#include "server/fleet/event/effects.h"
#include "server/fleet/event/options.h"
#include "server/fleet/jobs/device_budget.h"
#include "server/fleet/jobs/fair_queue.h"
#include "server/fleet/jobs/searches.h"
#include "server/fleet/leases/confirmations.h"
#include "server/fleet/leases/lease.h"
#include "server/fleet/leases/report.h"
#include "server/metrics/metrics.h"
#include "tuner/records/records.h"

namespace heddle::server {

// The parts that a lease is about; all outlive it.
struct LeaseParts {
  const FleetOptions& options;
  Outbox& outbox;
  Changes& changes;
  Metrics& metrics;
  const Hosts& hosts;
  Devices& devices;
  Searches& searches;
  Jobs& jobs;
  DeviceBudget& budget;
  Confirmations& confirmations;
};

class Leases {
 public:
  explicit Leases(const LeaseParts& parts);

  // Takes up leases that may still be reported; `epoch` has given none yet.
  absl::Status Recover(tuner::Records& records, int64_t epoch);

  // ---------------------------------------------------------------------------------------- giving

  // Whether the device was given something for this call already: its reply is that, once written.
  bool Repeats(const std::string& device, const v1::AcquireRequest& request,
               const Reply<v1::Lease>& reply);
  // A new call of the device's: what it was given before it has.
  void NewCall(const std::string& device, const v1::AcquireRequest& request);
  // For a device of the session, still without candidates.
  LeaseEntry New(const FleetSession& session, const DeviceEntry& device, const Workload& program,
                 v1::L2Policy l2);
  // The candidates as they are now the lease's, in it and in the database; then the reply. The
  // tenant pays `seconds` for them until it is known what they took.
  void Give(LeaseEntry entry, v1::Lease lease, const std::vector<TrialRow*>& candidates,
            double seconds, Reply<v1::Lease> reply);
  // Whose turn it is by what tenants have had.
  FairQueue& share() { return share_; }

  // ----------------------------------------------------------------------------------- taking back

  void Report(const Caller& caller, const v1::ReportRequest& request,
              const Reply<v1::ReportResponse>& reply);
  void Release(const Caller& caller, const v1::ReleaseRequest& request,
               const Reply<v1::ReleaseResponse>& reply);
  // What a daemon says that it has and runs; tells it which leases it has no longer.
  void Beat(FleetSession& session, const v1::HeartbeatRequest& request,
            v1::HeartbeatResponse& response);
  // Candidates of daemons that fell silent wait for another device. Whether what ran is to blame
  // for a host's silence is known when the host is back.
  void Expire();
  // A daemon registered: what ran when an earlier one on its devices died is to blame.
  void BlameForDeath(const FleetSession& now);

  // The job has ended or is cancelled: daemons need not measure for it.
  void Revoke(int64_t job);
  // Whether a device may still bring something of it.
  bool AnyOpen(int64_t job) const;
  void ForgetDevice(const std::string& device) { hands_.erase(device); }

 private:
  // What a device was given last.
  struct Hand {
    std::string session, request_id;        // of the call
    std::shared_ptr<const v1::Lease> last;  // null: nothing yet
    // Whom leases that are not written yet were given: the call, and the same call again.
    std::map<int64_t, std::vector<Reply<v1::Lease>>> unwritten;
    SteadyTime free_since;  // when its last lease closed
  };

  // nullptr: the session's host has none of that id.
  LeaseEntry* Find(int64_t id, const FleetSession& session);
  double FastestOf(const Workload& program, const DeviceModels::Model& model, measure::L2Policy l2);
  // Nothing was written, so nothing was leased.
  void TakeBackUnwritten(int64_t lease);
  void TakeReport(const Reported& report);
  // The default schedule of a workload is measured: it is to be so beside a best, too.
  void NoteDefault(const LeaseEntry& lease, const TrialRow& row);
  // Candidates of the lease have a result, or are another lease's. `news`: finals among them may
  // say which schedule is served. Closes the lease where they were the last.
  void TakeOut(LeaseEntry& lease, const std::vector<int64_t>& candidates, bool news);
  // Asks for another host's word on what is served after finals, unless there is one, and judges
  // that word.
  void Confirm(const LeaseEntry& lease);
  Confirmation ConfirmationOf(const LeaseEntry& lease, const Finalist& winner) const;
  // A lease of a confirmation came back without its results.
  void AskAgain(const LeaseEntry& lease);
  // Candidates of a lease come back.
  void Return(const LeaseEntry& lease, const std::vector<int64_t>& ids, Blame blame,
              const std::string& how);
  void TakeBack(const LeaseEntry& lease, const std::vector<Given>& given, const std::string& how);
  // A lease that ends: its tenant pays for what it took.
  void Settle(LeaseEntry& lease);
  void Expire(LeaseEntry& lease, Blame blame);
  // Whether a second host, or one that is trusted, has said that it cannot measure the workload.
  bool AllRefuse(ActiveJob& job, const FleetSession& session, const std::string& why);

  const LeaseParts& p_;
  std::map<int64_t, LeaseEntry> leases_;
  int64_t next_ = 1;
  std::map<std::string, Hand> hands_;  // by device
  FairQueue share_;
  // measure::FastestPlausible of what was leased lately, by workload, a model's description and
  // policy.
  std::map<std::tuple<Workload, int64_t, measure::L2Policy>, double> fastest_us_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_LEASES_LEASES_H_
