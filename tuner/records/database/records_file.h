// The file that holds the records: where it lies, whether it may lie there, and whether whoever had
// it open last closed it.
#ifndef HEDDLE_TUNER_RECORDS_DATABASE_RECORDS_FILE_H_
#define HEDDLE_TUNER_RECORDS_DATABASE_RECORDS_FILE_H_

#include <string>

#include "absl/status/status.h"

namespace heddle::tuner {

// Where the user's records are if nobody says: $HEDDLE_DB, else heddle/heddle.db in the user's data
// folder ($XDG_DATA_HOME, else ~/.local/share).
std::string DefaultRecordsPath();

// Creates the folder of `path` and those above it.
absl::Status CreateFolderOf(const std::string& path);

// Whether a database may lie at `path`: its folder exists, it is no folder itself, and the file
// system is a local one, as the log's shared memory does not work across machines.
absl::Status CheckPlace(const std::string& path);

// The name of a network file system by its magic number (statfs), nullptr for any other.
const char* NetworkFileSystem(unsigned long magic);

// Whether the database at `path` was not closed: its log is there although no process uses it.
bool WasLeftOpen(const std::string& path);

// Whether this process may write the file at `path` and create others beside it.
bool IsWritable(const std::string& path);

// Whether the file is this user's, and not everybody's to write.
bool IsOwn(const std::string& path);

// This process, so that others can tell whether it is still running: boot, process id, start time.
std::string ThisProcess();
// Whether the process that gave its ThisProcess() is still running on this machine.
bool IsRunning(const std::string& process);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_DATABASE_RECORDS_FILE_H_
