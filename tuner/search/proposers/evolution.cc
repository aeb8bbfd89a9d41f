#include "tuner/search/proposers/evolution.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <limits>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/clock.h"
#include "search_space/check/verify.h"
#include "tuner/search/proposers/part_times.h"
#include "tuner/search/proposers/screen.h"
#include "tuner/search/proposers/taught.h"

namespace heddle::tuner {
namespace {

using measure::Outcome;
using measure::TrialResult;
using search_space::Point;
using search_space::Rng;

// Points a batch: few, so that each learns from the last; enough to hide the time to make them.
constexpr size_t kBatch = 16;
// The next batch is begun when so many of the last are left.
constexpr size_t kBeginAt = kBatch / 2;
// Share of a batch that is drawn at random, and while fewer than kFewTrials are known; and of those
// that are one step from the best measured points, where a model that is wrong cannot lead far
// away.
constexpr double kExplore = 0.08, kExploreAtFirst = 0.5, kNear = 0.25;
constexpr size_t kFewTrials = 2 * kBatch;
// Random points that are drawn for one batch at most: more where few are valid.
constexpr size_t kMostDraws = 100 * kBatch;
// Random points that the analytic time takes for so many times slower than the best it has seen are
// tried in few cases only: a launch of the simplest kernel of a large workload can take longer than
// all that the session has.
constexpr double kHopeless = 16, kTryHopeless = 0.05;
// The few of the best points whose surroundings are tried, and the share of children of two.
constexpr size_t kFew = 6;
constexpr double kCrossover = 0.3;
// How far the time of a trial is from what its kernels take, as a share: as measured, and where it
// is rough.
constexpr double kError = 0.02, kRoughError = 0.1;
// Programs that are put together of kernels that were fast in others: candidates for a batch, and
// those that are in it whatever the model says of them.
constexpr size_t kComposed = 32, kMostComposed = 4;
// Proposals of one batch differ in at least so many holes while there are others.
constexpr int kApart = 2;
// A batch that makes the best time shorter by this share is progress. Without any, the proposals of
// one niche in a batch become fewer, by half with every batch after the first few, down to a least.
constexpr double kProgress = 0.005;
constexpr int kPatience = 2;
constexpr size_t kLeastOfNiche = 2;
// Fewer trials than this teach nothing.
constexpr size_t kLeastExamples = 8;
// Trees of a model of this workload's trials alone, and on top of a model of others'.
constexpr int kOwnRounds = 60, kFurtherRounds = 40;
// Points or kernels whose features are kept: some fifty batches, 40 MB.
constexpr size_t kKeptFeatures = 30000;

int HolesApart(const Point& a, const Point& b) {
  if (a.sketch != b.sketch) return kApart;
  int distance = 0;
  for (size_t i = 0; i < a.choices.size(); ++i) distance += a.choices[i] != b.choices[i];
  return distance;
}

// Points that share their work out alike. What the model thinks best lies in few of them, and the
// others stay unknown unless they get trials, too (niching, as in multimodal optimisation).
struct Niche {
  int sketch = 0;
  float blocks = 0, threads = 0;

  bool operator==(const Niche&) const = default;
  template <typename H>
  friend H AbslHashValue(H h, const Niche& n) {
    return H::combine(std::move(h), n.sketch, n.blocks, n.threads);
  }
};

Niche NicheOf(const Point& point, const FeatureVector& features) {
  static const auto blocks = static_cast<size_t>(FeatureIndex("blocks"));
  static const auto threads = static_cast<size_t>(FeatureIndex("threads"));
  return {static_cast<int>(point.sketch), features[blocks], features[threads]};
}

struct Scored {
  Point point;
  float score = 0;
  Niche niche;
};

// The search itself, on one thread.
class Evolution {
 public:
  Evolution(const search_space::SearchSpace& space, EvolutionOptions options)
      : options_(std::move(options)),
        screen_(space, options_.threads),
        fresh_(space),
        rng_(options_.seed) {}

  void Observe(const Point& point, const TrialResult& result) {
    if (result.outcome == Outcome::kWorkerLost) return;  // not its fault
    proposed_.insert(point);
    trials_.push_back({point, result});
  }

  // The next points to try, none of them again. Empty: there are no more, or (nearly) none to be
  // found in a space too large to list.
  std::vector<Point> NextBatch() {
    Learn();
    LookForProgress();
    if (options_.only.empty()) {
      EstimateParts();
      composed_ = Composed();
    }
    std::vector<Scored> population = options_.only.empty() ? Breed() : Score(Recorded());
    std::vector<Point> batch = Choose(population);
    screen_.Forget(kKeptFeatures);
    return batch;
  }

 private:
  struct Trial {
    Point point;
    TrialResult result;
  };

  void Learn() {
    if (trials_.size() < kLeastExamples || learnt_ == trials_.size()) return;
    std::vector<const TrialResult*> results;
    for (const Trial& trial : trials_) results.push_back(&trial.result);
    const std::vector<size_t> taught = ChooseTaught(results);
    std::vector<Point> points;
    for (size_t trial : taught) points.push_back(trials_[trial].point);
    const auto features = screen_.Features(points);
    std::vector<Example> examples;
    for (size_t i = 0; i < taught.size(); ++i) {
      const TrialResult& result = *results[taught[i]];
      if (features[i]->empty()) continue;
      examples.push_back({*features[i], 0, result.time_us, WeightOf(result)});
    }
    CostModel::Options options;
    options.rounds = options_.base ? kFurtherRounds : kOwnRounds;
    auto model = CostModel::Train(examples, options, options_.base.get());
    // Without a single time there is nothing to learn from yet.
    if (model.ok()) own_ = *std::move(model);
    learnt_ = trials_.size();
  }

  void LookForProgress() {
    double best = std::numeric_limits<double>::infinity();
    for (const Trial& trial : trials_) {
      if (trial.result.outcome == Outcome::kOk) best = std::min(best, trial.result.time_us);
    }
    const bool progress = best < best_us_ * (1 - kProgress);
    if (progress) best_us_ = best;
    stalled_ = progress ? 0 : stalled_ + 1;
    const int halvings = std::clamp(stalled_ - kPatience, 0, 8);
    most_of_niche_ = std::max(kBatch >> halvings, kLeastOfNiche);
  }

  // What the kernels of programs of several take, as far as the trials tell.
  void EstimateParts() {
    const size_t known = timed_;
    for (; timed_ < trials_.size(); ++timed_) {
      const auto& [point, result] = trials_[timed_];
      if (result.outcome != Outcome::kOk) continue;
      const std::vector<search_space::Part> parts = screen_.space().PartsOf(point);
      if (parts.size() < 2) continue;
      const std::vector<double> guess = screen_.TimesUs(parts);
      if (std::find(guess.begin(), guess.end(), 0) != guess.end()) continue;
      const bool rough = result.screened_out || result.noisy;
      parts_.Add(parts, guess, result.time_us, rough ? kRoughError : kError);
    }
    if (timed_ != known) parts_.Estimate();
  }

  // New points that take each of their kernels from the trial where it was fastest, or nearly, by
  // the estimate: what no child of two parents has. The fastest first.
  std::vector<Point> Composed() {
    std::vector<Composition> composed;
    absl::flat_hash_set<uint8_t> sketches;
    for (const Point& best : Parents()) {
      if (sketches.size() == kFew) break;
      if (!sketches.insert(best.sketch).second) continue;
      for (Composition& c : parts_.Compose(screen_.space(), best, kComposed)) {
        if (!proposed_.contains(c.point)) composed.push_back(std::move(c));
      }
    }
    std::stable_sort(
        composed.begin(), composed.end(),
        [](const Composition& a, const Composition& b) { return a.time_us < b.time_us; });
    composed.resize(std::min(composed.size(), kComposed));
    std::vector<Point> points;
    for (Composition& c : composed) points.push_back(std::move(c.point));
    return points;
  }

  // Best first; those that do not lower are left out.
  std::vector<Scored> Score(const std::vector<Point>& points) {
    const auto found = screen_.Features(points);
    std::vector<Scored> scored;
    std::vector<FeatureVector> features;
    for (size_t i = 0; i < points.size(); ++i) {
      if (found[i]->empty()) continue;
      scored.push_back({points[i], AnalyticScore(*found[i]), NicheOf(points[i], *found[i])});
      least_us_ = std::min(least_us_, AnalyticTimeUs(*found[i]));
      features.push_back(*found[i]);
    }
    const CostModel* model = own_ ? &*own_ : options_.base.get();
    if (model != nullptr) {
      auto scores = model->Score(features);
      for (size_t i = 0; scores.ok() && i < scored.size(); ++i) scored[i].score = (*scores)[i];
    }
    std::stable_sort(scored.begin(), scored.end(),
                     [](const Scored& a, const Scored& b) { return a.score > b.score; });
    return scored;
  }

  std::vector<Point> Recorded() const {
    std::vector<Point> left;
    for (const Point& point : options_.only) {
      if (!proposed_.contains(point)) left.push_back(point);
    }
    return left;
  }

  std::optional<Point> DrawNew() {
    if (!options_.only.empty()) {
      const std::vector<Point> left = Recorded();
      if (left.empty()) return std::nullopt;
      return left[std::uniform_int_distribution<size_t>(0, left.size() - 1)(rng_)];
    }
    return fresh_.Draw(rng_, [&](const Point& point) { return proposed_.contains(point); });
  }

  // Measured points first, then what was handed in; the best first.
  std::vector<Point> Parents() {
    std::vector<const Trial*> best;
    for (const Trial& trial : trials_) {
      if (trial.result.outcome == Outcome::kOk) best.push_back(&trial);
    }
    std::stable_sort(best.begin(), best.end(), [](const Trial* a, const Trial* b) {
      return a->result.time_us < b->result.time_us;
    });
    best.resize(std::min(best.size(), kFastestTaught));
    std::vector<Point> points, parents;
    for (const Trial* trial : best) points.push_back(trial->point);
    const auto features = screen_.Features(points);
    absl::flat_hash_map<Niche, size_t> taken;
    for (size_t i = 0; i < points.size() && parents.size() < kElite; ++i) {
      const bool crowded =
          !features[i]->empty() && ++taken[NicheOf(points[i], *features[i])] > 2 * most_of_niche_;
      if (!crowded) parents.push_back(points[i]);
    }
    parents.insert(parents.end(), options_.parents.begin(), options_.parents.end());
    return parents;
  }

  // One of `parents`, those at the front more often.
  const Point& Pick(const std::vector<Point>& parents) {
    std::uniform_int_distribution<size_t> any(0, parents.size() - 1);
    return parents[std::min(any(rng_), any(rng_))];
  }

  std::optional<Point> Child(const std::vector<Point>& parents) {
    const search_space::SearchSpace& space = screen_.space();
    std::optional<Point> child;
    if (std::uniform_real_distribution<>(0, 1)(rng_) < kCrossover) {
      child = space.Crossover(Pick(parents), Pick(parents), rng_);
    }
    if (!child) child = space.Mutate(Pick(parents), rng_);
    // One more step half of the time, so that what no single step improves can be left.
    while (child && (rng_() & 1) != 0) {
      std::optional<Point> further = space.Mutate(*child, rng_);
      if (!further) break;
      child = std::move(further);
    }
    return child;
  }

  // Candidates that were not proposed yet, best first.
  std::vector<Scored> Breed() {
    absl::flat_hash_set<Point> seen;
    std::vector<Point> fresh;
    auto add = [&](std::optional<Point> point) {
      if (point && !proposed_.contains(*point) && seen.insert(*point).second) {
        fresh.push_back(*std::move(point));
      }
    };
    for (const Point& point : options_.parents) add(point);
    for (const Point& point : composed_) add(point);
    for (const Scored& last : last_) add(last.point);
    const size_t random = last_.empty() ? kRandomAtFirst : kRandom;
    for (size_t i = 0; i < random; ++i) {
      std::optional<Point> point = DrawNew();
      if (!point) break;  // the same would be drawn in vain again
      add(std::move(point));
    }

    std::vector<Scored> population = Score(fresh);
    const std::vector<Point> measured = Parents();
    for (int generation = 0; generation < kGenerations; ++generation) {
      // The best measured and the best predicted take turns.
      std::vector<Point> parents;
      const std::vector<Scored> predicted = BestOfNiches(population, kElite);
      for (size_t i = 0; i < kElite; ++i) {
        if (i < measured.size()) parents.push_back(measured[i]);
        if (i < predicted.size()) parents.push_back(predicted[i].point);
      }
      if (parents.empty()) break;
      fresh.clear();
      for (size_t i = 0; i < kPopulation; ++i) add(Child(parents));
      std::vector<Scored> children = Score(fresh);
      std::vector<Scored> merged;
      std::merge(population.begin(), population.end(), children.begin(), children.end(),
                 std::back_inserter(merged),
                 [](const Scored& a, const Scored& b) { return a.score > b.score; });
      population = std::move(merged);
    }
    last_ = BestOfNiches(population, kElite);
    return population;
  }

  // The first `count`, none of which is of a niche with too many already.
  std::vector<Scored> BestOfNiches(const std::vector<Scored>& population, size_t count) const {
    std::vector<Scored> best;
    absl::flat_hash_map<Niche, size_t> taken;
    for (const Scored& candidate : population) {
      if (best.size() == count) break;
      if (++taken[candidate.niche] <= 2 * most_of_niche_) best.push_back(candidate);
    }
    return best;
  }

  // New points one step from the best measured ones, best first.
  std::vector<Scored> Surroundings() {
    std::vector<Point> best = Parents();
    best.resize(std::min(best.size(), kFew));
    absl::flat_hash_set<Point> seen;
    std::vector<Point> fresh;
    for (size_t i = 0; i < kPopulation / 2 && !best.empty(); ++i) {
      std::optional<Point> point = screen_.space().Mutate(Pick(best), rng_);
      if (point && !proposed_.contains(*point) && seen.insert(*point).second) {
        fresh.push_back(*std::move(point));
      }
    }
    return Score(fresh);
  }

  // Adds the best of `population` until the batch has `size`, kept apart from each other and at
  // most `most` of a niche.
  void Take(const std::vector<Scored>& population, size_t size, size_t most,
            std::vector<Point>& batch) {
    absl::flat_hash_map<Niche, size_t> taken;
    for (int apart : {kApart, 1}) {
      for (const Scored& candidate : population) {
        if (batch.size() >= size) return;
        if (proposed_.contains(candidate.point) || taken[candidate.niche] >= most) continue;
        const bool crowded = std::any_of(batch.begin(), batch.end(), [&](const Point& other) {
          return HolesApart(candidate.point, other) < apart;
        });
        if (crowded) continue;
        proposed_.insert(candidate.point);
        if (!IsValid(candidate.point)) continue;
        ++taken[candidate.niche];
        batch.push_back(candidate.point);
      }
    }
  }

  // Is it what can be built: do its parts lower together, to what the device takes?
  bool IsValid(const Point& point) const {
    const auto lowered = screen_.space().Lower(point);
    return lowered.ok() && search_space::Verify(*lowered, screen_.space().target()).ok();
  }

  bool IsHopeless(const Point& point) {
    const FeatureVector& features = *screen_.Features({point})[0];
    return !features.empty() && AnalyticTimeUs(features) > kHopeless * least_us_ &&
           std::uniform_real_distribution<>(0, 1)(rng_) >= kTryHopeless;
  }

  // Epsilon-greedy: mostly what is predicted to be best, some of it close to what is known to be
  // good, and random points.
  std::vector<Point> Choose(const std::vector<Scored>& population) {
    const double explore =
        !options_.base && trials_.size() < kFewTrials ? kExploreAtFirst : kExplore;
    size_t greedy = 0, near = 0;
    for (size_t i = 0; i < kBatch; ++i) {
      if (std::uniform_real_distribution<>(0, 1)(rng_) < explore) continue;
      ++greedy;
      near += std::uniform_real_distribution<>(0, 1)(rng_) < kNear ? 1 : 0;
    }
    std::vector<Point> batch;
    if (!options_.only.empty()) near = 0;
    Take(population, greedy - near, most_of_niche_, batch);
    std::vector<Scored> composed;
    for (Point& point : composed_) composed.push_back({std::move(point), 0, {}});
    composed_.clear();
    Take(composed, std::min(greedy, batch.size() + kMostComposed), kBatch, batch);
    if (near > 0) Take(Surroundings(), greedy, kBatch, batch);
    Take(population, greedy, kBatch, batch);
    for (size_t draw = 0; batch.size() < kBatch && draw < kMostDraws; ++draw) {
      std::optional<Point> point = DrawNew();
      if (!point) break;
      if (IsHopeless(*point)) continue;
      proposed_.insert(*point);
      if (IsValid(*point)) batch.push_back(*std::move(point));
    }
    return batch;
  }

  EvolutionOptions options_;
  Screen screen_;
  FreshPoints fresh_;
  Rng rng_;
  std::optional<CostModel> own_;
  size_t learnt_ = 0;                                          // trials that own_ knows
  double best_us_ = std::numeric_limits<double>::infinity();   // at the last progress
  double least_us_ = std::numeric_limits<double>::infinity();  // of all analytic times
  PartTimes parts_;
  size_t timed_ = 0;               // trials that parts_ knows
  std::vector<Point> composed_;    // for the batch that is made
  int stalled_ = 0;                // batches since
  size_t most_of_niche_ = kBatch;  // proposals in a batch
  std::vector<Trial> trials_;
  absl::flat_hash_set<Point> proposed_;  // and tried before
  std::vector<Scored> last_;             // the best of the last population
};

// Hands out one batch while the next is made. A batch knows the trials that were observed when it
// was begun, and both its beginning and its use are at fixed places in the sequence of calls, so
// that how long it takes changes nothing.
class EvolutionProposer : public Proposer {
 public:
  EvolutionProposer(const search_space::SearchSpace& space, EvolutionOptions options)
      : evolution_(space, std::move(options)), thread_([this] { Work(); }) {}
  ~EvolutionProposer() override {
    {
      std::lock_guard lock(mutex_);
      stop_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void Begin() override {
    std::lock_guard lock(mutex_);
    RequestBatch();
  }

  std::vector<Point> Propose(int count, const std::function<bool(const Point&)>& tried) override {
    std::unique_lock lock(mutex_);
    std::vector<Point> points;
    while (points.size() < static_cast<size_t>(count)) {
      if (batch_.empty()) {
        RequestBatch();
        changed_.wait(lock, [this] { return !requested_; });
        batch_.assign(next_->begin(), next_->end());
        next_.reset();
        if (batch_.empty()) break;
      }
      if (!tried(batch_.front())) points.push_back(std::move(batch_.front()));
      batch_.pop_front();
    }
    if (batch_.size() <= kBeginAt) RequestBatch();
    return points;
  }

  void Observe(const Point& point, const TrialResult& result) override {
    std::lock_guard lock(mutex_);
    news_.emplace_back(point, result);
  }

  double seconds() const override {
    std::lock_guard lock(mutex_);
    return seconds_;
  }

 private:
  // With mutex_ held. Nothing when a batch is under way or ready.
  void RequestBatch() {
    if (requested_ || next_) return;
    requested_ = true;
    for (auto& [point, result] : std::exchange(news_, {})) evolution_.Observe(point, result);
    changed_.notify_all();
  }

  void Work() {
    std::unique_lock lock(mutex_);
    while (true) {
      changed_.wait(lock, [this] { return stop_ || requested_; });
      if (stop_) return;
      lock.unlock();
      const SteadyTime start = SteadyNow();
      std::vector<Point> batch = evolution_.NextBatch();
      lock.lock();
      seconds_ += SecondsSince(start);
      next_ = std::move(batch);
      requested_ = false;
      changed_.notify_all();
    }
  }

  Evolution evolution_;  // the thread's while `requested_`
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool requested_ = false, stop_ = false;
  double seconds_ = 0;
  std::optional<std::vector<Point>> next_;
  std::deque<Point> batch_;
  std::vector<std::pair<Point, TrialResult>> news_;
  std::thread thread_;  // last: it uses all of the above
};

}  // namespace

std::unique_ptr<Proposer> MakeEvolutionProposer(const search_space::SearchSpace& space,
                                                EvolutionOptions options) {
  return std::make_unique<EvolutionProposer>(space, std::move(options));
}

}  // namespace heddle::tuner
