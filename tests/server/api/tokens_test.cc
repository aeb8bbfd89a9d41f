// What tokens are good for: how long, for which host, and what of others' they let one see.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <thread>

#include "tests/server/server_fixture.h"

namespace heddle::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

class TokensTest : public ServerTest {
 protected:
  // As `heddle token list` has it.
  TokenInfo Listed(size_t number) {
    auto tokens = ListTokens(*server_->store().Read());
    EXPECT_TRUE(tokens.ok() && number < tokens->size()) << tokens.status();
    return tokens.ok() && number < tokens->size() ? (*tokens)[number] : TokenInfo();
  }
  grpc::Status Register(const std::string& host, const std::string& token) {
    v1::RegisterRequest hello;
    hello.set_host_uuid(host);
    hello.set_generator(measure::kGeneratorVersion);
    *hello.add_devices() = H100();
    v1::RegisterResponse session;
    return Call(*fleet_, &v1::Fleet::Stub::Register, hello, &session, token);
  }
  // The jobs whose records an export has.
  std::set<std::string> Exported(const std::string& token, const std::string& op = "") {
    grpc::ClientContext context;
    Prepare(context, token);
    v1::ExportRequest request;
    request.mutable_filter()->set_op(op);
    auto stream = records_->Export(&context, request);
    std::set<std::string> runs;
    v1::Record record;
    while (stream->Read(&record)) runs.insert(record.run());
    const grpc::Status status = stream->Finish();
    EXPECT_TRUE(status.ok()) << status.error_message();
    return runs;
  }
};

TEST_F(TokensTest, ATokenExpires) {
  Start();
  const std::string valid = Token({.tenant = "a", .expires = absl::Now() + absl::Hours(1)});
  const std::string over = Token({.tenant = "a", .expires = absl::Now() - absl::Seconds(1)});
  EXPECT_TRUE(Info(valid).ok());
  const grpc::Status refused = Info(over);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_THAT(refused.error_message(), HasSubstr("has expired"));
  EXPECT_GT(*Listed(0).expires, absl::Now());
}

TEST_F(TokensTest, WhenATokenWasUsedIsKnown) {
  Start();
  const std::string token = Token("a", Role::kReader);
  EXPECT_FALSE(Listed(0).last_used.has_value());
  ASSERT_TRUE(Info(token).ok());
  ASSERT_TRUE(server_->store().WriteAndWait([](auto&) { return absl::OkStatus(); }).ok());
  ASSERT_TRUE(Listed(0).last_used.has_value());
  const absl::Time first = *Listed(0).last_used;
  EXPECT_LT(absl::AbsDuration(absl::Now() - first), absl::Minutes(5));
  // No write for every call.
  ASSERT_TRUE(Info(token).ok());
  ASSERT_TRUE(server_->store().WriteAndWait([](auto&) { return absl::OkStatus(); }).ok());
  EXPECT_EQ(*Listed(0).last_used, first);
}

TEST_F(TokensTest, ADaemonsTokenIsForItsHost) {
  Start();
  const std::string token = Token({.tenant = "fleet", .role = Role::kDaemon, .host = "loom-1"});
  const grpc::Status refused = Register("loom-2", token);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("for the host loom-1 only"));
  EXPECT_TRUE(Register("loom-1", token).ok());
  auto records = tuner::Records::Open(options_.db);
  ASSERT_TRUE(records.ok());
  EXPECT_EQ(CreateToken(**records, {.tenant = "a", .role = Role::kTuner, .host = "x"}, absl::Now())
                .status()
                .code(),
            absl::StatusCode::kInvalidArgument);
}

// Who has the host's next token need not wait for an administrator.
TEST_F(TokensTest, AnExpiredTokenKeepsNoHost) {
  Start();
  const std::string first = Token("fleet", Role::kDaemon), second = Token("fleet", Role::kDaemon);
  ASSERT_TRUE(Register("loom-1", first).ok());
  EXPECT_EQ(Register("loom-1", second).error_code(), grpc::StatusCode::PERMISSION_DENIED);
  ASSERT_TRUE(server_->store()
                  .WriteAndWait([](tuner::Records& records) {
                    return records.database().Run("UPDATE token SET expires_us = 1 WHERE id = 1");
                  })
                  .ok());
  EXPECT_TRUE(Register("loom-1", second).ok());
}

// A stream goes on after its token was looked at.
TEST_F(TokensTest, ARevokedTokenEndsItsStreams) {
  options_.look_again = absl::ZeroDuration();
  Start();
  v1::Job job;
  const std::string token = Token("a", Role::kTuner), daemon = Token("fleet", Role::kDaemon);
  ASSERT_TRUE(Create("r", &job, token).ok());
  grpc::ClientContext context;
  Prepare(context, token);
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  auto stream = tuning_->WatchJob(&context, watch);
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));
  v1::WaitJobRequest wait;
  wait.set_name(job.name());
  v1::Job ended;
  grpc::Status waited;
  std::thread waiting(
      [&] { waited = Call(*tuning_, &v1::Tuning::Stub::WaitJob, wait, &ended, token); });
  absl::SleepFor(absl::Milliseconds(200));  // it is admitted; else it is refused all the same
  {
    auto records = tuner::Records::Open(options_.db);
    ASSERT_TRUE(RevokeToken(**records, 1, absl::Now()).ok());
  }
  Work(job.name());
  while (stream->Read(&event)) EXPECT_FALSE(IsTerminal(event.state()));
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  waiting.join();
  EXPECT_EQ(waited.error_code(), grpc::StatusCode::UNAUTHENTICATED);
}

// The text of an operator that is not published is its tenant's; its schedules serve whoever has
// the text.
TEST_F(TokensTest, OfOtherTenantsNothingIsExportedOrNamed) {
  Start();
  const std::string a = Token("a", Role::kTuner), b = Token("b", Role::kTuner);
  const std::string reader = Token("b", Role::kReader), daemon = Token("fleet", Role::kDaemon);
  v1::Job job;
  ASSERT_TRUE(Create("r", &job, a).ok());
  // The device that is at work on it.
  const auto job_shown = [&](const std::string& token) {
    v1::ListDevicesResponse devices;
    const grpc::Status status =
        Call(*fleet_, &v1::Fleet::Stub::ListDevices, v1::ListDevicesRequest(), &devices, token);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return devices.devices_size() == 1 ? devices.devices(0).job() : "no device";
  };
  v1::RegisterRequest hello;
  hello.set_host_uuid("host");
  hello.set_generator(measure::kGeneratorVersion);
  *hello.add_devices() = H100();
  v1::RegisterResponse session;
  ASSERT_TRUE(Call(*fleet_, &v1::Fleet::Stub::Register, hello, &session).ok());
  v1::Lease held;
  for (int i = 0; i < 500 && job_shown("").empty(); ++i) {
    v1::AcquireRequest acquire;
    acquire.set_session(session.session());
    acquire.set_device("cuda:0");
    acquire.set_request_id(absl::StrCat("first", i));
    acquire.set_max(1);
    *acquire.mutable_wait_duration() = DurationOf(0.05);
    v1::Lease lease;
    ASSERT_TRUE(Call(*fleet_, &v1::Fleet::Stub::Acquire, acquire, &lease).ok());
    if (lease.id() != 0) held = lease;
  }
  EXPECT_EQ(job_shown(a), job.name());
  EXPECT_EQ(job_shown(""), job.name()) << "an administrator";
  EXPECT_EQ(job_shown(b), "");
  v1::ReportResponse reported;
  ASSERT_TRUE(
      Call(*fleet_, &v1::Fleet::Stub::Report, ReportOf(session.session(), held), &reported).ok());
  Work(job.name());
  EXPECT_THAT(Exported(a), ElementsAre(job.name()));
  EXPECT_THAT(Exported(""), ElementsAre(job.name()));
  EXPECT_THAT(Exported(b), IsEmpty());
  EXPECT_THAT(Exported(reader), IsEmpty());
  EXPECT_THAT(Exported(a, "matmul"), ElementsAre(job.name()));
  EXPECT_THAT(Exported(a, "softmax"), IsEmpty());
  v1::QueryBestRequest query;
  *query.mutable_workload() = MatmulSpec(1).workloads(0);
  v1::QueryBestResponse best;
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best, b).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_EXACT);
  EXPECT_GT(best.record().result().time_us(), 0);
  EXPECT_EQ(best.record().run() + best.record().host(), "");
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best, a).ok());
  EXPECT_EQ(best.record().run(), job.name());
  EXPECT_NE(best.record().host(), "");
  // A neighbour is another operator's record.
  *query.mutable_workload() = MatmulSpec(1, 128).workloads(0);
  query.set_fallback(v1::QueryBestRequest::FALLBACK_NEAREST);
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best, b).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_NEAREST);
  EXPECT_FALSE(best.steps().empty());
  EXPECT_EQ(best.record().workload().text(), "");
  EXPECT_EQ(best.record().run() + best.record().host(), "");
}

// As `heddle query` does without --l2.
TEST_F(TokensTest, WithoutAPolicyTheOneThatThereIsIsAnswered) {
  Start();
  v1::CreateJobRequest create;
  create.set_request_id("warm");
  *create.mutable_spec() = MatmulSpec(4);
  create.mutable_spec()->set_l2(v1::L2_POLICY_WARM);
  v1::Job job;
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::CreateJob, create, &job).ok());
  Work(job.name());
  v1::QueryBestRequest query;
  *query.mutable_workload() = MatmulSpec(1).workloads(0);
  v1::QueryBestResponse best;
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_EXACT);
  EXPECT_EQ(best.record().environment().l2(), v1::L2_POLICY_WARM);
  query.set_l2(v1::L2_POLICY_COLD);
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_NONE);
}

}  // namespace
}  // namespace heddle::server
