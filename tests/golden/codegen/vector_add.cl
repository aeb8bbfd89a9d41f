// a test
// k0_C: grid 8, block 128, shared memory 0 bytes

#pragma OPENCL FP_CONTRACT ON

__kernel __attribute__((reqd_work_group_size(128, 1, 1)))
void k0_C(__global const float* restrict A,
    __global const float* restrict B,
    __global float* restrict C) {
  const int block = get_group_id(0);
  const int thread = get_local_id(0);
  const float4 A_vector = *(__global const float4*)&A[block * 512 + thread * 4];
  const float4 B_vector = *(__global const float4*)&B[block * 512 + thread * 4];
  *(__global float4*)&C[block * 512 + thread * 4] = (float4)(A_vector.x + B_vector.x, A_vector.y + B_vector.y, A_vector.z + B_vector.z, A_vector.w + B_vector.w);
}
