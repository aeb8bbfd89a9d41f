// The client library against a scripted server: what it repeats, and when it gives up.
#include "client/client.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "client/connection.h"
#include "heddle/v1/errors.pb.h"
#include "heddle/v1/records.grpc.pb.h"
#include "heddle/v1/tuning.grpc.pb.h"
#include "proto/values.h"
#include "tests/process.h"

namespace heddle::client {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const grpc::Status kAway(grpc::StatusCode::UNAVAILABLE, "away");

class TuningServer final : public v1::Tuning::Service {
 public:
  grpc::Status CreateJob(grpc::ServerContext* context, const v1::CreateJobRequest* request,
                         v1::Job* job) override {
    std::lock_guard lock(mutex);
    request_ids.push_back(request->request_id());
    auto token = context->client_metadata().find("authorization");
    if (token != context->client_metadata().end()) {
      authorization.assign(token->second.data(), token->second.size());
    }
    if (failures-- > 0) return failure;
    job->set_name("job-1");
    return grpc::Status::OK;
  }

  grpc::Status GetJob(grpc::ServerContext* context, const v1::GetJobRequest* request,
                      v1::Job*) override {
    if (request->name() == "slow") {
      while (!context->IsCancelled()) absl::SleepFor(absl::Milliseconds(10));
      return grpc::Status::CANCELLED;
    }
    v1::BadRequest bad;
    auto* violation = bad.add_field_violations();
    violation->set_field("id");
    violation->set_description("must be job-N");
    v1::RpcStatus details;
    auto* any = details.add_details();
    any->set_type_url("type.googleapis.com/google.rpc.BadRequest");
    any->set_value(bad.SerializeAsString());
    return {grpc::StatusCode::INVALID_ARGUMENT, "wrong request", details.SerializeAsString()};
  }

  // Ends with the third call.
  grpc::Status WaitJob(grpc::ServerContext*, const v1::WaitJobRequest* request,
                       v1::Job* job) override {
    std::lock_guard lock(mutex);
    waits.push_back(SecondsOf(request->timeout()));
    if (failures-- > 0) return failure;
    job->set_name(request->name());
    if (waits.size() >= 3) job->mutable_end_time()->set_seconds(1);
    return grpc::Status::OK;
  }

  // Three events a call, then the stream breaks; the job ends with event 8.
  grpc::Status WatchJob(grpc::ServerContext*, const v1::WatchJobRequest* request,
                        grpc::ServerWriter<v1::JobEvent>* writer) override {
    for (int64_t seq = request->after_seq() + 1; seq <= request->after_seq() + 3; ++seq) {
      v1::JobEvent event;
      event.set_seq(seq);
      event.set_state(seq == 8 ? v1::Job::STATE_SUCCEEDED : v1::Job::STATE_RUNNING);
      writer->Write(event);
      if (seq == 8) return grpc::Status::OK;
    }
    return kAway;
  }

  std::mutex mutex;
  int failures = 0;
  grpc::Status failure = kAway;
  std::vector<std::string> request_ids;
  std::vector<double> waits;
  std::string authorization;
};

class RecordsServer final : public v1::Records::Service {
 public:
  grpc::Status Export(grpc::ServerContext*, const v1::ExportRequest* request,
                      grpc::ServerWriter<v1::Record>* writer) override {
    for (int64_t id = request->after_id() + 1; id <= 5; ++id) {
      v1::Record record;
      record.set_id(id);
      writer->Write(record);
      if (id == 2) return kAway;
    }
    return grpc::Status::OK;
  }
  grpc::Status Import(grpc::ServerContext*, grpc::ServerReader<v1::Record>* reader,
                      v1::ImportResponse* response) override {
    v1::Record record;
    int64_t number = 0;
    while (reader->Read(&record)) {
      ++number;
      if (record.id() == 1500) {
        auto* rejected = response->add_rejected();
        rejected->set_number(number);
        response->set_refused(1);
      } else {
        response->set_added(response->added() + 1);
      }
    }
    return grpc::Status::OK;
  }
};

class ClientTest : public testing::Test {
 protected:
  void SetUp() override {
    options_.server = "unix:" + (folder_ / "server");
    grpc::ServerBuilder builder;
    builder.AddListeningPort(options_.server, grpc::InsecureServerCredentials());
    builder.RegisterService(&tuning_);
    builder.RegisterService(&records_);
    server_ = builder.BuildAndStart();
    Connect({});
  }
  void TearDown() override { server_->Shutdown(std::chrono::system_clock::now()); }

  void Connect(const CallOptions& calls) {
    auto client = Client::Connect(options_, calls);
    ASSERT_TRUE(client.ok()) << client.status();
    client_ = *std::move(client);
  }

  tests::TempFolder folder_;
  TuningServer tuning_;
  RecordsServer records_;
  std::unique_ptr<grpc::Server> server_;
  ConnectOptions options_;
  std::unique_ptr<Client> client_;
};

TEST_F(ClientTest, AServerThatIsAwayIsAskedAgainWithTheSameRequestId) {
  tuning_.failures = 2;
  auto job = client_->CreateJob({});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(job->name(), "job-1");
  ASSERT_EQ(tuning_.request_ids.size(), 3u);
  EXPECT_EQ(tuning_.request_ids[0].size(), 32u);
  EXPECT_EQ(tuning_.request_ids[0], tuning_.request_ids[2]);
  ASSERT_TRUE(client_->CreateJob({}).ok());
  EXPECT_NE(tuning_.request_ids[3], tuning_.request_ids[0]) << "another call has another id";
}

// As a server refuses that is busy or whose disk is full, with `delay` as it asks for it.
grpc::Status Refusal(grpc::StatusCode code, absl::Duration delay) {
  v1::RetryInfo retry;
  retry.mutable_retry_delay()->set_seconds(absl::ToInt64Seconds(delay));
  retry.mutable_retry_delay()->set_nanos(
      static_cast<int32_t>((delay % absl::Seconds(1)) / absl::Nanoseconds(1)));
  v1::RpcStatus details;
  auto* any = details.add_details();
  any->set_type_url("type.googleapis.com/google.rpc.RetryInfo");
  any->set_value(retry.SerializeAsString());
  return {code, "busy", details.SerializeAsString()};
}

TEST_F(ClientTest, AServerThatSaysWhenToComeBackIsAskedThen) {
  tuning_.failures = 2;
  tuning_.failure = Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, absl::Milliseconds(400));
  const absl::Time start = absl::Now();
  auto job = client_->CreateJob({});
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_EQ(tuning_.request_ids.size(), 3u);
  EXPECT_GE(absl::Now() - start, absl::Milliseconds(800));
}

TEST_F(ClientTest, ARefusalWithoutSuchAWordIsFinal) {
  for (auto code : {grpc::StatusCode::RESOURCE_EXHAUSTED, grpc::StatusCode::INTERNAL,
                    grpc::StatusCode::ABORTED, grpc::StatusCode::DATA_LOSS}) {
    tuning_.request_ids.clear();
    tuning_.failures = 1;
    tuning_.failure = grpc::Status(code, "no");
    EXPECT_FALSE(client_->CreateJob({}).ok());
    EXPECT_EQ(tuning_.request_ids.size(), 1u);
  }
}

// The server asks for more than the caller's patience: it is told so at once.
TEST_F(ClientTest, ALongDelayIsNotWaitedFor) {
  tuning_.failures = 1;
  tuning_.failure = Refusal(grpc::StatusCode::RESOURCE_EXHAUSTED, absl::Hours(1));
  EXPECT_TRUE(absl::IsResourceExhausted(client_->CreateJob({}).status()));
  EXPECT_EQ(tuning_.request_ids.size(), 1u);
}

TEST_F(ClientTest, PatienceEnds) {
  tuning_.failures = 1000;
  Connect({.patience = absl::Seconds(1)});
  const absl::Time begin = absl::Now();
  absl::Status status = client_->CreateJob({}).status();
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), HasSubstr(options_.server));
  EXPECT_LT(absl::Now() - begin, absl::Seconds(5));
  EXPECT_GE(tuning_.request_ids.size(), 2u);
}

// Where there is no trace of a server, patience is short; where one was, it may come back.
TEST_F(ClientTest, WhereNobodyListensPatienceEndsSooner) {
  const auto waited = [&](const std::string& server) {
    options_.server = server;
    Connect({.patience = absl::Seconds(3), .first_patience = absl::Milliseconds(500)});
    const absl::Time begin = absl::Now();
    const absl::Status status = client_->GetServerInfo().status();
    EXPECT_TRUE(absl::IsUnavailable(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("`heddle serve` starts a server"));
    return absl::Now() - begin;
  };
  const std::string socket = folder_ / "none.sock";
  EXPECT_LT(waited("unix:" + socket), absl::Seconds(2));
  EXPECT_LT(waited("127.0.0.1:1"), absl::Seconds(2));
  // Left behind by a server that was killed.
  sockaddr_un path = {};
  path.sun_family = AF_UNIX;
  std::copy(socket.begin(), socket.end(), path.sun_path);
  const int fd = ::socket(AF_UNIX, SOCK_STREAM, 0);
  ASSERT_EQ(bind(fd, reinterpret_cast<const sockaddr*>(&path), sizeof path), 0);
  close(fd);
  EXPECT_GT(waited("unix:" + socket), absl::Seconds(1));
}

// A server that starts while it is looked for is found.
TEST_F(ClientTest, AServerThatIsBeingStartedIsWaitedFor) {
  const std::string address = "unix:" + (folder_ / "later.sock");
  options_.server = address;
  Connect({});
  TuningServer tuning;
  std::unique_ptr<grpc::Server> later;
  std::thread start([&] {
    absl::SleepFor(absl::Seconds(1));
    grpc::ServerBuilder builder;
    builder.AddListeningPort(address, grpc::InsecureServerCredentials());
    builder.RegisterService(&tuning);
    later = builder.BuildAndStart();
  });
  const auto job = client_->CreateJob({});
  start.join();
  EXPECT_TRUE(job.ok()) << job.status();
  later->Shutdown(std::chrono::system_clock::now());
}

TEST_F(ClientTest, ACallEndsAtItsDeadline) {
  Connect({.call_limit = absl::Milliseconds(200)});
  absl::Status status = client_->GetJob("slow").status();
  EXPECT_TRUE(absl::IsDeadlineExceeded(status)) << status;
}

// Each call is shorter than its limit, so that a server that has gone is noticed.
TEST_F(ClientTest, AWaitForAJobIsOfSeveralCalls) {
  Connect({.call_limit = absl::Seconds(1)});
  auto job = client_->WaitJob("jobs/1", absl::InfiniteDuration());
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_TRUE(job->has_end_time());
  EXPECT_THAT(tuning_.waits, ElementsAre(0.8, 0.8, 0.8));
  tuning_.waits.clear();
  job = client_->WaitJob("jobs/1", absl::Milliseconds(250));
  ASSERT_TRUE(job.ok()) << job.status();
  EXPECT_FALSE(job->has_end_time()) << "its time was over";
  ASSERT_EQ(tuning_.waits.size(), 1U);
  EXPECT_NEAR(tuning_.waits[0], 0.25, 0.1);
}

TEST_F(ClientTest, CancelEndsWhatIsUnderWay) {
  std::thread later([this] {
    absl::SleepFor(absl::Milliseconds(200));
    client_->Cancel();
  });
  absl::Status status = client_->GetJob("slow").status();
  later.join();
  EXPECT_TRUE(absl::IsCancelled(status)) << status;
  EXPECT_TRUE(absl::IsCancelled(client_->CreateJob({}).status()));
}

TEST_F(ClientTest, AViolatedFieldIsNamed) {
  absl::Status status = client_->GetJob("x").status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_EQ(std::string(status.message()), "wrong request; id: must be job-N");
}

TEST_F(ClientTest, AWatchGoesOnWhereItBroke) {
  std::vector<int64_t> seen;
  absl::Status status = client_->WatchJob(
      "job-1", 0, [&](const v1::JobEvent& event) { seen.push_back(event.seq()); });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4, 5, 6, 7, 8));
}

TEST_F(ClientTest, AnExportGoesOnWhereItBroke) {
  std::vector<int64_t> seen;
  absl::Status status = client_->ExportRecords({}, [&](const v1::Record& record) {
    seen.push_back(record.id());
    return absl::OkStatus();
  });
  EXPECT_TRUE(status.ok()) << status;
  EXPECT_THAT(seen, ElementsAre(1, 2, 3, 4, 5));
  absl::Status own = client_->ExportRecords(
      {}, [](const v1::Record&) { return absl::InternalError("disk full"); });
  EXPECT_EQ(std::string(own.message()), "disk full");
}

TEST_F(ClientTest, AnImportIsSentInBatchesAndCountedAsOne) {
  int64_t next = 0;
  auto response = client_->ImportRecords([&]() -> std::optional<v1::Record> {
    if (++next > 2500) return std::nullopt;
    v1::Record record;
    record.set_id(next);
    return record;
  });
  ASSERT_TRUE(response.ok()) << response.status();
  EXPECT_EQ(response->added(), 2499);
  ASSERT_EQ(response->rejected_size(), 1);
  EXPECT_EQ(response->rejected(0).number(), 1500);
}

TEST_F(ClientTest, ATokenIsSentButNotToOtherMachinesInTheClear) {
  std::ofstream(folder_ / "token") << "secret\n";
  options_.token_file = folder_ / "token";
  Connect({});
  ASSERT_TRUE(client_->CreateJob({}).ok());
  EXPECT_EQ(tuning_.authorization, "Bearer secret");
  options_.server = "tuning.example:7777";
  absl::Status refused = Client::Connect(options_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(refused)) << refused;
  options_.tls = true;
  EXPECT_TRUE(Client::Connect(options_).ok());
}

TEST_F(ClientTest, FilesThatCannotBeReadAreNamed) {
  options_.ca_file = folder_ / "missing.pem";
  absl::Status status = Client::Connect(options_).status();
  EXPECT_TRUE(absl::IsInvalidArgument(status));
  EXPECT_THAT(std::string(status.message()), HasSubstr("missing.pem"));
  options_ = {.server = "unix:/x", .cert_file = "/etc/hostname"};
  EXPECT_THAT(std::string(Client::Connect(options_).status().message()),
              HasSubstr("belong together"));
}

}  // namespace
}  // namespace heddle::client
