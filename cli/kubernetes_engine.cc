#include "cli/kubernetes_engine.h"

#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/files.h"
#include "base/log.h"
#include "base/status.h"
#include "cli/kube_jobs.h"

namespace heddle::cli {
namespace {

constexpr char kCompletionIndex[] = "batch.kubernetes.io/job-completion-index";
constexpr size_t kMaxNamespace = 64, kMaxLine = 200;

// The last line of a text, as far as it belongs into an error.
std::string LastLine(absl::string_view text) {
  text = absl::StripAsciiWhitespace(text);
  const size_t end_of_rest = text.rfind('\n');
  if (end_of_rest != absl::string_view::npos) text.remove_prefix(end_of_rest + 1);
  return std::string(text.substr(0, kMaxLine));
}

// How a pod ended, in a user's words; "" = it is not known.
std::string WordsFor(const Json& pod) {
  if (TextAt(pod, {"status", "reason"}) == "DeadlineExceeded") return "out of time (--time)";
  if (HasCondition(pod, "DisruptionTarget")) return "evicted, preempted or on a node that failed";
  for (const Json& container : At(pod, {"status", "containerStatuses"})) {
    const Json& terminated = At(container, {"state", "terminated"});
    if (TextAt(terminated, {"reason"}) == "OOMKilled") return "out of memory (--memory)";
    const Json& code = At(terminated, {"exitCode"});
    if (!code.is_number_integer() || code == 0) continue;
    const std::string line = LastLine(TextAt(terminated, {"message"}));
    return absl::StrCat("ended with exit code ", code.get<int>(), line.empty() ? "" : ": ", line);
  }
  return TextAt(pod, {"status", "reason"});
}

class KubernetesEngine : public ClusterEngine {
 public:
  KubernetesEngine(ServerPodFlags flags, absl::Duration look_every)
      : flags_(std::move(flags)),
        group_(flags_.user == getuid() ? getgid() : flags_.user),
        server_(LabelValue(flags_.pods.volume_claim)),
        jobs_path_(absl::StrCat("/apis/batch/v1/namespaces/", flags_.pods.k8s_namespace, "/jobs")),
        pods_path_(absl::StrCat("/api/v1/namespaces/", flags_.pods.k8s_namespace, "/pods")),
        api_(flags_.api, stop_),
        watched_(flags_.api, jobs_path_, absl::StrCat(kServerLabel, "=", server_), look_every) {}

  std::string place() const override { return "the cluster"; }
  // It tries each workload again itself.
  int resubmissions() const override { return 0; }
  int fd() const override { return watched_.fd(); }
  void Interrupt() override { stop_.Set(); }

  absl::StatusOr<std::vector<std::pair<std::string, std::string>>> Files() const override {
    return std::vector<std::pair<std::string, std::string>>{};
  }

  absl::Status Look() override {
    HEDDLE_ASSIGN_OR_RETURN(jobs, watched_.By(kJobLabel));
    jobs_ = std::move(jobs);
    return absl::OkStatus();
  }

  bool Sees(const std::string& batch) const override { return jobs_.contains(batch); }

  bool Lives(const Batch& batch) const override {
    const auto found = jobs_.find(batch.name);
    return found != jobs_.end() && !found->second.ended;
  }

  absl::Status Settle(const Batch& batch) override {
    const auto found = jobs_.find(batch.name);
    if (found == jobs_.end() || noted_.contains(batch.name)) return absl::OkStatus();
    return WriteDown(batch, found->second.uid);
  }

  absl::Status Submit(Batch batch, const std::string& tenant, int,
                      const std::vector<int64_t>&) override {
    const std::string path = PathOf(batch);
    auto made = api_.Call("POST", jobs_path_, ObjectOf(batch, tenant));
    if (absl::IsAlreadyExists(made.status())) {
      // Made by this server before it was killed, or by a call whose answer was lost.
      made = api_.Call("GET", path, nullptr);
      HEDDLE_RETURN_IF_ERROR(made);
      if (TextAt(*made, {"metadata", "labels", kServerLabel}) != server_ ||
          TextAt(*made, {"metadata", "labels", kJobLabel}) != batch.name) {
        return absl::FailedPreconditionError(
            absl::StrCat(path, " is another server's: give each a --volume-claim of its own"));
      }
      if (ReadKubeJob(*made).deleting) {
        return absl::FailedPreconditionError(absl::StrCat(path, " is being deleted"));
      }
    }
    HEDDLE_RETURN_IF_ERROR(made);
    watched_.Add(*made);
    const std::string uid = ReadKubeJob(*made).uid;
    LogEvent(Severity::kInfo, "submitted",
             {{"batch", batch.name},
              {"workloads", static_cast<int64_t>(batch.workloads.size())},
              {"uid", uid}});
    return WriteDown(batch, uid);
  }

  absl::StatusOr<std::map<int64_t, Ending>> Endings(const Batch& batch, int,
                                                    const std::vector<int64_t>& indices) override {
    std::map<int64_t, Ending> endings;
    const auto all = [&](const Ending& ending) {
      for (int64_t index : indices) endings[index] = ending;
    };
    auto job = api_.Call("GET", PathOf(batch), nullptr);
    if (absl::IsNotFound(job.status())) {
      all({"deleted in Kubernetes", true});
      return endings;
    }
    HEDDLE_RETURN_IF_ERROR(job);
    if (!ReadKubeJob(*job).ended) {
      return absl::AbortedError(absl::StrCat(PathOf(batch), " goes on, but is not listed"));
    }
    for (const Json& condition : At(*job, {"status", "conditions"})) {
      const std::string reason = TextAt(condition, {"reason"});
      if (TextAt(condition, {"type"}) == "Failed" && !reason.empty()) all({reason, false});
    }
    HEDDLE_ASSIGN_OR_RETURN(
        pods, ListObjects(api_, pods_path_, absl::StrCat(kBatchLabel, "=", ObjectName(batch))));
    // The last attempt is what counts.
    std::sort(pods.items.begin(), pods.items.end(), [](const Json& a, const Json& b) {
      return TextAt(a, {"metadata", "creationTimestamp"}) <
             TextAt(b, {"metadata", "creationTimestamp"});
    });
    for (const Json& pod : pods.items) {
      int64_t index = 0;
      if (!absl::SimpleAtoi(TextAt(pod, {"metadata", "annotations", kCompletionIndex}), &index) ||
          !std::binary_search(indices.begin(), indices.end(), index)) {
        continue;
      }
      if (std::string why = WordsFor(pod); !why.empty()) endings[index] = {std::move(why), false};
      KeepLog(batch, pod);
    }
    return endings;
  }

  absl::StatusOr<bool> Stop(const Batch& batch) override {
    const auto found = jobs_.find(batch.name);
    if (found == jobs_.end()) {
      noted_.erase(batch.name);
      return true;
    }
    const KubeJob& job = found->second;
    if (job.deleting) return false;
    // It stays until its pods are gone, which have their time to end (PodSpec). What has been made
    // anew under its name is not meant.
    const auto deleted = api_.Call("DELETE", absl::StrCat(jobs_path_, "/", job.name),
                                   {{"apiVersion", "v1"},
                                    {"kind", "DeleteOptions"},
                                    {"propagationPolicy", "Foreground"},
                                    {"preconditions", {{"uid", job.uid}}}});
    // The watch tells what has become of it.
    if (deleted.ok() || absl::IsNotFound(deleted.status()) || absl::IsAborted(deleted.status())) {
      return false;
    }
    return deleted.status();
  }

 private:
  std::string PathOf(const Batch& batch) const {
    return absl::StrCat(jobs_path_, "/", ObjectName(batch));
  }

  // Under a name by which the executor knows submissions.
  absl::Status WriteDown(const Batch& batch, const std::string& uid) {
    const std::string note = absl::StrCat(batch.folder, "/jobs/", batch.JobName(), "-0");
    HEDDLE_RETURN_IF_ERROR(WriteFile(note, uid + "\n"));
    noted_.insert(batch.name);
    return absl::OkStatus();
  }

  // What a container printed at last goes with its pod.
  static void KeepLog(const Batch& batch, const Json& pod) {
    for (const Json& container : At(pod, {"status", "containerStatuses"})) {
      const std::string text = TextAt(container, {"state", "terminated", "message"});
      const std::string name = LabelValue(TextAt(pod, {"metadata", "name"}));
      if (text.empty() || name.empty()) continue;
      // Only to look at.
      WriteFile(absl::StrCat(batch.folder, "/log/", name, ".log"), text).IgnoreError();
    }
  }

  Json ObjectOf(const Batch& batch, const std::string& tenant) const {
    KubernetesFlags pods = flags_.pods;
    pods.queue = absl::StrReplaceAll(pods.queue, {{"{tenant}", LabelValue(tenant)}});
    PodParts parts;
    // The server has made the folder, so that no node does.
    parts.mounts.push_back({{"name", "batch"}, {"mountPath", kPodFolder}, {"subPath", batch.name}});
    parts.volumes.push_back(
        {{"name", "batch"}, {"persistentVolumeClaim", {{"claimName", pods.volume_claim}}}});
    parts.labels = {
        {kServerLabel, server_}, {kJobLabel, batch.name}, {kTenantLabel, LabelValue(tenant)}};
    parts.user = flags_.user;
    parts.group = group_;
    return JobOf(pods, batch, parts);
  }

  const ServerPodFlags flags_;
  const int64_t group_;
  const std::string server_, jobs_path_, pods_path_;
  StopSignal stop_;
  KubeApi api_;
  KubeJobs watched_;
  std::map<std::string, KubeJob> jobs_;  // by batch
  std::set<std::string> noted_;          // batches
};

}  // namespace

void ServerPodFlags::Add(CLI::App& app) {
  pods.Add(app, false);
  app.add_option("--pod-user", user, "as whom pods write into the folder [this server's user]")
      ->type_name("UID")
      ->check(CLI::Range(1, 1 << 30).description(""));
  api.Add(app);
}

absl::StatusOr<std::unique_ptr<ClusterEngine>> MakeKubernetesEngine(ServerPodFlags flags,
                                                                    absl::Duration look_every) {
  KubernetesFlags& pods = flags.pods;
  if (pods.image.empty() || pods.volume_claim.empty()) {
    return absl::InvalidArgumentError(
        "--executor kubernetes wants an --image with heddle, and a --volume-claim, whose volume is "
        "--folder here");
  }
  if (LabelValue(pods.volume_claim) != pods.volume_claim) {
    return absl::InvalidArgumentError(
        absl::StrCat("--volume-claim: '", pods.volume_claim,
                     "' names the server in labels: choose a name of at most 63 characters"));
  }
  if (flags.user == 0) flags.user = getuid();
  if (flags.user == 0) {
    return absl::InvalidArgumentError(
        "pods run as the server's user, who must not be root: start it as another; or name with "
        "--pod-user the user to whom the volume gives all that is written there");
  }
  HEDDLE_RETURN_IF_ERROR(flags.api.Settle());
  if (pods.k8s_namespace.empty()) {
    auto own = ReadTextFile(flags.api.credentials + "/namespace", kMaxNamespace);
    if (!own.ok()) {
      return absl::InvalidArgumentError(
          "--namespace: not given, and this is no pod, which has one");
    }
    pods.k8s_namespace = std::string(absl::StripAsciiWhitespace(*own));
  }
  return std::make_unique<KubernetesEngine>(std::move(flags), look_every);
}

}  // namespace heddle::cli
