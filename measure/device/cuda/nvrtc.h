// CUDA C++ source to machine code with NVRTC, which is found at run time and needs neither a GPU
// nor a driver.
#ifndef HEDDLE_MEASURE_DEVICE_CUDA_NVRTC_H_
#define HEDDLE_MEASURE_DEVICE_CUDA_NVRTC_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace heddle::measure {

// What a kernel needs of the device, as ptxas reports it.
struct KernelResources {
  int registers = 0;                // a thread
  int64_t stack_bytes = 0;          // local memory a thread, spills included
  int64_t spill_bytes = 0;          // stored to and loaded from local memory, a thread
  int64_t static_shared_bytes = 0;  // a block
  // Instructions of warpgroups wait for one another: right, but slow.
  bool serialized = false;
};

struct CudaBinary {
  std::string cubin;
  std::string ptx;
  KernelResources resources;  // the largest over the source's kernels
  std::string log;            // the compiler's, warnings included
};

// The options Compile uses besides the architecture; part of an artefact's manifest. No fast-math:
// multiply-adds contract, everything else is IEEE or the precise library form.
const std::vector<std::string>& CudaCompileOptions();

// Compiles one translation unit for one architecture, "sm_90". Blocks for a few hundred
// milliseconds; threads scale. InvalidArgument carries the compiler's log, or the architectures
// that this NVRTC knows. Unavailable: there is no NVRTC; the message says where it was looked for
// and how to get it.
absl::StatusOr<CudaBinary> CompileCuda(const std::string& source, const std::string& name,
                                       const std::string& arch);

// The library in use. Unavailable as for CompileCuda.
struct NvrtcInfo {
  int major = 0, minor = 0;
  std::string path;
  std::string build;               // DynLib::build
  std::vector<int> architectures;  // 80, 90, ...
};
absl::StatusOr<NvrtcInfo> FindNvrtc();
// "NVRTC 13.0 (build 65be0db342ad51a0)": a compiler as environments and kernel caches know it.
std::string NameOf(const NvrtcInfo& info);

// Files to try for the library `stem` ("libnvrtc.so") of the CUDA toolkit, best first: the
// environment variable `override_variable`, the loader's own path, $CUDA_HOME, /usr/local/cuda, and
// the packages that Python's installer puts into site-packages.
std::vector<std::string> CudaLibraryCandidates(const std::string& stem,
                                               const std::string& override_variable);

// "ptxas info: Used 32 registers, ..." lines of a compiler's log.
KernelResources ParseResources(const std::string& log);

// Machine code as text, by nvdisasm or cuobjdump from $PATH, $CUDA_HOME/bin or /usr/local/cuda/bin.
// NotFound says how to get one of them.
absl::StatusOr<std::string> Disassemble(const std::string& cubin);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_CUDA_NVRTC_H_
