// What the terms of reductions are made of: golden text of many bodies; and that an operand may be
// read in any way, by the interpreter.
#include "search_space/schedule/operands.h"

#include <gtest/gtest.h>

#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/reference.h"
#include "tests/golden.h"

namespace heddle::search_space {
namespace {

std::shared_ptr<const TensorProgram> ProgramOf(const std::string& text, const std::string& shape) {
  const auto parsed = ParseOperators(text);
  EXPECT_TRUE(parsed.ok()) << parsed.status() << text;
  const auto program = parsed->front().Instantiate(*ParseShape(shape), DType::kFloat32);
  EXPECT_TRUE(program.ok()) << program.status();
  return std::make_shared<const TensorProgram>(*program);
}

// What is summed over r, and s where it is there, of tensors over subsets of the axes i, j, r and
// s.
constexpr const char* kBodies[] = {
    "A[i, r] * B[r, j]",
    "A[i, r] + B[r, j]",
    "abs(A[i, r] - B[r, j])",
    "(A[i, r] - B[r, j]) * (A[i, r] - B[r, j])",
    "pow(A[i, r] - B[r, j], 2)",
    "A[i, r] * A[j, r]",
    "A[i, r] * A[i, r]",
    "F[i, j, r, s]",
    "exp(F[i, j, r, s] - V[i])",
    "exp((A[i, r] - V[i]) * 0.125) * B[r, j]",
    "select(r <= i, A[i, r], 0) * B[r, j]",
    "select(r <= i && s <= j, A[i, r] * B[s, j], 0)",
    "A[i, r] * T[j, r, s] * A[i, s]",
    "A[i, r] * V[r] * 2 * B[r, j] * V[j]",
    "A[i, r] + V[r] + B[r, j] + V[j]",
    "F[i, j, r, s] * (A[i, r] - V[r]) * V[s]",
    "select(A[i, r] < B[r, j], A[i, r], B[r, j])",
    "select(A[i, r] < 0, 0, A[i, r]) * B[r, j]",
    "select((i + r) % 2 == 0, V[(i + r) / 2], 0) * B[5 - r, j]",
    "min(A[i, r], V[r]) * max(B[r, j], 0) + V[0]",
    "0.5 * (F[i, j, r, s] + 1)",
    "T[i, r, s] * (B[r, j] + B[s, j])",
};

// With declarations of what the body mentions.
std::string ProgramWith(const std::string& body) {
  constexpr std::pair<const char*, const char*> kTensors[] = {{"A[", "A[n, n]"},
                                                              {"B[", "B[n, n]"},
                                                              {"F[", "F[n, n, n, n]"},
                                                              {"T[", "T[n, n, n]"},
                                                              {"V[", "V[n]"}};
  std::vector<std::string> inputs;
  for (const auto& [read, declared] : kTensors) {
    if (absl::StrContains(body, read)) inputs.emplace_back(declared);
  }
  const bool over_s = absl::StrContains(body, "s]") || absl::StrContains(body, "[s");
  return absl::StrCat("op f(n) {\n  in ", absl::StrJoin(inputs, ", "),
                      "\n  out C[i: n, j: n] = sum(r: n", over_s ? ", s: n) " : ") ", body,
                      "\n}\n");
}

TEST(Operands, AreThoseOfTheGolden) {
  std::string text;
  for (const char* body : kBodies) {
    const Schedule schedule(ProgramOf(ProgramWith(body), "n=6"));
    const ScheduledStage& stage = schedule.stages()[0];
    const Operands operands = OperandsOf(stage);
    absl::StrAppend(&text, body, "\n  is  ", ToString(operands.body), "\n");
    for (const Expr& operand : operands.list) {
      std::vector<std::string> axes;
      for (size_t a : AxesInMemoryOrder(stage, operand)) {
        axes.push_back(a < 2 ? stage.axes[a]->name : stage.reduce_axes[a - 2]->name);
      }
      absl::StrAppend(&text, "  of  ", ToString(operand), " over ", absl::StrJoin(axes, ", "),
                      "\n");
    }
  }
  tests::ExpectGolden("operands/bodies.txt", text);
}

// Where one kind of operand was gathered, the others are still found at their numbers.
TEST(Operands, KeepTheirNumbersWhenOthersAreGathered) {
  for (const char* body : kBodies) {
    Schedule schedule(ProgramOf(ProgramWith(body), "n=6"));
    const std::vector<Expr> before = OperandsOf(schedule.stages()[0]).list;
    for (size_t k = before.size(); k-- > 0;) {
      const Step step = GatherRead{"C.acc", static_cast<int64_t>(k)};
      const absl::Status applied = schedule.Apply(step);
      if (!applied.ok()) {
        EXPECT_EQ(ToString(before[k]), "V[0]") << applied;
        continue;
      }
      const auto reader = static_cast<size_t>(schedule.FindStage("C.acc"));
      const std::vector<Expr> after = OperandsOf(schedule.stages()[reader]).list;
      ASSERT_EQ(after.size(), before.size()) << body;
      EXPECT_EQ(after[k]->buffer->name, absl::StrCat("C.acc.operand", k)) << body;
      for (size_t other = 0; other < k; ++other) {
        EXPECT_TRUE(StructurallyEqual(after[other], before[other])) << body;
      }
    }
  }
}

// Reads X at indices that are affine in what it is reduced over and in its place, with strides of
// either sign, through shared memory in tiles that divide nothing.
struct AffineRead {
  std::string text;
  int64_t length = 1;  // of X
};

AffineRead RandomRead(std::mt19937_64& rng, int64_t n, int64_t k) {
  const auto below = [&](int64_t most) { return static_cast<int64_t>(rng() % most); };
  const int64_t at_r = below(7) - 3, at_i = at_r == 0 ? 2 : below(7) - 3;
  AffineRead read;
  int64_t least = 0;
  for (const auto& [stride, extent] : {std::pair(at_i, n), std::pair(at_r, k)}) {
    read.length += std::abs(stride) * (extent - 1);
    least += std::min<int64_t>(0, stride * (extent - 1));
  }
  read.text = absl::StrCat(-least, at_i < 0 ? " - i*" : " + i*", std::abs(at_i),
                           at_r < 0 ? " - r*" : " + r*", std::abs(at_r));
  return read;
}

TensorValues Computed(const std::shared_ptr<const TensorProgram>& program, TensorValues inputs,
                      const std::string& steps) {
  const auto parsed = ParseSteps(steps);
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  Schedule schedule(program);
  const absl::Status applied = schedule.Apply(*parsed);
  EXPECT_TRUE(applied.ok()) << applied;
  const auto lowered = Lower(schedule);
  EXPECT_TRUE(lowered.ok()) << lowered.status();
  if (!lowered.ok()) return {};
  const absl::Status verified = Verify(*lowered, *FindTarget("h100"));
  EXPECT_TRUE(verified.ok()) << verified << ToString(*lowered);
  const absl::Status ran = Interpret(*lowered, inputs, {.seed = 1});
  EXPECT_TRUE(ran.ok()) << ran << ToString(*lowered);
  return inputs;
}

TEST(GatherRead, IsWhatAHullIsForAffineReads) {
  std::mt19937_64 rng(3);
  for (int trial = 0; trial < 40; ++trial) {
    const int64_t n = 5 + static_cast<int64_t>(rng() % 20), k = 3 + static_cast<int64_t>(rng() % 9);
    const AffineRead read = RandomRead(rng, n, k);
    const auto program = ProgramOf(
        absl::StrCat("op f(n, k) {\n  in X[", read.length, "], W[n, k]\n",
                     "  out Y[i: n, j: 4] = sum(r: k) X[", read.text, "] * (W[i, r] + j)\n}\n"),
        absl::StrCat("n=", n, ",k=", k));
    SCOPED_TRACE(read.text);
    TensorValues values;
    for (const BufferRef& input : program->inputs) {
      for (int64_t e = 0; e < input->elements; ++e) {
        values[input->name].push_back(static_cast<double>(e * 7 % 11) - 5);
      }
    }
    const std::string tiles =
        "split(Y, i, [8])\nbind(Y, i.0, block)\nreorder(Y, [i.0, i.1, j])\nfuse(Y, [i.1, j])\n"
        "bind(Y, i.1@j, thread)\nset_scope(Y.acc, local)\ncompute_at(Y.acc, Y, i.1@j)\n"
        "split(Y.acc, r, [4])\nreorder(Y.acc, [r.0, r.1, i, j])\n";
    const std::string fetched = "compute_at(S, Y.acc, r.0)\nfetch(S, 32, 1)\n";
    const auto named = [&](const std::string& stage) {
      return absl::StrReplaceAll(fetched, {{"S", stage}});
    };
    const TensorValues hull =
        Computed(program, values, tiles + "cache_read(X, shared, Y.acc)\n" + named("X.shared"));
    const TensorValues gather =
        Computed(program, values,
                 "gather_read(Y.acc, 0)\nset_scope(Y.acc.operand0, shared)\n" + tiles +
                     named("Y.acc.operand0"));
    TensorValues expected = values;
    EvaluateAll(*program, expected);
    EXPECT_EQ(hull, gather);
    EXPECT_EQ(gather.at("Y"), expected.at("Y"));
  }
}

}  // namespace
}  // namespace heddle::search_space
