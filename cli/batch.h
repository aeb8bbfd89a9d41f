// A batch: a suite of workloads that a cluster's own engine tunes, each by a task of its own, in a
// folder that all its nodes see (docs/cluster.md).
#ifndef HEDDLE_CLI_BATCH_H_
#define HEDDLE_CLI_BATCH_H_

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/command.h"
#include "tuner/records/transfer/run_file.h"

namespace heddle::cli {

struct Batch {
  std::string name;
  std::string created;  // UTC, as in 20261122T070000Z: runs of later batches have greater names
  std::string folder;   // absolute
  std::string db;       // absolute: where it is collected
  // "op k=v,...": the task's index is the place in the list.
  std::vector<std::string> workloads;
  std::string dtype;    // "" = `workloads` are canonical texts
  std::string op_file;  // absolute; empty = built-in operators
  std::string l2;
  int64_t trials = 0, plateau = 0;
  uint64_t seed = 1;
  std::string search = "evolutionary";
  int64_t parallel = 0;  // tasks at a time; 0 = no limit
  double seconds = 0;
  std::vector<std::string> array, collector;  // flags of sbatch for either

  std::string runs() const { return folder + "/runs"; }
  std::string unfit() const { return folder + "/unfit"; }  // a file for each of UnfitNodes
  // That a task may take where nobody says: half as much again as it searches, and what starting
  // and the last measurements take. 0: nothing says how long it searches.
  double TaskSeconds() const { return seconds > 0 ? 1.5 * seconds + 300 : 0; }
  std::string RunName(int64_t index) const;
  // Of what the cluster's engine runs, unlike that of any other batch.
  std::string JobName() const { return "heddle-" + created + "-" + name; }
};

// batch.json.
std::string BatchText(const Batch& batch);
// Writes what `batch` says into its folder, which is there as a whole or not at all, with files of
// these names and contents beside it. Of two that make the same folder at a time one wins.
// InvalidArgument: it cannot be written.
absl::Status MakeBatch(const Batch& batch,
                       const std::vector<std::pair<std::string, std::string>>& files);
// The same for a batch of which nothing was submitted, in its place.
absl::Status ChangeBatch(const Batch& batch,
                         const std::vector<std::pair<std::string, std::string>>& files);
// NotFound where there is none; InvalidArgument where there is something else.
absl::StatusOr<Batch> ReadBatch(const std::string& folder);

// What its runs have left so far, by their names; says which files are no run's.
absl::StatusOr<std::map<std::string, std::vector<tuner::Attempt>>> ReadAttempts(const Batch& batch);
// Whether nothing is left to do for a run, as it has succeeded or can never succeed: no attempt at
// it that was interrupted, or found no device, counts.
bool IsComplete(const std::vector<tuner::Attempt>& attempts);
// The indices of runs that are not complete.
absl::StatusOr<std::vector<int64_t>> IncompleteRuns(const Batch& batch);

// Nodes on which a task has found no device that works, and what it was told there. Such a node
// ends every task that it gets at once, and so gets more than its share: later submissions leave it
// out.
std::map<std::string, std::string> UnfitNodes(const Batch& batch);

// The last submission that something was written down of in jobs/ (JobName-SUBMISSION...); -1: none
// was. Errors as of ListFolder: what cannot be read does not say that nothing was submitted.
absl::StatusOr<int> LastSubmission(const Batch& batch);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_BATCH_H_
