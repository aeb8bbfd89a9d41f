#include "search_space/schedule/quotient.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/schedule/stage_number.h"

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

// Of each dimension of the divisor, which of the dividend's has the same index.
using Dims = std::vector<size_t>;

std::optional<Dims> DimsOf(const Expr& divisor, const Expr& dividend) {
  Dims dims;
  for (const Expr& index : divisor->args) {
    const auto same =
        std::find_if(dividend->args.begin(), dividend->args.end(),
                     [&](const Expr& other) { return StructurallyEqual(index, other); });
    if (same == dividend->args.end()) return std::nullopt;
    dims.push_back(static_cast<size_t>(same - dividend->args.begin()));
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

  // At how many fixed places are elements read?
  size_t places() const { return places_.size(); }

  std::optional<Stage> stage() const {
    if (divisor_ == nullptr) return std::nullopt;
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
    std::string place;
    for (const Expr& index : (*dividend)->args) {
      if (index->op == Op::kInt) absl::StrAppend(&place, index->int_value, " ");
    }
    if (!place.empty()) places_.insert(place);
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
  absl::flat_hash_set<std::string> places_;
};

bool Reads(const Expr& body, const BufferRef& tensor) {
  bool reads = false;
  Visit(body, [&](const Expr& e) { reads = reads || (e->op == Op::kLoad && e->buffer == tensor); });
  return reads;
}

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
    if (!Reads(reader.body, dividend.tensor)) continue;
    first = std::min(first, s);
    if (!reader.is_reduction()) reader.body = quotients.In(reader.body);
    if (Reads(reader.body, dividend.tensor)) {
      return refuse("is read where it is not divided by the elements of one reduction");
    }
  }
  if (quotients.places() < 2) return refuse("is not read at two fixed places of an axis");
  std::optional<Stage> stage = quotients.stage();
  made->stages.insert(made->stages.begin() + static_cast<std::ptrdiff_t>(first), *std::move(stage));
  return made;
}

}  // namespace heddle::search_space
