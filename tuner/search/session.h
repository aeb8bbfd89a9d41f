// The tuning session: keeps the measurer busy with proposals, records every trial as it completes,
// and ends with a winner that was measured against its rivals.
#ifndef HEDDLE_TUNER_SEARCH_SESSION_H_
#define HEDDLE_TUNER_SEARCH_SESSION_H_

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "measure/run/measurer.h"
#include "search_space/sketch/search_space.h"
#include "tuner/records/records.h"
#include "tuner/search/plot.h"
#include "tuner/search/progress.h"
#include "tuner/search/proposers/proposer.h"
#include "tuner/search/trial_log.h"

namespace heddle::tuner {

// A schedule that could win.
struct Contender {
  std::string point;  // as SearchSpace prints it; empty for hand-written steps
  std::vector<search_space::Step> steps;
  measure::TrialResult result;
  bool is_final = false;  // `result` is from measuring it against its rivals
};

// The session ends at whichever budget is used up first; then what is in flight is still measured.
struct SessionOptions {
  int trials = 200;    // 0 = no limit
  double seconds = 0;  // of searching, without the finals; 0 = no limit
  int plateau = 0;     // trials in a row without an improvement of kImprovement; 0 = no limit
  int since_improvement = 0;  // of them, already made by an earlier session that this one continues
  // The best are measured again, interleaved and with the default, before a winner is named.
  int max_finalists = 8;
  double finalist_margin = 0.10;  // those slower than the best by more than this share stay out
  absl::Duration finals_budget = absl::Seconds(4);
  bool finals = true;  // false: the best is known by its first time only, and not served
  std::optional<search_space::Point> default_point;  // DefaultPoint, where it is known already
  // Polled several times a second: true ends the session, everything measured kept.
  std::function<bool()> interrupted = [] { return false; };
  // Called after every trial and, with nothing new, now and then.
  std::function<void(const Progress&)> on_progress = [](const Progress&) {};
  // Called once when the finals begin, with how many take part.
  std::function<void(size_t)> on_finals = [](size_t) {};
};

// What counts as progress for `plateau`: 1 %, the width of a good timing's interval.
inline constexpr double kImprovement = 0.01;
// So many equal build errors, or lost processes, in a row mean that the compiler, the generator or
// the machine is broken, not the points.
inline constexpr int kSameErrors = 20;

enum class StopReason : uint8_t { kTrials, kSeconds, kPlateau, kExhausted, kInterrupted };
const char* NameOf(StopReason reason);  // "trials", "seconds", ...

// Where a session's time went, in seconds. Compilers, the device and the search work side by side.
struct TimeSpent {
  double compile = 0;                       // of all compilers together
  double load = 0, validate = 0, time = 0;  // when the device is busy, finals included
  double search = 0;      // sampling, lowering, features and the cost model: waited for or not
  double time_spare = 0;  // of `time`: samples nobody needed, while the compilers were behind
  // When the device was idle and it is known why: candidates were in the compilers, or none were
  // there.
  double idle_compiling = 0, idle_proposing = 0;

  double busy() const { return load + validate + time; }
  TimeSpent& operator+=(const TimeSpent& other);
};

struct SessionReport {
  StopReason stop = StopReason::kTrials;
  int trials = 0, ok = 0;     // of this session, finals not counted
  int since_improvement = 0;  // for SessionOptions of the one that continues it
  std::map<measure::Outcome, int> failed;
  int failed_finals = 0;          // finalists that were right before, and not in the finals
  std::string last_failure;       // how the last of these failed; empty: none did
  int earlier_trials = 0;         // found in the database
  double earlier_best_us = 0;     // of those; 0 = none was valid
  int stale_intents = 0;          // points that seem to have taken their host down: left out
  double default_us = 0;          // trial 1; 0 = it failed
  double naive_us = 0;            // Measurer::naive_us
  std::optional<Contender> best;  // none: nothing valid was found, now or before
  int finalists = 0;
  TrialTimes times;  // of this session, in completion order
  double seconds = 0;
  TimeSpent spent;
};

class Session {
 public:
  // All must outlive the session. `l2` is what the measurer measures under.
  Session(const search_space::SearchSpace& space, measure::Measurer& measurer, TrialLog& log,
          measure::L2Policy l2, Proposer& proposer, SessionOptions options);

  // Runs to a budget. Errors are the device's, the database's (what was recorded stays) or, for
  // kSameErrors, Aborted with the message; failed trials are part of the report.
  absl::StatusOr<SessionReport> Run();

 private:
  absl::Status LoadHistory();
  // Keeps a result as the best knowledge of a schedule: finals beat screenings that did not find it
  // wrong.
  void Learn(const std::string& key, Contender contender);
  // The fastest valid schedules known, best first: those worth measuring against each other.
  std::vector<Contender> Leaders() const;
  Contender WithSteps(Contender contender) const;
  // Those that were not tried yet, after one write of all of them to the log.
  absl::Status Submit(absl::Span<const search_space::Point> points);
  absl::Status Fill();
  // Waits up to `timeout` for one result and books it. False: none came.
  absl::StatusOr<bool> TakeOne(absl::Duration timeout);
  absl::Status Book(const search_space::Point& point, const measure::TrialResult& result);
  absl::Status Record(TrialStage stage, const Contender& contender);
  absl::Status CheckSameErrors(const measure::TrialResult& result);
  absl::Status Search();
  absl::Status AbandonPending();
  absl::Status RunFinals();
  std::optional<StopReason> BudgetUsed() const;
  double Elapsed() const;
  void AddPhases(const measure::TrialResult& result);
  double SecondsPerTrial() const;  // the pace so far
  // How many trials, those in flight included, can end before the budget of seconds does.
  int AffordableTrials() const;
  void ShowProgress() const;

  const search_space::SearchSpace& space_;
  measure::Measurer& measurer_;
  TrialLog& log_;
  const measure::L2Policy l2_;
  Proposer& proposer_;
  SessionOptions options_;

  SteadyTime start_;
  measure::DeviceWaits waits_before_;  // the measurer's, when the search began
  SessionReport report_;
  absl::flat_hash_set<search_space::Point> tried_;
  absl::flat_hash_map<int64_t, search_space::Point> pending_;
  // By point, or by steps where there is no point; steps are filled in by Leaders.
  std::map<std::string, Contender> known_;
  search_space::Point default_;
  std::string default_key_;  // its text
  int64_t next_id_ = 1;
  int submitted_ = 0;
  double proposing_seconds_ = 0;  // waiting for the proposer
  bool exhausted_ = false;
  double first_compile_ = 0;    // seconds that the first trial of this session took to compile
  double best_us_ = 0;          // of all known OK results
  double plateau_best_us_ = 0;  // the last that counted as an improvement
  int since_improvement_ = 0;
  std::string last_error_;
  int same_errors_ = 0;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_SEARCH_SESSION_H_
