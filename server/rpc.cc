#include "server/rpc.h"

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "measure/log.h"

namespace heddle::server {
namespace {

constexpr size_t kMaxQueued = 10000;
constexpr char kScheme[] = "bearer ";

}  // namespace

Pool::Pool(int threads) {
  for (int i = 0; i < threads; ++i) {
    threads_.emplace_back([this] {
      for (;;) {
        std::function<void()> work;
        {
          absl::MutexLock lock(&mutex_);
          const auto ready = [this] { return !queue_.empty() || stopping_; };
          mutex_.Await(absl::Condition(&ready));
          if (queue_.empty()) return;
          work = std::move(queue_.front());
          queue_.pop_front();
        }
        work();
      }
    });
  }
}

Pool::~Pool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

bool Pool::Run(std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  if (queue_.size() >= kMaxQueued) return false;
  queue_.push_back(std::move(work));
  return true;
}

absl::StatusOr<Caller> Gateway::Admit(const grpc::CallbackServerContext& context,
                                      Role needed) const {
  Caller caller{kLocalTenant, Role::kAdmin};
  const auto& metadata = context.client_metadata();
  const auto header = metadata.find("authorization");
  if (header != metadata.end()) {
    const std::string value(header->second.data(), header->second.size());
    if (!absl::StartsWithIgnoreCase(value, kScheme)) {
      return absl::UnauthenticatedError("authorization: must be \"Bearer TOKEN\"");
    }
    auto reader = store.Read();
    auto found = FindToken(
        *reader, std::string(absl::StripAsciiWhitespace(value.substr(sizeof kScheme - 1))));
    if (!found.ok()) return found.status();
    caller = *std::move(found);
  } else if (tokens_required && !absl::StartsWith(context.peer(), "unix:")) {
    return absl::UnauthenticatedError(
        "this server wants a token: give --token-file, with what `heddle token create` printed on "
        "the server");
  }
  if (!Includes(caller.role, needed)) {
    return absl::PermissionDeniedError(absl::StrCat("this call needs the role ", NameOf(needed),
                                                    "; the token's is ", NameOf(caller.role)));
  }
  return caller;
}

grpc::Status Gateway::Finish(const char* method, SteadyTime start,
                             const absl::Status& status) const {
  metrics.CountRpc(method, absl::StatusCodeToString(status.code()), measure::SecondsSince(start));
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
