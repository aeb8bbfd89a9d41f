// The calls of Tuning.WaitJob.
#ifndef HEDDLE_SERVER_API_WAIT_H_
#define HEDDLE_SERVER_API_WAIT_H_

#include <grpcpp/grpcpp.h>

#include "heddle/v1/tuning.pb.h"
#include "server/api/rpc.h"

namespace heddle::server {

// For who was admitted: replies when the job has ended, its time is over or, a little before, the
// call's. No thread waits meanwhile. The error of who was not ends it at once. Belongs to itself.
grpc::ServerUnaryReactor* StartWait(const Gateway& gateway, const absl::StatusOr<Caller>& caller,
                                    const grpc::CallbackServerContext& context,
                                    const v1::WaitJobRequest& request, v1::Job* response);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_WAIT_H_
