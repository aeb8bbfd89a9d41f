// Where the server takes connections.
#ifndef HEDDLE_SERVER_API_LISTENER_H_
#define HEDDLE_SERVER_API_LISTENER_H_

#include <grpcpp/server_builder.h>

#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/status/statusor.h"
#include "base/process/subprocess.h"

namespace heddle::server {

using ConnectionAcceptor = grpc::experimental::ExternalConnectionAcceptor;

// Is it "unix:PATH"?
bool IsUnix(const std::string& address);

// Can "HOST:PORT" be listened on? As Listener::Open says; `flag` is what an error tells to change.
absl::Status CheckPort(const std::string& address, const std::string& flag);

// Takes connections on an address and hands them to gRPC. Listeners of gRPC's own (1.51) stop for
// good once accept() fails for want of descriptors, so that whoever can connect could end the
// service by opening many connections. This one closes at once what would take the descriptors
// that the process needs for its files, and goes on.
class Listener {
 public:
  // Of "HOST:0" the port is a free one, the same on all of the host's addresses. InvalidArgument:
  // no address of this machine, or not allowed; Unavailable: somebody listens there.
  static absl::StatusOr<std::unique_ptr<Listener>> Open(const std::string& address,
                                                        const std::string& flag);
  // Takes no more connections, and removes its Unix socket.
  ~Listener();
  Listener(const Listener&) = delete;
  Listener& operator=(const Listener&) = delete;

  // As given, with the port that was taken.
  const std::string& address() const { return address_; }

  // From now on connections are `acceptor`'s, whose server runs. Once.
  void Start(std::shared_ptr<ConnectionAcceptor> acceptor);

 private:
  Listener() = default;
  absl::Status OpenSocket(const std::string& flag);
  absl::Status OpenPort(const std::string& flag);
  void Run();
  // False when nobody can be taken in for now.
  bool Accept(int listening);

  friend absl::Status CheckPort(const std::string& address, const std::string& flag);

  std::string address_;
  std::vector<int> listening_;  // descriptors, one for each address of the host
  std::string socket_path_;     // of a Unix socket that is ours to remove
  std::shared_ptr<ConnectionAcceptor> acceptor_;
  StopSignal stopping_;
  bool refuses_ = false;  // as the log has it
  std::thread thread_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_LISTENER_H_
