"""The real program and kernels on NumPy arrays, through PoCL."""

import copy
import json
import os
import pickle
import shutil
import subprocess
import unittest

from support import Case, require_pocl, skip

import heddle

try:
    import numpy as np
except ImportError as error:
    skip(f"python-numpy: {error} (Debian: apt install python3-numpy)")
require_pocl()

LSE = """
op lse(m, n) {
  in X[m, n]
  M[i: m] = max(j: n) X[i, j]
  S[i: m] = sum(j: n) exp(X[i, j] - M[i])
  out Y[i: m] = M[i] + log(S[i])
}
"""


def random(*shape):
    return np.random.default_rng(1).random(shape, np.float32)


class Kernels(Case):
    def test_from_tuning_to_a_result(self):
        db = heddle.connect()
        result = db.tune("gemm_relu_add", m=24, n=40, k=17, trials=1, device="opencl:0", progress=False)
        self.assertGreater(result.best_us, 0)
        f = db.kernel("gemm_relu_add", m=24, n=40, k=17, device="opencl:0")
        self.assertEqual((f.record.match, f.record.standing), ("exact", "measured"))
        self.assertEqual(f.record.steps, result.steps)
        a, b, c = random(24, 17), random(17, 40) - 0.5, random(24, 40)
        np.testing.assert_allclose(f(a, b, c), np.maximum(a @ b, 0) + c, rtol=1e-5)
        self.assertIn("__kernel", f.source)

        # Another shape: nothing, the neighbour's schedule, the default one.
        other = {"m": 48, "n": 40, "k": 17, "device": "opencl:0"}
        with self.assertRaisesRegex(heddle.NotFound, "k=17,m=48,n=40.*fallback='nearest'"):
            db.kernel("gemm_relu_add", **other)
        for fallback in ("nearest", "default"):
            g = db.kernel("gemm_relu_add", **other, fallback=fallback)
            self.assertEqual((g.record.match, g.record.time_us), (fallback, None))
            a = random(48, 17)
            np.testing.assert_allclose(g(a, b, random(48, 40)), np.maximum(a @ b, 0) + random(48, 40), rtol=1e-5)

    def test_progress_is_told_trial_by_trial(self):
        told = []
        heddle.connect().tune("vector_add", n=64, trials=2, device="opencl:0", progress=told.append)
        self.assertEqual([e.trials for e in told], [0, 1, 2, 2])
        self.assertEqual([e.state for e in told], ["RUNNING"] * 3 + ["SUCCEEDED"])
        self.assertEqual([e.best_us is None for e in told], [True, False, False, False])
        workloads = self.folder / "w.txt"
        workloads.write_text("vector_add n=64\nvector_add n=65\n")
        told.clear()
        results = heddle.connect().tune_workloads(workloads, trials=2, device="opencl:0", progress=told.append)
        # Trials of all turns are one sum.
        counts = [e.trials for e in told]
        self.assertEqual((counts, counts[-1]), (sorted(counts), sum(r.trials.total for r in results)))

    def test_events_behind_the_last_are_none(self):
        job = heddle.connect().tune("matmul", m=8, n=8, k=8, device="opencl:0", trials=1, wait=False, progress=False)
        *_, last = job.events()
        self.assertNotEqual(last.state, "RUNNING")
        self.assertEqual([*job.events(after=last.seq)], [])
        self.assertEqual([*job.events(after=last.seq + 5)], [])

    def test_an_operator_of_one_s_own_in_an_exported_folder(self):
        lse = heddle.Operator(LSE)
        self.assertEqual(lse.parameters, {"m": None, "n": None})
        folder = self.folder / "lse"
        record = heddle.connect().export(folder, lse, m=5, n=33, device="opencl:0", fallback="default")
        self.assertEqual(record.match, "default")
        f = heddle.load(folder)
        x = random(5, 33)
        expected = np.log(np.exp(x).sum(1))
        np.testing.assert_allclose(f(x), expected, rtol=1e-5)
        y = np.full(5, np.nan, np.float32)
        self.assertIs(f(x, out=y), y)
        np.testing.assert_allclose(y, expected, rtol=1e-5)
        with self.assertRaisesRegex(heddle.InvalidArgument, r"its device is opencl:N, not cuda:0"):
            heddle.load(folder, device="cuda:0")
        with self.assertRaisesRegex(heddle.DriverError, "no opencl:99"):
            heddle.load(folder, device="opencl:99")

    def test_all_that_was_tuned_is_one_tree_of_folders(self):
        def run(*words):
            command = [os.environ["HEDDLE_PROGRAM"], *map(str, words), "--device", "opencl:0"]
            return subprocess.run(command, capture_output=True, text=True, check=False)

        tree, lines = self.folder / "tree", self.folder / "w.txt"
        nothing = run("export", "--all", "--out", tree)
        self.assertEqual((nothing.returncode, tree.exists()), (3, False))
        self.assertIn("nothing was tuned on", nothing.stderr)
        for n in (1000, 1001):
            timed = run("time", "vector_add", "--shape", f"n={n}", "--default")
            self.assertEqual(timed.returncode, 0, timed.stderr)
        done = run("export", "--all", "--out", tree)
        self.assertEqual(done.returncode, 0, done.stderr)
        for entry in json.loads((tree / "index.json").read_text())["exports"]:
            f = heddle.load(tree / entry["folder"])
            self.assertEqual(f.manifest.shape, entry["shape"])
            a, b = random(entry["shape"]["n"]), random(entry["shape"]["n"])
            np.testing.assert_allclose(f(a, b), a + b)
        found = sorted(path.parent.name for path in tree.rglob("manifest.json"))
        self.assertEqual(found, ["n=1000-float32", "n=1001-float32"])
        # Of a suite those that were tuned are written, and the others told.
        lines.write_text("vector_add n=7\nvector_add n=1001 weight=3\n")
        some = run("export", "--all", "--workloads", lines, "--out", tree)
        self.assertEqual(some.returncode, 3)
        self.assertIn("no tuned schedule of vector_add n=7 ", some.stderr)
        (entry,) = json.loads((tree / "index.json").read_text())["exports"]
        self.assertEqual((entry["weight"], entry["folder"]), (3, "vector_add/n=1001-float32"))
        for words in (["vector_add", "--all"], ["--all", "--default"], ["vector_add", "--workloads", lines], []):
            self.assertEqual(run("export", *words, "--out", tree).returncode, 2, words)
        self.assertIn("choose another", run("export", "--all", "--out", self.folder).stderr)

    def test_wrong_arguments_name_the_tensor(self):
        f = heddle.connect().kernel("matmul", m=8, n=12, k=16, device="opencl:0", fallback="default")
        a, b, c = random(8, 16), random(16, 12), np.empty((8, 12), np.float32)
        place = np.empty(8 * 16 * 4 + 4, np.uint8)[4:].view(np.float32).reshape(8, 16)
        readonly = c.copy()
        readonly.flags.writeable = False
        for arguments, out, message in [
            ((a,), None, r"takes 2 inputs \(A, B\), given 1"),
            ((a.tolist(), b), None, r"input A\[8, 16\] float32: given a list"),
            ((a, b.astype(np.float64)), None, r'input B\[16, 12\] float32: given float64: pass B\.astype\("float32"\)'),
            ((a, b.astype(">f4")), None, "input B.*byte order"),
            ((a.T, b), None, r"input A.*shape \[16, 8\]"),
            ((np.asfortranarray(a), b), None, r"input A.*strides \(1, 8\), not \(16, 1\).*ascontiguousarray\(A\)"),
            ((place, b), None, "input A.*no multiple of 16 bytes"),
            ((a, b), readonly, "output C.*cannot be written"),
            ((a, b), (c, c), "has 1 outputs.*`out` 2"),
        ]:
            with self.assertRaisesRegex(heddle.TensorError, message):
                f(*arguments, out=out)
        # An output over an input, of an operator whose tensors have one shape.
        g = heddle.connect().kernel("vector_add", n=64, device="opencl:0", fallback="default")
        x = random(64)
        with self.assertRaisesRegex(heddle.TensorError, "output C.*shares memory with input B"):
            g(random(64), x, out=x)

    def test_indices_are_integers_of_32_bits(self):
        take = heddle.Operator("op take(m, v) { in I[m]: index(v), X[v] out Y[i: m] = X[I[i]] }")
        f = heddle.connect().kernel(take, m=5, v=9, device="opencl:0", fallback="default")
        x, i = random(9), np.array([3, 8, 0, 3, 1])
        np.testing.assert_array_equal(f(i.astype(np.int32), x), x[i])
        with self.assertRaisesRegex(heddle.TensorError, r"input I\[5\] int32: given int64: pass I.int\(\), .*astype"):
            f(i, x)
        # What was promised and is not kept reads another element, but nothing outside.
        np.testing.assert_array_equal(f(np.array([-1, 9, 0, 3, 1], np.int32), x), x[[0, 8, 0, 3, 1]])

    def test_what_was_compiled_is_kept(self):
        db = heddle.connect()
        chosen = {"n": 64, "device": "opencl:0", "fallback": "default"}
        first = db.kernel("vector_add", **chosen)
        before = os.stat(first.folder / "manifest.json").st_mtime_ns
        again = db.kernel("vector_add", **chosen)
        self.assertEqual(again.folder, first.folder)
        self.assertEqual(os.stat(again.folder / "manifest.json").st_mtime_ns, before)
        self.assertNotEqual(db.kernel("vector_add", **chosen | {"n": 65}).folder, first.folder)

    def test_a_copy_is_the_same_kernel_and_a_pickled_one_is_loaded_again(self):
        db = heddle.connect()
        (device,) = (d for d in db.devices() if d.id == "opencl:0")
        f = db.kernel("vector_add", n=64, device=device, fallback="default")
        self.assertIs(copy.deepcopy({"f": f})["f"], f)
        self.assertIs(copy.copy(f), f)
        text = pickle.dumps(f)
        g = pickle.loads(text)
        a, b = (np.random.rand(64).astype(np.float32) for _ in range(2))
        np.testing.assert_array_equal(g(a, b), a + b)
        self.assertEqual((g.record, g.device), (f.record, f.device))
        table = db.table("vector_add", n=[32, 64], device="opencl", dtype=np.float32)
        self.assertIs(copy.deepcopy(table), table)
        again = pickle.loads(pickle.dumps(table))
        np.testing.assert_array_equal(again(a[:40], b[:40]), a[:40] + b[:40])
        np.testing.assert_array_equal(again(*[np.ones(70, np.float32)] * 2), 2 * np.ones(70, np.float32))
        shutil.rmtree(f.folder)
        with self.assertRaisesRegex(heddle.ArtefactError, r"pickled kernel.*not here.*heddle\.load"):
            pickle.loads(text)

    def test_what_is_wrong_is_said_by_the_program(self):
        db = heddle.connect()
        with self.assertRaisesRegex(heddle.InvalidArgument, "did you mean 'matmul'"):
            db.query("matmull", m=1)
        with self.assertRaisesRegex(heddle.InvalidArgument, "2:.*expected"):
            heddle.Operator("op x(n) {\n in 3 }")
        with self.assertRaisesRegex(heddle.InvalidArgument, "defines a, b"):
            heddle.Operator("".join(f"op {n}(n) {{ in A[n] out B[i: n] = A[i] }}\n" for n in "ab"))
        with self.assertRaisesRegex(heddle.Unavailable, "opencl:99"):
            db.kernel("vector_add", n=1, device="opencl:99", fallback="default")
        for wrong in (3, None, object()):
            with self.assertRaisesRegex(heddle.InvalidArgument, "a device is"):
                db.query("vector_add", n=1, device=wrong)
        wide = heddle.Operator("op wide(n) { in X[n]: float64 out Y[i: n]: float32 = X[i] + 1 }")
        for asked in (
            lambda: db.tune("vector_add", n=8, dtype="float64", trials=1, device="opencl:0", progress=False),
            lambda: db.kernel("vector_add", n=8, dtype="float64", device="opencl:0", fallback="default"),
            lambda: db.query("vector_add", n=8, dtype="float64", device="opencl:0"),
            lambda: db.tune(wide, n=8, trials=1, device="opencl:0", progress=False),
        ):
            with self.assertRaisesRegex(heddle.InvalidArgument, "is float64: inputs and outputs are float32"):
                asked()
        with self.assertRaisesRegex(heddle.NotFound, "tune it first, or ask for fallback='default': of no other"):
            db.query("softmax", m=3, n=5, fallback="nearest", device="opencl:0")
        with self.assertRaisesRegex(heddle.ArtefactError, "no manifest.json"):
            heddle.load(self.folder)


if __name__ == "__main__":
    unittest.main()
