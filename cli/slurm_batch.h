// A batch as arrays of Slurm's: submitted, looked at and cancelled by whoever runs it, a command
// (cluster.cc) or a server (executor.h).
#ifndef HEDDLE_CLI_SLURM_BATCH_H_
#define HEDDLE_CLI_SLURM_BATCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/batch.h"
#include "cli/command.h"

namespace heddle::cli {

// How often what is not complete is submitted again.
inline constexpr int kResubmissions = 3;
// Tasks of an array: below Slurm's default MaxArraySize.
inline constexpr int64_t kMaxArray = 1000;

// Where tasks run and what each is given.
struct SlurmFlags {
  std::string partition, gpu, task_script;
  std::vector<std::string> sbatch;
  int gpus_per_node = 1, cpus_per_task = 0, minutes = 0, parallel = 0;

  void Add(CLI::App& app);
  // sbatch's for a job of ours: `more` and, last, the site's own.
  std::vector<std::string> With(std::vector<std::string> more) const;
  // For tasks that take so long at most; 0 = it is not known.
  std::vector<std::string> OfArray(double task_seconds) const;
  // The site's script of tasks, else deploy/slurm/tune.sbatch.
  absl::StatusOr<std::string> TaskScript() const;
};
// A script of the site's, else the built-in one.
absl::StatusOr<std::string> ScriptOf(const std::string& file, const char* built_in);

// The program that submits is the one that tunes: another generator's times would be stale.
std::string ThisProgram();

// What goes to Slurm at a time.
struct SlurmArray {
  std::string name;
  std::vector<std::string> arguments;  // of sbatch
};
// The arrays, none longer than `max_array`, of a submission: 0 is a batch's first.
std::vector<SlurmArray> ArraysOf(const Batch& batch, int generation,
                                 const std::vector<int64_t>& indices, int64_t max_array);
// As long as the cluster takes them.
int64_t MaxArray();

// The id of an array, submitted unless it was before: an id is written down in the batch's folder
// once it is known. `must_fit` and errors as SubmitOnce's.
absl::StatusOr<int64_t> SubmitArray(const Batch& batch, const SlurmArray& array,
                                    bool must_fit = false);
using HeldArrays = std::vector<std::pair<std::string, int64_t>>;  // names and ids
struct Submission {
  HeldArrays held;                              // all of its arrays
  std::map<std::string, std::string> left_out;  // the UnfitNodes that they are kept from
};
// They are kept from UnfitNodes unless no other node could run them, or the site has a list of its
// own, in its flags or its script, which Slurm would forget for ours. A first submission that no
// node could run is refused; a later one waits for the nodes that have run it.
absl::StatusOr<Submission> SubmitHeld(const Batch& batch, int generation,
                                      const std::vector<int64_t>& indices);
absl::Status Release(const HeldArrays& arrays);

// The id that was written down of the array of this name; 0: none. Unavailable: the folder cannot
// be read, which does not say that there is none.
absl::StatusOr<int64_t> WrittenDown(const Batch& batch, const std::string& name);
absl::Status WriteDown(const Batch& batch, const std::string& name, int64_t id);

inline constexpr char kSlurmCancelled[] = "CANCELLED";
// How Slurm says that tasks of a submission stand, by index, such as "TIMEOUT"; those that it has
// forgotten are left out. Who has CANCELLED one does not want it again.
absl::StatusOr<std::map<int64_t, std::string>> TaskStates(const Batch& batch, int generation,
                                                          const std::vector<int64_t>& indices);

std::vector<int64_t> AllOf(const Batch& batch);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_SLURM_BATCH_H_
