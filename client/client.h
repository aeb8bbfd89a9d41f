// The client library: everything that callers of a server do, with deadlines and retries, and
// without gRPC in its interface. Daemons have their own (daemon/).
//
//   auto client = Client::Connect({.server = "unix:/run/heddle/server"});
//   auto job = (*client)->CreateJob(request);
//   (*client)->WatchJob(job->name(), 0, [](const v1::JobEvent& event) { ... });
#ifndef HEDDLE_CLIENT_CLIENT_H_
#define HEDDLE_CLIENT_CLIENT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "client/options.h"
#include "heddle/v1/fleet.pb.h"
#include "heddle/v1/records.pb.h"
#include "heddle/v1/tuning.pb.h"

namespace heddle::client {

struct CallOptions {
  absl::Duration call_limit = absl::Seconds(30);  // of one attempt
  absl::Duration patience = absl::Seconds(15);    // for a server that is away
  // For one on this machine that has never answered and of which there is no trace: it may start.
  absl::Duration first_patience = absl::Seconds(5);
};

// Thread-safe. Every call is tried again while the server is away, or refuses and says when to come
// back, up to `patience` by the steady clock, with the same request id, so that nothing happens
// twice. Errors have the server's code and message: Unavailable
// (no server), DeadlineExceeded, InvalidArgument (names the field), NotFound, AlreadyExists (a
// request id was used for something else), Unauthenticated, PermissionDenied, ResourceExhausted;
// Cancelled after Cancel.
class Client {
 public:
  static absl::StatusOr<std::unique_ptr<Client>> Connect(const ConnectOptions& options,
                                                         const CallOptions& calls = {});
  ~Client();

  absl::StatusOr<v1::ServerInfo> GetServerInfo();
  absl::StatusOr<v1::ValidateResponse> Validate(const v1::ValidateRequest& request);
  // An empty request_id is filled in.
  absl::StatusOr<v1::Job> CreateJob(v1::CreateJobRequest request);
  absl::StatusOr<v1::Job> GetJob(const std::string& name);
  absl::StatusOr<v1::Job> CancelJob(const std::string& name);
  // The job when it has ended, or as it stands after `timeout`.
  absl::StatusOr<v1::Job> WaitJob(const std::string& name, absl::Duration timeout);
  // A job that has failed or was cancelled goes on. An empty request_id is filled in.
  absl::StatusOr<v1::Job> RetryJob(v1::RetryJobRequest request);
  absl::StatusOr<v1::Job> UpdateJob(const v1::UpdateJobRequest& request);
  absl::StatusOr<v1::ListJobsResponse> ListJobs(const v1::ListJobsRequest& request);
  absl::StatusOr<v1::ListTrialsResponse> ListTrials(const v1::ListTrialsRequest& request);
  absl::StatusOr<v1::QueryBestResponse> QueryBest(const v1::QueryBestRequest& request);
  absl::StatusOr<v1::ListDevicesResponse> ListDevices(const v1::ListDevicesRequest& request);
  // For administrators.
  absl::StatusOr<v1::ListModelsResponse> ListModels();
  absl::StatusOr<v1::DeviceModel> PinModel(const v1::PinModelRequest& request);
  absl::StatusOr<v1::ListHostsResponse> ListHosts();
  absl::StatusOr<v1::FleetHost> SetHost(const v1::SetHostRequest& request);
  absl::StatusOr<v1::FleetDevice> SetDeviceState(const v1::SetDeviceStateRequest& request);

  // Calls `on_event` with a snapshot and every event after `after_seq` until the job has ended.
  // Where the stream breaks it goes on after the last event that was seen.
  absl::Status WatchJob(const std::string& name, int64_t after_seq,
                        const std::function<void(const v1::JobEvent&)>& on_event);

  // Calls `on_record` with every record; an error of its own ends the export with it.
  absl::Status ExportRecords(v1::ExportRequest request,
                             const std::function<absl::Status(const v1::Record&)>& on_record);
  // Sends what `next` gives until it gives nothing more.
  absl::StatusOr<v1::ImportResponse> ImportRecords(
      const std::function<std::optional<v1::Record>()>& next);

  absl::StatusOr<v1::AppendResponse> Append(const v1::AppendRequest& request);

  // For administrators. An empty request_id is filled in.
  absl::StatusOr<v1::RetractResponse> Retract(v1::RetractRequest request);

  // Ends calls under way and refuses later ones, from any thread. What they asked for may happen
  // all the same; a job that is watched goes on.
  void Cancel();

 private:
  struct Impl;
  explicit Client(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace heddle::client

#endif  // HEDDLE_CLIENT_CLIENT_H_
