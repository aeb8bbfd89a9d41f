// The statement IR: what lowering produces, what the code generator prints, what the verifier
// proves and the interpreter runs. Immutable trees of one node type.
#ifndef HEDDLE_SEARCH_SPACE_IR_STMT_H_
#define HEDDLE_SEARCH_SPACE_IR_STMT_H_

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/functional/function_ref.h"
#include "search_space/ir/expr/expr.h"
#include "search_space/ir/matrix.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

enum class ForKind : uint8_t {
  kSerial,
  kUnrolled,  // every iteration printed or fully unrolled by the compiler
  // The body is one Store (possibly under Ifs that do not mention the variable): the lanes of a
  // vector access. An access with `lanes` > 1 inside promises that, for v a multiple of lanes, the
  // addresses at v .. v + lanes - 1 are consecutive and the first is aligned to lanes elements;
  // accesses with lanes == 1 are made one by one. extent is a multiple of every such `lanes`.
  kVector,
};

// Threads that execute an intrinsic of scope kWarp, or kWarpgroup, together; blocks that have one
// are whole multiples of it, on every device.
inline constexpr int64_t kWarpThreads = 32, kWarpgroupThreads = 128;
// Barriers of a block besides the one of all: 15 of the 16 that the hardware numbers.
inline constexpr int64_t kMostHandBacks = 15;

// What an intrinsic statement does; its effects are a row of the table in stmt.cc, which barrier
// insertion, verifier and interpreter read instead of knowing intrinsics by name.
enum class Intrinsic : uint8_t {
  kBarrier,  // all threads of the block; orders shared memory
  // buffer[indices] (shared) = value, asynchronously; value is a Load from global memory or
  // select(condition, Load, 0), `lanes` elements. Complete after a wait that covers its group, and
  // visible to other threads after a barrier that follows that wait.
  kAsyncCopy,
  kAsyncCommit,  // closes the group of the copies issued since the last commit, per thread
  kAsyncWait,    // until at most int_value groups of this thread are pending
  // buffer[indices] (local) = combiner over the values of the int_value neighbouring threads (a
  // power of two, at most kWarpThreads) of the warp; every one of them gets the result.
  kWarpReduce,
  // The same over those of the int_value neighbouring threads that come before this one, or behind
  // it, alone: its identity where there are none.
  kWarpPrefix,
  kWarpSuffix,
  // buffer[indices] (shared or global, float32, or int32 that is added to) = combiner of what is
  // there and of value, at once: threads may do so to the same element, in any order. `lanes`
  // elements of float32 in global memory side by side may be added to together (UpdatesVectors),
  // each at once by itself.
  kAtomicCombine,
  // buffer[indices] and the elements behind it (local) = this lane's of int_value (2 or 4) blocks
  // of 8 rows of 16 bytes, in the layout of matrix.h; those of tf32 are rounded. value is a Load
  // from shared memory: lane 8 * b + r names there the first element, aligned to 16 bytes, of
  // row r of block b. Transposed, which elements of 16 bits alone can be: of its column r.
  kLoadMatrix,
  kLoadMatrixTransposed,
  // buffer[indices] and the elements behind it (local, this lane's of D) += the product of two
  // matrices; value is Load * Load of this lane's first elements of A and B, cast to D's type.
  // int_value is the MatrixInstruction.
  kMatrixMultiply,
  // The same of a warpgroup, of operands in shared memory: value is the product of Loads of the
  // elements at row 0, column 0 of A and B, which lie there as `operands` says. Of A in registers
  // instead it is the Load of this lane's first element. Asynchronous: until a wait that covers its
  // group nobody may write what it reads, and nobody but further products touch registers of its
  // own. It goes past the caches that other accesses go through (the asynchronous proxy):
  // what threads have stored they must fence (kProxyFence) in front of the barrier before it.
  kWarpgroupMultiply,
  kOperandFence,   // between accesses of this warpgroup to `buffer`, a D or A, and its products
  kProductCommit,  // closes the group of the products issued since the last, per warpgroup
  // Until at most int_value groups of this warpgroup are pending; with 0, `buffer` may be accessed.
  kProductWait,
  kProxyFence,  // what this thread has stored to shared memory is seen by products, as above
  // Phases by which threads wait for bulk copies: each element of `buffer` (shared, int64) counts
  // the bytes of one phase after another, from 0 on. kPhaseInit makes them, by one thread; behind
  // its kProxyFence and a barrier they may be used. A phase ends when one thread has announced
  // int_value bytes (kPhaseExpect) and as many have come. kPhaseWait is until the phase of
  // buffer[indices] whose number is odd (value 1) or even (0) has ended, or at once where that is
  // not the one that goes on.
  kPhaseInit,
  kPhaseExpect,
  kPhaseWait,
  // Where all threads of the block come when they are done with a tile of a pipeline: the first
  // warp, which starts copies, goes on when all have come here, the others at once. Orders their
  // reads before bulk copies of that warp, and nothing else. indices[0], below int_value, numbers
  // it: the buffer of the next tile, so that nobody comes to a number again before the first warp
  // has been there.
  kHandBack,
  // The elements of `box` of the tensor that value, a Load at the first of them, names, zero where
  // that lies outside: to shared memory, one behind the other in row-major order from
  // buffer[indices] on and swizzled as that is, by one thread for all. Asynchronous: its bytes
  // count to the phase of base[indices[0]], whose end tells that they are there, to threads and
  // products alike.
  kBulkCopy,
};

enum class ExecutionScope : uint8_t { kThread, kWarp, kWarpgroup, kBlock };
constexpr int64_t ThreadsOf(ExecutionScope scope) {  // of kWarp and kWarpgroup
  return scope == ExecutionScope::kWarp ? kWarpThreads : kWarpgroupThreads;
}
enum class Completion : uint8_t { kImmediate, kGroup, kPhase };
struct IntrinsicEffects {
  const char* name;
  ExecutionScope scope;   // the threads that must execute it together
  bool writes_buffer;     // each thread stores `value` to Stmt::buffer
  Completion completion;  // when that store is done
  bool orders_shared;     // acts as a barrier for shared memory
};
const IntrinsicEffects& EffectsOf(Intrinsic intrinsic);
// Does it combine the values that neighbouring threads of a warp have?
constexpr bool CombinesWarps(Intrinsic intrinsic) {
  return intrinsic == Intrinsic::kWarpReduce || intrinsic == Intrinsic::kWarpPrefix ||
         intrinsic == Intrinsic::kWarpSuffix;
}

struct StmtNode;
using Stmt = std::shared_ptr<const StmtNode>;

struct StmtNode {
  enum class Kind : uint8_t {
    kSeq,  // body in order
    kFor,  // body[0] for var = 0 .. var->extent - 1, or those among them that `value` says
    // body[0] where condition holds; never contains a barrier unless condition is uniform. With an
    // int_value of 1 that is hardly ever, for those who estimate times.
    kIf,
    kStore,   // buffer[indices] = value
    kAlloc,   // buffer (scope local) exists in body[0]
    kIntrin,  // intrinsic
    // body[0], in which `var` stands for `value`, an index. Or, with a buffer: in which `buffer`
    // begins at element `value` of `base` and, where body[0] is a loop (behind other kLets), moves
    // on by int_value elements after each of its iterations. Made by back ends alone
    // (measure/codegen/passes): what checks programs comes before.
    kLet,
    kComment,  // text, for the reader of generated code; no effect
  };
  Kind kind;
  ForKind for_kind = ForKind::kSerial;  // kFor
  Var var;                              // kFor, kLet of an index
  // kFor: when not null, a companion variable that equals var % rotating->extent; it replaces
  // run-time modulo in multi-buffered pipelines.
  Var rotating;
  // kIf; of a kFor, when not null: where it is not 0, the (independent) iterations run from the
  // last to the first.
  Expr condition;
  BufferRef buffer;  // kStore, kAlloc, kIntrin, kLet
  BufferRef base;    // kLet of a buffer, kBulkCopy
  ExprList indices;  // kStore, kIntrin that writes
  // kStore, kIntrin that writes, kLet. kFor, when not null: the first iteration, below int_value;
  // the others are int_value apart. So blocks share a loop, each of which begins at its own number.
  Expr value;
  int lanes = 1;                              // kStore, kIntrin that writes: see ForKind::kVector
  Intrinsic intrinsic = Intrinsic::kBarrier;  // kIntrin
  int64_t int_value = 0;                      // kIntrin, kIf, kLet of a buffer, kFor of some
  Combiner combiner = Combiner::kNone;        // kIntrin that combines
  std::string text;                           // kComment
  std::array<SharedMatrix, 2> operands;       // kWarpgroupMultiply: A and B
  std::vector<int64_t> box;                   // kBulkCopy: extents, as many as the tensor has
  std::vector<Stmt> body;

  const MatrixShape& matrix() const {  // of a product
    return ShapeOf(static_cast<MatrixInstruction>(int_value));
  }
};

Stmt Seq(std::vector<Stmt> body);  // flattens nested sequences; a single statement is itself
Stmt For(Var var, ForKind kind, Stmt body);
// Serial, of the iterations `first`, first + stride, first + 2 * stride, ...
Stmt ForEvery(Var var, Expr first, int64_t stride, Stmt body);
Stmt If(Expr condition, Stmt body);
Stmt IfRarely(Expr condition, Stmt body);
Stmt Store(BufferRef buffer, ExprList indices, Expr value, int lanes = 1);
Stmt Alloc(BufferRef buffer, Stmt body);
Stmt Barrier();
Stmt AsyncCopy(BufferRef buffer, ExprList indices, Expr value, int lanes);
Stmt AsyncCommit();
Stmt AsyncWait(int64_t pending);
Stmt WarpReduce(Combiner combiner, BufferRef buffer, ExprList indices, int64_t threads);
Stmt WarpPrefix(Combiner combiner, BufferRef buffer, ExprList indices, int64_t threads);
Stmt WarpSuffix(Combiner combiner, BufferRef buffer, ExprList indices, int64_t threads);
Stmt AtomicCombine(Combiner combiner, BufferRef buffer, ExprList indices, Expr value,
                   int lanes = 1);
Stmt LoadMatrix(BufferRef buffer, ExprList indices, Expr row, int64_t blocks, bool transposed);
Stmt MatrixMultiply(MatrixInstruction instruction, BufferRef d, ExprList indices, Expr a, Expr b);
Stmt WarpgroupMultiply(MatrixInstruction instruction, BufferRef d, ExprList indices, Expr a, Expr b,
                       const std::array<SharedMatrix, 2>& operands);
Stmt OperandFence(BufferRef d);
Stmt ProductCommit();
Stmt ProductWait(int64_t pending, BufferRef d);
Stmt ProxyFence();
Stmt PhaseInit(BufferRef phases);
Stmt PhaseExpect(BufferRef phases, Expr slot, int64_t bytes);
Stmt PhaseWait(BufferRef phases, Expr slot, Expr parity);
Stmt HandBack(Expr number, int64_t numbers);
Stmt BulkCopy(BufferRef buffer, ExprList indices, Expr first, std::vector<int64_t> box,
              BufferRef phases);
Stmt Let(Var var, Expr value, Stmt body);
Stmt LetPointer(BufferRef pointer, BufferRef base, Expr start, int64_t step, Stmt body);
Stmt Comment(std::string text);

// The Load of operand A, 0, or B, 1, of a product of matrices.
const Expr& MatrixOperandOf(const StmtNode& multiply, size_t operand);

// Calls `visit` on `s` and every statement below it, in program order.
void VisitStmts(const Stmt& s, const std::function<void(const StmtNode&)>& visit);
// Calls `visit` on every expression directly held by `s` (not by its children).
void VisitExprs(const StmtNode& s, const std::function<void(const Expr&)>& visit);
// Rebuilds bottom-up. `stmt` (may be empty) gets a node with rewritten children and expressions
// and returns its replacement, or null to keep it; `expr` (may be empty) maps every directly held
// expression.
Stmt RewriteStmt(const Stmt& s, const std::function<Stmt(const Stmt&)>& stmt,
                 const std::function<Expr(const Expr&)>& expr);

// The statement with what stands directly in it replaced; itself where nothing was.
Stmt RewriteBodies(const Stmt& s, absl::FunctionRef<Stmt(const Stmt&)> rewrite);

// The variables that index arrays of registers: their values have to be known when the kernel is
// compiled, or the arrays would live in memory.
absl::flat_hash_set<const Variable*> RegisterIndices(const Stmt& body);

// One launch: a one-dimensional grid of one-dimensional blocks.
struct Kernel {
  std::string name;  // unique within the program: "k0_T", safe as a C identifier
  Var block;         // 0 .. grid size - 1
  Var thread;        // 0 .. block size - 1
  Stmt body;
  std::vector<BufferRef> arguments;  // global buffers, in argument order
  std::vector<bool> written;         // which arguments are stored to
  struct SharedBuffer {
    BufferRef buffer;
    int64_t offset;  // bytes from the start of the block's arena, 16-byte aligned
  };
  std::vector<SharedBuffer> shared;
  int64_t shared_bytes = 0;  // size of the arena
  int min_blocks = 0;        // minimum resident blocks per multiprocessor; 0 = no request
};

// The loop that blocks which stay share (ForEvery), the last statement of the body; null of others.
const StmtNode* SharedTurns(const Kernel& kernel);

// An ordered list of kernels that together compute a tensor program.
struct Program {
  std::string op;
  std::vector<BufferRef> inputs;      // declaration order
  std::vector<BufferRef> outputs;     // definition order
  std::vector<BufferRef> workspaces;  // global, written before they are read
  std::vector<Kernel> kernels;
};

// Indented text of the IR, as `heddle show --what loops` prints it.
std::string ToString(const Stmt& s, int indent = 0);
std::string ToString(const Kernel& kernel);
std::string ToString(const Program& program);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_STMT_H_
