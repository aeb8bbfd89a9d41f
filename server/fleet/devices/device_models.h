// What is believed of the devices of a model. A device that measures says how fast it is only where
// nobody else does: its claims would decide which of its own times are plausible.
#ifndef HEDDLE_SERVER_FLEET_DEVICES_DEVICE_MODELS_H_
#define HEDDLE_SERVER_FLEET_DEVICES_DEVICE_MODELS_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "heddle/v1/fleet.pb.h"
#include "measure/device/device_info.h"

namespace heddle::server {

class DeviceModels {
 public:
  struct Model {
    // Of a device of the model; its id, uuid, driver and compiler are those of the one that
    // registered first.
    v1::Device device;
    v1::DeviceModel::Source source = v1::DeviceModel::SOURCE_CLAIMED;
    measure::DeviceInfo info;  // the device
    int64_t revision = 0;      // no other description has had it while the program runs
    // Results may be served as validated.
    bool known() const { return source != v1::DeviceModel::SOURCE_CLAIMED; }
  };

  // What a device that registers is taken for: as pinned, else as in the table, else as the first
  // of its model has said, unless that is `abandoned`: no device that goes by it is left.
  const Model& Learn(const v1::Device& claimed, bool abandoned);
  // An administrator's word, which stays.
  void Pin(const v1::Device& device);
  // Back to the table, or to the claim that was pinned.
  void Unpin(const std::string& model);
  const Model* Find(const std::string& model) const;
  // As it is now, to be kept; nullptr: not known.
  std::shared_ptr<const Model> Get(const std::string& model) const;
  const std::map<std::string, std::shared_ptr<const Model>>& all() const { return models_; }

 private:
  std::map<std::string, std::shared_ptr<const Model>> models_;  // replaced, never changed
};

// What the program's table of GPUs (search_space/ir/target.cc) says of a model; nullptr: it has
// none of that name.
std::shared_ptr<const DeviceModels::Model> ShippedModel(const std::string& model);

// Why a device of that description cannot take the work of its model, with the remedy; "" = it can.
std::string WhyNoWork(const DeviceModels::Model& model, const v1::Target& claimed);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_FLEET_DEVICES_DEVICE_MODELS_H_
