// Operators that hostile callers might send: right ones, whose cost could grow much faster than
// their text.
#ifndef HEDDLE_TESTS_HOSTILE_OPERATORS_H_
#define HEDDLE_TESTS_HOSTILE_OPERATORS_H_

#include <cstdint>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"

namespace heddle::tests {

// `stages` stages, each of which reads the one before twice.
inline std::string DoublingChain(int stages) {
  std::string text = "op doubling(n) {\n  in T0[n]\n";
  for (int s = 1; s <= stages; ++s) {
    absl::StrAppend(&text, s == stages ? "  out T" : "  T", s, "[i: n] = T", s - 1, "[i] * T",
                    s - 1, "[i]\n");
  }
  return text + "}\n";
}

// A sum whose factors are what such a chain computes, each stage of it under a mask or not.
inline std::string DoublingFactors(int64_t stages, bool masked) {
  std::string text = "op factors(n) {\n  in T0[n]\n";
  for (int64_t s = 1; s <= stages; ++s) {
    const std::string square = absl::StrCat("T", s - 1, "[i] * T", s - 1, "[n - 1 - i]");
    absl::StrAppend(&text, "  T", s, "[i: n] = ",
                    masked ? absl::StrCat("select(i < n / 2, ", square, ", 0)") : square, "\n");
  }
  return absl::StrCat(text, "  out S[i: 1] = sum(r: n) T", stages, "[r]\n}\n");
}

struct HostileOperator {
  std::string kind, text;
  std::map<std::string, int64_t> shape;
};

// One of many kinds, the same for the same state of `rng`.
class HostileOperators {
 public:
  explicit HostileOperators(uint64_t seed) : rng_(seed) {}

  HostileOperator Next() {
    static constexpr const char* kKinds[] = {"chain",     "shifted", "indices", "reductions",
                                             "axes",      "huge",    "selects", "wide",
                                             "fibonacci", "outputs", "deep",    "factors"};
    const std::string kind = kKinds[Draw(0, std::size(kKinds) - 1)];
    const int64_t n = Draw(0, 1) == 0 ? Draw(2, 4096) : int64_t{1} << Draw(10, 36);
    HostileOperator made{kind, "", {{"n", n}}};
    if (kind == "chain") made.text = Chain(Draw(2, 64), Draw(2, 9));
    if (kind == "shifted") made.text = Shifted(Draw(2, 63), Draw(2, 9));
    if (kind == "indices") made.text = Indices(Draw(2, 63));
    if (kind == "reductions") made.text = Reductions(Draw(2, 63));
    if (kind == "axes") made.text = Axes(Draw(2, 16), Draw(1, 20));
    if (kind == "huge") made = Huge();
    if (kind == "selects") made.text = Selects(Draw(2, 60), Draw(1, 8));
    if (kind == "wide") made.text = Wide(Draw(2, 30), Draw(10, 250));
    if (kind == "fibonacci") made.text = Fibonacci(Draw(3, 64));
    if (kind == "deep") made.text = Deep(Draw(2, 63), Draw(2, 55));
    if (kind == "factors") made.text = DoublingFactors(Draw(2, 62), Draw(0, 1) == 0);
    if (kind == "outputs") made.text = Outputs(Draw(2, 62));
    return made;
  }

 private:
  int64_t Draw(int64_t least, int64_t most) {
    return least + static_cast<int64_t>(rng_() % static_cast<uint64_t>(most - least + 1));
  }
  static std::string Stage(int64_t s, int64_t stages) {
    return absl::StrCat(s == stages ? "  out T" : "  T", s);
  }
  std::string Join(const std::vector<std::string>& values) {
    static constexpr const char* kSums[] = {" + ", " * ", " - "};
    std::string joined = values[0];
    for (size_t i = 1; i < values.size(); ++i) {
      absl::StrAppend(&joined, kSums[Draw(0, 2)], values[i]);
    }
    return joined;
  }

  std::string Chain(int64_t stages, int64_t reads) {
    std::string text = "op chain(n) {\n  in T0[n]\n";
    for (int64_t s = 1; s <= stages; ++s) {
      const std::vector<std::string> values(static_cast<size_t>(reads),
                                            absl::StrCat("T", s - 1, "[i]"));
      absl::StrAppend(&text, Stage(s, stages), "[i: n] = ", Join(values), "\n");
    }
    return text + "}\n";
  }

  // A window of the stage before, which shrinks.
  std::string Shifted(int64_t stages, int64_t reads) {
    const int64_t lost = stages * (reads - 1);
    std::string text = absl::StrCat("op shifted(n) {\n  in T0[n + ", lost, "]\n");
    for (int64_t s = 1; s <= stages; ++s) {
      std::vector<std::string> values;
      for (int64_t r = 0; r < reads; ++r)
        values.push_back(absl::StrCat("T", s - 1, "[i + ", r, "]"));
      absl::StrAppend(&text, Stage(s, stages), "[i: n + ", lost - s * (reads - 1),
                      "] = ", Join(values), "\n");
    }
    return text + "}\n";
  }

  // Each index mentions its axis several times: inlined, indices double.
  std::string Indices(int64_t stages) {
    static constexpr const char* kIndices[] = {
        "(i / 2 + i / 3 + i % 5) / 3", "min(i / 2 + 1, i)", "(i + i / 7 * 3 + i % 3) / 4",
        "max(i / 2, i / 3) / 2 + min(i / 4, i % 9) / 3", "(i * 5 + i / 3) / 7"};
    std::string text = "op indices(n) {\n  in T0[n]\n";
    for (int64_t s = 1; s <= stages; ++s) {
      absl::StrAppend(&text, Stage(s, stages), "[i: n] = T", s - 1, "[", kIndices[Draw(0, 4)], "]");
      if (Draw(0, 2) == 0) absl::StrAppend(&text, " + T", s - 1, "[", kIndices[Draw(0, 4)], "]");
      text += "\n";
    }
    return text + "}\n";
  }

  std::string Reductions(int64_t stages) {
    static constexpr const char* kCombiners[] = {"sum", "max", "min", "prod"};
    std::string text = "op reductions(n) {\n  in T0[n, n]\n";
    for (int64_t s = 1; s <= stages; ++s) {
      const std::string t = absl::StrCat("T", s - 1);
      absl::StrAppend(&text, Stage(s, stages), "[i: n, j: n] = ");
      switch (Draw(0, 2)) {
        case 0:
          absl::StrAppend(&text, kCombiners[Draw(0, 3)], "(r: n) ", t, "[i, r] * ", t, "[r, j]\n");
          break;
        case 1:
          absl::StrAppend(&text, "exp(", t, "[i, j]) + ", t, "[j, i] * ", t, "[i, j]\n");
          break;
        default:
          absl::StrAppend(&text, kCombiners[Draw(0, 3)], "(r: n, q: n) ", t, "[i, r] * ", t,
                          "[q, j] + ", t, "[r, q]\n");
      }
    }
    return text + "}\n";
  }

  std::string Axes(int64_t axes, int64_t stages) {
    std::string shape, bound, index, reversed;
    const int64_t most = axes < 6 ? 64 : 4;
    for (int64_t a = 0; a < axes; ++a) {
      const int64_t extent = Draw(1, most);
      const char* comma = a == 0 ? "" : ", ";
      absl::StrAppend(&shape, comma, extent);
      absl::StrAppend(&bound, comma, "a", a, ": ", extent);
      absl::StrAppend(&index, comma, "a", a);
      absl::StrAppend(&reversed, comma, extent - 1, " - a", a);
    }
    std::string text = absl::StrCat("op axes(n) {\n  in T0[", shape, "]\n");
    for (int64_t s = 1; s <= stages; ++s) {
      absl::StrAppend(&text, Stage(s, stages), "[", bound, "] = T", s - 1, "[", index, "] + T",
                      s - 1, "[", reversed, "] * n\n");
    }
    return text + "}\n";
  }

  HostileOperator Huge() {
    HostileOperator made{"huge", "", {}};
    const int64_t kind = Draw(0, 2);
    if (kind == 0) {
      made.text =
          "op huge(m, n, k) {\n  in A[m, k], B[k, n]\n"
          "  out C[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]\n}\n";
      for (const char* name : {"m", "n", "k"})
        made.shape[name] = (int64_t{1} << Draw(0, 20)) + Draw(0, 3);
    } else if (kind == 1) {
      made.text = "op huge(n) {\n  in A[n]\n  out B[i: n] = exp(A[i]) + 1\n}\n";
      made.shape["n"] = (int64_t{1} << Draw(30, 44)) - Draw(0, 9);
    } else {
      std::string axes, index;
      const int64_t count = Draw(2, 15);
      for (int64_t a = 0; a < count; ++a) {
        absl::StrAppend(&axes, a == 0 ? "" : ", ", "r", a, ": n");
        absl::StrAppend(&index, a == 0 ? "" : " + ", "r", a);
      }
      made.text = absl::StrCat("op huge(n) {\n  in A[", count, " * n]\n  out B[i: 1] = sum(", axes,
                               ") A[", index, "]\n}\n");
      made.shape["n"] = int64_t{1} << Draw(1, 60 / count);
    }
    return made;
  }

  std::string Selects(int64_t depth, int64_t stages) {
    std::string text = "op selects(n) {\n  in T0[n]\n";
    for (int64_t s = 1; s <= stages; ++s) {
      std::string value = absl::StrCat("T", s - 1, "[i]");
      for (int64_t d = 0; d < depth / 2; ++d) {
        value = absl::StrCat("select(i % ", Draw(2, 50), " < ", Draw(1, 40), " && i > ", d, ", ",
                             Draw(0, 1) == 0 ? value + ", 0)" : "1, " + value + ")");
      }
      absl::StrAppend(&text, Stage(s, stages), "[i: n] = ", value, "\n");
    }
    return text + "}\n";
  }

  // Wide stages that read wide stages.
  std::string Wide(int64_t stages, int64_t reads) {
    const int64_t most = 50000 / 14 / stages;
    reads = reads < most ? reads : most;
    std::string text = "op wide(n) {\n  in T0[n]\n";
    for (int64_t s = 1; s <= stages; ++s) {
      // Sums of products, so that the expression stays shallow.
      std::string value;
      for (int64_t r = 0; r < reads; ++r) {
        const char* between = r == 0 ? "" : r % 16 == 0 ? ") + (" : " * ";
        absl::StrAppend(&value, between, "T", s - 1, "[i]");
        if (r > 0 && r % 640 == 0) break;
      }
      absl::StrAppend(&text, Stage(s, stages), "[i: n] = (", value, ")\n");
    }
    return text + "}\n";
  }

  std::string Fibonacci(int64_t stages) {
    std::string text = "op fibonacci(n) {\n  in T0[n], T1[n]\n";
    for (int64_t s = 2; s <= stages; ++s) {
      absl::StrAppend(&text, Stage(s, stages), "[i: n] = T", s - 1, "[i] + T", s - 2, "[i] * 2\n");
    }
    return text + "}\n";
  }

  // Nested as far as may be, stage by stage.
  std::string Deep(int64_t stages, int64_t depth) {
    std::string text = "op deep(n) {\n  in T0[n]\n";
    for (int64_t s = 1; s <= stages; ++s) {
      std::string value = absl::StrCat("T", s - 1, "[i]");
      for (int64_t d = 0; d < depth; ++d)
        value = absl::StrCat(d % 2 == 0 ? "abs(" : "exp(", value, ")");
      absl::StrAppend(&text, Stage(s, stages), "[i: n] = ", value, "\n");
    }
    return text + "}\n";
  }

  // Every stage is an output, or is read by all that follow.
  std::string Outputs(int64_t stages) {
    std::string text = "op outputs(n) {\n  in T0[n]\n", all = "T0[i]";
    for (int64_t s = 1; s <= stages; ++s) {
      const bool is_output = s == stages || Draw(0, 2) == 0;
      absl::StrAppend(&text, is_output ? "  out T" : "  T", s, "[i: n] = ", all, "\n");
      absl::StrAppend(&all, " + T", s, "[i]");
    }
    return text + "}\n";
  }

  std::mt19937_64 rng_;
};

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_HOSTILE_OPERATORS_H_
