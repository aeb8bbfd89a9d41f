#include "search_space/schedule/rewrites/divide_stage.h"

#include <cstddef>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

constexpr size_t kMostStages = 8;  // in the place of one
constexpr double kMostStored = 4;  // of the elements of inputs and outputs

double ElementsOfIo(const TensorProgram& program) {
  double elements = 0;
  for (const BufferRef& input : program.inputs) elements += static_cast<double>(input->elements);
  for (const Stage& stage : program.stages) {
    if (stage.is_output) elements += static_cast<double>(stage.tensor->elements);
  }
  return elements;
}

void AddFactors(const Expr& e, std::vector<Expr>& factors) {
  if (e->op != Op::kMul) {
    factors.push_back(e);
    return;
  }
  for (const Expr& arg : e->args) AddFactors(arg, factors);
}

}  // namespace

std::vector<Expr> FactorsOfProduct(const Expr& e) {
  std::vector<Expr> factors;
  AddFactors(e, factors);
  return factors;
}

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithStageDivided(
    const TensorProgram& program, const std::string& name, const std::string& suffix,
    const DivideStage& divide, const std::string& otherwise) {
  HEDDLE_ASSIGN_OR_RETURN(first, StageNumber(program, name));
  const double most_elements = kMostStored * ElementsOfIo(program);
  auto divided = std::make_shared<TensorProgram>(program);
  std::vector<Stage>& stages = divided->stages;
  // [first, first + made] are in the place of the one.
  size_t made = 0;
  for (size_t s = first; s <= first + made && made < kMostStages;) {
    auto parts = divide(stages[s], absl::StrCat(name, suffix, made), most_elements);
    if (!parts) {
      ++s;
      continue;
    }
    auto& [inner, outer] = *parts;
    stages[s] = std::move(outer);
    stages.insert(stages.begin() + static_cast<std::ptrdiff_t>(s), std::move(inner));
    ++made;
  }
  if (made == 0) return absl::InvalidArgumentError(absl::StrCat(name, otherwise));
  return divided;
}

}  // namespace heddle::search_space
