// Who may call the server, how, and with what: sockets, TLS, tokens, and requests that are too
// large.
#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>

#include "server/api/server.h"
#include "tests/server/server_fixture.h"

namespace heddle::server {
namespace {

using testing::HasSubstr;

TEST_F(ServerTest, ASocketIsItsOwnersAlone) {
  Start();
  struct stat info;
  ASSERT_EQ(stat((folder_ / "s.sock").c_str(), &info), 0);
  EXPECT_EQ(info.st_mode & 0777, 0600);
  EXPECT_TRUE(Info().ok());
}

TEST_F(ServerTest, ASocketInUseIsNotTaken) {
  Start();
  ServerOptions other = options_;
  other.db = folder_ / "other.db";
  const auto second = Server::Start(other);
  EXPECT_EQ(second.status().code(), absl::StatusCode::kUnavailable) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another server listens on unix:"));
  EXPECT_TRUE(Info().ok());  // of the first, still
  server_.reset();
  EXPECT_TRUE(Server::Start(other).ok());
}

TEST_F(ServerTest, APortInUseIsNamedWithTheRemedy) {
  options_.listen = {"127.0.0.1:0"};
  Start();
  const std::string taken = server_->addresses().front();
  const std::string port = taken.substr(taken.rfind(':') + 1);
  ServerOptions other = options_;
  other.db = folder_ / "other.db";
  const auto start = [&] {
    testing::internal::CaptureStderr();
    const auto second = Server::Start(other);
    std::stringstream said(testing::internal::GetCapturedStderr());
    for (std::string line; std::getline(said, line);) {
      EXPECT_EQ(line.front(), '{') << "not of our log: " << line;
    }
    return second.status();
  };
  const auto expect_in_use = [&](const std::string& flag) {
    const absl::Status status = start();
    EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable) << status;
    EXPECT_THAT(std::string(status.message()),
                testing::AllOf(HasSubstr("port " + port), HasSubstr("in use"), HasSubstr(flag)));
  };
  other.listen = {taken};
  expect_in_use("--listen");
  other.listen = {"127.0.0.1:0"};
  other.metrics = taken;
  expect_in_use("--metrics");
  for (const char* wrong : {"9464", ":9464", "127.0.0.1:", "127.0.0.1:99999", "192.0.2.1:0"}) {
    other.metrics = wrong;
    EXPECT_EQ(start().code(), absl::StatusCode::kInvalidArgument) << wrong;
  }
  other.metrics.clear();
  other.listen = {"unix:" + std::string(200, 'x')};
  EXPECT_EQ(start().code(), absl::StatusCode::kInvalidArgument);
}

TEST_F(ServerTest, NotBeyondThisMachineWithoutTls) {
  options_.listen = {"0.0.0.0:0"};
  auto server = Server::Start(options_);
  EXPECT_TRUE(absl::IsInvalidArgument(server.status())) << server.status();
}

TEST_F(ServerTest, APortOfThisMachineNeedsNoTokenOnlyWhereToldSo) {
  options_.listen = {"127.0.0.1:0"};
  Start();
  EXPECT_EQ(Info().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  options_.insecure_loopback = true;
  Start();
  EXPECT_TRUE(Info().ok());
  // Not where others can come, whatever else is said.
  options_.listen = {"127.0.0.1:0", "0.0.0.0:0"};
  options_.tls_cert = options_.tls_key = "/etc/hostname";
  server_.reset();
  const auto open = Server::Start(options_);
  EXPECT_TRUE(absl::IsInvalidArgument(open.status())) << open.status();
  EXPECT_THAT(std::string(open.status().message()), HasSubstr("--insecure-loopback"));
}

TEST_F(ServerTest, OneServerADatabase) {
  Start();
  options_.listen = {"unix:" + (folder_ / "other.sock")};
  auto second = Server::Start(options_);
  EXPECT_TRUE(absl::IsUnavailable(second.status())) << second.status();
  EXPECT_THAT(std::string(second.status().message()), HasSubstr("another server has this"));
}

TEST_F(ServerTest, TokensRolesAndTenants) {
  options_.listen = {"127.0.0.1:0"};
  Start();
  using grpc::StatusCode;
  EXPECT_EQ(Info().error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(Info("heddle_0000").error_code(), StatusCode::UNAUTHENTICATED);
  const std::string reader = Token("weavers", Role::kReader);
  const std::string tuner = Token("weavers", Role::kTuner);
  const std::string other = Token("spinners", Role::kTuner);
  const std::string daemon = Token("fleet", Role::kDaemon);
  EXPECT_TRUE(Info(reader).ok());
  v1::Job job;
  EXPECT_EQ(Create("r", &job, reader).error_code(), StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Create("r", &job, daemon).error_code(), StatusCode::PERMISSION_DENIED);
  ASSERT_TRUE(Create("r", &job, tuner).ok());
  // Replayed by its owner: the same. By another tenant: a job of its own.
  v1::Job again;
  ASSERT_TRUE(Create("r", &again, tuner).ok());
  EXPECT_EQ(again.name(), job.name());
  ASSERT_TRUE(Create("r", &again, other).ok());
  EXPECT_NE(again.name(), job.name());
  // Of a foreign job nothing is said, not even that there is one.
  v1::GetJobRequest get;
  get.set_name(job.name());
  EXPECT_EQ(Call(*tuning_, &v1::Tuning::Stub::GetJob, get, &again, other).error_code(),
            StatusCode::NOT_FOUND);
  v1::CancelJobRequest cancel;
  cancel.set_name(job.name());
  EXPECT_EQ(Call(*tuning_, &v1::Tuning::Stub::CancelJob, cancel, &again, other).error_code(),
            StatusCode::NOT_FOUND);
  v1::WaitJobRequest wait;
  wait.set_name(job.name());
  EXPECT_EQ(Call(*tuning_, &v1::Tuning::Stub::WaitJob, wait, &again, other).error_code(),
            StatusCode::NOT_FOUND);
  // Who only reads may wait, and changes nothing.
  wait.mutable_timeout();
  EXPECT_TRUE(Call(*tuning_, &v1::Tuning::Stub::WaitJob, wait, &again, reader).ok());
  EXPECT_EQ(Call(*tuning_, &v1::Tuning::Stub::WaitJob, wait, &again, daemon).error_code(),
            StatusCode::PERMISSION_DENIED);
  v1::RetryJobRequest retry;
  retry.set_name(job.name());
  retry.set_request_id("again");
  v1::UpdateJobRequest update;
  update.mutable_job()->set_name(job.name());
  update.mutable_job()->mutable_spec()->set_priority(1);
  for (const auto& [token, code] : {std::pair(other, StatusCode::NOT_FOUND),
                                    {reader, StatusCode::PERMISSION_DENIED},
                                    {daemon, StatusCode::PERMISSION_DENIED}}) {
    EXPECT_EQ(Call(*tuning_, &v1::Tuning::Stub::RetryJob, retry, &again, token).error_code(), code);
    EXPECT_EQ(Call(*tuning_, &v1::Tuning::Stub::UpdateJob, update, &again, token).error_code(),
              code);
  }
  v1::ListTrialsRequest trials;
  trials.set_parent(job.name());
  v1::ListTrialsResponse page;
  EXPECT_EQ(Call(*tuning_, &v1::Tuning::Stub::ListTrials, trials, &page, other).error_code(),
            StatusCode::NOT_FOUND);
  {
    grpc::ClientContext context;
    Prepare(context, other);
    v1::WatchJobRequest watch;
    watch.set_name(job.name());
    auto stream = tuning_->WatchJob(&context, watch);
    v1::JobEvent event;
    EXPECT_FALSE(stream->Read(&event));
    EXPECT_EQ(stream->Finish().error_code(), StatusCode::NOT_FOUND);
  }
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(
      Call(*tuning_, &v1::Tuning::Stub::ListJobs, v1::ListJobsRequest(), &jobs, other).ok());
  EXPECT_EQ(jobs.jobs_size(), 1);
  v1::RegisterResponse session;
  EXPECT_EQ(Call(*fleet_, &v1::Fleet::Stub::Register, v1::RegisterRequest(), &session, tuner)
                .error_code(),
            StatusCode::PERMISSION_DENIED);
  EXPECT_EQ(Call(*fleet_, &v1::Fleet::Stub::Register, v1::RegisterRequest(), &session, daemon)
                .error_code(),
            StatusCode::INVALID_ARGUMENT);
  // Revoked while the server runs.
  auto records = tuner::Records::Open(options_.db);
  ASSERT_TRUE(records.ok());
  ASSERT_TRUE(RevokeToken(**records, 1, absl::Now()).ok());
  EXPECT_EQ(Info(reader).error_code(), StatusCode::UNAUTHENTICATED);
}

TEST_F(ServerTest, TheDatabaseHoldsNoToken) {
  const std::string token = Token("weavers", Role::kAdmin);
  Start();
  EXPECT_TRUE(Info(token).ok());
  server_.reset();
  for (const auto& file : std::filesystem::directory_iterator(folder_.path())) {
    EXPECT_THAT(tests::ReadAll(file.path()), testing::Not(HasSubstr(token))) << file.path();
  }
}

TEST_F(ServerTest, OversizedAndMalformedRequests) {
  Start();
  v1::CreateJobRequest huge;
  huge.set_request_id(std::string(5 << 20, 'x'));
  v1::Job job;
  EXPECT_EQ(Call(*tuning_, &v1::Tuning::Stub::CreateJob, huge, &job).error_code(),
            grpc::StatusCode::RESOURCE_EXHAUSTED);
  v1::CreateJobRequest wrong;
  wrong.set_request_id("bad id");
  const grpc::Status status = Call(*tuning_, &v1::Tuning::Stub::CreateJob, wrong, &job);
  EXPECT_EQ(status.error_code(), grpc::StatusCode::INVALID_ARGUMENT);
  EXPECT_THAT(status.error_message(), HasSubstr("request_id"));
  EXPECT_FALSE(status.error_details().empty());
  const auto expect_named = [](const grpc::Status& refused, const std::string& field) {
    EXPECT_EQ(refused.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << field;
    EXPECT_THAT(refused.error_message(), HasSubstr(field));
  };
  v1::GetJobRequest get;
  get.set_name("17");
  expect_named(Call(*tuning_, &v1::Tuning::Stub::GetJob, get, &job), "name");
  v1::CancelJobRequest cancel;
  cancel.set_name("jobs/-1");
  expect_named(Call(*tuning_, &v1::Tuning::Stub::CancelJob, cancel, &job), "name");
  v1::ValidateResponse validated;
  expect_named(Call(*tuning_, &v1::Tuning::Stub::Validate, v1::ValidateRequest(), &validated),
               "spec.workloads");
  v1::ListJobsRequest list;
  list.set_page_token(".5");
  v1::ListJobsResponse jobs;
  expect_named(Call(*tuning_, &v1::Tuning::Stub::ListJobs, list, &jobs), "page_token");
  v1::QueryBestRequest query;
  query.set_device("Loom 9000");
  query.mutable_workload()->set_builtin("matmull");
  v1::QueryBestResponse best;
  expect_named(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best), "workload.builtin");
  EXPECT_TRUE(Info().ok()) << "others are served on";
}

TEST_F(ServerTest, OverMutualTlsWithTokens) {
  HEDDLE_NEEDS("openssl", UseTls({"client"}), "the openssl program makes certificates");
  const std::string admin = Token("weavers", Role::kAdmin);
  Start();
  EXPECT_EQ(Info().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(Info(admin).ok());
  v1::Job job;
  ASSERT_TRUE(Create("r", &job, admin).ok());
  Work(job.name(), admin);
  // Without a certificate of its own a caller does not even reach the token.
  const std::string ca = tests::ReadAll(folder_ / "ca.pem");
  for (const auto& credentials :
       {grpc::SslCredentials({ca, "", ""}), grpc::InsecureChannelCredentials()}) {
    auto stub = v1::Tuning::NewStub(grpc::CreateChannel(server_->addresses()[0], credentials));
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
    context.AddMetadata("authorization", "Bearer " + admin);
    v1::ServerInfo info;
    EXPECT_EQ(stub->GetServerInfo(&context, v1::GetServerInfoRequest(), &info).error_code(),
              grpc::StatusCode::UNAVAILABLE);
  }
}

// A daemon's session is its token's and its certificate's: another node's that has the same token
// does not know it.
TEST_F(ServerTest, ASessionIsItsCertificates) {
  HEDDLE_NEEDS("openssl", UseTls({"node-a", "node-b"}), "the openssl program makes certificates");
  const std::string token = Token("fleet", Role::kDaemon);
  Start();
  v1::RegisterRequest hello;
  hello.set_host_uuid("host");
  hello.set_generator(measure::kGeneratorVersion);
  *hello.add_devices() = H100();
  v1::RegisterResponse session;
  ASSERT_TRUE(Call(*fleet_, &v1::Fleet::Stub::Register, hello, &session, token).ok());
  v1::HeartbeatRequest beat;
  beat.set_session(session.session());
  v1::HeartbeatResponse answer;
  const auto as = [&](const std::string& name) {
    const auto stub = v1::Fleet::NewStub(ChannelAs(name));
    return Call(*stub, &v1::Fleet::Stub::Heartbeat, beat, &answer, token).error_code();
  };
  EXPECT_EQ(as("node-a"), grpc::StatusCode::OK);
  EXPECT_EQ(as("node-b"), grpc::StatusCode::FAILED_PRECONDITION);
  // Renewed, it has the same names.
  ASSERT_TRUE(MakeCertificate(folder_.path(), "node-a"));
  EXPECT_EQ(as("node-a"), grpc::StatusCode::OK);
}

}  // namespace
}  // namespace heddle::server
