// Kernels that fill a block's shared memory: what a candidate reads of it without having written it
// is then no number, instead of what the kernel before happened to leave there.
#ifndef HEDDLE_MEASURE_DEVICE_FILL_SHARED_H_
#define HEDDLE_MEASURE_DEVICE_FILL_SHARED_H_

namespace heddle::measure {

inline constexpr char kFillSharedEntry[] = "heddle_fill_shared";
inline constexpr int kFillSharedThreads = 256;

// (unsigned pattern, unsigned words): writes so many words of the dynamic shared memory that it is
// launched with. Volatile, or compilers would leave out what nobody reads.
inline constexpr char kFillSharedCuda[] = R"(
extern "C" __global__ void heddle_fill_shared(unsigned pattern, unsigned words) {
  extern __shared__ volatile unsigned memory[];
  for (unsigned i = threadIdx.x; i < words; i += blockDim.x) memory[i] = pattern;
}
)";

// (__local uint* memory, uint pattern, uint words)
inline constexpr char kFillSharedOpenCl[] = R"(
__kernel void heddle_fill_shared(__local volatile uint* memory, uint pattern, uint words) {
  for (uint i = get_local_id(0); i < words; i += get_local_size(0)) memory[i] = pattern;
}
)";

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_DEVICE_FILL_SHARED_H_
