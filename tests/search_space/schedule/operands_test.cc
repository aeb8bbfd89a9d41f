// What the terms of reductions are made of: golden text of many bodies; and that an operand may be
// read in any way, by the interpreter.
#include "search_space/schedule/analysis/operands.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/lower/lower.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
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

// Of three factors those two are one operand that have fewest elements together.
TEST(Operands, AreGroupedWhereTheyAreFewest) {
  const char* text =
      "op f(n, g, p) {\n  in M[n, g], X[n, p]\n"
      "  out H[j: g, r: p, q: p] = sum(i: n) M[i, j] * X[i, r] * X[i, q]\n}\n";
  const auto operands = [&](const std::string& shape) {
    std::vector<std::string> list;
    const Schedule schedule(ProgramOf(text, shape));
    for (const Expr& e : OperandsOf(schedule.stages()[0]).list) list.push_back(ToString(e));
    return absl::StrJoin(list, "; ");
  };
  EXPECT_EQ(operands("n=40,g=30,p=3"), "M[i, j]; X[i, r] * X[i, q]");
  EXPECT_EQ(operands("n=40,g=3,p=30"), "M[i, j] * X[i, r]; X[i, q]");
}

// Each level is grouped once: twice would be 2^25 times for the innermost one.
TEST(Operands, OfNestedProductsAreFoundInOneWalk) {
  std::string body = "(A[i, r] - B[r, j])";
  for (int level = 0; level < 25; ++level) {
    body = absl::StrCat("(A[i, r] - B[r, j]) * (1.25 + ", body, ")");
  }
  const Schedule schedule(ProgramOf(ProgramWith(body), "n=6"));
  EXPECT_EQ(OperandsOf(schedule.stages()[0]).list.size(), 2);
}

// Where one kind of operand was gathered, the others are still found at their numbers.
TEST(Operands, KeepTheirNumbersWhenOthersAreGathered) {
  for (const char* body : kBodies) {
    Schedule schedule(ProgramOf(ProgramWith(body), "n=6"));
    const std::vector<Expr> before = OperandsOf(schedule.stages()[0]).list;
    for (size_t k = before.size(); k-- > 0;) {
      const Step step = GatherRead{"C.acc", static_cast<int64_t>(k)};
      const absl::Status applied = Apply(step, schedule);
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
  const absl::Status applied = Apply(*parsed, schedule);
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
                     "  out Y[i: n, j: 4] = sum(r: k) max(X[", read.text, "], W[i, r] + j)\n}\n"),
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

// Reductions that nobody wrote a rule for.
struct Reduction {
  const char* name;
  const char* text;
  const char* shape;
  const char* sketches;
};
constexpr Reduction kReductions[] = {
    {"one_tensor_at_two_places",
     "op f(m, n) {\n in X[m, n]\n out G[i: n, j: n] = sum(r: m) X[r, i] * X[r, j]\n}\n",
     "m=37,n=21", "stream, tile"},
    {"an_operand_read_twice",
     "op f(m, n, k) {\n in A[m, k], B[n, k]\n"
     " out D[i: m, j: n] = sum(r: k) (A[i, r] - B[j, r]) * (A[i, r] - B[j, r])\n}\n",
     "m=13,n=22,k=19", "stream, tile"},
    {"a_stage_at_two_places",
     "op f(m, k) {\n in A[m, k]\n"
     " P[i: m, r: k + 2] = select(r >= 1 && r < k + 1, A[i, r - 1], 0)\n"
     " out C[i: m, j: m] = sum(r: k) P[i, r] * P[j, r + 2] + P[i, r + 1] * A[j, r]\n}\n",
     "m=17,k=21", "stream, tile, join/tile"},
    {"divided_indices",
     "op f(n, ci, l, co, k, s) {\n in X[n, ci, l], W[ci, co, k]\n"
     " out Y[b: n, o: co, x: (l - 1)*s + k] = sum(c: ci, r: k) select((x - r) / s >= 0 && "
     "(x - r) / s < l && (x - r) % s == 0, X[b, c, (x - r) / s], 0) * W[c, o, r]\n}\n",
     "n=2,ci=5,l=7,co=6,k=4,s=3", "stream, tile, phases/tile+stream"},
    {"negative_strides",
     "op f(n, k) {\n in X[n + 2*k], W[k, 4]\n"
     " out Y[i: n, j: 4] = sum(r: k) X[i - 2*r + 2*k - 2] * W[k - 1 - r, j]\n}\n",
     "n=43,k=7", "stream, tile"},
    {"strides_with_gaps",
     "op f(n, k) {\n in X[3*n + 2*k], W[k, 4]\n"
     " out Y[i: n, j: 4] = sum(r: k) X[3*i + 2*r] * W[r, j]\n}\n",
     "n=33,k=10", "stream, tile"},
    {"computed_operands",
     "op f(m, n, k) {\n in A[m, k], B[k, n], S[k], T[m]\n"
     " out C[i: m, j: n] = sum(r: k) exp(0.125 * A[i, r] - T[i]) * S[r] * B[r, j]\n}\n",
     "m=13,n=18,k=11", "stream, tile"},
    {"grouped_factors",
     "op f(b, o, m, n) {\n in X[b, m], W[o, m, n], Z[b, n]\n"
     " out Y[q: b, p: o] = sum(i: m, j: n) X[q, i] * W[p, i, j] * Z[q, j]\n}\n",
     "b=9,o=6,m=5,n=7", "stream, tile"},
    {"another_combiner",
     "op f(m, n, k) {\n in A[m, k], U[m, k], B[k, n], M[n], N[m]\n"
     " out C[i: m, j: n] = max(r: k) select(U[i, r] < 0, 0, A[i, r]) * B[r, j] + M[j] - N[i / 2]"
     "\n}\n",
     "m=9,n=19,k=13", "stream, tile"},
    {"columns",
     "op f(m, n) {\n in X[m, n], M[n]\n out Y[j: n] = sum(r: m) exp(X[r, j] - M[j])\n}\n",
     "m=67,n=13", "rows, tile"},
    {"windows",
     "op f(n, l, w) {\n in X[n, l]\n out Y[b: n, t: l - w + 1] = max(r: w) X[b, t + r]\n}\n",
     "n=5,l=67,w=9", "stream, tile"},
    {"an_index_as_a_number",
     "op f(m, n) {\n in X[m, n], W[m, n]: index(16)\n"
     " out C[i: m, j: n] = sum(r: n) select(X[i, r] <= X[i, j], W[i, r], 0)\n}\n",
     "m=7,n=37", "stream, tile"},
    // Their rule is better than tiles in which nothing is used twice.
    {"rows", "op f(m, n) {\n in X[m, n]\n out Y[i: m] = sum(r: n) X[i, r]\n}\n", "m=9,n=67",
     "stream, rows"},
};

SearchSpace SpaceOf(const std::shared_ptr<const TensorProgram>& program) {
  auto space = SearchSpace::Create(program, *FindTarget("h100"));
  EXPECT_TRUE(space.ok()) << space.status();
  return *std::move(space);
}

class ReductionTest : public testing::TestWithParam<Reduction> {};

TEST_P(ReductionTest, HasTheSketchesThatSuitIt) {
  const SearchSpace space = SpaceOf(ProgramOf(GetParam().text, GetParam().shape));
  std::vector<std::string> names;
  for (int s = 0; s < space.sketch_count(); ++s) {
    Point point{.sketch = static_cast<uint8_t>(s)};
    for (Rng rng(1); point.choices.empty();) {
      const auto drawn = space.Sample(rng);
      ASSERT_TRUE(drawn.has_value());
      if (drawn->sketch == s) point = *drawn;
    }
    const std::string text = space.Print(point);
    names.push_back(text.substr(0, text.find(':')));
  }
  EXPECT_EQ(absl::StrJoin(names, ", "), GetParam().sketches);
}

TEST_P(ReductionTest, PointsComputeTheDefinition) {
  constexpr int kPoints = 12;
  const auto program = ProgramOf(GetParam().text, GetParam().shape);
  const SearchSpace space = SpaceOf(program);
  TensorValues values;
  for (const BufferRef& input : program->inputs) {
    for (int64_t e = 0; e < input->elements; ++e) {
      values[input->name].push_back(static_cast<double>(e * 7 % 11) - 5);
    }
  }
  TensorValues expected = values;
  EvaluateAll(*program, expected);
  const std::vector<double>& want = expected.at(program->stages.back().name());
  Rng rng(5);
  for (int i = 0; i < kPoints; ++i) {
    const auto point = space.Sample(rng);
    ASSERT_TRUE(point.has_value());
    SCOPED_TRACE(space.Print(*point));
    const auto steps = space.Steps(*point);
    ASSERT_TRUE(steps.ok()) << steps.status();
    const TensorValues computed = Computed(program, values, ToString(*steps));
    const std::vector<double>& got = computed.at(program->stages.back().name());
    for (size_t e = 0; e < want.size(); ++e) {
      ASSERT_NEAR(got[e], want[e], 1e-5 * (1 + std::abs(want[e]))) << "at " << e;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, ReductionTest, testing::ValuesIn(kReductions),
                         [](const auto& info) { return info.param.name; });

constexpr char kComputed[] =
    "op f(n) {\n in A[n, n], B[n, n]\n"
    " out C[i: n, j: n] = sum(r: n) exp(A[i, r]) * B[r, j]\n}\n";
constexpr char kTile[] = "tile: i.warps=2 i.lanes=4 i.tile=4 j.lanes=8 j.tile=4";

// What was a point before operands could be gathered is the same point: a hull.
TEST(Gathered, IsTheSecondChoiceWhereAHullWillDo) {
  const SearchSpace space = SpaceOf(ProgramOf(kComputed, "n=64"));
  const auto hull = space.Parse(kTile);
  ASSERT_TRUE(hull.ok()) << hull.status();
  EXPECT_NE(space.Print(*hull).find(" A.align=1 A.as=0 B.fetch=1 "), std::string::npos);
  EXPECT_EQ(ToString(*space.Steps(*hull)).find("gather_read"), std::string::npos);
  const auto gathered = space.Parse(absl::StrCat(kTile, " A.as=1"));
  ASSERT_TRUE(gathered.ok()) << gathered.status();
  EXPECT_EQ(ToString(*space.Steps(*gathered)).find("gather_read(C.acc, 0)"), 0U);
}

// What asynchronous copies cannot do is stored where they begin, while the other operand's run.
TEST(Gathered, WhatIsComputedIsStoredBesideAsynchronousCopies) {
  const auto program = ProgramOf(kComputed, "n=64");
  const SearchSpace space = SpaceOf(program);
  TensorValues values;
  for (const char* input : {"A", "B"}) {
    for (int e = 0; e < 64 * 64; ++e) values[input].push_back((e * 7 % 11 - 5) / 8.0);
  }
  TensorValues expected = values;
  EvaluateAll(*program, expected);
  for (const char* holes : {" A.as=1 pipeline=2", " A.as=1 pipeline=3"}) {
    const auto point = space.Parse(absl::StrCat(kTile, holes));
    ASSERT_TRUE(point.ok()) << point.status();
    ASSERT_TRUE(space.Check(*point).ok()) << space.Check(*point);
    const std::string steps = ToString(*space.Steps(*point));
    EXPECT_NE(steps.find("async_copy"), std::string::npos);
    const std::vector<double> got = Computed(program, values, steps).at("C");
    for (size_t e = 0; e < got.size(); ++e) {
      ASSERT_NEAR(got[e], expected.at("C")[e], 1e-4) << "at " << e;
    }
  }
}

}  // namespace
}  // namespace heddle::search_space
