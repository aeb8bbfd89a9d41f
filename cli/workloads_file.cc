#include "cli/workloads_file.h"

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"

namespace heddle::cli {

absl::StatusOr<std::vector<WorkloadLine>> ParseWorkloadLines(const std::string& text) {
  std::vector<WorkloadLine> workloads;
  int number = 0;
  for (const std::string& line : std::vector<std::string>(absl::StrSplit(text, '\n'))) {
    ++number;
    std::string content = line.substr(0, line.find('#'));
    std::vector<std::string> words =
        absl::StrSplit(content, absl::ByAnyChar(" \t\r"), absl::SkipEmpty());
    if (words.empty()) continue;
    WorkloadLine workload{number, words[0], words.size() > 1 ? words[1] : "", 1};
    auto bad = [&](const std::string& what) {
      return absl::InvalidArgumentError(
          absl::StrCat("line ", number, ": ", what, "; expected: op k=v,... [weight=N] [dtype=T]"));
    };
    for (size_t i = 2; i < words.size(); ++i) {
      absl::string_view word = words[i];
      if (absl::ConsumePrefix(&word, "dtype=")) {
        workload.dtype = std::string(word);
        continue;
      }
      if (!absl::ConsumePrefix(&word, "weight=")) return bad("unexpected '" + words[i] + "'");
      if (!absl::SimpleAtoi(word, &workload.weight) || workload.weight < 1) {
        return bad("the weight must be a positive whole number, not '" + std::string(word) + "'");
      }
    }
    workloads.push_back(workload);
  }
  if (workloads.empty()) return absl::InvalidArgumentError("no workload in it");
  return workloads;
}

}  // namespace heddle::cli
