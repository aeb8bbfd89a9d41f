// The key property: whatever point of its space is chosen, an operator computes what its definition
// says, at shapes that divide nothing.
#include <gtest/gtest.h>

#include <cmath>

#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/reference.h"
#include "search_space/sketch/search_space.h"

namespace heddle::search_space {
namespace {

struct Case {
  const char* op;
  const char* shape;
};

// Tiny, prime and mixed shapes.
constexpr Case kCases[] = {
    {"vector_add", "n=37"},
    {"vector_add", "n=1000"},
    {"window_sum", "n=41"},
    {"window_sum", "n=68,w=5"},
    {"transpose", "m=37,n=61"},
    {"transpose", "m=64,n=32"},
    {"matmul", "m=5,n=7,k=3"},
    {"matmul", "m=37,n=61,k=19"},
    {"matmul", "m=64,n=32,k=16"},
    {"matmul", "m=6,n=8,k=300"},
    {"matmul_nt", "m=13,n=20,k=11"},
    {"matmul_tn", "m=20,n=13,k=9"},
    {"batch_matmul", "b=3,m=9,n=12,k=5"},
    {"gemm_relu_add", "m=17,n=24,k=13"},
    {"conv2d", "n=2,ci=3,h=7,w=9,co=5,kh=3,kw=3,stride=2,pad=1"},
    {"conv2d", "n=1,ci=8,h=8,w=8,co=8,kh=3,kw=3,stride=1,pad=1"},
    {"conv2d", "n=2,ci=3,h=9,w=6,co=5,kh=3,kw=3"},
    {"conv2d", "n=1,ci=11,h=6,w=5,co=4,kh=1,kw=1"},
    {"conv2d", "n=3,ci=5,h=4,w=6,co=9,kh=1,kw=1"},
    {"conv2d", "n=1,ci=2,h=13,w=12,co=3,kh=11,kw=10"},
    {"conv2d_bias_relu", "n=2,ci=4,h=4,w=7,co=5,kh=1,kw=1"},
    {"conv2d_nhwc", "n=2,ci=6,h=3,w=5,co=8,kh=1,kw=1"},
    {"pooled_projection", "n=2,c=5,h=4,w=3,k=7"},
    {"rows_by_vector", "n=6,m=5,k=9"},
    {"conv2d_bias_relu", "n=1,ci=5,h=7,w=7,co=6,kh=3,kw=3,stride=1,pad=1"},
    {"conv2d_nhwc", "n=1,ci=5,h=7,w=6,co=7,kh=3,kw=3,stride=2,pad=1"},
    {"conv2d_nhwc", "n=2,ci=4,h=5,w=8,co=3,kh=3,kw=3,stride=1,pad=1"},
    {"depthwise_conv2d", "n=2,c=5,h=9,w=7,kh=3,kw=3,stride=1,pad=1"},
    {"depthwise_conv2d", "n=1,c=7,h=8,w=8,kh=3,kw=3,stride=2,pad=1"},
    {"softmax", "m=5,n=37"},
    {"softmax", "m=3,n=264"},
    {"layer_norm", "m=7,n=24"},
    {"layer_norm", "m=5,n=148"},
    {"log_sum_exp", "m=5,n=67"},
    {"matrix_vector", "m=6,n=100"},
    {"mean_pool", "n=2,c=3,h=7,w=6"},
    {"least_product", "b=2,m=3,n=23"},
};
// Operators of users, whose rows have other forms than those of the built-in ones.
constexpr char kUserOperators[] = R"(
op log_sum_exp(m, n) {
  in X[m, n]
  M[i: m] = max(r: n) X[i, r]
  S[i: m] = sum(r: n) exp(X[i, r] - M[i])
  out Y[i: m] = log(S[i]) + M[i]
}
op matrix_vector(m, n) {
  in A[m, n], X[n]
  out Y[i: m] = sum(r: n) A[i, r] * X[r]
}
op mean_pool(n, c, h, w) {
  in X[n, c, h, w]
  S[b: n, k: c] = sum(y: h, x: w) X[b, k, y, x]
  out Y[b: n, k: c] = S[b, k] / (h * w)
}
op pooled_projection(n, c, h, w, k) {
  in X[n, c, h, w], W[n, c], V[k, h, w]
  S[b: n, y: h, x: w] = sum(z: c) X[b, z, y, x] * W[b, z]
  out Y[b: n, o: k] = sum(y: h, x: w) S[b, y, x] * V[o, y, x]
}
op rows_by_vector(n, m, k) {
  in A[n, m, k], W[k]
  out C[a: n, b: m] = sum(ab: k) A[a, b, ab] * W[ab]
}
op least_product(b, m, n) {
  in X[b, m, n]
  P[g: b, i: m] = prod(r: n) X[g, i, r] / 4
  L[g: b, i: m] = min(r: n) X[g, i, r]
  out Y[g: b, i: m, j: n] = X[g, i, j] * L[g, i] + P[g, i]
}
)";

constexpr int kPoints = 110;  // a case; every operator has two cases or twice as many points

class PointsTest : public testing::TestWithParam<Case> {};

bool HasSecondCase(const std::string& op) {
  int count = 0;
  for (const Case& c : kCases) count += op == c.op;
  return count > 1;
}

// Integers, so that sums are exact whatever their order: one lost term shows.
double InputValue(int tensor, size_t i) {
  return static_cast<double>((i * 7 + static_cast<size_t>(tensor) * 13 + i / 11) % 9) - 4;
}

// Operators with divisions and exponentials round.
bool IsExact(const std::string& op) {
  for (const char* rounds :
       {"softmax", "layer_norm", "log_sum_exp", "mean_pool", "least_product"}) {
    if (op == rounds) return false;
  }
  return true;
}

void ExpectComputes(const std::shared_ptr<const TensorProgram>& program,
                    const std::vector<Step>& steps, const Target& target,
                    const TensorValues& expected, uint64_t seed) {
  const absl::StatusOr<Program> lowered = LowerSteps(program, steps);
  ASSERT_TRUE(lowered.ok()) << lowered.status() << "\n" << ToString(steps);
  const absl::Status verified = Verify(*lowered, target);
  ASSERT_TRUE(verified.ok()) << verified << "\n" << ToString(steps) << ToString(*lowered);
  TensorValues values;
  for (const BufferRef& input : program->inputs) values[input->name] = expected.at(input->name);
  const absl::Status ran = Interpret(*lowered, values, {.seed = seed});
  ASSERT_TRUE(ran.ok()) << ran << "\n" << ToString(steps) << ToString(*lowered);
  for (const BufferRef& output : lowered->outputs) {
    const std::vector<double>& want = expected.at(output->name);
    const std::vector<double>& got = values.at(output->name);
    for (size_t i = 0; i < want.size(); ++i) {
      const double tolerance = IsExact(program->op) ? 0 : 1e-4 * (1 + std::abs(want[i]));
      ASSERT_TRUE(std::abs(got[i] - want[i]) <= tolerance)
          << output->name << "[" << i << "] is " << got[i] << ", should be " << want[i] << "\n"
          << ToString(steps) << ToString(*lowered);
    }
  }
}

// What the parts of a point become on their own is what its steps become together.
void ExpectPartsAreTheProgram(const SearchSpace& space, const Point& point,
                              const Program& lowered) {
  std::vector<Kernel> kernels;
  for (const Part& part : space.PartsOf(point)) {
    const absl::StatusOr<Program> own = space.Lower(part);
    ASSERT_TRUE(own.ok()) << own.status();
    kernels.insert(kernels.end(), own->kernels.begin(), own->kernels.end());
  }
  ASSERT_EQ(kernels.size(), lowered.kernels.size());
  for (size_t i = 0; i < kernels.size(); ++i) {
    kernels[i].name = lowered.kernels[i].name;  // its number is the program's
    EXPECT_EQ(ToString(kernels[i]), ToString(lowered.kernels[i]));
  }
}

// The same schedule with tiles that are swizzled instead of padded.
std::vector<Step> Swizzled(std::vector<Step> steps) {
  for (Step& step : steps) {
    if (auto* layout = std::get_if<StorageLayout>(&step)) {
      layout->pad = 0;
      layout->swizzle = 4;
    }
  }
  return steps;
}

TEST_P(PointsTest, EveryPointComputesTheDefinition) {
  const Case& c = GetParam();
  std::vector<Operator> operators = *ParseOperators(kUserOperators);
  operators.insert(operators.end(), BuiltinOperators().begin(), BuiltinOperators().end());
  const Operator op = *FindOperator(operators, c.op);
  const auto program =
      std::make_shared<const TensorProgram>(*op.Instantiate(*ParseShape(c.shape), DType::kFloat32));
  TensorValues expected;
  for (size_t t = 0; t < program->inputs.size(); ++t) {
    std::vector<double>& values = expected[program->inputs[t]->name];
    values.resize(static_cast<size_t>(program->inputs[t]->elements));
    for (size_t i = 0; i < values.size(); ++i) values[i] = InputValue(static_cast<int>(t), i);
  }
  EvaluateAll(*program, expected);
  const Target target = *FindTarget("h100");
  ExpectComputes(program, NaiveSteps(*program), target, expected, 1);
  const absl::StatusOr<SearchSpace> space = SearchSpace::Create(program, target);
  ASSERT_TRUE(space.ok()) << space.status();
  Rng rng(std::hash<std::string>()(absl::StrCat(c.op, c.shape)));
  Point point = space->Default();
  const int points = HasSecondCase(c.op) ? kPoints : 2 * kPoints;
  for (int i = 0; i < points && !HasFatalFailure(); ++i) {
    SCOPED_TRACE(absl::StrCat("point ", i, ": ", space->Print(point)));
    EXPECT_EQ(*space->Parse(space->Print(point)), point);
    const absl::StatusOr<std::vector<Step>> steps = space->Steps(point);
    ASSERT_TRUE(steps.ok()) << steps.status();
    EXPECT_EQ(*ParseSteps(ToString(*steps)), *steps);
    ExpectComputes(program, *steps, target, expected, static_cast<uint64_t>(i));
    if (i % 8 == 0) {
      ExpectComputes(program, Swizzled(*steps), target, expected, static_cast<uint64_t>(i));
    }
    if (HasFatalFailure()) return;
    ExpectPartsAreTheProgram(*space, point, *LowerSteps(program, *steps));
    // Fresh points and mutants take turns.
    std::optional<Point> next = i % 3 == 2 ? space->Mutate(point, rng) : space->Sample(rng);
    if (!next.has_value()) next = space->Sample(rng);
    ASSERT_TRUE(next.has_value());
    point = *next;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, PointsTest, testing::ValuesIn(kCases),
                         [](const testing::TestParamInfo<Case>& info) {
                           return absl::StrCat(info.param.op, "_", info.index);
                         });

}  // namespace
}  // namespace heddle::search_space
