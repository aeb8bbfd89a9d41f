#include "cli/kube_jobs.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace heddle::cli {
namespace {

constexpr char kPage[] = "500";  // objects of an answer
constexpr absl::Duration kFirstAnswer = absl::Seconds(2);

}  // namespace

KubeJob ReadKubeJob(const Json& object) {
  return {TextAt(object, {"metadata", "name"}), TextAt(object, {"metadata", "uid"}),
          HasCondition(object, "Complete") || HasCondition(object, "Failed"),
          !TextAt(object, {"metadata", "deletionTimestamp"}).empty()};
}

absl::StatusOr<KubeList> ListObjects(KubeApi& api, const std::string& path,
                                     const std::string& selector) {
  KubeList list;
  std::map<std::string, std::string> query{{"labelSelector", selector}, {"limit", kPage}};
  do {
    HEDDLE_ASSIGN_OR_RETURN(page, api.Call("GET", path + QueryText(query), nullptr));
    for (const Json& item : At(page, {"items"})) list.items.push_back(item);
    list.version = TextAt(page, {"metadata", "resourceVersion"});
    query["continue"] = TextAt(page, {"metadata", "continue"});
  } while (!query["continue"].empty());
  return list;
}

KubeJobs::KubeJobs(const KubeFlags& flags, std::string path, std::string selector,
                   absl::Duration pause)
    : path_(std::move(path)),
      selector_(std::move(selector)),
      pause_(pause),
      api_(flags, stop_),
      status_(absl::UnavailableError("Kubernetes has not answered yet")) {
  thread_ = std::thread([this] {
    absl::Duration wait = absl::ZeroDuration();
    while (!stop_.Wait(wait)) {
      const SteadyTime begin = SteadyNow();
      const bool lists = version_.empty();
      absl::Status status = lists ? List() : Watch();
      const bool forgotten = !lists && absl::IsOutOfRange(status);
      if (!status.ok()) version_.clear();
      if (forgotten) status = absl::OkStatus();
      // Neither errors nor watches that end at once are to keep both sides busy.
      const bool goes_on = forgotten || (lists && status.ok());
      wait = goes_on ? absl::ZeroDuration() : pause_;
      if (status.ok()) wait = std::max(absl::ZeroDuration(), wait - (SteadyNow() - begin));
      const absl::MutexLock lock(&mutex_);
      status_ = status;
      answered_.Set();
    }
  });
}

KubeJobs::~KubeJobs() {
  stop_.Set();
  thread_.join();
}

absl::Status KubeJobs::List() {
  HEDDLE_ASSIGN_OR_RETURN(list, ListObjects(api_, path_, selector_));
  version_ = list.version;
  const absl::MutexLock lock(&mutex_);
  entries_.clear();
  for (const Json& item : list.items) Learn(item);
  status_ = absl::OkStatus();
  changed_.Set(true);
  return absl::OkStatus();
}

absl::Status KubeJobs::Watch() {
  const std::string query = QueryText({{"labelSelector", selector_},
                                       {"watch", "true"},
                                       {"allowWatchBookmarks", "true"},
                                       {"resourceVersion", version_}});
  return api_.Watch(path_ + query, [this](const Json& event) {
    const std::string type = TextAt(event, {"type"});
    const Json& object = At(event, {"object"});
    version_ = TextAt(object, {"metadata", "resourceVersion"});
    if (type == "BOOKMARK") return absl::OkStatus();
    const absl::MutexLock lock(&mutex_);
    if (type == "DELETED") {
      entries_.erase(TextAt(object, {"metadata", "name"}));
    } else {
      Learn(object);
    }
    changed_.Set(true);
    return absl::OkStatus();
  });
}

void KubeJobs::Learn(const Json& object) {
  Entry entry{ReadKubeJob(object), {}};
  for (const auto& [name, value] : At(object, {"metadata", "labels"}).items()) {
    if (value.is_string()) entry.labels[name] = value;
  }
  entries_[entry.job.name] = std::move(entry);
}

void KubeJobs::Add(const Json& object) {
  const absl::MutexLock lock(&mutex_);
  if (!entries_.contains(TextAt(object, {"metadata", "name"}))) Learn(object);
}

absl::StatusOr<std::map<std::string, KubeJob>> KubeJobs::By(const std::string& label) {
  answered_.Wait(kFirstAnswer);
  const absl::MutexLock lock(&mutex_);
  changed_.Set(false);
  HEDDLE_RETURN_IF_ERROR(status_);
  std::map<std::string, KubeJob> jobs;
  for (const auto& [name, entry] : entries_) {
    const auto found = entry.labels.find(label);
    if (found != entry.labels.end()) jobs[found->second] = entry.job;
  }
  return jobs;
}

}  // namespace heddle::cli
