// Whole files, with errors that name the file.
#ifndef HEDDLE_BASE_FILES_H_
#define HEDDLE_BASE_FILES_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle {

// InvalidArgument: cannot be read, is larger than `max_bytes`, or is binary.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

// Replaces the file. Internal, with the system's reason, when not all of it could be written.
absl::Status WriteFile(const std::string& path, const std::string& content);

// The names of a folder's entries, sorted. NotFound: there is no such folder; Unavailable: it could
// not be read to its end, as on a file system of the network that is away, and another try may.
absl::StatusOr<std::vector<std::string>> ListFolder(const std::string& path);

}  // namespace heddle

#endif  // HEDDLE_BASE_FILES_H_
