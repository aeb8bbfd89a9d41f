"""Launches on torch CUDA tensors: what the driver is asked, by a driver library that writes it down."""

import ctypes
import os
import subprocess
import sys
import threading
import unittest
import unittest.mock

import fake_torch

sys.modules["torch"] = fake_torch.module

from fake_torch import Device, Tensor, module  # noqa: E402
from support import Case, manifest  # noqa: E402

import heddle  # noqa: E402
from heddle import _cuda  # noqa: E402

_cuda.LIBRARY = os.environ["HEDDLE_FAKE_CUDA"]
FAKE = ctypes.CDLL(_cuda.LIBRARY)
FAKE.fake_log.restype = ctypes.c_char_p
FAKE.fake_kernel(b"k0_C", 2)
FAKE.fake_kernel(b"k1_C", 2)
FAKE.fake_kernel(b"k0_M", 3)


def asked():
    lines = FAKE.fake_log().decode().splitlines()
    FAKE.fake_clear()
    return lines


def tensors():
    return Tensor((4, 8), 0xA000), Tensor((4, 8), 0xB000)


class Cuda(Case):
    def setUp(self):
        super().setUp()
        module.made.clear()
        module.stream, module.capturing = 50, False
        _cuda._drivers.clear()
        FAKE.fake_fail(b"", 0)
        asked()

    def test_everything_is_loaded_before_the_first_call(self):
        heddle.load(manifest(self.folder / "x"))
        self.assertEqual(
            asked(),
            [
                *("cuInit 0", "cuDeviceGet 0", "cuDevicePrimaryCtxRetain 100"),
                *("cuCtxPushCurrent 1100", "cuModuleLoadData a cubin in 1100", "cuModuleGetFunction k0_C"),
                *("cuFuncLoad k0_C", "cuCtxPopCurrent 1100"),
                *("cuCtxPushCurrent 1100", "cuModuleLoadData a cubin in 1100", "cuModuleGetFunction k1_C"),
                *("cuFuncSetAttribute k1_C 8=65536", "cuFuncLoad k1_C", "cuCtxPopCurrent 1100"),
            ],
        )
        # Nothing is loaded twice, nor ever unloaded: a captured graph may still launch it.
        heddle.load(self.folder / "x")
        self.assertEqual(asked(), [])

    def test_a_call_launches_on_the_current_stream(self):
        f = heddle.load(manifest(self.folder / "x"))
        asked()
        out = f(*tensors())
        self.assertEqual(module.made, [out])
        self.assertEqual(
            asked(),
            [
                "cuCtxPushCurrent 1100",
                "cuLaunchKernelEx k0_C <3 1 1, 32 1 1, 0> on 50 in 1100: a000 100000",
                "cuLaunchKernelEx k1_C <5 2 1, 64 1 1, 65536> on 50 in 1100: b000 100000",
                "cuCtxPopCurrent 1100",
            ],
        )
        module._C._cuda_getCurrentRawStream = lambda index: 60 + index
        self.addCleanup(lambda: delattr(module._C, "_cuda_getCurrentRawStream"))
        heddle.load(self.folder / "x")(*tensors())
        self.assertIn("on 60 in", asked()[1])

    def test_with_out_nothing_is_allocated_and_nothing_but_launches_is_asked(self):
        f = heddle.load(manifest(self.folder / "x"))
        a, b = tensors()
        c = Tensor((4, 8), 0xC000)
        with _cuda.Current(_cuda.driver(), 1100):  # as torch has it
            asked()
            self.assertEqual(f(a, b, out=(c,)), (c,))
            self.assertIs(f(a, b, out=c), c)
            self.assertEqual({line.split()[0] for line in asked()}, {"cuLaunchKernelEx"})
        self.assertEqual(module.made, [])

    def test_the_context_is_not_asked_for_where_it_is_likely_to_be_there(self):
        self.with_guards()
        f = heddle.load(manifest(self.folder / "x"))
        with _cuda.Current(_cuda.driver(), 1100):
            f(*tensors())
            asked()
            with unittest.mock.patch.object(_cuda, "Current", None):
                f(*tensors())
            self.assertEqual([line.split()[0] for line in asked()], ["cuLaunchKernelEx"] * 2)
        asked()
        f(*tensors())  # as in a new thread, which has none
        self.assertEqual(
            [line.split()[0] for line in asked()],
            ["cuCtxPushCurrent", "cuLaunchKernelEx", "cuLaunchKernelEx", "cuCtxPopCurrent"],
        )

    def with_guards(self):
        """PyTorch's check in one step, and a device of its that can be changed."""
        device = [0]
        module._C._cuda_getDevice = lambda: device[0]
        module._C._dynamo = fake_torch.guards
        self.addCleanup(lambda: [delattr(module._C, name) for name in ("_cuda_getDevice", "_dynamo")])
        return device

    def test_parameters_of_a_call_without_gradients_are_refused_with_them(self):
        self.with_guards()
        f = heddle.load(manifest(self.folder / "x"))
        a, c = Tensor((4, 8), 0xA000), Tensor((4, 8), 0xC000)
        weight = Tensor((4, 8), 0xB000, requires_grad=True)
        calls = [lambda: f(a, weight), lambda: f(a, weight, out=c), lambda: f.allocating(a, weight)]
        with unittest.mock.patch.object(module, "is_grad_enabled", lambda: False):
            for call in calls:
                call()
        for call in calls:
            asked()
            with self.assertRaisesRegex(heddle.TensorError, r"input B.*requires a gradient.*B\.detach\(\)"):
                call()
            self.assertEqual(asked(), [])
        f(a, Tensor((4, 8), 0xB000))

    def test_calls_of_the_same_form_are_checked_in_one_step(self):
        device = self.with_guards()
        f = heddle.load(manifest(self.folder / "x"))
        (a, b), c = tensors(), Tensor((4, 8), 0xC000)
        with _cuda.Current(_cuda.driver(), 1100):
            f(a, b)
            # From here on nothing is looked at singly.
            single = unittest.mock.patch.object(heddle._arrays.Tensors, "address", None)
            asked()
            with single:
                out = f(Tensor((4, 8), 0xA100), b)
                self.assertIs(module.made[-1], out)
                self.assertIs(f(a, b, out=c), c)
                self.assertEqual(f(a, b, out=(c,)), (c,))
                self.assertEqual(module.written[-2:], [c, c])
            lines = [line.split(": ")[1] for line in asked()]
            self.assertEqual(lines, ["a100 101000", "b000 101000", *["a000 c000", "b000 c000"] * 2])
            # What is of another form is looked at, and refused as ever.
            for wrong, named, message in [
                ((a, Tensor((4, 8), 0xB004)), {}, "input B.*multiple of 16"),
                ((a, Tensor((8, 4), 0xB000)), {}, "input B.*shape"),
                ((a, b), {"out": Tensor((4, 8), 0xA040)}, "output C.*shares memory with input A"),
                ((a, b), {"out": (c, c)}, "`out` 2"),
                ((a,), {}, "takes 2 inputs"),
            ]:
                with self.assertRaisesRegex(heddle.TensorError, message):
                    f(*wrong, **named)
            self.assertEqual(asked(), [])
            # Beside another device there is no such step.
            device[0] = 1
            with single, self.assertRaises(TypeError):
                f(a, b)

    def test_another_device(self):
        f = heddle.load(manifest(self.folder / "x"), device="cuda:1")
        asked()
        other = Device("cuda", 1)
        out = f(*(Tensor((4, 8), p, device=other) for p in (0xA000, 0xB000)))
        self.assertEqual(str(out.device), "cuda:1")
        self.assertIn("on 1050 in 1101", asked()[1])
        with self.assertRaisesRegex(heddle.TensorError, "input A.*on cuda:0; this kernel runs on cuda:1"):
            f(*tensors())

    def test_wrong_tensors_are_named(self):
        f = heddle.load(manifest(self.folder / "x"))
        a, b = tensors()
        asked()
        for wrong, message in [
            ([0.0], "given a list, not a torch tensor"),
            (Tensor((4, 8), 0xB000, module.float64), "given float64"),
            (Tensor((8, 4), 0xB000), r"the shape \[8, 4\]"),
            (Tensor((4, 8), 0xB000, stride=(1, 4)), r"strides \(1, 4\), not \(8, 1\).*B\.contiguous\(\)"),
            (Tensor((4, 8), 0xB004), r"multiple of 16 bytes.*B\.clone\(\)"),
            (Tensor((4, 8), 0xB000, device=Device("cpu")), "on cpu; this kernel runs on cuda:0"),
            (Tensor((4, 8), 0xB000, requires_grad=True), r"gradient.*B\.detach\(\)"),
        ]:
            with self.assertRaisesRegex(heddle.TensorError, rf"input B\[4, 8\] float32: .*{message}"):
                f(a, wrong)
        for place, other in ((0xA000 + 64, "input A"), (0xB000 - 16, "input B")):
            with self.assertRaisesRegex(heddle.TensorError, f"output C.*shares memory with {other}"):
                f(a, b, out=Tensor((4, 8), place))
        self.assertEqual(asked(), [])

    def test_workspaces_belong_to_a_stream_or_a_capture(self):
        f = heddle.load(manifest(self.folder / "x", workspace=True))
        FAKE.fake_clear()
        a, b = tensors()
        c = Tensor((4, 8), 0xC000)

        def workspace():
            f(a, b, out=c)
            return next(line for line in asked() if "k1_C" in line).split(": ")[1].split()[0]

        first = workspace()
        self.assertEqual(workspace(), first)
        self.assertEqual(len(module.made), 1)
        module.stream = 51
        second = workspace()
        self.assertNotEqual(second, first)
        # A graph's replay may run beside what this stream does by then: memory of its own.
        module.capturing = True
        self.assertNotIn(workspace(), (first, second))
        module.capturing = False
        self.assertEqual(workspace(), second)

    def test_threads_do_not_share_arguments(self):
        self.threads()

    def test_threads_do_not_share_arguments_that_are_checked_in_one_step(self):
        self.with_guards()
        self.threads()

    def threads(self):
        f = heddle.load(manifest(self.folder / "x"))
        f(*tensors())
        asked()
        wanted = {(f"{0x10000 * (t + 1):x}", f"{0x10000 * (t + 1) + 0x8000:x}") for t in range(4)}

        def calls(t):
            base = 0x10000 * (t + 1)
            for _ in range(20):
                f(Tensor((4, 8), base), Tensor((4, 8), base + 0x4000), out=Tensor((4, 8), base + 0x8000))

        threads = [threading.Thread(target=calls, args=(t,)) for t in range(4)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        lines = [line for line in asked() if "k0_C" in line]
        self.assertTrue({tuple(line.split(": ")[1].split()) for line in lines} <= wanted)

    def test_errors_of_the_driver(self):
        folder = manifest(self.folder / "x")
        FAKE.fake_fail(b"cuModuleLoadData", 209)
        _cuda._drivers.clear()
        with self.assertRaisesRegex(heddle.DriverError, r"made for sm_90 \(Fake\).*cuda:0.*NO_BINARY_FOR_GPU"):
            heddle.load(folder)
        FAKE.fake_fail(b"cuLaunchKernelEx", 7)
        f = heddle.load(folder)
        with self.assertRaisesRegex(heddle.DriverError, "cuLaunchKernelEx: CUDA error 7"):
            f(*tensors())
        FAKE.fake_fail(b"", 0)
        asked()
        f(*tensors())  # the context of before is current again
        self.assertEqual(asked()[0], "cuCtxPushCurrent 1100")
        self.with_guards()
        f = heddle.load(folder)
        f(*tensors())
        with _cuda.Current(_cuda.driver(), 1100):
            FAKE.fake_fail(b"cuLaunchKernelEx", 7)
            with self.assertRaisesRegex(heddle.DriverError, "cuLaunchKernelEx: CUDA error 7"):
                f(*tensors())
            FAKE.fake_fail(b"", 0)
            f(*tensors())
        _cuda.LIBRARY, before = "/no/libcuda.so.1", _cuda.LIBRARY
        self.addCleanup(lambda: setattr(_cuda, "LIBRARY", before))
        with self.assertRaisesRegex(heddle.DriverError, "no NVIDIA driver"):
            heddle.load(folder)

    def with_map(self, number, entry, element_bytes=2):
        """A folder whose kernel of that number takes a tensor map of B, too."""
        import json

        folder = manifest(self.folder / "x")
        document = json.loads((folder / "manifest.json").read_text())
        kernel = document["kernels"][number]
        kernel["entry"] = entry
        tensor_map = {
            "tensor_map": "B",
            "element_bytes": element_bytes,
            "shape": [4, 8],
            "strides": [16],
            "box": [2, 32],
        }
        kernel["args"].append(tensor_map | {"swizzle_bytes": 64})
        (folder / "manifest.json").write_text(json.dumps(document))
        return folder

    def test_elements_of_four_bytes_are_rounded_to_tf32(self):
        f = heddle.load(self.with_map(0, "k0_M", element_bytes=4))
        asked()
        f(*tensors())
        self.assertTrue(any(line.startswith("cuTensorMapEncodeTiled 11 2 b000 8x4") for line in asked()))

    def test_tensor_maps_are_made_where_tensors_lie(self):
        f = heddle.load(self.with_map(0, "k0_M"))
        asked()
        launched = "cuLaunchKernelEx k0_M <3 1 1, 32 1 1, 0> on 50 in 1100: a000 100000 "
        made = "cuTensorMapEncodeTiled 1 2 %s 8x4 by 16, 32x2 of 1x1, 0 2 0 0, 0"
        f(*tensors())
        lines = asked()
        self.assertIn(made % "b000", lines)
        self.assertIn(launched + "b000", lines)
        f(*tensors())
        self.assertEqual([line for line in asked() if "Tensor" in line], [], "made once for a place")
        f(Tensor((4, 8), 0xA000), Tensor((4, 8), 0xC000))
        lines = asked()
        self.assertIn(made % "c000", lines)
        self.assertTrue(any("k0_M" in line and line.endswith(" c000") for line in lines), lines)
        FAKE.fake_fail(b"cuTensorMapEncodeTiled", 1)
        with self.assertRaisesRegex(heddle.DriverError, "cuTensorMapEncodeTiled of B"):
            f(*tensors())
        FAKE.fake_fail(b"", 0)
        f(*tensors())

    def test_the_header_of_a_table_has_them(self):
        from heddle import _table_header
        from heddle.artefact import Manifest

        header = _table_header.text("pair", "m", {"4": (4, Manifest.read(self.with_map(1, "k1_C")))})
        self.assertIn("{1, 2, 2, 64, {8, 4}, {16}, {32, 2}},", header)
        self.assertIn("heddle_pair_4_arguments_1, 1, heddle_pair_4_maps_1}", header)
        self.assertIn("heddle_pair_4_arguments_0, 0, NULL}", header)
        (self.folder / "t.c").write_text(header + "\nint main(void) { return heddle_pair_find(3) == NULL; }\n")
        subprocess.run(["cc", "-Wall", "-Werror", "-o", "t", "t.c"], cwd=self.folder, check=True)
        self.assertEqual(subprocess.run([self.folder / "t"], check=False).returncode, 0)

    def test_arguments_of_a_kind_that_is_not_known_are_refused(self):
        import json

        folder = manifest(self.folder / "x")
        document = json.loads((folder / "manifest.json").read_text())
        for strange in ({"sampler": "A"}, {"tensor_map": "A", "interleave": 16}, "D"):
            document["kernels"][0]["args"][0] = strange
            (folder / "manifest.json").write_text(json.dumps(document))
            with self.assertRaisesRegex(heddle.ArtefactError, "k0_C takes.*newer"):
                heddle.load(folder)


if __name__ == "__main__":
    unittest.main()
