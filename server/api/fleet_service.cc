// The Fleet service of the API (proto/heddle/v1/fleet.proto).
#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "heddle/v1/fleet.grpc.pb.h"
#include "server/api/audit.h"
#include "server/api/pages.h"
#include "server/api/services.h"
#include "server/engine/validate.h"

namespace heddle::server {
namespace {

// A call of a daemon: checked, then the engine's.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* Forward(const Gateway& gateway, const char* method, Role role,
                                  grpc::CallbackServerContext* context, const Request* request,
                                  Response* response,
                                  void (Engine::*call)(const Caller&, const Request&,
                                                       const Reply<Response>&)) {
  return Unary(gateway, method, role, Where::kInline, context, request, response,
               [&gateway, request, call](const Caller& caller, const Reply<Response>& reply) {
                 if (absl::Status s = Check(*request); !s.ok()) return reply(s);
                 (gateway.engine.*call)(caller, *request, reply);
               });
}

// What an administrator changes.
template <typename Request, typename Response>
grpc::ServerUnaryReactor* Change(const Gateway& gateway, const char* method,
                                 grpc::CallbackServerContext* context, const Request* request,
                                 Response* response,
                                 void (Engine::*call)(const Caller&, const Request&,
                                                      const Reply<Response>&)) {
  return Unary(gateway, method, Role::kAdmin, Where::kInline, context, request, response,
               [&gateway, request, method, call](const Caller& caller, Reply<Response> plain) {
                 // There is no secret in such a request.
                 Reply<Response> reply =
                     Audited(caller, method, "", {{"request", request->ShortDebugString()}},
                             std::move(plain));
                 if (absl::Status s = Check(*request); !s.ok()) return reply(s);
                 (gateway.engine.*call)(caller, *request, reply);
               });
}

// One page of all that there are.
template <typename Request, typename Response, typename Item, typename Name, typename Add>
void ReplyPage(const Request& request, std::vector<Item> all, const Name& name, const Add& add,
               const Reply<Response>& reply) {
  if (absl::Status s = Check(request); !s.ok()) return reply(s);
  Response page;
  auto next = TakePage(request, std::move(all), name, [&](Item item) {
    Item* added = (page.*add)();
    *added = std::move(item);
    return added;
  });
  if (!next.ok()) return reply(next.status());
  page.set_next_page_token(*next);
  reply(std::move(page));
}

class FleetService final : public v1::Fleet::CallbackService {
 public:
  explicit FleetService(const Gateway& gateway) : gateway_(gateway) {}

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context,
                                     const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override {
    return Forward(gateway_, "Register", Role::kDaemon, context, request, response,
                   &Engine::Register);
  }

  grpc::ServerUnaryReactor* Acquire(grpc::CallbackServerContext* context,
                                    const v1::AcquireRequest* request,
                                    v1::Lease* response) override {
    return Forward(gateway_, "Acquire", Role::kDaemon, context, request, response,
                   &Engine::Acquire);
  }

  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context,
                                   const v1::ReportRequest* request,
                                   v1::ReportResponse* response) override {
    return Forward(gateway_, "Report", Role::kDaemon, context, request, response, &Engine::Report);
  }

  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context,
                                      const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override {
    return Forward(gateway_, "Heartbeat", Role::kDaemon, context, request, response,
                   &Engine::Heartbeat);
  }

  grpc::ServerUnaryReactor* Release(grpc::CallbackServerContext* context,
                                    const v1::ReleaseRequest* request,
                                    v1::ReleaseResponse* response) override {
    return Forward(gateway_, "Release", Role::kDaemon, context, request, response,
                   &Engine::Release);
  }

  grpc::ServerUnaryReactor* SetDeviceState(grpc::CallbackServerContext* context,
                                           const v1::SetDeviceStateRequest* request,
                                           v1::FleetDevice* response) override {
    return Change(gateway_, "SetDeviceState", context, request, response, &Engine::SetDeviceState);
  }

  grpc::ServerUnaryReactor* PinModel(grpc::CallbackServerContext* context,
                                     const v1::PinModelRequest* request,
                                     v1::DeviceModel* response) override {
    return Change(gateway_, "PinModel", context, request, response, &Engine::PinModel);
  }

  grpc::ServerUnaryReactor* SetHost(grpc::CallbackServerContext* context,
                                    const v1::SetHostRequest* request,
                                    v1::FleetHost* response) override {
    return Change(gateway_, "SetHost", context, request, response, &Engine::SetHost);
  }

  grpc::ServerUnaryReactor* ListHosts(grpc::CallbackServerContext* context,
                                      const v1::ListHostsRequest* request,
                                      v1::ListHostsResponse* response) override {
    return Unary(gateway_, "ListHosts", Role::kAdmin, Where::kInline, context, request, response,
                 [this, request](const Caller&, const Reply<v1::ListHostsResponse>& reply) {
                   ReplyPage(*request, gateway_.engine.Hosts(),
                             std::mem_fn(&v1::FleetHost::host_uuid),
                             &v1::ListHostsResponse::add_hosts, reply);
                 });
  }

  grpc::ServerUnaryReactor* ListModels(grpc::CallbackServerContext* context,
                                       const v1::ListModelsRequest* request,
                                       v1::ListModelsResponse* response) override {
    return Unary(
        gateway_, "ListModels", RoleToLook(*context), Where::kInline, context, request, response,
        [this, request](const Caller&, const Reply<v1::ListModelsResponse>& reply) {
          ReplyPage(*request, gateway_.engine.Models(), std::mem_fn(&v1::DeviceModel::name),
                    &v1::ListModelsResponse::add_models, reply);
        });
  }

  grpc::ServerUnaryReactor* ListDevices(grpc::CallbackServerContext* context,
                                        const v1::ListDevicesRequest* request,
                                        v1::ListDevicesResponse* response) override {
    return Unary(
        gateway_, "ListDevices", RoleToLook(*context), Where::kInline, context, request, response,
        [this, request](const Caller& caller, const Reply<v1::ListDevicesResponse>& reply) {
          ReplyPage(*request, gateway_.engine.Devices(VisibleTenant(caller)),
                    std::mem_fn(&v1::FleetDevice::name), &v1::ListDevicesResponse::add_devices,
                    reply);
        });
  }

 private:
  // The daemons' own role may look as well.
  Role RoleToLook(const grpc::CallbackServerContext& context) const {
    return gateway_.Admit(context, Role::kDaemon).ok() ? Role::kDaemon : Role::kReader;
  }

  const Gateway& gateway_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeFleetService(const Gateway& gateway) {
  return std::make_unique<FleetService>(gateway);
}

}  // namespace heddle::server
