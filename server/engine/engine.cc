// Commits what the state asks for, and tells it when that is done.
#include "server/engine/engine.h"

#include <openssl/rand.h>

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/db/convert.h"
#include "server/db/fleet_store.h"
#include "server/db/job_store.h"

namespace heddle::server {
namespace {

// How long a server that ends tries to write what it has decided.
constexpr absl::Duration kLastWrites = absl::Seconds(5);

// A name that nobody guesses.
absl::StatusOr<std::string> NewSession() {
  std::array<unsigned char, 16> random;
  if (RAND_bytes(random.data(), random.size()) != 1) {
    return absl::InternalError("the system gave no random bytes");
  }
  return absl::BytesToHexString(
      std::string(reinterpret_cast<const char*>(random.data()), random.size()));
}

}  // namespace

Engine::Engine(Store& store, Metrics& metrics, EngineOptions options)
    : store_(store),
      metrics_(metrics),
      options_(std::move(options)),
      taker_([this](const std::vector<Store::Written>& written) { TakeWritten(written); }),
      state_(metrics, options_) {}

Engine::~Engine() {
  Drain();
  const auto idle = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return state_.searchers() == 0; };
  const auto written = [this]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) { return writes_ == 0; };
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&idle));
  }
  store_.StopRetrying(kLastWrites);
  {
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&written));
  }
  JoinFinished();
}

// ---------------------------------------------------------------------------------------- driving

void Engine::Finish() {
  Effects effects = state_.TakeEffects();
  for (Effects::Write& write : effects.writes) {
    ++writes_;
    store_.Write(std::move(write.body), std::move(write.done), write.persistence, taker_);
  }
  for (int64_t id : effects.searches) {
    std::thread thread([this, id] { RunJob(id); });
    threads_.emplace(thread.get_id(), std::move(thread));
  }
  std::vector<Effects::Announcement> watched;
  for (const Effects::Announcement& announcement : effects.announcements) {
    if (watchers_.contains(announcement.job)) watched.push_back(announcement);
  }
  mutex_.Unlock();
  for (const auto& reply : effects.replies) reply();
  for (const Effects::Announcement& announcement : watched) {
    news_.Run("", [=, this] { Publish(announcement); });
  }
  for (const Effects::JobReply& asked : effects.job_replies) {
    replies_.Run(asked.tenant, [=, this] {
      auto reader = store_.Read();
      asked.reply(LoadJob(*reader, asked.job, asked.tenant));
    });
  }
}

// Together, so that a searcher has the results of a commit at once and answers with as many
// candidates; but in parts that others do not wait for long.
void Engine::TakeWritten(const std::vector<Store::Written>& written) {
  constexpr size_t kPart = 32;
  for (size_t begin = 0; begin < written.size(); begin += kPart) {
    Do([&](FleetState&) {
      for (size_t i = begin; i < std::min(begin + kPart, written.size()); ++i) {
        if (written[i].done) written[i].done(written[i].status);
      }
    });
  }
  absl::MutexLock lock(&mutex_);
  writes_ -= static_cast<int>(written.size());
}

void Engine::Publish(const Effects::Announcement& announcement) {
  const int64_t job = announcement.job;
  auto event = std::make_shared<v1::JobEvent>();
  {
    auto reader = store_.Read();
    auto events = LoadEvents(*reader, job, announcement.seq - 1, 1);
    if (!events.ok() || events->empty()) return;  // watchers find it when they read themselves
    *event = std::move(events->front());
    if (announcement.with_job) {
      auto loaded = LoadJob(*reader, job, "");
      if (!loaded.ok()) return;
      *event->mutable_job() = *std::move(loaded);
    }
  }
  std::vector<std::shared_ptr<Watcher>> watchers;
  {
    absl::MutexLock lock(&mutex_);
    auto it = watchers_.find(job);
    if (it == watchers_.end()) return;
    watchers = it->second;
  }
  const std::shared_ptr<const v1::JobEvent> shared = std::move(event);
  for (const auto& watcher : watchers) (*watcher)(shared);
}

std::shared_ptr<void> Engine::Watch(int64_t job, Watcher watcher) {
  auto shared = std::make_shared<Watcher>(std::move(watcher));
  bool drained = false;
  {
    absl::MutexLock lock(&mutex_);
    watchers_[job].push_back(shared);
    drained = state_.draining();
  }
  if (drained) (*shared)(nullptr);
  return {nullptr, [this, job, shared](void*) {
            absl::MutexLock inner(&mutex_);
            auto it = watchers_.find(job);
            std::erase(it->second, shared);
            if (it->second.empty()) watchers_.erase(it);
          }};
}

// ------------------------------------------------------------------------------------------- life

absl::Status Engine::Recover() {
  HEDDLE_RETURN_IF_ERROR(store_.WriteAndWait([this](tuner::Records& records) {
    absl::MutexLock lock(&mutex_);
    return state_.Recover(records);
  }));
  Do([](FleetState& state) { state.Recovered(); });
  Tick();
  return absl::OkStatus();
}

absl::Status Engine::LoadFleet() {
  auto reader = store_.Read();
  absl::MutexLock lock(&mutex_);
  return state_.LoadFleet(*reader);
}

void Engine::Tick() {
  Do([](FleetState& state) { state.Tick(); });
  metrics_.wal_bytes.Set(static_cast<double>(store_.wal_bytes()));
  metrics_.write_queue.Set(static_cast<double>(store_.waiting()));
  JoinFinished();
}

void Engine::Drain() {
  Do([](FleetState& state) { state.Drain(); });
  std::vector<std::shared_ptr<Watcher>> all;
  {
    absl::MutexLock lock(&mutex_);
    for (const auto& [job, watchers] : watchers_) {
      all.insert(all.end(), watchers.begin(), watchers.end());
    }
  }
  for (const auto& watcher : all) (*watcher)(nullptr);
}

void Engine::JoinFinished() {
  std::vector<std::thread> ended;
  {
    absl::MutexLock lock(&mutex_);
    for (std::thread::id id : finished_) {
      auto it = threads_.find(id);
      ended.push_back(std::move(it->second));
      threads_.erase(it);
    }
    finished_.clear();
  }
  for (std::thread& thread : ended) thread.join();
}

// ---------------------------------------------------------------------------------------- searches

void Engine::RunJob(int64_t id) {
  for (bool more = true; more;) {
    const auto setup =
        Do([&](FleetState& state) { return state.PrepareSearch(id, store_.path()); });
    if (!setup) break;
    auto done = options_.search(
        *setup, [&](const searcher::FromSearcher& question) { return Answer(id, question); });
    more = Do([&](FleetState& state) { return state.SearchDone(id, done); });
  }
  {
    absl::MutexLock lock(&mutex_);
    finished_.push_back(std::this_thread::get_id());
  }
  Do([&](FleetState& state) { state.SearchEnded(id); });
}

searcher::ToSearcher Engine::Answer(int64_t id, const searcher::FromSearcher& question) {
  Do([&](FleetState& state) { state.Ask(id, question); });
  {
    // Finals are all or none; for others as long as the searcher will wait. Time passes with every
    // tick, which gives the lock back and so has this looked at.
    const SteadyTime deadline =
        question.has_finals() ? SteadyTime::InfiniteFuture()
                              : options_.steady() + absl::Seconds(question.exchange().wait_s());
    const auto over = [&]() ABSL_SHARED_LOCKS_REQUIRED(mutex_) {
      return state_.AnswerIsReady(id, question.has_finals()) || options_.steady() >= deadline;
    };
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&over));
  }
  return Do([&](FleetState& state) { return state.TakeAnswer(id, question.has_finals()); });
}

// ------------------------------------------------------------------------------------------- calls

void Engine::RetryJob(const Caller& caller, int64_t id, const std::string& request_id,
                      const Reply<v1::Job>& reply) {
  absl::StatusOr<v1::Job> job;
  absl::StatusOr<std::vector<WorkloadUse>> uses;
  {
    auto reader = store_.Read();
    job = LoadJob(*reader, id, VisibleTenant(caller));
    uses = LoadUse(*reader, id);
  }
  if (!job.ok()) return reply(job.status());
  if (!uses.ok()) return reply(uses.status());
  auto workloads = ParseWorkloads(*uses);
  if (!workloads.ok()) {
    return reply(absl::FailedPreconditionError(
        absl::StrCat("this version of heddle cannot go on with ", JobName(id), ": ",
                     workloads.status().message(), "; create another one")));
  }
  Do([&](FleetState& state) {
    state.RetryJob(caller, *std::move(job), request_id, *std::move(workloads), reply);
  });
}

void Engine::UpdateJob(const Caller& caller, int64_t id, const JobUpdate& update,
                       const Reply<v1::Job>& reply) {
  {
    auto job = LoadJob(*store_.Read(), id, VisibleTenant(caller));
    const absl::Status readable = job.ok() ? CheckReadable(*job) : job.status();
    if (!readable.ok()) return reply(readable);
  }
  Do([&](FleetState& state) { state.UpdateJob(caller, id, update, reply); });
}

void Engine::Register(const Caller& caller, const v1::RegisterRequest& request,
                      const Reply<v1::RegisterResponse>& reply) {
  auto session = NewSession();
  if (!session.ok()) return reply(session.status());
  auto revoked = RevokedOwner(*store_.Read(), request.host_uuid(), options_.now());
  if (!revoked.ok()) return reply(revoked.status());
  Do([&](FleetState& state) { state.Register(caller, request, *session, *revoked, reply); });
}

}  // namespace heddle::server
