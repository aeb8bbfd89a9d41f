#include "tuner/records/shape_distance.h"

#include <cmath>

namespace heddle::tuner {

double Distance(const std::map<std::string, int64_t>& a, const std::map<std::string, int64_t>& b) {
  // Parameters such as pad may be 0.
  const auto size = [](int64_t value) { return static_cast<double>(value) + 1; };
  double distance = 0;
  for (const auto& [name, value] : a) {
    const auto other = b.find(name);
    if (other == b.end()) return INFINITY;
    distance += std::abs(std::log2(size(value) / size(other->second)));
  }
  return distance;
}

}  // namespace heddle::tuner
