// What every call passes through: who calls, what it may do, how long it took.
#ifndef HEDDLE_SERVER_API_RPC_H_
#define HEDDLE_SERVER_API_RPC_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <map>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/api/auth.h"
#include "server/db/errors.h"
#include "server/db/store.h"
#include "server/engine/engine.h"
#include "server/engine/metrics.h"
#include "server/engine/spaces.h"

namespace heddle::server {

// Threads for what takes longer than a look into the database: gRPC's own must stay free. Tenants
// take turns, and where there are several threads one tenant never has them all.
class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();  // runs what is queued
  // False: too much is waiting.
  bool Run(const std::string& tenant, std::function<void()> work);

 private:
  struct Tenant {
    std::deque<std::function<void()>> queue;
    int running = 0;
  };
  // Of turns_, the first that may have another thread.
  std::deque<std::string>::iterator Next() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Work();

  const int most_of_one_;
  absl::Mutex mutex_;
  std::map<std::string, Tenant> tenants_ ABSL_GUARDED_BY(mutex_);  // with work
  std::deque<std::string> turns_ ABSL_GUARDED_BY(mutex_);          // those with a queue
  size_t waiting_ ABSL_GUARDED_BY(mutex_) = 0;
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  std::vector<std::thread> threads_;
};

// What the services share.
struct Gateway {
  Store& store;
  Engine& engine;
  Metrics& metrics;
  Spaces& spaces;
  Pool &light, &heavy;
  // Calls over TCP need a token. Those over a Unix socket never do: its permissions guard it.
  bool tokens_required = true;

  // Unauthenticated or PermissionDenied with the remedy.
  absl::StatusOr<Caller> Admit(const grpc::CallbackServerContext& context, Role needed) const;
  // Counts the call and logs what an administrator should see; the status for the caller.
  grpc::Status Finish(const char* method, SteadyTime start, const absl::Status& status) const;
};

// Whose are the jobs of callers without a token.
inline constexpr char kLocalTenant[] = "local";

// On gRPC's own thread; after a few looks into the database; after seconds of work, perhaps.
enum class Where : uint8_t { kInline, kLight, kHeavy };

// A unary call: `handler` gets the caller and a Reply, which it calls once.
template <typename Response, typename Handler>
grpc::ServerUnaryReactor* Unary(const Gateway& gateway, const char* method, Role needed,
                                Where where, grpc::CallbackServerContext* context,
                                Response* response, Handler handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const SteadyTime start = SteadyNow();
  const Gateway* g = &gateway;
  Reply<Response> reply = [=](absl::StatusOr<Response> result) {
    const absl::Status status = result.status();
    if (status.ok()) *response = *std::move(result);
    reactor->Finish(g->Finish(method, start, status));
  };
  auto caller = gateway.Admit(*context, needed);
  if (!caller.ok()) {
    reply(caller.status());
    return reactor;
  }
  if (where == Where::kInline) {
    handler(*caller, std::move(reply));
    return reactor;
  }
  Pool& pool = where == Where::kLight ? gateway.light : gateway.heavy;
  const bool taken = pool.Run(caller->tenant, [=] {
    // Nobody waits for the answer any more.
    if (context->IsCancelled()) return reply(absl::CancelledError("the caller has gone"));
    handler(*caller, reply);
  });
  if (!taken) reply(Busy("the server has too many such calls waiting; try again"));
  return reactor;
}

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_RPC_H_
