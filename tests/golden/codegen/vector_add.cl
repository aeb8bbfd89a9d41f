// a test
// k0_C: grid 8, block 128, shared memory 0 bytes

#pragma OPENCL FP_CONTRACT ON

__kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void k0_C(__global const float* restrict g_A,
    __global const float* restrict g_B,
    __global float* restrict g_C) {
  const int v_block = get_group_id(0);
  const int v_thread = get_local_id(0);
  const float4 x_A = *(__global const float4*)&g_A[v_block * 512 + v_thread * 4];
  const float4 x_B = *(__global const float4*)&g_B[v_block * 512 + v_thread * 4];
  *(__global float4*)&g_C[v_block * 512 + v_thread * 4] = (float4)(x_A.x + x_B.x, x_A.y + x_B.y, x_A.z + x_B.z, x_A.w + x_B.w);
}
