// heddle cluster: tuning jobs for a cluster's own engine to run (docs/cluster.md).
#include "cli/cluster.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <iostream>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/status.h"
#include "cli/batch.h"
#include "cli/batch_task.h"
#include "cli/collect.h"
#include "cli/command.h"
#include "cli/kubernetes.h"
#include "cli/slurm.h"
#include "cli/slurm_batch.h"
#include "cli/suite.h"
#include "cli/warm.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

struct BatchFlags {
  SuiteFlags suite;
  SlurmFlags slurm;
  std::string folder = "heddle-batches", db, collect_on, collect_partition, collect_script;
  bool submit = false, cancel = false;
};

// Of the half hour that collect.sbatch has; and between tries while Slurm does not answer.
constexpr absl::Duration kPatience = absl::Minutes(25);
constexpr absl::Duration kFirstPause = absl::Seconds(1), kLongestPause = absl::Seconds(30);

SlurmArray CollectorOf(const Batch& batch, int generation, const std::string& arrays) {
  SlurmArray collector{absl::StrCat(batch.JobName(), "-", generation, ".collect"),
                       {"--dependency=afterany:" + arrays}};
  collector.arguments.insert(collector.arguments.end(), batch.collector.begin(),
                             batch.collector.end());
  collector.arguments.insert(
      collector.arguments.end(),
      {absl::StrCat("--output=", batch.folder, "/log/collect-", generation, ".log"),
       batch.folder + "/collect.sbatch", batch.folder, ThisProgram(), absl::StrCat(generation)});
  return collector;
}

// Before the arrays are there, with which the batch's flags are settled.
absl::Status CheckCollectorFits(const Batch& batch) {
  const SlurmArray collector = CollectorOf(batch, 0, "");
  HEDDLE_ASSIGN_OR_RETURN(written, WrittenDown(batch, collector.name));
  if (written != 0) return absl::OkStatus();
  // All but what it waits for.
  return CheckFits(collector.name, {collector.arguments.begin() + 1, collector.arguments.end()});
}

// The arrays are held until what collects them waits for them: whatever is killed meanwhile, the
// same command goes on, and none of it runs twice.
absl::Status SubmitGeneration(const Batch& batch, int generation,
                              const std::vector<int64_t>& indices) {
  if (generation == 0) HEDDLE_RETURN_IF_ERROR(CheckCollectorFits(batch));
  HEDDLE_ASSIGN_OR_RETURN(submission, SubmitHeld(batch, generation, indices));
  const HeldArrays& held = submission.held;
  for (const auto& [node, why] : submission.left_out) {
    Say(absl::StrCat("node ", node, " is left out: ", why));
  }
  const std::string ids = absl::StrJoin(
      held, ":", [](std::string* out, const auto& job) { absl::StrAppend(out, job.second); });
  HEDDLE_ASSIGN_OR_RETURN(collector, SubmitArray(batch, CollectorOf(batch, generation, ids)));
  HEDDLE_RETURN_IF_ERROR(Release(held));
  Say(absl::StrCat(indices.size(), " workloads as job ", ids, ", collected by job ", collector));
  return absl::OkStatus();
}

// Held by who submits: two at a time would not see each other's jobs.
class BatchLock {
 public:
  explicit BatchLock(const Batch& batch)
      : file_(open((batch.folder + "/lock").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644)) {
    if (file_ >= 0) flock(file_, LOCK_EX);
  }
  ~BatchLock() {
    if (file_ >= 0) close(file_);
  }
  BatchLock(const BatchLock&) = delete;
  BatchLock& operator=(const BatchLock&) = delete;

 private:
  int file_;
};

// What runs start from costs time where it is missing, and nothing else.
void SayCold(const absl::Status& written) {
  if (!written.ok()) Say(absl::StrCat("Runs start from less: ", written.message()));
}

std::string CancelledMark(const Batch& batch) { return batch.folder + "/cancelled"; }

// What was submitted before: what Slurm holds, as it does with a task whose node's daemon ended as
// it was to begin, is released; what Slurm has lost is told of.
absl::Status GoOn(const Batch& batch) {
  HEDDLE_ASSIGN_OR_RETURN(last, LastSubmission(batch));
  HEDDLE_ASSIGN_OR_RETURN(names, ListFolder(batch.folder + "/jobs"));
  HEDDLE_ASSIGN_OR_RETURN(jobs, AllSlurmJobs());
  bool lives = false;
  for (const std::string& name : names) {
    const std::vector<SlurmJob>& known = jobs[name];
    lives |= !std::all_of(known.begin(), known.end(), HasEnded);
    HEDDLE_ASSIGN_OR_RETURN(id, WrittenDown(batch, name));
    HEDDLE_RETURN_IF_ERROR(ReleaseSlurmJob(name, id));
  }
  HEDDLE_ASSIGN_OR_RETURN(incomplete, IncompleteRuns(batch));
  std::error_code error;
  if (lives || incomplete.empty() || fs::exists(CancelledMark(batch), error)) {
    return absl::OkStatus();
  }
  // Not here: the database may be another node's.
  Say(absl::StrCat("Slurm has nothing of it any more, and ", incomplete.size(),
                   " workloads are not complete. Where the database lies, this goes on: heddle "
                   "cluster collect --folder ",
                   batch.folder, " --generation ", last));
  return absl::OkStatus();
}

// What a batch that Slurm has already asks for otherwise than `planned`; empty: nothing. Flags of
// sbatch are not looked at, which may follow from how the cluster stands.
std::string Differences(const Batch& made, const Batch& planned) {
  if (made.workloads != planned.workloads || made.dtype != planned.dtype) {
    return "other workloads";
  }
  std::vector<std::string> differences;
  const auto compare = [&](const char* flag, const auto& theirs, const auto& ours) {
    if (theirs != ours) differences.push_back(absl::StrCat(flag, " ", theirs, ", not ", ours));
  };
  compare("--trials", made.trials, planned.trials);
  compare("--seconds", made.seconds, planned.seconds);
  compare("--plateau", made.plateau, planned.plateau);
  compare("--seed", made.seed, planned.seed);
  compare("--search", made.search, planned.search);
  compare("--l2", made.l2, planned.l2);
  return absl::StrJoin(differences, "; ");
}

absl::StatusOr<Batch> PlanBatch(const BatchFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(batch, flags.suite.Plan(flags.folder));
  batch.db = fs::absolute(flags.db.empty() ? tuner::Records::DefaultPath() : flags.db).string();
  batch.array = flags.slurm.OfArray(batch.TaskSeconds());
  batch.parallel = flags.slurm.parallel;
  std::vector<std::string> where;
  if (!flags.collect_on.empty()) where.push_back("--nodelist=" + flags.collect_on);
  SlurmFlags collector = flags.slurm;
  if (!flags.collect_partition.empty()) collector.partition = flags.collect_partition;
  batch.collector = collector.With(std::move(where));
  return batch;
}

Result CancelBatch(const Batch& batch) {
  // Before anything ends: what collects is not to submit it again.
  absl::Status s = WriteFile(CancelledMark(batch), "");
  HEDDLE_ASSIGN_OR_RETURN(names, ListFolder(batch.folder + "/jobs"));
  for (const std::string& name : names) {
    // What collects is to do so.
    if (s.ok() && !absl::EndsWith(name, ".collect")) s = CancelSlurmJobs(name);
  }
  HEDDLE_RETURN_IF_ERROR(s);
  Say(absl::StrCat("Cancelled: ", batch.folder, "; what was measured is collected."));
  return kDone;
}

// What --submit would do; `task` is the script of its arrays.
void PrintSubmission(const Batch& batch, const std::string& task) {
  std::vector<std::string> ids;
  for (const SlurmArray& array : ArraysOf(batch, 0, AllOf(batch), kMaxArray)) {
    ids.push_back(absl::StrCat("ID", ids.size()));
    std::cout << "sbatch --parsable --job-name=" << array.name << " " << ShellWords(array.arguments)
              << "   # " << ids.back() << "\n";
  }
  const SlurmArray collector = CollectorOf(batch, 0, absl::StrJoin(ids, ":"));
  std::cout << "sbatch --parsable --job-name=" << collector.name << " "
            << ShellWords(collector.arguments) << "\n";
  for (const std::string& id : ids) std::cout << "scontrol release " << id << "\n";
  std::cout << "\n# " << batch.folder << "/tune.sbatch\n" << task;
  Say("Nothing was submitted: --submit does it.");
}

Result RunSlurm(const BatchFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(batch, PlanBatch(flags));
  auto existing = ReadBatch(batch.folder);
  if (!existing.ok() && !absl::IsNotFound(existing.status())) return existing.status();
  if (flags.cancel) {
    HEDDLE_RETURN_IF_ERROR(existing);
    return CancelBatch(*existing);
  }
  HEDDLE_ASSIGN_OR_RETURN(task, flags.slurm.TaskScript());
  HEDDLE_ASSIGN_OR_RETURN(collect, ScriptOf(flags.collect_script, kCollectScript));
  if (!flags.submit) {
    PrintSubmission(batch, task);
    return kDone;
  }
  std::vector<std::pair<std::string, std::string>> files{{"tune.sbatch", task},
                                                         {"collect.sbatch", collect}};
  if (!batch.op_file.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(operators, flags.suite.Operators());
    files.emplace_back("operators.op", std::move(operators));
  }
  const bool is_new = !existing.ok();
  if (is_new) {
    HEDDLE_RETURN_IF_ERROR(MakeBatch(batch, files));
    existing = ReadBatch(batch.folder);
    HEDDLE_RETURN_IF_ERROR(existing);
  }
  const BatchLock lock(*existing);
  if (std::error_code none; fs::exists(CancelledMark(*existing), none)) {
    return absl::InvalidArgumentError(absl::StrCat(
        existing->folder, " is a batch that was cancelled: choose another --name, or remove it"));
  }
  HEDDLE_ASSIGN_OR_RETURN(last, LastSubmission(*existing));
  if (last < 0 && !is_new) {
    // Slurm has refused it until now, perhaps for flags that were wrong.
    batch.created = existing->created;
    HEDDLE_RETURN_IF_ERROR(ChangeBatch(batch, files));
    existing = batch;
  } else if (const std::string other = Differences(*existing, batch); !other.empty()) {
    return absl::InvalidArgumentError(absl::StrCat(existing->folder, " is a batch of ", other,
                                                   ": choose another --name, or ask for that"));
  }
  if (std::error_code none; fs::exists(existing->db, none)) {
    auto records = OpenRecords(existing->db);
    SayCold(records.ok() ? WriteWarmStart(**records, *existing) : records.status());
  }
  absl::Status s = SubmitGeneration(*existing, 0, AllOf(*existing));
  if (absl::IsInternal(s)) {
    return absl::InternalError(absl::StrCat(s.message(), "; the same command tries again"));
  }
  HEDDLE_RETURN_IF_ERROR(s);
  HEDDLE_RETURN_IF_ERROR(GoOn(*existing));
  std::cout << existing->folder << "\n";
  return kDone;
}

Result CollectOnce(const std::string& folder, int generation) {
  HEDDLE_ASSIGN_OR_RETURN(batch, ReadBatch(folder));
  HEDDLE_ASSIGN_OR_RETURN(records, OpenWritableRecords(batch.db));
  HEDDLE_ASSIGN_OR_RETURN(collected, CollectRunFiles(*records, {batch.runs()}));
  HEDDLE_ASSIGN_OR_RETURN(incomplete, IncompleteRuns(batch));
  const auto count = batch.workloads.size();
  Say(absl::StrCat(count - incomplete.size(), " of ", count, " workloads are complete"));
  if (incomplete.empty()) return collected;
  std::error_code error;
  const bool cancelled = fs::exists(CancelledMark(batch), error);
  if (error) return absl::UnavailableError(absl::StrCat(folder, ": ", error.message()));
  if (cancelled) {
    Say("The batch was cancelled: nothing is submitted again.");
    return kFailed;
  }
  const BatchLock lock(batch);
  HEDDLE_ASSIGN_OR_RETURN(states, TaskStates(batch, generation, incomplete));
  const size_t given_up =
      std::erase_if(incomplete, [&](int64_t index) { return states[index] == kSlurmCancelled; });
  if (given_up > 0) Say(absl::StrCat(given_up, " were cancelled and stay so"));
  if (incomplete.empty() || generation >= kResubmissions) {
    for (int64_t index : incomplete) {
      Say(absl::StrCat("given up: ", batch.workloads[index], "; its log is in ", folder, "/log"));
    }
    return kFailed;
  }
  SayCold(WriteWarmStart(*records, batch));
  HEDDLE_RETURN_IF_ERROR(SubmitGeneration(batch, generation + 1, incomplete));
  return collected;
}

// Nobody starts again what collects, and with it a batch ends: it waits until Slurm answers, and
// takes what it refuses, as a limit may be reached just now. Each step may be done again.
Result RunCollect(const std::string& folder, int generation) {
  const SteadyTime end = SteadyNow() + kPatience;
  for (absl::Duration pause = kFirstPause;; pause = std::min(2 * pause, kLongestPause)) {
    Result result = CollectOnce(folder, generation);
    if (!absl::IsUnavailable(result.status()) && !absl::IsInternal(result.status())) return result;
    if (SteadyNow() + pause > end) {
      Say(absl::StrCat("Given up. This goes on from here: heddle cluster collect --folder ", folder,
                       " --generation ", generation));
      return result;
    }
    Say(absl::StrCat(result.status().message(), "; again in ", absl::FormatDuration(pause)));
    absl::SleepFor(pause);
  }
}

}  // namespace

void AddCluster(CLI::App& app, Selected selected) {
  CLI::App* group =
      app.add_subcommand("cluster", "tune on the nodes of a cluster that has its own scheduler");
  group->require_subcommand(1);

  auto flags = std::make_shared<BatchFlags>();
  CLI::App* sub = group->add_subcommand(
      "slurm", "tune each workload of a file by a task of a Slurm array, into one database");
  flags->suite.Add(*sub);
  flags->slurm.Add(*sub);
  sub->get_option("--partition")->required();
  sub->add_option("--folder", flags->folder, "in it the batch has its folder, which all nodes see")
      ->type_name("DIR")
      ->capture_default_str();
  AddDbFlag(*sub, flags->db);
  sub->add_option("--collect-on", flags->collect_on, "the node on whose disk the database lies")
      ->type_name("NODE");
  sub->add_option("--collect-partition", flags->collect_partition,
                  "where what collects runs, such as one without GPUs [--partition's]")
      ->type_name("P");
  sub->add_option("--collect-script", flags->collect_script, "its own deploy/slurm/collect.sbatch")
      ->type_name("FILE");
  auto* submit = sub->add_flag("--submit", flags->submit, "submit it; else it is printed");
  sub->add_flag("--cancel", flags->cancel, "cancel the batch: what was measured is kept")
      ->excludes(submit);
  sub->footer(
      "The same command again submits nothing twice, and goes on where it was interrupted.\n"
      "What does not complete, for a lost node or a time limit, is submitted again three times.");
  sub->callback([=] { *selected = [=] { return RunSlurm(*flags); }; });

  AddKubernetes(*group, selected);
  AddBatchCommands(*group, selected);

  struct CollectFlags {
    std::string folder;
    int generation = 0;
  };
  auto collect = std::make_shared<CollectFlags>();
  CLI::App* end = group->add_subcommand(
      "collect", "collect a batch and submit again what is not complete: what the scripts call");
  end->add_option("--folder", collect->folder, "the batch's folder")->type_name("DIR")->required();
  end->add_option("--generation", collect->generation, "which submission has ended, from 0")
      ->type_name("N")
      ->required();
  end->callback(
      [=] { *selected = [=] { return RunCollect(collect->folder, collect->generation); }; });
}

}  // namespace heddle::cli
