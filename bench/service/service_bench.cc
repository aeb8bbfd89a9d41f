// Load on a running `heddle serve`, from one process:
//   service_bench fill DB N                         a database of N records of 2,000 workloads
//   service_bench query SERVER SECONDS CALLS        QueryBest, so many at a time
//   service_bench append SERVER RUNS SECONDS        Records.Append, 50 trials a call, so many runs
//   service_bench watch SERVER PID STREAMS          one job, watched by many; PID is the server's
//   service_bench fleet SERVER DAEMONS JOBS TRIALS  scripted daemons, as fast as they can
//   service_bench beat SERVER DAEMONS JOBS SECONDS  heartbeats, beside jobs that match no device
//   service_bench soak SERVER PID DB JOBS           jobs one after another, memory and log told
// Scripted daemons answer every candidate at once with a time made from its number.
#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/synchronization/blocking_counter.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "heddle/v1/fleet.grpc.pb.h"
#include "heddle/v1/records.grpc.pb.h"
#include "heddle/v1/tuning.grpc.pb.h"
#include "measure/codegen/codegen.h"
#include "measure/run/processes/messages.h"
#include "proto/values.h"
#include "search_space/ir/target.h"
#include "search_space/notation/notation.h"
#include "server/db/convert.h"
#include "tuner/records/records.h"
#include "tuner/records/records_fields.h"

namespace heddle {
namespace {

constexpr int kWorkloads = 2000;
constexpr int kFinals = 5;  // of each workload's records
constexpr int kTrialsOfCall = 50;

[[noreturn]] void Die(const std::string& why) {
  std::fprintf(stderr, "service_bench: %s\n", why.c_str());
  std::exit(1);
}

std::shared_ptr<grpc::Channel> Connect(const std::string& server, int number) {
  grpc::ChannelArguments arguments;
  arguments.SetInt("number", number);  // different arguments, different connections
  return grpc::CreateCustomChannel(server, grpc::InsecureChannelCredentials(), arguments);
}

std::string RequestId() {
  static const auto start = absl::ToUnixNanos(absl::Now());
  static std::atomic<int64_t> next = 0;
  return absl::StrCat("bench-", start, "-", ++next);
}

v1::Device ScriptedDevice() {
  measure::DeviceInfo info;
  info.id = "cuda:0";
  info.target = *search_space::FindTarget("h100");
  info.driver = info.compiler = "scripted";
  return measure::ToProto(info);
}

v1::Workload Matmul(int64_t n) {
  v1::Workload workload;
  workload.set_builtin("matmul");
  auto& shape = *workload.mutable_shape();
  shape["m"] = shape["k"] = 512;
  shape["n"] = n;
  return workload;
}

// ------------------------------------------------------------------------------------------- fill

void Fill(const std::string& path, int64_t count) {
  auto records = tuner::Records::Open(path);
  if (!records.ok()) Die(records.status().ToString());
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  tuner::Environment environment;
  environment.device_name = ScriptedDevice().target().name();
  environment.driver = environment.compiler = "scripted";
  environment.generator_version = measure::kGeneratorVersion;
  const int64_t each = std::max<int64_t>(kFinals, count / kWorkloads);
  const std::string steps(1500, 's');
  std::mt19937_64 rng(1);
  for (int n = 1; n <= kWorkloads; ++n) {
    auto program =
        op->Instantiate({{"m", 512}, {"k", 512}, {"n", n}}, search_space::DType::kFloat32);
    absl::Status status = (*records)->Batch([&]() -> absl::Status {
      for (int64_t i = 0; i < each; ++i) {
        tuner::TrialRecord trial;
        trial.point = absl::StrCat("tile: threads=256 i.tile=", rng() % 64, " vthread=", i);
        trial.result.outcome = measure::Outcome::kOk;
        trial.result.time_us = 10 + static_cast<double>(rng() % 1000000) / 7;
        trial.when = absl::FromUnixMicros(1700000000000000 + n * each + i);
        if (i < kFinals) {
          trial.stage = tuner::TrialStage::kFinal;
          trial.steps = absl::StrCat(steps, i);
        }
        HEDDLE_RETURN_IF_ERROR((*records)->AddTrial(*program, environment, trial));
      }
      return absl::OkStatus();
    });
    if (!status.ok()) Die(status.ToString());
  }
}

// ------------------------------------------------------------------------------------------ query

// One caller: asks again as soon as it is answered.
class Caller {
 public:
  Caller(std::shared_ptr<grpc::Channel> channel, int seed, absl::Time end,
         std::function<void()> done)
      : stub_(v1::Tuning::NewStub(std::move(channel))),
        rng_(seed),
        end_(end),
        done_(std::move(done)) {
    request_.set_device(ScriptedDevice().target().name());
  }
  void Ask() {
    *request_.mutable_workload() = Matmul(1 + static_cast<int64_t>(rng_() % kWorkloads));
    context_ = std::make_unique<grpc::ClientContext>();
    begun_ = absl::Now();
    stub_->async()->QueryBest(context_.get(), &request_, &response_, [this](grpc::Status status) {
      if (!status.ok()) Die(status.error_message());
      if (response_.match() != v1::QueryBestResponse::MATCH_EXACT) Die("a workload was not found");
      latencies.push_back(absl::ToDoubleMilliseconds(absl::Now() - begun_));
      if (absl::Now() >= end_) return done_();
      Ask();
    });
  }
  std::vector<double> latencies;

 private:
  std::unique_ptr<v1::Tuning::Stub> stub_;
  std::mt19937_64 rng_;
  const absl::Time end_;
  const std::function<void()> done_;
  std::unique_ptr<grpc::ClientContext> context_;
  v1::QueryBestRequest request_;
  v1::QueryBestResponse response_;
  absl::Time begun_;
};

void Query(const std::string& server, double seconds, int calls) {
  const absl::Time begin = absl::Now();
  absl::BlockingCounter running(calls);
  std::vector<std::unique_ptr<Caller>> callers;
  for (int i = 0; i < calls; ++i) {
    callers.push_back(std::make_unique<Caller>(Connect(server, i % 4), i,
                                               begin + absl::Seconds(seconds),
                                               [&] { running.DecrementCount(); }));
  }
  for (auto& caller : callers) caller->Ask();
  running.Wait();
  const double took = absl::ToDoubleSeconds(absl::Now() - begin);
  std::vector<double> all;
  for (auto& caller : callers) {
    all.insert(all.end(), caller->latencies.begin(), caller->latencies.end());
  }
  std::sort(all.begin(), all.end());
  auto at = [&](double share) { return all[static_cast<size_t>(share * (all.size() - 1))]; };
  absl::PrintF("%d calls at a time: %.0f calls/s, p50 %.2f ms, p99 %.2f ms, p99.9 %.2f ms\n", calls,
               all.size() / took, at(0.5), at(0.99), at(0.999));
}

// ----------------------------------------------------------------------------------------- append

// A run of a cluster's node that has always measured something, in calls of as many trials as one
// makes in five seconds. Returns how many were added.
int64_t AppendRun(v1::Records::Stub& stub, int number, absl::Time end) {
  const int64_t n = 1 + number;
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  const auto program =
      op->Instantiate({{"m", 512}, {"k", 512}, {"n", n}}, search_space::DType::kFloat32);
  tuner::StoredTrial stored;
  stored.workload = {program->hash, program->op, absl::StrCat(R"({"k":512,"m":512,"n":)", n, "}"),
                     search_space::NameOf(program->dtype), program->canonical_text};
  stored.environment.device_name = ScriptedDevice().target().name();
  stored.environment.driver = stored.environment.compiler = "scripted";
  stored.environment.generator_version = measure::kGeneratorVersion;
  v1::AppendRequest request;
  request.mutable_run()->set_name(RequestId());
  request.mutable_run()->set_host(absl::StrCat("node-", number));
  std::mt19937_64 rng(number);
  int64_t added = 0;
  while (absl::Now() < end) {
    request.set_first_sequence(added + 1);
    request.clear_records();
    for (int i = 0; i < kTrialsOfCall; ++i) {
      tuner::TrialRecord& trial = stored.trial;
      trial.point = absl::StrCat("tile: threads=256 i.tile=", rng() % 64, " vthread=", added + i);
      trial.result.outcome = measure::Outcome::kOk;
      trial.result.time_us = 1000 + static_cast<double>(rng() % 1000000) / 7;
      trial.when = absl::Now();
      *request.add_records() = server::ToProto(stored);
    }
    grpc::ClientContext context;
    v1::AppendResponse response;
    const grpc::Status status = stub.Append(&context, request, &response);
    if (!status.ok()) Die(status.error_message());
    if (response.added() != kTrialsOfCall) Die(response.ShortDebugString());
    added += kTrialsOfCall;
  }
  return added;
}

void Append(const std::string& server, int runs, double seconds) {
  const absl::Time begin = absl::Now(), end = begin + absl::Seconds(seconds);
  std::atomic<int64_t> added = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < runs; ++i) {
    threads.emplace_back([&, i] {
      auto stub = v1::Records::NewStub(Connect(server, i % 4));
      added += AppendRun(*stub, i, end);
    });
  }
  for (std::thread& thread : threads) thread.join();
  absl::PrintF("%d runs at a time: %.0f trials/s\n", runs,
               added / absl::ToDoubleSeconds(absl::Now() - begin));
}

// ---------------------------------------------------------------------------------------- daemons

// A daemon that has every result already. Runs until Stop.
class ScriptedDaemon {
 public:
  ScriptedDaemon(std::shared_ptr<grpc::Channel> channel, int number)
      : stub_(v1::Fleet::NewStub(std::move(channel))) {
    v1::RegisterRequest request;
    request.set_host_uuid(absl::StrCat("scripted-", number));
    request.set_generator(measure::kGeneratorVersion);
    *request.add_devices() = ScriptedDevice();
    grpc::ClientContext context;
    context.set_wait_for_ready(true);
    v1::RegisterResponse response;
    grpc::Status status = stub_->Register(&context, request, &response);
    if (!status.ok()) Die(status.error_message());
    session_ = response.session();
  }
  void Run() {
    context_ = std::make_unique<grpc::ClientContext>();
    v1::AcquireRequest& request = acquire_;
    request.set_session(session_);
    request.set_device("cuda:0");
    request.set_request_id(RequestId());
    request.set_max(8);
    *request.mutable_wait_duration() = DurationOf(2);
    stub_->async()->Acquire(context_.get(), &acquire_, &lease_, [this](grpc::Status status) {
      if (!status.ok()) Die(status.error_message());
      if (lease_.id() == 0) return stopping ? (void)(stopped = true) : Run();
      Report();
    });
  }
  // Milliseconds that a heartbeat takes.
  double Beat() {
    v1::HeartbeatRequest request;
    request.set_session(session_);
    grpc::ClientContext context;
    v1::HeartbeatResponse response;
    const absl::Time begun = absl::Now();
    grpc::Status status = stub_->Heartbeat(&context, request, &response);
    if (!status.ok()) Die(status.error_message());
    return absl::ToDoubleMilliseconds(absl::Now() - begun);
  }
  std::atomic<int64_t> reported = 0;
  std::atomic<bool> stopping = false, stopped = false;

 private:
  void Report() {
    report_.Clear();
    report_.set_session(session_);
    report_.set_lease(lease_.id());
    for (const v1::Candidate& candidate : lease_.candidates()) {
      v1::CandidateResult& result = *report_.add_results();
      result.set_candidate(candidate.id());
      result.mutable_result()->set_outcome(v1::OUTCOME_OK);
      result.mutable_result()->set_time_us(1000 + static_cast<double>(candidate.id() % 997));
    }
    context_ = std::make_unique<grpc::ClientContext>();
    stub_->async()->Report(context_.get(), &report_, &committed_, [this](grpc::Status status) {
      if (!status.ok()) Die(status.error_message());
      reported += committed_.committed_size();
      Run();
    });
  }

  std::unique_ptr<v1::Fleet::Stub> stub_;
  std::string session_;
  std::unique_ptr<grpc::ClientContext> context_;
  v1::AcquireRequest acquire_;
  v1::Lease lease_;
  v1::ReportRequest report_;
  v1::ReportResponse committed_;
};

std::vector<std::unique_ptr<ScriptedDaemon>> StartDaemons(const std::string& server, int count) {
  std::vector<std::unique_ptr<ScriptedDaemon>> daemons;
  for (int i = 0; i < count; ++i) {
    daemons.push_back(std::make_unique<ScriptedDaemon>(Connect(server, i % 50), i));
  }
  for (auto& daemon : daemons) daemon->Run();
  return daemons;
}

int64_t StopDaemons(std::vector<std::unique_ptr<ScriptedDaemon>>& daemons) {
  int64_t reported = 0;
  for (auto& daemon : daemons) daemon->stopping = true;
  for (auto& daemon : daemons) {
    while (!daemon->stopped) absl::SleepFor(absl::Milliseconds(10));
    reported += daemon->reported;
  }
  return reported;
}

v1::Job Create(v1::Tuning::Stub& stub, const v1::Workload& workload, int64_t trials,
               const std::string& model = ScriptedDevice().target().name()) {
  v1::CreateJobRequest request;
  request.set_request_id(RequestId());
  *request.mutable_spec()->add_workloads() = workload;
  request.mutable_spec()->mutable_budget()->set_trials(trials);
  request.mutable_spec()->mutable_device()->set_model(model);
  request.mutable_spec()->set_search("random");
  grpc::ClientContext context;
  v1::Job job;
  grpc::Status status = stub.CreateJob(&context, request, &job);
  if (!status.ok()) Die(status.error_message());
  return job;
}

v1::Job Get(v1::Tuning::Stub& stub, const std::string& id) {
  v1::GetJobRequest request;
  request.set_name(id);
  grpc::ClientContext context;
  v1::Job job;
  grpc::Status status = stub.GetJob(&context, request, &job);
  if (!status.ok()) Die(status.error_message());
  return job;
}

v1::Job AwaitEnd(v1::Tuning::Stub& stub, const std::string& id) {
  for (;;) {
    v1::Job job = Get(stub, id);
    if (job.has_end_time()) return job;
    absl::SleepFor(absl::Milliseconds(20));
  }
}

void RunFleet(const std::string& server, int daemons, int jobs, int64_t trials) {
  auto stub = v1::Tuning::NewStub(Connect(server, -1));
  auto fleet = StartDaemons(server, daemons);
  const absl::Time begin = absl::Now();
  std::vector<std::string> ids;
  for (int i = 0; i < jobs; ++i) ids.push_back(Create(*stub, Matmul(100000 + i), trials).name());
  int64_t done = 0;
  for (const std::string& id : ids) {
    const v1::Job job = AwaitEnd(*stub, id);
    if (job.state() != v1::Job::STATE_SUCCEEDED) Die(job.error());
    done += job.workloads(0).trials();
  }
  const double took = absl::ToDoubleSeconds(absl::Now() - begin);
  const int64_t reported = StopDaemons(fleet);
  absl::PrintF(
      "%d daemons, %d jobs: %d trials in %.1f s, %.0f trials/s; acknowledged %d, finals included; "
      "wanted %d\n",
      daemons, jobs, done, took, done / took, reported, jobs * trials);
  if (done != jobs * trials || reported < done) Die("trials were lost");
}

// Every daemon's heartbeats, one after another, while jobs wait that none of them can work on.
void Beat(const std::string& server, int daemons, int jobs, double seconds) {
  auto stub = v1::Tuning::NewStub(Connect(server, -1));
  auto fleet = StartDaemons(server, daemons);
  const absl::Time begin = absl::Now();
  for (int i = 0; i < jobs; ++i) Create(*stub, Matmul(100000 + i), 10, "no such model");
  const double created = absl::ToDoubleSeconds(absl::Now() - begin);
  std::vector<double> took;
  const absl::Time end = absl::Now() + absl::Seconds(seconds);
  while (absl::Now() < end) {
    for (auto& daemon : fleet) took.push_back(daemon->Beat());
  }
  StopDaemons(fleet);
  std::sort(took.begin(), took.end());
  const auto at = [&](double share) {
    return took[static_cast<size_t>(share * static_cast<double>(took.size() - 1))];
  };
  absl::PrintF(
      "%d daemons, %d jobs that match none (created in %.1f s): %d heartbeats, "
      "p50 %.2f ms, p99 %.2f ms, longest %.1f ms\n",
      daemons, jobs, created, took.size(), at(0.5), at(0.99), took.back());
}

// ------------------------------------------------------------------------------------------ watch

int64_t StatusOf(const std::string& pid, const std::string& key) {
  std::ifstream in("/proc/" + pid + "/status");
  std::string word;
  while (in >> word) {
    int64_t value = 0;
    if (word == key + ":" && in >> value) return value;
  }
  return -1;
}

class Stream : public grpc::ClientReadReactor<v1::JobEvent> {
 public:
  Stream(v1::Tuning::Stub& stub, const std::string& job) {
    request_.set_name(job);
    stub.async()->WatchJob(&context_, &request_, this);
    StartRead(&event_);
    StartCall();
  }
  void OnReadDone(bool ok) override {
    if (!ok) return;
    if (event_.first_seq() > 0) {
      if (event_.first_seq() != next_) Die("a gap");
      next_ = event_.seq() + 1;
    }
    seen = true;
    StartRead(&event_);
  }
  void OnDone(const grpc::Status& status) override {
    if (!status.ok()) Die(status.error_message());
    if (event_.job().last_seq() + 1 != next_) Die("the end is missing");
    done = true;
  }
  std::atomic<bool> seen = false, done = false;

 private:
  grpc::ClientContext context_;
  v1::WatchJobRequest request_;
  v1::JobEvent event_;
  int64_t next_ = 1;
};

void Watch(const std::string& server, const std::string& pid, int count) {
  auto stub = v1::Tuning::NewStub(Connect(server, -1));
  const v1::Job job = Create(*stub, Matmul(200000), 200);
  std::vector<std::unique_ptr<v1::Tuning::Stub>> stubs;
  std::vector<std::unique_ptr<Stream>> streams;
  for (int i = 0; i < 20; ++i) stubs.push_back(v1::Tuning::NewStub(Connect(server, i)));
  const absl::Time begin = absl::Now();
  for (int i = 0; i < count; ++i) {
    streams.push_back(std::make_unique<Stream>(*stubs[i % stubs.size()], job.name()));
  }
  for (auto& stream : streams) {
    while (!stream->seen) absl::SleepFor(absl::Milliseconds(1));
  }
  const double opened = absl::ToDoubleSeconds(absl::Now() - begin);
  int64_t threads = StatusOf(pid, "Threads");
  auto fleet = StartDaemons(server, 4);
  for (auto& stream : streams) {
    while (!stream->done) {
      threads = std::max(threads, StatusOf(pid, "Threads"));
      absl::SleepFor(absl::Milliseconds(10));
    }
  }
  StopDaemons(fleet);
  absl::PrintF(
      "%d streams open after %.1f s, every event of 200 trials without a gap in each; at most %d "
      "server threads, %d MB\n",
      count, opened, threads, StatusOf(pid, "VmRSS") / 1024);
}

// ------------------------------------------------------------------------------------------- soak

void Soak(const std::string& server, const std::string& pid, const std::string& db, int jobs) {
  auto stub = v1::Tuning::NewStub(Connect(server, -1));
  auto fleet = StartDaemons(server, 4);
  constexpr int kOpen = 8;
  std::vector<std::string> open;
  const absl::Time begin = absl::Now();
  for (int i = 0; i < jobs; ++i) {
    v1::Workload workload;
    workload.set_builtin("vector_add");
    (*workload.mutable_shape())["n"] = 1024 + i;
    open.push_back(Create(*stub, workload, 3).name());
    if (open.size() == kOpen) {
      if (AwaitEnd(*stub, open.front()).state() != v1::Job::STATE_SUCCEEDED) Die("a job failed");
      open.erase(open.begin());
    }
    if (i % std::max(1, jobs / 10) == 0 || i == jobs - 1) {
      std::error_code none;
      absl::PrintF("%d jobs, %.0f s: %d KB resident, log %d KB, %d threads\n", i + 1,
                   absl::ToDoubleSeconds(absl::Now() - begin), StatusOf(pid, "VmRSS"),
                   static_cast<int64_t>(std::filesystem::file_size(db + "-wal", none)) / 1024,
                   StatusOf(pid, "Threads"));
      std::fflush(stdout);
    }
  }
  for (const std::string& id : open) AwaitEnd(*stub, id);
  StopDaemons(fleet);
}

int Main(int argc, char** argv) {
  const std::vector<std::string> a(argv + 1, argv + argc);
  const std::string what = a.empty() ? "" : a[0];
  if (what == "fill" && a.size() == 3) {
    Fill(a[1], std::atoll(argv[3]));
  } else if (what == "query" && a.size() == 4) {
    Query(a[1], std::atof(argv[3]), std::atoi(argv[4]));
  } else if (what == "append" && a.size() == 4) {
    Append(a[1], std::atoi(argv[3]), std::atof(argv[4]));
  } else if (what == "watch" && a.size() == 4) {
    Watch(a[1], a[2], std::atoi(argv[4]));
  } else if (what == "fleet" && a.size() == 5) {
    RunFleet(a[1], std::atoi(argv[3]), std::atoi(argv[4]), std::atoll(argv[5]));
  } else if (what == "beat" && a.size() == 5) {
    Beat(a[1], std::atoi(argv[3]), std::atoi(argv[4]), std::atof(argv[5]));
  } else if (what == "soak" && a.size() == 5) {
    Soak(a[1], a[2], a[3], std::atoi(argv[5]));
  } else {
    Die("usage: see the top of service_bench.cc");
  }
  return 0;
}

}  // namespace
}  // namespace heddle

int main(int argc, char** argv) { return heddle::Main(argc, argv); }
