#include "search_space/reference/on_demand.h"

#include <algorithm>
#include <atomic>

#include "base/parallel.h"

namespace heddle::search_space {
namespace {

// A long reduction is added up in parts of so many terms at least, and in so many parts at most.
constexpr int64_t kLeastOfPart = 1024, kMostParts = 64;

}  // namespace

OnDemand::OnDemand(const TensorProgram& program, const Kept& kept, bool turned,
                   const OnDemand* base)
    : program_(program),
      kept_(kept),
      base_(base),
      evaluator_(program, *this, turned),
      memory_(program.stages.size()) {}

Scalar OnDemand::Computed(int stage, int64_t offset) {
  if (!kept_.costs()[stage].is_remembered) return evaluator_.Element(stage, offset);
  if (kept_.HasStage(stage)) return kept_.Stage(stage, offset);
  if (const Scalar* known = Known(stage, offset); known != nullptr) return *known;
  const Scalar value = Once(stage, offset);
  memory_[stage].emplace(offset, value);
  ++remembered_;
  return value;
}

void OnDemand::Intermediates(int stage, int64_t offset, int64_t step, int count, Scalar* values) {
  const bool is_kept = kept_.HasStage(stage);
  if (!is_kept && step == 1 && AreComputedAtOnce(stage, offset, count)) {
    evaluator_.Elements(stage, offset, count, values);
  } else {
    for (int i = 0; i < count; ++i, offset += step) {
      values[i] = is_kept ? kept_.Stage(stage, offset) : Computed(stage, offset);
    }
  }
  const DType type = program_.stages[stage].tensor->dtype;
  if (!IsNarrow(type)) return;
  for (int i = 0; i < count; ++i) values[i] = Converted(type, values[i]);
}

// Are these neighbours of one row of an elementwise stage of which nothing is remembered?
bool OnDemand::AreComputedAtOnce(int stage, int64_t offset, int count) const {
  const Stage& s = program_.stages[stage];
  if (s.is_reduction() || kept_.costs()[stage].is_remembered || s.axes.empty()) return false;
  const int64_t row = s.axes.back()->extent;
  return count > 1 && offset % row + count <= row;
}

const Scalar* OnDemand::Known(int stage, int64_t offset) const {
  for (const OnDemand* source = this; source != nullptr; source = source->base_) {
    const auto known = source->memory_[stage].find(offset);
    if (known != source->memory_[stage].end()) return &known->second;
  }
  return nullptr;
}

Scalar OnDemand::Once(int stage, int64_t offset) {
  const size_t parts = PartsOf(stage);
  if (parts < 2) return evaluator_.Element(stage, offset);
  Scalar total = evaluator_.Part(stage, offset, 0, 1);
  for (size_t p = 0; p < parts; ++p) {
    const Terms part = PartOf(stage, p);
    ForgetIfMuch();
    total = Combined(program_.stages[stage].combiner, total,
                     evaluator_.Part(stage, offset, part.begin, part.end));
  }
  return total;
}

Scalar OnDemand::OnThreads(int stage, int64_t offset, int threads) {
  if (PartsOf(stage) < 2) return Once(stage, offset);
  Scalar total = evaluator_.Part(stage, offset, 0, 1);
  std::vector<Scalar> results(PartsOf(stage));
  InParallel(results.size(), threads, [&](std::atomic<size_t>& next) {
    OnDemand source(program_, kept_);
    for (size_t p = next++; p < results.size(); p = next++) {
      const Terms part = PartOf(stage, p);
      results[p] = kept_.HasAllReadBy(stage)
                       ? source.evaluator_.Part(stage, offset, part.begin, part.end)
                       : source.Forgetful(stage, offset, part);
    }
  });
  for (const Scalar& part : results) {
    total = Combined(program_.stages[stage].combiner, total, part);
  }
  return total;
}

size_t OnDemand::PartsOf(int stage) const {
  return static_cast<size_t>(std::min(kMostParts, evaluator_.Terms(stage) / kLeastOfPart));
}

// Terms from the second on.
OnDemand::Terms OnDemand::PartOf(int stage, size_t number) const {
  const auto parts = static_cast<int64_t>(PartsOf(stage)), p = static_cast<int64_t>(number);
  const int64_t terms = evaluator_.Terms(stage) - 1;
  return {1 + terms * p / parts, 1 + terms * (p + 1) / parts};
}

// Forgets between terms what is too much to remember.
Scalar OnDemand::Forgetful(int stage, int64_t offset, Terms terms) {
  Scalar total = evaluator_.Part(stage, offset, terms.begin, terms.begin + 1);
  for (int64_t term = terms.begin + 1; term < terms.end; ++term) {
    ForgetIfMuch(kMostOfEach);
    total = Combined(program_.stages[stage].combiner, total,
                     evaluator_.Part(stage, offset, term, term + 1));
  }
  return total;
}

void OnDemand::ForgetIfMuch(size_t most) {
  if (remembered_ < most) return;
  for (auto& elements : memory_) elements.clear();
  remembered_ = 0;
}

void OnDemand::Remember(const OnDemand& other) {
  if (remembered_ + other.remembered_ > kMostRemembered) return;
  for (size_t s = 0; s < memory_.size(); ++s) {
    memory_[s].insert(other.memory_[s].begin(), other.memory_[s].end());
  }
  remembered_ += other.remembered_;
}

}  // namespace heddle::search_space
