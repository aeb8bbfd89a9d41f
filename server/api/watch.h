// The streams of Tuning.WatchJob.
#ifndef HEDDLE_SERVER_API_WATCH_H_
#define HEDDLE_SERVER_API_WATCH_H_

#include <grpcpp/grpcpp.h>

#include <string>

#include "heddle/v1/tuning.pb.h"
#include "server/api/rpc.h"

namespace heddle::server {

// A stream of a job's events for who was admitted; the error of that ends it at once. Belongs to
// itself.
grpc::ServerWriteReactor<v1::JobEvent>* StartWatch(const Gateway& gateway,
                                                   const absl::StatusOr<Caller>& caller,
                                                   const v1::WatchJobRequest& request);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_WATCH_H_
