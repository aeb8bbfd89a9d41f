#include "cli/kubernetes.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "cli/batch.h"
#include "cli/suite.h"

namespace heddle::cli {
namespace {

// In the container: the batch, whose `runs` is the volume that outlives it.
constexpr char kFolder[] = "/batch";
constexpr size_t kMaxConfigMap = 1 << 20;  // bytes: Kubernetes' own limit
constexpr int kMaxName = 63 - 6;           // of a Job, whose pods add "-" and an index of up to 5
constexpr int kAttempts = 3;               // of a workload again, besides those that were evicted
constexpr int64_t kUser = 65532;           // Containerfile's
constexpr int kGraceSeconds = 60;

struct KubernetesFlags {
  SuiteFlags suite;
  std::string image, volume_claim, queue, gpu, resource = "nvidia.com/gpu", cpu = "8",
                                               memory = "16Gi";
  std::string k8s_namespace;
  int parallel = 0;
  int64_t deadline_s = 0;
};

// Small letters, digits and '-', as names of objects are.
std::string ObjectName(const Batch& batch) {
  std::string name = absl::StrCat("heddle-", batch.name, "-", batch.created);
  for (char& c : name) {
    c = absl::ascii_isalnum(static_cast<unsigned char>(c))
            ? absl::ascii_tolower(static_cast<unsigned char>(c))
            : '-';
  }
  // The moment tells batches apart: what is too long loses its middle.
  const size_t moment = batch.created.size() + 1;
  if (name.size() > kMaxName)
    name = name.substr(0, kMaxName - moment) + name.substr(name.size() - moment);
  return name;
}

Json Container(const KubernetesFlags& flags, const Batch& batch) {
  Json mounts{{{"name", "batch"}, {"mountPath", kFolder}},
              {{"name", "plan"},
               {"mountPath", absl::StrCat(kFolder, "/batch.json")},
               {"subPath", "batch.json"},
               {"readOnly", true}},
              {{"name", "runs"},
               // Not a folder of the volume: that would be made by the node, as root.
               {"mountPath", absl::StrCat(kFolder, "/runs")}},
              {{"name", "scratch"}, {"mountPath", "/tmp"}}};
  if (!batch.op_file.empty()) {
    mounts.push_back({{"name", "plan"},
                      {"mountPath", batch.op_file},
                      {"subPath", "operators.op"},
                      {"readOnly", true}});
  }
  return {{"name", "tune"},
          {"image", flags.image},
          {"args", {"cluster", "task", "--folder", kFolder, "--index", "$(JOB_COMPLETION_INDEX)"}},
          // The GPU is the pod's alone, so that nobody else looks at its lock.
          {"env",
           {{{"name", "HEDDLE_LOCK_FOLDER"}, {"value", "/tmp"}},
            {{"name", "XDG_CACHE_HOME"}, {"value", "/tmp/cache"}},
            {{"name", "HOME"}, {"value", "/tmp"}}}},
          {"resources",
           {{"requests", {{"cpu", flags.cpu}, {"memory", flags.memory}}},
            {"limits", {{flags.resource, 1}, {"memory", flags.memory}}}}},
          {"securityContext",
           {{"allowPrivilegeEscalation", false},
            {"readOnlyRootFilesystem", true},
            {"capabilities", {{"drop", {"ALL"}}}}}},
          {"volumeMounts", mounts}};
}

// As pod security's level "restricted" asks.
Json PodSpec(const KubernetesFlags& flags, const Batch& batch, const std::string& name) {
  Json pod{{"restartPolicy", "Never"},
           {"terminationGracePeriodSeconds", kGraceSeconds},
           {"automountServiceAccountToken", false},
           {"securityContext",
            {{"runAsNonRoot", true},
             {"runAsUser", kUser},
             {"runAsGroup", kUser},
             {"fsGroup", kUser},
             {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
           {"containers", Json::array({Container(flags, batch)})},
           {"volumes",
            {{{"name", "batch"}, {"emptyDir", Json::object()}},
             {{"name", "scratch"}, {"emptyDir", Json::object()}},
             {{"name", "plan"}, {"configMap", {{"name", name}}}},
             {{"name", "runs"}, {"persistentVolumeClaim", {{"claimName", flags.volume_claim}}}}}}};
  int64_t deadline = flags.deadline_s;
  if (deadline == 0) deadline = static_cast<int64_t>(std::ceil(batch.TaskSeconds()));
  if (deadline > 0) pod["activeDeadlineSeconds"] = deadline;
  if (!flags.gpu.empty()) pod["nodeSelector"] = {{"nvidia.com/gpu.product", flags.gpu}};
  return pod;
}

Json JobOf(const KubernetesFlags& flags, const Batch& batch, const std::string& name) {
  const auto count = static_cast<int64_t>(batch.workloads.size());
  Json labels{{"app.kubernetes.io/name", "heddle"}, {"heddle/batch", name}};
  Json job_labels = labels;
  if (!flags.queue.empty()) job_labels["kueue.x-k8s.io/queue-name"] = flags.queue;
  Json metadata{{"name", name}, {"labels", job_labels}};
  if (!flags.k8s_namespace.empty()) metadata["namespace"] = flags.k8s_namespace;
  Json spec{
      {"completionMode", "Indexed"},
      {"completions", count},
      {"parallelism", flags.parallel > 0 ? std::min<int64_t>(flags.parallel, count) : count},
      // Of one workload: the others go on, whatever becomes of it.
      {"backoffLimitPerIndex", kAttempts},
      {"maxFailedIndexes", count},
      {"podFailurePolicy",
       {{"rules",
         // An eviction is no attempt; what bad arguments or a lack of schedules end, none will
         // mend.
         {{{"action", "Ignore"},
           {"onPodConditions", {{{"type", "DisruptionTarget"}, {"status", "True"}}}}},
          {{"action", "FailIndex"},
           {"onExitCodes",
            {{"containerName", "tune"},
             {"operator", "In"},
             {"values", {int{kBadArguments}, int{kNoValidSchedule}}}}}}}}}},
      {"template", {{"metadata", {{"labels", labels}}}, {"spec", PodSpec(flags, batch, name)}}}};
  // Until the queue admits it.
  if (!flags.queue.empty()) spec["suspend"] = true;
  return {{"apiVersion", "batch/v1"}, {"kind", "Job"}, {"metadata", metadata}, {"spec", spec}};
}

Result RunKubernetes(const KubernetesFlags& flags) {
  auto batch = flags.suite.Plan("/");
  if (!batch.ok()) return batch.status();
  batch->folder = kFolder;
  if (!batch->op_file.empty()) batch->op_file = absl::StrCat(kFolder, "/operators.op");
  auto operators = flags.suite.Operators();
  if (!operators.ok()) return operators.status();
  const std::string name = ObjectName(*batch);
  Json data{{"batch.json", BatchText(*batch)}};
  if (!batch->op_file.empty()) data["operators.op"] = *operators;
  if (data.dump().size() > kMaxConfigMap) {
    return absl::InvalidArgumentError(absl::StrCat(
        flags.suite.workloads, " is more than a ConfigMap holds, 1 MiB: divide it into several"));
  }
  Json metadata{{"name", name},
                {"labels", {{"app.kubernetes.io/name", "heddle"}, {"heddle/batch", name}}}};
  if (!flags.k8s_namespace.empty()) metadata["namespace"] = flags.k8s_namespace;
  PrintJson({{"apiVersion", "v1"},
             {"kind", "List"},
             {"items",
              {{{"apiVersion", "v1"},
                {"kind", "ConfigMap"},
                {"metadata", metadata},
                {"immutable", true},
                {"data", data}},
               JobOf(flags, *batch, name)}}});
  Say(absl::StrCat("Its runs will lie in the volume of ", flags.volume_claim,
                   ", for `heddle records collect`."));
  return kDone;
}

}  // namespace

void AddKubernetes(CLI::App& group, Selected selected) {
  auto flags = std::make_shared<KubernetesFlags>();
  CLI::App* sub = group.add_subcommand(
      "kubernetes",
      "print what has Kubernetes tune each workload of a file, for kubectl apply -f -");
  flags->suite.Add(*sub);
  sub->add_option("--image", flags->image, "a container image with heddle (deploy/Containerfile)")
      ->type_name("IMAGE")
      ->required();
  sub->add_option("--volume-claim", flags->volume_claim,
                  "the PersistentVolumeClaim for the runs, which many nodes may write")
      ->type_name("NAME")
      ->required();
  sub->add_option("--queue", flags->queue, "Kueue's LocalQueue, such as the tenant's")
      ->type_name("NAME");
  sub->add_option("--namespace", flags->k8s_namespace, "of the objects [kubectl's]")
      ->type_name("NAME");
  sub->add_option("--gpu", flags->gpu, "the model, as nodes are labelled (nvidia.com/gpu.product)")
      ->type_name("MODEL");
  sub->add_option("--gpu-resource", flags->resource,
                  "of which a pod has one; no time slices, whose times are their neighbours' too")
      ->type_name("NAME")
      ->capture_default_str();
  sub->add_option("--cpu", flags->cpu, "a pod's cores, which compile")
      ->type_name("QUANTITY")
      ->capture_default_str();
  sub->add_option("--memory", flags->memory, "a pod's memory")
      ->type_name("QUANTITY")
      ->capture_default_str();
  sub->add_option("--time", flags->deadline_s,
                  "a pod's time limit in seconds [300 and 1.5 times --seconds; else none]")
      ->type_name("S")
      ->check(CLI::Range(1, 1 << 30).description(""));
  sub->add_option("--parallel", flags->parallel, "pods that run at a time, at most [all]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20).description(""));
  sub->footer("Nothing is sent: heddle cluster kubernetes ... | kubectl apply -f -");
  sub->callback([=] { *selected = [=] { return RunKubernetes(*flags); }; });
}

}  // namespace heddle::cli
