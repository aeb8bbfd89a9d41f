#include "search_space/schedule/rewrites/axes/merge_axes.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/linear.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/editor.h"
#include "search_space/schedule/rewrites/stage_number.h"

namespace heddle::search_space {
namespace {

constexpr int64_t kTile = 64;  // so many columns of 16 bits are a line of memory
// So many rows behind a product fill a block's tile of them, or nearly.
constexpr int64_t kRows = 256;

struct Pair {
  Var outer, inner;

  bool operator==(const Pair&) const = default;
};

bool IsReduced(const Stage& stage, const Pair& pair) {
  return std::find(stage.reduce_axes.begin(), stage.reduce_axes.end(), pair.outer) !=
         stage.reduce_axes.end();
}

std::optional<size_t> IndexIn(const std::vector<Var>& axes, const Expr& index) {
  if (index->op != Op::kVar) return std::nullopt;
  const auto at = std::find(axes.begin(), axes.end(), index->var);
  if (at == axes.end()) return std::nullopt;
  return static_cast<size_t>(at - axes.begin());
}

// Are they the same elements in the same order as one axis?
bool AreNeighbours(const Stage& stage, const Pair& pair) {
  const auto outer = std::find(stage.axes.begin(), stage.axes.end(), pair.outer);
  return outer != stage.axes.end() && outer + 1 != stage.axes.end() && *(outer + 1) == pair.inner;
}

// Elements of outputs keep their order in memory.
bool MayMerge(const Stage& stage, const Pair& pair) {
  return !stage.is_output || IsReduced(stage, pair) || AreNeighbours(stage, pair);
}

// The two axes of a stage, or two that it reduces, that are the indices.
std::optional<Pair> PairOf(const Stage& stage, const Expr& outer, const Expr& inner) {
  for (const auto* axes : {&stage.axes, &stage.reduce_axes}) {
    const auto of_outer = IndexIn(*axes, outer), of_inner = IndexIn(*axes, inner);
    if (of_outer && of_inner && of_outer != of_inner) return Pair{outer->var, inner->var};
  }
  return std::nullopt;
}

// Is dimension `dim` of what is loaded, and the next one, read at this pair's elements, all of
// them?
bool IsReadAt(const Expr& load, size_t dim, const Pair& pair) {
  const auto is = [&](size_t d, const Var& axis) {
    return IsVar(load->args[d], axis) && load->buffer->shape[d] == axis->extent;
  };
  return dim + 1 < load->args.size() && is(dim, pair.outer) && is(dim + 1, pair.inner);
}

bool IsReadBy(const Expr& load, const Pair& pair) {
  for (size_t d = 0; d < load->args.size(); ++d) {
    if (IsReadAt(load, d, pair)) return true;
  }
  return false;
}

// Does an index number both axes as one already?
bool IsBoth(const Expr& index, const Pair& pair) {
  return StructurallyEqual(Simplify(index), Simplify(VarExpr(pair.outer) * Int(pair.inner->extent) +
                                                     VarExpr(pair.inner)));
}

// Does `e`, a load or an index of one, depend on the two axes only as on their common number?
bool IsOfBoth(const Expr& e, const Pair& pair) {
  if (e->op == Op::kVar) return e->var != pair.outer && e->var != pair.inner;
  for (size_t d = 0; d < e->args.size(); ++d) {
    if (e->op == Op::kLoad && IsReadAt(e, d, pair)) {
      ++d;
    } else if (!IsBoth(e->args[d], pair) && !IsOfBoth(e->args[d], pair)) {
      return false;
    }
  }
  return true;
}

// Does all that the stage reads along one of its two axes lie along both?
bool IsReadAlongBoth(const Stage& stage, const Pair& pair) {
  bool all = true;
  Visit(stage.body, [&](const Expr& e) { all = all && (e->op != Op::kLoad || IsOfBoth(e, pair)); });
  return all;
}

// The reader's axes along which it reads all elements of a stage's two.
std::optional<Pair> ReadBy(const Stage& reader, const Expr& load, const Stage& stage,
                           const Pair& pair) {
  const auto own = PairOf(reader, load->args[*IndexIn(stage.axes, VarExpr(pair.outer))],
                          load->args[*IndexIn(stage.axes, VarExpr(pair.inner))]);
  const bool are_all = own.has_value() && own->outer->extent == pair.outer->extent &&
                       own->inner->extent == pair.inner->extent;
  return are_all ? own : std::nullopt;
}

// Which axes of a program's stages are merged because two of one stage are.
class MergedAxes {
 public:
  explicit MergedAxes(const TensorProgram& program) : program_(program) {}

  void Add(const Stage& stage, const Pair& pair) {
    const bool is_reduced = IsReduced(stage, pair);
    if (!MayMerge(stage, pair)) return;
    if (!pairs_.emplace(stage.tensor.get(), pair).second) return;
    for (const Stage& reader : program_.stages) {
      if (!is_reduced) AddReader(stage, pair, reader);
    }
    Visit(stage.body, [&](const Expr& load) {
      if (load->op != Op::kLoad) return;
      const Stage* read = program_.FindStage(load->buffer.get());
      if (read == nullptr) return;
      for (size_t d = 0; d < load->args.size(); ++d) {
        if (!IsReadAt(load, d, pair)) continue;
        const Pair own{read->axes[d], read->axes[d + 1]};
        if (!read->is_reduction() || IsReadAlongBoth(*read, own)) Add(*read, own);
      }
    });
  }

  // Null where the stage's axes stay.
  const Pair* Of(const Stage& stage) const {
    const auto found = pairs_.find(stage.tensor.get());
    return found == pairs_.end() ? nullptr : &found->second;
  }

  // The first of two dimensions of an input that are one: a merged stage reads it along its pair,
  // and all others along two axes.
  std::optional<size_t> DimOf(const BufferRef& input) const {
    for (size_t d = 0; d + 1 < input->shape.size(); ++d) {
      bool any = false, all = true;
      for (const Stage& reader : program_.stages) {
        const Pair* pair = Of(reader);
        Visit(reader.body, [&](const Expr& load) {
          if (load->op != Op::kLoad || load->buffer != input) return;
          any = any || (pair != nullptr && IsReadAt(load, d, *pair));
          all = all && load->args[d]->op == Op::kVar && load->args[d + 1]->op == Op::kVar;
        });
      }
      if (any && all) return d;
    }
    return std::nullopt;
  }

 private:
  // Where the reader has, for all elements of the stage that it reads, two axes of its own.
  void AddReader(const Stage& stage, const Pair& pair, const Stage& reader) {
    std::optional<Pair> own;
    bool possible = true;
    Visit(reader.body, [&](const Expr& load) {
      if (load->op != Op::kLoad || load->buffer != stage.tensor) return;
      const std::optional<Pair> here = ReadBy(reader, load, stage, pair);
      possible = possible && here.has_value() && (!own.has_value() || *own == *here);
      own = here;
    });
    if (!possible || !own.has_value()) return;
    if (!reader.is_reduction() || IsReadAlongBoth(reader, *own)) Add(reader, *own);
  }

  const TensorProgram& program_;
  absl::flat_hash_map<const Buffer*, Pair> pairs_;
};

// Makes inputs and stages anew, with one dimension and one axis for two that are merged.
class MergeStages {
 public:
  explicit MergeStages(const MergedAxes& merged) : merged_(merged) {}

  void Run(BufferRef& input) {
    const std::optional<size_t> dim = merged_.DimOf(input);
    if (!dim.has_value()) return;
    const BufferRef before = input;
    std::vector<int64_t> shape = before->shape;
    shape[*dim] *= shape[*dim + 1];
    shape.erase(shape.begin() + static_cast<std::ptrdiff_t>(*dim) + 1);
    Buffer made = *MakeBuffer(before->name, before->dtype, before->scope, std::move(shape));
    made.index_extent = before->index_extent;
    input = std::make_shared<const Buffer>(std::move(made));
    tensors_[before.get()] = {input, *dim, *dim + 1, before->shape[*dim + 1]};
  }

  void Run(Stage& stage) {
    const Pair* pair = merged_.Of(stage);
    const BufferRef before = stage.tensor;
    if (pair == nullptr) {
      stage.body = Rewritten(stage.body);
      return;
    }
    const Var both =
        MakeVar(stage.UnusedAxisName(absl::StrCat(pair->outer->name, pair->inner->name)),
                pair->outer->extent * pair->inner->extent);
    const Expr width = Int(pair->inner->extent);
    stage.body = Rewritten(Substitute(stage.body, [&](const Var& var) -> Expr {
      if (var == pair->outer) return VarExpr(both) / width;
      return var == pair->inner ? VarExpr(both) % width : nullptr;
    }));
    std::vector<Var>& axes = IsReduced(stage, *pair) ? stage.reduce_axes : stage.axes;
    Tensor made{nullptr, *IndexIn(axes, VarExpr(pair->outer)), *IndexIn(axes, VarExpr(pair->inner)),
                pair->inner->extent};
    axes[made.outer] = both;
    axes.erase(axes.begin() + static_cast<std::ptrdiff_t>(made.inner));
    if (&axes == &stage.reduce_axes) return;
    stage.tensor = made.tensor = TensorOver(stage.axes, before->name, before->dtype);
    tensors_[before.get()] = std::move(made);
  }

 private:
  struct Tensor {
    BufferRef tensor;
    size_t outer, inner;  // dimensions before
    int64_t width;        // extent of the inner one
  };

  Expr Rewritten(const Expr& body) const {
    return Simplify(Rewrite(body, [&](const Expr& e) -> Expr {
      const auto read = e->op == Op::kLoad ? tensors_.find(e->buffer.get()) : tensors_.end();
      if (read == tensors_.end()) return nullptr;
      const Tensor& t = read->second;
      ExprList indices = e->args;
      indices[t.outer] = e->args[t.outer] * Int(t.width) + e->args[t.inner];
      indices.erase(indices.begin() + static_cast<std::ptrdiff_t>(t.inner));
      return Load(t.tensor, std::move(indices));
    }));
  }

  const MergedAxes& merged_;
  absl::flat_hash_map<const Buffer*, Tensor> tensors_;
};

// The two axes of a factor's rows, which lie apart in the result and are not the other factor's.
std::optional<Pair> RowsOf(const Stage& product, const Expr& factor, const Expr& other) {
  for (size_t o = 0; o < product.axes.size(); ++o) {
    for (size_t i = 0; i < product.axes.size(); ++i) {
      const Pair pair{product.axes[o], product.axes[i]};
      if (i == o || i == o + 1 || pair.outer->extent < 2 || pair.inner->extent < 2 ||
          pair.inner->extent >= kTile) {
        continue;
      }
      const bool is_row =
          (factor->args.size() > 1 && IsReadAt(factor, factor->args.size() - 2, pair)) ||
          IsBoth(factor->args.back(), pair);
      if (is_row && !MentionsAny(other, {pair.outer.get(), pair.inner.get()})) return pair;
    }
  }
  return std::nullopt;
}

// Does the factor have a dimension for both already?
bool HasBoth(const Expr& factor, const Pair& pair) {
  return std::any_of(factor->args.begin(), factor->args.end(),
                     [&](const Expr& index) { return IsBoth(index, pair); });
}

// Does the factor read one dimension for both behind the step?
bool IsMerged(const TensorProgram& program, const MergedAxes& merged, const Expr& factor,
              const Pair& pair) {
  if (HasBoth(factor, pair)) return true;
  const Stage* read = program.FindStage(factor->buffer.get());
  return read != nullptr ? merged.Of(*read) != nullptr : merged.DimOf(factor->buffer).has_value();
}

// What `product` is made of, and what is made of it, and itself.
absl::flat_hash_set<const Stage*> LineOf(const TensorProgram& program, const Stage& product) {
  absl::flat_hash_set<const Stage*> made = {&product}, makes = {&product};
  const auto reads_any = [&](const Stage& reader) {
    bool any = false;
    Visit(reader.body, [&](const Expr& load) {
      if (load->op != Op::kLoad) return;
      any = any || made.contains(program.FindStage(load->buffer.get()));
    });
    return any;
  };
  for (const Stage& stage : program.stages) {
    if (reads_any(stage)) made.insert(&stage);
  }
  for (auto stage = program.stages.rbegin(); stage != program.stages.rend(); ++stage) {
    if (!makes.contains(&*stage)) continue;
    Visit(stage->body, [&](const Expr& load) {
      const Stage* read = load->op == Op::kLoad ? program.FindStage(load->buffer.get()) : nullptr;
      if (read != nullptr) makes.insert(read);
    });
  }
  made.insert(makes.begin(), makes.end());
  return made;
}

// Is all that reductions make, through elementwise stages, too, read along one axis for both of
// `product` behind the step, or by what has another such pair, which may be next? And is there
// another reduction in the product's line whose terms, or rows, lie along it?
bool IsReadAsOne(const TensorProgram& program, const Stage& product, const MergedAxes& merged) {
  const auto line = LineOf(program, product);
  absl::flat_hash_set<const Buffer*> reduced;
  bool all = true, is_worth_it = false;
  for (const Stage& reader : program.stages) {
    const Pair* own = merged.Of(reader);
    if (reader.is_reduction()) reduced.insert(reader.tensor.get());
    is_worth_it = is_worth_it || (own != nullptr && reader.is_reduction() && &reader != &product &&
                                  line.contains(&reader) &&
                                  (IsReduced(reader, *own) || own->inner->extent < kRows));
    Visit(reader.body, [&](const Expr& load) {
      if (load->op != Op::kLoad || !reduced.contains(load->buffer.get())) return;
      reduced.insert(reader.tensor.get());
      const Stage& read = *program.FindStage(load->buffer.get());
      const Pair* pair = merged.Of(read);
      if (pair == nullptr || IsReduced(read, *pair)) return;
      all = all && own != nullptr && ReadBy(reader, load, read, *pair).has_value();
    });
  }
  return all && is_worth_it;
}

// Two neighbours among the axes of a product that only one factor has, next to each other, where
// another reduction is in its line: rules for several know rows, and terms, along one axis.
std::optional<Pair> NeighboursOf(const TensorProgram& program, const Stage& product,
                                 const Expr& factor, const Expr& other) {
  for (size_t o = 0; o + 1 < product.axes.size(); ++o) {
    const Pair pair{product.axes[o], product.axes[o + 1]};
    if (pair.outer->extent < 2 || pair.inner->extent < 2 ||
        MentionsAny(other, {pair.outer.get(), pair.inner.get()}) ||
        !(IsReadBy(factor, pair) || HasBoth(factor, pair))) {
      continue;
    }
    MergedAxes merged(program);
    merged.Add(product, pair);
    if (IsMerged(program, merged, factor, pair) && IsReadAsOne(program, product, merged)) {
      return pair;
    }
  }
  return std::nullopt;
}

// Two axes that are summed along and that both factors have next to each other.
std::optional<Pair> TermsOf(const Stage& product, const std::vector<Expr>& factors) {
  for (const Var& outer : product.reduce_axes) {
    for (const Var& inner : product.reduce_axes) {
      const Pair pair{outer, inner};
      const bool is_short = outer->extent > 1 && inner->extent > 1 && inner->extent < kTile;
      if (outer != inner && is_short && IsReadBy(factors[0], pair) && IsReadBy(factors[1], pair))
        return pair;
    }
  }
  return std::nullopt;
}

// Two neighbours among the axes of a product that number rows of one factor, next to each other,
// the inner one no whole tiles.
std::optional<Pair> RowsToMerge(const TensorProgram& program, const Stage& product,
                                const Expr& factor, const Expr& other) {
  for (size_t o = 0; o + 1 < product.axes.size(); ++o) {
    const Pair pair{product.axes[o], product.axes[o + 1]};
    const bool are_rows = pair.outer->extent > 1 && pair.inner->extent % kTile != 0 &&
                          IsReadBy(factor, pair) &&
                          !MentionsAny(other, {pair.outer.get(), pair.inner.get()});
    if (!are_rows) continue;
    MergedAxes merged(program);
    merged.Add(product, pair);
    if (IsMerged(program, merged, factor, pair)) return pair;
  }
  return std::nullopt;
}

// Does an index move along the axis and a term as a window does, so that several of their elements
// are the same place?
bool IsPlaceOfWindow(const Stage& product, const Expr& factor, const Var& axis) {
  const auto is_window = [&](const Expr& index) {
    if (!MentionsAny(index, {axis.get()})) return false;
    const Linear at = ToLinear(index);
    return std::any_of(at.terms.begin(), at.terms.end(), [&](const Term& term) {
      const auto is_term = [&](const Var& r) { return MentionsAny(term.x, {r.get()}); };
      return term.coef < axis->extent &&
             std::any_of(product.reduce_axes.begin(), product.reduce_axes.end(), is_term);
    });
  };
  return std::any_of(factor->args.begin(), factor->args.end(), is_window);
}

// Of a product that is no output, the longest axis that only one factor has, and the last one of
// the result, shorter than a tile, which only that factor has, too, and which lies apart from it.
// No window moves along the last one; the other may be one that is merged already, of which
// quotients and remainders are read.
std::optional<Pair> RowsApart(const Stage& product, const Expr& factor, const Expr& other) {
  const auto is_own = [&](const Var& axis) {
    return axis->extent > 1 && MentionsAny(factor, {axis.get()}) &&
           !MentionsAny(other, {axis.get()});
  };
  const Var& inner = product.axes.back();
  if (product.is_output || inner->extent >= kTile || !is_own(inner) ||
      IsPlaceOfWindow(product, factor, inner)) {
    return std::nullopt;
  }
  Var outer;
  for (const Var& axis : product.axes) {
    const bool is_longer = outer == nullptr || axis->extent > outer->extent;
    if (axis != inner && is_own(axis) && is_longer) outer = axis;
  }
  if (outer == nullptr || outer->extent < kTile || AreNeighbours(product, {outer, inner})) {
    return std::nullopt;
  }
  return Pair{outer, inner};
}

// What a sum multiplies, where that is made of elements of two tensors; empty of anything else.
std::vector<Expr> TwoFactorsOf(const Stage& stage) {
  if (stage.combiner != Combiner::kSum || stage.body->op != Op::kMul) return {};
  std::vector<Expr> factors = LoadsIn(stage.body);
  if (factors.size() != 2) factors.clear();
  return factors;
}

bool AreNarrow(const std::vector<Expr>& factors) {
  return std::all_of(factors.begin(), factors.end(),
                     [](const Expr& factor) { return IsNarrow(factor->buffer->dtype); });
}

}  // namespace

absl::StatusOr<std::shared_ptr<const TensorProgram>> WithMergedAxes(const TensorProgram& program,
                                                                    const std::string& name,
                                                                    const std::string& outer,
                                                                    const std::string& inner) {
  HEDDLE_ASSIGN_OR_RETURN(number, StageNumber(program, name));
  const Stage& stage = program.stages[number];
  Pair pair;
  for (const auto* axes : {&stage.axes, &stage.reduce_axes}) {
    Pair here;
    for (const Var& axis : *axes) {
      if (axis->name == outer) here.outer = axis;
      if (axis->name == inner) here.inner = axis;
    }
    if (here.outer != nullptr && here.inner != nullptr && here.outer != here.inner) pair = here;
  }
  if (pair.outer == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(outer, " and ", inner, " are not two axes of ",
                                                   name, ", or two that it reduces"));
  }
  if (!MayMerge(stage, pair)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " is an output, whose elements keep their order in memory"));
  }
  MergedAxes merged(program);
  merged.Add(stage, pair);
  auto made = std::make_shared<TensorProgram>(program);
  MergeStages stages(merged);
  for (BufferRef& input : made->inputs) stages.Run(input);
  for (Stage& s : made->stages) stages.Run(s);
  return made;
}

std::vector<AxesToMerge> AxesWorthMerging(const TensorProgram& program) {
  std::vector<AxesToMerge> found;
  // Each pair of neighbours is followed through all of it, again and again.
  constexpr int64_t kMostNodes = 40'000;
  int64_t nodes = 0;
  for (const Stage& stage : program.stages) nodes += NodesOf(stage.body);
  const bool is_short = nodes * static_cast<int64_t>(program.stages.size()) <= kMostNodes;
  for (const Stage& stage : program.stages) {
    const std::vector<Expr> factors = TwoFactorsOf(stage);
    if (factors.empty()) continue;
    for (size_t i = 0; i < 2 && is_short; ++i) {
      const auto pair = NeighboursOf(program, stage, factors[i], factors[1 - i]);
      if (pair.has_value()) return {{stage.name(), pair->outer->name, pair->inner->name}};
    }
    if (!AreNarrow(factors)) continue;
    const auto add = [&](const Pair& pair, const std::vector<Expr>& of) {
      MergedAxes merged(program);
      merged.Add(stage, pair);
      const bool is_merged = std::all_of(of.begin(), of.end(), [&](const Expr& factor) {
        return IsMerged(program, merged, factor, pair);
      });
      if (is_merged) found.push_back({stage.name(), pair.outer->name, pair.inner->name});
    };
    for (size_t i = 0; i < 2 && !stage.is_output; ++i) {
      const auto rows = RowsOf(stage, factors[i], factors[1 - i]);
      if (rows.has_value()) add(*rows, {factors[i]});
    }
    const auto terms = found.empty() ? TermsOf(stage, factors) : std::nullopt;
    if (terms.has_value()) add(*terms, factors);
    if (!found.empty()) break;
  }
  return found;
}

std::vector<AxesToMerge> RowsWorthMerging(const TensorProgram& program) {
  std::vector<AxesToMerge> found;
  for (const Stage& stage : program.stages) {
    const std::vector<Expr> factors = TwoFactorsOf(stage);
    for (size_t i = 0; i < factors.size(); ++i) {
      if (const auto pair = RowsToMerge(program, stage, factors[i], factors[1 - i])) {
        found.push_back({stage.name(), pair->outer->name, pair->inner->name});
      }
    }
  }
  return found;
}

std::vector<AxesToMerge> RowsApartWorthMerging(const TensorProgram& program) {
  std::vector<AxesToMerge> found;
  for (const Stage& stage : program.stages) {
    const std::vector<Expr> factors = TwoFactorsOf(stage);
    for (size_t i = 0; i < factors.size() && AreNarrow(factors); ++i) {
      if (const auto pair = RowsApart(stage, factors[i], factors[1 - i])) {
        found.push_back({stage.name(), pair->outer->name, pair->inner->name});
      }
    }
  }
  return found;
}

absl::Status MergeAxes::ApplyTo(ScheduleEditor& editor) const {
  return editor.RewriteProgram(stage, [&](const TensorProgram& program, const std::string& name) {
    return WithMergedAxes(program, name, outer, inner);
  });
}

}  // namespace heddle::search_space
