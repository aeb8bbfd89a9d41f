// Reductions of scattered terms, such as histograms and sums by groups: a block has the elements of
// some places, or of all, in shared memory, looks at each term once and adds it where it belongs.
// Where terms are many and places few, several blocks have parts of the terms, and a second kernel
// combines what they have found.
#include "search_space/schedule/threads/scatter.h"

#include <algorithm>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/stmt.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/sketch/kernels/combine.h"
#include "search_space/sketch/rules/rules.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kFewestPlaces = 8;  // fewer are as well compared with each term

struct Scattered {
  StageRef root, reduction;
  std::vector<StageRef> inlined;
  std::vector<bool> has_key;     // by axis of the reduction
  size_t place = 0;              // the outermost one with a key
  std::optional<size_t> column;  // the innermost one without, where no key depends on it
  int64_t places = 1, columns = 1;
  int64_t inner = 1;   // elements of the other axes with keys, all of which a block has
  int64_t others = 1;  // of the other axes without, of which a block has one
  int64_t terms = 1;   // of an element of these
  int64_t stages = 1;  // that are computed together
};

// Does where a term belongs depend on its place along this axis?
bool DependsOn(const std::vector<ScatteredTerms>& all, const Var& axis) {
  return std::any_of(all.begin(), all.end(), [&](const ScatteredTerms& terms) {
    return std::any_of(terms.keys.begin(), terms.keys.end(), [&](const Expr& key) {
      return key != nullptr && MentionsAny(key, {axis.get()});
    });
  });
}

// Does every stage of the root's loops read what is reduced at its own element?
bool ReadsOwnElements(const ProgramShape& shape, const ScheduledStage& root,
                      const ScheduledStage& reduction) {
  const std::vector<const ScheduledStage*> reduced = shape.schedule.Together(reduction);
  const auto is_reduced = [&](const Expr& load) {
    return std::any_of(reduced.begin(), reduced.end(),
                       [&](const ScheduledStage* s) { return s->tensor == load->buffer; });
  };
  bool own = true;
  for (const ScheduledStage* s : shape.schedule.Together(root)) {
    own = own && s->axes.size() == reduction.axes.size();
    Visit(s->body, [&](const Expr& load) {
      if (!own || load->op != Op::kLoad || !is_reduced(load)) return;
      for (size_t i = 0; i < load->args.size(); ++i) {
        const Expr& index = load->args[i];
        own = own && (IsVar(index, s->axes[i]) || (s->axes[i]->extent == 1 && IsInt(index, 0)));
      }
    });
  }
  return own;
}

std::optional<Scattered> FindScattered(const ProgramShape& shape, const KernelShape& kernel) {
  if (kernel.fused || kernel.reductions.size() != 1) return std::nullopt;
  const ScheduledStage& root = shape.stage(kernel.root);
  const ScheduledStage& stage = shape.stage(kernel.reductions[0]);
  const std::vector<ScatteredTerms> terms = ScatteredTermsOf(stage);
  if (terms.empty() || !ReadsOwnElements(shape, root, stage)) return std::nullopt;
  Scattered found{.root = {root.tensor}, .reduction = {stage.tensor}};
  found.stages = static_cast<int64_t>(shape.schedule.Together(stage).size());
  found.terms = ExtentOf(stage.reduce_axes);
  std::vector<ScatteredTerms> all;
  for (const ScheduledStage* s : shape.schedule.Together(stage)) {
    const std::vector<ScatteredTerms> own = ScatteredTermsOf(*s);
    all.insert(all.end(), own.begin(), own.end());
  }
  bool has_place = false;
  for (size_t i = 0; i < stage.axes.size(); ++i) {
    const int64_t extent = stage.axes[i]->extent;
    found.has_key.push_back(terms[0].HasKey(i));
    if (!found.has_key[i]) {
      if (extent > 1 && !DependsOn(all, stage.axes[i])) found.column = i;
      found.others *= extent;
    } else if (has_place) {
      found.inner *= extent;
    } else {
      has_place = true;
      found.place = i;
      found.places = extent;
    }
  }
  if (found.column.has_value()) {
    found.columns = stage.axes[*found.column]->extent;
    found.others /= found.columns;
  }
  if (found.places * found.inner < kFewestPlaces) return std::nullopt;
  for (int s : kernel.stageable) found.inlined.push_back({shape.stage(s).tensor});
  return found;
}

class ScatterPlan : public KernelPlan {
 public:
  ScatterPlan(Scattered scattered, const Target& target)
      : scattered_(std::move(scattered)), target_(target) {}

  // As many places as there are, as many columns as fit beside them, a few blocks for each
  // multiprocessor.
  std::vector<uint8_t> Default() const override {
    std::vector<uint8_t> choices(holes_.size(), 0);
    if (holes_[threads_].domain.size() > 1) choices[threads_] = 1;
    const auto values = [&] {
      std::vector<int64_t> all;
      for (size_t h = 0; h < holes_.size(); ++h) all.push_back(holes_[h].domain[choices[h]]);
      return all;
    };
    const auto grow = [&](size_t hole, auto&& fits) {
      const size_t last = holes_[hole].domain.size() - 1;
      while (choices[hole] < last) {
        ++choices[hole];
        if (fits(values())) continue;
        --choices[hole];
        return;
      }
    };
    const int64_t most = target_.max_shared_bytes_per_block / 2;
    grow(places_, [&](HoleValues v) { return SharedBytes(v) <= most; });
    grow(columns_,
         [&](HoleValues v) { return SharedBytes(v) <= most && v[columns_] <= kWarpThreads; });
    grow(parts_, [&](HoleValues v) {
      return Blocks(v) <= 2 * target_.sm_count || PartLength(v) > kMostSerialTerms;
    });
    while (choices[parts_] > 0 && !Check(values()).ok()) --choices[parts_];
    grow(unroll_, [&](HoleValues v) { return v[unroll_] <= kPreferredUnroll && Check(v).ok(); });
    return choices;
  }

  absl::Status Check(HoleValues v) const override {
    const auto refuse = [&](absl::string_view why) { return Refusal(scattered_.root, why); };
    if (SharedBytes(v) > target_.max_shared_bytes_per_block) {
      return refuse(absl::StrCat(SharedBytes(v), " bytes of shared memory"));
    }
    // Of a part of the places a block would else add up others' terms, too.
    if (v[places_] < scattered_.places && Tile(v) % v[threads_] != 0) {
      return refuse(absl::StrCat(v[threads_], " threads for tiles of ", Tile(v)));
    }
    if (Blocks(v) > target_.max_grid) return refuse(absl::StrCat(Blocks(v), " blocks"));
    if (v[parts_] > 1 &&
        (Blocks(v) > kMostBlocks * target_.sm_count || 2 * Parts(v) <= v[parts_])) {
      return refuse(absl::StrCat(v[parts_], " parts of the terms are not all needed"));
    }
    if (PartLength(v) > kMostSerialTerms) return refuse(absl::StrCat(PartLength(v), " terms"));
    if (v[unroll_] > 1 && v[unroll_] * v[threads_] > scattered_.terms * v[columns_]) {
      return refuse("nothing to unroll");
    }
    return absl::OkStatus();
  }

  // All indices are read for every part of the places, so most draws have as many as fit.
  void Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const override {
    static constexpr int kAttempts = 8;
    const bool is_anywhere = std::uniform_int_distribution<int>(0, 7)(rng) == 0;
    for (int attempt = 0; attempt < kAttempts; ++attempt) {
      KernelPlan::Draw(rng, values);
      for (size_t p = holes_[places_].domain.size(); p-- > 0 && !is_anywhere;) {
        values[places_] = holes_[places_].domain[p];
        if (SharedBytes(values) <= target_.max_shared_bytes_per_block) break;
      }
      if (Check(values).ok()) return;
    }
  }

  double Waste(HoleValues v) const override {
    return static_cast<double>(CeilDiv(scattered_.places, v[places_])) *
           static_cast<double>(CeilDiv(scattered_.columns, v[columns_]) * v[columns_]) /
           static_cast<double>(scattered_.columns);
  }

 protected:
  void Write(ScheduleWriter& w, HoleValues v) const override {
    for (const StageRef& s : scattered_.inlined) w.ComputeInline(s);
    const StageRef& whole = scattered_.reduction;
    if (v[parts_] == 1) return WriteTiles(w, scattered_.root, whole, 0, v);
    const LoopRef terms = w.Fuse(w.ReduceLoops(whole));
    const StageRef part = w.Rfactor(w.Split(terms, PartLength(v))[0]);
    const std::vector<StageRef> partials = w.Materialize(part, whole);
    WriteTiles(w, partials[0], part, 1, v);
    WriteCombineKernel(w, {scattered_.root, whole, partials, Parts(v)}, target_);
  }

 private:
  static constexpr int64_t kMostParts = 1024;    // of the terms
  static constexpr int64_t kShortestPart = 256;  // terms
  static constexpr int64_t kMostBlocks = 16;     // a multiprocessor, of parts
  static constexpr int64_t kPreferredUnroll = 4;

  static std::vector<int64_t> PowersAndAll(int64_t extent) {
    std::vector<int64_t> values = Doubled(1, extent);
    if (values.back() != extent) values.push_back(extent);
    return values;
  }

  // Terms of a part: whole rounds of the threads, where there are several.
  int64_t PartLength(HoleValues v) const {
    if (v[parts_] == 1) return scattered_.terms;
    const int64_t groups = v[threads_] / Scatter::ThreadsOfTerm(v[threads_], v[columns_]);
    return RoundUp(CeilDiv(scattered_.terms, v[parts_]), groups * v[unroll_]);
  }
  // As many as there are with rounds that are whole.
  int64_t Parts(HoleValues v) const { return CeilDiv(scattered_.terms, PartLength(v)); }
  int64_t Blocks(HoleValues v) const {
    return Parts(v) * scattered_.others * CeilDiv(scattered_.places, v[places_]) *
           CeilDiv(scattered_.columns, v[columns_]);
  }
  int64_t Tile(HoleValues v) const { return v[places_] * scattered_.inner * v[columns_]; }
  // Whole rounds of the threads store them, along the outermost axis.
  int64_t SharedBytes(HoleValues v) const {
    const bool column_leads = scattered_.column && *scattered_.column < scattered_.place;
    const int64_t layer = Tile(v) / v[column_leads ? columns_ : places_];
    const int64_t elements = RoundUp(RoundUp(Tile(v), v[threads_]), layer);
    return scattered_.stages * elements * kAccumulatorBytes;
  }

  // `root` stores what blocks make of `reduction`, which has `first` axes in front of those of the
  // whole.
  void WriteTiles(ScheduleWriter& w, const StageRef& root, const StageRef& reduction, size_t first,
                  HoleValues v) const {
    const LoopList axes = w.Loops(root);
    LoopList blocks, tile;
    for (size_t i = 0; i < axes.size(); ++i) {
      const bool is_place = i == first + scattered_.place;
      const bool is_column = scattered_.column && i == first + *scattered_.column;
      if (is_place || is_column) {
        const auto [outer, inner] = w.Split(axes[i], v[is_place ? places_ : columns_]);
        blocks.push_back(outer);
        tile.push_back(inner);
      } else {
        const bool is_inner = i >= first && scattered_.has_key[i - first];
        (is_inner ? tile : blocks).push_back(axes[i]);
      }
    }
    w.Reorder(Join({blocks, tile}));
    const LoopRef block = w.Fuse(blocks);
    const auto [round, thread] = w.Split(w.Fuse(tile), v[threads_]);
    w.Reorder({block, thread, round});
    w.Bind(block, BindTo::kBlock);
    w.Bind(thread, BindTo::kThread);
    w.SetScope(reduction, Scope::kShared);
    w.Scatter(reduction, v[unroll_]);
    w.ComputeAt(reduction, block);
    w.Fuse(w.ReduceLoops(reduction));
  }

  const Scattered scattered_;
  const Target target_;
  const HoleId threads_ = AddHole(
      "threads",
      Doubled(std::min<int64_t>(128, target_.max_threads_per_block), target_.max_threads_per_block),
      0);
  const HoleId places_ = AddHole("places", PowersAndAll(scattered_.places), 0);
  const HoleId columns_ = AddHole("columns", PowersAndAll(scattered_.columns), 0);
  const HoleId parts_ = AddHole(
      "parts", Doubled(1, std::clamp<int64_t>(scattered_.terms / kShortestPart, 1, kMostParts)), 0);
  const HoleId unroll_ = AddHole("unroll", {1, 2, 4, 8}, 0);
};

std::unique_ptr<KernelPlan> PlanScatter(const ProgramShape& shape, const KernelShape& kernel,
                                        const Target& target) {
  auto scattered = FindScattered(shape, kernel);
  if (!scattered.has_value()) return nullptr;
  auto plan = std::make_unique<ScatterPlan>(*std::move(scattered), target);
  if (!plan->IsWritable(shape.schedule)) return nullptr;
  return plan;
}

}  // namespace

const SketchRule kScatterRule = {.name = "scatter", .apply = PlanScatter};

}  // namespace heddle::search_space
