// Collecting what runs on nodes have left behind, by hand and at the end of a batch.
#ifndef HEDDLE_CLI_COLLECT_H_
#define HEDDLE_CLI_COLLECT_H_

#include <string>
#include <vector>

#include "cli/command.h"

namespace heddle::cli {

// Adds the files, and those of the folders, to `records` and says what it did. kFailed where
// something was refused; the rest is there.
Result CollectRunFiles(tuner::Records& records, const std::vector<std::string>& paths);

// `heddle records collect`, to the group of `heddle records`.
void AddCollect(CLI::App& group, Selected selected);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_COLLECT_H_
