#include "client/connection.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <iterator>
#include <random>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/cord.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "heddle/v1/errors.pb.h"

namespace heddle::client {
namespace {

// A server that was away is back within seconds; callers have back-off of their own.
constexpr int kMaxReconnectMs = 2000;
constexpr int kKeepaliveMs = 20000, kKeepaliveTimeoutMs = 10000;
constexpr int kMaxMessageBytes = 64 << 20;
constexpr char kReason[] = "heddle/reason", kRetryDelay[] = "heddle/retry_delay_ms";
// Of a delay that a server asks for.
constexpr absl::Duration kLongestDelay = absl::Minutes(5);

absl::StatusOr<std::string> Read(const std::string& path) {
  if (path.empty()) return std::string();
  std::ifstream in(path, std::ios::binary);
  std::string text(std::istreambuf_iterator<char>(in), {});
  if (!in.bad() && !text.empty()) return text;
  return absl::InvalidArgumentError(
      absl::StrCat("cannot read ", path, ": ", in.is_open() ? "it is empty" : strerror(errno)));
}

// Whether what is sent to `server` stays on this machine.
bool IsLocal(const std::string& server) {
  for (const char* prefix : {"unix:", "localhost:", "127.", "[::1]:"}) {
    if (absl::StartsWith(server, prefix)) return true;
  }
  return false;
}

absl::StatusOr<std::shared_ptr<grpc::ChannelCredentials>> Credentials(
    const ConnectOptions& options) {
  if (!options.uses_tls()) return grpc::InsecureChannelCredentials();
  auto ca = Read(options.ca_file), cert = Read(options.cert_file), key = Read(options.key_file);
  for (const auto* file : {&ca, &cert, &key}) {
    if (!file->ok()) return file->status();
  }
  if (cert->empty() != key->empty()) {
    return absl::InvalidArgumentError("a certificate and its key belong together: give both");
  }
  return grpc::SslCredentials({*ca, *key, *cert});
}

// The details of errors in `message`, where it lacks them.
void AddViolations(const v1::BadRequest& bad, std::string& message) {
  for (const auto& violation : bad.field_violations()) {
    if (absl::StrContains(message, violation.description())) continue;
    absl::StrAppend(&message, "; ", violation.field(), ": ", violation.description());
  }
}

}  // namespace

absl::StatusOr<Connection> Connection::Open(const ConnectOptions& options) {
  if (options.server.empty()) {
    return absl::InvalidArgumentError("no server: give --server unix:PATH or HOST:PORT");
  }
  Connection connection;
  connection.server_ = options.server;
  HEDDLE_ASSIGN_OR_RETURN(credentials, Credentials(options));
  HEDDLE_ASSIGN_OR_RETURN(token, Read(options.token_file));
  connection.token_ = std::string(absl::StripAsciiWhitespace(token));
  if (!connection.token_.empty() && !options.uses_tls() && !IsLocal(options.server)) {
    return absl::InvalidArgumentError(absl::StrCat("a token is not sent to ", options.server,
                                                   " without TLS: give the server's authority"));
  }
  grpc::ChannelArguments arguments;
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kMaxReconnectMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  // A new channel connects anew, with the files as they are then.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  if (!options.tls_name.empty()) arguments.SetSslTargetNameOverride(options.tls_name);
  connection.channel_ = grpc::CreateCustomChannel(options.server, credentials, arguments);
  return connection;
}

void Connection::Prepare(grpc::ClientContext& context, absl::Duration timeout) const {
  if (!token_.empty()) context.AddMetadata("authorization", "Bearer " + token_);
  // A span, so that it does not matter whether somebody sets the clock.
  context.set_deadline(gpr_time_from_millis(absl::ToInt64Milliseconds(timeout), GPR_TIMESPAN));
}

absl::Status Connection::ToStatus(const grpc::Status& status) const {
  if (status.ok()) return absl::OkStatus();
  std::string message = status.error_message(), reason;
  std::optional<absl::Duration> retry;
  v1::RpcStatus details;
  if (details.ParseFromString(status.error_details())) {
    for (const auto& any : details.details()) {
      v1::ErrorInfo info;
      v1::BadRequest bad;
      v1::RetryInfo later;
      const std::string type = any.type_url().substr(any.type_url().rfind('/') + 1);
      if (type == "google.rpc.ErrorInfo" && info.ParseFromString(any.value())) {
        reason = info.reason();
      } else if (type == "google.rpc.BadRequest" && bad.ParseFromString(any.value())) {
        AddViolations(bad, message);
      } else if (type == "google.rpc.RetryInfo" && later.ParseFromString(any.value())) {
        retry = absl::Seconds(later.retry_delay().seconds()) +
                absl::Nanoseconds(later.retry_delay().nanos());
      }
    }
  }
  if (status.error_code() == grpc::StatusCode::UNAVAILABLE) {
    message = absl::StrCat("no answer from ", server_, ": ", message);
    if (IsLocal(server_)) absl::StrAppend(&message, "; `heddle serve` starts a server");
  }
  absl::Status result(static_cast<absl::StatusCode>(status.error_code()), message);
  if (!reason.empty()) result.SetPayload(kReason, absl::Cord(reason));
  if (retry) {
    const absl::Duration delay = std::clamp(*retry, absl::ZeroDuration(), kLongestDelay);
    result.SetPayload(kRetryDelay, absl::Cord(absl::StrCat(absl::ToInt64Milliseconds(delay))));
  }
  return result;
}

bool Connection::NobodyListens(const absl::Status& failed) const {
  const bool is_unix = absl::StartsWith(server_, "unix:");
  // gRPC gives the reason in the system's words only.
  return IsLocal(server_) && absl::StrContains(std::string(failed.message()),
                                               strerror(is_unix ? ENOENT : ECONNREFUSED));
}

std::string ReasonOf(const absl::Status& status) {
  auto reason = status.GetPayload(kReason);
  return reason ? std::string(*reason) : std::string();
}

std::optional<absl::Duration> RetryDelayOf(const absl::Status& status) {
  auto payload = status.GetPayload(kRetryDelay);
  int64_t ms = 0;
  if (!payload || !absl::SimpleAtoi(std::string(*payload), &ms)) return std::nullopt;
  return absl::Milliseconds(ms);
}

std::string NewRequestId() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) absl::StrAppend(&id, absl::Hex(random(), absl::kZeroPad8));
  return id;
}

}  // namespace heddle::client
