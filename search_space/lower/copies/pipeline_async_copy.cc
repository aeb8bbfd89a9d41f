#include <algorithm>
#include <utility>
#include <vector>

#include "search_space/ir/background.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/values.h"
#include "search_space/lower/copies/pipeline.h"

namespace heddle::search_space {
namespace {

// What an asynchronous copy can do: a load from global memory, or select(condition, load, 0).
bool IsCopied(const Expr& value) {
  const Expr& load = IsGuarded(value) ? value->args[1] : value;
  return load->op == Op::kLoad && load->buffer->scope == Scope::kGlobal;
}

// Those of `value` that are copied; `value` itself where one of them is not.
std::vector<Case> CopiesOf(const Expr& value) {
  std::vector<Case> cases = CasesOf(value);
  const bool are_copied =
      std::all_of(cases.begin(), cases.end(), [](const Case& c) { return IsCopied(c.value); });
  if (!are_copied) return {{nullptr, value}};
  return cases;
}

class GroupedCopies : public TileCopies {
 public:
  GroupedCopies(KernelContext& context, const PipelinedLoop& pipeline)
      : context_(context), pipeline_(pipeline) {}

  int64_t ahead() const override { return pipeline_.buffers - 1 - pipeline_.in_flight; }
  // Registers that run ahead read the next tile's first elements behind the computation.
  bool AcquiresEarly() const override { return pipeline_.prefetch != nullptr; }

  // A tile's copies are a group, also where there are none, so that groups count tiles.
  Stmt Issue(const Expr& tile, const Expr& slot, const Expr& exists, const Share& share) override {
    std::vector<Stmt> copies;
    for (int s : pipeline_.fetched) {
      copies.push_back(ReplaceVar(Copy(s, tile, slot, share), pipeline_.loop, tile));
    }
    const Stmt all = When(exists, Seq(std::move(copies)));
    return share.of > 1 ? all : Seq({all, AsyncCommit()});
  }

  Stmt Acquire(const Expr& /*tile*/, const Expr& /*slot*/, const Expr& exists) override {
    // All threads wait, whether there is another tile or not; not where there is none at all.
    return IsInt(exists, 0) ? nullptr : Seq({AsyncWait(ahead() - 1), Barrier()});
  }

  Stmt Consumed() override { return pipeline_.interleave != nullptr ? AsyncCommit() : nullptr; }

  Stmt Release() override {
    // The last shares went to a buffer that a loop around this one fills again.
    const bool pending = pipeline_.interleave != nullptr && pipeline_.loop->extent > ahead();
    return Seq({pending && !pipeline_.last ? AsyncWait(0) : nullptr, Barrier()});
  }

 private:
  Stmt Copy(int s, const Expr& tile, const Expr& slot, const Share& share) {
    const ScheduledStage& stage = context_.stage(s);
    const FetchGrid grid = GridOf(context_, s);
    const Expr value = Resolve(context_, ValueAt(stage, grid), grid.Assume(pipeline_.assumptions));
    const ExprList indices = context_.IndicesOf(s, grid.position, slot);
    const BufferRef& buffer = context_.storage.at(s).buffer;
    // What has to be computed is loaded and stored where its copy would begin: the barrier that
    // follows the wait for a tile's copies shows it to the other threads, too.
    std::vector<Stmt> copies;
    for (const Case& c : CopiesOf(value)) {
      const Stmt copy = IsCopied(c.value) ? AsyncCopy(buffer, indices, c.value, 1)
                                          : Store(buffer, indices, c.value);
      // Of a tile whose number is known it may be known which tensor has its elements.
      const Expr known = c.condition == nullptr
                             ? Int(1)
                             : Simplify(Substitute(c.condition, {pipeline_.loop}, {tile}));
      if (IsInt(known, 0)) continue;
      copies.push_back(FetchNest(grid, IsInt(known, 1) ? copy : If(c.condition, copy), share));
    }
    return Seq(std::move(copies));
  }

  KernelContext& context_;
  const PipelinedLoop& pipeline_;
};

}  // namespace

std::unique_ptr<TileCopies> AsynchronousCopies(KernelContext& context,
                                               const PipelinedLoop& pipeline) {
  return std::make_unique<GroupedCopies>(context, pipeline);
}

}  // namespace heddle::search_space
