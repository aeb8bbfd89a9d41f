// The space of schedules of one workload on one target: sketches (schedules with holes) made by
// rules, and points (a sketch and one choice per hole). A point deterministically gives steps.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_SEARCH_SPACE_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_SEARCH_SPACE_H_

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "search_space/ir/stmt.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {

using Rng = std::mt19937_64;

struct Point {
  uint8_t sketch = 0;
  std::vector<uint8_t> choices;  // index into the hole's domain, one per hole of the sketch
  bool operator==(const Point&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Point& p) {
    return H::combine(std::move(h), p.sketch, p.choices);
  }
};

// The choices of a point for one of its kernels (two where the plan splits it). They alone make
// what that becomes, in every point that has them: `sketch` is the first one with that plan.
struct Part {
  uint8_t sketch = 0;
  uint16_t kernel = 0;
  std::vector<uint8_t> choices;
  bool operator==(const Part&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Part& p) {
    return H::combine(std::move(h), p.sketch, p.kernel, p.choices);
  }
};

class SearchSpace {
 public:
  // `program` is shared with the schedules made from it. FailedPrecondition when no rule yields a
  // valid point on `target`, with the reason.
  static absl::StatusOr<SearchSpace> Create(std::shared_ptr<const TensorProgram> program,
                                            const Target& target);

  int sketch_count() const;
  // Number of points before validity is considered.
  double point_count() const;

  // The simplest sensible schedule.
  Point Default() const;
  // A random point that satisfies the closed-form limits; nullopt when none was found in a bounded
  // number of attempts, or when there is none of these sketches: any, those of the kernels that are
  // found first, or those that divide the program among other ones (partition.h).
  enum class From : uint8_t { kAny, kFirst, kPartitions };
  std::optional<Point> Sample(Rng& rng, From from = From::kAny) const;
  // All points that satisfy the limits, in a fixed order; nullopt where there are more than `most`
  // to look at.
  std::optional<std::vector<Point>> Enumerate(double most) const;
  // Redraws one hole (or its group, where needed to stay valid). Never returns `point` itself.
  std::optional<Point> Mutate(const Point& point, Rng& rng) const;
  // Takes groups of holes (an axis, memory, pipeline) from either parent; parents of different
  // sketches give nullopt.
  std::optional<Point> Crossover(const Point& a, const Point& b, Rng& rng) const;
  // `point` with the choices of `part` for that kernel; nullopt where its sketch has another plan
  // there.
  std::optional<Point> Exchange(const Point& point, const Part& part) const;

  // Closed-form check against the target's limits, without lowering.
  absl::Status Check(const Point& point) const;
  // Where a step does not apply, it is the last one: LowerSteps says why.
  absl::StatusOr<std::vector<Step>> Steps(const Point& point) const;
  // What LowerSteps makes of them, applied once.
  absl::StatusOr<Program> Lower(const Point& point) const;
  // The parts of a point of this space, and one part's kernels: together, and but for the numbers
  // in their names, those of the point's steps.
  std::vector<Part> PartsOf(const Point& point) const;
  absl::StatusOr<Program> Lower(const Part& part) const;

  // "tile: threads=256 i.tile=8 ..."; Parse(Print(p)) == p. A hole that is not named has
  // the first value of its domain, so that points keep their meaning when a hole is added; unknown
  // names and values outside a domain are refused.
  std::string Print(const Point& point) const;
  absl::StatusOr<Point> Parse(const std::string& text) const;

  const TensorProgram& program() const;
  const Target& target() const;

  struct Impl;

 private:
  explicit SearchSpace(std::shared_ptr<const Impl> impl);
  std::shared_ptr<const Impl> impl_;
};

// The schedule without any decision beyond one thread per output element, every stage its own
// kernel: `heddle show --naive`, and the device-side reference of validation, which is why it adds
// up long sums in parts.
std::vector<Step> NaiveSteps(const TensorProgram& program);

// Applies steps and lowers: from text to kernels in one call. InvalidArgument names the step that
// does not apply and why.
absl::StatusOr<Program> LowerSteps(std::shared_ptr<const TensorProgram> program,
                                   const std::vector<Step>& steps);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_SEARCH_SPACE_H_
