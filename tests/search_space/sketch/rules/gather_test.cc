// Inputs that hold indices: what the notation says of them, that reads through them are proven
// inside, and how the rules read them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/products.h"
#include "tests/support.h"

namespace heddle::search_space {
namespace {

using ::testing::HasSubstr;

std::shared_ptr<const TensorProgram> Gather(const std::string& op, const std::string& shape,
                                            DType dtype = DType::kFloat32) {
  std::ifstream file(tests::SourceDir() + "/bench/suites/gather.op");
  std::stringstream text;
  text << file.rdbuf();
  const auto operators = ParseOperators(text.str());
  EXPECT_TRUE(operators.ok()) << operators.status();
  const auto program = FindOperator(*operators, op)->Instantiate(*ParseShape(shape), dtype);
  EXPECT_TRUE(program.ok()) << program.status();
  return std::make_shared<const TensorProgram>(*program);
}

// Why an operator with this body, of parameters n and v, is refused.
std::string Refusal(const std::string& body) {
  const auto operators = ParseOperators("op t(n, v) {\n" + body + "\n}");
  if (!operators.ok()) return std::string(operators.status().message());
  const auto program = operators->front().Instantiate({{"n", 6}, {"v", 9}}, DType::kFloat32);
  return std::string(program.status().message());
}

TEST(Gather, IndicesAreInputsOfTheirOwnType) {
  const auto program = Gather("embedding", "n=5,v=11,d=3", DType::kFloat16);
  const BufferRef& indices = program->inputs[0];
  EXPECT_EQ(indices->dtype, DType::kInt32);
  EXPECT_EQ(indices->index_extent, 11);
  EXPECT_EQ(indices->bytes(), 20);
  EXPECT_EQ(program->inputs[1]->dtype, DType::kFloat16);
  EXPECT_EQ(program->inputs[1]->index_extent, 0);
  EXPECT_THAT(program->canonical_text, HasSubstr("in I[n]: index(v), E[v, d]\n"));
  EXPECT_EQ(ParseWorkload(program->canonical_text)->hash, program->hash);
}

TEST(Gather, WhatIsReadIsClamped) {
  const auto program = Gather("embedding", "n=4,v=3,d=1");
  TensorValues values = {{"I", {-7, 1, 2, 1000000}}, {"E", {10, 20, 30}}};
  EvaluateAll(*program, values);
  EXPECT_EQ(values.at("Y"), (std::vector<double>{10, 20, 30, 30}));
  const auto lowered = LowerSteps(program, NaiveSteps(*program));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  TensorValues run = {{"I", {-7, 1, 2, 1000000}}, {"E", {10, 20, 30}}};
  const absl::Status ran = Interpret(*lowered, run, {.seed = 1});
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_EQ(run.at("Y"), values.at("Y"));
}

// An index as a number, a comparison with it, an index of an index.
TEST(Gather, AnIndexIsAnIntegerWhereverIntegersAre) {
  const auto operators = ParseOperators(
      "op t(n, v) { in I[n]: index(v), J[v]: index(n), X[n]\n"
      "out Y[i: n] = select(I[i] / 2 == 1, X[J[I[i]]], I[i] + 0.5) }");
  ASSERT_TRUE(operators.ok()) << operators.status();
  const auto program = operators->front().Instantiate({{"n", 4}, {"v", 5}}, DType::kFloat32);
  ASSERT_TRUE(program.ok()) << program.status();
  TensorValues values = {{"I", {0, 2, 3, 4}}, {"J", {0, 0, 3, 1, 0}}, {"X", {100, 101, 102, 103}}};
  EvaluateAll(*program, values);
  EXPECT_EQ(values.at("Y"), (std::vector<double>{0.5, 103, 101, 4.5}));
}

TEST(Gather, ABoundOfTheIndexGuardsARead) {
  EXPECT_EQ(Refusal("in I[n]: index(v), X[n]\n"
                    "out Y[i: n] = select(I[i] < n, X[I[i]], 0)"),
            "");
  EXPECT_THAT(Refusal("in I[n]: index(v), X[n]\nout Y[i: n] = X[I[i]]"),
              HasSubstr("stage 'Y' reads 'X' out of range: index 0, 'I[i]', takes values from 0 "
                        "to 8, but that axis of 'X' has extent 6"));
}

TEST(Gather, RefusalsSayWhatWouldBeRight) {
  EXPECT_THAT(Refusal("in I[n]: int32, X[n]\nout Y[i: n] = X[I[i]]"),
              HasSubstr("or index(extent) for an input that holds indices, found 'int32'"));
  EXPECT_THAT(Refusal("in I[n]: index(n - 6), X[v]\nout Y[i: n] = X[I[i]]"),
              HasSubstr("what input 'I' indexes has extent n - 6 = 0; it must be at least 1"));
  EXPECT_THAT(Refusal("in I[n]: index(2147483649), X[v]\nout Y[i: n] = select(I[i] < v, X[I[i]], "
                      "0)"),
              HasSubstr("do not fit 32 bits"));
  EXPECT_THAT(Refusal("in I[n], X[v]\nout Y[i: n] = X[I[i]]"),
              HasSubstr("'I[i]' is a value, but an index reads only inputs that are declared to "
                        "hold indices: in I[...]: index(extent)"));
  EXPECT_THAT(Refusal("in I[n, n]: index(v), X[v]\nout Y[i: n] = X[I[i]]"),
              HasSubstr("'I' has 2 dimensions, but 1 indices are given"));
  EXPECT_THAT(Refusal("in I[n]: index(v), X[n]\nout Y[I[r]: v] = X[r]"),
              HasSubstr("an output element says what it reads, not where something goes: "
                        "Y[i: n] = sum(r: m) select(I[r] == i, X[r], 0)"));
  EXPECT_THAT(Refusal("in X[n]\nout Y[i: v] += X[i]"),
              HasSubstr("an output element says what it reads"));
  EXPECT_THAT(Refusal("in X[n]\nout Y[i: n] = sort(X[i])"),
              HasSubstr("for a small k repeat max over what is smaller"));
  EXPECT_THAT(Refusal("in X[n, v]\nout Y[i: n] = topk(r: v) X[i, r]"),
              HasSubstr("'topk': an order of elements is not expressible"));
  EXPECT_THAT(Refusal("in L[n]: index(v), X[n, v]\nout Y[i: n] = sum(r: L[0]) X[i, r]"),
              HasSubstr("'L[0]' is known when the kernel runs: give the longest extent"));
  EXPECT_THAT(std::string(ParseShape("n=?").status().message()),
              HasSubstr("kernels are made for one size: tune each that occurs"));
}

// `index` is a word only behind an input's colon.
TEST(Gather, OperatorsWithoutIndicesAreWhatTheyWere) {
  EXPECT_EQ(Refusal("in index[n]\nout Y[i: n] = index[i] * v"), "");
  const auto matmul = FindOperator(BuiltinOperators(), "matmul")
                          ->Instantiate({{"m", 512}, {"n", 512}, {"k", 512}}, DType::kFloat32);
  EXPECT_EQ(matmul->canonical_text,
            "float32 op matmul(m = 512, n = 512, k = 512) {\n  in A[m, k], B[k, n]\n"
            "  out C[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]\n}\n");
}

TEST(Gather, TrafficIsWhatRandomIndicesName) {
  // All of a table of 8 rows is named by 1000 indices, nearly nothing of one of a million.
  const auto small = Gather("embedding", "n=1000,v=8,d=16");
  EXPECT_EQ(small->IoBytes(), 4 * (1000 + 8 * 16 + 1000 * 16));
  const auto large = Gather("embedding", "n=1000,v=1000000,d=16");
  EXPECT_NEAR(static_cast<double>(large->IoBytes()), 4.0 * (1000 + 2 * 1000 * 16), 64);
}

// max(min(I[..], last), 0), without one of the two.
Program WithoutClamp(Program program, Op side) {
  const auto bare = [side](const Expr& e) -> Expr {
    return Rewrite(e, [side](const Expr& node) -> Expr {
      return node->op == side && ReadsIndices(node) ? node->args[0] : nullptr;
    });
  };
  program.kernels[0].body = RewriteStmt(program.kernels[0].body, nullptr, bare);
  return program;
}

TEST(Gather, VerificationRefusesWhatIsNotClamped) {
  const Target target = *FindTarget("h100");
  const auto program = Gather("embedding", "n=5,v=11,d=3");
  const auto lowered = LowerSteps(program, NaiveSteps(*program));
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_TRUE(Verify(*lowered, target).ok()) << Verify(*lowered, target);
  for (const Op side : {Op::kMin, Op::kMax}) {
    EXPECT_THAT(std::string(Verify(WithoutClamp(*lowered, side), target).message()),
                HasSubstr("index 0 is not proven to lie in 0..10"));
  }
}

// The widest load of `tensor` in any of some points of a sketch.
int WidestLoad(const SearchSpace& space, const std::string& sketch, const std::string& tensor) {
  int widest = 0;
  Rng rng(3);
  for (int i = 0; i < 400; ++i) {
    const auto point = space.Sample(rng);
    if (!point.has_value() || space.Print(*point).find(sketch) != 0) continue;
    const auto lowered = space.Lower(*point);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    for (const Kernel& kernel : lowered->kernels) {
      VisitStmts(kernel.body, [&](const StmtNode& s) {
        VisitExprs(s, [&](const Expr& e) {
          Visit(e, [&](const Expr& node) {
            if (node->op != Op::kLoad || node->buffer->name != tensor) return;
            widest = std::max<int>(widest, node->lanes);
          });
        });
      });
    }
  }
  return widest;
}

TEST(Gather, RowsOfATableAreReadInVectors) {
  const Target target = *FindTarget("h100");
  const auto embedding = SearchSpace::Create(Gather("embedding", "n=64,v=100,d=96"), target);
  ASSERT_TRUE(embedding.ok()) << embedding.status();
  EXPECT_EQ(WidestLoad(*embedding, "stream", "E"), 4);
  EXPECT_EQ(WidestLoad(*embedding, "stream", "I"), 1);
  const auto product =
      SearchSpace::Create(Gather("gathered_matmul", "m=64,n=64,k=64,v=100"), target);
  ASSERT_TRUE(product.ok()) << product.status();
  EXPECT_EQ(WidestLoad(*product, "tile", "E"), 4);
}

// The indices say where a copy is from: all its lanes ask the same one.
TEST(Gather, RowsOfATableAreCopiedInVectors) {
  const auto program = Gather("gathered_matmul", "m=64,n=64,k=64,v=100", DType::kBFloat16);
  const SearchSpace space = *SearchSpace::Create(program, *FindTarget("h100"));
  const std::vector<Point> points = DrawnPoints(space, 3, [](const std::string& text) {
    return absl::StartsWith(text, "warpgroup:") && absl::StrContains(text, " pipeline=3");
  });
  ASSERT_FALSE(points.empty());
  for (const Point& point : points) {
    const auto lowered = space.Lower(point);
    ASSERT_TRUE(lowered.ok()) << lowered.status();
    EXPECT_THAT(ToString(*lowered),
                testing::ContainsRegex("async_copy Y.acc.operand0[^=]*:8 = E\\["));
    ExpectComputes(*program, *lowered, 1);
  }
}

// An index is a value, too: a factor or a term of a sum that nothing else is read for.
TEST(Gather, IndicesAreValuesOfReductions) {
  for (const char* text : {
           "op g(n) { in I[n]: index(n) out Y[i: n] = max(r: n) I[r] }",
           "op g(n) { in I[n, n]: index(7), X[n, n] out Y[i: n, j: n] = sum(r: n) I[i, r] * X[r, "
           "j] }",
           "op g(n) { in I[n]: index(n) out Y[i: n] = sum(r: n) select(r <= i, I[r], 0) }",
       }) {
    const auto program = std::make_shared<const TensorProgram>(
        *FindOperator(*ParseOperators(text), "g")->Instantiate({{"n", 65}}, DType::kFloat32));
    for (const char* name : {"h100", "cpu"}) {
      const Target target = *FindTarget(name);
      const auto space = SearchSpace::Create(program, target);
      ASSERT_TRUE(space.ok()) << space.status();
      const auto lowered = space->Lower(space->Default());
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      EXPECT_TRUE(Verify(*lowered, target).ok()) << text;
    }
  }
}

constexpr const char* kReductions = R"(
op moments(m, n, v) {
  in X[v], I[m, n]: index(v)
  S[i: m] = sum(r: n) X[I[i, r]]
  Q[i: m] = sum(r: n) X[I[i, r]] * X[I[i, r]]
  out A[i: m]: float32 = S[i] * 2
  out B[i: m]: float32 = Q[i] - S[i]
}
op greatest(m, n, v) { in X[v], I[m, n]: index(v) out Y[i: m] = max(r: n) X[I[i, r]] }
op of_own(m, n, v) {
  in X[m, v], I[m, n]: index(v)
  M[i: m] = max(r: n) X[i, I[i, r]]
  out Y[i: m, j: n] = X[i, I[i, j]] - M[i]
}
op two_tables(m, n, v) {
  in X[v], Y[v, 2], I[m, n]: index(v), J[m, n]: index(v)
  out Z[i: m]: float32 = sum(r: n) X[I[i, r]] * Y[J[i, r], 1]
}
op planes(m, n, v) { in X[v], I[m, n, n]: index(v) out Y[i: m]: float32 = sum(q: n, r: n) X[I[i, q, r]] }
op twice(m, n, v) {
  in X[v], J[v]: index(v), I[m, n]: index(v)
  out Y[i: m]: float32 = sum(r: n) X[J[I[i, r]]]
}
op codes(m, n, v) {
  in X[n], C[v], W[m, n]: index(v), A[m, n / 4]
  out Y[i: m]: float32 = sum(r: n) X[r] * C[W[i, r]] * A[i, r / 4]
}
op bags(m, n, v) { in X[v, 16], I[m, n]: index(v) out Y[i: m, c: 16] = sum(r: n) X[I[i, r], c] }
op columns(m, n, v) { in X[v], I[n, m]: index(v) out Y[i: m] = sum(r: n) X[I[r, i]] }
op window(m, n, v) { in X[v], I[m + n]: index(v) out Y[i: m] = sum(r: n) X[I[i + r]] }
)";

std::set<std::string> SketchesOf(const std::string& op, const std::string& shape) {
  const auto space = SearchSpace::Create(InstantiatedFrom(kReductions, op, shape, DType::kFloat32),
                                         *FindTarget("h100"));
  EXPECT_TRUE(space.ok()) << space.status();
  std::set<std::string> names;
  Rng rng(1);
  for (int i = 0; i < 50; ++i) {
    const std::string text = space->Print(*space->Sample(rng));
    names.insert(text.substr(0, text.find(':')));
  }
  return names;
}

// What indices name lies anywhere: they are what is read along the rows.
TEST(Gather, ReductionsReadTheirIndicesAlongRows) {
  for (const char* op :
       {"moments", "greatest", "of_own", "two_tables", "planes", "twice", "codes"}) {
    SCOPED_TRACE(op);
    EXPECT_THAT(SketchesOf(op, "m=4096,n=64,v=1000"),
                testing::Contains(testing::StartsWith("rows")));
    for (const DType type : {DType::kFloat32, DType::kFloat16}) {
      ExpectPointsCompute(InstantiatedFrom(kReductions, op, "m=35,n=28,v=19", type),
                          *FindTarget("h100"), " rows");
    }
  }
}

// Not where rows of a table lie side by side, or results share their indices.
TEST(Gather, OtherReductionsAreNoRows) {
  for (const char* op : {"bags", "columns", "window"}) {
    EXPECT_THAT(SketchesOf(op, "m=4096,n=64,v=1000"),
                testing::Not(testing::Contains(testing::StartsWith("rows"))))
        << op;
  }
}

}  // namespace
}  // namespace heddle::search_space
