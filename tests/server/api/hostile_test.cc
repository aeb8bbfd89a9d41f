// Callers whose requests are right and cost more than they look: the server stays up, small, and
// there for the others.
#include <gmock/gmock.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <fstream>
#include <memory>
#include <thread>
#include <vector>

#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "search_space/notation/notation.h"
#include "server/engine/byte_cache.h"
#include "server/engine/spaces.h"
#include "tests/hostile_operators.h"
#include "tests/server/server_fixture.h"
#include "tests/support.h"

namespace heddle::server {
namespace {

using testing::HasSubstr;

int64_t ResidentBytes() {
  std::ifstream in("/proc/self/statm");
  int64_t mapped = 0, resident = 0;
  in >> mapped >> resident;
  return resident * sysconf(_SC_PAGESIZE);
}

class HostileTest : public ServerTest {
 protected:
  HostileTest() { options_.engine.search = SearchInChild; }

  void RegisterDevice() {
    v1::RegisterRequest hello;
    hello.set_host_uuid("host");
    hello.set_generator(measure::kGeneratorVersion);
    *hello.add_devices() = H100();
    v1::RegisterResponse session;
    ASSERT_TRUE(Call(*fleet_, &v1::Fleet::Stub::Register, hello, &session).ok());
  }

  static v1::Workload WorkloadOf(const tests::HostileOperator& hostile) {
    v1::Workload workload;
    workload.set_op_text(hostile.text);
    for (const auto& [name, size] : hostile.shape) (*workload.mutable_shape())[name] = size;
    return workload;
  }

  // Milliseconds that a call took.
  template <typename F>
  static double Milliseconds(F&& call) {
    const SteadyTime begun = SteadyNow();
    call();
    return 1000 * SecondsSince(begun);
  }

  // Answered, or refused with a reason that is the operator's.
  static void ExpectAnswered(const grpc::Status& status, const std::string& what) {
    EXPECT_TRUE(status.ok() || status.error_code() == grpc::INVALID_ARGUMENT ||
                status.error_code() == grpc::FAILED_PRECONDITION ||
                (tests::kSanitized && status.error_code() == grpc::RESOURCE_EXHAUSTED))
        << status.error_code() << ": " << status.error_message() << "\n"
        << what;
  }

  void Send(uint64_t seed) {
    const tests::HostileOperator hostile = tests::HostileOperators(seed).Next();
    const std::string what = absl::StrCat("seed ", seed, ": ", hostile.text);
    v1::ValidateRequest validate;
    *validate.mutable_spec()->add_workloads() = WorkloadOf(hostile);
    validate.mutable_spec()->mutable_budget()->set_trials(1);
    v1::ValidateResponse validated;
    ExpectAnswered(Call(*tuning_, &v1::Tuning::Stub::Validate, validate, &validated), what);
    for (const auto& info : validated.workloads()) {
      EXPECT_THAT(info.emptied_by(), testing::Not(HasSubstr("which is the limit"))) << what;
    }
    v1::QueryBestRequest query;
    *query.mutable_workload() = WorkloadOf(hostile);
    query.set_fallback(seed % 2 == 0 ? v1::QueryBestRequest::FALLBACK_DEFAULT
                                     : v1::QueryBestRequest::FALLBACK_NEAREST);
    v1::QueryBestResponse best;
    ExpectAnswered(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best), what);
    if (seed % 32 != 0) return;
    v1::CreateJobRequest create;
    create.set_request_id(absl::StrCat("seed-", seed));
    *create.mutable_spec() = validate.spec();
    v1::Job job;
    const grpc::Status status = Call(*tuning_, &v1::Tuning::Stub::CreateJob, create, &job);
    ExpectAnswered(status, what);
    v1::CancelJobRequest cancel;
    cancel.set_name(job.name());
    if (status.ok()) {
      EXPECT_TRUE(Call(*tuning_, &v1::Tuning::Stub::CancelJob, cancel, &job).ok());
    }
  }

  // Every `step`-th of 2,000.
  void SendAll(uint64_t step) {
    Start();
    RegisterDevice();
    Send(0);  // what is made once
    const int64_t before = ResidentBytes();
    std::atomic<bool> sent = false;
    std::vector<double> others;
    std::thread other([&] {
      while (!sent) {
        v1::ListJobsResponse jobs;
        others.push_back(Milliseconds([&] {
          const grpc::Status status =
              Call(*tuning_, &v1::Tuning::Stub::ListJobs, v1::ListJobsRequest(), &jobs);
          EXPECT_TRUE(status.ok()) << status.error_message();
        }));
        absl::SleepFor(absl::Milliseconds(5));
      }
    });
    double longest = 0;  // of one operator through all of its calls
    uint64_t count = 0;
    for (uint64_t seed = 1 + tests::Seed() % step; seed <= 2000; seed += step, ++count) {
      longest = std::max(longest, Milliseconds([&] { Send(seed); }));
    }
    sent = true;
    other.join();
    const int64_t grown = ResidentBytes() - before;
    EXPECT_LT(grown, tests::kSanitized ? INT64_MAX : int64_t{96} << 20);
    // Times and the largest child are for docs/results/service.md: they are the machine's, too.
    std::sort(others.begin(), others.end());
    const auto at = [&](double share) {
      return others[static_cast<size_t>(share * static_cast<double>(others.size() - 1))];
    };
    rusage children{};
    getrusage(RUSAGE_CHILDREN, &children);
    absl::PrintF(
        "%d operators: the longest took %.0f ms with all its calls, the largest child %d MB, the "
        "server grew by %d MB; %d calls of another: p50 %.2f ms, p99 %.2f ms\n",
        count, longest, children.ru_maxrss >> 10, grown >> 20, others.size(), at(0.5), at(0.99));
  }
};

TEST_F(HostileTest, OperatorsCostTheServerNothing) { SendAll(10); }

TEST_F(HostileTest, LongManyOperatorsCostTheServerNothing) { SendAll(1); }

// What the server does not know of is not kept, and does not make a question another one.
TEST_F(HostileTest, FieldsThatNobodyKnowsCostNothing) {
  Start();
  RegisterDevice();
  v1::QueryBestRequest query;
  v1::Workload& workload = *query.mutable_workload();
  workload = MatmulSpec(1).workloads(0);
  v1::QueryBestResponse best;
  const auto ask = [&](int i) {
    auto* unknown = workload.GetReflection()->MutableUnknownFields(&workload);
    unknown->Clear();
    unknown->AddLengthDelimited(1000, std::string(2 << 20, static_cast<char>('a' + i % 26)));
    unknown->AddVarint(1001, static_cast<uint64_t>(i));
    const grpc::Status status = Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best);
    EXPECT_TRUE(status.ok()) << status.error_message();
  };
  for (int i = 0; i < 5; ++i) ask(i);
  const int64_t before = ResidentBytes();
  for (int i = 5; i < 45; ++i) ask(i);  // 80 MiB
  EXPECT_LT(ResidentBytes() - before, tests::kSanitized ? INT64_MAX : int64_t{24} << 20);
}

TEST_F(HostileTest, AnImportOfLargeRecordsEndsAtTheFirst) {
  Start();
  grpc::ClientContext context;
  Prepare(context, "");
  v1::ImportResponse response;
  auto stream = records_->Import(&context, &response);
  v1::Record large;
  large.set_steps(std::string(3 << 20, 'x'));
  int written = 0;
  while (written < 100 && stream->Write(large)) ++written;
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT) << status.error_message();
  EXPECT_THAT(status.error_message(), HasSubstr("record 1 has 3145"));
  EXPECT_LT(written, 100);
}

// What one connection opens beyond its streams waits on its own side; others are answered.
TEST_F(HostileTest, AConnectionHasAHundredStreams) {
  Start();
  v1::Job job;
  ASSERT_TRUE(Create("waits", &job).ok());
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  std::vector<std::unique_ptr<grpc::ClientContext>> contexts;
  std::vector<std::unique_ptr<grpc::ClientReader<v1::JobEvent>>> streams;
  for (int i = 0; i < 100; ++i) {
    Prepare(*contexts.emplace_back(std::make_unique<grpc::ClientContext>()), "");
    streams.push_back(tuning_->WatchJob(contexts.back().get(), watch));
    v1::JobEvent event;
    ASSERT_TRUE(streams.back()->Read(&event)) << i;
  }
  const auto ask = [](v1::Tuning::Stub& stub) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(2));
    v1::ServerInfo info;
    return stub.GetServerInfo(&context, v1::GetServerInfoRequest(), &info);
  };
  EXPECT_EQ(ask(*tuning_).error_code(), grpc::DEADLINE_EXCEEDED);
  grpc::ChannelArguments own;
  own.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  const auto another = v1::Tuning::NewStub(grpc::CreateCustomChannel(
      server_->addresses().back(), grpc::InsecureChannelCredentials(), own));
  EXPECT_TRUE(ask(*another).ok());
  for (size_t i = 0; i < streams.size(); ++i) {
    contexts[i]->TryCancel();
    streams[i]->Finish();
  }
  EXPECT_TRUE(Info().ok());
}

TEST_F(HostileTest, AConnectionThatPingsTooOftenIsEnded) {
  Start();
  v1::Job job;
  ASSERT_TRUE(Create("waits", &job).ok());
  grpc::ChannelArguments often;
  often.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  often.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, 100);
  often.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  const auto stub = v1::Tuning::NewStub(grpc::CreateCustomChannel(
      server_->addresses().back(), grpc::InsecureChannelCredentials(), often));
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  grpc::ClientContext context;
  Prepare(context, "");
  auto stream = stub->WatchJob(&context, watch);
  for (v1::JobEvent event; stream->Read(&event);) {
  }
  const grpc::Status status = stream->Finish();
  EXPECT_EQ(status.error_code(), grpc::UNAVAILABLE) << status.error_message();
  EXPECT_THAT(status.error_message(), testing::ContainsRegex("[Tt]oo.many.pings"));
  EXPECT_TRUE(Info().ok()) << "others are answered";
}

TEST_F(HostileTest, AJobOfFortyDoublingStagesIsTuned) {
  Start();
  v1::CreateJobRequest create;
  create.set_request_id("doubling");
  v1::Workload& workload = *create.mutable_spec()->add_workloads();
  workload.set_op_text(tests::DoublingChain(40));
  (*workload.mutable_shape())["n"] = 4096;
  create.mutable_spec()->mutable_budget()->set_trials(4);
  v1::Job job;
  const grpc::Status created = Call(*tuning_, &v1::Tuning::Stub::CreateJob, create, &job);
  ASSERT_TRUE(created.ok()) << created.error_message();
  Work(job.name());
}

searcher::SpaceQuestion QuestionOf(const std::string& text) {
  searcher::SpaceQuestion question;
  const auto op = search_space::ParseOperators(text);
  question.set_workload(
      op->front().Instantiate({{"n", 64}}, search_space::DType::kFloat32)->canonical_text);
  *question.mutable_device() = H100();
  return question;
}

TEST(SpacesTest, AProcessThatTakesTooMuchIsGivenUp) {
  const searcher::SpaceQuestion question = QuestionOf(tests::DoublingChain(30));
  Spaces hasty({.time = absl::ZeroDuration(), .memory_bytes = size_t{512} << 20});
  auto answer = hasty.Ask(question);
  EXPECT_TRUE(absl::IsResourceExhausted(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("more than 0"));
  if (tests::kSanitized) return;
  Spaces narrow({.time = absl::Seconds(20), .memory_bytes = 1});
  answer = narrow.Ask(question);
  EXPECT_TRUE(absl::IsResourceExhausted(answer.status())) << answer.status();
  EXPECT_THAT(std::string(answer.status().message()), HasSubstr("more than 0 MiB"));
  // Known from now on.
  const std::string first(answer.status().message());
  EXPECT_EQ(std::string(narrow.Ask(question).status().message()), first);
}

TEST(SpacesTest, AnswersAreThoseOfTheSpaceAndItsErrorsToo) {
  Spaces spaces;
  searcher::SpaceQuestion question = QuestionOf(tests::DoublingChain(3));
  for (int i = 0; i < 2; ++i) {
    auto points = spaces.Ask(question);
    ASSERT_TRUE(points.ok()) << points.status();
    EXPECT_GT(points->points(), 1);
  }
  question.set_fallback(v1::QueryBestRequest::FALLBACK_DEFAULT);
  auto steps = spaces.Ask(question);
  ASSERT_TRUE(steps.ok()) << steps.status();
  EXPECT_THAT(steps->steps(), HasSubstr("T3"));
  question.mutable_device()->mutable_target()->set_max_grid(0);
  EXPECT_TRUE(absl::IsFailedPrecondition(spaces.Ask(question).status()));
}

TEST(ByteCacheTest, HoldsNoMoreBytesThanItMay) {
  ByteCache<int> cache(10000);
  for (int i = 0; i < 1000; ++i) {
    cache.Add(absl::StrCat("key-", i), i, 1000);
    EXPECT_LE(cache.bytes(), 10000U);
    EXPECT_TRUE(cache.Find("key-0").has_value()) << i;  // what is used stays
  }
  EXPECT_EQ(cache.Find("key-999"), 999);
  EXPECT_EQ(cache.Find("key-500"), std::nullopt);
  cache.Add("large", 1, 20000);
  EXPECT_EQ(cache.Find("large"), std::nullopt);
}

TEST(PoolTest, OneTenantNeverHasAllThreads) {
  Pool pool(2);
  absl::Notification go, served;
  std::atomic<int> greedy = 0;
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(pool.Run("greedy", [&] {
      go.WaitForNotification();
      ++greedy;
    }));
  }
  ASSERT_TRUE(pool.Run("other", [&] { served.Notify(); }));
  EXPECT_TRUE(served.WaitForNotificationWithTimeout(absl::Seconds(20)));
  EXPECT_EQ(greedy, 0);
  go.Notify();
}

TEST(PoolTest, TooMuchOfOneTenantIsRefusedAndAnotherIsNot) {
  Pool pool(2);
  absl::Notification go;
  int taken = 0;
  while (pool.Run("greedy", [&] { go.WaitForNotification(); })) ++taken;
  EXPECT_LT(taken, 5000);
  EXPECT_TRUE(pool.Run("other", [] {}));
  go.Notify();
}

}  // namespace
}  // namespace heddle::server
