// Records.Append: what runs on a cluster's nodes have measured, whoever sends it how often.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <vector>

#include "tests/server/server_fixture.h"

namespace heddle::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Pair;

class AppendTest : public ServerTest {
 protected:
  // A server that knows the model, and what a session on another one has measured, finals last.
  void SetUp() override {
    Start();
    v1::Job job;
    ASSERT_TRUE(Create("r1", &job).ok());
    Work(job.name());
    grpc::ClientContext context;
    Prepare(context, "");
    auto stream = records_->Export(&context, v1::ExportRequest());
    v1::Record record;
    while (stream->Read(&record)) all_.push_back(record);
    ASSERT_TRUE(stream->Finish().ok());
    ASSERT_GE(all_.size(), 5U);
    ASSERT_TRUE(all_.back().final());
    options_.db = folder_ / "other.db";
    Start();
    v1::RegisterRequest hello;
    hello.set_host_uuid("host");
    hello.set_generator(measure::kGeneratorVersion);
    *hello.add_devices() = H100();
    v1::RegisterResponse session;
    ASSERT_TRUE(Call(*fleet_, &v1::Fleet::Stub::Register, hello, &session).ok());
  }
  // Of the records from `begin` on, before `end`.
  v1::AppendRequest RequestOf(const std::string& run, int64_t attempt, const std::string& host,
                              size_t begin, size_t end) {
    v1::AppendRequest request;
    request.mutable_run()->set_name(run);
    request.mutable_run()->set_attempt(attempt);
    request.mutable_run()->set_host(host);
    request.set_first_sequence(static_cast<int64_t>(begin) + 1);
    for (size_t i = begin; i < end; ++i) *request.add_records() = all_[i];
    return request;
  }
  v1::AppendRequest All(const std::string& run, const std::string& host) {
    return RequestOf(run, 0, host, 0, all_.size());
  }
  grpc::Status Append(const v1::AppendRequest& request, const std::string& token) {
    answer_.Clear();
    return Call(*records_, &v1::Records::Stub::Append, request, &answer_, token);
  }
  v1::QueryBestResponse Best() {
    v1::QueryBestRequest query;
    *query.mutable_workload() = MatmulSpec(1).workloads(0);
    query.set_device(H100().target().name());
    v1::QueryBestResponse best;
    const grpc::Status status = Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return best;
  }

  std::vector<v1::Record> all_;
  v1::AppendResponse answer_;
};

TEST_F(AppendTest, InAnyOrderAndAgainEachTrialIsThereOnce) {
  const std::string token = Token("team", Role::kMeasurer);
  const size_t count = all_.size();
  ASSERT_TRUE(Append(RequestOf("suite-1", 0, "n1", 2, count), token).ok());
  EXPECT_EQ(answer_.added(), static_cast<int64_t>(count - 2));
  ASSERT_TRUE(Append(All("suite-1", "n1"), token).ok());
  EXPECT_EQ(answer_.added(), 2);
  EXPECT_EQ(answer_.duplicate(), static_cast<int64_t>(count - 2));
  // Another trial under a key that is there, and what is none, are refused alone.
  v1::AppendRequest other = All("suite-1", "n1");
  other.mutable_records(1)->mutable_result()->set_time_us(12345);
  other.mutable_records(2)->mutable_result()->clear_outcome();
  ASSERT_TRUE(Append(other, token).ok());
  EXPECT_EQ(answer_.duplicate(), static_cast<int64_t>(count - 2));
  std::map<int64_t, std::string> rejected;
  for (const auto& one : answer_.rejected()) rejected[one.number()] = one.reason();
  EXPECT_THAT(rejected, ElementsAre(Pair(2, HasSubstr("same run, attempt and sequence")),
                                    Pair(3, HasSubstr("result.outcome"))));

  // So is one that is larger than anything measured.
  other = All("suite-2", "n1");
  other.mutable_records(0)->mutable_result()->set_detail(std::string((1 << 20) + 1, 'x'));
  ASSERT_TRUE(Append(other, token).ok());
  ASSERT_EQ(answer_.rejected_size(), 1);
  EXPECT_THAT(answer_.rejected(0).reason(), HasSubstr("record 1 has "));

  // The owner's own makes measurements of them, once.
  ASSERT_TRUE(Append(All("suite-1", "n1"), "").ok());
  EXPECT_EQ(answer_.added(), static_cast<int64_t>(count));
  for (const std::string& again : {std::string(), token}) {
    ASSERT_TRUE(Append(All("suite-1", "n1"), again).ok());
    EXPECT_EQ(answer_.duplicate(), static_cast<int64_t>(count));
    EXPECT_EQ(answer_.refused(), 0);
  }
}

// Tenants have keys of their own: who guesses the name of another's run takes nothing from it.
TEST_F(AppendTest, NobodyTakesAnothersKeys) {
  v1::AppendRequest false_ones = All("suite-1", "n1");
  for (v1::Record& record : *false_ones.mutable_records()) {
    record.mutable_result()->set_time_us(record.result().time_us() * 2);
  }
  ASSERT_TRUE(Append(false_ones, Token("rival", Role::kMeasurer)).ok());
  ASSERT_TRUE(Append(All("suite-1", "n1"), Token("team", Role::kMeasurer)).ok());
  EXPECT_EQ(answer_.added(), static_cast<int64_t>(all_.size()));
  EXPECT_EQ(answer_.refused(), 0) << answer_.ShortDebugString();
}

TEST_F(AppendTest, AnAttemptThatWasReplacedDoesNotOverrule) {
  const std::string token;  // the owner's
  const size_t last = all_.size() - 1;
  const double time = all_[last].result().time_us();
  v1::Record& final_trial = all_[last];
  final_trial.mutable_result()->set_time_us(time * 0.97);
  ASSERT_TRUE(Append(RequestOf("suite-1", 1, "n2", last, last + 1), token).ok());
  ASSERT_EQ(answer_.added(), 1) << answer_.ShortDebugString();
  final_trial.mutable_result()->set_time_us(time * 0.96);
  ASSERT_TRUE(Append(RequestOf("suite-1", 0, "n1", last, last + 1), token).ok());
  ASSERT_EQ(answer_.added(), 1) << answer_.ShortDebugString();
  const v1::QueryBestResponse best = Best();
  EXPECT_DOUBLE_EQ(best.record().result().time_us(), time * 0.97);
  EXPECT_EQ(best.confirmations(), 1) << "it has measured the same";
}

// It is a word until the owner brings it, and no word unserves what is served.
TEST_F(AppendTest, IsServedOnceTheOwnerBringsIt) {
  const std::string token = Token("team", Role::kMeasurer);
  ASSERT_TRUE(Append(All("suite-1", "n1"), token).ok());
  EXPECT_NE(Best().match(), v1::QueryBestResponse::MATCH_EXACT);
  ASSERT_TRUE(Append(All("suite-1", "n1"), "").ok());
  const v1::QueryBestResponse best = Best();
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_EXACT);
  EXPECT_TRUE(best.validated());

  v1::AppendRequest wrong = All("zzz", "host");
  for (v1::Record& record : *wrong.mutable_records()) {
    record.mutable_result()->set_outcome(v1::OUTCOME_WRONG_ANSWER);
    record.mutable_result()->clear_time_us();
  }
  ASSERT_TRUE(Append(wrong, token).ok());
  EXPECT_EQ(Best().record().id(), best.record().id());
  EXPECT_TRUE(Best().validated());
}

// What others send in bulk does not take the disk from what is measured here.
TEST_F(AppendTest, ADiskWithoutRoomTakesWhatIsMeasuredHereAlone) {
  v1::Job job, refused;
  ASSERT_TRUE(Create("measured", &job).ok());
  options_.store.spare_share = 2;  // more than there can be
  options_.store.spare_bytes = 0x1p62;
  Start();
  const grpc::Status appended = Append(All("suite-1", "n1"), Token("team", Role::kMeasurer));
  EXPECT_EQ(appended.error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_THAT(appended.error_message(), HasSubstr("an administrator frees space"));
  grpc::ClientContext context;
  Prepare(context, "");
  v1::ImportResponse imported;
  auto stream = records_->Import(&context, &imported);
  stream->Write(all_.front());
  stream->WritesDone();
  EXPECT_EQ(stream->Finish().error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_EQ(Create("another", &refused).error_code(), grpc::StatusCode::RESOURCE_EXHAUSTED);
  Work(job.name());
  EXPECT_EQ(Best().match(), v1::QueryBestResponse::MATCH_EXACT);
}

// A run is its token's and its certificate's, attempt by attempt, also when the server was started
// again meanwhile. A cluster that requeues a run begins it elsewhere, as the next attempt.
TEST_F(AppendTest, AnAttemptIsItsTokensAndItsCertificates) {
  HEDDLE_NEEDS("openssl", UseTls({"node-a", "node-b"}), "the openssl program makes certificates");
  const std::string token = Token("team", Role::kMeasurer), other = Token("team", Role::kMeasurer);
  Start();
  const auto append = [&](const std::string& node, const std::string& run, int64_t attempt,
                          const std::string& shown) {
    const auto stub = v1::Records::NewStub(ChannelAs(node));
    answer_.Clear();
    return Call(*stub, &v1::Records::Stub::Append, RequestOf(run, attempt, "n1", 0, 2), &answer_,
                shown);
  };
  const auto expect_refused = [&](const grpc::Status& status, const std::string& why) {
    EXPECT_EQ(status.error_code(), grpc::StatusCode::PERMISSION_DENIED);
    EXPECT_THAT(status.error_message(), HasSubstr(why));
    EXPECT_THAT(status.error_details(), HasSubstr("RUN_BOUND"));
  };
  ASSERT_TRUE(append("node-a", "suite-1", 0, token).ok());
  EXPECT_EQ(answer_.added(), 2);
  for (int restart = 0; restart < 2; ++restart) {
    expect_refused(append("node-b", "suite-1", 0, token),
                   "attempt 0 of suite-1 was begun with token 1 and the certificate of "
                   "node-a,node-a,localhost,127.0.0.1, not token 1 and the certificate of node-b");
    expect_refused(append("node-a", "suite-1", 0, other), "begun with token 1 and");
    ASSERT_TRUE(append("node-a", "suite-1", 0, token).ok());
    EXPECT_EQ(answer_.duplicate(), 2);
    if (restart == 0) Start();
  }
  // Requeued: the next attempt is the other node's, and the old one, which goes on, its own.
  ASSERT_TRUE(append("node-b", "suite-1", 1, token).ok());
  ASSERT_TRUE(append("node-a", "suite-1", 0, token).ok());
  expect_refused(append("node-a", "suite-1", 1, token), "the certificate of node-b");
  // An attempt that had been given up before it said a word has nothing to say any more; who has
  // begun the later one may bring it.
  ASSERT_TRUE(append("node-b", "suite-2", 1, token).ok());
  expect_refused(append("node-a", "suite-2", 0, token),
                 "attempt 1 of suite-2, which is later than 0, was begun with");
  ASSERT_TRUE(append("node-b", "suite-2", 0, token).ok());
  // What a token that is valid no more has begun is nobody's.
  {
    auto records = tuner::Records::Open(options_.db);
    ASSERT_TRUE(records.ok());
    ASSERT_TRUE(RevokeToken(**records, 1, absl::Now()).ok());
  }
  ASSERT_TRUE(append("node-b", "suite-1", 0, other).ok());
  expect_refused(append("node-a", "suite-1", 0, other), "begun with token 2 and");
  // Tenants' runs have nothing to do with each other.
  EXPECT_TRUE(append("node-a", "suite-1", 0, Token("rival", Role::kMeasurer)).ok());
}

TEST_F(AppendTest, OnlyMeasurersMayAndOnlyForTheirHost) {
  const std::string bound = Token({.tenant = "team", .role = Role::kMeasurer, .host = "n1"});
  const grpc::Status refused = Append(All("suite-1", "n2"), bound);
  EXPECT_EQ(refused.error_code(), grpc::StatusCode::PERMISSION_DENIED);
  EXPECT_THAT(refused.error_message(), HasSubstr("for host n1 alone"));
  EXPECT_TRUE(Append(All("suite-1", "n1"), bound).ok());
  for (Role role : {Role::kReader, Role::kTuner, Role::kDaemon}) {
    EXPECT_EQ(Append(All("suite-1", "n1"), Token("team", role)).error_code(),
              grpc::StatusCode::PERMISSION_DENIED);
  }
  EXPECT_EQ(Info(bound).error_code(), grpc::StatusCode::PERMISSION_DENIED) << "no reader";
}

}  // namespace
}  // namespace heddle::server
