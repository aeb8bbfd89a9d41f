// Stages that are computed together (compute_with) and rows that several blocks share: which
// kernels spaces offer for them, what is refused, and what large shapes become.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <optional>
#include <set>
#include <string>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/kernels/kernels.h"
#include "search_space/sketch/search_space.h"
#include "tests/search_space/drawn_points.h"
#include "tests/search_space/products.h"

namespace heddle::search_space::together_test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;

constexpr char kOperators[] = R"(
op two_products(m, n, k) {
  in A[m, k], B[k, n], C[k, n]
  out P[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]
  out Q[i: m, j: n] = sum(r: k) A[i, r] * C[r, j]
}
op gated(m, n, k) {
  in A[m, k], B[k, n], C[k, n]
  P[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]
  Q[i: m, j: n] = sum(r: k) A[i, r] * C[r, j]
  out Y[i: m, j: n] = P[i, j] * Q[i, j]
}
op momentum(n) {
  in X[n], G[n], V[n]
  out W[i: n] = 0.5 * V[i] + G[i]
  out Z[i: n] = X[i] - 0.25 * W[i]
}
op moments(n, c, h) {
  in X[n, c, h]
  S[q: c] = sum(b: n, y: h) X[b, q, y]
  Q[q: c] = sum(b: n, y: h) X[b, q, y] * X[b, q, y]
  out M[q: c] = S[q] / (n*h)
  out V[q: c] = Q[q] / (n*h) - M[q] * M[q]
}
op centred(m, n) {
  in X[m, n]
  S[i: m] = sum(r: n) X[i, r]
  out M[i: m] = S[i] / n
  out Y[i: m, j: n] = X[i, j] - M[i]
}
op quantized_product(m, n, k) {
  in X[m, k], W[k, n]
  P[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  A[i: m] = max(j: n) abs(P[i, j])
  out S[i: m] = max(A[i], 0.5) / 448
  out Q[i: m, j: n] = P[i, j] / S[i]
}
op sum_of_another_row(m, n, k) {
  in X[m, k], W[k, n], Z[m, k]
  P[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  A[i: m] = max(r: k) abs(Z[i, r])
  out S[i: m] = A[i] / 448
  out Q[i: m, j: n] = P[i, j] / S[i]
}
op squares(m, n) {
  in X[m, n]
  S[i: 1] = sum(r: m, q: n) X[r, q] * X[r, q]
  out L[i: 1] = S[i] / 4
}
op recurrent(m, n, k, l) {
  in X[m, k], W[k, n], H[m, l], U[l, n], B[n]
  P[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  Q[i: m, j: n] = sum(r: l) H[i, r] * U[r, j]
  S[i: m, j: n] = P[i, j] + Q[i, j]
  out Y[i: m, j: n] = max(S[i, j] + B[j], 0)
}
op complex_product(m, n, k) {
  in A[m, k], B[m, k], C[k, n], D[k, n]
  P[i: m, j: n] = sum(r: k) A[i, r] * C[r, j]
  Q[i: m, j: n] = sum(r: k) B[i, r] * D[r, j]
  R[i: m, j: n] = sum(r: k) A[i, r] * D[r, j]
  S[i: m, j: n] = sum(r: k) B[i, r] * C[r, j]
  out X[i: m, j: n] = P[i, j] - Q[i, j]
  out Y[i: m, j: n] = R[i, j] + S[i, j]
}
op leap(n) {
  in F[n, n], P[n, n]
  out V[y: n, x: n] = P[y, x] + F[(y + 1) % n, x] - F[y, x]
  out U[y: n, x: n] = F[y, x] + V[y, x]
  out H[a: 1] = sum(y: n, x: n) V[y, x] * V[y, (x + 1) % n] - U[y, x] * U[(y + 1) % n, x]
}
op apart(m, n, k) {
  in A[m, k], B[k, n], C[m, k], D[k, n]
  out P[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]
  out Q[i: m, j: n] = sum(r: k) C[i, r] * D[r, j]
}
)";

std::shared_ptr<const TensorProgram> ProgramOf(const std::string& op, const std::string& shape,
                                               DType type = DType::kFloat32) {
  return std::make_shared<const TensorProgram>(
      *FindOperator(*ParseOperators(kOperators), op)->Instantiate(*ParseShape(shape), type));
}

SearchSpace SpaceOf(const std::string& op, const std::string& shape, DType type = DType::kFloat32) {
  auto space = SearchSpace::Create(ProgramOf(op, shape, type), *FindTarget("h100"));
  EXPECT_TRUE(space.ok()) << space.status();
  return *std::move(space);
}

std::string SketchesOf(const SearchSpace& space) {
  const std::string why(space.Parse("none:").status().message());
  return why.substr(why.rfind("are ") + 4);
}

// A random point whose text begins with one and holds the other.
std::optional<Point> PointOf(const SearchSpace& space, const std::string& prefix,
                             const std::string& part) {
  const auto is_wanted = [&](const std::string& text) {
    return absl::StartsWith(text, prefix) && absl::StrContains(text, part);
  };
  const std::vector<Point> points = DrawnPoints(space, 1, is_wanted);
  return points.empty() ? std::nullopt : std::optional(points[0]);
}

TEST(Together, EveryOperatorHasItsKernels) {
  EXPECT_EQ(SketchesOf(SpaceOf("two_products", "m=64,n=64,k=64")),
            "stream+stream, stream+tile, tile+stream, tile+tile, tile");
  EXPECT_EQ(SketchesOf(SpaceOf("gated", "m=64,n=64,k=64")), "stream, tile");
  EXPECT_EQ(SketchesOf(SpaceOf("momentum", "n=4096")), "stream+stream, stream");
  EXPECT_EQ(SketchesOf(SpaceOf("moments", "n=8,c=16,h=64")),
            "stream+stream, stream+rows, rows+stream, rows+rows, rows");
  EXPECT_EQ(SketchesOf(SpaceOf("apart", "m=64,n=64,k=64")),
            "stream+stream, stream+tile, tile+stream, tile+tile");
}

// Scales of rows that are outputs, and what is scaled by them, in one kernel behind the product.
TEST(Together, OutputsOfRowsAreComputedWithWhatReadsThem) {
  EXPECT_THAT(SketchesOf(SpaceOf("quantized_product", "m=64,n=256,k=64")), EndsWith(", tile+rows"));
  // Other rows' results are read from memory.
  EXPECT_EQ(SketchesOf(SpaceOf("sum_of_another_row", "m=64,n=256,k=64")),
            "stream+stream, stream+tile, rows+stream, rows+tile");
  const auto program = ProgramOf("quantized_product", "m=9,n=64,k=6");
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const TensorValues inputs = IntegerInputs(*program);
  TensorValues expected = inputs;
  EvaluateAll(*program, expected);
  ForDrawnPoints(
      space, 10, BeginsWith("tile+rows:"), inputs,
      [&](const Program& lowered, const TensorValues& got) {
        EXPECT_EQ(lowered.kernels.back().written, std::vector<bool>({false, true, true}));
        ExpectOutputsNear(*program, expected, got, 1e-5);
      });
}

// A sum of an output's neighbours would compute each several times.
TEST(Together, OutputsAreLoadedWhereThatIsLess) {
  const ProgramShape shape = FindKernelsTogether(ProgramOf("leap", "n=64"));
  ASSERT_EQ(shape.kernels.size(), 2);
  const auto reads = [&](const std::string& stage) {
    std::set<std::string> names;
    for (const Expr& load : LoadsIn(shape.stage(shape.schedule.FindStage(stage)).body)) {
      names.insert(load->buffer->name);
    }
    return names;
  };
  EXPECT_EQ(reads("U"), (std::set<std::string>{"F", "P"}));  // with V, in its loops
  EXPECT_EQ(reads("H.acc"), (std::set<std::string>{"U", "V"}));
  EXPECT_THAT(ToString(shape.steps), HasSubstr("compute_again(V, U)"));
}

// Products without a common operand, or over unlike axes, are kernels of their own: one thread per
// result would read both operands of each again. Those that are added up are one, too
// (join_sums.h).
TEST(Together, ReductionsThatShareNothingAreKeptApart) {
  EXPECT_EQ(SketchesOf(SpaceOf("recurrent", "m=64,n=64,k=64,l=32")),
            "stream, apart/tile+tile, join/tile");
  // Of the four products two and two have an operand in common.
  EXPECT_THAT(SketchesOf(SpaceOf("complex_product", "m=64,n=64,k=64")),
              HasSubstr("apart/tile+tile"));
  for (const auto& [op, shape] :
       {std::pair("recurrent", "m=5,n=7,k=9,l=3"), std::pair("complex_product", "m=5,n=6,k=7")}) {
    const SearchSpace space = SpaceOf(op, shape);
    const auto program = ProgramOf(op, shape);
    TensorValues inputs;
    for (const BufferRef& input : program->inputs) {
      std::vector<double>& v = inputs[input->name];
      for (int64_t i = 0; i < input->elements; ++i) v.push_back(static_cast<double>(i * 7 % 9) - 4);
    }
    TensorValues expected = inputs;
    EvaluateAll(*program, expected);
    SCOPED_TRACE(op);
    ForDrawnPoints(space, 20, BeginsWith("apart/"), inputs,
                   [&](const Program& lowered, const TensorValues& values) {
                     EXPECT_GE(lowered.kernels.size(), 2U);
                     for (const BufferRef& output : lowered.outputs) {
                       EXPECT_EQ(values.at(output->name), expected.at(output->name));
                     }
                   });
  }
}

// So are products by slices of one matrix, of which nothing is known together; short windows, which
// one thread adds up, are not.
TEST(Together, ProductsBySlicesAreKeptApart) {
  constexpr const char* kOperators = R"(
    op slices(m, n, k) {
      in X[m, k], W[2 * n, k]
      P[i: m, j: n] = sum(r: k) X[i, r] * W[j, r]
      Q[i: m, j: n] = sum(r: k) X[i, r] * W[j + n, r]
      out Y[i: m, j: n] = max(P[i, j], 0) * Q[i, j]
    })";
  const auto sketches = [&](const char* shape) {
    const auto program = InstantiatedFrom(kOperators, "slices", shape, DType::kFloat32);
    return SketchesOf(*SearchSpace::Create(program, *FindTarget("h100")));
  };
  EXPECT_EQ(sketches("m=64,n=64,k=256"), "stream, stream[P|Q], apart/tile+tile");
  EXPECT_EQ(sketches("m=64,n=64,k=16"), "stream, stream[P|Q]");
}

// In 16 bits products are worth more apart, on units that multiply matrices, than together on
// others: then the kernels of the definition are drawn, too.
TEST(Together, MatricesAreMultipliedApart) {
  EXPECT_THAT(SketchesOf(SpaceOf("gated", "m=64,n=64,k=64", DType::kBFloat16)),
              AllOf(HasSubstr("stream, tile, "), HasSubstr("apart/matrix+warpgroup")));
  for (const auto& [op, sketch] :
       {std::pair("gated", "apart/matrix+warpgroup:"), std::pair("gated", "tile:"),
        std::pair("two_products", "matrix+warpgroup:"), std::pair("two_products", "tile:")}) {
    EXPECT_TRUE(
        PointOf(SpaceOf(op, "m=64,n=64,k=64", DType::kBFloat16), sketch, "split_k=1 ").has_value())
        << op << " " << sketch;
  }
}

// One kernel of few rows would leave most of the device idle: kernels of single reductions share
// out each row.
TEST(Together, FewLongRowsAreSharedOut) {
  constexpr const char* kOperators = R"(
    op distance(m, n) {
      in P[m, n], Q[m, n]
      M[i: m] = max(r: n) P[i, r]
      N[i: m] = max(r: n) Q[i, r]
      out Y[i: m, j: n] = P[i, j] / M[i] - Q[i, j] / N[i]
    })";
  const auto sketches = [&](const char* shape) {
    const auto program = InstantiatedFrom(kOperators, "distance", shape, DType::kFloat32);
    return SketchesOf(*SearchSpace::Create(program, *FindTarget("h100")));
  };
  EXPECT_EQ(sketches("m=8,n=65536"), "stream+stream+stream, rows+rows+stream, rows");
  EXPECT_EQ(sketches("m=512,n=65536"), "stream+stream+stream, rows");
}

// Of too many combinations of plans those are left whose kernels know most.
TEST(Together, ManyKernelsAreAllTiled) {
  const auto layers = std::make_shared<const TensorProgram>(
      *FindOperator(*ParseOperators(R"(
op layers(m, n) {
  in X[m, n], A[n, n], B[n, n], C[n, n], D[n, n], E[n, n]
  P[i: m, j: n] = sum(r: n) X[i, r] * A[r, j]
  Q[i: m, j: n] = sum(r: n) P[i, r] * B[r, j]
  R[i: m, j: n] = sum(r: n) Q[i, r] * C[r, j]
  S[i: m, j: n] = sum(r: n) R[i, r] * D[r, j]
  out T[i: m, j: n] = sum(r: n) S[i, r] * E[r, j]
}
)"),
                    "layers")
           ->Instantiate(*ParseShape("m=256,n=512"), DType::kFloat32));
  const auto space = SearchSpace::Create(layers, *FindTarget("h100"));
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_THAT(SketchesOf(*space),
              AllOf(::testing::StartsWith("stream+stream+stream+stream+stream,"),
                    HasSubstr("tile+tile+tile+tile+tile")));
}

// What is read by several is moved once, and nothing of what one output needs waits in memory.
TEST(Together, OneKernelReadsAndWritesEverything) {
  for (const auto& [op, shape, sketch, part, arguments] :
       {std::tuple("two_products", "m=64,n=64,k=64", "tile:", "split_k=1 ", 5U),
        std::tuple("momentum", "n=4096", "stream:", "", 5U),
        std::tuple("centred", "m=64,n=256", "rows:", "", 3U)}) {
    const SearchSpace space = SpaceOf(op, shape);
    const std::optional<Point> point = PointOf(space, sketch, part);
    ASSERT_TRUE(point.has_value()) << op;
    const auto program = space.Lower(*point);
    ASSERT_TRUE(program.ok()) << program.status();
    ASSERT_EQ(program->kernels.size(), 1U) << space.Print(*point);
    EXPECT_EQ(program->kernels[0].arguments.size(), arguments);
  }
}

// A tile of A in shared memory serves both products, each of which has its own accumulators.
TEST(Together, ProductsShareTheirOperand) {
  const SearchSpace space = SpaceOf("gated", "m=64,n=64,k=64");
  const auto program = space.Lower(*PointOf(space, "tile:", "split_k=1 "));
  ASSERT_TRUE(program.ok()) << program.status();
  std::vector<std::string> names;
  for (const auto& s : program->kernels[0].shared) names.push_back(s.buffer->name);
  EXPECT_THAT(names, AllOf(Contains("A.shared"), Contains("B.shared"), Contains("C.shared")));
  EXPECT_THAT(names, Not(Contains("A.shared2")));
}

// One row of 16 million: its parts fill the device, and a second kernel of one block is left.
TEST(Together, OneRowIsMadeByManyBlocks) {
  const SearchSpace space = SpaceOf("squares", "m=4096,n=4096");
  const auto point = space.Parse("rows: threads=512 rows=1 vector=4 hold=0 unroll=4 split=256");
  ASSERT_TRUE(point.ok()) << point.status();
  const auto program = space.Lower(*point);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(Verify(*program, *FindTarget("h100")).ok());
  ASSERT_EQ(program->kernels.size(), 2U);
  EXPECT_EQ(program->kernels[0].block->extent, 256);
  EXPECT_EQ(program->kernels[0].thread->extent, 512);
  EXPECT_EQ(program->kernels[1].block->extent, 1);
  EXPECT_EQ(program->kernels[1].thread->extent, 256);
  EXPECT_THAT(ToString(program->kernels[0]), HasSubstr(":4 = "));  // 16 bytes at once
}

// A float32 that has grown large takes in nothing of what is added to it.
TEST(Together, NoThreadAddsUpTooMany) {
  const SearchSpace space = SpaceOf("squares", "m=4096,n=4096");
  EXPECT_THAT(SketchesOf(space), Not(HasSubstr("stream+stream")));
  EXPECT_THAT(space.Print(space.Default()), ::testing::StartsWith("rows"));
  const auto check = [&](const std::string& text) {
    const auto point = space.Parse(text);
    EXPECT_TRUE(point.ok()) << point.status();
    return space.Check(*point);
  };
  EXPECT_THAT(check("rows: threads=4 rows=16 vector=4 hold=0 unroll=1 split=1").ToString(),
              HasSubstr("4194304 terms a thread"));
  EXPECT_TRUE(check("rows: threads=16 rows=16 vector=4 hold=0 unroll=1 split=1").ok());
  // Of a billion each thread of the largest block adds up a million.
  const SearchSpace large = SpaceOf("squares", "m=32768,n=32768");
  EXPECT_THAT(large.Print(large.Default()), HasSubstr("threads=1024 "));
  const auto program = large.Lower(large.Default());
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_TRUE(Verify(*program, *FindTarget("h100")).ok());
}

// Earlier points of rows do not name `split`.
TEST(Together, RowsThatAreNotSplitAreWhatTheyWere) {
  const SearchSpace space = SpaceOf("squares", "m=64,n=64");
  const std::string text = "rows: threads=32 rows=1 vector=4 hold=0 unroll=1";
  const auto point = space.Parse(text);
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_EQ(space.Print(*point), text + " split=1");
  EXPECT_EQ(space.Lower(*point)->kernels.size(), 1U);
}

TEST(Together, PartsOfARowAreAllNeeded) {
  const SearchSpace space = SpaceOf("squares", "m=1,n=1009");
  const auto check = [&](const std::string& text) { return space.Check(*space.Parse(text)); };
  EXPECT_TRUE(check("rows: threads=32 rows=1 vector=1 hold=0 unroll=1 split=32").ok());
  EXPECT_THAT(check("rows: threads=64 rows=1 vector=1 hold=0 unroll=1 split=32").message(),
              HasSubstr("not all needed"));
  // 24 of 128 terms each are no other choice.
  const SearchSpace longer = SpaceOf("squares", "m=1,n=3000");
  const auto point = longer.Parse("rows: threads=64 rows=1 vector=1 hold=0 unroll=1 split=32");
  ASSERT_TRUE(point.ok()) << point.status();
  EXPECT_TRUE(longer.Check(*point).ok());
  const auto lowered = longer.Lower(*point);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->kernels[0].block->extent, 24);
}

// rfactor, then the partial results of both in one kernel and their sums in another.
TEST(Together, PartialResultsGoTogether) {
  const auto program = ProgramOf("two_products", "m=4,n=6,k=20");
  const auto steps = ParseSteps(R"(compute_with(Q.acc, P.acc, [i, j])
compute_with(P, Q, [i, j])
split(P.acc, r, [8])
rfactor(P.acc, r.0)
cache_read(P.acc.rf, global, P.acc)
cache_read(Q.acc.rf, global, P.acc)
compute_with(Q.acc.rf.global, P.acc.rf.global, [r.0, i, j])
bind(P.acc.rf.global, r.0, block)
bind(P.acc.rf.global, i, thread)
set_scope(P.acc.rf, local)
compute_at(P.acc.rf, P.acc.rf.global, j)
bind(Q, i, thread)
set_scope(P.acc, local)
compute_at(P.acc, Q, j)
)");
  ASSERT_TRUE(steps.ok()) << steps.status();
  const auto lowered = LowerSteps(program, *steps);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  EXPECT_EQ(lowered->kernels.size(), 2U);
  EXPECT_EQ(lowered->workspaces.size(), 2U);
  TensorValues values;
  for (const BufferRef& input : program->inputs) {
    std::vector<double>& v = values[input->name];
    for (int64_t i = 0; i < input->elements; ++i) v.push_back(static_cast<double>(i * 7 % 9) - 4);
  }
  TensorValues expected = values;
  EvaluateAll(*program, expected);
  ASSERT_TRUE(Interpret(*lowered, values, {.seed = 1}).ok());
  EXPECT_EQ(values.at("P"), expected.at("P"));
  EXPECT_EQ(values.at("Q"), expected.at("Q"));
}

std::string RefusalOf(const std::string& op, const std::string& shape, const std::string& steps) {
  const auto lowered = LowerSteps(ProgramOf(op, shape), *ParseSteps(steps));
  return lowered.ok() ? "" : std::string(lowered.status().message());
}

TEST(Together, RefusalsSayWhy) {
  const auto of = [](const std::string& steps) {
    return RefusalOf("moments", "n=4,c=4,h=8", steps);
  };
  EXPECT_THAT(of("compute_with(M, V, [q])"), HasSubstr("one of M and V reads the other"));
  EXPECT_THAT(of("compute_with(S, M, [q])"), HasSubstr("a reduction is computed with a reduction"));
  EXPECT_THAT(of("compute_with(S, S, [q])"), HasSubstr("cannot be its own leader"));
  EXPECT_THAT(of("compute_with(S, Q, [b])"), HasSubstr("Q has no axis b"));
  EXPECT_THAT(of("compute_with(S, Q, [])"), HasSubstr("not computed over these axes"));
  EXPECT_THAT(of("split(S, y, [2])\ncompute_with(S, Q, [q])"), HasSubstr("before other changes"));
  EXPECT_THAT(of("compute_with(S, Q, [q])\ncompute_inline(Q)"), HasSubstr("Q reduces"));
  EXPECT_THAT(of("compute_inline(M)\ncompute_with(M, V, [q])\nset_scope(V, shared)"),
              HasSubstr("output"));
  EXPECT_THAT(RefusalOf("centred", "m=4,n=8", "compute_inline(Y)"), HasSubstr("nothing reads it"));
}

}  // namespace
}  // namespace heddle::search_space::together_test
