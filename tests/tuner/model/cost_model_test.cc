#include "tuner/model/cost_model.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "tuner/records/records.h"

namespace heddle::tuner {
namespace {

using search_space::SearchSpace;
using testing::HasSubstr;

// Features of random points of matmul at some shapes. Their times are the analytic ones times what
// the analytic time leaves out, up to a factor of 12.
class CostModelTest : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    examples_ = new std::vector<Example>;
    for (int64_t n : kShapes) AddWorkload(n, 120);
  }
  static void TearDownTestSuite() { delete examples_; }

  static void AddWorkload(int64_t n, int count) {
    auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
    ASSERT_TRUE(op.ok());
    auto program = op->Instantiate({{"m", n}, {"n", n}, {"k", n}}, search_space::DType::kFloat32);
    ASSERT_TRUE(program.ok()) << program.status();
    auto shared = std::make_shared<const search_space::TensorProgram>(*std::move(program));
    auto target = search_space::FindTarget("h100");
    auto space = SearchSpace::Create(shared, *target);
    ASSERT_TRUE(space.ok()) << space.status();
    search_space::Rng rng(static_cast<uint64_t>(n));
    for (int i = 0; i < count; ++i) {
      auto point = space->Sample(rng);
      ASSERT_TRUE(point.has_value());
      auto lowered = search_space::LowerSteps(shared, *space->Steps(*point));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      auto features = FeaturesOf(*lowered, *target);
      ASSERT_TRUE(features.ok()) << features.status();
      double time = AnalyticTimeUs(*features) * Hidden(*lowered);
      examples_->push_back({*std::move(features), n, time, 1});
    }
  }
  // What the analytic time leaves out.
  static double Hidden(const search_space::Program& program) {
    double factor = 1;
    for (const auto& kernel : program.kernels) {
      factor *= kernel.thread->extent <= 64 ? 4 : kernel.thread->extent <= 128 ? 1 : 2;
      factor *= kernel.shared_bytes > 16384 ? 3 : 1;
    }
    return factor;
  }

  static std::vector<Example> Of(std::initializer_list<int64_t> workloads) {
    std::vector<Example> some;
    for (const Example& e : *examples_) {
      if (std::find(workloads.begin(), workloads.end(), e.workload) != workloads.end()) {
        some.push_back(e);
      }
    }
    return some;
  }
  static std::vector<FeatureVector> FeaturesOfAll(const std::vector<Example>& examples) {
    std::vector<FeatureVector> features;
    for (const Example& e : examples) features.push_back(e.features);
    return features;
  }
  // Share of pairs that the scores put in the right order.
  static double PairAccuracy(const std::vector<Example>& examples,
                             const std::vector<float>& scores) {
    int right = 0, all = 0;
    for (size_t i = 0; i < examples.size(); ++i) {
      for (size_t j = 0; j < examples.size(); ++j) {
        if (examples[i].workload != examples[j].workload) continue;
        if (examples[i].time_us >= examples[j].time_us * 0.99) continue;
        ++all;
        right += scores[i] > scores[j];
      }
    }
    return static_cast<double>(right) / all;
  }
  static double AccuracyOf(const CostModel& model, const std::vector<Example>& examples) {
    auto scores = model.Score(FeaturesOfAll(examples));
    EXPECT_TRUE(scores.ok()) << scores.status();
    return scores.ok() ? PairAccuracy(examples, *scores) : 0;
  }

  static constexpr std::array<int64_t, 4> kShapes = {128, 192, 256, 320};
  static std::vector<Example>* examples_;
};
std::vector<Example>* CostModelTest::examples_ = nullptr;

TEST_F(CostModelTest, LearnsOnSomeShapesWhatHoldsForAnother) {
  // Each shape judged by what the other three teach, against those that learnt nothing: the
  // analytic time, and the same model of the same programs with their times dealt at random.
  constexpr double kShapeCount = kShapes.size();
  for (auto objective : {CostModel::Objective::kRanking, CostModel::Objective::kThroughput}) {
    CostModel::Options options;
    options.objective = objective;
    double analytic = 0, shuffled = 0, learnt = 0;
    for (int64_t shape : kShapes) {
      std::vector<Example> held_out = Of({shape}), others;
      for (const Example& e : *examples_) {
        if (e.workload != shape) others.push_back(e);
      }
      std::vector<float> scores;
      for (const Example& e : held_out) scores.push_back(AnalyticScore(e.features));
      analytic += PairAccuracy(held_out, scores) / kShapeCount;
      auto model = CostModel::Train(others, options);
      ASSERT_TRUE(model.ok()) << model.status();
      learnt += AccuracyOf(*model, held_out) / kShapeCount;
      std::mt19937 rng(1);
      for (size_t i = others.size() - 1; i > 0; --i) {
        std::swap(others[i].time_us, others[rng() % (i + 1)].time_us);
      }
      auto ignorant = CostModel::Train(others, options);
      ASSERT_TRUE(ignorant.ok()) << ignorant.status();
      shuffled += AccuracyOf(*ignorant, held_out) / kShapeCount;
    }
    // At least a third of the wrong pairs become right.
    EXPECT_LT(1 - learnt, (1 - std::max(analytic, shuffled)) * 2 / 3)
        << "learnt " << learnt << ", analytic " << analytic << ", shuffled " << shuffled;
  }
}

TEST_F(CostModelTest, MoreTrialsImproveAModelOfOtherShapes) {
  // In the mean over the shapes: of one, half of its points are too few to tell.
  CostModel::Options options;
  double before = 0, after = 0;
  for (size_t i = 0; i < kShapes.size(); ++i) {
    auto base = CostModel::Train(Of({kShapes[(i + 1) % kShapes.size()]}), options);
    ASSERT_TRUE(base.ok()) << base.status();
    std::vector<Example> own = Of({kShapes[i]});
    std::vector<Example> seen(own.begin(), own.begin() + 40), unseen(own.begin() + 40, own.end());
    auto further = CostModel::Train(seen, options, &*base);
    ASSERT_TRUE(further.ok()) << further.status();
    before += AccuracyOf(*base, unseen);
    after += AccuracyOf(*further, unseen);
  }
  EXPECT_GT(after, before);
}

TEST_F(CostModelTest, IsTheSameEveryTimeAndAfterSaving) {
  auto a = CostModel::Train(Of({128, 192}), {}), b = CostModel::Train(Of({128, 192}), {});
  ASSERT_TRUE(a.ok()) << a.status();
  auto features = FeaturesOfAll(Of({256}));
  EXPECT_EQ(*a->Score(features), *b->Score(features));
  auto bytes = a->Save();
  ASSERT_TRUE(bytes.ok()) << bytes.status();
  EXPECT_EQ(*bytes, *b->Save());
  auto loaded = CostModel::Load(*bytes);
  ASSERT_TRUE(loaded.ok()) << loaded.status();
  EXPECT_EQ(*loaded->Score(features), *a->Score(features));
}

TEST_F(CostModelTest, FailuresAreWorseThanTheSlowest) {
  // What the analytic time calls fast fails, everything else takes equally long.
  std::vector<Example> examples = Of({128});
  std::sort(examples.begin(), examples.end(), [](const Example& a, const Example& b) {
    return AnalyticTimeUs(a.features) < AnalyticTimeUs(b.features);
  });
  const size_t half = examples.size() / 2;
  for (size_t i = 0; i < examples.size(); ++i) examples[i].time_us = i < half ? 0 : 10;
  auto model = CostModel::Train(examples, {});
  ASSERT_TRUE(model.ok()) << model.status();
  auto scores = *model->Score(FeaturesOfAll(examples));
  const auto middle = scores.begin() + static_cast<ptrdiff_t>(half);
  EXPECT_LT(std::accumulate(scores.begin(), middle, 0.0),
            std::accumulate(middle, scores.end(), 0.0));
}

TEST_F(CostModelTest, WhatIsNotBelievedIsNotLearnt) {
  // Every trial once more with a time that says the opposite.
  auto accuracy_with = [&](float weight_of_wrong) {
    const std::vector<Example> right = Of({128});
    std::vector<Example> mixed = right;
    for (Example wrong : right) {
      wrong.time_us = 1e6 / wrong.time_us;
      wrong.weight = weight_of_wrong;
      mixed.push_back(wrong);
    }
    auto model = CostModel::Train(mixed, {});
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() ? AccuracyOf(*model, right) : 0;
  };
  const double without = accuracy_with(0), believed = accuracy_with(1);
  EXPECT_GT(accuracy_with(0.02F), without - 0.1 * (without - believed))
      << without << " without, " << believed << " if believed";
}

TEST_F(CostModelTest, ContributionsAddUpToTheScore) {
  std::vector<Example> examples = Of({128, 192});
  auto model = CostModel::Train(examples, {});
  ASSERT_TRUE(model.ok()) << model.status();
  for (size_t i = 0; i < 10; ++i) {
    const FeatureVector& features = examples[i].features;
    auto parts = model->Contributions(features);
    ASSERT_TRUE(parts.ok()) << parts.status();
    ASSERT_EQ(parts->size(), features.size() + 1);
    const float sum = std::accumulate(parts->begin(), parts->end(), 0.0F);
    EXPECT_NEAR(sum, (*model->Score({&features, 1}))[0], 1e-3 * std::abs(sum) + 1e-3);
  }
}

TEST_F(CostModelTest, DamagedBytesAndOtherFeaturesAreRefused) {
  auto model = CostModel::Train(Of({128}), {});
  ASSERT_TRUE(model.ok()) << model.status();
  const std::string bytes = *model->Save();
  EXPECT_THAT(CostModel::Load("").status().message(), HasSubstr("damaged"));
  EXPECT_THAT(CostModel::Load(bytes.substr(0, bytes.size() / 2)).status().message(),
              HasSubstr("checksum"));
  for (size_t at : {bytes.find('\n') + 1, bytes.size() / 2, bytes.size() - 1}) {
    std::string damaged = bytes;
    damaged[at] ^= 1;
    EXPECT_THAT(CostModel::Load(damaged).status().message(), HasSubstr("checksum"));
  }
  std::string old = bytes;
  const std::string version = absl::StrCat("heddle-model 1 ", kFeatureVersion, " ");
  ASSERT_EQ(old.rfind(version, 0), 0u);
  old.replace(0, version.size(), "heddle-model 1 987 ");
  auto refused = CostModel::Load(old);
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(refused.status().message(), HasSubstr("version 987"));
}

TEST_F(CostModelTest, WhatCannotBeLearntIsSaid) {
  EXPECT_FALSE(CostModel::Train({}, {}).ok());
  std::vector<Example> failures = Of({128});
  for (Example& e : failures) e.time_us = 0;
  EXPECT_THAT(CostModel::Train(failures, {}).status().message(), HasSubstr("no example"));
  std::vector<Example> odd = Of({128});
  odd.back().features.pop_back();
  EXPECT_THAT(CostModel::Train(odd, {}).status().message(), HasSubstr("differ"));
}

}  // namespace
}  // namespace heddle::tuner
