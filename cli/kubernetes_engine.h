// Kubernetes as the engine of a server's jobs: each is a Job object with an index for each
// workload, which has its name from the server's job, so that it is made once, and is deleted with
// its pods when the job has ended. Its attempts at a workload are Kubernetes' own.
#ifndef HEDDLE_CLI_KUBERNETES_ENGINE_H_
#define HEDDLE_CLI_KUBERNETES_ENGINE_H_

#include <memory>

#include "absl/status/statusor.h"
#include "cli/executor.h"
#include "cli/kube_api.h"
#include "cli/kubernetes.h"

namespace heddle::cli {

struct ServerPodFlags {
  KubernetesFlags pods;
  KubeFlags api;
  int64_t user = 0;  // of the pods; 0: the server's own

  void Add(CLI::App& app);
};

// InvalidArgument: the flags lack something.
absl::StatusOr<std::unique_ptr<ClusterEngine>> MakeKubernetesEngine(ServerPodFlags flags,
                                                                    absl::Duration look_every);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_KUBERNETES_ENGINE_H_
