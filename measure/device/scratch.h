// What a driver keeps outside its processes while a session lasts.
#ifndef HEDDLE_MEASURE_DEVICE_SCRATCH_H_
#define HEDDLE_MEASURE_DEVICE_SCRATCH_H_

#include <string>
#include <vector>

namespace heddle::measure {

class Scratch {
 public:
  virtual ~Scratch() = default;
  // Of the processes that use the driver, "NAME=value".
  virtual std::vector<std::string> environment() const = 0;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_SCRATCH_H_
