"""An operator of one's own, from its definition to a folder that needs neither database nor program.

python3 own_operator.py [TRIALS]
"""

import sys
import tempfile

import numpy as np

import heddle

trials = int(sys.argv[1]) if len(sys.argv) > 1 else 64

log_sum_exp = heddle.Operator("""
op log_sum_exp(m, n) {
  in X[m, n]
  M[i: m] = max(r: n) X[i, r]
  S[i: m] = sum(r: n) exp(X[i, r] - M[i])
  out Y[i: m] = M[i] + log(S[i])
}
""")
db = heddle.connect()
result = db.tune(log_sum_exp, m=64, n=250, device="opencl:0", trials=trials)
print(f"{result.best_us:.1f} us after {result.trials.total} trials; steps: {'; '.join(result.steps[:3])} ...")

with tempfile.TemporaryDirectory() as folder:
    db.export(folder, log_sum_exp, m=64, n=250, device="opencl:0")
    f = heddle.load(folder)
    x = np.random.default_rng(1).standard_normal((64, 250), np.float32)
    np.testing.assert_allclose(f(x), np.log(np.exp(x).sum(1)), rtol=1e-5)
    print(f"{f} agrees with NumPy")
