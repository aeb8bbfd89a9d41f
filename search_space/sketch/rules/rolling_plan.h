// What plans for a chain of products with statistics of rows between (rolling_chain.h) have in
// common, whichever instructions multiply: the first products, the scores, are made some columns at
// a time, and what the statistics of its rows are so far is taken along (rolling_update), so that
// no row of it is ever whole anywhere.
//
// Lanes hold the scores of an iteration as the instruction lays them out, turn them into weights
// where they lie, and multiply these with rows of the other operand: nothing of it goes through
// shared memory, where only tiles of the inputs are.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_RULES_ROLLING_PLAN_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_RULES_ROLLING_PLAN_H_

#include <memory>
#include <optional>
#include <random>
#include <utility>
#include <vector>

#include "search_space/schedule/copies/pipeline.h"
#include "search_space/sketch/kernels/rule.h"
#include "search_space/sketch/patterns/rolling_chain.h"

namespace heddle::search_space {

// What a choice makes of the chain.
struct RollingTile {
  MatrixInstruction root, scores;  // of the products
  int64_t groups = 1, tiles = 1;   // of warps or warpgroups, and of matrices of each, along rows
  int64_t terms = 16;              // columns of the scores that an iteration makes
  PipelineKind kind = PipelineKind::kAsyncCopy;
  int64_t buffers = 0;  // of copies; 0: none is under way
  int64_t min_blocks = 0;
  bool skips_masked = false, reversed = false;
  bool reads_ahead = false;    // what weights are made of besides scores, before these are there?
  bool holds_queries = false;  // do rows of the scores' first factor stay in registers?
  // The scores of whose keys the tile is the root's values', too, if one is (keys_are_values).
  std::optional<size_t> shared_keys;
  int64_t registers = 0, shared_bytes = 0;

  const FragmentLayout& layout() const { return ShapeOf(root).Layout(MatrixOperand::kD); }
  int64_t rows() const { return layout().rows * tiles * groups; }  // of a block
  int64_t threads() const { return layout().lanes() * groups; }
};

class RollingPlan : public KernelPlan {
 public:
  std::vector<uint8_t> Default() const override { return std::vector<uint8_t>(holes_.size(), 0); }
  absl::Status Check(HoleValues v) const override;
  double Waste(HoleValues v) const override;
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override;

 protected:
  explicit RollingPlan(RollingChain chain) : chain_(std::move(chain)) {}

  virtual RollingTile TileOf(HoleValues v) const = 0;
  // Makes of valid values others among which fast kernels are.
  virtual void Improve(std::mt19937_64& rng, std::vector<int64_t>& values) const = 0;
  // What masks leave out mostly is left out, and the blocks of the last rows, which have most to do
  // under most masks, such as causal ones, mostly come first.
  void DrawMask(std::mt19937_64& rng, int64_t& masked, int64_t& reversed) const;
  void Write(ScheduleWriter& w, HoleValues values) const override;

  // Whose parts are written by their instruction.
  struct Root {
    LoopRef thread;      // of the result
    LoopRef iterations;  // of the sum, over parts of its terms
  };
  // A sum's loops, `outer` those of its terms around the `k` of a matrix, and inside of these those
  // over `parts` of the weights. Returns the loop in which matrices of its values are read.
  virtual LoopRef WriteRootProduct(ScheduleWriter& w, const RollingTile& t, const LoopList& outer,
                                   const LoopList& parts, const LoopRef& k) const = 0;
  // Tiles of what sums read, the one of the scores' rows outside of the iterations, the others in
  // them; and where instructions take matrices of a tile from registers, these, at the loop `at`.
  virtual void WriteValues(ScheduleWriter& w, const RollingTile& t, const Root& root,
                           const StageRef& values) const = 0;
  virtual void ReadValues(ScheduleWriter& /*w*/, const StageRef& /*values*/,
                          const LoopRef& /*at*/) const {}
  virtual void WriteScores(ScheduleWriter& w, const RollingTile& t, const Root& root,
                           const ScoreProduct& scores, const StageRef& queries,
                           const StageRef& keys) const = 0;

  // The root's operands, by the axes that they bring to the result.
  const TiledKernel& Kernel() const { return chain_.root.kernel; }
  size_t RowAxis() const { return chain_.root.factors[chain_.weights_number].own; }
  size_t ColumnAxis() const { return chain_.values().own; }
  int64_t Columns() const { return Kernel().axes[ColumnAxis()].extent; }
  int64_t Terms() const { return chain_.root.Depth(); }
  static const ScheduledStage& Stage(const ScheduleWriter& w, const StageRef& stage) {
    const Schedule& schedule = w.schedule();
    return schedule.stage(schedule.FindStage(stage.tensor.get()));
  }
  // Has the threads of a block hold the scores of an iteration, and elements of `beside` with them.
  void HoldScores(ScheduleWriter& w, const RollingTile& t, const Root& root,
                  const ScoreProduct& scores) const;
  void HoldBeside(ScheduleWriter& w, const RollingTile& t, const Root& root) const;

  const RollingChain chain_;

 private:
  int64_t Blocks(const RollingTile& t) const;
  // Results that blocks running at once may be of: all, or a divisor of them where the last-level
  // cache has no room for the keys and values of all.
  int64_t ResultsAtOnce(int64_t results) const;
  // Puts the loops of blocks in an order in which so many results are made at once.
  static LoopList OrderBlocks(ScheduleWriter& w, const RollingTile& t, const LoopList& results,
                              const LoopRef& rows, int64_t at_once);
  LoopRef WriteResult(ScheduleWriter& w, const RollingTile& t) const;
  void WriteWeights(ScheduleWriter& w, const RollingTile& t, const Root& root) const;
  void WriteStatistic(ScheduleWriter& w, size_t number, const RollingTile& t,
                      const Root& root) const;
};

// Makes such plans. Whether the statistics can be taken along is found out by writing the simplest
// schedule.
template <typename Plan>
std::unique_ptr<KernelPlan> PlanRolling(const ProgramShape& shape, const KernelShape& kernel,
                                        const Target& target) {
  auto chain = FindRollingChain(shape, kernel, target, Plan::kInWarpgroups);
  if (!chain.has_value()) return nullptr;
  auto plan = std::make_unique<Plan>(*std::move(chain));
  if (!plan->IsWritable(shape.schedule)) return nullptr;
  return plan;
}

// The rule of that.
template <typename Plan>
constexpr SketchRule RollingRule(const char* name) {
  return {.name = name,
          .apply = PlanRolling<Plan>,
          .takes_fused_kernels = true,
          .multiplies_matrices = true};
}

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_RULES_ROLLING_PLAN_H_
