// a test
// k0_B: grid 6, block 256, shared memory 4224 bytes

#pragma OPENCL FP_CONTRACT ON

__kernel __attribute__((reqd_work_group_size(256, 1, 1)))
void k0_B(__global const float* restrict A,
    __global float* restrict B) {
  const int block = get_group_id(0);
  const int thread = get_local_id(0);
  __local __attribute__((aligned(16))) uchar arena[4224];
  __local float* const A_shared = (__local float*)arena;
  // A.shared: 32 x 32, one padding element a row
  #pragma unroll
  for (int e = 0; e < 4; ++e) {
    A_shared[e * 264 + (thread / 32) * 33 + (thread % 32)] = A[(block / 3) * 3072 + e * 768 + (thread / 32) * 96 + (block % 3) * 32 + (thread % 32)];
  }
  barrier(CLK_LOCAL_MEM_FENCE);
  #pragma unroll
  for (int e = 0; e < 4; ++e) {
    B[(block % 3) * 2048 + e * 512 + (thread / 32) * 64 + (block / 3) * 32 + (thread % 32)] = A_shared[(thread % 32) * 33 + e * 8 + (thread / 32)];
  }
}
