#include "search_space/sketch/programs/kernel_estimate.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <optional>
#include <set>
#include <vector>

#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/operands.h"
#include "search_space/schedule/analysis/prefix_reductions.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/patterns/chain.h"
#include "search_space/sketch/patterns/rolling_chain.h"
#include "search_space/sketch/programs/instructions.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

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
    const bool on_matrices = rolls_ || (narrow && is_alone && !kernel_.fused && terms == 1);
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

}  // namespace

double EstimateUs(const ProgramShape& shape, const Target& target) {
  double us = 0;
  for (const KernelShape& kernel : shape.kernels) {
    us += KernelEstimate(shape, kernel, target).Us();
  }
  return us;
}

}  // namespace heddle::search_space
