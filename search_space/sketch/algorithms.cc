#include "search_space/sketch/algorithms.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "search_space/schedule/collapse.h"
#include "search_space/schedule/phases.h"
#include "search_space/schedule/scan.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/winograd.h"

namespace heddle::search_space {
namespace {

double FlopsOf(const Schedule& schedule) {
  double flops = 0;
  for (const ScheduledStage& s : schedule.stages()) {
    Stage stage;
    stage.axes = s.axes;
    stage.reduce_axes = s.reduce_axes;
    stage.combiner = s.combiner;
    stage.body = s.body;
    flops += stage.Flops();
  }
  return flops;
}

// Of a thread's consecutive elements that many terms are read at once, which are in registers.
constexpr int64_t kScanChunk = 16;
// Up to here the definition is as good.
constexpr int64_t kShortestScan = 64;
// So many chunks are cheaper to add up for each one anew than in two more kernels.
constexpr int64_t kMostChunks = 256;

void AddScans(const Schedule& schedule, int stage, std::vector<Step>& steps) {
  int64_t length = ScanLength(schedule, stage);
  if (length <= kShortestScan) return;
  std::string name = schedule.stages()[static_cast<size_t>(stage)].name();
  steps.push_back(ScanChunks{name, kScanChunk});
  while ((length = (length + kScanChunk - 1) / kScanChunk) > kMostChunks) {
    name += ".offset.acc";
    steps.push_back(ScanChunks{name, kScanChunk});
  }
}

}  // namespace

bool ReadsSeveralTensors(const Expr& body) {
  absl::flat_hash_set<const Buffer*> tensors;
  Visit(body, [&](const Expr& node) {
    if (node->op == Op::kLoad) tensors.insert(node->buffer.get());
  });
  return tensors.size() > 1;
}

std::vector<Algorithm> AlgorithmsOf(const std::shared_ptr<const TensorProgram>& program) {
  std::vector<Algorithm> algorithms = {{"definition", {}}};
  Algorithm collapse{"collapse", {}}, winograd{"winograd", {}}, phases{"phases", {}},
      scan{"scan", {}};
  TensorProgram collapsed = *program;
  for (const Stage& s : program->stages) {
    if (!s.is_reduction() || !ReadsSeveralTensors(s.body)) continue;
    if (const auto fewer = Collapse(collapsed, s.name()); fewer.ok()) {
      collapse.steps.push_back(CollapseAxes{s.name()});
      collapsed = **fewer;
    }
  }
  const Schedule schedule(program);
  for (size_t i = 0; i < schedule.stages().size(); ++i) {
    if (WinogradStages(schedule, static_cast<int>(i)).ok()) {
      winograd.steps.push_back(Winograd{schedule.stages()[i].name()});
    }
    if (PhaseStages(schedule, static_cast<int>(i)).ok()) {
      phases.steps.push_back(Phases{schedule.stages()[i].name()});
    }
    AddScans(schedule, static_cast<int>(i), scan.steps);
  }
  for (Algorithm* other : {&collapse, &winograd, &phases, &scan}) {
    if (!other->steps.empty()) algorithms.push_back(std::move(*other));
  }
  return algorithms;
}

double LeastFlops(const TensorProgram& program) {
  double least = program.Flops();
  const auto shared = std::make_shared<const TensorProgram>(program);
  for (const Algorithm& algorithm : AlgorithmsOf(shared)) {
    Schedule schedule(shared);
    if (schedule.Apply(algorithm.steps).ok()) least = std::min(least, FlopsOf(schedule));
  }
  return least;
}

}  // namespace heddle::search_space
