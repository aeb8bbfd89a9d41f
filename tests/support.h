// What every test program shares: where things are, and what to do where something is missing.
#ifndef HEDDLE_TESTS_SUPPORT_H_
#define HEDDLE_TESTS_SUPPORT_H_

#include <gtest/gtest.h>

#include <cstdint>
#include <string>

namespace heddle::tests {

std::string EnvironmentOr(const char* name, const char* otherwise);

// The repository's root, for goldens and operator files.
std::string SourceDir();
// The `heddle` program.
std::string HeddleBinary();

// $HEDDLE_SEED, or 1: which part of a long test its short one does.
uint64_t Seed();

// Built with AddressSanitizer or ThreadSanitizer (presets asan and tsan, by gcc): code takes
// several times as long, what was freed stays resident, and no limit of memory is set.
#ifdef HEDDLE_SANITIZED
inline constexpr bool kSanitized = true;
#else
inline constexpr bool kSanitized = false;
#endif

// Whether $HEDDLE_REQUIRE, a comma-separated list such as "nvrtc,pocl", names `what`: CI sets it,
// so that tests which would be skipped for want of it fail.
bool Required(const std::string& what);

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
