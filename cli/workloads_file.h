// Files that list workloads: "op k=v,... [weight=N] [dtype=T]" a line, # begins a comment.
#ifndef HEDDLE_CLI_WORKLOADS_FILE_H_
#define HEDDLE_CLI_WORKLOADS_FILE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::cli {

struct WorkloadLine {
  int line = 0;  // number in the file, from 1
  std::string op, shape;
  int64_t weight = 1;  // how often the model calls it
  std::string dtype;   // empty: that of all lines, --dtype
};

// InvalidArgument names the line and what was expected.
absl::StatusOr<std::vector<WorkloadLine>> ParseWorkloadLines(const std::string& text);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_WORKLOADS_FILE_H_
