#include "search_space/schedule/rewrites/reductions/recompute.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <iterator>
#include <utility>

#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/whole_factors.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

double IterationsOf(const Stage& stage) {
  return static_cast<double>(ExtentOf(stage.axes)) *
         static_cast<double>(ExtentOf(stage.reduce_axes));
}

// Is what is read inside of the tensors whatever the variables and the loaded indices are?
bool IsInside(const Expr& read) {
  bool is_inside = true;
  Visit(read, [&](const Expr& load) {
    if (load->op != Op::kLoad) return;
    for (size_t d = 0; d < load->args.size(); ++d) {
      const Interval bounds = BoundsOf(Simplify(load->args[d]));
      is_inside = is_inside && bounds.min >= 0 && bounds.max < load->buffer->shape[d];
    }
  });
  return is_inside;
}

// The stage, and what is computed of its single elements.
absl::flat_hash_set<const Buffer*> ElementsOf(const TensorProgram& program, const Stage& of) {
  absl::flat_hash_set<const Buffer*> elements = {of.tensor.get()};
  for (const Stage& stage : program.stages) {
    if (stage.is_reduction() || stage.is_output || !ReadsAny(stage.body, elements)) continue;
    elements.insert(stage.tensor.get());
  }
  return elements;
}

// Is a value compared that is computed of the stage? What is reduced again, in another order, may
// differ from the element that it stands for in its last bit.
bool IsCompared(const TensorProgram& program, const Stage& of) {
  absl::flat_hash_set<const Buffer*> computed = {of.tensor.get()};
  bool is_compared = false;
  for (const Stage& stage : program.stages) {
    if (&stage == &of || !ReadsAny(stage.body, computed)) continue;
    computed.insert(stage.tensor.get());
    Visit(stage.body, [&](const Expr& e) {
      const bool compares =
          e->type == DType::kBool && e->args.size() == 2 && IsFloat(e->args[0]->type);
      is_compared = is_compared || (compares && ReadsAny(e, computed));
    });
  }
  return is_compared;
}

class Recomputer {
 public:
  Recomputer(const TensorProgram& program, const Stage& of)
      : program_(program), of_(of), elements_(ElementsOf(program, of)) {}

  // `reader` with its reads of other stages, which are in front of it; just itself where it reads
  // too many elements, or in another way.
  std::vector<Stage> Rewritten(const Stage& reader) {
    const bool is_between = elements_.contains(reader.tensor.get());
    const bool reads_few =
        kFewer * IterationsOf(reader) <= static_cast<double>(of_.tensor->elements);
    if (is_between || !ReadsAny(reader.body, elements_) || !(reads_few || IsWorthAgain(reader))) {
      return {reader};
    }
    Stage rewritten = reader;
    int64_t nodes = 0;
    rewritten.body = WrittenOut(reader.body, nodes);
    std::vector<Stage> stages;
    const size_t known = reads_.size();
    bool ok = nodes <= kMostNodes;
    rewritten.body = Rewrite(rewritten.body, [&](const Expr& load) -> Expr {
      if (load->op != Op::kLoad || load->buffer != of_.tensor || !ok) return nullptr;
      const Expr read = ReadOf(load, rewritten, stages);
      ok = read != nullptr;
      return read;
    });
    if (!ok || made_ + stages.size() > kMostStages) {
      reads_.resize(known);
      return {reader};
    }
    made_ += stages.size();
    stages.push_back(std::move(rewritten));
    return stages;
  }

  size_t made() const { return made_; }

 private:
  static constexpr double kFewer = 16;
  static constexpr size_t kMostStages = 4;
  static constexpr int64_t kMostNodes = 1024;  // of what is computed elementwise, written out

  // Of so few terms a product of 16-bit numbers takes less than to store its elements as float32
  // and to read them.
  static constexpr int64_t kMostTerms = 512;

  // Is something computed of the elements that is no number, or far from it, where a difference
  // that should be nothing is off by its last bit: a root of a row's greatest element less each of
  // them?
  bool HasEdge(const Expr& body) const {
    bool has_edge = false;
    Visit(body, [&](const Expr& e) {
      const bool is_root =
          e->op == Op::kSqrt || e->op == Op::kRsqrt || e->op == Op::kLog || e->op == Op::kPow;
      const bool divides = e->op == Op::kDiv && IsFloat(e->type);
      if (!is_root && !divides) return;
      has_edge = has_edge || ReadsAny(e->args[is_root ? 0 : 1], elements_);
    });
    return has_edge;
  }

  // Does an output wait for what is reduced of the elements, of a product that is as soon computed
  // again as kept for it?
  bool IsWorthAgain(const Stage& reader) const {
    if (reader.is_reduction() || !reader.is_output || !AddsUpProducts(of_)) return false;
    // Nor where it has more elements, or is one of several that would each make its own.
    if (IterationsOf(reader) > static_cast<double>(of_.tensor->elements)) return false;
    for (const Stage& stage : program_.stages) {
      const bool reads = !elements_.contains(stage.tensor.get()) && ReadsAny(stage.body, elements_);
      if (reads && !stage.is_reduction() && &stage != &reader) return false;
      if ((reads || elements_.contains(stage.tensor.get())) && HasEdge(stage.body)) return false;
    }
    const std::vector<Expr> factors = LoadsIn(of_.body);
    const bool are_half = std::all_of(factors.begin(), factors.end(),
                                      [](const Expr& factor) { return IsHalf(factor->type); });
    if (factors.size() != 2 || !are_half || ExtentOf(of_.reduce_axes) > kMostTerms) return false;
    absl::flat_hash_set<const Buffer*> reduced;
    for (const Stage& stage : program_.stages) {
      if (&stage == &reader) break;
      const bool reduces = stage.is_reduction() && ReadsAny(stage.body, elements_);
      if (reduces || ReadsAny(stage.body, reduced)) reduced.insert(stage.tensor.get());
    }
    return ReadsAny(reader.body, reduced);
  }

  // The first that no stage has, those of an earlier step included.
  std::string UnusedName() const {
    const auto is_taken = [&](const std::string& name) {
      return std::any_of(program_.stages.begin(), program_.stages.end(),
                         [&](const Stage& stage) { return stage.name() == name; }) ||
             std::any_of(reads_.begin(), reads_.end(),
                         [&](const auto& read) { return read.second->buffer->name == name; });
    };
    for (size_t number = 0;; ++number) {
      std::string name = absl::StrCat(of_.name(), ".at", number);
      if (!is_taken(name)) return name;
    }
  }

  // With what is computed elementwise of the reduction in the place of its loads.
  Expr WrittenOut(const Expr& body, int64_t& nodes) const {
    return Rewrite(body, [&](const Expr& load) -> Expr {
      if (load->op != Op::kLoad || load->buffer == of_.tensor || nodes > kMostNodes ||
          !elements_.contains(load->buffer.get())) {
        return nullptr;
      }
      const Stage& stage = *program_.FindStage(load->buffer.get());
      nodes += NodesOf(stage.body);
      const Expr element = Substitute(stage.body, stage.axes, load->args);
      return WrittenOut(ToType(load->type, element), nodes);
    });
  }

  // What stands for `load` in `reader`: an element of a stage, which is added where there is none
  // like it. Null where it has no axes of the reader's, or may be outside.
  Expr ReadOf(const Expr& load, const Stage& reader, std::vector<Stage>& stages) {
    const auto same = std::find_if(reads_.begin(), reads_.end(), [&](const auto& read) {
      return StructurallyEqual(read.first, load);
    });
    if (same != reads_.end()) return same->second;
    if (!IsInside(load)) return nullptr;
    Stage again{.combiner = of_.combiner};
    ExprList at;
    std::vector<int64_t> shape;
    std::vector<std::pair<Var, Var>> own;
    for (const auto* axes : {&reader.axes, &reader.reduce_axes}) {
      for (const Var& axis : *axes) {
        if (!MentionsAny(load, {axis.get()})) continue;
        again.axes.push_back(MakeVar(axis->name, axis->extent));
        own.emplace_back(axis, again.axes.back());
        shape.push_back(axis->extent);
        at.push_back(VarExpr(axis));
      }
    }
    if (at.empty()) return nullptr;
    const auto of_reader = [&](const Var& v) -> Expr {
      const auto found =
          std::find_if(own.begin(), own.end(), [&](const auto& o) { return o.first == v; });
      return found == own.end() ? nullptr : VarExpr(found->second);
    };
    ExprList indices;
    for (const Expr& index : load->args) indices.push_back(Substitute(index, of_reader));
    std::vector<Var> terms;
    for (const Var& r : of_.reduce_axes) terms.push_back(MakeVar(r->name, r->extent));
    again.body = Substitute(of_.body, [&](const Var& v) -> Expr {
      for (size_t a = 0; a < of_.axes.size(); ++a) {
        if (of_.axes[a] == v) return indices[a];
      }
      for (size_t r = 0; r < terms.size(); ++r) {
        if (of_.reduce_axes[r] == v) return VarExpr(terms[r]);
      }
      return nullptr;
    });
    again.reduce_axes = std::move(terms);
    again.tensor = MakeBuffer(UnusedName(), of_.tensor->dtype, Scope::kGlobal, std::move(shape));
    reads_.emplace_back(load, Load(again.tensor, std::move(at)));
    stages.push_back(std::move(again));
    return reads_.back().second;
  }

  const TensorProgram& program_;
  const Stage& of_;
  const absl::flat_hash_set<const Buffer*> elements_;
  std::vector<std::pair<Expr, Expr>> reads_;  // of its elements, and what stands for each
  size_t made_ = 0;
};

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithRecomputedReads(
    const TensorProgram& program, const std::string& name) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage& of = program.stages[number];
  auto rewritten = std::make_shared<TensorProgram>(program);
  if (of.is_reduction() && !of.is_output && !IsCompared(program, of)) {
    Recomputer recomputer(program, of);
    rewritten->stages.clear();
    for (const Stage& stage : program.stages) {
      std::vector<Stage> stages = recomputer.Rewritten(stage);
      rewritten->stages.insert(rewritten->stages.end(), std::make_move_iterator(stages.begin()),
                               std::make_move_iterator(stages.end()));
    }
    if (recomputer.made() > 0) return rewritten;
  }
  return absl::InvalidArgumentError(absl::StrCat(
      name, " is no reduction of which others read few elements, at most a sixteenth, or an ",
      "output reads what is as soon computed again as kept, and compare none"));
}

std::vector<std::string> ReductionsWorthRecomputing(const TensorProgram& program) {
  std::vector<std::string> worth;
  for (const Stage& stage : program.stages) {
    if (!stage.is_reduction() || stage.is_output) continue;
    const auto elements = ElementsOf(program, stage);
    const bool reduces_all =
        std::any_of(program.stages.begin(), program.stages.end(), [&](const Stage& reader) {
          return reader.is_reduction() && ReadsAny(reader.body, elements) &&
                 IterationsOf(reader) >= static_cast<double>(stage.tensor->elements);
        });
    if (reduces_all && WithRecomputedReads(program, stage.name()).ok()) {
      worth.push_back(stage.name());
    }
  }
  return worth;
}

absl::Status Recompute::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, WithRecomputedReads);
}

}  // namespace heddle::search_space
