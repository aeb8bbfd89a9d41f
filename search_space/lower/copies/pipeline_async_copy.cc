#include <utility>

#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/copies/pipeline.h"
#include "search_space/lower/nests/values.h"

namespace heddle::search_space {
namespace {

// What an asynchronous copy can do: a load from global memory, or select(condition, load, 0).
bool IsCopied(const Expr& value) {
  const bool guarded = value->op == Op::kSelect && value->args[2]->op == Op::kFloat &&
                       value->args[2]->float_value == 0;
  const Expr& load = guarded ? value->args[1] : value;
  return load->op == Op::kLoad && load->buffer->scope == Scope::kGlobal;
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
      copies.push_back(ReplaceVar(Copy(s, slot, share), pipeline_.loop, tile));
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
  Stmt Copy(int s, const Expr& slot, const Share& share) {
    const ScheduledStage& stage = context_.stage(s);
    const FetchGrid grid = GridOf(context_, s);
    const Expr value = Resolve(context_, ValueAt(stage, grid), grid.Assume(pipeline_.assumptions));
    const ExprList indices = context_.IndicesOf(s, grid.position, slot);
    const BufferRef& buffer = context_.storage.at(s).buffer;
    // What has to be computed is loaded and stored where its copy would begin: the barrier that
    // follows the wait for a tile's copies shows it to the other threads, too.
    return FetchNest(
        grid,
        IsCopied(value) ? AsyncCopy(buffer, indices, value, 1) : Store(buffer, indices, value),
        share);
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
