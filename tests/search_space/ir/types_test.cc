// 16-bit types: how they round, and that what is computed from them is computed in float32.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <random>
#include <string>

#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/notation/notation.h"
#include "search_space/reference/reference.h"
#include "search_space/schedule/analysis/tails.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"

namespace heddle::search_space::types_test {
namespace {

constexpr DType kHalves[] = {DType::kFloat16, DType::kBFloat16};

TEST(FloatFormat, RoundsToNearestEven) {
  struct Case {
    DType type;
    double value, rounded;
  };
  const double infinity = std::numeric_limits<double>::infinity();
  for (const Case& c :
       std::vector<Case>{{DType::kFloat16, 1 + 0x1p-11, 1},               // a tie, to even below
                         {DType::kFloat16, 1 + 3 * 0x1p-11, 1 + 0x1p-9},  // a tie, to even above
                         {DType::kFloat16, 1 + 0x1p-11 + 0x1p-40, 1 + 0x1p-10},  // just above it
                         {DType::kFloat16, 65519.99, 65504},
                         {DType::kFloat16, 65520, infinity},
                         {DType::kFloat16, -65520, -infinity},
                         {DType::kFloat16, 0x1p-24, 0x1p-24},  // the smallest subnormal
                         {DType::kFloat16, 0x1p-25, 0},
                         {DType::kFloat16, 3 * 0x1p-26, 0x1p-24},
                         {DType::kFloat16, 5 * 0x1p-25, 2 * 0x1p-24},
                         {DType::kBFloat16, 1 + 0x1p-8, 1},
                         {DType::kBFloat16, 1 + 3 * 0x1p-8, 1 + 0x1p-6},
                         {DType::kBFloat16, 257, 256},
                         {DType::kBFloat16, 259, 260},
                         {DType::kBFloat16, 0x1p-133, 0x1p-133},
                         {DType::kBFloat16, 0x1p-134, 0},
                         {DType::kBFloat16, 0x1.fep127, 0x1.fep127},
                         {DType::kBFloat16, 0x1.ffp127, infinity},
                         {DType::kTF32, 1 + 0x1p-11, 1 + 0x1p-10},  // a tie, away from zero
                         {DType::kTF32, -1 - 0x1p-11, -1 - 0x1p-10},
                         {DType::kTF32, 1 + 0x1p-11 - 0x1p-40, 1},
                         {DType::kTF32, 2049, 2050},
                         {DType::kTF32, 0x1p-136, 0x1p-136},
                         {DType::kTF32, 0x1.fffp127, infinity},
                         {DType::kFloat32, 1 + 0x1p-24, 1},
                         {DType::kFloat64, 1 + 0x1p-52, 1 + 0x1p-52}}) {
    EXPECT_EQ(RoundTo(c.type, c.value), c.rounded) << NameOf(c.type) << " " << c.value;
    if (!IsHalf(c.type)) continue;
    EXPECT_EQ(HalfValue(c.type, HalfBits(c.type, c.value)), c.rounded) << NameOf(c.type);
  }
  for (DType type : kHalves) {
    EXPECT_TRUE(std::isnan(RoundTo(type, NAN)));
    EXPECT_EQ(HalfBits(type, NAN), 0x7fff);
    EXPECT_EQ(HalfBits(type, -0.0), 0x8000);
    EXPECT_EQ(UnitRoundoff(type), type == DType::kFloat16 ? 0x1p-11 : 0x1p-8);
  }
}

// Of any number between the smallest and the largest, the one of the type's two neighbours that is
// nearer, or of two as near the one that ends in zero (of tf32 the larger one).
TEST(FloatFormat, RoundsToTheNearestNeighbour) {
  std::mt19937_64 rng(3);
  for (DType type : {DType::kFloat16, DType::kBFloat16, DType::kTF32}) {
    const int digits = 1 - std::ilogb(UnitRoundoff(type)) - 1;
    for (int i = 0; i < 20000; ++i) {
      const int exponent = static_cast<int>(rng() % 28) - 13;
      double fraction = 1 + std::ldexp(static_cast<double>(rng() >> 12), -52);
      // One in four lies in the middle of two neighbours.
      if (rng() % 4 == 0) {
        const double unit = std::ldexp(1, 1 - digits);
        fraction = std::floor(fraction / unit) * unit + unit / 2;
      }
      const double value = std::ldexp(rng() % 2 == 0 ? fraction : -fraction, exponent);
      const double unit = std::ldexp(1, exponent + 1 - digits);
      const double units = value / unit;
      const double nearest = type == DType::kTF32 ? std::round(units) : std::nearbyint(units);
      ASSERT_EQ(RoundTo(type, value), nearest * unit) << NameOf(type) << " " << value;
    }
  }
}

// Values that are 16-bit numbers are kept as such between stages, and by sums' operands.
TEST(FloatFormat, WhatIsOfSixteenBitsIsKeptSo) {
  const auto kept = [](const std::string& value) {
    const auto op =
        ParseOperators("op f(n) { in A[n], F[n]: float32, H[n]: float16 T[i: n] = " + value +
                       " out Y[i: n] = T[i] + F[i] + H[i] + A[i] }");
    EXPECT_TRUE(op.ok()) << op.status();
    return ToString(op->front().Instantiate({{"n", 8}}, DType::kBFloat16)->stages[0].body);
  };
  EXPECT_EQ(kept("select(i < 4, A[i], -1.5)"), "select(i < 4, A[i], -1.5)");
  EXPECT_EQ(kept("max(A[i], 0)"), "bfloat16(max(float32(A[i]), 0))");
  EXPECT_EQ(kept("-abs(min(A[i], 2))"), "bfloat16(-abs(min(float32(A[i]), 2)))");
  EXPECT_EQ(kept("bfloat16(F[i] * 2)"), "bfloat16(F[i] * 2)");
  for (const char* value : {"A[i] * 2", "max(A[i], 0.1)", "max(A[i], H[i])", "max(A[i], F[i])",
                            "select(i < 4, A[i], 257)", "F[i]"}) {
    EXPECT_THAT(kept(value), testing::Not(testing::StartsWith("bfloat16("))) << value;
    EXPECT_THAT(kept(value), testing::Not(testing::StartsWith("select(i < 4, A[i], "))) << value;
  }
}

TEST(FloatFormat, EveryValueHasItsBits) {
  EXPECT_EQ(HalfValue(DType::kFloat16, 0x3c01), 1 + 0x1p-10);
  EXPECT_EQ(HalfValue(DType::kBFloat16, 0x3f81), 1 + 0x1p-7);
  for (DType type : kHalves) {
    for (int bits = 0; bits < 0x10000; ++bits) {
      const float value = HalfValue(type, static_cast<uint16_t>(bits));
      if (std::isnan(value)) continue;
      ASSERT_EQ(HalfBits(type, value), bits) << NameOf(type);
      // Halfway to the next one decides between the two.
      const float next = HalfValue(type, static_cast<uint16_t>(bits + 1));
      if (!std::isfinite(value) || !std::isfinite(next) || (bits & 0x7fff) == 0x7fff) continue;
      const double middle = (static_cast<double>(value) + next) / 2;
      ASSERT_EQ(HalfBits(type, middle), bits + (bits & 1)) << NameOf(type);
      ASSERT_EQ(HalfBits(type, std::nextafter(middle, value)), bits) << NameOf(type);
      ASSERT_EQ(HalfBits(type, std::nextafter(middle, next)), bits + 1) << NameOf(type);
    }
  }
}

struct Workload {
  const char* op;
  const char* shape;
};
constexpr Workload kWorkloads[] = {
    {"vector_add", "n=37"},
    {"transpose", "m=21,n=34"},
    {"matmul", "m=13,n=24,k=19"},
    {"matmul_nt", "m=13,n=20,k=16"},
    {"gemm_relu_add", "m=9,n=16,k=17"},
    {"conv2d", "n=1,ci=3,h=7,w=8,co=4,kh=3,kw=3,stride=1,pad=1"},
    {"depthwise_conv2d", "n=1,c=3,h=8,w=9,kh=3,kw=3,stride=1,pad=1"},
    {"softmax", "m=3,n=72"},
    {"layer_norm", "m=4,n=37"},
};

std::shared_ptr<const TensorProgram> ProgramOf(const Workload& w, DType type) {
  const auto op = FindOperator(BuiltinOperators(), w.op);
  return std::make_shared<const TensorProgram>(*op->Instantiate(*ParseShape(w.shape), type));
}

// Integers: what is computed from them in float32 is exact in whatever order, and one rounding is
// left. Elsewhere another order may go to the neighbour.
void ExpectComputes(const TensorProgram& program, const Program& lowered, DType type) {
  TensorValues expected;
  for (size_t t = 0; t < program.inputs.size(); ++t) {
    std::vector<double>& values = expected[program.inputs[t]->name];
    for (int64_t i = 0; i < program.inputs[t]->elements; ++i) {
      values.push_back(static_cast<double>((i * 7 + static_cast<int64_t>(t) * 13 + i / 11) % 9) -
                       4);
    }
  }
  TensorValues values = expected;
  EvaluateAll(program, expected);
  const absl::Status ran = Interpret(lowered, values);
  ASSERT_TRUE(ran.ok()) << ran << ToString(lowered);
  const bool exact = program.op != "softmax" && program.op != "layer_norm";
  for (const BufferRef& output : lowered.outputs) {
    for (size_t i = 0; i < expected.at(output->name).size(); ++i) {
      const double want = expected.at(output->name)[i], got = values.at(output->name)[i];
      ASSERT_EQ(got, RoundTo(type, got));
      const double allowed = exact ? 0 : 2 * UnitRoundoff(type) * std::abs(want);
      ASSERT_LE(std::abs(got - want), allowed) << output->name << "[" << i << "] is " << got
                                               << ", should be " << want << ToString(lowered);
    }
  }
}

// Whatever is added to, multiplied or compared with what it held is no 16-bit number.
void ExpectWideAccumulators(const Program& lowered) {
  for (const Kernel& kernel : lowered.kernels) {
    VisitStmts(kernel.body, [&](const StmtNode& s) {
      if (s.value == nullptr || s.buffer == nullptr) return;
      bool accumulates = s.kind == StmtNode::Kind::kIntrin && CombinesWarps(s.intrinsic);
      Visit(s.value, [&](const Expr& e) {
        accumulates = accumulates || (e->op == Op::kLoad && e->buffer == s.buffer);
        const bool computes =
            e->op != Op::kLoad && e->op != Op::kSelect && e->op != Op::kCast && e->op != Op::kFloat;
        EXPECT_FALSE(computes && IsHalf(e->type)) << ToString(e);
      });
      EXPECT_FALSE(accumulates && IsHalf(s.buffer->dtype)) << ToString(kernel);
      EXPECT_EQ(s.value->type, s.buffer->dtype) << ToString(kernel);
    });
  }
}

class TypesTest : public testing::TestWithParam<Workload> {};

TEST_P(TypesTest, PointsComputeInFloat32AndRoundOnce) {
  constexpr int kPoints = 24;
  const Target target = *FindTarget("h100");
  for (DType type : kHalves) {
    SCOPED_TRACE(NameOf(type));
    const auto program = ProgramOf(GetParam(), type);
    const auto space = SearchSpace::Create(program, target);
    ASSERT_TRUE(space.ok()) << space.status();
    Rng rng(5);
    Point point = space->Default();
    for (int i = 0; i < kPoints; ++i) {
      SCOPED_TRACE(space->Print(point));
      const auto lowered = space->Lower(point);
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      const absl::Status verified = Verify(*lowered, target);
      ASSERT_TRUE(verified.ok()) << verified << ToString(*lowered);
      ExpectWideAccumulators(*lowered);
      ExpectComputes(*program, *lowered, type);
      if (HasFatalFailure()) return;
      const auto next = space->Sample(rng);
      ASSERT_TRUE(next.has_value());
      point = *next;
    }
  }
}

// An access moves as many bytes as one of float32 would: 8 elements.
TEST(Types, AccessesHaveSixteenBytes) {
  const Target target = *FindTarget("h100");
  for (const Workload& w : std::vector<Workload>{{"vector_add", "n=1024"},
                                                 {"transpose", "m=64,n=64"},
                                                 {"matmul", "m=64,n=64,k=64"},
                                                 {"softmax", "m=8,n=512"}}) {
    const auto space = SearchSpace::Create(ProgramOf(w, DType::kBFloat16), target);
    ASSERT_TRUE(space.ok()) << space.status();
    Rng rng(2);
    int64_t widest = 0;
    for (int i = 0; i < 24; ++i) {
      const auto lowered = space->Lower(*space->Sample(rng));
      ASSERT_TRUE(lowered.ok()) << lowered.status();
      for (const Kernel& kernel : lowered->kernels) {
        VisitStmts(kernel.body, [&](const StmtNode& s) {
          if (s.value == nullptr) return;
          Visit(s.value, [&](const Expr& e) {
            if (e->op == Op::kLoad && e->buffer->scope == Scope::kGlobal) {
              widest = std::max(widest, e->lanes * SizeOf(e->type));
            }
          });
        });
      }
    }
    EXPECT_EQ(widest, 16) << w.op;
  }
}

INSTANTIATE_TEST_SUITE_P(Operators, TypesTest, testing::ValuesIn(kWorkloads),
                         [](const testing::TestParamInfo<Workload>& info) {
                           return std::string(info.param.op);
                         });

std::string StagesOf(const Schedule& schedule) {
  std::string out;
  for (const ScheduledStage& s : schedule.stages()) {
    absl::StrAppend(&out, s.name(), " ", NameOf(s.tensor->dtype), ": ", ToString(s.body), "\n");
  }
  return out;
}

TEST(Types, TheAccumulatorHasTheTypeInWhichItIsComputed) {
  EXPECT_EQ(StagesOf(Schedule(ProgramOf({"matmul", "m=4,n=4,k=4"}, DType::kBFloat16))),
            "C.acc float32: float32(A[i, r]) * float32(B[r, j])\n"
            "C bfloat16: bfloat16(C.acc[i, j])\n");
}

TEST(Types, PaddingKeepsTheTypeThatItCopies) {
  const auto program =
      ProgramOf({"conv2d", "n=1,ci=1,h=4,w=4,co=1,kh=3,kw=3,stride=1,pad=1"}, DType::kFloat16);
  EXPECT_EQ(program->stages[0].tensor->dtype, DType::kFloat16);
  EXPECT_EQ(program->stages[0].body->type, DType::kFloat16);
  EXPECT_EQ(program->stages[1].body->type, DType::kFloat32);
}

TEST(Types, WhatATransposeMovesIsNotConverted) {
  EXPECT_EQ(StagesOf(Schedule(ProgramOf({"transpose", "m=4,n=4"}, DType::kFloat16))),
            "B float16: A[i, j]\n");
}

TEST(Types, RegistersHoldWhatIsConverted) {
  Schedule schedule(ProgramOf({"matmul", "m=4,n=4,k=4"}, DType::kFloat16));
  ASSERT_TRUE(Apply(*ParseSteps("cache_read(A, shared, C.acc)\n"
                                "cache_read(A.shared, local, C.acc)\n"),
                    schedule)
                  .ok());
  EXPECT_EQ(StagesOf(schedule),
            "A.shared float16: A[d0, d1]\n"
            "A.shared.local float32: float32(A.shared[d0, d1])\n"
            "C.acc float32: A.shared.local[i, r] * float32(B[r, j])\n"
            "C float16: float16(C.acc[i, j])\n");
}

// A tail of k needs no guard where what lies outside is zero, of whatever type.
TEST(Types, TailsVanishThroughConversions) {
  Schedule schedule(ProgramOf({"matmul", "m=4,n=4,k=7"}, DType::kBFloat16));
  ASSERT_TRUE(Apply(*ParseSteps("split(C.acc, r, [4])\n"), schedule).ok());
  const ScheduledStage& sum = schedule.stages()[0];
  ASSERT_EQ(sum.guards.size(), 1);
  EXPECT_TRUE(VanishesOutside(schedule, sum, sum.guards[0], true));
}

// Nor where operands are computed of what is zero there, and of nothing else.
TEST(Types, TailsVanishThroughArithmetic) {
  const auto vanishes = [](const std::string& term) {
    const auto operators = ParseOperators(absl::StrCat(
        "op f(m, n, k) { in A[m, k], B[n, k], W[k] out C[i: m, j: n] = sum(r: k) ", term, " }"));
    EXPECT_TRUE(operators.ok()) << operators.status();
    Schedule schedule(std::make_shared<const TensorProgram>(
        *operators->at(0).Instantiate(*ParseShape("m=4,n=4,k=7"), DType::kFloat32)));
    EXPECT_TRUE(Apply(*ParseSteps("split(C.acc, r, [4])\n"), schedule).ok());
    const ScheduledStage& sum = schedule.stages()[0];
    return VanishesOutside(schedule, sum, sum.guards.at(0), true);
  };
  EXPECT_TRUE(vanishes("0.5 * W[r] * A[i, r] * (B[j, r] / 3)"));
  EXPECT_TRUE(vanishes("(A[i, r] - B[j, r]) * (A[i, r] - B[j, r]) * W[r]"));
  EXPECT_TRUE(vanishes("max(A[i, r], 0) * tanh(B[j, r]) * sqrt(abs(W[r]))"));
  EXPECT_FALSE(vanishes("A[i, r] * exp(B[j, r]) * W[r]"));
  EXPECT_FALSE(vanishes("A[i, r] * (1 + B[j, r]) * W[r]"));
  EXPECT_FALSE(vanishes("A[i, r] / B[j, r] * W[r]"));
}

}  // namespace
}  // namespace heddle::search_space::types_test
