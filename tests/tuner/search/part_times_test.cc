#include "tuner/search/proposers/part_times.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace heddle::tuner {
namespace {

using search_space::Part;

Part PartOf(uint16_t kernel, uint8_t choice) { return {0, kernel, {choice}}; }

// What a part of two plans takes, and what is guessed: one plan is guessed twice as fast as it is,
// the other twice as slow, and single parts up to a tenth wrong beside that.
double TrueUs(uint16_t kernel, uint8_t choice) { return (kernel == 0 ? 40 : 10) + 7 * choice; }
double GuessUs(uint16_t kernel, uint8_t choice) {
  const double wrong = 1 + 0.1 * std::sin(10 * kernel + choice);
  return TrueUs(kernel, choice) * (kernel == 0 ? 0.5 : 2) * wrong;
}

void AddProgram(PartTimes& times, uint8_t a, uint8_t b, double noise, double error = 0.02) {
  times.Add({PartOf(0, a), PartOf(1, b)}, {GuessUs(0, a), GuessUs(1, b)},
            (TrueUs(0, a) + TrueUs(1, b)) * (1 + noise), error);
}

TEST(PartTimesTest, SumsTellThePartsApart) {
  PartTimes times;
  std::mt19937_64 rng(3);
  std::uniform_int_distribution<int> choice(0, 9);
  std::normal_distribution<> noise(0, 0.01);
  for (int i = 0; i < 60; ++i) {
    AddProgram(times, static_cast<uint8_t>(choice(rng)), static_cast<uint8_t>(choice(rng)),
               noise(rng));
  }
  times.Estimate();
  for (uint16_t kernel : {0, 1}) {
    for (const Part& part : times.WithPlanOf(PartOf(kernel, 0))) {
      const double is = TrueUs(kernel, part.choices[0]);
      EXPECT_NEAR(*times.Of(part), is, 0.1 * is + 1) << kernel << " " << int{part.choices[0]};
    }
  }
}

TEST(PartTimesTest, TheFastestOfAPlanComesFirst) {
  PartTimes times;
  for (uint8_t a = 0; a < 4; ++a) {
    for (uint8_t b = 0; b < 4; ++b) AddProgram(times, a, b, 0);
  }
  times.Estimate();
  const std::vector<Part> parts = times.WithPlanOf(PartOf(1, 200));
  ASSERT_EQ(parts.size(), 4u);
  for (uint8_t b = 0; b < 4; ++b) EXPECT_EQ(parts[b], PartOf(1, b));
  EXPECT_TRUE(times.WithPlanOf(PartOf(2, 0)).empty());
  EXPECT_EQ(times.Of(PartOf(1, 200)), std::nullopt);
}

TEST(PartTimesTest, WhatNoSumTellsApartIsSharedOutAsGuessed) {
  PartTimes times;
  times.Add({PartOf(0, 1), PartOf(1, 1)}, {30, 10}, 80, 0.02);
  times.Estimate();
  EXPECT_NEAR(*times.Of(PartOf(0, 1)), 60, 1);
  EXPECT_NEAR(*times.Of(PartOf(1, 1)), 20, 1);
}

TEST(PartTimesTest, RoughTimesCountLess) {
  PartTimes times;
  for (uint8_t a = 0; a < 4; ++a) {
    for (uint8_t b = 0; b < 4; ++b) AddProgram(times, a, b, 0);
  }
  times.Estimate();
  const double before = *times.Of(PartOf(0, 2));
  PartTimes rough = times, exact = times;
  AddProgram(rough, 2, 2, 0.5, 0.5);
  AddProgram(exact, 2, 2, 0.5, 0.02);
  rough.Estimate();
  exact.Estimate();
  EXPECT_NEAR(*rough.Of(PartOf(0, 2)), before, 0.01 * before);
  EXPECT_GT(*exact.Of(PartOf(0, 2)), 1.03 * before);
}

}  // namespace
}  // namespace heddle::tuner
