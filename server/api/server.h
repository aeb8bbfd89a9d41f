// The server: the database, the engine and the services on their addresses.
#ifndef HEDDLE_SERVER_API_SERVER_H_
#define HEDDLE_SERVER_API_SERVER_H_

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/process/subprocess.h"
#include "server/api/listener.h"
#include "server/api/rpc.h"
#include "server/db/store.h"
#include "server/engine/engine.h"
#include "server/metrics/metrics.h"

namespace heddle::server {

struct ServerOptions {
  std::string db;  // "" = tuner::Records::DefaultPath()
  // "unix:PATH", "HOST:PORT" (port 0: a free one).
  std::vector<std::string> listen;
  // PEM files, read again when they change. With `client_ca` callers must show a certificate that
  // it has signed.
  std::string tls_cert, tls_key, client_ca;
  // Callers over TCP need no token where all ports are of this machine alone: whoever can connect,
  // every user and container with the host's network, may then do everything.
  bool insecure_loopback = false;
  absl::Duration look_again = absl::Seconds(10);  // Gateway's
  std::string metrics;                            // "HOST:PORT"; "" = none
  std::string build;                              // "0.1.0"
  // The database of another server, of which `db` is to be a copy, or a copy of that; "" = none.
  std::string replica_of;
  absl::Duration replica_every = absl::Seconds(10);
  EngineOptions engine;
  StoreOptions store;
  SpaceOptions spaces;
};

class Server {
 public:
  // FailedPrecondition: the database is damaged or cannot be written; InvalidArgument: an address
  // that would be open to others without TLS and tokens, or that is none of this machine;
  // Unavailable: the database or an address is taken.
  static absl::StatusOr<std::unique_ptr<Server>> Start(ServerOptions options);
  // Ends calls within `grace`, then everything else. Jobs go on with the next start.
  void Drain(absl::Duration grace);
  ~Server();

  // Grows for as long as the server does its work: time passes for its engine, whose lock is free.
  int64_t ticks() const { return ticks_; }
  // As given, with the ports that were chosen.
  const std::vector<std::string>& addresses() const { return addresses_; }
  Engine& engine() { return *engine_; }
  Store& store() { return *store_; }

 private:
  Server() = default;
  absl::Status StartReplica(const ServerOptions& options);
  absl::Status RefreshReplica();
  absl::Status Listen(const ServerOptions& options);
  void Tick();
  // What threads of their own do until the server stops.
  void RefreshEvery(absl::Duration every);
  void TickOn(const std::map<std::string, std::string>& certificates);

  Metrics metrics_;
  std::atomic<int> failed_commits_ = 0;  // in a row
  bool healthy_ = true;                  // as the health service says
  SteadyTime next_probe_;                // of a database that could not be written
  std::unique_ptr<Replica> replica_;     // null: not one
  std::unique_ptr<Store> store_;
  std::unique_ptr<Engine> engine_;
  std::unique_ptr<Spaces> spaces_;
  Backlog backlog_;
  Timers timers_;
  std::unique_ptr<Pool> light_, heavy_;
  std::unique_ptr<Gateway> gateway_;
  std::vector<std::unique_ptr<grpc::Service>> services_;
  std::unique_ptr<grpc::Server> server_;
  std::vector<std::unique_ptr<Listener>> listeners_;
  std::vector<std::string> addresses_;
  StopSignal stopping_;
  std::thread ticker_, replicator_;
  std::atomic<int64_t> ticks_ = 0;
  std::atomic<bool> draining_ = false;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_SERVER_H_
