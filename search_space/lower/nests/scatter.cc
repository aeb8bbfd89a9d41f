#include "search_space/lower/nests/scatter.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "base/math.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/lower/context/values.h"
#include "search_space/schedule/analysis/scattered_terms.h"
#include "search_space/schedule/threads/scatter.h"
#include "search_space/schedule/threads/scatter_in_memory.h"

namespace heddle::search_space {
namespace {

Expr ValueOf(const Var& var) { return var->extent == 1 ? Int(0) : VarExpr(var); }
Stmt Iterate(const Var& var, ForKind kind, Stmt body) {
  return var->extent == 1 ? body : For(var, kind, std::move(body));
}
// `body` for all lanes at once, in a loop variable of its own.
Stmt InVector(const Var& lane, const Stmt& body) {
  const Var own = MakeVar(lane->name, lane->extent);
  return For(own, ForKind::kVector, ReplaceVar(body, lane, VarExpr(own)));
}
Stmt Guarded(const Expr& condition, Stmt body) {
  return condition == nullptr || IsInt(condition, 1) ? body : If(condition, std::move(body));
}

// What is read of memory for all of a thread's run of terms before the first is made use of: to
// compilers most updates are loops, across which they move nothing.
class ReadAhead {
 public:
  // `turn`: a term's number in its run. `lane`: an element's in those that are updated at once.
  // `where`: which of the terms there are; null = all. `known`: what holds for these.
  ReadAhead(const Var& turn, const Var& lane, const Expr& where, const Assumptions& known)
      : turn_(turn), lane_(lane), where_(where), known_(known) {}

  // A value of the term, read from registers.
  Expr Hold(const std::string& name, DType type, const Expr& value) {
    for (const Held& h : held_) {
      if (h.registers->dtype == type && StructurallyEqual(h.value, value)) return At(h);
    }
    std::vector<int64_t> shape = {turn_->extent};
    if (MentionsAny(value, {lane_.get()})) shape.push_back(lane_->extent);
    held_.push_back({MakeBuffer(name + ".ahead", type, Scope::kLocal, shape), value});
    return At(held_.back());
  }

  // With the indices that it reads in registers, first those that name where others lie. What may
  // be read under some condition alone is left where it is.
  Expr IndicesOf(const Expr& e) {
    return Rewrite(e, [&](const Expr& node) -> Expr {
      const bool is_read = node->op == Op::kLoad && node->type == DType::kInt64 &&
                           node->buffer->scope != Scope::kLocal && IsInside(node);
      return is_read ? Hold(node->buffer->name, node->buffer->dtype, node) : nullptr;
    });
  }

  Stmt InFrontOf(const Stmt& updates) const {
    std::vector<Stmt> all;
    for (const Held& h : held_) {
      const bool has_lanes = h.registers->shape.size() > 1;
      Stmt store = Store(h.registers, IndicesOf(h), h.value);
      if (has_lanes) store = InVector(lane_, store);
      const Var turn = MakeVar(turn_->name, turn_->extent);
      const bool is_vector = where_ == nullptr && !has_lanes;
      all.push_back(Iterate(turn, is_vector ? ForKind::kVector : ForKind::kUnrolled,
                            ReplaceVar(Guarded(where_, store), turn_, ValueOf(turn))));
    }
    all.push_back(Iterate(turn_, ForKind::kUnrolled, Guarded(where_, updates)));
    Stmt out = Seq(std::move(all));
    for (const Held& h : held_) out = Alloc(h.registers, out);
    return out;
  }

 private:
  struct Held {
    BufferRef registers;
    Expr value;
  };
  ExprList IndicesOf(const Held& h) const {
    ExprList indices = {ValueOf(turn_)};
    if (h.registers->shape.size() > 1) indices.push_back(VarExpr(lane_));
    return indices;
  }
  Expr At(const Held& h) const { return Load(h.registers, IndicesOf(h)); }
  bool IsInside(const Expr& load) const {
    for (size_t i = 0; i < load->args.size(); ++i) {
      const Expr& index = load->args[i];
      if (!Proves(known_, Int(0) <= index) ||
          !Proves(known_, index < Int(load->buffer->shape[i]))) {
        return false;
      }
    }
    return true;
  }

  const Var turn_, lane_;
  const Expr where_;
  const Assumptions& known_;
  std::vector<Held> held_;
};

// The threads that share the work out: their number, and which of them this is.
struct Sharers {
  int64_t threads;
  Expr thread;
};

class Scatterer {
 public:
  // `unroll` terms of a run, of each of which `vector` elements are updated at once.
  Scatterer(KernelContext& context, int s, const Assumptions& assumptions, Sharers sharers,
            int64_t unroll, int64_t vector)
      : context_(context),
        here_(context.stage(s)),
        assumptions_(assumptions),
        thread_(std::move(sharers.thread)),
        threads_(sharers.threads),
        unroll_(unroll),
        lane_(MakeVar("lane", vector)),
        number_(here_.loops.back().var->extent) {
    for (int member : context.Together(s)) {
      const ScheduledStage& stage = context.stage(member);
      const BufferRef& buffer = here_.is_root() ? context.globals.at(stage.tensor.get())
                                                : context.storage.at(member).buffer;
      members_.push_back({&stage, buffer, ScatteredTermsOf(stage)});
    }
    for (size_t i = 0; i < here_.axes.size(); ++i) {
      if (!HasKey(i)) columns_ *= here_.extent[i];
      elements_ *= here_.extent[i];
    }
    columns_ /= vector;
  }

  // What the threads do one after the other: each of it is for all of them to end before the next.
  std::vector<Stmt> Emit() {
    std::vector<Stmt> all = {ForElements([&](const ExprList& at) { return Begin(at); }),
                             ForTerms()};
    std::vector<Stmt> behind;
    for (const Member& m : members_) {
      if (m.terms[0].HasIdentity(m.stage->combiner)) continue;
      behind.push_back(ForElements([&](const ExprList& at) { return AddOtherwise(m, at); }));
    }
    if (!behind.empty()) all.push_back(Seq(std::move(behind)));
    return all;
  }

 private:
  struct Member {
    const ScheduledStage* stage;
    BufferRef buffer;
    std::vector<ScatteredTerms> terms;
  };

  // Of all stages alike.
  bool HasKey(size_t axis) const { return members_[0].terms[0].HasKey(axis); }

  Stmt Begin(const ExprList& at) const {
    std::vector<Stmt> all;
    for (const Member& m : members_) {
      const bool is_whole = m.terms[0].whole != nullptr;
      all.push_back(
          Store(m.buffer, at, is_whole ? Int(0) : IdentityOf(m.stage->combiner, m.buffer->dtype)));
    }
    return Seq(std::move(all));
  }

  // body(position) for the elements of the region that this thread has.
  Stmt ForElements(absl::FunctionRef<Stmt(const ExprList&)> body) const {
    const Var round = MakeVar("round", CeilDiv(elements_, threads_));
    const Expr number = Simplify(ValueOf(round) * Int(threads_) + thread_);
    const Stmt element = body(PositionOf(number, [](size_t) { return true; }));
    return Iterate(round, ForKind::kSerial, Guarded(Below(number, elements_), element));
  }

  // The position whose number among those of the axes that are `counted` is this; 0 along others.
  ExprList PositionOf(Expr number, absl::FunctionRef<bool(size_t)> counted) const {
    ExprList position(here_.axes.size(), Int(0));
    for (size_t i = position.size(); i-- > 0;) {
      const int64_t extent = here_.extent[i];
      if (extent == 1 || !counted(i)) continue;
      position[i] = Simplify(number % Int(extent));
      number = number / Int(extent);
    }
    return position;
  }

  // That of the columns of this number, which are several in a vector.
  ExprList PositionOfColumns(const Expr& number) const {
    const Expr first = Simplify(number * Int(lane_->extent));
    ExprList position = PositionOf(first, [&](size_t i) { return !HasKey(i); });
    if (lane_->extent == 1) return position;
    const int64_t vectors = here_.extent.back() / lane_->extent;
    position.back() = Simplify(number % Int(vectors) * Int(lane_->extent) + VarExpr(lane_));
    return position;
  }

  // number < end; null where that always holds.
  static Expr Below(const Expr& number, int64_t end) {
    const Expr below = Simplify(number < Int(end));
    return below->op == Op::kInt ? nullptr : below;
  }

  struct Update {
    const Member* of;
    Expr where;  // null = always
    ExprList at;
    Expr value;
  };

  // Neighbours have the columns of a term, so that they read what lies side by side; where there
  // are few of these, each group of threads has another run of terms.
  Stmt ForTerms() const {
    const int64_t along = Scatter::ThreadsOfTerm(threads_, columns_), groups = threads_ / along;
    const bool has_whole_runs = number_ % unroll_ == 0;
    const Var round = MakeVar("round", CeilDiv(number_, groups * unroll_)),
              turn = MakeVar("turn", unroll_), column = MakeVar("col", CeilDiv(columns_, along));
    const Expr run = Simplify(ValueOf(round) * Int(groups) + thread_ / Int(along));
    const Expr term = Simplify(run * Int(unroll_) + ValueOf(turn));
    const Expr number = Simplify(ValueOf(column) * Int(along) + thread_ % Int(along));
    const ExprList position = PositionOfColumns(number);
    Assumptions assumptions = assumptions_;
    Expr inside;
    const auto require = [&](const Expr& condition) {
      if (condition == nullptr) return;
      inside = AndAlso(inside, condition);
      assumptions.push_back(condition);
    };
    require(Below(number, columns_));
    if (has_whole_runs) require(Below(run, number_ / unroll_));
    Expr of_turn;
    const auto require_of_turn = [&](const Expr& condition) {
      of_turn = AndAlso(of_turn, condition);
      assumptions.push_back(condition);
    };
    if (const Expr below = Below(term, number_); !has_whole_runs && below != nullptr) {
      require_of_turn(below);
    }
    // A term whose index lies outside of its tensor is nowhere.
    for (const Expr& is_there : IndicesInside(term, position)) {
      if (Proves(assumptions, is_there)) continue;
      // Of a whole run where that says the same of each of its terms.
      const Expr of_run = SimplifyAt(is_there, turn, Int(0));
      std::vector<Expr> with = assumptions;
      with.push_back(of_run);
      const bool is_same = Proves({is_there}, of_run) && Proves(with, is_there);
      is_same ? require(of_run) : require_of_turn(is_there);
    }
    std::vector<Update> updates;
    for (const Member& m : members_) {
      for (const ScatteredTerms& terms : m.terms) {
        updates.push_back(UpdateOf(m, terms, term, position, assumptions));
      }
    }
    Stmt body = Guarded(inside, OfRun(turn, of_turn, assumptions, std::move(updates)));
    body = Iterate(column, ForKind::kSerial, std::move(body));
    return Iterate(round, ForKind::kSerial, std::move(body));
  }

  // The updates of a thread's run of terms. `of_turn`: which of them there are; null = all.
  // `known`: what holds for these.
  Stmt OfRun(const Var& turn, const Expr& of_turn, const Assumptions& known,
             std::vector<Update> updates) const {
    if (unroll_ == 1 && lane_->extent == 1) return Guarded(of_turn, UpdateAll(updates));
    ReadAhead ahead(turn, lane_, of_turn, known);
    for (Update& u : updates) {
      if (u.where != nullptr) u.where = ahead.IndicesOf(u.where);
      for (Expr& index : u.at) index = ahead.IndicesOf(index);
      u.value = ahead.IndicesOf(u.value);
      if (u.value->args.empty()) continue;
      Expr value = u.value;
      if (u.where != nullptr) {
        const bool is_whole = value->type == DType::kInt64;
        value = Select(u.where, value, is_whole ? Int(0) : Float(0, value->type));
      }
      u.value = ahead.Hold(u.of->stage->name(), u.of->buffer->dtype, value);
    }
    return ahead.InFrontOf(UpdateAll(updates));
  }

  // What a term gives to each of the stages, those of the same condition under one.
  Stmt UpdateAll(const std::vector<Update>& updates) const {
    std::vector<Stmt> all, same;
    const auto is_same = [](const Expr& a, const Expr& b) {
      return a == nullptr || b == nullptr ? a == b : StructurallyEqual(a, b);
    };
    for (size_t u = 0; u < updates.size(); ++u) {
      const Update& update = updates[u];
      const Stmt combine =
          AtomicCombine(update.of->stage->combiner, update.of->buffer, update.at, update.value);
      same.push_back(lane_->extent == 1 ? combine : InVector(lane_, combine));
      if (u + 1 < updates.size() && is_same(update.where, updates[u + 1].where)) continue;
      all.push_back(Guarded(update.where, Seq(std::exchange(same, {}))));
    }
    return Seq(std::move(all));
  }

  Update UpdateOf(const Member& m, const ScatteredTerms& terms, const Expr& term,
                  const ExprList& position, Assumptions assumptions) const {
    Update update{&m, nullptr, position, nullptr};
    const auto require = [&](const Expr& condition) {
      if (condition == nullptr || Proves(assumptions, condition)) return;
      update.where = AndAlso(update.where, condition);
      assumptions.push_back(condition);
    };
    for (size_t i = 0; i < position.size(); ++i) {
      if (!terms.HasKey(i)) continue;
      const Expr key = AtTerm(terms.keys[i], term, position, assumptions);
      const Expr place = Simplify(key - here_.base[i]);
      const int64_t end = here_.extent[i];
      const Interval bounds = BoundsOf(place);
      update.at[i] = place;
      if (bounds.min < 0) {
        require(Simplify(Int(0) <= place));
        update.at[i] = MakeExpr(Op::kMax, {update.at[i], Int(0)});
      }
      if (bounds.max >= end) {
        require(Simplify(place < Int(end)));
        update.at[i] = MakeExpr(Op::kMin, {update.at[i], Int(end - 1)});
      }
      update.at[i] = Simplify(update.at[i]);
    }
    if (terms.condition != nullptr) {
      require(AtTerm(terms.condition, term, position, assumptions));
    }
    const Expr& value = terms.whole != nullptr ? terms.whole : terms.value;
    update.value = AtTerm(value, term, position, assumptions);
    return update;
  }

  // What says of the indices that name places that they lie inside of their tensors.
  std::vector<Expr> IndicesInside(const Expr& term, const ExprList& position) const {
    std::vector<Expr> all;
    const auto of_keys = [&](const ScatteredTerms& terms) {
      for (const Expr& key : terms.keys) {
        if (key == nullptr) continue;
        Visit(Written(key, term, position), [&](const Expr& load) {
          if (load->op != Op::kLoad) return;
          for (size_t i = 0; i < load->args.size(); ++i) {
            all.push_back(Simplify(Int(0) <= load->args[i]));
            all.push_back(Simplify(load->args[i] < Int(load->buffer->shape[i])));
          }
        });
      }
    };
    for (const Member& m : members_) std::for_each(m.terms.begin(), m.terms.end(), of_keys);
    return all;
  }

  // An expression in the stage's axes for the term of this number at a position of the region, as
  // it is read there.
  Expr AtTerm(const Expr& e, const Expr& term, const ExprList& position,
              const Assumptions& assumptions) const {
    return Resolve(context_, Written(e, term, position), assumptions);
  }

  Expr Written(const Expr& e, const Expr& term, const ExprList& position) const {
    const Expr in_loops = AtLoops(context_.schedule, here_, e);
    // One for each axis, and one over the terms (HasPlainLoops).
    std::vector<Var> loops;
    for (const Loop& l : here_.loops) loops.push_back(l.var);
    ExprList values = position;
    values.push_back(term);
    return Substitute(in_loops, loops, values);
  }

  // An element has `otherwise` of every term that is not its own. That makes a difference where
  // what it has of its own is beyond what it has of the first term so. Nearly always that one is
  // another's; else all of them are looked at.
  Stmt AddOtherwise(const Member& m, const ExprList& at) const {
    const Combiner combiner = m.stage->combiner;
    const Expr own = Load(m.buffer, at),
               otherwise = AtTerm(m.terms[0].otherwise, Int(0), at, assumptions_);
    const Expr is_beyond = combiner == Combiner::kMin ? otherwise < own : own < otherwise;
    const Var term = MakeVar("term", number_);
    const Expr first = IsOthers(m, at);
    const Stmt again =
        Store(m.buffer, at,
              Combine(combiner, own, AtTerm(m.stage->body, ValueOf(term), at, assumptions_)));
    return If(is_beyond, Seq({If(first, Store(m.buffer, at, otherwise)),
                              IfRarely(Simplify(MakeExpr(Op::kNot, {first})),
                                       Iterate(term, ForKind::kSerial, again))}));
  }

  // Has the element `otherwise` of the first term?
  Expr IsOthers(const Member& m, const ExprList& at) const {
    Expr own = Bool(true);
    for (size_t i = 0; i < at.size(); ++i) {
      if (!HasKey(i)) continue;
      const Expr key = AtTerm(m.terms[0].keys[i], Int(0), at, assumptions_);
      own = AndAlso(own, MakeExpr(Op::kEq, {key, here_.base[i] + at[i]}));
    }
    if (m.terms[0].condition != nullptr) {
      own = AndAlso(own, AtTerm(m.terms[0].condition, Int(0), at, assumptions_));
    }
    const Expr others = Simplify(MakeExpr(Op::kNot, {own}));
    if (m.terms[0].present == nullptr) return others;
    return AndAlso(AtTerm(m.terms[0].present, Int(0), at, assumptions_), others);
  }

  KernelContext& context_;
  const ScheduledStage& here_;
  const Assumptions assumptions_;
  const Expr thread_;
  const int64_t threads_, unroll_;
  const Var lane_;        // of the elements that are updated at once
  const int64_t number_;  // of terms
  std::vector<Member> members_;
  int64_t elements_ = 1;  // of the region
  int64_t columns_ = 1;   // of these, or of vectors of them, that a term has at its places
};

// One loop for each axis, in their order, and one over all terms?
bool HasPlainLoops(const ScheduledStage& stage) {
  if (stage.loops.size() != stage.axes.size() + 1 || !stage.guards.empty()) return false;
  for (size_t i = 0; i < stage.axes.size(); ++i) {
    const Loop& loop = stage.loops[i];
    const Expr& value = stage.values[i];
    const bool is_own = value->op == Op::kVar ? value->var == loop.var : loop.var->extent == 1;
    if (loop.reduce || loop.kind != LoopKind::kSerial || !is_own) return false;
  }
  return stage.loops.back().reduce && stage.loops.back().var->extent == ExtentOf(stage.reduce_axes);
}

// Notes a failure where the stage cannot be scattered any more.
bool IsScattered(KernelContext& context, int s) {
  const ScheduledStage& here = context.stage(s);
  if (!HasPlainLoops(here)) {
    context.Fail(absl::StrCat("the terms of ", here.name(), " are shared out by scatter: ",
                              "its loops must be one for each axis, as they were made, and ",
                              "one of all that it reduces (fuse)"));
    return false;
  }
  for (int member : context.Together(s)) {
    if (!ScatteredTermsOf(context.stage(member)).empty()) continue;
    context.Fail(absl::StrCat(context.stage(member).name(), " is not scattered any more"));
    return false;
  }
  return true;
}

}  // namespace

Stmt EmitScatter(KernelContext& context, int s, const Assumptions& assumptions) {
  if (!IsScattered(context, s)) return Seq({});
  const int64_t unroll = context.stage(s).Note<Scatter>()->unroll;
  const Sharers sharers{context.thread->extent, VarExpr(context.thread)};
  return Seq(Scatterer(context, s, assumptions, sharers, unroll, /*vector=*/1).Emit());
}

std::vector<Stmt> EmitScatterInMemory(KernelContext& context, int s, const Var& block) {
  if (!IsScattered(context, s)) return {};
  const auto& scatter = *context.stage(s).Note<ScatterInMemory>();
  if (WidestUpdate(context.schedule, context.stage(s)) % scatter.vector != 0) {
    context.Fail(absl::StrCat(scatter.vector, " elements of ", context.stage(s).name(),
                              " are not added to at once any more"));
    return {};
  }
  const Expr thread = VarExpr(block) * Int(scatter.threads) + VarExpr(context.thread);
  return Scatterer(context, s, {}, {scatter.blocks * scatter.threads, thread}, scatter.unroll,
                   scatter.vector)
      .Emit();
}

}  // namespace heddle::search_space
