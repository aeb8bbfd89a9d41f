#include "search_space/reference/one_pass.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cmath>
#include <cstddef>

#include "base/parallel.h"

namespace heddle::search_space {
namespace {

// Terms that are evaluated before they are added, and those that a thread takes at once.
constexpr int64_t kTermsOfRound = int64_t{1} << 20, kTermsOfChunk = int64_t{1} << 14;

}  // namespace

OnePass::OnePass(const TensorProgram& program, const Kept& kept, int stage,
                 const PlacedTerms& placed)
    : kept_(kept), stage_(stage), placed_(placed), program_(program) {
  const Stage& own = program.stages[static_cast<size_t>(stage)];
  for (size_t i = 0; i < own.axes.size(); ++i) {
    if (placed.HasKey(i)) continue;
    own_axes_.push_back(own.axes[i]);
    own_strides_.push_back(own.tensor->strides[i]);
    own_elements_ *= own.axes[i]->extent;
  }
  first_compared_ = static_cast<int>(program_.stages.size());
  AppendStages(placed.compared);
  first_factor_ = static_cast<int>(program_.stages.size());
  AppendStages(placed.factors);
  first_key_ = static_cast<int>(program_.stages.size());
  AppendStages(placed.keys);
}

void OnePass::AppendStages(const std::vector<Expr>& bodies) {
  std::vector<Var> axes = program_.stages[static_cast<size_t>(stage_)].reduce_axes;
  axes.insert(axes.end(), own_axes_.begin(), own_axes_.end());
  std::vector<int64_t> shape;
  for (const Var& axis : axes) shape.push_back(axis->extent);
  for (const Expr& body : bodies) {
    if (body == nullptr) continue;
    Stage stage;
    stage.tensor = MakeBuffer("", DType::kFloat64, Scope::kGlobal, shape);
    stage.axes = axes;
    stage.body = IsFloat(body->type) ? body : Cast(DType::kFloat64, body);
    program_.stages.push_back(std::move(stage));
  }
}

bool OnePass::Run(int threads,
                  absl::FunctionRef<void(int64_t offset, const Scalar& term)> add) const {
  const int64_t count =
      ExtentOf(program_.stages[static_cast<size_t>(stage_)].reduce_axes) * own_elements_;
  for (int64_t begin = 0; begin < count; begin += kTermsOfRound) {
    const int64_t end = std::min(begin + kTermsOfRound, count);
    std::vector<std::vector<Placed>> chunks(
        static_cast<size_t>((end - begin + kTermsOfChunk - 1) / kTermsOfChunk));
    std::atomic<bool> has_one_place{true};
    InParallel(chunks.size(), threads, [&](std::atomic<size_t>& next) {
      OnDemand source(program_, kept_);
      for (size_t c = next++; c < chunks.size() && has_one_place; c = next++) {
        const int64_t first = begin + static_cast<int64_t>(c) * kTermsOfChunk;
        if (!Evaluate(source, first, std::min(first + kTermsOfChunk, end), chunks[c])) {
          has_one_place = false;
        }
      }
    });
    if (!has_one_place) return false;
    for (const std::vector<Placed>& chunk : chunks) {
      for (const Placed& placed : chunk) add(placed.offset, placed.term);
    }
  }
  return true;
}

bool OnePass::Evaluate(OnDemand& source, int64_t begin, int64_t end,
                       std::vector<Placed>& found) const {
  const int64_t row = program_.stages.back().axes.back()->extent;
  std::array<int64_t, StageProgram::kLanes> offsets;
  found.reserve(static_cast<size_t>(end - begin));
  while (begin < end) {
    const auto count = static_cast<int>(
        std::min({end - begin, row - begin % row, static_cast<int64_t>(StageProgram::kLanes)}));
    if (!HaveOnePlace(source, begin, count)) return false;
    FindOffsets(source, begin, count, offsets.data());
    for (int i = 0; i < count; ++i, ++begin) {
      if (offsets[i] < 0) continue;
      source.ForgetIfMuch(kMostOfEach);
      found.push_back({offsets[i], source.Term(stage_, offsets[i], begin / own_elements_)});
    }
  }
  return true;
}

bool OnePass::HaveOnePlace(OnDemand& source, int64_t begin, int count) const {
  std::array<Scalar, StageProgram::kLanes> values;
  const auto all_are = [&](int stage, const auto& is_right) {
    source.Elements(stage, begin, count, values.data());
    return std::all_of(values.begin(), values.begin() + count, is_right);
  };
  for (int s = first_compared_; s < first_factor_; ++s) {
    if (!all_are(s, [](const Scalar& x) { return x.exact && !x.uncertain; })) return false;
  }
  for (int s = first_factor_; s < first_key_; ++s) {
    const auto is_harmless = [](const Scalar& x) {
      return std::isfinite(x.value) && std::isfinite(x.magnitude) && !x.uncertain;
    };
    if (!all_are(s, is_harmless)) return false;
  }
  return true;
}

void OnePass::FindOffsets(OnDemand& source, int64_t begin, int count, int64_t* offsets) const {
  std::array<Scalar, StageProgram::kLanes> places;
  for (int i = 0; i < count; ++i) offsets[i] = OwnOffset(begin + i);
  const Stage& stage = program_.stages[static_cast<size_t>(stage_)];
  int key = first_key_;
  for (size_t axis = 0; axis < stage.axes.size(); ++axis) {
    if (!placed_.HasKey(axis)) continue;
    const auto extent = static_cast<double>(stage.axes[axis]->extent);
    source.Elements(key++, begin, count, places.data());
    for (int i = 0; i < count; ++i) {
      const double place = places[i].value;
      const bool is_one = place >= 0 && place < extent && place == std::floor(place);
      if (!is_one) offsets[i] = -1;
      if (offsets[i] >= 0) offsets[i] += static_cast<int64_t>(place) * stage.tensor->strides[axis];
    }
  }
}

// What the axes along which each element has terms of its own add to it.
int64_t OnePass::OwnOffset(int64_t at) const {
  int64_t offset = 0;
  for (size_t i = own_axes_.size(); i-- > 0;) {
    offset += at % own_axes_[i]->extent * own_strides_[i];
    at /= own_axes_[i]->extent;
  }
  return offset;
}

}  // namespace heddle::search_space
