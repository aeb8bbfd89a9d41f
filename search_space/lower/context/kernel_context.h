// What the parts of the emitter share while they build one kernel: loop nests and the values that
// they compute (nests/), what matrix instructions do (matrix/), and what moves tiles into shared
// memory (copies/).
#ifndef HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_KERNEL_CONTEXT_H_
#define HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_KERNEL_CONTEXT_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "search_space/ir/stmt.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

// Tensors in global memory, by what loads refer to.
using Globals = absl::flat_hash_map<const Buffer*, BufferRef>;

// Conditions that hold for everything emitted below the point where they were assumed.
using Assumptions = std::vector<Expr>;

struct KernelContext {
  const Schedule& schedule;
  const int root;
  const Globals& globals;
  const Var thread;

  // Where an attached stage keeps its elements, once it is computed or fetched.
  struct Storage {
    BufferRef buffer;
    Expr slot;  // which of several buffers to read; null where there is one
    // Of what sums are relative to (rolling_reductions.h): what it is of all terms so far; null of
    // others.
    BufferRef latest;
  };
  absl::flat_hash_map<int, Storage> storage;
  // Of a kernel whose blocks stay (persist).
  struct Persistent {
    Var number;      // of what a block computes at a time: the loop that is bound to blocks
    int64_t blocks;  // so much further is its next one
    Stmt begin;      // what stands in front of the first; null until a pipeline is made

    // What comes for the next number, if there is one, of what comes for this one.
    Stmt ForNext(const Stmt& here) const;
    // How many the block has done before.
    Expr Round() const { return VarExpr(number) / Int(blocks); }
  };
  std::optional<Persistent> persistent;
  absl::Status status;  // the first failure

  const ScheduledStage& stage(int i) const { return schedule.stage(i); }
  // The stages that are computed at a loop of stage `consumer`.
  std::vector<int> AttachedAt(int consumer, const Var& loop) const;
  // The stages that the loops of stage `s` compute: itself first.
  std::vector<int> Together(int s) const;
  // Gives stage `s` its storage, of `copies` buffers of which `slot` is read.
  BufferRef Allocate(int s, int64_t copies, Expr slot);
  // The indices of its storage for a position in its region, in buffer `slot` (null: there is one).
  ExprList IndicesOf(int s, absl::Span<const Expr> position, const Expr& slot) const;
  // Notes a failure, and stands for the statement that cannot be.
  Stmt Fail(const std::string& why);
};

// A statement with a loop variable replaced, and without what its value decides.
Stmt ReplaceVar(const Stmt& s, const Var& var, const Expr& value);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_LOWER_CONTEXT_KERNEL_CONTEXT_H_
