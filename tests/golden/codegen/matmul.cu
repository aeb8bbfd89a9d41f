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
  float r_A_next[4];
  float r_B_next[4];
  #pragma unroll
  for (int v_i = 0; v_i < 4; ++v_i) {
    #pragma unroll
    for (int v_j = 0; v_j < 4; ++v_j) {
      r_T[v_i * 4 + v_j] = 0.0f;
    }
  }
  const float4 x_A = *(const float4*)&g_A[(v_block / 2) * 1280 + (v_thread / 2) * 40 + (v_thread % 2) * 4];
  r_A_next[0] = x_A.x;
  r_A_next[1] = x_A.y;
  r_A_next[2] = x_A.z;
  r_A_next[3] = x_A.w;
  const float4 x_B = *(const float4*)&g_B[(v_thread / 8) * 64 + (v_block % 2) * 32 + (v_thread % 8) * 4];
  r_B_next[0] = x_B.x;
  r_B_next[1] = x_B.y;
  r_B_next[2] = x_B.z;
  r_B_next[3] = x_B.w;
  *(float4*)&s_A_shared[v_thread * 4] = make_float4(r_A_next[0], r_A_next[1], r_A_next[2], r_A_next[3]);
  *(float4*)&s_B_shared[v_thread * 4] = make_float4(r_B_next[0], r_B_next[1], r_B_next[2], r_B_next[3]);
  __syncthreads();
  for (int v_k_o = 0, v_k_buffer = 0; v_k_o < 5; ++v_k_o, v_k_buffer = v_k_buffer == 1 ? 0 : v_k_buffer + 1) {
    if (v_k_o + 1 < 5) {
      const float4 x_A_2 = *(const float4*)&g_A[(v_block / 2) * 1280 + (v_thread / 2) * 40 + v_k_o * 8 + (v_thread % 2) * 4 + 8];
      r_A_next[0] = x_A_2.x;
      r_A_next[1] = x_A_2.y;
      r_A_next[2] = x_A_2.z;
      r_A_next[3] = x_A_2.w;
      const float4 x_B_2 = *(const float4*)&g_B[v_k_o * 512 + (v_thread / 8) * 64 + (v_block % 2) * 32 + (v_thread % 8) * 4 + 512];
      r_B_next[0] = x_B_2.x;
      r_B_next[1] = x_B_2.y;
      r_B_next[2] = x_B_2.z;
      r_B_next[3] = x_B_2.w;
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
    if (v_k_o + 1 < 5) {
      *(float4*)&s_A_shared[v_thread * 4 - v_k_buffer * 256 + 256] = make_float4(r_A_next[0], r_A_next[1], r_A_next[2], r_A_next[3]);
      *(float4*)&s_B_shared[v_thread * 4 - v_k_buffer * 256 + 256] = make_float4(r_B_next[0], r_B_next[1], r_B_next[2], r_B_next[3]);
    }
    __syncthreads();
  }
  float* const p_C = &g_C[(v_block / 2) * 2048 + (v_thread / 8) * 256 + (v_block % 2) * 32 + (v_thread % 8) * 4];
  #pragma unroll
  for (int v_i = 0; v_i < 4; ++v_i) {
    *(float4*)&p_C[v_i * 64] = make_float4(nan_max_f32(r_T[v_i * 4], 0.0f), nan_max_f32(r_T[v_i * 4 + 1], 0.0f), nan_max_f32(r_T[v_i * 4 + 2], 0.0f), nan_max_f32(r_T[v_i * 4 + 3], 0.0f));
  }
}
