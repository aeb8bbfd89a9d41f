#include "server/db/replica.h"

#include <sqlite3.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <filesystem>
#include <system_error>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/clock.h"
#include "base/files.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "tuner/records/database/records_file.h"
#include "tuner/records/database/records_schema.h"

namespace heddle::server {
namespace {

namespace fs = std::filesystem;

// A writer of the copy, which notes nothing but trifles, is soon done.
constexpr absl::Duration kPatience = absl::Seconds(5);
constexpr int64_t kClockTick = 100'000'000;  // nanoseconds: coarser than any

std::string NoteOf(const std::string& path) { return path + ".replica"; }

// A live database lies on a local disk (Records::Open). One on a file system of the network is a
// copy that somebody puts there as a whole, and has no log.
absl::StatusOr<Database> OpenPrimary(const std::string& path) {
  struct statfs system;
  const bool remote =
      statfs(path.c_str(), &system) == 0 &&
      tuner::NetworkFileSystem(static_cast<unsigned long>(system.f_type)) != nullptr;
  return Database::Open(path, remote ? Database::Mode::kImmutable : Database::Mode::kReadWrite);
}

// All pages in one step: the transaction of the copy's writer, and one read of the primary.
absl::Status CopyAll(Database& from, Database& to) {
  const SteadyTime begin = SteadyNow();
  for (;;) {
    sqlite3_backup* backup = sqlite3_backup_init(to.handle(), "main", from.handle(), "main");
    if (backup == nullptr) return to.Error(sqlite3_errcode(to.handle()));
    sqlite3_backup_step(backup, -1);
    const int code = sqlite3_backup_finish(backup);
    if (code == SQLITE_OK) return absl::OkStatus();
    const bool busy = code == SQLITE_BUSY || code == SQLITE_LOCKED;
    if (!busy || SteadyNow() - begin > kPatience) return to.Error(code);
    absl::SleepFor(absl::Milliseconds(5));
  }
}

}  // namespace

bool IsReplica(const std::string& path) {
  std::error_code error;
  return fs::exists(NoteOf(path), error);
}

absl::Status ForgetReplica(const std::string& path) {
  if (std::remove(NoteOf(path).c_str()) == 0) return absl::OkStatus();
  return absl::ErrnoToStatus(errno, NoteOf(path));
}

absl::StatusOr<Replica> Replica::Make(std::string primary, std::string path) {
  std::error_code error;
  const bool exists = fs::exists(path, error), noted = IsReplica(path);
  if (exists && (!noted || fs::equivalent(primary, path, error))) {
    return absl::InvalidArgumentError(
        absl::StrCat(path,
                     ": is a database of its own, which a replica would overwrite; name a file "
                     "that does not exist with --db"));
  }
  int64_t as_of_us = kNever;
  if (exists && noted) {
    HEDDLE_ASSIGN_OR_RETURN(text, ReadTextFile(NoteOf(path), 64));
    if (!absl::SimpleAtoi(text, &as_of_us)) as_of_us = kNever;
  }
  // Before there is a database that nobody knows to be one.
  if (!noted) HEDDLE_RETURN_IF_ERROR(WriteFile(NoteOf(path), "never\n"));
  return Replica(std::move(primary), std::move(path), as_of_us);
}

absl::Time Replica::as_of() const {
  const int64_t us = as_of_us_;
  return us == kNever ? absl::InfinitePast() : absl::FromUnixMicros(us);
}

Replica::Stamp Replica::Look() const {
  Stamp stamp = {};
  for (size_t i = 0; i < 2; ++i) {
    struct stat info;
    if (stat((primary_ + (i == 0 ? "" : "-wal")).c_str(), &info) != 0) continue;
    stamp[3 * i] = static_cast<int64_t>(info.st_ino);
    stamp[3 * i + 1] = info.st_size;
    stamp[3 * i + 2] = absl::ToUnixNanos(absl::TimeFromTimespec(info.st_mtim));
  }
  return stamp;
}

absl::StatusOr<bool> Replica::Refresh() {
  const absl::Time now = absl::Now();
  const Stamp stamp = Look();
  if (stamp[0] == 0) return absl::NotFoundError(primary_ + ": there is no such database");
  const bool changed = stamp != copied_;
  if (changed) {
    HEDDLE_ASSIGN_OR_RETURN(from, OpenPrimary(primary_));
    const auto newest = static_cast<int64_t>(tuner::Migrations().size());
    HEDDLE_ASSIGN_OR_RETURN(version, tuner::SchemaVersion(from, newest));
    if (version != newest) {
      return absl::FailedPreconditionError(
          absl::StrCat(primary_, ": of schema version ", version, ", and this heddle has ", newest,
                       "; a replica wants a server of its own version"));
    }
    HEDDLE_ASSIGN_OR_RETURN(to, Database::Open(path_, Database::Mode::kReadWrite));
    HEDDLE_RETURN_IF_ERROR(CopyAll(from, to));
    // Else the log would keep all of every copy.
    HEDDLE_RETURN_IF_ERROR(to.Run("PRAGMA wal_checkpoint(PASSIVE)"));
    // What is written within one tick of the file system's clock looks the same afterwards.
    const bool settled = absl::ToUnixNanos(now) - std::max(stamp[2], stamp[5]) > kClockTick;
    copied_ = settled ? stamp : Stamp{};
  }
  as_of_us_ = absl::ToUnixMicros(now);
  HEDDLE_RETURN_IF_ERROR(WriteFile(NoteOf(path_), absl::StrCat(as_of_us_.load(), "\n")));
  return changed;
}

}  // namespace heddle::server
