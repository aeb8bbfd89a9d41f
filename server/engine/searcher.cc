#include "server/engine/searcher.h"

#include <algorithm>
#include <atomic>
#include <deque>
#include <map>
#include <memory>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/process/subprocess.h"
#include "base/status.h"
#include "measure/run/processes/messages.h"
#include "search_space/notation/notation.h"
#include "search_space/sketch/search_space.h"
#include "server/db/convert.h"
#include "server/db/trial_store.h"
#include "server/engine/spaces.h"
#include "tuner/search/default_point.h"
#include "tuner/search/proposers/evolution.h"
#include "tuner/search/proposers/experience.h"
#include "tuner/search/session.h"
#include "tuner/search/trial_log.h"

namespace heddle::server {
namespace {

using measure::Measured;
using measure::TrialResult;
using search_space::Point;
using tuner::Environment;
using tuner::Records;
using tuner::TrialRecord;
using Program = search_space::TensorProgram;

constexpr char kSearcherCommand[] = "__searcher";
// How long a searcher that has been told to stop may take to end by itself.
constexpr absl::Duration kGrace = absl::Seconds(2);
// How long a searcher may think between two questions: training a model on 20,000 rows takes
// seconds.
constexpr absl::Duration kThinking = absl::Minutes(10);

// What a search may take beyond the program itself: a model of 20,000 rows takes some hundred MB.
constexpr size_t kMemory = size_t{4} << 30;
// Of a search: several run at a time.
constexpr int kThreads = 1;

// The fleet as a measurer.
class Fleet : public measure::Measurer {
 public:
  Fleet(const SearchPort& port, std::string default_point)
      : port_(port), default_point_(std::move(default_point)) {}

  bool stopped() const { return stopped_; }
  // A question that the server has is answered first; it is the server that stops searches.
  void Stop() override { stopped_ = true; }

  void Submit(measure::Candidate candidate) override {
    *exchange_.add_proposals() = ProposalOf(candidate);
    ++pending_;
  }
  int pending() const override { return pending_; }
  int wanted_in_flight() const override { return wanted_; }

  absl::StatusOr<std::optional<Measured>> Next(absl::Duration timeout) override {
    if (results_.empty() && !stopped_) Exchange(absl::ToDoubleSeconds(timeout));
    if (results_.empty()) return std::optional<Measured>();
    Measured measured = std::move(results_.front());
    results_.pop_front();
    --pending_;
    return std::optional<Measured>(std::move(measured));
  }

  absl::StatusOr<std::vector<TrialResult>> MeasureFinalists(
      const std::vector<measure::Candidate>& finalists, absl::Duration budget) override {
    if (stopped_) return absl::CancelledError("the search was stopped before its finals");
    searcher::FromSearcher question;
    question.set_default_point(default_point_);
    for (const measure::Candidate& finalist : finalists) {
      *question.mutable_finals()->add_finalists() = ProposalOf(finalist);
    }
    question.mutable_finals()->set_budget_s(absl::ToDoubleSeconds(budget));
    const searcher::ToSearcher answer = port_(question);
    if (answer.stop() || answer.results_size() != question.finals().finalists_size()) {
      stopped_ = true;
      return absl::CancelledError("the search was stopped while its finalists were measured");
    }
    std::vector<TrialResult> results;
    for (const auto& result : answer.results()) {
      results.push_back(measure::FromProto(result.result()));
    }
    return results;
  }

  measure::DeviceState device_state() const override { return {}; }  // daemons report it

 private:
  static searcher::Proposal ProposalOf(const measure::Candidate& candidate) {
    searcher::Proposal proposal;
    proposal.set_number(candidate.id);
    proposal.set_point(candidate.point);
    proposal.set_steps(search_space::ToString(candidate.steps));
    return proposal;
  }
  void Exchange(double wait_s) {
    exchange_.set_wait_s(wait_s);
    searcher::FromSearcher question;
    question.set_default_point(default_point_);
    *question.mutable_exchange() = std::move(exchange_);
    exchange_.Clear();
    const searcher::ToSearcher answer = port_(question);
    if (answer.stop()) stopped_ = true;
    wanted_ = std::max(1, answer.wanted());
    for (const auto& result : answer.results()) {
      results_.push_back({result.number(), measure::FromProto(result.result())});
    }
  }

  const SearchPort& port_;
  const std::string default_point_;
  searcher::Exchange exchange_;
  std::deque<Measured> results_;
  int pending_ = 0, wanted_ = 1;
  std::atomic<bool> stopped_ = false;  // asked for from another thread too
};

// What was known when the search began. The server has recorded every result before the search
// hears of it, and every proposal before it is measured.
class ServersLog : public tuner::TrialLog {
 public:
  explicit ServersLog(Known known) : known_(std::move(known)) {}

  absl::StatusOr<Known> Load() override { return known_; }
  absl::Status Begin(absl::Span<const std::string> /*points*/) override { return absl::OkStatus(); }
  absl::Status Add(const TrialRecord& /*trial*/) override { return absl::OkStatus(); }
  absl::Status Abandon(absl::Span<const std::string> /*points*/) override {
    return absl::OkStatus();
  }

 private:
  Known known_;
};

// First what an earlier searcher had proposed, so that its results are not lost; then what the
// search proposes, unless the trials were used up before.
class ResumingProposer : public tuner::Proposer {
 public:
  ResumingProposer(std::unique_ptr<tuner::Proposer> search, std::deque<Point> outstanding,
                   bool only_outstanding)
      : search_(std::move(search)),
        outstanding_(std::move(outstanding)),
        only_outstanding_(only_outstanding) {}

  std::vector<Point> Propose(int count, const std::function<bool(const Point&)>& tried) override {
    std::vector<Point> points;
    while (!outstanding_.empty() && static_cast<int>(points.size()) < count) {
      if (!tried(outstanding_.front())) points.push_back(outstanding_.front());
      outstanding_.pop_front();
    }
    if (!points.empty() || only_outstanding_) return points;
    return search_->Propose(count, tried);
  }
  void Observe(const Point& point, const TrialResult& result) override {
    search_->Observe(point, result);
  }
  void Begin() override { search_->Begin(); }

 private:
  std::unique_ptr<tuner::Proposer> search_;
  std::deque<Point> outstanding_;
  const bool only_outstanding_;
};

absl::StatusOr<std::unique_ptr<tuner::Proposer>> MakeProposer(
    const searcher::Setup& setup, const search_space::SearchSpace& space,
    const Environment& environment, Records& records) {
  if (setup.search() == "random") return tuner::MakeRandomProposer(space, setup.seed());
  HEDDLE_ASSIGN_OR_RETURN(experience, tuner::Recall(records, environment, space, kThreads));
  return tuner::MakeEvolutionProposer(
      space, {setup.seed(), std::move(experience.neighbours), {}, experience.model, kThreads});
}

// Trials of this job, screened by earlier searchers of it, since what was known improved last: the
// session's count towards its plateau.
absl::StatusOr<int> SinceImprovement(const searcher::Setup& setup, Records& records,
                                     const std::vector<TrialRecord>& history) {
  HEDDLE_ASSIGN_OR_RETURN(screened, LoadScreened(records, setup.job(), setup.workload_number()));
  // In the order of commits: clocks jump.
  std::map<int64_t, const TrialRecord*> in_order;
  for (const TrialRecord& trial : history) in_order.emplace(trial.id, &trial);
  double best_us = 0;
  int since = 0;
  for (const auto& [id, trial] : in_order) {
    const TrialResult& result = trial->result;
    if (result.outcome == measure::Outcome::kOk &&
        (best_us == 0 || result.time_us < best_us * (1 - tuner::kImprovement))) {
      best_us = result.time_us;
      since = 0;
    } else if (screened.contains(id)) {
      ++since;
    }
  }
  return since;
}

absl::StatusOr<searcher::Done> RunSession(const searcher::Setup& setup, const SearchPort& port) {
  HEDDLE_ASSIGN_OR_RETURN(parsed, search_space::ParseWorkload(setup.workload()));
  auto program = std::make_shared<const Program>(std::move(parsed));
  const measure::DeviceInfo device = measure::FromProto(setup.device());
  HEDDLE_ASSIGN_OR_RETURN(space, search_space::SearchSpace::Create(program, device.target));
  HEDDLE_ASSIGN_OR_RETURN(records, Records::Open(setup.database()));

  const Environment environment = tuner::MakeEnvironment(device, FromProto(setup.l2()));
  Fleet fleet(port, space.Print(tuner::DefaultPoint(space)));
  HEDDLE_ASSIGN_OR_RETURN(earlier, tuner::MakeTrialLog(*records, *program, environment)->Load());
  std::set<std::string> known;
  for (const TrialRecord& trial : earlier.trials) known.insert(trial.point);
  // Results that came since the server looked have used some of the budget.
  int64_t trials = setup.trials();
  std::deque<Point> outstanding;
  for (const std::string& text : setup.outstanding()) {
    auto point = space.Parse(text);
    if (known.contains(text)) {
      if (setup.trials() > 0 && --trials == 0) trials = -1;
    } else if (point.ok()) {
      outstanding.push_back(*std::move(point));
    }
  }
  HEDDLE_ASSIGN_OR_RETURN(since_improvement, SinceImprovement(setup, *records, earlier.trials));
  HEDDLE_ASSIGN_OR_RETURN(search, MakeProposer(setup, space, environment, *records));
  // A budget of trials that is used up is not "no limit".
  const bool used_up = trials < 0;
  ResumingProposer proposer(std::move(search), std::move(outstanding), used_up);
  tuner::SessionOptions options;
  options.trials = used_up ? 0 : static_cast<int>(trials);
  options.seconds = setup.seconds();
  options.plateau = static_cast<int>(setup.plateau());
  options.since_improvement = since_improvement;
  options.interrupted = [&] { return fleet.stopped(); };
  ServersLog log(std::move(earlier));
  tuner::Session session(space, fleet, log, environment.l2, proposer, options);
  HEDDLE_ASSIGN_OR_RETURN(report, session.Run());
  searcher::Done done;
  const bool out_of_trials = used_up && report.stop == tuner::StopReason::kExhausted;
  done.set_stop_reason(NameOf(out_of_trials ? tuner::StopReason::kTrials : report.stop));
  done.set_default_us(report.default_us);
  done.set_seconds(report.seconds);
  done.set_found(report.best.has_value());
  done.set_failures(tuner::FailureCounts(report.failed));
  done.set_trials(report.trials);
  return done;
}

}  // namespace

searcher::Done Search(const searcher::Setup& setup, const SearchPort& port) {
  auto done = RunSession(setup, port);
  if (done.ok()) return *std::move(done);
  searcher::Done failed;
  failed.set_code(static_cast<int>(done.status().code()));
  failed.set_error(std::string(done.status().message()));
  return failed;
}

absl::StatusOr<searcher::Done> SearchInChild(const searcher::Setup& setup, const SearchPort& port) {
  HEDDLE_ASSIGN_OR_RETURN(child, Subprocess::Start(kSearcherCommand, {}));
  absl::Status status = child->Send(setup, SteadyNow() + kGrace);
  bool stopping = false;
  while (status.ok()) {
    searcher::FromSearcher question;
    status = child->Receive(question, SteadyNow() + (stopping ? kGrace : kThinking));
    if (!status.ok()) break;
    if (question.has_done()) {
      child->End(kGrace).IgnoreError();
      return question.done();
    }
    const searcher::ToSearcher answer = port(question);
    stopping |= answer.stop();
    status = child->Send(answer, SteadyNow() + kThinking);
  }
  if (stopping) {
    searcher::Done done;
    done.set_stop_reason(NameOf(tuner::StopReason::kInterrupted));
    return done;
  }
  const auto exit = child->End();
  const std::string how = exit.ok() ? exit->Describe() : std::string(exit.status().message());
  return absl::UnavailableError(absl::StrCat(
      "a searcher ended: ", how, ", ", std::string(status.message()), "\n", child->Evidence()));
}

std::optional<int> RunSearcherCommand(int argc, char** argv) {
  if (auto code = RunSpaceCommand(argc, argv)) return code;
  if (argc < 2 || argv[1] != std::string(kSearcherCommand)) return std::nullopt;
  EnterChild(argc, argv);
  LimitMemory(kMemory);
  searcher::Setup setup;
  if (!ReceiveFromSupervisor(setup).ok()) return 1;
  const SearchPort port = [](const searcher::FromSearcher& question) {
    searcher::ToSearcher answer;
    absl::Status status = SendToSupervisor(question);
    if (status.ok()) status = ReceiveFromSupervisor(answer);
    if (!status.ok()) answer.set_stop(true);
    return answer;
  };
  searcher::FromSearcher last;
  *last.mutable_done() = Search(setup, port);
  return SendToSupervisor(last).ok() ? 0 : 1;
}

}  // namespace heddle::server
