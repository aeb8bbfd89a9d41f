// The server as callers see it: over gRPC, on a Unix socket and over TLS.
#include "server/api/server.h"

#include <gmock/gmock.h>
#include <grpcpp/grpcpp.h>
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <fstream>
#include <functional>
#include <thread>
#include <utility>
#include <vector>

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

// Waiting ends with the job, with its own time, and in time for who waits no longer than a call.
TEST_F(ServerTest, WhoWaitsForAJobGetsItAsItThenStands) {
  Start();
  v1::Job job;
  ASSERT_TRUE(Create("r1", &job).ok());
  const auto wait = [&](double timeout, double deadline, v1::Job* found) {
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    context.set_deadline(std::chrono::system_clock::now() +
                         std::chrono::milliseconds(static_cast<int64_t>(deadline * 1000)));
    v1::WaitJobRequest request;
    request.set_name(job.name());
    request.set_view(v1::JOB_VIEW_BASIC);
    if (timeout >= 0) *request.mutable_timeout() = DurationOf(timeout);
    return tuning_->WaitJob(&context, request, found);
  };
  for (const auto& [timeout, deadline] : {std::pair(0.0, 20.0), {0.1, 20.0}, {-1.0, 2.0}}) {
    v1::Job now;
    const grpc::Status status = wait(timeout, deadline, &now);
    ASSERT_TRUE(status.ok()) << status.error_message();
    EXPECT_EQ(now.name(), job.name());
    EXPECT_FALSE(IsTerminal(now.state()));
    EXPECT_EQ(now.workloads(0).workload().text(), "") << "the basic view";
  }
  // Many wait, and hold no thread up: the server works on, and tells all of them.
  std::vector<std::thread> waiting;
  std::vector<v1::Job> found(20);
  for (v1::Job& one : found) {
    waiting.emplace_back([&] {
      const grpc::Status status = wait(-1, 100, &one);
      EXPECT_TRUE(status.ok()) << status.error_message();
    });
  }
  Work(job.name());
  for (std::thread& thread : waiting) thread.join();
  for (const v1::Job& one : found) EXPECT_EQ(one.state(), v1::Job::STATE_SUCCEEDED);
  // One that has ended is not waited for; one that there is not, neither.
  v1::Job ended;
  EXPECT_TRUE(wait(-1, 20, &ended).ok());
  EXPECT_EQ(ended.state(), v1::Job::STATE_SUCCEEDED);
  job.set_name(JobName(1));
  EXPECT_EQ(wait(-1, 20, &ended).error_code(), grpc::StatusCode::NOT_FOUND);
}

// Calls that last as long as a job does not keep a server from ending: they are told that it does,
// and ask again.
TEST_F(ServerTest, WhoWaitsAndWatchesIsToldThatTheServerEnds) {
  Start();
  v1::Job job;
  ASSERT_TRUE(Create("r1", &job).ok());
  grpc::ClientContext watching, waiting;
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  auto stream = tuning_->WatchJob(&watching, watch);
  v1::JobEvent event;
  ASSERT_TRUE(stream->Read(&event));  // what it is now
  grpc::Status waited;
  std::thread waiter([&] {
    v1::WaitJobRequest wait;
    wait.set_name(job.name());
    v1::Job found;
    waited = tuning_->WaitJob(&waiting, wait, &found);
  });
  // A call that is not there yet is refused with the same code.
  absl::SleepFor(absl::Milliseconds(200));
  server_->Drain(absl::Minutes(5));  // it would take as long for calls that do not end
  waiter.join();
  while (stream->Read(&event)) continue;
  EXPECT_EQ(waited.error_code(), grpc::StatusCode::UNAVAILABLE) << waited.error_message();
  const grpc::Status watched = stream->Finish();
  EXPECT_EQ(watched.error_code(), grpc::StatusCode::UNAVAILABLE);
  EXPECT_THAT(watched.error_message(), HasSubstr("the server is shutting down"));
}

// A watcher does not take the end of a job that has begun again for the end.
TEST_F(ServerTest, AJobIsWatchedBeyondAnEndThatWasNotTheLast) {
  Start();
  v1::Job job;
  ASSERT_TRUE(Create("r1", &job).ok());
  v1::CancelJobRequest cancel;
  cancel.set_name(job.name());
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::CancelJob, cancel, &job).ok());
  v1::WaitJobRequest wait;
  wait.set_name(job.name());
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::WaitJob, wait, &job).ok());
  ASSERT_EQ(job.state(), v1::Job::STATE_CANCELLED);
  v1::RetryJobRequest retry;
  retry.set_name(job.name());
  retry.set_request_id("again");
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::RetryJob, retry, &job).ok());
  v1::UpdateJobRequest update;
  update.mutable_job()->set_name(job.name());
  (*update.mutable_job()->mutable_spec()->mutable_labels())["team"] = "looms";
  update.mutable_job()->mutable_spec()->set_priority(3);
  update.mutable_update_mask()->add_paths("spec.labels");
  ASSERT_TRUE(Call(*tuning_, &v1::Tuning::Stub::UpdateJob, update, &job).ok());
  EXPECT_EQ(job.spec().labels().at("team"), "looms");
  EXPECT_EQ(job.spec().priority(), 0) << "the mask does not name it";
  Work(job.name());
  grpc::ClientContext context;
  Prepare(context, "");
  v1::WatchJobRequest watch;
  watch.set_name(job.name());
  auto stream = tuning_->WatchJob(&context, watch);
  std::vector<v1::Job::State> ends;
  v1::JobEvent event;
  while (stream->Read(&event)) {
    if (event.first_seq() > 0 && IsTerminal(event.state())) ends.push_back(event.state());
  }
  EXPECT_TRUE(stream->Finish().ok());
  EXPECT_THAT(ends, ElementsAre(v1::Job::STATE_CANCELLED, v1::Job::STATE_SUCCEEDED));
  EXPECT_TRUE(event.has_job());
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
                  [](const auto& device) { return device.name(); }),
              ElementsAre("hosts/host-a/devices/GPU-cuda:0", "hosts/host-b/devices/GPU-cuda:0",
                          "hosts/host-c/devices/GPU-cuda:0"));
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
