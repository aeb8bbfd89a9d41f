#include "tests/support.h"

#include <cstdlib>

#include "absl/strings/numbers.h"

namespace heddle::tests {

std::string EnvironmentOr(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string SourceDir() { return EnvironmentOr("HEDDLE_SOURCE_DIR", HEDDLE_SOURCE_DIR); }

std::string HeddleBinary() { return EnvironmentOr("HEDDLE_BINARY", HEDDLE_BINARY); }

uint64_t Seed() {
  uint64_t seed = 0;
  EXPECT_TRUE(absl::SimpleAtoi(EnvironmentOr("HEDDLE_SEED", "1"), &seed))
      << "HEDDLE_SEED is a number from 0";
  return seed;
}

bool Required(const std::string& what) {
  return ("," + EnvironmentOr("HEDDLE_REQUIRE", "") + ",").find("," + what + ",") !=
         std::string::npos;
}

}  // namespace heddle::tests
