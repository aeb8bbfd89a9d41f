"""Kernels for a size that is only known when they are called."""

import os
import subprocess
import tempfile
import unittest

from support import Case, require_pocl, skip

import heddle
from heddle.table import free_dimensions, free_parameter

try:
    import numpy as np
except ImportError as error:
    skip(f"python-numpy: {error} (Debian: apt install python3-numpy)")
require_pocl()


class Sizes(unittest.TestCase):
    def test_bucket_sizes(self):
        self.assertEqual(heddle.bucket_sizes(1), [1])
        self.assertEqual(heddle.bucket_sizes(20), [1, 2, 3, 4, 6, 8, 12, 16, 20])
        for limit in (7, 4096):
            sizes = heddle.bucket_sizes(limit)
            grown = [min(s for s in sizes if s >= m) / m for m in range(1, limit + 1)]
            self.assertLess(max(grown), 1.5)
        self.assertAlmostEqual(sum(grown) / len(grown), 1.18, places=2)
        with self.assertRaises(heddle.InvalidArgument):
            heddle.bucket_sizes(0)

    def test_one_parameter_is_free(self):
        self.assertEqual(free_parameter({"k": 3}, {"m": (8, 1, 8), "n": 2}), ({"k": 3, "n": 2}, "m", [1, 8]))
        for wrong in ({"m": 1}, {"m": [1], "n": [2]}, {"m": []}, {"m": [0, 4]}):
            with self.assertRaises(heddle.InvalidArgument):
                free_parameter({}, wrong)


class FreeDimensions(Case):
    def test_what_can_be_rounded_up(self):
        for op, parameter, free in [
            ("matmul", "m", {"A": (0,), "B": (), "C": (0,)}),
            ("matmul_tn", "m", {"A": (1,), "B": (), "C": (0,)}),
            ("batch_matmul", "b", {"A": (0,), "B": (0,), "C": (0,)}),
            ("gemm_relu_add", "n", {"A": (), "B": (1,), "C": (1,), "T": (1,), "D": (1,)}),
        ]:
            self.assertEqual(free_dimensions(heddle.Operator.builtin(op), parameter), free, op)
        softmax = free_dimensions(heddle.Operator.builtin("softmax"), "m")
        self.assertEqual((softmax["X"], softmax["Y"]), ((0,), (0,)))
        self.assertEqual(free_dimensions(heddle.Operator.builtin("conv2d"), "n")["X"], (0,))

    def test_what_cannot(self):
        own = heddle.Operator(
            "op scaled(m, n) {\n in X[m, n]\n out Y[i: m, j: n] = X[i, j] / m\n}\n"
            "op flipped(m, n) {\n in X[m, n]\n out Y[i: m, j: n] = X[m - 1 - i, j]\n}\n"
            "op grown(m, n) {\n in X[m + 1, n]\n out Y[i: m, j: n] = X[i, j] + X[i + 1, j]\n}\n"
            "op rows(m, n) {\n in X[m, n]\n out Y[i: n, j: n] = X[i, j]\n}\n"
            "op halves(m, n) {\n in X[m, n]\n out Y[i: m, j: n] = X[i / 2, j]\n}\n",
            "scaled",
        )
        operators = [heddle.Operator.from_file(own.file, n) for n in ("scaled", "flipped", "grown", "rows", "halves")]
        for operator in operators:
            with self.assertRaisesRegex(heddle.InvalidArgument, f"{operator.name} cannot be rounded up along m.*: "):
                free_dimensions(operator, "m")
        for op, parameter in [("matmul", "k"), ("softmax", "n"), ("conv2d", "h"), ("conv2d", "ci"), ("conv2d", "pad")]:
            with self.assertRaisesRegex(heddle.InvalidArgument, "cannot be rounded up"):
                free_dimensions(heddle.Operator.builtin(op), parameter)
        with self.assertRaisesRegex(heddle.InvalidArgument, "no parameter x, but m, n, k"):
            free_dimensions(heddle.Operator.builtin("matmul"), "x")


class Tables(Case):
    @classmethod
    def setUpClass(cls):
        # What was compiled for one test is what the next one loads.
        cls.cache = tempfile.TemporaryDirectory(prefix="heddle-python-")
        cls.addClassCleanup(cls.cache.cleanup)

    def setUp(self):
        super().setUp()
        os.environ["XDG_CACHE_HOME"] = self.cache.name
        rng = np.random.default_rng(1)
        self.x = rng.random((40, 24), np.float32)

    def table(self, **options):
        # Rows whose maximum is taken: what stands in the padding must not reach them.
        return heddle.connect().table("softmax", n=24, m=[4, 9], device="opencl:0", **options)

    def expected(self, m):
        e = np.exp(self.x[:m] - self.x[:m].max(1, keepdims=True))
        return e / e.sum(1, keepdims=True)

    def test_every_size_up_to_the_largest(self):
        table = self.table()
        self.assertEqual(table.sizes, (4, 9))
        for m in range(1, 10):
            self.assertEqual(table.bucket(m), 4 if m <= 4 else 9)
            result = table(self.x[:m])
            self.assertEqual(result.shape, (m, 24))
            np.testing.assert_allclose(result, self.expected(m), rtol=1e-5)
            out = np.full((m, 24), np.nan, np.float32)
            self.assertIs(table(self.x[:m], out=out), out)
            np.testing.assert_allclose(out, self.expected(m), rtol=1e-5)

    def test_beyond_the_largest_the_default_schedule_runs_and_it_is_said_once(self):
        table = self.table()
        with self.assertLogs("heddle") as logged:
            for m in (11, 11, 12):
                np.testing.assert_allclose(table(self.x[:m]), self.expected(m), rtol=1e-5)
        self.assertEqual(len(logged.output), 1)
        self.assertIn("softmax: m=11 is beyond the largest size, 9", logged.output[0])
        self.assertEqual(table.bucket(10), None)

    def test_guards_miss_to_the_default(self):
        seen = []

        def default(x, out=None):
            seen.append((x.shape, x.dtype.name, out is None))
            return "default"

        table = self.table(default=default)
        self.assertIsInstance(table(self.x[:3]), np.ndarray)
        with self.assertLogs("heddle") as logged:
            wrong = [self.x[:3].astype(np.float64), self.x[:10], np.asfortranarray(self.x[:3]), self.x[:4, :20]]
            for x in wrong:
                self.assertEqual(table(x), "default")
            self.assertEqual(table(self.x[:10], out=1), "default")
        self.assertEqual(len(logged.output), 1)
        self.assertIn(
            'input X[3, 24] float32: given float64: pass X.astype("float32"); the default runs', logged.output[0]
        )
        self.assertEqual(seen[0], ((3, 24), "float64", True))
        self.assertEqual(seen[-1], ((10, 24), "float32", False))

    def test_without_a_default_a_miss_names_the_tensor(self):
        table = self.table()
        for arguments, message in [
            ((self.x[:3].astype(np.float64),), r"input X\[3, 24\] float32: given float64"),
            ((self.x[:3, :20],), r"input X\[3, 24\].*\[3, 20\]"),
            ((), "softmax takes X of 2 dimensions"),
        ]:
            with self.assertRaisesRegex(heddle.TensorError, message):
                table(*arguments)
        with self.assertRaisesRegex(heddle.TensorError, r"output Y\[3, 24\].*\[4, 24\]"):
            table(self.x[:3], out=np.empty((4, 24), np.float32))

    def test_a_folder_with_a_header(self):
        self.table().save(self.folder / "table")
        table = heddle.load_table(self.folder / "table")
        np.testing.assert_allclose(table(self.x[:7]), self.expected(7), rtol=1e-5)
        with self.assertRaisesRegex(heddle.TensorError, "m=10 is beyond the largest size, 9"):
            table(self.x[:10])
        self.table().save(self.folder / "table")  # over an earlier one
        with self.assertRaisesRegex(heddle.InvalidArgument, "not empty"):
            self.table().save(self.folder)
        with self.assertRaisesRegex(heddle.ArtefactError, "no table"):
            heddle.load_table(self.folder)

        main = self.folder / "main.c"
        main.write_text(
            '#include <stdio.h>\n#include "table/table.h"\n'
            "int main(void) {\n"
            "  for (int m = -1; m < 12; ++m) {\n"
            "    const struct heddle_program* p = heddle_softmax_find(m);\n"
            '    printf("%d\\n", p ? (int)p->size : 0);\n'
            "  }\n"
            "  for (size_t i = 0; i < 2; ++i) {\n"
            "    const struct heddle_program* p = &heddle_softmax_programs[i];\n"
            "    for (int l = 0; l < p->launch_count; ++l) {\n"
            "      const struct heddle_launch* k = &p->launches[l];\n"
            '      printf("%s %s %s %u %u", k->entry, k->binary, k->source, k->grid[0], k->block[0]);\n'
            "      for (int a = 0; a < k->argument_count; ++a) {\n"
            '        printf(" %s:%d", p->buffers[k->arguments[a]].name, (int)p->buffers[k->arguments[a]].bytes);\n'
            "      }\n"
            '      puts("");\n    }\n  }\n  return 0;\n}\n'
        )
        strict = ["-Wall", "-Wextra", "-Wpedantic", "-Werror", "-o", str(self.folder / "main")]
        for compiler in (["g++", "-x", "c++", "-std=c++11"], ["gcc", "-std=c99"]):
            subprocess.run([*compiler, *strict, str(main)], check=True)
            lines = subprocess.run([self.folder / "main"], capture_output=True, text=True, check=True).stdout.split(
                "\n"
            )
            self.assertEqual(lines[:13], [str(table.bucket(m) or 0 if m > 0 else 0) for m in range(-1, 12)])
            launches = [
                (f"m{size}", launch, {b.name: b.bytes for b in k.manifest.buffers})
                for size, k in table.kernels.items()
                for launch in k.manifest.launches
            ]
            for line, (folder, k, size) in zip(lines[13:], launches, strict=False):
                args = " ".join(f"{a}:{size[a]}" for a in k.args)
                files = f"{folder}/{k.binary} {folder}/{k.source}"
                self.assertEqual(line, f"{k.entry} {files} {k.grid[0]} {k.block[0]} {args}")
                self.assertTrue((self.folder / "table" / folder / k.source).exists())


if __name__ == "__main__":
    unittest.main()
