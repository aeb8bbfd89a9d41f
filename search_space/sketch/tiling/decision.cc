#include "search_space/sketch/tiling/decision.h"

namespace heddle::search_space {

std::vector<int64_t> PowersUpTo(int64_t most, int64_t enough) {
  std::vector<int64_t> out = {1};
  while (out.back() * 2 <= most && out.back() < enough) out.push_back(out.back() * 2);
  return out;
}

int64_t WidestVector(int64_t run, DType type) {
  int64_t vector = ElementsOfAccess(type);
  while (run % vector != 0) vector /= 2;
  return vector;
}

int64_t Drawing::Weighted(std::initializer_list<std::pair<int64_t, int>> choices) const {
  int total = 0;
  for (const auto& c : choices) total += c.second;
  int at = std::uniform_int_distribution<int>(0, total - 1)(rng);
  for (const auto& c : choices) {
    if ((at -= c.second) < 0) return c.first;
  }
  return choices.begin()->first;
}

}  // namespace heddle::search_space
