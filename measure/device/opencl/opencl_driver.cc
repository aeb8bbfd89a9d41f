#include "measure/device/opencl/opencl_driver.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "base/host.h"
#include "measure/device/drivers.h"

namespace heddle::measure {
namespace {

const char* ErrorName(cl_int code) {
  switch (code) {
    case CL_DEVICE_NOT_AVAILABLE:
      return "CL_DEVICE_NOT_AVAILABLE";
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
      return "CL_MEM_OBJECT_ALLOCATION_FAILURE";
    case CL_OUT_OF_RESOURCES:
      return "CL_OUT_OF_RESOURCES";
    case CL_OUT_OF_HOST_MEMORY:
      return "CL_OUT_OF_HOST_MEMORY";
    case CL_BUILD_PROGRAM_FAILURE:
      return "CL_BUILD_PROGRAM_FAILURE";
    case CL_INVALID_BINARY:
      return "CL_INVALID_BINARY";
    case CL_INVALID_KERNEL_NAME:
      return "CL_INVALID_KERNEL_NAME";
    case CL_INVALID_KERNEL_ARGS:
      return "CL_INVALID_KERNEL_ARGS";
    case CL_INVALID_ARG_INDEX:
      return "CL_INVALID_ARG_INDEX";
    case CL_INVALID_WORK_GROUP_SIZE:
      return "CL_INVALID_WORK_GROUP_SIZE";
    case CL_INVALID_BUFFER_SIZE:
      return "CL_INVALID_BUFFER_SIZE";
    default:
      return "OpenCL error";
  }
}

std::string GetString(cl_device_id device, cl_device_info what) {
  size_t size = 0;
  clGetDeviceInfo(device, what, 0, nullptr, &size);
  std::string text(size, '\0');
  clGetDeviceInfo(device, what, size, text.data(), nullptr);
  return text.c_str();  // without the terminator
}

std::vector<cl_device_id> AllDevices() {
  cl_uint count = 0;
  if (clGetPlatformIDs(0, nullptr, &count) != CL_SUCCESS) return {};
  std::vector<cl_platform_id> platforms(count);
  clGetPlatformIDs(count, platforms.data(), nullptr);
  std::vector<cl_device_id> all;
  for (cl_platform_id platform : platforms) {
    cl_uint found = 0;
    if (clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 0, nullptr, &found) != CL_SUCCESS) continue;
    std::vector<cl_device_id> devices(found);
    clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, found, devices.data(), nullptr);
    all.insert(all.end(), devices.begin(), devices.end());
  }
  return all;
}

// Bytes per second, read and written, that all cores together copy: no OpenCL query tells the
// memory's bandwidth. The best of three, over memory that no cache holds.
double HostBandwidth(int threads, int64_t cache_bytes) {
  const size_t part = std::max<size_t>(cache_bytes, 32 << 20) / threads;
  std::vector<std::vector<char>> from(threads), to(threads);
  double best = 0;
  for (int round = 0; round < 4; ++round) {  // the first one touches the pages
    auto start = std::chrono::steady_clock::now();
    std::vector<std::thread> workers;
    for (int t = 0; t < threads; ++t) {
      workers.emplace_back([&, t] {
        if (round == 0) {
          from[t].assign(part, 1);
          to[t].assign(part, 2);
        }
        std::memcpy(to[t].data(), from[t].data(), part);
      });
    }
    for (std::thread& worker : workers) worker.join();
    std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - start;
    if (round > 0) best = std::max(best, 2.0 * part * threads / seconds.count());
  }
  return best;
}

search_space::Target MakeTarget(cl_device_id device) {
  search_space::Target target;
  target.name = GetString(device, CL_DEVICE_NAME);
  target.api = search_space::Api::kOpenCl;
  target.arch = "opencl";
  target.max_threads_per_block = GetCl<size_t>(device, CL_DEVICE_MAX_WORK_GROUP_SIZE);
  target.max_shared_bytes_per_block = GetCl<cl_ulong>(device, CL_DEVICE_LOCAL_MEM_SIZE);
  target.static_shared_bytes = target.max_shared_bytes_per_block;
  target.shared_bytes_per_sm = target.max_shared_bytes_per_block;
  target.max_threads_per_sm = target.max_threads_per_block;
  target.sm_count = GetCl<cl_uint>(device, CL_DEVICE_MAX_COMPUTE_UNITS);
  target.l2_bytes = GetCl<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_CACHE_SIZE);
  target.memory_bytes = GetCl<cl_ulong>(device, CL_DEVICE_GLOBAL_MEM_SIZE);
  target.clock_ghz = GetCl<cl_uint>(device, CL_DEVICE_MAX_CLOCK_FREQUENCY) / 1e3;
  // Lanes that can multiply and add in a cycle: two vector units of a CPU core; the 128 of common
  // GPUs' compute units.
  double lanes = 128;
  if (GetCl<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) {
    target.processor = true;
    lanes = 2.0 * GetCl<cl_uint>(device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    target.max_blocks_per_sm = 1;  // a core works on one work-group at a time
    target.warp_size = GetCl<cl_uint>(device, CL_DEVICE_NATIVE_VECTOR_WIDTH_FLOAT);
    target.memory_gbs =
        HostBandwidth(static_cast<int>(std::max<int64_t>(1, target.sm_count)), target.l2_bytes) /
        1e9;
  }
  target.peak_gflops = 2 * lanes * target.sm_count * target.clock_ghz;
  return target;
}

}  // namespace

absl::Status CheckCl(cl_int code, absl::string_view what) {
  if (code == CL_SUCCESS) return absl::OkStatus();
  std::string message = absl::StrCat(what, ": ", ErrorName(code), " (", code, ")");
  switch (code) {
    case CL_MEM_OBJECT_ALLOCATION_FAILURE:
    case CL_OUT_OF_RESOURCES:
    case CL_OUT_OF_HOST_MEMORY:
      return absl::ResourceExhaustedError(message);
    case CL_DEVICE_NOT_AVAILABLE:
      return absl::UnavailableError(message);
    default:
      return absl::InvalidArgumentError(message);
  }
}

absl::StatusOr<cl_device_id> FindClDevice(int index) {
  std::vector<cl_device_id> devices = AllDevices();
  if (index >= 0 && index < static_cast<int>(devices.size())) return devices[index];
  if (devices.empty()) {
    return absl::UnavailableError(
        "no OpenCL device: install an OpenCL driver (Debian: apt-get install pocl-opencl-icd)");
  }
  return absl::UnavailableError(
      absl::StrCat("there is no opencl:", index, ": the last one is opencl:", devices.size() - 1));
}

bool IsPocl(cl_device_id device) {
  return (GetCl<cl_device_type>(device, CL_DEVICE_TYPE) & CL_DEVICE_TYPE_CPU) != 0 &&
         absl::StrContains(GetString(device, CL_DEVICE_VERSION), "PoCL");
}

DeviceInfo DescribeClDevice(cl_device_id device, int index) {
  DeviceInfo info;
  info.id = absl::StrCat("opencl:", index);
  info.target = MakeTarget(device);
  // Drivers have none: the same processor is in many hosts.
  info.uuid = absl::StrCat("opencl-", HostId(), "-", index, "-", info.target.name);
  info.driver = GetString(device, CL_DRIVER_VERSION);
  info.compiler = GetString(device, CL_DEVICE_VERSION);
  if (!GetCl<cl_bool>(device, CL_DEVICE_AVAILABLE)) {
    info.why_not = "the driver says that the device is not available";
  } else if (!GetCl<cl_bool>(device, CL_DEVICE_COMPILER_AVAILABLE)) {
    info.why_not = "the driver has no OpenCL C compiler";
  }
  info.usable = info.why_not.empty();
  return info;
}

std::vector<DeviceInfo> DetectOpenClDevices() {
  std::vector<DeviceInfo> infos;
  for (cl_device_id device : AllDevices()) {
    infos.push_back(DescribeClDevice(device, static_cast<int>(infos.size())));
  }
  if (infos.empty()) {
    DeviceInfo none;
    none.id = "opencl:0";
    none.usable = false;
    none.why_not = std::string(FindClDevice(0).status().message());
    infos.push_back(none);
  }
  return infos;
}

}  // namespace heddle::measure
