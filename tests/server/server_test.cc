// The server as callers see it: over gRPC, on a Unix socket and over TLS.
#include "server/api/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>

#include "tests/server/server_fixture.h"

namespace heddle::server {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::Not;

// One that opens a stream and never reads, until the job is over: its events wait in the database.
TEST_F(ServerTest, AWatcherThatDoesNotReadHoldsUpNobody) {
  Start();
  v1::Job job;
  {
    v1::CreateJobRequest request;
    request.set_request_id("r1");
    *request.mutable_spec() = MatmulSpec(100);
    request.mutable_spec()->set_search("random");
    ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::CreateJob, request, &job).ok());
  }
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::minutes(2));
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  auto stream = tuning_->WatchJob(&context, watch);
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));  // it is subscribed
  // Far more than what HTTP/2 lets be sent to one that does not read.
  detail_ = std::string(20'000, 'x');
  const absl::Time start = absl::Now();
  Work(job.name());
  EXPECT_LT(absl::Now() - start, absl::Seconds(60));
  int64_t next = event.seq() + 1;
  while (stream->Read(&event)) {
    if (event.first_seq() == 0) continue;
    EXPECT_EQ(event.first_seq(), next) << "a gap";
    next = event.seq() + 1;
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(event.state(), v1::Job::STATE_SUCCEEDED);
}

TEST_F(ServerTest, AJobFromCreationToQuery) {
  Start();
  v1::Job job;
  ASSERT_TRUE(Create("r1", &job).ok());
  EXPECT_THAT(job.name(), testing::StartsWith("jobs/"));
  Work(job.name());
  // All events, from the first.
  grpc::ClientContext context;
  Prepare(context, "");
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  auto stream = tuning_->WatchJob(&context, watch);
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));
  EXPECT_EQ(event.first_seq(), 0);
  EXPECT_TRUE(event.has_job());
  int64_t next = 1;
  while (stream->Read(&event)) {
    EXPECT_EQ(event.first_seq(), next);
    next = event.seq() + 1;
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_EQ(event.state(), v1::Job::STATE_SUCCEEDED);
  EXPECT_EQ(next - 1, event.job().last_seq());

  v1::QueryBestRequest query;
  *query.mutable_workload() = MatmulSpec(1).workloads(0);
  v1::QueryBestResponse best;
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_EXACT);
  EXPECT_FALSE(best.validated()) << "one host's word";
  EXPECT_EQ(best.confirmations(), 0);
  v1::SetHostRequest trust;
  trust.set_host_uuid("host");
  trust.set_action(v1::SetHostRequest::ACTION_TRUST);
  v1::FleetHost host;
  ASSERT_TRUE(Call(*fleet_, &v1::Fleet::Stub::SetHost, trust, &host).ok());
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_TRUE(best.validated());
  // Its daemon does not say what source it ran.
  EXPECT_EQ(best.standing(), v1::STANDING_STALE);
  EXPECT_THAT(best.stale_because(), testing::ElementsAre("source"));
  EXPECT_EQ(best.steps(), best.record().steps());

  // Another shape: nothing, the nearest, the default, and a job for it.
  *query.mutable_workload() = MatmulSpec(1, 128).workloads(0);
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_NONE);
  query.set_fallback(v1::QueryBestRequest::FALLBACK_NEAREST);
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_NEAREST);
  EXPECT_FALSE(best.validated());
  EXPECT_FALSE(best.steps().empty());
  query.set_fallback(v1::QueryBestRequest::FALLBACK_DEFAULT);
  query.mutable_enqueue()->set_request_id("later");
  query.mutable_enqueue()->mutable_budget()->set_trials(3);
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_DEFAULT);
  const std::string enqueued = best.job().name();
  EXPECT_GT(enqueued, job.name());
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_EQ(best.job().name(), enqueued) << "the same request, the same job";
}

TEST_F(ServerTest, PagesAreWholeAndWithoutDoubles) {
  Start();
  std::vector<std::string> created;
  for (int i = 0; i < 7; ++i) {
    v1::Job job;
    ASSERT_TRUE(Create(absl::StrCat("r", i), &job).ok());
    created.insert(created.begin(), job.name());
  }
  std::vector<std::string> names;
  v1::ListJobsRequest list;
  list.set_page_size(3);
  int pages = 0;
  do {
    v1::ListJobsResponse page;
    ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::ListJobs, list, &page).ok());
    for (const auto& job : page.jobs()) names.push_back(job.name());
    list.set_page_token(page.next_page_token());
    ++pages;
  } while (!list.page_token().empty());
  EXPECT_EQ(pages, 3);
  EXPECT_EQ(names, created);
}

TEST_F(ServerTest, APageTokenIsOfItsRequestAlone) {
  Start();
  v1::Job job;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(Create(absl::StrCat("r", i), &job).ok());
  v1::ListJobsRequest list;
  list.set_page_size(1);
  v1::ListJobsResponse page;
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::ListJobs, list, &page).ok());
  const std::string token = page.next_page_token();
  const auto refused = [&](const v1::ListJobsRequest& request) {
    const grpc::Status status = Call(*tuning_, &v1::Tuning::Stub::ListJobs, request, &page);
    EXPECT_THAT(status.error_message(), HasSubstr("page_token")) << request.DebugString();
    return status.error_code() == grpc::StatusCode::INVALID_ARGUMENT;
  };
  list.set_page_token(token);
  list.set_page_size(1000);
  EXPECT_TRUE(Call(*tuning_, &v1::Tuning::Stub::ListJobs, list, &page).ok());
  EXPECT_EQ(page.jobs_size(), 2)
      << "another size is the same list, and too much is as much as fits";
  v1::ListJobsRequest other = list;
  other.mutable_filter()->add_states(v1::Job::STATE_QUEUED);
  EXPECT_TRUE(refused(other));
  other = list;
  (*other.mutable_filter()->mutable_labels())["team"] = "looms";
  EXPECT_TRUE(refused(other));
  for (const std::string& forged :
       {token.substr(1), token + "A", std::string("5"), std::string("%"), job.name()}) {
    other = list;
    other.set_page_token(forged);
    EXPECT_TRUE(refused(other)) << forged;
  }
  v1::ListDevicesRequest devices;
  devices.set_page_token(token);
  v1::ListDevicesResponse listed;
  EXPECT_EQ(Call(*fleet_, &v1::Fleet::Stub::ListDevices, devices, &listed).error_code(),
            grpc::StatusCode::INVALID_ARGUMENT);
}

TEST_F(ServerTest, HostsModelsAndDevicesHavePages) {
  Start();
  for (const char* host : {"host-b", "host-c", "host-a"}) {
    v1::RegisterRequest hello;
    hello.set_host_uuid(host);
    hello.set_generator(measure::kGeneratorVersion);
    *hello.add_devices() = H100();
    hello.mutable_devices(0)->mutable_target()->set_name(absl::StrCat("Model of ", host));
    v1::RegisterResponse session;
    ASSERT_TRUE(Call(*fleet_, &v1::Fleet::Stub::Register, hello, &session).ok());
  }
  // The names on all pages, two items a page.
  const auto all = [&](auto call, auto request, auto response, const auto& items,
                       const auto& name) {
    std::vector<std::string> names;
    request.set_page_size(2);
    int pages = 0;
    do {
      const grpc::Status status = Call(*fleet_, call, request, &response);
      EXPECT_TRUE(status.ok()) << status.error_message();
      for (const auto& item : items(response)) names.push_back(name(item));
      request.set_page_token(response.next_page_token());
    } while (++pages < 5 && !request.page_token().empty());
    EXPECT_EQ(pages, 2);
    return names;
  };
  EXPECT_THAT(all(
                  &v1::Fleet::Stub::ListHosts, v1::ListHostsRequest(), v1::ListHostsResponse(),
                  [](const auto& page) { return page.hosts(); },
                  [](const auto& host) { return host.host_uuid(); }),
              ElementsAre("host-a", "host-b", "host-c"));
  EXPECT_THAT(all(
                  &v1::Fleet::Stub::ListModels, v1::ListModelsRequest(), v1::ListModelsResponse(),
                  [](const auto& page) { return page.models(); },
                  [](const auto& model) { return model.name(); }),
              ElementsAre("Model of host-a", "Model of host-b", "Model of host-c"));
  EXPECT_THAT(all(
                  &v1::Fleet::Stub::ListDevices, v1::ListDevicesRequest(),
                  v1::ListDevicesResponse(), [](const auto& page) { return page.devices(); },
                  [](const auto& device) { return device.hostname() + device.id().substr(0, 6); }),
              ElementsAre("host-a", "host-b", "host-c"));
}

TEST_F(ServerTest, TheBasicViewHasNoTexts) {
  Start();
  v1::Job job;
  v1::CreateJobRequest create;
  create.set_request_id("own");
  *create.mutable_spec() = MatmulSpec(4);
  create.mutable_spec()->mutable_workloads(0)->clear_builtin();
  create.mutable_spec()->mutable_workloads(0)->set_op_text(
      "op mine(n) { in A[n] out B[i: n] = A[i] + A[i] }");
  create.mutable_spec()->mutable_workloads(0)->clear_shape();
  (*create.mutable_spec()->mutable_workloads(0)->mutable_shape())["n"] = 64;
  const grpc::Status created = Call(*tuning_, &v1::Tuning::Stub::CreateJob, create, &job);
  ASSERT_TRUE(created.ok()) << created.error_message();
  EXPECT_THAT(job.spec().workloads(0).op_text(), HasSubstr("mine"));
  Work(job.name());

  v1::GetJobRequest get;
  get.set_name(job.name());
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::GetJob, get, &job).ok());
  EXPECT_THAT(job.workloads(0).workload().text(), HasSubstr("mine"));
  EXPECT_FALSE(job.workloads(0).best().steps().empty());
  EXPECT_THAT(job.workloads(0).best().workload().text(), HasSubstr("mine"));
  get.set_view(v1::JOB_VIEW_BASIC);
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::GetJob, get, &job).ok());
  EXPECT_EQ(job.workloads(0).workload().op(), "mine");
  EXPECT_GT(job.workloads(0).best().result().time_us(), 0);
  EXPECT_THAT(job.SerializeAsString(), Not(HasSubstr("A[i]")));
  EXPECT_EQ(job.workloads(0).best().steps(), "");

  v1::ListJobsRequest list;
  v1::ListJobsResponse jobs;
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::ListJobs, list, &jobs).ok());
  EXPECT_EQ(jobs.jobs(0).SerializeAsString().size(), job.SerializeAsString().size());
  EXPECT_THAT(jobs.SerializeAsString(), Not(HasSubstr("A[i]")));
  list.set_view(v1::JOB_VIEW_FULL);
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::ListJobs, list, &jobs).ok());
  EXPECT_THAT(jobs.SerializeAsString(), HasSubstr("A[i]"));
}

TEST_F(ServerTest, RecordsGoOutAndIn) {
  Start();
  v1::Job job;
  ASSERT_TRUE(Create("r1", &job).ok());
  Work(job.name());
  std::vector<v1::Record> all;
  {
    grpc::ClientContext context;
    Prepare(context, "");
    auto stream = records_->Export(&context, v1::ExportRequest());
    v1::Record record;
    while (stream->Read(&record)) all.push_back(record);
    ASSERT_TRUE(stream->Finish().ok());
  }
  ASSERT_GE(all.size(), 5);
  // Into another server, one of them twice and one wrong.
  options_.db = folder_ / "other.db";
  Start();
  auto import = [&](v1::ImportResponse* response) {
    grpc::ClientContext context;
    Prepare(context, "");
    auto stream = records_->Import(&context, response);
    for (const v1::Record& record : all) stream->Write(record);
    stream->Write(all.front());
    v1::Record wrong = all.front();
    wrong.mutable_result()->set_time_us(-1);
    stream->Write(wrong);
    wrong = all.front();
    wrong.mutable_result()->clear_outcome();
    stream->Write(wrong);
    stream->WritesDone();
    return stream->Finish();
  };
  v1::ImportResponse response;
  ASSERT_TRUE(import(&response).ok());
  EXPECT_EQ(response.added(), static_cast<int64_t>(all.size()));
  EXPECT_EQ(response.duplicate(), 1);
  EXPECT_EQ(response.refused(), 2);
  std::map<int64_t, std::string> rejected;
  for (const auto& one : response.rejected()) rejected[one.number()] = one.reason();
  EXPECT_THAT(rejected,
              testing::ElementsAre(testing::Pair(all.size() + 2, HasSubstr("time_us")),
                                   testing::Pair(all.size() + 3, HasSubstr("result.outcome"))));
  response.Clear();
  ASSERT_TRUE(import(&response).ok());
  EXPECT_EQ(response.added(), 0);
  // What was imported is not served before it was measured here.
  v1::QueryBestRequest query;
  *query.mutable_workload() = MatmulSpec(1).workloads(0);
  query.set_device(H100().target().name());
  v1::QueryBestResponse best;
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_NONE);
  // And it can be taken back, once.
  v1::RetractRequest retract;
  retract.set_request_id("away");
  retract.set_imported(true);
  retract.set_reason("a test");
  v1::RetractResponse retracted;
  ASSERT_TRUE(Call(*records_, &v1::Records::Stub::Retract, retract, &retracted).ok());
  EXPECT_EQ(retracted.count(), static_cast<int64_t>(all.size()));
  ASSERT_TRUE(Call(*records_, &v1::Records::Stub::Retract, retract, &retracted).ok());
  EXPECT_EQ(retracted.count(), static_cast<int64_t>(all.size())) << "the same reply";
}

TEST_F(ServerTest, RecordsAreRetractedByWorkloadOriginAndTime) {
  Start();
  v1::Job job;
  ASSERT_TRUE(Create("r1", &job).ok());
  Work(job.name());
  std::vector<v1::Record> all;
  const auto read = [&] {
    all.clear();
    grpc::ClientContext context;
    Prepare(context, "");
    auto stream = records_->Export(&context, v1::ExportRequest());
    v1::Record record;
    while (stream->Read(&record)) all.push_back(record);
    EXPECT_TRUE(stream->Finish().ok());
    return static_cast<int64_t>(all.size());
  };
  const int64_t before = read();
  ASSERT_GE(before, 4);
  int number = 0;
  const auto retract = [&](const std::function<void(v1::RetractRequest&)>& choose) {
    v1::RetractRequest request;
    request.set_request_id(absl::StrCat("retract-", ++number));
    request.set_reason("a test");
    choose(request);
    v1::RetractResponse response;
    const grpc::Status status = Call(*records_, &v1::Records::Stub::Retract, request, &response);
    EXPECT_TRUE(status.ok()) << status.error_message();
    return response.count();
  };
  const v1::Record first = all.front();
  EXPECT_EQ(first.host(), "host");
  EXPECT_EQ(first.run(), job.name());
  // What is not of the origin, or not of the time, stays.
  EXPECT_EQ(retract([](auto& r) { r.mutable_origin()->set_host("another"); }), 0);
  EXPECT_EQ(retract([](auto& r) {
              r.mutable_origin()->set_host("host");
              r.mutable_origin()->set_token(99);
            }),
            0);
  EXPECT_EQ(retract([&](auto& r) {
              r.mutable_origin()->set_run(job.name());
              *r.mutable_end_time() = first.measure_time();
            }),
            0)
      << "the end is not of the span";
  EXPECT_EQ(retract([](auto& r) {
              r.mutable_origin()->set_host("host");
              r.mutable_start_time()->set_seconds(4000000000);
            }),
            0);
  EXPECT_EQ(retract([](auto& r) { r.set_workload_hash("0123456789abcdef"); }), 0);
  EXPECT_EQ(read(), before);
  EXPECT_EQ(retract([&](auto& r) { r.set_id(first.id()); }), 1);
  EXPECT_EQ(read(), before - 1);
  // All that a host measured in a span; nothing of it is served then.
  EXPECT_EQ(retract([&](auto& r) {
              r.mutable_origin()->set_host("host");
              r.mutable_origin()->set_run(job.name());
              *r.mutable_start_time() = first.measure_time();
              r.mutable_end_time()->set_seconds(4000000000);
            }),
            before - 1);
  EXPECT_EQ(read(), 0);
  v1::QueryBestRequest query;
  *query.mutable_workload() = MatmulSpec(1).workloads(0);
  v1::QueryBestResponse best;
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::QueryBest, query, &best).ok());
  EXPECT_EQ(best.match(), v1::QueryBestResponse::MATCH_NONE);
}

// ---------------------------------------------------------------------------------------- security

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

// An authority and a certificate that it has signed, made by openssl as docs/service.md says.
bool MakeCertificates(const std::string& folder) {
  const std::string script =
      "cd " + folder +
      " && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj "
      "/CN=test-ca -keyout ca.key -out ca.pem 2>/dev/null"
      " && for n in server client; do openssl req -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
      "-nodes -subj /CN=localhost -keyout $n.key -out $n.csr 2>/dev/null"
      " && printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > $n.ext"
      " && openssl x509 -req -in $n.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile "
      "$n.ext -out $n.pem 2>/dev/null || exit 1; done";
  return system(script.c_str()) == 0;
}

TEST_F(ServerTest, OverMutualTlsWithTokens) {
  HEDDLE_NEEDS("openssl", MakeCertificates(folder_.path()),
               "the openssl program makes certificates");
  options_.listen = {"127.0.0.1:0"};  // a bare system knows no localhost
  options_.tls_cert = folder_ / "server.pem";
  options_.tls_key = folder_ / "server.key";
  options_.client_ca = folder_ / "ca.pem";
  const std::string ca = tests::ReadAll(folder_ / "ca.pem");
  credentials_ = grpc::SslCredentials(
      {ca, tests::ReadAll(folder_ / "client.key"), tests::ReadAll(folder_ / "client.pem")});
  const std::string admin = Token("weavers", Role::kAdmin);
  Start();
  EXPECT_EQ(Info().error_code(), grpc::StatusCode::UNAUTHENTICATED);
  EXPECT_TRUE(Info(admin).ok());
  v1::Job job;
  ASSERT_TRUE(Create("r", &job, admin).ok());
  Work(job.name(), admin);
  // Without a certificate of its own a caller does not even reach the token.
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

TEST_F(ServerTest, APythonClientFromTheProtosAlone) {
  constexpr char kPython[] = "/usr/bin/python3";  // Debian's, which has Debian's packages
  HEDDLE_NEEDS("python-grpc",
               system(absl::StrCat(kPython, " -c 'import grpc, grpc_tools'").c_str()) == 0,
               "install python3-grpcio and python3-grpc-tools");
  Start();
  tests::Process client({kPython, tests::SourceDir() + "/tests/server/python_client.py",
                         tests::SourceDir() + "/proto", folder_.path(), options_.listen[0]});
  v1::ListJobsResponse jobs;
  for (int i = 0; i < 600 && jobs.jobs().empty(); ++i) {
    absl::SleepFor(absl::Milliseconds(100));
    Call(*tuning_, &v1::Tuning::Stub::ListJobs, v1::ListJobsRequest(), &jobs);
  }
  ASSERT_EQ(jobs.jobs_size(), 1);
  Work(jobs.jobs(0).name());
  const tests::Ran ran = client.Wait();
  EXPECT_EQ(ran.code, 0) << ran.err;
}

TEST_F(ServerTest, TheDocumentedApiIsCurrent) {
  EXPECT_EQ(system((tests::SourceDir() + "/scripts/api-docs --check").c_str()), 0);
}

}  // namespace
}  // namespace heddle::server
