// a test
// k0_C: grid 4, block 64, shared memory 4096 bytes

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
k0_C(const float* __restrict__ g_A,
    const float* __restrict__ g_B,
    float* __restrict__ g_C) {
  const int v_block = blockIdx.x;
  const int v_thread = threadIdx.x;
  __shared__ __align__(16) unsigned char arena[4096];
  float* const s_A_shared = (float*)arena;
  float* const s_B_shared = (float*)(arena + 2048);
  float r_T[16];
  #pragma unroll
  for (int v_i = 0; v_i < 4; ++v_i) {
    #pragma unroll
    for (int v_j = 0; v_j < 4; ++v_j) {
      r_T[v_i * 4 + v_j] = 0.0f;
    }
  }
  async_copy<16>(&s_A_shared[v_thread * 4], &g_A[(v_block / 2) * 1280 + (v_thread / 2) * 40 + (v_thread % 2) * 4]);
  async_copy<16>(&s_B_shared[v_thread * 4], &g_B[(v_thread / 8) * 64 + (v_block % 2) * 32 + (v_thread % 8) * 4]);
  async_commit();
  for (int v_k_o = 0, v_k_buffer = 0; v_k_o < 5; ++v_k_o, v_k_buffer = v_k_buffer == 1 ? 0 : v_k_buffer + 1) {
    async_wait<0>();
    __syncthreads();
    if (v_k_o + 1 < 5) {
      async_copy<16>(&s_A_shared[v_thread * 4 - v_k_buffer * 256 + 256], &g_A[(v_block / 2) * 1280 + (v_thread / 2) * 40 + v_k_o * 8 + (v_thread % 2) * 4 + 8]);
      async_copy<16>(&s_B_shared[v_thread * 4 - v_k_buffer * 256 + 256], &g_B[v_k_o * 512 + (v_thread / 8) * 64 + (v_block % 2) * 32 + (v_thread % 8) * 4 + 512]);
      async_commit();
    }
    const float* const p_A_shared = &s_A_shared[v_k_buffer * 256 + (v_thread / 8) * 32];
    const float* const p_B_shared = &s_B_shared[v_k_buffer * 256 + (v_thread % 8) * 4];
    #pragma unroll
    for (int v_k_i = 0; v_k_i < 8; ++v_k_i) {
      #pragma unroll
      for (int v_i = 0; v_i < 4; ++v_i) {
        #pragma unroll
        for (int v_j = 0; v_j < 4; ++v_j) {
          r_T[v_i * 4 + v_j] += p_A_shared[v_i * 8 + v_k_i] * p_B_shared[v_k_i * 32 + v_j];
        }
      }
    }
  }
  float* const p_C = &g_C[(v_block / 2) * 2048 + (v_thread / 8) * 256 + (v_block % 2) * 32 + (v_thread % 8) * 4];
  #pragma unroll
  for (int v_i = 0; v_i < 4; ++v_i) {
    *(float4*)&p_C[v_i * 64] = make_float4(nan_max_f32(r_T[v_i * 4], 0.0f), nan_max_f32(r_T[v_i * 4 + 1], 0.0f), nan_max_f32(r_T[v_i * 4 + 2], 0.0f), nan_max_f32(r_T[v_i * 4 + 3], 0.0f));
  }
}
