#include "tuner/search/progress.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"

namespace heddle::tuner {
namespace {

constexpr int kBarCells = 20;
constexpr absl::Duration kRedraw = absl::Milliseconds(100);
constexpr absl::Duration kPlainLine = absl::Seconds(30);

// How much of the tightest budget is used, 0 .. 1.
double Done(const Progress& p) {
  double done = 0;
  if (p.trial_budget > 0) done = static_cast<double>(p.trials) / p.trial_budget;
  if (p.seconds_budget > 0) done = std::max(done, p.seconds / p.seconds_budget);
  return std::clamp(done, 0.0, 1.0);
}

std::string Clock(double seconds) {
  int64_t s = std::llround(seconds);
  if (s >= 3600) return absl::StrFormat("%d:%02d:%02d", s / 3600, s / 60 % 60, s % 60);
  return absl::StrFormat("%d:%02d", s / 60, s % 60);
}

}  // namespace

double SecondsLeft(const Progress& p) {
  double left = -1;
  if (p.trial_budget > 0 && p.trials > 0) {
    left = p.seconds / p.trials * std::max(0, p.trial_budget - p.trials);
  }
  if (p.seconds_budget > 0) {
    double by_clock = std::max(0.0, p.seconds_budget - p.seconds);
    left = left < 0 ? by_clock : std::min(left, by_clock);
  }
  return left;
}

std::string FailureCounts(const std::map<measure::Outcome, int>& failed) {
  return absl::StrJoin(failed, ", ", [](std::string* out, const auto& kind) {
    absl::StrAppend(out, kind.second, " ", measure::NameOf(kind.first));
  });
}

std::string ProgressLine(const Progress& p, int width) {
  std::vector<std::string> parts;
  parts.push_back(p.trial_budget > 0 ? absl::StrFormat("%d/%d trials", p.trials, p.trial_budget)
                                     : absl::StrFormat("%d trials", p.trials));
  if (p.best_us > 0) {
    parts.push_back("best " + FormatTime(p.best_us));
    parts.push_back(p.roofline.Rate(p.best_us));
    double share = p.roofline.Share(p.best_us);
    if (share > 0) parts.push_back(absl::StrFormat("%.0f%% of roofline", share * 100));
  }
  double left = SecondsLeft(p);
  if (left >= 0) parts.push_back(Clock(left) + " left");
  if (p.trials > 0 && p.seconds > 0) {
    parts.push_back(absl::StrFormat("%.1f trials/s", p.trials / p.seconds));
  }
  if (!p.failed.empty()) parts.push_back("failed: " + FailureCounts(p.failed));
  std::string line;
  if (p.trial_budget > 0 || p.seconds_budget > 0) {
    int cells = static_cast<int>(Done(p) * kBarCells);
    line = absl::StrCat("[", std::string(cells, '#'), std::string(kBarCells - cells, '.'), "] ");
  }
  line += absl::StrJoin(parts, "  ");
  if (static_cast<int>(line.size()) > width) line.resize(std::max(0, width));
  return line;
}

void ProgressPrinter::Show(const Progress& progress) {
  const SteadyTime now = SteadyNow();
  bool better = progress.best_us > 0 && progress.best_us != shown_best_us_;
  if (now - shown_ < (terminal_ ? kRedraw : kPlainLine) && (terminal_ || !better)) return;
  shown_ = now;
  shown_best_us_ = progress.best_us;
  if (terminal_) {
    absl::FPrintF(out_, "\r%s\033[K", ProgressLine(progress, width_));
    drawn_ = true;
  } else {
    Note(ProgressLine(progress, 1000));
  }
  std::fflush(out_);
}

void ProgressPrinter::Note(const std::string& line) {
  Clear();
  // At once, so that lines of several sessions do not mix.
  std::fputs(absl::StrCat(prefix_, line, "\n").c_str(), out_);
  std::fflush(out_);
}

void ProgressPrinter::Clear() {
  if (!drawn_) return;
  absl::FPrintF(out_, "\r\033[K");
  std::fflush(out_);
  drawn_ = false;
}

}  // namespace heddle::tuner
