#include "tuner/search/progress.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdio>
#include <string>

#include "search_space/notation/notation.h"
#include "tuner/model/roofline.h"
#include "tuner/search/plot.h"

namespace heddle::tuner::progress_test {
namespace {

using measure::L2Policy;
using measure::Outcome;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

search_space::TensorProgram Matmul(int64_t size) {
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  return *op->Instantiate({{"m", size}, {"n", size}, {"k", size}}, search_space::DType::kFloat32);
}

search_space::Target Gpu() {
  search_space::Target target;
  target.peak_gflops = 1000;
  target.memory_gbs = 100;
  target.l2_bytes = 1 << 20;
  return target;
}

TEST(RooflineTest, CountsArithmeticAndCompulsoryTraffic) {
  // 2 * 256^3 = 33.6 MFLOP at 1 TFLOP/s: 33.6 us; 3 * 256 KiB at 100 GB/s: 7.9 us.
  Roofline r = RooflineOf(Matmul(256), Gpu(), L2Policy::kCold);
  EXPECT_NEAR(r.compute_us, 33.55, 0.01);
  EXPECT_NEAR(r.memory_us, 7.86, 0.01);
  EXPECT_TRUE(r.compute_bound());
  EXPECT_NEAR(r.Share(67.1), 0.5, 0.001);
  EXPECT_NEAR(r.Gflops(33.55), 1000, 1);
  EXPECT_EQ(r.Rate(33.55), "1000 GFLOP/s");
}

TEST(RooflineTest, WarmDataThatFitTheCacheDoNotComeFromMemory) {
  EXPECT_EQ(RooflineOf(Matmul(256), Gpu(), L2Policy::kWarm).memory_us, 0);
  EXPECT_GT(RooflineOf(Matmul(1024), Gpu(), L2Policy::kWarm).memory_us, 0);
}

TEST(RooflineTest, UnknownPeaksGiveNoShare) {
  search_space::Target unknown;
  Roofline r = RooflineOf(Matmul(256), unknown, L2Policy::kCold);
  EXPECT_EQ(r.us(), 0);
  EXPECT_EQ(r.Share(10), 0);
  EXPECT_TRUE(r.compute_bound());
}

TEST(FormatTimeTest, ThreeDigitsInTheUnitThatFits) {
  EXPECT_EQ(FormatTime(1.234), "1.23 us");
  EXPECT_EQ(FormatTime(56.21), "56.2 us");
  EXPECT_EQ(FormatTime(2660.4), "2.66 ms");
  EXPECT_EQ(FormatTime(3.1e6), "3.10 s");
}

Progress Halfway() {
  Progress p;
  p.trials = 100;
  p.trial_budget = 200;
  p.seconds = 50;
  p.best_us = 67.1;
  p.roofline = RooflineOf(Matmul(256), Gpu(), L2Policy::kCold);
  p.failed = {{Outcome::kBuildError, 3}, {Outcome::kWrongAnswer, 1}};
  return p;
}

TEST(ProgressTest, LineSaysEverything) {
  EXPECT_EQ(ProgressLine(Halfway(), 1000),
            "[##########..........] 100/200 trials  best 67.1 us  500 GFLOP/s  50% of roofline  "
            "0:50 left  2.0 trials/s  failed: 3 BUILD_ERROR, 1 WRONG_ANSWER");
}

TEST(ProgressTest, LineIsCutToTheTerminal) { EXPECT_EQ(ProgressLine(Halfway(), 40).size(), 40u); }

TEST(ProgressTest, NothingIsInventedBeforeTheFirstTrial) {
  Progress p;
  p.trial_budget = 10;
  EXPECT_EQ(SecondsLeft(p), -1);
  EXPECT_EQ(ProgressLine(p, 1000), "[....................] 0/10 trials");
}

TEST(ProgressTest, TheTighterBudgetCounts) {
  Progress p = Halfway();
  p.seconds_budget = 60;
  EXPECT_DOUBLE_EQ(SecondsLeft(p), 10);
  p.seconds_budget = 1000;
  EXPECT_DOUBLE_EQ(SecondsLeft(p), 50);
}

std::string Printed(bool terminal) {
  std::FILE* file = std::tmpfile();
  {
    ProgressPrinter printer(file, terminal, 100);
    Progress p = Halfway();
    printer.Show(p);
    ++p.trials;
    printer.Show(p);  // nothing new
    p.best_us = 60;
    printer.Show(p);
    printer.Note("a note");
  }
  std::string text(static_cast<size_t>(std::ftell(file)), '\0');
  std::rewind(file);
  EXPECT_EQ(std::fread(text.data(), 1, text.size(), file), text.size());
  std::fclose(file);
  return text;
}

TEST(ProgressPrinterTest, PlainLinesForEveryNewBestOnly) {
  std::string text = Printed(false);
  EXPECT_THAT(text, Not(HasSubstr("\r")));
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 3);
  EXPECT_THAT(text, HasSubstr("101/200 trials  best 60.0 us"));
}

TEST(ProgressPrinterTest, TerminalRedrawsAndClearsForNotes) {
  std::string text = Printed(true);
  EXPECT_EQ(text.substr(0, 2), "\r[");
  EXPECT_THAT(text, HasSubstr("\r\033[Ka note\n"));
}

TEST(PlotTest, BestSoFarSkipsFailures) {
  EXPECT_THAT(BestSoFar({0, 10, 0, 20, 5}), ElementsAre(0, 10, 10, 10, 5));
}

TEST(PlotTest, TerminalCurveFallsFromTopToBottom) {
  std::string plot = TerminalCurve({100, 100, 10, 1}, 4, 3);
  EXPECT_EQ(plot,
            "    100 us |**  \n"
            "   10.0 us |  * \n"
            "   1.00 us |   *\n"
            "           +----\n"
            "            1  4 trials\n")
      << plot;
}

TEST(PlotTest, NothingToPlot) {
  EXPECT_EQ(TerminalCurve({}, 10, 3), "");
  EXPECT_EQ(TerminalCurve({0, 0}, 10, 3), "");
  EXPECT_THAT(SvgCurve({0}, "x"), HasSubstr("no trial succeeded"));
}

TEST(PlotTest, OneTimeHasAScaleToo) {
  EXPECT_THAT(TerminalCurve({5, 5}, 10, 3), HasSubstr("*"));
  EXPECT_THAT(SvgCurve({5}, "x"), Not(HasSubstr("nan")));
}

TEST(PlotTest, SvgHasADotPerSuccessATickPerFailureAndAnEscapedTitle) {
  std::string svg = SvgCurve({100, 0, 10}, "a<b & c");
  EXPECT_THAT(svg, HasSubstr("a&lt;b &amp; c"));
  auto count = [&](const std::string& what) {
    int n = 0;
    for (size_t at = svg.find(what); at != std::string::npos; at = svg.find(what, at + 1)) ++n;
    return n;
  };
  EXPECT_EQ(count("<circle"), 2);
  EXPECT_EQ(count("stroke=\"#c33\""), 1);
  EXPECT_EQ(count("<path"), 1);
  EXPECT_EQ(svg.substr(svg.size() - 7), "</svg>\n");
}

}  // namespace
}  // namespace heddle::tuner::progress_test
