#include "tuner/search/session.h"

#include <algorithm>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "measure/judge/timing.h"
#include "search_space/schedule/step.h"
#include "tuner/search/default_point.h"

namespace heddle::tuner {
namespace {

using measure::Outcome;
using measure::TrialResult;
using search_space::Point;

// How often interruption and budgets are looked at while no result arrives.
constexpr absl::Duration kPoll = absl::Milliseconds(100);
// Trials that are begun behind the first, whatever that took.
constexpr int kTellPace = 4;

// A default schedule slower than the best by more than this would cost the finals more time than
// the precision of its ratio is worth.
constexpr double kComparable = 10;

// The first line of a compiler's log without its numbers, so that the same error of two candidates
// looks the same.
std::string ErrorSignature(const std::string& log) {
  std::string signature;
  for (char c : log.substr(0, log.find('\n'))) {
    if (!absl::ascii_isdigit(c)) signature += c;
  }
  return signature;
}

}  // namespace

const char* NameOf(StopReason reason) {
  switch (reason) {
    case StopReason::kTrials:
      return "trials";
    case StopReason::kSeconds:
      return "seconds";
    case StopReason::kPlateau:
      return "plateau";
    case StopReason::kExhausted:
      return "exhausted";
    case StopReason::kInterrupted:
      return "interrupted";
  }
  return "?";
}

TimeSpent& TimeSpent::operator+=(const TimeSpent& other) {
  compile += other.compile;
  load += other.load;
  validate += other.validate;
  time += other.time;
  time_spare += other.time_spare;
  search += other.search;
  idle_compiling += other.idle_compiling;
  idle_proposing += other.idle_proposing;
  return *this;
}

Session::Session(const search_space::SearchSpace& space, measure::Measurer& measurer, TrialLog& log,
                 measure::L2Policy l2, Proposer& proposer, SessionOptions options)
    : space_(space),
      measurer_(measurer),
      log_(log),
      l2_(l2),
      proposer_(proposer),
      options_(std::move(options)) {}

double Session::Elapsed() const { return SecondsSince(start_); }

double Session::SecondsPerTrial() const { return Elapsed() / std::max(1, report_.trials); }

int Session::AffordableTrials() const {
  const double left = options_.seconds - Elapsed();
  const int wanted = measurer_.wanted_in_flight();
  double first = 0, interval = SecondsPerTrial();
  // The first trials went alone, or beside few others: they say how long one takes, not how many
  // end in a second once all compilers are busy.
  if (report_.trials < wanted) {
    const double spare = measurer_.device_waits().sampling_s - waits_before_.sampling_s;
    const TimeSpent& spent = report_.spent;
    const double device = (spent.load + spent.validate + spent.time - spare) / report_.trials;
    // Of several, what the first one waited for its compiler to start says nothing.
    const bool is_alone = report_.trials == 1;
    const double compile =
        is_alone ? spent.compile : (spent.compile - first_compile_) / (report_.trials - 1);
    const double busy = std::max(device, compile / wanted);
    if (busy > 0) {
      first = compile + device;
      interval = std::min(interval, busy);
    }
  }
  // No more than are ever wanted, so that it is an int.
  return static_cast<int>(std::min<double>((left - first) / interval, wanted));
}

void Session::AddPhases(const TrialResult& result) {
  report_.spent.compile += result.compile_s;
  report_.spent.load += result.load_s;
  report_.spent.validate += result.validate_s;
  report_.spent.time += result.time_s;
}

void Session::ShowProgress() const {
  Progress p;
  p.trials = report_.trials;
  p.trial_budget = options_.trials;
  p.seconds = Elapsed();
  p.seconds_budget = options_.seconds;
  p.best_us = best_us_;
  p.roofline = RooflineOf(space_.program(), space_.target(), l2_);
  p.failed = report_.failed;
  options_.on_progress(p);
}

void Session::Learn(const std::string& key, Contender contender) {
  auto [it, added] = known_.try_emplace(key, contender);
  if (!added && (contender.is_final || ShowsWrong(contender.result) || !it->second.is_final)) {
    it->second = std::move(contender);
  }
  const Contender& now = it->second;
  if (key == default_key_) report_.default_us = now.result.time_us;
  if (now.result.outcome != Outcome::kOk) return;
  if (best_us_ == 0 || now.result.time_us < best_us_) best_us_ = now.result.time_us;
}

Contender Session::WithSteps(Contender contender) const {
  if (!contender.steps.empty()) return contender;
  // The point was parsed or proposed by this space.
  auto point = space_.Parse(contender.point);
  auto steps = point.ok() ? space_.Steps(*point) : point.status();
  if (steps.ok()) contender.steps = *std::move(steps);
  return contender;
}

std::vector<Contender> Session::Leaders() const {
  std::vector<Contender> leaders;
  for (const auto& [key, contender] : known_) {
    if (contender.result.outcome == Outcome::kOk) leaders.push_back(contender);
  }
  auto faster = [](const Contender& a, const Contender& b) {
    return a.result.time_us < b.result.time_us;
  };
  std::sort(leaders.begin(), leaders.end(), faster);
  size_t count = 0;
  while (count < leaders.size() && static_cast<int>(count) < options_.max_finalists &&
         leaders[count].result.time_us <=
             leaders[0].result.time_us * (1 + options_.finalist_margin)) {
    ++count;
  }
  leaders.resize(count);
  for (Contender& leader : leaders) leader = WithSteps(std::move(leader));
  return leaders;
}

absl::Status Session::LoadHistory() {
  HEDDLE_ASSIGN_OR_RETURN(known, log_.Load());
  for (const TrialRecord& trial : known.trials) {
    Contender contender{trial.point, {}, trial.result, false};
    contender.is_final = trial.stage == TrialStage::kFinal;
    auto point = space_.Parse(trial.point);
    if (point.ok()) {
      contender.point = space_.Print(*point);  // with the holes that its text lacks
      if (trial.result.outcome != Outcome::kWorkerLost) {
        tried_.insert(*point);
        proposer_.Observe(*point, trial.result);
      }
    } else if (!trial.steps.empty()) {
      auto steps = search_space::ParseSteps(trial.steps);
      if (!steps.ok()) continue;
      contender.steps = *std::move(steps);
    } else {
      continue;  // a point of an older space, of which no steps were kept
    }
    ++report_.earlier_trials;
    std::string key = contender.point.empty() ? trial.steps : contender.point;
    Learn(key, std::move(contender));
  }

  for (const std::string& text : known.stale) {
    auto point = space_.Parse(text);
    // The default stays in: without it there is nothing to compare with.
    if (!point.ok() || *point == default_) continue;
    if (tried_.insert(*point).second) ++report_.stale_intents;
  }
  return absl::OkStatus();
}

absl::Status Session::Submit(absl::Span<const Point> points) {
  std::vector<measure::Candidate> candidates;
  std::vector<std::string> texts;
  for (const Point& point : points) {
    if (!tried_.insert(point).second) continue;
    // A point that the space itself proposes has steps; a failure is a bug worth stopping for.
    HEDDLE_ASSIGN_OR_RETURN(steps, space_.Steps(point));
    texts.push_back(space_.Print(point));
    pending_.emplace(next_id_, point);
    candidates.push_back({next_id_++, texts.back(), std::move(steps)});
  }
  if (candidates.empty()) return absl::OkStatus();
  HEDDLE_RETURN_IF_ERROR(log_.Begin(texts));
  submitted_ += static_cast<int>(candidates.size());
  for (measure::Candidate& candidate : candidates) measurer_.Submit(std::move(candidate));
  return absl::OkStatus();
}

absl::Status Session::Fill() {
  // Trial 1 goes alone: it is the first in the database, and the first time to compare with.
  if (!tried_.contains(default_)) return Submit({default_});
  if (report_.trials == 0 && submitted_ == 1 && pending_.size() == 1 &&
      pending_.begin()->second == default_) {
    return absl::OkStatus();
  }
  int room = measurer_.wanted_in_flight() - measurer_.pending();
  if (options_.trials > 0) room = std::min(room, options_.trials - submitted_);
  if (options_.seconds > 0 && report_.trials > 0) {
    // The first trial alone is no pace: its compiler had just started, beside all others. A few
    // more tell, whatever it took.
    const int least = report_.trials == 1 ? kTellPace : 0;
    room = std::min(room, std::max(least, AffordableTrials()) - measurer_.pending());
  }
  if (room <= 0 || exhausted_) return absl::OkStatus();
  const SteadyTime asked = SteadyNow();
  auto points =
      proposer_.Propose(room, [this](const Point& point) { return tried_.contains(point); });
  proposing_seconds_ += SecondsSince(asked);
  if (points.empty()) exhausted_ = true;
  return Submit(points);
}

absl::Status Session::CheckSameErrors(const TrialResult& result) {
  if (result.outcome != Outcome::kBuildError && result.outcome != Outcome::kWorkerLost) {
    same_errors_ = 0;
    return absl::OkStatus();
  }
  std::string signature = ErrorSignature(result.detail);
  same_errors_ = signature == last_error_ ? same_errors_ + 1 : 1;
  last_error_ = signature;
  if (same_errors_ < kSameErrors) return absl::OkStatus();
  return absl::AbortedError(
      absl::StrCat("the last ", kSameErrors, " candidates failed with the same error (",
                   measure::NameOf(result.outcome),
                   "), so the compiler, the generated source or the machine is at fault, not the "
                   "schedules: ",
                   result.detail, "\nRun `heddle doctor` to check them."));
}

absl::Status Session::Record(TrialStage stage, const Contender& contender) {
  const measure::DeviceState state = measurer_.device_state();
  TrialRecord record;
  record.workload_hash = space_.program().hash;
  record.point = contender.point;
  record.steps = search_space::ToString(contender.steps);
  record.stage = stage;
  record.result = contender.result;
  record.throttled = state.throttled;
  record.other_processes = state.other_processes;
  record.when = absl::Now();
  record.from = LocalProvenance();
  return log_.Add(record);
}

absl::Status Session::Book(const Point& point, const TrialResult& result) {
  Contender contender{space_.Print(point), {}, result, false};
  if (ShowsWrong(result)) contender = WithSteps(std::move(contender));
  HEDDLE_RETURN_IF_ERROR(Record(TrialStage::kScreening, contender));

  ++report_.trials;
  if (report_.trials == 1) first_compile_ = result.compile_s;
  AddPhases(result);
  bool ok = result.outcome == Outcome::kOk;
  report_.times.push_back(ok ? result.time_us : 0);
  if (ok) {
    ++report_.ok;
  } else {
    ++report_.failed[result.outcome];
    report_.last_failure = result.detail;
  }
  const std::string key = contender.point;
  Learn(key, std::move(contender));
  if (best_us_ > 0 && (plateau_best_us_ == 0 || best_us_ < plateau_best_us_ * (1 - kImprovement))) {
    plateau_best_us_ = best_us_;
    since_improvement_ = 0;
  } else {
    ++since_improvement_;
  }
  proposer_.Observe(point, result);
  return CheckSameErrors(result);
}

absl::StatusOr<bool> Session::TakeOne(absl::Duration timeout) {
  HEDDLE_ASSIGN_OR_RETURN(measured, measurer_.Next(timeout));
  if (!measured.has_value()) return false;
  auto it = pending_.find(measured->id);
  if (it == pending_.end()) return true;
  // What ended with an interrupted run says nothing of the candidate: it stays pending, abandoned.
  const bool lost = measured->result.outcome == Outcome::kWorkerLost;
  if (lost && report_.stop == StopReason::kInterrupted) return true;
  const Point point = std::move(it->second);
  pending_.erase(it);
  HEDDLE_RETURN_IF_ERROR(Book(point, measured->result));
  return true;
}

std::optional<StopReason> Session::BudgetUsed() const {
  if (options_.trials > 0 && submitted_ >= options_.trials) return StopReason::kTrials;
  if (options_.seconds > 0) {
    if (Elapsed() >= options_.seconds) return StopReason::kSeconds;
    // What is in flight is waited for; what could not end in time is not begun.
    const bool none_fits = report_.trials > 1 && AffordableTrials() <= 0;
    if (pending_.empty() && none_fits) return StopReason::kSeconds;
  }
  if (options_.plateau > 0 && since_improvement_ >= options_.plateau) return StopReason::kPlateau;
  if (exhausted_) return StopReason::kExhausted;
  return std::nullopt;
}

absl::Status Session::Search() {
  std::optional<StopReason> stop;
  while (true) {
    if (options_.interrupted()) {
      report_.stop = StopReason::kInterrupted;
      absl::StatusOr<bool> took = true;
      while (took.ok() && *took) took = TakeOne(absl::ZeroDuration());
      return took.status();
    }
    if (!stop) stop = BudgetUsed();
    if (!stop) {
      HEDDLE_RETURN_IF_ERROR(Fill());
    }
    if (pending_.empty() && stop) {
      report_.stop = *stop;
      return absl::OkStatus();
    }
    HEDDLE_RETURN_IF_ERROR(TakeOne(kPoll));
    ShowProgress();
  }
}

absl::Status Session::AbandonPending() {
  std::vector<std::string> points;
  for (const auto& [id, point] : pending_) points.push_back(space_.Print(point));
  pending_.clear();
  return points.empty() ? absl::OkStatus() : log_.Abandon(points);
}

absl::Status Session::RunFinals() {
  std::vector<Contender> finalists = Leaders();
  if (finalists.empty()) return absl::OkStatus();
  // The default runs along, so that the speed-up compares what was measured side by side.
  auto normal = known_.find(default_key_);
  auto is_default = [&](const Contender& c) { return c.point == default_key_; };
  if (normal != known_.end() && normal->second.result.outcome == Outcome::kOk &&
      normal->second.result.time_us < kComparable * finalists[0].result.time_us &&
      std::none_of(finalists.begin(), finalists.end(), is_default)) {
    finalists.push_back(WithSteps(normal->second));
  }

  report_.finalists = static_cast<int>(finalists.size());
  options_.on_finals(finalists.size());
  std::vector<measure::Candidate> candidates;
  for (const Contender& contender : finalists) {
    candidates.push_back({next_id_++, contender.point, contender.steps});
  }
  auto results = measure::MeasureFinalistsUnless(options_.interrupted, measurer_, candidates,
                                                 options_.finals_budget);
  if (absl::IsCancelled(results.status())) {
    report_.stop = StopReason::kInterrupted;
    report_.best = finalists.front();
    return absl::OkStatus();
  }
  HEDDLE_RETURN_IF_ERROR(results);

  for (size_t i = 0; i < finalists.size(); ++i) {
    Contender& contender = finalists[i];
    contender.result = (*results)[i];
    contender.is_final = true;
    AddPhases(contender.result);
    HEDDLE_RETURN_IF_ERROR(Record(TrialStage::kFinal, contender));
    if (contender.result.outcome != Outcome::kOk) {
      ++report_.failed_finals;
      report_.last_failure = contender.result.detail;
    }
    if (contender.point == default_key_) report_.default_us = contender.result.time_us;
  }
  std::vector<int64_t> complexity;
  for (const Contender& contender : finalists) {
    complexity.push_back(static_cast<int64_t>(contender.steps.size()));
  }
  int winner = measure::ChooseWinner(*results, complexity);
  if (winner >= 0) report_.best = finalists[winner];
  return absl::OkStatus();
}

absl::StatusOr<SessionReport> Session::Run() {
  default_ = options_.default_point ? *options_.default_point : DefaultPoint(space_);
  default_key_ = space_.Print(default_);
  start_ = SteadyNow();
  HEDDLE_RETURN_IF_ERROR(LoadHistory());
  proposer_.Begin();
  // A schedule's first time may have been better than its final one: the later counts.
  std::vector<Contender> leaders = Leaders();
  best_us_ = leaders.empty() ? 0 : leaders.front().result.time_us;
  plateau_best_us_ = report_.earlier_best_us = best_us_;
  since_improvement_ = options_.since_improvement;
  // The compilers have the first candidates while the device starts.
  absl::Status ready = BudgetUsed() ? absl::OkStatus() : Fill();
  const SteadyTime asked = SteadyNow();
  ready.Update(measurer_.AwaitDevice());
  if (!ready.ok()) {
    AbandonPending().IgnoreError();  // what they were to be measured on has failed
    return ready;
  }
  start_ = start_ + (SteadyNow() - asked);  // no budget counts what a device takes to start
  ShowProgress();

  report_.naive_us = measurer_.naive_us();
  waits_before_ = measurer_.device_waits();
  absl::Status searched = Search();
  const measure::DeviceWaits after = measurer_.device_waits();
  report_.spent.idle_compiling = after.for_compilers_s - waits_before_.for_compilers_s;
  report_.spent.time_spare = after.sampling_s - waits_before_.sampling_s;
  report_.spent.idle_proposing = after.for_candidates_s - waits_before_.for_candidates_s;
  report_.spent.search = std::max(proposer_.seconds(), proposing_seconds_);
  // What the search ended with may be an error; what is in flight is then not waited for.
  absl::Status abandoned = AbandonPending();
  HEDDLE_RETURN_IF_ERROR(searched);
  HEDDLE_RETURN_IF_ERROR(abandoned);
  if (report_.stop == StopReason::kInterrupted || !options_.finals) {
    // No finals: the best known so far, final or not.
    std::vector<Contender> leaders = Leaders();
    if (!leaders.empty()) report_.best = leaders.front();
  } else
    HEDDLE_RETURN_IF_ERROR(RunFinals());
  report_.seconds = Elapsed();
  report_.since_improvement = since_improvement_;
  return std::move(report_);
}

}  // namespace heddle::tuner
