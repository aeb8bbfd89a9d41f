#include "search_space/notation/on_demand.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>

#include "base/parallel.h"
#include "search_space/notation/one_pass.h"
#include "search_space/notation/placed_terms.h"

namespace heddle::search_space {
namespace {

// A long reduction is added up in parts of so many terms at least, and in so many parts at most.
constexpr int64_t kLeastOfPart = 1024, kMostParts = 64;
// Fewer elements of a stage are shared out by their reductions' parts.
constexpr size_t kFewElements = 64;
// Elements that are kept: of inputs, 128 MB, and of stages, 1.1 GB.
constexpr int64_t kMostOfInputs = int64_t{1} << 24, kMostOfStages = int64_t{1} << 26;
// What a thread takes at once.
constexpr int64_t kChunk = 4096;

// Calls `work(begin, end)` for chunks of [0, count) on several threads, each with a worker of its
// own.
template <typename MakeWorker>
void ForChunks(int64_t count, int64_t chunk, int threads, const MakeWorker& make_worker) {
  InParallel(static_cast<size_t>((count + chunk - 1) / chunk), threads,
             [&](std::atomic<size_t>& next) {
               auto worker = make_worker();
               for (size_t c = next++; static_cast<int64_t>(c) * chunk < count; c = next++) {
                 const int64_t begin = static_cast<int64_t>(c) * chunk;
                 worker(begin, std::min(begin + chunk, count));
               }
             });
}

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

// ------------------------------------------------------------------------------------------- Kept

Kept::Kept(const TensorProgram& program, const InputElement& input)
    : program_(program),
      input_(input),
      costs_(CostsOf(program)),
      inputs_(program.inputs.size()),
      stages_(program.stages.size()) {}

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

Scalar Kept::Stage(int stage, int64_t offset) const { return At(stages_[stage], offset); }

Scalar Kept::At(const Values& all, int64_t offset) {
  const uint8_t flags = all.flags[offset];
  return {all.values[offset], all.magnitudes[offset], (flags & kExact) != 0,
          (flags & kContested) != 0, (flags & kUncertain) != 0};
}

void Kept::Set(Values& all, int64_t offset, const Scalar& x) {
  all.values[offset] = x.value;
  all.magnitudes[offset] = x.magnitude;
  all.flags[offset] = static_cast<uint8_t>((x.exact ? kExact : 0) | (x.contested ? kContested : 0) |
                                           (x.uncertain ? kUncertain : 0));
}

void Kept::Keep(const std::set<int>& stages, const std::set<int>& in_one_pass, int threads) {
  KeepInputs(threads);
  int64_t left = kMostOfStages;
  std::set<int> all = stages;
  all.insert(in_one_pass.begin(), in_one_pass.end());
  for (const int s : all) {
    const BufferRef& tensor = program_.stages[s].tensor;
    const bool is_worth = costs_[s].is_placed || (costs_[s].is_remembered && costs_[s].is_read);
    if (!is_worth || tensor->elements > left) continue;
    left -= tensor->elements;
    KeepStage(s, stages.contains(s), threads);
  }
}

void Kept::KeepInputs(int threads) {
  int64_t left = kMostOfInputs;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    const int64_t elements = program_.inputs[i]->elements;
    if (elements > left) continue;
    left -= elements;
    std::vector<double> values(static_cast<size_t>(elements));
    ForChunks(elements, kChunk, threads, [&] {
      return [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) values[at] = Made(static_cast<int>(i), at);
      };
    });
    inputs_[i] = std::move(values);
  }
}

void Kept::KeepStage(int stage, bool in_any_case, int threads) {
  const auto elements = static_cast<size_t>(program_.stages[stage].tensor->elements);
  Values all{std::vector<double>(elements), std::vector<double>(elements),
             std::vector<uint8_t>(elements)};
  if (!ComputeTogether(stage, threads, all)) {
    if (!in_any_case) return;
    ComputeEach(stage, threads, all);
  }
  stages_[stage] = std::move(all);
}

bool Kept::ComputeTogether(int stage, int threads, Values& all) const {
  const search_space::Stage& own = program_.stages[stage];
  const std::optional<PlacedTerms> placed = PlacedTermsOf(program_, own);
  if (!placed) return false;
  // Elements have the identity of all terms of other places: however many these are, two make the
  // same of it.
  const Scalar identity = Exact(IdentityOf(own.combiner, own.body->type)->float_value);
  const Scalar none = Combined(own.combiner, identity, identity);
  for (int64_t offset = 0; offset < own.tensor->elements; ++offset) Set(all, offset, none);
  return OnePass(program_, *this, stage, *placed)
      .Run(threads, [&](int64_t offset, const Scalar& term) {
        Set(all, offset, Combined(own.combiner, At(all, offset), term));
      });
}

void Kept::ComputeEach(int stage, int threads, Values& all) const {
  const size_t elements = all.values.size();
  if (elements < kFewElements) {
    OnDemand source(program_, *this);
    for (size_t at = 0; at < elements; ++at) {
      const auto offset = static_cast<int64_t>(at);
      Set(all, offset, source.OnThreads(stage, offset, threads));
    }
  } else {
    const auto count = static_cast<int64_t>(elements);
    ForChunks(count, std::clamp<int64_t>(count / static_cast<int64_t>(kFewElements), 1, kChunk),
              threads, [&] {
                auto source = std::make_shared<OnDemand>(program_, *this);
                return [source, stage, &all](int64_t begin, int64_t end) {
                  for (int64_t offset = begin; offset < end; ++offset) {
                    source->ForgetIfMuch();
                    Set(all, offset, source->Once(stage, offset));
                  }
                };
              });
  }
}

// --------------------------------------------------------------------------------------- OnDemand

OnDemand::OnDemand(const TensorProgram& program, const Kept& kept, bool turned)
    : program_(program),
      kept_(kept),
      evaluator_(program, *this, turned),
      memory_(program.stages.size()) {}

Scalar OnDemand::Computed(int stage, int64_t offset) {
  if (!kept_.costs()[stage].is_remembered) return evaluator_.Element(stage, offset);
  if (kept_.HasStage(stage)) return kept_.Stage(stage, offset);
  const auto known = memory_[stage].find(offset);
  if (known != memory_[stage].end()) return known->second;
  const Scalar value = Once(stage, offset);
  memory_[stage].emplace(offset, value);
  ++remembered_;
  return value;
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
      results[p] = source.Forgetful(stage, offset, PartOf(stage, p));
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
    ForgetIfMuch();
    total = Combined(program_.stages[stage].combiner, total,
                     evaluator_.Part(stage, offset, term, term + 1));
  }
  return total;
}

void OnDemand::ForgetIfMuch() {
  if (remembered_ < kMostRemembered) return;
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
