#include "measure/judge/timing.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <memory>
#include <utility>

#include "base/status.h"

namespace heddle::measure {
namespace {

// Launches in one batch: beyond this a graph costs more to build than it saves.
constexpr int kMaxLaunches = 1024;

// Takes samples of one program. A short program is executed several times in a batch; successive
// batches go on through the buffer sets, so that a small batch does not find its own buffers still
// in the cache.
class Sampler {
 public:
  Sampler(Device& device, const TimedProgram& timed, const TimingOptions& options)
      : device_(device), timed_(timed), options_(options) {
    SetLaunches(1);
  }

  // Chooses how many executions make a sample; the last attempt becomes the first sample.
  absl::Status Calibrate() {
    const double wanted = std::max(absl::ToDoubleSeconds(options_.sample),
                                   2 * device_.clock_resolution() / options_.resolution_share);
    while (true) {
      HEDDLE_RETURN_IF_ERROR(Sample());
      if (launches_ == 1 && options_.on_first_sample) options_.on_first_sample();
      const double seconds = samples_.back() * launches_;
      if (seconds >= wanted / 2 || launches_ >= kMaxLaunches) return absl::OkStatus();
      // A short run overestimates what one execution costs: approach in steps and look again.
      const double more = 1.1 * launches_ * wanted / std::max(seconds, device_.clock_resolution());
      SetLaunches(
          static_cast<int>(std::clamp<double>(std::ceil(more), launches_ + 1, kMaxLaunches)));
    }
  }

  absl::Status Sample() {
    std::unique_ptr<TimedBatch>& batch = batches_[next_];
    if (batch == nullptr) {
      const int first = static_cast<int>(next_ * launches_ % timed_.sets.size());
      HEDDLE_ASSIGN_OR_RETURN(prepared,
                              device_.PrepareBatch(*timed_.program, timed_.sets, first, launches_));
      batch = std::move(prepared);
    }
    HEDDLE_ASSIGN_OR_RETURN(seconds, batch->Run());
    next_ = (next_ + 1) % batches_.size();
    all_sets_ = all_sets_ || next_ == 0;
    spent_ += seconds;
    samples_.push_back(seconds / launches_);
    return absl::OkStatus();
  }

  bool Narrow() const { return NarrowInterval(options_.interval).Met(samples_); }
  // Device seconds since the last call.
  double TakeSpent() { return std::exchange(spent_, 0.0); }
  const std::vector<double>& samples() const { return samples_; }

  Timing Result() const {
    Timing timing;
    timing.interval = IntervalOfMedian(samples_);
    timing.samples = static_cast<int>(samples_.size());
    timing.noisy = !Narrow();
    timing.all_sets = all_sets_;
    return timing;
  }

 private:
  // Enough batches to touch every buffer set in turn; they are prepared when first used.
  void SetLaunches(int launches) {
    const int sets = static_cast<int>(timed_.sets.size());
    launches_ = launches > sets ? (launches + sets - 1) / sets * sets : launches;
    batches_.clear();
    batches_.resize(launches_ >= sets ? 1 : (sets + launches_ - 1) / launches_);
    next_ = 0;
    samples_.clear();
  }

  Device& device_;
  const TimedProgram& timed_;
  const TimingOptions& options_;
  int launches_ = 1;
  std::vector<std::unique_ptr<TimedBatch>> batches_;
  size_t next_ = 0;
  bool all_sets_ = false;
  double spent_ = 0;
  std::vector<double> samples_;
};

// The largest l for which 2 P(Binomial(n, 1/2) < l) is at most 5 %.
size_t Rank(size_t n) {
  double term = std::exp2(-static_cast<double>(n)), tail = 0;  // P(Binomial = l), P(Binomial < l)
  size_t l = 0;
  while (l < n / 2 && 2 * (tail + term) <= 0.05) {
    tail += term;
    term *= static_cast<double>(n - l) / static_cast<double>(l + 1);
    ++l;
  }
  return l;
}
constexpr size_t kFewest = 6;  // samples whose Rank is not 0

// What is served is looked at for longer than what is only searched: an interval that may end as
// soon as it looks narrow looks so too early where samples are alike, and the fewer there are, the
// less it is known how alike.
constexpr size_t kFewestRounds = 20;
constexpr double kShortestFinals = 0.1;  // seconds of device time

// How many successive samples tell as much as one independent sample: 1 + 2 x the sum of the
// autocorrelations of "above the median", up to where two neighbouring ones together are not
// positive any more (C. Geyer, Practical Markov chain Monte Carlo, Statistical Science 7, 1992).
double Repeats(const std::vector<double>& in_order, double median) {
  constexpr size_t kMostLags = 200;  // what is alike for longer is no noise
  const size_t n = in_order.size();
  std::vector<double> above(n);
  double variance = 0;
  for (size_t i = 0; i < n; ++i) {
    above[i] = in_order[i] > median ? 0.5 : in_order[i] == median ? 0 : -0.5;
    variance += above[i] * above[i];
  }
  if (variance == 0) return 1;
  const auto correlation = [&](size_t lag) {
    double sum = 0;
    for (size_t i = lag; i < n; ++i) sum += above[i] * above[i - lag];
    return sum / variance;
  };
  double sum = 0;
  for (size_t lag = 1; lag + 1 < n && lag < kMostLags; lag += 2) {
    const double pair = correlation(lag) + correlation(lag + 1);
    if (pair <= 0) break;
    sum += pair;
  }
  return 1 + 2 * sum;
}

}  // namespace

MedianInterval IntervalOfMedian(const std::vector<double>& in_order) {
  MedianInterval result;
  if (in_order.empty()) return result;
  std::vector<double> samples = in_order;
  std::sort(samples.begin(), samples.end());
  const size_t n = samples.size();
  result.median = (samples[(n - 1) / 2] + samples[n / 2]) / 2;
  const double repeats = Repeats(in_order, result.median);
  const auto independent = static_cast<size_t>(static_cast<double>(n) / repeats);
  size_t l = Rank(independent);
  if (independent < n) l = static_cast<size_t>(static_cast<double>(l) * repeats);
  result.exact = independent >= kFewest;
  result.low = samples[l > 0 ? l - 1 : 0];
  result.high = samples[n - (l > 0 ? l : 1)];
  return result;
}

bool NarrowInterval::Met(const std::vector<double>& samples) const {
  MedianInterval interval = IntervalOfMedian(samples);
  return interval.exact && interval.high - interval.low < width_ * interval.median;
}

absl::StatusOr<Timing> TimeProgram(Device& device, const TimedProgram& program,
                                   const TimingOptions& options) {
  Sampler sampler(device, program, options);
  SpentBudget budget(options.budget);
  HEDDLE_RETURN_IF_ERROR(sampler.Calibrate());
  if (options.best_s > 0 && sampler.samples()[0] > options.best_s * options.screen_out_factor) {
    Timing timing = sampler.Result();
    timing.screened_out = true;
    return timing;
  }
  // Once the interval was narrow enough that is settled: it may widen again with more samples.
  bool narrow = false;
  double spare_s = 0;
  while (true) {
    const double seconds = sampler.TakeSpent();
    budget.Spend(seconds);
    if (narrow) spare_s += seconds;
    narrow = narrow || sampler.Narrow();
    if (budget.Met() || (narrow && !(options.idle && options.idle()))) break;
    HEDDLE_RETURN_IF_ERROR(sampler.Sample());
  }
  Timing timing = sampler.Result();
  timing.noisy = !narrow;
  timing.spare_s = spare_s;
  return timing;
}

absl::StatusOr<std::vector<Timing>> TimeInterleaved(Device& device,
                                                    const std::vector<TimedProgram>& programs,
                                                    const TimingOptions& options) {
  std::vector<Sampler> samplers;
  for (const TimedProgram& program : programs) samplers.emplace_back(device, program, options);
  SpentBudget budget(options.budget);
  for (size_t i = 0; i < samplers.size(); ++i) {
    if (programs[i].before) programs[i].before();
    HEDDLE_RETURN_IF_ERROR(samplers[i].Calibrate());
    if (programs[i].after) programs[i].after();
  }
  // Every round starts with another program, so that none always follows the same neighbour.
  double spent = 0;
  for (size_t round = 0; !samplers.empty() && !budget.Met(); ++round) {
    for (size_t i = 0; i < samplers.size(); ++i) {
      Sampler& sampler = samplers[(round + i) % samplers.size()];
      HEDDLE_RETURN_IF_ERROR(sampler.Sample());
      const double seconds = sampler.TakeSpent();
      budget.Spend(seconds);
      spent += seconds;
    }
    if (round + 1 < kFewestRounds || spent < kShortestFinals) continue;
    if (std::all_of(samplers.begin(), samplers.end(),
                    [](const Sampler& s) { return s.Narrow(); })) {
      break;
    }
  }
  std::vector<Timing> timings;
  for (const Sampler& sampler : samplers) timings.push_back(sampler.Result());
  return timings;
}

void SetTiming(const Timing& timing, TrialResult& result) {
  result.time_us = timing.interval.median * 1e6;
  result.ci_low_us = timing.interval.low * 1e6;
  result.ci_high_us = timing.interval.high * 1e6;
  result.samples = timing.samples;
  result.noisy = timing.noisy;
  result.screened_out = timing.screened_out;
}

int ChooseWinner(const std::vector<TrialResult>& finalists,
                 const std::vector<int64_t>& complexity) {
  auto usable = [&](size_t i) { return finalists[i].outcome == Outcome::kOk; };
  int fastest = -1;
  for (size_t i = 0; i < finalists.size(); ++i) {
    if (usable(i) && (fastest < 0 || finalists[i].time_us < finalists[fastest].time_us)) {
      fastest = static_cast<int>(i);
    }
  }
  int winner = fastest;
  for (size_t i = 0; i < finalists.size(); ++i) {
    if (!usable(i) || finalists[i].ci_low_us > finalists[fastest].ci_high_us) continue;
    if (finalists[i].time_us > finalists[fastest].time_us * (1 + kTieMargin)) continue;
    auto rank = [&](size_t k) { return std::make_pair(complexity[k], finalists[k].time_us); };
    if (rank(i) < rank(winner)) winner = static_cast<int>(i);
  }
  return winner;
}

int BufferSetCount(L2Policy policy, int64_t bytes_per_set, int64_t cache_bytes,
                   int64_t free_bytes) {
  if (policy == L2Policy::kWarm) return 1;
  const int64_t per_set = std::max<int64_t>(bytes_per_set, 1);
  const int64_t wanted = std::max<int64_t>(2, 2 * cache_bytes / per_set + 1);
  const int64_t fitting = std::max<int64_t>(1, free_bytes / per_set);
  return static_cast<int>(std::min({wanted, fitting, int64_t{kMaxBufferSets}}));
}

}  // namespace heddle::measure
