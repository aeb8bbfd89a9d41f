// Index expressions evaluated over a fixed sample of a kernel's executions: what the addresses of
// a warp look like is seen by computing them, not by reasoning about them.
#ifndef HEDDLE_TUNER_MODEL_ANALYTIC_SAMPLED_EVAL_H_
#define HEDDLE_TUNER_MODEL_ANALYTIC_SAMPLED_EVAL_H_

#include <array>
#include <cstddef>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/node_hash_map.h"
#include "search_space/ir/expr/expr.h"

namespace heddle::tuner {

inline constexpr size_t kLanes = 32;       // threads that issue one instruction together
inline constexpr size_t kWarpSamples = 8;  // executions that are looked at
inline constexpr size_t kSamples = kLanes * kWarpSamples;

// One value per lane of every sampled warp, as doubles: exact for integers below 2^52. `width` says
// how many of them are stored: 1 when all are equal, kWarpSamples when each warp has one value,
// kSamples otherwise.
struct Sampled {
  size_t width = 1;
  std::array<double, kSamples> v;

  double at(size_t warp, size_t lane) const {
    return v[width == kSamples ? warp * kLanes + lane : width == 1 ? 0 : warp];
  }
  // Repeats values until there are `to` of them.
  void Widen(size_t to);
};

// All values between two bounds.
struct Range {
  double min = 0, max = 0;
};

// Values of the variables of one kernel: what they are in the samples, and between which bounds
// they lie at the moment. The samples are stratified: each variable takes one of its kWarpSamples
// values from each of as many equal parts of its extent, in an order of its own (a Latin hypercube:
// McKay, Beckman, Conover 1979). Conditions and booleans are 0 or 1.
class SampledVariables {
 public:
  // Each sample is a warp of the block; lanes past the block's end repeat its last thread.
  explicit SampledVariables(const search_space::Var& thread);
  // A block index or a loop variable; returns its slot. With `zero` it is 0 in all samples.
  int Bind(const search_space::Var& var, bool zero = false);
  // Another name for the variable of a slot.
  void BindTo(const search_space::Var& var, int slot) { index_[var.get()] = slot; }

  // Lanes that exist: 1 where the lane is a thread of the block.
  const Sampled& lanes() const { return lanes_; }

  void Evaluate(const search_space::Expr& e, Sampled& out) const;
  // The same, until the next call; kept where `e`, which must outlive this, stands in several
  // places.
  const Sampled& Values(const search_space::Expr& e);

  // Bounds. `Fix` leaves a variable one value, the middle of its extent.
  void SetRange(int slot, Range range) { slots_[static_cast<size_t>(slot)].range = range; }
  void Fix(int slot);
  void Relax(int slot);
  Range RangeOf(const search_space::Expr& e) const;
  int SlotOf(const search_space::Var& var) const { return index_.at(var.get()); }
  double ExtentOf(int slot) const { return slots_[static_cast<size_t>(slot)].extent; }

 private:
  struct Slot {
    double extent;
    Range range;
    std::array<double, kWarpSamples> values;  // of each warp; the first lane's of the thread index
  };
  Slot& NewSlot(const search_space::Var& var);
  void EvaluateIndex(const search_space::Expr& load, Sampled& out) const;

  std::vector<Slot> slots_;  // the thread index is the first
  absl::flat_hash_map<const search_space::Variable*, int> index_;
  Sampled lanes_;
  absl::node_hash_map<const search_space::ExprNode*, Sampled> kept_;
  Sampled latest_;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_ANALYTIC_SAMPLED_EVAL_H_
