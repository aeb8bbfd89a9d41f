#include "server/fleet/devices/device_models.h"

#include <atomic>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "measure/run/processes/messages.h"
#include "search_space/ir/target.h"

namespace heddle::server {

namespace {

constexpr double kSameMemory = 0.1;  // drivers keep more or less of it for themselves

std::shared_ptr<const DeviceModels::Model> Describe(v1::Device device,
                                                    v1::DeviceModel::Source source) {
  static std::atomic<int64_t> revisions = 0;
  auto model = std::make_shared<DeviceModels::Model>();
  model->device = std::move(device);
  model->source = source;
  model->info = measure::FromProto(model->device);
  model->revision = ++revisions;
  return model;
}

}  // namespace

std::shared_ptr<const DeviceModels::Model> ShippedModel(const std::string& model) {
  static const auto& shipped = *[] {
    auto* models = new std::map<std::string, std::shared_ptr<const DeviceModels::Model>>;
    for (const std::string& name : search_space::TargetNames()) {
      auto target = search_space::FindTarget(name);
      if (!target.ok()) continue;
      measure::DeviceInfo info;
      info.target = *std::move(target);
      models->emplace(info.target.name,
                      Describe(measure::ToProto(info), v1::DeviceModel::SOURCE_TABLE));
    }
    return models;
  }();
  const auto found = shipped.find(model);
  return found == shipped.end() ? nullptr : found->second;
}

const DeviceModels::Model& DeviceModels::Learn(const v1::Device& claimed, bool abandoned) {
  std::shared_ptr<const Model>& model = models_[claimed.target().name()];
  const bool forget =
      model == nullptr || (abandoned && model->source == v1::DeviceModel::SOURCE_CLAIMED);
  v1::Device device = claimed;
  // How much power it may take is each device's own, and no registering one's to say for all.
  device.clear_power_limit_w();
  if (forget) {
    const auto known = ShippedModel(claimed.target().name());
    if (known != nullptr) *device.mutable_target() = known->device.target();
    model = Describe(std::move(device), known != nullptr ? v1::DeviceModel::SOURCE_TABLE
                                                         : v1::DeviceModel::SOURCE_CLAIMED);
  } else if (model->device.id().empty()) {  // nobody of it has registered yet
    *device.mutable_target() = model->device.target();
    device.set_power_limit_w(model->device.power_limit_w());
    model = Describe(std::move(device), model->source);
  }
  return *model;
}

void DeviceModels::Pin(const v1::Device& device) {
  models_[device.target().name()] = Describe(device, v1::DeviceModel::SOURCE_PINNED);
}

void DeviceModels::Unpin(const std::string& model) {
  auto it = models_.find(model);
  if (it == models_.end()) return;
  v1::Device device = it->second->device;
  device.clear_power_limit_w();
  const auto known = ShippedModel(model);
  if (known != nullptr) *device.mutable_target() = known->device.target();
  it->second = Describe(std::move(device), known != nullptr ? v1::DeviceModel::SOURCE_TABLE
                                                            : v1::DeviceModel::SOURCE_CLAIMED);
}

std::shared_ptr<const DeviceModels::Model> DeviceModels::Get(const std::string& model) const {
  auto it = models_.find(model);
  return it == models_.end() ? nullptr : it->second;
}

const DeviceModels::Model* DeviceModels::Find(const std::string& model) const {
  return Get(model).get();
}

std::string WhyNoWork(const DeviceModels::Model& model, const v1::Target& claimed) {
  const v1::Target& known = model.device.target();
  if (!(known.peak_gflops() > 0) || !(known.memory_gbs() > 0)) {
    return absl::StrCat(
        "its driver does not say how fast it is, so that no time could be told from an implausible "
        "one; an administrator says it: heddle devices pin \"",
        known.name(), "\" --peak-gflops X --memory-gbs Y");
  }
  // Of a model that the program knows; CPUs of one name have as much memory as somebody bought.
  const double memory = static_cast<double>(known.memory_bytes());
  const bool as_large =
      model.source != v1::DeviceModel::SOURCE_TABLE || memory == 0 || claimed.memory_bytes() == 0 ||
      std::abs(static_cast<double>(claimed.memory_bytes()) - memory) <= kSameMemory * memory;
  if (known.api() == claimed.api() && known.arch() == claimed.arch() &&
      known.sm_count() == claimed.sm_count() && as_large) {
    return "";
  }
  const auto words = [](const v1::Target& t) {
    return absl::StrCat(t.api(), " ", t.arch(), " with ", t.sm_count(), " units and ",
                        t.memory_bytes() >> 20, " MiB");
  };
  return absl::StrCat("it is ", words(claimed), ", and devices of the model \"", known.name(),
                      "\" are ", words(known),
                      ": their times do not compare; if it is this one that is right, an "
                      "administrator says so: heddle devices pin \"",
                      known.name(), "\" --like DEVICE");
}

}  // namespace heddle::server
