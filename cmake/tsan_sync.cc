// For builds with ThreadSanitizer: the system's abseil is not instrumented, so that what its locks
// order would be reported as races. These stand before its own functions, tell the sanitizer what
// is ordered, and leave conditions out, which abseil evaluates in whichever thread holds the lock.
#include <dlfcn.h>
#include <sanitizer/tsan_interface.h>

#include <cstdio>
#include <cstdlib>

#include "absl/synchronization/mutex.h"
#include "absl/synchronization/notification.h"

extern "C" {
void AnnotateIgnoreReadsBegin(const char* file, int line);
void AnnotateIgnoreReadsEnd(const char* file, int line);
// Not instrumented either, with synchronisation of their own: OpenMP's in xgboost, atomics in gRPC
// and in what abseil does once.
// What is handed over within them would be reported; so races under a call of gRPC's are not seen,
// and it is the engine's own tests that are for them.
const char* __tsan_default_suppressions() {
  return "race:libxgboost\nrace:libgrpc\nrace:grpc::\nrace:libprotobuf\nrace:libupb\n"
         "race:libabsl_status\nrace:libabsl_cord\nrace:libabsl_time_zone\nrace:libabsl_graphcycles\n";
}
}

namespace {

struct IgnoreReads {
  IgnoreReads() { AnnotateIgnoreReadsBegin(__FILE__, __LINE__); }
  ~IgnoreReads() { AnnotateIgnoreReadsEnd(__FILE__, __LINE__); }
};

// abseil's own function of this name; a method's `this` is its first argument.
template <typename Result, typename... Args>
Result Call(const char* name, Args... args) {
  const IgnoreReads ignore;
  void* const real = dlsym(RTLD_NEXT, name);
  if (real == nullptr) {
    std::fprintf(stderr, "tsan_sync: this abseil has no %s: adapt cmake/tsan_sync.cc\n", name);
    std::abort();
  }
  return reinterpret_cast<Result (*)(Args...)>(real)(args...);
}

}  // namespace

#define ABSL_SYMBOL(rest) "_ZN4absl7debian3" rest
#define ABSL_CONST_SYMBOL(rest) "_ZNK4absl7debian3" rest

namespace absl {
ABSL_NAMESPACE_BEGIN

void Mutex::Lock() {
  Call<void>(ABSL_SYMBOL("5Mutex4LockEv"), this);
  __tsan_acquire(this);
}
void Mutex::Unlock() {
  __tsan_release(this);
  Call<void>(ABSL_SYMBOL("5Mutex6UnlockEv"), this);
}
bool Mutex::TryLock() {
  const bool locked = Call<bool>(ABSL_SYMBOL("5Mutex7TryLockEv"), this);
  if (locked) __tsan_acquire(this);
  return locked;
}
void Mutex::ReaderLock() {
  Call<void>(ABSL_SYMBOL("5Mutex10ReaderLockEv"), this);
  __tsan_acquire(this);
}
void Mutex::ReaderUnlock() {
  __tsan_release(this);
  Call<void>(ABSL_SYMBOL("5Mutex12ReaderUnlockEv"), this);
}
void Mutex::Await(const Condition& condition) {
  __tsan_release(this);
  Call<void>(ABSL_SYMBOL("5Mutex5AwaitERKNS0_9ConditionE"), this, &condition);
  __tsan_acquire(this);
}
bool Mutex::AwaitWithTimeout(const Condition& condition, Duration timeout) {
  __tsan_release(this);
  const bool met =
      Call<bool>(ABSL_SYMBOL("5Mutex16AwaitWithTimeoutERKNS0_9ConditionENS0_8DurationE"), this,
                 &condition, timeout);
  __tsan_acquire(this);
  return met;
}
bool Mutex::AwaitWithDeadline(const Condition& condition, Time deadline) {
  __tsan_release(this);
  const bool met = Call<bool>(ABSL_SYMBOL("5Mutex17AwaitWithDeadlineERKNS0_9ConditionENS0_4TimeE"),
                              this, &condition, deadline);
  __tsan_acquire(this);
  return met;
}

void Notification::Notify() {
  __tsan_release(this);
  Call<void>(ABSL_SYMBOL("12Notification6NotifyEv"), this);
}
bool Notification::WaitForNotificationWithTimeout(Duration timeout) const {
  const bool notified =
      Call<bool>(ABSL_CONST_SYMBOL("12Notification30WaitForNotificationWithTimeoutENS0_8DurationE"),
                 this, timeout);
  if (notified) __tsan_acquire(const_cast<Notification*>(this));
  return notified;
}
void Notification::WaitForNotification() const {
  Call<void>(ABSL_CONST_SYMBOL("12Notification19WaitForNotificationEv"), this);
  __tsan_acquire(const_cast<Notification*>(this));
}

ABSL_NAMESPACE_END
}  // namespace absl
