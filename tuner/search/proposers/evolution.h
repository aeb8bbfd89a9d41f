// Evolutionary search over the holes of a space, led by a cost model (docs/search.md).
#ifndef HEDDLE_TUNER_SEARCH_PROPOSERS_EVOLUTION_H_
#define HEDDLE_TUNER_SEARCH_PROPOSERS_EVOLUTION_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/types/span.h"
#include "search_space/sketch/search_space.h"
#include "tuner/model/cost_model.h"
#include "tuner/search/proposers/proposer.h"

namespace heddle::tuner {

// Candidates: children of each generation and generations of a batch; random points of the first
// batch and of the others. Twice as many children and four times as many random points took twice
// the processor's time and found nothing better (docs/notebook.md).
inline constexpr size_t kPopulation = 64;
inline constexpr int kGenerations = 3;
inline constexpr size_t kRandomAtFirst = 128, kRandom = 32;
inline constexpr size_t kElite = 32;  // the best points that may be parents

struct EvolutionOptions {
  uint64_t seed = 1;
  // Points likely to be good, such as the best of similar workloads: the first parents.
  std::vector<search_space::Point> parents;
  // Where not empty: only these are proposed, as when recorded trials are replayed.
  std::vector<search_space::Point> only;
  // What other workloads' trials teach. Null: the analytic time alone leads at first.
  std::shared_ptr<const CostModel> base;
  int threads = 2;  // that lower candidates
};

// Proposes in batches, prepared on a thread of its own while the trials before them are measured.
// What is proposed depends on the options and the order of calls alone. `space` must outlive it.
std::unique_ptr<Proposer> MakeEvolutionProposer(const search_space::SearchSpace& space,
                                                EvolutionOptions options);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_PROPOSERS_EVOLUTION_H_
