#include "client/client.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "client/backoff.h"
#include "client/connection.h"
#include "heddle/v1/fleet.grpc.pb.h"
#include "heddle/v1/records.grpc.pb.h"
#include "heddle/v1/tuning.grpc.pb.h"
#include "proto/values.h"

namespace heddle::client {
namespace {

constexpr absl::Duration kFirstPause = absl::Milliseconds(200), kLastPause = absl::Seconds(2);
// A stream is opened anew after this at the latest.
constexpr absl::Duration kStreamLimit = absl::Hours(1);
// What a call waits for a job: a part of its limit, and what servers take.
constexpr double kPartOfLimit = 0.8;
constexpr absl::Duration kLongestWait = absl::Hours(1);
// Records that are sent, and if need be sent again, in one call.
constexpr size_t kImportBatch = 1000;

}  // namespace

struct Client::Impl {
  Connection connection;
  CallOptions options;
  std::unique_ptr<v1::Tuning::Stub> tuning;
  std::unique_ptr<v1::Records::Stub> records;
  std::unique_ptr<v1::Fleet::Stub> fleet;

  std::atomic<bool> answered = false, cancelled = false;
  std::mutex mutex;
  std::condition_variable changed;  // `cancelled` has
  std::set<grpc::ClientContext*> active;

  // One call's context, which Cancel finds.
  class Context {
   public:
    Context(Impl& impl, absl::Duration limit) : impl_(impl) {
      impl_.connection.Prepare(context_, limit);
      std::lock_guard lock(impl_.mutex);
      impl_.active.insert(&context_);
      if (impl_.cancelled) context_.TryCancel();
    }
    ~Context() {
      std::lock_guard lock(impl_.mutex);
      impl_.active.erase(&context_);
    }
    Context(const Context&) = delete;
    Context& operator=(const Context&) = delete;
    grpc::ClientContext* get() { return &context_; }

   private:
    Impl& impl_;
    grpc::ClientContext context_;
  };

  // False: cancelled meanwhile.
  bool Sleep(absl::Duration pause) {
    std::unique_lock lock(mutex);
    return !changed.wait_for(lock, absl::ToChronoMilliseconds(pause),
                             [&] { return cancelled.load(); });
  }

  // Repeats `attempt` while the server is away or asks to be called again (AIP-194: what else
  // failed would fail again). `progressed` may say that something arrived meanwhile, after which
  // patience begins anew.
  absl::Status Persist(
      const std::function<absl::Status()>& attempt,
      const std::function<bool()>& progressed = [] { return false; }) {
    Backoff backoff(kFirstPause, kLastPause);
    auto begin = std::chrono::steady_clock::now();
    while (true) {
      absl::Status status = attempt();
      if (cancelled) return absl::CancelledError("cancelled");
      const std::optional<absl::Duration> asked = RetryDelayOf(status);
      if (!absl::IsUnavailable(status) && !asked) {
        answered = true;
        return status;
      }
      if (progressed()) {
        answered = true;
        begin = std::chrono::steady_clock::now();
        backoff.Reset();
      }
      const bool absent = !answered && connection.NobodyListens(status);
      const absl::Duration pause = std::max(backoff.Next(), asked.value_or(absl::ZeroDuration()));
      const auto waited = absl::FromChrono(std::chrono::steady_clock::now() - begin) + pause;
      if (waited > (absent ? options.first_patience : options.patience)) return status;
      if (!Sleep(pause)) return absl::CancelledError("cancelled");
    }
  }

  template <typename Stub, typename Request, typename Response>
  absl::StatusOr<Response> Call(Stub& stub,
                                grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&,
                                                             Response*),
                                const Request& request) {
    Response response;
    HEDDLE_RETURN_IF_ERROR(Persist([&] {
      Context context(*this, options.call_limit);
      response.Clear();
      return connection.ToStatus((stub.*method)(context.get(), request, &response));
    }));
    return response;
  }

  // One batch of an import.
  absl::StatusOr<v1::ImportResponse> Send(const std::vector<v1::Record>& batch) {
    v1::ImportResponse response;
    HEDDLE_RETURN_IF_ERROR(Persist([&] {
      Context context(*this, options.call_limit);
      response.Clear();
      auto writer = records->Import(context.get(), &response);
      for (const v1::Record& record : batch) {
        if (!writer->Write(record)) break;  // Finish says why
      }
      writer->WritesDone();
      return connection.ToStatus(writer->Finish());
    }));
    return response;
  }
};

Client::Client(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Client::~Client() = default;

absl::StatusOr<std::unique_ptr<Client>> Client::Connect(const ConnectOptions& options,
                                                        const CallOptions& calls) {
  HEDDLE_ASSIGN_OR_RETURN(connection, Connection::Open(options));
  auto impl = std::make_unique<Impl>();
  impl->connection = std::move(connection);
  impl->options = calls;
  impl->tuning = v1::Tuning::NewStub(impl->connection.channel());
  impl->records = v1::Records::NewStub(impl->connection.channel());
  impl->fleet = v1::Fleet::NewStub(impl->connection.channel());
  return std::unique_ptr<Client>(new Client(std::move(impl)));
}

void Client::Cancel() {
  std::lock_guard lock(impl_->mutex);
  impl_->cancelled = true;
  impl_->changed.notify_all();
  for (grpc::ClientContext* context : impl_->active) context->TryCancel();
}

absl::StatusOr<v1::ServerInfo> Client::GetServerInfo() {
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::GetServerInfo, v1::GetServerInfoRequest());
}

absl::StatusOr<v1::ValidateResponse> Client::Validate(const v1::ValidateRequest& request) {
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::Validate, request);
}

absl::StatusOr<v1::Job> Client::CreateJob(v1::CreateJobRequest request) {
  if (request.request_id().empty()) request.set_request_id(NewRequestId());
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::CreateJob, request);
}

absl::StatusOr<v1::Job> Client::GetJob(const std::string& name) {
  v1::GetJobRequest request;
  request.set_name(name);
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::GetJob, request);
}

absl::StatusOr<v1::Job> Client::CancelJob(const std::string& name) {
  v1::CancelJobRequest request;
  request.set_name(name);
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::CancelJob, request);
}

absl::StatusOr<v1::Job> Client::WaitJob(const std::string& name, absl::Duration timeout) {
  const auto begin = std::chrono::steady_clock::now();
  v1::WaitJobRequest request;
  request.set_name(name);
  for (;;) {
    // In calls that end before their limit, so that a server that is gone is noticed.
    const absl::Duration left =
        timeout - absl::FromChrono(std::chrono::steady_clock::now() - begin);
    const absl::Duration part =
        std::clamp(left, absl::ZeroDuration(),
                   std::min(impl_->options.call_limit * kPartOfLimit, kLongestWait));
    *request.mutable_timeout() = DurationOf(absl::ToDoubleSeconds(part));
    auto job = impl_->Call(*impl_->tuning, &v1::Tuning::Stub::WaitJob, request);
    if (!job.ok() || job->has_end_time() || part >= left) return job;
  }
}

absl::StatusOr<v1::Job> Client::RetryJob(v1::RetryJobRequest request) {
  if (request.request_id().empty()) request.set_request_id(NewRequestId());
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::RetryJob, request);
}

absl::StatusOr<v1::Job> Client::UpdateJob(const v1::UpdateJobRequest& request) {
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::UpdateJob, request);
}

absl::StatusOr<v1::ListJobsResponse> Client::ListJobs(const v1::ListJobsRequest& request) {
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::ListJobs, request);
}

absl::StatusOr<v1::ListTrialsResponse> Client::ListTrials(const v1::ListTrialsRequest& request) {
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::ListTrials, request);
}

absl::StatusOr<v1::QueryBestResponse> Client::QueryBest(const v1::QueryBestRequest& request) {
  return impl_->Call(*impl_->tuning, &v1::Tuning::Stub::QueryBest, request);
}

absl::StatusOr<v1::ListDevicesResponse> Client::ListDevices(const v1::ListDevicesRequest& request) {
  return impl_->Call(*impl_->fleet, &v1::Fleet::Stub::ListDevices, request);
}

absl::StatusOr<v1::ListModelsResponse> Client::ListModels() {
  return impl_->Call(*impl_->fleet, &v1::Fleet::Stub::ListModels, v1::ListModelsRequest());
}

absl::StatusOr<v1::DeviceModel> Client::PinModel(const v1::PinModelRequest& request) {
  return impl_->Call(*impl_->fleet, &v1::Fleet::Stub::PinModel, request);
}

absl::StatusOr<v1::ListHostsResponse> Client::ListHosts() {
  return impl_->Call(*impl_->fleet, &v1::Fleet::Stub::ListHosts, v1::ListHostsRequest());
}

absl::StatusOr<v1::FleetHost> Client::SetHost(const v1::SetHostRequest& request) {
  return impl_->Call(*impl_->fleet, &v1::Fleet::Stub::SetHost, request);
}

absl::StatusOr<v1::FleetDevice> Client::SetDeviceState(const v1::SetDeviceStateRequest& request) {
  return impl_->Call(*impl_->fleet, &v1::Fleet::Stub::SetDeviceState, request);
}

absl::Status Client::WatchJob(const std::string& name, int64_t after_seq,
                              const std::function<void(const v1::JobEvent&)>& on_event) {
  v1::WatchJobRequest request;
  request.set_name(name);
  request.set_after_seq(after_seq);
  bool progressed = false;
  auto attempt = [&] {
    Impl::Context context(*impl_, kStreamLimit);
    auto reader = impl_->tuning->WatchJob(context.get(), request);
    v1::JobEvent event;
    while (reader->Read(&event)) {
      progressed = true;
      request.set_after_seq(event.seq());
      on_event(event);
    }
    absl::Status status = impl_->connection.ToStatus(reader->Finish());
    return absl::IsDeadlineExceeded(status) ? absl::UnavailableError("continued") : status;
  };
  return impl_->Persist(attempt, [&] { return std::exchange(progressed, false); });
}

absl::Status Client::ExportRecords(
    v1::ExportRequest request, const std::function<absl::Status(const v1::Record&)>& on_record) {
  bool progressed = false;
  auto attempt = [&] {
    Impl::Context context(*impl_, kStreamLimit);
    auto reader = impl_->records->Export(context.get(), request);
    v1::Record record;
    absl::Status own;
    while (own.ok() && reader->Read(&record)) {
      progressed = true;
      request.set_after_id(record.id());
      own = on_record(record);
    }
    if (!own.ok()) context.get()->TryCancel();
    absl::Status status = impl_->connection.ToStatus(reader->Finish());
    HEDDLE_RETURN_IF_ERROR(own);
    return absl::IsDeadlineExceeded(status) ? absl::UnavailableError("continued") : status;
  };
  return impl_->Persist(attempt, [&] { return std::exchange(progressed, false); });
}

absl::StatusOr<v1::AppendResponse> Client::Append(const v1::AppendRequest& request) {
  return impl_->Call(*impl_->records, &v1::Records::Stub::Append, request);
}

absl::StatusOr<v1::RetractResponse> Client::Retract(v1::RetractRequest request) {
  if (request.request_id().empty()) request.set_request_id(NewRequestId());
  return impl_->Call(*impl_->records, &v1::Records::Stub::Retract, request);
}

absl::StatusOr<v1::ImportResponse> Client::ImportRecords(
    const std::function<std::optional<v1::Record>()>& next) {
  v1::ImportResponse total;
  int64_t sent = 0;
  std::vector<v1::Record> batch;
  for (bool more = true; more;) {
    std::optional<v1::Record> record = next();
    more = record.has_value();
    if (more) batch.push_back(*std::move(record));
    if (batch.size() < kImportBatch && (more || batch.empty())) continue;
    HEDDLE_ASSIGN_OR_RETURN(response, impl_->Send(batch));
    total.set_added(total.added() + response.added());
    total.set_duplicate(total.duplicate() + response.duplicate());
    total.set_refused(total.refused() + response.refused());
    for (v1::ImportResponse::Rejected rejected : response.rejected()) {
      rejected.set_number(rejected.number() + sent);
      *total.add_rejected() = rejected;
    }
    sent += static_cast<int64_t>(batch.size());
    batch.clear();
  }
  return total;
}

}  // namespace heddle::client
