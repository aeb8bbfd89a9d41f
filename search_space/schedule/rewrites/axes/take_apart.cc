#include "search_space/schedule/rewrites/axes/take_apart.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kMostNumbers = 16;
// Of the program that is made: stages may each be taken apart, one behind the other.
constexpr int64_t kMostNodesApart = 2000;
constexpr size_t kMostStagesApart = 64;

// Which of the stage's axes it is, if its stages may be taken apart along it at all.
absl::StatusOr<size_t> DimToTakeApart(const Stage& stage, const std::string& axis) {
  const auto found = std::find_if(stage.axes.begin(), stage.axes.end(),
                                  [&](const Var& v) { return v->name == axis; });
  if (found == stage.axes.end()) {
    const auto add_name = [](std::string* out, const Var& v) { out->append(v->name); };
    return absl::InvalidArgumentError(absl::StrCat(axis, " is no axis of ", stage.name(),
                                                   ", which has ",
                                                   absl::StrJoin(stage.axes, ", ", add_name)));
  }
  if (stage.is_output) {
    return absl::InvalidArgumentError(absl::StrCat(
        stage.name(), " is an output, which stays one tensor; name a stage that others read"));
  }
  if (stage.axes.size() == 1) {
    return absl::InvalidArgumentError(
        absl::StrCat(axis, " is the only axis of ", stage.name(), "; its parts need another one"));
  }
  if ((*found)->extent > kMostNumbers) {
    return absl::InvalidArgumentError(absl::StrCat(axis, " has ", (*found)->extent,
                                                   " numbers; at most ", kMostNumbers,
                                                   " of them become stages"));
  }
  return static_cast<size_t>(found - stage.axes.begin());
}

// The numbers of axis `dim` at which the stage is read.
absl::StatusOr<std::set<int64_t>> NumbersRead(const TensorProgram& program, const Stage& stage,
                                              size_t dim) {
  const Var& axis = stage.axes[dim];
  std::set<int64_t> numbers;
  for (const Stage& reader : program.stages) {
    Expr other;
    Visit(reader.body, [&](const Expr& e) {
      if (e->op != Op::kLoad || e->buffer != stage.tensor) return;
      const Expr& index = e->args[dim];
      // What a select guards may be read past the end, and never evaluates.
      const bool is_number =
          index->op == Op::kInt && index->int_value >= 0 && index->int_value < axis->extent;
      if (is_number) {
        numbers.insert(index->int_value);
      } else {
        other = index;
      }
    });
    if (other == nullptr) continue;
    return absl::InvalidArgumentError(absl::StrCat(
        reader.name(), " reads ", stage.name(), " at ", ToString(other), " along ", axis->name,
        "; all that read it have to name a number from 0 to ", axis->extent - 1, " there"));
  }
  if (numbers.size() < 2) {
    return absl::InvalidArgumentError(absl::StrCat(stage.name(), " is read at one number of ",
                                                   axis->name,
                                                   "; parts are made where it is two at least"));
  }
  return numbers;
}

absl::Status CheckLength(const TensorProgram& program, const Stage& stage, size_t numbers) {
  int64_t nodes = NodesOf(stage.body) * static_cast<int64_t>(numbers - 1);
  for (const Stage& s : program.stages) nodes += NodesOf(s.body);
  if (nodes <= kMostNodesApart && program.stages.size() + numbers - 1 <= kMostStagesApart) {
    return absl::OkStatus();
  }
  return absl::InvalidArgumentError(absl::StrCat(program.op, " with the parts of ", stage.name(),
                                                 " would be longer than ", kMostNodesApart,
                                                 " nodes in ", kMostStagesApart, " stages"));
}

absl::flat_hash_set<const Buffer*> TensorsReadIn(const TensorProgram& program) {
  absl::flat_hash_set<const Buffer*> read;
  for (const Stage& stage : program.stages) {
    Visit(stage.body, [&](const Expr& e) {
      if (e->op == Op::kLoad) read.insert(e->buffer.get());
    });
  }
  return read;
}

// A part may choose otherwise than the others, by its number: what only those read that nobody
// reads would be read by nobody.
absl::Status CheckAllIsRead(const TensorProgram& program, const TensorProgram& apart,
                            const Stage& stage) {
  const auto before = TensorsReadIn(program), now = TensorsReadIn(apart);
  const auto is_read = [&](const BufferRef& tensor) {
    return tensor == stage.tensor || !before.contains(tensor.get()) || now.contains(tensor.get());
  };
  std::vector<BufferRef> tensors = program.inputs;
  for (const Stage& s : program.stages) {
    if (!s.is_output) tensors.push_back(s.tensor);
  }
  const auto unread = std::find_if_not(tensors.begin(), tensors.end(), is_read);
  if (unread == tensors.end()) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat((*unread)->name, " is read by no part of ", stage.name(),
                   " that is read itself; parts are made where they need all tensors"));
}

// The stage's elements at one number of axis `dim`, with axes of their own.
Stage StageAt(const Stage& stage, size_t dim, int64_t number, const std::string& name) {
  Stage part = stage;
  part.body = SimplifyAt(stage.body, stage.axes[dim], Int(number));
  part.axes.erase(part.axes.begin() + static_cast<std::ptrdiff_t>(dim));
  std::vector<Var> before;
  std::vector<Expr> own;
  for (std::vector<Var>* axes : {&part.axes, &part.reduce_axes}) {
    for (Var& axis : *axes) {
      before.push_back(axis);
      axis = MakeVar(axis->name, axis->extent);
      own.push_back(VarExpr(axis));
    }
  }
  part.body = Substitute(part.body, before, own);
  part.tensor = TensorOver(part.axes, name, stage.tensor->dtype);
  return part;
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithTakenApart(const TensorProgram& program,
                                                                    const std::string& name,
                                                                    const std::string& axis) {
  HEDDLE_ASSIGN_OR_RETURN(at, StageNumber(program, name));
  const Stage& stage = program.stages[at];
  HEDDLE_ASSIGN_OR_RETURN(dim, DimToTakeApart(stage, axis));
  HEDDLE_ASSIGN_OR_RETURN(numbers, NumbersRead(program, stage, dim));
  HEDDLE_RETURN_IF_ERROR(CheckLength(program, stage, numbers.size()));
  auto apart = std::make_shared<TensorProgram>(program);
  apart->stages.clear();
  std::map<int64_t, BufferRef> parts;
  const auto of_part = [&](const Expr& e) -> Expr {
    if (e->op != Op::kLoad || e->buffer != stage.tensor) return nullptr;
    ExprList others = e->args;
    others.erase(others.begin() + static_cast<std::ptrdiff_t>(dim));
    return Load(parts.at(e->args[dim]->int_value), std::move(others));
  };
  for (const Stage& s : program.stages) {
    if (&s != &stage) {
      apart->stages.push_back(s);
      apart->stages.back().body = Rewrite(s.body, of_part);
      continue;
    }
    for (const int64_t number : numbers) {
      const std::string part = program.UnusedTensorName(absl::StrCat(name, ".", number));
      apart->stages.push_back(StageAt(stage, dim, number, part));
      parts[number] = apart->stages.back().tensor;
    }
  }
  HEDDLE_RETURN_IF_ERROR(CheckAllIsRead(program, *apart, stage));
  return apart;
}

absl::Status TakeApart::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& name) {
    return WithTakenApart(program, name, axis);
  });
}

}  // namespace heddle::search_space
