"""Whole models of PyTorch, through PoCL."""

import unittest

from support import SOURCE, Case, require_pocl, skip

import heddle

try:
    import torch

    torch.library.opcheck  # noqa: B018
except (ImportError, AttributeError) as error:
    skip(f"python-torch: {error} (pip install 'torch>=2.4')")
require_pocl()

from heddle.fx import Backend, optimize  # noqa: E402


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
        uses = {use.operator: use for use in report.uses}
        self.assertEqual({name.split("_")[0] for name in uses}, {"conv2d", "matmul", "softmax"})
        # The two blocks are one workload, with what is behind each.
        self.assertEqual(uses["conv2d_add_relu"].weight, 2)
        # The normalisation is in the first convolution's weights and bias, and what clips it is behind.
        self.assertIn("conv2d_bias_clip", uses)
        self.assertEqual(uses["matmul_nt_add"].shape, {"m": 2, "n": 6, "k": 80})
        self.assertIn("2 x conv2d_add_relu", str(report))
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
        self.assertEqual([use.operator for use in report.uses], ["matmul_nt_add_gelu", "matmul_nt_add_add"])
        self.assertEqual(report.uses[0].shape, {"m": 6, "n": 12, "k": 8})

    def test_what_has_no_kernel_stays_pytorch_s(self):
        def model(x, w):
            return torch.cumsum(x @ w, 0).double().relu()

        x, w = torch.randn(5, 7), torch.randn(7, 3)
        run, report = optimize(model, x, w)
        torch.testing.assert_close(run(x, w), model(x, w), rtol=1e-4, atol=1e-5)
        self.assertEqual([use.operator for use in report.uses], ["matmul"])
        self.assertTrue(any("cumsum" in kind for kind in report.left), report.left)

    def test_what_is_missing_is_tuned_within_one_budget(self):
        seen = []

        def tune(self, file, *, op_file, trials, seconds, **_):
            seen.append((file.read_text().split("\n"), op_file.read_text().count("op "), trials, seconds))

        real, heddle.Database.tune_workloads = heddle.Database.tune_workloads, tune
        self.addCleanup(setattr, heddle.Database, "tune_workloads", real)
        a, b = torch.randn(4, 6), torch.randn(6, 6)
        optimize(lambda a, b: torch.relu(a @ b @ b).sin() @ b, a, b, trials=3, seconds=12)
        ((lines, operators, trials, seconds),) = seen
        self.assertEqual(lines, ["matmul m=4,n=6,k=6 weight=2", "matmul_relu m=4,n=6,k=6 weight=1", ""])
        self.assertEqual((operators, trials, seconds), (2, 3, 6))

    def test_a_graph_that_needs_gradients_is_left(self):
        made = Backend()
        model = torch.nn.Linear(4, 3)
        x = torch.randn(2, 4)
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
            torch.testing.assert_close(torch.compile(torch.matmul, backend=backend)(a, b), a @ b)


if __name__ == "__main__":
    unittest.main()
