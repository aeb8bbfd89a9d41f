"""A matrix product for any number of rows as an operator of PyTorch: on a GPU, or through OpenCL without one.

python3 pytorch_matmul.py [TRIALS]
"""

import sys

import torch

import heddle

trials = int(sys.argv[1]) if len(sys.argv) > 1 else 64
tensors, device = ("cuda", "cuda:0") if torch.cuda.is_available() else ("cpu", "opencl:0")
n, k, sizes = 96, 64, [16, 64]

db = heddle.connect()
for m in sizes:
    db.tune("matmul", m=m, n=n, k=k, device=device, trials=trials)
table = db.table("matmul", n=n, k=k, m=sizes, device=device, default=torch.matmul)
linear = table.register("example::linear")


@torch.compile(backend="aot_eager", fullgraph=True, dynamic=True)
def layer(x, w):
    return linear(x, w).relu()


w = torch.randn(k, n, device=tensors)
with torch.no_grad():
    for m in (5, 16, 33, 64):
        x = torch.randn(m, k, device=tensors)
        torch.testing.assert_close(layer(x, w), (x @ w).relu(), rtol=1e-4, atol=1e-4)
        print(f"{m} rows: the kernel for {table.bucket(m)}, {table.kernels[table.bucket(m)].record.time_us:.1f} us")
