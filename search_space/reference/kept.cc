#include "search_space/reference/kept.h"

#include <optional>

#include "search_space/reference/placed_terms.h"
#include "search_space/reference/reference_program.h"

namespace heddle::search_space {
namespace {

// Instructions, those of all readers of an element, that take no longer than to remember it.
constexpr double kFewOperations = 64;

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
  const size_t stages = program.stages.size();
  std::vector<StageCost> costs(stages);
  // How often an element of each stage is read, by all of what each reads.
  std::vector<double> times(stages);
  std::vector<std::vector<size_t>> reads(stages);
  for (size_t s = 0; s < stages; ++s) {
    const Stage& stage = program.stages[s];
    const double terms = static_cast<double>(ExtentOf(stage.reduce_axes));
    Visit(stage.body, [&](const Expr& e) {
      const Stage* read = e->op == Op::kLoad ? program.FindStage(e->buffer.get()) : nullptr;
      if (read == nullptr) return;
      reads[s].push_back(static_cast<size_t>(read - program.stages.data()));
      times[reads[s].back()] += terms * static_cast<double>(stage.tensor->elements) /
                                static_cast<double>(read->tensor->elements);
    });
    costs[s].operations = static_cast<double>(StageProgram(program, stage).size()) * terms;
    const std::optional<PlacedTerms> placed = PlacedTermsOf(program, stage);
    const int64_t elements = placed ? ElementsOfTerm(stage, *placed) : stage.tensor->elements;
    costs[s].operations_of_all = costs[s].operations * static_cast<double>(elements);
    costs[s].is_placed = placed.has_value();
  }
  std::vector<double> again(stages);  // instructions of an element that is read once more
  for (size_t s = 0; s < stages; ++s) {
    again[s] = costs[s].operations;
    for (size_t read : reads[s]) again[s] += again[read];
    costs[s].is_read = times[s] > 0;
    costs[s].is_remembered =
        program.stages[s].is_reduction() || times[s] * again[s] > kFewOperations;
    if (costs[s].is_remembered) again[s] = 0;
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
  const float* const kept = WholeInput(input);
  return Exact(kept == nullptr ? Made(input, offset) : static_cast<double>(kept[offset]));
}

const float* Kept::WholeInput(int input) const {
  const std::vector<float>& kept = inputs_[static_cast<size_t>(input)];
  return kept.empty() ? nullptr : kept.data();
}

bool Kept::HasAllReadBy(int stage) const {
  bool has_all = true;
  Visit(program_.stages[stage].body, [&](const Expr& e) {
    for (size_t s = 0; e->op == Op::kLoad && s < stages_.size(); ++s) {
      const bool is_read = program_.stages[s].tensor == e->buffer;
      has_all = has_all && (!is_read || HasStage(static_cast<int>(s)));
    }
  });
  return has_all;
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
