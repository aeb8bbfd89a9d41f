// a test
// k0_C: grid 4, block 64, shared memory 4096 bytes

#pragma OPENCL FP_CONTRACT ON

// The larger of two; NaN when either is NaN.
static inline float nan_max_f32(float a, float b) { return a > b || a != a ? a : b; }

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void k0_C(__global const float* restrict g_A,
    __global const float* restrict g_B,
    __global float* restrict g_C) {
  const int v_block = get_group_id(0);
  const int v_thread = get_local_id(0);
  __local __attribute__((aligned(16))) uchar arena[4096];
  __local float* const s_A_shared = (__local float*)arena;
  __local float* const s_B_shared = (__local float*)(arena + 2048);
  float r_T[16];
  #pragma unroll
  for (int v_i = 0; v_i < 4; ++v_i) {
    #pragma unroll
    for (int v_j = 0; v_j < 4; ++v_j) {
      r_T[v_i * 4 + v_j] = 0.0f;
    }
  }
  const float4 x_A = *(__global const float4*)&g_A[(v_block / 2) * 1280 + (v_thread / 2) * 40 + (v_thread % 2) * 4];
  *(__local float4*)&s_A_shared[v_thread * 4] = x_A;
  const float4 x_B = *(__global const float4*)&g_B[(v_thread / 8) * 64 + (v_block % 2) * 32 + (v_thread % 8) * 4];
  *(__local float4*)&s_B_shared[v_thread * 4] = x_B;
  for (int v_k_o = 0, v_k_buffer = 0; v_k_o < 5; ++v_k_o, v_k_buffer = v_k_buffer == 1 ? 0 : v_k_buffer + 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (v_k_o + 1 < 5) {
      const float4 x_A_2 = *(__global const float4*)&g_A[(v_block / 2) * 1280 + (v_thread / 2) * 40 + v_k_o * 8 + (v_thread % 2) * 4 + 8];
      *(__local float4*)&s_A_shared[v_thread * 4 - v_k_buffer * 256 + 256] = x_A_2;
      const float4 x_B_2 = *(__global const float4*)&g_B[v_k_o * 512 + (v_thread / 8) * 64 + (v_block % 2) * 32 + (v_thread % 8) * 4 + 512];
      *(__local float4*)&s_B_shared[v_thread * 4 - v_k_buffer * 256 + 256] = x_B_2;
    }
    #pragma unroll
    for (int v_k_i = 0; v_k_i < 8; ++v_k_i) {
      #pragma unroll
      for (int v_i = 0; v_i < 4; ++v_i) {
        #pragma unroll
        for (int v_j = 0; v_j < 4; ++v_j) {
          r_T[v_i * 4 + v_j] += s_A_shared[v_k_buffer * 256 + (v_thread / 8) * 32 + v_i * 8 + v_k_i] * s_B_shared[v_k_buffer * 256 + v_k_i * 32 + (v_thread % 8) * 4 + v_j];
        }
      }
    }
  }
  #pragma unroll
  for (int v_i = 0; v_i < 4; ++v_i) {
    *(__global float4*)&g_C[(v_block / 2) * 2048 + (v_thread / 8) * 256 + v_i * 64 + (v_block % 2) * 32 + (v_thread % 8) * 4] = (float4)(nan_max_f32(r_T[v_i * 4], 0.0f), nan_max_f32(r_T[v_i * 4 + 1], 0.0f), nan_max_f32(r_T[v_i * 4 + 2], 0.0f), nan_max_f32(r_T[v_i * 4 + 3], 0.0f));
  }
}
