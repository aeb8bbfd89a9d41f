#include "tests/support.h"

#include <cstdlib>

namespace heddle::tests {

std::string EnvironmentOr(const char* name, const char* otherwise) {
  const char* value = std::getenv(name);
  return value != nullptr && *value != '\0' ? value : otherwise;
}

std::string SourceDir() { return EnvironmentOr("HEDDLE_SOURCE_DIR", HEDDLE_SOURCE_DIR); }

std::string HeddleBinary() { return EnvironmentOr("HEDDLE_BINARY", HEDDLE_BINARY); }

uint64_t Seed() { return std::strtoull(EnvironmentOr("HEDDLE_SEED", "1").c_str(), nullptr, 10); }

bool Required(const std::string& what) {
  return ("," + EnvironmentOr("HEDDLE_REQUIRE", "") + ",").find("," + what + ",") !=
         std::string::npos;
}

}  // namespace heddle::tests
