// What can be said about an operator before its shape is known: names, ranks, and which kind of
// expression may stand where.
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/nearest_name.h"
#include "search_space/notation/notation_limits.h"
#include "search_space/notation/notation_syntax.h"

namespace heddle::search_space {
namespace {

using Kind = SyntaxNode::Kind;

enum class Role : uint8_t { kParameter, kLet, kAxis, kInput, kStage };
const char* NameOf(Role role) {
  static constexpr const char* kNames[] = {"a parameter", "defined by let", "an axis", "an input",
                                           "a stage"};
  return kNames[static_cast<int>(role)];
}

struct Definition {
  Role role;
  Position at;
  size_t rank = 0;  // tensors
  bool used = false;
  bool required = true;  // must be used
};

// Where an integer expression stands.
enum class Place : uint8_t { kExtent, kIndex, kCondition };

class Checker {
 public:
  explicit Checker(const OperatorSyntax& op) : op_(op) {}

  void Run() {
    for (size_t i = 0; i < op_.parameters.size(); ++i) {
      Define(op_.parameters[i].name, {Role::kParameter, op_.parameter_positions[i]});
    }
    bool has_output = false;
    for (const ItemSyntax& item : op_.items) {
      current_ = &item;
      CheckItem(item);
      has_output |= item.is_output;
    }
    if (!has_output) {
      throw NotationError{absl::StrCat("operator '", op_.name,
                                       "' has no output: write out before at least one stage")};
    }
    RefuseUnused(/*axes=*/false);
  }

 private:
  void CheckItem(const ItemSyntax& item) {
    switch (item.kind) {
      case ItemSyntax::Kind::kLet:
        CheckInteger(*item.value, Place::kExtent);
        Define(item.name, {Role::kLet, item.at});
        break;
      case ItemSyntax::Kind::kInput:
        for (const SyntaxPtr& extent : item.extents) CheckInteger(*extent, Place::kExtent);
        if (item.index_extent) CheckInteger(*item.index_extent, Place::kExtent);
        Define(item.name, {Role::kInput, item.at, item.extents.size()});
        break;
      case ItemSyntax::Kind::kStage:
        CheckStage(item);
        break;
    }
  }

  void CheckStage(const ItemSyntax& item) {
    if (names_.count(item.name) > 0) RefuseRedefinition(item.name, item.at);
    nodes_ = 0;
    // An axis that the body does not use repeats the value along it; a reduction axis that is not
    // used is a mistake.
    DefineAxes(item.axes, /*required=*/false);
    const SyntaxNode* body = item.value.get();
    if (body->kind == Kind::kReduce) {
      DefineAxes(body->axes, /*required=*/true);
      body = body->args[0].get();
    }
    CheckValue(*body);
    RefuseUnused(/*axes=*/true);
    for (auto it = names_.begin(); it != names_.end();) {
      it = it->second.role == Role::kAxis ? names_.erase(it) : std::next(it);
    }
    Define(item.name, {Role::kStage, item.at, item.axes.size(), false, !item.is_output});
  }

  void DefineAxes(const std::vector<AxisSyntax>& axes, bool required) {
    for (const AxisSyntax& axis : axes) CheckInteger(*axis.extent, Place::kExtent);
    for (const AxisSyntax& axis : axes) {
      if (axis.name == current_->name) {
        Refuse(axis.at, absl::StrCat("axis '", axis.name, "' has the name of its stage"));
      }
      Define(axis.name, {Role::kAxis, axis.at, 0, false, required});
    }
  }

  void Define(const std::string& name, Definition definition) {
    const Position at = definition.at;
    if (!names_.emplace(name, std::move(definition)).second) RefuseRedefinition(name, at);
  }

  [[noreturn]] void RefuseRedefinition(const std::string& name, const Position& at) const {
    const Definition& first = names_.at(name);
    Refuse(at, absl::StrFormat("'%s' is already %s (%d:%d); every name has one meaning", name,
                               NameOf(first.role), first.at.line, first.at.column));
  }

  // Reduction axes when their stage ends; at the end of the operator everything else.
  void RefuseUnused(bool axes) const {
    const std::pair<const std::string, Definition>* unused = nullptr;
    const auto place = [](const Definition& d) { return std::pair(d.at.line, d.at.column); };
    for (const auto& entry : names_) {
      const Definition& definition = entry.second;
      if (definition.used || !definition.required || (definition.role == Role::kAxis) != axes) {
        continue;
      }
      if (unused == nullptr || place(definition) < place(unused->second)) unused = &entry;
    }
    if (unused == nullptr) return;
    const auto& [name, definition] = *unused;
    switch (definition.role) {
      case Role::kAxis:
        Refuse(definition.at, absl::StrCat("reduction axis '", name, "' is never used"));
      case Role::kInput:
        Refuse(definition.at, absl::StrCat("input '", name, "' is never read"));
      case Role::kStage:
        Refuse(definition.at, absl::StrCat("stage '", name,
                                           "' is never read and is not an output; remove it or "
                                           "write out before it"));
      default:
        Refuse(definition.at, absl::StrCat("'", name, "' is never used"));
    }
  }

  Definition& Find(const SyntaxNode& node, const char* what) {
    const auto it = names_.find(node.text);
    if (it != names_.end()) {
      it->second.used = true;
      return it->second;
    }
    if (current_->name == node.text) {
      Refuse(node.at, absl::StrCat("'", node.text, "' is read in its own definition"));
    }
    for (const ItemSyntax& item : op_.items) {
      if (item.name == node.text) {
        Refuse(node.at, absl::StrFormat("'%s' is used before its definition at %d:%d", node.text,
                                        item.at.line, item.at.column));
      }
    }
    std::vector<std::string> known;
    for (const auto& [name, definition] : names_) known.push_back(name);
    Refuse(node.at,
           absl::StrCat("unknown ", what, " '", node.text, "'", Suggest(node.text, known)));
  }

  Definition& FindScalar(const SyntaxNode& node) {
    Definition& found = Find(node, "name");
    if (found.role == Role::kInput || found.role == Role::kStage) {
      Refuse(node.at, absl::StrCat("'", node.text,
                                   "' is a tensor; read an element of it: ", node.text, "[...]"));
    }
    return found;
  }

  void CountNode(const SyntaxNode& node) {
    if (++nodes_ > kMaxStageNodes) {
      Refuse(node.at, absl::StrCat("stage '", current_->name, "' has more than ", kMaxStageNodes,
                                   " operations; split it into several stages"));
    }
  }

  // Returns true when `node` depends on an axis.
  bool CheckInteger(const SyntaxNode& node, Place place) {
    int nodes = 0;
    return CheckInteger(node, place, nodes);
  }

  bool CheckInteger(const SyntaxNode& node, Place place, int& nodes) {
    if (++nodes > kMaxIndexNodes) {
      Refuse(node.at, absl::StrCat("an integer expression of more than ", kMaxIndexNodes,
                                   " operands and operations"));
    }
    CountNode(node);
    const char* where = place == Place::kExtent  ? "an extent or let"
                        : place == Place::kIndex ? "an index"
                                                 : "an integer comparison";
    switch (node.kind) {
      case Kind::kInteger:
        return false;
      case Kind::kName: {
        const Definition& found = FindScalar(node);
        if (found.role == Role::kAxis && place == Place::kExtent) {
          Refuse(node.at, absl::StrCat("extents and lets are made of parameters and lets; '",
                                       node.text, "' is an axis"));
        }
        return found.role == Role::kAxis;
      }
      case Kind::kIndexRead:
        if (place == Place::kExtent) {
          Refuse(node.at,
                 absl::StrCat("extents and lets are made of parameters and lets; '", Shown(node),
                              "' is known when the kernel runs: give the longest extent "
                              "and leave out what lies beyond, as in "
                              "sum(r: n) select(r < L[i], X[i, r], 0)"));
        }
        CheckTensor(node);
        for (const SyntaxPtr& index : node.args) CheckInteger(*index, Place::kIndex, nodes);
        return true;
      case Kind::kRead:
        if (place == Place::kExtent) break;
        Refuse(node.at, absl::StrCat("'", Shown(node),
                                     "' is a value, but an index reads only inputs that are "
                                     "declared to hold indices: in ",
                                     node.text, "[...]: index(extent)"));
      case Kind::kUnary:
        if (node.text == "-") return CheckInteger(*node.args[0], place, nodes);
        break;
      case Kind::kBinary:
        if (!IsCondition(node)) return CheckIntegerOperation(node, place, nodes);
        break;
      case Kind::kCall:
        if (node.text != "min" && node.text != "max") break;
        CheckArguments(node, 2);
        {
          const bool left = CheckInteger(*node.args[0], place, nodes);
          return CheckInteger(*node.args[1], place, nodes) || left;
        }
      default:
        break;
    }
    Refuse(node.at, absl::StrCat(where, " is an integer expression: integers, parameters, lets",
                                 place == Place::kExtent ? "" : ", axes, inputs of indices",
                                 ", + - * / %, min and max; found '", Shown(node), "'"));
  }

  bool CheckIntegerOperation(const SyntaxNode& node, Place place, int& nodes) {
    const bool left = CheckInteger(*node.args[0], place, nodes);
    const bool right = CheckInteger(*node.args[1], place, nodes);
    if (right && (node.text == "/" || node.text == "%")) {
      Refuse(node.at, absl::StrCat("'", node.text, "' of integers needs a constant on its right; '",
                                   Shown(*node.args[1]), "' depends on an axis"));
    }
    if (left && right && node.text == "*" && place == Place::kIndex) {
      Refuse(node.at, absl::StrCat("'", Shown(node),
                                   "' multiplies axes; in an index an axis can "
                                   "only be multiplied by a constant"));
    }
    return left || right;
  }

  void CheckValue(const SyntaxNode& node) {
    CountNode(node);
    if (IsCondition(node)) {
      Refuse(node.at, absl::StrCat("expected a value, found the condition '", Shown(node),
                                   "'; write select(condition, 1, 0)"));
    }
    switch (node.kind) {
      case Kind::kInteger:
      case Kind::kReal:
        return;
      case Kind::kName:
        FindScalar(node);
        return;
      case Kind::kRead:
      case Kind::kIndexRead:
        return CheckRead(node);
      case Kind::kCall:
        return CheckCall(node);
      case Kind::kReduce:
        Refuse(node.at, absl::StrCat("the reduction '", node.text,
                                     "' inside an expression; make it a stage of its own and read "
                                     "that stage here"));
      case Kind::kUnary:
      case Kind::kBinary:
        if (node.text == "%") {
          Refuse(node.at, "'%' works on indices only, not on values");
        }
        for (const SyntaxPtr& arg : node.args) CheckValue(*arg);
    }
  }

  void CheckRead(const SyntaxNode& node) {
    CheckTensor(node);
    for (const SyntaxPtr& index : node.args) CheckInteger(*index, Place::kIndex);
  }

  void CheckTensor(const SyntaxNode& node) {
    const Definition& tensor = Find(node, "tensor");
    if (tensor.role != Role::kInput && tensor.role != Role::kStage) {
      Refuse(node.at, absl::StrCat("'", node.text, "' is ", NameOf(tensor.role),
                                   ", not a tensor: it cannot be indexed"));
    }
    if (node.args.size() != tensor.rank) {
      Refuse(node.at, absl::StrFormat("'%s' has %d dimensions, but %d indices are given", node.text,
                                      tensor.rank, node.args.size()));
    }
  }

  void CheckCall(const SyntaxNode& node) {
    const std::optional<Function> function = FindFunction(node.text);
    if (!function) {
      if (IsReduction(node.text)) {
        Refuse(node.at, absl::StrFormat("'%s' is a reduction: write %s(r: extent) and what to "
                                        "combine",
                                        node.text, node.text));
      }
      Refuse(node.at, absl::StrCat("unknown function '", node.text, "'",
                                   Suggest(node.text, FunctionNames())));
    }
    CheckArguments(node, function->arguments);
    size_t next = 0;
    if (function->kind == Function::Kind::kSelect) CheckCondition(*node.args[next++]);
    while (next < node.args.size()) CheckValue(*node.args[next++]);
  }

  static void CheckArguments(const SyntaxNode& node, int wanted) {
    if (static_cast<int>(node.args.size()) == wanted) return;
    Refuse(node.at, absl::StrFormat("'%s' takes %d argument%s, found %d", node.text, wanted,
                                    wanted == 1 ? "" : "s", node.args.size()));
  }

  void CheckCondition(const SyntaxNode& node) {
    CountNode(node);
    if (!IsCondition(node)) {
      Refuse(node.at, absl::StrCat("expected a condition (a comparison, &&, || or !), found '",
                                   Shown(node), "'"));
    }
    const bool compares = Precedence(node.text) == kComparisonPrecedence;
    const bool integers = compares && IsIntegerComparison(node);
    for (const SyntaxPtr& arg : node.args) {
      if (!compares) {
        CheckCondition(*arg);
      } else if (IsCondition(*arg)) {
        Refuse(node.at, absl::StrCat("comparisons do not chain and compare no conditions; write "
                                     "a < b && b < c"));
      } else if (integers) {
        CheckInteger(*arg, Place::kCondition);
      } else {
        CheckValue(*arg);
      }
    }
  }

  // As much of the source as a message needs.
  static std::string Shown(const SyntaxNode& node) {
    constexpr size_t kLongest = 60;
    const std::string text = Print(node);
    return text.size() <= kLongest ? text : absl::StrCat(text.substr(0, kLongest), "...");
  }

  const OperatorSyntax& op_;
  std::map<std::string, Definition> names_;
  const ItemSyntax* current_ = nullptr;
  int nodes_ = 0;  // in the current stage
};

}  // namespace

void CheckNames(const OperatorSyntax& op) { Checker(op).Run(); }

}  // namespace heddle::search_space
