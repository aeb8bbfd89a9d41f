#include "server/db/job_store.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/sqlite.h"
#include "measure/run/messages.h"
#include "nlohmann/json.hpp"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "tuner/records/records_fields.h"
#include "tuner/records/records_sql.h"

namespace heddle::server {
namespace {

using tuner::Records;

// Of a page: messages beyond 4 MiB do not reach clients that were not told to expect them.
constexpr size_t kMaxPageBytes = 3 << 20;

constexpr char kJobColumns[] =
    "SELECT id, tenant, spec, state, stop_reason, error, device_model, create_us, start_us, "
    "end_us, "
    "last_seq FROM job ";

int64_t Micros(absl::Time time) { return absl::ToUnixMicros(time); }

google::protobuf::Timestamp StampOf(int64_t micros) {
  return ToProto(absl::FromUnixMicros(micros));
}

// Ids grow with time, so that they order jobs, and leave gaps by chance: a job's name does not tell
// how many there are.
int64_t NewJobId(int64_t last, absl::Time now) {
  constexpr int kRandomBits = 20;
  const int64_t chance = std::random_device()() >> (32 - kRandomBits);
  const int64_t millis = std::max<int64_t>(0, absl::ToUnixMillis(now));
  return std::max(last + 1, (millis << kRandomBits) + chance);
}

v1::Job ReadJob(const Cursor& row) {
  v1::Job job;
  job.set_name(JobName(row.Int(0)));
  job.set_tenant(row.Text(1));
  absl::Status parsed = FromJson(row.Text(2), *job.mutable_spec());
  const v1::Budget& budget = job.spec().budget();
  if (parsed.ok() && budget.trials() == 0 && budget.plateau() == 0 &&
      !budget.has_search_duration()) {
    parsed = absl::DataLossError("the stored budget is of an earlier version of the API");
  }
  if (!parsed.ok()) job.clear_spec();
  job.set_state(static_cast<v1::Job::State>(row.Int(3)));
  job.set_stop_reason(static_cast<v1::Job::StopReason>(row.Int(4)));
  job.set_error(row.Text(5));
  if (!parsed.ok() && job.error().empty()) job.set_error(std::string(parsed.message()));
  job.set_device_model(row.Text(6));
  *job.mutable_create_time() = StampOf(row.Int(7));
  if (row.Int(8) != 0) *job.mutable_start_time() = StampOf(row.Int(8));
  if (row.Int(9) != 0) *job.mutable_end_time() = StampOf(row.Int(9));
  job.set_last_seq(row.Int(10));
  return job;
}

// What the head of a canonical text says: "float32 op matmul(m = 64, n = 32) {".
void ReadHead(const std::string& text, v1::WorkloadKey& key) {
  const size_t open = text.find('('), close = text.find(')');
  if (open == std::string::npos || close == std::string::npos || close < open) return;
  const std::vector<std::string> words = absl::StrSplit(text.substr(0, open), ' ');
  if (words.size() != 3) return;
  key.set_dtype(words[0]);
  key.set_op(words[2]);
  for (const auto& size : absl::StrSplit(text.substr(open + 1, close - open - 1), ", ")) {
    const std::pair<std::string, std::string> named =
        absl::StrSplit(size, absl::MaxSplits(" = ", 1));
    int64_t value = 0;
    if (absl::SimpleAtoi(named.second, &value)) (*key.mutable_shape())[named.first] = value;
  }
}

// Adds the progress of the job's workloads.
absl::Status AddProgress(Records& records, v1::Job& job) {
  struct Ended {
    int number;
    std::string text;
  };
  std::vector<Ended> ended;
  {
    Cursor row = records.database().Query(
        "SELECT hash, text, trials, ok, failed, default_us, best_us, ended FROM job_workload "
        "WHERE job = ? ORDER BY number",
        JobId(job.name()));
    absl::StatusOr<bool> more;
    while ((more = row.Next()).ok() && *more) {
      v1::WorkloadProgress& progress = *job.add_workloads();
      v1::WorkloadKey& key = *progress.mutable_workload();
      ReadHead(row.Text(1), key);
      key.set_hash(row.Text(0));
      key.set_text(row.Text(1));
      progress.set_trials(row.Int(2));
      progress.set_ok(row.Int(3));
      const auto failed = nlohmann::json::parse(row.Text(4), nullptr, false);
      for (const auto& item : failed.items()) {
        if (item.value().is_number_integer()) {
          (*progress.mutable_failed())[item.key()] = item.value();
        }
      }
      progress.set_default_us(row.Real(5));
      progress.set_best_us(row.Real(6));
      if (row.Int(7) != 0) ended.push_back({job.workloads_size() - 1, row.Text(0)});
    }
    if (!more.ok()) return more.status();
  }
  for (const Ended& e : ended) {
    auto best = records.FindBest(e.text, {job.device_model(), FromProto(job.spec().l2())});
    if (!best.ok()) return best.status();
    v1::WorkloadProgress& progress = *job.mutable_workloads(e.number);
    if (best->has_value()) *progress.mutable_best() = ToProto(**best, progress.workload());
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> AppendEvent(Database& db, int64_t job, v1::Job::State state, int64_t trial,
                                    absl::Time now) {
  absl::Status status = db.Run("UPDATE job SET last_seq = last_seq + 1 WHERE id = ?", job);
  if (!status.ok()) return status;
  auto seq = db.QueryInt("SELECT last_seq FROM job WHERE id = ?", job);
  if (!seq.ok()) return seq.status();
  status = db.Run("INSERT INTO job_event VALUES (?, ?, ?, ?, ?)", job, *seq, Micros(now),
                  int{state}, trial);
  if (!status.ok()) return status;
  return *seq;
}

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
  message.set_id(trial.id);
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

uint64_t HashOfRequest(const v1::JobSpec& spec) {
  v1::JobSpec same = spec;
  same.clear_expire_time();
  return heddle::HashOf(CanonicalBytes(same));
}

absl::StatusOr<std::optional<int64_t>> FindRequest(Records& records, const std::string& tenant,
                                                   const std::string& method,
                                                   const std::string& request_id, uint64_t body) {
  Cursor row = records.database().Query(
      "SELECT body, result FROM request WHERE tenant = ? AND method = ? AND request_id = ?", tenant,
      method, request_id);
  absl::StatusOr<bool> found = row.Next();
  if (!found.ok()) return found.status();
  if (!*found) return std::optional<int64_t>();
  if (row.Int(0) != static_cast<int64_t>(body)) {
    return ErrorWithReason(absl::StatusCode::kAlreadyExists, "REQUEST_ID_REUSED",
                           absl::StrCat("request_id: \"", request_id,
                                        "\" was used for another request; take a new one"));
  }
  return std::optional<int64_t>(row.Int(1));
}

absl::Status AddRequest(Records& records, const std::string& tenant, const std::string& method,
                        const std::string& request_id, uint64_t body, int64_t result,
                        absl::Time now) {
  return records.database().Run("INSERT INTO request VALUES (?, ?, ?, ?, ?, ?)", tenant, method,
                                request_id, static_cast<int64_t>(body), result, Micros(now));
}

absl::Status PruneRequests(Records& records, absl::Time when) {
  return records.database().Run("DELETE FROM request WHERE when_us < ?", Micros(when));
}

absl::StatusOr<int64_t> InsertJob(Records& records, const std::string& tenant,
                                  const v1::JobSpec& spec, const std::vector<Workload>& workloads,
                                  absl::Time now) {
  Database& db = records.database();
  const int64_t expires = spec.has_expire_time() ? Micros(FromProto(spec.expire_time())) : 0;
  auto last = db.QueryInt("SELECT coalesce(max(id), 0) FROM job");
  if (!last.ok()) return last.status();
  const int64_t id = NewJobId(*last, now);
  absl::Status status = db.Run(
      "INSERT INTO job (id, tenant, spec, state, stop_reason, error, device_model, create_us, "
      "start_us, end_us, expire_us, last_seq) VALUES (?, ?, ?, ?, 0, '', '', ?, 0, 0, ?, 0)",
      id, tenant, ToJson(spec), int{v1::Job::STATE_QUEUED}, Micros(now), expires);
  if (!status.ok()) return status;
  for (size_t i = 0; i < workloads.size(); ++i) {
    status = db.Run("INSERT INTO job_workload VALUES (?, ?, ?, ?, 0, 0, '{}', 0.0, 0.0, 0.0, 0)",
                    id, static_cast<int64_t>(i), workloads[i]->hash, workloads[i]->canonical_text);
    if (!status.ok()) return status;
  }
  for (const auto& [key, value] : spec.labels()) {
    status = db.Run("INSERT INTO job_label VALUES (?, ?, ?)", id, key, value);
    if (!status.ok()) return status;
  }
  auto seq = AppendEvent(db, id, v1::Job::STATE_QUEUED, 0, now);
  if (!seq.ok()) return seq.status();
  return id;
}

absl::StatusOr<int64_t> CountOpenJobs(Records& records, const std::string& tenant) {
  return records.database().QueryInt("SELECT count(*) FROM job WHERE tenant = ? AND end_us = 0",
                                     tenant);
}

absl::StatusOr<v1::Job> LoadJob(Records& records, int64_t id, const std::string& tenant) {
  v1::Job job;
  {
    Cursor row = records.database().Query(absl::StrCat(kJobColumns, "WHERE id = ?"), id);
    absl::StatusOr<bool> found = row.Next();
    if (!found.ok()) return found.status();
    if (!*found || (!tenant.empty() && row.Text(1) != tenant)) {
      return absl::NotFoundError(absl::StrCat("there is no job ", JobName(id)));
    }
    job = ReadJob(row);
  }
  if (absl::Status s = AddProgress(records, job); !s.ok()) return s;
  return job;
}

absl::StatusOr<std::vector<v1::Job>> LoadJobs(Records& records, const std::string& tenant,
                                              const v1::ListJobsRequest::Filter& filter, bool full,
                                              int64_t& before, int count) {
  // The ids first, from indices alone: rows have specifications of up to 1 MiB.
  nlohmann::json states = nlohmann::json::array(), labels = nlohmann::json::object();
  for (const int state : filter.states()) states.push_back(state);
  for (const auto& [key, value] : filter.labels()) labels[key] = value;
  Cursor row = records.database().Query(
      absl::StrCat(
          kJobColumns, "WHERE id IN (SELECT j.id FROM job j ",
          states.empty() ? "WHERE " : "INDEXED BY job_state WHERE ",
          tenant.empty() ? "? = ''" : "j.tenant = ?", " AND j.id < ?",
          states.empty() ? " AND ? = '[]'" : " AND j.state IN (SELECT value FROM json_each(?))",
          labels.empty()
              ? " AND ? = '{}'"
              : " AND NOT EXISTS (SELECT 1 FROM json_each(?) l WHERE NOT EXISTS (SELECT "
                "1 FROM job_label WHERE job = j.id AND key = l.key AND value = l.value))",
          " ORDER BY j.id DESC LIMIT ?) ORDER BY id DESC"),
      tenant, before > 0 ? before : INT64_MAX, states.dump(), labels.dump(), count);
  std::vector<v1::Job> jobs;
  size_t page_bytes = 0;
  int rows = 0;
  absl::StatusOr<bool> more;
  while ((more = row.Next()).ok() && *more) {
    v1::Job job = ReadJob(row);
    if (absl::Status s = AddProgress(records, job); !s.ok()) return s;
    if (!full) LeaveOutTexts(job);
    page_bytes += job.ByteSizeLong();
    if (page_bytes > kMaxPageBytes && !jobs.empty()) return jobs;  // begins the next page
    before = row.Int(0);
    ++rows;
    jobs.push_back(std::move(job));
  }
  if (!more.ok()) return more.status();
  if (rows < count) before = 0;
  return jobs;
}

void LeaveOutTexts(v1::Job& job) {
  for (v1::Workload& workload : *job.mutable_spec()->mutable_workloads()) {
    if (!workload.has_builtin()) workload.clear_operator();
  }
  for (v1::WorkloadProgress& progress : *job.mutable_workloads()) {
    progress.mutable_workload()->clear_text();
    if (!progress.has_best()) continue;
    progress.mutable_best()->mutable_workload()->clear_text();
    progress.mutable_best()->clear_steps();
  }
}

absl::StatusOr<std::vector<v1::Job>> LoadOpenJobs(Records& records) {
  std::vector<v1::Job> jobs;
  Cursor row = records.database().Query(absl::StrCat(kJobColumns, "WHERE end_us = 0 ORDER BY id"));
  absl::StatusOr<bool> more;
  while ((more = row.Next()).ok() && *more) {
    jobs.push_back(ReadJob(row));
  }
  if (!more.ok()) return more.status();
  return jobs;
}

absl::StatusOr<int64_t> LoadRestarts(Records& records, int64_t job) {
  return records.database().QueryInt("SELECT restarts FROM job WHERE id = ?", job);
}

absl::Status SetRestarts(Records& records, int64_t job, int64_t restarts) {
  return records.database().Run("UPDATE job SET restarts = ? WHERE id = ?", restarts, job);
}

absl::StatusOr<int> PruneJobs(Records& records, absl::Time when, int count) {
  Database& db = records.database();
  std::vector<int64_t> jobs;
  {
    Cursor row =
        db.Query("SELECT id FROM job WHERE end_us > 0 AND end_us < ? ORDER BY end_us LIMIT ?",
                 Micros(when), count);
    absl::StatusOr<bool> more;
    while ((more = row.Next()).ok() && *more) jobs.push_back(row.Int(0));
    if (!more.ok()) return more.status();
  }
  for (int64_t job : jobs) {
    for (const char* table : {"job_event", "job_trial", "job_workload", "job_label"}) {
      absl::Status status = db.Run(absl::StrCat("DELETE FROM ", table, " WHERE job = ?"), job);
      if (!status.ok()) return status;
    }
    if (absl::Status s = db.Run("DELETE FROM job WHERE id = ?", job); !s.ok()) return s;
  }
  return static_cast<int>(jobs.size());
}

absl::StatusOr<int64_t> SetState(Records& records, int64_t job, v1::Job::State state,
                                 v1::Job::StopReason reason, const std::string& error,
                                 const std::string& model, absl::Time now) {
  Database& db = records.database();
  auto old = db.QueryInt("SELECT state FROM job WHERE id = ? AND end_us = 0", job);
  if (absl::IsNotFound(old.status())) return 0;
  if (!old.ok()) return old.status();
  if (*old == int{state}) return 0;
  const int64_t end = IsTerminal(state) ? Micros(now) : 0;
  absl::Status status = db.Run(
      "UPDATE job SET state = ?, stop_reason = ?, error = ?, end_us = ?, "
      "device_model = iif(? = '', device_model, ?), "
      "start_us = iif(start_us = 0 AND ? = ?, ?, start_us) WHERE id = ?",
      int{state}, int{reason}, error, end, model, model, int{state}, int{v1::Job::STATE_RUNNING},
      Micros(now), job);
  if (!status.ok()) return status;
  if (end != 0) {
    // Nobody will measure what waits for a device.
    status = db.Run("DELETE FROM job_trial WHERE job = ? AND state = 1", job);
    if (!status.ok()) return status;
  }
  return AppendEvent(db, job, state, 0, now);
}

absl::StatusOr<std::vector<WorkloadUse>> LoadUse(Records& records, int64_t job) {
  std::vector<WorkloadUse> uses;
  Cursor row = records.database().Query(
      "SELECT text, trials, best_us, search_s, ended FROM job_workload WHERE job = ? ORDER BY "
      "number",
      job);
  absl::StatusOr<bool> more;
  while ((more = row.Next()).ok() && *more) {
    uses.push_back({row.Text(0), row.Int(1), row.Real(2), row.Real(3), row.Int(4) != 0});
  }
  if (!more.ok()) return more.status();
  return uses;
}

absl::Status AddSearchTime(Records& records, int64_t job, int number, double seconds) {
  return records.database().Run(
      "UPDATE job_workload SET search_s = search_s + ? WHERE job = ? AND number = ?", seconds, job,
      number);
}

absl::Status EndWorkload(Records& records, int64_t job, int number, double default_us) {
  return records.database().Run(
      "UPDATE job_workload SET default_us = iif(? > 0, ?, default_us), ended = 1 "
      "WHERE job = ? AND number = ?",
      default_us, default_us, job, number);
}

absl::Status CountRun(Records& records, int64_t job, const WorkloadRun& run) {
  Database& db = records.database();
  int64_t trials = 0, ok = 0;
  double default_us = 0, best_us = 0;
  nlohmann::json failed = nlohmann::json::object();
  {
    Cursor row = db.Query(
        "SELECT t.outcome, t.final, t.time_us, a.number = 0 AND c.sequence = 1 FROM attempt a "
        "CROSS JOIN collected c ON c.attempt = a.id CROSS JOIN trial t ON t.id = c.trial "
        "WHERE a.run = ?",
        run.run);
    absl::StatusOr<bool> more;
    while ((more = row.Next()).ok() && *more) {
      const std::string outcome = row.Text(0);
      const bool is_final = row.Int(1) != 0, is_ok = outcome == NameOf(measure::Outcome::kOk);
      const double time = row.Real(2);
      trials += !is_final;
      ok += !is_final && is_ok;
      if (!is_ok && !is_final) failed[outcome] = failed.value(outcome, 0) + 1;
      if (is_ok && (best_us == 0 || time < best_us)) best_us = time;
      if (is_ok && row.Int(3) != 0) default_us = time;  // trial 1 of every session
    }
    if (!more.ok()) return more.status();
  }
  return db.Run(
      "UPDATE job_workload SET trials = ?, ok = ?, failed = ?, default_us = ?, best_us = ?, "
      "ended = ? WHERE job = ? AND number = ?",
      trials, ok, failed.dump(), default_us, best_us, int{run.ended}, job, run.number);
}

absl::Status LeaseTrial(Records& records, const TrialRow& row) {
  return records.database().Run(
      "INSERT INTO job_trial VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0, ?, ?, 0, NULL) "
      "ON CONFLICT (id) DO UPDATE SET state = excluded.state, running = 0, "
      "lease = excluded.lease, device = excluded.device",
      row.id, row.job, row.workload, row.point, row.steps, int{v1::Trial::STATE_LEASED},
      int{row.is_final}, row.kills, row.lease, row.device);
}

absl::StatusOr<std::optional<TrialRow>> LoadTrial(Records& records, int64_t id) {
  Cursor row = records.database().Query(
      absl::StrCat("SELECT ", kTrialColumns, ", s.text FROM job_trial j LEFT JOIN trial t ON ",
                   "t.id = j.record LEFT JOIN steps s ON s.id = t.steps WHERE j.id = ?"),
      id);
  absl::StatusOr<bool> found = row.Next();
  if (!found.ok()) return found.status();
  if (!*found) return std::optional<TrialRow>();
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
  absl::StatusOr<bool> more;
  while ((more = row.Next()).ok() && *more) trials.push_back(ReadTrialRow(row));
  if (!more.ok()) return more.status();
  return trials;
}

absl::StatusOr<std::set<int64_t>> LoadScreened(Records& records, int64_t job, int workload) {
  std::set<int64_t> screened;
  Cursor row = records.database().Query(
      "SELECT record FROM job_trial WHERE job = ? AND seq > 0 AND workload = ? AND final = 0 "
      "AND record IS NOT NULL",
      job, workload);
  absl::StatusOr<bool> more;
  while ((more = row.Next()).ok() && *more) screened.insert(row.Int(0));
  if (!more.ok()) return more.status();
  return screened;
}

absl::StatusOr<int64_t> LargestTrial(Records& records) {
  return records.database().QueryInt("SELECT coalesce(max(id), 0) FROM job_trial");
}

absl::Status SetRunning(Records& records, const std::vector<int64_t>& started,
                        const std::vector<int64_t>& stopped) {
  for (const auto& [ids, running] : {std::pair(&stopped, 0), std::pair(&started, 1)}) {
    for (int64_t id : *ids) {
      absl::Status status =
          records.database().Run("UPDATE job_trial SET running = ? WHERE id = ?", running, id);
      if (!status.ok()) return status;
    }
  }
  return absl::OkStatus();
}

absl::StatusOr<int64_t> FinishTrial(Records& records, const TrialRow& row, v1::Trial::State state,
                                    const search_space::TensorProgram& program,
                                    const tuner::Environment& environment,
                                    const tuner::TrialRecord& record, const FinalOrigin& origin) {
  auto id = records.AddTrial(program, environment, record);
  if (!id.ok()) return id.status();
  if (row.is_final) {
    if (absl::Status s = AddOrigin(records, *id, origin); !s.ok()) return s;
  }
  Database& db = records.database();
  auto job_state = db.QueryInt("SELECT state FROM job WHERE id = ? AND end_us = 0", row.job);
  int64_t seq = 0;
  if (job_state.ok()) {
    auto appended =
        AppendEvent(db, row.job, static_cast<v1::Job::State>(*job_state), row.id, record.when);
    if (!appended.ok()) return appended.status();
    seq = *appended;
  } else if (!absl::IsNotFound(job_state.status())) {
    return job_state.status();
  }
  absl::Status status = db.Run(
      "UPDATE job_trial SET state = ?, steps = '', running = 0, kills = ?, seq = ?, "
      "record = ? WHERE id = ?",
      int{state}, row.kills, seq, *id, row.id);
  if (!status.ok()) return status;

  const bool ok = record.result.outcome == measure::Outcome::kOk;
  const double time = ok ? record.result.time_us : 0;
  const double default_us = origin.is_default ? time : 0;
  const std::string path = absl::StrCat("$.", NameOf(record.result.outcome));
  status = db.Run(
      "UPDATE job_workload SET trials = trials + ?, ok = ok + ?, "
      "failed = iif(?, failed, json_set(failed, ?, coalesce(json_extract(failed, ?), 0) + 1)), "
      "default_us = iif(? > 0, ?, default_us), "
      "best_us = iif(? > 0 AND (best_us = 0 OR ? < best_us), ?, best_us) "
      "WHERE job = ? AND number = ?",
      int{!row.is_final}, int{ok && !row.is_final}, int{ok || row.is_final}, path, path, default_us,
      default_us, time, time, time, row.job, row.workload);
  if (!status.ok()) return status;
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

absl::StatusOr<bool> HasEnded(Records& records, int64_t job) {
  auto ended = records.database().QueryInt("SELECT end_us > 0 FROM job WHERE id = ?", job);
  if (!ended.ok()) return ended.status();
  return *ended != 0;
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
                                row.id, row.device, Micros(now));
}

absl::Status PruneLateTrials(Records& records, absl::Time when) {
  return records.database().Run("DELETE FROM late_trial WHERE when_us < ?", Micros(when));
}

absl::StatusOr<std::vector<LeasedTrial>> LoadLeasedTrials(Records& records) {
  std::vector<LeasedTrial> trials;
  Cursor row = records.database().Query(
      "SELECT lease, id, device, job, workload, final, 0, running FROM job_trial "
      "WHERE state < 3 AND state = ? UNION ALL "
      "SELECT l.lease, l.trial, l.device, j.job, j.workload, j.final, 1, 0 FROM late_trial l "
      "JOIN job_trial j ON j.id = l.trial",
      int{v1::Trial::STATE_LEASED});
  absl::StatusOr<bool> more;
  while ((more = row.Next()).ok() && *more) {
    trials.push_back({row.Int(0), row.Int(1), row.Text(2), row.Int(3), static_cast<int>(row.Int(4)),
                      row.Int(5) != 0, row.Int(6) != 0, row.Int(7) != 0});
  }
  if (!more.ok()) return more.status();
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
    absl::StatusOr<bool> more;
    while ((more = row.Next()).ok() && *more) trials.push_back(ReadTrial(row));
    if (!more.ok()) return more.status();
    count -= static_cast<int>(trials.size());
  }
  if (count > 0) {
    Cursor row = records.database().Query(
        SelectTrials("WHERE j.job = ? AND j.seq = 0 AND j.id > ? ORDER BY j.id LIMIT ?"), job,
        done ? 0 : after->id, count);
    absl::StatusOr<bool> more;
    while ((more = row.Next()).ok() && *more) trials.push_back(ReadTrial(row));
    if (!more.ok()) return more.status();
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
  absl::StatusOr<bool> more;
  while ((more = row.Next()).ok() && *more) {
    v1::JobEvent event;
    event.set_first_seq(row.Int(kEvent));
    event.set_seq(row.Int(kEvent));
    *event.mutable_event_time() = StampOf(row.Int(kEvent + 1));
    event.set_state(static_cast<v1::Job::State>(row.Int(kEvent + 2)));
    if (row.Int(kEvent + 3) != 0) *event.mutable_trial() = ReadTrial(row);
    events.push_back(std::move(event));
  }
  if (!more.ok()) return more.status();
  return events;
}

absl::Status SaveDevice(Records& records, const v1::FleetDevice& device) {
  return records.database().Run("INSERT OR REPLACE INTO fleet_device VALUES (?, ?, ?, ?, ?, ?)",
                                device.id(), ToJson(device.device()), device.hostname(),
                                int{device.state()}, device.generator(),
                                Micros(FromProto(device.last_seen_time())));
}

absl::Status DeleteDevice(Records& records, const std::string& id) {
  return records.database().Run("DELETE FROM fleet_device WHERE id = ?", id);
}

absl::StatusOr<std::vector<v1::FleetDevice>> LoadDevices(Records& records) {
  std::vector<v1::FleetDevice> devices;
  Cursor row = records.database().Query(
      "SELECT id, device, hostname, state, generator, last_seen_us FROM fleet_device ORDER BY id");
  absl::StatusOr<bool> more;
  while ((more = row.Next()).ok() && *more) {
    v1::FleetDevice device;
    device.set_id(row.Text(0));
    // It will tell again what it is.
    if (!FromJson(row.Text(1), *device.mutable_device()).ok()) continue;
    device.set_hostname(row.Text(2));
    device.set_state(static_cast<v1::FleetDevice::State>(row.Int(3)));
    device.set_generator(static_cast<int32_t>(row.Int(4)));
    *device.mutable_last_seen_time() = StampOf(row.Int(5));
    device.mutable_worker()->set_device(device.device().id());
    device.mutable_worker()->set_state(v1::WorkerStatus::STATE_GONE);
    devices.push_back(std::move(device));
  }
  if (!more.ok()) return more.status();
  return devices;
}

absl::StatusOr<int64_t> NextEpoch(Records& records) {
  absl::Status status = records.database().Run("UPDATE server SET epoch = epoch + 1");
  if (!status.ok()) return status;
  return records.database().QueryInt("SELECT epoch FROM server");
}

}  // namespace heddle::server
