#include "search_space/lower/kernel_context.h"

#include <algorithm>
#include <memory>
#include <utility>

#include "search_space/ir/simplify.h"

namespace heddle::search_space {
namespace {

int64_t RoundUp(int64_t a, int64_t b) { return (a + b - 1) / b * b; }

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
    const auto axis = layout == nullptr ? i : static_cast<size_t>(stage.FindAxis(layout->order[i]));
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
  buffer.scope = here.scope;
  buffer.shape = here.extent;
  if (const auto* spread = here.Note<Spread>()) buffer.shape.back() /= spread->threads;
  if (const auto* fragment = here.Note<Fragment>()) {
    for (size_t i = 0; i < here.axes.size(); ++i) {
      buffer.shape[i] /= fragment->Extent(here.axes[i]->name);
    }
    buffer.shape.push_back(fragment->layout().elements());
  }
  const std::vector<int> readers = schedule.ReadersOf(here.tensor.get());
  const bool is_for_matrices = std::any_of(readers.begin(), readers.end(), [&](int r) {
    return stage(r).Note<Fragment>() != nullptr && !stage(r).is_reduction();
  });
  LayOut(here, is_for_matrices, buffer);
  if (copies > 1) Multiply(copies, buffer);
  const BufferRef made = std::make_shared<const Buffer>(std::move(buffer));
  storage[s] = {made, std::move(slot)};
  return made;
}

Stmt KernelContext::Fail(const std::string& why) {
  if (status.ok()) status = absl::InvalidArgumentError(why);
  return Seq({});
}

Stmt ReplaceVar(const Stmt& s, const Var& var, const Expr& value) {
  return RewriteStmt(s, Decided, [&](const Expr& e) { return SimplifyAt(e, var, value); });
}

}  // namespace heddle::search_space
