#include "search_space/sketch/partition.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <utility>

#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/operands.h"
#include "search_space/schedule/prefix_reductions.h"
#include "search_space/schedule/scattered_terms.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/algorithms.h"
#include "search_space/sketch/instructions.h"
#include "search_space/sketch/patterns/chain.h"
#include "search_space/sketch/patterns/rolling_chain.h"
#include "search_space/sketch/rules/rules.h"

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
// What a partition must save, since others know more ways to compute their kernels.
constexpr double kWorthwhile = 0.97;

constexpr double kTile = 128;  // of a product, along each axis
// Of the peak, by tiles of products.
constexpr double kTileShare = 0.85;
// Of an element of a tile that is computed as it is fetched, for each load beside the first: what
// the analytic time of kernels with such tiles says.
constexpr double kLoadInstructions = 12;
// Of a load from the first-level cache, which a multiprocessor has a quarter as many of.
constexpr double kLoadedAgain = 4;
// Of a term that is added where it belongs, beside what it is: a loop that compares and swaps.
constexpr double kAtomicInstructions = 8;
// Of the device, by what is left to the rule that knows least where something is reused.
constexpr double kFallbackShare = 0.05;
// That keep a multiprocessor busy, about.
constexpr int64_t kThreadsOfSm = 256;
constexpr double kMostChainRows = 64, kLeastChainRows = 4;
// The second-level cache's bandwidth, as a multiple of the memory's.
constexpr double kCacheSpeed = 1.7;

// What one kernel has to do.
class KernelEstimate {
 public:
  KernelEstimate(const ProgramShape& shape, const KernelShape& kernel, const Target& target)
      : shape_(shape), kernel_(kernel), target_(target), schedule_(shape.schedule) {}

  double Us() {
    Place place;
    if (!FindPlace(place)) return std::numeric_limits<double>::infinity();
    stages_ = StagesOf({{}, schedule_, shape_.kernels}, kernel_);
    for (int s : stages_) {
      for (const ScheduledStage* member : schedule_.Together(stage(s))) Add(*member);
    }
    place.bytes_again = place.bytes_again * bytes_ + cached_bytes_;
    if (reuses_ && place.is_fallback) place.product_share = kFallbackShare;
    const double moved_us = bytes_ / (target_.memory_gbs * 1e3);
    const double again_us = place.bytes_again / (target_.memory_gbs * kCacheSpeed * 1e3);
    // Two operations an instruction.
    const double computed_us = instructions_us_ + product_us_ / place.product_share;
    // What is read is not quite hidden behind instructions, as in the analytic time; products fetch
    // tiles ahead.
    const double shown_us = std::hypot(moved_us, instructions_us_);
    return kLaunchUs + std::max({shown_us, again_us, computed_us}) / place.device_share;
  }

 private:
  // How what is computed is spread over the device.
  struct Place {
    double device_share = 1;   // of its multiprocessors that have a block
    double product_share = 1;  // of the time at the peak
    double bytes_again = 0;    // how often all that is read is read, beyond the second-level cache
    bool is_fallback = false;  // does no rule know how to reuse what is?
  };
  const ScheduledStage& stage(int i) const { return schedule_.stage(i); }

  void Add(const ScheduledStage& s) {
    for (const Expr& load : LoadsIn(s.body)) {
      const int p = schedule_.FindStage(load->buffer.get());
      if (p >= 0 && stages_.contains(schedule_.IndexOf(schedule_.NestOf(stage(p))))) continue;
      if (read_.insert(load->buffer.get()).second) bytes_ += BytesOf(*load->buffer);
    }
    const bool is_root = s.is_output || &schedule_.NestOf(s) == &stage(kernel_.root);
    if (is_root) bytes_ += BytesOf(*s.tensor);
    const double iterations = static_cast<double>(ExtentOf(s.axes)) * TermsOf(s);
    const double instruction_us = 2 / (target_.peak_gflops * 1e3);
    const bool is_scattered = scatters_ && PlacesOfTerm(s) > 1;
    if (s.is_reduction() && !is_scattered && ReadsSeveralTensors(s.body)) {
      AddProduct(s, iterations, instruction_us);
      return;
    }
    double each = s.is_reduction()
                      ? InstructionsOfTerm(s.body, s.reduce_axes) + (IsMultiplyAdd(s) ? 0 : 1)
                      : Instructions(s.body) + kLoadedAgain * LoadsAgain(s.body);
    if (is_scattered) each += kAtomicInstructions;
    instructions_us_ += each * iterations * instruction_us;
  }

  // Are its reductions tiled, so that what they read is computed for many elements at once?
  bool HasTiles() {
    if (!has_tiles_.has_value()) {
      has_tiles_ = kernel_.fused || kTilingRule.apply(shape_, kernel_, target_) != nullptr;
    }
    return *has_tiles_;
  }

  // Of elements of a tensor beside the first that is loaded.
  static double LoadsAgain(const Expr& body) {
    const std::vector<Expr> loads = LoadsIn(body);
    std::set<const Buffer*> tensors;
    for (const Expr& load : loads) tensors.insert(load->buffer.get());
    return static_cast<double>(loads.size() - tensors.size());
  }

  static bool IsMultiplyAdd(const ScheduledStage& s) {
    return s.combiner == Combiner::kSum && s.body->op == Op::kMul;
  }

  // Of an element, that are computed: of the sums of all prefixes of a row each has one more, and
  // each scattered one is of one of the places that it may be of.
  double TermsOf(const ScheduledStage& s) const {
    auto terms = static_cast<double>(ExtentOf(s.reduce_axes));
    if (scatters_) terms /= static_cast<double>(PlacesOfTerm(s));
    const int64_t scanned = scans_ ? ScanLength(s) : 0;
    return scanned > 0 ? terms / static_cast<double>(scanned) : terms;
  }

  // Operands are computed once for a tile, but not where several reductions share their loops; and
  // without tiles for each term that does not share them.
  void AddProduct(const ScheduledStage& s, double iterations, double instruction_us) {
    const Operands operands = OperandsOf(s);
    const bool is_alone = s.leader == nullptr && !schedule_.HasCompanions(s);
    const bool is_tiled = HasTiles();
    const double terms = std::max(1.0, Instructions(operands.body, operands.list));
    bool narrow = true;
    for (const Expr& load : LoadsIn(s.body)) narrow = narrow && IsHalf(load->buffer->dtype);
    for (const Expr& operand : operands.list) {
      double each = is_tiled ? Instructions(operand) : InstructionsOfTerm(operand, s.reduce_axes);
      if (each == 0) continue;
      each += kLoadInstructions * (static_cast<double>(LoadsIn(operand).size()) - 1);
      double times = iterations;
      if (is_alone && is_tiled) {
        for (const std::vector<Var>* axes : {&s.axes, &s.reduce_axes}) {
          for (const Var& axis : *axes) {
            if (MentionsAny(operand, {axis.get()})) continue;
            const auto extent = static_cast<double>(axis->extent);
            times *= std::ceil(extent / kTile) / extent;
          }
        }
        narrow = narrow && IsHalf(operand->type);
      }
      instructions_us_ += each * times * instruction_us;
    }
    // Several reductions without tiles share what they load, and load all else for each term.
    if (!is_tiled && !is_alone) {
      instructions_us_ += (terms + kLoadedAgain * NewLoads(s)) * iterations * instruction_us;
      return;
    }
    reuses_ = true;
    const bool on_matrices = narrow && is_alone && (!kernel_.fused || rolls_) && terms == 1;
    const double peak = on_matrices ? MatrixGflops(target_, s.tensor->dtype) : target_.peak_gflops;
    product_us_ += terms * iterations * 2 / (peak * 1e3) / kTileShare;
  }

  // Of an iteration, that no stage before it in the same loops, whose axes are the same, has.
  double NewLoads(const ScheduledStage& s) {
    double count = 0;
    for (const Expr& load : LoadsIn(s.body)) {
      const bool is_known = std::any_of(loads_.begin(), loads_.end(), [&](const Expr& other) {
        return StructurallyEqual(load, other);
      });
      if (is_known) continue;
      loads_.push_back(load);
      ++count;
    }
    return count;
  }

  // What the plan is to inline is inlined by then. False where several kernels are merged for which
  // there is no rule.
  bool FindPlace(Place& place) {
    const auto knows = [&](const SketchRule* rule) {
      return rule->apply(shape_, kernel_, target_) != nullptr;
    };
    if (kernel_.fused && knows(&kSitesRule)) return true;
    if (kernel_.reductions.empty()) return !kernel_.fused;
    scans_ = knows(&kRowsRule) || knows(&kPrefixRule);
    scatters_ = knows(&kScatterRule);
    if (knows(&kRowsRule) || knows(&kStridedRowsRule)) return true;
    if (kernel_.fused) return FindRollingPlace(place) || FindChainPlace(place);
    place.is_fallback = !HasTiles();
    if (place.is_fallback && !scatters_ && !knows(&kColumnsRule) && !knows(&kPrefixRule) &&
        !knows(&kFewRowsRule)) {
      // A thread has a result.
      const auto threads = static_cast<double>(target_.sm_count * kThreadsOfSm);
      const auto results = static_cast<double>(stage(kernel_.root).tensor->elements);
      place.device_share = std::min(1.0, results / threads);
    }
    for (int s : kernel_.stageable) Inline(stage(s).tensor);
    return true;
  }

  void Inline(const BufferRef& tensor) {
    // What does not apply leaves the schedule as it was.
    (void)Apply(Step(ComputeInline{tensor->name}), schedule_);
  }

  // Units for matrices make all products of a chain, and no row of the first one is kept.
  bool FindRollingPlace(Place& place) {
    rolls_ = kRollingRule.apply(shape_, kernel_, target_) != nullptr;
    if (!rolls_) return false;
    const auto rolling = FindRollingChain(shape_, kernel_, target_, false);
    for (const BufferRef& tensor : rolling->inlined) Inline(tensor);
    const auto bytes_of = [](const MatrixKernel& product, const Factor& factor) {
      double bytes = SizeOf(factor.operand.dtype);
      for (size_t axis : factor.axes) {
        const size_t data = product.kernel.axes.size();
        bytes *= static_cast<double>(axis < data ? product.kernel.axes[axis].extent
                                                 : product.kernel.reduce_axes[axis - data].extent);
      }
      return bytes;
    };
    const double blocks = BlocksOf(*FindChain(shape_, kernel_, target_), kTile, place);
    cached_bytes_ = blocks * bytes_of(rolling->root, rolling->values());
    for (const ScoreProduct& scores : rolling->scores) {
      cached_bytes_ += blocks * bytes_of(scores.product, scores.keys());
    }
    return true;
  }

  // So many rows of a block: the blocks along the rows; what of the device all blocks have.
  double BlocksOf(const Chain& chain, double in_block, Place& place) const {
    double rows = 1, others = 1;
    const std::vector<TiledAxis>& axes = chain.root.axes;
    for (size_t a = 0; a < axes.size(); ++a) {
      const bool is_column =
          std::find(chain.columns.begin(), chain.columns.end(), a) != chain.columns.end();
      if (!is_column) (chain.row == a ? rows : others) *= static_cast<double>(axes[a].extent);
    }
    const double blocks = others * std::ceil(rows / in_block);
    const auto sms = static_cast<double>(target_.sm_count);
    place.device_share = blocks / (sms * std::ceil(blocks / sms));
    return std::ceil(rows / in_block);
  }

  // A block has some rows of everything that is kept of a row.
  bool FindChainPlace(Place& place) {
    const auto chain = FindChain(shape_, kernel_, target_);
    if (!chain.has_value()) return false;
    for (const BufferRef& tensor : chain->inlined) Inline(tensor);
    double bytes = 0, rows = 1, batches = 1, columns = 1;
    bool has_tiles = false;
    for (const ChainLink& link : chain->links) {
      double of_row = static_cast<double>(SizeOf(link.result.tensor->dtype));
      for (size_t a : link.columns) {
        of_row *= static_cast<double>(link.result.tensor->shape[a]);
      }
      bytes += of_row;
      has_tiles = has_tiles || link.tiled.has_value();
    }
    const std::vector<TiledAxis>& axes = chain->root.axes;
    for (size_t a = 0; a < axes.size(); ++a) {
      const auto extent = static_cast<double>(axes[a].extent);
      const bool is_column =
          std::find(chain->columns.begin(), chain->columns.end(), a) != chain->columns.end();
      (chain->row == a ? rows : is_column ? columns : batches) *= extent;
    }
    // Half of shared memory is for the tiles of what is fetched.
    const double most = static_cast<double>(target_.max_shared_bytes_per_block) / 2 / bytes;
    double in_block = kMostChainRows;
    while (in_block > most || in_block >= 2 * rows) in_block /= 2;
    if (in_block < kLeastChainRows && rows >= kLeastChainRows) return false;
    in_block = std::max(in_block, 1.0);
    const double row_blocks = std::ceil(rows / in_block);
    const double blocks = batches * row_blocks * (has_tiles ? 1 : std::ceil(columns / kTile));
    const auto sms = static_cast<double>(target_.sm_count);
    place.device_share = blocks / (sms * std::ceil(blocks / sms));
    // A thread that has few rows reads as many columns for them.
    place.product_share = in_block / (in_block + kTile / 8);
    place.bytes_again = row_blocks;
    return true;
  }

  const ProgramShape& shape_;
  const KernelShape& kernel_;
  const Target& target_;
  Schedule schedule_;
  std::set<int> stages_;
  std::set<const Buffer*> read_;
  std::vector<Expr> loads_;  // of several reductions without tiles
  double bytes_ = 0, instructions_us_ = 0, product_us_ = 0;
  double cached_bytes_ = 0;  // of the second-level cache, of what several blocks read
  std::optional<bool> has_tiles_;
  bool reuses_ = false;
  bool scans_ = false;     // does a row's thread, or do several, go along its prefixes once?
  bool scatters_ = false;  // is each term of its reductions added where it belongs?
  bool rolls_ = false;     // is it a chain of products on units for matrices?
};

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
      if (now < 0 || shape.stage(now).materialized) continue;
      const bool may_be =
          shape.stage(now).inlined || IsStageable(shape, now) || IsMadeBeforehand(shape, now);
      if (may_be && IsComputedAgain(s)) names.push_back(s.name());
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

double EstimateUs(const ProgramShape& shape, const Target& target) {
  double us = 0;
  for (const KernelShape& kernel : shape.kernels) {
    us += KernelEstimate(shape, kernel, target).Us();
  }
  return us;
}

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
