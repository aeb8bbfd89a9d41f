#include "cli/executor.h"

#include <poll.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status.h"
#include "cli/warm.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/job_store.h"
#include "tuner/records/transfer/collect.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr char kCollection[] = "jobs/";  // of JobName
constexpr absl::Duration kLeastBetweenLooks = absl::Seconds(1);

// The job's place in the folder, and its batch's name.
std::string FolderName(const v1::Job& job) {
  return std::string(absl::StripPrefix(job.name(), kCollection));
}

// Of submissions in one pass; and the longest time until a refused one is tried again.
constexpr int kMostRefusals = 3;
constexpr absl::Duration kLongestWait = absl::Minutes(10);

// Somebody may look for why; else a pass would fill the folder's every listing with it.
std::string EndedMark(const std::string& folder) { return folder + "/ended"; }

// Why runs have no result, in a user's words.
std::string WhyIncomplete(const Batch& batch, const std::vector<int64_t>& incomplete,
                          const std::map<std::string, std::vector<tuner::Attempt>>& attempts,
                          const std::map<int64_t, ClusterEngine::Ending>& endings) {
  std::map<std::string, int> reasons;
  for (int64_t index : incomplete) {
    const auto ending = endings.find(index);
    const std::string why = ending == endings.end() ? "" : ending->second.why;
    const auto files = attempts.find(batch.RunName(index));
    const bool interrupted = files != attempts.end() && !files->second.empty() &&
                             files->second.back().exit_code == kInterrupted;
    if (!why.empty()) {
      ++reasons[why];
    } else if (interrupted) {
      ++reasons["out of time (--time)"];
    } else {
      ++reasons["ended without a result; its log is in the job's folder"];
    }
  }
  std::string text = absl::StrJoin(reasons, "; ", [](std::string* out, const auto& reason) {
    absl::StrAppend(out, reason.second, " ", reason.first);
  });
  constexpr size_t kMostNodes = 3;
  const auto unfit = UnfitNodes(batch);
  size_t named = 0;
  for (const auto& [node, why] : unfit) {
    if (named++ < kMostNodes) absl::StrAppend(&text, "; on node ", node, ": ", why);
  }
  if (named > kMostNodes) absl::StrAppend(&text, "; and on ", named - kMostNodes, " more nodes");
  return text;
}

std::vector<server::WorkloadRun> RunsOf(
    const Batch& batch, std::map<std::string, std::vector<tuner::Attempt>>& attempts) {
  std::vector<server::WorkloadRun> runs;
  for (size_t i = 0; i < batch.workloads.size(); ++i) {
    const std::string run = batch.RunName(static_cast<int64_t>(i));
    runs.push_back({static_cast<int>(i), run, IsComplete(attempts[run])});
  }
  return runs;
}

// How a run ended for good, where that was not well.
std::string ErrorOf(const std::string& workload, const std::vector<tuner::Attempt>& attempts) {
  for (const tuner::Attempt& attempt : attempts) {
    if (attempt.exit_code == kDone) return "";
  }
  const bool none = std::any_of(attempts.begin(), attempts.end(), [](const tuner::Attempt& a) {
    return a.exit_code == kNoValidSchedule;
  });
  // "vector_add(n = 4) " of "float32 op vector_add(n = 4) {..."
  const size_t begin = workload.find("op ") + 3;
  return absl::StrCat(workload.substr(begin, workload.find('{') - begin),
                      none ? "has no valid schedule on its node"
                           : "was refused on its node; the log is in the job's folder");
}

}  // namespace

Executor::Executor(server::Server& server, std::unique_ptr<ClusterEngine> engine,
                   std::string folder, absl::Duration every)
    : server_(server), engine_(std::move(engine)), folder_(std::move(folder)), every_(every) {
  thread_ = std::thread([this] {
    do {
      if (absl::Status s = Pass(); !s.ok() && !absl::IsCancelled(s)) {
        LogEvent(Severity::kError, "executor", {{"error", std::string(s.message())}});
      }
    } while (!WaitForLook());
  });
}

Executor::~Executor() {
  stop_.Set();
  engine_->Interrupt();
  thread_.join();
}

bool Executor::WaitForLook() const {
  // Whatever changes, a pass reads the folders of all jobs.
  const absl::Duration least = std::min(every_, kLeastBetweenLooks);
  if (stop_.Wait(least)) return true;
  pollfd fds[] = {{stop_.fd(), POLLIN, 0}, {engine_->fd(), POLLIN, 0}};
  poll(fds, std::size(fds), static_cast<int>(absl::ToInt64Milliseconds(every_ - least)));
  return stop_.IsSet();
}

absl::Status Executor::Pass() {
  refusals_ = 0;
  // Before the jobs are read: what is submitted then is not missed in it.
  HEDDLE_RETURN_IF_ERROR(engine_->Look());
  absl::StatusOr<std::vector<v1::Job>> jobs = [&] {
    auto reader = server_.store().Read();
    return server::LoadOpenJobs(*reader);
  }();
  HEDDLE_RETURN_IF_ERROR(jobs);
  std::set<std::string> open;
  absl::Status last;
  for (const v1::Job& job : *jobs) {
    open.insert(FolderName(job));
    if (job.state() == v1::Job::STATE_CANCELLING || stop_.Wait(absl::ZeroDuration())) continue;
    // One job's trouble is not the others'; a cluster that does not answer is.
    const absl::Status status = Advance(job);
    if (absl::IsUnavailable(status) || absl::IsCancelled(status)) return status;
    if (status.ok()) continue;
    LogEvent(Severity::kError, "executor",
             {{"job", job.name()}, {"error", std::string(status.message())}});
  }
  HEDDLE_ASSIGN_OR_RETURN(folders, ListFolder(folder_));
  for (const std::string& name : folders) {
    const bool seen = engine_->Sees(name);
    if (open.contains(name) || (retired_.contains(name) && !seen)) continue;
    const std::string folder = absl::StrCat(folder_, "/", name);
    std::error_code unknown;  // as on a folder of the network that is away
    if (!seen && fs::exists(EndedMark(folder), unknown)) {
      retired_.insert(name);
      continue;
    }
    {
      // What is no job of this server's is left alone.
      auto reader = server_.store().Read();
      const auto ended = server::HasEnded(*reader, server::JobId(kCollection + name));
      if (!ended.ok() || !*ended) continue;
    }
    last.Update(Retire(folder));
  }
  return last;
}

absl::StatusOr<Batch> Executor::FindOrMakeBatch(const v1::Job& job) {
  const std::string folder = folder_ + "/" + FolderName(job);
  auto existing = ReadBatch(folder);
  if (!absl::IsNotFound(existing.status())) return existing;
  Batch batch;
  batch.name = FolderName(job);
  batch.created =
      absl::FormatTime("%Y%m%dT%H%M%SZ", TimeOf(job.create_time()), absl::UTCTimeZone());
  batch.folder = folder;
  batch.db = server_.store().path();
  {
    auto reader = server_.store().Read();
    HEDDLE_ASSIGN_OR_RETURN(uses, server::LoadUse(*reader, server::JobId(job.name())));
    for (server::WorkloadUse& use : uses) batch.workloads.push_back(std::move(use.text));
  }
  const v1::JobSpec& spec = job.spec();
  const v1::Budget& budget = spec.budget();
  batch.l2 = measure::NameOf(server::FromProto(spec.l2()));
  batch.trials = budget.trials();
  batch.plateau = budget.plateau();
  batch.seconds = SecondsOf(budget.search_duration());
  if (spec.seed() != 0) batch.seed = spec.seed();
  if (!spec.search().empty()) batch.search = spec.search();
  HEDDLE_ASSIGN_OR_RETURN(files, engine_->Files());
  HEDDLE_RETURN_IF_ERROR(MakeBatch(batch, files));
  return ReadBatch(folder);
}

absl::StatusOr<Executor::Attempts> Executor::FindAttempts(const Batch& batch) {
  std::vector<std::string> refused;
  auto attempts = tuner::AttemptsIn(batch.runs(), refused);
  for (const std::string& why : refused) {
    if (told_of_.insert(why).second) LogEvent(Severity::kError, "run_refused", {{"error", why}});
  }
  return attempts;
}

// Lines are judged here, and written in turns of the writer that others wait for.
absl::StatusOr<tuner::CollectReport> Executor::CollectFile(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  const bool opened = in.is_open();
  absl::StatusOr<tuner::RunReader> file = tuner::RunReader::Open(in);
  tuner::CollectReport report;
  if (file.ok()) {
    for (tuner::RunPart part = file->Next(); !part.empty(); part = file->Next()) {
      const tuner::Records::ImportReport before = report.trials;
      HEDDLE_RETURN_IF_ERROR(server_.store().WriteAndWait([&](tuner::Records& records) {
        report.trials = before;  // a turn may be taken twice
        return tuner::CollectPart(records, file->header(), part, report.trials);
      }));
    }
  }
  // What ends before its end would count as collected.
  if (!opened || in.bad()) return absl::UnavailableError(path + ": cannot be read");
  HEDDLE_RETURN_IF_ERROR(file);
  report.header = file->header();
  report.exit_code = file->exit_code();
  return report;
}

absl::StatusOr<std::string> Executor::Collect(const Attempts& attempts, bool all) {
  std::string model;
  for (const auto& [run, files] : attempts) {
    for (const tuner::Attempt& file : files) {
      std::error_code error;
      const uintmax_t bytes = fs::file_size(file.path, error), before = collected_[file.path];
      const bool wanted = all || file.exit_code || bytes >= 2 * before;
      if (error) return absl::UnavailableError(absl::StrCat(file.path, ": ", error.message()));
      if (bytes == before || !wanted) continue;
      const auto report = CollectFile(file.path);
      if (absl::IsInvalidArgument(report.status())) {
        // It was a run's when it was looked at; the others are not to blame.
        LogEvent(Severity::kError, "run_refused",
                 {{"file", file.path}, {"error", std::string(report.status().message())}});
        collected_[file.path] = bytes;
        continue;
      }
      HEDDLE_RETURN_IF_ERROR(report);
      for (const std::string& line : report->trials.rejected) {
        LogEvent(Severity::kWarning, "collect_refused", {{"file", file.path}, {"error", line}});
      }
      collected_[file.path] = bytes;
      model = report->header.device;
    }
  }
  return model;
}

absl::Status Executor::Submit(const v1::Job& job, const Batch& batch, int submission,
                              const std::vector<int64_t>& indices) {
  // What is refused to several is refused to all, as a rule: the next pass tries.
  if (refusals_ >= kMostRefusals) return absl::OkStatus();
  const auto refused = refused_.find(batch.name);
  if (refused != refused_.end() && SteadyNow() < refused->second.again) return absl::OkStatus();
  if (warm_.insert(absl::StrCat(batch.name, "-", submission)).second) {
    auto reader = server_.store().Read();
    if (absl::Status s = WriteWarmStart(*reader, batch); !s.ok()) {
      // Runs start from less.
      LogEvent(Severity::kWarning, "warm_start",
               {{"job", job.name()}, {"error", std::string(s.message())}});
    }
  }
  const absl::Status status = engine_->Submit(batch, job.tenant(), submission, indices);
  if (status.ok()) {
    refused_.erase(batch.name);
    return status;
  }
  if (absl::IsInvalidArgument(status)) {
    server_.engine().EndRuns(
        server::JobId(job.name()),
        absl::StrCat(engine_->place(), " does not take it: ", status.message()));
    return absl::OkStatus();
  }
  ++refusals_;
  Refusal& refusal = refused_[batch.name];
  refusal.again = SteadyNow() + std::min(kLongestWait, every_ * (int64_t{1} << refusal.count));
  refusal.count = std::min(refusal.count + 1, 20);
  // Where the cluster does not answer this is said of all jobs, in the log.
  if (!absl::IsUnavailable(status) && !absl::IsCancelled(status)) {
    HEDDLE_RETURN_IF_ERROR(SetObstacle(
        job, absl::StrCat(engine_->place(),
                          " does not take it, and it is tried again: ", status.message())));
  }
  return status;
}

absl::Status Executor::SetObstacle(const v1::Job& job, const std::string& why) {
  if (job.error() == why) return absl::OkStatus();
  return server_.store().WriteAndWait([&](tuner::Records& records) {
    return server::SetObstacle(records, server::JobId(job.name()), why);
  });
}

absl::Status Executor::Advance(const v1::Job& job) {
  server::Engine& engine = server_.engine();
  const int64_t id = server::JobId(job.name());
  if (!job.spec().device().device().empty()) {
    engine.EndRuns(id, absl::StrCat("the job asks for device ", job.spec().device().device(),
                                    "; a cluster chooses devices itself, by model at most"));
    return absl::OkStatus();
  }
  HEDDLE_ASSIGN_OR_RETURN(batch, FindOrMakeBatch(job));
  HEDDLE_ASSIGN_OR_RETURN(attempts, FindAttempts(batch));
  std::vector<server::WorkloadRun> runs = RunsOf(batch, attempts);
  std::vector<int64_t> incomplete;
  std::vector<std::string> errors;
  for (const server::WorkloadRun& run : runs) {
    if (!run.ended) {
      incomplete.push_back(run.number);
    } else if (std::string e = ErrorOf(batch.workloads[run.number], attempts[run.run]);
               !e.empty()) {
      errors.push_back(std::move(e));
    }
  }
  const bool lives = engine_->Lives(batch);
  HEDDLE_ASSIGN_OR_RETURN(model, Collect(attempts, !lives || incomplete.empty()));
  const std::string& asked = job.spec().device().model();
  if (!model.empty() && !asked.empty() && model != asked) {
    engine.EndRuns(
        id, absl::StrCat("the job asks for ", asked, ", and ", engine_->place(), " has ", model));
    return absl::OkStatus();
  }
  if (!model.empty()) engine.ReportRuns(id, model, std::move(runs));
  if (incomplete.empty()) {
    engine.EndRuns(id, absl::StrJoin(errors, "; "));
    return absl::OkStatus();
  }

  HEDDLE_RETURN_IF_ERROR(engine_->Settle(batch));
  HEDDLE_ASSIGN_OR_RETURN(submission, LastSubmission(batch));
  if (submission < 0) return Submit(job, batch, 0, incomplete);
  // A file may be seen later than the end of the task that has written it.
  if (lives) {
    over_.erase(batch.name);
    return SetObstacle(job, "");
  }
  if (SteadyNow() - over_.emplace(batch.name, SteadyNow()).first->second < every_) {
    return absl::OkStatus();
  }
  over_.erase(batch.name);
  HEDDLE_ASSIGN_OR_RETURN(endings, engine_->Endings(batch, submission, incomplete));
  const bool cancelled = std::any_of(endings.begin(), endings.end(),
                                     [](const auto& ending) { return ending.second.cancelled; });
  if (cancelled || submission >= engine_->resubmissions()) {
    errors.insert(errors.begin(),
                  absl::StrCat(incomplete.size(), " of ", batch.workloads.size(),
                               " workloads are not complete after ", submission + 1,
                               submission == 0 ? " submission: " : " submissions: ",
                               WhyIncomplete(batch, incomplete, attempts, endings)));
    engine.EndRuns(id, absl::StrJoin(errors, "; "));
    return absl::OkStatus();
  }
  return Submit(job, batch, submission + 1, incomplete);
}

absl::Status Executor::Retire(const std::string& folder) {
  HEDDLE_ASSIGN_OR_RETURN(batch, ReadBatch(folder));
  HEDDLE_ASSIGN_OR_RETURN(stopped, engine_->Stop(batch));
  HEDDLE_ASSIGN_OR_RETURN(attempts, FindAttempts(batch));
  HEDDLE_ASSIGN_OR_RETURN(model, Collect(attempts, true));
  if (!model.empty()) {
    // Of a job that has ended the engine counts nothing more.
    HEDDLE_RETURN_IF_ERROR(server_.store().WriteAndWait([&](tuner::Records& records) {
      return server::CountRuns(records, server::JobId(kCollection + batch.name), model,
                               RunsOf(batch, attempts));
    }));
  }
  if (!stopped) return absl::OkStatus();
  HEDDLE_RETURN_IF_ERROR(WriteFile(EndedMark(folder), ""));
  retired_.insert(fs::path(folder).filename());
  refused_.erase(batch.name);
  std::erase_if(warm_, [&](const auto& of) { return absl::StartsWith(of, batch.name + "-"); });
  std::erase_if(collected_,
                [&](const auto& file) { return absl::StartsWith(file.first, folder + "/"); });
  std::erase_if(told_of_, [&](const auto& why) { return absl::StartsWith(why, folder + "/"); });
  return absl::OkStatus();
}

}  // namespace heddle::cli
