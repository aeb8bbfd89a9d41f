// Conversions between the measuring types and the messages of proto/worker.proto.
#ifndef HEDDLE_MEASURE_MESSAGES_H_
#define HEDDLE_MEASURE_MESSAGES_H_

#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "measure/codegen.h"
#include "measure/device.h"
#include "measure/measurer.h"
#include "measure/nvrtc.h"
#include "measure/outcome.h"
#include "proto/worker.pb.h"

namespace heddle::measure {

worker::Status ToProto(const absl::Status& status);
absl::Status FromProto(const worker::Status& message);

worker::Launch ToProto(const KernelLaunch& launch);
KernelLaunch FromProto(const worker::Launch& message);

worker::Resources ToProto(const KernelResources& resources);
KernelResources FromProto(const worker::Resources& message);

worker::Result ToProto(const TrialResult& result);
// Only what the worker knows; compile_s and source_hash are the supervisor's.
TrialResult FromProto(const worker::Result& message);

worker::DeviceState ToProto(const DeviceState& state);
DeviceState FromProto(const worker::DeviceState& message);

worker::Device ToProto(const DeviceInfo& device);
DeviceInfo FromProto(const worker::Device& message);

worker::Workspace ToProto(const search_space::BufferRef& workspace);
// InvalidArgument for an unknown data type.
absl::StatusOr<search_space::BufferRef> FromProto(const worker::Workspace& message);

std::vector<KernelBinary> KernelsOf(const worker::Program& message);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_MESSAGES_H_
