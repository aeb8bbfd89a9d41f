// The Fleet service of the API (proto/heddle/v1/fleet.proto).
#ifndef HEDDLE_SERVER_API_FLEET_SERVICE_H_
#define HEDDLE_SERVER_API_FLEET_SERVICE_H_

#include "heddle/v1/fleet.grpc.pb.h"
#include "server/api/rpc.h"

namespace heddle::server {

class FleetService final : public v1::Fleet::CallbackService {
 public:
  explicit FleetService(const Gateway& gateway) : gateway_(gateway) {}

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override;
  grpc::ServerUnaryReactor* Acquire(grpc::CallbackServerContext* context,
                                    const v1::AcquireRequest* request,
                                    v1::Lease* response) override;
  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context,
                                   const v1::ReportRequest* request,
                                   v1::ReportResponse* response) override;
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override;
  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context,
                                    const v1::ReleaseRequest* request,
                                    v1::ReleaseResponse* response) override;
  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override;
  grpc::ServerUnaryReactor* SetDeviceState(grpc::CallbackServerContext* context,
                                           const v1::SetDeviceStateRequest* request,
                                           v1::FleetDevice* response) override;
  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override;
  grpc::ServerUnaryReactor* PinModel(grpc::CallbackServerContext* context,
                                     const v1::PinModelRequest* request,
                                     v1::DeviceModel* response) override;
  grpc::ServerUnaryReactor* ListHosts(grpc::CallbackServerContext* context,
                                      const v1::ListHostsRequest* request,
                                      v1::ListHostsResponse* response) override;
  grpc::ServerUnaryReactor* SetHost(grpc::CallbackServerContext* context,
                                    const v1::SetHostRequest* request,
                                    v1::FleetHost* response) override;

 private:
  // The daemons' own role may look as well.
  Role RoleToLook(const grpc::CallbackServerContext& context) const;

  const Gateway& gateway_;
};

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_API_FLEET_SERVICE_H_
