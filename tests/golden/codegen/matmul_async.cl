// a test
// k0_C: grid 4, block 64, shared memory 4096 bytes
// Loops: i.0 is the outermost part of i, then come i.1 and so on; i@j is i and j fused, j the faster.
// k_o is the loop k.o.

#pragma OPENCL FP_CONTRACT ON

// The larger of two; NaN when either is NaN.
static inline float nan_max_f32(float a, float b) { return a > b || a != a ? a : b; }

__kernel __attribute__((reqd_work_group_size(64, 1, 1)))
void k0_C(__global const float* restrict A,
    __global const float* restrict B,
    __global float* restrict C) {
  const int block = get_group_id(0);
  const int thread = get_local_id(0);
  __local __attribute__((aligned(16))) uchar arena[4096];
  __local float* const A_shared = (__local float*)arena;
  __local float* const B_shared = (__local float*)(arena + 2048);
  float T[16];
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      T[i * 4 + j] = 0.0f;
    }
  }
  const float4 A_vector = *(__global const float4*)&A[(block / 2) * 1280 + (thread / 2) * 40 + (thread % 2) * 4];
  *(__local float4*)&A_shared[thread * 4] = A_vector;
  const float4 B_vector = *(__global const float4*)&B[(thread / 8) * 64 + (block % 2) * 32 + (thread % 8) * 4];
  *(__local float4*)&B_shared[thread * 4] = B_vector;
  for (int k_o = 0, slot = 0; k_o < 5; ++k_o, slot = slot == 1 ? 0 : slot + 1) {
    barrier(CLK_LOCAL_MEM_FENCE);
    if (k_o + 1 < 5) {
      const float4 A_vector_b = *(__global const float4*)&A[(block / 2) * 1280 + (thread / 2) * 40 + k_o * 8 + (thread % 2) * 4 + 8];
      *(__local float4*)&A_shared[thread * 4 - slot * 256 + 256] = A_vector_b;
      const float4 B_vector_b = *(__global const float4*)&B[k_o * 512 + (thread / 8) * 64 + (block % 2) * 32 + (thread % 8) * 4 + 512];
      *(__local float4*)&B_shared[thread * 4 - slot * 256 + 256] = B_vector_b;
    }
    #pragma unroll
    for (int k_i = 0; k_i < 8; ++k_i) {
      #pragma unroll
      for (int i = 0; i < 4; ++i) {
        #pragma unroll
        for (int j = 0; j < 4; ++j) {
          T[i * 4 + j] += A_shared[slot * 256 + (thread / 8) * 32 + i * 8 + k_i] * B_shared[slot * 256 + k_i * 32 + (thread % 8) * 4 + j];
        }
      }
    }
  }
  #pragma unroll
  for (int i = 0; i < 4; ++i) {
    *(__global float4*)&C[(block / 2) * 2048 + (thread / 8) * 256 + i * 64 + (block % 2) * 32 + (thread % 8) * 4] = (float4)(nan_max_f32(T[i * 4], 0.0f), nan_max_f32(T[i * 4 + 1], 0.0f), nan_max_f32(T[i * 4 + 2], 0.0f), nan_max_f32(T[i * 4 + 3], 0.0f));
  }
}
