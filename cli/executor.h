// The server's jobs on a cluster's own engine (heddle serve --executor, docs/cluster.md).
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
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/process/subprocess.h"
#include "cli/batch.h"
#include "server/api/server.h"
#include "tuner/records/transfer/collect.h"
#include "tuner/records/transfer/run_file.h"

namespace heddle::cli {

// A cluster's own scheduler. Calls come from one thread, but for Interrupt; those that ask the
// cluster return Unavailable when it does not answer, which says nothing about the jobs.
class ClusterEngine {
 public:
  virtual ~ClusterEngine() = default;

  // Where tasks run, in errors that speak of its devices: "the partition gpu".
  virtual std::string place() const = 0;
  // How often what is not complete is submitted again, as the engine does not do so itself.
  virtual int resubmissions() const = 0;
  // What lies in a batch's folder beside batch.json: names and contents.
  virtual absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Files() const = 0;

  // The server ends: a call that waits for the cluster returns, as soon as it can.
  virtual void Interrupt() {}
  // Asks how everything of ours stands; what is done and told from then on is of that moment.
  virtual absl::Status Look() = 0;
  // Can be read when there is reason to look at once; -1: one looks now and then.
  virtual int fd() const { return -1; }
  // Whether there is something of a batch of that name, where that is known without its folder:
  // what a call has made that came late.
  virtual bool Sees(const std::string&) const { return false; }
  // Whether something of the batch has not ended, whatever the submission.
  virtual bool Lives(const Batch& batch) const = 0;
  // Finishes what a server that was killed had begun: what lives is written down in the batch's
  // folder (jobs/JobName-SUBMISSION...) and may begin, and there is one of it.
  virtual absl::Status Settle(const Batch& batch) = 0;
  // Has these workloads run; found, where a server that was killed had submitted them. Submissions
  // are numbered from 0. InvalidArgument: they are refused for what they are, and always will be.
  virtual absl::Status Submit(Batch batch, const std::string& tenant, int submission,
                              const std::vector<int64_t>& indices) = 0;
  // How a task ended that has left no result.
  struct Ending {
    std::string why;         // in a user's words; "" = it is not known
    bool cancelled = false;  // by somebody who does not want it again
  };
  // By index, of a submission of which nothing lives; those that are forgotten are left out.
  virtual absl::StatusOr<std::map<int64_t, Ending>> Endings(
      const Batch& batch, int submission, const std::vector<int64_t>& indices) = 0;
  // Of a batch whose job has ended: what waits never begins, what runs is told to stop, and ended
  // if that takes long. To be called until it tells that there was nothing left at the last look.
  virtual absl::StatusOr<bool> Stop(const Batch& batch) = 0;
};

class Executor {
 public:
  // Looks at jobs and cluster every so often, on a thread of its own. `folder` is one that all
  // nodes see, and no other server's.
  Executor(server::Server& server, std::unique_ptr<ClusterEngine> engine, std::string folder,
           absl::Duration every);
  // What was submitted goes on.
  ~Executor();

 private:
  using Attempts = std::map<std::string, std::vector<tuner::Attempt>>;  // by run

  // When a batch that was refused is submitted again: later from time to time, so that others,
  // which may be refused nothing, have their turns. Its job's error says why until it lives.
  struct Refusal {
    int count = 0;
    SteadyTime again;
  };

  // Whether to end; else when it is time to look, or there is reason to.
  bool WaitForLook() const;
  // Everything once.
  absl::Status Pass();
  // What is to be done for a job.
  absl::Status Advance(const v1::Job& job);
  // Of a job that has ended: nothing of it goes on, and what it has left is collected.
  absl::Status Retire(const std::string& folder);
  absl::StatusOr<Batch> FindOrMakeBatch(const v1::Job& job);
  // What its runs have left so far. A file that is no run's costs itself, and is told of once.
  absl::StatusOr<Attempts> FindAttempts(const Batch& batch);
  // InvalidArgument: no file of a run.
  absl::StatusOr<tuner::CollectReport> CollectFile(const std::string& path);
  // What is new in these files; the model that it was measured on, "" where nothing is new. Unless
  // `all` is to be there, one that goes on only when it has doubled, as it is read from its
  // beginning.
  absl::StatusOr<std::string> Collect(const Attempts& attempts, bool all);
  absl::Status Submit(const v1::Job& job, const Batch& batch, int submission,
                      const std::vector<int64_t>& indices);
  // Why the job does not go on; "" = it does.
  absl::Status SetObstacle(const v1::Job& job, const std::string& why);

  server::Server& server_;
  const std::unique_ptr<ClusterEngine> engine_;
  const std::string folder_;
  const absl::Duration every_;
  int refusals_ = 0;                            // of submissions, in this pass
  std::map<std::string, Refusal> refused_;      // batches whose last submission was refused
  std::set<std::string> warm_;                  // submissions whose warm start was written
  std::map<std::string, uintmax_t> collected_;  // bytes of files
  std::map<std::string, SteadyTime> over_;      // batches of which nothing lives: since when
  std::set<std::string> told_of_;               // why files were refused
  std::set<std::string> retired_;               // folders
  StopSignal stop_;
  std::thread thread_;
};

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_EXECUTOR_H_
