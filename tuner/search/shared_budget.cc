#include "tuner/search/shared_budget.h"

#include <algorithm>
#include <utility>

namespace heddle::tuner {
namespace {

// Smaller budgets are not divided: a turn begins with the device's start and ends with finals, some
// seconds, and begins to learn anew.
constexpr int kLeastTrials = 32;
constexpr double kLeastSeconds = 20;
// What a workload's first turn has of its share: what it gets at least.
constexpr double kFirstPart = 0.5;
// A workload whose last trials brought nothing may still gain this share of its time, less with
// every turn that it has had.
constexpr double kHope = 0.01;
// What is left is worth another turn when it is this part of one.
constexpr double kWorthATurn = 0.5;

}  // namespace

double LastImprovement(const SessionReport& session) {
  double before = session.earlier_best_us, after = before;
  for (size_t i = 0; i < session.times.size(); ++i) {
    const double time = session.times[i];
    if (time <= 0) continue;
    if (after == 0 || time < after) after = time;
    if (i < session.times.size() / 2) before = after;
  }
  return before > 0 ? 1 - after / before : 0;
}

SharedBudget::SharedBudget(int trials, double seconds, std::vector<double> weights)
    : turn_{0, trials, seconds} {
  const auto count = weights.size();
  for (double weight : weights) workloads_.push_back({weight});
  trials_left_ = int64_t{trials} * static_cast<int64_t>(count);
  seconds_left_ = seconds * static_cast<double>(count);
  divided_ = count > 1 && (trials > 0 || seconds > 0) && (trials == 0 || trials >= kLeastTrials) &&
             (seconds == 0 || seconds >= kLeastSeconds);
  if (!divided_) return;
  turn_.trials = static_cast<int>(trials * kFirstPart);
  turn_.seconds = seconds * kFirstPart;
}

std::optional<SharedBudget::Turn> SharedBudget::Next(const std::set<size_t>& without) {
  auto better = [](const Workload& a, const Workload& b) {
    if ((a.turns == 0) != (b.turns == 0)) return b.turns == 0;
    return a.turns > 0 && a.expected_us < b.expected_us;
  };
  const Workload* next = nullptr;
  Turn turn = turn_;
  for (size_t i = 0; i < workloads_.size(); ++i) {
    if (workloads_[i].running || without.contains(i)) continue;
    if (next != nullptr && !better(*next, workloads_[i])) continue;
    next = &workloads_[i];
    turn.workload = i;
  }
  if (next == nullptr) return std::nullopt;
  if (next->turns == 0) return Take(turn);
  if (!divided_ || next->expected_us <= 0) return std::nullopt;
  const auto trials_left = static_cast<double>(trials_left_);
  if (trials_left < kWorthATurn * turn_.trials || seconds_left_ < kWorthATurn * turn_.seconds) {
    return std::nullopt;
  }
  turn.trials = static_cast<int>(std::min<int64_t>(turn.trials, trials_left_));
  turn.seconds = std::min(turn.seconds, seconds_left_);
  return Take(turn);
}

SharedBudget::Turn SharedBudget::Take(const Turn& turn) {
  workloads_[turn.workload].running = true;
  trials_left_ -= turn.trials;
  seconds_left_ -= turn.seconds;
  return turn;
}

void SharedBudget::GiveBack(const Turn& turn) {
  workloads_[turn.workload].running = false;
  trials_left_ += turn.trials;
  seconds_left_ += turn.seconds;
}

void SharedBudget::Report(const Turn& turn, const SessionReport& session) {
  GiveBack(turn);
  Workload& workload = workloads_[turn.workload];
  ++workload.turns;
  if (turn.trials > 0) trials_left_ -= session.trials;
  // A session takes longer than its budget by its finals, which do not count.
  if (turn.seconds > 0) seconds_left_ -= std::min(turn.seconds, session.seconds);
  const bool spent = session.stop == StopReason::kTrials || session.stop == StopReason::kSeconds;
  workload.expected_us = 0;
  if (!spent || !session.best) return;
  const double hope = kHope / (workload.turns * workload.turns);
  workload.expected_us =
      workload.weight * session.best->result.time_us * std::max(LastImprovement(session), hope);
}

}  // namespace heddle::tuner
