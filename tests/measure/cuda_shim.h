// Lets g++ compile generated CUDA C++ and run it on CPU threads, so that ThreadSanitizer can look
// for missing barriers. Blocks run one after another, the threads of a block at the same time.
#ifndef HEDDLE_TESTS_MEASURE_CUDA_SHIM_H_
#define HEDDLE_TESTS_MEASURE_CUDA_SHIM_H_

#include <atomic>
#include <barrier>
#include <bit>
#include <cmath>
#include <thread>
#include <vector>

#define __global__
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))

struct ShimIndex {
  unsigned x;
};
inline thread_local ShimIndex threadIdx, blockIdx;
inline ShimIndex gridDim;
inline std::barrier<>* shim_barrier = nullptr;
inline void __syncthreads() { shim_barrier->arrive_and_wait(); }

struct alignas(8) float2 {
  float x, y;
};
struct alignas(16) float4 {
  float x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline float __int_as_float(int bits) { return std::bit_cast<float>(bits); }
inline int __float_as_int(float value) { return std::bit_cast<int>(value); }
inline double __longlong_as_double(long long bits) { return std::bit_cast<double>(bits); }
inline long long __double_as_longlong(double value) { return std::bit_cast<long long>(value); }
inline double __ddiv_rn(double a, double b) { return a / b; }
inline float rsqrtf(float x) { return 1 / std::sqrt(x); }

inline void atomicAdd(unsigned long long* to, unsigned long long value) {
  std::atomic_ref(*to).fetch_add(value);
}
inline void atomicMax(unsigned long long* to, unsigned long long value) {
  std::atomic_ref shared(*to);
  unsigned long long seen = shared;
  while (seen < value && !shared.compare_exchange_weak(seen, value)) {
  }
}

template <typename Kernel>
void ShimLaunch(unsigned grid, unsigned block, Kernel kernel) {
  gridDim.x = grid;
  for (unsigned b = 0; b < grid; ++b) {
    std::barrier<> barrier(block);
    shim_barrier = &barrier;
    std::vector<std::thread> threads;
    for (unsigned t = 0; t < block; ++t) {
      threads.emplace_back([=] {
        threadIdx.x = t;
        blockIdx.x = b;
        kernel();
      });
    }
    for (std::thread& thread : threads) thread.join();
  }
}

#endif  // HEDDLE_TESTS_MEASURE_CUDA_SHIM_H_
