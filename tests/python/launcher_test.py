"""run.py of exported folders, on nothing but an interpreter and a driver: a fake one of CUDA, whose kernels are C."""

import importlib.util
import json
import os
import subprocess
import sys
import unittest
import unittest.mock

from support import SOURCE, Case, skip

try:
    import numpy
except ImportError as error:
    skip(f"python-numpy: {error} (Debian: apt install python3-numpy)")

# Without the folders of packages: what a machine has on which nothing was installed.
FRESH = [sys.executable, "-I", "-S", "run.py"]

# A point that copies boxes of both matrices.
WITH_MAPS = (
    "warpgroup: swap=0 m.groups=2 n.groups=1 m.tiles=1 columns=128 k.steps=4 split_k=1 pipeline=2 in_flight=0 "
    "block_swizzle=1 min_blocks=0 bulk=1"
)

# C[m, n] = A[m, k] B[k, n] of bfloat16, as the kernel of the test's export takes it: three buffers, and maps of A and
# B. The fake driver writes the tensor's address into a map, which is all that can be seen of one.
MATMUL = """
#include <stdint.h>
#include <string.h>
static float wide(uint16_t half) {
  const uint32_t bits = (uint32_t)half << 16;
  float x;
  memcpy(&x, &bits, sizeof x);
  return x;
}
void ENTRY(void** arguments) {
  const uint16_t *a = *(uint16_t**)arguments[3], *b = *(uint16_t**)arguments[4];
  uint16_t* c = *(uint16_t**)arguments[2];
  if (a != *(uint16_t**)arguments[0] || b != *(uint16_t**)arguments[1]) return;
  for (int i = 0; i < M; ++i)
    for (int j = 0; j < N; ++j) {
      float sum = 0;
      for (int k = 0; k < K; ++k) sum += wide(a[i * K + k]) * wide(b[k * N + j]);
      uint32_t bits;
      memcpy(&bits, &sum, sizeof bits);
      c[i * N + j] = (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
    }
}
"""


def launcher():
    spec = importlib.util.spec_from_file_location("run", SOURCE / "tuner/artefact/run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Launcher(Case):
    def setUp(self):
        super().setUp()
        drivers = self.folder / "lib"
        drivers.mkdir()
        (drivers / "libcuda.so.1").symlink_to(os.environ["HEDDLE_FAKE_CUDA"])
        self.log = self.folder / "log"
        self.environment = dict(os.environ, LD_LIBRARY_PATH=str(drivers), HEDDLE_FAKE_CUDA_LOG=str(self.log))

    def export(self, *words):
        folder = self.folder / "x"
        program = [os.environ["HEDDLE_PROGRAM"], "export", *words, "--target", "h100", "--out", folder]
        said = subprocess.run(program, capture_output=True, text=True, check=False)
        if "libnvrtc" in said.stderr and "nvrtc" not in os.environ.get("HEDDLE_REQUIRE", "").split(","):
            self.skipTest(f"nvrtc: {said.stderr}")
        self.assertEqual(said.returncode, 0, said.stderr)
        return folder, json.loads((folder / "manifest.json").read_text())

    def kernels(self, folder, text):
        """Puts C functions in the place of the folder's one binary."""
        source = folder / "kernels.c"
        source.write_text(text)
        words = ["cc", "-O2", "-ffp-contract=off", "-shared", "-fPIC", "-o", folder / "k0.cubin", source]
        subprocess.run(words, check=True)

    def launch(self, folder, words=FRESH):
        return subprocess.run(words, cwd=folder, env=self.environment, capture_output=True, text=True, check=False)

    def test_nothing_but_the_driver_is_needed(self):
        sizes = {"m": 256, "n": 256, "k": 128}
        shape = ",".join(f"{k}={v}" for k, v in sizes.items())
        folder, manifest = self.export("matmul", "--dtype", "bfloat16", "--shape", shape, "--point", WITH_MAPS)
        (kernel,) = manifest["kernels"]
        names = [a if isinstance(a, str) else a["tensor_map"] for a in kernel["args"]]
        self.assertEqual(names, ["A", "B", "C", "A", "B"])
        self.assertGreater(kernel["shared_bytes"], 48 << 10)
        defines = "".join(f"#define {k.upper()} {v}\n" for k, v in sizes.items())
        self.kernels(folder, f"#define ENTRY {kernel['entry']}\n{defines}{MATMUL}")

        fresh = self.launch(folder)
        self.assertEqual(fresh.returncode, 0, fresh.stdout + fresh.stderr)
        self.assertIn("1024 values checked, 0 wrong", fresh.stdout)
        asked = self.log.read_text().splitlines()
        self.assertIn(f"cuFuncSetAttribute {kernel['entry']} 8={kernel['shared_bytes']}", asked)
        bytes_of = [2 * sizes["m"] * sizes["k"], 2 * sizes["k"] * sizes["n"], 2 * sizes["m"] * sizes["n"]]
        self.assertEqual([x for x in asked if "Alloc" in x], [f"cuMemAlloc {n}" for n in bytes_of])
        grid, block = (" ".join(map(str, kernel[x])) for x in ("grid", "block"))
        launched = f"cuLaunchKernel {kernel['entry']} <{grid}, {block}, {kernel['shared_bytes']}> on 0"
        self.assertEqual([x for x in asked if x.startswith("cuLaunchKernel")], [launched] * 21)
        maps = [x.split()[:3] + x.split(" ", 4)[4:] for x in asked if x.startswith("cuTensorMap")]
        expected = []
        for a in (a for a in kernel["args"] if isinstance(a, dict)):
            (rows, columns), (high, wide) = a["shape"], a["box"]
            swizzle = {32: 1, 64: 2, 128: 3}[a["swizzle_bytes"]]
            form = f"{columns}x{rows} by {a['strides'][0]}, {wide}x{high} of 1x1, 0 {swizzle} 0 0, 0"
            expected.append(["cuTensorMapEncodeTiled", "1", "2", form])
        self.assertEqual(maps, expected * 21)

        # What is wrong is seen: a kernel that leaves a column out.
        self.kernels(folder, f"#define ENTRY {kernel['entry']}\n{defines}{MATMUL.replace('j = 0', 'j = 1')}")
        wrong = self.launch(folder)
        self.assertEqual(wrong.returncode, 1, wrong.stderr)
        self.assertRegex(wrong.stdout, r"1024 values checked, [1-9]\d* wrong")

    def test_inputs_are_the_same_with_numpy(self):
        run = launcher()
        for low, scale in ((-1, 2), (0.25, 1)):
            check = {"input_seed": 1, "input_low": low, "input_scale": scale}
            for form in (
                *({"dtype": t} for t in ("float16", "bfloat16", "float32")),
                {"dtype": "float32", "rounds_to": "tf32"},
                {"dtype": "int32", "index_extent": 1000},
            ):
                with unittest.mock.patch.object(run, "AT_ONCE", 300):
                    with_numpy = run.input_bytes(check, 2, form, 1000)
                    with unittest.mock.patch.object(run, "numpy", None):
                        without = run.input_bytes(check, 2, form, 1000)
                self.assertEqual(len(without), 1000 * run.SIZES[form["dtype"]])
                self.assertEqual(with_numpy, without, form)
                self.assertGreater(len(set(without)), 100)

    def test_types_round_to_the_nearest(self):
        run = launcher()
        for plain in (False, True):
            with unittest.mock.patch.object(run, "numpy", None if plain else numpy):

                def stored(x, dtype):
                    memory = run.encoded(run.each("f", lambda v: v, run.numpy.array([x]) if run.numpy else [x]), dtype)
                    return run.element(memory, "float32" if dtype == "tf32" else dtype, 0)

                self.assertEqual(stored(1 + 2**-8, "bfloat16"), 1)  # ties to even
                self.assertEqual(stored(1 + 3 * 2**-8, "bfloat16"), 1 + 2**-6)
                self.assertEqual(stored(-1 - 2**-8 - 2**-20, "bfloat16"), -1 - 2**-7)
                self.assertEqual(stored(1 + 2**-11, "float16"), 1)
                self.assertEqual(stored(3 * 2.0**-26, "float16"), 2.0**-24)  # below the smallest normal number
                self.assertEqual(stored(1 + 2**-11, "tf32"), 1 + 2**-10)  # ties away from zero
                self.assertEqual(stored(1 + 2**-23, "float32"), 1 + 2**-23)

    def test_errors_of_the_driver_are_named(self):
        folder, _ = self.export("vector_add", "--shape", "n=100", "--default")
        (folder / "k0.cubin").write_bytes(b"\x7fELF" + bytes(60))
        said = self.launch(folder)
        self.assertEqual(said.returncode, 1)
        self.assertIn("RuntimeError: cuModuleLoadData: CUDA error 200", said.stderr)


if __name__ == "__main__":
    unittest.main()
