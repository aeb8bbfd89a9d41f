// From text to the syntax tree: a tokeniser and a recursive-descent parser.
#include <charconv>
#include <cmath>
#include <iterator>
#include <limits>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "search_space/notation/notation_limits.h"
#include "search_space/notation/notation_syntax.h"

namespace heddle::search_space {
namespace {

using Kind = SyntaxNode::Kind;

constexpr size_t kMaxNameBytes = 64;
constexpr const char* kByteOrderMark = "\xEF\xBB\xBF";

struct Token {
  enum class Kind : uint8_t { kName, kInteger, kReal, kSymbol, kEnd };
  Kind kind;
  Position at;
  std::string text;
  int64_t integer = 0;
  double real = 0;
};

// Length of the well-formed UTF-8 sequence at `text[at]`; 0 where there is none.
size_t Utf8Length(const std::string& text, size_t at) {
  const auto byte = [&](size_t i) -> unsigned { return static_cast<unsigned char>(text[i]); };
  const unsigned first = byte(at);
  const size_t length = first < 0x80                    ? 1
                        : first >= 0xC2 && first < 0xE0 ? 2
                        : first >= 0xE0 && first < 0xF0 ? 3
                        : first >= 0xF0 && first < 0xF5 ? 4
                                                        : 0;
  if (at + length > text.size()) return 0;
  for (size_t i = 1; i < length; ++i) {
    if ((byte(at + i) & 0xC0) != 0x80) return 0;
  }
  return length;
}

class Lexer {
 public:
  explicit Lexer(const std::string& text) : text_(text) {
    if (text.compare(0, 3, kByteOrderMark) == 0) next_ = 3;
  }

  std::vector<Token> Run() {
    std::vector<Token> tokens;
    while (SkipBlanks()) tokens.push_back(Read());
    tokens.push_back({Token::Kind::kEnd, at_, "the end of the text"});
    return tokens;
  }

 private:
  char Peek(size_t ahead = 0) const {
    return next_ + ahead < text_.size() ? text_[next_ + ahead] : '\0';
  }

  void Advance(size_t bytes) {
    next_ += bytes;
    at_.column += static_cast<int>(bytes);
  }

  // To the next token; false at the end.
  bool SkipBlanks() {
    bool comment = false;
    while (next_ < text_.size()) {
      const char c = text_[next_];
      const size_t length = Utf8Length(text_, next_);
      const bool control = absl::ascii_iscntrl(static_cast<unsigned char>(c)) != 0 &&
                           !absl::ascii_isspace(static_cast<unsigned char>(c));
      if (length == 0 || control) {
        Refuse(at_, absl::StrFormat("byte 0x%02X: this is not text; operators are written in UTF-8",
                                    static_cast<unsigned char>(c)));
      }
      if (c == '\n') {
        comment = false;
        ++next_;
        at_ = {at_.line + 1, 1};
        continue;
      }
      if (c == '#') comment = true;
      if (!comment && !absl::ascii_isspace(static_cast<unsigned char>(c))) return true;
      next_ += length;
      ++at_.column;
    }
    return false;
  }

  Token Read() {
    const char c = Peek();
    if (absl::ascii_isalpha(c) || c == '_') return ReadName();
    if (absl::ascii_isdigit(c) || (c == '.' && absl::ascii_isdigit(Peek(1)))) return ReadNumber();
    for (const char* symbol : {"<=", ">=", "==", "!=", "&&", "||", "<", ">", "+", "-", "*", "/",
                               "%",  "!",  "=",  "(",  ")",  "[",  "]", "{", "}", ",", ":"}) {
      const std::string text = symbol;
      if (text_.compare(next_, text.size(), text) == 0) {
        Token token{Token::Kind::kSymbol, at_, text};
        Advance(text.size());
        return token;
      }
    }
    Refuse(at_, absl::StrCat("unexpected character '",
                             text_.substr(next_, Utf8Length(text_, next_)), "'"));
  }

  Token ReadName() {
    Token token{Token::Kind::kName, at_, ""};
    size_t length = 0;
    while (absl::ascii_isalnum(Peek(length)) || Peek(length) == '_') ++length;
    token.text = text_.substr(next_, length);
    if (length > kMaxNameBytes) {
      Refuse(at_, absl::StrFormat("a name of %d characters; the longest allowed has %d", length,
                                  kMaxNameBytes));
    }
    Advance(length);
    return token;
  }

  size_t Digits(size_t from) const {
    while (absl::ascii_isdigit(Peek(from))) ++from;
    return from;
  }

  // digits ["." digits] [("e"|"E") ["+"|"-"] digits]; at least one digit before or after the point.
  Token ReadNumber() {
    size_t length = Digits(0);
    bool real = false;
    if (Peek(length) == '.') {
      real = true;
      length = Digits(length + 1);
    }
    if (absl::ascii_tolower(Peek(length)) == 'e') {
      real = true;
      const size_t sign = Peek(length + 1) == '+' || Peek(length + 1) == '-' ? 1 : 0;
      const size_t end = Digits(length + 1 + sign);
      if (end == length + 1 + sign) Refuse(at_, "expected digits after the exponent's 'e'");
      length = end;
    }
    Token token{real ? Token::Kind::kReal : Token::Kind::kInteger, at_,
                text_.substr(next_, length)};
    if (absl::ascii_isalpha(Peek(length)) || Peek(length) == '_') {
      Refuse(at_, absl::StrCat("expected a number or a name, found '", token.text,
                               std::string(1, Peek(length)), "...'"));
    }
    const char* begin = token.text.data();
    const char* end = begin + token.text.size();
    if (real) {
      if (std::from_chars(begin, end, token.real).ec != std::errc() || std::isinf(token.real)) {
        Refuse(at_, absl::StrCat(token.text,
                                 " is beyond the range of a 64-bit floating-point "
                                 "number; write inf for infinity"));
      }
    } else if (std::from_chars(begin, end, token.integer).ec != std::errc()) {
      Refuse(at_, absl::StrCat(token.text,
                               " does not fit a 64-bit integer; as a value it can be "
                               "written with a decimal point"));
    }
    Advance(length);
    return token;
  }

  const std::string& text_;
  size_t next_ = 0;
  Position at_;
};

class Parser {
 public:
  explicit Parser(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  std::vector<OperatorSyntax> File() {
    std::vector<OperatorSyntax> operators;
    std::map<std::string, Position> seen;
    do {
      OperatorSyntax op = ParseOperator();
      const auto [first, inserted] = seen.emplace(op.name, name_at_);
      if (!inserted) {
        Refuse(name_at_, absl::StrFormat("operator '%s' is already defined at %d:%d", op.name,
                                         first->second.line, first->second.column));
      }
      operators.push_back(std::move(op));
    } while (Now().kind != Token::Kind::kEnd);
    return operators;
  }

 private:
  const Token& Now() const { return tokens_[next_]; }
  const Token& Ahead(size_t by) const { return tokens_[std::min(next_ + by, tokens_.size() - 1)]; }
  static bool Is(const Token& token, const char* text) {
    return token.kind != Token::Kind::kEnd && token.text == text;
  }
  bool Is(const char* text) const { return Is(Now(), text); }

  [[noreturn]] void Expected(const std::string& what) const {
    const bool quoted = Now().kind != Token::Kind::kEnd;
    Refuse(Now().at, absl::StrCat("expected ", what, ", found ", quoted ? "'" : "", Now().text,
                                  quoted ? "'" : ""));
  }

  bool Accept(const char* text) {
    if (!Is(text)) return false;
    ++next_;
    return true;
  }

  void Expect(const char* text, const std::string& where) {
    if (!Accept(text)) Expected(absl::StrCat("'", text, "' ", where));
  }

  // A name to be defined.
  std::string NewName(const std::string& what) {
    if (Now().kind != Token::Kind::kName) Expected(what);
    if (IsReserved(Now().text)) {
      Refuse(Now().at, absl::StrCat("expected ", what, ", but '", Now().text,
                                    "' is a word of the notation; choose another name"));
    }
    name_at_ = Now().at;
    return tokens_[next_++].text;
  }

  OperatorSyntax ParseOperator() {
    Expect("op", "(an operator: op name(parameters) { ... })");
    // Of this operator alone: what it means does not depend on its neighbours.
    names_.clear();
    for (size_t t = next_; t < tokens_.size() && !Is(tokens_[t], "}"); ++t) {
      if (tokens_[t].kind == Token::Kind::kName) names_.insert(tokens_[t].text);
    }
    OperatorSyntax op;
    op.name = NewName("the operator's name");
    const Position name_at = name_at_;
    Expect("(", "before the parameters");
    if (!Is(")")) {
      do {
        op.parameters.push_back(ParseParameter());
        op.parameter_positions.push_back(name_at_);
      } while (Accept(","));
    }
    Expect(")", "or ',' after a parameter");
    Expect("{", "before the operator's body");
    index_inputs_.clear();
    int stages = 0;
    while (!Accept("}")) {
      if (Accept("let")) {
        do op.items.push_back(ParseLet());
        while (Accept(","));
      } else if (Accept("in")) {
        do op.items.push_back(ParseInput());
        while (Accept(","));
      } else {
        for (ItemSyntax& item : Written(ParseStage())) {
          if (item.kind == ItemSyntax::Kind::kStage && ++stages > kMaxStages) {
            Refuse(item.at, absl::StrCat("more than ", kMaxStages, " stages"));
          }
          op.items.push_back(std::move(item));
        }
      }
    }
    name_at_ = name_at;
    return op;
  }

  OperatorParameter ParseParameter() {
    OperatorParameter parameter{NewName("a parameter's name"), std::nullopt};
    const Position at = name_at_;
    if (Accept("=")) {
      const bool negative = Accept("-");
      if (Now().kind != Token::Kind::kInteger) Expected("an integer as the parameter's default");
      parameter.default_value = negative ? -Now().integer : Now().integer;
      ++next_;
    }
    name_at_ = at;
    return parameter;
  }

  ItemSyntax ParseLet() {
    ItemSyntax item{ItemSyntax::Kind::kLet, {}, NewName("a name to define with let")};
    item.at = name_at_;
    Expect("=", "after the name in let");
    item.value = Expression();
    return item;
  }

  ItemSyntax ParseInput() {
    ItemSyntax item{ItemSyntax::Kind::kInput, {}, NewName("an input tensor's name")};
    item.at = name_at_;
    Expect("[", "before the input's extents");
    item.extents = List("]", "after an extent");
    CheckRank(item.at, item.extents.size());
    if (Accept(":")) {
      if (Is("index")) {
        item.index_extent = IndexType();
        index_inputs_.insert(item.name);
      } else {
        item.dtype = ElementType(", or index(extent) for an input that holds indices");
      }
    }
    return item;
  }

  // The data type of a tensor's elements; `others` may stand in its place.
  DType ElementType(const char* others) {
    std::string names;
    for (const DType type : kWorkloadTypes) {
      if (Accept(NameOf(type))) return type;
      absl::StrAppend(&names, names.empty() ? "" : ", ", NameOf(type));
    }
    if (const auto meant = TypeOfShortName(Now().text)) {
      Refuse(Now().at,
             absl::StrCat("expected the tensor's data type (", names, ")", others, ", found '",
                          Now().text, "'; did you mean '", NameOf(*meant), "'?"));
    }
    Expected(absl::StrCat("the tensor's data type (", names, ")", others));
  }

  // index(extent)
  SyntaxPtr IndexType() {
    ++next_;
    Expect("(", "and the extent that indices are less than");
    SyntaxPtr extent = Expression();
    Expect(")", "after the extent that indices are less than");
    return extent;
  }

  ItemSyntax ParseStage() {
    const bool is_output = Accept("out");
    const std::string what = is_output ? "an output tensor's name" : "let, in, out, a stage or '}'";
    ItemSyntax item{ItemSyntax::Kind::kStage, {}, NewName(what)};
    item.at = name_at_;
    item.is_output = is_output;
    Expect("[", "before the stage's axes");
    item.axes = Axes("]");
    CheckRank(item.at, item.axes.size());
    if (Accept(":")) {
      if (Is("index")) {
        Refuse(Now().at, "stages hold values; indices are read from inputs alone");
      }
      item.dtype = ElementType("");
    }
    if (Is("+") && Is(Ahead(1), "=")) RefuseScatter(Now().at);
    Expect("=", "before the stage's definition");
    item.value = Expression();
    if (item.value->kind == Kind::kReduce) {
      CheckRank(item.at, item.axes.size() + item.value->axes.size());
    }
    return item;
  }

  // A name for what is made of `item`: its own with an ending, and one that its operator's text
  // has nowhere.
  std::string MadeName(const ItemSyntax& item, std::string ending) {
    std::string name;
    do {
      name = item.name.substr(0, kMaxNameBytes - ending.size()) + ending;
      ending += "_";
    } while (!names_.insert(name).second);
    return name;
  }

  static SyntaxPtr Name(const Position& at, const std::string& name) {
    return Make({Kind::kName, at, name});
  }

  // The stage in words that are no sugar: of A[i: m] = argmax(r: n) e
  //   A_max[i: m] = max(r: n) e
  //   A[i: m] = min(r: n) select(e == A_max[i], r, n)
  // The smallest position wins, and a NaN, which equals nothing, leaves n.
  std::vector<ItemSyntax> Written(ItemSyntax item) {
    if (item.value->kind != Kind::kReduce || FindCombiner(item.value->text) != Combiner::kNone) {
      return {std::move(item)};
    }
    SyntaxNode positions = *item.value;
    const Position at = positions.at;
    if (positions.axes.size() != 1) {
      Refuse(positions.axes[1].at, absl::StrCat("'", positions.text,
                                                "' has one axis, whose position it gives; make one "
                                                "axis of the tensor's, or a stage for each"));
    }
    std::vector<ItemSyntax> items;
    AxisSyntax& axis = positions.axes[0];
    // As a value, an extent with a division would be another number.
    if (axis.extent->kind != Kind::kInteger && axis.extent->kind != Kind::kName) {
      ItemSyntax extent{ItemSyntax::Kind::kLet, axis.at, MadeName(item, "_extent")};
      extent.value = std::exchange(axis.extent, Name(axis.at, extent.name));
      items.push_back(std::move(extent));
    }
    ItemSyntax best = item;
    best.is_output = false;
    // Rounded to fewer digits it would be equal to none.
    if (best.dtype != DType::kFloat64) best.dtype.reset();
    SyntaxNode reduction = positions;
    reduction.text = positions.text.substr(3);
    best.name = MadeName(item, "_" + reduction.text);
    best.value = Make(std::move(reduction));
    SyntaxNode read{Kind::kRead, at, best.name}, equal{Kind::kBinary, at, "=="},
        select{Kind::kCall, at, "select"};
    for (const AxisSyntax& own : item.axes) read.args.push_back(Name(own.at, own.name));
    equal.args = {positions.args[0], Make(std::move(read))};
    select.args = {Make(std::move(equal)), Name(axis.at, axis.name), axis.extent};
    positions.text = "min";
    positions.args = {Make(std::move(select))};
    item.value = Make(std::move(positions));
    item.is_position = true;
    items.push_back(std::move(best));
    items.push_back(std::move(item));
    return items;
  }

  [[noreturn]] static void RefuseScatter(const Position& at) {
    Refuse(at,
           "an output element says what it reads, not where something goes: "
           "Y[i: n] = sum(r: m) select(I[r] == i, X[r], 0)");
  }

  static void CheckRank(const Position& at, size_t axes) {
    if (axes > kMaxAxes) {
      Refuse(at, absl::StrFormat("%d axes; at most %d are allowed, reduction axes included", axes,
                                 kMaxAxes));
    }
  }

  std::vector<AxisSyntax> Axes(const char* close) {
    std::vector<AxisSyntax> axes;
    do {
      AxisSyntax axis;
      axis.name = NewName("an axis name");
      axis.at = name_at_;
      if (Is("[")) RefuseScatter(axis.at);
      Expect(":", "and an extent after the axis name");
      axis.extent = Expression();
      axes.push_back(std::move(axis));
    } while (Accept(","));
    Expect(close, "or ',' after an axis");
    return axes;
  }

  std::vector<SyntaxPtr> List(const char* close, const char* where) {
    std::vector<SyntaxPtr> items;
    do items.push_back(Expression());
    while (Accept(","));
    Expect(close, absl::StrCat("or ',' ", where));
    return items;
  }

  // Counts recursion, so that hostile nesting ends in a message and not in a full stack.
  struct Nesting {
    explicit Nesting(Parser& parser) : parser(parser) {
      if (++parser.nesting_ > kMaxExpressionDepth) parser.RefuseDepth(parser.Now().at);
    }
    ~Nesting() { --parser.nesting_; }
    Parser& parser;
  };

  [[noreturn]] static void RefuseDepth(const Position& at) {
    Refuse(at, absl::StrCat("the expression is more than ", kMaxExpressionDepth,
                            " levels deep (each further operand of a chain like a + b + c is one "
                            "level); make part of it a stage of its own"));
  }

  // Every node is made here, so that no tree is deeper than the limit.
  static SyntaxPtr Make(SyntaxNode node) {
    for (const SyntaxPtr& arg : node.args) node.depth = std::max(node.depth, arg->depth + 1);
    if (node.depth > kMaxExpressionDepth) RefuseDepth(node.at);
    return std::make_shared<const SyntaxNode>(std::move(node));
  }

  bool AtReduction() const {
    return Now().kind == Token::Kind::kName && IsReduction(Now().text) && Is(Ahead(1), "(") &&
           Ahead(2).kind == Token::Kind::kName && Is(Ahead(3), ":");
  }

  SyntaxPtr Expression() {
    const Nesting nesting(*this);
    if (!AtReduction()) return Binary(1);
    SyntaxNode node{Kind::kReduce, Now().at, Now().text};
    next_ += 2;
    node.axes = Axes(")");
    node.args.push_back(Expression());
    return Make(std::move(node));
  }

  // Operators of at least this precedence; all associate to the left.
  SyntaxPtr Binary(int precedence) {
    SyntaxPtr left = Unary();
    while (Now().kind == Token::Kind::kSymbol && Precedence(Now().text) >= precedence) {
      SyntaxNode node{Kind::kBinary, Now().at, Now().text};
      ++next_;
      SyntaxPtr right = Binary(Precedence(node.text) + 1);
      node.args = {std::move(left), std::move(right)};
      left = Make(std::move(node));
    }
    return left;
  }

  SyntaxPtr Unary() {
    if (!Is("-") && !Is("!")) return Primary();
    const Nesting nesting(*this);
    SyntaxNode node{Kind::kUnary, Now().at, Now().text};
    ++next_;
    node.args.push_back(Unary());
    return Make(std::move(node));
  }

  SyntaxPtr Primary() {
    const Token& token = Now();
    if (Accept("(")) {
      SyntaxPtr inner = Expression();
      Expect(")", "after the expression");
      return inner;
    }
    if (AtReduction()) {
      Refuse(token.at, absl::StrCat("the reduction '", token.text,
                                    "' inside an expression; make it a stage of its own and read "
                                    "that stage here"));
    }
    SyntaxNode node{Kind::kName, token.at, token.text};
    if (token.kind == Token::Kind::kInteger || token.kind == Token::Kind::kReal) {
      node.kind = token.kind == Token::Kind::kInteger ? Kind::kInteger : Kind::kReal;
      node.integer = token.integer;
      node.real = token.real;
    } else if (token.kind == Token::Kind::kName && Is(Ahead(1), "(")) {
      if (const char* why = WhyNoFunction(token.text)) {
        Refuse(token.at, absl::StrCat("'", token.text, "': ", why));
      }
      node.kind = Kind::kCall;
      next_ += 2;
      node.args = List(")", "after an argument");
      return Make(std::move(node));
    } else if (token.kind == Token::Kind::kName && Is(Ahead(1), "[")) {
      node.kind = index_inputs_.contains(token.text) ? Kind::kIndexRead : Kind::kRead;
      next_ += 2;
      node.args = List("]", "after an index");
      return Make(std::move(node));
    } else if (Is("inf")) {
      node.kind = Kind::kReal;
      node.real = std::numeric_limits<double>::infinity();
    } else if (token.kind != Token::Kind::kName || IsReserved(token.text)) {
      Expected("an expression");
    }
    ++next_;
    return Make(std::move(node));
  }

  const std::vector<Token> tokens_;
  size_t next_ = 0;
  int nesting_ = 0;
  std::set<std::string> index_inputs_;  // of this operator, so far
  Position name_at_;                    // of the name that NewName() returned last
  std::set<std::string> names_;  // all that the operator's text has, and those that were made
};

}  // namespace

std::vector<OperatorSyntax> ParseSyntax(const std::string& text) {
  if (text.size() > kMaxNotationBytes) {
    throw NotationError{absl::StrFormat("the operator text has %d bytes; at most %d are allowed",
                                        text.size(), kMaxNotationBytes)};
  }
  return Parser(Lexer(text).Run()).File();
}

}  // namespace heddle::search_space
