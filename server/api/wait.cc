#include "server/api/wait.h"

#include <grpc/support/time.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/status.h"
#include "proto/values.h"
#include "server/api/timers.h"
#include "server/db/convert.h"
#include "server/engine/validate.h"

namespace heddle::server {
namespace {

// Of the call's time, so that the reply arrives before it is over: timers are looked at every tenth
// of a second, and the job is read after that.
constexpr absl::Duration kOnItsWay = absl::Milliseconds(300);

absl::Duration TimeLeft(const grpc::CallbackServerContext& context) {
  const gpr_timespec deadline = context.raw_deadline();
  if (gpr_time_cmp(deadline, gpr_inf_future(deadline.clock_type)) == 0) {
    return absl::InfiniteDuration();
  }
  const gpr_timespec left = gpr_time_sub(deadline, gpr_now(deadline.clock_type));
  return absl::Seconds(left.tv_sec) + absl::Nanoseconds(left.tv_nsec);
}

// The reactor is shared by gRPC (until OnDone), by work in the pool, by the engine's watcher and by
// the timer.
class WaitCall : public grpc::ServerUnaryReactor {
 public:
  using Shared = std::shared_ptr<WaitCall>;

  static WaitCall* Start(const Gateway& gateway, const absl::StatusOr<Caller>& caller,
                         const grpc::CallbackServerContext& context,
                         const v1::WaitJobRequest& request, v1::Job* response) {
    auto call = Shared(new WaitCall(gateway, caller.ok() ? *caller : Caller(), request, response));
    call->self_ = call;
    gateway.metrics.watchers.Increment();
    if (!caller.ok()) {
      absl::MutexLock lock(&call->mutex_);
      call->End(caller.status());
      return call.get();
    }
    std::weak_ptr<WaitCall> weak = call;
    // Before the first look at the database, so that nothing falls between.
    call->subscription_ =
        gateway.engine.Watch(call->job_, [weak](const std::shared_ptr<const v1::JobEvent>& event) {
          Shared s = weak.lock();
          if (s == nullptr) return;
          if (event == nullptr) {
            absl::MutexLock lock(&s->mutex_);
            s->End(Draining());
          } else if (IsTerminal(event->state())) {
            s->Look(false);
          }
        });
    const absl::Duration asked = request.has_timeout() ? absl::Seconds(SecondsOf(request.timeout()))
                                                       : absl::Seconds(kMaxWaitForJob);
    const absl::Duration time = std::min(asked, TimeLeft(context) - kOnItsWay);
    call->Look(time <= absl::ZeroDuration());
    if (time <= absl::ZeroDuration()) return call.get();
    call->timer_ = gateway.timers.Add(call->start_ + time, [weak] {
      if (Shared s = weak.lock()) s->Look(true);
    });
    return call.get();
  }

  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    End(absl::CancelledError("the call was cancelled"));
  }
  void OnDone() override {
    gateway_.metrics.watchers.Decrement();
    if (timer_) gateway_.timers.Remove(*timer_);
    Shared last;
    std::shared_ptr<void> subscription;
    absl::MutexLock lock(&mutex_);
    last = std::move(self_);  // outlives the lock: declared before it
    subscription = std::move(subscription_);
  }

 private:
  WaitCall(const Gateway& gateway, Caller caller, const v1::WaitJobRequest& request,
           v1::Job* response)
      : gateway_(gateway),
        caller_(std::move(caller)),
        job_(JobId(request.name())),
        view_(request.view()),
        response_(response) {}

  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (std::exchange(ended_, true)) return;
    Finish(gateway_.Finish("WaitJob", start_, status));
  }

  // Reads the job in the pool, and replies if it has ended or this is the last look.
  void Look(bool last) {
    Shared self;
    {
      absl::MutexLock lock(&mutex_);
      self = self_;
    }
    if (self == nullptr) return;
    const bool taken = gateway_.light.Run(caller_.tenant, [self, last] {
      auto job = self->Read();
      absl::MutexLock lock(&self->mutex_);
      if (self->ended_ || (job.ok() && !last && !IsTerminal(job->state()))) return;
      const absl::Status status = job.status();
      if (status.ok()) *self->response_ = *std::move(job);
      self->End(status);
    });
    if (taken) return;
    absl::MutexLock lock(&mutex_);
    End(Busy("the server has too many such calls waiting; try again"));
  }

  absl::StatusOr<v1::Job> Read() const {
    auto reader = gateway_.store.Read();
    // It may have been revoked since the call began.
    HEDDLE_RETURN_IF_ERROR(StillValid(*reader, caller_, absl::Now()));
    auto job = LoadJob(*reader, job_, VisibleTenant(caller_));
    if (job.ok() && view_ == v1::JOB_VIEW_BASIC) LeaveOutTexts(*job);
    return job;
  }

  const Gateway& gateway_;
  const Caller caller_;
  const int64_t job_;
  const v1::JobView view_;
  const SteadyTime start_ = SteadyNow();
  std::optional<Timers::Key> timer_;
  std::shared_ptr<void> subscription_;

  absl::Mutex mutex_;
  Shared self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  v1::Job* const response_ ABSL_PT_GUARDED_BY(mutex_);
  bool ended_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace

grpc::ServerUnaryReactor* StartWait(const Gateway& gateway, const absl::StatusOr<Caller>& caller,
                                    const grpc::CallbackServerContext& context,
                                    const v1::WaitJobRequest& request, v1::Job* response) {
  return WaitCall::Start(gateway, caller, context, request, response);
}

}  // namespace heddle::server
