#include "search_space/schedule/placement/inline_loads.h"

#include <algorithm>
#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/schedule/inline_limits.h"

namespace heddle::search_space {
namespace {

// Nodes of an expression, a shared one as often as it stands there; no further than beyond `most`.
// `inner`: how many take the place of a node, 1 for itself.
int64_t CountNodes(const Expr& e, int64_t most, absl::FunctionRef<int64_t(const Expr&)> inner) {
  int64_t count = inner(e);
  for (const Expr& arg : e->args) {
    if (count > most) return count;
    count += CountNodes(arg, most - count, inner);
  }
  return count;
}

int64_t CountNodes(const Expr& e, int64_t most) {
  return CountNodes(e, most, [](const Expr&) { return 1; });
}

// What InlineLoads makes of a definition, at least: nodes of all of it and of its longest index.
struct InlinedSize {
  int64_t nodes = 0, index_nodes = 0;
};
InlinedSize SizeWithInlined(const Expr& e, const ScheduledStage& producer) {
  InlinedSize size;
  size.nodes = CountNodes(e, kMaxInlinedNodes, [&](const Expr& load) -> int64_t {
    if (load->op != Op::kLoad || load->buffer != producer.tensor) return 1;
    const auto at_load = [&](const Expr& node) -> int64_t {
      for (size_t i = 0; node->op == Op::kVar && i < producer.axes.size(); ++i) {
        if (producer.axes[i] == node->var) return CountNodes(load->args[i], kMaxInlinedNodes);
      }
      return 1;
    };
    return CountNodes(producer.body, kMaxInlinedNodes, [&](const Expr& node) -> int64_t {
      for (size_t i = 0; node->op == Op::kLoad && i < node->args.size(); ++i) {
        const int64_t index = CountNodes(node->args[i], kMaxInlinedIndexNodes, at_load);
        size.index_nodes = std::max(size.index_nodes, index);
      }
      return at_load(node);
    });
  });
  return size;
}

// Without the sides of selects that are never taken: what they read is read by nobody.
Expr WithoutDeadSides(const Expr& e) {
  return Rewrite(e, [](const Expr& node) -> Expr {
    if (node->op != Op::kSelect) return nullptr;
    const Expr condition = Simplify(node->args[0]);
    if (condition->op != Op::kInt) return nullptr;
    return node->args[condition->int_value != 0 ? 1 : 2];
  });
}

}  // namespace

std::string WhyNotInlined(const ScheduledStage& producer, const ScheduledStage& reader) {
  const InlinedSize size = SizeWithInlined(reader.body, producer);
  const bool long_index = size.index_nodes > kMaxInlinedIndexNodes;
  if (size.nodes <= kMaxInlinedNodes && !long_index) return "";
  const std::string& name = producer.name();
  return absl::StrCat("with ", name, " inlined ", long_index ? "an index in " : "",
                      "the definition of ", reader.name(), " would have more than ",
                      long_index ? kMaxInlinedIndexNodes : kMaxInlinedNodes,
                      " operands and operations; compute ", name, " in a kernel of its own");
}

Expr InlineLoads(const Expr& e, const ScheduledStage& producer) {
  return Rewrite(e, [&](const Expr& node) -> Expr {
    if (node->op != Op::kLoad || node->buffer != producer.tensor) return nullptr;
    return WithoutDeadSides(Substitute(producer.body, producer.axes, node->args));
  });
}

}  // namespace heddle::search_space
