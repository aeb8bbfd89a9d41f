#include "measure/run/processes/messages.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"
#include "base/check.h"
#include "base/status.h"
#include "measure/codegen/dialects.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"

namespace heddle::measure {
namespace {

using google::protobuf::Duration;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

const std::string kOutcomePrefix = "OUTCOME_";

const FieldDescriptor* FieldOf(const Message& message, const std::string& name) {
  const FieldDescriptor* field = message.GetDescriptor()->FindFieldByName(name);
  HEDDLE_CHECK(field != nullptr, message.GetTypeName() + " has no field " + name);
  return field;
}

// The field of seconds, "compile_s": "compile_duration"; null where `name` is no such field.
const FieldDescriptor* DurationFieldOf(const Message& message, absl::string_view name) {
  if (!absl::ConsumeSuffix(&name, "_s")) return nullptr;
  return FieldOf(message, absl::StrCat(name, "_duration"));
}

// Copies the fields that it is shown into those of their names.
struct FieldWriter {
  Message& to;

  void operator()(const char* name, const std::string& value) const {
    to.GetReflection()->SetString(&to, FieldOf(to, name), value);
  }
  void operator()(const char* name, int64_t value) const {
    to.GetReflection()->SetInt64(&to, FieldOf(to, name), value);
  }
  void operator()(const char* name, int value) const {
    to.GetReflection()->SetInt32(&to, FieldOf(to, name), value);
  }
  void operator()(const char* name, bool value) const {
    to.GetReflection()->SetBool(&to, FieldOf(to, name), value);
  }
  void operator()(const char* name, double value) const {
    const Reflection* const fields = to.GetReflection();
    if (const auto duration = DurationFieldOf(to, name)) {
      fields->MutableMessage(&to, duration)->CopyFrom(DurationOf(value));
    } else {
      fields->SetDouble(&to, FieldOf(to, name), value);
    }
  }
  void operator()(const char* name, Outcome value) const {
    to.GetReflection()->SetEnumValue(&to, FieldOf(to, name), ToProto(value));
  }
};

// And back.
struct FieldReader {
  const Message& from;

  void operator()(const char* name, std::string& value) const {
    value = from.GetReflection()->GetString(from, FieldOf(from, name));
  }
  void operator()(const char* name, int64_t& value) const {
    value = from.GetReflection()->GetInt64(from, FieldOf(from, name));
  }
  void operator()(const char* name, int& value) const {
    value = from.GetReflection()->GetInt32(from, FieldOf(from, name));
  }
  void operator()(const char* name, bool& value) const {
    value = from.GetReflection()->GetBool(from, FieldOf(from, name));
  }
  void operator()(const char* name, double& value) const {
    const Reflection* const fields = from.GetReflection();
    if (const auto duration = DurationFieldOf(from, name)) {
      value = SecondsOf(static_cast<const Duration&>(fields->GetMessage(from, duration)));
    } else {
      value = fields->GetDouble(from, FieldOf(from, name));
    }
  }
  void operator()(const char* name, Outcome& value) const {
    const int number = from.GetReflection()->GetEnumValue(from, FieldOf(from, name));
    value = FromProto(static_cast<v1::Outcome>(number)).value_or(Outcome::kWorkerLost);
  }
};

}  // namespace

worker::Status ToProto(const absl::Status& status) {
  worker::Status message;
  message.set_code(static_cast<int>(status.code()));
  message.set_message(std::string(status.message()));
  return message;
}

absl::Status FromProto(const worker::Status& message) {
  return absl::Status(static_cast<absl::StatusCode>(message.code()), message.message());
}

worker::Launch ToProto(const KernelLaunch& launch) {
  worker::Launch message;
  message.set_entry(launch.entry);
  message.set_grid(launch.grid);
  message.set_block(launch.block);
  message.set_dynamic_shared_bytes(launch.dynamic_shared_bytes);
  for (const std::string& argument : launch.arguments) message.add_arguments(argument);
  for (const TensorMap& map : launch.maps) {
    worker::TensorMap& to = *message.add_maps();
    to.set_buffer(map.buffer);
    to.set_element_bytes(map.element_bytes);
    to.mutable_shape()->Assign(map.shape.begin(), map.shape.end());
    to.mutable_strides()->Assign(map.strides.begin(), map.strides.end());
    to.mutable_box()->Assign(map.box.begin(), map.box.end());
    to.set_swizzle_bytes(map.swizzle_bytes);
  }
  for (const std::string& buffer : launch.rounded_anew) message.add_rounded_anew(buffer);
  return message;
}

KernelLaunch FromProto(const worker::Launch& message) {
  KernelLaunch launch{message.entry(),
                      message.grid(),
                      message.block(),
                      message.dynamic_shared_bytes(),
                      {message.arguments().begin(), message.arguments().end()},
                      {},
                      {message.rounded_anew().begin(), message.rounded_anew().end()}};
  for (const worker::TensorMap& map : message.maps()) {
    launch.maps.push_back({map.buffer(),
                           map.element_bytes(),
                           {map.shape().begin(), map.shape().end()},
                           {map.strides().begin(), map.strides().end()},
                           {map.box().begin(), map.box().end()},
                           map.swizzle_bytes()});
  }
  return launch;
}

worker::Resources ToProto(const KernelResources& resources) {
  worker::Resources message;
  message.set_registers(resources.registers);
  message.set_stack_bytes(resources.stack_bytes);
  message.set_spill_bytes(resources.spill_bytes);
  message.set_serialized(resources.serialized);
  message.set_static_shared_bytes(resources.static_shared_bytes);
  return message;
}

KernelResources FromProto(const worker::Resources& message) {
  return {message.registers(), message.stack_bytes(), message.spill_bytes(),
          message.static_shared_bytes(), message.serialized()};
}

v1::Outcome ToProto(Outcome outcome) {
  v1::Outcome message = v1::OUTCOME_UNSPECIFIED;
  v1::Outcome_Parse(absl::StrCat(kOutcomePrefix, NameOf(outcome)), &message);
  return message;
}

std::optional<Outcome> FromProto(v1::Outcome message) {
  const std::string& name = v1::Outcome_Name(message);
  if (name.size() <= kOutcomePrefix.size()) return std::nullopt;  // of a newer version
  return ParseOutcome(name.substr(kOutcomePrefix.size()));
}

v1::TrialResult ToProto(const TrialResult& result) {
  v1::TrialResult message;
  VisitResult(result, FieldWriter{message});
  return message;
}

TrialResult FromProto(const v1::TrialResult& message) {
  TrialResult result;
  VisitResult(result, FieldReader{message});
  return result;
}

v1::DeviceState ToProto(const DeviceState& state) {
  v1::DeviceState message;
  message.set_sm_clock_mhz(state.sm_clock_mhz);
  message.set_max_sm_clock_mhz(state.max_sm_clock_mhz);
  message.set_throttled(state.throttled);
  message.set_other_processes(state.other_processes);
  return message;
}

DeviceState FromProto(const v1::DeviceState& message) {
  return {message.sm_clock_mhz(), message.max_sm_clock_mhz(), message.throttled(),
          message.other_processes()};
}

v1::Device ToProto(const DeviceInfo& device) {
  v1::Device message;
  message.set_id(device.id);
  message.set_uuid(device.uuid);
  message.set_driver(device.driver);
  message.set_compiler(device.compiler);
  message.set_usable(device.usable);
  message.set_why_not(device.why_not);
  message.set_power_limit_w(device.power_limit_w);
  const search_space::Target& t = device.target;
  v1::Target& out = *message.mutable_target();
  out.set_name(t.name);
  out.set_api(DialectOf(t.api).name);
  out.set_arch(t.arch);
  out.set_max_threads_per_block(t.max_threads_per_block);
  out.set_max_shared_bytes_per_block(t.max_shared_bytes_per_block);
  out.set_static_shared_bytes(t.static_shared_bytes);
  out.set_shared_bytes_per_sm(t.shared_bytes_per_sm);
  out.set_registers_per_sm(t.registers_per_sm);
  out.set_max_registers_per_thread(t.max_registers_per_thread);
  out.set_max_threads_per_sm(t.max_threads_per_sm);
  out.set_max_blocks_per_sm(t.max_blocks_per_sm);
  out.set_max_grid(t.max_grid);
  out.set_warp_size(t.warp_size);
  out.set_sm_count(t.sm_count);
  out.set_l2_bytes(t.l2_bytes);
  out.set_memory_bytes(t.memory_bytes);
  out.set_clock_ghz(t.clock_ghz);
  out.set_peak_gflops(t.peak_gflops);
  out.set_memory_gbs(t.memory_gbs);
  out.set_has_async_copy(t.has_async_copy);
  out.set_processor(t.processor);
  return message;
}

DeviceInfo FromProto(const v1::Device& message) {
  DeviceInfo device;
  device.id = message.id();
  device.uuid = message.uuid();
  device.driver = message.driver();
  device.compiler = message.compiler();
  device.usable = message.usable();
  device.why_not = message.why_not();
  device.power_limit_w = message.power_limit_w();
  const v1::Target& in = message.target();
  search_space::Target& t = device.target;
  t.name = in.name();
  if (const Dialect* dialect = FindDialect(in.api())) {
    t.api = dialect->api;
  } else if (device.usable) {
    device.usable = false;
    device.why_not = absl::StrCat("this version of Heddle does not know its API, '", in.api(), "'");
  }
  t.arch = in.arch();
  t.max_threads_per_block = in.max_threads_per_block();
  t.max_shared_bytes_per_block = in.max_shared_bytes_per_block();
  t.static_shared_bytes = in.static_shared_bytes();
  t.shared_bytes_per_sm = in.shared_bytes_per_sm();
  t.registers_per_sm = in.registers_per_sm();
  t.max_registers_per_thread = in.max_registers_per_thread();
  t.max_threads_per_sm = in.max_threads_per_sm();
  t.max_blocks_per_sm = in.max_blocks_per_sm();
  t.max_grid = in.max_grid();
  t.warp_size = in.warp_size();
  t.sm_count = in.sm_count();
  t.l2_bytes = in.l2_bytes();
  t.memory_bytes = in.memory_bytes();
  t.clock_ghz = in.clock_ghz();
  t.peak_gflops = in.peak_gflops();
  t.memory_gbs = in.memory_gbs();
  t.has_async_copy = in.has_async_copy();
  t.processor = in.processor();
  return device;
}

worker::Workspace ToProto(const search_space::BufferRef& workspace) {
  worker::Workspace message;
  message.set_name(workspace->name);
  message.set_dtype(search_space::NameOf(workspace->dtype));
  message.set_elements(workspace->elements);
  return message;
}

absl::StatusOr<search_space::BufferRef> FromProto(const worker::Workspace& message) {
  const auto of_type = [&](search_space::DType type) {
    return search_space::MakeBuffer(message.name(), type, search_space::Scope::kGlobal,
                                    {message.elements()});
  };
  // Sums of integers are kept as such, which is no type of a workload.
  if (message.dtype() == NameOf(search_space::DType::kInt32)) {
    return of_type(search_space::DType::kInt32);
  }
  HEDDLE_ASSIGN_OR_RETURN(dtype, search_space::ParseDType(message.dtype()));
  return of_type(dtype);
}

std::vector<KernelBinary> KernelsOf(const worker::Program& message) {
  std::vector<KernelBinary> kernels;
  for (const worker::Kernel& kernel : message.kernels()) {
    kernels.push_back({FromProto(kernel.launch()), kernel.binary()});
  }
  return kernels;
}

}  // namespace heddle::measure
