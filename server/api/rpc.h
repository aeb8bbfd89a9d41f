// What every call passes through: who calls, what it may do, how long it took.
#ifndef HEDDLE_SERVER_API_RPC_H_
#define HEDDLE_SERVER_API_RPC_H_

#include <grpcpp/grpcpp.h>

#include <functional>
#include <map>
#include <string>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/clock.h"
#include "server/api/timers.h"
#include "server/db/errors.h"
#include "server/db/replica.h"
#include "server/db/store.h"
#include "server/db/trust/auth.h"
#include "server/engine/engine.h"
#include "server/engine/pool.h"
#include "server/engine/spaces.h"
#include "server/metrics/metrics.h"

namespace heddle::server {

// The bytes of large requests whose answers are not known yet, in pools and in the writer's queue,
// which bound how many wait, not how much they hold.
class Backlog {
 public:
  // Small ones are few enough not to be counted.
  static constexpr size_t kSmall = size_t{64} << 10, kMostOfTenant = size_t{64} << 20;

  // False: with so much more the tenant would have too much here.
  bool Add(const std::string& tenant, size_t bytes);
  void Remove(const std::string& tenant, size_t bytes);

 private:
  absl::Mutex mutex_;
  std::map<std::string, size_t> bytes_ ABSL_GUARDED_BY(mutex_);  // of tenants that have some
};

// What the services share.
struct Gateway {
  Store& store;
  Engine& engine;
  Metrics& metrics;
  Spaces& spaces;
  Pool &light, &heavy;
  Backlog& backlog;
  Timers& timers;
  // Calls over TCP need a token. Those over a Unix socket never do: its permissions guard it.
  bool tokens_required = true;
  // A stream that goes on for so long has its token looked at again, before what it sends next.
  absl::Duration look_again = absl::Seconds(10);
  // Of a server that answers reads alone; else null.
  const Replica* replica = nullptr;

  // Unauthenticated or PermissionDenied with the remedy.
  absl::StatusOr<Caller> Admit(const grpc::CallbackServerContext& context, Role needed) const;
  // Counts the call and logs what an administrator should see; the status for the caller.
  grpc::Status Finish(const char* method, SteadyTime start, const absl::Status& status) const;
};

// Of each answer of a replica: how many milliseconds ago the primary was as it is.
inline constexpr char kReplicaAge[] = "heddle-replica-age-ms";

// Whose are the jobs of callers without a token.
inline constexpr char kLocalTenant[] = "local";

// What a replica does not do. `why` continues "this server is a replica, where".
absl::Status OnlyOnPrimary(const std::string& why);

// On gRPC's own thread; after a few looks into the database; after seconds of work, perhaps.
enum class Where : uint8_t { kInline, kLight, kHeavy };

// A unary call: `handler` gets the caller and a Reply, which it calls once.
template <typename Request, typename Response, typename Handler>
grpc::ServerUnaryReactor* Unary(const Gateway& gateway, const char* method, Role needed,
                                Where where, grpc::CallbackServerContext* context,
                                const Request* request, Response* response, Handler handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const SteadyTime start = SteadyNow();
  const Gateway* g = &gateway;
  Reply<Response> reply = [=](absl::StatusOr<Response> result) {
    const absl::Status status = result.status();
    if (status.ok()) *response = *std::move(result);
    if (g->replica != nullptr) {
      context->AddTrailingMetadata(
          kReplicaAge,
          std::to_string(absl::ToInt64Milliseconds(absl::Now() - g->replica->as_of())));
    }
    reactor->Finish(g->Finish(method, start, status));
  };
  auto caller = gateway.Admit(*context, needed);
  if (!caller.ok()) {
    reply(caller.status());
    return reactor;
  }
  if (const size_t bytes = request->ByteSizeLong(); bytes > Backlog::kSmall) {
    if (!gateway.backlog.Add(caller->tenant, bytes)) {
      reply(Busy("the tenant has too many large calls waiting; try again"));
      return reactor;
    }
    reply = [=, tenant = caller->tenant,
             answer = std::move(reply)](absl::StatusOr<Response> result) {
      g->backlog.Remove(tenant, bytes);
      answer(std::move(result));
    };
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
