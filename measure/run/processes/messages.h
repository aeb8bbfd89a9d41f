// Conversions between the measuring types and the messages of proto/.
#ifndef HEDDLE_MEASURE_RUN_PROCESSES_MESSAGES_H_
#define HEDDLE_MEASURE_RUN_PROCESSES_MESSAGES_H_

#include <optional>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "heddle/v1/common.pb.h"
#include "measure/codegen/codegen.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/device/device.h"
#include "measure/device/device_info.h"
#include "measure/device/outcome.h"
#include "proto/worker.pb.h"
#include "search_space/ir/expr/expr.h"

namespace heddle::measure {

worker::Status ToProto(const absl::Status& status);
absl::Status FromProto(const worker::Status& message);

worker::Launch ToProto(const KernelLaunch& launch);
KernelLaunch FromProto(const worker::Launch& message);

worker::Resources ToProto(const KernelResources& resources);
KernelResources FromProto(const worker::Resources& message);

v1::Outcome ToProto(Outcome outcome);
std::optional<Outcome> FromProto(v1::Outcome message);

v1::TrialResult ToProto(const TrialResult& result);
// An unknown outcome is kWorkerLost.
TrialResult FromProto(const v1::TrialResult& message);

v1::DeviceState ToProto(const DeviceState& state);
DeviceState FromProto(const v1::DeviceState& message);

v1::Device ToProto(const DeviceInfo& device);
DeviceInfo FromProto(const v1::Device& message);

worker::Workspace ToProto(const search_space::BufferRef& workspace);
// InvalidArgument for an unknown data type.
absl::StatusOr<search_space::BufferRef> FromProto(const worker::Workspace& message);

std::vector<KernelBinary> KernelsOf(const worker::Program& message);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_PROCESSES_MESSAGES_H_
