// Calls to a Kubernetes API server, in JSON over HTTP, with the credentials that a pod has or,
// where `kubectl proxy` has them, with none.
#ifndef HEDDLE_CLI_KUBE_API_H_
#define HEDDLE_CLI_KUBE_API_H_

#include <curl/curl.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/clock.h"
#include "base/process/subprocess.h"
#include "cli/command.h"

namespace heddle::cli {

struct KubeFlags {
  std::string url;  // "" = what the pod's environment names
  std::string credentials = "/var/run/secrets/kubernetes.io/serviceaccount";

  void Add(CLI::App& app);
  // Sets `url` where it is "". InvalidArgument: this is no pod.
  absl::Status Settle();
};

// What lies there in an object; null where it does not. Of another's making, objects may lack
// anything.
const Json& At(const Json& object, std::initializer_list<const char*> path);
// The text that lies there; "" where none does.
std::string TextAt(const Json& object, std::initializer_list<const char*> path);
// Whether its status has the condition, such as "Complete".
bool HasCondition(const Json& object, const char* type);

// A percent-encoded "?name=value&...".
std::string QueryText(const std::map<std::string, std::string>& query);

// Not thread-safe; connections are kept.
class KubeApi {
 public:
  // `flags` are settled. `stop`, which must outlive this, interrupts every call (Cancelled).
  KubeApi(KubeFlags flags, const StopSignal& stop);
  ~KubeApi();
  KubeApi(const KubeApi&) = delete;
  KubeApi& operator=(const KubeApi&) = delete;

  // The object that a call is answered with; `body` null: none is sent. NotFound; AlreadyExists;
  // Aborted: a conflict with what the object is by now; OutOfRange: a version or a list's
  // continuation that is too old; PermissionDenied, which a quota's refusal is, too; Unavailable:
  // no answer, or it is asked for patience, for as long as which no call is made; InvalidArgument:
  // the object is refused for what it says (400, 413, 422), and always will be; FailedPrecondition:
  // everything else that is refused. Messages are the server's.
  absl::StatusOr<Json> Call(const char* method, const std::string& path, const Json& body);
  // Hands out the events of a watch as they come, until it ends, which is at any time, or `event`
  // returns an error. Errors as Call's, of the watch's beginning; its end is none.
  absl::Status Watch(const std::string& path,
                     const std::function<absl::Status(const Json&)>& event);

 private:
  // Has an answer's bytes as they come, with the HTTP status; false ends the call.
  using Take = std::function<bool(long code, const char* bytes, size_t count)>;
  struct Answer {
    long code = 0;      // the HTTP status; 0: there was none
    std::string error;  // of the transport; "" = it came to its end
  };
  absl::StatusOr<Answer> Perform(const char* method, const std::string& path,
                                 const std::string& body, absl::Duration limit, const Take& take);

  const KubeFlags flags_;
  const StopSignal& stop_;
  std::unique_ptr<CURLM, CURLMcode (*)(CURLM*)> connections_;
  SteadyTime quiet_until_;  // the server has asked for patience
};

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_KUBE_API_H_
