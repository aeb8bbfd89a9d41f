// A batch as a Job that a Kubernetes cluster runs (docs/cluster.md): printed by `heddle cluster
// kubernetes`, made by a server (kubernetes_engine.h).
#ifndef HEDDLE_CLI_KUBERNETES_H_
#define HEDDLE_CLI_KUBERNETES_H_

#include <cstdint>
#include <string>

#include "absl/strings/string_view.h"
#include "cli/batch.h"
#include "cli/command.h"

namespace heddle::cli {

// Where in a pod the batch's folder is.
inline constexpr char kPodFolder[] = "/batch";
// Labels of Jobs and of their pods: the batch's Job; and of a server's, its volume's claim, the
// server's job and who asked for it.
inline constexpr char kBatchLabel[] = "heddle/batch";
inline constexpr char kServerLabel[] = "heddle/server";
inline constexpr char kJobLabel[] = "heddle/job";
inline constexpr char kTenantLabel[] = "heddle/tenant";
inline constexpr int64_t kPodUser = 65532;  // deploy/Containerfile's

// Where the pods of a batch run and what each is given.
struct KubernetesFlags {
  std::string image, volume_claim, queue, gpu, resource = "nvidia.com/gpu", cpu = "8",
                                               memory = "16Gi";
  std::string k8s_namespace;
  int parallel = 0;
  int64_t deadline_s = 0;  // of a pod; 0 = what its budget suggests

  // Without `engines`, the flags that all engines have (gpu, parallel, deadline_s).
  void Add(CLI::App& app, bool engines = true);
};

// Small letters, digits and '-', as names of objects are; unlike that of any other batch.
std::string ObjectName(const Batch& batch);
// As much of it as may be a label's value.
std::string LabelValue(absl::string_view text);

// What of a Job depends on where its batch lies.
struct PodParts {
  Json mounts = Json::array(), volumes = Json::array();
  Json labels = Json::object();  // of pods and Job
  int64_t user = kPodUser, group = kPodUser;
};
// An index for each workload. A pod finds the batch in kPodFolder, by the mounts.
Json JobOf(const KubernetesFlags& flags, const Batch& batch, const PodParts& parts);

// To the group of `heddle cluster`.
void AddKubernetes(CLI::App& group, Selected selected);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_KUBERNETES_H_
