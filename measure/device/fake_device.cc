// A device that misbehaves on request: the first OpenCL device, to whose programs the script named
// by HEDDLE_FAKE_DEVICE does what candidates do on a bad day. The script is a JSON object:
//   "rules":  [{"match": TEXT, "one_in": N, "do": FAULT, "time_us": T, "jitter": J,
//              "device": N}, ...]
//   "target": {"peak_gflops": X, "memory_gbs": Y, "l2_bytes": Z}      replaces figures
//   "devices": N                                                      fake:0 to fake:N-1, else one
// A rule applies to programs whose source contains TEXT (all without it), and of these, with N, to
// those whose source hash is divisible by N. One with a device is for that device alone, and not
// for its compiler. The first rule that applies counts. FAULT is one of
//   build_error, build_hang, build_crash        in the compiler; the one that hangs has a child
//   load_error, launch_error, illegal_access    an error from the driver
//   hang, crash, exit                           while running
//   wrong                                       the last element of the last argument is changed
// With "time_us", an execution takes that long by the device's clock, times 1 +- J.
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/hash.h"
#include "base/status.h"
#include "measure/device/device.h"
#include "measure/device/drivers.h"
#include "measure/device/forwarding_device.h"

namespace heddle::measure {
namespace {

constexpr int kAnyDevice = -1;

struct Rule {
  std::string match;
  uint64_t one_in = 1;
  std::string fault;
  double time_us = 0, jitter = 0;
  int device = kAnyDevice;
};

struct Script {
  std::vector<Rule> rules;
  nlohmann::json target;
  int devices = 1;
};

absl::StatusOr<Script> ReadScript() {
  const char* path = getenv("HEDDLE_FAKE_DEVICE");
  if (path == nullptr) return absl::UnavailableError("fake:N wants HEDDLE_FAKE_DEVICE=SCRIPT.json");
  std::ifstream file(path);
  nlohmann::json json = nlohmann::json::parse(file, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) {
    return absl::UnavailableError(absl::StrCat(path, " is not a JSON object (HEDDLE_FAKE_DEVICE)"));
  }
  Script script;
  try {
    for (const nlohmann::json& rule : json.value("rules", nlohmann::json::array())) {
      script.rules.push_back({rule.value("match", ""), rule.value("one_in", uint64_t{1}),
                              rule.value("do", ""), rule.value("time_us", 0.0),
                              rule.value("jitter", 0.0), rule.value("device", kAnyDevice)});
    }
    script.target = json.value("target", nlohmann::json::object());
    script.devices = json.value("devices", 1);
  } catch (const nlohmann::json::exception& error) {
    return absl::UnavailableError(absl::StrCat(path, ": ", error.what()));
  }
  return script;
}

// `device` is kAnyDevice in compilers.
Rule FindRule(const Script& script, const std::string& source, int device) {
  for (const Rule& rule : script.rules) {
    if (rule.device != kAnyDevice && rule.device != device) continue;
    if (absl::StrContains(source, rule.match) &&
        (rule.one_in <= 1 || HashOf(source) % rule.one_in == 0)) {
      return rule;
    }
  }
  return {};
}

[[noreturn]] void Hang() {
  while (true) pause();
}

[[noreturn]] void Crash() {
  signal(SIGSEGV, SIG_DFL);
  raise(SIGSEGV);
  _exit(1);
}

// A fake binary is the source's size in decimal, a newline, the source and the real binary.
std::string Pack(const std::string& source, const std::string& binary) {
  return absl::StrCat(source.size(), "\n", source, binary);
}

absl::StatusOr<std::pair<std::string, std::string>> Unpack(const std::string& packed) {
  const size_t line = packed.find('\n');
  uint64_t size = 0;
  if (line == std::string::npos || !absl::SimpleAtoi(packed.substr(0, line), &size) ||
      size > packed.size() - line - 1) {
    return absl::InvalidArgumentError("not a binary that CompileFake made");
  }
  return std::make_pair(packed.substr(line + 1, size), packed.substr(line + 1 + size));
}

class FakeProgram : public LoadedProgram {
 public:
  FakeProgram(std::unique_ptr<LoadedProgram> inner, Rule rule, std::string victim)
      : inner(std::move(inner)), rule(std::move(rule)), victim(std::move(victim)) {
    resources_ = this->inner->resources();
  }
  std::unique_ptr<LoadedProgram> inner;
  Rule rule;
  std::string victim;  // the buffer that `wrong` changes
};

// Runs the real kernels once, for their outputs; after that only the scripted clock runs.
class FakeBatch : public TimedBatch {
 public:
  FakeBatch(std::unique_ptr<TimedBatch> inner, const Rule& rule, int launches)
      : inner_(std::move(inner)), rule_(rule), launches_(launches) {}

  absl::StatusOr<double> Run() override {
    if (rule_.time_us <= 0) return inner_->Run();
    if (runs_++ == 0) {
      HEDDLE_RETURN_IF_ERROR(inner_->Run());
    }
    // A low-discrepancy sequence in [-1, 1): scripted noise that repeats exactly.
    const double noise = 2 * std::fmod(0.618033988749895 * runs_, 1.0) - 1;
    return launches_ * rule_.time_us * 1e-6 * (1 + rule_.jitter * noise);
  }

 private:
  std::unique_ptr<TimedBatch> inner_;
  const Rule& rule_;
  int launches_;
  int runs_ = 0;
};

class FakeDevice : public ForwardingDevice {
 public:
  FakeDevice(std::unique_ptr<Device> inner, Script script, int index)
      : ForwardingDevice(std::move(inner)),
        script_(std::move(script)),
        index_(index),
        info_(ForwardingDevice::info()) {
    info_.id = absl::StrCat("fake:", index);
    info_.uuid = absl::StrCat("fake-", index);
    info_.target.name = "Fake device";
    search_space::Target& target = info_.target;
    target.peak_gflops = script_.target.value("peak_gflops", target.peak_gflops);
    target.memory_gbs = script_.target.value("memory_gbs", target.memory_gbs);
    target.l2_bytes = script_.target.value("l2_bytes", target.l2_bytes);
  }

  const DeviceInfo& info() const override { return info_; }

  absl::StatusOr<std::unique_ptr<LoadedProgram>> Load(
      const std::vector<KernelBinary>& kernels) override {
    std::vector<KernelBinary> real;
    Rule rule;
    std::string victim;
    for (const KernelBinary& kernel : kernels) {
      HEDDLE_ASSIGN_OR_RETURN(parts, Unpack(kernel.binary));
      real.push_back({kernel.launch, parts.second});
      if (rule.fault.empty() && rule.time_us == 0) rule = FindRule(script_, parts.first, index_);
      if (!kernel.launch.arguments.empty()) victim = kernel.launch.arguments.back();
    }
    if (rule.fault == "load_error") return absl::InvalidArgumentError("scripted load error");
    HEDDLE_ASSIGN_OR_RETURN(inner, ForwardingDevice::Load(real));
    return std::make_unique<FakeProgram>(std::move(inner), std::move(rule), std::move(victim));
  }

  absl::Status Run(LoadedProgram& program, const BufferSet& buffers) override {
    auto& fake = static_cast<FakeProgram&>(program);
    const std::string& fault = fake.rule.fault;
    if (fault == "launch_error") return absl::InvalidArgumentError("scripted launch error");
    if (fault == "illegal_access") return absl::AbortedError("scripted illegal access");
    if (fault == "hang") Hang();
    if (fault == "crash") Crash();
    if (fault == "exit") _exit(3);
    absl::Status status = ForwardingDevice::Run(*fake.inner, buffers);
    if (status.ok() && fault == "wrong") return ChangeLast(*buffers.at(fake.victim));
    return status;
  }

  absl::StatusOr<std::unique_ptr<TimedBatch>> PrepareBatch(LoadedProgram& program,
                                                           const std::vector<BufferSet>& sets,
                                                           int first, int launches) override {
    auto& fake = static_cast<FakeProgram&>(program);
    HEDDLE_ASSIGN_OR_RETURN(inner,
                            ForwardingDevice::PrepareBatch(*fake.inner, sets, first, launches));
    return std::make_unique<FakeBatch>(std::move(inner), fake.rule, launches);
  }

 private:
  absl::Status ChangeLast(DeviceBuffer& buffer) {
    std::vector<float> values(buffer.bytes() / sizeof(float));
    HEDDLE_RETURN_IF_ERROR(ForwardingDevice::Download(buffer, values.data(), buffer.bytes()));
    values.back() += 1;
    return ForwardingDevice::Upload(buffer, values.data(), buffer.bytes());
  }

  Script script_;
  int index_;
  DeviceInfo info_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenFakeDevice(int index) {
  HEDDLE_ASSIGN_OR_RETURN(script, ReadScript());
  if (index >= script.devices) {
    return absl::InvalidArgumentError(
        absl::StrCat("there is no fake:", index, ": the script has ", script.devices, " devices"));
  }
  HEDDLE_ASSIGN_OR_RETURN(inner, OpenOpenClDevice(0));
  return std::make_unique<FakeDevice>(std::move(inner), std::move(script), index);
}

std::vector<DeviceInfo> DetectFakeDevices() {
  if (getenv("HEDDLE_FAKE_DEVICE") == nullptr) return {};
  const absl::StatusOr<Script> script = ReadScript();
  std::vector<DeviceInfo> devices;
  for (int i = 0; i < (script.ok() ? script->devices : 1); ++i) {
    const absl::StatusOr<std::unique_ptr<Device>> device = OpenFakeDevice(i);
    if (device.ok()) {
      devices.push_back((*device)->info());
      continue;
    }
    DeviceInfo info;
    info.id = absl::StrCat("fake:", i);
    info.usable = false;
    info.why_not = std::string(device.status().message());
    devices.push_back(std::move(info));
  }
  return devices;
}

absl::StatusOr<std::string> CompileFake(const KernelSource& source) {
  HEDDLE_ASSIGN_OR_RETURN(script, ReadScript());
  const std::string fault = FindRule(script, source.source, kAnyDevice).fault;
  if (fault == "build_error") return absl::InvalidArgumentError("scripted build error");
  if (fault == "build_hang") {
    // As PoCL, which runs a linker.
    pid_t child = 0;
    char name[] = "sleep", time[] = "3600";
    char* const arguments[] = {name, time, nullptr};
    posix_spawnp(&child, name, nullptr, nullptr, arguments, environ);
    Hang();
  }
  if (fault == "build_crash") Crash();
  HEDDLE_ASSIGN_OR_RETURN(binary, CompileOpenCl("opencl:0", source, kFakeCompileOptions));
  return Pack(source.source, binary);
}

}  // namespace heddle::measure
