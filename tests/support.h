// What every test program shares: where things are, and what to do where something is missing.
#ifndef HEDDLE_TESTS_SUPPORT_H_
#define HEDDLE_TESTS_SUPPORT_H_

#include <gtest/gtest.h>

#include <cstdlib>
#include <string>

namespace heddle::tests {

inline std::string EnvironmentOr(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

// The repository's root, for goldens and operator files.
inline std::string SourceDir() { return EnvironmentOr("HEDDLE_SOURCE_DIR", HEDDLE_SOURCE_DIR); }
// The `heddle` program.
inline std::string HeddleBinary() { return EnvironmentOr("HEDDLE_BINARY", HEDDLE_BINARY); }

// Whether $HEDDLE_REQUIRE, a comma-separated list such as "nvrtc,pocl", names `what`: CI sets it,
// so that tests which would be skipped for want of it fail.
inline bool Required(const std::string& what) {
  return ("," + EnvironmentOr("HEDDLE_REQUIRE", "") + ",").find("," + what + ",") !=
         std::string::npos;
}

}  // namespace heddle::tests

// Skips the test, saying why, unless `present`; fails it where $HEDDLE_REQUIRE names `what`.
//   HEDDLE_NEEDS("nvrtc", Nvrtc::Load().ok(), "libnvrtc.so was not found");
#define HEDDLE_NEEDS(what, present, why)                                               \
  if (!(present)) {                                                                    \
    if (heddle::tests::Required(what)) FAIL() << what << " is required here: " << why; \
    GTEST_SKIP() << "needs " << what << ": " << why;                                   \
  }                                                                                    \
  static_assert(true, "a semicolon follows")

#endif  // HEDDLE_TESTS_SUPPORT_H_
