// What every call passes through: who calls, what it may do, how long it took.
#ifndef HEDDLE_SERVER_RPC_H_
#define HEDDLE_SERVER_RPC_H_

#include <grpcpp/grpcpp.h>

#include <deque>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "server/auth.h"
#include "server/engine.h"
#include "server/errors.h"
#include "server/metrics.h"
#include "server/store.h"

namespace heddle::server {

// Threads for what takes longer than a look into the database: gRPC's own must stay free.
class Pool {
 public:
  explicit Pool(int threads);
  ~Pool();  // runs what is queued
  // False: the queue is full.
  bool Run(std::function<void()> work);

 private:
  absl::Mutex mutex_;
  std::deque<std::function<void()>> queue_;
  bool stopping_ = false;
  std::vector<std::thread> threads_;
};

// What the services share.
struct Gateway {
  Store& store;
  Engine& engine;
  Metrics& metrics;
  Pool& pool;
  // Calls over TCP need a token. Those over a Unix socket never do: its permissions guard it.
  bool tokens_required = true;

  // Unauthenticated or PermissionDenied with the remedy.
  absl::StatusOr<Caller> Admit(const grpc::CallbackServerContext& context, Role needed) const;
  // Counts the call and logs what an administrator should see; the status for the caller.
  grpc::Status Finish(const char* method, SteadyTime start, const absl::Status& status) const;
};

// Whose are the jobs of callers without a token.
inline constexpr char kLocalTenant[] = "local";

enum class Where : uint8_t { kInline, kPool };

// A unary call: `handler` gets the caller and a Reply, which it calls once.
template <typename Response, typename Handler>
grpc::ServerUnaryReactor* Unary(const Gateway& gateway, const char* method, Role needed,
                                Where where, grpc::CallbackServerContext* context,
                                Response* response, Handler handler) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const SteadyTime start = measure::SteadyNow();
  const Gateway* g = &gateway;
  Reply<Response> reply = [=](absl::StatusOr<Response> result) {
    const absl::Status status = result.status();
    if (status.ok()) *response = *std::move(result);
    reactor->Finish(g->Finish(method, start, status));
  };
  auto caller = gateway.Admit(*context, needed);
  if (!caller.ok()) {
    reply(caller.status());
  } else if (where == Where::kInline) {
    handler(*caller, std::move(reply));
  } else if (!gateway.pool.Run([=] { handler(*caller, reply); })) {
    reply(Busy("the server has too many such calls waiting; try again"));
  }
  return reactor;
}

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_RPC_H_
