#include "server/db/job_store.h"

#include <algorithm>
#include <random>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "measure/run/processes/messages.h"
#include "nlohmann/json.hpp"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "tuner/records/records_fields.h"
#include "tuner/records/records_sql.h"

namespace heddle::server {
namespace {

using tuner::Records;

constexpr char kJobColumns[] =
    "SELECT id, tenant, spec, state, stop_reason, error, device_model, create_us, start_us, "
    "end_us, "
    "last_seq FROM job ";

constexpr v1::Job::State kTerminalStates[] = {v1::Job::STATE_SUCCEEDED, v1::Job::STATE_FAILED,
                                              v1::Job::STATE_CANCELLED};

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
  const bool has_ended = row.Int(9) != 0;
  if (!parsed.ok() && !(has_ended && !job.error().empty())) {
    job.set_error(std::string(parsed.message()));
  }
  job.set_device_model(row.Text(6));
  *job.mutable_create_time() = StampOf(row.Int(7));
  if (row.Int(8) != 0) *job.mutable_start_time() = StampOf(row.Int(8));
  if (row.Int(9) != 0) *job.mutable_end_time() = StampOf(row.Int(9));
  job.set_last_seq(row.Int(10));
  return job;
}

absl::Status NoJob(int64_t id) {
  return absl::NotFoundError(absl::StrCat("there is no job ", JobName(id)));
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
    HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] {
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
    }));
  }
  for (const Ended& e : ended) {
    HEDDLE_ASSIGN_OR_RETURN(
        best, records.FindBest(e.text, {job.device_model(), FromProto(job.spec().l2())}));
    v1::WorkloadProgress& progress = *job.mutable_workloads(e.number);
    if (!best.has_value()) continue;
    *progress.mutable_best() = ToProto(*best, progress.workload());
    if (best->trial.from.tenant != job.tenant()) HideOrigin(*progress.mutable_best());
  }
  return absl::OkStatus();
}

// With its trials and events.
absl::Status ForgetJob(Database& db, int64_t job) {
  for (const char* table : {"job_event", "job_trial", "job_workload", "job_label"}) {
    HEDDLE_RETURN_IF_ERROR(db.Run(absl::StrCat("DELETE FROM ", table, " WHERE job = ?"), job));
  }
  return db.Run("DELETE FROM job WHERE id = ?", job);
}

template <typename Labels>
absl::Status AddLabels(Database& db, int64_t job, const Labels& labels) {
  for (const auto& [key, value] : labels) {
    HEDDLE_RETURN_IF_ERROR(db.Run("INSERT INTO job_label VALUES (?, ?, ?)", job, key, value));
  }
  return absl::OkStatus();
}

// When its first trial was begun; INT64_MAX: there is none.
absl::StatusOr<int64_t> CountRun(Records& records, int64_t job, const WorkloadRun& run) {
  Database& db = records.database();
  int64_t trials = 0, ok = 0, begun_us = INT64_MAX;
  double default_us = 0, screened_us = 0, final_us = 0;
  nlohmann::json failed = nlohmann::json::object();
  {
    Cursor row = db.Query(
        "SELECT t.outcome, t.final, t.time_us, a.number = 0 AND c.sequence = 1, t.when_us - CAST("
        "1e6 * (t.compile_s + t.load_s + t.validate_s + t.time_s) AS INTEGER) FROM attempt a "
        "CROSS JOIN collected c ON c.attempt = a.id CROSS JOIN trial t ON t.id = c.trial "
        "WHERE a.run = ?",
        run.run);
    HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] {
      const std::string outcome = row.Text(0);
      const bool is_final = row.Int(1) != 0, is_ok = outcome == NameOf(measure::Outcome::kOk);
      const double time = row.Real(2);
      trials += !is_final;
      ok += !is_final && is_ok;
      if (!is_ok && !is_final) failed[outcome] = failed.value(outcome, 0) + 1;
      double& best_us = is_final ? final_us : screened_us;
      if (is_ok && (best_us == 0 || time < best_us)) best_us = time;
      if (is_ok && row.Int(3) != 0) default_us = time;  // trial 1 of every session
      begun_us = std::min(begun_us, row.Int(4));
    }));
  }
  HEDDLE_RETURN_IF_ERROR(
      db.Run("UPDATE job_workload SET trials = ?, ok = ?, failed = ?, default_us = ?, best_us = ?, "
             "ended = ? WHERE job = ? AND number = ?",
             trials, ok, failed.dump(), default_us, final_us > 0 ? final_us : screened_us,
             int{run.ended}, job, run.number));
  return begun_us;
}

}  // namespace

absl::Status CheckReadable(const v1::Job& job) {
  if (job.has_spec()) return absl::OkStatus();
  return absl::FailedPreconditionError(absl::StrCat("this version of heddle cannot read what ",
                                                    job.name(), " asks for: create another one"));
}

absl::StatusOr<int64_t> AppendEvent(Database& db, int64_t job, v1::Job::State state, int64_t trial,
                                    absl::Time now) {
  HEDDLE_RETURN_IF_ERROR(db.Run("UPDATE job SET last_seq = last_seq + 1 WHERE id = ?", job));
  HEDDLE_ASSIGN_OR_RETURN(seq, db.QueryInt("SELECT last_seq FROM job WHERE id = ?", job));
  HEDDLE_RETURN_IF_ERROR(db.Run("INSERT INTO job_event VALUES (?, ?, ?, ?, ?)", job, seq,
                                Micros(now), int{state}, trial));
  return seq;
}

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
  HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
  if (!found) return std::optional<int64_t>();
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

void JobUpdate::ApplyTo(v1::JobSpec& spec) const {
  if (labels) *spec.mutable_labels() = {labels->begin(), labels->end()};
  if (priority) spec.set_priority(*priority);
}

absl::Status StoreUpdate(Records& records, int64_t job, const JobUpdate& update) {
  Database& db = records.database();
  if (update.priority) {
    HEDDLE_RETURN_IF_ERROR(
        db.Run("UPDATE job SET spec = json_set(spec, '$.priority', ?) WHERE id = ?",
               int64_t{*update.priority}, job));
  }
  if (!update.labels) return absl::OkStatus();
  HEDDLE_RETURN_IF_ERROR(
      db.Run("UPDATE job SET spec = json_set(spec, '$.labels', json(?)) WHERE id = ?",
             nlohmann::json(*update.labels).dump(), job));
  HEDDLE_RETURN_IF_ERROR(db.Run("DELETE FROM job_label WHERE job = ?", job));
  return AddLabels(db, job, *update.labels);
}

absl::StatusOr<int64_t> ReopenJob(Records& records, int64_t id, absl::Time now) {
  Database& db = records.database();
  HEDDLE_RETURN_IF_ERROR(
      db.Run("UPDATE job SET state = ?, stop_reason = 0, error = '', end_us = 0, restarts = 0 "
             "WHERE id = ?",
             int{v1::Job::STATE_QUEUED}, id));
  HEDDLE_RETURN_IF_ERROR(db.Run(
      "UPDATE job_workload SET ended = 0 WHERE job = ?1 AND NOT EXISTS (SELECT 1 FROM job_trial j "
      "JOIN trial t ON t.id = j.record WHERE j.job = ?1 AND j.workload = job_workload.number "
      "AND j.final = 1 AND t.outcome = 'OK')",
      id));
  return AppendEvent(db, id, v1::Job::STATE_QUEUED, 0, now);
}

absl::StatusOr<int64_t> InsertJob(Records& records, const std::string& tenant,
                                  const v1::JobSpec& spec, const std::vector<Workload>& workloads,
                                  absl::Time now) {
  Database& db = records.database();
  const int64_t expires = spec.has_expire_time() ? Micros(TimeOf(spec.expire_time())) : 0;
  HEDDLE_ASSIGN_OR_RETURN(last, db.QueryInt("SELECT coalesce(max(id), 0) FROM job"));
  const int64_t id = NewJobId(last, now);
  HEDDLE_RETURN_IF_ERROR(db.Run(
      "INSERT INTO job (id, tenant, spec, state, stop_reason, error, device_model, create_us, "
      "start_us, end_us, expire_us, last_seq) VALUES (?, ?, ?, ?, 0, '', '', ?, 0, 0, ?, 0)",
      id, tenant, ToJson(spec), int{v1::Job::STATE_QUEUED}, Micros(now), expires));
  for (size_t i = 0; i < workloads.size(); ++i) {
    HEDDLE_RETURN_IF_ERROR(
        db.Run("INSERT INTO job_workload VALUES (?, ?, ?, ?, 0, 0, '{}', 0.0, 0.0, 0.0, 0)", id,
               static_cast<int64_t>(i), workloads[i]->hash, workloads[i]->canonical_text));
  }
  HEDDLE_RETURN_IF_ERROR(AddLabels(db, id, spec.labels()));
  HEDDLE_RETURN_IF_ERROR(AppendEvent(db, id, v1::Job::STATE_QUEUED, 0, now));
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
    HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
    if (!found || (!tenant.empty() && row.Text(1) != tenant)) return NoJob(id);
    job = ReadJob(row);
  }
  HEDDLE_RETURN_IF_ERROR(AddProgress(records, job));
  return job;
}

absl::Status RefreshJob(Records& records, v1::Job& job) {
  const int64_t id = JobId(job.name());
  Cursor row = records.database().Query(
      "SELECT state, device_model, coalesce(json_extract(spec, '$.priority'), 0) FROM job "
      "WHERE id = ?",
      id);
  HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
  if (!found) return NoJob(id);
  job.set_state(static_cast<v1::Job::State>(row.Int(0)));
  job.set_device_model(row.Text(1));
  if (job.has_spec()) job.mutable_spec()->set_priority(static_cast<int32_t>(row.Int(2)));
  return absl::OkStatus();
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
    HEDDLE_RETURN_IF_ERROR(AddProgress(records, job));
    if (!full) LeaveOutTexts(job);
    page_bytes += job.ByteSizeLong();
    if (page_bytes > kMaxPageBytes && !jobs.empty()) return jobs;  // begins the next page
    before = row.Int(0);
    ++rows;
    jobs.push_back(std::move(job));
  }
  HEDDLE_RETURN_IF_ERROR(more);
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
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] { jobs.push_back(ReadJob(row)); }));
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
  HEDDLE_ASSIGN_OR_RETURN(
      jobs,
      db.QueryInts("SELECT id FROM job WHERE end_us > 0 AND end_us < ? ORDER BY end_us LIMIT ?",
                   Micros(when), count));
  for (int64_t job : jobs) HEDDLE_RETURN_IF_ERROR(ForgetJob(db, job));
  return static_cast<int>(jobs.size());
}

absl::Status PruneJobsOf(Records& records, const std::string& tenant, int64_t kept,
                         absl::Time when) {
  constexpr int64_t kForgotten = 2;
  Database& db = records.database();
  // From an index alone: rows have specifications of up to 1 MiB.
  int64_t ended = 0;
  for (const v1::Job::State state : kTerminalStates) {
    HEDDLE_ASSIGN_OR_RETURN(
        count, db.QueryInt("SELECT count(*) FROM job INDEXED BY job_state WHERE tenant = ? AND "
                           "state = ?",
                           tenant, int{state}));
    ended += count;
  }
  if (ended <= kept) return absl::OkStatus();
  // Of each state the first few, some of which may have gone on for long: a job that has ended did
  // so with its last event.
  constexpr int64_t kLookedAt = 16;
  std::vector<int64_t> oldest;
  for (const v1::Job::State state : kTerminalStates) {
    Cursor row = db.Query(
        "SELECT id FROM (SELECT id FROM job INDEXED BY job_state WHERE tenant = ? AND state = ? "
        "ORDER BY id LIMIT ?) WHERE (SELECT when_us FROM job_event WHERE job = id ORDER BY seq "
        "DESC "
        "LIMIT 1) < ? LIMIT ?",
        tenant, int{state}, kLookedAt, Micros(when), kForgotten);
    HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] { oldest.push_back(row.Int(0)); }));
  }
  std::sort(oldest.begin(), oldest.end());
  const int64_t most = std::min(kForgotten, ended - kept);
  if (static_cast<int64_t>(oldest.size()) > most) oldest.resize(static_cast<size_t>(most));
  for (const int64_t job : oldest) HEDDLE_RETURN_IF_ERROR(ForgetJob(db, job));
  return absl::OkStatus();
}

absl::StatusOr<int64_t> SetState(Records& records, int64_t job, v1::Job::State state,
                                 v1::Job::StopReason reason, const std::string& error,
                                 const std::string& model, absl::Time now) {
  Database& db = records.database();
  auto old = db.QueryInt("SELECT state FROM job WHERE id = ? AND end_us = 0", job);
  if (absl::IsNotFound(old.status())) return 0;
  HEDDLE_RETURN_IF_ERROR(old);
  if (*old == int{state}) return 0;
  const int64_t end = IsTerminal(state) ? Micros(now) : 0;
  // However it waits, for what it does so stays (SetObstacle).
  const bool waits = state == v1::Job::STATE_QUEUED || state == v1::Job::STATE_WAITING_DEVICE;
  HEDDLE_RETURN_IF_ERROR(
      db.Run("UPDATE job SET state = ?, stop_reason = ?, error = iif(?, error, ?), end_us = ?, "
             "device_model = iif(? = '', device_model, ?), "
             "start_us = iif(start_us = 0 AND ? = ?, ?, start_us) WHERE id = ?",
             int{state}, int{reason}, int{waits}, error, end, model, model, int{state},
             int{v1::Job::STATE_RUNNING}, Micros(now), job));
  if (end != 0) {
    // Nobody will measure what waits for a device.
    HEDDLE_RETURN_IF_ERROR(db.Run("DELETE FROM job_trial WHERE job = ? AND state = 1", job));
  }
  return AppendEvent(db, job, state, 0, now);
}

absl::Status SetObstacle(Records& records, int64_t job, const std::string& why) {
  return records.database().Run("UPDATE job SET error = ? WHERE id = ? AND end_us = 0", why, job);
}

absl::StatusOr<std::vector<WorkloadUse>> LoadUse(Records& records, int64_t job) {
  std::vector<WorkloadUse> uses;
  Cursor row = records.database().Query(
      "SELECT text, trials, best_us, search_s, ended FROM job_workload WHERE job = ? ORDER BY "
      "number",
      job);
  HEDDLE_RETURN_IF_ERROR(row.ForEachRow([&] {
    uses.push_back({row.Text(0), row.Int(1), row.Real(2), row.Real(3), row.Int(4) != 0});
  }));
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

absl::Status CountRuns(Records& records, int64_t job, const std::string& model,
                       const std::vector<WorkloadRun>& runs) {
  int64_t begun_us = INT64_MAX;
  for (const WorkloadRun& run : runs) {
    HEDDLE_ASSIGN_OR_RETURN(us, CountRun(records, job, run));
    begun_us = std::min(begun_us, us);
  }
  if (begun_us == INT64_MAX) return absl::OkStatus();
  return records.database().Run(
      "UPDATE job SET device_model = iif(device_model = '', ?3, device_model), "
      "start_us = max(create_us, min(iif(start_us = 0, ?1, start_us), iif(end_us = 0, ?1, end_us), "
      "?1)) WHERE id = ?2",
      begun_us, job, model);
}

absl::StatusOr<bool> HasEnded(Records& records, int64_t job) {
  HEDDLE_ASSIGN_OR_RETURN(
      ended, records.database().QueryInt("SELECT end_us > 0 FROM job WHERE id = ?", job));
  return ended != 0;
}

}  // namespace heddle::server
