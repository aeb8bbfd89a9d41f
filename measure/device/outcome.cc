#include "measure/device/outcome.h"

#include <iterator>

namespace heddle::measure {
namespace {

// In the order of the enumerators. Records carry the names, so that the order may change.
constexpr const char* kOutcomes[] = {
    "OK",           "BUILD_ERROR",    "BUILD_TIMEOUT", "RESOURCE_LIMIT",
    "LAUNCH_ERROR", "ILLEGAL_ACCESS", "RUN_TIMEOUT",   "WRONG_ANSWER",
    "IMPLAUSIBLE",  "WORKER_LOST"};
static_assert(std::size(kOutcomes) == static_cast<size_t>(Outcome::kWorkerLost) + 1);
constexpr const char* kPolicies[] = {"cold", "warm"};

template <typename Enum, size_t n>
std::optional<Enum> Parse(const char* const (&names)[n], const std::string& name) {
  for (size_t i = 0; i < n; ++i) {
    if (name == names[i]) return static_cast<Enum>(i);
  }
  return std::nullopt;
}

}  // namespace

const char* NameOf(Outcome outcome) { return kOutcomes[static_cast<size_t>(outcome)]; }
std::optional<Outcome> ParseOutcome(const std::string& name) {
  return Parse<Outcome>(kOutcomes, name);
}

const char* NameOf(L2Policy policy) { return kPolicies[static_cast<size_t>(policy)]; }
std::optional<L2Policy> ParseL2Policy(const std::string& name) {
  return Parse<L2Policy>(kPolicies, name);
}

}  // namespace heddle::measure
