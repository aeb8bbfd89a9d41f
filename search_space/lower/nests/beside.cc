#include "search_space/lower/nests/beside.h"

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/nests/collectives.h"
#include "search_space/schedule/placement/reduce_beside.h"

namespace heddle::search_space {
namespace {

// Beside the root of a kernel alone.
std::vector<int> ReducedBeside(const KernelContext& context, int s) {
  if (s != context.root) return {};
  std::vector<int> reduced = context.Together(s);
  std::erase_if(reduced,
                [&](int member) { return context.stage(member).Note<ReduceBeside>() == nullptr; });
  return reduced;
}

size_t FirstOfThread(const ScheduledStage& stage) {
  const auto first = std::find_if(stage.loops.begin(), stage.loops.end(), [](const Loop& l) {
    return l.IsIterated() || l.kind == LoopKind::kVector;
  });
  return static_cast<size_t>(first - stage.loops.begin());
}

const Expr& ColumnOf(const ScheduledStage& nest) { return nest.values[nest.axes.size() - 1]; }

// The loops of one thread that go through the columns, those with something to go through.
std::vector<Var> ColumnLoops(const ScheduledStage& nest, size_t depth) {
  std::vector<Var> loops;
  for (size_t l = depth; l < nest.loops.size(); ++l) {
    const Var& v = nest.loops[l].var;
    if (v->extent > 1 && MentionsAny(ColumnOf(nest), {v.get()})) loops.push_back(v);
  }
  return loops;
}

ExprList PlaceOf(const std::vector<Var>& loops) {
  ExprList place;
  for (const Var& v : loops) place.push_back(VarExpr(v));
  if (place.empty()) place.push_back(Int(0));
  return place;
}

// Columns come inside rows, and are the same of all groups, each of which has rows of its own.
bool HasRowsOutside(const KernelContext& context, const ScheduledStage& nest, size_t depth,
                    int64_t groups) {
  const std::vector<Var> columns = ColumnLoops(nest, depth);
  bool is_inside = false;
  for (size_t l = depth; l < nest.loops.size(); ++l) {
    const Var& v = nest.loops[l].var;
    if (v->extent == 1) continue;
    const bool is_column = std::find(columns.begin(), columns.end(), v) != columns.end();
    if (is_inside && !is_column) return false;
    is_inside = is_column;
  }
  const int64_t threads = context.thread->extent;
  if (threads % groups != 0) return false;
  const Var group = MakeVar("group", groups), place = MakeVar("place", threads / groups);
  const Expr number = VarExpr(group) * Int(threads / groups) + VarExpr(place);
  const auto at = [&](const Expr& e) {
    return Simplify(
        Substitute(e, [&](const Var& v) { return v == context.thread ? number : nullptr; }));
  };
  const bool are_rows_of_groups =
      std::all_of(nest.values.begin(), nest.values.end() - 1,
                  [&](const Expr& row) { return !MentionsAny(at(row), {place.get()}); });
  return are_rows_of_groups && !MentionsAny(at(ColumnOf(nest)), {group.get()});
}

// Which part of the rows the block has; null where blocks have not one part each.
Expr PartOfBlock(const ScheduledStage& nest, int64_t rows) {
  Expr row = Int(0);
  for (size_t i = 0; i + 1 < nest.axes.size(); ++i) {
    row = row * Int(nest.axes[i]->extent) + nest.values[i];
  }
  const Expr part = Simplify(Simplify(row) / Int(rows));
  const bool is_one = std::any_of(nest.loops.begin(), nest.loops.end(), [&](const Loop& l) {
    if (l.kind != LoopKind::kBlock) return false;
    return l.var->extent == 1 ? IsInt(part, 0) : IsVar(part, l.var);
  });
  return is_one ? part : nullptr;
}

}  // namespace

int LoopOfBeside(const KernelContext& context, int s) {
  const std::vector<int> reduced = ReducedBeside(context, s);
  if (reduced.empty() || context.storage.contains(reduced[0])) return -1;
  return static_cast<int>(FirstOfThread(context.stage(s)));
}

bool CombinesBeside(const KernelContext& context, int s, size_t depth) {
  const std::vector<int> reduced = ReducedBeside(context, s);
  return depth < FirstOfThread(context.stage(s)) &&
         std::any_of(reduced.begin(), reduced.end(), [&](int member) {
           return context.stage(member).Note<ReduceBeside>()->groups > 1;
         });
}

void AllocateBeside(KernelContext& context, int s, size_t depth) {
  std::vector<int64_t> shape;
  for (const Var& v : ColumnLoops(context.stage(s), depth)) shape.push_back(v->extent);
  if (shape.empty()) shape.push_back(1);
  for (int member : ReducedBeside(context, s)) {
    const BufferRef& tensor = context.stage(member).tensor;
    context.storage[member] = {MakeBuffer(tensor->name, tensor->dtype, Scope::kLocal, shape)};
  }
}

Stmt ReduceTerm(KernelContext& context, int s, int member, const Expr& value) {
  const BufferRef& registers = context.storage.at(member).buffer;
  const ScheduledStage& nest = context.stage(s);
  const ExprList place = PlaceOf(ColumnLoops(nest, FirstOfThread(nest)));
  return Store(registers, place,
               Combine(context.stage(member).combiner, Load(registers, place), value));
}

Stmt EmitBeside(KernelContext& context, int s, size_t depth, const Stmt& rows) {
  const ScheduledStage& nest = context.stage(s);
  const std::vector<Var> columns = ColumnLoops(nest, depth);
  const auto for_columns = [&](const Stmt& body) {
    Stmt all = body;
    for (size_t c = columns.size(); c-- > 0;) {
      const Var fresh = MakeVar(columns[c]->name, columns[c]->extent);
      all = For(fresh, ForKind::kUnrolled, ReplaceVar(all, columns[c], VarExpr(fresh)));
    }
    return all;
  };
  std::vector<Stmt> before, behind;
  std::vector<BufferRef> registers;
  for (int member : ReducedBeside(context, s)) {
    const ScheduledStage& stage = context.stage(member);
    const auto& step = *stage.Note<ReduceBeside>();
    const BufferRef& own = context.storage.at(member).buffer;
    registers.push_back(own);
    const Expr part = PartOfBlock(nest, step.rows);
    if (part == nullptr || !HasRowsOutside(context, nest, depth, step.groups)) {
      return context.Fail(absl::StrCat(
          stage.name(), " is of ", step.rows, " rows of one block, of which ", step.groups,
          " groups of its threads have the same columns, and each thread all of its columns for "
          "one row before the next: the loops of ",
          nest.name(), " are not so"));
    }
    const ExprList place = PlaceOf(columns);
    before.push_back(for_columns(Store(own, place, IdentityOf(stage.combiner, own->dtype))));
    if (step.groups > 1) {
      behind.push_back(CombineSlices(stage.combiner, own, context.thread, step.groups, false, {}));
    }
    const BufferRef& tensor = context.globals.at(stage.tensor.get());
    Stmt store = Store(tensor, {part, Simplify(ColumnOf(nest))}, Load(own, place));
    const Expr inside = Simplify(ColumnOf(nest) < Int(nest.axes.back()->extent));
    if (!Proves({}, inside)) store = If(inside, store);
    store = for_columns(store);
    if (step.groups > 1) {
      const int64_t threads = context.thread->extent / step.groups;
      store = If(Simplify(Int((step.groups - 1) * threads) <= VarExpr(context.thread)), store);
    }
    behind.push_back(store);
  }
  before.push_back(rows);
  before.insert(before.end(), behind.begin(), behind.end());
  Stmt all = Seq(std::move(before));
  for (const BufferRef& own : registers) all = Alloc(own, all);
  return all;
}

}  // namespace heddle::search_space
