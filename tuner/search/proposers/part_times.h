// What each kernel of a program takes, told from the times of whole programs that have kernels in
// common.
#ifndef HEDDLE_TUNER_SEARCH_PROPOSERS_PART_TIMES_H_
#define HEDDLE_TUNER_SEARCH_PROPOSERS_PART_TIMES_H_

#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/types/span.h"
#include "search_space/sketch/search_space.h"

namespace heddle::tuner {

// A point, and what it takes by an estimate.
struct Composition {
  search_space::Point point;
  double time_us = 0;
};

// Kernels of a program run one after another, so that a program takes the sum of what its parts
// take. Parts are estimated by least squares with a prior (ridge regression): a part takes what a
// model guesses for it, times a factor that all parts of its plan share, until programs that differ
// in little else say otherwise.
class PartTimes {
 public:
  // A program of `parts` took `time_us`, known to a share `error` of itself. `guess_us` of a part
  // is that of its first program.
  void Add(absl::Span<const search_space::Part> parts, absl::Span<const double> guess_us,
           double time_us, double error);
  // Estimates all parts anew, from all programs.
  void Estimate();

  // Microseconds by the last estimate; nullopt for a part of no program.
  std::optional<double> Of(const search_space::Part& part) const;
  // Measured parts with the same plan as `part`, which need not be known itself, fastest first.
  std::vector<search_space::Part> WithPlanOf(const search_space::Part& part) const;
  // Points like `base` whose parts are some of the fastest that are known of their plans: up to
  // `most`, the fastest first. Parts of plans of which none is known stay as they are.
  std::vector<Composition> Compose(const search_space::SearchSpace& space,
                                   const search_space::Point& base, size_t most) const;

 private:
  struct Entry {
    search_space::Part part;
    size_t plan = 0;
    double guess_us = 0, time_us = 0;
    std::vector<size_t> programs;
  };
  struct ProgramTime {
    std::vector<size_t> parts;
    double time_us = 0, variance = 0;
  };
  using PlanKey = std::pair<uint8_t, uint16_t>;  // Part::sketch and Part::kernel

  double Sum(const ProgramTime& program) const;
  void FitFactors();
  void Sweep();

  std::vector<Entry> entries_;
  std::vector<ProgramTime> programs_;
  std::vector<double> factors_;  // of each plan: measured over guessed
  std::vector<std::vector<size_t>> parts_of_plan_;
  absl::flat_hash_map<search_space::Part, size_t> index_;
  absl::flat_hash_map<PlanKey, size_t> plans_;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_PROPOSERS_PART_TIMES_H_
