// What measured trials teach about programs that were not measured: gradient-boosted trees over
// their features (XGBoost, T. Chen and C. Guestrin, KDD 2016), by default on top of the analytic
// time, so that a model without trials is the analytic one.
#ifndef HEDDLE_TUNER_MODEL_COST_MODEL_H_
#define HEDDLE_TUNER_MODEL_COST_MODEL_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "tuner/model/features.h"

namespace heddle::tuner {

// A measured program.
struct Example {
  FeatureVector features;
  // Any number, the same for all examples whose times compare: those of one workload.
  int64_t workload = 0;
  double time_us = 0;  // 0: failed through its own fault, worse than any time
  float weight = 1;    // how far its time is to be believed, 0 .. 1
};

// A moved-from model may only be assigned to. Not thread-safe.
class CostModel {
 public:
  enum class Objective : uint8_t {
    kRanking,     // which of two is faster, those near the best mattering most; RankNet's loss
                  // (C. Burges et al., ICML 2005) on pairs of a workload
    kThroughput,  // regression on best time / time within a workload
  };
  struct Options {
    Objective objective = Objective::kRanking;
    // With kRanking: trees correct the analytic time, as far as the examples bear it out.
    bool analytic_prior = true;
    int rounds = 100;  // trees
    double learning_rate = 0.1;
    int depth = 6;
    int bins = 64;
    // One: threads of OpenMP wait for each other by spinning, which on a machine whose cores are
    // busy with compilers costs many times what they gain.
    int threads = 1;
  };

  // Deterministic. InvalidArgument: nothing to compare, or vectors of different length. With a
  // `base`, trees are added to a copy of it, and its objective and prior are kept.
  static absl::StatusOr<CostModel> Train(absl::Span<const Example> examples, const Options& options,
                                         const CostModel* base = nullptr);

  // InvalidArgument where the bytes are damaged, and FailedPrecondition where they are of a model
  // for other features than kFeatureVersion: the model is of no use, and can be trained again.
  static absl::StatusOr<CostModel> Load(const std::string& bytes);
  absl::StatusOr<std::string> Save() const;

  // Higher is faster; only differences between programs of one workload mean something. With
  // kRanking, the logarithm of the odds of winning against a program of score 0.
  absl::StatusOr<std::vector<float>> Score(absl::Span<const FeatureVector> programs) const;
  // What each feature adds to a program's score (S. Lundberg, S.-I. Lee, NIPS 2017); the last
  // element is what no feature accounts for. They add up to the score.
  absl::StatusOr<std::vector<float>> Contributions(const FeatureVector& program) const;

  Objective objective() const { return objective_; }

  CostModel(CostModel&&) noexcept;
  CostModel& operator=(CostModel&&) noexcept;
  ~CostModel();

 private:
  struct Booster;
  CostModel(std::unique_ptr<Booster> booster, Objective objective, float prior);
  absl::StatusOr<std::vector<float>> Predict(absl::Span<const FeatureVector> programs,
                                             bool contributions) const;

  std::unique_ptr<Booster> booster_;
  Objective objective_;
  float prior_;  // factor of the analytic time's logarithm; 0: none
};

// The score of a program before anything was measured, on the scale of kRanking.
float AnalyticScore(const FeatureVector& program);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_MODEL_COST_MODEL_H_
