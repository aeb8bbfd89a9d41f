// Which version a file has, and how an older one becomes the newest.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "tuner/records/database/records_schema.h"

namespace heddle::tuner {
namespace {

absl::Status FileError(const std::string& path, const char* action) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": cannot ", action, ": ", std::strerror(error));
  if (error == ENOSPC || error == EDQUOT || error == EIO) {
    return absl::ResourceExhaustedError(absl::StrCat(message, "; free space and try again"));
  }
  return absl::PermissionDeniedError(absl::StrCat(message, "; check the folder's permissions"));
}

absl::Status Sync(const std::string& path) {
  const int file = open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) return FileError(path, "open");
  const int result = fsync(file);
  const absl::Status status = result == 0 ? absl::OkStatus() : FileError(path, "write to disk");
  close(file);
  return status;
}

}  // namespace

absl::StatusOr<int64_t> SchemaVersion(Database& database, int64_t newest) {
  // One read, hence one moment: another process may be creating the tables. It is no single
  // statement, as SQLite makes a table of a pragma for that, which takes longer than all of these.
  HEDDLE_RETURN_IF_ERROR(database.Run("SAVEPOINT version"));
  const auto read_id = database.QueryInt("PRAGMA application_id");
  const auto read_version = database.QueryInt("PRAGMA user_version");
  const auto read_tables = database.QueryInt("SELECT count(*) FROM sqlite_schema");
  database.Run("RELEASE version").IgnoreError();
  HEDDLE_ASSIGN_OR_RETURN(id, read_id);
  HEDDLE_ASSIGN_OR_RETURN(version, read_version);
  HEDDLE_ASSIGN_OR_RETURN(tables, read_tables);
  if (id == 0 && version == 0 && tables == 0) return 0;
  if (id != kApplicationId) {
    return absl::FailedPreconditionError(absl::StrCat(
        database.path(), ": this SQLite database belongs to another program; name another file"));
  }
  if (version < 1 || version > newest) {
    return absl::FailedPreconditionError(
        absl::StrCat(database.path(), ": the database has schema version ", version,
                     ", and this program knows 1 to ", newest,
                     "; install the newer heddle that wrote it, or ", "name another file"));
  }
  return version;
}

absl::Status CopyTo(Database& database, const std::string& to) {
  const std::string partial = to + ".partial";
  if (std::remove(partial.c_str()) != 0 && errno != ENOENT) return FileError(partial, "remove");
  absl::Status status = database.Run("VACUUM INTO ?", partial);
  // A copy is for those who may read the original.
  if (struct stat info; status.ok() && stat(database.path().c_str(), &info) == 0) {
    if (chmod(partial.c_str(), info.st_mode & 0777) != 0) status = FileError(partial, "protect");
  }
  if (status.ok()) status = Sync(partial);
  if (status.ok() && std::rename(partial.c_str(), to.c_str()) != 0) status = FileError(to, "write");
  if (!status.ok()) {
    std::remove(partial.c_str());
    return absl::Status(status.code(), absl::StrCat("copying to ", to, ": ", status.message()));
  }
  const std::string folder = std::filesystem::path(to).parent_path();
  return Sync(folder.empty() ? "." : folder);
}

absl::Status Migrate(Database& database, const std::vector<std::string>& migrations) {
  const auto newest = static_cast<int64_t>(migrations.size());
  return database.Transaction([&]() -> absl::Status {
    // Another process may have migrated while this one waited for the lock.
    HEDDLE_ASSIGN_OR_RETURN(version, SchemaVersion(database, newest));
    if (version == newest) return absl::OkStatus();
    if (version > 0) {
      // A connection of its own, as a copy cannot be made within a transaction. It sees what is
      // committed, and this transaction keeps others from changing that.
      HEDDLE_ASSIGN_OR_RETURN(reader, Database::Open(database.path(), Database::Mode::kReadWrite));
      HEDDLE_RETURN_IF_ERROR(CopyTo(reader, absl::StrCat(database.path(), ".v", version, ".bak")));
    }
    for (int64_t v = version; v < newest; ++v) {
      HEDDLE_RETURN_IF_ERROR(database.Script(migrations[v]));
    }
    return database.Script(absl::StrCat("PRAGMA application_id = ", kApplicationId,
                                        "; PRAGMA user_version = ", newest));
  });
}

}  // namespace heddle::tuner
