"""Tunes max(A B, 0) + C on the processor, watching it, and compares the kernel with NumPy.

python3 numpy_without_gpu.py [TRIALS]
"""

import sys

import numpy as np

import heddle

trials = int(sys.argv[1]) if len(sys.argv) > 1 else 64
shape = {"m": 128, "n": 128, "k": 128}

db = heddle.connect()
job = db.tune("gemm_relu_add", **shape, device="opencl:0", trials=trials, wait=False, progress=False)
for event in job.events():
    print(event.state, event.trials, "trials, best", event.best_us, "us, failed:", dict(event.failed))
print(f"{job.result().speedup:.1f} times as fast as the default schedule")

f = db.kernel("gemm_relu_add", **shape, device="opencl:0")
rng = np.random.default_rng(1)
a, b, c = (rng.standard_normal((128, 128), np.float32) for _ in range(3))
d = np.empty_like(c)
f(a, b, c, out=d)
error = np.abs(d - (np.maximum(a @ b, 0) + c)).max()
print(f"{f}: {f.record.time_us:.1f} us, largest difference from NumPy {error:.1e}")
assert error < 1e-3
