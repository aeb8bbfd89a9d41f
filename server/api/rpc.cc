#include "server/api/rpc.h"

#include <grpc/grpc_security_constants.h>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"

namespace heddle::server {

bool Backlog::Add(const std::string& tenant, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  size_t& held = bytes_[tenant];
  // One alone is always taken.
  if (held > 0 && held + bytes > kMostOfTenant) return false;
  held += bytes;
  return true;
}

void Backlog::Remove(const std::string& tenant, size_t bytes) {
  absl::MutexLock lock(&mutex_);
  const auto held = bytes_.find(tenant);
  held->second -= bytes;
  if (held->second == 0) bytes_.erase(held);
}

namespace {

constexpr char kScheme[] = "bearer ";
// `heddle token list` tells the hour, and most calls write nothing for it.
constexpr absl::Duration kNoteUseEvery = absl::Hours(1);

// The names in the certificate that TLS has checked: the subject's, then the alternative ones. A
// renewed certificate has the same. "" where there is none.
std::string NamesOf(const grpc::AuthContext& tls) {
  std::string names;
  for (const char* kind : {GRPC_X509_CN_PROPERTY_NAME, GRPC_X509_SAN_PROPERTY_NAME}) {
    for (const grpc::string_ref& name : tls.FindPropertyValues(kind)) {
      // No name that has a comma stands for two.
      absl::StrAppend(&names, names.empty() ? "" : ",",
                      absl::StrReplaceAll(absl::string_view(name.data(), name.size()),
                                          {{"\\", "\\\\"}, {",", "\\,"}}));
    }
  }
  return names;
}

// Fills in what of the caller is known when it is refused, too.
absl::Status Identify(const Gateway& gateway, const grpc::CallbackServerContext& context,
                      Role needed, Caller& caller) {
  caller.peer = context.peer();
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find("authorization");
  if (header != metadata.end()) {
    const std::string value(header->second.data(), header->second.size());
    if (!absl::StartsWithIgnoreCase(value, kScheme)) {
      return absl::UnauthenticatedError("authorization: must be \"Bearer TOKEN\"");
    }
    auto reader = gateway.store.Read();
    const absl::Time now = absl::Now();
    absl::Duration unused;
    HEDDLE_ASSIGN_OR_RETURN(
        found, FindToken(*reader,
                         std::string(absl::StripAsciiWhitespace(value.substr(sizeof kScheme - 1))),
                         now, &unused));
    caller = std::move(found);
    if (unused >= kNoteUseEvery && gateway.replica == nullptr) {
      gateway.store.Write(
          [id = caller.token, now](tuner::Records& records) { return NoteUse(records, id, now); },
          nullptr);
    }
    caller.peer = context.peer();
  } else if (gateway.tokens_required && !absl::StartsWith(context.peer(), "unix:")) {
    return absl::UnauthenticatedError(
        "this server wants a token: give --token-file, with what `heddle token create` printed on "
        "the server, or use its Unix socket");
  }
  const auto tls = context.auth_context();
  if (tls != nullptr && tls->IsPeerAuthenticated()) caller.certificate = NamesOf(*tls);
  if (!Includes(caller.role, needed)) {
    return absl::PermissionDeniedError(absl::StrCat("this call needs the role ", NameOf(needed),
                                                    "; the token's is ", NameOf(caller.role)));
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status OnlyOnPrimary(const std::string& why) {
  return ErrorWithReason(absl::StatusCode::kFailedPrecondition, "READ_ONLY_REPLICA",
                         absl::StrCat("this server is a replica, where ", why,
                                      "; call the server whose database it copies"));
}

absl::StatusOr<Caller> Gateway::Admit(const grpc::CallbackServerContext& context,
                                      Role needed) const {
  Caller caller{kLocalTenant, Role::kAdmin};
  absl::Status status = Identify(*this, context, needed, caller);
  if (status.ok() && replica != nullptr && needed != Role::kReader) {
    status =
        OnlyOnPrimary(absl::StrCat("only what a ", NameOf(Role::kReader), " may ask is answered"));
  }
  if (status.ok()) return caller;
  LogEvent(Severity::kWarning, "caller_refused",
           {{"peer", caller.peer},
            {"token", caller.token},
            {"tenant", caller.token == 0 ? "" : caller.tenant},
            {"certificate", caller.certificate},
            {"error", std::string(status.message())}});
  return status;
}

grpc::Status Gateway::Finish(const char* method, SteadyTime start,
                             const absl::Status& status) const {
  metrics.CountRpc(method, absl::StatusCodeToString(status.code()), SecondsSince(start));
  switch (status.code()) {
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kDataLoss:
    case absl::StatusCode::kUnknown:
      LogEvent(Severity::kError, "call_failed",
               {{"method", method}, {"error", std::string(status.message())}});
      break;
    case absl::StatusCode::kUnauthenticated:
    case absl::StatusCode::kPermissionDenied:
      LogEvent(Severity::kWarning, "call_refused",
               {{"method", method}, {"error", std::string(status.message())}});
      break;
    default:
      break;
  }
  return ToGrpc(status);
}

}  // namespace heddle::server
