// What requests may contain. Every refusal is INVALID_ARGUMENT that names the fields which are
// wrong and what would be right.
#ifndef HEDDLE_SERVER_ENGINE_VALIDATE_H_
#define HEDDLE_SERVER_ENGINE_VALIDATE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heddle/v1/fleet.pb.h"
#include "heddle/v1/records.pb.h"
#include "heddle/v1/tuning.pb.h"
#include "server/db/job_store.h"

namespace heddle::server {

inline constexpr int kMaxWorkloads = 64;
// Of a specification, and of its workloads' canonical texts together: jobs are sent with both.
inline constexpr size_t kMaxSpecBytes = 1 << 20;
inline constexpr int64_t kMaxTrials = 1'000'000;
inline constexpr int kDefaultPage = 50, kMaxPage = 200;
inline constexpr int kMaxLabels = 64;
inline constexpr int kMaxDevices = 64;
inline constexpr double kMaxWaitForJob = 3600;  // seconds of a WaitJob

// The operator at its shape; `field` is the path of the workload in the request.
absl::StatusOr<Workload> ParseWorkload(const v1::Workload& workload, const std::string& field);

// The workloads of a specification that is right in all its fields. `field` is its path.
absl::StatusOr<std::vector<Workload>> ParseSpec(const v1::JobSpec& spec, absl::Time now,
                                                const std::string& field = "spec");

absl::Status Check(const v1::CreateJobRequest& request);
absl::Status Check(const v1::QueryBestRequest& request);
absl::Status Check(const v1::GetJobRequest& request);
absl::Status Check(const v1::CancelJobRequest& request);
absl::Status Check(const v1::WaitJobRequest& request);
absl::Status Check(const v1::RetryJobRequest& request);
absl::Status Check(const v1::UpdateJobRequest& request);
absl::Status Check(const v1::ListJobsRequest& request);
absl::Status Check(const v1::ListTrialsRequest& request);
absl::Status Check(const v1::WatchJobRequest& request);
absl::Status Check(const v1::ExportRequest& request);
// Of a record that is imported: what a line of JSON (tuner::ParseLine) could not say.
absl::Status Check(const v1::Record& record);
absl::Status Check(const v1::AppendRequest& request);
absl::Status Check(const v1::RetractRequest& request);
absl::Status Check(const v1::RegisterRequest& request);
absl::Status Check(const v1::AcquireRequest& request);
absl::Status Check(const v1::ReportRequest& request);
absl::Status Check(const v1::HeartbeatRequest& request);
absl::Status Check(const v1::ReleaseRequest& request);
absl::Status Check(const v1::ListDevicesRequest& request);
absl::Status Check(const v1::ListModelsRequest& request);
absl::Status Check(const v1::ListHostsRequest& request);
absl::Status Check(const v1::SetDeviceStateRequest& request);
absl::Status Check(const v1::PinModelRequest& request);
absl::Status Check(const v1::SetHostRequest& request);

// Of requests that were checked.
int PageSize(int32_t asked);
JobUpdate UpdateOf(const v1::UpdateJobRequest& request);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_ENGINE_VALIDATE_H_
