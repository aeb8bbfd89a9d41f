#include "measure/judge/timing.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <set>

namespace heddle::measure {
namespace {

class Nothing : public LoadedProgram {};

// A device that has a clock and nothing else. `clock(program, first, launches)` gives the seconds
// of one run of a batch.
class ClockDevice : public Device {
 public:
  using Clock = std::function<double(const LoadedProgram*, int first, int launches)>;
  explicit ClockDevice(Clock clock) : clock_(std::move(clock)) {}

  absl::StatusOr<std::unique_ptr<TimedBatch>> PrepareBatch(LoadedProgram& program,
                                                           const std::vector<BufferSet>& sets,
                                                           int first, int launches) override {
    struct Batch : TimedBatch {
      absl::StatusOr<double> Run() override {
        device->runs.push_back(program);
        for (int i = 0; i < launches; ++i) device->visited.push_back((first + i) % sets);
        return device->clock_(program, first, launches);
      }
      ClockDevice* device;
      const LoadedProgram* program;
      int first, launches, sets;
    };
    auto batch = std::make_unique<Batch>();
    batch->device = this;
    batch->program = &program;
    batch->first = first;
    batch->launches = launches;
    batch->sets = static_cast<int>(sets.size());
    return batch;
  }

  double clock_resolution() const override { return resolution; }

  const DeviceInfo& info() const override { return info_; }
  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(const std::vector<KernelBinary>&) override {
    return None();
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t) override { return None(); }
  absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(int64_t) override { return None(); }
  absl::StatusOr<int64_t> FreeMemory() override { return None(); }
  absl::Status Upload(DeviceBuffer&, const void*, int64_t) override { return None(); }
  absl::Status Download(const DeviceBuffer&, void*, int64_t) override { return None(); }
  absl::Status Copy(const DeviceBuffer&, DeviceBuffer&) override { return None(); }
  absl::StatusOr<Difference> Compare(const DeviceBuffer&, const DeviceBuffer&, int64_t, double,
                                     search_space::DType) override {
    return None();
  }
  absl::Status Fill(DeviceBuffer&, uint32_t) override { return None(); }
  absl::StatusOr<bool> GuardsIntact(const DeviceBuffer&) override { return None(); }
  absl::Status RestoreGuards(DeviceBuffer&) override { return None(); }
  absl::Status FillShared(uint32_t) override { return None(); }
  absl::Status Run(LoadedProgram&, const BufferSet&) override { return None(); }
  DeviceState State() override { return {}; }

  double resolution = 1e-7;
  std::vector<const LoadedProgram*> runs;
  std::vector<int> visited;  // buffer sets, in order of execution

 private:
  static absl::Status None() { return absl::UnimplementedError("only a clock"); }
  Clock clock_;
  DeviceInfo info_;
};

TEST(IntervalOfMedian, HasTheRanksOfTheBinomialDistribution) {
  // Ranks of the 95 % interval: Le Boudec 2010, appendix A, table for the median.
  const std::vector<std::pair<int, int>> rank_of = {{6, 1},  {8, 1},   {9, 2},   {12, 3},
                                                    {20, 6}, {30, 10}, {50, 18}, {70, 27}};
  for (auto [n, rank] : rank_of) {
    std::vector<double> samples(n);
    for (int i = 0; i < n; ++i) samples[i] = i + 1;
    for (int i = 1; i < n / 2; i += 2) std::swap(samples[i], samples[n - 1 - i]);  // no trend
    MedianInterval interval = IntervalOfMedian(samples);
    EXPECT_TRUE(interval.exact);
    EXPECT_EQ(interval.median, (n + 1) / 2.0) << n;
    EXPECT_EQ(interval.low, rank) << n;
    EXPECT_EQ(interval.high, n + 1 - rank) << n;
  }
}

TEST(IntervalOfMedian, FiveSamplesAreNotEnough) {
  MedianInterval interval = IntervalOfMedian({5, 1, 4, 2, 3});
  EXPECT_FALSE(interval.exact);
  EXPECT_EQ(interval.median, 3);
  EXPECT_EQ(interval.low, 1);
  EXPECT_EQ(interval.high, 5);
  EXPECT_FALSE(NarrowInterval(10).Met({1, 1, 1, 1, 1}));
  EXPECT_TRUE(NarrowInterval(0.01).Met({1, 1, 1, 1, 1, 1}));
}

TEST(IntervalOfMedian, CoversTheTrueMedianAsOftenAsItSays) {
  std::mt19937 random(7);
  std::lognormal_distribution<double> skewed(0, 1);  // its median is 1
  int covered = 0;
  constexpr int kTrials = 4000;
  for (int trial = 0; trial < kTrials; ++trial) {
    std::vector<double> samples(25);
    for (double& sample : samples) sample = skewed(random);
    MedianInterval interval = IntervalOfMedian(samples);
    covered += interval.low <= 1 && 1 <= interval.high;
  }
  // 95.7 % for ranks 8 and 18 of 25.
  EXPECT_GT(covered, 0.94 * kTrials);
  EXPECT_LT(covered, 0.975 * kTrials);
}

TEST(IntervalOfMedian, IsWiderWhereSamplesFollowEachOther) {
  std::mt19937 random(11);
  std::normal_distribution<double> noise;
  constexpr int kTrials = 1000, kSamples = 240;
  const auto covered = [&](double memory) {
    int count = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      std::vector<double> samples(kSamples);
      double state = noise(random);
      for (double& sample : samples) {
        state = memory * state + std::sqrt(1 - memory * memory) * noise(random);
        sample = std::exp(state);  // its median is 1
      }
      const MedianInterval interval = IntervalOfMedian(samples);
      count += interval.low <= 1 && 1 <= interval.high;
    }
    return static_cast<double>(count) / kTrials;
  };
  EXPECT_GT(covered(0), 0.94);
  // As independent samples these would have covered it in 68 and 42 of 100 cases.
  EXPECT_GT(covered(0.7), 0.92);
  EXPECT_GT(covered(0.9), 0.9);
}

TEST(IntervalOfMedian, OneChangeOfSpeedShowsInTheInterval) {
  // A visitor leaves after half of the time.
  std::vector<double> samples(100, 64);
  std::fill(samples.begin() + 45, samples.end(), 38);
  for (size_t i = 0; i < samples.size(); ++i) samples[i] += 0.01 * static_cast<double>(i % 7);
  const MedianInterval interval = IntervalOfMedian(samples);
  EXPECT_LT(interval.low, 39);
  EXPECT_GT(interval.high, 64);
}

class TimingTest : public testing::Test {
 protected:
  TimedProgram Timed(int sets) { return {&program_, std::vector<BufferSet>(sets)}; }
  Nothing program_, other_;
  TimingOptions options_;
};

TEST_F(TimingTest, BatchesUntilTheClockIsFineEnough) {
  // 2 us a kernel, 8 us around a batch, a clock of 0.5 us.
  int largest = 0;
  ClockDevice device([&](auto*, int, int launches) {
    largest = std::max(largest, launches);
    return 8e-6 + launches * 2e-6;
  });
  device.resolution = 5e-7;
  auto timing = TimeProgram(device, Timed(1), options_);
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_NEAR(timing->interval.median, 2e-6, 0.1e-6);
  EXPECT_GE(largest * 2e-6, 100 * device.resolution);
  EXPECT_FALSE(timing->noisy);
  EXPECT_EQ(timing->samples, 6) << "a quiet clock needs no more than an interval does";
}

TEST_F(TimingTest, AnIdleDeviceTakesMoreSamplesWithinTheBudget) {
  ClockDevice device([](auto*, int, int launches) { return launches * 1e-3; });
  int asked = 0;
  options_.idle = [&] { return ++asked < 10; };
  auto timing = TimeProgram(device, Timed(1), options_);
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_EQ(timing->samples, 6 + 9);
  options_.idle = [] { return true; };
  timing = TimeProgram(device, Timed(1), options_);
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_EQ(timing->samples, 120) << "120 ms is the budget";
  EXPECT_FALSE(timing->noisy);
  options_.best_s = 1e-4;
  timing = TimeProgram(device, Timed(1), options_);
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_TRUE(timing->screened_out) << "nobody wants to know a slow one better";
}

// Speed changes once after the interval was narrow, which makes it wide again: that neither counts
// against the candidate nor holds up the next one.
TEST_F(TimingTest, SamplesBeyondWhatIsNeededDoNotMakeItNoisy) {
  int runs = 0;
  ClockDevice device(
      [&](auto*, int, int launches) { return launches * (++runs <= 30 ? 1e-3 : 1.3e-3); });
  options_.idle = [&] { return runs < 60; };
  auto timing = TimeProgram(device, Timed(1), options_);
  ASSERT_TRUE(timing.ok()) << timing.status();
  EXPECT_EQ(timing->samples, 60);
  EXPECT_GT(timing->interval.high, timing->interval.low * 1.2);
  EXPECT_FALSE(timing->noisy);
  EXPECT_NEAR(timing->spare_s, 24 * 1e-3 + 30 * 1.3e-3, 1e-9);
}

// The intervals as they are recorded, after as many samples as it took them to look narrow: the
// share that covers the median of the noise, of which neighbours correlate at `memory`.
class CoverageTest : public TimingTest {
 protected:
  static constexpr int kTrials = 300;
  using Procedure = std::function<absl::StatusOr<Timing>(Device&)>;

  double Covered(double memory, const Procedure& procedure) {
    std::mt19937 random(11);
    std::normal_distribution<double> noise;
    int covered = 0;
    for (int trial = 0; trial < kTrials; ++trial) {
      double state = noise(random);
      ClockDevice device([&](auto*, int, int launches) {
        state = memory * state + std::sqrt(1 - memory * memory) * noise(random);
        return launches * 5e-4 * std::exp(0.01 * state);  // its median is 5e-4
      });
      const auto timing = procedure(device);
      EXPECT_TRUE(timing.ok()) << timing.status();
      covered += timing->interval.low <= 5e-4 && 5e-4 <= timing->interval.high;
    }
    return static_cast<double>(covered) / kTrials;
  }
};

TEST_F(CoverageTest, FinalsCoverTheMedianAsOftenAsTheySay) {
  options_.budget = absl::Seconds(1);
  const auto finals = [&](Device& device) -> absl::StatusOr<Timing> {
    auto timings = TimeInterleaved(device, {Timed(1)}, options_);
    if (!timings.ok()) return timings.status();
    EXPECT_GE(timings->front().samples, 190) << "100 ms";
    return timings->front();
  };
  EXPECT_GT(Covered(0, finals), 0.93);
  EXPECT_GT(Covered(0.7, finals), 0.91);
  EXPECT_GT(Covered(0.9, finals), 0.87);
}

// Of several, each has fewer samples, further apart.
TEST_F(CoverageTest, FinalsOfManyCoverTheirMediansAsWell) {
  options_.budget = absl::Seconds(1);
  const std::vector<TimedProgram> nine(9, Timed(1));
  const auto finals = [&](Device& device) -> absl::StatusOr<Timing> {
    auto timings = TimeInterleaved(device, nine, options_);
    if (!timings.ok()) return timings.status();
    EXPECT_GE(timings->front().samples, 20);
    return timings->front();
  };
  EXPECT_GT(Covered(0, finals), 0.93);
  EXPECT_GT(Covered(0.7, finals), 0.91);
  EXPECT_GT(Covered(0.9, finals), 0.87);
}

// A search wants to know soon: docs/measurement.md says what that costs.
TEST_F(CoverageTest, TheFirstNarrowIntervalOfASearchCoversItLessOften) {
  const auto search = [&](Device& device) { return TimeProgram(device, Timed(1), options_); };
  EXPECT_GT(Covered(0, search), 0.88);
  EXPECT_GT(Covered(0.7, search), 0.65);
  EXPECT_GT(Covered(0.9, search), 0.35);
}

TEST_F(TimingTest, FinalsTakeTwentyRoundsOfAtLeastATenthOfASecond) {
  double kernel = 5e-4;
  ClockDevice device([&](auto*, int, int launches) { return launches * kernel; });
  options_.budget = absl::Seconds(10);
  auto timings = TimeInterleaved(device, {Timed(1)}, options_);
  ASSERT_TRUE(timings.ok()) << timings.status();
  EXPECT_NEAR((*timings)[0].samples, 200, 2);
  kernel = 20e-3;
  timings = TimeInterleaved(device, {Timed(1), Timed(1)}, options_);
  ASSERT_TRUE(timings.ok()) << timings.status();
  EXPECT_NEAR((*timings)[0].samples, 20, 1);
  EXPECT_FALSE((*timings)[0].noisy);
  options_.budget = absl::Milliseconds(100);
  timings = TimeInterleaved(device, {Timed(1), Timed(1)}, options_);
  ASSERT_TRUE(timings.ok()) << timings.status();
  EXPECT_LE((*timings)[0].samples, 4) << "the budget is the end in any case";
}

TEST_F(TimingTest, EveryBufferSetHasItsTurn) {
  for (double kernel : {1e-6, 40e-6, 2e-3}) {  // many rotations a batch, part of one, one launch
    ClockDevice device([&](auto*, int, int launches) { return launches * kernel; });
    auto timing = TimeProgram(device, Timed(10), options_);
    ASSERT_TRUE(timing.ok()) << timing.status();
    EXPECT_NEAR(timing->interval.median, kernel, 1e-9);
    EXPECT_EQ(timing->all_sets,
              std::set<int>(device.visited.begin(), device.visited.end()).size() == 10);
    // Nothing comes back before most of the others had their turn.
    std::vector<int> last(10, -1);
    const auto& visited = device.visited;
    for (int i = static_cast<int>(visited.size()) / 2; i < static_cast<int>(visited.size()); ++i) {
      int& before = last[visited[i]];
      if (before >= 0) {
        EXPECT_GE(i - before, 6) << kernel << " at " << i;
      }
      before = i;
    }
  }
}

TEST_F(TimingTest, NoiseTakesMoreSamplesAndThenIsAdmitted) {
  std::mt19937 random(1);
  double spread = 0.02;
  ClockDevice device([&](auto*, int, int launches) {
    return launches * 1e-5 * std::uniform_real_distribution<>(1 - spread, 1 + spread)(random);
  });
  auto timing = TimeProgram(device, Timed(1), options_);
  ASSERT_TRUE(timing.ok());
  EXPECT_FALSE(timing->noisy);
  EXPECT_GT(timing->samples, 6);
  EXPECT_LT(timing->interval.high - timing->interval.low, 0.01 * timing->interval.median);

  spread = 0.5;
  timing = TimeProgram(device, Timed(1), options_);
  ASSERT_TRUE(timing.ok());
  EXPECT_TRUE(timing->noisy);
  const double spent = timing->samples * 5e-4;
  EXPECT_LT(spent, 2 * absl::ToDoubleSeconds(options_.budget));
  EXPECT_GT(spent, 0.3 * absl::ToDoubleSeconds(options_.budget));
}

TEST_F(TimingTest, SlowCandidatesAreDroppedAfterOneSample) {
  double kernel = 31e-6;
  ClockDevice device([&](auto*, int, int launches) { return 9e-6 + launches * kernel; });
  options_.best_s = 10e-6;
  auto timing = TimeProgram(device, Timed(1), options_);
  ASSERT_TRUE(timing.ok());
  EXPECT_TRUE(timing->screened_out);
  EXPECT_EQ(timing->samples, 1);
  // Overhead around a batch does not drop a candidate that is fast enough: 24 us alone, 15 in a
  // batch.
  kernel = 15e-6;
  options_.screen_out_factor = 2;
  timing = TimeProgram(device, Timed(1), options_);
  ASSERT_TRUE(timing.ok());
  EXPECT_FALSE(timing->screened_out);
}

TEST_F(TimingTest, ErrorsOfTheDeviceAreReturned) {
  struct Failing : ClockDevice {
    Failing() : ClockDevice([](auto*, int, int) { return 1.0; }) {}
    absl::StatusOr<std::unique_ptr<TimedBatch>> PrepareBatch(LoadedProgram&,
                                                             const std::vector<BufferSet>&, int,
                                                             int) override {
      return absl::AbortedError("illegal access");
    }
  } device;
  absl::Status status = TimeProgram(device, Timed(1), options_).status();
  EXPECT_EQ(OutcomeOf(status), Outcome::kIllegalAccess);
  EXPECT_FALSE(TimeInterleaved(device, {Timed(1)}, options_).ok());
}

TEST_F(TimingTest, FinalistsTakeTurnsSoThatDriftHitsAll) {
  // The clock slows down by half while finals run; `other_` is 5 % slower than `program_`.
  int run = 0;
  ClockDevice device([&](const LoadedProgram* program, int, int launches) {
    const double drift = 1 + 0.5 * std::min(1.0, ++run / 400.0);
    return launches * 1e-4 * drift * (program == &other_ ? 1.05 : 1);
  });
  options_.budget = absl::Milliseconds(200);
  std::vector<TimedProgram> finalists = {{&program_, std::vector<BufferSet>(1)},
                                         {&other_, std::vector<BufferSet>(1)}};
  auto timings = TimeInterleaved(device, finalists, options_);
  ASSERT_TRUE(timings.ok()) << timings.status();
  EXPECT_NEAR((*timings)[1].interval.median / (*timings)[0].interval.median, 1.05, 0.01);
  EXPECT_LE(std::abs((*timings)[0].samples - (*timings)[1].samples), 1);
  const auto& runs = device.runs;
  const auto mine = std::count(runs.end() - 20, runs.end(), &program_);
  EXPECT_EQ(mine, 10);
}

TrialResult Finalist(double low, double median, double high, Outcome outcome = Outcome::kOk) {
  TrialResult result;
  result.outcome = outcome;
  result.ci_low_us = low;
  result.time_us = median;
  result.ci_high_us = high;
  return result;
}

TEST(ChooseWinner, GoesByIntervalAndThenBySimplicity) {
  EXPECT_EQ(ChooseWinner({Finalist(9, 10, 11), Finalist(4, 5, 6)}, {1, 9}), 1) << "clearly faster";
  EXPECT_EQ(ChooseWinner({Finalist(9, 10, 11), Finalist(10, 10.05, 12)}, {9, 1}), 1) << "simpler";
  EXPECT_EQ(ChooseWinner({Finalist(9, 10, 11), Finalist(10, 10.2, 12)}, {9, 1}), 0)
      << "drift is common to both";
  EXPECT_EQ(ChooseWinner({Finalist(9, 10, 11), Finalist(9, 9.95, 11)}, {3, 3}), 1) << "same";
  EXPECT_EQ(ChooseWinner({Finalist(1, 1, 1, Outcome::kWrongAnswer), Finalist(9, 10, 11)}, {1, 1}),
            1);
  EXPECT_EQ(ChooseWinner({Finalist(1, 1, 1, Outcome::kWrongAnswer)}, {1}), -1);
  EXPECT_EQ(ChooseWinner({}, {}), -1);
  EXPECT_EQ(ChooseWinner({Finalist(9, 10, 11), Finalist(9, 15, 20)}, {9, 1}), 0) << "only wide";
}

TEST(BufferSetCount, CoversTheCacheTwiceWithinItsLimits) {
  constexpr int64_t kMega = 1 << 20, kPlenty = int64_t{1} << 40;
  EXPECT_EQ(BufferSetCount(L2Policy::kWarm, kMega, 50 * kMega, kPlenty), 1);
  EXPECT_GT(BufferSetCount(L2Policy::kCold, kMega, 50 * kMega, kPlenty) * kMega, 100 * kMega);
  EXPECT_EQ(BufferSetCount(L2Policy::kCold, 500 * kMega, 50 * kMega, kPlenty), 2);
  EXPECT_EQ(BufferSetCount(L2Policy::kCold, 64, 50 * kMega, kPlenty), kMaxBufferSets);
  EXPECT_EQ(BufferSetCount(L2Policy::kCold, kMega, 50 * kMega, 20 * kMega), 20);
  EXPECT_EQ(BufferSetCount(L2Policy::kCold, kMega, 50 * kMega, 0), 1);
}

}  // namespace
}  // namespace heddle::measure
