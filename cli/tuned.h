// What tuning ends with and how it is told, whether it ran here or on a server.
#ifndef HEDDLE_CLI_TUNED_H_
#define HEDDLE_CLI_TUNED_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "tuner/model/roofline.h"
#include "tuner/search/session.h"

namespace heddle::cli {

// Columns of the terminal that standard error is.
int TerminalWidth();

// What is to be tuned.
struct TuneJob {
  Workload program;
  int64_t weight = 1;
  std::string command_line;  // the flags that name the workload again
};
// The operator that `flags` name or, each with its shape, those of the file `workloads`. All are
// parsed before any is tuned: a mistake on the last line costs no hours.
absl::StatusOr<std::vector<TuneJob>> ReadJobs(const WorkloadFlags& flags,
                                              const std::string& workloads);

// One workload's tuning, done.
struct Tuned {
  Workload program;
  tuner::SessionReport report;
  tuner::Roofline roofline;
  // What the search began with: how many schedules of the nearest workloads, and a cost model.
  size_t neighbours = 0;
  bool has_model = false;
};

// The document of `--json`. `device` is the model's name.
Json ToJson(const Tuned& tuned, const std::string& device, const std::string& l2, int64_t weight);
std::string NoValidSchedule(const tuner::SessionReport& report);
// The same for people, on standard error. `command_line` names the workload in what to do next;
// nothing is said about that where it is empty.
void SayResult(const Tuned& tuned, const std::string& l2, const std::string& command_line);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_TUNED_H_
