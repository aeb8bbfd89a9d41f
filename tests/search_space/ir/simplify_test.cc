#include "search_space/ir/expr/simplify.h"

#include <gtest/gtest.h>

#include <map>
#include <random>

#include "base/math.h"
#include "search_space/ir/expr/linear.h"

namespace heddle::search_space {
namespace {

using Rng = std::mt19937_64;
using Values = std::map<const Variable*, int64_t>;

int64_t Pick(Rng& rng, int64_t low, int64_t high) {
  return std::uniform_int_distribution<int64_t>(low, high)(rng);
}

int64_t Eval(const Expr& e, const Values& values) {
  auto arg = [&](size_t i) { return Eval(e->args[i], values); };
  switch (e->op) {
    case Op::kInt:
      return e->int_value;
    case Op::kVar:
      return values.at(e->var.get());
    case Op::kAdd:
      return arg(0) + arg(1);
    case Op::kSub:
      return arg(0) - arg(1);
    case Op::kMul:
      return arg(0) * arg(1);
    case Op::kDiv:
      return FloorDivide(arg(0), arg(1));
    case Op::kMod:
      return arg(0) - FloorDivide(arg(0), arg(1)) * arg(1);
    case Op::kMin:
      return std::min(arg(0), arg(1));
    case Op::kMax:
      return std::max(arg(0), arg(1));
    case Op::kLt:
      return arg(0) < arg(1);
    case Op::kLe:
      return arg(0) <= arg(1);
    case Op::kEq:
      return arg(0) == arg(1);
    case Op::kNe:
      return arg(0) != arg(1);
    case Op::kAnd:
      return arg(0) != 0 && arg(1) != 0;
    case Op::kOr:
      return arg(0) != 0 || arg(1) != 0;
    case Op::kNot:
      return arg(0) == 0;
    default:
      ADD_FAILURE() << "unexpected operation " << NameOf(e->op);
      return 0;
  }
}

class RandomExpr {
 public:
  explicit RandomExpr(uint64_t seed) : rng_(seed) {
    for (const char* name : {"a", "b", "c"}) vars_.push_back(MakeVar(name, Pick(rng_, 1, 40)));
  }

  Expr Integer(int depth) {
    if (depth == 0 || Pick(rng_, 0, 5) == 0) {
      return Pick(rng_, 0, 3) == 0 ? Int(Pick(rng_, -9, 9))
                                   : VarExpr(vars_[static_cast<size_t>(Pick(rng_, 0, 2))]);
    }
    const Expr a = Integer(depth - 1);
    switch (Pick(rng_, 0, 6)) {
      case 0:
        return a + Integer(depth - 1);
      case 1:
        return a - Integer(depth - 1);
      case 2:
        return a * Int(Pick(rng_, -8, 8));
      case 3:
        return a / Int(Divisor());
      case 4:
        return a % Int(Divisor());
      case 5:
        return MakeExpr(Op::kMin, {a, Integer(depth - 1)});
      default:
        return MakeExpr(Op::kMax, {a, Integer(depth - 1)});
    }
  }

  Expr Condition(int depth) {
    static constexpr Op kComparisons[] = {Op::kLt, Op::kLe, Op::kEq, Op::kNe};
    static constexpr Op kLogic[] = {Op::kAnd, Op::kOr, Op::kNot};
    if (depth == 0 || Pick(rng_, 0, 2) == 0) {
      return MakeExpr(kComparisons[Pick(rng_, 0, 3)], {Integer(2), Integer(1)});
    }
    const Op op = kLogic[Pick(rng_, 0, 2)];
    if (op == Op::kNot) return MakeExpr(op, {Condition(depth - 1)});
    return MakeExpr(op, {Condition(depth - 1), Condition(depth - 1)});
  }

  Values Draw() {
    Values values;
    for (const Var& v : vars_) values[v.get()] = Pick(rng_, 0, v->extent - 1);
    return values;
  }

  const std::vector<Var>& vars() const { return vars_; }
  Rng& rng() { return rng_; }

 private:
  // Products of small numbers, so that divisors divide each other as tile sizes do.
  int64_t Divisor() { return Pick(rng_, 1, 4) * Pick(rng_, 1, 4); }

  Rng rng_;
  std::vector<Var> vars_;
};

constexpr int kExpressions = 4000;
constexpr int kDraws = 12;

TEST(SimplifyTest, KeepsTheValueOfRandomExpressionsAndTheirBounds) {
  for (uint64_t seed = 0; seed < kExpressions; ++seed) {
    RandomExpr random(seed);
    const Expr e = random.Integer(5);
    const Expr s = Simplify(e);
    const Interval bounds = BoundsOf(e);
    const ModRem mod_rem = ModulusRemainder(e);
    for (int i = 0; i < kDraws; ++i) {
      const Values values = random.Draw();
      const int64_t value = Eval(e, values);
      ASSERT_EQ(Eval(s, values), value)
          << "seed " << seed << ": " << ToString(e) << " -> " << ToString(s);
      ASSERT_LE(bounds.min, value) << "seed " << seed << ": " << ToString(e);
      ASSERT_GE(bounds.max, value) << "seed " << seed << ": " << ToString(e);
      if (mod_rem.modulus == 0) {
        ASSERT_EQ(value, mod_rem.remainder) << ToString(e);
      } else {
        ASSERT_EQ(value - FloorDivide(value, mod_rem.modulus) * mod_rem.modulus, mod_rem.remainder)
            << "seed " << seed << ": " << ToString(e);
      }
    }
  }
}

// Digits of sums that hold remainders, and what is put together of such digits again.
TEST(SimplifyTest, KeepsTheValueOfRandomPeriods) {
  constexpr int kSums = 1000;
  int whole = 0;
  for (uint64_t seed = 0; seed < kSums; ++seed) {
    RandomExpr random(seed);
    const int64_t d = Pick(random.rng(), 1, 6), m = Pick(random.rng(), 1, 6);
    Expr sum = Int(Pick(random.rng(), -50, 50));
    for (int i = 0; i < 3; ++i) {
      const Expr inner = random.Integer(2) / Int(Pick(random.rng(), 1, 3));
      sum = sum + inner % Int(d * m * Pick(random.rng(), 1, 2)) * Int(Pick(random.rng(), -2, 3));
    }
    const Expr quotient = sum / Int(d), digit = quotient % Int(m), last = sum % Int(d);
    const Expr in_parts = Simplify(quotient) * Int(d) + Simplify(last);
    for (const Expr& e : {quotient, digit, last, in_parts, Simplify(digit) * Int(d) + last,
                          sum - Simplify(quotient) * Int(d), Simplify(last) - sum % Int(d * m)}) {
      const Expr s = Simplify(e);
      for (int i = 0; i < kDraws; ++i) {
        const Values values = random.Draw();
        ASSERT_EQ(Eval(s, values), Eval(e, values))
            << "seed " << seed << ": " << ToString(e) << " -> " << ToString(s);
      }
    }
    whole += IsInt(Simplify(in_parts - sum), 0) ? 1 : 0;
  }
  EXPECT_GT(whole, kSums * 19 / 20);
}

// Products of divisors that no integer holds are left as they stand.
TEST(SimplifyTest, KeepsHugeDivisors) {
  const Var i = MakeVar("i", 16), j = MakeVar("j", 16);
  const Expr difference = VarExpr(i) % Int(3) - VarExpr(j);
  const int64_t huge = int64_t{1} << 32;
  for (const Expr& e :
       {difference / Int(huge) % Int(huge), difference / Int(huge + 1) % Int(huge - 1),
        (VarExpr(i) - VarExpr(j)) / Int(huge) / Int(huge)}) {
    const Expr simple = Simplify(e);
    for (int64_t a = 0; a < 16; ++a) {
      for (int64_t b = 0; b < 16; ++b) {
        const Values at = {{i.get(), a}, {j.get(), b}};
        ASSERT_EQ(Eval(simple, at), Eval(e, at)) << ToString(e) << " at " << a << ", " << b;
      }
    }
  }
}

// Sums are not looked into again and again, however deep remainders stand in them.
TEST(SimplifyTest, NestedRemaindersAreCheap) {
  const Var i = MakeVar("i", 1000), j = MakeVar("j", 7);
  Expr e = VarExpr(i);
  for (int depth = 0; depth < 9; ++depth) e = (e + VarExpr(j)) / Int(3) % Int(7);
  EXPECT_LT(BoundsOf(Simplify(e)).max, 7);
}

TEST(SimplifyTest, KeepsTheValueOfRandomConditions) {
  for (uint64_t seed = 0; seed < kExpressions; ++seed) {
    RandomExpr random(seed);
    const Expr e = random.Condition(3);
    const Expr s = Simplify(e);
    for (int i = 0; i < kDraws; ++i) {
      const Values values = random.Draw();
      ASSERT_EQ(Eval(s, values), Eval(e, values))
          << "seed " << seed << ": " << ToString(e) << " -> " << ToString(s);
    }
  }
}

TEST(SimplifyTest, ProofsHoldForEveryAssignmentThatMeetsTheAssumptions) {
  int proven = 0;
  for (uint64_t seed = 0; seed < kExpressions; ++seed) {
    RandomExpr random(seed);
    const std::vector<Expr> assumptions = {random.Condition(1), random.Condition(0)};
    const Expr goal = random.Condition(1);
    if (!Proves(assumptions, goal)) continue;
    ++proven;
    for (int i = 0; i < 4 * kDraws; ++i) {
      const Values values = random.Draw();
      if (Eval(assumptions[0], values) == 0 || Eval(assumptions[1], values) == 0) continue;
      ASSERT_EQ(Eval(goal, values), 1)
          << "seed " << seed << ": " << ToString(assumptions[0]) << " and "
          << ToString(assumptions[1]) << " do not give " << ToString(goal);
    }
  }
  EXPECT_GT(proven, kExpressions / 20);
}

TEST(SimplifyTest, RegionsContainEveryValue) {
  for (uint64_t seed = 0; seed < kExpressions; ++seed) {
    RandomExpr random(seed);
    const Expr e = random.Integer(4);
    const Var relaxed = random.vars()[0];
    const Region region = RegionOf(e, [&](const Var& v) { return v == relaxed; });
    Visit(region.base, [&](const Expr& node) { ASSERT_NE(node->var, relaxed); });
    for (int i = 0; i < kDraws; ++i) {
      const Values values = random.Draw();
      const int64_t offset = Eval(e, values) - Eval(region.base, values);
      ASSERT_GE(offset, 0) << "seed " << seed << ": " << ToString(e);
      ASSERT_LT(offset, region.extent) << "seed " << seed << ": " << ToString(e);
    }
  }
}

struct Rewritten {
  const char* name;
  Expr from;
  const char* to;
};

TEST(SimplifyTest, RewritesWhatTilingProduces) {
  const Var t = MakeVar("t", 256), k = MakeVar("k", 64), v = MakeVar("v", 4), x = MakeVar("x", 7);
  const Expr T = VarExpr(t), K = VarExpr(k), V = VarExpr(v), X = VarExpr(x);
  const Rewritten cases[] = {
      {"fused and split again", (K * Int(4) + V) / Int(4), "k"},
      {"lane of a fused loop", (K * Int(4) + V) % Int(4), "v"},
      {"division of a quotient", (T / Int(4)) / Int(8), "t / 32"},
      {"quotient of a remainder", (T % Int(32)) / Int(4), "t / 4 % 8"},
      {"remainder of a remainder", (T % Int(32)) % Int(8), "t % 8"},
      {"recombined", (T / Int(32) % Int(4)) * Int(32) + T % Int(32), "t % 128"},
      {"recombined wholly", (T / Int(32)) * Int(32) + T % Int(32), "t"},
      {"remainder from quotient", T - (T / Int(16)) * Int(16), "t % 16"},
      {"range folds division", X / Int(8), "0"},
      {"tile of four into eight", (K * Int(4) + V) / Int(8), "k / 2"},
      {"remainder of an odd remainder", (T % Int(7)) * Int(2) - (T % Int(7)) / Int(2) * Int(4),
       "t % 7 % 2 * 2"},
      {"remainder of a shifted sum", (K + Int(3)) - (K + Int(3)) / Int(4) * Int(4), "(k + 3) % 4"},
      {"a period in a period", (T % Int(40) + Int(39)) % Int(40), "(t + 39) % 40"},
      {"four periods", (((T + Int(1)) % Int(40) + Int(38)) % Int(40) + Int(1)) % Int(40), "t % 40"},
      {"part of a period", (T % Int(40) * Int(3) + K) % Int(24), "(t * 3 + k) % 24"},
      {"no period", (T % Int(40) + K) % Int(24), "(t % 40 + k) % 24"},
      {"a quotient in a period", (T / Int(4) % Int(8) + K) % Int(8), "(t / 4 + k) % 8"},
      {"a period below zero", ((K - T) % Int(40) + V - Int(9)) % Int(20), "(k + v - t + 11) % 20"},
      {"digit of a period", (T % Int(32) + K) / Int(4) % Int(8), "(t + k) / 4 % 8"},
      {"a shifted period in parts", (T % Int(32) + K) / Int(8) * Int(8) + (T + K) % Int(8),
       "t % 32 + k"},
      {"quotient of a shifted period", T % Int(32) + K - (T % Int(32) + K) / Int(8) * Int(8),
       "(t + k) % 8"},
      {"padding", ((K * Int(4) + V) - Int(1)) + Int(1), "k * 4 + v"},
  };
  for (const Rewritten& c : cases) {
    const Expr s = Simplify(c.from);
    EXPECT_EQ(ToString(s), c.to) << c.name << ": " << ToString(c.from);
    EXPECT_TRUE(StructurallyEqual(Simplify(s), s)) << c.name;
  }
}

TEST(ProvesTest, FollowsFromEitherOfTwo) {
  const Expr x = VarExpr(MakeVar("x", 100)), y = VarExpr(MakeVar("y", 100));
  const auto either = [](const Expr& a, const Expr& b) { return MakeExpr(Op::kOr, {a, b}); };
  EXPECT_TRUE(Proves({either(x < Int(5), y < Int(7))}, either(x < Int(6), y < Int(7))));
  EXPECT_TRUE(Proves({either(x < Int(5), x < Int(7))}, x < Int(7)));
  EXPECT_FALSE(Proves({either(x < Int(5), y < Int(7))}, x < Int(6)));
  // Of so many pairs all cases together would be 2^40.
  std::vector<Expr> many;
  for (int i = 0; i < 40; ++i) many.push_back(either(x < Int(50 + i), y < Int(i)));
  EXPECT_FALSE(Proves(many, x < Int(20)));
}

TEST(ProvesTest, TakesAnAssumptionSeveralTimesBesideAnother) {
  const Expr x = VarExpr(MakeVar("x", 100)), y = VarExpr(MakeVar("y", 100)),
             z = VarExpr(MakeVar("z", 100));
  const std::vector<Expr> known = {x * Int(4) + y < Int(20), z < Int(12)};
  EXPECT_TRUE(Proves(known, x * Int(48) + y * Int(12) + z < Int(240)));
  EXPECT_FALSE(Proves(known, x * Int(48) + y * Int(12) + z < Int(239)));
}

TEST(ProvesTest, NarrowsByGuards) {
  const Expr y = VarExpr(MakeVar("y", 70)), v = VarExpr(MakeVar("v", 4));
  EXPECT_TRUE(Proves({Int(1) <= y && y < Int(65)}, Int(0) <= y - Int(1)));
  EXPECT_TRUE(Proves({Int(1) <= y && y < Int(65)}, y - Int(1) < Int(64)));
  EXPECT_FALSE(Proves({Int(1) <= y && y < Int(65)}, y - Int(1) < Int(63)));
  EXPECT_TRUE(Proves({y < Int(25)}, y * Int(4) + v < Int(100)));
  EXPECT_FALSE(Proves({y < Int(25)}, y * Int(4) + v < Int(99)));
  EXPECT_FALSE(Proves({}, y < Int(69)));
  // What is not the last is before it.
  const auto is = [](Op op, const Expr& a, const Expr& b) { return MakeExpr(op, {a, b}); };
  EXPECT_TRUE(Proves({is(Op::kNe, y, Int(69))}, y < Int(69)));
  EXPECT_TRUE(Proves({MakeExpr(Op::kNot, {is(Op::kEq, Int(0), y)})}, Int(0) < y));
  EXPECT_FALSE(Proves({is(Op::kNe, y, Int(68))}, y < Int(69)));
  EXPECT_TRUE(Proves({y < Int(69)}, is(Op::kNe, y, Int(69))));
  // A sum that is not negative has such quotients; nothing less follows.
  const Expr sum = y + Int(2) - v;
  EXPECT_TRUE(Proves({Int(0) <= sum - Int(3)}, Int(0) <= (sum - Int(3)) / Int(4)));
  EXPECT_TRUE(Proves({Int(5) <= sum}, Int(1) <= sum / Int(5)));
  EXPECT_TRUE(Proves({VarExpr(MakeVar("w", 9)) < Int(1), v * Int(3) <= sum}, v <= sum / Int(3)));
  EXPECT_FALSE(Proves({Int(4) <= sum}, Int(1) <= sum / Int(5)));
  // A digit of a number in parts is a quotient of its lower ones.
  EXPECT_TRUE(Proves({y % Int(32) < Int(16)}, y / Int(8) % Int(4) < Int(2)));
  EXPECT_FALSE(Proves({y % Int(32) < Int(17)}, y / Int(8) % Int(4) < Int(2)));
  EXPECT_FALSE(Proves({Int(0) <= sum - Int(2)}, Int(0) <= (sum - Int(3)) / Int(4)));
  // A quotient bounds what is divided, and so other quotients of it.
  EXPECT_TRUE(Proves({Int(2) <= sum / Int(2)}, Int(1) <= sum / Int(4)));
  EXPECT_FALSE(Proves({Int(1) <= sum / Int(2)}, Int(1) <= sum / Int(4)));
  EXPECT_TRUE(Proves({sum / Int(2) < Int(4)}, sum / Int(4) < Int(2)));
  EXPECT_FALSE(Proves({sum / Int(2) < Int(5)}, sum / Int(4) < Int(2)));
  // What is below a digit is below the digit's bound.
  const Expr x = VarExpr(MakeVar("x", 32));
  EXPECT_TRUE(Proves({y % Int(32) < Int(16), x <= y / Int(4) % Int(8)}, x < Int(4)));
  EXPECT_FALSE(Proves({y % Int(32) < Int(17), x <= y / Int(4) % Int(8)}, x < Int(4)));
  // Nothing is where a condition is false.
  EXPECT_TRUE(Proves({Bool(false)}, x < Int(4)));
  // Two quotients at once, each bounded by its own guard.
  const Expr k = VarExpr(MakeVar("k", 24)), t = VarExpr(MakeVar("t", 512));
  const Expr index = (k + Int(2)) / Int(8) + t / Int(384);
  EXPECT_TRUE(Proves({k < Int(22), t < Int(384)}, index < Int(3)));
  EXPECT_FALSE(Proves({k < Int(23), t < Int(384)}, index < Int(3)));
  EXPECT_FALSE(Proves({k < Int(22), t < Int(385)}, index < Int(3)));
}

// Of an expression in which each node stands twice in the next one.
TEST(Visit, DistinctNodesAreVisitedOnce) {
  Expr e = VarExpr(MakeVar("x", 4));
  for (int i = 0; i < 60; ++i) e = e + e;
  int nodes = 0;
  VisitDistinct(e, [&](const Expr& node) { nodes += node->op == Op::kAdd ? 1 : 0; });
  EXPECT_EQ(nodes, 60);
}

}  // namespace
}  // namespace heddle::search_space
