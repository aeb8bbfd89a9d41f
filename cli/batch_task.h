// One run of a batch, on the node that the cluster's engine has chosen for it.
#ifndef HEDDLE_CLI_BATCH_TASK_H_
#define HEDDLE_CLI_BATCH_TASK_H_

#include "cli/command.h"

namespace heddle::cli {

// The subcommands of `heddle cluster` that the scripts call.
void AddBatchCommands(CLI::App& group, Selected selected);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_BATCH_TASK_H_
