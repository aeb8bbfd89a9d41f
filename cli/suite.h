// The flags by which a command names a suite of workloads that a cluster's own engine is to tune.
#ifndef HEDDLE_CLI_SUITE_H_
#define HEDDLE_CLI_SUITE_H_

#include <string>

#include "absl/status/statusor.h"
#include "cli/batch.h"
#include "cli/command.h"

namespace heddle::cli {

struct SuiteFlags {
  WorkloadFlags workload;
  std::string workloads, name, l2;
  int trials = 200;
  double seconds = 0;

  void Add(CLI::App& app);
  // What of a batch they say; in its folder `folder`, which need not be there. All workloads can be
  // read.
  absl::StatusOr<Batch> Plan(const std::string& folder) const;
  // The text of the operators' file; "" without one.
  absl::StatusOr<std::string> Operators() const;
};

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_SUITE_H_
