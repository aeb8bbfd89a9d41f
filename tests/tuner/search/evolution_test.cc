#include "tuner/search/proposers/evolution.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <set>
#include <sstream>
#include <tuple>

#include "absl/time/clock.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "tests/process.h"
#include "tests/support.h"
#include "tuner/model/family.h"
#include "tuner/search/proposers/experience.h"
#include "tuner/search/proposers/replay.h"
#include "tuner/search/proposers/screen.h"
#include "tuner/search/proposers/taught.h"

namespace heddle::tuner::evolution_test {
namespace {

using measure::Outcome;
using measure::TrialResult;
using search_space::Point;
using search_space::SearchSpace;

SearchSpace MakeSpace(const std::string& name, const std::map<std::string, int64_t>& shape) {
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), name);
  auto program = op->Instantiate(shape, search_space::DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  auto space =
      SearchSpace::Create(std::make_shared<const search_space::TensorProgram>(*std::move(program)),
                          *search_space::FindTarget("h100"));
  EXPECT_TRUE(space.ok()) << space.status();
  return *std::move(space);
}
SearchSpace Matmul(int64_t n) { return MakeSpace("matmul", {{"m", n}, {"n", n}, {"k", n}}); }

TrialResult Ok(double time_us) {
  TrialResult result;
  result.outcome = Outcome::kOk;
  result.time_us = result.ci_low_us = result.ci_high_us = time_us;
  return result;
}

bool Never(const Point&) { return false; }

// What a device would say that likes points close to a hidden one and nothing that a GPU likes.
TrialResult CloseTo(const Point& hidden, const Point& point) {
  if (point.sketch != hidden.sketch) return Ok(1000);
  double time = 10;
  for (size_t i = 0; i < point.choices.size(); ++i) {
    time *= 1 + 0.2 * std::abs(static_cast<int>(point.choices[i]) - hidden.choices[i]);
  }
  return Ok(time);
}

std::vector<Point> Search(Proposer& proposer, const std::function<TrialResult(const Point&)>& time,
                          size_t trials) {
  std::vector<Point> points;
  proposer.Begin();
  while (points.size() < trials) {
    auto some = proposer.Propose(4, Never);
    if (some.empty()) break;
    for (const Point& point : some) {
      proposer.Observe(point, time(point));
      points.push_back(point);
    }
  }
  return points;
}

double BestOf(const std::vector<Point>& points,
              const std::function<TrialResult(const Point&)>& time) {
  double best = INFINITY;
  for (const Point& point : points) best = std::min(best, time(point).time_us);
  return best;
}

TEST(EvolutionTest, TheSameTrialsGiveTheSameProposalsAndNoneTwice) {
  const SearchSpace space = Matmul(256);
  search_space::Rng rng(5);
  const Point hidden = *space.Sample(rng);
  auto time = [&](const Point& p) { return CloseTo(hidden, p); };
  std::vector<std::vector<Point>> runs;
  for (uint64_t seed : {1, 1, 2}) {
    EvolutionOptions options;
    options.seed = seed;
    options.threads = static_cast<int>(runs.size()) + 1;
    runs.push_back(Search(*MakeEvolutionProposer(space, options), time, 96));
    std::set<std::string> different;
    for (const Point& point : runs.back()) {
      EXPECT_TRUE(space.Check(point).ok());
      different.insert(space.Print(point));
    }
    EXPECT_EQ(different.size(), runs.back().size());
  }
  EXPECT_EQ(runs[0], runs[1]) << "whatever the number of threads";
  EXPECT_NE(runs[0], runs[2]);
}

TEST(EvolutionTest, CountsTheSecondsOfItsThread) {
  const SearchSpace space = Matmul(256);
  auto proposer = MakeEvolutionProposer(space, {});
  EXPECT_EQ(proposer->seconds(), 0);
  const absl::Time start = absl::Now();
  ASSERT_EQ(proposer->Propose(4, Never).size(), 4u);
  const double spent = proposer->seconds();
  EXPECT_GT(spent, 0);
  EXPECT_LE(spent, absl::ToDoubleSeconds(absl::Now() - start));
}

TEST(EvolutionTest, FindsWhatRandomPointsDoNot) {
  const SearchSpace space = Matmul(512);
  double ratio = 1;
  for (uint64_t seed = 1; seed <= 3; ++seed) {
    search_space::Rng rng(seed + 100);  // not what a search with that seed draws first
    const Point hidden = *space.Sample(rng);
    auto time = [&](const Point& p) { return CloseTo(hidden, p); };
    EvolutionOptions options;
    options.seed = seed;
    const double learnt = BestOf(Search(*MakeEvolutionProposer(space, options), time, 128), time);
    const double random = BestOf(Search(*MakeRandomProposer(space, seed), time, 128), time);
    ratio *= std::cbrt(random / learnt);
  }
  EXPECT_GT(ratio, 1.5);
}

// Sketch, blocks and threads, which say how a point shares its work out.
std::tuple<int, float, float> NicheOf(const Point& point, const FeatureVector& features) {
  return {point.sketch, features[static_cast<size_t>(FeatureIndex("blocks"))],
          features[static_cast<size_t>(FeatureIndex("threads"))]};
}

TEST(EvolutionTest, OneNicheDoesNotGetAllTrials) {
  // Whatever shares its work out like the analytically best point takes 10 us, all others 11: the
  // model learns that within a batch or two, and there is no further progress.
  const SearchSpace space = Matmul(2048);
  Screen screen(space, 2);
  search_space::Rng rng(11);
  std::vector<Point> some;
  while (some.size() < 200) some.push_back(*space.Sample(rng));
  const auto features = screen.Features(some);
  size_t best = 0;
  for (size_t i = 1; i < some.size(); ++i) {
    if (AnalyticTimeUs(*features[i]) < AnalyticTimeUs(*features[best])) best = i;
  }
  const auto favourite = NicheOf(some[best], *features[best]);
  auto is_favourite = [&](const Point& p) {
    return NicheOf(p, *screen.Features({&p, 1})[0]) == favourite;
  };
  EvolutionOptions options;
  options.parents = {some[best]};
  constexpr size_t kTrials = 192;
  const auto points = Search(
      *MakeEvolutionProposer(space, options),
      [&](const Point& p) { return Ok(is_favourite(p) ? 10 : 11); }, kTrials);
  ASSERT_EQ(points.size(), kTrials);
  // The later half: more than a niche's share, since it is the best, and far from all.
  const auto crowd = std::count_if(points.end() - kTrials / 2, points.end(), is_favourite);
  EXPECT_GT(crowd, 5);
  EXPECT_LT(crowd, 62);
}

TEST(EvolutionTest, KernelsThatWereFastestApartAreTriedTogether) {
  const auto op = search_space::ParseOperators(
      "op two(m, n, k) {\n  in A[m, k], B[k, n], C[n, k]\n"
      "  T[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]\n"
      "  out D[i: m, j: k] = sum(r: n) max(T[i, r], 0) * C[r, j]\n}\n");
  ASSERT_TRUE(op.ok()) << op.status();
  const auto program = std::make_shared<const search_space::TensorProgram>(*op->front().Instantiate(
      {{"m", 512}, {"n", 1024}, {"k", 512}}, search_space::DType::kFloat32));
  const SearchSpace space = *SearchSpace::Create(program, *search_space::FindTarget("h100"));
  Screen screen(space, 2);
  // The analytic time is wrong by a factor of each kernel.
  auto time_of = [&](const std::vector<search_space::Part>& parts) {
    double sum = 0;
    for (const double us : screen.TimesUs(parts)) sum += (sum == 0 ? 3 : 1) * us;
    return sum;
  };
  search_space::Rng rng(4);
  auto proposer = MakeEvolutionProposer(space, {});
  const uint8_t sketch = space.Sample(rng)->sketch;
  std::vector<Point> known;
  while (known.size() < 40) {
    const Point point = *space.Sample(rng);
    if (point.sketch == sketch) known.push_back(point);
  }
  ASSERT_GT(space.PartsOf(known[0]).size(), 1u);
  // Of each kernel the fastest, wherever it was.
  Point fastest = known[0];
  double best = INFINITY;
  for (const Point& point : known) {
    const auto parts = space.PartsOf(point);
    proposer->Observe(point, Ok(time_of(parts)));
    best = std::min(best, time_of(parts));
    const auto so_far = space.PartsOf(fastest);
    for (size_t k = 0; k < parts.size(); ++k) {
      if (screen.TimesUs({parts[k]})[0] < screen.TimesUs({so_far[k]})[0]) {
        fastest = *space.Exchange(fastest, parts[k]);
      }
    }
  }
  ASSERT_LT(time_of(space.PartsOf(fastest)), best) << "another seed is needed";
  const std::vector<Point> batch = proposer->Propose(16, Never);
  EXPECT_NE(std::find(batch.begin(), batch.end(), fastest), batch.end());
}

TEST(EvolutionTest, WhatWasTriedBeforeIsNotProposed) {
  const SearchSpace space = Matmul(256);
  auto first = MakeEvolutionProposer(space, {});
  const std::vector<Point> before = first->Propose(40, Never);
  ASSERT_EQ(before.size(), 40u);
  auto second = MakeEvolutionProposer(space, {});
  for (const Point& point : before) second->Observe(point, Ok(10));
  const std::vector<Point> after = second->Propose(40, Never);
  for (const Point& point : after) {
    EXPECT_EQ(std::count(before.begin(), before.end(), point), 0);
  }
  // Also where the session alone knows of it.
  auto third = MakeEvolutionProposer(space, {});
  const std::vector<Point> others = third->Propose(40, [&](const Point& point) {
    return std::find(before.begin(), before.end(), point) != before.end();
  });
  EXPECT_EQ(others.size(), 40u);
  for (const Point& point : others) {
    EXPECT_EQ(std::count(before.begin(), before.end(), point), 0);
  }
}

TEST(EvolutionTest, ASmallSpaceIsSearchedCompletely) {
  const SearchSpace space = MakeSpace("vector_add", {{"n", 64}});
  const auto points = Search(
      *MakeEvolutionProposer(space, {}), [](const Point&) { return Ok(5); }, 1 << 20);
  EXPECT_GT(points.size(), 10u);
  std::set<std::string> known, all;
  for (const Point& point : points) known.insert(space.Print(point));
  EXPECT_EQ(known.size(), points.size());
  const auto listed = space.Enumerate(space.point_count());
  for (const Point& point : *listed) all.insert(space.Print(point));
  EXPECT_EQ(known, all);
  EXPECT_EQ(space.Enumerate(space.point_count() - 1), std::nullopt);
  // So does a random search.
  std::set<std::string> drawn;
  auto random = MakeRandomProposer(space, 3);
  auto tried = [&](const Point& p) { return drawn.count(space.Print(p)) > 0; };
  for (auto some = random->Propose(4, tried); !some.empty(); some = random->Propose(4, tried)) {
    for (const Point& point : some) drawn.insert(space.Print(point));
  }
  EXPECT_EQ(drawn, all);
  // That there is nothing more is known without drawing for every member of a population.
  auto proposer = MakeEvolutionProposer(space, {});
  for (const Point& point : points) proposer->Observe(point, Ok(5));
  EXPECT_TRUE(proposer->Propose(1, Never).empty());
  EXPECT_LT(proposer->seconds(), 30);
}

// Limits that no closed form knows: here the few bytes through which warps share a row's result.
TEST(EvolutionTest, OnlyWhatCanBeBuiltIsProposed) {
  search_space::Target target = *search_space::FindTarget("h100");
  target.max_shared_bytes_per_block = 16;
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "softmax");
  const auto program = std::make_shared<const search_space::TensorProgram>(
      *op->Instantiate({{"m", 64}, {"n", 1024}}, search_space::DType::kFloat32));
  const SearchSpace space = *SearchSpace::Create(program, target);
  const auto is_valid = [&](const Point& point) {
    return search_space::Verify(*space.Lower(point), target).ok();
  };
  search_space::Rng rng(1);
  int invalid = 0;
  for (int i = 0; i < 64; ++i) invalid += is_valid(*space.Sample(rng)) ? 0 : 1;
  ASSERT_GT(invalid, 0);
  const auto points = Search(
      *MakeEvolutionProposer(space, {}), [](const Point&) { return Ok(5); }, 64);
  EXPECT_EQ(points.size(), 64u);
  for (const Point& point : points) EXPECT_TRUE(is_valid(point)) << space.Print(point);
}

TEST(EvolutionTest, AWorkloadThatOnlyFailsIsSearchedOn) {
  const SearchSpace space = Matmul(256);
  TrialResult failed;
  failed.outcome = Outcome::kWrongAnswer;
  EXPECT_EQ(Search(
                *MakeEvolutionProposer(space, {}), [&](const Point&) { return failed; }, 64)
                .size(),
            64u);
}

// ------------------------------------------------------------------------------ recorded trials

TEST(ChooseTaughtTest, TheNewestAndTheFastestTeach) {
  std::vector<TrialResult> results;
  std::vector<const TrialResult*> trials;
  for (int i = 0; i < 30000; ++i) results.push_back(Ok(1000 + i % 7000));
  results[5].outcome = Outcome::kWrongAnswer;
  results[5].time_us = 0;
  for (const TrialResult& result : results) trials.push_back(&result);
  const std::vector<size_t> taught = ChooseTaught(trials);
  EXPECT_EQ(taught.size(), kNewestTaught + kFastestTaught);
  EXPECT_TRUE(std::is_sorted(taught.begin(), taught.end()));
  const std::set<size_t> chosen(taught.begin(), taught.end());
  EXPECT_EQ(chosen.size(), taught.size());
  for (size_t i : {0, 7000, 14000, 21000, 29999, 28000}) EXPECT_TRUE(chosen.contains(i)) << i;
  EXPECT_FALSE(chosen.contains(5)) << "it has no time";
  EXPECT_FALSE(chosen.contains(6000)) << "it is old and slow";
  EXPECT_EQ(ChooseTaught(absl::MakeSpan(trials).subspan(0, 100)).size(), 100u);
}

// What bench/data/`file` has, up to kReplayed of its workloads. A set that today's space no longer
// has would make every test on it say nothing.
std::vector<Replay> Recorded(const std::string& file) {
  constexpr size_t kLeastWorkloads = 5, kReplayed = 10;
  const size_t least_points = file == "pocl_random.trials" ? 110 : 200;
  constexpr double kForeign = 0.02;  // share of points that may have become invalid
  const std::string path = tests::SourceDir() + "/bench/data/" + file;
  auto replays = ReadReplays({path});
  EXPECT_TRUE(replays.ok()) << replays.status();
  if (!replays.ok()) return {};
  std::vector<Replay> usable;
  for (Replay& replay : *replays) {
    const auto all = static_cast<double>(replay.points.size() + replay.foreign);
    EXPECT_LE(static_cast<double>(replay.foreign), kForeign * all)
        << replay.foreign << " of " << all << " recorded trials of " << replay.name
        << " are no points of today's search space: convert " << path
        << " to the new holes, or record it again with bench/record (docs/search.md)";
    if (replay.points.size() >= least_points && replay.best_us > 0) {
      usable.push_back(std::move(replay));
    }
  }
  EXPECT_GE(usable.size(), kLeastWorkloads)
      << path << " has too few workloads with " << least_points
      << " points of today's search space: record it again with bench/record (docs/search.md)";
  const size_t step = (usable.size() + kReplayed - 1) / kReplayed;
  std::vector<Replay> some;
  for (size_t i = 0; i < usable.size(); i += step) some.push_back(std::move(usable[i]));
  return some;
}

// Of a GPU, and of a processor through PoCL.
class ReplayTest : public testing::TestWithParam<std::string> {};
INSTANTIATE_TEST_SUITE_P(Devices, ReplayTest,
                         testing::Values("h100_random.trials", "pocl_random.trials"),
                         [](const auto& info) { return info.param.substr(0, 4); });

TEST_P(ReplayTest, LearningBeatsRandomAt64TrialsOnRecordedData) {
  const std::vector<Replay> replays = Recorded(GetParam());
  double random = 0, learnt = 0;
  constexpr int kSeeds = 3, kTrials = 64, kInFlight = 8;
  for (const Replay& replay : replays) {
    for (uint64_t seed = 1; seed <= kSeeds; ++seed) {
      EvolutionOptions options;
      options.seed = seed;
      options.only = replay.points;
      random += std::log(
          PlayBack(replay, *MakeShuffledProposer(replay, seed), kTrials, kInFlight).back());
      learnt += std::log(
          PlayBack(replay, *MakeEvolutionProposer(replay.space, options), kTrials, kInFlight)
              .back());
    }
  }
  // At least half of what random search leaves.
  EXPECT_LT(-learnt, -random / 2) << learnt << " " << random;
}

TEST_P(ReplayTest, PlayingBackNeverLeavesTheRecord) {
  const std::vector<Replay> replays = Recorded(GetParam());
  ASSERT_FALSE(replays.empty());
  const Replay& replay = replays[0];
  EvolutionOptions options;
  options.only = replay.points;
  const int all = static_cast<int>(replay.points.size());
  auto proposer = MakeEvolutionProposer(replay.space, options);
  const auto curve = PlayBack(replay, *proposer, all + 10, 20);
  EXPECT_EQ(curve.back(), 1);
  EXPECT_TRUE(proposer->Propose(1, Never).empty());
}

// What is in two files, or twice in one, is judged as once.
TEST(ReadReplaysTest, SetsOfOneWorkloadAreOne) {
  const SearchSpace space = Matmul(128);
  search_space::Rng rng(1);
  std::stringstream lines, set;
  tests::TempFolder folder;
  {
    auto records = *Records::Open(folder / "heddle.db");
    Environment environment;
    environment.device_name = "NVIDIA H100 80GB HBM3";
    environment.arch = "sm_90";
    for (int i = 0; i < 12; ++i) {
      TrialRecord trial;
      trial.point = space.Print(*space.Sample(rng));
      trial.result = Ok(10 + i);
      ASSERT_TRUE(records->AddTrial(space.program(), environment, trial).ok());
    }
    ASSERT_TRUE(records->Export(lines).ok());
  }
  ASSERT_TRUE(WriteTrialSets(lines, set).ok());
  const std::string once = folder / "once", other = folder / "other";
  std::ofstream(once) << set.str();
  std::ofstream(other) << set.str();
  auto first = ReadReplays({once}), both = ReadReplays({once, other, once});
  ASSERT_TRUE(first.ok() && both.ok()) << first.status() << both.status();
  ASSERT_EQ(first->size(), 1u);
  ASSERT_EQ(both->size(), 1u);
  EXPECT_EQ(first->front().points, both->front().points);
  EXPECT_EQ(ExamplesOf(first->front(), 0, 1).size(), ExamplesOf(both->front(), 0, 1).size());
  EXPECT_EQ(both->front().family, "2 reads, 2 free");
}

std::string FamilyOfBuiltin(const std::string& name, const std::string& shape) {
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), name);
  EXPECT_TRUE(op.ok()) << op.status();
  auto program = op->Instantiate(*search_space::ParseShape(shape), search_space::DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return FamilyOf(*program);
}

TEST(FamilyTest, IsHowReductionsAreBuiltWhateverTheName) {
  const std::string matmul = FamilyOfBuiltin("matmul", "m=64,n=32,k=16");
  for (const char* name : {"matmul_nt", "matmul_tn", "gemm_relu_add"}) {
    EXPECT_EQ(FamilyOfBuiltin(name, "m=64,n=32,k=16"), matmul) << name;
  }
  EXPECT_EQ(FamilyOfBuiltin("batch_matmul", "b=4,m=64,n=32,k=16"), matmul);
  const std::string image = "n=2,ci=8,h=12,w=12,co=16,kh=3,kw=3,pad=1";
  const std::string conv = FamilyOfBuiltin("conv2d", image);
  EXPECT_NE(conv, matmul);
  EXPECT_EQ(FamilyOfBuiltin("conv2d_bias_relu", image), conv);
  EXPECT_EQ(FamilyOfBuiltin("conv2d_nhwc", image), conv);
  EXPECT_EQ(FamilyOfBuiltin("conv2d", "n=2,ci=8,h=12,w=12,co=16,kh=1,kw=1"), matmul);
  const std::string depthwise = FamilyOfBuiltin("depthwise_conv2d", "n=2,c=8,h=12,w=12,kh=3,kw=3");
  EXPECT_NE(depthwise, conv);
  EXPECT_EQ(FamilyOfBuiltin("softmax", "m=8,n=64"), FamilyOfBuiltin("layer_norm", "m=8,n=64"));
  EXPECT_NE(FamilyOfBuiltin("softmax", "m=8,n=64"), FamilyOfBuiltin("window_sum", "n=64"));
  EXPECT_EQ(FamilyOfBuiltin("transpose", "m=8,n=64"), FamilyOfBuiltin("vector_add", "n=64"));
}

TEST(MakeReplayTest, PointsOfAnotherSpaceAreCounted) {
  const SearchSpace space = Matmul(128);
  search_space::Rng rng(1);
  TrialSet set;
  set.environment.arch = "sm_90";
  set.workload = space.program().canonical_text;
  const std::string point = space.Print(*space.Sample(rng));
  // One as it is, one of before its last hole, one with a hole that is gone, one of a sketch that
  // is.
  const std::string shorter = point.substr(0, point.rfind(' '));
  for (const std::string& text : {point, shorter, point + " gone=1", "gone: " + point}) {
    set.trials.push_back({text, Ok(10)});
  }
  auto replay = MakeReplay(set);
  ASSERT_TRUE(replay.ok()) << replay.status();
  EXPECT_EQ(replay->foreign, 2u);
}

// ------------------------------------------------------------------------------------ experience

class ExperienceTest : public testing::Test {
 protected:
  ExperienceTest() : records_(*Records::Open(folder_ / "heddle.db")) {
    environment_.device_name = "NVIDIA H100 80GB HBM3";
    environment_.arch = "sm_90";
  }
  // Random points of a workload and times that its features explain; the best also as a final.
  void Record(const SearchSpace& space, int count) {
    search_space::Rng rng(3);
    const Point hidden = *space.Sample(rng);
    TrialRecord best;
    for (int i = 0; i < count; ++i) {
      const Point point = *space.Sample(rng);
      TrialRecord trial;
      trial.point = space.Print(point);
      trial.result = CloseTo(hidden, point);
      ASSERT_TRUE(records_->AddTrial(space.program(), environment_, trial).ok());
      if (i == 0 || trial.result.time_us < best.result.time_us) best = trial;
    }
    best.stage = TrialStage::kFinal;
    best.steps = search_space::ToString(*space.Steps(*space.Parse(best.point)));
    ASSERT_TRUE(records_->AddTrial(space.program(), environment_, best).ok());
    best_point_ = best.point;
  }
  Experience RecallFor(const SearchSpace& space) {
    auto experience = Recall(*records_, environment_, space, 2);
    EXPECT_TRUE(experience.ok()) << experience.status();
    return *std::move(experience);
  }

  tests::TempFolder folder_;
  std::unique_ptr<Records> records_;
  Environment environment_;
  std::string best_point_;
};

TEST_F(ExperienceTest, WithoutRecordsThereIsNoModel) {
  const Experience none = RecallFor(Matmul(256));
  EXPECT_EQ(none.model, nullptr);
  EXPECT_TRUE(none.neighbours.empty());
  EXPECT_NE(none.note.find("analytic"), std::string::npos);
}

TEST_F(ExperienceTest, OtherWorkloadsAreLearntFromAndTheirBestAreParents) {
  Record(Matmul(128), 60);
  const SearchSpace space = Matmul(256);
  const Experience first = RecallFor(space);
  ASSERT_NE(first.model, nullptr);
  EXPECT_NE(first.note.find("trained"), std::string::npos) << first.note;
  ASSERT_EQ(first.neighbours.size(), 1u);
  EXPECT_EQ(space.Print(first.neighbours[0]), best_point_);
  const Experience second = RecallFor(space);
  ASSERT_NE(second.model, nullptr);
  EXPECT_NE(second.note.find("knows"), std::string::npos) << "stored: " << second.note;
  // Half as many again: worth training again.
  Record(MakeSpace("transpose", {{"m", 256}, {"n", 256}}), 80);
  EXPECT_NE(RecallFor(space).note.find("trained"), std::string::npos);
}

TEST_F(ExperienceTest, WhatOthersFoundBestIsProposedFirst) {
  const SearchSpace space = Matmul(128);
  Record(space, 60);
  std::stringstream lines;
  ASSERT_TRUE(records_->Export(lines).ok());
  records_ = *Records::Open(folder_ / "other.db");
  auto imported = records_->Import(lines);
  ASSERT_TRUE(imported.ok()) << imported.status();
  ASSERT_EQ(imported->added, 61) << testing::PrintToString(imported->rejected);
  const Experience experience = RecallFor(space);
  EXPECT_NE(experience.model, nullptr) << "they are lessons, too";
  ASSERT_FALSE(experience.neighbours.empty());
  EXPECT_EQ(space.Print(experience.neighbours[0]), best_point_);
}

TEST_F(ExperienceTest, RecordsOfAnotherDeviceOrPolicyTeachNothing) {
  Record(Matmul(128), 60);
  environment_.l2 = measure::L2Policy::kWarm;
  EXPECT_EQ(RecallFor(Matmul(256)).model, nullptr);
  environment_.l2 = measure::L2Policy::kCold;
  environment_.device_name = "another";
  EXPECT_EQ(RecallFor(Matmul(256)).model, nullptr);
}

TEST_F(ExperienceTest, AModelThatIsOfNoUseIsTrainedAgainAndItIsSaid) {
  Record(Matmul(128), 60);
  const SearchSpace space = Matmul(256);
  for (const std::string& bytes :
       {std::string("rubbish"), std::string("heddle-model 1 987 3 0 1 0000000000000000\nx")}) {
    ASSERT_TRUE(records_->SaveModel(environment_, {bytes, 1000000}).ok());
    const Experience experience = RecallFor(space);
    ASSERT_NE(experience.model, nullptr);
    EXPECT_NE(experience.note.find(bytes == "rubbish" ? "damaged" : "version 987"),
              std::string::npos)
        << experience.note;
  }
}

}  // namespace
}  // namespace heddle::tuner::evolution_test
