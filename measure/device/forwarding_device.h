// A device that does as another one does, for those that change some of it.
#ifndef HEDDLE_MEASURE_DEVICE_FORWARDING_DEVICE_H_
#define HEDDLE_MEASURE_DEVICE_FORWARDING_DEVICE_H_

#include <memory>
#include <utility>
#include <vector>

#include "measure/device/device.h"

namespace heddle::measure {

class ForwardingDevice : public Device {
 public:
  explicit ForwardingDevice(std::unique_ptr<Device> inner) : inner_(std::move(inner)) {}

  const DeviceInfo& info() const override { return inner_->info(); }
  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const std::vector<KernelBinary>& kernels) override {
    return inner_->Load(kernels);
  }
  absl::StatusOr<std::unique_ptr<DeviceBuffer>> Allocate(int64_t bytes) override {
    return inner_->Allocate(bytes);
  }
  absl::StatusOr<std::unique_ptr<HostBuffer>> AllocateHost(int64_t bytes) override {
    return inner_->AllocateHost(bytes);
  }
  absl::StatusOr<int64_t> FreeMemory() override { return inner_->FreeMemory(); }
  absl::Status Upload(DeviceBuffer& to, const void* from, int64_t bytes) override {
    return inner_->Upload(to, from, bytes);
  }
  absl::Status Download(const DeviceBuffer& from, void* to, int64_t bytes) override {
    return inner_->Download(from, to, bytes);
  }
  absl::Status Copy(const DeviceBuffer& from, DeviceBuffer& to) override {
    return inner_->Copy(from, to);
  }
  absl::StatusOr<Difference> Compare(const DeviceBuffer& a, const DeviceBuffer& b, int64_t elements,
                                     double slack, search_space::DType type) override {
    return inner_->Compare(a, b, elements, slack, type);
  }
  absl::Status Fill(DeviceBuffer& buffer, uint32_t pattern) override {
    return inner_->Fill(buffer, pattern);
  }
  absl::StatusOr<bool> GuardsIntact(const DeviceBuffer& buffer) override {
    return inner_->GuardsIntact(buffer);
  }
  absl::Status RestoreGuards(DeviceBuffer& buffer) override {
    return inner_->RestoreGuards(buffer);
  }
  absl::Status FillShared(uint32_t pattern) override { return inner_->FillShared(pattern); }
  absl::Status Run(LoadedProgram& program, const BufferSet& buffers) override {
    return inner_->Run(program, buffers);
  }
  absl::StatusOr<std::unique_ptr<TimedBatch>> PrepareBatch(LoadedProgram& program,
                                                           const std::vector<BufferSet>& sets,
                                                           int first, int launches) override {
    return inner_->PrepareBatch(program, sets, first, launches);
  }
  double clock_resolution() const override { return inner_->clock_resolution(); }
  DeviceState State() override { return inner_->State(); }

 private:
  std::unique_ptr<Device> inner_;
};

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_FORWARDING_DEVICE_H_
