// Reductions in a chain: which programs are one, what their kernel looks like, and that what is
// drawn keeps its limits.
#include "search_space/sketch/patterns/chain.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <sstream>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/stmt.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"
#include "tests/support.h"

namespace heddle::search_space::chain_test {
namespace {

// A softmax between two products, and programs that lack something of a chain.
constexpr char kOperators[] = R"(
op attention(b, s, t, d) {
  in Q[b, s, d], K[b, t, d], V[b, t, d]
  T[z: b, i: s, j: t] = sum(r: d) Q[z, i, r] * K[z, j, r]
  M[z: b, i: s] = max(r: t) T[z, i, r]
  E[z: b, i: s, j: t] = exp(T[z, i, j] - M[z, i])
  L[z: b, i: s] = sum(r: t) E[z, i, r]
  O[z: b, i: s, x: d] = sum(r: t) E[z, i, r] * V[z, r, x]
  out Y[z: b, i: s, x: d] = O[z, i, x] / L[z, i]
}
op two_layers(m, n, k) {
  in X[m, k], W[k, n], V[n, k]
  T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  out Y[i: m, q: k] = sum(r: n) max(T[i, r], 0) * V[r, q]
}
op normalised(m, n, k) {
  in X[m, k], W[n, k]
  S[i: m] = sum(r: k) X[i, r] * X[i, r]
  out Y[i: m, j: n] = sum(r: k) (X[i, r] - rsqrt(S[i] / k + 0.00001)) * W[j, r]
}
op softmax(m, n) {
  in X[m, n]
  M[i: m] = max(r: n) X[i, r]
  S[i: m] = sum(r: n) exp(X[i, r] - M[i])
  out Y[i: m, j: n] = exp(X[i, j] - M[i]) / S[i]
}
op transposed_between(m, n) {
  in X[m, n], W[n, m], V[m, n]
  T[i: m, j: m] = sum(r: n) X[i, r] * W[r, j]
  out Y[i: m, q: n] = sum(r: m) (T[i, r] + T[r, i]) * V[r, q]
}
op gated(m, n, k) {
  in A[m, k], B[k, n], C[k, n]
  P[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]
  Q[i: m, j: n] = sum(r: k) A[i, r] * C[r, j]
  out Y[i: m, j: n] = P[i, j] * Q[i, j]
}
op rows_last(p, j, m, a, n) {
  in X[a, j, m], U[a, p], V[j, n]
  S[q: p, y: j, x: m] = sum(i: a) U[i, q] * X[i, y, x]
  out Y[q: p, z: n, x: m] = sum(y: j) V[y, z] * S[q, y, x]
}
op both(m, n, k) {
  in X[m, k], W[k, n], V[n, k]
  out T[i: m, j: n] = sum(r: k) X[i, r] * W[r, j]
  out Y[i: m, q: k] = sum(r: n) T[i, r] * V[r, q]
}
)";

std::shared_ptr<const TensorProgram> ProgramOf(const std::string& op, const std::string& shape) {
  const std::vector<Operator> operators = *ParseOperators(kOperators);
  return std::make_shared<const TensorProgram>(
      *FindOperator(operators, op)->Instantiate(*ParseShape(shape), DType::kFloat32));
}

// "T[row 1] M -> Y[row 1]": what is kept, the axis that a block has several rows of, the root.
std::string ChainOf(const std::string& op, const std::string& shape) {
  const ProgramShape whole = FuseKernels(ProgramOf(op, shape), {});
  if (whole.kernels.empty()) return "none";
  const auto chain = FindChain(whole, whole.kernels[0], *FindTarget("h100"));
  if (!chain.has_value()) return "none";
  std::string out;
  const auto row = [](const std::optional<size_t>& r) {
    return r.has_value() ? absl::StrCat("[row ", *r, "]") : "";
  };
  for (const ChainLink& link : chain->links) {
    absl::StrAppend(&out, link.result.name(), link.tiled.has_value() ? row(link.row) : "", " ");
  }
  return absl::StrCat(out, "-> ", chain->root.root.name(), row(chain->row));
}

TEST(ChainTest, IsFoundByWhatReadsWhat) {
  EXPECT_EQ(ChainOf("attention", "b=2,s=40,t=30,d=8"), "T[row 1] M L -> Y[row 1]");
  EXPECT_EQ(ChainOf("two_layers", "m=30,n=20,k=10"), "T[row 0] -> Y[row 0]");
  EXPECT_EQ(ChainOf("normalised", "m=30,n=20,k=16"), "S -> Y[row 0]");
  // No reduction is last.
  EXPECT_EQ(ChainOf("softmax", "m=30,n=20"), "none");
  // Nobody reads along a row only.
  EXPECT_EQ(ChainOf("transposed_between", "m=30,n=20"), "none");
  // Neither reads the other.
  EXPECT_EQ(ChainOf("gated", "m=30,n=20,k=10"), "none");
  // What is an output has to be written.
  EXPECT_EQ(ChainOf("both", "m=30,n=20,k=10"), "none");
}

constexpr char kAttention[] =
    "chain: Y.z.vthread=1 Y.z.warps=1 Y.z.lanes=1 Y.z.tile=1 Y.i.vthread=1 Y.i.warps=1 Y.i.lanes=4 "
    "Y.i.tile=2 Y.x.vthread=1 Y.x.warps=1 Y.x.lanes=8 Y.x.tile=1 Y.r.inner=8 Y.T.fetch=1 Y.T.pad=4 "
    "Y.V.fetch=4 Y.pipeline=2 Y.unroll=1 T.lanes=8 T.tile=4 T.pad=4 T.r.inner=8 T.one_tile=1 "
    "T.Q.fetch=4 T.K.fetch=4 T.pipeline=2 T.unroll=1";

TEST(ChainTest, IsOneKernel) {
  const auto space =
      *SearchSpace::Create(ProgramOf("attention", "b=2,s=16,t=64,d=8"), *FindTarget("h100"));
  const auto point = space.Parse(kAttention);
  ASSERT_TRUE(point.ok()) << point.status();
  const auto program = space.Lower(*point);
  ASSERT_TRUE(program.ok()) << program.status();
  EXPECT_EQ(program->kernels.size(), 1);
  tests::ExpectGolden("loops/chain.txt",
                      absl::StrCat(space.Print(*point), "\n\n", ToString(*space.Steps(*point)),
                                   "\n", ToString(*program)));
}

// What is read of a result in shared memory is computed as a tile of it is filled: at once, through
// registers, or among asynchronous copies of other operands, by wide accesses of some threads.
TEST(ChainTest, ResultsAreReadInEveryKindOfFetch) {
  const Target target = *FindTarget("h100");
  const auto space = *SearchSpace::Create(ProgramOf("attention", "b=2,s=16,t=64,d=8"), target);
  for (const char* kind : {"Y.pipeline=0", "Y.pipeline=1", "Y.pipeline=3"}) {
    std::string text = kAttention;
    for (const auto& [from, to] : {std::pair("Y.pipeline=2", kind), {"T.fetch=1", "T.fetch=4"}}) {
      text.replace(text.find(from), std::string(from).size(), to);
    }
    const auto program = space.Lower(*space.Parse(text));
    ASSERT_TRUE(program.ok()) << program.status();
    const absl::Status verified = Verify(*program, target);
    EXPECT_TRUE(verified.ok()) << verified << ToString(*program);
  }
}

// Lanes of a warp lie along rows and columns of a product that others read, too, and alternate in
// the lowest bits of the thread's index; there cannot be more along the rows than rows.
TEST(ChainTest, WarpsOfResultsAreSquare) {
  const Target target = *FindTarget("h100");
  const auto space = *SearchSpace::Create(ProgramOf("attention", "b=2,s=16,t=64,d=8"), target);
  const auto with_rows = [&](int64_t rows) {
    std::string text = kAttention;
    const std::string before = "T.tile=4 ";
    text.insert(text.find(before) + before.size(), absl::StrCat("T.warp_rows=", rows, " "));
    return space.Parse(text);
  };
  const auto square = with_rows(4);
  ASSERT_TRUE(square.ok()) << square.status();
  const std::string steps = ToString(*space.Steps(*square));
  for (const char* step : {"split(T, i, [1, 2, 2, 2])", "split(T, j, [1, 4, 2, 4])",
                           "fuse(T, [i.1, j.1, i.2, j.2, i.3, j.3])"}) {
    EXPECT_THAT(steps, testing::HasSubstr(step));
  }
  const auto program = space.Lower(*square);
  ASSERT_TRUE(program.ok()) << program.status();
  const absl::Status verified = Verify(*program, target);
  EXPECT_TRUE(verified.ok()) << verified << ToString(*program);
  const auto more = with_rows(8);
  EXPECT_THAT(space.Lower(*more).status().message(),
              testing::HasSubstr("8 rows of a warp, at most 4"));
}

// How many threads a block has depends on its first product, too, so that the last one is sliced
// where its own tile wants fewer, however many blocks there are.
TEST(ChainTest, LastProductsAreSlicedOnLargeGrids) {
  const auto space =
      *SearchSpace::Create(ProgramOf("attention", "b=64,s=1024,t=64,d=8"), *FindTarget("h100"));
  std::string text = kAttention;
  const std::string before = "Y.unroll=1 T.lanes=8 ";
  text.replace(text.find(before), before.size(), "Y.unroll=1 Y.slice_k=2 T.lanes=16 ");
  const auto point = space.Parse(text);
  ASSERT_TRUE(point.ok()) << point.status();
  const absl::Status checked = space.Check(*point);
  EXPECT_TRUE(checked.ok()) << checked;
}

// Registers that run ahead would read tiles that a mask leaves out. Blocks that run together have
// as much to do as one another: they are of one place along the axis that the mask compares.
TEST(ChainTest, MasksAreSkippedWhereNothingRunsAhead) {
  const auto program = std::make_shared<const TensorProgram>(
      *ParseOperators(R"(op masked(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  out Y[z: b, i: s, x: d] = sum(r: s) select(r <= i, exp(T[z, i, r]), 0) * V[z, r, x]
})")
           ->at(0)
           .Instantiate(*ParseShape("b=2,s=64,d=8"), DType::kFloat32));
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto steps = [&](const std::string& text) {
    return ToString(*space.Steps(*space.Parse(text)));
  };
  // Conditions on the block that are the same for all its threads.
  const auto conditions = [&](const std::string& text) {
    const auto lowered = space.Lower(*space.Parse(text));
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    const Kernel& kernel = lowered->kernels.at(0);
    int uniform = 0;
    VisitStmts(kernel.body, [&](const StmtNode& s) {
      if (s.kind != StmtNode::Kind::kIf) return;
      const bool of_block = MentionsAny(s.condition, {kernel.block.get()});
      uniform += of_block && !MentionsAny(s.condition, {kernel.thread.get()}) ? 1 : 0;
    });
    return uniform;
  };
  const std::string plain = kAttention, skipping = plain + " skip_masked=1";
  EXPECT_EQ(conditions(plain), 0);
  EXPECT_GE(conditions(skipping), 4) << "fetches and products, of both sums";
  EXPECT_THAT(steps(plain), testing::HasSubstr("fuse(Y, [z.0, i.0, x.0])"));
  EXPECT_THAT(steps(skipping), testing::HasSubstr("fuse(Y, [i.0, z.0, x.0])"));
  std::string ahead = skipping;
  ahead.replace(ahead.find("Y.unroll=1"), 10, "Y.unroll=1 Y.prefetch=1");
  EXPECT_EQ(std::string(space.Check(*space.Parse(ahead)).message()),
            "Y: registers run ahead of tiles that may be left out");
}

// Of a sum over what a mask leaves, such as that of a softmax's weights, threads leave out the
// rounds of their loop in which no row of the block has a term.
TEST(ChainTest, MaskedStatisticsAreSkippedToo) {
  const auto program = std::make_shared<const TensorProgram>(
      *ParseOperators(R"(op masked(b, s, d) {
  in Q[b, s, d], K[b, s, d], V[b, s, d]
  T[z: b, i: s, j: s] = sum(r: d) Q[z, i, r] * K[z, j, r]
  L[z: b, i: s] = sum(r: s) select(r <= i, exp(T[z, i, r]), 0)
  O[z: b, i: s, x: d] = sum(r: s) select(r <= i, exp(T[z, i, r]), 0) * V[z, r, x]
  out Y[z: b, i: s, x: d] = O[z, i, x] / L[z, i]
})")
           ->at(0)
           .Instantiate(*ParseShape("b=2,s=64,d=8"), DType::kFloat32));
  const auto space = *SearchSpace::Create(program, *FindTarget("h100"));
  const auto loops = [&](const std::string& text) {
    const auto point = space.Parse(text);
    EXPECT_TRUE(point.ok()) << point.status();
    const auto lowered = space.Lower(*point);
    EXPECT_TRUE(lowered.ok()) << lowered.status();
    const absl::Status verified = Verify(*lowered, *FindTarget("h100"));
    EXPECT_TRUE(verified.ok()) << verified;
    return ToString(*lowered);
  };
  const std::string plain = kAttention, skipping = plain + " skip_masked=1";
  // Threads share the 64 terms of a row in rounds of 16; a block has 8 rows.
  const std::string guarded = "if r.0 * 2 < i.0@z.0@x.0 / 2 + 1\n      alloc local float32 T.local";
  EXPECT_THAT(loops(plain), testing::Not(testing::HasSubstr(guarded)));
  EXPECT_THAT(loops(skipping), testing::HasSubstr(guarded)) << loops(skipping);
  // The last rows first: other blocks compute the same.
  const auto results = [&](const std::string& text) {
    TensorValues values;
    for (const BufferRef& input : program->inputs) {
      for (int64_t i = 0; i < input->elements; ++i) {
        values[input->name].push_back(static_cast<double>((i * 7 + i / 11) % 9) / 8 - 0.5);
      }
    }
    const absl::Status ran = Interpret(*space.Lower(*space.Parse(text)), values, {});
    EXPECT_TRUE(ran.ok()) << ran;
    return values["Y"];
  };
  const std::string reversed = skipping + " last_first=1";
  EXPECT_NE(loops(reversed), loops(skipping));
  EXPECT_EQ(results(reversed), results(skipping));
  EXPECT_FALSE(space.Check(*space.Parse(plain + " skip_masked=0 last_first=1")).ok());
}

// What does not fit is refused for the limit that it breaks.
TEST(ChainTest, RefusalsNameTheLimit) {
  const auto refusal = [](const std::string& shape, const std::string& changed,
                          const std::string& to) {
    const auto space = *SearchSpace::Create(ProgramOf("attention", shape), *FindTarget("h100"));
    std::string text = kAttention;
    text.replace(text.find(changed), changed.size(), to);
    return std::string(space.Check(*space.Parse(text)).message());
  };
  EXPECT_EQ(refusal("b=2,s=16,t=64,d=8", "T.lanes=8", "T.lanes=1"),
            "T: 32 lanes of rows, at most 16");
  EXPECT_EQ(refusal("b=2,s=16,t=64,d=8", " T.lanes=8 T.tile=4", " T.lanes=64 T.tile=1"),
            "T: 1 times 64 lanes, but 32 threads");
  EXPECT_EQ(refusal("b=2,s=16,t=64,d=8", "Y.x.lanes=8", "Y.x.lanes=4"),
            "Y: 16 threads, at least 32");
  EXPECT_EQ(refusal("b=2,s=16,t=64,d=16", "", ""), "Y: a block has 8 of 16 columns");
  EXPECT_EQ(refusal("b=2,s=16,t=8192,d=8", "", ""), "Y: 266672 shared bytes, at most 232448");
}

// What a block has in shared memory is counted before it is lowered: never less, and hardly more.
TEST(ChainTest, SharedMemoryIsCountedInAdvance) {
  static constexpr int kDraws = 48;
  const Target target = *FindTarget("h100");
  struct Workload {
    const char *op, *shape;
    double most = 1.25;  // of what there is; columns count as far as anybody's tiles would reach
  };
  for (const auto& [op, shape, most] : {Workload{"attention", "b=2,s=70,t=300,d=20"},
                                        {"two_layers", "m=50,n=200,k=64"},
                                        {"rows_last", "p=8,j=40,m=64,a=24,n=24", 2},
                                        {"rows_last", "p=64,j=40,m=8,a=24,n=24", 2}}) {
    const auto space = *SearchSpace::Create(ProgramOf(op, shape), target);
    Rng rng(5);
    int chains = 0;
    for (int i = 0; i < kDraws; ++i) {
      const auto point = space.Sample(rng);
      ASSERT_TRUE(point.has_value());
      if (!absl::StartsWith(space.Print(*point), "chain:")) continue;
      ++chains;
      const auto program = space.Lower(*point);
      ASSERT_TRUE(program.ok()) << program.status();
      const auto bytes = static_cast<double>(program->kernels.at(0).shared_bytes);
      const auto fits = [&, op = op, shape = shape](double limit) {
        Target small = target;
        small.max_shared_bytes_per_block = static_cast<int64_t>(limit);
        const auto other = SearchSpace::Create(ProgramOf(op, shape), small);
        const auto same = other->Parse(space.Print(*point));  // no chain fits where it is unknown
        return same.ok() && other->Check(*same).ok();
      };
      EXPECT_FALSE(fits(bytes - 16)) << space.Print(*point);
      EXPECT_TRUE(fits(bytes * most + 1024)) << space.Print(*point);
    }
    EXPECT_GE(chains, 3) << op;
  }
}

// Only where comparisons of indices say which terms are of use, at the element that is reduced.
TEST(SkipMasked, IsRefusedWhereItWouldLeaveOutWhatIsRead) {
  const auto operators = ParseOperators(R"(
op comparison_of_data(n) {
  in A[n, n], B[n, n]
  out C[i: n, j: n] = sum(r: n) select(0 < A[i, r], A[i, r], 0) * B[r, j] }
op transposed(n) {
  in A[n, n]
  C[i: n, j: n] = sum(r: n) A[i, r] * A[j, r]
  D[i: n, j: n] = C[j, i]
  out Y[i: n, j: n] = select(i < j, D[i, j], 0) }
op broadcast(n) {
  in A[n, n], B[n, n]
  C[i: n] = sum(r: n) A[i, r]
  D[i: n, j: n] = C[i] * B[i, j]
  out Y[i: n, j: n] = select(i < j, D[i, j], 0) }
op together(n) {
  in A[n, n], B[n, n]
  C[i: n, j: n] = sum(r: n) A[i, r] * B[r, j]
  D[i: n, j: n] = C[i, j] * 2
  U[i: n, j: n] = sum(r: n) A[i, r] + B[r, j]
  out Y[i: n, j: n] = select(i < j, D[i, j], 0)
  out Z[i: n, j: n] = U[i, j] * 2 }
)");
  ASSERT_TRUE(operators.ok()) << operators.status();
  const auto why = [&](const char* op, const char* steps) {
    Schedule schedule(std::make_shared<const TensorProgram>(
        *FindOperator(*operators, op)->Instantiate(*ParseShape("n=16"), DType::kFloat32)));
    return std::string(Apply(*ParseSteps(steps), schedule).message());
  };
  EXPECT_THAT(why("comparison_of_data", "skip_masked(C.acc)"), testing::HasSubstr("no term"));
  EXPECT_THAT(why("transposed", "compute_inline(C)\nskip_masked(C.acc)"),
              testing::HasSubstr("no term"));
  EXPECT_THAT(why("broadcast", "compute_inline(C)\nskip_masked(C.acc)"),
              testing::HasSubstr("no term"));
  EXPECT_EQ(why("together", "skip_masked(C)"), "");
  EXPECT_THAT(why("together", "skip_masked(C)\ncompute_inline(D)\ncompute_with(U, C, [i, j])"),
              testing::HasSubstr("compute_with"));
}

}  // namespace
}  // namespace heddle::search_space::chain_test
