// Daemons that lie: nothing false is ever served as validated.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "absl/strings/str_cat.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "measure/judge/criteria.h"
#include "search_space/notation/notation.h"
#include "server/db/trust/confirmations.h"
#include "tests/server/engine_support.h"

namespace heddle::server {
namespace {

using testing::HasSubstr;

// What a kernel takes in truth: 1,000 us and a little more by its number.
double TrueTime(const v1::Candidate& candidate) {
  return 1000 + static_cast<double>(std::hash<std::string>()(candidate.steps()) % 500);
}

class LyingDaemonTest : public EngineTest {
 protected:
  // What a daemon makes of a candidate.
  using Answer = std::function<v1::TrialResult(const v1::Candidate&, const v1::Lease&)>;
  static v1::TrialResult Ok(double time_us) {
    v1::TrialResult result;
    result.set_outcome(v1::OUTCOME_OK);
    result.set_time_us(time_us);
    result.set_ci_low_us(time_us * 0.999);
    result.set_ci_high_us(time_us * 1.001);
    return result;
  }
  static v1::TrialResult Honest(const v1::Candidate& candidate, const v1::Lease&) {
    return Ok(TrueTime(candidate));
  }
  struct Daemon {
    std::string session;
    Answer answer;
  };
  // All of them work until the job has ended, and then until there is nothing to do.
  void WorkOn(const std::string& job, const std::vector<Daemon>& daemons) {
    const absl::Time deadline = absl::Now() + absl::Seconds(120);
    for (bool idle = false; !(idle && IsTerminal(Get(job).state())) && absl::Now() < deadline;) {
      idle = true;
      for (const Daemon& daemon : daemons) {
        auto lease = Acquire(daemon.session, 4);
        ASSERT_TRUE(lease.ok()) << lease.status();
        if (lease->id() == 0) continue;
        idle = false;
        v1::ReportRequest report = ReportOf(daemon.session, *lease);
        for (int i = 0; i < report.results_size(); ++i) {
          *report.mutable_results(i)->mutable_result() =
              daemon.answer(lease->candidates(i), *lease);
        }
        ASSERT_TRUE(Report(report).ok());
      }
      if (idle) absl::SleepFor(absl::Milliseconds(2));
    }
  }
  std::optional<Served> Query(const std::string& job) {
    auto program = search_space::ParseWorkload(Get(job).workloads(0).workload().text());
    const auto model = engine_->FindModel(model_.target().name());
    auto reader = store_->Read();
    const auto cold = measure::L2Policy::kCold;
    auto served = FindServed(
        *reader, *program,
        model ? tuner::BenchOf(model->info, cold) : tuner::Bench{model_.target().name(), cold},
        model && model->known(),
        [this](const std::string& host) { return engine_->TrustsHost(host); });
    EXPECT_TRUE(served.ok()) << served.status();
    return served.ok() ? *served : std::nullopt;
  }
  // Served as validated only where it is true.
  void ExpectNothingFalse(const std::string& job) {
    const auto served = Query(job);
    if (!served || !served->validated) return;
    v1::Candidate candidate;
    candidate.set_steps(served->best.trial.steps);
    const double truth = TrueTime(candidate);
    EXPECT_NEAR(served->best.trial.result.time_us, truth, kAgreement * truth);
  }
  std::string Tune() { return MustCreate(MatmulSpec(6, 1024)); }
  std::string Join(const std::string& host, int64_t token) {
    return Register(RegistrationOf(host, model_), token);
  }
  absl::Status Act(const std::string& host, v1::SetHostRequest::Action action) {
    v1::SetHostRequest request;
    request.set_host_uuid(host);
    request.set_action(action);
    return Wait<v1::FleetHost>(
               [&](auto reply) { engine_->SetHost(As(0), request, std::move(reply)); })
        .status();
  }
  absl::StatusOr<v1::DeviceModel> Pin(const v1::PinModelRequest& request) {
    return Wait<v1::DeviceModel>(
        [&](auto reply) { engine_->PinModel(As(0), request, std::move(reply)); });
  }
  v1::Device model_ = H100();
};

// --------------------------------------------------------------------------------------- its rates

TEST_F(LyingDaemonTest, RatesAreNotTakenFromWhoMeasures) {
  const std::string job = MustCreate(MatmulSpec(1, 1 << 16));
  for (double claimed : {0, 100}) {
    v1::RegisterRequest request = RegistrationOf("liar", model_);
    request.mutable_devices(0)->mutable_target()->set_peak_gflops(claimed *
                                                                  model_.target().peak_gflops());
    request.mutable_devices(0)->mutable_target()->set_memory_gbs(claimed *
                                                                 model_.target().memory_gbs());
    request.mutable_devices(0)->mutable_target()->set_l2_bytes(int64_t{1} << 49);
    const std::string session = Register(request, 1);
    const v1::FleetDevice device = engine_->Devices().front();
    EXPECT_EQ(device.device().target().peak_gflops(), model_.target().peak_gflops());
    EXPECT_EQ(device.device().target().memory_gbs(), model_.target().memory_gbs());
    EXPECT_EQ(engine_->FindModel(model_.target().name())->source, v1::DeviceModel::SOURCE_TABLE);
    // A tenth of what such a GPU needs at least.
    const auto program = search_space::ParseWorkload(Get(job).workloads(0).workload().text());
    const double least = measure::FastestPlausible(*program, measure::FromProto(model_).target,
                                                   measure::L2Policy::kCold);
    if (IsTerminal(Get(job).state())) break;
    WorkOn(job, {{session, [&](const auto&, const auto&) { return Ok(least * 1e5); }}});
    EXPECT_EQ(Get(job).workloads(0).failed().at("IMPLAUSIBLE"), 1);
    EXPECT_FALSE(Query(job).has_value());
  }
  for (double absurd : {-1.0, 1e12, std::numeric_limits<double>::quiet_NaN(),
                        std::numeric_limits<double>::infinity()}) {
    v1::RegisterRequest request = RegistrationOf("absurd", model_);
    request.mutable_devices(0)->mutable_target()->set_peak_gflops(absurd);
    EXPECT_TRUE(absl::IsInvalidArgument(TryRegister(request, 2).status())) << absurd;
  }
}

// A model that nobody knows: what is measured is not validated before an administrator has said
// what it is, whoever agrees.
TEST_F(LyingDaemonTest, AnUnknownModelIsPinnedFirst) {
  model_.mutable_target()->set_name("Unheard-of GPU");
  const std::string first = Join("first", 1), second = Join("second", 2);
  const std::string job = Tune();
  WorkOn(job, {{first, Honest}, {second, Honest}});
  auto served = Query(job);
  ASSERT_TRUE(served.has_value());
  EXPECT_FALSE(served->validated);
  EXPECT_EQ(served->confirmations, 1);
  v1::PinModelRequest pin;
  pin.set_name("Unheard-of GPU");
  pin.set_peak_gflops(50000);
  ASSERT_TRUE(Pin(pin).ok());
  EXPECT_TRUE(Query(job)->validated);
  Restart();
  EXPECT_TRUE(Query(job)->validated) << "forgotten with the server";
  EXPECT_EQ(engine_->FindModel(pin.name())->device.target().peak_gflops(), 50000);
  pin.set_unpin(true);
  ASSERT_TRUE(Pin(pin).ok());
  EXPECT_FALSE(Query(job)->validated);
  pin.set_name("Another GPU");
  EXPECT_TRUE(absl::IsNotFound(Pin(pin).status()));
}

TEST_F(LyingDaemonTest, WithoutRatesThereIsNoWork) {
  model_.mutable_target()->set_name("Quiet GPU");
  model_.mutable_target()->set_memory_gbs(0);
  const std::string session = Join("host", 1);
  const std::string job = Tune();
  AwaitState(job, v1::Job::STATE_WAITING_DEVICE);
  EXPECT_THAT(engine_->Devices().front().no_work_because(), HasSubstr("heddle devices pin"));
  v1::PinModelRequest pin;
  pin.set_name("Quiet GPU");
  EXPECT_TRUE(absl::IsInvalidArgument(Pin(pin).status()));
  pin.set_memory_gbs(1000);
  ASSERT_TRUE(Pin(pin).ok());
  AwaitState(job, v1::Job::STATE_RUNNING);
}

// The model is what it is known to be: another host does not change it, nor gets work that does
// not compare.
TEST_F(LyingDaemonTest, AnotherDescriptionGetsNoWork) {
  const std::string honest = Join("a", 1);
  model_.mutable_target()->set_sm_count(7);
  const std::string other = Join("zzz", 2);
  EXPECT_EQ(engine_->FindModel(model_.target().name())->device.target().sm_count(),
            H100().target().sm_count());
  const std::string job = Tune();
  EXPECT_NE(MustAcquire(honest).id(), 0);
  EXPECT_EQ(Acquire(other)->id(), 0);
  EXPECT_THAT(engine_->Devices().back().no_work_because(), HasSubstr("7 units"));
}

TEST_F(LyingDaemonTest, AnotherMemoryGetsNoWork) {
  model_.mutable_target()->set_memory_bytes(int64_t{10} << 30);
  const std::string other = Join("zzz", 2);
  const std::string job = Tune();
  EXPECT_EQ(Acquire(other)->id(), 0);
  EXPECT_THAT(engine_->Devices().back().no_work_because(), HasSubstr("10240 MiB"));
}

// Who registers first, or sorts first after a restart, does not say under which limit of power what
// all others measure is looked for.
TEST_F(LyingDaemonTest, OnesPowerLimitIsNotItsModels) {
  model_.set_power_limit_w(1);
  Join("0000", 1);
  model_.set_power_limit_w(700);
  const std::string honest = Join("a", 2);
  const std::string job = Tune();
  WorkOn(job, {{honest, [](const auto&, const auto&) { return Ok(300); }}});
  EXPECT_EQ(engine_->FindModel(model_.target().name())->info.power_limit_w, 0);
  EXPECT_TRUE(Query(job).has_value());
}

// Nor does what one of them claims under a limit of its own take the place of what two have found.
TEST_F(LyingDaemonTest, AClaimUnderAnotherPowerLimitTakesNobodysPlace) {
  model_.set_power_limit_w(700);
  const std::string first = Join("a", 1), second = Join("b", 2);
  const std::string job = Tune();
  WorkOn(job, {{first, Honest}, {second, Honest}});
  auto served = Query(job);
  ASSERT_TRUE(served.has_value());
  ASSERT_TRUE(served->validated);
  const double right_us = served->best.trial.result.time_us;
  EXPECT_EQ(served->best.environment.power_limit_w, 700);
  model_.set_power_limit_w(1);
  const std::string liar = Join("0000", 3);
  v1::JobSpec more = MatmulSpec(12, 1024);
  WorkOn(MustCreate(more), {{liar, [&](const auto&, const auto&) { return Ok(0.8 * right_us); }}});
  served = Query(job);
  ASSERT_TRUE(served.has_value());
  EXPECT_TRUE(served->validated);
  EXPECT_EQ(served->best.trial.result.time_us, right_us);
  EXPECT_EQ(served->best.environment.power_limit_w, 700);
}

// --------------------------------------------------------------------------------------- its times

TEST_F(LyingDaemonTest, OneHostAloneValidatesNothing) {
  const std::string job = Tune();
  WorkOn(job, {{Join("liar", 1), [](const auto&, const auto&) { return Ok(300); }}});
  auto served = Query(job);
  ASSERT_TRUE(served.has_value());
  EXPECT_FALSE(served->validated);
  EXPECT_EQ(served->confirmations, 0);
  // Nor with another name under the same token.
  const std::string again = Join("also-liar", 1);
  EXPECT_EQ(Acquire(again)->id(), 0) << "asked to confirm itself";
  const std::string next = Tune();
  WorkOn(next, {{again, [](const auto&, const auto&) { return Ok(300); }}});
  EXPECT_FALSE(Query(next)->validated);
  // An administrator may trust it.
  ASSERT_TRUE(Act("liar", v1::SetHostRequest::ACTION_TRUST).ok());
  ASSERT_TRUE(Act("also-liar", v1::SetHostRequest::ACTION_TRUST).ok());
  EXPECT_TRUE(Query(job)->validated);
  ASSERT_TRUE(Act("liar", v1::SetHostRequest::ACTION_DISTRUST).ok());
  ASSERT_TRUE(Act("also-liar", v1::SetHostRequest::ACTION_DISTRUST).ok());
  EXPECT_FALSE(Query(job)->validated);
}

TEST_F(LyingDaemonTest, TwoHonestHostsConfirm) {
  const std::string first = Join("first", 1), second = Join("second", 2);
  const std::string job = Tune();
  WorkOn(job, {{first, Honest}, {second, Honest}});
  const auto served = Query(job);
  ASSERT_TRUE(served.has_value());
  EXPECT_TRUE(served->validated);
  EXPECT_EQ(served->confirmations, 1);
  ExpectNothingFalse(job);
  // On other inputs than those of the job's finals, the default beside it.
  int confirming = 0;
  for (const v1::Trial& trial : Trials(job)) {
    EXPECT_EQ(trial.state(), v1::Trial::STATE_DONE);
    confirming += trial.final();
  }
  EXPECT_GT(confirming, 2);
  Restart();
  EXPECT_TRUE(Query(job)->validated);
}

// Every lie, beside one host that tells the truth, whoever comes first; and then a second one.
TEST_F(LyingDaemonTest, OneLiarBesideHonestHosts) {
  const auto in_finals = [](double factor) {
    return [=](const v1::Candidate& candidate, const v1::Lease& lease) {
      const bool lies = lease.kind() == v1::Lease::KIND_FINALS;
      return Ok(TrueTime(candidate) * (lies ? factor : 1));
    };
  };
  const std::pair<const char*, Answer> lies[] = {
      {"all times scaled alike", in_finals(0.76)},
      {"faster in finals by a hundred", in_finals(0.01)},
      {"one that is wrong is said to be right and fast",
       [](const v1::Candidate& candidate, const v1::Lease& lease) {
         return Ok(candidate.id() == lease.candidates(0).id() ? 200 : TrueTime(candidate));
       }},
      {"everything of others is wrong",
       [](const v1::Candidate& candidate, const v1::Lease& lease) {
         if (lease.kind() != v1::Lease::KIND_FINALS) return Ok(TrueTime(candidate));
         v1::TrialResult wrong;
         wrong.set_outcome(v1::OUTCOME_WRONG_ANSWER);
         return wrong;
       }},
  };
  const std::string liar = Join("liar", 1), honest = Join("honest", 2);
  int shape = 1024;
  for (const auto& [what, lie] : lies) {
    for (bool first : {true, false}) {
      SCOPED_TRACE(what);
      shape += 64;
      const std::string job = MustCreate(MatmulSpec(4, shape));
      std::vector<Daemon> daemons{{liar, lie}, {honest, Honest}};
      if (!first) std::swap(daemons[0], daemons[1]);
      WorkOn(job, daemons);
      ExpectNothingFalse(job);
    }
  }
  const std::string other = Join("other", 3);
  const std::string job = MustCreate(MatmulSpec(4, 4096));
  WorkOn(job, {{liar, in_finals(0.5)}, {honest, Honest}, {other, Honest}});
  ExpectNothingFalse(job);
}

// What two have confirmed is served until what is faster is confirmed, too.
TEST_F(LyingDaemonTest, AClaimDoesNotHideWhatIsKnown) {
  const std::string first = Join("first", 1), second = Join("second", 2);
  const std::string job = Tune();
  WorkOn(job, {{first, Honest}, {second, Honest}});
  const double known = Query(job)->best.trial.result.time_us;
  const std::string liar = Join("liar", 3);
  v1::JobSpec more = MatmulSpec(6, 1024);
  more.set_seed(7);
  const std::string next = MustCreate(more);
  WorkOn(next, {{liar, [](const auto&, const auto&) { return Ok(300); }}});
  const auto served = Query(next);
  ASSERT_TRUE(served.has_value());
  EXPECT_TRUE(served->validated);
  EXPECT_NEAR(served->best.trial.result.time_us, known, kAgreement * known);
}

TEST_F(LyingDaemonTest, NorDoHundredsOfClaims) {
  const std::string first = Join("first", 1), second = Join("second", 2);
  const std::string job = Tune();
  WorkOn(job, {{first, Honest}, {second, Honest}});
  const auto known = Query(job);
  ASSERT_TRUE(known.has_value());
  ASSERT_TRUE(known->validated);
  auto program = search_space::ParseWorkload(Get(job).workloads(0).workload().text());
  ASSERT_TRUE(program.ok()) << program.status();
  const absl::Status written = store_->WriteAndWait([&](tuner::Records& records) -> absl::Status {
    for (int i = 0; i < 300; ++i) {
      tuner::TrialRecord claim = known->best.trial;
      claim.point.clear();
      claim.steps = absl::StrCat("claimed ", i);
      claim.result.time_us = claim.result.ci_low_us = claim.result.ci_high_us = 300;
      HEDDLE_ASSIGN_OR_RETURN(id, records.AddTrial(*program, known->best.environment, claim));
      HEDDLE_RETURN_IF_ERROR(AddOrigin(records, id, {"liar", 3, 1000 + i, false}));
    }
    return absl::OkStatus();
  });
  ASSERT_TRUE(written.ok()) << written;
  const auto served = Query(job);
  ASSERT_TRUE(served.has_value());
  EXPECT_TRUE(served->validated);
  EXPECT_EQ(served->best.trial.steps, known->best.trial.steps);
}

// --------------------------------------------------------------------------------------- its name

TEST_F(LyingDaemonTest, ForeignSessionsAndHosts) {
  const std::string honest = Join("honest", 1);
  ASSERT_EQ(honest.size(), 32) << "128 bits";
  EXPECT_THAT(honest, testing::Not(HasSubstr("honest")));
  MustCreate(MatmulSpec(6));
  const v1::Lease lease = MustAcquire(honest);
  // Somebody who knows the name of a session cannot use it.
  tokens_[honest] = 2;
  for (const absl::Status& status : {Report(ReportOf(honest, lease)).status(),
                                     Beat(honest).status(), Acquire(honest).status()}) {
    EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  }
  tokens_[honest] = 1;
  Caller certified = As(1);
  certified.certificate = "mallory.example.org";
  auto stolen = Wait<v1::ReportResponse>(
      [&](auto reply) { engine_->Report(certified, ReportOf(honest, lease), std::move(reply)); });
  EXPECT_TRUE(absl::IsFailedPrecondition(stolen.status())) << stolen.status();
  // Nor can another token take the host, also after a restart.
  for (int restart = 0; restart < 2; ++restart) {
    auto taken = TryRegister(RegistrationOf("honest"), 2);
    EXPECT_TRUE(absl::IsPermissionDenied(taken.status())) << taken.status();
    if (restart == 0) {
      ASSERT_TRUE(Report(ReportOf(honest, lease)).ok());
      Restart();
    }
  }
  const std::string back = Join("honest", 1);
  // Until it is released.
  ASSERT_TRUE(Act("honest", v1::SetHostRequest::ACTION_TRUST).ok());
  ASSERT_TRUE(Act("honest", v1::SetHostRequest::ACTION_RELEASE).ok());
  EXPECT_TRUE(absl::IsFailedPrecondition(Beat(back).status()));
  Join("honest", 2);
  EXPECT_FALSE(engine_->TrustsHost("honest")) << "it was the other's";
  EXPECT_TRUE(absl::IsPermissionDenied(TryRegister(RegistrationOf("honest"), 1).status()));
  EXPECT_TRUE(absl::IsNotFound(Act("nobody", v1::SetHostRequest::ACTION_RELEASE)));
}

// The host of a token that was revoked is free.
TEST_F(LyingDaemonTest, ARevokedTokenKeepsNoHost) {
  ASSERT_TRUE(store_
                  ->WriteAndWait([&](tuner::Records& records) {
                    return records.database().Run(
                        "INSERT INTO token (id, hash, tenant, role, note, created_us, revoked_us) "
                        "VALUES (1, 'x', 'fleet', 'daemon', '', 0, 0), (2, 'y', 'fleet', "
                        "'daemon', '', 0, 0)");
                  })
                  .ok());
  Join("host", 1);
  EXPECT_TRUE(absl::IsPermissionDenied(TryRegister(RegistrationOf("host"), 2).status()));
  ASSERT_TRUE(store_
                  ->WriteAndWait([&](tuner::Records& records) {
                    return records.database().Run("UPDATE token SET revoked_us = 1 WHERE id = 1");
                  })
                  .ok());
  Join("host", 2);
}

TEST_F(LyingDaemonTest, TheServersOwnHostIsNobodyElses) {
  Close();
  configure_ = [](EngineOptions& options) { options.own_host = "here"; };
  Open();
  EXPECT_TRUE(absl::IsPermissionDenied(TryRegister(RegistrationOf("here"), 1).status()));
  const std::string job = Tune();
  WorkOn(job, {{Join("here", 0), Honest}});
  EXPECT_TRUE(Query(job)->validated);
}

// --------------------------------------------------------------------------- two daemons of a host

TEST_F(LyingDaemonTest, TwoDaemonsOfOneHost) {
  const auto daemon = [](const std::string& instance, const std::string& uuid) {
    v1::Device device = H100();
    device.set_uuid(uuid);
    v1::RegisterRequest request = RegistrationOf("host", device);
    request.set_instance(instance);
    return request;
  };
  // One a GPU: both live, though each calls its own cuda:0.
  const std::string a = Register(daemon("a", "GPU-1")), b = Register(daemon("b", "GPU-2"));
  MustCreate(MatmulSpec(40));
  ASSERT_TRUE(Report(ReportOf(a, MustAcquire(a, 1))).ok());
  const v1::Lease of_a = MustAcquire(a, 1), of_b = MustAcquire(b, 1);
  EXPECT_TRUE(Beat(a, {of_a.id()}).ok());
  EXPECT_TRUE(Beat(b, {of_b.id()}).ok());
  EXPECT_EQ(engine_->Devices().size(), 2);
  // Both on one: the second is told whose it is.
  auto third = TryRegister(daemon("c", "GPU-2"));
  EXPECT_TRUE(absl::IsAlreadyExists(third.status())) << third.status();
  EXPECT_THAT(third.status().message(), HasSubstr("the daemon b"));
  EXPECT_TRUE(Beat(b).ok());
  // The same process again, and another one when it is silent, take over.
  const std::string b_again = Register(daemon("b", "GPU-2"));
  EXPECT_FALSE(Beat(b).ok());
  now_ms_ += 16'000;
  EXPECT_TRUE(Beat(a).ok());
  Register(daemon("c", "GPU-2"));
  EXPECT_FALSE(Beat(b_again).ok());
  EXPECT_TRUE(Beat(a).ok());
}

}  // namespace
}  // namespace heddle::server
