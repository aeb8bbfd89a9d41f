// a test
// k0_C: grid 8, block 128, shared memory 0 bytes

extern "C" __global__ void __launch_bounds__(128)
k0_C(const float* __restrict__ g_A,
    const float* __restrict__ g_B,
    float* __restrict__ g_C) {
  const int v_block = blockIdx.x;
  const int v_thread = threadIdx.x;
  const float4 x_A = *(const float4*)&g_A[v_block * 512 + v_thread * 4];
  const float4 x_B = *(const float4*)&g_B[v_block * 512 + v_thread * 4];
  *(float4*)&g_C[v_block * 512 + v_thread * 4] = make_float4(x_A.x + x_B.x, x_A.y + x_B.y, x_A.z + x_B.z, x_A.w + x_B.w);
}
