#include <utility>

#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/values.h"
#include "search_space/lower/copies/pipeline.h"
#include "search_space/schedule/copies/fetch.h"

namespace heddle::search_space {
namespace {

class RegisterCopies : public TileCopies {
 public:
  RegisterCopies(KernelContext& context, const PipelinedLoop& pipeline)
      : context_(context), pipeline_(pipeline) {
    for (int s : pipeline.fetched) {
      const ScheduledStage& stage = context.stage(s);
      const auto& fetch = *stage.Note<Fetch>();
      staged_.push_back(
          MakeBuffer(stage.name() + ".staged", stage.tensor->dtype, Scope::kLocal,
                     {FetchTrips(stage.extent, fetch.threads, fetch.vector), fetch.vector}));
    }
  }

  int64_t ahead() const override { return 1; }
  bool AcquiresEarly() const override { return true; }

  Stmt Issue(const Expr& tile, const Expr& /*slot*/, const Expr& exists,
             const Share& share) override {
    std::vector<Stmt> loads;
    for (size_t i = 0; i < staged_.size(); ++i) {
      loads.push_back(ReplaceVar(LoadTile(i, share), pipeline_.loop, tile));
    }
    return When(exists, Seq(std::move(loads)));
  }

  Stmt Acquire(const Expr& tile, const Expr& slot, const Expr& exists) override {
    std::vector<Stmt> stores;
    for (size_t i = 0; i < staged_.size(); ++i) {
      stores.push_back(ReplaceVar(StoreTile(i, slot), pipeline_.loop, tile));
    }
    return Seq({When(exists, Seq(std::move(stores))), Barrier()});
  }

  Stmt Consumed() override { return nullptr; }

  Stmt Release() override { return nullptr; }

  std::vector<BufferRef> registers() const override { return staged_; }

 private:
  // Every register is loaded, whether it will be stored or not: what lies outside reads zero, but
  // not of what the kernel keeps itself.
  Stmt LoadTile(size_t i, const Share& share) {
    const ScheduledStage& stage = context_.stage(pipeline_.fetched[i]);
    FetchGrid grid = GridOf(context_, pipeline_.fetched[i]);
    Expr value = ValueAt(stage, grid);
    const Expr moves = grid.Moves();
    if (moves != nullptr && (grid.whole_rows || ReadsStorage(value))) {
      value = Select(moves, value, Float(0, value->type));
    }
    grid.guard = grid.thread_guard = nullptr;
    const ExprList element = {VarExpr(grid.trip), VarExpr(grid.lane)};
    return FetchNest(
        grid, Store(staged_[i], element, Resolve(context_, value, pipeline_.assumptions)), share);
  }

  bool ReadsStorage(const Expr& value) const {
    bool reads = false;
    Visit(value, [&](const Expr& e) {
      reads = reads || (e->op == Op::kLoad &&
                        context_.storage.contains(context_.schedule.FindStage(e->buffer.get())));
    });
    return reads;
  }

  Stmt StoreTile(size_t i, const Expr& slot) {
    const int s = pipeline_.fetched[i];
    const FetchGrid grid = GridOf(context_, s);
    const ExprList indices = context_.IndicesOf(s, grid.position, slot);
    Expr value = Load(staged_[i], {VarExpr(grid.trip), VarExpr(grid.lane)});
    // Instructions that read shared memory themselves cut off what they do not take.
    if (value->type == DType::kTF32) value = Cast(DType::kTF32, Cast(DType::kFloat32, value));
    return FetchNest(grid, Store(context_.storage.at(s).buffer, indices, value), {});
  }

  KernelContext& context_;
  const PipelinedLoop& pipeline_;
  std::vector<BufferRef> staged_;  // of the stages that are fetched
};

}  // namespace

std::unique_ptr<TileCopies> CopiesThroughRegisters(KernelContext& context,
                                                   const PipelinedLoop& pipeline) {
  return std::make_unique<RegisterCopies>(context, pipeline);
}

}  // namespace heddle::search_space
