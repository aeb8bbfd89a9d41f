#include "cli/slurm_engine.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "cli/slurm.h"

namespace heddle::cli {
namespace {

// How a task that Slurm has in that state ended, in a user's words.
std::string WordsFor(const std::string& state) {
  if (state == kSlurmCancelled) return "cancelled in Slurm";
  if (state == "OUT_OF_MEMORY") return "out of memory on its node (--sbatch=--mem)";
  if (state == "TIMEOUT") return "out of time (--time)";
  if (state == "NODE_FAIL" || state == "BOOT_FAIL") return "on a node that failed";
  if (state == "PREEMPTED") return "preempted";
  return "";
}

class SlurmEngine : public ClusterEngine {
 public:
  explicit SlurmEngine(SlurmFlags flags) : flags_(std::move(flags)) {}

  std::string place() const override { return "the partition " + flags_.partition; }
  int resubmissions() const override { return kResubmissions; }

  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Files() const override {
    HEDDLE_ASSIGN_OR_RETURN(script, flags_.TaskScript());
    return std::vector<std::pair<std::string, std::string>>{{"tune.sbatch", std::move(script)}};
  }

  absl::Status Look() override {
    HEDDLE_ASSIGN_OR_RETURN(jobs, AllSlurmJobs());
    jobs_ = std::move(jobs);
    return absl::OkStatus();
  }

  bool Lives(const Batch& batch) const override { return !Living(batch).empty(); }

  // Of several arrays of a name one stays, and is not held.
  absl::Status Settle(const Batch& batch) override {
    for (const std::string& name : Living(batch)) {
      const std::vector<SlurmJob>& jobs = jobs_.at(name);
      HEDDLE_ASSIGN_OR_RETURN(id, WrittenDown(batch, name));
      if (id == 0) {
        // Where the server was killed before it could write it down.
        id = FirstOf(jobs);
        HEDDLE_RETURN_IF_ERROR(WriteDown(batch, name, id));
      }
      // An sbatch that outlived its server may come to its end after the next one has submitted.
      CancelTwins(jobs, id);
      const bool held = std::any_of(jobs.begin(), jobs.end(), [&](const SlurmJob& job) {
        return job.id == id && IsHeld(job);
      });
      if (!held) continue;
      const bool failed = std::any_of(jobs.begin(), jobs.end(), [&](const SlurmJob& job) {
        return job.id == id && job.reason == kSlurmLaunchFailed;
      });
      // Slurm takes such a node out of service: what fails everywhere would take all of them.
      int& failures = launch_failures_[name];
      if (failed && failures >= kResubmissions) continue;
      if (failed && ++failures == kResubmissions) {
        LogEvent(Severity::kError, "launch_failed",
                 {{"array", name},
                  {"error",
                   "it is released once more, then left held: see why "
                   "its nodes cannot begin it, then scontrol release"}});
      }
      HEDDLE_RETURN_IF_ERROR(ReleaseSlurmJob(name, id));
    }
    return absl::OkStatus();
  }

  absl::Status Submit(Batch batch, const std::string& tenant, int submission,
                      const std::vector<int64_t>& indices) override {
    // As the server is told now: who mends the flags of a server that Slurm refuses mends its jobs.
    batch.parallel = flags_.parallel;
    batch.array = flags_.OfArray(batch.TaskSeconds());
    // So that the site can account for it.
    batch.array.push_back("--comment=heddle tenant " + tenant);
    for (std::string& flag : batch.array) {
      flag = absl::StrReplaceAll(flag, {{"{tenant}", tenant}});
    }
    HEDDLE_ASSIGN_OR_RETURN(submitted, SubmitHeld(batch, submission, indices));
    for (const auto& [node, why] : submitted.left_out) {
      LogEvent(Severity::kWarning, "node_left_out",
               {{"batch", batch.name}, {"node", node}, {"error", why}});
    }
    LogEvent(Severity::kInfo, "submitted",
             {{"batch", batch.name},
              {"submission", submission},
              {"workloads", static_cast<int64_t>(indices.size())},
              {"array", submitted.held.front().second}});
    return Release(submitted.held);
  }

  absl::StatusOr<std::map<int64_t, Ending>> Endings(const Batch& batch, int submission,
                                                    const std::vector<int64_t>& indices) override {
    HEDDLE_ASSIGN_OR_RETURN(states, TaskStates(batch, submission, indices));
    std::map<int64_t, Ending> endings;
    for (const auto& [index, state] : states) {
      endings[index] = {WordsFor(state), state == kSlurmCancelled};
    }
    return endings;
  }

  absl::StatusOr<bool> Stop(const Batch& batch) override {
    // What a killed server had submitted without writing its id down has a name all the same.
    const std::vector<std::string> living = Living(batch);
    for (const std::string& name : living) {
      const auto [told, first] = told_.emplace(name, SteadyNow());
      const bool late = SteadyNow() - told->second > kGrace;
      if (!first && !late) continue;
      if (absl::Status s = late ? KillSlurmJobs(name) : CancelSlurmJobs(name); !s.ok()) {
        if (first) told_.erase(told);
        return s;
      }
    }
    if (!living.empty()) return false;
    std::erase_if(told_, [&](const auto& array) {
      return absl::StartsWith(array.first, batch.JobName() + "-");
    });
    return true;
  }

 private:
  // How long a run that was told to stop may take: a candidate's end, and the file's.
  static constexpr absl::Duration kGrace = absl::Seconds(25);

  // Of the batch, whatever the submission: names of arrays that have not ended.
  std::vector<std::string> Living(const Batch& batch) const {
    std::vector<std::string> names;
    const std::string prefix = batch.JobName() + "-";
    for (auto it = jobs_.lower_bound(prefix);
         it != jobs_.end() && absl::StartsWith(it->first, prefix); ++it) {
      if (!std::all_of(it->second.begin(), it->second.end(), HasEnded)) names.push_back(it->first);
    }
    return names;
  }

  const SlurmFlags flags_;
  std::map<std::string, std::vector<SlurmJob>> jobs_;  // by name
  std::map<std::string, int> launch_failures_;         // of arrays: after which they were released
  std::map<std::string, SteadyTime> told_;             // arrays of ended jobs: when TERM was sent
};

}  // namespace

std::unique_ptr<ClusterEngine> MakeSlurmEngine(SlurmFlags flags) {
  return std::make_unique<SlurmEngine>(std::move(flags));
}

}  // namespace heddle::cli
