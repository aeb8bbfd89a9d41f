// How Jobs of a Kubernetes cluster stand, kept up to date by a thread: one list, and from its
// version on a watch, which may be lost and taken up again, and is preceded by another list when
// its version has been forgotten.
#ifndef HEDDLE_CLI_KUBE_JOBS_H_
#define HEDDLE_CLI_KUBE_JOBS_H_

#include <map>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/process/subprocess.h"
#include "cli/kube_api.h"

namespace heddle::cli {

// What is to be known of a Job.
struct KubeJob {
  std::string name, uid;
  bool ended = false;     // Complete or Failed
  bool deleting = false;  // it goes, when its pods have
};
KubeJob ReadKubeJob(const Json& object);

// All objects of a list, which may come in several answers, and its version. Errors as
// KubeApi::Call's.
struct KubeList {
  std::vector<Json> items;
  std::string version;
};
absl::StatusOr<KubeList> ListObjects(KubeApi& api, const std::string& path,
                                     const std::string& selector);

class KubeJobs {
 public:
  // Of the Jobs at `path` that `selector` chooses; after an error, `pause` later again.
  KubeJobs(const KubeFlags& flags, std::string path, std::string selector, absl::Duration pause);
  ~KubeJobs();

  // By a label's value, as it stands; Unavailable, or what the server says, while it is not known.
  // The descriptor is as if nothing had changed from then on.
  absl::StatusOr<std::map<std::string, KubeJob>> By(const std::string& label);
  // Counts an object, just made, that the watch may be about to tell of.
  void Add(const Json& object);
  // Can be read when something has changed.
  int fd() const { return changed_.fd(); }

 private:
  absl::Status List();
  absl::Status Watch();
  void Learn(const Json& object) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  struct Entry {
    KubeJob job;
    std::map<std::string, std::string> labels;
  };

  const std::string path_, selector_;
  const absl::Duration pause_;
  StopSignal stop_;
  KubeApi api_;
  std::string version_;  // up to which all is known; "" = a list is needed
  mutable absl::Mutex mutex_;
  SharedFlag changed_;
  StopSignal answered_;  // status_ is an answer
  absl::Status status_ ABSL_GUARDED_BY(mutex_);
  std::map<std::string, Entry> entries_ ABSL_GUARDED_BY(mutex_);  // by name
  std::thread thread_;
};

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_KUBE_JOBS_H_
