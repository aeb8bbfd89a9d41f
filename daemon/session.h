// The daemon's standing with a server: it registers, keeps calling through failures of network and
// server, and registers again when the server has forgotten it.
#ifndef HEDDLE_DAEMON_SESSION_H_
#define HEDDLE_DAEMON_SESSION_H_

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/process/subprocess.h"
#include "client/connection.h"
#include "heddle/v1/fleet.grpc.pb.h"

namespace heddle::measure {

// Thread-safe.
class FleetSession {
 public:
  template <typename Request, typename Response>
  using Method = void (v1::Fleet::Stub::async::*)(grpc::ClientContext*, const Request*, Response*,
                                                  std::function<void(grpc::Status)>);

  FleetSession(client::ConnectOptions options, v1::RegisterRequest registration);

  // Registers for the first time. While there is no answer it tries again until `stop` is set
  // (Cancelled). Other errors are what waiting does not mend: wrong credentials, a wrong file.
  absl::Status Register(const StopSignal& stop);

  // Calls `method` with what `make` gives then and the session filled in, again and again until
  // the server takes it or `stop` is set (Cancelled): through outages, a lost session, and every
  // refusal that is not the call's own fault (a full disk, a failed write), not before the server
  // wants it. Other errors are its answer.
  template <typename Request, typename Response>
  absl::Status Call(Method<Request, Response> method, const std::function<Request()>& make,
                    Response& response, absl::Duration timeout, const StopSignal& stop) {
    return Persist(stop, [&](Access& access) {
      Request request = make();
      request.set_session(access.session);
      response.Clear();
      return CallOnce(access, method, request, response, timeout, stop);
    });
  }

  // Of the last registration.
  v1::RegisterResponse registered() const;

 private:
  struct Access {
    client::Connection connection;
    std::shared_ptr<v1::Fleet::Stub> stub;  // nullptr: not connected
    std::string session;                    // empty: not registered
  };

  template <typename Request, typename Response>
  static absl::Status CallOnce(const Access& access, Method<Request, Response> method,
                               const Request& request, Response& response, absl::Duration timeout,
                               const StopSignal& stop) {
    grpc::ClientContext context;
    access.connection.Prepare(context, timeout);
    grpc::Status status;
    StopSignal done;
    (access.stub->async()->*method)(&context, &request, &response, [&](grpc::Status s) {
      status = std::move(s);
      done.Set();
    });
    if (!WaitEither(done, stop)) {
      context.TryCancel();
      done.Wait(absl::InfiniteDuration());
      if (!status.ok()) return absl::CancelledError("stopped");
    }
    return access.connection.ToStatus(status);
  }
  // Until `done` (true) or `stop` is set.
  static bool WaitEither(const StopSignal& done, const StopSignal& stop);

  absl::Status Persist(const StopSignal& stop, const std::function<absl::Status(Access&)>& call);
  // Connected and registered, for which it does what is needed.
  absl::StatusOr<Access> Get(const StopSignal& stop);
  // What failed is not used again: the connection, and with `session` the registration too.
  void Drop(const Access& failed, bool session);
  void NoteOutage(const absl::Status& status);

  const client::ConnectOptions options_;
  const v1::RegisterRequest registration_;
  std::mutex getting_;  // one thread connects and registers, the others wait for it
  mutable std::mutex mutex_;
  Access access_;
  bool away_ = false;
  v1::RegisterResponse registered_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_DAEMON_SESSION_H_
