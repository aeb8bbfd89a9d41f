"""Kernels as operators of PyTorch, on tensors in the processor's memory through PoCL."""

import unittest
import warnings

from support import Case, require_pocl, skip

import heddle

try:
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode
    from torch.autograd import forward_ad

    torch.library.opcheck  # noqa: B018
except (ImportError, AttributeError) as error:
    skip(f"python-torch: {error} (pip install 'torch>=2.4')")
require_pocl()

gemm = {"m": 8, "n": 12, "k": 16, "device": "opencl:0", "fallback": "default"}


class Torch(Case):
    def kernel(self):
        return heddle.connect().kernel("gemm_relu_add", **gemm)

    def tensors(self, m=8):
        torch.manual_seed(1)
        return torch.randn(m, 16), torch.randn(16, 12), torch.randn(m, 12)

    def test_tensors_of_the_processor(self):
        f = self.kernel()
        a, b, c = self.tensors()
        torch.testing.assert_close(f(a, b, c), torch.relu(a @ b) + c)
        out = torch.empty(8, 12)
        self.assertIs(f(a, b, c, out=out), out)
        torch.testing.assert_close(out, torch.relu(a @ b) + c)
        with self.assertRaisesRegex(heddle.TensorError, r"input B.*strides \(1, 16\).*B\.contiguous\(\)"):
            f(a, torch.randn(12, 16).t(), c)
        with self.assertRaisesRegex(heddle.TensorError, r"input A.*given float64: pass A\.to\(torch\.float32\)"):
            f(a.double(), b, c)
        with self.assertRaisesRegex(heddle.TensorError, r"input A.*requires a gradient.*A\.detach\(\)"):
            f(a.requires_grad_(), b, c)
        with torch.no_grad():
            f(a, b, c)

    def test_tensors_without_memory_are_refused(self):
        f = self.kernel()
        given = self.tensors()
        mode = FakeTensorMode()
        fakes = [mode.from_tensor(tensor) for tensor in given]
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with self.assertRaisesRegex(heddle.TensorError, r"input A.*FakeTensor without memory.*register\(\)"):
                f(*fakes)
            with self.assertRaisesRegex(heddle.TensorError, r"input B.*FakeTensor without memory"):
                f(given[0], *fakes[1:])
            with self.assertRaisesRegex(heddle.TensorError, r"output D.*FakeTensor without memory"):
                f(*given, out=mode.from_tensor(torch.empty(8, 12)))
            with self.assertRaisesRegex(heddle.TensorError, r"input A.*without memory.*transforms"):
                torch.vmap(lambda a: f(a, *given[1:]))(torch.randn(3, 8, 16))

    def test_what_would_be_differentiated_is_refused(self):
        table = heddle.connect().table("matmul", n=12, k=16, m=[4, 8], device="opencl:0")
        x, w, c = self.tensors()
        for name, op, rest in (
            ("kernel", self.kernel().register("heddle_test::differentiated"), (w, c)),
            ("table", table.register("heddle_test::differentiated_table"), (w,)),
        ):

            def f(x, op=op, rest=rest):
                return op(x, *rest)

            with self.subTest(name):
                for how in (
                    lambda f=f: torch.func.grad(lambda x: f(x).sum())(x),
                    lambda f=f: torch.func.vjp(f, x),
                    lambda f=f: f(x.clone().requires_grad_()),
                ):
                    with self.assertRaisesRegex(heddle.TensorError, "input A.*requires a gradient"):
                        how()
                with self.assertRaisesRegex(heddle.TensorError, "input A.*tangent"):
                    torch.func.jvp(f, (x,), (x,))
                with forward_ad.dual_level(), self.assertRaisesRegex(heddle.TensorError, "input A.*tangent"):
                    f(forward_ad.make_dual(x, x))
                torch.testing.assert_close(torch.vmap(f)(x[None])[0], f(x))
                torch.library.opcheck(op.default, (x, *rest))
        with self.assertRaisesRegex(heddle.InvalidArgument, "already"):
            self.kernel().register("heddle_test::differentiated")

    def test_an_operator(self):
        op = self.kernel().register("heddle_test::gemm")
        a, b, c = self.tensors()
        expected = torch.relu(a @ b) + c
        torch.testing.assert_close(torch.ops.heddle_test.gemm(a, b, c), expected)
        torch.library.opcheck(op.default, (a, b, c))
        compiled = torch.compile(lambda a, b, c: op(a, b, c).sin(), backend="aot_eager", fullgraph=True)
        torch.testing.assert_close(compiled(a, b, c), expected.sin())
        with self.assertRaisesRegex(heddle.TensorError, r"input A\[8, 16\].* requires a gradient"):
            op(a.clone().requires_grad_(), b, c)
        with self.assertRaisesRegex(Exception, "requires a gradient"):
            compiled(a.clone().requires_grad_(), b, c)
        with self.assertRaisesRegex(Exception, r"input A\[8, 16\] float32: given float64"):
            torch.compile(lambda a: op(a, b, c), backend="aot_eager", fullgraph=True)(a.double())
        for wrong in ("gemm", "a::b::c", "a::"):
            with self.assertRaisesRegex(heddle.InvalidArgument, "NAMESPACE::NAME"):
                self.kernel().register(wrong)

    def test_parameters_of_a_compiled_function_s_call_without_gradients_are_refused_with_them(self):
        op = self.kernel().register("heddle_test::gemm_of_parameters")
        a, b, c = self.tensors()
        weight = torch.nn.Parameter(b)
        for backend in ("eager", "aot_eager"):
            torch._dynamo.reset()
            compiled = torch.compile(lambda a, b, c: op(a, b, c) * 2, backend=backend, fullgraph=True)
            with torch.no_grad():
                torch.testing.assert_close(compiled(a, weight, c), 2 * (torch.relu(a @ b) + c))
            with self.assertRaisesRegex(Exception, r"input B\[16, 12\].* requires a gradient"):
                compiled(a, weight, c)
            with self.assertRaisesRegex(Exception, r"input B\[16, 12\].* requires a gradient"):
                compiled(a, b.clone().requires_grad_() * 2, c)

    def test_devices_and_types_of_pytorch(self):
        f = heddle.connect().kernel("gemm_relu_add", **gemm | {"device": torch.device("cpu"), "dtype": torch.float32})
        self.assertEqual((f.device, f.manifest.dtype), ("opencl:0", "float32"))
        with self.assertRaisesRegex(heddle.Unavailable, "cuda:7"):
            heddle.connect().kernel("gemm_relu_add", **gemm | {"device": torch.device("cuda:7")})
        with self.assertRaisesRegex(heddle.InvalidArgument, "cuda:0.*torch.device"):
            heddle.connect().kernel("gemm_relu_add", **gemm | {"device": torch.device("meta")})
        self.assertEqual(heddle.load(f.folder, torch.device("cpu")).device, "opencl:0")

    def test_a_table_is_one_operator_for_all_sizes(self):
        table = heddle.connect().table("gemm_relu_add", **gemm | {"m": [4, 8]})
        op = table.register("heddle_test::gemm_table")
        a, b, c = self.tensors(3)
        torch.library.opcheck(op.default, (a, b, c))
        graphs = []

        def backend(graph, inputs):
            graphs.append(graph)
            return graph.forward

        compiled = torch.compile(lambda a, c: op(a, b, c) * 2, backend=backend, dynamic=True, fullgraph=True)
        for m in range(2, 9):
            a, _, c = self.tensors(m)
            torch.testing.assert_close(compiled(a, c), (torch.relu(a @ b) + c) * 2)
        self.assertEqual(len(graphs), 1)


if __name__ == "__main__":
    unittest.main()
