// What is bounded, refused and given up so that the server starts, stays and answers.
#include <gmock/gmock.h>
#include <grpcpp/generic/generic_stub.h>

#include <atomic>
#include <limits>
#include <set>

#include "base/sqlite.h"
#include "search_space/notation/notation.h"
#include "server/api/rpc.h"
#include "server/db/errors.h"
#include "server/fleet/jobs/cost.h"
#include "tests/server/server_fixture.h"

namespace heddle::server {
namespace {

using testing::HasSubstr;

constexpr int64_t kDefaultMessageBytes = 4 << 20;  // that a client of gRPC takes

// A text of about `bytes`, most of it nothing.
v1::Workload LongWorkload(size_t bytes) {
  v1::Workload workload;
  workload.set_op_text("op f(n) { in A[n] out B[i: n] = A[i] }\n#" + std::string(bytes, '.'));
  (*workload.mutable_shape())["n"] = 64;
  return workload;
}

class LimitsTest : public EngineTest {
 protected:
  // As another version would have left it.
  void Damage(const std::string& sql) {
    auto database = Database::Open(path_, Database::Mode::kReadWrite);
    ASSERT_TRUE(database.ok()) << database.status();
    const absl::Status status = database->Script(sql);
    ASSERT_TRUE(status.ok()) << status;
  }
};

TEST_F(LimitsTest, AJobThatNoLongerParsesFailsAndTheServerStarts) {
  const std::string session = Register("loom");
  const std::string leased = MustCreate(MatmulSpec(8));
  MustAcquire(session);
  const std::string unreadable = MustCreate(MatmulSpec(8, 32));
  const std::string right = MustCreate(MatmulSpec(8, 16));
  const std::string without_budget = MustCreate(MatmulSpec(8, 64));
  Close();
  Damage(absl::StrCat(
      "UPDATE job_workload SET text = replace(text, 'sum(', 'median(') WHERE job = ", JobId(leased),
      ";UPDATE job SET spec = '{\"workloads\": 7}' WHERE id = ", JobId(unreadable),
      // As it was stored when a budget of time was a number of seconds: a search without an end.
      ";UPDATE job SET spec = json_set(spec, '$.budget', json('{\"seconds\": 60}')) WHERE id = ",
      JobId(without_budget)));
  Open();
  ASSERT_NE(engine_, nullptr);
  for (const std::string& id : {leased, unreadable, without_budget}) {
    const v1::Job job = Get(id);
    EXPECT_EQ(job.state(), v1::Job::STATE_FAILED) << id;
    EXPECT_THAT(job.error(), HasSubstr("cannot go on with the job"));
  }
  EXPECT_THAT(Get(leased).error(), HasSubstr("3:31: expected"));
  // None begins again, or is made another one of.
  for (const std::string& id : {leased, unreadable, without_budget}) {
    const absl::Status retried =
        Wait<v1::Job>([&](auto reply) {
          engine_->RetryJob(Tenant("weavers"), JobId(id), "again", std::move(reply));
        }).status();
    EXPECT_TRUE(absl::IsFailedPrecondition(retried)) << retried;
    EXPECT_EQ(Get(id).state(), v1::Job::STATE_FAILED) << id;
  }
  JobUpdate update;
  update.priority = 1;
  const absl::Status updated =
      Wait<v1::Job>([&](auto reply) {
        engine_->UpdateJob(Tenant("weavers"), JobId(unreadable), update, std::move(reply));
      }).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(updated)) << updated;
  // Lists and the other job are as they were.
  int64_t before = 0;
  auto reader = store_->Read();
  const auto jobs = LoadJobs(*reader, "weavers", {}, /*full=*/false, before, 10);
  ASSERT_TRUE(jobs.ok()) << jobs.status();
  EXPECT_EQ(jobs->size(), 4U);
  EXPECT_FALSE(IsTerminal(Get(right).state()));
}

TEST_F(LimitsTest, AJobSaysWhatItsWorkloadsAreBeforeAnythingIsRecorded) {
  v1::JobSpec spec = MatmulSpec(8);
  *spec.add_workloads() = LongWorkload(10);
  const v1::Job job = Get(MustCreate(spec));
  const v1::WorkloadKey& first = job.workloads(0).workload();
  EXPECT_EQ(first.op(), "matmul");
  EXPECT_EQ(first.dtype(), "float32");
  EXPECT_THAT(first.shape(),
              testing::UnorderedElementsAre(testing::Pair("m", 64), testing::Pair("n", 64),
                                            testing::Pair("k", 64)));
  EXPECT_EQ(job.workloads(1).workload().op(), "f");
}

TEST_F(LimitsTest, NoPageOfJobsIsTooLargeToArrive) {
  v1::JobSpec spec = MatmulSpec(8);
  for (int i = 0; i < 15; ++i) *spec.add_workloads() = LongWorkload(60000);
  std::set<std::string> created, listed;
  for (int i = 0; i < 4; ++i) created.insert(MustCreate(spec));
  int64_t before = 0;
  int pages = 0;
  do {
    auto reader = store_->Read();
    const auto jobs = LoadJobs(*reader, "weavers", {}, /*full=*/true, before, 200);
    ASSERT_TRUE(jobs.ok()) << jobs.status();
    size_t bytes = 0;
    for (const v1::Job& job : *jobs) {
      bytes += job.ByteSizeLong();
      listed.insert(job.name());
    }
    EXPECT_LT(bytes, kDefaultMessageBytes);
    ++pages;
  } while (before != 0);
  EXPECT_EQ(listed, created);
  EXPECT_GT(pages, 1);
}

TEST(SpecLimitsTest, TooLargeASpecificationIsRefused) {
  v1::JobSpec spec = MatmulSpec(8);
  for (int i = 0; i < 20; ++i) *spec.add_workloads() = LongWorkload(60000);
  const auto workloads = ParseSpec(spec, absl::Now());
  EXPECT_TRUE(absl::IsInvalidArgument(workloads.status())) << workloads.status();
  EXPECT_THAT(std::string(workloads.status().message()), HasSubstr("at most 1048576"));
}

TEST(SpecLimitsTest, WhatADeviceCannotDoInSecondsIsRefused) {
  const auto cost = [](int64_t size) {
    const auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
    const auto program =
        op->Instantiate({{"m", size}, {"n", size}, {"k", size}}, search_space::DType::kFloat32);
    return CheckCost(*program, *search_space::FindTarget("h100"));
  };
  EXPECT_TRUE(cost(16384).ok()) << cost(16384);
  EXPECT_THAT(std::string(cost(32768).message()), HasSubstr("choose a smaller shape"));
  EXPECT_THAT(std::string(cost(1 << 20).message()), HasSubstr("GiB of memory to be measured"));
}

class LimitsOfServerTest : public ServerTest {};

TEST_F(LimitsOfServerTest, ARequestThatIsRepeatedIsNotLookedAtAgain) {
  Start();
  v1::CreateJobRequest request;
  request.set_request_id("again");
  *request.mutable_spec() = MatmulSpec(4);
  v1::Job first, second;
  request.mutable_spec()->mutable_expire_time()->set_seconds(absl::ToUnixSeconds(absl::Now()) +
                                                             3600);
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::CreateJob, request, &first).ok());
  // As a script says it that adds an hour to the time at which it runs, or one that runs late.
  for (const int64_t seconds : {absl::ToUnixSeconds(absl::Now()) + 3601, int64_t{1}}) {
    request.mutable_spec()->mutable_expire_time()->set_seconds(seconds);
    const grpc::Status status = Call(*tuning_, &v1::Tuning::Stub::CreateJob, request, &second);
    EXPECT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(second.name(), first.name());
  }
  request.mutable_spec()->set_seed(7);
  EXPECT_EQ(Call(*tuning_, &v1::Tuning::Stub::CreateJob, request, &second).error_code(),
            grpc::ALREADY_EXISTS);
}

TEST_F(LimitsOfServerTest, AWorkloadTooLargeForTheDeviceIsRefusedAtOnce) {
  Start();
  v1::RegisterRequest hello;
  hello.set_host_uuid("host");
  hello.set_generator(measure::kGeneratorVersion);
  *hello.add_devices() = H100();
  v1::RegisterResponse session;
  ASSERT_TRUE(Call(*fleet_, &v1::Fleet::Stub::Register, hello, &session).ok());
  v1::CreateJobRequest request;
  request.set_request_id("large");
  *request.mutable_spec() = MatmulSpec(4);
  for (auto& [name, size] : *request.mutable_spec()->mutable_workloads(0)->mutable_shape()) {
    size = 32768;
  }
  v1::Job job;
  const grpc::Status status = Call(*tuning_, &v1::Tuning::Stub::CreateJob, request, &job);
  EXPECT_EQ(status.error_code(), grpc::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("spec.workloads[0].shape"));
}

// 1 = SERVING, 2 = NOT_SERVING of grpc.health.v1, as the byte that stands for it in the answer.
int HealthOf(const std::shared_ptr<grpc::Channel>& channel) {
  grpc::GenericStub stub(channel);
  grpc::ClientContext context;
  const grpc::Slice empty;
  grpc::ByteBuffer request(&empty, 1), response;
  absl::Notification done;
  grpc::Status status;
  stub.UnaryCall(&context, "/grpc.health.v1.Health/Check", {}, &request, &response,
                 [&](grpc::Status s) {
                   status = std::move(s);
                   done.Notify();
                 });
  done.WaitForNotification();
  EXPECT_TRUE(status.ok()) << status.error_message();
  std::vector<grpc::Slice> slices;
  if (!status.ok() || !response.Dump(&slices).ok() || slices.empty()) return 0;
  return slices[0].size() == 2 ? slices[0].begin()[1] : 0;
}

TEST_F(LimitsOfServerTest, HealthFollowsTheDatabase) {
  std::atomic<bool> full = false;
  options_.store.before_commit = [&] {
    return full ? absl::ResourceExhaustedError("no space left") : absl::OkStatus();
  };
  Start();
  const auto await = [&](int health) {
    for (int i = 0; i < 1000 && HealthOf(channel_) != health; ++i) {
      absl::SleepFor(absl::Milliseconds(10));
    }
    return HealthOf(channel_);
  };
  EXPECT_EQ(await(1), 1);
  full = true;
  for (int i = 0; i < 3; ++i) {
    v1::Job job;
    EXPECT_EQ(Create(absl::StrCat("r", i), &job).error_code(), grpc::RESOURCE_EXHAUSTED);
  }
  EXPECT_EQ(await(2), 2);
  full = false;
  EXPECT_EQ(await(1), 1);
}

TEST(StoreLimitsTest, TooManyWritesAreRefusedWithTheTimeToComeAgain) {
  tests::TempFolder folder;
  StoreOptions options;
  options.max_waiting = 8;
  auto store = Store::Open(folder / "heddle.db", options);
  ASSERT_TRUE(store.ok()) << store.status();
  absl::Notification begun, go;
  (*store)->Write(
      [&](tuner::Records&) {
        begun.Notify();
        go.WaitForNotification();
        return absl::OkStatus();
      },
      nullptr);
  begun.WaitForNotification();
  std::atomic<int> ran = 0, refused = 0;
  for (int i = 0; i < 20; ++i) {
    (*store)->Write(
        [&](tuner::Records&) {
          ++ran;
          return absl::OkStatus();
        },
        [&](const absl::Status& status) {
          if (status.ok()) return;
          ++refused;
          EXPECT_TRUE(absl::IsResourceExhausted(status)) << status;
          EXPECT_THAT(ToGrpc(status).error_details(), HasSubstr("RetryInfo"));
        },
        i < 19 ? Persistence::kOnce : Persistence::kUntilStored);
  }
  go.Notify();
  store->reset();
  EXPECT_EQ(ran, 9) << "the last one is what the server itself has decided";
  EXPECT_EQ(refused, 11);
}

TEST(BacklogTest, ATenantsLargeRequestsAreBoundedByTheirBytes) {
  Backlog backlog;
  const size_t quarter = Backlog::kMostOfTenant / 4;
  for (int i = 0; i < 4; ++i) EXPECT_TRUE(backlog.Add("weavers", quarter));
  EXPECT_FALSE(backlog.Add("weavers", Backlog::kSmall));
  EXPECT_TRUE(backlog.Add("spinners", quarter));
  backlog.Remove("weavers", quarter);
  EXPECT_TRUE(backlog.Add("weavers", Backlog::kSmall));
  // What is larger than all that a tenant may have comes in alone.
  EXPECT_TRUE(backlog.Add("dyers", 2 * Backlog::kMostOfTenant));
  EXPECT_FALSE(backlog.Add("dyers", 1));
}

}  // namespace
}  // namespace heddle::server
