#include <algorithm>
#include <functional>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/expr/uniform.h"
#include "search_space/lower/context/masked.h"
#include "search_space/lower/copies/pipeline.h"
#include "search_space/lower/matrix/fragments.h"
#include "search_space/schedule/storage/block_layout.h"

namespace heddle::search_space {
namespace {

// How the region of a stage goes in boxes, which lie in the order of the tensor's axes both there
// and in shared memory. Of tensors that follow one another each region is of one of them.
struct Boxes {
  std::vector<Case> tensors;   // loads, by what holds at a box's first element
  std::vector<int64_t> box;    // by axis of the tensor
  std::vector<Var> number;     // by axis of the stage: of the boxes along it
  std::vector<Expr> position;  // by axis of the stage: where a box begins in the region
  int64_t bytes = 0;           // of all of them
};

// The fewest equal parts of so many elements that a box can have.
int64_t PartOfRegion(int64_t extent, int64_t most) {
  int64_t parts = CeilDiv(extent, most);
  while (extent % parts != 0) ++parts;
  return extent / parts;
}

// Copies of a tile along an axis that stands in another order in shared memory than in the tensor.
constexpr int64_t kMostElsewhere = 4;

class TensorCopies : public TileCopies {
 public:
  TensorCopies(KernelContext& context, const PipelinedLoop& pipeline)
      : context_(context), pipeline_(pipeline) {
    Buffer phases = *MakeBuffer(absl::StrCat(context.stage(pipeline.stage).name(), ".phases"),
                                DType::kInt64, Scope::kShared, {pipeline.buffers});
    phases_ = std::make_shared<const Buffer>(std::move(phases));
    for (int s : pipeline.fetched) boxes_.push_back(BoxesOf(s));
    if (!pipeline.last || pipeline.prefetch != nullptr || pipeline.interleave != nullptr) {
      context.Fail(absl::StrCat("bulk copies in loop ", pipeline.loop->name,
                                " are for a loop that is run once, without register stages that "
                                "run ahead and without interleaved copies"));
    }
  }

  int64_t ahead() const override { return pipeline_.buffers - 1 - pipeline_.in_flight; }
  bool AcquiresEarly() const override { return false; }

  Stmt Prepare() override {
    return Seq({ByOneThread(PhaseInit(phases_)), ProxyFence(), Barrier()});
  }

  Stmt Issue(const Expr& tile, const Expr& slot, const Expr& exists,
             const Share& /*share*/) override {
    int64_t bytes = 0;
    std::vector<Stmt> copies;
    for (size_t i = 0; i < boxes_.size(); ++i) {
      if (boxes_[i].box.empty()) continue;  // refused
      bytes += boxes_[i].bytes;
      copies.push_back(
          ReplaceVar(Copy(pipeline_.fetched[i], boxes_[i], slot), pipeline_.loop, tile));
    }
    copies.insert(copies.begin(), PhaseExpect(phases_, slot, bytes));
    Stmt all = Seq(std::move(copies));
    // Tiles that masks leave out have phases, too, without bytes.
    if (const Expr useful = WhereUseful(tile); useful != nullptr) {
      const Expr useless = Simplify(MakeExpr(Op::kNot, {useful}));
      all = Seq({When(useful, all), When(useless, PhaseExpect(phases_, slot, 0))});
    }
    return When(exists, ByOneThread(std::move(all)));
  }

  // Behind it all threads are done with the tile before, as far as the one that starts copies can
  // tell. Where much is computed between products, several warpgroups may be at different places
  // of their work, so that products of one go on beside what another computes.
  Stmt Acquire(const Expr& tile, const Expr& slot, const Expr& /*exists*/) override {
    const Expr round = Simplify((tile / Int(pipeline_.buffers) + PhasesBefore(slot)) % Int(2));
    const bool is_apart = pipeline_.in_background && WaitsForGroups(context_, pipeline_.stage) &&
                          context_.thread->extent > kWarpgroupThreads &&
                          pipeline_.buffers <= kMostHandBacks;
    return Seq({PhaseWait(phases_, slot, round),
                is_apart ? HandBack(slot, pipeline_.buffers) : Barrier()});
  }

  bool MayGoOn() const override { return true; }
  Stmt Consumed() override { return nullptr; }
  Stmt Release() override { return nullptr; }  // nothing is under way or filled again

 private:
  // A number that is odd where that of a buffer's phases is which ended before what a block that
  // stays does now: each time as many as there were tiles in it.
  Expr PhasesBefore(const Expr& slot) const {
    if (!context_.persistent.has_value()) return Int(0);
    const int64_t tiles = pipeline_.loop->extent, more = tiles % pipeline_.buffers;
    const bool is_odd = tiles / pipeline_.buffers % 2 != 0;
    const Expr rounds = context_.persistent->Round();
    const Expr has_more = Simplify(slot < Int(more));
    return Simplify(
        MakeExpr(Op::kSelect, {has_more, is_odd ? Int(0) : rounds, is_odd ? rounds : Int(0)}));
  }

  Stmt ByOneThread(Stmt s) const {
    return If(MakeExpr(Op::kEq, {VarExpr(context_.thread), Int(0)}), std::move(s));
  }

  // Is something of the tile of use? null: always.
  Expr WhereUseful(const Expr& tile) const {
    Expr useful;
    for (size_t i = 0; i < pipeline_.fetched.size(); ++i) {
      const Expr here = IsFetchUseful(context_, pipeline_.fetched[i]);
      if (here == nullptr || (i > 0 && !StructurallyEqual(here, useful))) return nullptr;
      useful = here;
    }
    return Simplify(Substitute(
        useful, [&](const Var& v) -> Expr { return v == pipeline_.loop ? tile : nullptr; }));
  }

  // The axis of the stage that an index is, or is but for a constant.
  static std::optional<size_t> AxisOf(const ScheduledStage& stage, const Expr& index) {
    const Linear at = ToLinear(index);
    const bool is_axis = at.terms.size() == 1 && at.terms[0].coef == 1 && at.terms[0].div == 1 &&
                         at.terms[0].mod == 0 && at.terms[0].x->op == Op::kVar;
    const int axis = is_axis ? stage.FindAxis(at.terms[0].x->var) : -1;
    if (axis < 0) return std::nullopt;
    return static_cast<size_t>(axis);
  }

  // Is it the same for all of the region?
  static bool IsOnePlace(const ScheduledStage& stage, const Expr& index) {
    for (size_t a = 0; a < stage.axes.size(); ++a) {
      if (stage.extent[a] > 1 && MentionsAny(index, {stage.axes[a].get()})) return false;
    }
    return true;
  }

  // Do both loads have the same axes in the same order?
  static bool LieAlike(const ScheduledStage& stage, const Expr& a, const Expr& b) {
    return std::equal(
        a->args.begin(), a->args.end(), b->args.begin(), b->args.end(),
        [&](const Expr& x, const Expr& y) { return AxisOf(stage, x) == AxisOf(stage, y); });
  }

  // The condition at the region's first element; null where it is not that of all others. Along
  // short axes by which a tensor is chosen, which it adds to `chosen`, elements are copied one by
  // one, and it is still of these.
  static Expr WholeRegion(const ScheduledStage& stage, Expr condition, std::vector<bool>& chosen) {
    for (size_t a = 0; a < stage.axes.size(); ++a) {
      const Var inside = MakeVar(stage.axes[a]->name, stage.extent[a]);
      const Expr at = Substitute(condition, {stage.axes[a]}, {stage.base[a] + VarExpr(inside)});
      if (IsUniform(at, inside)) {
        condition = SimplifyAt(at, inside, Int(0));
      } else if (stage.extent[a] <= kMostElsewhere) {
        chosen[a] = true;
      } else {
        return nullptr;
      }
    }
    return condition;
  }

  // Nothing, and a failure, where boxes cannot do it.
  Boxes BoxesOf(int s) {
    const ScheduledStage& stage = context_.stage(s);
    const BufferRef& buffer = context_.storage.at(s).buffer;
    const auto refuse = [&](const char* why) {
      context_.Fail(
          absl::StrCat("a bulk copy of ", stage.name(), " = ", ToString(stage.body), ": ", why));
      return Boxes{};
    };
    Boxes boxes{.tensors = CasesOf(stage.body)};
    std::vector<bool> seen(stage.axes.size(), false);
    for (Case& tensor : boxes.tensors) {
      const Expr load = BulkLoadOf(tensor.value);
      if (load == nullptr || !context_.globals.contains(load->buffer.get()) ||
          !IsBulkCopied(*load->buffer)) {
        return refuse("it must be a tensor of 16-bit types or tf32 whose rows begin at 16 bytes");
      }
      tensor.value = load;
      if (tensor.condition == nullptr) continue;
      tensor.condition = WholeRegion(stage, tensor.condition, seen);
      if (tensor.condition == nullptr) return refuse("a tile is of several tensors");
    }
    const Expr& load = boxes.tensors[0].value;
    for (const Case& other : boxes.tensors) {
      if (!LieAlike(stage, load, other.value)) return refuse("its tensors lie differently");
    }
    boxes.number.resize(stage.axes.size());
    boxes.position.resize(stage.axes.size());
    const auto cut = [&](size_t a, int64_t length) {
      boxes.number[a] =
          MakeVar(absl::StrCat(stage.name(), ".", stage.axes[a]->name), stage.extent[a] / length);
      const bool one = boxes.number[a]->extent == 1;
      boxes.position[a] = one ? Int(0) : Simplify(VarExpr(boxes.number[a]) * Int(length));
    };
    const auto* blocks = stage.Note<BlockLayout>();
    const auto in_blocks = [&](size_t a) {
      return blocks != nullptr && blocks->axis == stage.axes[a]->name;
    };
    for (size_t a = 0; a < stage.axes.size(); ++a) {
      const int64_t part = PartOfRegion(stage.extent[a], kMostBulkExtent);
      cut(a, in_blocks(a) ? blocks->elements : seen[a] ? 1 : part);
    }
    // Outer dimensions of the buffer are its copies and its blocks.
    const size_t outer = buffer->shape.size() - stage.axes.size();
    boxes.box.assign(load->args.size(), 1);
    int64_t stride = 1;
    bool is_cut = false;  // then parts along axes further out do not lie one behind the other
    for (size_t d = load->args.size(); d-- > 0;) {
      if (IsOnePlace(stage, load->args[d])) continue;
      const std::optional<size_t> a = AxisOf(stage, load->args[d]);
      if (!a.has_value() || seen[*a]) return refuse("each index must be an axis");
      const size_t axis = *a;
      seen[axis] = true;
      if (is_cut) cut(axis, 1);
      is_cut = is_cut || (!in_blocks(axis) && boxes.number[axis]->extent > 1);
      boxes.box[d] = stage.extent[axis] / boxes.number[axis]->extent;
      if (boxes.box[d] > 1 && buffer->strides[outer + axis] != stride) {
        // Few that stand elsewhere are copied one by one.
        if (in_blocks(axis) || stage.extent[axis] > kMostElsewhere) {
          return refuse("it must lie in shared memory in the order of the tensor");
        }
        cut(axis, 1);
        boxes.box[d] = 1;
      }
      stride *= boxes.box[d];
    }
    for (size_t axis = 0; axis < seen.size(); ++axis) {
      if (!seen[axis] && stage.extent[axis] > 1) return refuse("each axis must be an index");
    }
    boxes.bytes = std::accumulate(stage.extent.begin(), stage.extent.end(), SizeOf(buffer->dtype),
                                  std::multiplies<>());
    return boxes;
  }

  Stmt Copy(int s, const Boxes& boxes, const Expr& slot) const {
    const ScheduledStage& stage = context_.stage(s);
    std::vector<Stmt> copies;
    const auto at_first = [&](const Expr& e) {
      return Simplify(Substitute(e, [&](const Var& v) -> Expr {
        const int axis = stage.FindAxis(v);
        if (axis < 0) return nullptr;
        return stage.base[static_cast<size_t>(axis)] + boxes.position[static_cast<size_t>(axis)];
      }));
    };
    for (const Case& tensor : boxes.tensors) {
      ExprList first;
      for (const Expr& index : tensor.value->args) first.push_back(at_first(index));
      const Stmt copy =
          BulkCopy(context_.storage.at(s).buffer, context_.IndicesOf(s, boxes.position, slot),
                   Load(context_.globals.at(tensor.value->buffer.get()), std::move(first)),
                   boxes.box, phases_);
      copies.push_back(tensor.condition == nullptr ? copy : If(at_first(tensor.condition), copy));
    }
    Stmt copy = Seq(std::move(copies));
    for (const Var& number : boxes.number) {
      if (number->extent > 1) copy = For(number, ForKind::kUnrolled, std::move(copy));
    }
    return copy;
  }

  KernelContext& context_;
  const PipelinedLoop& pipeline_;
  BufferRef phases_;
  std::vector<Boxes> boxes_;  // as PipelinedLoop::fetched
};

}  // namespace

std::unique_ptr<TileCopies> BulkCopies(KernelContext& context, const PipelinedLoop& pipeline) {
  return std::make_unique<TensorCopies>(context, pipeline);
}

}  // namespace heddle::search_space
