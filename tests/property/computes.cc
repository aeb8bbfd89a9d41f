#include "tests/property/computes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/reference/reference.h"
#include "search_space/schedule/step.h"

namespace heddle::tests {

using namespace search_space;

Subject::Subject(TensorProgram program)
    : program_(std::make_shared<const TensorProgram>(std::move(program))) {
  for (size_t t = 0; t < program_->inputs.size(); ++t) {
    std::vector<double>& values = expected_[program_->inputs[t]->name];
    values.resize(static_cast<size_t>(program_->inputs[t]->elements));
    const auto extent = static_cast<size_t>(program_->inputs[t]->index_extent);
    for (size_t i = 0; i < values.size(); ++i) {
      if (extent > 0) {  // one too many on either side, which are clamped
        values[i] = static_cast<double>((i * 7 + t * 13 + i / 11) % (extent + 2)) - 1;
        continue;
      }
      values[i] = static_cast<double>((i * 7 + t * 13 + i / 11) % 9) - 4;
    }
  }
  EvaluateAll(*program_, expected_);
}

void Subject::ExpectComputes(const std::vector<Step>& steps, const Target& target, double tolerance,
                             uint64_t seed) const {
  const absl::StatusOr<Program> lowered = LowerSteps(program_, steps);
  ASSERT_TRUE(lowered.ok()) << lowered.status() << "\n" << ToString(steps);
  const absl::Status verified = Verify(*lowered, target);
  ASSERT_TRUE(verified.ok()) << verified << "\n" << ToString(steps) << ToString(*lowered);
  TensorValues values;
  for (const BufferRef& input : program_->inputs) values[input->name] = expected_.at(input->name);
  const absl::Status ran = Interpret(*lowered, values, {.seed = seed});
  ASSERT_TRUE(ran.ok()) << ran << "\n" << ToString(steps) << ToString(*lowered);
  for (const BufferRef& output : lowered->outputs) {
    const std::vector<double>& want = expected_.at(output->name);
    const std::vector<double>& got = values.at(output->name);
    double largest = 1;
    for (double v : want) largest = std::max(largest, std::abs(v));
    for (size_t i = 0; i < want.size(); ++i) {
      ASSERT_TRUE(std::abs(got[i] - want[i]) <= tolerance * largest)
          << output->name << "[" << i << "] is " << got[i] << ", should be " << want[i] << "\n"
          << ToString(steps) << ToString(*lowered);
    }
  }
}

void ForPoints(const SearchSpace& space, uint64_t seed, int count,
               const std::function<void(const Point&, int number)>& use) {
  Rng rng(seed);
  std::vector<Point> drawn = {space.Default()};
  for (int i = 0; i < count; ++i) {
    SCOPED_TRACE(absl::StrCat("point ", i, ": ", space.Print(drawn.back())));
    use(drawn.back(), i);
    if (testing::Test::HasFatalFailure()) return;
    std::optional<Point> next;
    if (i % 4 == 2) next = space.Mutate(drawn.back(), rng);
    if (i % 4 == 3) next = space.Crossover(drawn.back(), drawn[rng() % drawn.size()], rng);
    if (!next.has_value()) next = space.Sample(rng);
    ASSERT_TRUE(next.has_value());
    drawn.push_back(*std::move(next));
  }
}

namespace {

// Without what depends on the rest of the program: the kernel's number in its name, and those of
// copies, of which A.shared2 is the second of A.
std::vector<std::string> TextsOf(std::vector<Kernel> kernels) {
  std::vector<std::string> texts;
  for (Kernel& kernel : kernels) {
    kernel.name.clear();
    const std::string text = ToString(kernel);
    std::string& bare = texts.emplace_back();
    for (size_t i = 0; i < text.size();) {
      bare += text[i++];
      if (!absl::EndsWith(bare, ".shared") && !absl::EndsWith(bare, ".local")) continue;
      while (i < text.size() && absl::ascii_isdigit(static_cast<unsigned char>(text[i]))) ++i;
    }
  }
  std::sort(texts.begin(), texts.end());
  return texts;
}

}  // namespace

void ExpectPartsAreTheProgram(const SearchSpace& space, const Point& point) {
  const absl::StatusOr<Program> lowered = space.Lower(point);
  ASSERT_TRUE(lowered.ok()) << lowered.status();
  std::vector<Kernel> kernels;
  for (const Part& part : space.PartsOf(point)) {
    const absl::StatusOr<Program> own = space.Lower(part);
    ASSERT_TRUE(own.ok()) << own.status();
    kernels.insert(kernels.end(), own->kernels.begin(), own->kernels.end());
  }
  EXPECT_EQ(TextsOf(std::move(kernels)), TextsOf(lowered->kernels));
}

}  // namespace heddle::tests
