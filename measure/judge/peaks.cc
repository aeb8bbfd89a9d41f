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

int64_t TermsOf(const Stage& stage) {
  int64_t terms = 1;
  for (const search_space::Var& axis : stage.reduce_axes) terms *= axis->extent;
  return terms;
}

bool IsSum(const Stage& stage) { return stage.is_reduction() && stage.combiner == Combiner::kSum; }

// The tensors that sums read, directly or through other stages.
std::set<const Buffer*> SummedTensors(const TensorProgram& program) {
  std::set<const Buffer*> summed;
  // Definitions read what stands above them.
  for (auto stage = program.stages.rbegin(); stage != program.stages.rend(); ++stage) {
    if (!IsSum(*stage) && summed.count(stage->tensor.get()) == 0) continue;
    search_space::Visit(stage->body, [&](const search_space::Expr& e) {
      if (e->op == search_space::Op::kLoad) summed.insert(e->buffer.get());
    });
  }
  return summed;
}

int LogSpacing(const TensorProgram& program) {
  int64_t terms = 1;
  for (const Stage& stage : program.stages) {
    if (IsSum(stage)) terms = std::max(terms, TermsOf(stage));
  }
  const double wanted = kMargin * Tolerance(program, static_cast<double>(terms));
  return std::max(kLeastLogSpacing, static_cast<int>(std::ceil(std::log2(wanted))));
}

}  // namespace

bool HasSums(const TensorProgram& program) {
  return std::any_of(program.stages.begin(), program.stages.end(), IsSum);
}

Peaks::Peaks(const TensorProgram& program, uint64_t seed)
    : seed_(seed), log_spacing_(LogSpacing(program)) {
  const std::set<const Buffer*> summed = SummedTensors(program);
  for (const search_space::BufferRef& input : program.inputs) {
    layouts_.push_back({summed.count(input.get()) > 0,
                        input->shape.empty() ? 1 : input->shape.back(), input->elements - 1});
  }
  // All small elements together weigh about as much as the large ones, as terms of a sum, or less:
  // in exponentials, since e^large > spacing(), and as they are, since large > spacing() * small.
  const auto spacing = static_cast<float>(this->spacing());
  large_ = 2 + std::log(spacing);
  small_ = 8 / spacing;
}

bool Peaks::IsLarge(int tensor, int64_t offset) const {
  const Layout& layout = layouts_[static_cast<size_t>(tensor)];
  if (offset == 0 || offset == layout.last) return tensor % 2 == 0;
  const int64_t row = offset / layout.width, column = offset % layout.width;
  const uint64_t place =
      InputHash(seed_, tensor, (row >> log_spacing_ << 32) + (column >> log_spacing_));
  return ((place + static_cast<uint64_t>(row + column)) & static_cast<uint64_t>(spacing() - 1)) ==
         0;
}

float Peaks::At(int tensor, int64_t offset) const {
  const float value = InputValue(seed_, tensor, offset, InputKind::kPositive);  // [0.25, 1.25)
  if (layouts_[static_cast<size_t>(tensor)].summed) {
    return IsLarge(tensor, offset) ? large_ + 0.5f * (value - 0.75f) : small_ * value;
  }
  constexpr float kSmall = 1.0f / 64;
  return (InputHash(seed_, tensor, offset) & 1) != 0 ? value : kSmall * value;
}

}  // namespace heddle::measure
