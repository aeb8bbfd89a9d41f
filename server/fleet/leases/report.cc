#include "server/fleet/leases/report.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "measure/run/processes/messages.h"
#include "server/db/trust/confirmations.h"
#include "server/fleet/devices/devices.h"
#include "server/fleet/event/options.h"

namespace heddle::server {
namespace {

using measure::Outcome;
using measure::TrialResult;

// What is stored of a result, which is its daemon's word.
tuner::TrialRecord RecordOf(const TrialRow& row, const v1::CandidateResult& reported,
                            const std::string& workload_hash, double fastest_us,
                            const tuner::Provenance& from, absl::Time now) {
  tuner::TrialRecord record;
  record.workload_hash = workload_hash;
  record.point = row.point;
  record.steps = row.steps;
  record.stage = row.is_final ? tuner::TrialStage::kFinal : tuner::TrialStage::kScreening;
  record.result = measure::FromProto(reported.result());
  TrialResult& result = record.result;
  if (result.outcome == Outcome::kOk && result.time_us < fastest_us) {
    result.outcome = Outcome::kImplausible;
    result.detail =
        absl::StrCat(result.time_us, " us were reported; the device's peak rates allow ",
                     fastest_us, " at best");
  }
  if (result.outcome != Outcome::kOk) {
    result.time_us = result.ci_low_us = result.ci_high_us = 0;
  }
  record.throttled = reported.device_state().throttled();
  record.other_processes = reported.device_state().other_processes();
  record.from = from;
  record.when = now;
  return record;
}

absl::Status StoreResult(tuner::Records& records, const v1::CandidateResult& reported,
                         Reported& report) {
  const int64_t id = reported.candidate();
  HEDDLE_ASSIGN_OR_RETURN(row, LoadTrial(records, id));
  if (!row) return absl::OkStatus();
  const bool done = row->state > v1::Trial::STATE_LEASED;
  if (!report.lease || !report.lease->open.contains(id)) {
    // Sent again after the lease had closed: what it had is stored.
    if (done && HostOf(row->device) == report.host) report.response.add_committed(id);
    return absl::OkStatus();
  }
  report.response.add_committed(id);
  const LeaseEntry& lease = *report.lease;
  if (reported.result().outcome() == v1::OUTCOME_WORKER_LOST) {
    if (done || row->state != v1::Trial::STATE_LEASED || row->lease != lease.id) {
      return absl::OkStatus();
    }
    ++row->kills;
    HEDDLE_ASSIGN_OR_RETURN(given,
                            GiveBack(records, *row, lease, "its worker was lost", report.now));
    report.lost.push_back(std::move(given));
    return absl::OkStatus();
  }
  tuner::Provenance from = lease.from;
  from.token = report.token;
  const tuner::TrialRecord record =
      RecordOf(*row, reported, lease.program->hash, lease.fastest_us, from, report.now);
  const bool is_default = row->point == report.default_point;
  const FinalOrigin origin{report.host, report.token, lease.id, is_default};
  // Sent again, or measured by two: the job counts it once, a measurement is kept.
  if (done) return AddMeasurement(records, *lease.program, lease.environment, record, origin);
  HEDDLE_ASSIGN_OR_RETURN(seq, FinishTrial(records, *row, v1::Trial::STATE_DONE, *lease.program,
                                           lease.environment, record, origin));
  report.written.push_back({id, seq, record.result, measure::ToProto(record.result)});
  if (lease.is_finals) {
    report.finals.push_back({*row, record.result.time_us, is_default});
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status StoreReport(tuner::Records& records, Reported& report) {
  report.response = {};
  report.written.clear();
  report.lost.clear();
  report.finals.clear();
  report.best.reset();
  for (const v1::CandidateResult& result : report.request.results()) {
    HEDDLE_RETURN_IF_ERROR(StoreResult(records, result, report));
  }
  if (!report.lease || !report.lease->is_finals) return absl::OkStatus();
  const LeaseEntry& lease = *report.lease;
  const auto best = records.FindBest(lease.program->hash, tuner::BenchOf(lease.environment));
  if (!best.ok()) {
    // What was measured is stored all the same, and stays one host's word.
    LogEvent(Severity::kError, "best_unreadable",
             {{"lease", lease.id}, {"error", std::string(best.status().message())}});
  } else if (best->has_value()) {
    report.best = (*best)->trial.steps;
  }
  return absl::OkStatus();
}

absl::StatusOr<Given> GiveBack(tuner::Records& records, TrialRow row, const LeaseEntry& lease,
                               const std::string& how, absl::Time now) {
  if (row.kills < kMaxKills) {
    HEDDLE_ASSIGN_OR_RETURN(ended, HasEnded(records, row.job));
    HEDDLE_RETURN_IF_ERROR(ended && !lease.expired ? DropTrial(records, row.id)
                                                   : ReturnTrial(records, row.id, row.kills));
    return Given{row.id, 0, row.kills, true, {}};
  }
  // Recorded as what it is most likely, so that no search proposes it again.
  v1::CandidateResult reported;
  reported.mutable_result()->set_outcome(v1::OUTCOME_ILLEGAL_ACCESS);
  reported.mutable_result()->set_detail(
      absl::StrCat("quarantined after ", row.kills, " lost workers: ", how));
  const tuner::TrialRecord record =
      RecordOf(row, reported, lease.program->hash, lease.fastest_us, lease.from, now);
  HEDDLE_ASSIGN_OR_RETURN(
      seq, FinishTrial(records, row, v1::Trial::STATE_QUARANTINED, *lease.program,
                       lease.environment, record, {lease.host, lease.from.token, lease.id, false}));
  return Given{row.id, seq, row.kills, false, reported.result()};
}

absl::StatusOr<std::vector<Given>> StoreReturn(tuner::Records& records, const LeaseEntry& lease,
                                               const std::vector<int64_t>& ids, Blame blame,
                                               const std::string& how, absl::Time now) {
  std::vector<Given> given;
  for (int64_t id : ids) {
    HEDDLE_ASSIGN_OR_RETURN(row, LoadTrial(records, id));
    if (!row || row->state > v1::Trial::STATE_LEASED) continue;
    const bool ours = row->state == v1::Trial::STATE_LEASED && row->lease == lease.id;
    const bool ran = lease.running.contains(id) || row->running;
    row->kills += blame == Blame::kLater || (blame == Blame::kRunning && ran && ours);
    if (!ours && blame != Blame::kLater) continue;
    if (ours && lease.expired) HEDDLE_RETURN_IF_ERROR(AddLateTrial(records, *row, now));
    if (!ours && row->kills < kMaxKills) {
      HEDDLE_RETURN_IF_ERROR(CountKills(records, id, row->kills));
      continue;
    }
    HEDDLE_ASSIGN_OR_RETURN(back, GiveBack(records, *row, lease, how, now));
    given.push_back(std::move(back));
  }
  return given;
}

}  // namespace heddle::server
