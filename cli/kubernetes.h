// heddle cluster kubernetes: a suite as a Job that a Kubernetes cluster runs (docs/cluster.md).
#ifndef HEDDLE_CLI_KUBERNETES_H_
#define HEDDLE_CLI_KUBERNETES_H_

#include "cli/command.h"

namespace heddle::cli {

// To the group of `heddle cluster`.
void AddKubernetes(CLI::App& group, Selected selected);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_KUBERNETES_H_
