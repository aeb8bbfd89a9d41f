// Reductions that are taken along with a sum whose terms depend on them (rolling_update).
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_ROLLING_REDUCTIONS_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_ROLLING_REDUCTIONS_H_

#include <functional>
#include <optional>
#include <vector>

#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// What a maximum begins with where exponents are relative to it, and a minimum: a number, relative
// to which infinite terms are exp(-infinity), which is 0.
Expr LeastNumber(Combiner combiner, DType type);
// `value`, a maximum or a minimum, where exponents are relative to it: not less, or not more, than
// that.
Expr Bounded(Combiner combiner, const Expr& value);

// What a tensor's element is computed of, in the program or the schedule that the tensor is in.
struct Definition {
  std::vector<Var> axes;
  Expr body;
  bool is_reduction = false;
};
// nullopt of an input.
using DefinitionOf = std::function<std::optional<Definition>(const Buffer*)>;

// With every term, of a maximum or a minimum that changes, is the factor for such a slope 1 or
// less? Of the first ones, which take the place of the lowest number, it is 0.
inline bool Shrinks(Combiner combiner, double slope) {
  return (combiner == Combiner::kMax && slope < 0) || (combiner == Combiner::kMin && slope > 0);
}

// As SlopeOf below, of the terms `term`: every one is exp(slope * m) times what does not depend on
// m, where m is the element of `running` that loads for which `is_own` holds read.
std::optional<double> SlopeIn(const Expr& term, const BufferRef& running,
                              const std::function<bool(const Expr& load)>& is_own,
                              const DefinitionOf& definition_of);

// Every term of `sum` is exp(slope * m) times what does not depend on m, where m is the value of
// `running` at the term's own row: of those that warps hold of both. So a sum for one m
// becomes that for another when it is multiplied by exp(slope * (other - m)). Conversions to types
// of fewer digits are looked through: they round what is multiplied as much as what is not. So are
// parts (search_space/ir/parts.h): those of a product are others, but their sum is as near to it.
// 0: no term depends on it. nullopt: one does in another way.
std::optional<double> SlopeOf(const Schedule& schedule, const ScheduledStage& sum,
                              const ScheduledStage& running);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_ANALYSIS_ROLLING_REDUCTIONS_H_
