// Expressions: the scalar language shared by tensor programs (what is computed) and by the
// statement IR (how). Integer expressions are indices, extents and conditions; the others are
// values. One node type with generic children: a new operation costs a row in `Op` and a case
// where its meaning matters (evaluation, printing).
#ifndef HEDDLE_SEARCH_SPACE_IR_EXPR_EXPR_H_
#define HEDDLE_SEARCH_SPACE_IR_EXPR_EXPR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/inlined_vector.h"
#include "absl/functional/function_ref.h"
#include "absl/types/span.h"

namespace heddle::search_space {

// ---------------------------------------------------------------------------------- data types

// kInt32 is a type of buffers alone, those of index inputs: what is loaded of them is kInt64, as
// all integers are that are computed with. kTF32 is a float32 in memory of which products take the
// leading 11 significant bits: its values are those of so many.
enum class DType : uint8_t {
  kBool,
  kInt32,
  kInt64,
  kFloat16,
  kBFloat16,
  kTF32,
  kFloat32,
  kFloat64
};

// Bytes of one element in a buffer.
int64_t SizeOf(DType type);
// "float32", ... as the notation and the command line spell them.
const char* NameOf(DType type);
inline bool IsFloat(DType type) { return type >= DType::kFloat16; }

// ----------------------------------------------------------------------------------- variables

// A loop or axis variable. Its values are 0 <= v < extent; extents are static, so that interval
// analysis needs no environment. Identity is the address; `id` grows with creation and gives
// terms a deterministic order.
struct Variable {
  std::string name;
  int64_t extent;
  uint64_t id;
};
using Var = std::shared_ptr<const Variable>;
Var MakeVar(std::string name, int64_t extent);

// ------------------------------------------------------------------------------------- buffers

// Where a buffer lives: global = device memory (inputs, outputs, workspaces), shared = one copy a
// thread block, local = registers of one thread.
enum class Scope : uint8_t { kGlobal, kShared, kLocal };
const char* NameOf(Scope scope);

// A dense multi-dimensional array. Loads and stores carry one index per dimension; the physical
// element offset is sum(index[i] * strides[i]), changed by `swizzle` where that is not zero.
struct Buffer {
  std::string name;  // unique within a program; never contains characters outside [A-Za-z0-9_.]
  DType dtype = DType::kFloat32;
  Scope scope = Scope::kGlobal;
  std::vector<int64_t> shape;    // elements per dimension
  std::vector<int64_t> strides;  // elements; >= 1
  int64_t elements = 0;          // allocated elements, padding included
  int64_t alignment = 16;        // bytes, of the first element
  // Of an input that holds indices, kInt32: they are promised to lie in [0, index_extent), and are
  // clamped to that when they are read (ReadIndex). 0 for all other buffers.
  int64_t index_extent = 0;
  // XOR swizzle of a shared buffer, 0 = none. With v = swizzle (a vector width in elements), row =
  // offset / swizzle_row, the chunk index (offset % swizzle_row) / v is XORed with
  // (row / swizzle_period) % (number of chunks, a power of two). Accesses of up to v aligned
  // elements stay contiguous. Rows are counted from the start of a copy, swizzle_copy elements,
  // where the buffer holds several (0 = one).
  int64_t swizzle = 0;
  int64_t swizzle_row = 0;
  int64_t swizzle_period = 1;
  int64_t swizzle_copy = 0;

  int64_t bytes() const { return elements * SizeOf(dtype); }
};
using BufferRef = std::shared_ptr<const Buffer>;

// Where element `offset` of the array lies in a buffer that may be swizzled.
int64_t SwizzledOffset(const Buffer& buffer, int64_t offset);

// A row-major buffer with tight strides.
BufferRef MakeBuffer(std::string name, DType dtype, Scope scope, std::vector<int64_t> shape);

// --------------------------------------------------------------------------------- expressions

enum class Op : uint8_t {
  // Leaves.
  kInt,    // int_value; type kInt64, or kBool with 0 or 1
  kFloat,  // float_value, any floating type
  kVar,    // var; type kInt64
  // args = one kInt64 index per dimension of `buffer`; the type is kInt64 where that holds indices.
  // `lanes` > 1 is a promise made inside a
  // For of kind vector: see stmt.h.
  kLoad,
  // Arithmetic, both sides and the result of one type. On kInt64 kDiv and kMod are floor division
  // and its remainder, by a positive constant. On floats kDiv is the type's division; no kMod.
  // kMin and kMax of floats propagate NaN.
  kAdd,
  kSub,
  kMul,
  kDiv,
  kMod,
  kMin,
  kMax,
  // Comparisons: operands of one type, result kBool. Greater-than is written with sides swapped.
  kLt,
  kLe,
  kEq,
  kNe,
  // kBool operands.
  kAnd,
  kOr,
  kNot,
  // args = {condition, value if true, value if false}; only the chosen side is evaluated.
  kSelect,
  // One argument, to `type`.
  kCast,
  // Functions of floats.
  kNeg,
  kExp,
  kLog,
  kSqrt,
  kRsqrt,
  kTanh,
  kErf,
  kSigmoid,
  kAbs,
  kPow,
};
// "add", "exp", ...; the notation's spelling for functions.
const char* NameOf(Op op);
// Is it a function whose values are rounded and take many instructions, such as an exponential?
bool IsFunction(Op op);

struct ExprNode;
using Expr = std::shared_ptr<const ExprNode>;
using ExprList = absl::InlinedVector<Expr, 3>;

// A fact found out about one immutable node, by any thread. A copy, which is about to be changed,
// starts without.
class NodeMark {
 public:
  NodeMark() = default;
  NodeMark(const NodeMark&) {}
  NodeMark& operator=(const NodeMark&) = delete;
  bool is_set() const { return set_.load(std::memory_order_relaxed); }
  void Set() const { set_.store(true, std::memory_order_relaxed); }

 private:
  mutable std::atomic<bool> set_{false};
};

struct ExprNode {
  Op op;
  DType type;
  int8_t lanes = 1;        // kLoad
  NodeMark simplified;     // Simplify returns the node as it is
  int64_t int_value = 0;   // kInt
  double float_value = 0;  // kFloat
  Var var;                 // kVar
  BufferRef buffer;        // kLoad
  ExprList args;
};

Expr Int(int64_t value);
Expr Bool(bool value);
Expr Float(double value, DType type);
Expr VarExpr(const Var& var);
Expr Load(const BufferRef& buffer, ExprList indices, int lanes = 1);
// What an index input holds, as an integer of the range that is promised, whatever lies in memory.
Expr ReadIndex(const BufferRef& buffer, ExprList indices);
// Builds the node as it is, type derived from the operation and its arguments; no simplification.
Expr MakeExpr(Op op, ExprList args);
// The same of an operation with two arguments.
Expr MakeBinary(Op op, Expr a, Expr b);
Expr Cast(DType type, Expr value);
// `value`, cast where its type is another one.
Expr ToType(DType type, Expr value);
Expr Select(Expr condition, Expr if_true, Expr if_false);

inline Expr operator+(const Expr& a, const Expr& b) { return MakeExpr(Op::kAdd, {a, b}); }
inline Expr operator-(const Expr& a, const Expr& b) { return MakeExpr(Op::kSub, {a, b}); }
inline Expr operator*(const Expr& a, const Expr& b) { return MakeExpr(Op::kMul, {a, b}); }
inline Expr operator/(const Expr& a, const Expr& b) { return MakeExpr(Op::kDiv, {a, b}); }
inline Expr operator%(const Expr& a, const Expr& b) { return MakeExpr(Op::kMod, {a, b}); }
inline Expr operator<(const Expr& a, const Expr& b) { return MakeExpr(Op::kLt, {a, b}); }
inline Expr operator<=(const Expr& a, const Expr& b) { return MakeExpr(Op::kLe, {a, b}); }
inline Expr operator&&(const Expr& a, const Expr& b) { return MakeExpr(Op::kAnd, {a, b}); }

inline bool IsInt(const Expr& e, int64_t value) {
  return e->op == Op::kInt && e->int_value == value;
}

// Is it a load of a value, and not of an index?
inline bool IsValueLoad(const Expr& e) { return e->op == Op::kLoad && IsFloat(e->type); }

// Does the integer or condition depend on what index inputs hold?
bool ReadsIndices(const Expr& e);

// Does the node stand in several places? What a walk finds out about it is then worth keeping; a
// leaf is as soon looked at again.
inline bool IsShared(const Expr& e) { return !e->args.empty() && e.use_count() > 1; }

// The same operations on the same variables and buffers.
bool StructurallyEqual(const Expr& a, const Expr& b);

// Calls `visit` on `e` and then on everything below it.
void Visit(const Expr& e, absl::FunctionRef<void(const Expr&)> visit);
// The same once for each node, in how many places it may stand: a chain of definitions of which
// each reads the one before twice has as many places as two to the power of its length.
void VisitDistinct(const Expr& e, absl::FunctionRef<void(const Expr&)> visit);

// Rebuilds `e` bottom-up: `rewrite` gets a node whose children were rewritten already and returns
// its replacement, or null to keep it. Unchanged subtrees are shared.
Expr Rewrite(const Expr& e, absl::FunctionRef<Expr(const Expr&)> rewrite);

// The node with `map` of its arguments; of a select whose condition that decides, only `map` of the
// chosen side.
Expr MapDecided(const Expr& e, absl::FunctionRef<Expr(const Expr&)> map);

// Replaces variables: `replacement` returns null for those that stay.
Expr Substitute(const Expr& e, absl::FunctionRef<Expr(const Var&)> replacement);
// The same with values[i] for variables[i]; others stay. Of a stage's body, with the indices of a
// load for the stage's axes, that is what the element is that the load reads.
Expr Substitute(const Expr& e, absl::Span<const Var> variables, absl::Span<const Expr> values);

// The notation's syntax: "A[i, r] * B[r, j]", "(x / 4) % 8", "select(y < 3, X[y], 0)".
std::string ToString(const Expr& e);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_EXPR_EXPR_H_
