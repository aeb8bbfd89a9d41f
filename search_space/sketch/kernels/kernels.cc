#include "search_space/sketch/kernels/kernels.h"

#include <algorithm>
#include <optional>
#include <string>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "base/check.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/sketch/kernels/beside_rows.h"
#include "search_space/sketch/kernels/compute_together.h"
#include "search_space/sketch/kernels/kept_rows.h"
#include "search_space/sketch/kernels/reads.h"

namespace heddle::search_space {
namespace {

// Whether stages can be computed together is tried for each pair, looking through all of them.
constexpr size_t kMostTogether = 20;

// Operations and operands of an element that each tile computes anew which reads it, and each of a
// thread's copies writes out: results of Winograd's algorithm, of which the windows of a pool are
// made, are not among them.
constexpr int64_t kMostStagedNodes = 512;

class ShapeFinder {
 public:
  ShapeFinder(ProgramShape& shape, const Partition& partition)
      : shape_(shape), schedule_(shape.schedule), partition_(partition) {}

  // `together`: with what can be computed together.
  void Run(bool together, bool joins_rows = true) {
    together_ = together;
    joins_rows_ = joins_rows;
    std::optional<ProgramShape> unmerged;
    if (!partition_.merged.empty()) {
      unmerged = shape_;
      const Partition others{partition_.apart, partition_.stored, {}, {}};
      ShapeFinder(*unmerged, others).Run(together, joins_rows);
    }
    if (together_) InlineOutputs(false);
    KeepApart();
    Store();
    if (unmerged.has_value() && !PlaceMerged(*unmerged)) return;
    Inline();
    if (!PlaceKept()) return;
    FindTooLarge();
    if (together_) {
      MergeOutputs();
      MergeReductions(false);
      if (!IsWhole()) return;
    }
    FindKernels();
  }

  // The same of the program as one kernel, but for what reads one of `ends`, by names.
  void FuseTogether(const std::set<std::string>& ends) {
    FindBehind(ends);
    ReadAgain(ends);
    if (!FuseFront(ends) || !HasCompanions()) return;
    AddFrontKernel();
    FindKernelsBehind();
  }

  // The same with reductions over the rows of the root beside it.
  void FuseBeside() {
    const std::vector<BufferRef> sums = SumsBesideRows(schedule_);
    for (const BufferRef& sum : sums) behind_.insert(sum.get());
    FindBehind({});
    if (sums.empty() || !KeepReadBySums(sums) || !FuseFront({}) || !MergeSums(sums)) return;
    if (IsReadBehind(sums)) return;
    AddFrontKernel();
    FindKernelsBehind();
    std::vector<int>& beside = shape_.kernels[0].beside;
    for (const BufferRef& sum : sums) {
      const int s = schedule_.FindStage(sum.get());
      if (stage(s).leader == nullptr) beside.push_back(s);
    }
    const auto is_left = [&](const KernelShape& kernel) {
      return kernel.reductions.size() == 1 &&
             std::find(beside.begin(), beside.end(), kernel.reductions[0]) != beside.end();
    };
    shape_.kernels.erase(std::remove_if(shape_.kernels.begin() + 1, shape_.kernels.end(), is_left),
                         shape_.kernels.end());
  }

 private:
  const ScheduledStage& stage(int i) const { return shape_.stage(i); }
  const ScheduledStage& StageOf(const BufferRef& tensor) const {
    return stage(schedule_.FindStage(tensor.get()));
  }

  // Has the outputs that are not behind others, and `ends`, be computed together, in the loops of
  // front_, and their reductions.
  bool FuseFront(const std::set<std::string>& ends) {
    InlineOutputs(true);
    int root = -1;
    std::vector<BufferRef> others;
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      const ScheduledStage& s = schedule_.stages()[i];
      if (IsBehind(s) || !(s.is_output || ends.contains(s.name()))) continue;
      if (root >= 0 && s.axes.size() < stage(root).axes.size()) {
        others.push_back(s.tensor);
        continue;
      }
      if (root >= 0) others.push_back(stage(root).tensor);
      root = static_cast<int>(i);
    }
    front_ = stage(root).tensor;
    for (const BufferRef& other : others) {
      if (!ComputeTogether(schedule_, shape_.steps, other, front_)) return false;
    }
    MergeReductions(true);
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      const int s = static_cast<int>(i);
      if (IsBehind(stage(s)) && ShouldInline(s)) InlineStage(s);
    }
    return true;
  }
  void AddFrontKernel() {
    KernelShape kernel{.root = schedule_.FindStage(front_.get()), .fused = true};
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      const ScheduledStage& s = schedule_.stages()[i];
      const bool is_own = s.is_reduction() && s.leader == nullptr && !IsBehind(s);
      if (is_own) kernel.reductions.push_back(static_cast<int>(i));
    }
    shape_.kernels.push_back(std::move(kernel));
  }
  void FindKernelsBehind() {
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      const int s = static_cast<int>(i);
      if (IsBehind(stage(s)) && IsKernel(s)) shape_.kernels.push_back(MakeKernel(s));
    }
  }

  // Outputs that sums read, too, are computed for both at once. False where others behind the sums
  // read one: these would wait for what only the kernel has.
  bool KeepReadBySums(const std::vector<BufferRef>& sums) {
    std::vector<std::string> outputs;
    for (const ScheduledStage& s : schedule_.stages()) {
      if (!s.is_output || IsBehind(s)) continue;
      const std::vector<int> readers = schedule_.ReadersOf(s.tensor.get());
      const auto is_sum = [&](int r) { return IsSum(r, sums); };
      if (std::none_of(readers.begin(), readers.end(), is_sum)) continue;
      const auto is_other = [&](int r) { return IsBehindSums(r, sums); };
      if (std::any_of(readers.begin(), readers.end(), is_other)) return false;
      outputs.push_back(s.name());
    }
    for (const std::string& output : outputs) {
      Take(CacheWrite{output, Scope::kLocal});
    }
    return true;
  }

  // Does what comes behind the sums read what the front's kernel computes for itself?
  bool IsReadBehind(const std::vector<BufferRef>& sums) const {
    const std::vector<ScheduledStage>& all = schedule_.stages();
    return std::any_of(all.begin(), all.end(), [&](const ScheduledStage& s) {
      if (IsBehind(s) || s.is_output || s.inlined) return false;
      const std::vector<int> readers = schedule_.ReadersOf(s.tensor.get());
      return std::any_of(readers.begin(), readers.end(),
                         [&](int r) { return IsBehindSums(r, sums); });
    });
  }
  // Is the stage behind the sums, and none of them?
  bool IsBehindSums(int s, const std::vector<BufferRef>& sums) const {
    return IsBehind(stage(s)) && !IsSum(s, sums);
  }
  bool IsSum(int s, const std::vector<BufferRef>& sums) const {
    return std::find(sums.begin(), sums.end(), stage(s).tensor) != sums.end();
  }

  // One kernel for what is left of sums of the same shape; false where one has no reader that is a
  // kernel's root, or several.
  bool MergeSums(const std::vector<BufferRef>& sums) {
    const auto root_of = [&](const BufferRef& sum) -> BufferRef {
      const std::optional<int> reader = schedule_.OnlyReaderOf(sum.get());
      return reader && !stage(*reader).is_reduction() && stage(*reader).is_root()
                 ? stage(*reader).tensor
                 : nullptr;
    };
    for (const BufferRef& sum : sums) {
      const BufferRef root = root_of(sum);
      if (root == nullptr || ReductionsOf(schedule_.FindStage(root.get())).size() != 1)
        return false;
    }
    for (size_t i = 1; i < sums.size(); ++i) {
      Schedule merged = schedule_;
      std::vector<Step> steps;
      const bool go = root_of(sums[0])->shape == root_of(sums[i])->shape &&
                      ComputeTogether(merged, steps, root_of(sums[i]), root_of(sums[0])) &&
                      ComputeTogether(merged, steps, sums[i], sums[0]);
      if (!go) continue;
      schedule_ = std::move(merged);
      shape_.steps.insert(shape_.steps.end(), steps.begin(), steps.end());
    }
    return true;
  }

  // The result of what is to be apart is stored by the stage that reads it, where that only copies
  // it, or else by a copy in front of that one.
  void KeepApart() {
    for (const std::string& name : partition_.apart) {
      const int reduction = schedule_.FindStage(name);
      if (reduction < 0) continue;
      const BufferRef result = stage(reduction).tensor;
      const std::optional<int> only = schedule_.OnlyReaderOf(result.get());
      if (!only) continue;
      const ScheduledStage& reader = stage(*only);
      if (reader.is_reduction() || reader.body->op != Op::kLoad) {
        const Step step = CacheRead{name, Scope::kGlobal, reader.name()};
        if (!Apply(step, schedule_).ok()) continue;
        shape_.steps.push_back(step);
      }
      stored_.insert(stage(schedule_.ReadersOf(result.get())[0]).tensor.get());
    }
  }

  void Store() {
    for (const std::string& name : partition_.stored) {
      Take(Materialize{name});
    }
  }

  // What belongs to kernels that others are merged into, as they are `unmerged`, stays as it is,
  // but for what other kernels compute, too. False where those would compute a reduction.
  bool PlaceMerged(const ProgramShape& unmerged) {
    std::vector<int> roots;
    std::set<int> merged, others;
    for (const KernelShape& kernel : unmerged.kernels) {
      const ScheduledStage& root = unmerged.stage(kernel.root);
      const bool is_merged = partition_.merged.contains(root.name());
      if (is_merged && unmerged.schedule.HasCompanions(root)) return false;
      const int stage = schedule_.FindStage(root.name());
      (is_merged ? merged : others).insert(stage);
      roots.push_back(stage);
    }
    if (merged.size() != partition_.merged.size()) return false;
    size_t placed = 0;
    for (size_t k = 0; k < roots.size(); ++k) {
      if (merged.contains(roots[k])) continue;
      std::set<int> stages;
      AddStages(schedule_, roots[k], others, stages);
      const auto inside =
          std::count_if(stages.begin(), stages.end(), [&](int s) { return merged.contains(s); });
      if (inside == 0) continue;
      if (unmerged.schedule.HasCompanions(unmerged.stage(unmerged.kernels[k].root))) return false;
      placed += static_cast<size_t>(inside);
      // Readers first: what only a stage that others read, too, is made of is not the kernel's own.
      std::set<int> own;
      for (auto at = stages.rbegin(); at != stages.rend(); ++at) {
        const int s = *at;
        const std::vector<int> readers = schedule_.ReadersOf(stage(s).tensor.get());
        const bool is_own = s == roots[k] || std::all_of(readers.begin(), readers.end(),
                                                         [&](int r) { return own.contains(r); });
        if (is_own) {
          own.insert(s);
          placed_.emplace(stage(s).tensor.get(), stage(roots[k]).tensor.get());
        } else if (stage(s).is_reduction() || merged.contains(s)) {
          return false;
        }
      }
    }
    return placed == merged.size();
  }
  // The same of rows that others read, too.
  bool PlaceKept() {
    return std::all_of(
        partition_.kept.begin(), partition_.kept.end(), [&](const std::string& name) {
          const std::optional<KeptRows> rows = KeepRows(schedule_, name, shape_.steps);
          if (!rows.has_value() || placed_.contains(rows->root.get())) return false;
          placed_.emplace(rows->root.get(), rows->root.get());
          for (const BufferRef& r : rows->reductions) placed_.emplace(r.get(), rows->root.get());
          return true;
        });
  }
  bool IsPlaced(int i) const { return placed_.contains(stage(i).tensor.get()); }

  void Inline() {
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      if (ShouldInline(static_cast<int>(i))) InlineStage(static_cast<int>(i));
    }
  }
  void InlineStage(int i) { Take(ComputeInline{stage(i).name()}); }

  // What reads one of `ends` elsewhere than at its own rows, itself or through others.
  void FindBehind(const std::set<std::string>& ends) {
    for (const ScheduledStage& s : schedule_.stages()) {
      const std::vector<Expr> loads = LoadsIn(s.body);
      const bool is_behind = std::any_of(loads.begin(), loads.end(), [&](const Expr& load) {
        const bool reads_end = ends.contains(load->buffer->name);
        return behind_.contains(load->buffer.get()) || (reads_end && !IsAtOwnRow(load, s));
      });
      if (is_behind) behind_.insert(s.tensor.get());
    }
  }
  // Does it read at the first of its own axes?
  static bool IsAtOwnRow(const Expr& load, const ScheduledStage& s) {
    if (s.axes.size() < load->args.size()) return false;
    return std::equal(load->args.begin(), load->args.end(), s.axes.begin(),
                      [](const Expr& index, const Var& axis) { return IsVar(index, axis); });
  }
  // What has the rows of which `ends` are made does not wait for these.
  void ReadAgain(const std::set<std::string>& ends) {
    for (const std::string& end : ends) {
      const int s = schedule_.FindStage(end);
      if (s < 0) continue;
      for (const int r : schedule_.ReadersOf(stage(s).tensor.get())) {
        if (!IsBehind(stage(r))) Take(ComputeAgain{end, stage(r).name()});
      }
    }
  }
  bool IsBehind(const ScheduledStage& s) const { return behind_.contains(s.tensor.get()); }

  bool IsKernel(int i) const {
    const ScheduledStage& s = stage(i);
    if (!s.is_root() || s.is_reduction() || IsStageable(i)) return false;
    const auto placed = placed_.find(s.tensor.get());
    return placed == placed_.end() || placed->second == s.tensor.get();
  }

  void FindKernels() {
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      if (IsKernel(static_cast<int>(i))) shape_.kernels.push_back(MakeKernel(static_cast<int>(i)));
    }
    for (const KernelShape& kernel : shape_.kernels) {
      if (!IsReadInTails(schedule_, stage(kernel.root))) continue;
      Take(Materialize{stage(kernel.root).name()});
    }
  }

  // What reads an output computes it again, so that it does not wait for it; not where another
  // kernel would have to repeat a reduction for that, unless it has the same rows.
  void InlineOutputs(bool one_kernel) {
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      const ScheduledStage& s = schedule_.stages()[i];
      if (!s.is_output) continue;
      const std::vector<int> readers = schedule_.ReadersOf(s.tensor.get());
      if (readers.empty()) continue;
      const bool elementwise = std::all_of(readers.begin(), readers.end(), [&](int r) {
        return !stage(r).is_reduction() && ReadsElementwise(stage(r), s, true);
      });
      const bool is_whole =
          one_kernel ? !IsBehind(s) : elementwise || (joins_rows_ && IsOfRows(schedule_, s));
      if (!is_whole && ReadsReduction(s)) continue;
      const auto is_loaded = [&](int r) {
        return !one_kernel && stage(r).is_reduction() && IsLessToLoad(stage(r), s);
      };
      if (std::none_of(readers.begin(), readers.end(), is_loaded)) {
        Take(ComputeInline{s.name()});
        continue;
      }
      for (const int r : readers) {
        if (!is_loaded(r)) Take(ComputeAgain{s.name(), stage(r).name()});
      }
    }
  }
  void Take(const Step& step) {
    if (Apply(step, schedule_).ok()) shape_.steps.push_back(step);
  }

  // The reductions that a kernel computes.
  std::vector<int> ReductionsOf(int root) const {
    std::vector<int> reductions;
    for (const ScheduledStage* s : schedule_.Together(stage(root))) {
      for (const Buffer* b : ReadsOf(*s)) {
        const int r = schedule_.FindStage(b);
        if (r < 0 || !stage(r).is_reduction()) continue;
        const int leader = schedule_.IndexOf(schedule_.NestOf(stage(r)));
        if (std::find(reductions.begin(), reductions.end(), leader) == reductions.end()) {
          reductions.push_back(leader);
        }
      }
    }
    return reductions;
  }

  // What a kernel reads, itself and in the stages that it computes.
  Tensors InputsOf(int root) const {
    Tensors inputs = ReadsOf(stage(root));
    for (size_t i = 0; i < inputs.size(); ++i) {
      const int p = schedule_.FindStage(inputs[i]);
      if (p >= 0 && !IsKernel(p) && stage(p).leader == nullptr) AddReads(stage(p), inputs);
    }
    return inputs;
  }

  static bool HaveCommon(const Tensors& a, const Tensors& b) {
    return std::any_of(a.begin(), a.end(), [&](const Buffer* x) {
      return std::find(b.begin(), b.end(), x) != b.end();
    });
  }

  void MergeOutputs() {
    std::vector<BufferRef> roots;
    for (size_t i = 0; i < schedule_.stages().size(); ++i) {
      const int stage = static_cast<int>(i);
      if (IsKernel(stage) && !IsPlaced(stage)) roots.push_back(schedule_.stages()[i].tensor);
    }
    for (const BufferRef& root : roots) {
      for (size_t l = roots.size(); l-- > 0;) {
        const bool free = StageOf(root).leader == nullptr && StageOf(roots[l]).leader == nullptr;
        if (free && roots[l] != root) MergeOutput(root, roots[l]);
      }
    }
  }

  // A kernel's reductions go on being computed in the loops of the leader, so each must have the
  // leader's axes, and one of the leader's to go with where that has any, or be one of these.
  void MergeOutput(const BufferRef& root, const BufferRef& leader) {
    const int from = schedule_.IndexOf(StageOf(root)), to = schedule_.IndexOf(StageOf(leader));
    if (!HaveCommon(InputsOf(from), InputsOf(to))) return;
    std::vector<BufferRef> own, others;
    for (int r : ReductionsOf(from)) own.push_back(stage(r).tensor);
    for (int r : ReductionsOf(to)) others.push_back(stage(r).tensor);
    const bool are_shared = std::all_of(own.begin(), own.end(), [&](const BufferRef& r) {
      return std::find(others.begin(), others.end(), r) != others.end();
    });
    if (!are_shared && root->shape != leader->shape) return;
    Schedule merged = schedule_;
    std::vector<Step> steps;
    if (!ComputeTogether(merged, steps, root, leader)) return;
    for (const BufferRef& r : own) {
      const auto goes = [&](const BufferRef& other) {
        return r == other || (HaveCommon(ReadsOf(StageOf(r)), ReadsOf(StageOf(other))) &&
                              ComputeTogether(merged, steps, r, other));
      };
      if (!others.empty() && std::none_of(others.begin(), others.end(), goes)) return;
    }
    schedule_ = std::move(merged);
    shape_.steps.insert(shape_.steps.end(), steps.begin(), steps.end());
  }

  // Reductions of a kernel: their readers share their loops, unless everything is `one_kernel`.
  void MergeReductions(bool one_kernel) {
    std::vector<BufferRef> reductions;
    for (const ScheduledStage& s : schedule_.stages()) {
      const bool is_read = !schedule_.ReadersOf(s.tensor.get()).empty();
      if (s.is_reduction() && is_read && !placed_.contains(s.tensor.get())) {
        reductions.push_back(s.tensor);
      }
    }
    const auto reader = [&](const BufferRef& r) {
      return &schedule_.NestOf(stage(schedule_.ReadersOf(r.get())[0]));
    };
    for (size_t i = 0; i < reductions.size(); ++i) {
      for (size_t l = 0; l < i && StageOf(reductions[i]).leader == nullptr; ++l) {
        const ScheduledStage& leader = StageOf(reductions[l]);
        const bool is_behind = IsBehind(leader);
        const bool near =
            IsBehind(StageOf(reductions[i])) == is_behind &&
            ((one_kernel && !is_behind) || reader(reductions[i]) == reader(reductions[l]));
        if (near && leader.leader == nullptr &&
            HaveCommon(ReadsOf(StageOf(reductions[i])), ReadsOf(leader))) {
          ComputeTogether(schedule_, shape_.steps, reductions[i], reductions[l]);
        }
      }
    }
  }

  bool HasCompanions() const {
    return std::any_of(schedule_.stages().begin(), schedule_.stages().end(),
                       [](const ScheduledStage& s) { return s.leader != nullptr; });
  }

  // Is each reduction one kernel's?
  bool IsWhole() const {
    return std::all_of(
        schedule_.stages().begin(), schedule_.stages().end(), [&](const ScheduledStage& s) {
          if (!s.is_reduction()) return true;
          const std::vector<int> readers = schedule_.ReadersOf(s.tensor.get());
          return std::all_of(readers.begin(), readers.end(), [&](int r) {
            return &schedule_.NestOf(stage(r)) == &schedule_.NestOf(stage(readers[0]));
          });
        });
  }

  bool ReadsReduction(const ScheduledStage& s) const {
    for (const Buffer* b : ReadsOf(s)) {
      const int producer = schedule_.FindStage(b);
      if (producer >= 0 && stage(producer).is_reduction()) return true;
    }
    return false;
  }

  // Elementwise stages disappear into their readers, except those that carry a reduction out of its
  // kernel and those that only one reduction reads, for several terms, which a plan may want in
  // shared memory.
  bool ShouldInline(int i) const {
    const ScheduledStage& s = stage(i);
    if (s.is_reduction() || s.is_output || s.materialized || IsPlaced(i)) return false;
    if (!ReadsReduction(s)) return !IsStageable(i);
    if (stored_.contains(s.tensor.get())) return false;
    const std::optional<int> reader = schedule_.OnlyReaderOf(s.tensor.get());
    return reader && !stage(*reader).is_reduction() &&
           (ReadsElementwise(stage(*reader), s, together_) || ReadsInParts(stage(*reader), s));
  }

  // Stages that a plan could not inline into their reduction, should it not stage them: they are
  // kernels of their own.
  void FindTooLarge() {
    Schedule inlined = schedule_;
    for (size_t i = 0; i < inlined.stages().size(); ++i) {
      if (!IsStageable(static_cast<int>(i))) continue;
      if (NodesOf(inlined.stages()[i].body) > kMostStagedNodes ||
          !Apply(Step(ComputeInline{inlined.stages()[i].name()}), inlined).ok()) {
        too_large_.insert(schedule_.stages()[i].tensor.get());
      }
    }
  }

  bool HasReductions() const {
    return std::any_of(schedule_.stages().begin(), schedule_.stages().end(),
                       [](const ScheduledStage& s) { return s.is_reduction(); });
  }

  bool IsStageable(int i) const {
    const ScheduledStage& s = stage(i);
    if (s.inlined || too_large_.contains(s.tensor.get()) || IsPlaced(i)) return false;
    if (s.is_reduction() || s.is_output || s.materialized || ReadsReduction(s)) return false;
    // Looked at first since definitions are long where everything but reductions is inlined.
    if (!HasReductions()) return false;
    const std::optional<int> reader = schedule_.OnlyReaderOf(s.tensor.get());
    return reader && stage(*reader).is_reduction() && !ReadsEachOnce(stage(*reader), s);
  }

  KernelShape MakeKernel(int root) const {
    KernelShape kernel;
    kernel.root = root;
    if (IsPlaced(root)) {
      kernel.fused = true;
      for (size_t i = 0; i < schedule_.stages().size(); ++i) {
        const auto placed = placed_.find(schedule_.stages()[i].tensor.get());
        const bool is_own = placed != placed_.end() && placed->second == stage(root).tensor.get();
        if (is_own && stage(static_cast<int>(i)).is_reduction()) {
          kernel.reductions.push_back(static_cast<int>(i));
        }
      }
      return kernel;
    }
    kernel.reductions = ReductionsOf(root);
    for (int r : kernel.reductions) {
      for (const ScheduledStage* s : schedule_.Together(stage(r))) {
        for (const Buffer* input : ReadsOf(*s)) {
          const int p = schedule_.FindStage(input);
          if (p >= 0 && IsStageable(p)) kernel.stageable.push_back(p);
        }
      }
    }
    return kernel;
  }

  ProgramShape& shape_;
  Schedule& schedule_;
  const Partition& partition_;
  // A kernel more for an axis of extent 1 is what points of earlier versions are of.
  bool together_ = false;
  bool joins_rows_ = true;  // kernels.h
  absl::flat_hash_set<const Buffer*> too_large_;
  absl::flat_hash_set<const Buffer*> stored_;  // by KeepApart
  absl::flat_hash_set<const Buffer*> behind_;  // what FuseFront leaves to other kernels
  BufferRef front_;                            // in whose loops it computes everything else
  // Of what is not inlined the root of the kernel that computes it, others merged into it.
  absl::flat_hash_map<const Buffer*, const Buffer*> placed_;
};

// Without kernels yet.
ProgramShape WithAlgorithm(std::shared_ptr<const TensorProgram> program,
                           const std::vector<Step>& algorithm) {
  ProgramShape shape{algorithm, Schedule(std::move(program)), {}};
  const absl::Status applied = Apply(algorithm, shape.schedule);
  HEDDLE_CHECK(applied.ok(), "an algorithm does not apply: " + std::string(applied.message()));
  return shape;
}

}  // namespace

ProgramShape FindKernels(std::shared_ptr<const TensorProgram> program,
                         const std::vector<Step>& algorithm, const Partition& partition) {
  ProgramShape shape = WithAlgorithm(std::move(program), algorithm);
  ShapeFinder(shape, partition).Run(false);
  return shape;
}

ProgramShape FuseKernels(std::shared_ptr<const TensorProgram> program,
                         const std::vector<Step>& algorithm) {
  ProgramShape shape = WithAlgorithm(std::move(program), algorithm);
  const auto& stages = shape.schedule.stages();
  const auto outputs = std::count_if(stages.begin(), stages.end(),
                                     [](const ScheduledStage& s) { return s.is_output; });
  if (outputs != 1 || !stages.back().is_output) return shape;
  KernelShape kernel;
  kernel.root = static_cast<int>(stages.size()) - 1;
  kernel.fused = true;
  for (int i = 0; i < kernel.root; ++i) {
    if (stages[static_cast<size_t>(i)].is_reduction()) kernel.reductions.push_back(i);
  }
  shape.kernels.push_back(std::move(kernel));
  return shape;
}

ProgramShape FindKernelsTogether(std::shared_ptr<const TensorProgram> program,
                                 const Partition& partition, const std::vector<Step>& algorithm,
                                 bool joins_rows) {
  ProgramShape shape = WithAlgorithm(std::move(program), algorithm);
  if (shape.schedule.stages().size() <= kMostTogether) {
    ShapeFinder(shape, partition).Run(true, joins_rows);
  }
  return shape;
}

ProgramShape FuseKernelsTogether(std::shared_ptr<const TensorProgram> program,
                                 const std::vector<Step>& algorithm,
                                 const std::set<std::string>& ends) {
  ProgramShape shape = WithAlgorithm(std::move(program), algorithm);
  if (shape.schedule.stages().size() <= kMostTogether) ShapeFinder(shape, {}).FuseTogether(ends);
  return shape;
}

ProgramShape FuseBeside(std::shared_ptr<const TensorProgram> program) {
  ProgramShape shape = WithAlgorithm(std::move(program), {});
  if (shape.schedule.stages().size() <= kMostTogether) ShapeFinder(shape, {}).FuseBeside();
  return shape;
}

ProgramShape FuseChain(const std::shared_ptr<const TensorProgram>& program,
                       const std::vector<Step>& algorithm) {
  ProgramShape shape = FuseKernels(program, algorithm);
  return shape.kernels.empty() ? FuseKernelsTogether(program, algorithm) : shape;
}

}  // namespace heddle::search_space
