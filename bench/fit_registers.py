"""Fits the weights of tuner/model/analytic/register_estimate.cc to what `bench/registers` printed; needs scipy.

    python3 bench/fit_registers.py kernels.jsonl

Every second kernel of each family is fitted to, the others judge; then, with each operator left out
of the fit in turn, how well its own kernels are estimated.
"""
import json
import sys

import numpy as np
from scipy.optimize import minimize

# Half of a kernel's cost is a step where the estimate is 17 % off, as what counts is the share of
# kernels within 20 %; the rest leads there.
STEP, SLOPE = 0.17, 0.03

# Where the search begins: a register a value, a few for addresses and around them.
START = {False: [10, 1, 0, 0, 0, 0] + [5, 2, 1, 1, 30, 0], True: [0, 1, 0.5, 1, 2, 2] + [30, 1, 1, 1, 10, 0.1]}


class Family:
    def __init__(self, kernels):
        self.kernels = kernels
        get = lambda name: np.array([k[name] for k in kernels], float)
        self.reported, self.share, self.limit = get("registers"), get("share"), get("limit")
        terms = np.hstack([get("least"), get("most")])
        self.used = terms.any(axis=0)
        self.terms = terms[:, self.used]
        self.split = int(self.used[:6].sum())

    def estimate(self, w):
        least = self.terms[:, : self.split] @ w[: self.split]
        most = self.terms[:, self.split :] @ w[self.split :]
        demand = np.maximum(least, np.minimum(most, self.share))
        return np.maximum(np.minimum(demand, self.limit), 1)

    def fit(self, chosen, start, tries):
        def loss(w):
            off = np.abs(np.log(self.estimate(w) / self.reported))[chosen]
            return np.mean(np.minimum(off, 0.6) + 0.5 / (1 + np.exp((STEP - off) / SLOPE)))

        rng, best = np.random.default_rng(1), None
        for attempt in range(tries):
            w = start if attempt == 0 else best.x * (1 + rng.normal(0, 0.3, len(start)))
            found = minimize(loss, w, method="Nelder-Mead",
                             options=dict(maxiter=2500, maxfev=2500, adaptive=True))
            best = found if best is None or found.fun < best.fun else best
        return best.x


def report(name, off):
    print(f"| {name} | {len(off)} | {np.mean(off <= .1):.0%} | {np.mean(off <= .2):.0%} "
          f"| {np.median(off):.0%} | {np.quantile(off, .9):.0%} |")


def main():
    kernels = [json.loads(line) for line in open(sys.argv[1])]
    fitted, judged, left_out = [], [], {}
    for tiled in (False, True):
        family = Family([k for k in kernels if k["tiled"] == tiled])
        half = np.arange(len(family.kernels)) % 2 == 0
        weights = family.fit(half, np.array(START[tiled], float)[family.used], 24)
        all_weights = np.zeros(12)
        all_weights[family.used] = weights
        print("tiled" if tiled else "others", "least", np.round(all_weights[:6], 2).tolist(),
              "most", np.round(all_weights[6:], 2).tolist())
        off = np.abs(family.estimate(weights) / family.reported - 1)
        fitted.append(off[half])
        judged.append(off[~half])
        ops = np.array([k["op"] for k in family.kernels])
        for op in sorted(set(ops)):
            without = family.fit(ops != op, weights, 1)
            off = np.abs(family.estimate(without) / family.reported - 1)[ops == op]
            left_out.setdefault(op, []).append(off)
    report("fitted", np.concatenate(fitted))
    report("judged", np.concatenate(judged))
    report("left-out operators", np.concatenate([o for op in left_out.values() for o in op]))
    for op, off in left_out.items():
        report(op, np.concatenate(off))


main()
