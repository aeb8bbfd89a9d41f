#include "search_space/reference/samples.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <utility>

#include "base/parallel.h"
#include "search_space/reference/keep_stages.h"
#include "search_space/reference/kept.h"
#include "search_space/reference/on_demand.h"

namespace heddle::search_space {
namespace {

// Points evaluated one after another by one thread, sharing intermediate results.
constexpr int64_t kClusterPoints = 64;
constexpr size_t kFewestPoints = 16;
// Instructions of a point for which threads are worth it, and for which it is looked whether whole
// stages are.
constexpr int64_t kWorthThreads = int64_t{1} << 20;
constexpr double kWorthStages = 0x1p24;

// Finds the axes of an output on which intermediate reductions depend: points that agree in them
// share those reductions. Sets of axes are bit masks.
class SharedAxes {
 public:
  SharedAxes(const TensorProgram& program, const Stage& output) {
    for (size_t d = 0; d < output.axes.size(); ++d) depends_[output.axes[d].get()] = 1u << d;
    reached_.insert(&output);
    // Readers stand behind what they read: of each stage all readers are known when it is its turn,
    // however many ways lead to it.
    for (size_t s = program.stages.size(); s-- > 0;) {
      if (reached_.contains(&program.stages[s])) Follow(program, program.stages[s]);
    }
  }

  bool found() const { return found_; }
  uint32_t mask() const { return mask_; }
  // Of each of the reductions.
  const std::set<uint32_t>& masks() const { return masks_; }

 private:
  void Follow(const TensorProgram& program, const Stage& stage) {
    Visit(stage.body, [&](const Expr& e) {
      const Stage* read = e->op == Op::kLoad ? program.FindStage(e->buffer.get()) : nullptr;
      if (read == nullptr) return;
      reached_.insert(read);
      uint32_t all = 0;
      for (size_t d = 0; d < read->axes.size(); ++d) {
        uint32_t axes = 0;
        Visit(e->args[d], [&](const Expr& part) {
          if (part->op != Op::kVar) return;
          const auto it = depends_.find(part->var.get());
          if (it != depends_.end()) axes |= it->second;
        });
        depends_[read->axes[d].get()] |= axes;
        all |= axes;
      }
      if (!read->is_reduction()) return;
      found_ = true;
      mask_ |= all;
      masks_.insert(all);
    });
  }

  // On which axes of the output each axis of the stages depends.
  std::map<const Variable*, uint32_t> depends_;
  std::set<const Stage*> reached_;
  uint32_t mask_ = 0;
  bool found_ = false;
  std::set<uint32_t> masks_;
};

// What an element of an output takes where each element that it needs is computed once; or all
// elements that differ along some of its axes, a bit mask, together.
class Need {
 public:
  Need(const TensorProgram& program, const Stage& output, uint32_t along = 0) {
    elements_.resize(program.stages.size());
    for (size_t d = 0; d < output.axes.size(); ++d) {
      if ((along >> d & 1) == 0) continue;
      const auto extent = static_cast<double>(output.axes[d]->extent);
      places_[output.axes[d].get()] = {extent, output.axes[d].get()};
      points_ *= extent;
    }
    elements_[static_cast<size_t>(&output - program.stages.data())] = points_;
    const std::vector<StageCost> costs = CostsOf(program);
    // Readers stand behind what they read.
    for (size_t s = program.stages.size(); s-- > 0;) {
      if (elements_[s] == 0) continue;
      const Stage& stage = program.stages[s];
      double everywhere = 1;
      for (const Var& axis : stage.axes) everywhere *= PlacesOf(axis.get()).count;
      elements_[s] = std::min(elements_[s], everywhere);
      operations_ += elements_[s] * costs[s].operations;
      if (costs[s].is_remembered) remembered_ += elements_[s];
      for (const Var& axis : stage.reduce_axes) {
        places_[axis.get()] = {static_cast<double>(axis->extent), axis.get()};
      }
      std::vector<Expr> loads;
      VisitDistinct(stage.body, [&](const Expr& e) {
        const bool is_known =
            e->op != Op::kLoad || std::any_of(loads.begin(), loads.end(), [&](const Expr& other) {
              return StructurallyEqual(e, other);
            });
        if (!is_known) loads.push_back(e);
      });
      for (const Expr& load : loads) {
        const Stage* read = program.FindStage(load->buffer.get());
        if (read == nullptr) continue;
        elements_[static_cast<size_t>(read - program.stages.data())] += Of(load, *read);
      }
    }
  }

  double operations() const { return operations_; }
  double operations_of_a_point() const { return operations_ / points_; }
  double remembered() const { return remembered_; }
  double elements(size_t stage) const { return elements_[stage]; }

 private:
  // Of an axis, so many. Those of one origin, an axis of the output or of a reduction, are the same
  // whoever reads them; others may read other places.
  struct Places {
    double count;
    const Variable* origin;
  };
  // Elements that a load reads in all, at most.
  double Of(const Expr& load, const Stage& read) {
    double count = 1;
    for (size_t d = 0; d < read.axes.size(); ++d) {
      std::set<const Variable*> axes;
      Visit(load->args[d], [&](const Expr& e) {
        if (e->op == Op::kVar) axes.insert(e->var.get());
      });
      double along = 1;
      for (const Variable* axis : axes) along *= PlacesOf(axis).count;
      const auto extent = static_cast<double>(read.axes[d]->extent);
      along = std::min(along, extent);
      const bool is_axis = load->args[d]->op == Op::kVar;
      const Variable* origin = is_axis ? PlacesOf(load->args[d]->var.get()).origin : nullptr;
      const auto [known, is_first] = places_.emplace(read.axes[d].get(), Places{along, origin});
      Places& all = known->second;
      if (!is_first && origin != nullptr && origin == all.origin) {
        all.count = std::max(all.count, along);
      } else if (!is_first) {
        all = {std::min(extent, all.count + along), nullptr};
      }
      count *= along;
    }
    return count;
  }
  Places PlacesOf(const Variable* axis) const {
    const auto found = places_.find(axis);
    return found == places_.end() ? Places{1, axis} : found->second;
  }

  std::map<const Variable*, Places> places_;  // along axes of stages
  std::vector<double> elements_;              // of stages
  double points_ = 1, operations_ = 0, remembered_ = 0;
};

// SplitMix64: the same numbers with every standard library.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}
  int64_t Below(int64_t bound) {
    uint64_t z = (state_ += 0x9e3779b97f4a7c15);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9;
    z = (z ^ (z >> 27)) * 0x94d049bb133111eb;
    return static_cast<int64_t>((z ^ (z >> 31)) % static_cast<uint64_t>(bound));
  }

 private:
  uint64_t state_;
};

using Cluster = std::vector<int64_t>;  // element offsets

// The coordinates of `offset` in the axes of `mask`, as one number.
int64_t KeyOf(const Stage& output, uint32_t mask, int64_t offset) {
  int64_t key = 0, factor = 1;
  for (size_t d = output.axes.size(); d-- > 0;) {
    const int64_t extent = output.axes[d]->extent;
    if ((mask >> d & 1) != 0) key += offset % extent * factor;
    if ((mask >> d & 1) != 0) factor *= extent;
    offset /= extent;
  }
  return key;
}

// The axes along which points of a cluster agree; none where they share nothing. Where some
// reduction depends on every axis, as the scores of a softmax do that computes them, those of
// another one, as the scores' maximum, if a point takes half of what it takes alone.
std::optional<uint32_t> AxesToFix(const TensorProgram& program, const Stage& output) {
  const SharedAxes shared(program, output);
  const uint32_t all = (1u << output.axes.size()) - 1;
  if (!shared.found()) return std::nullopt;
  if (shared.mask() != all) return shared.mask();
  std::optional<uint32_t> best;
  double least = Need(program, output).operations_of_a_point() / 2;
  for (const uint32_t mask : shared.masks()) {
    const double operations = Need(program, output, all & ~mask).operations_of_a_point();
    if (mask == all || operations >= least) continue;
    best = mask;
    least = operations;
  }
  return best;
}

// All elements where there are no more than `count`; otherwise random ones, the first and the last
// element always among them.
std::vector<Cluster> ChoosePoints(const TensorProgram& program, const Stage& output, int64_t count,
                                  Random& random) {
  const uint32_t all = (1u << output.axes.size()) - 1;
  const std::optional<uint32_t> shared = AxesToFix(program, output);
  const uint32_t fixed = shared.value_or(0);
  const int64_t elements = output.tensor->elements;
  std::vector<Cluster> clusters;
  if (elements <= count) {
    std::map<std::pair<int64_t, int64_t>, Cluster> rows;
    for (int64_t offset = 0; offset < elements; ++offset) {
      rows[{KeyOf(output, fixed, offset), shared ? 0 : offset / kClusterPoints}].push_back(offset);
    }
    for (auto& [key, cluster] : rows) clusters.push_back(std::move(cluster));
    return clusters;
  }
  const size_t rank = output.axes.size();
  for (int64_t done = 0; done < count; done += kClusterPoints) {
    Cluster cluster;
    std::vector<int64_t> point(rank, 0);
    const auto draw = [&](uint32_t mask) {
      for (size_t d = 0; d < rank; ++d) {
        if ((mask >> d & 1) != 0) point[d] = random.Below(output.axes[d]->extent);
      }
    };
    // The first cluster starts at the first element, the second at the last.
    const bool corner = done < 2 * kClusterPoints;
    for (size_t d = 0; d < rank && done == kClusterPoints; ++d) {
      point[d] = output.axes[d]->extent - 1;
    }
    if (!corner) draw(fixed);
    const int64_t points = std::min(kClusterPoints, count - done);
    while (static_cast<int64_t>(cluster.size()) < points) {
      if (!corner || !cluster.empty()) draw(all & ~fixed);
      int64_t offset = 0;
      for (size_t d = 0; d < rank; ++d) offset = offset * output.axes[d]->extent + point[d];
      cluster.push_back(offset);
    }
    clusters.push_back(std::move(cluster));
  }
  return clusters;
}

// What all intermediate elements take.
double OperationsOfAll(const TensorProgram& program) {
  const std::vector<StageCost> costs = CostsOf(program);
  double all = 0;
  for (size_t s = 0; s < costs.size(); ++s) {
    if (costs[s].is_remembered && costs[s].is_read) {
      all += costs[s].operations_of_all;
    }
  }
  return all;
}

// The stages that are computed whole for a few elements of an output, where these take long: where
// they take about as long as all of what lies between them and the inputs, or would forget on the
// way what they need again. Of those the ones of which all elements are needed, and those that take
// no longer than what one element of the output needs, since each term is looked at once.
std::set<int> NeededWhole(const TensorProgram& program, const Need& need) {
  std::set<int> stages;
  if (need.operations() < kWorthStages ||
      (kFewestPoints * need.operations() < OperationsOfAll(program) &&
       need.remembered() <= static_cast<double>(kMostRemembered))) {
    return stages;
  }
  const std::vector<StageCost> costs = CostsOf(program);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const auto elements = static_cast<double>(program.stages[s].tensor->elements);
    if (kFewestPoints * need.elements(s) >= elements ||
        need.elements(s) * costs[s].operations >= costs[s].operations_of_all) {
      stages.insert(static_cast<int>(s));
    }
  }
  return stages;
}

// The stages whose terms name their places, of which a look at each term takes no longer than what
// `count` elements of an output need of them.
std::set<int> WorthOnePass(const TensorProgram& program, const Need& need, int64_t count) {
  std::set<int> stages;
  const std::vector<StageCost> costs = CostsOf(program);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const double wanted = need.elements(s) * static_cast<double>(count);
    if (costs[s].is_placed && wanted * costs[s].operations >= costs[s].operations_of_all) {
      stages.insert(static_cast<int>(s));
    }
  }
  return stages;
}

// How many elements of inputs are read where all of `stages` are computed first, and then sixteen
// points of each output that takes long.
std::vector<double> ReadsOf(const TensorProgram& program, const std::set<int>& stages,
                            const std::vector<Need>& needs) {
  std::vector<double> reads(program.inputs.size());
  const std::vector<StageCost> costs = CostsOf(program);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    double elements = 0;
    if (stages.contains(static_cast<int>(s))) {
      elements = costs[s].operations_of_all / costs[s].operations;
    } else {
      for (const Need& need : needs) {
        if (need.operations() >= kWorthStages) elements += kFewestPoints * need.elements(s);
      }
    }
    elements *= static_cast<double>(ExtentOf(stage.reduce_axes));
    VisitDistinct(stage.body, [&](const Expr& e) {
      for (size_t i = 0; e->op == Op::kLoad && i < reads.size(); ++i) {
        if (program.inputs[i] == e->buffer) reads[i] += elements;
      }
    });
  }
  return reads;
}

// Evaluates points of one output.
class Sampler {
 public:
  Sampler(const TensorProgram& program, int stage, int output, const Kept& kept, int threads)
      : program_(program), stage_(stage), output_(output), kept_(kept), threads_(threads) {}

  // Sixteen of the first clusters, and of the others as many as are affordable.
  std::vector<SamplePoint> Run(std::vector<Cluster> clusters, int64_t max_operations) const {
    const std::vector<Cluster> first = TakeFirst(clusters);
    // The first points tell what others cost. Where that is much, each of the next knows what that
    // has computed which begins its cluster and no more, whatever threads there are; and
    // instructions are counted, not time: so the choice of points is reproducible.
    std::vector<SamplePoint> all(first.size());
    std::vector<std::unique_ptr<OnDemand>> known(first.size());
    const auto begin = [&](size_t c, const OnDemand* base) {
      known[c] = std::make_unique<OnDemand>(program_, kept_, false, base);
      all[c] = Evaluate(*known[c], first[c].front());
    };
    begin(0, nullptr);
    InParallel(first.size() - 1, threads_, [&](std::atomic<size_t>& next) {
      for (size_t c = ++next; c < first.size(); c = ++next) begin(c, known[0].get());
    });
    int64_t alone = 0, begun = 0;
    for (const auto& source : known) {
      alone = std::max(alone, source->operations());
      begun += source->operations();
    }
    struct Next {
      OnDemand* known;
      int64_t offset;
    };
    std::vector<Next> next_ones;
    for (size_t c = 0; c < first.size(); ++c) {
      for (size_t p = 1; p < first[c].size(); ++p) {
        next_ones.push_back({known[c].get(), first[c][p]});
      }
    }
    const size_t begins = all.size();
    all.resize(begins + next_ones.size());
    int64_t others = 0;
    if (alone < kWorthThreads) {
      for (size_t i = 0; i < next_ones.size(); ++i) {
        all[begins + i] = Evaluate(*next_ones[i].known, next_ones[i].offset);
      }
      for (const auto& source : known) others += source->operations();
      others -= begun;
    } else {
      std::vector<std::unique_ptr<OnDemand>> sources(next_ones.size());
      InParallel(next_ones.size(), threads_, [&](std::atomic<size_t>& next) {
        for (size_t i = next++; i < next_ones.size(); i = next++) {
          sources[i] = std::make_unique<OnDemand>(program_, kept_, false, next_ones[i].known);
          all[begins + i] = Evaluate(*sources[i], next_ones[i].offset);
        }
      });
      for (size_t i = 0; i < sources.size(); ++i) {
        others += sources[i]->operations();
        next_ones[i].known->Remember(*sources[i]);
      }
    }

    const int64_t another = others / std::max<int64_t>(1, std::ssize(next_ones)) + 1;
    int64_t left = max_operations - begun - others;
    size_t affordable = 0;
    for (; affordable < clusters.size(); ++affordable) {
      if (clusters[affordable].empty()) continue;
      left -= alone + another * std::ssize(clusters[affordable]);
      if (left < 0) break;
    }
    std::vector<std::vector<SamplePoint>> results(affordable);
    InParallel(affordable, threads_, [&](std::atomic<size_t>& next) {
      OnDemand source(program_, kept_);
      for (const auto& each : known) source.Remember(*each);
      for (size_t c = next++; c < affordable; c = next++) {
        source.ForgetIfMuch();
        for (const int64_t offset : clusters[c]) results[c].push_back(Evaluate(source, offset));
      }
    });
    for (const auto& part : results) all.insert(all.end(), part.begin(), part.end());
    return all;
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
  Random random(seed);
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
