#include "cli/kubernetes.h"

#include <algorithm>
#include <cmath>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/batch.h"
#include "cli/suite.h"

namespace heddle::cli {
namespace {

constexpr size_t kMaxConfigMap = 1 << 20;  // bytes: Kubernetes' own limit
constexpr int kMaxName = 63 - 6;           // of a Job, whose pods add "-" and an index of up to 5
constexpr int kAttempts = 3;               // of a workload again, besides those that were evicted
constexpr size_t kMaxLabel = 63;
constexpr int kGraceSeconds = 60;

struct PrintFlags {
  SuiteFlags suite;
  KubernetesFlags pods;
};

Json Container(const KubernetesFlags& flags, const Json& mounts) {
  return {
      {"name", "tune"},
      {"image", flags.image},
      {"args", {"cluster", "task", "--folder", kPodFolder, "--index", "$(JOB_COMPLETION_INDEX)"}},
      // The GPU is the pod's alone, so that nobody else looks at its lock.
      {"env",
       {{{"name", "HEDDLE_LOCK_FOLDER"}, {"value", "/tmp"}},
        {{"name", "XDG_CACHE_HOME"}, {"value", "/tmp/cache"}},
        {{"name", "HOME"}, {"value", "/tmp"}},
        // Pods of one node are one host's, and no two nodes are one, whatever the image says.
        {{"name", "HEDDLE_HOST"},
         {"valueFrom", {{"fieldRef", {{"fieldPath", "spec.nodeName"}}}}}}}},
      // As many compilers run as the limit has cores.
      {"resources",
       {{"requests", {{"cpu", flags.cpu}, {"memory", flags.memory}}},
        {"limits", {{flags.resource, 1}, {"cpu", flags.cpu}, {"memory", flags.memory}}}}},
      {"securityContext",
       {{"allowPrivilegeEscalation", false},
        {"readOnlyRootFilesystem", true},
        {"capabilities", {{"drop", {"ALL"}}}}}},
      // Without a folder for logs, why it failed is with the pod.
      {"terminationMessagePolicy", "FallbackToLogsOnError"},
      {"volumeMounts", mounts}};
}

// As pod security's level "restricted" asks.
Json PodSpec(const KubernetesFlags& flags, const Batch& batch, const PodParts& parts) {
  Json mounts = parts.mounts, volumes = parts.volumes;
  mounts.push_back({{"name", "scratch"}, {"mountPath", "/tmp"}});
  volumes.push_back({{"name", "scratch"}, {"emptyDir", Json::object()}});
  Json pod{{"restartPolicy", "Never"},
           {"terminationGracePeriodSeconds", kGraceSeconds},
           {"automountServiceAccountToken", false},
           {"securityContext",
            {{"runAsNonRoot", true},
             {"runAsUser", parts.user},
             {"runAsGroup", parts.group},
             {"fsGroup", parts.group},
             {"seccompProfile", {{"type", "RuntimeDefault"}}}}},
           {"containers", Json::array({Container(flags, mounts)})},
           {"volumes", volumes}};
  int64_t deadline = flags.deadline_s;
  if (deadline == 0) deadline = static_cast<int64_t>(std::ceil(batch.TaskSeconds()));
  if (deadline > 0) pod["activeDeadlineSeconds"] = deadline;
  if (!flags.gpu.empty()) pod["nodeSelector"] = {{"nvidia.com/gpu.product", flags.gpu}};
  return pod;
}

Json MetadataOf(const KubernetesFlags& flags, const std::string& name, const Json& labels) {
  Json metadata{{"name", name}, {"labels", labels}};
  if (!flags.k8s_namespace.empty()) metadata["namespace"] = flags.k8s_namespace;
  return metadata;
}

Json LabelsOf(const std::string& name) {
  return {{"app.kubernetes.io/name", "heddle"}, {kBatchLabel, name}};
}

Result RunKubernetes(const PrintFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(batch, flags.suite.Plan("/"));
  batch.folder = kPodFolder;
  if (!batch.op_file.empty()) batch.op_file = absl::StrCat(kPodFolder, "/operators.op");
  HEDDLE_ASSIGN_OR_RETURN(operators, flags.suite.Operators());
  const std::string name = ObjectName(batch);
  Json data{{"batch.json", BatchText(batch)}};
  if (!batch.op_file.empty()) data["operators.op"] = operators;
  if (data.dump().size() > kMaxConfigMap) {
    return absl::InvalidArgumentError(absl::StrCat(
        flags.suite.workloads, " is more than a ConfigMap holds, 1 MiB: divide it into several"));
  }
  // The batch is the ConfigMap's; its `runs` is the volume that outlives it. Not a folder of the
  // volume: that would be made by the node, as root.
  PodParts parts;
  const auto mount = [&](const char* volume, const std::string& path) -> Json& {
    return parts.mounts.emplace_back(Json{{"name", volume}, {"mountPath", path}});
  };
  mount("batch", kPodFolder);
  mount("runs", absl::StrCat(kPodFolder, "/runs"));
  for (const auto& [file, text] : data.items()) {
    mount("plan", absl::StrCat(kPodFolder, "/", file))
        .update({{"subPath", file}, {"readOnly", true}});
  }
  parts.volumes = {
      {{"name", "batch"}, {"emptyDir", Json::object()}},
      {{"name", "plan"}, {"configMap", {{"name", name}}}},
      {{"name", "runs"}, {"persistentVolumeClaim", {{"claimName", flags.pods.volume_claim}}}}};
  PrintJson({{"apiVersion", "v1"},
             {"kind", "List"},
             {"items",
              {{{"apiVersion", "v1"},
                {"kind", "ConfigMap"},
                {"metadata", MetadataOf(flags.pods, name, LabelsOf(name))},
                {"immutable", true},
                {"data", data}},
               JobOf(flags.pods, batch, parts)}}});
  Say(absl::StrCat("Its runs will lie in the volume of ", flags.pods.volume_claim,
                   ", for `heddle records collect`."));
  return kDone;
}

}  // namespace

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

std::string LabelValue(absl::string_view text) {
  std::string value(text.substr(0, kMaxLabel));
  const auto plain = [](char c) { return absl::ascii_isalnum(static_cast<unsigned char>(c)); };
  for (char& c : value) {
    if (!plain(c) && c != '-' && c != '_' && c != '.') c = '-';
  }
  while (!value.empty() && !plain(value.back())) value.pop_back();
  value.erase(0, std::find_if(value.begin(), value.end(), plain) - value.begin());
  return value;
}

Json JobOf(const KubernetesFlags& flags, const Batch& batch, const PodParts& parts) {
  const std::string name = ObjectName(batch);
  const auto count = static_cast<int64_t>(batch.workloads.size());
  Json labels = LabelsOf(name);
  labels.update(parts.labels);
  Json job_labels = labels;
  if (!flags.queue.empty()) job_labels["kueue.x-k8s.io/queue-name"] = flags.queue;
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
      {"template", {{"metadata", {{"labels", labels}}}, {"spec", PodSpec(flags, batch, parts)}}}};
  // Until the queue admits it.
  if (!flags.queue.empty()) spec["suspend"] = true;
  return {{"apiVersion", "batch/v1"},
          {"kind", "Job"},
          {"metadata", MetadataOf(flags, name, job_labels)},
          {"spec", spec}};
}

void KubernetesFlags::Add(CLI::App& app, bool engines) {
  app.add_option("--image", image, "a container image with heddle (deploy/Containerfile)")
      ->type_name("IMAGE");
  app.add_option("--volume-claim", volume_claim,
                 "the PersistentVolumeClaim for the runs, which many nodes may write")
      ->type_name("NAME");
  app.add_option("--queue", queue, "Kueue's LocalQueue, such as the tenant's")->type_name("NAME");
  app.add_option("--namespace", k8s_namespace, "of the objects [kubectl's; of a server, its own]")
      ->type_name("NAME");
  app.add_option("--gpu-resource", resource,
                 "of which a pod has one; no time slices, whose times are their neighbours' too")
      ->type_name("NAME")
      ->capture_default_str();
  app.add_option("--cpu", cpu, "a pod's cores, which compile")
      ->type_name("QUANTITY")
      ->capture_default_str();
  app.add_option("--memory", memory, "a pod's memory")
      ->type_name("QUANTITY")
      ->capture_default_str();
  if (!engines) return;
  app.add_option("--gpu", gpu, "the model, as nodes are labelled (nvidia.com/gpu.product)")
      ->type_name("MODEL");
  app.add_option("--time", deadline_s,
                 "a pod's time limit in seconds [300 and 1.5 times --seconds; else none]")
      ->type_name("S")
      ->check(CLI::Range(1, 1 << 30).description(""));
  app.add_option("--parallel", parallel, "pods that run at a time, at most [all]")
      ->type_name("N")
      ->check(CLI::Range(1, 1 << 20).description(""));
}

void AddKubernetes(CLI::App& group, Selected selected) {
  auto flags = std::make_shared<PrintFlags>();
  CLI::App* sub = group.add_subcommand(
      "kubernetes",
      "print what has Kubernetes tune each workload of a file, for kubectl apply -f -");
  flags->suite.Add(*sub);
  flags->pods.Add(*sub);
  for (const char* flag : {"--image", "--volume-claim"}) sub->get_option(flag)->required();
  sub->footer("Nothing is sent: heddle cluster kubernetes ... | kubectl apply -f -");
  sub->callback([=] { *selected = [=] { return RunKubernetes(*flags); }; });
}

}  // namespace heddle::cli
