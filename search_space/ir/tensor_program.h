// What is to be computed: a directed acyclic graph of stages over named axes, free of any decision
// about how. It is the meaning against which every schedule is checked.
#ifndef HEDDLE_SEARCH_SPACE_IR_TENSOR_PROGRAM_H_
#define HEDDLE_SEARCH_SPACE_IR_TENSOR_PROGRAM_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

enum class Combiner : uint8_t { kNone, kSum, kMax, kMin, kProd };
const char* NameOf(Combiner combiner);
// The combiner's identity element (0, -inf, +inf, 1).
Expr IdentityOf(Combiner combiner, DType type);
// Is a value combined with itself that value? Then values may be combined any number of times.
inline bool IsIdempotent(Combiner combiner) {
  return combiner == Combiner::kMax || combiner == Combiner::kMin;
}
// combiner(a, b) as an expression.
Expr Combine(Combiner combiner, const Expr& a, const Expr& b);

// How many elements lie along these axes together: the terms of each element of a stage are those
// along its `reduce_axes`, 1 where it reduces nothing.
int64_t ExtentOf(const std::vector<Var>& axes);

// Each of them as an expression, such as the indices of a stage's own element.
ExprList ExprsOf(const std::vector<Var>& axes);

// A tensor in global memory with an element for each of their values.
BufferRef TensorOver(const std::vector<Var>& axes, std::string name, DType type);

// One tensor and its definition:
//   tensor[axes] = combiner(reduce_axes) body       (or just body, without reduce_axes).
// `body` reads inputs and earlier stages through Load with one index expression per dimension of
// the tensor read, over axes and reduce_axes. Its type is the one in which it is computed and
// reduced; where the tensor's is another one, the result is rounded to that once, at the end.
struct Stage {
  BufferRef tensor;  // scope global, shape = extents of axes
  std::vector<Var> axes;
  std::vector<Var> reduce_axes;
  Combiner combiner = Combiner::kNone;
  Expr body;
  bool is_output = false;

  const std::string& name() const { return tensor->name; }
  bool is_reduction() const { return combiner != Combiner::kNone; }
  // Its part of TensorProgram::Flops.
  double Flops() const;
  // Steps address loops by name: `name`, or with underscores where there is such an axis.
  std::string UnusedAxisName(std::string name) const;
};

// An operator instantiated at a shape. Guarantees made by the notation's front end: every extent
// is at least 1, every read stays inside its tensor whenever it is evaluated (select is lazy),
// stages are in definition order, every stage and input is used, at least one stage is an output,
// and neither element counts nor byte sizes overflow 63 bits.
struct TensorProgram {
  std::string op;                        // operator name
  std::map<std::string, int64_t> shape;  // every parameter, defaults filled in
  DType dtype = DType::kFloat32;
  // Declaration order; of `dtype`, or of kInt32 where they hold indices (Buffer::index_extent).
  std::vector<BufferRef> inputs;
  std::vector<Stage> stages;  // definition order
  // The workload's identity: normalised operator text, all parameters, data type. Equal text,
  // equal workload.
  std::string canonical_text;
  // 16 hex digits of a hash of canonical_text.
  std::string hash;

  // Null where there is none.
  const Stage* FindStage(const Buffer* tensor) const;
  const Stage* FindStage(absl::string_view name) const;
  // `name`, or with underscores where there is such a tensor.
  std::string UnusedTensorName(std::string name) const;
  // Scalar arithmetic operations of all stages, a fused multiply-add counted as 2; integer index
  // arithmetic and selects are not counted.
  double Flops() const;
  // Bytes of all inputs and outputs, each once: the least traffic any schedule causes. Of an input
  // that is read only where indices say, those that as many random ones are expected to name.
  int64_t IoBytes() const;
};

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_TENSOR_PROGRAM_H_
