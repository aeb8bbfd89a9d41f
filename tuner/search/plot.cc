#include "tuner/search/plot.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_replace.h"
#include "tuner/model/roofline.h"

namespace heddle::tuner {
namespace {

// The extremes of the positive values, widened where they are equal so that a scale exists.
struct LogRange {
  double low, high;
  explicit LogRange(const std::vector<double>& values) {
    low = high = 0;
    for (double v : values) {
      if (v <= 0) continue;
      low = low == 0 ? v : std::min(low, v);
      high = std::max(high, v);
    }
    if (low == high) {
      low *= 0.9;
      high *= 1.1;
    }
  }
  // 0 at `low`, 1 at `high`.
  double Position(double v) const { return std::log(v / low) / std::log(high / low); }
  double ValueAt(double position) const { return low * std::pow(high / low, position); }
};

std::string SvgText(double x, double y, const char* anchor, const std::string& text) {
  return absl::StrFormat("<text x=\"%.1f\" y=\"%.1f\" text-anchor=\"%s\">%s</text>\n", x, y, anchor,
                         text);
}

// Of a whole picture and of the margins round its curves.
constexpr double kWidth = 760, kHeight = 420, kLeft = 80, kRight = 20, kTop = 44, kBottom = 46;

std::string SvgBegin(const std::string& title) {
  std::string safe_title =
      absl::StrReplaceAll(title, {{"&", "&amp;"}, {"<", "&lt;"}, {">", "&gt;"}});
  std::string svg = absl::StrFormat(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%.0f\" height=\"%.0f\" "
      "font-family=\"sans-serif\" font-size=\"12\">\n"
      "<rect width=\"100%%\" height=\"100%%\" fill=\"white\"/>\n",
      kWidth, kHeight);
  return svg + SvgText(kWidth / 2, 22, "middle", safe_title);
}

// A horizontal line of the grid and its label.
std::string SvgTick(double y, const std::string& label) {
  return absl::StrFormat(
             "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#ddd\"/>\n", kLeft,
             kWidth - kRight, y, y) +
         SvgText(kLeft - 8, y + 4, "end", label);
}

}  // namespace

std::vector<double> BestSoFar(const TrialTimes& times) {
  std::vector<double> best;
  double now = 0;
  for (double t : times) {
    if (t > 0 && (now == 0 || t < now)) now = t;
    best.push_back(now);
  }
  return best;
}

std::string TerminalCurve(const TrialTimes& times, int width, int height) {
  std::vector<double> best = BestSoFar(times);
  if (best.empty() || best.back() == 0) return "";
  LogRange range(best);
  // Row 0 on top is the slowest; each column shows the best at its last trial.
  std::vector<std::string> rows(height, std::string(width, ' '));
  int trials = static_cast<int>(best.size());
  int above = -1;  // row of the column to the left
  for (int c = 0; c < width; ++c) {
    double v = best[std::max<int64_t>(0, int64_t{c + 1} * trials / width - 1)];
    if (v == 0) continue;
    int row = static_cast<int>(std::lround((1 - range.Position(v)) * (height - 1)));
    row = std::clamp(row, 0, height - 1);
    for (int r = above + 1; above >= 0 && r < row; ++r) rows[r][c] = '|';
    rows[row][c] = '*';
    above = row;
  }
  std::string out;
  for (int r = 0; r < height; ++r) {
    bool labelled = r == 0 || r == height - 1 || r == height / 2;
    double value = range.ValueAt(1 - static_cast<double>(r) / std::max(1, height - 1));
    absl::StrAppendFormat(&out, "%10s |%s\n", labelled ? FormatTime(value) : "", rows[r]);
  }
  std::string last = absl::StrCat(trials, " trials");
  int room = std::max(width - 1, static_cast<int>(last.size()) + 2);
  absl::StrAppendFormat(&out, "%10s +%s\n%10s  1%*s\n", "", std::string(width, '-'), "", room,
                        last);
  return out;
}

std::string SvgCurve(const TrialTimes& times, const std::string& title) {
  std::string svg = SvgBegin(title);

  std::vector<double> best = BestSoFar(times);
  if (best.empty() || best.back() == 0) {
    return svg + SvgText(kWidth / 2, kHeight / 2, "middle", "no trial succeeded") + "</svg>\n";
  }
  LogRange range(times);
  double trials = static_cast<double>(times.size());
  auto x_of = [&](double trial) {
    return kLeft + (kWidth - kLeft - kRight) * (trial - 0.5) / trials;
  };
  auto y_of = [&](double us) {
    return kTop + (kHeight - kTop - kBottom) * (1 - range.Position(us));
  };

  constexpr int kTicks = 5;
  for (int i = 0; i <= kTicks; ++i) {
    double us = range.ValueAt(static_cast<double>(i) / kTicks);
    svg += SvgTick(y_of(us), FormatTime(us));
  }
  svg += SvgText(kLeft, kHeight - 10, "start", "1");
  svg += SvgText(kWidth - kRight, kHeight - 10, "end", absl::StrCat(times.size(), " trials"));

  std::string line;
  for (size_t i = 0; i < times.size(); ++i) {
    double x = x_of(static_cast<double>(i) + 1);
    if (times[i] > 0) {
      absl::StrAppendFormat(&svg, "<circle cx=\"%.1f\" cy=\"%.1f\" r=\"2\" fill=\"#9bb7d4\"/>\n", x,
                            y_of(times[i]));
    } else {
      absl::StrAppendFormat(
          &svg, "<line x1=\"%.1f\" x2=\"%.1f\" y1=\"%.1f\" y2=\"%.1f\" stroke=\"#c33\"/>\n", x, x,
          kHeight - kBottom + 4, kHeight - kBottom + 12);
    }
    if (best[i] == 0) continue;
    if (line.empty()) {
      line = absl::StrFormat("M%.1f %.1f", x, y_of(best[i]));
    } else {
      absl::StrAppendFormat(&line, "H%.1fV%.1f", x, y_of(best[i]));
    }
  }
  absl::StrAppendFormat(
      &svg, "<path d=\"%s\" fill=\"none\" stroke=\"#1f4e79\" stroke-width=\"2\"/>\n", line);
  return svg + "</svg>\n";
}

std::string SvgLines(const std::vector<Line>& lines, const std::string& title) {
  static constexpr const char* kColours[] = {"#999999", "#1f77b4", "#d62728", "#2ca02c"};
  std::string svg = SvgBegin(title);
  auto y_of = [](double v) { return kTop + (kHeight - kTop - kBottom) * (1 - v); };
  constexpr int kTicks = 5;
  for (int i = 0; i <= kTicks; ++i) {
    const double v = static_cast<double>(i) / kTicks;
    svg += SvgTick(y_of(v), absl::StrFormat("%.1f", v));
  }
  size_t longest = 1;
  for (const Line& line : lines) longest = std::max(longest, line.values.size());
  svg += SvgText(kLeft, kHeight - 10, "start", "1");
  svg += SvgText(kWidth - kRight, kHeight - 10, "end", absl::StrCat(longest));
  for (size_t l = 0; l < lines.size(); ++l) {
    const char* colour = kColours[l % std::size(kColours)];
    absl::StrAppendFormat(
        &svg, "<polyline fill=\"none\" stroke-width=\"2\" stroke=\"%s\" points=\"", colour);
    for (size_t i = 0; i < lines[l].values.size(); ++i) {
      const double x = kLeft + (kWidth - kLeft - kRight) * static_cast<double>(i) /
                                   std::max<double>(1, static_cast<double>(longest) - 1);
      absl::StrAppendFormat(&svg, "%.1f,%.1f ", x, y_of(lines[l].values[i]));
    }
    absl::StrAppendFormat(
        &svg, "\"/>\n<text x=\"%.1f\" y=\"%.1f\" fill=\"%s\">%s</text>\n", kWidth - kRight - 90,
        kHeight - kBottom - 70 + 18 * static_cast<double>(l), colour, lines[l].name);
  }
  return svg + "</svg>\n";
}

}  // namespace heddle::tuner
