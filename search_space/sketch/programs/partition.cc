#include "search_space/sketch/programs/partition.h"

#include <algorithm>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/sketch/patterns/chain.h"
#include "search_space/sketch/programs/instructions.h"
#include "search_space/sketch/programs/kernel_estimate.h"

namespace heddle::search_space {
namespace {

constexpr size_t kMostPartitions = 5;
// Of each a quarter of a millisecond is spent on.
constexpr size_t kMostTried = 40;
// Where there are more, these say little of the ways to merge them.
constexpr size_t kMostKernels = 10;
constexpr size_t kMostStages = 20;
// Of all definitions together; those of public models' operators have some hundred.
constexpr int64_t kMostNodes = 2000;
// Of definitions that compute stages again, which are short once one in the middle is stored; and
// of all partitions that are tried.
constexpr int64_t kMostNodesOfRepeated = 20000, kMostNodesTried = 80000;
// Of all stages' instructions, those of a kernel that computes stages at several places.
constexpr double kComputedAgain = 2;
// Instructions of what is not as soon loaded: an exponential, a root; and elements that read it.
constexpr double kCostly = 10;
constexpr double kRepeated = 16;
// Elements that read one that is found by an index.
constexpr double kGathered = 4;
// What a partition must save, since others know more ways to compute their kernels.
constexpr double kWorthwhile = 0.97;

// Of the definitions, and of what is computed by loops.
int64_t NodesOf(const ProgramShape& shape) {
  int64_t nodes = 0;
  const auto count = [&](const Expr&) { ++nodes; };
  for (const Stage& s : shape.schedule.program().stages) Visit(s.body, count);
  for (const ScheduledStage& s : shape.schedule.stages()) {
    if (!s.inlined) Visit(s.body, count);
  }
  return nodes;
}

// Is it more to compute an element than to load it, for so many that are computed with one?
bool IsWorthLoading(const Expr& body, const Buffer& tensor, double times) {
  if (times >= kGathered * static_cast<double>(tensor.elements) && ReadsByIndex(body)) return true;
  return times >= kRepeated * static_cast<double>(tensor.elements) && Instructions(body) >= kCostly;
}

// Is there an elementwise kernel whose stages are computed at several places, as those of a
// Runge-Kutta method that read their neighbours are?
bool RepeatsStages(const ProgramShape& definition) {
  double once = 0;
  for (const Stage& s : definition.schedule.program().stages) once += Instructions(s.body);
  return std::any_of(definition.kernels.begin(), definition.kernels.end(),
                     [&](const KernelShape& k) {
                       return k.reductions.empty() &&
                              Instructions(definition.stage(k.root).body) >= kComputedAgain * once;
                     });
}

class Partitioner {
 public:
  Partitioner(const std::shared_ptr<const TensorProgram>& program, const Target& target)
      : program_(program), target_(target), unscheduled_(program) {}

  void Improve(Partitioned start) {
    start.us = EstimateUs(*start.shape, target_);
    least_us_ = std::min(least_us_, start.us);
    Partitioned best = std::move(start);
    while (std::optional<Partitioned> better = BestStep(best)) best = *std::move(better);
    // What saves little by itself must not keep from what merges more.
    while (std::optional<Partitioned> better = BestKept(best)) best = *std::move(better);
  }

  std::vector<Partitioned> Best() && {
    // One kernel of everything is found without a partition, but where a stage reads several
    // reductions' results.
    std::erase_if(tried_, [&](const Partitioned& p) {
      const bool is_whole = p.shape->kernels.size() < 2 && p.partition.apart.empty();
      return is_whole || p.us > kWorthwhile * least_us_;
    });
    std::stable_sort(tried_.begin(), tried_.end(),
                     [](const Partitioned& a, const Partitioned& b) { return a.us < b.us; });
    tried_.resize(std::min(tried_.size(), kMostPartitions));
    return std::move(tried_);
  }

 private:
  // The partition with one decision more that takes least, if it takes less.
  std::optional<Partitioned> BestStep(const Partitioned& from) {
    std::optional<Partitioned> best;
    if (from.shape->kernels.size() > kMostKernels) return best;
    const auto keep = [&](std::optional<Partitioned> tried) {
      if (!tried.has_value() || tried->us >= (best.has_value() ? best->us : from.us)) return;
      best = std::move(tried);
    };
    for (const std::string& stage : Storable(*from.shape)) {
      Partition p = from.partition;
      p.stored.insert(stage);
      const auto stored = Try(p, from.together);
      keep(stored);
      if (!stored.has_value()) continue;
      for (Partition& merged : Merges(*stored, &stage)) keep(Try(std::move(merged), from.together));
    }
    for (Partition& merged : Merges(from, nullptr)) keep(Try(std::move(merged), from.together));
    for (const KernelShape& kernel : from.shape->kernels) {
      if (kernel.fused || kernel.reductions.size() < 2) continue;
      for (int reduction : kernel.reductions) {
        Partition p = from.partition;
        p.apart.insert(from.shape->stage(reduction).name());
        keep(Try(std::move(p), from.together));
      }
    }
    return best;
  }

  // The same of one more of rows' statistics, which the kernel keeps that reads it.
  std::optional<Partitioned> BestKept(const Partitioned& from) {
    std::optional<Partitioned> best;
    if (from.shape->kernels.size() > kMostKernels) return best;
    for (size_t k = 0; k < from.shape->kernels.size(); ++k) {
      for (size_t kept = 0; kept < from.shape->kernels.size(); ++kept) {
        std::optional<Partition> p = Keeping(from, k, kept);
        if (!p.has_value()) continue;
        auto tried = Try(*std::move(p), from.together);
        if (!tried.has_value() || tried->us >= (best.has_value() ? best->us : from.us)) continue;
        best = std::move(tried);
      }
    }
    return best;
  }

  std::optional<Partitioned> Try(Partition partition, bool together) {
    const bool is_known = std::any_of(tried_.begin(), tried_.end(), [&](const Partitioned& p) {
      return p.together == together && p.partition == partition;
    });
    if (is_known || tried_.size() == kMostTried || nodes_ > kMostNodesTried) return std::nullopt;
    const auto shape = std::make_shared<const ProgramShape>(
        together ? FindKernelsTogether(program_, partition) : FindKernels(program_, {}, partition));
    if (shape->kernels.empty()) return std::nullopt;
    nodes_ += NodesOf(*shape);
    tried_.push_back({std::move(partition), together, shape, EstimateUs(*shape, target_)});
    return tried_.back();
  }

  // Elementwise stages that somebody computes again and again.
  std::vector<std::string> Storable(const ProgramShape& shape) const {
    std::vector<std::string> names;
    for (const ScheduledStage& s : unscheduled_.stages()) {
      if (s.is_reduction() || s.is_output || Instructions(s.body) == 0) continue;
      const int now = shape.schedule.FindStage(s.name());
      if (now < 0 || shape.stage(now).materialized || !IsComputedAgain(s)) continue;
      const bool may_be =
          shape.stage(now).inlined || IsStageable(shape, now) || IsMadeBeforehand(shape, now);
      if (may_be) names.push_back(s.name());
    }
    return names;
  }
  // By several readers, for each term of one or at several places, or for many of its elements
  // where that is more than to load it.
  bool IsComputedAgain(const ScheduledStage& s) const {
    const std::vector<int> readers = unscheduled_.ReadersOf(s.tensor.get());
    return readers.size() > 1 || std::any_of(readers.begin(), readers.end(), [&](int r) {
             const ScheduledStage& reader = unscheduled_.stage(r);
             const std::vector<Expr> loads = LoadsIn(reader.body);
             return reader.is_reduction() ||
                    std::count_if(loads.begin(), loads.end(),
                                  [&](const Expr& l) { return l->buffer == s.tensor; }) > 1 ||
                    IsWorthLoading(s.body, *s.tensor, static_cast<double>(reader.tensor->elements));
           });
  }
  static bool IsStageable(const ProgramShape& shape, int stage) {
    return std::any_of(shape.kernels.begin(), shape.kernels.end(), [&](const KernelShape& k) {
      return std::find(k.stageable.begin(), k.stageable.end(), stage) != k.stageable.end();
    });
  }

  // Does a chain compute it from inputs and what others store, such as rows that are normalised in
  // front of attention?
  bool IsMadeBeforehand(const ProgramShape& shape, int stage) const {
    const std::vector<Expr> loads = LoadsIn(shape.stage(stage).body);
    return std::any_of(shape.kernels.begin(), shape.kernels.end(), [&](const KernelShape& k) {
      if (!k.fused) return false;
      const std::set<int> computed = StagesOf(shape, k);
      return computed.contains(stage) &&
             std::none_of(loads.begin(), loads.end(),
                          [&](const Expr& load) {
                            return computed.contains(shape.schedule.FindStage(load->buffer.get()));
                          }) &&
             FindChain(shape, k, target_).has_value();
    });
  }

  // With one kernel making what another one does of the same rows, and storing it, too.
  static std::optional<Partition> Keeping(const Partitioned& from, size_t in, size_t other) {
    const KernelShape &reader = from.shape->kernels[in], &read = from.shape->kernels[other];
    const ScheduledStage& root = from.shape->stage(reader.root);
    const ScheduledStage& kept = from.shape->stage(read.root);
    const Partition& p = from.partition;
    if (in == other || kept.is_output || p.stored.contains(kept.name()) ||
        p.kept.contains(kept.name()) || kept.tensor->shape != root.tensor->shape ||
        reader.reductions.empty() || read.reductions.empty() || reader.fused || read.fused) {
      return std::nullopt;
    }
    Partition with = p;
    with.kept.insert(kept.name());
    return with;
  }

  // Each kernel with those between it and another one, merged into that; `into` one of this name.
  std::vector<Partition> Merges(const Partitioned& from, const std::string* into) const {
    const ProgramShape& shape = *from.shape;
    const size_t count = shape.kernels.size();
    // Does a kernel need another one's result, itself or through others?
    std::vector<std::vector<bool>> reads(count, std::vector<bool>(count));
    for (size_t k = 0; k < count; ++k) {
      for (int s : StagesOf(shape, shape.kernels[k])) {
        for (const ScheduledStage* member : shape.schedule.Together(shape.stage(s))) {
          for (const Expr& load : LoadsIn(member->body)) {
            const int p = shape.schedule.FindStage(load->buffer.get());
            if (p < 0) continue;
            const int root = shape.schedule.IndexOf(shape.schedule.NestOf(shape.stage(p)));
            for (size_t j = 0; j < count; ++j) {
              if (j != k && shape.kernels[j].root == root) reads[k][j] = true;
            }
          }
        }
      }
    }
    std::vector<std::vector<bool>> needs = reads;
    for (size_t via = 0; via < count; ++via) {
      for (size_t k = 0; k < count; ++k) {
        for (size_t j = 0; j < count; ++j) {
          if (needs[k][via] && needs[via][j]) needs[k][j] = true;
        }
      }
    }
    std::vector<Partition> merges;
    for (size_t k = 0; k < count; ++k) {
      if (into != nullptr && shape.stage(shape.kernels[k].root).name() != *into) continue;
      for (size_t first = 0; first < count; ++first) {
        if (!needs[k][first]) continue;
        std::set<size_t> merged = {first};
        for (size_t j = 0; j < count; ++j) {
          if (needs[k][j] && needs[j][first]) merged.insert(j);
        }
        bool ok = true;
        for (size_t m : merged) {
          // What is stored would be computed in its reader all the same.
          const ScheduledStage& root = shape.stage(shape.kernels[m].root);
          ok = ok && !root.is_output && !from.partition.stored.contains(root.name());
          for (size_t r = 0; r < count; ++r) {
            ok = ok && (!reads[r][m] || r == k || merged.contains(r));
          }
        }
        if (!ok) continue;
        Partition p = from.partition;
        for (size_t m : merged) p.merged.insert(shape.stage(shape.kernels[m].root).name());
        merges.push_back(std::move(p));
      }
    }
    return merges;
  }

  const std::shared_ptr<const TensorProgram>& program_;
  const Target& target_;
  const Schedule unscheduled_;
  std::vector<Partitioned> tried_;
  int64_t nodes_ = 0;  // of those that were tried
  double least_us_ = std::numeric_limits<double>::infinity();
};

}  // namespace

bool ComputesAgain(const ProgramShape& definition) {
  const std::vector<Stage>& stages = definition.schedule.program().stages;
  const bool is_elementwise =
      definition.kernels.size() == 1 && definition.kernels[0].reductions.empty();
  // What does not depend on the innermost loop a thread computes once for all of that.
  const auto repeats = [&](const Stage& s, const Stage& reader) {
    const std::vector<Var>& loops = reader.is_reduction() ? reader.reduce_axes : reader.axes;
    if (loops.empty()) return false;
    const Var& innermost = loops.back();
    const std::vector<Expr> loads = LoadsIn(reader.body);
    return std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
      return load->buffer == s.tensor && (is_elementwise || MentionsAny(load, {innermost.get()}));
    });
  };
  return RepeatsStages(definition) ||
         std::any_of(stages.begin(), stages.end(), [&](const Stage& s) {
           return !s.is_reduction() && !s.is_output &&
                  std::any_of(stages.begin(), stages.end(), [&](const Stage& reader) {
                    const double times = static_cast<double>(ExtentOf(reader.axes)) *
                                         static_cast<double>(ExtentOf(reader.reduce_axes));
                    return repeats(s, reader) && IsWorthLoading(s.body, *s.tensor, times);
                  });
         });
}

bool IsDivisible(const ProgramShape& definition) {
  const size_t kernels = definition.kernels.size();
  if (kernels == 0 || kernels > kMostKernels) return false;
  if (definition.schedule.program().stages.size() > kMostStages) return false;
  const int64_t nodes = NodesOf(definition);
  if (kernels > 1 && nodes <= kMostNodes) return true;
  return nodes <= kMostNodesOfRepeated && ComputesAgain(definition);
}

std::vector<Partitioned> PartitionsOf(const std::shared_ptr<const TensorProgram>& program,
                                      const std::vector<Partitioned>& starts,
                                      const Target& target) {
  if (target.peak_gflops <= 0 || target.memory_gbs <= 0 || target.sm_count <= 0) return {};
  Partitioner partitioner(program, target);
  for (const Partitioned& start : starts) partitioner.Improve(start);
  return std::move(partitioner).Best();
}

}  // namespace heddle::search_space
