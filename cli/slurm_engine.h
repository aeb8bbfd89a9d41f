// Slurm as the engine of a server's jobs: each submission of a batch is arrays (slurm_batch.h).
#ifndef HEDDLE_CLI_SLURM_ENGINE_H_
#define HEDDLE_CLI_SLURM_ENGINE_H_

#include <memory>

#include "cli/executor.h"
#include "cli/slurm_batch.h"

namespace heddle::cli {

std::unique_ptr<ClusterEngine> MakeSlurmEngine(SlurmFlags flags);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_SLURM_ENGINE_H_
