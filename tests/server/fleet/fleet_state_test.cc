// The state machine by itself: events in a single thread, on a database that the test commits to.
// Writes of several events wait and end with one commit, as the store has them. The state is thrown
// away before and after every single write, as by a crash, and another one goes on from what was
// committed.
#include "server/fleet/fleet_state.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/sqlite.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/job_store.h"
#include "server/engine/validate.h"
#include "tests/process.h"
#include "tests/server/engine_support.h"
#include "tuner/records/records.h"

namespace heddle::server {
namespace {

constexpr int kTrials = 5;

// The world that a state acts on. What happens in which order follows from the seed.
class World {
 public:
  // The state dies at its `crash_at`-th write: before that is committed or, where `committed`,
  // after and before anybody knows.
  World(uint32_t seed, int crash_at, bool committed)
      : random_(seed), crash_at_(crash_at), committed_(committed) {
    auto records = tuner::Records::Open(folder_ / "heddle.db");
    EXPECT_TRUE(records.ok()) << records.status();
    records_ = *std::move(records);
    EXPECT_TRUE(records_->database().Run("PRAGMA synchronous = OFF").ok());
    Start();
  }

  // Daemons, a searcher and a caller do what they do until the job has ended; what is lost on the
  // way is asked for again.
  void Run() {
    std::uniform_int_distribution<int> any(0, 9);
    for (int step = 0; step < 3000 && !Ended(); ++step) {
      if (any(random_) < 4) Commit();
      if (job_ == 0) CreateJob();
      const int daemon = any(random_) % 2;
      switch (any(random_)) {
        case 0:
          now_ms_ += 31'000;  // longer than a lease
          Do([](FleetState& state) { state.Tick(); });
          break;
        case 1:
        case 2:
        case 3:
          Acquire(daemon);
          break;
        case 4:
        case 5:
        case 6:
          Report(daemon);
          break;
        case 7:
          Release(daemon);
          break;
        default:
          Search();
          now_ms_ += 1'000;
          Do([](FleetState& state) { state.Tick(); });
      }
    }
    EXPECT_TRUE(Ended());
    Commit();
  }

  // Nothing is lost and nothing doubled.
  void Check() {
    auto job = LoadJob(*records_, job_, "");
    ASSERT_TRUE(job.ok()) << job.status();
    EXPECT_EQ(job->state(), v1::Job::STATE_SUCCEEDED) << job->error();
    EXPECT_EQ(job->workloads(0).trials(), kTrials);
    auto trials = LoadTrials(*records_, job_, std::nullopt, 1000);
    ASSERT_TRUE(trials.ok()) << trials.status();
    std::set<std::string> points;
    for (const v1::Trial& trial : *trials) {
      EXPECT_EQ(trial.state(), v1::Trial::STATE_DONE) << trial.ShortDebugString();
      EXPECT_TRUE(points.insert(trial.point()).second) << "twice: " << trial.point();
    }
    EXPECT_EQ(points.size(), kTrials);
    // What a daemon was told is stored is stored, and in the job's events each trial is once.
    for (int64_t id : acknowledged_) {
      auto row = LoadTrial(*records_, id);
      ASSERT_TRUE(row.ok() && row->has_value()) << "acknowledged and lost: " << id;
      EXPECT_EQ((*row)->state, v1::Trial::STATE_DONE);
    }
    auto events = LoadEvents(*records_, job_, 0, 1000);
    ASSERT_TRUE(events.ok()) << events.status();
    int told = 0;
    for (size_t i = 0; i < events->size(); ++i) {
      EXPECT_EQ(events->at(i).seq(), static_cast<int64_t>(i) + 1) << "a gap";
      told += events->at(i).has_trial();
    }
    EXPECT_EQ(told, kTrials);
    auto jobs = records_->database().QueryInt("SELECT count(*) FROM job");
    EXPECT_EQ(jobs.value_or(-1), 1) << "one request, one job";
  }

  int writes() const { return writes_; }
  bool crashed() const { return crash_at_ < 0; }

 private:
  struct Daemon {
    std::string session;
    std::deque<v1::Lease> leases;
  };

  FleetOptions Options() {
    FleetOptions options;
    options.steady = [this] { return SteadyTime() + absl::Milliseconds(now_ms_); };
    options.now = [this] { return absl::UnixEpoch() + absl::Milliseconds(now_ms_); };
    return options;
  }

  // A new life: nothing of the last one's memory, everything of what it committed.
  void Start() {
    state_ = std::make_unique<FleetState>(metrics_, Options());
    pending_.clear();
    search_.reset();
    for (Daemon& daemon : daemons_) daemon.session.clear();
    const absl::Status recovered = records_->Batch([&] { return state_->Recover(*records_); });
    ASSERT_TRUE(recovered.ok()) << recovered;
    Do([](FleetState& state) { state.Recovered(); });
  }

  // An event, and then what it asks for; its writes now, or together with those of others.
  template <typename Event>
  void Do(const Event& event) {
    event(*state_);
    Take();
    if (random_() % 2 == 0) Commit();
  }
  // All that waits, some writes in one commit.
  void Commit() {
    while (!pending_.empty()) {
      const size_t count = 1 + random_() % pending_.size();
      const std::vector<Effects::Write> batch(pending_.begin(), pending_.begin() + count);
      pending_.erase(pending_.begin(), pending_.begin() + count);
      const bool crash = crash_at_ >= writes_ && crash_at_ < writes_ + static_cast<int>(count);
      writes_ += static_cast<int>(count);
      if (crash) crash_at_ = -1;
      if (!crash || committed_) {
        const absl::Status stored = records_->Batch([&]() -> absl::Status {
          for (const Effects::Write& write : batch) {
            if (absl::Status s = write.body(*records_); !s.ok()) return s;
          }
          return absl::OkStatus();
        });
        EXPECT_TRUE(stored.ok()) << stored;
      }
      if (crash) return Start();
      for (const Effects::Write& write : batch) {
        if (write.done) write.done(absl::OkStatus());
        Take();
      }
    }
  }
  void Take() {
    Effects effects = state_->TakeEffects();
    for (Effects::Write& write : effects.writes) pending_.push_back(std::move(write));
    for (const auto& reply : effects.replies) reply();
    for (const Effects::JobReply& asked : effects.job_replies) {
      asked.reply(LoadJob(*records_, asked.job, asked.tenant));
    }
    for (int64_t id : effects.searches) search_ = id;
  }

  bool Ended() {
    auto job = LoadJob(*records_, job_, "");
    return job.ok() && IsTerminal(job->state()) && pending_.empty();
  }

  // With the same request until there is a reply.
  void CreateJob() {
    v1::JobSpec spec = MatmulSpec(kTrials);
    auto workloads = ParseSpec(spec, absl::UnixEpoch());
    ASSERT_TRUE(workloads.ok()) << workloads.status();
    Do([&](FleetState& state) {
      state.CreateJob("weavers", "CreateJob", "the-request", spec, *workloads,
                      [this](const absl::StatusOr<v1::Job>& job) {
                        if (job.ok()) job_ = JobId(job->name());
                      });
    });
  }

  // A daemon of a host with one device; it registers where its server does not know it.
  std::string Session(int number) {
    Daemon& daemon = daemons_[number];
    if (!daemon.session.empty()) return daemon.session;
    v1::RegisterRequest request;
    request.set_host_uuid(absl::StrCat("host-", number));
    request.set_boot_id("boot");
    request.set_instance(absl::StrCat("daemon-", number));
    request.set_generator(measure::kGeneratorVersion);
    *request.add_devices() = H100();
    const std::string name = absl::StrCat("session-", ++sessions_);
    Do([&](FleetState& state) {
      state.Register(caller_, request, name, std::nullopt,
                     [&daemon](const absl::StatusOr<v1::RegisterResponse>& reply) {
                       if (reply.ok()) daemon.session = reply->session();
                     });
    });
    return daemon.session;
  }
  // A session that has ended: another one.
  static void Heed(Daemon& daemon, const absl::Status& status) {
    if (absl::IsFailedPrecondition(status)) daemon.session.clear();
  }
  static void Forget(Daemon& daemon, int64_t lease) {
    std::erase_if(daemon.leases, [&](const v1::Lease& l) { return l.id() == lease; });
  }

  void Acquire(int number) {
    if (Session(number).empty()) return;
    v1::AcquireRequest request;
    request.set_session(Session(number));
    request.set_device("cuda:0");
    request.set_request_id(absl::StrCat("acquire-", ++requests_));
    request.set_max(2);
    Do([&](FleetState& state) {
      state.Acquire(caller_, request, [this, number](const absl::StatusOr<v1::Lease>& lease) {
        Heed(daemons_[number], lease.status());
        if (lease.ok() && lease->id() != 0) daemons_[number].leases.push_back(*lease);
      });
    });
  }

  // Until it is acknowledged, as a daemon does, and now and then once more.
  void Report(int number) {
    Daemon& daemon = daemons_[number];
    if (Session(number).empty() || daemon.leases.empty()) return;
    const v1::Lease lease = daemon.leases.front();
    const v1::ReportRequest request = ReportOf(Session(number), lease);
    Do([&](FleetState& state) {
      state.Report(
          caller_, request,
          [this, number, id = lease.id()](const absl::StatusOr<v1::ReportResponse>& reply) {
            Heed(daemons_[number], reply.status());
            if (!reply.ok()) return;
            acknowledged_.insert(reply->committed().begin(), reply->committed().end());
            if (random_() % 4 != 0) Forget(daemons_[number], id);
          });
    });
  }

  void Release(int number) {
    Daemon& daemon = daemons_[number];
    if (Session(number).empty() || daemon.leases.empty()) return;
    v1::ReleaseRequest request;
    request.set_session(Session(number));
    request.set_lease(daemon.leases.front().id());
    for (const auto& candidate : daemon.leases.front().candidates()) {
      request.add_unstarted(candidate.id());
    }
    Do([&](FleetState& state) {
      state.Release(
          caller_, request,
          [this, number, id = request.lease()](const absl::StatusOr<v1::ReleaseResponse>& reply) {
            Heed(daemons_[number], reply.status());
            if (reply.ok()) Forget(daemons_[number], id);
          });
    });
  }

  // The searcher of a job takes a step: it proposes the points that nobody has proposed, and ends
  // when it has heard of as many as are wanted.
  void Search() {
    if (!search_) return;
    if (!setup_of_ || setup_of_ != std::pair(state_.get(), *search_)) {
      std::optional<searcher::Setup> setup;
      Do([&](FleetState& state) { setup = state.PrepareSearch(*search_, "unused"); });
      if (!search_) return;  // it has died
      if (!setup) return EndSearch();
      setup_of_ = std::pair(state_.get(), *search_);
      wanted_ = std::max<int64_t>(0, setup->trials());
      heard_ = 0;
      searcher::FromSearcher question;
      question.set_default_point("p0");
      std::vector<std::string> points(setup->outstanding().begin(), setup->outstanding().end());
      const std::set<std::string> known(points.begin(), points.end());
      for (const std::string& point : Untried()) {
        if (!known.contains(point)) points.push_back(point);
      }
      for (int64_t i = 0; i < wanted_; ++i) {
        searcher::Proposal& proposal = *question.mutable_exchange()->add_proposals();
        proposal.set_number(i);
        proposal.set_point(points.at(i));
        proposal.set_steps("inline " + points.at(i));
      }
      Do([&, id = *search_](FleetState& state) { state.Ask(id, question); });
      return;
    }
    bool stop = false;
    Do([&](FleetState& state) {
      if (!state.AnswerIsReady(*search_, false)) return;
      const searcher::ToSearcher answer = state.TakeAnswer(*search_, false);
      heard_ += answer.results_size();
      stop = answer.stop();
    });
    if (!stop && heard_ < wanted_) return;
    searcher::Done done;
    done.set_stop_reason(stop ? "interrupted" : "trials");
    done.set_found(true);
    const int64_t id = *search_;
    bool more = false;
    Do([&](FleetState& state) { more = state.SearchDone(id, done); });
    setup_of_.reset();
    if (!more && search_) EndSearch();
  }
  void EndSearch() {
    const int64_t id = *search_;
    search_.reset();
    setup_of_.reset();
    Do([&](FleetState& state) { state.SearchEnded(id); });
  }
  // Points that the database knows no result of.
  std::vector<std::string> Untried() {
    std::set<std::string> tried;
    auto trials = LoadTrials(*records_, job_, std::nullopt, 1000);
    EXPECT_TRUE(trials.ok()) << trials.status();
    for (const v1::Trial& trial : *trials) {
      if (trial.state() >= v1::Trial::STATE_DONE) tried.insert(trial.point());
    }
    std::vector<std::string> points;
    for (int i = 0; i < kTrials; ++i) {
      const std::string point = absl::StrCat("p", i);
      if (!tried.contains(point)) points.push_back(point);
    }
    return points;
  }

  tests::TempFolder folder_;
  std::mt19937 random_;
  int crash_at_;
  const bool committed_;
  std::unique_ptr<tuner::Records> records_;
  Metrics metrics_;
  std::unique_ptr<FleetState> state_;
  std::deque<Effects::Write> pending_;
  const Caller caller_{"local", Role::kAdmin, 0, "", "test"};
  int64_t now_ms_ = 1'800'000'000'000;
  int writes_ = 0, sessions_ = 0, requests_ = 0;
  int64_t job_ = 0;
  Daemon daemons_[2];
  std::set<int64_t> acknowledged_;
  std::optional<int64_t> search_;
  std::optional<std::pair<FleetState*, int64_t>> setup_of_;
  int64_t wanted_ = 0, heard_ = 0;
};

TEST(FleetStateTest, ACrashAtAnyWriteLosesNothingAndDoublesNothing) {
  // The same at every run, unless --gtest_random_seed says otherwise.
  const uint32_t seed = GTEST_FLAG_GET(random_seed);
  SCOPED_TRACE(absl::StrCat("seed ", seed));
  World undisturbed(seed, -1, false);
  undisturbed.Run();
  undisturbed.Check();
  ASSERT_GT(undisturbed.writes(), 10);
  for (int at = 0; at < undisturbed.writes() && !testing::Test::HasFailure(); ++at) {
    for (bool committed : {false, true}) {
      SCOPED_TRACE(absl::StrCat("killed at write ", at, committed ? ", committed" : ""));
      World world(seed, at, committed);
      world.Run();
      world.Check();
      EXPECT_TRUE(world.crashed());
    }
  }
}

}  // namespace
}  // namespace heddle::server
