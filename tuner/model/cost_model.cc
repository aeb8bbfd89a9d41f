#include "tuner/model/cost_model.h"

#include <xgboost/c_api.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "tuner/records/records.h"
#include "tuner/records/records_fields.h"

namespace heddle::tuner {
namespace {

// Rivals that each example is compared with in a round.
constexpr int kRivals = 8;
// Times closer than this are ties: no better than a timing's interval.
constexpr double kTie = 0.01;
// Pairs whose times differ by less than this matter less, in proportion.
constexpr double kClear = 0.1;
// What a pair of slow programs weighs against one with the best: order among them matters little.
constexpr double kLeastEmphasis = 0.05;
// Odds of the analytic time: twice as fast wins with 4 : 1.
constexpr float kAnalyticSteepness = 2;
// Of a failed program: slower than the slowest of its workload by this factor.
constexpr double kFailureFactor = 2;
constexpr char kMagic[] = "heddle-model 1";

absl::Status Called(int code, const char* what) {
  if (code == 0) return absl::OkStatus();
  return absl::InternalError(absl::StrCat("XGBoost cannot ", what, ": ", XGBGetLastError()));
}

// A dense matrix of features.
class Matrix {
 public:
  explicit Matrix(absl::Span<const FeatureVector> rows) {
    std::vector<float> values;
    values.reserve(rows.size() * rows[0].size());
    for (const FeatureVector& row : rows) values.insert(values.end(), row.begin(), row.end());
    status_ = Called(
        XGDMatrixCreateFromMat(values.data(), rows.size(), rows[0].size(), std::nanf(""), &handle_),
        "take features");
  }
  ~Matrix() {
    if (handle_ != nullptr) XGDMatrixFree(handle_);
  }
  Matrix(const Matrix&) = delete;
  Matrix& operator=(const Matrix&) = delete;

  void Set(const char* field, const std::vector<float>& values) {
    status_.Update(Called(XGDMatrixSetFloatInfo(handle_, field, values.data(), values.size()),
                          "take values of rows"));
  }
  const absl::Status& status() const { return status_; }
  DMatrixHandle handle() const { return handle_; }

 private:
  DMatrixHandle handle_ = nullptr;
  absl::Status status_;
};

// The scores that the trees correct.
std::vector<float> Priors(absl::Span<const FeatureVector> rows, float scale) {
  std::vector<float> priors;
  priors.reserve(rows.size());
  for (const FeatureVector& row : rows) {
    priors.push_back(-scale * static_cast<float>(std::log(AnalyticTimeUs(row))));
  }
  return priors;
}

// Examples of one workload with the logarithms of their times.
struct Group {
  std::vector<size_t> members;
  std::vector<double> log_time;
  double log_best = 0;
};

std::vector<Group> GroupsOf(absl::Span<const Example> examples) {
  std::map<int64_t, Group> by_workload;
  for (size_t i = 0; i < examples.size(); ++i) {
    by_workload[examples[i].workload].members.push_back(i);
  }
  std::vector<Group> groups;
  for (auto& [workload, group] : by_workload) {
    double best = INFINITY, worst = 0;
    for (size_t i : group.members) {
      if (examples[i].time_us <= 0) continue;
      best = std::min(best, examples[i].time_us);
      worst = std::max(worst, examples[i].time_us);
    }
    if (worst == 0) continue;  // failures only: nothing to compare
    group.log_best = std::log(best);
    for (size_t i : group.members) {
      const double time = examples[i].time_us;
      group.log_time.push_back(std::log(time > 0 ? time : worst * kFailureFactor));
    }
    groups.push_back(std::move(group));
  }
  return groups;
}

// SplitMix64 (G. Steele et al., OOPSLA 2014): a number for each (round, example, rival).
uint64_t Mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

// Calls `use(faster, slower, weight)` for pairs of examples of one group: each with some rivals,
// others in each round.
template <typename F>
void ForEachPair(const std::vector<Group>& groups, absl::Span<const Example> examples, int round,
                 const F& use) {
  for (const Group& group : groups) {
    const size_t size = group.members.size();
    for (size_t i = 0; i < size; ++i) {
      for (int k = 0; k < kRivals; ++k) {
        const uint64_t key =
            (static_cast<uint64_t>(round) << 40) + (i << 8) + static_cast<uint64_t>(k);
        size_t a = i, b = Mix(key) % size;
        if (group.log_time[a] > group.log_time[b]) std::swap(a, b);
        const double gap = group.log_time[b] - group.log_time[a];
        if (gap < kTie) continue;
        const size_t faster = group.members[a], slower = group.members[b];
        const double emphasis =
            std::max(kLeastEmphasis, std::exp(group.log_best - group.log_time[a])) *
            std::min(1.0, gap / kClear);
        use(faster, slower, emphasis * examples[faster].weight * examples[slower].weight);
      }
    }
  }
}

struct Gradients {
  std::vector<float> first, second;
};

Gradients RankingGradients(const std::vector<Group>& groups, absl::Span<const Example> examples,
                           const float* scores, int round) {
  constexpr float kLeastCurve = 1e-6F;
  Gradients gradients{std::vector<float>(examples.size(), 0),
                      std::vector<float>(examples.size(), kLeastCurve)};
  ForEachPair(groups, examples, round, [&](size_t faster, size_t slower, double weight) {
    const double lead = static_cast<double>(scores[faster]) - static_cast<double>(scores[slower]);
    const double doubt = 1 / (1 + std::exp(lead));
    const auto slope = static_cast<float>(weight * doubt);
    const auto curve = static_cast<float>(weight * doubt * (1 - doubt));
    gradients.first[faster] -= slope;
    gradients.first[slower] += slope;
    gradients.second[faster] += curve;
    gradients.second[slower] += curve;
  });
  return gradients;
}

// How far these examples bear the analytic time out: the factor of its logarithm that makes the
// pairs likeliest, found by Newton's method, with kAnalyticSteepness as the expectation.
float FitPrior(const std::vector<Group>& groups, absl::Span<const Example> examples) {
  constexpr int kIterations = 10;
  constexpr double kExpectation = 1, kSteepest = 6;
  std::vector<double> score;
  for (const Example& e : examples) score.push_back(-std::log(AnalyticTimeUs(e.features)));
  double scale = kAnalyticSteepness;
  for (int i = 0; i < kIterations; ++i) {
    double slope = kExpectation * (scale - kAnalyticSteepness), curve = kExpectation;
    ForEachPair(groups, examples, 0, [&](size_t faster, size_t slower, double weight) {
      const double lead = score[faster] - score[slower];
      const double doubt = 1 / (1 + std::exp(scale * lead));
      slope -= weight * doubt * lead;
      curve += weight * doubt * (1 - doubt) * lead * lead;
    });
    scale = std::clamp(scale - slope / curve, 0.0, kSteepest);
  }
  return static_cast<float>(scale);
}

Gradients ThroughputGradients(const std::vector<Group>& groups, absl::Span<const Example> examples,
                              const float* scores) {
  Gradients gradients{std::vector<float>(examples.size(), 0),
                      std::vector<float>(examples.size(), 0)};
  for (const Group& group : groups) {
    for (size_t a = 0; a < group.members.size(); ++a) {
      const size_t i = group.members[a];
      const double share =
          examples[i].time_us > 0 ? std::exp(group.log_best - group.log_time[a]) : 0;
      gradients.first[i] = examples[i].weight * (scores[i] - static_cast<float>(share));
      gradients.second[i] = examples[i].weight;
    }
  }
  return gradients;
}

}  // namespace

struct CostModel::Booster {
  BoosterHandle handle = nullptr;
  size_t features = 0;

  static absl::StatusOr<std::unique_ptr<Booster>> Create(size_t features) {
    auto booster = std::make_unique<Booster>();
    booster->features = features;
    HEDDLE_RETURN_IF_ERROR(Called(XGBoosterCreate(nullptr, 0, &booster->handle), "begin"));
    return booster;
  }
  Booster() = default;
  Booster(const Booster&) = delete;
  Booster& operator=(const Booster&) = delete;
  ~Booster() {
    if (handle != nullptr) XGBoosterFree(handle);
  }

  absl::Status Set(const char* name, const std::string& value) const {
    return Called(XGBoosterSetParam(handle, name, value.c_str()), "take a parameter");
  }
  absl::StatusOr<std::string> Bytes() const {
    bst_ulong size = 0;
    const char* data = nullptr;
    HEDDLE_RETURN_IF_ERROR(
        Called(XGBoosterSaveModelToBuffer(handle, R"({"format": "ubj"})", &size, &data), "save"));
    return std::string(data, size);
  }
  absl::Status Read(const std::string& bytes) const {
    return Called(XGBoosterLoadModelFromBuffer(handle, bytes.data(), bytes.size()), "load");
  }
};

float AnalyticScore(const FeatureVector& program) {
  return Priors({&program, 1}, kAnalyticSteepness)[0];
}

CostModel::CostModel(std::unique_ptr<Booster> booster, Objective objective, float prior)
    : booster_(std::move(booster)), objective_(objective), prior_(prior) {}
CostModel::CostModel(CostModel&&) noexcept = default;
CostModel& CostModel::operator=(CostModel&&) noexcept = default;
CostModel::~CostModel() = default;

absl::StatusOr<CostModel> CostModel::Train(absl::Span<const Example> examples,
                                           const Options& options, const CostModel* base) {
  std::vector<FeatureVector> rows;
  rows.reserve(examples.size());
  for (const Example& example : examples) {
    rows.push_back(example.features);
    if (rows.back().size() != rows.front().size() || rows.back().empty()) {
      return absl::InvalidArgumentError("the examples' features differ in number");
    }
  }
  const std::vector<Group> groups = GroupsOf(examples);
  if (groups.empty()) return absl::InvalidArgumentError("no example has a time to learn from");
  if (base != nullptr && base->booster_->features != rows[0].size()) {
    return absl::InvalidArgumentError(absl::StrCat("the examples have ", rows[0].size(),
                                                   " features, the model to train further ",
                                                   base->booster_->features));
  }

  HEDDLE_ASSIGN_OR_RETURN(booster, Booster::Create(rows[0].size()));
  const Objective objective = base != nullptr ? base->objective_ : options.objective;
  float prior = 0;
  if (base != nullptr) {
    prior = base->prior_;
  } else if (options.analytic_prior && objective == Objective::kRanking) {
    prior = FitPrior(groups, examples);
  }
  CostModel model(std::move(booster), objective, prior);
  if (base != nullptr) {
    HEDDLE_ASSIGN_OR_RETURN(bytes, base->booster_->Bytes());
    HEDDLE_RETURN_IF_ERROR(model.booster_->Read(bytes));
  }
  for (const auto& [name, value] :
       std::map<const char*, std::string>{{"nthread", absl::StrCat(options.threads)},
                                          {"num_feature", absl::StrCat(rows[0].size())},
                                          {"tree_method", "hist"},
                                          {"max_bin", absl::StrCat(options.bins)},
                                          {"max_depth", absl::StrCat(options.depth)},
                                          {"eta", absl::StrCat(options.learning_rate)},
                                          {"base_score", "0"},
                                          {"verbosity", "0"},
                                          {"objective", "reg:squarederror"}}) {
    HEDDLE_RETURN_IF_ERROR(model.booster_->Set(name, value));
  }
  Matrix matrix(rows);
  if (prior > 0 && matrix.status().ok()) matrix.Set("base_margin", Priors(rows, prior));
  HEDDLE_RETURN_IF_ERROR(matrix.status());
  for (int round = 0; round < options.rounds; ++round) {
    constexpr int kMargin = 1;
    bst_ulong size = 0;
    const float* scores = nullptr;
    HEDDLE_RETURN_IF_ERROR(Called(
        XGBoosterPredict(model.booster_->handle, matrix.handle(), kMargin, 0, 1, &size, &scores),
        "predict"));
    Gradients gradients = model.objective_ == Objective::kRanking
                              ? RankingGradients(groups, examples, scores, round)
                              : ThroughputGradients(groups, examples, scores);
    HEDDLE_RETURN_IF_ERROR(Called(
        XGBoosterBoostOneIter(model.booster_->handle, matrix.handle(), gradients.first.data(),
                              gradients.second.data(), gradients.first.size()),
        "train"));
  }
  return model;
}

// "heddle-model 1 VERSION FEATURES OBJECTIVE PRIOR HASH\n" and XGBoost's own bytes, of which HASH
// is: XGBoost does not survive damaged ones.
absl::StatusOr<std::string> CostModel::Save() const {
  HEDDLE_ASSIGN_OR_RETURN(bytes, booster_->Bytes());
  return absl::StrFormat("%s %d %d %d %.9g %016x\n", kMagic, kFeatureVersion, booster_->features,
                         static_cast<int>(objective_), prior_, HashOf(bytes)) +
         bytes;
}

absl::StatusOr<CostModel> CostModel::Load(const std::string& bytes) {
  const size_t end = bytes.find('\n');
  const std::vector<std::string> words = absl::StrSplit(bytes.substr(0, end), ' ');
  int version = 0, objective = 0;
  float prior = 0;
  int64_t features = 0;
  if (end == std::string::npos || words.size() != 7 ||
      absl::StrCat(words[0], " ", words[1]) != kMagic || !absl::SimpleAtoi(words[2], &version) ||
      !absl::SimpleAtoi(words[3], &features) || !absl::SimpleAtoi(words[4], &objective) ||
      !absl::SimpleAtof(words[5], &prior) || objective < 0 || objective > 1) {
    return absl::InvalidArgumentError(
        "the stored cost model is damaged: its first line is no model's");
  }
  if (version != kFeatureVersion) {
    return absl::FailedPreconditionError(
        absl::StrCat("the stored cost model was trained on features of version ", version,
                     ", this program has version ", kFeatureVersion));
  }
  const std::string body = bytes.substr(end + 1);
  if (absl::StrFormat("%016x", HashOf(body)) != words[6]) {
    return absl::InvalidArgumentError(
        "the stored cost model is damaged: its checksum does not hold");
  }
  HEDDLE_ASSIGN_OR_RETURN(booster, Booster::Create(static_cast<size_t>(features)));
  HEDDLE_RETURN_IF_ERROR(booster->Set("nthread", "1"));
  HEDDLE_RETURN_IF_ERROR(booster->Read(body));
  return CostModel(std::move(booster), static_cast<Objective>(objective), prior);
}

absl::StatusOr<std::vector<float>> CostModel::Predict(absl::Span<const FeatureVector> programs,
                                                      bool contributions) const {
  if (programs.empty()) return std::vector<float>();
  for (const FeatureVector& program : programs) {
    if (program.size() == booster_->features) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        "a program has ", program.size(), " features, the model knows ", booster_->features));
  }
  Matrix matrix(programs);
  if (prior_ > 0 && matrix.status().ok()) matrix.Set("base_margin", Priors(programs, prior_));
  HEDDLE_RETURN_IF_ERROR(matrix.status());
  constexpr int kMargin = 1, kContributions = 4;
  bst_ulong size = 0;
  const float* values = nullptr;
  HEDDLE_RETURN_IF_ERROR(
      Called(XGBoosterPredict(booster_->handle, matrix.handle(),
                              contributions ? kContributions : kMargin, 0, 0, &size, &values),
             "predict"));
  return std::vector<float>(values, values + size);
}

absl::StatusOr<std::vector<float>> CostModel::Score(
    absl::Span<const FeatureVector> programs) const {
  return Predict(programs, false);
}

absl::StatusOr<std::vector<float>> CostModel::Contributions(const FeatureVector& program) const {
  return Predict({&program, 1}, true);
}

}  // namespace heddle::tuner
