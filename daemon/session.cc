#include "daemon/session.h"

#include <poll.h>

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/log.h"
#include "base/status.h"
#include "client/backoff.h"

namespace heddle::measure {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(200), kLastPause = absl::Seconds(10);
constexpr absl::Duration kRegisterLimit = absl::Seconds(20);

bool IsOutage(const absl::Status& status) {
  // Another process has the devices: one that was killed is not missed at once.
  return absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status) ||
         client::ReasonOf(status) == "DEVICE_OWNED";
}

// Whether the server may take the very same call later: not where it says that the call is wrong.
bool Passes(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kAlreadyExists:
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kOutOfRange:
    case absl::StatusCode::kUnimplemented:
      return client::RetryDelayOf(status).has_value();
    default:
      return true;
  }
}

}  // namespace

FleetSession::FleetSession(client::ConnectOptions options, v1::RegisterRequest registration)
    : options_(std::move(options)), registration_(std::move(registration)) {}

bool FleetSession::WaitEither(const StopSignal& done, const StopSignal& stop) {
  pollfd fds[] = {{done.fd(), POLLIN, 0}, {stop.fd(), POLLIN, 0}};
  while (poll(fds, 2, -1) < 0) {
  }
  return done.IsSet();
}

absl::StatusOr<FleetSession::Access> FleetSession::Get(const StopSignal& stop) {
  std::lock_guard getting(getting_);
  Access access;
  {
    std::lock_guard lock(mutex_);
    access = access_;
  }
  if (access.stub == nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(connection, client::Connection::Open(options_));
    access.connection = std::move(connection);
    access.stub = v1::Fleet::NewStub(access.connection.channel());
  }
  v1::RegisterResponse response;
  const bool registers = access.session.empty();
  if (registers) {
    Method<v1::RegisterRequest, v1::RegisterResponse> method = &v1::Fleet::Stub::async::Register;
    HEDDLE_RETURN_IF_ERROR(CallOnce(access, method, registration_, response, kRegisterLimit, stop));
    access.session = response.session();
    LogEvent(Severity::kInfo, "registered",
             {{"server", options_.server},
              {"session", response.session()},
              {"epoch", response.epoch()}});
    if (!response.no_work_because().empty()) {
      LogEvent(Severity::kError, "no_work", {{"because", response.no_work_because()}});
    }
  }
  std::lock_guard lock(mutex_);
  access_ = access;
  away_ = false;
  if (registers) registered_ = response;
  return access;
}

void FleetSession::Drop(const Access& failed, bool session) {
  std::lock_guard lock(mutex_);
  if (access_.stub == failed.stub) access_.stub.reset();
  if (session && access_.session == failed.session) access_.session.clear();
}

void FleetSession::NoteOutage(const absl::Status& status) {
  std::lock_guard lock(mutex_);
  if (!away_) {
    LogEvent(Severity::kWarning, "server_away", {{"detail", std::string(status.message())}});
  }
  away_ = true;
}

absl::Status FleetSession::Register(const StopSignal& stop) {
  client::Backoff backoff(kFirstPause, kLastPause);
  while (true) {
    absl::Status status = Get(stop).status();
    if (!IsOutage(status)) return status;
    NoteOutage(status);
    if (stop.Wait(backoff.Next())) return absl::CancelledError("stopped");
  }
}

absl::Status FleetSession::Persist(const StopSignal& stop,
                                   const std::function<absl::Status(Access&)>& call) {
  client::Backoff backoff(kFirstPause, kLastPause);
  bool told = false;
  while (true) {
    auto access = Get(stop);
    absl::Status status = access.ok() ? call(*access) : access.status();
    if (stop.IsSet() && !status.ok()) return absl::CancelledError("stopped");
    const bool unknown = client::ReasonOf(status) == "SESSION_UNKNOWN";
    // Credentials are mended by replacing their files, which the next connection reads.
    const bool credentials = absl::IsUnauthenticated(status) || absl::IsPermissionDenied(status);
    if (access.ok() && !unknown && !Passes(status)) return status;
    const bool refused = access.ok() && !unknown && !credentials && !IsOutage(status);
    if (refused && !std::exchange(told, true)) {
      LogEvent(Severity::kWarning, "server_refuses",
               {{"code", absl::StatusCodeToString(status.code())},
                {"detail", std::string(status.message())}});
    }
    if (access.ok() && !refused) Drop(*access, unknown);
    if (!refused && !unknown) NoteOutage(status);
    const auto asked = client::RetryDelayOf(status).value_or(absl::ZeroDuration());
    if (stop.Wait(std::max(backoff.Next(), asked))) return absl::CancelledError("stopped");
  }
}

v1::RegisterResponse FleetSession::registered() const {
  std::lock_guard lock(mutex_);
  return registered_;
}

}  // namespace heddle::measure
