// Whole files, with errors that name the file.
#ifndef HEDDLE_BASE_FILES_H_
#define HEDDLE_BASE_FILES_H_

#include <string>

#include "absl/status/statusor.h"

namespace heddle {

// InvalidArgument: cannot be read, is larger than `max_bytes`, or is binary.
absl::StatusOr<std::string> ReadTextFile(const std::string& path, size_t max_bytes);

// Replaces the file. Internal, with the system's reason, when not all of it could be written.
absl::Status WriteFile(const std::string& path, const std::string& content);

}  // namespace heddle

#endif  // HEDDLE_BASE_FILES_H_
