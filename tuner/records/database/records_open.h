// Opening: what may be opened, in which state it was left, and what can be done with it.
#ifndef HEDDLE_TUNER_RECORDS_DATABASE_RECORDS_OPEN_H_
#define HEDDLE_TUNER_RECORDS_DATABASE_RECORDS_OPEN_H_

#include <string>

#include "absl/status/statusor.h"
#include "base/sqlite.h"

namespace heddle::tuner {

// A database of the newest schema.
struct OpenedRecords {
  Database database;
  bool read_only = false;
  std::string damage;  // as Records::damage gives it
};
// Opens the file, or creates it in a folder that is there; refuses what Records::Open says.
absl::StatusOr<OpenedRecords> OpenRecords(const std::string& path);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_DATABASE_RECORDS_OPEN_H_
