// What a tuning session shows while it runs: a bar that redraws itself on a terminal, plain lines
// elsewhere.
#ifndef HEDDLE_TUNER_SEARCH_PROGRESS_H_
#define HEDDLE_TUNER_SEARCH_PROGRESS_H_

#include <cstdio>
#include <map>
#include <string>
#include <utility>

#include "absl/time/time.h"
#include "base/clock.h"
#include "measure/device/outcome.h"
#include "tuner/model/roofline.h"

namespace heddle::tuner {

// Where a session stands.
struct Progress {
  int trials = 0;             // completed in this session
  int trial_budget = 0;       // 0 = none
  double seconds = 0;         // since the session began
  double seconds_budget = 0;  // 0 = none
  double best_us = 0;         // 0 = none yet
  Roofline roofline;
  std::map<measure::Outcome, int> failed;  // by kind; without kOk
};

// Seconds until a budget is used up at the present pace; negative = not known yet.
double SecondsLeft(const Progress& progress);

// "3 BUILD_ERROR, 1 WRONG_ANSWER"; empty when nothing failed.
std::string FailureCounts(const std::map<measure::Outcome, int>& failed);

// One line: bar, trials, best, rate, share of the roofline, failures, pace, time left. At most
// `width` characters.
std::string ProgressLine(const Progress& progress, int width);

// Writes progress to a stream. Not thread-safe.
class ProgressPrinter {
 public:
  // `terminal`: redraw one line in place; otherwise print a line for every new best and at least
  // one in 30 seconds.
  // `prefix` begins each, where several sessions write.
  ProgressPrinter(std::FILE* out, bool terminal, int width, std::string prefix = "")
      : out_(out), terminal_(terminal), width_(width), prefix_(std::move(prefix)) {}
  ~ProgressPrinter() { Clear(); }

  void Show(const Progress& progress);
  // A line that stays, above the bar.
  void Note(const std::string& line);
  // Removes the bar.
  void Clear();

 private:
  std::FILE* out_;
  bool terminal_;
  int width_;
  std::string prefix_;
  bool drawn_ = false;
  double shown_best_us_ = 0;
  SteadyTime shown_ = SteadyTime::InfinitePast();
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_PROGRESS_H_
