#include "search_space/ir/tensor_program.h"

#include <algorithm>
#include <cstdlib>
#include <limits>

namespace heddle::search_space {

const char* NameOf(Combiner combiner) {
  static constexpr const char* kNames[] = {"none", "sum", "max", "min", "prod"};
  return kNames[static_cast<int>(combiner)];
}

Expr IdentityOf(Combiner combiner, DType type) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  switch (combiner) {
    case Combiner::kNone:
    case Combiner::kSum:
      return Float(0, type);
    case Combiner::kMax:
      return Float(-kInfinity, type);
    case Combiner::kMin:
      return Float(kInfinity, type);
    case Combiner::kProd:
      return Float(1, type);
  }
  std::abort();
}

Expr Combine(Combiner combiner, const Expr& a, const Expr& b) {
  switch (combiner) {
    case Combiner::kNone:
      return b;
    case Combiner::kSum:
      return a + b;
    case Combiner::kMax:
      return MakeExpr(Op::kMax, {a, b});
    case Combiner::kMin:
      return MakeExpr(Op::kMin, {a, b});
    case Combiner::kProd:
      return a * b;
  }
  std::abort();
}

namespace {

// Operations on values in one evaluation of `e`; both sides of a select are counted as if the
// longer were taken, index arithmetic, comparisons and conversions are not.
double OperationsOf(const Expr& e) {
  if (e->op == Op::kLoad || !IsFloat(e->type) ||
      (e->op == Op::kCast && !IsFloat(e->args[0]->type))) {
    return 0;
  }
  if (e->op == Op::kSelect) {
    return std::max(OperationsOf(e->args[1]), OperationsOf(e->args[2]));
  }
  double count = e->args.empty() || e->op == Op::kCast ? 0 : 1;
  for (const Expr& arg : e->args) count += OperationsOf(arg);
  return count;
}

}  // namespace

double Stage::Flops() const {
  double count = OperationsOf(body) + (is_reduction() ? 1 : 0);
  for (const Var& axis : axes) count *= static_cast<double>(axis->extent);
  for (const Var& axis : reduce_axes) count *= static_cast<double>(axis->extent);
  return count;
}

const Stage* TensorProgram::FindStage(const Buffer* tensor) const {
  for (const Stage& stage : stages) {
    if (stage.tensor.get() == tensor) return &stage;
  }
  return nullptr;
}

double TensorProgram::Flops() const {
  double flops = 0;
  for (const Stage& stage : stages) {
    flops += stage.Flops();
  }
  return flops;
}

int64_t TensorProgram::IoBytes() const {
  int64_t bytes = 0;
  for (const BufferRef& input : inputs) bytes += input->bytes();
  for (const Stage& stage : stages) {
    if (stage.is_output) bytes += stage.tensor->bytes();
  }
  return bytes;
}

}  // namespace heddle::search_space
