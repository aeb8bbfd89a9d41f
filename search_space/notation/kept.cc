#include "search_space/notation/kept.h"

#include <optional>

#include "search_space/notation/placed_terms.h"
#include "search_space/notation/reference_program.h"

namespace heddle::search_space {
namespace {

// How many elements a term is evaluated for, where its place is known.
int64_t ElementsOfTerm(const Stage& stage, const PlacedTerms& placed) {
  int64_t elements = 1;
  for (size_t i = 0; i < stage.axes.size(); ++i) {
    if (!placed.HasKey(i)) elements *= stage.axes[i]->extent;
  }
  return elements;
}

}  // namespace

std::vector<StageCost> CostsOf(const TensorProgram& program) {
  std::vector<StageCost> costs;
  for (const Stage& stage : program.stages) {
    bool reads_stages = false;
    Visit(stage.body, [&](const Expr& e) {
      const Stage* read = e->op == Op::kLoad ? program.FindStage(e->buffer.get()) : nullptr;
      if (read == nullptr) return;
      reads_stages = true;
      costs[static_cast<size_t>(read - program.stages.data())].is_read = true;
    });
    const auto terms = static_cast<double>(ExtentOf(stage.reduce_axes));
    const double operations = static_cast<double>(StageProgram(program, stage).size()) * terms;
    const std::optional<PlacedTerms> placed = PlacedTermsOf(program, stage);
    const int64_t elements = placed ? ElementsOfTerm(stage, *placed) : stage.tensor->elements;
    costs.push_back({.operations = operations,
                     .operations_of_all = operations * static_cast<double>(elements),
                     .is_remembered = stage.is_reduction() || reads_stages,
                     .is_placed = placed.has_value()});
  }
  return costs;
}

Kept::Kept(const TensorProgram& program, const InputElement& input)
    : program_(program),
      input_(input),
      costs_(CostsOf(program)),
      inputs_(program.inputs.size()),
      stages_(program.stages.size(), StageValues(0)) {}

double Kept::Made(int input, int64_t offset) const {
  return InMemory(program_.inputs[input]->dtype, input_(input, offset));
}

Scalar Kept::Input(int input, int64_t offset) const {
  const std::vector<double>& kept = inputs_[static_cast<size_t>(input)];
  return Exact(kept.empty() ? Made(input, offset) : kept[static_cast<size_t>(offset)]);
}

const double* Kept::WholeInput(int input) const {
  const std::vector<double>& kept = inputs_[static_cast<size_t>(input)];
  return kept.empty() ? nullptr : kept.data();
}

Scalar StageValues::At(int64_t offset) const {
  const uint8_t flags = flags_[offset];
  return {values_[offset], magnitudes_[offset], (flags & kExact) != 0, (flags & kContested) != 0,
          (flags & kUncertain) != 0};
}

void StageValues::Set(int64_t offset, const Scalar& x) {
  values_[offset] = x.value;
  magnitudes_[offset] = x.magnitude;
  flags_[offset] = static_cast<uint8_t>((x.exact ? kExact : 0) | (x.contested ? kContested : 0) |
                                        (x.uncertain ? kUncertain : 0));
}

}  // namespace heddle::search_space
