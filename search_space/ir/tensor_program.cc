#include "search_space/ir/tensor_program.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/check.h"
#include "search_space/ir/expr/simplify.h"

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
  HEDDLE_CHECK(false, "a combiner without an identity");
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
  HEDDLE_CHECK(false, "a combiner without an operation");
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

// How many of n elements `draws` random ones are expected to name.
double Distinct(double draws, double n) {
  return n <= 1 ? 1 : n * -std::expm1(draws * std::log1p(-1 / n));
}

// Elements that one load reads, where indices are random: of those that its gathered dimensions
// name together, and of those that each names by itself, the fewer.
double ElementsNamed(const Expr& load) {
  double draws = 1, choices = 1, elements = 1, apart = 1;
  std::vector<const Variable*> seen;
  for (size_t d = 0; d < load->args.size(); ++d) {
    if (!ReadsIndices(load->args[d])) {
      elements *= static_cast<double>(load->buffer->shape[d]);
      continue;
    }
    const Interval range = BoundsOf(load->args[d]);
    const auto n = static_cast<double>(std::min(load->buffer->shape[d], range.max - range.min + 1));
    double own_draws = 1;
    std::vector<const Variable*> own;
    Visit(load->args[d], [&](const Expr& e) {
      if (e->op != Op::kVar) return;
      const auto is_new = [&](std::vector<const Variable*>& of) {
        if (std::find(of.begin(), of.end(), e->var.get()) != of.end()) return false;
        of.push_back(e->var.get());
        return true;
      };
      if (is_new(own)) own_draws *= static_cast<double>(e->var->extent);
      if (is_new(seen)) draws *= static_cast<double>(e->var->extent);
    });
    choices *= n;
    apart *= Distinct(own_draws, n);
  }
  return elements * std::min(apart, Distinct(draws, choices));
}

// The most elements of `input` that a load in `e` names. What is read only under conditions that
// indices decide may not be read at all.
double MostNamed(const Expr& e, const BufferRef& input, bool& is_part) {
  double most = 0;
  if (e->op == Op::kLoad && e->buffer == input) {
    is_part = is_part || std::any_of(e->args.begin(), e->args.end(), ReadsIndices);
    most = ElementsNamed(e);
  }
  const bool decides = e->op == Op::kSelect && ReadsIndices(e->args[0]);
  for (size_t i = 0; i < e->args.size(); ++i) {
    const double named = MostNamed(e->args[i], input, is_part);
    if (decides && i > 0) {
      is_part = is_part || named > 0;
    } else {
      most = std::max(most, named);
    }
  }
  return most;
}

}  // namespace

int64_t ExtentOf(const std::vector<Var>& axes) {
  int64_t extent = 1;
  for (const Var& axis : axes) extent *= axis->extent;
  return extent;
}

ExprList ExprsOf(const std::vector<Var>& axes) {
  ExprList exprs;
  for (const Var& axis : axes) exprs.push_back(VarExpr(axis));
  return exprs;
}

BufferRef TensorOver(const std::vector<Var>& axes, std::string name, DType type) {
  std::vector<int64_t> shape;
  for (const Var& axis : axes) shape.push_back(axis->extent);
  return MakeBuffer(std::move(name), type, Scope::kGlobal, std::move(shape));
}

double Stage::Flops() const {
  const double each = OperationsOf(body) + (is_reduction() ? 1 : 0);
  return each * static_cast<double>(ExtentOf(axes)) * static_cast<double>(ExtentOf(reduce_axes));
}

std::string Stage::UnusedAxisName(std::string name) const {
  const auto is_used = [&](const std::vector<Var>& of) {
    return std::any_of(of.begin(), of.end(), [&](const Var& axis) { return axis->name == name; });
  };
  while (is_used(axes) || is_used(reduce_axes)) name += "_";
  return name;
}

const Stage* TensorProgram::FindStage(const Buffer* tensor) const {
  for (const Stage& stage : stages) {
    if (stage.tensor.get() == tensor) return &stage;
  }
  return nullptr;
}

const Stage* TensorProgram::FindStage(absl::string_view name) const {
  const auto found =
      std::find_if(stages.begin(), stages.end(), [&](const Stage& s) { return s.name() == name; });
  return found == stages.end() ? nullptr : &*found;
}

std::string TensorProgram::UnusedTensorName(std::string name) const {
  const auto is_taken = [&] {
    return FindStage(name) != nullptr ||
           std::any_of(inputs.begin(), inputs.end(),
                       [&](const BufferRef& input) { return input->name == name; });
  };
  while (is_taken()) name += "_";
  return name;
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
    bool is_part = false;
    for (const Stage& stage : stages) {
      elements = std::max(elements, MostNamed(stage.body, input, is_part));
    }
    bytes += is_part && elements < static_cast<double>(input->elements)
                 ? static_cast<int64_t>(elements) * SizeOf(input->dtype)
                 : input->bytes();
  }
  for (const Stage& stage : stages) {
    if (stage.is_output) bytes += stage.tensor->bytes();
  }
  return bytes;
}

}  // namespace heddle::search_space
