"""Whole models of PyTorch, through PoCL: which groups they have, and what kernels make of them."""

import unittest
from unittest import mock

from fx_support import Inductor, optimize, torch
from groups import plain
from support import SOURCE, Case

import heddle
from heddle import fx
from heddle.fx import Backend


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 4, 3, padding=1, stride=2)
        self.norm = torch.nn.BatchNorm2d(4)
        self.second = torch.nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.third = torch.nn.Conv2d(4, 4, 3, padding=1, bias=False)
        self.last = torch.nn.Linear(4 * 5 * 4, 6)

    def forward(self, x):
        x = torch.nn.functional.relu6(self.norm(self.first(x)))
        x = torch.relu(self.second(x) + x)
        x = torch.relu(self.third(x) + x)
        return torch.softmax(self.last(x.flatten(1)), -1)


class Models(Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        torch._dynamo.reset()

    def test_a_model_with_convolutions(self):
        model = Block().eval()
        with torch.no_grad():
            for statistic in (model.norm.running_mean, model.norm.running_var, model.norm.weight, model.norm.bias):
                statistic.uniform_(0.5, 1.5)
        x = torch.randn(2, 3, 9, 8)
        run, report = optimize(model, x)
        self.assertLess(report.largest_error, 1e-4)
        with torch.no_grad():
            other = torch.randn(2, 3, 9, 8)
            torch.testing.assert_close(run(other), model(other), rtol=1e-3, atol=1e-4)
        uses = {plain(use.operator): use for use in report.uses}
        self.assertEqual({name.split("_")[0] for name in uses}, {"conv2d", "matmul", "softmax"})
        # The two blocks are one workload, with what is behind each.
        self.assertEqual(uses["conv2d_add_relu"].weight, 2)
        # The normalisation is in the first convolution's weights and bias, and what clips it is behind.
        self.assertIn("conv2d_bias_clip", uses)
        self.assertEqual(uses["matmul_nt_add"].shape, {"m": 2, "n": 6, "k": 80})
        self.assertRegex(str(report), "2 x conv2d_add_relu_[0-9a-f]{4} n=2,")
        # Weights that are changed count from the next call on, folded or not.
        with torch.no_grad():
            model.norm.running_var.mul_(4)
            model.second.weight.mul_(2)
            torch.testing.assert_close(run(other), model(other), rtol=1e-3, atol=1e-4)

    def test_what_is_behind_a_product_of_three_dimensions(self):
        class Rows(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.up, self.down = torch.nn.Linear(8, 12), torch.nn.Linear(12, 8)

            def forward(self, x):
                return x + self.down(torch.nn.functional.gelu(self.up(x)))

        x = torch.randn(2, 3, 8)
        _, report = optimize(Rows().eval(), x)
        self.assertLess(report.largest_error, 1e-5)
        self.assertEqual([plain(use.operator) for use in report.uses], ["matmul_nt_add_gelu", "matmul_nt_add_add"])
        self.assertEqual(report.uses[0].shape, {"m": 6, "n": 12, "k": 8})

    def test_groups_of_several_nodes(self):
        """Each kind at a small size, computed by kernels, in two types."""
        functional = torch.nn.functional

        def rms_norm(x, weight):
            return x * torch.rsqrt(x.square().mean(-1, keepdim=True) + 1e-5) * weight

        def rotated(x, cos, sin):
            x = x.transpose(1, 2)
            left, right = x.chunk(2, -1)
            return x * cos + torch.cat((-right, left), -1) * sin

        def attended(q, k, v, causal):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            return functional.scaled_dot_product_attention(q, k, v, is_causal=causal).transpose(1, 2).flatten(2)

        heads = (2, 5, 3, 4)
        cases = {
            "rows_pow_mean_add_rsqrt_mul_mul": (rms_norm, [(2, 3, 6), (6,)]),
            "rotary": (rotated, [heads, (5, 4), (5, 4)]),
            "attention": (lambda q, k, v: attended(q, k, v, False), [heads, (2, 6, 3, 4), (2, 6, 3, 4)]),
            "causal_attention": (lambda q, k, v: attended(q, k, v, True), [heads] * 3),
            "group_norm_silu": (
                lambda x, w, b: functional.silu(functional.group_norm(x, 2, w, b)), [(2, 4, 3, 5), (4,), (4,)],
            ),
            "conv_transpose2d_bias": (
                lambda x, w, b: functional.conv_transpose2d(x, w, b, (2, 1), (1, 0), (1, 0)),
                [(2, 3, 4, 3), (3, 2, 4, 3), (2,)],
            ),
        }  # fmt: skip
        for name, (function, shapes) in cases.items():
            with self.subTest(name):
                torch._dynamo.reset()
                inputs = [torch.randn(shape) for shape in shapes]
                run, report = optimize(function, *inputs)
                self.assertEqual([plain(use.operator) for use in report.uses], [name], str(report))
                self.assertLess(report.largest_error, 1e-5)
        torch._dynamo.reset()
        inputs = [torch.randn(2, 3, 6, dtype=torch.bfloat16), torch.randn(6, dtype=torch.bfloat16)]
        run, report = optimize(rms_norm, *inputs)
        self.assertEqual([use.dtype for use in report.uses], ["bfloat16"])
        self.assertEqual(run(*inputs).dtype, torch.bfloat16)
        # Rounded once, at the end, where eager rounds after each step.
        exact = rms_norm(*(x.double() for x in inputs))
        torch.testing.assert_close(run(*inputs).double(), exact, rtol=2**-8, atol=1e-6)

    def test_types_are_not_mixed(self):
        x, w = torch.randn(4, 6, dtype=torch.bfloat16), torch.randn(6, 5, dtype=torch.bfloat16)
        offset = torch.randn(5)
        _, report = optimize(lambda x, w, offset: (x @ w) + offset, x, w, offset)
        self.assertEqual([(plain(use.operator), use.dtype) for use in report.uses], [("matmul", "bfloat16")])

    def test_what_has_no_kernel_stays_pytorch_s(self):
        def model(x, w):
            return torch.cumsum(x @ w, 0).double().relu()

        x, w = torch.randn(5, 7), torch.randn(7, 3)
        run, report = optimize(model, x, w)
        torch.testing.assert_close(run(x, w), model(x, w), rtol=1e-4, atol=1e-5)
        self.assertEqual([plain(use.operator) for use in report.uses], ["matmul"])
        self.assertTrue(any("cumsum" in kind for kind in report.left), report.left)

    def test_a_call_tunes_nothing(self):
        model, x = torch.nn.Linear(8, 4).eval(), torch.randn(3, 8)
        with self.assertRaisesRegex(heddle.InvalidArgument, "rest='all'.*inductor or eager"):
            optimize(model, x, rest="all")
        with mock.patch.object(fx.Backend, "_tune") as tune:
            run, report = optimize(model, x, trials=1)
            self.assertEqual(tune.call_count, 1)
            other = torch.randn(5, 8)
            with torch.no_grad():
                torch.testing.assert_close(run(other), model(other))
        self.assertEqual((tune.call_count, [use.match for use in report.uses]), (1, ["default"] * 2))

    def test_inputs_are_given_one_by_one(self):
        model, x = torch.nn.Linear(8, 4).eval(), torch.randn(3, 8)
        for wrong, what in (((x,), "one tuple"), ([x], "one list"), ({"x": x}, "one dict")):
            for call in (optimize, fx.extract):
                with self.assertRaisesRegex(
                    heddle.InvalidArgument, rf"{what}, raised TypeError.*optimize\(model, x, y\)"
                ):
                    call(model, wrong)
        with self.assertRaisesRegex(heddle.InvalidArgument, "no inputs, raised TypeError"):
            optimize(model)
        with self.assertRaisesRegex(RuntimeError, "shapes cannot be multiplied"):
            optimize(model, x.t())
        # A model may well take a list.
        run, _ = optimize(lambda several: several[0] @ several[1], [x, torch.randn(8, 2)])
        self.assertEqual(run([x, torch.ones(8, 2)]).shape, (3, 2))

    def test_what_is_missing_is_tuned_within_one_budget(self):
        seen = []

        def tune(self, file, *, op_file, trials, seconds, **_):
            seen.append((file.read_text().split("\n"), op_file, trials, seconds))

        real, heddle.Database.tune_workloads = heddle.Database.tune_workloads, tune
        self.addCleanup(setattr, heddle.Database, "tune_workloads", real)
        a, b = torch.randn(4, 6), torch.randn(6, 6)
        optimize(lambda a, b: torch.relu(a @ b @ b).sin() @ b, a, b, trials=3, seconds=12)
        ((lines, operators, trials, seconds),) = seen
        found = [[plain(operator), *rest] for operator, *rest in map(str.split, lines[:-1])]
        self.assertEqual(found, [["matmul", "m=4,n=6,k=6", "weight=2"], ["matmul_relu", "m=4,n=6,k=6", "weight=1"]])
        self.assertEqual((trials, seconds), (3, 6))
        # What the program tells to type names this file, which therefore stays.
        self.assertEqual(operators.read_text().count("op "), 2)

    def test_what_was_tuned_for_one_model_serves_another(self):
        """Though others of what it consists of stand before it there."""
        first = torch.randn(1, 2, 6, 6), torch.randn(3, 2, 3, 3)

        def padded(x, w):
            return torch.nn.functional.conv2d(x, w, padding=1)

        _, report = optimize(padded, *first, trials=1, progress=False)
        self.assertEqual([use.match for use in report.uses], ["exact"])
        torch._dynamo.reset()
        _, report = optimize(lambda x, w: (torch.nn.functional.conv2d(x, w), padded(x, w)), *first)
        found = {use.text.count("select"): use for use in report.uses}
        self.assertEqual({plain(use.operator) for use in report.uses}, {"conv2d"})
        self.assertEqual([found[padding].match for padding in (0, 1)], ["default", "exact"], str(report))

    def test_a_graph_that_needs_gradients_is_left(self):
        model = torch.nn.Linear(4, 3)
        x = torch.randn(2, 4)
        with mock.patch("torch._inductor.compile_fx.compile_fx", lambda module, inputs, config_patches: module.forward):
            for rest in ("eager", "inductor"):
                model.weight.grad = None
                torch._dynamo.reset()
                made = Backend(rest=rest)
                torch.compile(model, backend=made)(x).sum().backward()
                self.assertIsNotNone(model.weight.grad)
                self.assertEqual(made.report.uses, [])
                self.assertIn("torch.no_grad()", str(made.report))

    def test_a_wrong_result_is_refused(self):
        real = heddle.Database.kernel

        def wrong(self, *arguments, **named):
            kernel = real(self, *arguments, **named)
            call = type(kernel).__call__
            kernel.__class__ = type("Wrong", (type(kernel),), {"__call__": lambda k, *a, **n: call(k, *a, **n) + 1})
            return kernel

        heddle.Database.kernel = wrong
        self.addCleanup(setattr, heddle.Database, "kernel", real)
        with self.assertRaisesRegex(heddle.HeddleError, "differs from eager's"):
            optimize(lambda a, b: a @ b, torch.randn(4, 4), torch.randn(4, 4))

    def test_torch_compile_finds_it_by_name(self):
        text = (SOURCE / "python" / "pyproject.toml").read_text()
        self.assertIn('[project.entry-points.torch_dynamo_backends]\nheddle = "heddle.fx:backend"', text)
        from heddle.fx import backend

        with torch.no_grad():
            a, b = torch.randn(4, 6), torch.randn(6, 5)
            inductor = Inductor(self, (1, 2), (1, 2))
            torch.testing.assert_close(torch.compile(torch.matmul, backend=backend)(a, b), a @ b)
            self.assertEqual(inductor.compiled[-1], ["heddle"])


if __name__ == "__main__":
    unittest.main()
