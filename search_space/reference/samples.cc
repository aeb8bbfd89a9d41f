#include "search_space/reference/samples.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <set>
#include <utility>

#include "base/parallel.h"
#include "search_space/reference/keep_stages.h"
#include "search_space/reference/kept.h"
#include "search_space/reference/needed.h"
#include "search_space/reference/on_demand.h"
#include "search_space/reference/sample_points.h"

namespace heddle::search_space {
namespace {

// Instructions of a point for which threads are worth it.
constexpr int64_t kWorthThreads = int64_t{1} << 20;

// Evaluates points of one output.
class Sampler {
 public:
  Sampler(const TensorProgram& program, int stage, int output, const Kept& kept, int threads)
      : program_(program), stage_(stage), output_(output), kept_(kept), threads_(threads) {}

  // Sixteen of the first clusters, and of the others as many as are affordable.
  std::vector<SamplePoint> Run(std::vector<Cluster> clusters, int64_t max_operations) const {
    First first = EvaluateFirst(TakeFirst(clusters));
    const size_t affordable = Affordable(clusters, first, max_operations);
    std::vector<std::vector<SamplePoint>> results(affordable);
    InParallel(affordable, threads_, [&](std::atomic<size_t>& next) {
      OnDemand source(program_, kept_);
      for (const auto& each : first.known) source.Remember(*each);
      for (size_t c = next++; c < affordable; c = next++) {
        source.ForgetIfMuch();
        for (const int64_t offset : clusters[c]) results[c].push_back(Evaluate(source, offset));
      }
    });
    for (const auto& part : results) {
      first.points.insert(first.points.end(), part.begin(), part.end());
    }
    return std::move(first.points);
  }

  // One after the other, each on all threads: for few whose reductions are long.
  std::vector<SamplePoint> RunLong(const std::vector<Cluster>& clusters) const {
    std::vector<SamplePoint> all;
    OnDemand source(program_, kept_);
    for (const Cluster& cluster : clusters) {
      for (const int64_t offset : cluster) {
        if (all.size() == kFewestPoints) return all;
        all.push_back(PointOf(offset, source.OnThreads(stage_, offset, threads_)));
      }
    }
    return all;
  }

  SamplePoint Evaluate(OnDemand& source, int64_t offset) const {
    return PointOf(offset, source.Computed(stage_, offset));
  }

 private:
  // The points that are evaluated in any case, what they know, and what they took: the one that
  // begins a cluster at most, another one of it, and all together.
  struct First {
    std::vector<SamplePoint> points;
    std::vector<std::unique_ptr<OnDemand>> known;
    int64_t begin = 0, another = 0, spent = 0;
  };
  // A point of a cluster whose first one has computed what `known` knows.
  struct Next {
    OnDemand* known;
    int64_t offset;
  };

  // They tell what others cost. Where that is much, each of the next knows what that has computed
  // which begins its cluster and no more, whatever threads there are; and instructions are counted,
  // not time: so the choice of points is reproducible.
  First EvaluateFirst(const std::vector<Cluster>& clusters) const {
    First first;
    first.points.resize(clusters.size());
    first.known.resize(clusters.size());
    const auto begin = [&](size_t c, const OnDemand* base) {
      first.known[c] = std::make_unique<OnDemand>(program_, kept_, false, base);
      first.points[c] = Evaluate(*first.known[c], clusters[c].front());
    };
    begin(0, nullptr);
    InParallel(clusters.size() - 1, threads_, [&](std::atomic<size_t>& next) {
      for (size_t c = ++next; c < clusters.size(); c = ++next) begin(c, first.known[0].get());
    });
    for (const auto& source : first.known) {
      first.begin = std::max(first.begin, source->operations());
      first.spent += source->operations();
    }
    std::vector<Next> next_ones;
    for (size_t c = 0; c < clusters.size(); ++c) {
      for (size_t p = 1; p < clusters[c].size(); ++p) {
        next_ones.push_back({first.known[c].get(), clusters[c][p]});
      }
    }
    const int64_t others = EvaluateNext(next_ones, first);
    first.another = others / std::max<int64_t>(1, std::ssize(next_ones)) + 1;
    first.spent += others;
    return first;
  }

  // Returns what they took.
  int64_t EvaluateNext(const std::vector<Next>& next_ones, First& first) const {
    const size_t begins = first.points.size();
    first.points.resize(begins + next_ones.size());
    int64_t operations = 0;
    if (first.begin < kWorthThreads) {
      for (size_t i = 0; i < next_ones.size(); ++i) {
        first.points[begins + i] = Evaluate(*next_ones[i].known, next_ones[i].offset);
      }
      for (const auto& source : first.known) operations += source->operations();
      return operations - first.spent;
    }
    std::vector<std::unique_ptr<OnDemand>> sources(next_ones.size());
    InParallel(next_ones.size(), threads_, [&](std::atomic<size_t>& next) {
      for (size_t i = next++; i < next_ones.size(); i = next++) {
        sources[i] = std::make_unique<OnDemand>(program_, kept_, false, next_ones[i].known);
        first.points[begins + i] = Evaluate(*sources[i], next_ones[i].offset);
      }
    });
    for (size_t i = 0; i < sources.size(); ++i) {
      operations += sources[i]->operations();
      next_ones[i].known->Remember(*sources[i]);
    }
    return operations;
  }

  // So many clusters cost no more than what is left.
  static size_t Affordable(const std::vector<Cluster>& clusters, const First& first,
                           int64_t max_operations) {
    int64_t left = max_operations - first.spent;
    size_t affordable = 0;
    for (; affordable < clusters.size(); ++affordable) {
      if (clusters[affordable].empty()) continue;
      left -= first.begin + first.another * std::ssize(clusters[affordable]);
      if (left < 0) break;
    }
    return affordable;
  }

  // Takes sixteen points out of `clusters`: of those of the first element, of the last one and of
  // one between, as elements at the ends may be sums of fewer terms than all others; where these
  // have not as many, of others, too.
  static std::vector<Cluster> TakeFirst(std::vector<Cluster>& clusters) {
    std::vector<size_t> order = {0, IndexOfLast(clusters), clusters.size() / 2};
    const size_t ends = order.size();
    for (size_t c = 0; c < clusters.size(); ++c) order.push_back(c);
    std::vector<Cluster> first;
    size_t left = kFewestPoints;
    for (size_t at = 0; at < order.size() && left > 0; ++at) {
      Cluster& cluster = clusters[order[at]];
      const size_t share = at < ends ? (left + ends - at - 1) / (ends - at) : left;
      const auto end = cluster.begin() + static_cast<int64_t>(std::min(cluster.size(), share));
      if (end == cluster.begin()) continue;
      left -= static_cast<size_t>(end - cluster.begin());
      first.emplace_back(cluster.begin(), end);
      cluster.erase(cluster.begin(), end);
    }
    return first;
  }
  // Of the cluster with the last element.
  static size_t IndexOfLast(const std::vector<Cluster>& clusters) {
    const auto greatest = [](const Cluster& c) { return *std::max_element(c.begin(), c.end()); };
    return static_cast<size_t>(std::max_element(clusters.begin(), clusters.end(),
                                                [&](const Cluster& a, const Cluster& b) {
                                                  return greatest(a) < greatest(b);
                                                }) -
                               clusters.begin());
  }

  SamplePoint PointOf(int64_t offset, const Scalar& computed) const {
    const Scalar result = AtLeastValue(computed);
    const DType type = program_.stages[stage_].tensor->dtype;
    return {output_,          offset,       InMemory(type, result.value),
            result.magnitude, result.exact, result.uncertain};
  }

  const TensorProgram& program_;
  const int stage_;
  const int output_;
  const Kept& kept_;
  const int threads_;
};

}  // namespace

std::vector<SamplePoint> EvaluateSamples(const TensorProgram& program,
                                         const std::function<double(int, int64_t)>& input,
                                         int64_t count, uint64_t seed, int64_t max_operations,
                                         int threads) {
  int64_t outputs = 0;
  std::set<int> whole, in_one_pass;
  std::vector<Need> needs;
  for (const Stage& stage : program.stages) {
    if (!stage.is_output) continue;
    ++outputs;
    const Need& need = needs.emplace_back(program, stage);
    whole.merge(NeededWhole(program, need));
    in_one_pass.merge(WorthOnePass(program, need, std::min(count, stage.tensor->elements)));
  }
  std::set<int> all = whole;
  all.insert(in_one_pass.begin(), in_one_pass.end());
  Kept kept(program, input);
  KeepInputs(program, ReadsOf(program, all, needs), threads, kept);
  if (!all.empty()) KeepStages(program, whole, in_one_pass, threads, kept);
  SampleRandom random(seed);
  std::vector<SamplePoint> points;
  int output = 0;
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    if (!stage.is_output) continue;
    const std::vector<Cluster> clusters = ChoosePoints(program, stage, count, random);
    const Sampler sampler(program, static_cast<int>(s), output++, kept, threads);
    const bool is_shared_out = !whole.empty() || kept.HasAllReadBy(static_cast<int>(s));
    const bool is_long = is_shared_out && !kept.HasStage(static_cast<int>(s)) &&
                         stage.tensor->elements < static_cast<int64_t>(kFewestPoints) &&
                         kept.costs()[s].operations >= kWorthStages;
    const std::vector<SamplePoint> own =
        is_long ? sampler.RunLong(clusters) : sampler.Run(clusters, max_operations / outputs);
    points.insert(points.end(), own.begin(), own.end());
  }
  return points;
}

std::vector<SamplePoint> EvaluateElements(const TensorProgram& program, int output,
                                          absl::Span<const int64_t> offsets,
                                          const std::function<double(int, int64_t)>& input,
                                          int64_t max_operations, int threads, bool turned) {
  if (offsets.empty()) return {};
  int stage = -1;
  for (int o = 0; o <= output; ++o) {
    do ++stage;
    while (!program.stages[static_cast<size_t>(stage)].is_output);
  }
  const Need need(program, program.stages[static_cast<size_t>(stage)]);
  const double operations = need.operations() * static_cast<double>(offsets.size());
  if (operations > static_cast<double>(max_operations)) return {};
  const Kept kept(program, input);
  const Sampler sampler(program, stage, output, kept, threads);
  std::vector<SamplePoint> points(offsets.size());
  InParallel(offsets.size(), threads, [&](std::atomic<size_t>& next) {
    OnDemand source(program, kept, turned);
    for (size_t i = next++; i < offsets.size(); i = next++) {
      source.ForgetIfMuch();
      points[i] = sampler.Evaluate(source, offsets[i]);
    }
  });
  return points;
}

}  // namespace heddle::search_space
