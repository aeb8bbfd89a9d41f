// The gRPC part that the client library and the measurement daemon share: channels, credentials and
// what a failed call says. Public headers of this folder do not include it.
#ifndef HEDDLE_CLIENT_CONNECTION_H_
#define HEDDLE_CLIENT_CONNECTION_H_

#include <grpcpp/grpcpp.h>

#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/options.h"

namespace heddle::client {

// A channel and what every call on it carries. Copies share the channel.
class Connection {
 public:
  // Reads the files; connects when the first call is made. InvalidArgument: a file cannot be read,
  // or a token would travel to another machine without TLS.
  static absl::StatusOr<Connection> Open(const ConnectOptions& options);

  const std::shared_ptr<grpc::Channel>& channel() const { return channel_; }
  // Sets the token and a deadline.
  void Prepare(grpc::ClientContext& context, absl::Duration timeout) const;
  // A failed call in words. The code stays; Unavailable names the server; violated fields of a
  // BadRequest are appended where the message lacks them.
  absl::Status ToStatus(const grpc::Status& status) const;
  // Whether a call failed because there is no socket or nobody at the port: the server would be on
  // this machine and has not been started, or was ended. A killed one leaves its socket behind.
  bool NobodyListens(const absl::Status& failed) const;

 private:
  std::string server_, token_;
  std::shared_ptr<grpc::Channel> channel_;
};

// ErrorInfo.reason of an error that ToStatus made ("SESSION_UNKNOWN"); empty without one.
std::string ReasonOf(const absl::Status& status);
// RetryInfo.retry_delay of such an error, of minutes at most: after it the same call may succeed.
std::optional<absl::Duration> RetryDelayOf(const absl::Status& status);

// A request id that nobody else has: 32 hexadecimal digits.
std::string NewRequestId();

}  // namespace heddle::client

#endif  // HEDDLE_CLIENT_CONNECTION_H_
