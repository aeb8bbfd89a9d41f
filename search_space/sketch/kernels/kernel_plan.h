// How one kernel can be scheduled, with holes.
#ifndef HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNEL_PLAN_H_
#define HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNEL_PLAN_H_

#include <cstddef>
#include <cstdint>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
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

// A hole of a plan, for those who made it: its place among the plan's holes and their values.
struct HoleId {
  size_t index = 0;
  operator size_t() const { return index; }
};

// Elements of a tensor that the widest access, of 16 bytes, moves at once.
inline int64_t ElementsOfAccess(DType type) { return 16 / SizeOf(type); }

// Values of holes: `first`, twice that, four times, ... up to `last`.
inline std::vector<int64_t> Doubled(int64_t first, int64_t last) {
  std::vector<int64_t> values;
  for (int64_t value = first; value <= last; value *= 2) values.push_back(value);
  return values;
}
// Elements of accesses that do not cross the ends of rows of so many.
inline std::vector<int64_t> AccessWidths(int64_t row, DType type) {
  std::vector<int64_t> widths = {1};
  for (int64_t w = 2; w <= ElementsOfAccess(type) && row % w == 0; w *= 2) widths.push_back(w);
  return widths;
}
// 0 and, where there is something to choose, such as iterations that a mask may leave out, 1.
inline std::vector<int64_t> OnlyIf(bool possible) {
  return possible ? std::vector<int64_t>{0, 1} : std::vector<int64_t>{0};
}

// Of a thread that holds what it reads of rows: elements of one tensor and of all, and the rows of
// its block.
inline constexpr int64_t kMaxHeldElements = 64, kMaxHeldInAll = 128, kMaxRowsOfBlock = 32;
// Of what is added up.
inline constexpr int64_t kAccumulatorBytes = 4;
// Elements of a row that is long beside a vector: its last one may be cut off.
inline constexpr int64_t kLongBesideVector = 1024;

// A point that breaks a limit of the kernel that `root` is stored by.
inline absl::Status Refusal(const StageRef& root, absl::string_view why) {
  return absl::ResourceExhaustedError(absl::StrCat(root.name(), ": ", why));
}

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

  // A plan declares its holes where their ids are, in the order of a point's text.
  HoleId AddHole(std::string name, std::vector<int64_t> domain, int group) {
    holes_.push_back({std::move(name), std::move(domain), group});
    return {holes_.size() - 1};
  }

  std::vector<Hole> holes_;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SKETCH_KERNELS_KERNEL_PLAN_H_
