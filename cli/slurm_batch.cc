#include "cli/slurm_batch.h"

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <numeric>
#include <set>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "base/files.h"
#include "base/status.h"
#include "cli/slurm.h"

namespace heddle::cli {
namespace {

namespace fs = std::filesystem;

constexpr size_t kMaxScript = 1 << 20;  // bytes

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

std::string NoteOf(const Batch& batch, const std::string& name) {
  return absl::StrCat(batch.folder, "/jobs/", name);
}

// Whether the site's flags, or its script, name nodes that tasks are kept from.
bool ExcludesNodes(const Batch& batch) {
  const auto script = ReadTextFile(batch.folder + "/tune.sbatch", kMaxScript);
  const std::vector<std::string> lines =
      absl::StrSplit(script.ok() ? *script : "", '\n', absl::SkipEmpty());
  const auto excludes = [](absl::string_view flag) {
    return absl::StartsWith(flag, "-x") || absl::StartsWith(flag, "--exclude");
  };
  return std::any_of(batch.array.begin(), batch.array.end(), excludes) ||
         std::any_of(lines.begin(), lines.end(), [&](absl::string_view line) {
           return absl::ConsumePrefix(&line, "#SBATCH") &&
                  excludes(absl::StripAsciiWhitespace(line));
         });
}

}  // namespace

void SlurmFlags::Add(CLI::App& app) {
  app.add_option("--partition", partition, "where the tasks run")->type_name("P");
  app.add_option("--gpus-per-node", gpus_per_node,
                 "what a node has: each task has one, and its share of the node's cores")
      ->type_name("N")
      ->check(CLI::Range(1, 64).description(""))
      ->capture_default_str();
  app.add_option("--gpu", gpu, "the model, as Slurm calls it (gres)")->type_name("MODEL");
  app.add_option("--cpus-per-task", cpus_per_task, "cores [the node's, shared by its GPUs]")
      ->type_name("N")
      ->check(CLI::Range(1, 4096).description(""));
  app.add_option("--time", minutes,
                 "a task's time limit [5 and 1.5 times --seconds; else the partition's]")
      ->type_name("MINUTES")
      ->check(CLI::Range(1, 1 << 20).description(""));
  app.add_option("--parallel", parallel, "tasks that run at a time, at most")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20).description(""));
  app.add_option(
         "--sbatch", sbatch,
         "one more flag of sbatch, such as --sbatch=--account=a; of a server {tenant} is the job's")
      ->type_name("FLAG");
  app.add_option("--task-script", task_script, "the site's own deploy/slurm/tune.sbatch")
      ->type_name("FILE");
}

std::vector<std::string> SlurmFlags::With(std::vector<std::string> more) const {
  // Slurm would copy all of the submitter's environment, secrets too.
  std::vector<std::string> flags{"--partition=" + partition, "--export=PATH,HOME"};
  flags.insert(flags.end(), more.begin(), more.end());
  flags.insert(flags.end(), sbatch.begin(), sbatch.end());
  return flags;
}

std::vector<std::string> SlurmFlags::OfArray(double task_seconds) const {
  int64_t cpus = cpus_per_task;
  if (cpus == 0) cpus = SlurmCores(partition) / gpus_per_node;
  if (cpus == 0) {
    Say("The cores of a node are not known here: give --cpus-per-task, as compilers need some.");
  }
  int64_t limit = minutes;
  if (limit == 0) limit = static_cast<int64_t>(std::ceil(task_seconds / 60));
  std::vector<std::string> flags{absl::StrCat("--gres=gpu:", gpu, gpu.empty() ? "" : ":", 1)};
  if (cpus > 0) flags.push_back(absl::StrCat("--cpus-per-task=", cpus));
  if (limit > 0) flags.push_back(absl::StrCat("--time=", limit));
  return With(std::move(flags));
}

absl::StatusOr<std::string> SlurmFlags::TaskScript() const {
  return ScriptOf(task_script, kTaskScript);
}

absl::StatusOr<std::string> ScriptOf(const std::string& file, const char* built_in) {
  if (file.empty()) return std::string(built_in);
  return ReadTextFile(file, kMaxScript);
}

std::string ThisProgram() {
  std::error_code error;
  const fs::path path = fs::read_symlink("/proc/self/exe", error);
  if (error) return "heddle";
  // Where the file was replaced while it runs, by an upgrade, its successor is meant.
  return std::string(absl::StripSuffix(path.string(), " (deleted)"));
}

std::vector<SlurmArray> ArraysOf(const Batch& batch, int generation,
                                 const std::vector<int64_t>& indices, int64_t max_array) {
  std::vector<SlurmArray> arrays;
  for (size_t begin = 0; begin < indices.size();) {
    const int64_t offset = indices[begin] / max_array * max_array;
    size_t end = begin;
    while (end < indices.size() && indices[end] < offset + max_array) ++end;
    SlurmArray array;
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

int64_t MaxArray() { return std::min(kMaxArray, SlurmSetting("MaxArraySize", kMaxArray)); }

absl::StatusOr<int64_t> WrittenDown(const Batch& batch, const std::string& name) {
  const std::string note = NoteOf(batch, name);
  std::error_code error;
  if (!fs::exists(note, error) && !error) return 0;
  auto text = ReadTextFile(note, 64);
  if (error || !text.ok()) {
    return absl::UnavailableError(
        absl::StrCat(note, ": ", error ? error.message() : std::string(text.status().message())));
  }
  int64_t id = 0;  // of a note that was not finished, too
  return absl::SimpleAtoi(*text, &id) ? id : 0;
}

absl::Status WriteDown(const Batch& batch, const std::string& name, int64_t id) {
  return WriteFile(NoteOf(batch, name), absl::StrCat(id, "\n"));
}

absl::StatusOr<int64_t> SubmitArray(const Batch& batch, const SlurmArray& array, bool must_fit) {
  auto written = WrittenDown(batch, array.name);
  if (!written.ok() || *written != 0) return written;
  HEDDLE_ASSIGN_OR_RETURN(id, SubmitOnce(array.name, array.arguments, must_fit));
  HEDDLE_RETURN_IF_ERROR(WriteDown(batch, array.name, id));
  return id;
}

absl::StatusOr<Submission> SubmitHeld(const Batch& batch, int generation,
                                      const std::vector<int64_t>& indices) {
  Submission submission;
  auto unfit = UnfitNodes(batch);
  if (!unfit.empty() && ExcludesNodes(batch)) unfit.clear();
  if (!unfit.empty()) {
    // A name that Slurm no longer knows would have it refuse the whole list.
    HEDDLE_ASSIGN_OR_RETURN(known, SlurmNodes());
    std::erase_if(unfit, [&](const auto& node) { return !known.contains(node.first); });
  }
  const std::string exclude =
      absl::StrCat("--exclude=", absl::StrJoin(unfit, ",", [](std::string* out, const auto& node) {
                     absl::StrAppend(out, node.first);
                   }));
  for (const SlurmArray& array : ArraysOf(batch, generation, indices, MaxArray())) {
    HEDDLE_ASSIGN_OR_RETURN(written, WrittenDown(batch, array.name));
    SlurmArray kept = array;
    kept.arguments.insert(kept.arguments.begin(), exclude);
    // Slurm would take what no node is left for, and leave it waiting.
    const bool keep = !unfit.empty() && written == 0 && CheckFits(kept.name, kept.arguments).ok();
    // Arrays of a batch differ in their indices alone.
    const bool first = generation == 0 && submission.held.empty();
    HEDDLE_ASSIGN_OR_RETURN(id, SubmitArray(batch, keep ? kept : array, /*must_fit=*/first));
    submission.held.emplace_back(array.name, id);
    if (keep) submission.left_out = unfit;
  }
  return submission;
}

absl::Status Release(const HeldArrays& arrays) {
  for (const auto& [name, id] : arrays) {
    HEDDLE_RETURN_IF_ERROR(ReleaseSlurmJob(name, id));
  }
  return absl::OkStatus();
}

std::vector<int64_t> AllOf(const Batch& batch) {
  std::vector<int64_t> all(batch.workloads.size());
  std::iota(all.begin(), all.end(), 0);
  return all;
}

absl::StatusOr<std::map<int64_t, std::string>> TaskStates(const Batch& batch, int generation,
                                                          const std::vector<int64_t>& indices) {
  std::map<int64_t, std::string> states;
  const int64_t max_array = MaxArray();
  std::set<int64_t> offsets;
  for (int64_t index : indices) offsets.insert(index / max_array * max_array);
  for (int64_t offset : offsets) {
    const std::string name =
        absl::StrCat(batch.JobName(), "-", generation, ".", offset / max_array);
    HEDDLE_ASSIGN_OR_RETURN(jobs, FindSlurmJobs(name));
    HEDDLE_ASSIGN_OR_RETURN(id, WrittenDown(batch, name));
    // Tasks that had not begun when the array was cancelled have one row together, which names
    // none.
    std::string others;
    std::map<int64_t, std::string> listed;
    for (const SlurmJob& job : jobs) {
      if (job.id != id) continue;  // a twin
      int64_t task = 0;
      (absl::SimpleAtoi(job.task, &task) ? listed[offset + task] : others) = job.state;
    }
    for (int64_t index : indices) {
      if (index < offset || index >= offset + max_array) continue;
      auto found = listed.find(index);
      const std::string& state = found == listed.end() ? others : found->second;
      if (!state.empty()) states[index] = state;
    }
  }
  return states;
}

}  // namespace heddle::cli
