#include "search_space/reference/needed.h"

#include <algorithm>

#include "search_space/ir/expr/queries.h"
#include "search_space/reference/kept.h"
#include "search_space/reference/on_demand.h"

namespace heddle::search_space {

Need::Need(const TensorProgram& program, const Stage& output, uint32_t along) {
  elements_.resize(program.stages.size());
  for (size_t d = 0; d < output.axes.size(); ++d) {
    if ((along >> d & 1) == 0) continue;
    const auto extent = static_cast<double>(output.axes[d]->extent);
    places_[output.axes[d].get()] = {extent, output.axes[d].get()};
    points_ *= extent;
  }
  elements_[static_cast<size_t>(&output - program.stages.data())] = points_;
  const std::vector<StageCost> costs = CostsOf(program);
  // Readers stand behind what they read.
  for (size_t s = program.stages.size(); s-- > 0;) {
    if (elements_[s] == 0) continue;
    const Stage& stage = program.stages[s];
    double everywhere = 1;
    for (const Var& axis : stage.axes) everywhere *= PlacesOf(axis.get()).count;
    elements_[s] = std::min(elements_[s], everywhere);
    operations_ += elements_[s] * costs[s].operations;
    if (costs[s].is_remembered) remembered_ += elements_[s];
    for (const Var& axis : stage.reduce_axes) {
      places_[axis.get()] = {static_cast<double>(axis->extent), axis.get()};
    }
    std::vector<Expr> loads;
    VisitDistinct(stage.body, [&](const Expr& e) {
      if (e->op == Op::kLoad) AddIfNew(e, loads);
    });
    for (const Expr& load : loads) {
      const Stage* read = program.FindStage(load->buffer.get());
      if (read == nullptr) continue;
      elements_[static_cast<size_t>(read - program.stages.data())] += Of(load, *read);
    }
  }
}

double Need::Of(const Expr& load, const Stage& read) {
  double count = 1;
  for (size_t d = 0; d < read.axes.size(); ++d) {
    std::set<const Variable*> axes;
    Visit(load->args[d], [&](const Expr& e) {
      if (e->op == Op::kVar) axes.insert(e->var.get());
    });
    double along = 1;
    for (const Variable* axis : axes) along *= PlacesOf(axis).count;
    const auto extent = static_cast<double>(read.axes[d]->extent);
    along = std::min(along, extent);
    const bool is_axis = load->args[d]->op == Op::kVar;
    const Variable* origin = is_axis ? PlacesOf(load->args[d]->var.get()).origin : nullptr;
    const auto [known, is_first] = places_.emplace(read.axes[d].get(), Places{along, origin});
    Places& all = known->second;
    if (!is_first && origin != nullptr && origin == all.origin) {
      all.count = std::max(all.count, along);
    } else if (!is_first) {
      all = {std::min(extent, all.count + along), nullptr};
    }
    count *= along;
  }
  return count;
}

Need::Places Need::PlacesOf(const Variable* axis) const {
  const auto found = places_.find(axis);
  return found == places_.end() ? Places{1, axis} : found->second;
}

namespace {

// What all intermediate elements take.
double OperationsOfAll(const TensorProgram& program) {
  const std::vector<StageCost> costs = CostsOf(program);
  double all = 0;
  for (size_t s = 0; s < costs.size(); ++s) {
    if (costs[s].is_remembered && costs[s].is_read) {
      all += costs[s].operations_of_all;
    }
  }
  return all;
}

}  // namespace

std::set<int> NeededWhole(const TensorProgram& program, const Need& need) {
  std::set<int> stages;
  if (need.operations() < kWorthStages ||
      (kFewestPoints * need.operations() < OperationsOfAll(program) &&
       need.remembered() <= static_cast<double>(kMostRemembered))) {
    return stages;
  }
  const std::vector<StageCost> costs = CostsOf(program);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const auto elements = static_cast<double>(program.stages[s].tensor->elements);
    if (kFewestPoints * need.elements(s) >= elements ||
        need.elements(s) * costs[s].operations >= costs[s].operations_of_all) {
      stages.insert(static_cast<int>(s));
    }
  }
  return stages;
}

std::set<int> WorthOnePass(const TensorProgram& program, const Need& need, int64_t count) {
  std::set<int> stages;
  const std::vector<StageCost> costs = CostsOf(program);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const double wanted = need.elements(s) * static_cast<double>(count);
    if (costs[s].is_placed && wanted * costs[s].operations >= costs[s].operations_of_all) {
      stages.insert(static_cast<int>(s));
    }
  }
  return stages;
}

std::vector<double> ReadsOf(const TensorProgram& program, const std::set<int>& stages,
                            const std::vector<Need>& needs) {
  std::vector<double> reads(program.inputs.size());
  const std::vector<StageCost> costs = CostsOf(program);
  for (size_t s = 0; s < program.stages.size(); ++s) {
    const Stage& stage = program.stages[s];
    double elements = 0;
    if (stages.contains(static_cast<int>(s))) {
      elements = costs[s].operations_of_all / costs[s].operations;
    } else {
      for (const Need& need : needs) {
        if (need.operations() >= kWorthStages) elements += kFewestPoints * need.elements(s);
      }
    }
    elements *= static_cast<double>(ExtentOf(stage.reduce_axes));
    VisitDistinct(stage.body, [&](const Expr& e) {
      for (size_t i = 0; e->op == Op::kLoad && i < reads.size(); ++i) {
        if (program.inputs[i] == e->buffer) reads[i] += elements;
      }
    });
  }
  return reads;
}

}  // namespace heddle::search_space
