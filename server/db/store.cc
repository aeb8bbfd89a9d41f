#include "server/db/store.h"

#include <fcntl.h>
#include <sqlite3.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <filesystem>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/notification.h"
#include "absl/time/clock.h"
#include "base/log.h"
#include "base/status.h"
#include "server/db/errors.h"

namespace heddle::server {
namespace {

// Writes of one commit, so that the first of a long queue does not wait for all.
constexpr size_t kMaxBatch = 256;
// A log beyond this is emptied when nothing else is to do, beyond the second in any case.
constexpr int64_t kIdleLog = 4 << 20, kMaxLog = 64 << 20;
constexpr absl::Duration kIdle = absl::Seconds(1);
// Some tenths of a millisecond of a read.
constexpr int kStepsBetweenLooks = 10000;
constexpr absl::Duration kRetry = absl::Milliseconds(500), kCallersRetry = absl::Seconds(2);

bool Passes(const absl::Status& status) {
  return absl::IsResourceExhausted(status) || absl::IsUnavailable(status);
}

// What the caller of a write that failed is told: what passes is worth another attempt.
absl::Status ForCaller(const absl::Status& status) {
  bool explained = false;  // by the write itself, such as a quota
  status.ForEachPayload([&](absl::string_view, const absl::Cord&) { explained = true; });
  if (explained || !Passes(status)) return status;
  return ErrorWithReason(status.code(), "DATABASE_BUSY", std::string(status.message()),
                         kCallersRetry);
}

absl::Status Damaged(const tuner::Records& records) {
  return absl::FailedPreconditionError(
      records.damage().empty()
          ? absl::StrCat(records.path(),
                         ": the database cannot be written; a server needs one "
                         "that can (name it with --db)")
          : records.damage());
}

}  // namespace

absl::StatusOr<std::unique_ptr<Store>> Store::Open(const std::string& path, StoreOptions options) {
  auto store = std::unique_ptr<Store>(new Store(path, std::move(options)));
  HEDDLE_ASSIGN_OR_RETURN(writer, tuner::Records::Open(path));
  if (writer->read_only()) return Damaged(*writer);
  const std::string lock = path + ".server";
  store->lock_fd_ = open(lock.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (store->lock_fd_ < 0) {
    return absl::FailedPreconditionError(
        absl::StrCat(path, ": cannot open ", lock, " beside it (", std::strerror(errno),
                     "); a server needs the right to write there"));
  }
  if (flock(store->lock_fd_, LOCK_EX | LOCK_NB) != 0) {
    return absl::UnavailableError(
        absl::StrCat(path, ": another server has this database (", lock,
                     " is locked); end it, or name another database with --db"));
  }
  store->writer_ = std::move(writer);
  for (int i = 0; i < store->options_.readers; ++i) {
    HEDDLE_ASSIGN_OR_RETURN(reader, tuner::Records::Open(path));
    store->free_readers_.push_back(reader.get());
    store->all_readers_.push_back(std::move(reader));
  }
  store->thread_ = std::thread([s = store.get()] { s->Run(); });
  return store;
}

Store::~Store() {
  {
    absl::MutexLock lock(&mutex_);
    stopping_ = true;
    has_work_.Set(true);
  }
  if (thread_.joinable()) thread_.join();
  if (lock_fd_ >= 0) close(lock_fd_);
}

void Store::Write(Body body, Done done, Persistence persistence) {
  Enqueue(std::move(body), std::move(done), persistence, nullptr);
}

void Store::Enqueue(Body body, Done done, Persistence persistence, const Taker* taker) {
  absl::MutexLock lock(&mutex_);
  absl::Status refused;
  if (persistence == Persistence::kOnce && queue_.size() >= options_.max_waiting) {
    refused = Busy("more writes wait than the server's disk can take");
    body = nullptr;  // what it holds goes at once
  }
  queue_.push_back({std::move(body), std::move(done), persistence, std::move(refused), taker});
  has_work_.Set(true);
}

absl::Status Store::WriteAndWait(const Body& body) {
  absl::Status result;
  absl::Notification written;
  Write(body, [&](const absl::Status& status) {
    result = status;
    written.Notify();
  });
  written.WaitForNotification();
  return result;
}

void Store::StopRetrying(absl::Duration grace) {
  absl::MutexLock lock(&mutex_);
  retry_until_ = SteadyNow() + grace;
}

absl::Status Store::Commit(std::vector<Item>& batch) {
  Database& db = writer_->database();
  return writer_->Batch([&]() -> absl::Status {
    for (Item& item : batch) {
      if (item.body == nullptr) continue;
      HEDDLE_RETURN_IF_ERROR(db.Run("SAVEPOINT item"));
      item.status = item.body(*writer_);
      // Some errors have undone the whole transaction, so that there is nothing to go back to.
      if (!item.status.ok() && !db.Run("ROLLBACK TO item").ok()) return item.status;
      HEDDLE_RETURN_IF_ERROR(db.Run("RELEASE item"));
    }
    return options_.before_commit();
  });
}

void Store::Run() {
  for (;;) {
    std::vector<Item> batch;
    bool stopping = false;
    SteadyTime retry_until;
    IsReadable(has_work_.fd(), kIdle);
    {
      absl::MutexLock lock(&mutex_);
      stopping = stopping_;
      retry_until = retry_until_;
      while (!queue_.empty() && batch.size() < kMaxBatch) {
        batch.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
      has_work_.Set(!queue_.empty() || stopping_);
    }
    if (batch.empty()) {
      if (wal_bytes() > kIdleLog) TruncateLog();
      if (stopping) return;
      continue;
    }
    const SteadyTime start = SteadyNow();
    const absl::Status committed = Commit(batch);
    options_.on_commit(SecondsSince(start), committed);
    if (!committed.ok()) {
      LogEvent(Severity::kError, "commit_failed", {{"error", std::string(committed.message())}});
    }
    const bool retrying = !stopping && SteadyNow() < retry_until;
    std::vector<Item> again;
    const Taker* taker = nullptr;
    std::vector<Written> written;  // for the taker
    const auto tell = [&] {
      if (!written.empty()) (*taker)(std::exchange(written, {}));
    };
    for (Item& item : batch) {
      const absl::Status& status = committed.ok() || item.body == nullptr ? item.status : committed;
      if (Passes(status) && item.persistence == Persistence::kUntilStored && retrying) {
        again.push_back(std::move(item));
        continue;
      }
      if (item.taker != taker) tell();
      taker = item.taker;
      if (taker != nullptr) {
        written.push_back({std::move(item.done), ForCaller(status)});
      } else if (item.done) {
        item.done(ForCaller(status));
      }
    }
    tell();
    if (!again.empty()) {
      absl::SleepFor(kRetry);
      absl::MutexLock lock(&mutex_);
      queue_.insert(queue_.begin(), std::make_move_iterator(again.begin()),
                    std::make_move_iterator(again.end()));
      has_work_.Set(true);
    }
    if (wal_bytes() > kMaxLog) TruncateLog();
  }
}

// Readers that are in the middle of something keep the log alive: then the next time.
void Store::TruncateLog() {
  Database& db = writer_->database();
  db.set_patience(absl::Milliseconds(200));
  db.Run("PRAGMA wal_checkpoint(TRUNCATE)").IgnoreError();
  db.set_patience(absl::Seconds(30));
}

absl::Status Store::CheckRoomForOthers() const {
  std::error_code error;
  const auto space = std::filesystem::space(path_, error);
  if (error) return absl::OkStatus();
  const double spare =
      std::min(options_.spare_bytes, options_.spare_share * static_cast<double>(space.capacity));
  if (static_cast<double>(space.available) >= spare) return absl::OkStatus();
  return ErrorWithReason(
      absl::StatusCode::kResourceExhausted, "DISK_FULL",
      absl::StrFormat("the server's disk has %d MiB left, and %.0f stay free for what is measured "
                      "here: an administrator frees space",
                      space.available >> 20, spare / (1 << 20)),
      kCallersRetry);
}

int64_t Store::wal_bytes() const {
  struct stat info;
  return stat((path_ + "-wal").c_str(), &info) == 0 ? info.st_size : 0;
}

size_t Store::waiting() const {
  absl::MutexLock lock(&mutex_);
  return queue_.size();
}

Store::Reader Store::Read(GivenUp given_up) {
  const auto is_free = [this]() ABSL_SHARED_LOCKS_REQUIRED(readers_mutex_) {
    return !free_readers_.empty();
  };
  absl::MutexLock lock(&readers_mutex_);
  readers_mutex_.Await(absl::Condition(&is_free));
  tuner::Records* records = free_readers_.back();
  free_readers_.pop_back();
  return {*this, records, std::move(given_up)};
}

Store::Reader::Reader(Store& store, tuner::Records* records, GivenUp given_up)
    : store_(&store), records_(records) {
  if (!given_up) return;
  given_up_ = std::make_unique<GivenUp>(std::move(given_up));
  sqlite3_progress_handler(
      records->database().handle(), kStepsBetweenLooks,
      [](void* asked) { return int{(*static_cast<GivenUp*>(asked))()}; }, given_up_.get());
}

Store::Reader::~Reader() {
  if (records_ == nullptr) return;
  if (given_up_) sqlite3_progress_handler(records_->database().handle(), 0, nullptr, nullptr);
  absl::MutexLock lock(&store_->readers_mutex_);
  store_->free_readers_.push_back(records_);
}

}  // namespace heddle::server
