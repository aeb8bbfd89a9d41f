// The services of the API, one for each file of proto/heddle/v1 that declares calls. None outlives
// its `gateway`.
#ifndef HEDDLE_SERVER_API_SERVICES_H_
#define HEDDLE_SERVER_API_SERVICES_H_

#include <grpcpp/impl/service_type.h>

#include <memory>
#include <string>

#include "server/api/rpc.h"

namespace heddle::server {

std::unique_ptr<grpc::Service> MakeFleetService(const Gateway& gateway);
std::unique_ptr<grpc::Service> MakeRecordsService(const Gateway& gateway);
// `build`: what GetServerInfo says, "0.1.0"; and how many open jobs each tenant may have.
std::unique_ptr<grpc::Service> MakeTuningService(const Gateway& gateway, std::string build,
                                                 int open_jobs_per_tenant);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_SERVICES_H_
