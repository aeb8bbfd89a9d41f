// The Tuning service of the API (proto/heddle/v1/tuning.proto).
#ifndef HEDDLE_SERVER_API_TUNING_SERVICE_H_
#define HEDDLE_SERVER_API_TUNING_SERVICE_H_

#include <string>

#include "heddle/v1/tuning.grpc.pb.h"
#include "server/api/rpc.h"
#include "server/engine/byte_cache.h"
#include "tuner/artefact/query.h"

namespace heddle::server {

class TuningService final : public v1::Tuning::CallbackService {
 public:
  TuningService(const Gateway& gateway, std::string build, int open_jobs_per_tenant)
      : gateway_(gateway), build_(std::move(build)), open_jobs_(open_jobs_per_tenant) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override;
  grpc::ServerUnaryReactor* Validate(grpc::CallbackServerContext* context,
                                     const v1::ValidateRequest* request,
                                     v1::ValidateResponse* response) override;
  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override;
  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override;
  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* RetryJob(grpc::CallbackServerContext* context,
                                     const v1::RetryJobRequest* request,
                                     v1::Job* response) override;
  grpc::ServerUnaryReactor* UpdateJob(grpc::CallbackServerContext* context,
                                      const v1::UpdateJobRequest* request,
                                      v1::Job* response) override;
  grpc::ServerUnaryReactor* WaitJob(grpc::CallbackServerContext* context,
                                    const v1::WaitJobRequest* request, v1::Job* response) override;
  grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(grpc::CallbackServerContext* context,
                                                   const v1::WatchJobRequest* request) override;
  grpc::ServerUnaryReactor* ListTrials(grpc::CallbackServerContext* context,
                                       const v1::ListTrialsRequest* request,
                                       v1::ListTrialsResponse* response) override;
  grpc::ServerUnaryReactor* QueryBest(grpc::CallbackServerContext* context,
                                      const v1::QueryBestRequest* request,
                                      v1::QueryBestResponse* response) override;

 private:
  // Who asks to be told of a job's future.
  template <typename Request>
  absl::StatusOr<Caller> AdmitWatcher(const grpc::CallbackServerContext& context,
                                      const Request& request) const;
  absl::StatusOr<Workload> ParseCached(const v1::Workload& workload, const std::string& field);
  // What a record says of what its device model would build and run; nullptr: nobody knows it.
  tuner::Verdict Judge(const tuner::Records::Best& best, const Workload& workload,
                       const DeviceModels::Model* model);
  // The device model that a query is for.
  absl::StatusOr<std::string> ModelOf(const std::string& asked) const;
  void Answer(const v1::QueryBestRequest& request, const Caller& caller, const Workload& workload,
              v1::QueryBestResponse response, const Reply<v1::QueryBestResponse>& reply);

  const Gateway& gateway_;
  const std::string build_;
  const int open_jobs_;
  // Parsed workloads of queries, by what is known of their message in its canonical form.
  ByteCache<Workload> parsed_;
  // Hashes of the source that records give now, by record and device.
  ByteCache<std::string> hashes_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_TUNING_SERVICE_H_
