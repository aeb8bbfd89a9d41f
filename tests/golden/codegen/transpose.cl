// a test
// k0_B: grid 6, block 256, shared memory 4224 bytes

#pragma OPENCL FP_CONTRACT ON

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void k0_B(__global const float* restrict g_A,
    __global float* restrict g_B) {
  const int v_block = get_group_id(0);
  const int v_thread = get_local_id(0);
  __local __attribute__((aligned(16))) uchar arena[4224];
  __local float* const s_A_shared = (__local float*)arena;
  // A.shared: 32 x 32, one padding element a row
  #pragma unroll
  for (int v_e = 0; v_e < 4; ++v_e) {
    s_A_shared[v_e * 264 + (v_thread / 32) * 33 + (v_thread % 32)] = g_A[(v_block / 3) * 3072 + v_e * 768 + (v_thread / 32) * 96 + (v_block % 3) * 32 + (v_thread % 32)];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  #pragma unroll
  for (int v_e = 0; v_e < 4; ++v_e) {
    g_B[(v_block % 3) * 2048 + v_e * 512 + (v_thread / 32) * 64 + (v_block / 3) * 32 + (v_thread % 32)] = s_A_shared[(v_thread % 32) * 33 + v_e * 8 + (v_thread / 32)];
  }
}
