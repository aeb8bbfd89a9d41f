#include "server/db/trial_store.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "measure/run/processes/messages.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "tuner/records/records_fields.h"
#include "tuner/records/records_sql.h"

namespace heddle::server {
namespace {

using tuner::Records;

constexpr char kTrialColumns[] =
    "j.id, j.job, j.workload, j.point, j.steps, j.state, j.final, j.kills, j.running, j.lease, "
    "j.device, j.seq, j.record";
constexpr int kTrialColumnCount = 13;

TrialRow ReadTrialRow(const Cursor& row) {
  TrialRow trial;
  trial.id = row.Int(0);
  trial.job = row.Int(1);
  trial.workload = static_cast<int>(row.Int(2));
  trial.point = row.Text(3);
  trial.steps = row.Text(4);
  trial.state = static_cast<v1::Trial::State>(row.Int(5));
  trial.is_final = row.Int(6) != 0;
  trial.kills = static_cast<int>(row.Int(7));
  trial.running = row.Int(8) != 0;
  trial.lease = row.Int(9);
  trial.device = row.Text(10);
  return trial;
}

// kTrialColumns and tuner::TrialFields(), from column `first`.
v1::Trial ReadTrial(const Cursor& row) {
  const TrialRow trial = ReadTrialRow(row);
  v1::Trial message;
  message.set_name(TrialName(trial.job, trial.id));
  message.set_job(JobName(trial.job));
  message.set_workload(trial.workload);
  message.set_point(trial.point);
  message.set_steps(trial.steps);
  message.set_state(trial.state);
  message.set_final(trial.is_final);
  message.set_kills(trial.kills);
  message.set_device(trial.device);
  message.set_seq(row.Int(11));
  message.set_record(row.Int(12));
  if (!row.IsNull(12)) {
    tuner::TrialRecord record;
    tuner::RowReader reader{row, kTrialColumnCount};
    tuner::VisitTrial(record, reader);
    *message.mutable_result() = measure::ToProto(record.result);
  }
  return message;
}

std::string SelectTrials(const std::string& rest) {
  return absl::StrCat("SELECT ", kTrialColumns, ", ", tuner::TrialFields(),
                      " FROM job_trial j LEFT JOIN trial t ON t.id = j.record ", rest);
}

}  // namespace

absl::Status LeaseTrial(Records& records, const TrialRow& row) {
  return records.database().Run(
      "INSERT INTO job_trial VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, 0, NULL) "
      "ON CONFLICT (id) DO UPDATE SET state = excluded.state, running = 0, "
      "lease = excluded.lease, device = excluded.device WHERE job_trial.state < 3",
      row.id, row.job, row.workload, row.point, row.steps, int{v1::Trial::STATE_LEASED},
      int{row.is_final}, row.kills, row.lease, row.device);
}

absl::StatusOr<std::optional<TrialRow>> LoadTrial(Records& records, int64_t id) {
  Cursor row = records.database().Query(
      absl::StrCat("SELECT ", kTrialColumns, ", s.text FROM job_trial j LEFT JOIN trial t ON ",
                   "t.id = j.record LEFT JOIN steps s ON s.id = t.steps WHERE j.id = ?"),
      id);
  HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
  if (!found) return std::optional<TrialRow>();
  TrialRow trial = ReadTrialRow(row);
  if (trial.steps.empty()) trial.steps = row.Text(kTrialColumnCount);
  return std::optional<TrialRow>(std::move(trial));
}

absl::StatusOr<std::vector<TrialRow>> LoadOpenTrials(Records& records, int64_t job) {
  std::vector<TrialRow> trials;
  Cursor row = records.database().Query(
      absl::StrCat("SELECT ", kTrialColumns,
                   " FROM job_trial j WHERE j.job = ? AND j.state < 3 ORDER BY j.id"),
      job);
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] { trials.push_back(ReadTrialRow(row)); }));
  return trials;
}

absl::StatusOr<std::set<int64_t>> LoadScreened(Records& records, int64_t job, int workload) {
  std::set<int64_t> screened;
  Cursor row = records.database().Query(
      "SELECT record FROM job_trial WHERE job = ? AND seq > 0 AND workload = ? AND final = 0 "
      "AND record IS NOT NULL",
      job, workload);
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] { screened.insert(row.Int(0)); }));
  return screened;
}

absl::StatusOr<int64_t> LargestTrial(Records& records) {
  return records.database().QueryInt("SELECT coalesce(max(id), 0) FROM job_trial");
}

absl::Status SetRunning(Records& records, const std::vector<int64_t>& started,
                        const std::vector<int64_t>& stopped) {
  for (const auto& [ids, running] : {std::pair(&stopped, 0), std::pair(&started, 1)}) {
    for (int64_t id : *ids) {
      HEDDLE_RETURN_IF_ERROR(
          records.database().Run("UPDATE job_trial SET running = ? WHERE id = ?", running, id));
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FinishTrial(Records& records, const TrialRow& row, v1::Trial::State state,
                                    const search_space::TensorProgram& program,
                                    const tuner::Environment& environment,
                                    const tuner::TrialRecord& record, const FinalOrigin& origin) {
  HEDDLE_ASSIGN_OR_RETURN(id, records.AddTrial(program, environment, record));
  if (row.is_final) {
    HEDDLE_RETURN_IF_ERROR(AddOrigin(records, id, origin));
  }
  Database& db = records.database();
  auto job_state = db.QueryInt("SELECT state FROM job WHERE id = ? AND end_us = 0", row.job);
  int64_t seq = 0;
  if (job_state.ok()) {
    HEDDLE_ASSIGN_OR_RETURN(
        appended,
        AppendEvent(db, row.job, static_cast<v1::Job::State>(*job_state), row.id, record.when));
    seq = appended;
  } else if (!absl::IsNotFound(job_state.status())) {
    return job_state.status();
  }
  HEDDLE_RETURN_IF_ERROR(
      db.Run("UPDATE job_trial SET state = ?, steps = '', running = 0, kills = ?, seq = ?, "
             "record = ? WHERE id = ?",
             int{state}, row.kills, seq, id, row.id));

  const bool ok = record.result.outcome == measure::Outcome::kOk;
  const double time = ok ? record.result.time_us : 0;
  const double default_us = origin.is_default ? time : 0;
  const std::string path = absl::StrCat("$.", NameOf(record.result.outcome));
  HEDDLE_RETURN_IF_ERROR(db.Run(
      "UPDATE job_workload SET trials = trials + ?, ok = ok + ?, "
      "failed = iif(?, failed, json_set(failed, ?, coalesce(json_extract(failed, ?), 0) + 1)), "
      "default_us = iif(? > 0, ?, default_us), "
      "best_us = iif(? > 0 AND (best_us = 0 OR ? < best_us), ?, best_us) "
      "WHERE job = ? AND number = ?",
      int{!row.is_final}, int{ok && !row.is_final}, int{ok || row.is_final}, path, path, default_us,
      default_us, time, time, time, row.job, row.workload));
  return seq;
}

absl::Status AddMeasurement(Records& records, const search_space::TensorProgram& program,
                            const tuner::Environment& environment, const tuner::TrialRecord& record,
                            const FinalOrigin& origin) {
  // What was retracted meanwhile, and its steps with it.
  if (record.stage == tuner::TrialStage::kFinal && record.steps.empty()) return absl::OkStatus();
  // Of one point there are few; two measurements never give the same time to the last bit, and of
  // failures one is enough.
  auto same = records.database().QueryInt(
      "SELECT count(*) FROM trial t JOIN workload w ON w.id = t.workload JOIN bench b ON "
      "b.id = t.bench WHERE w.hash = ? AND w.text = ? AND b.device_name = ? AND b.l2 = ? "
      "AND t.point = ? AND t.final = ? AND t.outcome = ? AND t.time_us = ?",
      program.hash, program.canonical_text, environment.device_name,
      std::string(NameOf(environment.l2)), record.point,
      int{record.stage == tuner::TrialStage::kFinal}, std::string(NameOf(record.result.outcome)),
      record.result.time_us);
  if (!same.ok() || *same > 0) return same.status();
  auto id = records.AddTrial(program, environment, record);
  if (!id.ok() || record.stage != tuner::TrialStage::kFinal) return id.status();
  return AddOrigin(records, *id, origin);
}

absl::Status ReturnTrial(Records& records, int64_t id, int kills) {
  return records.database().Run(
      "UPDATE job_trial SET state = ?, kills = ?, running = 0, lease = 0 WHERE id = ?",
      int{v1::Trial::STATE_PROPOSED}, kills, id);
}

absl::Status CountKills(Records& records, int64_t id, int kills) {
  return records.database().Run("UPDATE job_trial SET kills = ? WHERE id = ?", kills, id);
}

absl::Status DropTrial(Records& records, int64_t id) {
  absl::Status dropped =
      records.database().Run("DELETE FROM job_trial WHERE id = ? AND state < 3", id);
  // The number may be given again: what was leased under it is not to be taken for that.
  dropped.Update(records.database().Run("DELETE FROM late_trial WHERE trial = ?", id));
  return dropped;
}

absl::Status AddLateTrial(Records& records, const TrialRow& row, absl::Time now) {
  return records.database().Run("INSERT OR REPLACE INTO late_trial VALUES (?, ?, ?, ?)", row.lease,
                                row.id, row.device, absl::ToUnixMicros(now));
}

absl::Status PruneLateTrials(Records& records, absl::Time when) {
  return records.database().Run("DELETE FROM late_trial WHERE when_us < ?",
                                absl::ToUnixMicros(when));
}

absl::StatusOr<std::vector<LeasedTrial>> LoadLeasedTrials(Records& records) {
  std::vector<LeasedTrial> trials;
  Cursor row = records.database().Query(
      "SELECT lease, id, device, job, workload, final, 0, running FROM job_trial "
      "WHERE state < 3 AND state = ? UNION ALL "
      "SELECT l.lease, l.trial, l.device, j.job, j.workload, j.final, 1, 0 FROM late_trial l "
      "JOIN job_trial j ON j.id = l.trial",
      int{v1::Trial::STATE_LEASED});
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] {
    trials.push_back({row.Int(0), row.Int(1), row.Text(2), row.Int(3), static_cast<int>(row.Int(4)),
                      row.Int(5) != 0, row.Int(6) != 0, row.Int(7) != 0});
  }));
  return trials;
}

absl::StatusOr<std::vector<v1::Trial>> LoadTrials(Records& records, int64_t job,
                                                  std::optional<TrialPosition> after, int count) {
  std::vector<v1::Trial> trials;
  // Trials without an event (seq 0) come last, whether they are under way or came too late.
  const bool done = !after || after->seq > 0;
  if (done) {
    Cursor row = records.database().Query(
        SelectTrials("WHERE j.job = ? AND j.seq > ? ORDER BY j.seq LIMIT ?"), job,
        after ? after->seq : 0, count);
    HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] { trials.push_back(ReadTrial(row)); }));
    count -= static_cast<int>(trials.size());
  }
  if (count > 0) {
    Cursor row = records.database().Query(
        SelectTrials("WHERE j.job = ? AND j.seq = 0 AND j.id > ? ORDER BY j.id LIMIT ?"), job,
        done ? 0 : after->id, count);
    HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] { trials.push_back(ReadTrial(row)); }));
  }
  return trials;
}

absl::StatusOr<std::vector<v1::JobEvent>> LoadEvents(Records& records, int64_t job,
                                                     int64_t after_seq, int count) {
  std::vector<v1::JobEvent> events;
  Cursor row = records.database().Query(
      absl::StrCat("SELECT ", kTrialColumns, ", ", tuner::TrialFields(),
                   ", e.seq, e.when_us, e.state, e.trial FROM job_event e "
                   "LEFT JOIN job_trial j ON j.id = e.trial LEFT JOIN trial t ON t.id = j.record "
                   "WHERE e.job = ? AND e.seq > ? ORDER BY e.seq LIMIT ?"),
      job, after_seq, count);
  static const int kEvent = [] {
    tuner::TrialRecord record;
    int columns = 0;
    tuner::VisitTrial(record, [&](const char*, const auto&) { ++columns; });
    return kTrialColumnCount + columns;
  }();
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] {
    v1::JobEvent event;
    event.set_first_seq(row.Int(kEvent));
    event.set_seq(row.Int(kEvent));
    *event.mutable_event_time() = ToProto(absl::FromUnixMicros(row.Int(kEvent + 1)));
    event.set_state(static_cast<v1::Job::State>(row.Int(kEvent + 2)));
    if (row.Int(kEvent + 3) != 0) *event.mutable_trial() = ReadTrial(row);
    events.push_back(std::move(event));
  }));
  return events;
}

}  // namespace heddle::server
