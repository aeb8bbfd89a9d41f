"""Calls of registered CUDA kernels that go past PyTorch's dispatcher, and those that must not: on PyTorch's tensors in
the processor's memory, with the driver library that writes down what it is asked."""

import copy
import ctypes
import os
import unittest
import unittest.mock

from support import Case, manifest, skip

try:
    import torch
    from torch._subclasses.fake_tensor import FakeTensor, FakeTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx
    from torch.overrides import TorchFunctionMode
    from torch.utils._python_dispatch import TorchDispatchMode

    guards = torch._C._dynamo.guards
except (ImportError, AttributeError) as error:
    skip(f"python-torch: {error} (pip install 'torch>=2.4')")

import heddle
from heddle import _arrays, _cuda

_cuda.LIBRARY = os.environ["HEDDLE_FAKE_CUDA"]
FAKE = ctypes.CDLL(_cuda.LIBRARY)
FAKE.fake_log.restype = ctypes.c_char_p
for name in (b"k0_C", b"k1_C"):
    FAKE.fake_kernel(name, 2)


class Seen:
    """What modes and subclasses note."""

    def __init__(self):
        super().__init__()
        self.names = []

    def note(self, function, arguments, named):
        self.names.append(str(function))
        return function(*arguments, **(named or {}))


class Dispatches(Seen, TorchDispatchMode):
    def __torch_dispatch__(self, function, types, arguments=(), named=None):
        return self.note(function, arguments, named)


class Functions(Seen, TorchFunctionMode):
    def __torch_function__(self, function, types, arguments=(), named=None):
        return self.note(function, arguments, named)


class Subclass(torch.Tensor):
    names: list[str] = []  # noqa: RUF012

    @classmethod
    def __torch_function__(cls, function, types, arguments=(), named=None):
        cls.names.append(str(function))
        return super().__torch_function__(function, types, arguments, named or {})


numbers = iter(range(1000))


class Dispatch(Case):
    def setUp(self):
        super().setUp()
        FAKE.fake_clear()
        _cuda._drivers.clear()
        self.calls = 0

        def on_the_processor(tensors, device, before=_arrays.Tensors.__init__):
            before(tensors, "cpu")

        for owner, attribute, value in (
            (torch._C, "_cuda_getDevice", lambda: 0),
            (torch._C, "_cuda_getCurrentRawStream", lambda index: 50),
            (guards, "_empty_strided_cuda", guards._empty_strided_cpu),
            (_arrays.Tensors, "__init__", on_the_processor),
        ):
            patch = unittest.mock.patch.object(owner, attribute, value, create=True)
            patch.start()
            self.addCleanup(patch.stop)
        self.f = heddle.load(manifest(self.folder / "x"))
        self.f.device = "cpu"  # for which it is registered
        context = _cuda.Current(_cuda.driver(), 1100)  # as torch has it
        context.__enter__()
        self.addCleanup(context.__exit__)
        self.name = f"pair{next(numbers)}"
        self.op = self.f.register(f"heddle_dispatch::{self.name}")
        self.a, self.b = torch.randn(4, 8), torch.randn(4, 8)

    def past(self, *inputs, **named):
        """How often the kernel was called past the dispatcher, and the result."""
        before, count = self.op.heddle_quick, []

        def quick(*given):
            result = before(*given)
            count.append(result is not None)
            return result

        with unittest.mock.patch.object(self.op, "heddle_quick", quick):
            result = self.op(*inputs, **named)
        return sum(count), result

    def launches(self):
        count = FAKE.fake_log().decode().count("cuLaunchKernelEx")
        FAKE.fake_clear()
        return count

    def test_what_is_as_before_is_called_at_once(self):
        self.assertEqual(self.past(self.a, self.b)[0], 0, "the first call is the dispatcher's")
        self.launches()
        calls, out = self.past(self.a, self.b)
        self.assertEqual((calls, self.launches()), (1, 2))
        self.assertEqual((tuple(out.shape), out.dtype), ((4, 8), torch.float32))
        with torch.no_grad():
            self.assertEqual(self.past(self.a, self.b)[0], 1)
        self.assertIs(getattr(torch.ops.heddle_dispatch, self.name), self.op)
        self.assertIs(copy.deepcopy(self.op), self.op)
        self.assertEqual(str(self.op.default), f"heddle_dispatch.{self.name}.default")

    def test_what_is_not_is_the_dispatcher_s(self):
        a, b = self.a, self.b
        self.op(a, b)
        self.assertEqual(self.past(A=a, B=b)[0], 0)
        self.assertEqual(self.past(a, B=b)[0], 0)
        for wrong in ((a,), (a, b, b), ()):
            with self.assertRaises((TypeError, RuntimeError)):
                self.past(*wrong)
        for wrong, message in (
            (b.double(), "input B.*given float64"),
            (b.t().contiguous().t(), "input B.*strides"),
            (b.clone().requires_grad_(), "input B.*requires a gradient"),
            (torch.randn(40)[1:33].view(4, 8), "input B.*multiple of 16"),
        ):
            with self.assertRaisesRegex(heddle.TensorError, message):
                self.past(a, wrong)
        with torch.inference_mode():
            self.op(a, b)
        with torch.autocast("cpu"):
            self.assertEqual(self.past(a, b)[0], 0)
        counts = []
        torch.vmap(lambda a, b: counts.append(self.past(a, b)[0]) or a)(a.expand(3, 4, 8), b.expand(3, 4, 8))
        torch.jit.trace(lambda a: counts.append(self.past(a, b)[0]) or a, (a,), check_trace=False)
        torch.func.functionalize(lambda a: counts.append(self.past(a, b)[0]) or a)(a)
        self.assertEqual({*counts}, {0})
        self.assertEqual(self.past(a, b)[0], 1)

    def test_modes_and_subclasses_see_it(self):
        a, b = self.a, self.b
        self.op(a, b)
        for mode in (Dispatches(), Functions()):
            with mode:
                self.op(a, b)
            self.assertTrue(any(self.name in seen for seen in mode.names), mode.names)
        special = a.as_subclass(Subclass)
        self.f(special, b)
        for _ in range(2):
            Subclass.names.clear()
            self.assertEqual(self.past(special, b)[0], 0)
            self.assertTrue(any(self.name in seen for seen in Subclass.names))
        with FakeTensorMode() as mode:
            calls, out = self.past(mode.from_tensor(a), mode.from_tensor(b))
        self.assertEqual((calls, type(out)), (0, FakeTensor))
        with torch.profiler.profile() as profile:
            self.past(a, b)
        self.assertTrue(any(self.name in event.key for event in profile.key_averages()))
        self.assertEqual(self.past(a, b)[0], 1)

    def test_it_is_in_graphs(self):
        a, b = self.a, self.b
        self.op(a, b)
        traced = make_fx(lambda a, b: self.op(a, b) + 1)(a, b)
        self.assertIn(self.op.default, [node.target for node in traced.graph.nodes])
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        compiled = torch.compile(lambda a, b: self.op(a * 2, b) + 1, backend=backend, fullgraph=True)
        self.launches()
        for _ in range(3):
            compiled(a, b)
        (graph,) = graphs
        self.assertTrue(any(node.target in (self.op, self.op.default) for node in graph.graph.nodes))
        self.assertEqual(self.launches(), 6)
        exported = torch.export.export(Calls(self.op), (a, b))
        self.assertIn(self.op.default, [node.target for node in exported.graph.nodes])
        # What the kernel computes the driver library does not, so that values are not compared.
        torch.library.opcheck(
            self.op.default, (a, b), test_utils=("test_schema", "test_faketensor", "test_autograd_registration")
        )

    def test_what_a_mode_s_call_was_like_says_nothing_of_others(self):
        with Dispatches():
            self.f(self.a, self.b)
        self.assertFalse(self.f._repeat.learned)
        self.f(self.a.as_subclass(Subclass), self.b)
        self.assertFalse(self.f._repeat.learned)
        self.f(self.a, self.b)
        self.assertTrue(self.f._repeat.learned)

    def test_views_that_are_yet_to_be_negated(self):
        negated = torch._neg_view(self.b)
        for _ in range(2):
            with self.assertRaisesRegex(heddle.TensorError, r"input B.*yet to be negated.*B\.resolve_neg\(\)"):
                self.f(self.a, negated)
            self.f(self.a, self.b)
        self.assertEqual(self.past(self.a, negated)[0], 0)  # the dispatcher negates it


class Calls(torch.nn.Module):
    def __init__(self, op):
        super().__init__()
        self.op = op

    def forward(self, a, b):
        return self.op(a, b)


if __name__ == "__main__":
    unittest.main()
