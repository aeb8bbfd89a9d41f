#include "search_space/ir/tensor_program.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "search_space/ir/simplify.h"

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

// Elements that one load reads. As many draws as there are iterations of what the indices depend
// on, from n elements, are expected to name n (1 - (1 - 1/n)^draws) of them.
double ElementsNamed(const Expr& load) {
  double draws = 1, choices = 1, elements = 1;
  std::vector<const Variable*> seen;
  for (size_t d = 0; d < load->args.size(); ++d) {
    if (!ReadsIndices(load->args[d])) {
      elements *= static_cast<double>(load->buffer->shape[d]);
      continue;
    }
    const Interval range = BoundsOf(load->args[d]);
    choices *= static_cast<double>(std::min(load->buffer->shape[d], range.max - range.min + 1));
    Visit(load->args[d], [&](const Expr& e) {
      if (e->op != Op::kVar || std::find(seen.begin(), seen.end(), e->var.get()) != seen.end()) {
        return;
      }
      seen.push_back(e->var.get());
      draws *= static_cast<double>(e->var->extent);
    });
  }
  return elements * choices * -std::expm1(-draws / choices);
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
  for (const BufferRef& input : inputs) {
    double elements = 0;
    bool is_gathered = false;
    for (const Stage& stage : stages) {
      Visit(stage.body, [&](const Expr& e) {
        if (e->op != Op::kLoad || e->buffer != input) return;
        is_gathered = is_gathered || std::any_of(e->args.begin(), e->args.end(), ReadsIndices);
        elements += ElementsNamed(e);
      });
    }
    const bool is_part = is_gathered && elements < static_cast<double>(input->elements);
    bytes += is_part ? static_cast<int64_t>(elements) * SizeOf(input->dtype) : input->bytes();
  }
  for (const Stage& stage : stages) {
    if (stage.is_output) bytes += stage.tensor->bytes();
  }
  return bytes;
}

}  // namespace heddle::search_space
