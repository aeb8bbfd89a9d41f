// Stages whose terms name their places, evaluated whole by one look at each term, against each
// element by itself.
#include "search_space/reference/one_pass.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cmath>
#include <iterator>
#include <limits>
#include <random>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/reference/keep_stages.h"
#include "search_space/reference/kept.h"
#include "search_space/reference/on_demand.h"
#include "search_space/reference/placed_terms.h"
#include "search_space/reference/samples.h"
#include "tests/search_space/reference/reference_support.h"
#include "tests/support.h"

namespace heddle::search_space::one_pass_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();

// Indices that repeat late, and Pattern's values; some of these are no numbers if `wild`.
InputElement InputOf(const TensorProgram& program, bool wild = false) {
  return [&program, wild](int input, int64_t offset) -> double {
    const int64_t extent = program.inputs[static_cast<size_t>(input)]->index_extent;
    if (extent > 0) return static_cast<double>((offset * 7919 + offset / 5 + input) % extent);
    if (wild && offset % 17 == 3) return offset % 2 == 0 ? std::nan("") : -kInfinity;
    return Pattern(input, offset);
  };
}

int StageNamed(const TensorProgram& program, const std::string& name) {
  for (size_t s = 0; s < program.stages.size(); ++s) {
    if (program.stages[s].name() == name) return static_cast<int>(s);
  }
  ADD_FAILURE() << "no stage " << name;
  return 0;
}

bool IsPlaced(const TensorProgram& program, const std::string& stage = "S") {
  return PlacedTermsOf(program, program.stages[StageNamed(program, stage)]).has_value();
}

bool IsSame(double a, double b) { return a == b || (std::isnan(a) && std::isnan(b)); }

// Keeps S, and compares it with what its elements are by themselves.
void ExpectSame(const TensorProgram& program, const InputElement& input, int threads = 1) {
  const int stage = StageNamed(program, "S");
  const Kept none(program, input);
  Kept kept(program, input);
  KeepStages(program, {stage}, {}, threads, kept);
  ASSERT_TRUE(kept.HasStage(stage));
  OnDemand plain(program, none);
  for (int64_t offset = 0; offset < program.stages[stage].tensor->elements; ++offset) {
    const Scalar whole = kept.Stage(stage, offset), single = plain.Once(stage, offset);
    ASSERT_TRUE(IsSame(whole.value, single.value))
        << offset << ": " << whole.value << ", not " << single.value;
    ASSERT_TRUE(IsSame(whole.magnitude, single.magnitude))
        << offset << ": " << whole.magnitude << ", not " << single.magnitude;
    ASSERT_EQ(whole.exact, single.exact) << offset;
    ASSERT_EQ(whole.contested, single.contested) << offset;
    ASSERT_EQ(whole.uncertain, single.uncertain) << offset;
  }
}

// ------------------------------------------------------------------------------- random operators

template <size_t n>
std::string Any(const char* const (&all)[n], std::mt19937_64& random) {
  return all[random() % n];
}

// Of combiners, keys, conditions, values, and what stands beside and for all others.
std::string RandomBody(std::mt19937_64& random) {
  const char* const kCombiners[][2] = {
      {"sum", "0"}, {"sum", "0"}, {"max", "-inf"}, {"min", "inf"}, {"prod", "1"}};
  const auto& [combiner, identity] = kCombiners[random() % std::size(kCombiners)];
  const char* const kFirst[] = {"I[r] == i",       "(I[r] + 1) % g == i", "I[r] - q == i",
                                "i == I[r] / 2",   "P[r] == i",           "I[r] == i + q",
                                "J[r, 1] + i == 3"};
  const char* const kSecond[] = {"J[r, q] == j", "j + 1 == J[r, 0] + q", "j == q",
                                 "J[r, q] + i == j"};
  const char* const kOthers[] = {"X[r] > 0", "r + q < n", "D[r] > 0", "i < 3", "X[r] < W[i]"};
  const char* const kValues[] = {"1",
                                 "X[r]",
                                 "C[r, k] * W[i]",
                                 "exp(X[r] / 9) - D[r]",
                                 "select(X[r] > W[i], D[r], 2)",
                                 "select(D[r] > C[i, k], W[i], C[r, k])"};
  const char* const kFactors[] = {"abs(X[r])", "D[r]", "C[r, k]", "(1 / X[r])", "W[i]"};
  std::vector<std::string> conditions = {Any(kFirst, random)};
  if (random() % 2 == 0) conditions.push_back(Any(kSecond, random));
  if (random() % 2 == 0) conditions.push_back(Any(kOthers, random));
  const std::string otherwise = random() % 8 == 0 ? "3" : identity;
  std::string value = absl::StrCat("(", Any(kValues, random), " + q)");
  if (random() % 2 == 0) {
    for (const std::string& c : conditions) {
      value = absl::StrCat("select(", c, ", ", value, ", ", otherwise, ")");
    }
  } else {
    std::string all = conditions[0];
    for (size_t c = 1; c < conditions.size(); ++c) absl::StrAppend(&all, " && ", conditions[c]);
    value = absl::StrCat("select(", all, ", ", value, ", ", otherwise, ")");
  }
  if (random() % 3 == 0) value = absl::StrCat(Any(kFactors, random), " * ", value);
  return absl::StrCat(combiner, "(r: n, q: 2) ", value);
}

TensorProgram ProgramOf(const std::string& body) {
  return Own(
      absl::StrCat("op f(n, g, h, c) { in I[n]: index(g + 1), J[n, 2]: index(h), X[n], W[g], "
                   "C[n, c]  D[r: n] = sum(k: c) C[r, k] / 3  P[r: n] = argmax(k: c) C[r, k]  "
                   "S[i: g, j: h, k: c] = ",
                   body,
                   "  out Z[z: 1] = S[0, 0, 0] + P[0] * select(I[0] == J[0, 0], X[0] + W[0] "
                   "+ D[0], 0) }"),
      "n=37,g=5,h=4,c=3");
}

TEST(OnePass, EachElementIsWhatItIsByItself) {
  std::mt19937_64 random(tests::Seed());
  int placed = 0;
  constexpr int kOperators = 300;
  for (int i = 0; i < kOperators; ++i) {
    const std::string body = RandomBody(random);
    SCOPED_TRACE(body);
    const TensorProgram program = ProgramOf(body);
    if (IsPlaced(program)) ++placed;
    for (const bool wild : {false, true}) ExpectSame(program, InputOf(program, wild));
    if (testing::Test::HasFatalFailure()) return;
  }
  EXPECT_GT(placed, kOperators / 3);
}

// ------------------------------------------------------------------------------------ which stages

TEST(OnePass, TakesTermsThatNameTheirPlaces) {
  for (const char* body : {
           "sum(r: n) select(I[r] == i, 1, 0)",
           "sum(r: n, q: 2) select(J[r, q] == j, X[r], 0)",
           "sum(r: n) select(I[r] == i && J[r, 0] == j && X[r] > 0, C[r, k], 0)",
           "sum(r: n) select(I[r] == i, select(J[r, 1] == j, 1, 0), 0) * abs(X[r])",
           "sum(r: n) 2 * (D[r] * select(I[r] == i, C[r, k], 0))",
           "sum(r: n) select(I[r] == i, select(D[r] > W[i], D[r], 0), 0)",
           "sum(r: n) select(J[r, 0] == j && P[r] == i, 1, 0)",
           "max(r: n) select(I[r] == i, X[r], -inf)",
           "min(r: n) select(I[r] == i, X[r] + W[i], inf)",
           "prod(r: n) select(I[r] == i, X[r], 1)",
       }) {
    EXPECT_TRUE(IsPlaced(ProgramOf(body))) << body;
  }
}

TEST(OnePass, LeavesOthersAsTheyAre) {
  for (const char* body : {
           "sum(r: n) select(I[r] == i, X[r], 1)",                   // others have something, too
           "min(r: n) select(I[r] == i, X[r], 1.0e30)",              // the same
           "sum(r: n) select(I[r] <= i, X[r], 0)",                   // no place
           "sum(r: n) select(J[0, 0] == j, X[r], 0)",                // the place of all terms
           "sum(r: n) select(I[r] == i && J[r, 0] + i == j, 1, 0)",  // a place that hangs on
                                                                     // another
           "sum(r: n) select(I[r] == i && D[r] > D[i], 1, 0)",  // rounding may turn it anywhere
           "sum(r: n) select(I[r] == i, X[r], 0) * W[i]",       // zero times what a place has
           "max(r: n) select(I[r] == i, X[r], 0) * X[r]",       // zero is no identity
           "sum(r: n) select(I[r] == i, X[r], 0) - select(J[r, 0] == i, 1, 0)",  // two places
           "sum(r: 1) select(I[r] == i, X[r], 0)",                               // a copy
       }) {
    EXPECT_FALSE(IsPlaced(ProgramOf(body))) << body;
  }
}

// An index that is read inside its tensor only where another one says so.
TEST(OnePass, ReadsNoKeyThatIsReadUnderAConditionOnly) {
  const TensorProgram program =
      Own("op f(n, g) { in I[n]: index(n), J[n]: index(g), X[n]  "
          "S[i: g] = sum(r: n) select(r < n - 1, select(J[r + 1] == i, X[I[r]], 0), 0)  "
          "out Z[i: g] = S[i] * 2 }",
          "n=20,g=5");
  EXPECT_FALSE(IsPlaced(program));
  ExpectSame(program, InputOf(program));
}

// What a value is beside a comparison or as a factor shows when it is computed: here some are not
// exact, not finite, or uncertain.
TEST(OnePass, IsGivenUpWhereOtherPlacesHaveSomethingOfATerm) {
  const TensorProgram sums = ProgramOf("sum(r: n) select(I[r] == i && D[r] > 0, 1, 0)"),
                      factor = ProgramOf("sum(r: n) select(I[r] == i, 1, 0) * X[r]"),
                      best = ProgramOf("sum(r: n) select(P[r] == i, 1, 0)");
  for (const TensorProgram* program : {&sums, &factor, &best}) {
    ASSERT_TRUE(IsPlaced(*program));
    const int stage = StageNamed(*program, "S");
    for (const bool wild : {false, true}) {
      const InputElement input = InputOf(*program, wild);
      const Kept kept(*program, input);
      const auto placed = PlacedTermsOf(*program, program->stages[stage]);
      const bool is_whole =
          OnePass(*program, kept, stage, *placed).Run(1, [](int64_t, const Scalar&) {});
      EXPECT_EQ(is_whole, program == &best || (program == &factor && !wild));
      ExpectSame(*program, input);
    }
  }
}

// More terms than are evaluated before they are added.
TEST(OnePass, IsTheSameForAnyThreads) {
  const TensorProgram program =
      Own("op f(n, g, c) { in I[n]: index(g), X[n]  "
          "S[k: c, i: g] = sum(r: n) select(I[r] == i, exp(X[r] + k), 0)  "
          "out Z[z: 1] = sum(k: c, i: g) S[k, i] }",
          "n=700000,g=50,c=2");
  const InputElement input = InputOf(program);
  const int stage = StageNamed(program, "S");
  Kept one(program, input), several(program, input);
  KeepStages(program, {stage}, {}, 1, one);
  KeepStages(program, {stage}, {}, 3, several);
  for (int64_t offset = 0; offset < 100; ++offset) {
    EXPECT_EQ(one.Stage(stage, offset).value, several.Stage(stage, offset).value);
    EXPECT_EQ(one.Stage(stage, offset).magnitude, several.Stage(stage, offset).magnitude);
  }
}

// ---------------------------------------------------------------------------------- how much work

// How often an input is read that is too large to be kept, and so each time that it is looked at.
int64_t ReadsOf(const TensorProgram& program, int input) {
  std::atomic<int64_t> reads{0};
  const InputElement values = InputOf(program);
  const auto counted = [&](int tensor, int64_t offset) {
    if (tensor == input) ++reads;
    return values(tensor, offset);
  };
  EXPECT_FALSE(EvaluateSamples(program, counted, 64, 1, int64_t{1} << 20, 2).empty());
  return reads;
}

TEST(OnePass, LooksAtEachTermOnceWhereAllElementsAreNeeded) {
  const TensorProgram program =
      Own("op f(n, g) { in K[n, 6000]: index(g), X[n]  "
          "H[i: g] = sum(r: n) select(K[r, 0] == i, X[r], 0)  "
          "A[z: 1] = sum(i: g) abs(H[i])  out Y[i: g] = H[i] / A[0] }",
          "n=3000,g=1000");
  EXPECT_EQ(ReadsOf(program, 0), 2 * 3000) << "for its place, and there";
}

// Of the counts a sample needs one row, which takes longer than all of them do together.
TEST(OnePass, LooksAtEachTermOnceWhereManyElementsAreNeeded) {
  const TensorProgram program =
      Own("op f(n, g) { in K[n, 600]: index(g), L[n]: index(g)  "
          "C[i: g, j: g] = sum(r: n) select(K[r, 0] == i && L[r] == j, 1, 0)  "
          "N[i: g] = sum(j: g) C[i, j]  out Y[i: g, j: g] = C[i, j] / N[i] }",
          "n=30000,g=300");
  EXPECT_EQ(ReadsOf(program, 0), 2 * 30000);
}

TEST(OnePass, LooksAtEachTermOnceOfAnOutput) {
  const TensorProgram program =
      Own("op f(n, g) { in K[n, 6]: index(g)  out H[i: g] = sum(r: n) select(K[r, 0] == i, 1, 0) }",
          "n=3000000,g=20");
  EXPECT_EQ(ReadsOf(program, 0), 2 * 3000000);
}

}  // namespace
}  // namespace heddle::search_space::one_pass_test
