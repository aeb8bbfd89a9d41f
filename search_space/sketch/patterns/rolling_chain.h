// Chains of products of 16-bit matrices, a last one of what is made of one or two others, with
// statistics of rows between or without, such as attention and its gradients, which need no row of
// the first products as a whole (rules/rolling.cc).
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_ROLLING_CHAIN_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_ROLLING_CHAIN_H_

#include <optional>
#include <vector>

#include "search_space/sketch/matrix/matrix_kernel.h"
#include "search_space/sketch/patterns/chain.h"

namespace heddle::search_space {

// A tensor in memory of which every weight takes an element of its own besides its score, such as a
// bias, as statistics may.
struct BesideScores {
  BufferRef tensor;
  size_t row, term;  // its dimensions that the scores' rows and columns number
};

// A product of which weights are made.
struct ScoreProduct {
  MatrixKernel product;
  size_t queries_number = 0;  // its factor with the rows

  const Factor& queries() const { return product.factors[queries_number]; }
  const Factor& keys() const { return product.factors[1 - queries_number]; }
  const StageRef& sum() const { return product.kernel.reduction; }
};

struct RollingChain {
  std::vector<BufferRef> inlined;  // elementwise stages, results of all links among them
  // Products of the same rows and columns: one, or two as in the gradients of attention.
  std::vector<ScoreProduct> scores;
  MatrixKernel root;                   // the product of their weights
  std::vector<StageRef> statistics;    // reductions of rows of what the scores make, in their order
  std::vector<size_t> statistic_rows;  // the axis of rows of each
  StageRef weights;  // what the second product reads of the scores, a stage of its own
  // Axes of `weights`: of rows, and those that the root reduces over.
  size_t weights_row = 0, weights_term = 0;
  std::vector<BesideScores> beside;
  bool has_parts = false;  // are they parts of float32 numbers (split_operand.h)?
  bool is_masked = false;  // may iterations be left out (skip_masked)?

  // The scores whose keys are the root's values, too, elements of that tensor at axes in these of
  // its dimensions, as in the gradients of queries: one tile in shared memory may serve both.
  std::optional<size_t> keys_are_values;
  BufferRef values_tensor;
  std::vector<size_t> values_dims;

  // The root's factor that is no weights.
  const Factor& values() const { return root.factors[1 - weights_number]; }
  size_t weights_number = 0;
};

// nullopt unless `kernel`, in which nothing is inlined, is a chain (chain.h) of two or three
// products of which the last reads the others' rows, and statistics of these if any, and
// instructions of warps, or of warpgroups, multiply 16-bit numbers on `target`.
std::optional<RollingChain> FindRollingChain(const ProgramShape& shape, const KernelShape& kernel,
                                             const Target& target, bool in_warpgroups);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_PATTERNS_ROLLING_CHAIN_H_
