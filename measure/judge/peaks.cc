#include "measure/judge/peaks.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "measure/judge/criteria.h"

namespace heddle::measure {
namespace {

using search_space::Buffer;
using search_space::Combiner;
using search_space::Stage;
using search_space::TensorProgram;

// Nearer to each other than this, large elements would not stand out.
constexpr int kLeastLogSpacing = 3;
// How often the tolerance goes into one of a sum's large terms, where the sum is the result: it is
// rarely, and what becomes of it magnifies the tolerance more than the term.
constexpr double kMargin = 64;
// Beside others in [-1, 1): what may be squared or raised to e is still finite in 16 bits.
constexpr float kLarge = 4;

using IsOfKind = bool (*)(const Stage&);
bool IsSum(const Stage& stage) { return stage.is_reduction() && stage.combiner == Combiner::kSum; }
bool IsExtreme(const Stage& stage) {
  return stage.is_reduction() &&
         (stage.combiner == Combiner::kMax || stage.combiner == Combiner::kMin);
}

// The tensors that such reductions read, directly or through other stages.
std::set<const Buffer*> ReducedTensors(const TensorProgram& program, IsOfKind is_of_kind) {
  std::set<const Buffer*> reduced;
  // Definitions read what stands above them.
  for (auto stage = program.stages.rbegin(); stage != program.stages.rend(); ++stage) {
    if (!is_of_kind(*stage) && reduced.count(stage->tensor.get()) == 0) continue;
    search_space::Visit(stage->body, [&](const search_space::Expr& e) {
      if (e->op == search_space::Op::kLoad) reduced.insert(e->buffer.get());
    });
  }
  return reduced;
}

// Of the longest one.
double MostTerms(const TensorProgram& program, IsOfKind is_of_kind) {
  int64_t terms = 1;
  for (const Stage& stage : program.stages) {
    if (is_of_kind(stage)) terms = std::max(terms, search_space::ExtentOf(stage.reduce_axes));
  }
  return static_cast<double>(terms);
}

int LogSpacing(const TensorProgram& program, Peaks::Of of) {
  const double wanted = of == Peaks::Of::kSums
                            ? kMargin * Tolerance(program, MostTerms(program, IsSum))
                            : MostTerms(program, IsExtreme);
  return std::max(kLeastLogSpacing, static_cast<int>(std::ceil(std::log2(wanted))));
}

}  // namespace

bool HasSums(const TensorProgram& program) {
  return std::any_of(program.stages.begin(), program.stages.end(), IsSum);
}

bool HasExtremes(const TensorProgram& program) {
  return std::any_of(program.stages.begin(), program.stages.end(), IsExtreme);
}

Peaks::Peaks(const TensorProgram& program, uint64_t seed, Of of)
    : seed_(seed), of_(of), log_spacing_(LogSpacing(program, of)) {
  const std::set<const Buffer*> reduced =
      ReducedTensors(program, of == Of::kSums ? IsSum : IsExtreme);
  bool large_ends = false;
  for (const search_space::BufferRef& input : program.inputs) {
    const bool is_reduced = reduced.count(input.get()) > 0;
    if (is_reduced) large_ends = !large_ends;
    layouts_.push_back({is_reduced, is_reduced && large_ends,
                        input->shape.empty() ? 1 : input->shape.back(), input->elements - 1});
  }
  if (of == Of::kExtremes) {
    const auto first = std::find_if(program.stages.begin(), program.stages.end(), IsExtreme);
    large_ = first != program.stages.end() && first->combiner == Combiner::kMin ? -kLarge : kLarge;
    small_ = 1;
    return;
  }
  // All small elements together weigh about as much as the large ones, as terms of a sum, or less:
  // in exponentials, since e^large > spacing(), and as they are, since large > spacing() * small.
  const auto spacing = static_cast<float>(this->spacing());
  large_ = 2 + std::log(spacing);
  small_ = 8 / spacing;
}

bool Peaks::IsLarge(int tensor, int64_t offset) const {
  const Layout& layout = layouts_[static_cast<size_t>(tensor)];
  if (offset == 0 || offset == layout.last) return layout.large_ends;
  const int64_t row = offset / layout.width, column = offset % layout.width;
  const uint64_t place =
      InputHash(seed_, tensor, (row >> log_spacing_ << 32) + (column >> log_spacing_));
  return ((place + static_cast<uint64_t>(row + column)) & static_cast<uint64_t>(spacing() - 1)) ==
         0;
}

float Peaks::At(int tensor, int64_t offset) const {
  const Layout& layout = layouts_[static_cast<size_t>(tensor)];
  if (of_ == Of::kExtremes) {
    const float value = InputValue(seed_, tensor, offset, InputKind::kUniform);
    if (!layout.reduced || !IsLarge(tensor, offset)) return value;
    const bool end = offset == 0 || offset == layout.last;
    return end ? 2 * large_ : large_ + value;
  }
  const float value = InputValue(seed_, tensor, offset, InputKind::kPositive);  // [0.25, 1.25)
  if (layout.reduced) {
    return IsLarge(tensor, offset) ? large_ + 0.5f * (value - 0.75f) : small_ * value;
  }
  constexpr float kSmall = 1.0f / 64;
  return (InputHash(seed_, tensor, offset) & 1) != 0 ? value : kSmall * value;
}

}  // namespace heddle::measure
