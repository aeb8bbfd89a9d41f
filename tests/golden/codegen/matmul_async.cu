// a test
// k0_C: grid 4, block 64, shared memory 4096 bytes
// Loops: i.0 is the outermost part of i, then come i.1 and so on; i@j is i and j fused, j the faster.
// k_o is the loop k.o.

// The larger of two; NaN when either is NaN.
static __device__ __forceinline__ float nan_max_f32(float a, float b) {
#if __CUDA_ARCH__ >= 800
  float r;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(r) : "f"(a), "f"(b));
  return r;
#else
  return a > b || a != a ? a : b;
#endif
}

// Starts copying kBytes from global to shared memory; zeros instead where `valid` is false.
template <int kBytes>
static __device__ __forceinline__ void async_copy(void* to, const void* from, bool valid) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(to);
  const int bytes = valid ? kBytes : 0;
  if (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(address),
                 "l"(__cvta_generic_to_global(from)), "r"(bytes) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(address),
                 "l"(__cvta_generic_to_global(from)), "n"(kBytes), "r"(bytes) : "memory");
  }
}
template <int kBytes>
static __device__ __forceinline__ void async_copy(void* to, const void* from) {
  const unsigned address = (unsigned)__cvta_generic_to_shared(to);
  if (kBytes == 16) {
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(address),
                 "l"(__cvta_generic_to_global(from)) : "memory");
  } else {
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(address),
                 "l"(__cvta_generic_to_global(from)), "n"(kBytes) : "memory");
  }
}
// Closes the group of copies started since the last commit.
static __device__ __forceinline__ void async_commit() { asm volatile("cp.async.commit_group;" ::: "memory"); }
// Waits until at most kPending groups of this thread are unfinished.
template <int kPending>
static __device__ __forceinline__ void async_wait() {
  asm volatile("cp.async.wait_group %0;" ::"n"(kPending) : "memory");
}

extern "C" __global__ void __launch_bounds__(64)
k0_C(const float* __restrict__ A,
    const float* __restrict__ B,
    float* __restrict__ C) {
  const int block = blockIdx.x;
  const int thread = threadIdx.x;
  __shared__ __align__(16) unsigned char arena[4096];
  float* const A_shared = (float*)arena;
  float* const B_shared = (float*)(arena + 2048);
  float T[16];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      T[i * 4 + j] = 0.0f;
    }
  }
  async_copy<16>(&A_shared[thread * 4], &A[(block / 2) * 1280 + (thread / 2) * 40 + (thread % 2) * 4]);
  async_copy<16>(&B_shared[thread * 4], &B[(thread / 8) * 64 + (block % 2) * 32 + (thread % 8) * 4]);
  async_commit();
  for (int k_o = 0, slot = 0; k_o < 5; ++k_o, slot = slot == 1 ? 0 : slot + 1) {
    async_wait<0>();
    __syncthreads();
    if (k_o + 1 < 5) {
      async_copy<16>(&A_shared[thread * 4 - slot * 256 + 256], &A[(block / 2) * 1280 + (thread / 2) * 40 + k_o * 8 + (thread % 2) * 4 + 8]);
      async_copy<16>(&B_shared[thread * 4 - slot * 256 + 256], &B[k_o * 512 + (thread / 8) * 64 + (block % 2) * 32 + (thread % 8) * 4 + 512]);
      async_commit();
    }
    const float* const A_shared_ptr = &A_shared[slot * 256 + (thread / 8) * 32];
    const float* const B_shared_ptr = &B_shared[slot * 256 + (thread % 8) * 4];
    #pragma unroll
    for (int k_i = 0; k_i < 8; ++k_i) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          T[i * 4 + j] += A_shared_ptr[i * 8 + k_i] * B_shared_ptr[k_i * 32 + j];
        }
      }
    }
  }
  float* const C_ptr = &C[(block / 2) * 2048 + (thread / 8) * 256 + (block % 2) * 32 + (thread % 8) * 4];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    *(float4*)&C_ptr[i * 64] = make_float4(nan_max_f32(T[i * 4], 0.0f), nan_max_f32(T[i * 4 + 1], 0.0f), nan_max_f32(T[i * 4 + 2], 0.0f), nan_max_f32(T[i * 4 + 3], 0.0f));
  }
}
