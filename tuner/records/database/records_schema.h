// The schema of the records' database and how older ones become it.
#ifndef HEDDLE_TUNER_RECORDS_DATABASE_RECORDS_SCHEMA_H_
#define HEDDLE_TUNER_RECORDS_DATABASE_RECORDS_SCHEMA_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/sqlite.h"

namespace heddle::tuner {

// "HDDL": marks a SQLite file as one of ours.
inline constexpr int64_t kApplicationId = 0x4844444c;

// Statements that lead from schema version i to i + 1, for i = 0 (an empty file), 1, ... Released
// entries never change; a new version is a new entry and a golden database in tests/golden/.
const std::vector<std::string>& Migrations();

// Brings the database to version migrations.size(), in one transaction, after a copy of what was
// there to PATH.v<old version>.bak. Killed in the middle it leaves the old version.
absl::Status Migrate(Database& database, const std::vector<std::string>& migrations);

// The version of a file of ours, 0 for an empty one. FailedPrecondition: not one of ours, or newer
// than `newest`.
absl::StatusOr<int64_t> SchemaVersion(Database& database, int64_t newest);

// A consistent copy of the database as it was committed, while others write. It appears under its
// name when it is whole and on disk.
absl::Status CopyTo(Database& database, const std::string& to);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_DATABASE_RECORDS_SCHEMA_H_
