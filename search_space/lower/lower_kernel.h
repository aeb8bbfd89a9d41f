// Builds one kernel of a schedule: loop nests (lower_kernel.cc), the values that they compute
// (lower_values.cc), and what moves tiles into shared memory (lower_fetch.cc). Internal to
// lower.cc.
#ifndef HEDDLE_SEARCH_SPACE_LOWER_LOWER_KERNEL_H_
#define HEDDLE_SEARCH_SPACE_LOWER_LOWER_KERNEL_H_

#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "search_space/ir/simplify.h"
#include "search_space/ir/stmt.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// A condition that holds for everything emitted below the point where it was assumed.
using Assumptions = std::vector<Expr>;

// One of so many equal shares of a fetch's trips; all of them where `of` is 1.
struct Share {
  Expr number;
  int64_t of = 1;
};

// Builds the body of one kernel: the loop nest of its root stage with the nests of the attached
// stages inside.
class KernelBuilder {
 public:
  KernelBuilder(const Schedule& schedule, int root,
                const absl::flat_hash_map<const Buffer*, BufferRef>& globals)
      : schedule_(schedule), root_(root), globals_(globals) {}

  absl::StatusOr<Kernel> Build(const std::string& name);

 private:
  // How deep in the stage's nest a loop variable is bound; -1 when outside.
  static int DepthOf(const ScheduledStage& stage, const Expr& e);
  // One load or store with the loop variable of a pipeline replaced.
  static Stmt ReplaceVar(const Stmt& s, const Var& var, const Expr& value);

  const ScheduledStage& stage(int i) const { return schedule_.stages()[static_cast<size_t>(i)]; }
  std::vector<int> AttachedAt(int consumer, const Var& loop) const;
  bool HasCollectiveBelow(int s, size_t depth) const;

  Stmt EmitStage(int s, Assumptions assumptions);
  Stmt EmitLoops(int s, size_t depth, std::vector<Expr> guards, Assumptions assumptions);
  Stmt EmitInit(int s, size_t first_reduce, const std::vector<Expr>& guards);
  Stmt EmitCompute(int s, const Assumptions& assumptions);
  // Combines what the threads that share the loop have reduced.
  Stmt EmitCombine(int s, const Loop& shared);
  Stmt EmitLoopBody(int s, size_t depth, const std::vector<Expr>& guards,
                    const Assumptions& assumptions);
  Stmt EmitPipeline(int s, size_t depth, const std::vector<Expr>& guards,
                    const Assumptions& assumptions);

  // The nest that moves a fetched region. Register pipelines need it in two halves.
  enum class FetchPart { kWhole, kLoadHalf, kStoreHalf, kAsync };
  Stmt EmitFetch(int s, FetchPart part, const BufferRef& registers, const Expr& slot,
                 const Assumptions& assumptions, const Share& share = {});
  // The iterations of the loops between the pipelined one and the one that fetches are interleaved
  // with, counted through.
  Share IterationOf(const ScheduledStage& stage) const;
  // Does a thread run the loop at `depth` of the stage's nest more than once?
  bool IsRepeated(int s, size_t depth) const;

  void Allocate(int s, int64_t copies);
  BufferRef StagingRegisters(int s) const;
  Expr AtLoops(int s, const Expr& definition) const;
  Expr PartOf(const Loop& loop) const;
  Expr OnThread(const Expr& e) const;
  Expr HeldAt(const Spread& spread, const Expr& index);
  // Redirects loads from tensors to storage; loads from global memory that are not proven inside
  // read zero outside.
  Expr Resolve(const Expr& e, const Assumptions& assumptions);
  // What holds where an expression stands, and what became of its nodes that stand in several
  // places: it is the same wherever nothing else is known about their variables.
  struct Known {
    Assumptions assumptions;
    Variables concerned;      // by the last assumption
    Known* around = nullptr;  // what holds without the last assumption
    absl::flat_hash_map<const ExprNode*, Expr> resolved;
  };
  Expr Resolve(const Expr& e, Known& known);
  Expr ResolveLoad(const Expr& load, Known& known);
  Expr ResolveNode(const Expr& e, Known& known);
  Expr ResolveSelect(const Expr& e, Known& known);
  std::vector<Expr> GuardsOf(int s) const;
  Stmt Fail(const std::string& why);

  const Schedule& schedule_;
  const int root_;
  const absl::flat_hash_map<const Buffer*, BufferRef>& globals_;
  Var thread_;
  absl::flat_hash_map<int, BufferRef> storage_;
  absl::flat_hash_map<int, Expr> slots_;        // of multi-buffered stages: which buffer to read
  absl::flat_hash_map<int, Stmt> interleaved_;  // of stages: what their interleaved loop starts
  absl::flat_hash_set<const Buffer*> managed_;
  absl::Status status_;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_LOWER_KERNEL_H_
