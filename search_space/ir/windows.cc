#include "search_space/ir/windows.h"

#include <algorithm>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {

bool MovesAlong(const Expr& load, const Var& tap, const std::vector<Var>& data) {
  return std::any_of(load->args.begin(), load->args.end(), [&](const Expr& index) {
    const auto mentions = [&](const Var& v) { return MentionsAny(index, {v.get()}); };
    return mentions(tap) && std::any_of(data.begin(), data.end(), mentions);
  });
}

int64_t TapsOf(const Expr& body, const std::vector<Var>& data, const std::vector<Var>& terms) {
  const std::vector<Expr> loads = LoadsIn(body);
  int64_t taps = 1;
  for (const Var& term : terms) {
    const auto moves = [&](const Expr& load) { return MovesAlong(load, term, data); };
    if (term->extent <= kLongestWindow && std::any_of(loads.begin(), loads.end(), moves))
      taps *= term->extent;
  }
  return taps;
}

}  // namespace heddle::search_space
