#include "search_space/schedule/schedule.h"

#include <utility>

#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/analysis/finish.h"

namespace heddle::search_space {

namespace {

// What elements are indexed by reads no stage, nor does any other index but of a copy.
bool Reads(const Expr& e, const Buffer* tensor) {
  if (e->op == Op::kLoad) return e->buffer.get() == tensor;
  if (e->type == DType::kInt64 && tensor->dtype != DType::kInt32) return false;
  for (const Expr& arg : e->args) {
    if (Reads(arg, tensor)) return true;
  }
  return false;
}

bool ReadsWholeAt(const Stage& reader, const Stage& reduction) {
  bool ok = reader.axes.size() == reduction.axes.size();
  Visit(reader.body, [&](const Expr& node) {
    if (node->op != Op::kLoad || node->buffer != reduction.tensor) return;
    for (size_t i = 0; ok && i < node->args.size(); ++i) {
      ok = IsVar(node->args[i], reader.axes[i]) &&
           reader.axes[i]->extent == reduction.axes[i]->extent;
    }
  });
  return ok;
}

// Is the reduction read by exactly one elementwise stage, element by element?
bool HasEpilogue(const TensorProgram& program, const Stage& reduction) {
  const Stage* reader = nullptr;
  for (const Stage& s : program.stages) {
    if (!Reads(s.body, reduction.tensor.get())) continue;
    if (reader != nullptr) return false;
    reader = &s;
  }
  return reader != nullptr && !reader->is_reduction() && ReadsWholeAt(*reader, reduction);
}

}  // namespace

Schedule::Schedule(std::shared_ptr<const TensorProgram> program) : program_(std::move(program)) {
  const std::vector<FinishedReduction> finished = FinishedReductions(*program_);
  for (size_t s = 0; s < finished.size(); ++s) {
    const Stage& stage = program_->stages[s];
    // Partial results are never rounded to a narrower type than that in which they are computed.
    const bool accumulates = stage.tensor->dtype == stage.body->type;
    if (!stage.is_reduction() || (!stage.is_output && accumulates && finished[s].by.empty() &&
                                  HasEpilogue(*program_, stage))) {
      stages_.push_back(MakeScheduledStage(stage));
      continue;
    }
    Stage accumulate = stage;
    accumulate.body = finished[s].terms;
    accumulate.tensor =
        MakeBuffer(stage.name() + ".acc", stage.body->type, Scope::kGlobal, stage.tensor->shape);
    accumulate.is_output = false;
    Stage copy = stage;
    copy.reduce_axes.clear();
    copy.combiner = Combiner::kNone;
    ExprList indices;
    for (Var& axis : copy.axes) {
      axis = MakeVar(axis->name, axis->extent);
      indices.push_back(VarExpr(axis));
    }
    const auto of_copy = [&](const Var& v) -> Expr {
      for (size_t a = 0; a < copy.axes.size(); ++a) {
        if (stage.axes[a] == v) return indices[a];
      }
      return nullptr;
    };
    copy.body = Load(accumulate.tensor, indices);
    for (const Finish& f : finished[s].by) {
      const Expr combined = MakeExpr(f.op, {copy.body, Substitute(f.operand, of_copy)});
      copy.body =
          f.where == nullptr ? combined : Select(Substitute(f.where, of_copy), combined, copy.body);
    }
    stages_.push_back(MakeScheduledStage(accumulate));
    stages_.push_back(MakeScheduledStage(copy));
  }
}

int Schedule::FindStage(const std::string& name) const {
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i].name() == name) return static_cast<int>(i);
  }
  return -1;
}

int Schedule::FindStage(const Buffer* tensor) const {
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i].tensor.get() == tensor) return static_cast<int>(i);
  }
  return -1;
}

Expr Schedule::AxisValue(const ScheduledStage& stage, size_t i) const {
  if (i >= stage.axes.size() || IsInt(stage.base[i], 0)) return stage.values[i];
  return stage.base[i] + stage.values[i];
}

const ScheduledStage& Schedule::KernelOf(const ScheduledStage& stage) const {
  const ScheduledStage& nest = NestOf(stage);
  return nest.consumer < 0 ? nest : KernelOf(stages_[static_cast<size_t>(nest.consumer)]);
}

const ScheduledStage& Schedule::NestOf(const ScheduledStage& stage) const {
  return stage.leader == nullptr ? stage
                                 : stages_[static_cast<size_t>(FindStage(stage.leader.get()))];
}

std::vector<const ScheduledStage*> Schedule::Together(const ScheduledStage& leader) const {
  std::vector<const ScheduledStage*> together = {&leader};
  for (const ScheduledStage& s : stages_) {
    if (s.leader == leader.tensor) together.push_back(&s);
  }
  return together;
}

std::vector<int> Schedule::ReadersOf(const Buffer* tensor) const {
  std::vector<int> readers;
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (!stages_[i].inlined && Reads(stages_[i].body, tensor))
      readers.push_back(static_cast<int>(i));
  }
  return readers;
}

std::optional<int> Schedule::OnlyReaderOf(const Buffer* tensor) const {
  std::optional<int> only;
  for (size_t i = 0; i < stages_.size(); ++i) {
    if (stages_[i].inlined || !Reads(stages_[i].body, tensor)) continue;
    if (only) return std::nullopt;
    only = static_cast<int>(i);
  }
  return only;
}

std::vector<const Loop*> EnclosingLoops(const Schedule& schedule, const ScheduledStage& stage) {
  if (stage.consumer < 0) return {};
  const ScheduledStage& consumer = schedule.stage(stage.consumer);
  std::vector<const Loop*> loops = EnclosingLoops(schedule, consumer);
  for (const Loop& l : consumer.loops) {
    loops.push_back(&l);
    if (l.var == stage.attach_loop) break;
  }
  return loops;
}

}  // namespace heddle::search_space
