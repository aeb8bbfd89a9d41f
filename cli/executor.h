// The server's jobs on a cluster's own engine (heddle serve --executor slurm, docs/cluster.md).
//
// A job that has not ended is a batch (batch.h) in a folder that is named after it; the rows of
// these jobs and what is written down in the folder are all there is to remember. What is done for
// a job follows from them and from what Slurm says, each step may be done again, and so a server
// that was killed between any two of them goes on. What counts is what the runs have left behind,
// never a state of Slurm's: that says only whether there is something to wait for.
#ifndef HEDDLE_CLI_EXECUTOR_H_
#define HEDDLE_CLI_EXECUTOR_H_

#include <map>
#include <memory>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/subprocess.h"
#include "cli/batch.h"
#include "cli/slurm.h"
#include "cli/slurm_batch.h"
#include "server/api/server.h"
#include "tuner/records/run_file.h"

namespace heddle::cli {

class SlurmExecutor {
 public:
  // Looks at jobs and cluster every so often, on a thread of its own. `folder` is one that all
  // nodes see, and no other server's.
  SlurmExecutor(server::Server& server, SlurmFlags flags, std::string folder, absl::Duration every);
  // What was submitted goes on.
  ~SlurmExecutor();

 private:
  using Jobs = std::map<std::string, std::vector<SlurmJob>>;  // by name

  using Attempts = std::map<std::string, std::vector<tuner::Attempt>>;  // by run

  // Everything once.
  absl::Status Pass();
  // What is to be done for a job, of `cluster` what squeue told before the job was read.
  absl::Status Advance(const v1::Job& job, const Jobs& cluster);
  // Of several arrays of a name one stays, and is not held.
  absl::Status Settle(const Batch& batch, const std::string& name,
                      const std::vector<SlurmJob>& jobs);
  // Of a job that has ended: nothing of it goes on, and what it has left is collected.
  absl::Status Retire(const std::string& folder, const Jobs& cluster);
  absl::StatusOr<Batch> FindOrMakeBatch(const v1::Job& job);
  // What is new in these files; the model that it was measured on, "" where nothing is new. Unless
  // `all` is to be there, one that goes on only when it has doubled, as it is read from its
  // beginning.
  absl::StatusOr<std::string> Collect(const Attempts& attempts, bool all);
  absl::Status Submit(const v1::Job& job, Batch batch, int generation,
                      const std::vector<int64_t>& indices);

  server::Server& server_;
  const SlurmFlags flags_;
  const std::string folder_;
  bool refused_ = false;                        // a submission, in this pass
  std::map<std::string, uintmax_t> collected_;  // bytes of files
  std::map<std::string, SteadyTime> told_;      // arrays of ended jobs: when TERM was sent
  std::set<std::string> over_;     // batches of which nothing was left in Slurm at the last look
  std::set<std::string> retired_;  // folders
  StopSignal stop_;
  std::thread thread_;
};

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_EXECUTOR_H_
