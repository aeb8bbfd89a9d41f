// Random operators in tensor notation: graphs of a few stages over small tensors, of everything
// that the notation can say.
#ifndef HEDDLE_TESTS_RANDOM_OPERATORS_H_
#define HEDDLE_TESTS_RANDOM_OPERATORS_H_

#include <algorithm>
#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace heddle::tests {

struct RandomOperator {
  std::string text;
  std::map<std::string, int64_t> shape;
};

// The same for the same seed, on every machine. Values stay below a few hundred, no select asks for
// a computed value, and nothing grows by rounding, so that results of all orders agree closely.
class RandomOperators {
 public:
  explicit RandomOperators(uint64_t seed) : rng_(seed) {}

  RandomOperator Next() {
    extents_.clear();
    tensors_.clear();
    stages_.clear();
    positions_.clear();
    const int64_t parameters = Draw(2, 4), inputs = Draw(1, 3), stages = Draw(1, 7);
    inputs_ = static_cast<size_t>(inputs);
    for (int64_t p = 0; p < parameters; ++p) {
      static constexpr int64_t kExtents[] = {2, 3, 4, 5, 7, 8, 11, 13, 17, 20};
      extents_.push_back(
          {std::string(1, static_cast<char>('a' + p)), kExtents[Draw(0, std::size(kExtents) - 1)]});
    }
    for (int64_t i = 0; i < inputs; ++i) {
      Tensor tensor{absl::StrCat("I", i), {}, kLargestInput};
      for (int64_t rank = Draw(2, 7) / 2; rank > 0; --rank) {
        tensor.dims.push_back(static_cast<size_t>(Draw(0, parameters - 1)));
      }
      tensors_.push_back(tensor);
    }
    for (int64_t s = 0; s < stages; ++s) AddStage();
    return Written();
  }

 private:
  static constexpr double kLargestInput = 4, kLargest = 200;
  static constexpr int64_t kMostIterations = 6000, kMostElements = 1500;

  struct Extent {
    std::string text;
    int64_t value;
  };
  struct Tensor {
    std::string name;
    std::vector<size_t> dims;  // of extents_
    double largest;            // absolute value
    bool is_read = false;
  };
  struct Axis {
    std::string name;
    size_t extent;
    bool reduces = false;
  };
  // An input of numbers of elements along another extent.
  struct Positions {
    std::string name;
    size_t dim, of;
  };
  // A stage in the making.
  struct Stage {
    std::vector<Axis> axes;
    std::string combiner, body;
    double largest = 0;
  };
  struct Value {
    std::string text;
    double largest;
  };

  int64_t Draw(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(rng_() % static_cast<uint64_t>(most - least + 1));
  }
  bool Chance(int64_t percent) { return Draw(1, 100) <= percent; }
  int64_t ValueOf(size_t extent) const { return extents_[extent].value; }
  std::string Text(size_t extent) const { return absl::StrCat("(", extents_[extent].text, ")"); }
  // The extent of this form, an earlier one where there is one, so that stages fit together.
  size_t Derived(const std::string& text, int64_t value) {
    for (size_t e = 0; e < extents_.size(); ++e) {
      if (extents_[e].text == text) return e;
    }
    extents_.push_back({text, value});
    return extents_.size() - 1;
  }

  // What was made last is read more often; what nobody has read, too.
  Tensor& Pick() {
    for (size_t t = tensors_.size(); t-- > 0;) {
      if (!tensors_[t].is_read && Chance(60)) return tensors_[t];
    }
    return tensors_[std::min<size_t>(
        tensors_.size() - 1, static_cast<size_t>(Draw(0, static_cast<int64_t>(tensors_.size()))))];
  }

  size_t AddAxis(Stage& stage, size_t extent, bool reduces) {
    const auto alike = std::count_if(stage.axes.begin(), stage.axes.end(),
                                     [&](const Axis& a) { return a.reduces == reduces; });
    stage.axes.push_back({absl::StrCat(reduces ? "r" : "x", alike), extent, reduces});
    return stage.axes.size() - 1;
  }

  // An element of an input of indices, along one of the stage's axes.
  std::string Gathered(const Stage& stage, size_t extent) {
    const Axis& axis =
        stage.axes[static_cast<size_t>(Draw(0, static_cast<int64_t>(stage.axes.size()) - 1))];
    auto found = std::find_if(positions_.begin(), positions_.end(), [&](const Positions& p) {
      return p.dim == axis.extent && p.of == extent;
    });
    if (found == positions_.end()) {
      positions_.push_back({absl::StrCat("J", positions_.size()), axis.extent, extent});
      found = positions_.end() - 1;
    }
    return absl::StrCat(found->name, "[", axis.name, "]");
  }

  // An index of this extent made of the stage's axes.
  std::string IndexOf(const Stage& stage, size_t extent) {
    if (!stage.axes.empty() && ValueOf(extent) > 1 && Chance(5)) return Gathered(stage, extent);
    std::vector<const Axis*> same;
    for (const Axis& a : stage.axes) {
      if (a.extent == extent) same.push_back(&a);
    }
    if (!same.empty()) {
      const std::string& name =
          same[static_cast<size_t>(Draw(0, static_cast<int64_t>(same.size()) - 1))]->name;
      return Chance(90) ? name : absl::StrCat(Text(extent), " - 1 - ", name);
    }
    if (stage.axes.empty() || Chance(30)) return "0";
    const Axis& any =
        stage.axes[static_cast<size_t>(Draw(0, static_cast<int64_t>(stage.axes.size()) - 1))];
    if (Chance(50)) return absl::StrCat(any.name, " % ", Text(extent));
    return absl::StrCat("min(", any.name, ", ", Text(extent), " - 1)");
  }

  Value Read(Tensor& tensor, const std::vector<std::string>& indices) {
    tensor.is_read = true;
    Value value{absl::StrCat(tensor.name, "[", absl::StrJoin(indices, ", "), "]"), tensor.largest};
    return value;
  }
  Value Read(const Stage& stage, Tensor& tensor) {
    std::vector<std::string> indices;
    for (size_t d : tensor.dims) indices.push_back(IndexOf(stage, d));
    return Read(tensor, indices);
  }

  // A condition on axes that is true of some elements and false of others.
  std::string Condition(const Stage& stage) {
    const auto any = [&]() -> const Axis& {
      return stage.axes[static_cast<size_t>(Draw(0, static_cast<int64_t>(stage.axes.size()) - 1))];
    };
    const Axis &one = any(), &other = any();
    switch (Draw(0, ValueOf(one.extent) > 1 ? 3 : 2)) {
      case 0:
        return absl::StrCat(one.name, " <= ", other.name == one.name ? "1" : other.name);
      case 1:
        return absl::StrCat("(", one.name, " + ", other.name, ") % 3 != 1");
      case 2:
        return absl::StrCat("!(", one.name, " % 2 == 1)");
      default:
        return absl::StrCat(one.name, " >= 1 && ", one.name, " < ", Text(one.extent));
    }
  }

  // Of one value.
  Value Changed(const Stage& stage, const Value& v) {
    if (v.largest > kLargest) {
      return Chance(50) ? Value{absl::StrCat("tanh(", v.text, ")"), 1}
                        : Value{absl::StrCat(v.text, " * ", 1.0 / v.largest), 1};
    }
    switch (Draw(0, 9)) {
      case 0:
        return {absl::StrCat("max(", v.text, ", 0)"), v.largest};
      case 1:
        return {absl::StrCat("exp(0 - abs(", v.text, "))"), 1};
      case 2:
        return {absl::StrCat("sigmoid(", v.text, ")"), 1};
      case 3:
        return {absl::StrCat("(", v.text, ") / (1 + abs(", v.text, "))"), 1};
      case 4:
        return {absl::StrCat("select(", Condition(stage), ", ", v.text, ", ", Draw(-1, 1), ")"),
                std::max(v.largest, 1.0)};
      default:
        return v;
    }
  }
  // Of two.
  Value Together(const Value& a, const Value& b) {
    switch (Draw(0, 5)) {
      case 0:
        return {absl::StrCat("(", a.text, " + ", b.text, ")"), a.largest + b.largest};
      case 1:
        return {absl::StrCat("abs(", a.text, " - ", b.text, ")"), a.largest + b.largest};
      case 2:
        return {absl::StrCat("min(", a.text, ", ", b.text, ")"), std::max(a.largest, b.largest)};
      default:
        return {absl::StrCat("(", a.text, " * ", b.text, ")"), a.largest * b.largest};
    }
  }

  void AddStage() {
    const std::vector<Tensor> before = tensors_;
    const std::vector<Positions> positions = positions_;
    Stage stage;
    switch (Draw(0, 11)) {
      case 0:
        stage = Window();
        break;
      case 1:
        stage = Padded();
        break;
      case 2:
        stage = Resampled();
        break;
      case 3:
      case 4:
      case 5:
        stage = Elementwise();
        break;
      case 6:
        stage = Position();
        break;
      case 7:
        if (tensors_.size() < kMostTensors) return AddCentred();
        [[fallthrough]];
      default:
        stage = Reduction();
    }
    int64_t elements = 1, iterations = 1;
    for (const Axis& a : stage.axes) {
      iterations *= ValueOf(a.extent);
      if (!a.reduces) elements *= ValueOf(a.extent);
    }
    if (stage.body.empty() || elements > kMostElements || iterations > kMostIterations) {
      tensors_ = before;  // nobody has read anything
      positions_ = positions;
      return;
    }
    Finish(stage);
  }

  void Finish(Stage& stage) {
    Tensor made{absl::StrCat("T", stages_.size()), {}, stage.largest};
    std::vector<std::string> axes, reduced;
    for (const Axis& a : stage.axes) {
      (a.reduces ? reduced : axes).push_back(absl::StrCat(a.name, ": ", extents_[a.extent].text));
      if (!a.reduces) made.dims.push_back(a.extent);
    }
    if (axes.empty()) {
      axes.push_back("x0: 1");
      made.dims.push_back(Derived("1", 1));
    }
    const std::string reduction =
        reduced.empty() ? ""
                        : absl::StrCat(stage.combiner, "(", absl::StrJoin(reduced, ", "), ") ");
    stages_.push_back(
        absl::StrCat(made.name, "[", absl::StrJoin(axes, ", "), "] = ", reduction, stage.body));
    tensors_.push_back(made);
  }

  Stage Elementwise() {
    Stage stage;
    Tensor& first = Pick();
    for (size_t d : first.dims) AddAxis(stage, d, false);
    if (Chance(30)) std::reverse(stage.axes.begin(), stage.axes.end());
    if (stage.axes.size() < 4 && Chance(15)) AddAxis(stage, 0, false);
    Value value = Changed(stage, Read(stage, first));
    for (int64_t more = Draw(0, 2); more > 0; --more) {
      value = Together(value, Changed(stage, Read(stage, Pick())));
      value = Changed(stage, value);
    }
    stage.body = value.text;
    stage.largest = value.largest;
    return stage;
  }

  Stage Reduction() {
    Stage stage;
    Tensor& first = Pick();
    std::vector<std::string> indices;
    const auto reduced = static_cast<size_t>(Draw(0, static_cast<int64_t>(first.dims.size()) - 1));
    double terms = 1;
    for (size_t d = 0; d < first.dims.size(); ++d) {
      const bool reduces = d == reduced || Chance(25);
      if (reduces) terms *= static_cast<double>(ValueOf(first.dims[d]));
      indices.push_back(stage.axes[AddAxis(stage, first.dims[d], reduces)].name);
    }
    Value value = Changed(stage, Read(first, indices));
    if (Chance(60)) {
      Tensor& second = Pick();
      for (size_t d : second.dims) {
        const bool known = std::any_of(stage.axes.begin(), stage.axes.end(),
                                       [&](const Axis& a) { return a.extent == d; });
        if (!known && stage.axes.size() < 5 && Chance(80)) AddAxis(stage, d, false);
      }
      value = Together(value, Changed(stage, Read(stage, second)));
    }
    static constexpr const char* kCombiners[] = {"sum", "sum", "sum", "sum", "max", "min", "prod"};
    stage.combiner = kCombiners[Draw(0, std::size(kCombiners) - 1)];
    if (stage.combiner == "prod") {  // of terms that make e to the fourth at most
      const double share = std::min(0.0625, 4 / terms);
      value = {absl::StrCat("1 + ", share, " * tanh(", value.text, ")"), 2};
    }
    if (stage.combiner == "sum") value.largest *= terms;
    stage.body = value.text;
    stage.largest = stage.combiner == "prod" ? kLargest : value.largest;
    return stage;
  }

  // Where the greatest or the least element of an input lies, which are exact.
  Stage Position() {
    Stage stage;
    Tensor& of = tensors_[static_cast<size_t>(Draw(0, static_cast<int64_t>(inputs_) - 1))];
    const auto reduced = static_cast<size_t>(Draw(0, static_cast<int64_t>(of.dims.size()) - 1));
    std::vector<std::string> indices;
    for (size_t d = 0; d < of.dims.size(); ++d) {
      indices.push_back(stage.axes[AddAxis(stage, of.dims[d], d == reduced)].name);
    }
    const Value value = Read(of, indices);
    stage.combiner = Chance(50) ? "argmax" : "argmin";
    stage.body = Chance(30) ? absl::StrCat("abs(", value.text, ")") : value.text;
    stage.largest = static_cast<double>(ValueOf(of.dims[reduced]));
    return stage;
  }

  // A statistic along one dimension of a tensor, and the tensor without it: rows along any axis.
  void AddCentred() {
    Tensor& of = Pick();
    const auto d = static_cast<size_t>(Draw(0, static_cast<int64_t>(of.dims.size()) - 1));
    int64_t elements = 1;
    for (size_t extent : of.dims) elements *= ValueOf(extent);
    if (elements > kMostElements) return;
    const bool sums = Chance(50);
    const std::string share = absl::StrCat(1.0 / static_cast<double>(ValueOf(of.dims[d])));
    Stage statistic, rest;
    std::vector<std::string> indices, others;
    for (size_t i = 0; i < of.dims.size(); ++i) {
      indices.push_back(statistic.axes[AddAxis(statistic, of.dims[i], i == d)].name);
    }
    statistic.combiner = sums ? "sum" : "max";
    statistic.body = Read(of, indices).text + (sums ? " * " + share : "");
    statistic.largest = of.largest;
    for (size_t i = 0; i < of.dims.size(); ++i) {
      const std::string axis = rest.axes[AddAxis(rest, of.dims[i], false)].name;
      if (i != d) others.push_back(axis);
    }
    if (others.empty()) others.push_back("0");
    const Value value = Read(of, NamesOf(rest));
    const double largest = 2 * of.largest;
    Finish(statistic);
    const Value subtracted = Read(tensors_.back(), others);
    rest.body = absl::StrCat("exp(0 - abs(", value.text, " - ", subtracted.text, "))");
    rest.largest = 1;
    if (Chance(50)) {
      rest.body = absl::StrCat(value.text, " - ", subtracted.text);
      rest.largest = largest;
    }
    Finish(rest);
  }

  // Axes of all dimensions of the tensor, and their names.
  static std::vector<std::string> NamesOf(const Stage& stage) {
    std::vector<std::string> names;
    for (const Axis& a : stage.axes) names.push_back(a.name);
    return names;
  }

  Stage Window() {
    Stage stage;
    Tensor& of = Pick();
    const auto d = static_cast<size_t>(Draw(0, static_cast<int64_t>(of.dims.size()) - 1));
    const int64_t width = Draw(2, 3), stride = Chance(15) ? 8 : Draw(1, 2), gap = Draw(1, 2);
    const int64_t reach = (width - 1) * gap, extent = ValueOf(of.dims[d]);
    if (extent <= reach) return stage;
    for (size_t i = 0; i < of.dims.size(); ++i) {
      const size_t places = i != d ? of.dims[i]
                                   : Derived(absl::StrCat("(", Text(of.dims[d]), " - 1 - ", reach,
                                                          ") / ", stride, " + 1"),
                                             (extent - 1 - reach) / stride + 1);
      AddAxis(stage, places, false);
    }
    std::vector<std::string> indices = NamesOf(stage);
    const size_t r = AddAxis(stage, Derived(absl::StrCat(width), width), true);
    indices[d] = absl::StrCat(indices[d], " * ", stride, " + ", stage.axes[r].name, " * ", gap);
    const Value value = Changed(stage, Read(of, indices));
    stage.combiner = Chance(70) ? "sum" : "max";
    stage.body = value.text;
    stage.largest = value.largest * static_cast<double>(width);
    return stage;
  }

  Stage Padded() {
    Stage stage;
    Tensor& of = Pick();
    const auto d = static_cast<size_t>(Draw(0, static_cast<int64_t>(of.dims.size()) - 1));
    for (size_t i = 0; i < of.dims.size(); ++i) {
      AddAxis(stage,
              i != d ? of.dims[i]
                     : Derived(absl::StrCat(Text(of.dims[d]), " + 2"), ValueOf(of.dims[d]) + 2),
              false);
    }
    std::vector<std::string> indices = NamesOf(stage);
    const std::string x = indices[d];
    indices[d] = x + " - 1";
    const Value value = Read(of, indices);
    stage.body = absl::StrCat("select(", x, " >= 1 && ", x, " < ", Text(of.dims[d]), " + 1, ",
                              value.text, ", ", Chance(70) ? "0" : "-1", ")");
    stage.largest = std::max(value.largest, 1.0);
    return stage;
  }

  // Each second element, each twice, two dimensions as one, or what a strided convolution was
  // made of.
  Stage Resampled() {
    Stage stage;
    Tensor& of = Pick();
    const auto d = static_cast<size_t>(Draw(0, static_cast<int64_t>(of.dims.size()) - 1));
    const std::string extent = Text(of.dims[d]);
    const int64_t kind = Draw(0, 3), size = ValueOf(of.dims[d]);
    if (kind == 2 && d + 1 == of.dims.size()) return stage;
    std::vector<std::string> indices;
    std::string guard;
    for (size_t i = 0; i < of.dims.size(); ++i) {
      if (i != d) {
        indices.push_back(stage.axes[AddAxis(stage, of.dims[i], false)].name);
        continue;
      }
      const auto axis = [&](const std::string& text, int64_t value) {
        return stage.axes[AddAxis(stage, Derived(text, value), false)].name;
      };
      if (kind == 0) {
        indices.push_back(axis(absl::StrCat("(", extent, " + 1) / 2"), (size + 1) / 2) + " * 2");
      } else if (kind == 1) {
        indices.push_back(axis(extent + " * 2", size * 2) + " / 2");
      } else if (kind == 2) {
        const std::string next = Text(of.dims[d + 1]);
        const std::string x = axis(absl::StrCat(extent, " * ", next), size * ValueOf(of.dims[++i]));
        indices.push_back(absl::StrCat(x, " / ", next));
        indices.push_back(absl::StrCat(x, " % ", next));
      } else {
        const std::string x = axis(extent + " * 2 + 1", size * 2 + 1);
        const std::string r = stage.axes[AddAxis(stage, Derived("3", 3), true)].name;
        const std::string from = absl::StrCat("(", x, " + 1 - ", r, ")");
        guard = absl::StrCat(from, " >= 0 && ", from, " / 2 < ", extent, " && ", from, " % 2 == 0");
        indices.push_back(from + " / 2");
      }
    }
    Value value = Read(of, indices);
    if (!guard.empty()) {
      value = {absl::StrCat("select(", guard, ", ", value.text, ", 0)"), 3 * value.largest};
      stage.combiner = "sum";
    }
    stage.body = value.text;
    stage.largest = value.largest;
    return stage;
  }

  // Stages that nobody reads are outputs, a few others are, too.
  RandomOperator Written() {
    if (stages_.empty()) {
      Stage copy;
      for (size_t d : tensors_[0].dims) AddAxis(copy, d, false);
      copy.body = Read(copy, tensors_[0]).text;
      Finish(copy);
    }
    std::string body;
    for (const Positions& p : positions_) {
      absl::StrAppend(&body, "  in ", p.name, "[", extents_[p.dim].text, "]: index(",
                      extents_[p.of].text, ")\n");
    }
    for (size_t t = 0; t < tensors_.size(); ++t) {
      const Tensor& tensor = tensors_[t];
      if (t < inputs_) {
        std::vector<std::string> shape;
        for (size_t d : tensor.dims) shape.push_back(extents_[d].text);
        if (tensor.is_read) {
          absl::StrAppend(&body, "  in ", tensor.name, "[", absl::StrJoin(shape, ", "), "]\n");
        }
      } else {
        absl::StrAppend(&body, tensor.is_read && !Chance(15) ? "  " : "  out ",
                        stages_[t - inputs_], "\n");
      }
    }
    RandomOperator made;
    std::vector<std::string> parameters;
    for (const Extent& e : extents_) {
      if (e.text.size() != 1 || e.text[0] < 'a' || !Mentions(body, e.text[0])) continue;
      parameters.push_back(e.text);
      made.shape[e.text] = e.value;
    }
    made.text = absl::StrCat("op random(", absl::StrJoin(parameters, ", "), ") {\n", body, "}\n");
    return made;
  }

  // The name alone, not as a part of another.
  static bool Mentions(const std::string& body, char name) {
    const auto is_word = [&](size_t i) {
      return i < body.size() && (std::isalnum(static_cast<unsigned char>(body[i])) != 0);
    };
    for (size_t i = 0; i < body.size(); ++i) {
      if (body[i] == name && !is_word(i + 1) && (i == 0 || !is_word(i - 1))) return true;
    }
    return false;
  }

  static constexpr size_t kMostTensors = 9;  // beside which two more are made

  std::mt19937_64 rng_;
  size_t inputs_ = 0;
  std::vector<Positions> positions_;
  std::vector<Extent> extents_;
  std::vector<Tensor> tensors_;      // inputs, then one for each stage
  std::vector<std::string> stages_;  // without "out"
};

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_RANDOM_OPERATORS_H_
