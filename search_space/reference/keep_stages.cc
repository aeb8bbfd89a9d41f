#include "search_space/reference/keep_stages.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/parallel.h"
#include "search_space/reference/on_demand.h"
#include "search_space/reference/one_pass.h"
#include "search_space/reference/placed_terms.h"

namespace heddle::search_space {
namespace {

// Fewer elements of a stage are shared out by their reductions' parts.
constexpr int64_t kFewElements = 64;
// Elements that are kept: of inputs, a float each, and of stages, 17 bytes each, 1.1 GB of both.
constexpr int64_t kMostOfInputs = int64_t{1} << 28, kMostOfStages = int64_t{1} << 26;
// All whole numbers up to this are values of float32.
constexpr int64_t kMostWhole = int64_t{1} << 24;
// How often an element is read that is worth to be kept.
constexpr double kOften = 2;
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

// All elements of a stage, each term where it belongs; false as OnePass::Run.
bool EvaluateInOnePass(const TensorProgram& program, const Kept& kept, int stage, int threads,
                       StageValues& all) {
  const Stage& own = program.stages[stage];
  const std::optional<PlacedTerms> placed = PlacedTermsOf(program, own);
  if (!placed) return false;
  // Elements have the identity of all terms of other places: however many these are, two make the
  // same of it.
  const Scalar identity = Exact(IdentityOf(own.combiner, own.body->type)->float_value);
  const Scalar none = Combined(own.combiner, identity, identity);
  for (int64_t offset = 0; offset < all.elements(); ++offset) all.Set(offset, none);
  return OnePass(program, kept, stage, *placed)
      .Run(threads, [&](int64_t offset, const Scalar& term) {
        all.Set(offset, Combined(own.combiner, all.At(offset), term));
      });
}

// The same, each element by itself.
void ComputeEach(const TensorProgram& program, const Kept& kept, int stage, int threads,
                 StageValues& all) {
  const int64_t elements = all.elements();
  if (elements < kFewElements) {
    OnDemand source(program, kept);
    for (int64_t offset = 0; offset < elements; ++offset) {
      all.Set(offset, source.OnThreads(stage, offset, threads));
    }
    return;
  }
  ForChunks(elements, std::clamp<int64_t>(elements / kFewElements, 1, kChunk), threads, [&] {
    auto source = std::make_shared<OnDemand>(program, kept);
    return [source, stage, &all](int64_t begin, int64_t end) {
      for (int64_t offset = begin; offset < end; ++offset) {
        source->ForgetIfMuch(kMostOfEach);
        all.Set(offset, source->Once(stage, offset));
      }
    };
  });
}

}  // namespace

void KeepInputs(const TensorProgram& program, const std::vector<double>& reads, int threads,
                Kept& kept) {
  int64_t left = kMostOfInputs;
  for (size_t i = 0; i < program.inputs.size(); ++i) {
    const int64_t elements = program.inputs[i]->elements;
    const Buffer& input = *program.inputs[i];
    if (reads[i] < kOften * static_cast<double>(elements)) continue;
    if (elements > left || input.dtype == DType::kFloat64 || input.index_extent > kMostWhole) {
      continue;
    }
    left -= elements;
    std::vector<float> values(static_cast<size_t>(elements));
    ForChunks(elements, kChunk, threads, [&] {
      return [&](int64_t begin, int64_t end) {
        for (int64_t at = begin; at < end; ++at) {
          values[at] = static_cast<float>(kept.Input(static_cast<int>(i), at).value);
        }
      };
    });
    kept.KeepInput(static_cast<int>(i), std::move(values));
  }
}

void KeepStages(const TensorProgram& program, const std::set<int>& stages,
                const std::set<int>& in_one_pass, int threads, Kept& kept) {
  int64_t left = kMostOfStages;
  std::set<int> all = stages;
  all.insert(in_one_pass.begin(), in_one_pass.end());
  for (const int s : all) {
    const int64_t elements = program.stages[s].tensor->elements;
    const StageCost& cost = kept.costs()[s];
    const bool is_worth = cost.is_placed || (cost.is_remembered && cost.is_read);
    if (!is_worth || elements > left) continue;
    left -= elements;
    StageValues values(elements);
    if (!EvaluateInOnePass(program, kept, s, threads, values)) {
      if (!stages.contains(s)) continue;
      ComputeEach(program, kept, s, threads, values);
    }
    kept.KeepStage(s, std::move(values));
  }
}

}  // namespace heddle::search_space
