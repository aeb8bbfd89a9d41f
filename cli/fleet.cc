// heddle devices models, pin, unpin, hosts, trust, distrust, release, drain, enable: what an
// administrator of a server says of its fleet.
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "proto/values.h"

namespace heddle::cli {
namespace {

struct Flags {
  ServerFlags server;
  std::string name;  // of a model, a host or a device
  v1::PinModelRequest pin;
  bool json = false;
};

Json ToJson(const v1::DeviceModel& model) {
  return {{"name", model.name()},
          {"source", WordOf(model.source())},
          {"devices", model.devices()},
          {"api", model.target().api()},
          {"arch", model.target().arch()},
          {"sm_count", model.target().sm_count()},
          {"peak_gflops", KnownOrNull(model.target().peak_gflops())},
          {"memory_gbs", KnownOrNull(model.target().memory_gbs())}};
}

std::string Describe(const v1::DeviceModel& model) {
  return absl::StrFormat("%-8s %3d devices  %8.0f GFLOP/s %6.0f GB/s  %s", WordOf(model.source()),
                         model.devices(), model.target().peak_gflops(), model.target().memory_gbs(),
                         model.name());
}

Result ListModels(const Flags& flags, client::Client& client) {
  HEDDLE_ASSIGN_OR_RETURN(models, client.ListModels());
  Listing listing(flags.json);
  for (const v1::DeviceModel& model : models.models()) listing.Add(ToJson(model), Describe(model));
  return listing.End();
}

Result Pin(const Flags& flags, client::Client& client) {
  HEDDLE_ASSIGN_OR_RETURN(model, client.PinModel(flags.pin));
  Print(flags.json, ToJson(model), Describe(model));
  return kDone;
}

Json ToJson(const v1::FleetHost& host) {
  return {{"host", host.host_uuid()},
          {"token", host.token()},
          {"trusted", host.trusted()},
          {"released", host.released()}};
}

std::string Describe(const v1::FleetHost& host) {
  return absl::StrCat(host.host_uuid(), "\t",
                      host.released()     ? "nobody's"
                      : host.token() == 0 ? "the server's socket"
                                          : absl::StrCat("token ", host.token()),
                      "\t", host.trusted() ? "trusted" : "");
}

Result ListHosts(const Flags& flags, client::Client& client) {
  HEDDLE_ASSIGN_OR_RETURN(hosts, client.ListHosts());
  Listing listing(flags.json);
  for (const v1::FleetHost& host : hosts.hosts()) listing.Add(ToJson(host), Describe(host));
  return listing.End();
}

Result SetHost(const Flags& flags, v1::SetHostRequest::Action action, client::Client& client) {
  v1::SetHostRequest request;
  request.set_host_uuid(flags.name);
  request.set_action(action);
  HEDDLE_ASSIGN_OR_RETURN(host, client.SetHost(request));
  Print(flags.json, ToJson(host), Describe(host));
  return kDone;
}

Result SetDevice(const Flags& flags, v1::FleetDevice::State state, client::Client& client) {
  v1::SetDeviceStateRequest request;
  request.set_name(flags.name);
  request.set_state(state);
  HEDDLE_RETURN_IF_ERROR(client.SetDeviceState(request));
  return kDone;
}

}  // namespace

void AddFleet(CLI::App& devices, Selected selected) {
  devices.require_subcommand(0, 1);
  const auto add = [&](const char* name, const char* what, auto run) {
    auto flags = std::make_shared<Flags>();
    CLI::App* sub = devices.add_subcommand(name, what);
    flags->server.Add(*sub, true);
    sub->add_flag("--json", flags->json, "JSON on stdout");
    sub->callback([=] {
      *selected =
          WithServer(flags->server, [=](client::Client& client) { return run(*flags, client); });
    });
    return std::pair(sub, flags);
  };
  add("models", "what a server believes of the models of its devices", ListModels);
  auto [pin, pinned] = add("pin", "say what a model is: its results may be validated", Pin);
  pin->add_option("model", *pinned->pin.mutable_name(), "as `devices models` lists it")
      ->type_name("MODEL")
      ->required();
  pin->add_option("--like", *pinned->pin.mutable_device(),
                  "as this device describes itself [as is believed now]")
      ->type_name("DEVICE");
  const auto rate = [](auto set) { return [=](const double& value) { set(value); }; };
  pin->add_option_function<double>("--peak-gflops",
                                   rate([p = pinned](double v) { p->pin.set_peak_gflops(v); }),
                                   "float32 without tensor cores, a multiply-add counted as 2")
      ->type_name("X");
  pin->add_option_function<double>("--memory-gbs",
                                   rate([p = pinned](double v) { p->pin.set_memory_gbs(v); }),
                                   "of the device's memory, 1e9 bytes a second")
      ->type_name("Y");
  pin->footer("Every device of the model is held to it: faster than its peaks is implausible.");
  auto [unpin, unpinned] = add("unpin", "forget what was said of a model", Pin);
  unpinned->pin.set_unpin(true);
  unpin->add_option("model", *unpinned->pin.mutable_name(), "as `devices models` lists it")
      ->type_name("MODEL")
      ->required();
  add("hosts", "the hosts of a server, and whose they are", ListHosts);
  const auto of_host = [&](const char* name, const char* what, v1::SetHostRequest::Action action) {
    auto [sub, flags] = add(name, what, [=](const Flags& f, client::Client& client) {
      return SetHost(f, action, client);
    });
    sub->add_option("host", flags->name, "as `devices hosts` lists it")
        ->type_name("HOST")
        ->required();
  };
  of_host("trust", "serve what a host measures as validated without a second one",
          v1::SetHostRequest::ACTION_TRUST);
  of_host("distrust", "the opposite", v1::SetHostRequest::ACTION_DISTRUST);
  of_host("release", "let another token have a host's name", v1::SetHostRequest::ACTION_RELEASE);
  const auto of_device = [&](const char* name, const char* what, v1::FleetDevice::State state) {
    auto [sub, flags] = add(name, what, [=](const Flags& f, client::Client& client) {
      return SetDevice(f, state, client);
    });
    sub->add_option("device", flags->name, "as `devices --server` lists it")
        ->type_name("DEVICE")
        ->required();
  };
  of_device("drain", "give a device no more work", v1::FleetDevice::STATE_DRAINING);
  of_device("enable", "the opposite", v1::FleetDevice::STATE_ENABLED);
}

}  // namespace heddle::cli
