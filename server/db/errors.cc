#include "server/db/errors.h"

#include <google/protobuf/any.pb.h>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"

namespace heddle::server {
namespace {

constexpr char kTypePrefix[] = "type.googleapis.com/google.rpc.";
constexpr size_t kMaxMessage = 2048;
// Of all details together, which travel base64 in a header.
constexpr size_t kMaxDetails = 4096;
constexpr int kMaxViolations = 8;

template <typename Message>
void Attach(absl::Status& status, const char* type, const Message& message) {
  status.SetPayload(absl::StrCat(kTypePrefix, type), absl::Cord(message.SerializeAsString()));
}

// At most `size` bytes, without half a character.
std::string Cut(std::string text, size_t size) {
  if (text.size() <= size) return text;
  while (size > 0 && (static_cast<unsigned char>(text[size]) & 0xc0) == 0x80) --size;
  text.resize(size);
  return text + "...";
}

}  // namespace

void Violations::Add(const std::string& field, const std::string& description) {
  if (details_.field_violations_size() >= kMaxViolations) return;
  auto* violation = details_.add_field_violations();
  violation->set_field(Cut(field, 128));
  violation->set_description(Cut(description, 256));
}

absl::Status Violations::ToStatus() const {
  if (empty()) return absl::OkStatus();
  std::string message;
  for (const auto& violation : details_.field_violations()) {
    absl::StrAppend(&message, message.empty() ? "" : "; ", violation.field(), ": ",
                    violation.description());
  }
  absl::Status status = absl::InvalidArgumentError(message);
  Attach(status, "BadRequest", details_);
  return status;
}

absl::Status WrongField(const std::string& field, const std::string& description) {
  Violations violations;
  violations.Add(field, description);
  return violations.ToStatus();
}

absl::Status ErrorWithReason(absl::StatusCode code, const std::string& reason,
                             const std::string& message, absl::Duration retry) {
  absl::Status status(code, message);
  v1::ErrorInfo info;
  info.set_reason(reason);
  info.set_domain("heddle");
  Attach(status, "ErrorInfo", info);
  if (retry > absl::ZeroDuration()) {
    v1::RetryInfo wait;
    const int64_t nanos = absl::ToInt64Nanoseconds(retry);
    wait.mutable_retry_delay()->set_seconds(nanos / 1000000000);
    wait.mutable_retry_delay()->set_nanos(static_cast<int32_t>(nanos % 1000000000));
    Attach(status, "RetryInfo", wait);
  }
  return status;
}

absl::Status Busy(const std::string& message) {
  return ErrorWithReason(absl::StatusCode::kResourceExhausted, "SERVER_BUSY", message,
                         absl::Seconds(1));
}

absl::Status Draining() {
  return ErrorWithReason(absl::StatusCode::kUnavailable, "SERVER_DRAINING",
                         "the server is shutting down; ask again when it is back",
                         absl::Seconds(1));
}

grpc::Status ToGrpc(const absl::Status& status) {
  if (status.ok()) return grpc::Status::OK;
  v1::RpcStatus details;
  details.set_code(static_cast<int>(status.code()));
  details.set_message(Cut(std::string(status.message()), kMaxMessage));
  status.ForEachPayload([&](absl::string_view type, const absl::Cord& payload) {
    google::protobuf::Any* any = details.add_details();
    any->set_type_url(std::string(type));
    any->set_value(std::string(payload));
    if (details.ByteSizeLong() > kMaxDetails) details.mutable_details()->RemoveLast();
  });
  return grpc::Status(static_cast<grpc::StatusCode>(status.code()), details.message(),
                      details.details().empty() ? "" : details.SerializeAsString());
}

}  // namespace heddle::server
