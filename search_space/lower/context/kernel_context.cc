#include "search_space/lower/context/kernel_context.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <utility>

#include "base/math.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/schedule/copies/fetch.h"
#include "search_space/schedule/matrix/fragment.h"
#include "search_space/schedule/matrix/row_fragment.h"
#include "search_space/schedule/storage/block_layout.h"
#include "search_space/schedule/storage/storage_layout.h"
#include "search_space/schedule/threads/dealt_axis.h"
#include "search_space/schedule/threads/scatter.h"

namespace heddle::search_space {
namespace {

// The bytes of a row go in chunks of `chunk` elements, whose order depends on the row's number.
void Swizzle(int64_t chunk, int64_t row, Buffer& buffer) {
  const int64_t chunks = chunk > 0 ? row / chunk : 0;
  if (chunks <= 1 || row % chunk != 0 || (chunks & (chunks - 1)) != 0) return;
  buffer.swizzle = chunk;
  buffer.swizzle_row = row;
}

// The same for LoadMatrix, which reads chunks of eight rows at once: all of them in other banks.
// The order changes within spans of at most a line of the banks, with every row, or with every few
// that lie in one line together.
void SwizzleForMatrices(int64_t chunk, int64_t row, Buffer& buffer) {
  const int64_t line = 128 / SizeOf(buffer.dtype);
  int64_t span = line;
  while (row % span != 0) span /= 2;
  if (span <= chunk) return;
  buffer.swizzle = chunk;
  buffer.swizzle_row = span;
  buffer.swizzle_period = row / span * (line / span);
}

// Axis after axis from the innermost one, as the stage's layout says.
void LayOut(const ScheduledStage& stage, bool is_for_matrices, Buffer& buffer) {
  const auto* layout = stage.Note<StorageLayout>();
  const size_t axes = buffer.shape.size();
  buffer.strides.resize(axes);
  int64_t stride = 1;
  for (size_t i = axes; i-- > 0;) {
    const auto axis = layout == nullptr ? i : stage.AxisOf(layout->order[i]);
    buffer.strides[axis] = stride;
    stride *= buffer.shape[axis];
    if (i + 1 == axes && layout != nullptr) {
      if (is_for_matrices && layout->swizzle > 0) {
        SwizzleForMatrices(layout->swizzle, stride, buffer);
      } else {
        Swizzle(layout->swizzle, stride, buffer);
      }
      stride += layout->pad;
    }
  }
  buffer.elements = stride;
  const auto* fetch = stage.Note<Fetch>();
  if (buffer.swizzle > 0 && fetch != nullptr && !is_for_matrices) {
    // A wide access of the fetch that runs across rows stores to that many of them at once: the
    // next ones meet other banks.
    const int64_t rows = buffer.strides.back() / buffer.swizzle_row;
    buffer.swizzle_period = std::max<int64_t>(1, rows * fetch->vector);
  }
}

// As many buffers as `copies`, each of which starts 16-byte aligned.
void Multiply(int64_t copies, Buffer& buffer) {
  int64_t stride = RoundUp(buffer.elements, std::max<int64_t>(1, 16 / SizeOf(buffer.dtype)));
  if (buffer.swizzle > 0) {
    stride = RoundUp(stride, buffer.swizzle_row);
    buffer.swizzle_copy = stride;
  }
  buffer.shape.insert(buffer.shape.begin(), copies);
  buffer.strides.insert(buffer.strides.begin(), stride);
  buffer.elements = stride * copies;
}

// How a stage is stored in blocks; nothing where there is no more than one.
struct Blocks {
  size_t axis;
  int64_t elements, number;
};

std::optional<Blocks> BlocksOf(const ScheduledStage& stage) {
  const auto* layout = stage.Note<BlockLayout>();
  if (layout == nullptr) return std::nullopt;
  const auto axis = stage.AxisOf(layout->axis);
  const int64_t number = stage.extent[axis] / layout->elements;
  if (number == 1) return std::nullopt;
  return Blocks{axis, layout->elements, number};
}

// What became of a statement in which a number stands for a variable: a condition may be decided,
// and an asynchronous copy that turned out to read nothing is a store.
Stmt Decided(const Stmt& s) {
  if (s->kind == StmtNode::Kind::kIf && s->condition->op == Op::kInt) {
    return s->condition->int_value != 0 ? s->body[0] : Seq({});
  }
  const bool copies = s->kind == StmtNode::Kind::kIntrin && s->intrinsic == Intrinsic::kAsyncCopy;
  if (!copies || s->value->op != Op::kFloat) return nullptr;
  return Store(s->buffer, s->indices, s->value, s->lanes);
}

}  // namespace

std::vector<int> KernelContext::AttachedAt(int consumer, const Var& loop) const {
  std::vector<int> attached;
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    const ScheduledStage& s = schedule.stages()[i];
    if (s.consumer == consumer && s.attach_loop == loop) attached.push_back(static_cast<int>(i));
  }
  return attached;
}

std::vector<int> KernelContext::Together(int s) const {
  std::vector<int> together;
  for (const ScheduledStage* member : schedule.Together(stage(s))) {
    together.push_back(schedule.IndexOf(*member));
  }
  return together;
}

BufferRef KernelContext::Allocate(int s, int64_t copies, Expr slot) {
  const ScheduledStage& here = stage(s);
  Buffer buffer;
  buffer.name = here.name();
  buffer.dtype = here.tensor->dtype;
  if (schedule.NestOf(here).Note<Scatter>() != nullptr && AddsIntegers(here)) {
    buffer.dtype = DType::kInt32;
  }
  buffer.scope = here.scope;
  buffer.shape = here.extent;
  if (const auto dealt = DealtAxisOf(here)) buffer.shape[dealt->axis] /= dealt->threads;
  if (const auto* fragment = here.Note<Fragment>()) {
    for (size_t i = 0; i < here.axes.size(); ++i) {
      buffer.shape[i] /= fragment->Extent(here.axes[i]->name);
    }
    buffer.shape.push_back(fragment->layout().elements());
  }
  if (const auto* rows = here.Note<RowFragment>()) {
    for (size_t i = 0; i < here.axes.size(); ++i) {
      buffer.shape[i] /= rows->Extent(here.axes[i]->name);
    }
    buffer.shape.push_back(rows->elements());
  }
  bool is_for_matrices = false, is_for_warpgroups = false;
  for (int r : schedule.ReadersOf(here.tensor.get())) {
    const auto* fragment = stage(r).Note<Fragment>();
    const bool is_product = fragment != nullptr && stage(r).is_reduction();
    is_for_warpgroups = is_for_warpgroups || is_product;
    is_for_matrices = is_for_matrices || fragment != nullptr;
  }
  const auto blocks = BlocksOf(here);
  if (blocks.has_value()) buffer.shape[blocks->axis] = blocks->elements;
  LayOut(here, is_for_matrices, buffer);
  if (blocks.has_value()) {
    buffer.shape.insert(buffer.shape.begin(), blocks->number);
    buffer.strides.insert(buffer.strides.begin(), buffer.elements);
    buffer.elements *= blocks->number;
  }
  if (is_for_warpgroups && buffer.swizzle > 0) {
    buffer.alignment = SharedMatrix::Alignment(buffer.swizzle_row, buffer.dtype);
  }
  if (copies > 1) Multiply(copies, buffer);
  const BufferRef made = std::make_shared<const Buffer>(std::move(buffer));
  storage[s] = {made, std::move(slot)};
  return made;
}

ExprList KernelContext::IndicesOf(int s, absl::Span<const Expr> position, const Expr& slot) const {
  ExprList indices;
  if (slot != nullptr) indices.push_back(slot);
  const auto blocks = BlocksOf(stage(s));
  if (blocks.has_value()) {
    indices.push_back(Simplify(position[blocks->axis] / Int(blocks->elements)));
  }
  for (size_t i = 0; i < position.size(); ++i) {
    const bool in_block = blocks.has_value() && i == blocks->axis;
    indices.push_back(in_block ? Simplify(position[i] % Int(blocks->elements)) : position[i]);
  }
  return indices;
}

Stmt KernelContext::Persistent::ForNext(const Stmt& here) const {
  const Expr next = VarExpr(number) + Int(blocks);
  return If(Simplify(next < Int(number->extent)), ReplaceVar(here, number, next));
}

Stmt KernelContext::Fail(const std::string& why) {
  if (status.ok()) status = absl::InvalidArgumentError(why);
  return Seq({});
}

Stmt ReplaceVar(const Stmt& s, const Var& var, const Expr& value) {
  return RewriteStmt(s, Decided, [&](const Expr& e) { return SimplifyAt(e, var, value); });
}

}  // namespace heddle::search_space
