// What elements of outputs need of a program's stages, and what that takes.
#ifndef HEDDLE_SEARCH_SPACE_REFERENCE_NEEDED_H_
#define HEDDLE_SEARCH_SPACE_REFERENCE_NEEDED_H_

#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <vector>

#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// Points that are evaluated of an output at least.
inline constexpr size_t kFewestPoints = 16;
// Operations of a point for which it is looked whether whole stages are worth it.
inline constexpr double kWorthStages = 0x1p24;

// What an element of an output takes where each element that it needs is computed once; or all
// elements that differ along some of its axes, a bit mask, together.
class Need {
 public:
  Need(const TensorProgram& program, const Stage& output, uint32_t along = 0);

  double operations() const { return operations_; }
  double operations_of_a_point() const { return operations_ / points_; }
  double remembered() const { return remembered_; }
  double elements(size_t stage) const { return elements_[stage]; }

 private:
  // Of an axis, so many. Those of one origin, an axis of the output or of a reduction, are the same
  // whoever reads them; others may read other places.
  struct Places {
    double count;
    const Variable* origin;
  };
  // Elements that a load reads in all, at most.
  double Of(const Expr& load, const Stage& read);
  Places PlacesOf(const Variable* axis) const;

  std::map<const Variable*, Places> places_;  // along axes of stages
  std::vector<double> elements_;              // of stages
  double points_ = 1, operations_ = 0, remembered_ = 0;
};

// The stages that are computed whole for a few elements of an output, where these take long: where
// they take about as long as all of what lies between them and the inputs, or would forget on the
// way what they need again. Of those the ones of which all elements are needed, and those that take
// no longer than what one element of the output needs, since each term is looked at once.
std::set<int> NeededWhole(const TensorProgram& program, const Need& need);

// The stages whose terms name their places, of which a look at each term takes no longer than what
// `count` elements of an output need of them.
std::set<int> WorthOnePass(const TensorProgram& program, const Need& need, int64_t count);

// How many elements of inputs are read where all of `stages` are computed first, and then sixteen
// points of each output that takes long.
std::vector<double> ReadsOf(const TensorProgram& program, const std::set<int>& stages,
                            const std::vector<Need>& needs);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_REFERENCE_NEEDED_H_
