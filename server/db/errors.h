// Errors as callers see them: status codes, and details in the manner of google.rpc.
#ifndef HEDDLE_SERVER_DB_ERRORS_H_
#define HEDDLE_SERVER_DB_ERRORS_H_

#include <grpcpp/support/status.h>

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "heddle/v1/errors.pb.h"

namespace heddle::server {

// Fields of a request that are wrong, each with what would be right.
class Violations {
 public:
  void Add(const std::string& field, const std::string& description);
  bool empty() const { return details_.field_violations().empty(); }
  // OK without violations, else INVALID_ARGUMENT that names every field.
  absl::Status ToStatus() const;

 private:
  v1::BadRequest details_;
};

// One wrong field.
absl::Status WrongField(const std::string& field, const std::string& description);
// An error with a reason that programs can compare (ErrorInfo), and, when positive, the time after
// which trying again makes sense (RetryInfo).
absl::Status ErrorWithReason(absl::StatusCode code, const std::string& reason,
                             const std::string& message,
                             absl::Duration retry = absl::ZeroDuration());

// The server has too much to do: the same call may succeed in a second.
absl::Status Busy(const std::string& message);

// The server is about to end: whoever waits for something asks the next one.
absl::Status Draining();

// Messages are cut to 2 KB: what exceeds the limits of HTTP headers arrives as another error.
grpc::Status ToGrpc(const absl::Status& status);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_ERRORS_H_
