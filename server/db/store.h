// The database as the server uses it: one thread writes, many calls at a time in one commit;
// readers have connections of their own.
#ifndef HEDDLE_SERVER_DB_STORE_H_
#define HEDDLE_SERVER_DB_STORE_H_

#include <deque>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/process/subprocess.h"
#include "base/sqlite.h"
#include "tuner/records/records.h"

namespace heddle::server {

struct StoreOptions {
  // Connections: for the threads of both pools and those that answer after a write, a dozen in all,
  // and gRPC's own.
  int readers = 16;
  // Called on the writer's thread before every commit; an error is one of the commit (for tests).
  std::function<absl::Status()> before_commit = [] { return absl::OkStatus(); };
  // Told of every commit: its seconds, and how it ended.
  std::function<void(double, const absl::Status&)> on_commit = [](double, const absl::Status&) {};
  // Writes that wait, beyond which those of kOnce are refused.
  size_t max_waiting = 4096;
  // What others send in bulk leaves so much of the disk to what is measured here: a share of the
  // file system, and at most so many bytes.
  double spare_share = 0.05;
  double spare_bytes = 0x1p30;
};

// A locked database and a full disk pass, and what the server itself has decided must then still be
// written.
enum class Persistence : uint8_t { kOnce, kUntilStored };

class Store {
 public:
  // Unavailable when another server has the database, FailedPrecondition when it is damaged or
  // cannot be written.
  static absl::StatusOr<std::unique_ptr<Store>> Open(const std::string& path,
                                                     StoreOptions options = {});
  // Writes what is waiting, as far as that can be written now.
  ~Store();

  // `body` runs on the writer's thread in a transaction that it shares with others; its error
  // undoes only what it wrote itself. `done` gets that error, or OK once the commit is on disk, on
  // the same thread, in the order of the calls; ResourceExhausted with the time after which to come
  // again where too much is waiting, and then `body` never runs.
  using Body = std::function<absl::Status(tuner::Records&)>;
  using Done = std::function<void(const absl::Status&)>;
  void Write(Body body, Done done, Persistence persistence = Persistence::kOnce);
  // The same, but what one commit ends is told at once, in `taker`, which outlives the write, in
  // place of one `done` after the other.
  struct Written {
    Done done;
    absl::Status status;
  };
  using Taker = std::function<void(std::vector<Written>)>;
  void Write(Body body, Done done, Persistence persistence, const Taker& taker) {
    Enqueue(std::move(body), std::move(done), persistence, &taker);
  }
  absl::Status WriteAndWait(const Body& body);
  // After `grace` kUntilStored is kOnce: the server ends.
  void StopRetrying(absl::Duration grace);

  // A connection for reading; waits while all are in use. Keep it for one short read. `given_up`
  // is asked every few thousand steps of SQLite's, where it is given: once it says true, the
  // statement that runs ends with Cancelled.
  using GivenUp = std::function<bool()>;
  class Reader {
   public:
    Reader(Store& store, tuner::Records* records, GivenUp given_up);
    Reader(Reader&& other) noexcept
        : store_(other.store_),
          records_(std::exchange(other.records_, nullptr)),
          given_up_(std::move(other.given_up_)) {}
    ~Reader();
    tuner::Records& operator*() const { return *records_; }
    tuner::Records* operator->() const { return records_; }

   private:
    Store* store_;
    tuner::Records* records_;
    std::unique_ptr<GivenUp> given_up_;  // SQLite knows where it is
  };
  Reader Read(GivenUp given_up = nullptr);

  const std::string& path() const { return path_; }
  // ResourceExhausted where the disk has no room for what others send in bulk (spare_share).
  absl::Status CheckRoomForOthers() const;
  // Of the log.
  int64_t wal_bytes() const;
  // Writes that wait for the disk.
  size_t waiting() const;

 private:
  struct Item {
    Body body;
    Done done;
    Persistence persistence;
    absl::Status status;
    const Taker* taker;  // null: `done` alone is told
  };
  explicit Store(std::string path, StoreOptions options)
      : path_(std::move(path)), options_(std::move(options)) {}
  void Enqueue(Body body, Done done, Persistence persistence, const Taker* taker);
  void Run();
  absl::Status Commit(std::vector<Item>& batch);
  void TruncateLog();

  const std::string path_;
  const StoreOptions options_;
  int lock_fd_ = -1;
  std::unique_ptr<tuner::Records> writer_;
  std::vector<std::unique_ptr<tuner::Records>> all_readers_;
  mutable absl::Mutex mutex_;
  std::deque<Item> queue_ ABSL_GUARDED_BY(mutex_);
  bool stopping_ ABSL_GUARDED_BY(mutex_) = false;
  SteadyTime retry_until_ ABSL_GUARDED_BY(mutex_) = SteadyTime::InfiniteFuture();
  SharedFlag has_work_;  // set with mutex_ held
  absl::Mutex readers_mutex_;
  std::vector<tuner::Records*> free_readers_ ABSL_GUARDED_BY(readers_mutex_);
  std::thread thread_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_STORE_H_
