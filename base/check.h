// An assertion that is always on, for what only a bug of ours can break: what a user or a device
// can cause is an absl::Status.
#ifndef HEDDLE_BASE_CHECK_H_
#define HEDDLE_BASE_CHECK_H_

#include <cstdio>
#include <cstdlib>
#include <string>

namespace heddle {

[[noreturn]] inline void CheckFailed(const char* file, int line, const std::string& message) {
  std::fprintf(stderr, "%s:%d: internal error: %s\n", file, line, message.c_str());
  std::abort();
}

}  // namespace heddle

// Ends the program with the place and `message`, which is evaluated only then, unless `condition`
// holds:  HEDDLE_CHECK(applied.ok(), std::string(applied.message()));
#define HEDDLE_CHECK(condition, message)                    \
  do {                                                      \
    if (!(condition)) [[unlikely]]                          \
      ::heddle::CheckFailed(__FILE__, __LINE__, (message)); \
  } while (false)

#endif  // HEDDLE_BASE_CHECK_H_
