// Slurm as its client commands show it: sbatch, squeue, scontrol, scancel. Replies get lost (a
// command that timed out has often done its work), so that a job is known by its name, which
// nothing else has.
#ifndef HEDDLE_CLI_SLURM_H_
#define HEDDLE_CLI_SLURM_H_

#include <cstdint>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::cli {

// The scripts of deploy/slurm.
extern const char* const kTaskScript;
extern const char* const kCollectScript;

// A shell's words that give exactly these arguments.
std::string ShellWords(const std::vector<std::string>& arguments);

// A job of ours, ended ones included for as long as Slurm remembers them.
struct SlurmJob {
  int64_t id = 0;  // of an array: the array's
  std::string task, state, reason;
};
// Those of that name. Unavailable when Slurm does not answer, which says nothing about the jobs.
absl::StatusOr<std::vector<SlurmJob>> FindSlurmJobs(const std::string& name);

// All of ours that squeue knows, by name, at one call.
absl::StatusOr<std::map<std::string, std::vector<SlurmJob>>> AllSlurmJobs();
// Whether it has ended, however.
bool HasEnded(const SlurmJob& job);
bool IsHeld(const SlurmJob& job);
// SlurmJob.reason of a task whose node could not begin it.
inline constexpr char kSlurmLaunchFailed[] = "launch failed requeued held";

// The one job of that name: found, or submitted by sbatch with `arguments` (without --parsable and
// the name). Of several, which lost replies may leave behind, the first; others that have not begun
// are cancelled. One that is held Slurm takes even where it has no node for it: `must_fit` has it
// refused then. Unavailable: Slurm does not answer; Internal: it refuses, and says why.
absl::StatusOr<int64_t> SubmitOnce(const std::string& name,
                                   const std::vector<std::string>& arguments, bool must_fit);

// Whether Slurm has nodes that are up, idle or not, for a job of that name which sbatch is given
// these arguments for; OK also where no node of the partition is up. Errors as SubmitOnce's.
absl::Status CheckFits(const std::string& name, std::vector<std::string> arguments);

// Lets a job that was submitted with --hold begin; of one that is not held, nothing.
absl::Status ReleaseSlurmJob(const std::string& name, int64_t id);

// The one that counts of several of a name: the least id.
int64_t FirstOf(const std::vector<SlurmJob>& jobs);
// Cancels those of `jobs` that wait, but not the job `id`: twins, which lost replies leave behind.
void CancelTwins(const std::vector<SlurmJob>& jobs, int64_t id);

// Cancels what waits and interrupts what runs, so that it keeps what it has measured; a second
// interruption would keep a tuner from that.
absl::Status CancelSlurmJobs(const std::string& name);
// Cancels what waits and ends what runs.
absl::Status KillSlurmJobs(const std::string& name);

// A number of the cluster's configuration, such as "MaxArraySize"; `otherwise` where it does not
// say.
int64_t SlurmSetting(const std::string& key, int64_t otherwise);
// All nodes by name. Unavailable: Slurm does not answer.
absl::StatusOr<std::set<std::string>> SlurmNodes();
// The fewest cores that a node of the partition has; 0 = not known.
int64_t SlurmCores(const std::string& partition);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_SLURM_H_
