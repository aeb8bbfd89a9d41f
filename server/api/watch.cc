#include "server/api/watch.h"

#include <deque>
#include <memory>
#include <utility>

#include "base/status.h"
#include "server/db/convert.h"
#include "server/db/trial_store.h"

namespace heddle::server {
namespace {

// Events read from the database at a time.
constexpr int kEventsAtOnce = 128;
// A reader so far behind what happens now gets what it has missed as one event.
constexpr int64_t kFarBehind = 1000;

// Writes one event after another. What is to be written comes from the database; an event that is
// told while the reader has all those before it is passed on as it is.
//
// The reactor is shared by gRPC (until OnDone), by work in the pool and by the engine's watcher.
class WatchStream : public grpc::ServerWriteReactor<v1::JobEvent> {
 public:
  using Shared = std::shared_ptr<WatchStream>;

  static WatchStream* Start(const Gateway& gateway, const absl::StatusOr<Caller>& caller,
                            const v1::WatchJobRequest& request) {
    auto stream = Shared(new WatchStream(gateway, caller.ok() ? *caller : Caller(), request));
    stream->self_ = stream;
    gateway.metrics.watchers.Increment();
    if (!caller.ok()) {
      absl::MutexLock lock(&stream->mutex_);
      stream->End(caller.status());
      return stream.get();
    }
    std::weak_ptr<WatchStream> weak = stream;
    // Before the first look at the database, so that nothing falls between.
    stream->subscription_ = gateway.engine.Watch(
        stream->job_, [weak](const std::shared_ptr<const v1::JobEvent>& event) {
          if (Shared s = weak.lock()) s->Tell(event);
        });
    absl::MutexLock lock(&stream->mutex_);
    if (!stream->ended_) stream->Load();
    return stream.get();
  }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writing_ = false;
    if (!ok) return End(absl::CancelledError("the stream broke"));
    Pump();
  }
  void OnCancel() override {
    absl::MutexLock lock(&mutex_);
    if (!writing_) End(absl::CancelledError("the call was cancelled"));
  }
  void OnDone() override {
    gateway_.metrics.watchers.Decrement();
    Shared last;
    std::shared_ptr<void> subscription;
    absl::MutexLock lock(&mutex_);
    last = std::move(self_);  // outlives the lock: declared before it
    subscription = std::move(subscription_);
  }

 private:
  WatchStream(const Gateway& gateway, Caller caller, const v1::WatchJobRequest& request)
      : gateway_(gateway),
        caller_(std::move(caller)),
        tenant_(VisibleTenant(caller_)),
        job_(JobId(request.name())),
        next_(request.after_seq() + 1) {}

  void End(const absl::Status& status) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ended_) return;
    ended_ = true;
    Finish(gateway_.Finish("WatchJob", start_, status));
  }

  void Tell(const std::shared_ptr<const v1::JobEvent>& event) {
    absl::MutexLock lock(&mutex_);
    if (event == nullptr) {
      draining_ = true;
      return Pump();
    }
    latest_ = std::max(latest_, event->seq());
    if (snapshot_written_ && !writing_ && !loading_ && page_.empty() && event->seq() == next_ &&
        SteadyNow() < look_again_) {
      return Put(*event);
    }
    Pump();
  }

  void Put(v1::JobEvent event) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ended_) return;
    current_ = std::move(event);
    next_ = current_.seq() + 1;
    // One that has ended may have been begun again since.
    last_ = IsTerminal(current_.state()) && current_.first_seq() > 0 &&
            current_.job().last_seq() == current_.seq();
    writing_ = true;
    StartWrite(&current_);
  }

  void Pump() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (ended_ || writing_ || loading_) return;
    if (last_) return End(absl::OkStatus());
    if (draining_) return End(Draining());
    if (!page_.empty()) {
      v1::JobEvent event = std::move(page_.front());
      page_.pop_front();
      return Put(std::move(event));
    }
    if (next_ <= latest_) Load();
  }

  // Reads on in the pool: first the snapshot, then a page of events.
  void Load() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    loading_ = true;
    Shared self = self_;
    const bool taken = gateway_.light.Run(caller_.tenant, [self] {
      absl::Status status = self->Read();
      absl::MutexLock lock(&self->mutex_);
      self->loading_ = false;
      if (!status.ok()) return self->End(status);
      self->Pump();
    });
    if (!taken) {
      loading_ = false;
      End(Busy("the server is busy; watch again after the last event"));
    }
  }

  absl::Status Read() {
    int64_t next = 0, latest = 0;
    bool snapshot = false;
    {
      absl::MutexLock lock(&mutex_);
      next = next_;
      latest = latest_;
      snapshot = !snapshot_written_;
    }
    std::deque<v1::JobEvent> page;
    auto reader = gateway_.store.Read();
    HEDDLE_RETURN_IF_ERROR(StillValid(*reader, caller_, absl::Now()));
    if (snapshot) {
      HEDDLE_ASSIGN_OR_RETURN(job, LoadJob(*reader, job_, tenant_));
      latest = job.last_seq();
      v1::JobEvent event;
      event.set_seq(next - 1);
      event.set_state(job.state());
      *event.mutable_event_time() = ToProto(absl::Now());
      // A job that has ended and of which everything is known.
      const bool over = IsTerminal(job.state()) && next > latest;
      *event.mutable_job() = std::move(job);
      page.push_back(std::move(event));
      absl::MutexLock lock(&mutex_);
      history_ = latest;
      over_ = over;
    } else if (next > history_ && latest - next >= kFarBehind) {
      HEDDLE_ASSIGN_OR_RETURN(job, LoadJob(*reader, job_, tenant_));
      v1::JobEvent event;
      event.set_first_seq(next);
      event.set_seq(job.last_seq());
      event.set_state(job.state());
      *event.mutable_event_time() = ToProto(absl::Now());
      *event.mutable_job() = std::move(job);
      page.push_back(std::move(event));
    } else {
      HEDDLE_ASSIGN_OR_RETURN(events, LoadEvents(*reader, job_, next - 1, kEventsAtOnce));
      for (v1::JobEvent& event : events) {
        if (IsTerminal(event.state())) {
          HEDDLE_ASSIGN_OR_RETURN(job, LoadJob(*reader, job_, tenant_));
          if (job.last_seq() == event.seq()) *event.mutable_job() = std::move(job);
        }
        page.push_back(std::move(event));
      }
      // Told of what cannot be read any more: nothing follows.
      if (page.empty()) return absl::DataLossError("events of this job are missing");
    }
    absl::MutexLock lock(&mutex_);
    latest_ = std::max(latest_, latest);
    look_again_ = SteadyNow() + gateway_.look_again;
    page_ = std::move(page);
    if (snapshot) {
      snapshot_written_ = true;
      v1::JobEvent event = std::move(page_.front());
      page_.clear();
      Put(std::move(event));
      last_ = over_;
    }
    return absl::OkStatus();
  }

  const Gateway& gateway_;
  const Caller caller_;
  const std::string tenant_;  // "" = any
  const int64_t job_;
  const SteadyTime start_ = SteadyNow();

  absl::Mutex mutex_;
  Shared self_ ABSL_GUARDED_BY(mutex_);  // until OnDone
  std::shared_ptr<void> subscription_;
  v1::JobEvent current_;  // being written
  std::deque<v1::JobEvent> page_ ABSL_GUARDED_BY(mutex_);
  int64_t next_ ABSL_GUARDED_BY(mutex_);  // the event to be written next
  int64_t latest_ ABSL_GUARDED_BY(mutex_) = 0;
  // When the database, and with it the caller's token, is looked at again.
  SteadyTime look_again_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfinitePast();
  int64_t history_ = 0;  // what had happened when the stream began is never left out
  bool snapshot_written_ ABSL_GUARDED_BY(mutex_) = false;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false, loading_ ABSL_GUARDED_BY(mutex_) = false;
  bool last_ ABSL_GUARDED_BY(mutex_) = false, ended_ ABSL_GUARDED_BY(mutex_) = false;
  bool draining_ ABSL_GUARDED_BY(mutex_) = false;
  bool over_ = false;
};

}  // namespace

grpc::ServerWriteReactor<v1::JobEvent>* StartWatch(const Gateway& gateway,
                                                   const absl::StatusOr<Caller>& caller,
                                                   const v1::WatchJobRequest& request) {
  return WatchStream::Start(gateway, caller, request);
}

}  // namespace heddle::server
