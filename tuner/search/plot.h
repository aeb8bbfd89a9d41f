// The best-so-far curve of a tuning session, for the terminal and as an SVG file.
#ifndef HEDDLE_TUNER_SEARCH_PLOT_H_
#define HEDDLE_TUNER_SEARCH_PLOT_H_

#include <string>
#include <vector>

namespace heddle::tuner {

// One entry a trial in completion order: its time in microseconds, 0 where it failed.
using TrialTimes = std::vector<double>;

// The running minimum of the positive entries; 0 before the first.
std::vector<double> BestSoFar(const TrialTimes& times);

// Best time (logarithmic) over trials, `width` x `height` characters of curve with axes. Empty
// when no trial succeeded.
std::string TerminalCurve(const TrialTimes& times, int width, int height);

// A self-contained SVG document: a dot for each trial that succeeded, a tick at the bottom for each
// that failed, the best so far as a line.
std::string SvgCurve(const TrialTimes& times, const std::string& title);

struct Line {
  std::string name;
  std::vector<double> values;  // at x = 1, 2, ...; between 0 and 1
};
// A self-contained SVG document with each line in a colour of its own.
std::string SvgLines(const std::vector<Line>& lines, const std::string& title);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_PLOT_H_
