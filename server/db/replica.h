// A copy of another server's database that is brought up to date again and again, for a server that
// answers reads alone (docs/service.md).
#ifndef HEDDLE_SERVER_DB_REPLICA_H_
#define HEDDLE_SERVER_DB_REPLICA_H_

#include <array>
#include <atomic>
#include <cstdint>
#include <string>
#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

namespace heddle::server {

// Whether the database at `path` is a replica: a note beside it (PATH.replica) says when the
// primary was as it is.
bool IsReplica(const std::string& path);
// From now on it is a database of its own.
absl::Status ForgetReplica(const std::string& path);

class Replica {
 public:
  // InvalidArgument: `path` has a database that is none, and would be lost.
  static absl::StatusOr<Replica> Make(std::string primary, std::string path);
  Replica(Replica&& other) noexcept
      : primary_(std::move(other.primary_)),
        path_(std::move(other.path_)),
        copied_(other.copied_),
        as_of_us_(other.as_of_us_.load()) {}

  // Makes the database at `path`, which is there, what the primary is at the call, in one
  // transaction: readers see the one or the other. True where that has changed anything.
  // FailedPrecondition: the primary's schema is another version's; else the errors of either
  // database. What was there before stays then.
  absl::StatusOr<bool> Refresh();

  const std::string& primary() const { return primary_; }
  // When the primary was as the replica is; InfinitePast: it never was. For any thread.
  absl::Time as_of() const;

 private:
  // What tells that a file and its log have not changed: inode, size, nanoseconds.
  using Stamp = std::array<int64_t, 6>;
  static constexpr int64_t kNever = -1;

  Replica(std::string primary, std::string path, int64_t as_of_us)
      : primary_(std::move(primary)), path_(std::move(path)), as_of_us_(as_of_us) {}
  Stamp Look() const;

  std::string primary_, path_;
  Stamp copied_ = {};
  std::atomic<int64_t> as_of_us_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_REPLICA_H_
