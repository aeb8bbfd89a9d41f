#include "server/api/rpc.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/log.h"

namespace heddle::server {
namespace {

// Calls that wait for a thread: of all, and of one tenant.
constexpr size_t kMaxQueued = 10000, kMaxQueuedOfOne = 2000;
constexpr char kScheme[] = "bearer ";

}  // namespace

Pool::Pool(int threads) : most_of_one_(std::max(1, threads - 1)) {
  for (int i = 0; i < threads; ++i) threads_.emplace_back([this] { Work(); });
}

Pool::~Pool() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
  }
  for (std::thread& thread : threads_) thread.join();
}

std::deque<std::string>::iterator Pool::Next() {
  return std::find_if(turns_.begin(), turns_.end(), [this](const std::string& tenant) {
    return tenants_[tenant].running < most_of_one_;
  });
}

void Pool::Work() {
  const auto ready = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    return Next() != turns_.end() || (stopping_ && turns_.empty());
  };
  absl::MutexLock lock(&mutex_);
  for (;;) {
    mutex_.Await(absl::Condition(&ready));
    const auto turn = Next();
    if (turn == turns_.end()) return;
    const std::string name = *turn;
    turns_.erase(turn);
    Tenant& tenant = tenants_[name];  // stays, as it has work
    std::function<void()> work = std::move(tenant.queue.front());
    tenant.queue.pop_front();
    --waiting_;
    ++tenant.running;
    if (!tenant.queue.empty()) turns_.push_back(name);
    mutex_.Unlock();
    work();
    work = nullptr;
    mutex_.Lock();
    if (--tenant.running == 0 && tenant.queue.empty()) tenants_.erase(name);
  }
}

bool Pool::Run(const std::string& tenant, std::function<void()> work) {
  absl::MutexLock lock(&mutex_);
  Tenant& mine = tenants_[tenant];
  if (waiting_ >= kMaxQueued || mine.queue.size() >= kMaxQueuedOfOne) return false;
  if (mine.queue.empty()) turns_.push_back(tenant);
  mine.queue.push_back(std::move(work));
  ++waiting_;
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
