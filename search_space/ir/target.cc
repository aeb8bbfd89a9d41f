#include "search_space/ir/target.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/strip.h"

namespace heddle::search_space {
namespace {

// Limits by compute capability: CUDA C++ Programming Guide, "Technical Specifications per Compute
// Capability".
struct Architecture {
  const char* arch;
  int shared_kib_per_sm;
  int shared_kib_per_block;  // with opt-in
  int threads_per_sm;
  int blocks_per_sm;
  int float32_lanes_per_sm;
  int matrix_flops_per_cycle;  // a multiprocessor's, dense, of float16 (NVIDIA's white papers)
};
constexpr Architecture kArchitectures[] = {
    {"sm_70", 96, 96, 2048, 32, 64, 1024},     {"sm_75", 64, 64, 1024, 16, 64, 1024},
    {"sm_80", 164, 163, 2048, 32, 64, 2048},   {"sm_86", 100, 99, 1536, 16, 128, 1024},
    {"sm_89", 100, 99, 1536, 24, 128, 1024},   {"sm_90", 228, 227, 2048, 32, 128, 4096},
    {"sm_100", 228, 227, 2048, 32, 128, 8192}, {"sm_120", 100, 99, 1536, 24, 128, 1024},
};

// NVIDIA's data sheets and architecture white papers: boost clock, L2, memory and its bandwidth.
// The first of an architecture is what its "sm_.." name means.
struct Gpu {
  const char* name;
  const char* device;
  const char* arch;
  int sm_count;
  double clock_ghz;
  int l2_mib;
  int memory_gib;
  double memory_gbs;
};
constexpr Gpu kGpus[] = {
    {"h100", "NVIDIA H100 80GB HBM3", "sm_90", 132, 1.980, 50, 80, 3352},
    {"h100-pcie", "NVIDIA H100 PCIe", "sm_90", 114, 1.755, 50, 80, 2039},
    {"h200", "NVIDIA H200", "sm_90", 132, 1.980, 50, 141, 4800},
    {"b200", "NVIDIA B200", "sm_100", 148, 1.965, 126, 180, 8000},
    {"a100", "NVIDIA A100-SXM4-80GB", "sm_80", 108, 1.410, 40, 80, 2039},
    {"a100-40gb", "NVIDIA A100-SXM4-40GB", "sm_80", 108, 1.410, 40, 40, 1555},
    {"a10", "NVIDIA A10", "sm_86", 72, 1.695, 6, 24, 600},
    {"a40", "NVIDIA A40", "sm_86", 84, 1.740, 6, 48, 696},
    {"rtx3090", "NVIDIA GeForce RTX 3090", "sm_86", 82, 1.695, 6, 24, 936},
    {"l4", "NVIDIA L4", "sm_89", 58, 2.040, 48, 24, 300},
    {"l40s", "NVIDIA L40S", "sm_89", 142, 2.520, 96, 48, 864},
    {"rtx4090", "NVIDIA GeForce RTX 4090", "sm_89", 128, 2.520, 72, 24, 1008},
    {"rtx5090", "NVIDIA GeForce RTX 5090", "sm_120", 170, 2.407, 96, 32, 1792},
    {"t4", "Tesla T4", "sm_75", 40, 1.590, 4, 16, 320},
    {"v100", "Tesla V100-SXM2-32GB", "sm_70", 80, 1.530, 6, 32, 900},
};

Target Describe(const Gpu& gpu) {
  const Architecture& a =
      *std::find_if(std::begin(kArchitectures), std::end(kArchitectures),
                    [&](const Architecture& row) { return std::string(row.arch) == gpu.arch; });
  Target t;
  t.name = gpu.device;
  t.arch = gpu.arch;
  t.max_shared_bytes_per_block = int64_t{a.shared_kib_per_block} << 10;
  t.shared_bytes_per_sm = int64_t{a.shared_kib_per_sm} << 10;
  t.max_threads_per_sm = a.threads_per_sm;
  t.max_blocks_per_sm = a.blocks_per_sm;
  t.sm_count = gpu.sm_count;
  t.l2_bytes = int64_t{gpu.l2_mib} << 20;
  t.memory_bytes = int64_t{gpu.memory_gib} << 30;
  t.clock_ghz = gpu.clock_ghz;
  t.peak_gflops = 2.0 * gpu.sm_count * a.float32_lanes_per_sm * gpu.clock_ghz;
  t.memory_gbs = gpu.memory_gbs;
  t.has_async_copy = t.arch != "sm_70" && t.arch != "sm_75";  // cp.async came with sm_80
  return t;
}

// A server's share of four cores with AVX-512 as PoCL describes it.
Target DescribeProcessor() {
  Target t;
  t.name = "processor with 4 cores";
  t.api = Api::kOpenCl;
  t.arch = "opencl";
  t.max_threads_per_block = t.max_threads_per_sm = 4096;
  t.max_shared_bytes_per_block = t.static_shared_bytes = t.shared_bytes_per_sm = 1 << 20;
  t.max_blocks_per_sm = 1;
  t.warp_size = 16;
  t.sm_count = 4;
  t.l2_bytes = 32 << 20;
  t.memory_bytes = int64_t{16} << 30;
  t.clock_ghz = 2.6;
  t.peak_gflops = 2.0 * 2 * 16 * 4 * t.clock_ghz;
  t.memory_gbs = 30;
  t.processor = true;
  return t;
}

}  // namespace

int CudaArch(absl::string_view arch) {
  if (!absl::ConsumePrefix(&arch, "sm_")) return 0;
  int number = 0;
  for (const char digit : arch) {
    if (!absl::ascii_isdigit(static_cast<unsigned char>(digit))) break;
    number = 10 * number + (digit - '0');
  }
  return number;
}

int CudaArch(const Target& target) { return target.api == Api::kCuda ? CudaArch(target.arch) : 0; }

bool UpdatesVectors(const Target& target) { return CudaArch(target) >= 90; }

absl::StatusOr<Target> FindTarget(const std::string& name) {
  const std::string wanted = absl::AsciiStrToLower(name);
  if (wanted == "cpu" || wanted == "opencl") return DescribeProcessor();
  for (const Gpu& gpu : kGpus) {
    if (wanted == gpu.name || wanted == gpu.arch) return Describe(gpu);
  }
  return absl::NotFoundError(
      absl::StrCat("unknown target '", name, "'; known are ", absl::StrJoin(TargetNames(), ", ")));
}

double MatrixGflops(const Target& target, DType type) {
  if (target.api != Api::kCuda) return target.peak_gflops;
  // They take as many bytes of each type in a cycle.
  const double share = 2.0 / static_cast<double>(SizeOf(type));
  // Of an architecture that is not known, more than any that is.
  double ratio = 1;
  for (const Architecture& a : kArchitectures) {
    const double of_this =
        static_cast<double>(a.matrix_flops_per_cycle) / (2 * a.float32_lanes_per_sm);
    if (target.arch == a.arch) return target.peak_gflops * of_this * share;
    ratio = std::max(ratio, of_this);
  }
  return target.peak_gflops * ratio * share;
}

std::vector<std::string> TargetNames() {
  std::vector<std::string> out;
  for (const Gpu& gpu : kGpus) out.push_back(gpu.name);
  for (const Architecture& a : kArchitectures) out.push_back(a.arch);
  out.push_back("cpu");
  return out;
}

}  // namespace heddle::search_space
