// How long a program takes, and how sure that is (docs/measurement.md). Written against Device, so
// that the statistics can be tested with a scripted clock.
#ifndef HEDDLE_MEASURE_JUDGE_TIMING_H_
#define HEDDLE_MEASURE_JUDGE_TIMING_H_

#include <cstdint>
#include <functional>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "measure/device/device.h"
#include "measure/device/outcome.h"

namespace heddle::measure {

// A confidence interval of the median from order statistics: distribution-free and exact. Of n
// sorted samples, the interval from the l-th smallest to the l-th largest misses the median with
// probability 2 P(Binomial(n, 1/2) < l); l is the largest for which that is at most 5 %. Source:
// J.-Y. Le Boudec, Performance Evaluation of Computer and Communication Systems (2010), theorem
// 2.1. Below 6 samples no interval reaches 95 %: `low` and `high` are then the extremes and `exact`
// is false.
// Samples that follow each other are not independent where others use the device: a visitor slows
// down many of them. n is divided by how many samples tell as much as one independent one, which is
// estimated from their autocorrelation (C. Geyer, Practical Markov chain Monte Carlo, Statistical
// Science 7, 1992); where fewer than 6 are left, `exact` is false, too.
struct MedianInterval {
  double median = 0, low = 0, high = 0;
  bool exact = false;
};
// `samples` in the order in which they were taken.
MedianInterval IntervalOfMedian(const std::vector<double>& samples);

// Met when the whole interval of the median is narrower than `width` x the median.
class NarrowInterval {
 public:
  explicit NarrowInterval(double width) : width_(width) {}
  bool Met(const std::vector<double>& samples) const;

 private:
  double width_;
};

// Met when the seconds spent on samples reach the budget.
class SpentBudget {
 public:
  explicit SpentBudget(absl::Duration budget) : left_(absl::ToDoubleSeconds(budget)) {}
  void Spend(double seconds) { left_ -= seconds; }
  bool Met() const { return left_ <= 0; }

 private:
  double left_;
};

struct TimingOptions {
  absl::Duration budget = absl::Milliseconds(120);  // device time of the samples
  double interval = 0.01;                           // wanted width of the interval / median
  double resolution_share = 0.01;                   // of the clock, in one sample
  // A sample is at least this long, so that what surrounds a batch does not count.
  absl::Duration sample = absl::Microseconds(500);
  // Screening: dropped after the first sample when slower than best_s x screen_out_factor.
  double best_s = 0;  // 0 = none yet
  double screen_out_factor = 3;
  // Asked by TimeProgram when the interval is narrow enough: while it says that the device has
  // nothing else to do, samples go on.
  std::function<bool()> idle;
  // Called by TimeProgram after the first batch, which shows that the program returns.
  std::function<void()> on_first_sample;
};

// Seconds per execution.
struct Timing {
  MedianInterval interval;
  int samples = 0;
  bool noisy = false;     // the budget ended before the interval was narrow enough once
  double spare_s = 0;     // device time of the samples after it was (TimingOptions::idle)
  bool all_sets = false;  // every buffer set had its turn
  bool screened_out = false;
};

// Something to time: execution i works on sets[i % sets.size()].
struct TimedProgram {
  LoadedProgram* program;
  std::vector<BufferSet> sets;
  // Called by TimeInterleaved before and after the executions that choose the batch, during which
  // no other program runs.
  std::function<void()> before = nullptr, after = nullptr;
};

absl::StatusOr<Timing> TimeProgram(Device& device, const TimedProgram& program,
                                   const TimingOptions& options);

// Times all programs in turns, sample by sample, so that drifting clocks and visitors hit all
// alike: at least 20 samples of each, over at least 100 ms of device time, before narrow intervals
// end it. The budget is for all together; `best_s` is not used.
absl::StatusOr<std::vector<Timing>> TimeInterleaved(Device& device,
                                                    const std::vector<TimedProgram>& programs,
                                                    const TimingOptions& options);

// Copies `timing` into the fields of `result`.
void SetTiming(const Timing& timing, TrialResult& result);

// Slower than the fastest by more than this share is no tie, however wide the interval: drifting
// clocks widen that, but hit finalists alike. Medians of one kernel that was timed twice among the
// finalists were nearer than this to one another in 47 of 49 cases (docs/measurement.md).
inline constexpr double kTieMargin = 0.01;

// The index of the winner among finalists timed interleaved: of those within kTieMargin whose
// interval overlaps that of the smallest median, the simplest (smallest complexity), then the
// smallest median. -1 when no result is OK.
int ChooseWinner(const std::vector<TrialResult>& finalists, const std::vector<int64_t>& complexity);

// How many buffer sets to rotate. Cold: together more than twice the last-level cache, at least 2,
// at most kMaxBufferSets and what fits into `free_bytes`. Warm: 1.
inline constexpr int kMaxBufferSets = 256;
int BufferSetCount(L2Policy policy, int64_t bytes_per_set, int64_t cache_bytes, int64_t free_bytes);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_JUDGE_TIMING_H_
