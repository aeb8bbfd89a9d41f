// The Records service of the API (proto/heddle/v1/records.proto).
#ifndef HEDDLE_SERVER_API_RECORDS_SERVICE_H_
#define HEDDLE_SERVER_API_RECORDS_SERVICE_H_

#include "heddle/v1/records.grpc.pb.h"
#include "server/api/rpc.h"

namespace heddle::server {

class RecordsService final : public v1::Records::CallbackService {
 public:
  explicit RecordsService(const Gateway& gateway) : gateway_(gateway) {}

  grpc::ServerWriteReactor<v1::Record>* Export(grpc::CallbackServerContext* context,
                                               const v1::ExportRequest* request) override;
  grpc::ServerReadReactor<v1::Record>* Import(grpc::CallbackServerContext* context,
                                              v1::ImportResponse* response) override;
  grpc::ServerUnaryReactor* Append(grpc::CallbackServerContext* context,
                                   const v1::AppendRequest* request,
                                   v1::AppendResponse* response) override;
  grpc::ServerUnaryReactor* Retract(grpc::CallbackServerContext* context,
                                    const v1::RetractRequest* request,
                                    v1::RetractResponse* response) override;

 private:
  const Gateway& gateway_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_RECORDS_SERVICE_H_
