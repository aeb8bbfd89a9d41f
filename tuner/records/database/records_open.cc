#include "tuner/records/database/records_open.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "tuner/records/database/records_file.h"
#include "tuner/records/database/records_schema.h"

namespace heddle::tuner {
namespace {

// Opens the file. Where it or its folder cannot be written, and no log waits beside it, it is read
// without the shared memory file that SQLite would otherwise create or want to create there.
absl::StatusOr<Database> OpenFile(const std::string& path, bool& read_only) {
  struct stat info;
  const bool exists = stat(path.c_str(), &info) == 0;
  read_only = exists && !IsWritable(path) &&
              (stat((path + "-wal").c_str(), &info) != 0 || info.st_size == 0);
  using Mode = Database::Mode;
  absl::StatusOr<Database> database = Database::Open(path, read_only ? Mode::kImmutable
                                                           : exists  ? Mode::kReadWrite
                                                                     : Mode::kCreate);
  if (database.ok()) read_only |= database->read_only();
  return database;
}

// The first complaint of quick_check; "" when it has none.
absl::StatusOr<std::string> QuickCheck(Database& database) {
  Cursor rows = database.Query("PRAGMA quick_check(1)");
  absl::StatusOr<bool> row = rows.Next();
  if (absl::IsDataLoss(row.status())) return std::string(row.status().message());
  HEDDLE_RETURN_IF_ERROR(row);
  const std::string answer = rows.Text(0);
  return answer == "ok" ? "" : answer;
}

absl::Status PrepareForWriting(Database& database, bool is_newest) {
  for (const char* pragma :
       {"PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL", "PRAGMA cell_size_check = ON",
        // What is left of the log after a checkpoint.
        "PRAGMA journal_size_limit = 16777216"}) {
    // SQLite does not wait for a lock when another process changes the journal mode meanwhile.
    absl::Status status;
    for (int attempt = 0; attempt < 200; ++attempt) {
      status = database.Run(pragma);
      if (!absl::IsUnavailable(status)) break;
      absl::SleepFor(absl::Milliseconds(5));
    }
    HEDDLE_RETURN_IF_ERROR(status);
  }
  // Before foreign keys are looked at: a migration may make a table anew that others refer to.
  if (!is_newest) HEDDLE_RETURN_IF_ERROR(Migrate(database, Migrations()));
  return database.Run("PRAGMA foreign_keys = ON");
}

}  // namespace

absl::StatusOr<OpenedRecords> OpenRecords(const std::string& path) {
  HEDDLE_RETURN_IF_ERROR(CheckPlace(path));

  const bool left_open = WasLeftOpen(path);
  bool read_only = false;
  HEDDLE_ASSIGN_OR_RETURN(database, OpenFile(path, read_only));
  const auto newest = static_cast<int64_t>(Migrations().size());
  absl::StatusOr<int64_t> version = SchemaVersion(database, newest);
  if (absl::IsDataLoss(version.status())) {
    return absl::DataLossError(absl::StrCat(
        path,
        ": the database is damaged where its tables are described, so that nothing in it can be "
        "found. Restore a backup, or try `sqlite3 ",
        path, " .recover | sqlite3 new.db`"));
  }
  HEDDLE_RETURN_IF_ERROR(version);

  std::string damage;
  if (left_open) {
    HEDDLE_ASSIGN_OR_RETURN(complaint, QuickCheck(database));
    if (!complaint.empty()) {
      damage = absl::StrCat(path,
                            ": the database is damaged and only read from now on. Salvage what is "
                            "readable with `heddle records export`, move the file away and import "
                            "the result (",
                            complaint, ")");
      // Nothing of the log is to be moved into the damaged file when it is closed.
      sqlite3_db_config(database.handle(), SQLITE_DBCONFIG_NO_CKPT_ON_CLOSE, 1, nullptr);
    }
  }
  if (read_only || !damage.empty()) {
    if (*version < newest) {
      return absl::FailedPreconditionError(
          absl::StrCat(path, ": the database ", *version == 0 ? "is empty" : "has an older schema",
                       " and cannot be written here; copy it to a folder that can be written"));
    }
  } else {
    HEDDLE_RETURN_IF_ERROR(PrepareForWriting(database, *version == newest));
  }
  return OpenedRecords{std::move(database), read_only, std::move(damage)};
}

}  // namespace heddle::tuner
