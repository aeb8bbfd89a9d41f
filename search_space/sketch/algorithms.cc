#include "search_space/sketch/algorithms.h"

#include <algorithm>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "search_space/schedule/collapse.h"
#include "search_space/schedule/phases.h"
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

// Where one tensor is reduced nothing is reused, and the shape of the tiles does not matter.
bool ReadsSeveralTensors(const Stage& stage) {
  absl::flat_hash_set<const Buffer*> tensors;
  Visit(stage.body, [&](const Expr& node) {
    if (node->op == Op::kLoad) tensors.insert(node->buffer.get());
  });
  return tensors.size() > 1;
}

}  // namespace

std::vector<Algorithm> AlgorithmsOf(const std::shared_ptr<const TensorProgram>& program) {
  std::vector<Algorithm> algorithms = {{"definition", {}}};
  Algorithm collapse{"collapse", {}}, winograd{"winograd", {}}, phases{"phases", {}};
  TensorProgram collapsed = *program;
  for (const Stage& s : program->stages) {
    if (!s.is_reduction() || !ReadsSeveralTensors(s)) continue;
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
  }
  for (Algorithm* other : {&collapse, &winograd, &phases}) {
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
