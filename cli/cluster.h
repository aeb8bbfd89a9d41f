// heddle cluster: tuning jobs for a cluster's own engine to run.
#ifndef HEDDLE_CLI_CLUSTER_H_
#define HEDDLE_CLI_CLUSTER_H_

#include "cli/command.h"

namespace heddle::cli {

void AddCluster(CLI::App& app, Selected selected);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_CLUSTER_H_
