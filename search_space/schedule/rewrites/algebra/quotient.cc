#include "search_space/schedule/rewrites/algebra/quotient.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

// The factors of a product, and those by which it is divided.
void AddFactors(const Expr& e, ExprList& over, ExprList& under) {
  if (e->op == Op::kMul || e->op == Op::kDiv) {
    AddFactors(e->args[0], over, under);
    AddFactors(e->args[1], e->op == Op::kMul ? over : under, e->op == Op::kMul ? under : over);
    return;
  }
  over.push_back(e);
}

Expr ProductOf(const ExprList& factors) {
  Expr product;
  for (const Expr& f : factors) product = product == nullptr ? f : product * f;
  return product;
}

// Of each dimension of the divisor, which of the dividend's has the same index and is as long.
using Dims = std::vector<size_t>;

std::optional<Dims> DimsOf(const Expr& divisor, const Expr& dividend) {
  Dims dims;
  for (size_t d = 0; d < divisor->args.size(); ++d) {
    size_t same = 0;
    while (same < dividend->args.size() &&
           !(StructurallyEqual(divisor->args[d], dividend->args[same]) &&
             divisor->buffer->shape[d] == dividend->buffer->shape[same])) {
      ++same;
    }
    if (same == dividend->args.size()) return std::nullopt;
    dims.push_back(same);
  }
  return dims;
}

// Puts a stage's quotients in the place of its elements.
class Quotients {
 public:
  Quotients(const TensorProgram& program, const Stage& dividend)
      : program_(program),
        dividend_(dividend),
        tensor_(MakeBuffer(absl::StrCat(dividend.name(), ".quotient"), dividend.body->type,
                           Scope::kGlobal, dividend.tensor->shape)) {}

  // The body with quotients where it divides elements by what the first that is found is divided
  // by, and otherwise as it is.
  Expr In(const Expr& body) {
    return Rewrite(body, [&](const Expr& e) { return RewriteNode(e); });
  }

  // Are there several fixed places, and are elements read at all of them?
  bool AreAllRead() const {
    int64_t all = 1;
    for (const size_t d : fixed_) all *= tensor_->shape[d];
    return all > 1 && static_cast<int64_t>(places_.size()) == all;
  }

  // The stage of the quotients, of which there are some.
  Stage stage() const {
    ExprList own, of_divisor;
    for (const Var& axis : dividend_.axes) own.push_back(VarExpr(axis));
    for (const size_t d : dims_) of_divisor.push_back(own[d]);
    return Stage{.tensor = tensor_,
                 .axes = dividend_.axes,
                 .body = ToType(tensor_->dtype, Load(dividend_.tensor, std::move(own))) /
                         ToType(tensor_->dtype, Load(divisor_, std::move(of_divisor)))};
  }

 private:
  bool IsDividend(const Expr& e) const {
    return e->op == Op::kLoad && e->buffer == dividend_.tensor && e->type == tensor_->dtype;
  }
  // The divisor that other places have, or, where this is the first, any reduction.
  bool IsDivisor(const Expr& e, const Expr& dividend) {
    if (e->op != Op::kLoad || e->type != tensor_->dtype) return false;
    const Stage* stage = program_.FindStage(e->buffer.get());
    const std::optional<Dims> dims = DimsOf(e, dividend);
    if (stage == nullptr || !stage->is_reduction() || !dims.has_value()) return false;
    if (divisor_ == nullptr) {
      divisor_ = e->buffer;
      dims_ = *dims;
    }
    return divisor_ == e->buffer && dims_ == *dims;
  }

  // Null where the node stays.
  Expr RewriteNode(const Expr& e) {
    if (e->op != Op::kMul && e->op != Op::kDiv) return nullptr;
    ExprList over, under;
    AddFactors(e, over, under);
    const auto dividend =
        std::find_if(over.begin(), over.end(), [&](const Expr& f) { return IsDividend(f); });
    if (dividend == over.end()) return nullptr;
    const auto divisor = std::find_if(under.begin(), under.end(),
                                      [&](const Expr& f) { return IsDivisor(f, *dividend); });
    if (divisor == under.end()) return nullptr;
    std::vector<int64_t> place;
    for (size_t d = 0; d < (*dividend)->args.size(); ++d) {
      const Expr& index = (*dividend)->args[d];
      if (index->op != Op::kInt) continue;
      fixed_.insert(d);
      place.push_back(index->int_value);
    }
    places_.insert(std::move(place));
    *dividend = Load(tensor_, (*dividend)->args);
    under.erase(divisor);
    const Expr product = ProductOf(over);
    return under.empty() ? product : product / ProductOf(under);
  }

  const TensorProgram& program_;
  const Stage& dividend_;
  const BufferRef tensor_;
  BufferRef divisor_;
  Dims dims_;
  std::set<size_t> fixed_;                 // dimensions of it
  std::set<std::vector<int64_t>> places_;  // along these, that are read
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithQuotient(const TensorProgram& program,
                                                                  const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage& dividend = program.stages[number];
  const auto refuse = [&](const std::string& why) {
    return absl::InvalidArgumentError(absl::StrCat(name, " ", why));
  };
  if (dividend.is_output || !dividend.is_reduction()) {
    return refuse("is no reduction that only others read");
  }
  auto made = std::make_shared<TensorProgram>(program);
  Quotients quotients(program, dividend);
  size_t first = program.stages.size();
  for (size_t s = number + 1; s < program.stages.size(); ++s) {
    Stage& reader = made->stages[s];
    if (!ReadsAny(reader.body, {dividend.tensor.get()})) continue;
    first = std::min(first, s);
    if (!reader.is_reduction()) reader.body = quotients.In(reader.body);
    if (ReadsAny(reader.body, {dividend.tensor.get()})) {
      return refuse("is read where it is not divided by the elements of one reduction");
    }
  }
  if (!quotients.AreAllRead()) return refuse("is not read at all of several fixed places");
  made->stages.insert(made->stages.begin() + static_cast<std::ptrdiff_t>(first), quotients.stage());
  return made;
}

absl::Status Quotient::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithQuotient);
}

}  // namespace heddle::search_space
