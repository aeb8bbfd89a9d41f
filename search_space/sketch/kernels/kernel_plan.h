// How one kernel can be scheduled, with holes.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNEL_PLAN_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNEL_PLAN_H_

#include <cstdint>
#include <random>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/types/span.h"
#include "base/math.h"
#include "search_space/sketch/kernels/schedule_writer.h"

namespace heddle::search_space {

// A decision left open: one of a list of values. Holes of one group are redrawn and exchanged
// together, because their limits hang together.
struct Hole {
  std::string name;
  std::vector<int64_t> domain;  // first what kernels were like before there was the hole
  int group = 0;
};
using HoleValues = absl::Span<const int64_t>;

// Elements of a tensor that the widest access, of 16 bytes, moves at once.
inline int64_t ElementsOfAccess(DType type) { return 16 / SizeOf(type); }

class KernelPlan {
 public:
  virtual ~KernelPlan() = default;
  const std::vector<Hole>& holes() const { return holes_; }
  // The simplest sensible values, as indices into the domains.
  virtual std::vector<uint8_t> Default() const = 0;
  // Closed-form limits: threads, shared memory, registers, code size. ResourceExhausted names the
  // limit.
  virtual absl::Status Check(HoleValues values) const = 0;
  // Iterations that are executed over iterations that are needed; 1 = no padding.
  virtual double Waste(HoleValues values) const = 0;
  // Draws values that are likely to be valid; every valid choice can come up. Uniform unless a plan
  // knows better.
  virtual void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const {
    values.clear();
    for (const Hole& hole : holes_) {
      const size_t last = hole.domain.size() - 1;
      values.push_back(hole.domain[std::uniform_int_distribution<size_t>(0, last)(rng)]);
    }
  }
  // Has every hole a value, and applies each step of the schedule that the first ones make? For
  // plans that steps alone can tell from those that nothing comes of.
  bool IsWritable(const Schedule& schedule) const {
    std::vector<int64_t> values;
    for (const Hole& hole : holes_) {
      if (hole.domain.empty()) return false;
      values.push_back(hole.domain[0]);
    }
    ScheduleWriter w(schedule);
    return WriteTo(w, values).ok();
  }
  // Writes the kernel's schedule. InvalidArgument when a step does not apply.
  absl::Status WriteTo(ScheduleWriter& w, HoleValues values) const {
    return ScheduleWriter::Try([&] { Write(w, values); });
  }

 protected:
  virtual void Write(ScheduleWriter& w, HoleValues values) const = 0;

  std::vector<Hole> holes_;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNEL_PLAN_H_
