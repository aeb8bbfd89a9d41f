// Names of generated kernels: legal, unlike those around them, always the same.
#include "measure/codegen/names.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

namespace heddle::measure {
namespace {

using search_space::Api;
using ::testing::Each;
using ::testing::Eq;
using ::testing::MatchesRegex;
using ::testing::Not;

// Names in one of the ways.
class OneNaming {
 public:
  explicit OneNaming(Api api = Api::kCuda, Naming naming = Naming::kReadable)
      : names_(DialectOf(api)), naming_(naming) {}
  std::string Declare(NameKind kind, absl::string_view wanted, absl::string_view word = "") {
    return names_.Spell(names_.Declare(kind, wanted, word), naming_);
  }
  size_t Mark() const { return names_.Mark(); }
  void Release(size_t mark) { names_.Release(mark); }

 private:
  Names names_;
  Naming naming_;
};

TEST(Names, SayWhatTheyAreOf) {
  OneNaming names;
  EXPECT_EQ(names.Declare(NameKind::kIndex, "i.0@j.0", "block"), "block");
  EXPECT_EQ(names.Declare(NameKind::kArgument, "A"), "A");
  EXPECT_EQ(names.Declare(NameKind::kShared, "A.shared"), "A_shared");
  EXPECT_EQ(names.Declare(NameKind::kVector, "A"), "A_vector");
  EXPECT_EQ(names.Declare(NameKind::kPointer, "A.shared"), "A_shared_ptr");
  EXPECT_EQ(names.Declare(NameKind::kMap, "A"), "A_map");
  EXPECT_EQ(names.Declare(NameKind::kIndex, "r.1.0"), "r_1_0");
  OneNaming normal(Api::kCuda, Naming::kNormal);
  EXPECT_EQ(normal.Declare(NameKind::kIndex, "i.0@j.0", "block"), "v_i_0_j_0");
  EXPECT_EQ(normal.Declare(NameKind::kVector, "A"), "x_A");
  EXPECT_EQ(normal.Declare(NameKind::kVector, "A"), "x_A_2");
}

// One text is enough for either.
TEST(Names, AreSpelledInBothWays) {
  Names names(DialectOf(Api::kCuda));
  const std::string block = names.Declare(NameKind::kIndex, "i.0@j.0", "block");
  std::string text = absl::StrCat("x = ", block, ";", names.Aside("  // i.0@j.0"));
  for (int i = 1; i < 299; ++i) names.Declare(NameKind::kValue, "A");
  absl::StrAppend(&text, names.Declare(NameKind::kValue, "A"), block);
  EXPECT_EQ(names.Spell(text, Naming::kReadable), "x = block;  // i.0@j.0A_value_knblock");
  EXPECT_EQ(names.Spell(text, Naming::kNormal), "x = v_i_0_j_0;x_A_299v_i_0_j_0");
}

TEST(Names, EndWithTheirScope) {
  OneNaming names;
  EXPECT_EQ(names.Declare(NameKind::kIndex, "i"), "i");
  const size_t mark = names.Mark();
  EXPECT_EQ(names.Declare(NameKind::kIndex, "i"), "i_b");
  EXPECT_EQ(names.Declare(NameKind::kIndex, "i"), "i_c");
  names.Release(mark);
  EXPECT_EQ(names.Declare(NameKind::kIndex, "i"), "i_b") << "not i_2, which is a part of i";
}

TEST(Names, AreNoWordsOfTheLanguages) {
  for (Api api : {Api::kCuda, Api::kOpenCl}) {
    OneNaming names(api);
    for (const char* word : {"float", "float4", "while", "and", "kernel", "INFINITY", "linux"}) {
      EXPECT_EQ(names.Declare(NameKind::kArgument, word), std::string(word) + "_");
    }
    EXPECT_EQ(names.Declare(NameKind::kArgument, "W1"), "W1");
  }
  OneNaming cuda, opencl(Api::kOpenCl);
  EXPECT_EQ(cuda.Declare(NameKind::kArgument, "expf"), "expf_") << "which kernels call";
  EXPECT_EQ(opencl.Declare(NameKind::kArgument, "expf"), "expf");
}

TEST(Names, OfRandomTextsAreLegalAndUnlikeTheOthers) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE(seed);
  std::mt19937 rng(seed);
  const std::vector<std::string> pieces = {"a", "B",    "size", "int", "2", "_",  ".",
                                           "@", "\xc3", "t",    "__",  "A", "\n", "f"};
  for (Api api : {Api::kCuda, Api::kOpenCl}) {
    OneNaming names(api), again(api);
    std::vector<std::string> active;
    std::vector<size_t> marks;
    for (int i = 0; i < 2000; ++i) {
      if (rng() % 8 == 0) {
        marks.push_back(names.Mark());
      } else if (rng() % 8 == 0 && !marks.empty()) {
        names.Release(marks.back());
        again.Release(marks.back());
        active.resize(marks.back());
        marks.pop_back();
      }
      std::string wanted;
      for (size_t n = rng() % 4; n > 0; --n) wanted += pieces[rng() % pieces.size()];
      const auto kind = static_cast<NameKind>(rng() % 10);
      const std::string name = names.Declare(kind, wanted);
      EXPECT_EQ(name, again.Declare(kind, wanted));
      EXPECT_THAT(name, MatchesRegex("[A-Za-z]([A-Za-z0-9]|_[A-Za-z0-9])*_?")) << wanted;
      EXPECT_FALSE(IsReserved(name)) << name;
      EXPECT_THAT(active, Each(Not(Eq(name))));
      active.push_back(name);
    }
  }
}

}  // namespace
}  // namespace heddle::measure
