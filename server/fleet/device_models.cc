#include "server/fleet/device_models.h"

#include "absl/strings/str_cat.h"
#include "measure/run/messages.h"
#include "search_space/ir/target.h"

namespace heddle::server {

absl::StatusOr<v1::Device> FindInTable(const std::string& model) {
  for (const std::string& name : search_space::TargetNames()) {
    auto target = search_space::FindTarget(name);
    if (!target.ok() || target->name != model) continue;
    measure::DeviceInfo info;
    info.target = *std::move(target);
    return measure::ToProto(info);
  }
  return absl::NotFoundError(absl::StrCat("the program does not know a device \"", model, "\""));
}

const DeviceModels::Model& DeviceModels::Learn(const v1::Device& claimed, bool abandoned) {
  auto [it, added] = models_.try_emplace(claimed.target().name());
  Model& model = it->second;
  const bool forget = added || (abandoned && model.source == v1::DeviceModel::SOURCE_CLAIMED);
  if (forget) {
    model.device = claimed;
    if (auto known = FindInTable(claimed.target().name()); known.ok()) {
      *model.device.mutable_target() = known->target();
      model.source = v1::DeviceModel::SOURCE_TABLE;
    }
  } else if (model.device.id().empty()) {  // nobody of it has registered yet
    const v1::Target target = model.device.target();
    model.device = claimed;
    *model.device.mutable_target() = target;
  }
  return model;
}

void DeviceModels::Pin(const v1::Device& device) {
  models_[device.target().name()] = {device, v1::DeviceModel::SOURCE_PINNED};
}

void DeviceModels::Unpin(const std::string& model) {
  auto it = models_.find(model);
  if (it == models_.end()) return;
  it->second.source = v1::DeviceModel::SOURCE_CLAIMED;
  if (auto known = FindInTable(model); known.ok()) {
    *it->second.device.mutable_target() = known->target();
    it->second.source = v1::DeviceModel::SOURCE_TABLE;
  }
}

const DeviceModels::Model* DeviceModels::Find(const std::string& model) const {
  auto it = models_.find(model);
  return it == models_.end() ? nullptr : &it->second;
}

std::string WhyNoWork(const DeviceModels::Model& model, const v1::Target& claimed) {
  const v1::Target& known = model.device.target();
  if (!(known.peak_gflops() > 0) || !(known.memory_gbs() > 0)) {
    return absl::StrCat(
        "its driver does not say how fast it is, so that no time could be told from an implausible "
        "one; an administrator says it: heddle devices pin \"",
        known.name(), "\" --peak-gflops X --memory-gbs Y");
  }
  if (known.api() == claimed.api() && known.arch() == claimed.arch() &&
      known.sm_count() == claimed.sm_count()) {
    return "";
  }
  return absl::StrCat("it is ", claimed.api(), " ", claimed.arch(), " with ", claimed.sm_count(),
                      " units, and devices of the model \"", known.name(), "\" are ", known.api(),
                      " ", known.arch(), " with ", known.sm_count(),
                      ": their times do not compare; if it is this one that is right, an "
                      "administrator says so: heddle devices pin \"",
                      known.name(), "\" --like DEVICE");
}

}  // namespace heddle::server
