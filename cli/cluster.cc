// heddle cluster: tuning jobs for a cluster's own engine to run (docs/cluster.md).
#include "cli/cluster.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <iostream>
#include <numeric>
#include <set>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/files.h"
#include "cli/batch.h"
#include "cli/collect.h"
#include "cli/command.h"
#include "cli/slurm.h"
#include "cli/tuned.h"
#include "cli/workloads_file.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kMaxArray = 1000;     // tasks: below Slurm's default MaxArraySize
constexpr int kResubmissions = 3;       // of what is not complete
constexpr size_t kMaxScript = 1 << 20;  // bytes
// A task's time: half as much again as it searches, and what starting and the last measurements
// take.
constexpr double kTimeFactor = 1.5;
constexpr int64_t kExtraMinutes = 5;

struct SlurmFlags {
  WorkloadFlags workload;
  std::string workloads, name, folder = "heddle-batches", partition, gpu, l2, db, collect_on;
  std::string task_script, collect_script;
  std::vector<std::string> sbatch;
  int trials = 200, gpus_per_node = 1, cpus_per_task = 0, minutes = 0, parallel = 0;
  double seconds = 0;
  bool submit = false, cancel = false;
};

// What of a batch goes to Slurm at a time: tasks of one array, whose indices are counted from
// `offset`.
struct Array {
  std::string name;
  std::vector<std::string> arguments;  // of sbatch
};

// "0-3,7": the indices less `offset`, which are sorted.
std::string Ranges(const std::vector<int64_t>& indices, int64_t offset) {
  std::string text;
  for (size_t i = 0; i < indices.size();) {
    size_t j = i;
    while (j + 1 < indices.size() && indices[j + 1] == indices[j] + 1) ++j;
    absl::StrAppend(&text, i > 0 ? "," : "", indices[i] - offset);
    if (j > i) absl::StrAppend(&text, "-", indices[j] - offset);
    i = j + 1;
  }
  return text;
}

// The program that submits is the one that tunes: another generator's times would be stale.
std::string ThisProgram() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  return error ? "heddle" : path.string();
}

std::vector<Array> ArraysOf(const Batch& batch, int generation, const std::vector<int64_t>& indices,
                            int64_t max_array) {
  std::vector<Array> arrays;
  for (size_t begin = 0; begin < indices.size();) {
    const int64_t offset = indices[begin] / max_array * max_array;
    size_t end = begin;
    while (end < indices.size() && indices[end] < offset + max_array) ++end;
    Array array;
    array.name = absl::StrCat(batch.JobName(), "-", generation, ".", offset / max_array);
    const std::vector<int64_t> part(indices.begin() + begin, indices.begin() + end);
    array.arguments = {"--hold", "--array=" + Ranges(part, offset)};
    if (batch.parallel > 0) absl::StrAppend(&array.arguments[1], "%", batch.parallel);
    array.arguments.insert(array.arguments.end(), batch.array.begin(), batch.array.end());
    array.arguments.insert(
        array.arguments.end(),
        {absl::StrCat("--output=", batch.folder, "/log/%A_%a.log"), batch.folder + "/tune.sbatch",
         batch.folder, ThisProgram(), absl::StrCat(offset)});
    arrays.push_back(std::move(array));
    begin = end;
  }
  return arrays;
}

Array CollectorOf(const Batch& batch, int generation, const std::string& arrays) {
  Array collector{absl::StrCat(batch.JobName(), "-", generation, ".collect"),
                  {"--dependency=afterany:" + arrays}};
  collector.arguments.insert(collector.arguments.end(), batch.collector.begin(),
                             batch.collector.end());
  collector.arguments.insert(
      collector.arguments.end(),
      {absl::StrCat("--output=", batch.folder, "/log/collect-", generation, ".log"),
       batch.folder + "/collect.sbatch", batch.folder, ThisProgram(), absl::StrCat(generation)});
  return collector;
}

// Submits what was not submitted yet. An id is written down once it is known.
absl::StatusOr<int64_t> Submit(const Batch& batch, const Array& array) {
  const std::string path = absl::StrCat(batch.folder, "/jobs/", array.name);
  int64_t written_down = 0;
  if (auto text = ReadTextFile(path, 64); text.ok() && absl::SimpleAtoi(*text, &written_down)) {
    return written_down;
  }
  auto id = SubmitOnce(array.name, array.arguments);
  if (!id.ok()) return id.status();
  absl::Status written = WriteFile(path, absl::StrCat(*id, "\n"));
  if (!written.ok()) return written;
  return *id;
}

// The arrays are held until what collects them waits for them: whatever is killed meanwhile, the
// same command goes on, and none of it runs twice.
absl::Status SubmitGeneration(const Batch& batch, int generation,
                              const std::vector<int64_t>& indices) {
  const int64_t max_array = std::min(kMaxArray, SlurmSetting("MaxArraySize", kMaxArray));
  std::vector<std::pair<std::string, int64_t>> held;
  for (const Array& array : ArraysOf(batch, generation, indices, max_array)) {
    auto id = Submit(batch, array);
    if (!id.ok()) return id.status();
    held.emplace_back(array.name, *id);
  }
  const std::string ids = absl::StrJoin(
      held, ":", [](std::string* out, const auto& job) { absl::StrAppend(out, job.second); });
  auto collector = Submit(batch, CollectorOf(batch, generation, ids));
  if (!collector.ok()) return collector.status();
  for (const auto& [name, id] : held) {
    if (absl::Status s = ReleaseSlurmJob(name, id); !s.ok()) return s;
  }
  Say(absl::StrCat(indices.size(), " workloads as job ", ids, ", collected by job ", *collector));
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

std::string CancelledMark(const Batch& batch) { return batch.folder + "/cancelled"; }

std::vector<int64_t> AllOf(const Batch& batch) {
  std::vector<int64_t> all(batch.workloads.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

absl::StatusOr<Batch> PlanBatch(const SlurmFlags& flags) {
  auto text = ReadTextFile(flags.workloads, kMaxScript);
  if (!text.ok()) return text.status();
  auto lines = ParseWorkloadLines(*text);
  if (!lines.ok()) return lines.status();
  // Whether all of them can be read is known before any node has been asked for.
  if (auto jobs = ReadJobs(flags.workload, flags.workloads); !jobs.ok()) return jobs.status();

  Batch batch;
  batch.name = flags.name.empty() ? fs::path(flags.workloads).stem().string() : flags.name;
  if (!tuner::IsRunName(batch.name) || batch.name.size() > 64) {
    return absl::InvalidArgumentError(
        absl::StrCat("--name: '", batch.name, "' must be at most 64 letters, digits and \"-_.\""));
  }
  batch.created = absl::FormatTime("%Y%m%dT%H%M%SZ", absl::Now(), absl::UTCTimeZone());
  batch.folder = fs::absolute(fs::path(flags.folder) / batch.name).lexically_normal().string();
  batch.db = fs::absolute(flags.db.empty() ? tuner::Records::DefaultPath() : flags.db).string();
  for (const WorkloadLine& line : *lines) {
    if (!line.dtype.empty() && line.dtype != flags.workload.dtype) {
      return absl::InvalidArgumentError(
          absl::StrCat(flags.workloads, ": line ", line.line,
                       ": a batch has one data type, that of --dtype; leave dtype= out"));
    }
    batch.workloads.push_back(line.shape.empty() ? line.op : line.op + " " + line.shape);
  }
  batch.dtype = flags.workload.dtype;
  if (!flags.workload.op_file.empty()) batch.op_file = batch.folder + "/operators.op";
  batch.l2 = flags.l2;
  batch.trials = flags.trials;
  batch.seconds = flags.seconds;

  int64_t cpus = flags.cpus_per_task;
  if (cpus == 0) cpus = SlurmCores(flags.partition) / flags.gpus_per_node;
  if (cpus == 0) {
    Say("The cores of a node are not known here: give --cpus-per-task, as compilers need some.");
  }
  int64_t minutes = flags.minutes;
  if (minutes == 0 && flags.seconds > 0) {
    minutes = kExtraMinutes + static_cast<int64_t>(std::ceil(kTimeFactor * flags.seconds / 60));
  }
  // Slurm would copy all of the submitter's environment, secrets too.
  const std::vector<std::string> common{"--partition=" + flags.partition, "--export=PATH,HOME"};
  batch.array = common;
  batch.array.push_back(absl::StrCat("--gres=gpu:", flags.gpu, flags.gpu.empty() ? "" : ":", 1));
  if (cpus > 0) batch.array.push_back(absl::StrCat("--cpus-per-task=", cpus));
  if (minutes > 0) batch.array.push_back(absl::StrCat("--time=", minutes));
  batch.parallel = flags.parallel;
  batch.collector = common;
  if (!flags.collect_on.empty()) batch.collector.push_back("--nodelist=" + flags.collect_on);
  for (auto* to : {&batch.array, &batch.collector}) {
    to->insert(to->end(), flags.sbatch.begin(), flags.sbatch.end());
  }
  return batch;
}

absl::StatusOr<std::string> ScriptOf(const std::string& file, const char* built_in) {
  if (file.empty()) return std::string(built_in);
  return ReadTextFile(file, kMaxScript);
}

Result RunSlurm(const SlurmFlags& flags) {
  auto batch = PlanBatch(flags);
  if (!batch.ok()) return batch.status();
  auto existing = ReadBatch(batch->folder);
  if (!existing.ok() && !absl::IsNotFound(existing.status())) return existing.status();
  if (flags.cancel) {
    if (!existing.ok()) return existing.status();
    // Before anything ends: what collects is not to submit it again.
    absl::Status s = WriteFile(CancelledMark(*existing), "");
    for (const auto& entry : fs::directory_iterator(existing->folder + "/jobs")) {
      // What collects is to do so.
      if (s.ok() && entry.path().extension() != ".collect")
        s = CancelSlurmJobs(entry.path().filename());
    }
    return s.ok() ? Result(kDone) : s;
  }
  auto task = ScriptOf(flags.task_script, kTaskScript);
  if (!task.ok()) return task.status();
  auto collect = ScriptOf(flags.collect_script, kCollectScript);
  if (!collect.ok()) return collect.status();
  if (!flags.submit) {
    std::vector<std::string> ids;
    for (const Array& array : ArraysOf(*batch, 0, AllOf(*batch), kMaxArray)) {
      ids.push_back(absl::StrCat("ID", ids.size()));
      std::cout << "sbatch --parsable --job-name=" << array.name << " "
                << ShellWords(array.arguments) << "   # " << ids.back() << "\n";
    }
    const Array collector = CollectorOf(*batch, 0, absl::StrJoin(ids, ":"));
    std::cout << "sbatch --parsable --job-name=" << collector.name << " "
              << ShellWords(collector.arguments) << "\n";
    for (const std::string& id : ids) std::cout << "scontrol release " << id << "\n";
    std::cout << "\n# " << batch->folder << "/tune.sbatch\n" << *task;
    Say("Nothing was submitted: --submit does it.");
    return kDone;
  }
  if (!existing.ok()) {
    std::vector<std::pair<std::string, std::string>> files{{"tune.sbatch", *task},
                                                           {"collect.sbatch", *collect}};
    if (!batch->op_file.empty()) {
      auto operators = ReadTextFile(flags.workload.op_file, kMaxScript);
      if (!operators.ok()) return operators.status();
      files.emplace_back("operators.op", *std::move(operators));
    }
    if (absl::Status s = MakeBatch(*batch, files); !s.ok()) return s;
    existing = ReadBatch(batch->folder);
    if (!existing.ok()) return existing.status();
  }
  if (existing->workloads != batch->workloads || existing->dtype != batch->dtype) {
    return absl::InvalidArgumentError(
        absl::StrCat(existing->folder, " is a batch of other workloads: choose another --name"));
  }
  const BatchLock lock(*existing);
  absl::Status s = SubmitGeneration(*existing, 0, AllOf(*existing));
  if (!s.ok()) return s;
  std::cout << existing->folder << "\n";
  return kDone;
}

// Tasks of this generation that somebody has cancelled: nobody wants them again.
absl::StatusOr<std::set<int64_t>> CancelledRuns(const Batch& batch, int generation,
                                                const std::vector<int64_t>& indices) {
  std::set<int64_t> cancelled;
  const int64_t max_array = std::min(kMaxArray, SlurmSetting("MaxArraySize", kMaxArray));
  std::set<int64_t> offsets;
  for (int64_t index : indices) offsets.insert(index / max_array * max_array);
  for (int64_t offset : offsets) {
    auto jobs =
        FindSlurmJobs(absl::StrCat(batch.JobName(), "-", generation, ".", offset / max_array));
    if (!jobs.ok()) return jobs.status();
    // Tasks that had not begun when the array was cancelled have one row together, which names
    // none.
    bool others = false;
    std::set<int64_t> listed;
    for (const SlurmJob& job : *jobs) {
      int64_t task = 0;
      const bool is_cancelled = job.state == "CANCELLED";
      if (!absl::SimpleAtoi(job.task, &task)) {
        others |= is_cancelled;
        continue;
      }
      listed.insert(offset + task);
      if (is_cancelled) cancelled.insert(offset + task);
    }
    for (int64_t index : indices) {
      const bool here = index >= offset && index < offset + max_array;
      if (others && here && !listed.contains(index)) cancelled.insert(index);
    }
  }
  return cancelled;
}

Result RunCollect(const std::string& folder, int generation) {
  auto batch = ReadBatch(folder);
  if (!batch.ok()) return batch.status();
  auto records = OpenWritableRecords(batch->db);
  if (!records.ok()) return records.status();
  auto collected = CollectRunFiles(**records, {batch->runs()});
  if (!collected.ok()) return collected.status();
  auto incomplete = IncompleteRuns(*batch);
  if (!incomplete.ok()) return incomplete.status();
  const auto count = batch->workloads.size();
  Say(absl::StrCat(count - incomplete->size(), " of ", count, " workloads are complete"));
  if (incomplete->empty()) return collected;
  if (fs::exists(CancelledMark(*batch))) {
    Say("The batch was cancelled: nothing is submitted again.");
    return kFailed;
  }
  const BatchLock lock(*batch);
  auto cancelled = CancelledRuns(*batch, generation, *incomplete);
  if (!cancelled.ok()) return cancelled.status();
  std::erase_if(*incomplete, [&](int64_t index) { return cancelled->contains(index); });
  if (!cancelled->empty()) Say(absl::StrCat(cancelled->size(), " were cancelled and stay so"));
  if (incomplete->empty() || generation >= kResubmissions) {
    for (int64_t index : *incomplete) {
      Say(absl::StrCat("given up: ", batch->workloads[index], "; its log is in ", folder, "/log"));
    }
    return kFailed;
  }
  absl::Status s = SubmitGeneration(*batch, generation + 1, *incomplete);
  return s.ok() ? collected : Result(s);
}

}  // namespace

void AddCluster(CLI::App& app, Selected selected) {
  CLI::App* group =
      app.add_subcommand("cluster", "tune on the nodes of a cluster that has its own scheduler");
  group->require_subcommand(1);

  auto flags = std::make_shared<SlurmFlags>();
  CLI::App* sub = group->add_subcommand(
      "slurm", "tune each workload of a file by a task of a Slurm array, into one database");
  sub->add_option("--workloads", flags->workloads, "what to tune: op k=v,... a line")
      ->type_name("FILE")
      ->required();
  sub->add_option("--partition", flags->partition, "where the tasks run")
      ->type_name("P")
      ->required();
  sub->add_option("--gpus-per-node", flags->gpus_per_node,
                  "what a node has: each task has one, and its share of the node's cores")
      ->type_name("N")
      ->check(CLI::Range(1, 64).description(""))
      ->capture_default_str();
  sub->add_option("--gpu", flags->gpu, "the model, as Slurm calls it (gres)")->type_name("MODEL");
  sub->add_option("--cpus-per-task", flags->cpus_per_task, "cores [the node's, shared by its GPUs]")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  sub->add_option("--trials", flags->trials, "of each workload; 0 = no limit")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30).description(""))
      ->capture_default_str();
  sub->add_option("--seconds", flags->seconds, "of each workload's search")
      ->type_name("S")
      ->check(CLI::Range(0.0, 1e9).description(""));
  sub->add_option("--time", flags->minutes,
                  "a task's time limit [5 and 1.5 times --seconds; else the partition's]")
      ->type_name("MINUTES")
      ->check(CLI::Range(1, 1 << 20).description(""));
  sub->add_option("--parallel", flags->parallel, "tasks that run at a time, at most")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20).description(""));
  AddL2Flag(*sub, flags->l2);
  sub->add_option("--dtype", flags->workload.dtype, "the data type")
      ->type_name("T")
      ->capture_default_str();
  sub->add_option("--op-file", flags->workload.op_file, "operators in tensor notation")
      ->type_name("FILE");
  sub->add_option("--name", flags->name, "of the batch [the workloads file's]")->type_name("NAME");
  sub->add_option("--folder", flags->folder, "in it the batch has its folder, which all nodes see")
      ->type_name("DIR")
      ->capture_default_str();
  AddDbFlag(*sub, flags->db);
  sub->add_option("--collect-on", flags->collect_on, "the node on whose disk the database lies")
      ->type_name("NODE");
  sub->add_option("--sbatch", flags->sbatch,
                  "one more flag of sbatch, such as --sbatch=--account=a")
      ->type_name("FLAG");
  sub->add_option("--task-script", flags->task_script, "the site's own deploy/slurm/tune.sbatch")
      ->type_name("FILE");
  sub->add_option("--collect-script", flags->collect_script, "its own deploy/slurm/collect.sbatch")
      ->type_name("FILE");
  auto* submit = sub->add_flag("--submit", flags->submit, "submit it; else it is printed");
  sub->add_flag("--cancel", flags->cancel, "cancel the batch: what was measured is kept")
      ->excludes(submit);
  sub->footer(
      "The same command again submits nothing twice, and goes on where it was interrupted.\n"
      "What does not complete, for a lost node or a time limit, is submitted again three times.");
  sub->callback([=] { *selected = [=] { return RunSlurm(*flags); }; });

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
