// The syntax tree of the tensor notation: shared by the files that parse, check, print and
// instantiate it; not for other users.
#ifndef HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_SYNTAX_H_
#define HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_SYNTAX_H_

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "search_space/ir/tensor_program.h"
#include "search_space/notation/operator_parameter.h"

namespace heddle::search_space {

// Thrown inside the notation's own files and turned into InvalidArgument at its public functions.
struct NotationError {
  std::string message;
};

struct Position {
  int line = 1;
  int column = 1;
};
// Throws "line:column: message".
[[noreturn]] void Refuse(const Position& at, const std::string& message);

struct SyntaxNode;
using SyntaxPtr = std::shared_ptr<const SyntaxNode>;

// "i: m"
struct AxisSyntax {
  std::string name;
  Position at;
  SyntaxPtr extent;
};

struct SyntaxNode {
  enum class Kind : uint8_t {
    kInteger,    // integer
    kReal,       // real; `inf` too
    kName,       // parameter, let or axis
    kRead,       // text[args]
    kIndexRead,  // text[args] of an input that holds indices: an integer
    kCall,       // text(args)
    kUnary,      // text is "-" or "!"
    kBinary,     // text is the operator
    kReduce,     // text(axes) args[0]
  };
  Kind kind;
  Position at;
  std::string text;
  int64_t integer = 0;
  double real = 0;
  std::vector<SyntaxPtr> args;
  std::vector<AxisSyntax> axes;
  int depth = 1;  // levels of the tree below and including this node
};

// One definition in an operator's body.
struct ItemSyntax {
  enum class Kind : uint8_t { kLet, kInput, kStage };
  Kind kind;
  Position at;  // of the name
  std::string name;
  bool is_output = false;
  std::vector<SyntaxPtr> extents;  // kInput
  SyntaxPtr index_extent;          // kInput that holds indices: they are less than this
  std::optional<DType> dtype;      // kInput, kStage: where it is written
  std::vector<AxisSyntax> axes;    // kStage
  SyntaxPtr value;                 // kLet, kStage
  bool is_position = false;        // kStage made of argmax or argmin: 0 .. extent of the one axis
};

struct OperatorSyntax {
  std::string name;
  std::vector<OperatorParameter> parameters;
  std::vector<Position> parameter_positions;
  std::vector<ItemSyntax> items;
  std::string text;  // normalised
};

// The syntax alone: no name is looked up. Throws NotationError.
std::vector<OperatorSyntax> ParseSyntax(const std::string& text);

// Names: defined before use, not shadowed, used; indices per tensor; conditions and values in their
// places. Throws NotationError.
void CheckNames(const OperatorSyntax& op);

// The program at a shape (Operator::Instantiate), of `op` whose names are checked. Throws
// NotationError.
TensorProgram Instantiate(const OperatorSyntax& op, const std::map<std::string, int64_t>& shape,
                          DType dtype);

// Normalised text: one spelling, spacing and set of parentheses per tree.
std::string Print(const SyntaxNode& node);
// `values` replaces the defaults of the parameters where it is given.
std::string Print(const OperatorSyntax& op, const std::map<std::string, int64_t>* values = nullptr);

// Binding strength of a binary operator, 1 (||) to 5 (* / %); 0 for anything else.
int Precedence(const std::string& op);
inline constexpr int kComparisonPrecedence = 3;

// The functions of the notation, with their number of arguments; nullopt for other names.
struct Function {
  enum class Kind : uint8_t { kMath, kSelect, kCast };
  Kind kind;
  int arguments;
  Op op;        // kMath
  DType dtype;  // kCast
};
std::optional<Function> FindFunction(const std::string& name);
std::vector<std::string> FunctionNames();
Combiner FindCombiner(const std::string& name);  // kNone for other names
bool IsReduction(const std::string& name);       // a combiner's, argmax or argmin
// Why there is no such function, and what to write in its place; null for other names.
const char* WhyNoFunction(const std::string& name);
// The data type that other languages call so, such as bf16: the notation has one name for each.
std::optional<DType> TypeOfShortName(const std::string& name);
// The data types that a workload and its tensors can have: those of floating point.
inline constexpr auto kWorkloadTypes = [] {
  constexpr auto kFirst = static_cast<size_t>(DType::kFloat16);
  std::array<DType, static_cast<size_t>(DType::kFloat64) - kFirst + 1> types{};
  for (size_t i = 0; i < types.size(); ++i) types[i] = static_cast<DType>(kFirst + i);
  return types;
}();
// Names that cannot be given to anything: keywords, functions, reductions, inf.
bool IsReserved(const std::string& name);

// True where `node` can only be a condition (a comparison, &&, ||, !).
bool IsCondition(const SyntaxNode& node);
// True where both sides of the comparison `node` are made of integers, parameters, lets, axes and
// elements of inputs that hold indices alone by + - * / % min max: it then compares 64-bit
// integers, otherwise values.
bool IsIntegerComparison(const SyntaxNode& node);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_NOTATION_NOTATION_SYNTAX_H_
