// Searches over recorded trials: a device that answers from a file.
#ifndef HEDDLE_TUNER_SEARCH_PROPOSERS_REPLAY_H_
#define HEDDLE_TUNER_SEARCH_PROPOSERS_REPLAY_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "search_space/sketch/search_space.h"
#include "tuner/model/cost_model.h"
#include "tuner/records/transfer/trial_set.h"
#include "tuner/search/proposers/proposer.h"

namespace heddle::tuner {

// The trials of one workload that are points of today's space.
struct Replay {
  std::string name;      // "matmul m=512,n=512,k=512"
  std::string workload;  // TensorProgram::canonical_text
  std::string family;    // FamilyOf
  std::string device;    // its name and policy; times of different ones do not compare
  search_space::SearchSpace space;
  absl::flat_hash_map<search_space::Point, measure::TrialResult> results;
  std::vector<search_space::Point> points;  // the keys of `results`, in recorded order
  size_t foreign = 0;                       // trials whose point is none of this space
  double best_us = 0;                       // 0: no trial succeeded
};

// On the built-in target of the environment's architecture, a processor with as many cores as the
// one recorded: OpenCL devices count as processors. NotFound where there is none; InvalidArgument
// where the workload cannot be read.
absl::StatusOr<Replay> MakeReplay(const TrialSet& set);

// The replays of files that WriteTrialSets wrote: one of each workload on each device, whose sets
// in one or several files are merged, the first trial of a point counting.
absl::StatusOr<std::vector<Replay>> ReadReplays(const std::vector<std::string>& paths);

// What a cost model learns from, with `workload` as their group.
std::vector<Example> ExamplesOf(const Replay& replay, int64_t workload, int threads);

// The recorded points in random order; the same seed gives the same order.
std::unique_ptr<Proposer> MakeShuffledProposer(const Replay& replay, uint64_t seed);

// Gives the proposer each point's recorded result, as if `in_flight` candidates were always being
// measured. The best recorded time over the best so far, after 1 .. `trials` trials; where there
// are fewer points the last value is repeated, 0 while nothing succeeded.
std::vector<double> PlayBack(const Replay& replay, Proposer& proposer, int trials, int in_flight);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_PROPOSERS_REPLAY_H_
