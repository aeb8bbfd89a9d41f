// Sketches of a program divided among kernels in other ways.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_PARTITIONS_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_PARTITIONS_H_

#include <memory>
#include <vector>

#include "absl/functional/function_ref.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/programs/algorithms.h"
#include "search_space/sketch/programs/partition.h"
#include "search_space/sketch/programs/plans.h"
#include "search_space/sketch/programs/sketch.h"

namespace heddle::search_space {

// Which partitions of a program, with these plans, are wanted.
using IsWanted = absl::FunctionRef<bool(const Partitioned&, const std::vector<Plans>&)>;

inline constexpr auto kAnyPartition = [](const Partitioned&, const std::vector<Plans>&) {
  return true;
};

// Adds those of the program divided among kernels in other ways, from `starts` on, the definition
// first. The best by the estimate is drawn more often, and with its tensors packed, too, where the
// definition has no products of which these are.
void AddPartitions(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                   const std::vector<Partitioned>& starts, IsWanted is_wanted,
                   std::vector<Sketch>& sketches);

// Where the search for partitions starts: the definition, what is computed together and what is
// `parted`.
std::vector<Partitioned> StartsOf(const std::shared_ptr<const TensorProgram>& program,
                                  const std::shared_ptr<const ProgramShape>& definition,
                                  const std::vector<Partitioned>& parted);

// Adds those of the program behind the steps that pad its sums (pad_terms.h) that have a chain on
// units for matrices: what else reads its result has kernels of its own.
void AddPaddedPartitions(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                         const Algorithm& algorithm, IsWanted is_wanted,
                         std::vector<Sketch>& sketches);

// Adds those with what elementwise stages compute anew for many elements (outline.h) stored.
void AddOutlined(const std::shared_ptr<const TensorProgram>& program, const Target& target,
                 const ProgramShape& definition, std::vector<Sketch>& sketches);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_FAMILIES_PARTITIONS_H_
