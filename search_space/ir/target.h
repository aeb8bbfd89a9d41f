// What the compiler needs to know of a device: limits that decide validity and figures that decide
// speed. A Target is plain data, so that schedules can be looked at where the device is not.
#ifndef HEDDLE_SEARCH_SPACE_IR_TARGET_H_
#define HEDDLE_SEARCH_SPACE_IR_TARGET_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "search_space/ir/expr/expr.h"

namespace heddle::search_space {

enum class Api : uint8_t { kCuda, kOpenCl };

struct Target {
  std::string name;  // the device's own name, "NVIDIA H100 80GB HBM3"
  Api api = Api::kCuda;
  std::string arch;  // "sm_90"; "opencl"
  int64_t max_threads_per_block = 1024;
  int64_t max_shared_bytes_per_block = 48 << 10;  // with opt-in, where there is one
  int64_t static_shared_bytes = 48 << 10;         // above this, dynamic shared memory is needed
  int64_t shared_bytes_per_sm = 0;
  int64_t registers_per_sm = 65536;
  int64_t max_registers_per_thread = 255;
  int64_t max_threads_per_sm = 2048;
  int64_t max_blocks_per_sm = 32;
  int64_t max_grid = (int64_t{1} << 31) - 1;  // blocks in the x dimension
  int64_t warp_size = 32;
  int64_t sm_count = 1;
  int64_t l2_bytes = 0;
  int64_t memory_bytes = 0;
  double clock_ghz = 1;
  double peak_gflops = 0;       // float32 multiply-adds without tensor cores, counted as 2
  double memory_gbs = 0;        // device memory bandwidth, 1e9 bytes per second
  bool has_async_copy = false;  // cp.async
  // A CPU: a core (which `sm_count` counts) runs a block at a time and its threads one after
  // another, `warp_size` at a time where the compiler makes vectors of them; shared memory is
  // ordinary memory.
  bool processor = false;
};

// The most that matrix instructions of 16-bit types, or of tf32, can do, as peak_gflops; that where
// there are none.
double MatrixGflops(const Target& target, DType type = DType::kFloat16);

// The number in the name of one of CUDA's architectures, 90 of "sm_90a"; 0 of any other, and of
// targets of other APIs.
int CudaArch(absl::string_view arch);
int CudaArch(const Target& target);

// Has it instructions that add to several float32 side by side in global memory
// (red.global.add.v4.f32)?
bool UpdatesVectors(const Target& target);

// Descriptions of common GPUs that ship with the program: "h100", "a100", ..., and "sm_90" style
// names for the most common GPU of that architecture; "cpu" or "opencl" is a processor. NotFound
// lists the names.
absl::StatusOr<Target> FindTarget(const std::string& name);
std::vector<std::string> TargetNames();

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_TARGET_H_
