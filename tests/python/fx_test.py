"""Whole models of PyTorch, through PoCL."""

import copy
import gc
import os
import re
import unittest
from pathlib import Path
from unittest import mock

from support import SOURCE, Case, require_pocl, skip

import heddle

try:
    import torch

    torch.library.opcheck  # noqa: B018
except (ImportError, AttributeError) as error:
    skip(f"python-torch: {error} (pip install 'torch>=2.4')")
require_pocl()

from groups import plain  # noqa: E402
from torch._inductor import lowering  # noqa: E402

from heddle import _choice, _kernel_call, _sections, fx  # noqa: E402
from heddle.fx import Backend  # noqa: E402


def optimize(*arguments, rest="eager", **named):
    return fx.optimize(*arguments, rest=rest, **named)


def without_digits(text):
    """Of what tells operators' names apart."""
    return re.sub("_[0-9a-f]{4} ", " ", text)


def left(report):
    return {without_digits(what): why for what, why in report.left.items()}


class Inductor:
    """Runs graphs as they are, and has the times that it is told."""

    def __init__(self, test, *times, refuses=None):
        """`refuses`: a node with which no groups can be compared."""
        self.compiled = []
        self.refuses = refuses
        self.times = [*times]

        def compile(module, inputs, options):
            nodes = [node.name.split("_")[0] for node in module.graph.nodes if node.op == "call_function"]
            self.compiled.append(nodes)
            # What it meets unprepared Inductor of PyTorch 2.11 takes hours for.
            targets = [node.target for node in module.graph.nodes if node.op == "call_function"]
            mine = [target for target in targets if getattr(target, "namespace", "") == "heddle_fx"]
            test.assertEqual([target for target in mine if target not in lowering.lowerings], [])
            if self.refuses in nodes and "begin" in nodes:
                raise RuntimeError("no such luck")
            return module.forward

        for what, stand_in in (
            ("torch._inductor.compile", compile),
            ("heddle._choice.section_times", self.section_times),
            ("heddle._whole.beside", self.beside),
        ):
            replaced = mock.patch(what, stand_in)
            replaced.start()
            test.addCleanup(replaced.stop)

    def section_times(self, run, count, device):
        run()
        # Of each group what Inductor makes of it, and the kernel; of nothing at last.
        return [t for _ in range(count // 2) for t in reversed(self.times.pop(0))] + [0.0]

    def beside(self, calls, device):
        for call in calls.values():
            call()
        return dict(zip(calls, reversed(self.times.pop(0)), strict=True))


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

    def test_images_whose_channels_come_last(self):
        class Images(torch.nn.Module):
            def __init__(self):
                super().__init__()
                self.first = torch.nn.Conv2d(3, 8, 3, padding=1, stride=2, bias=False)
                self.norm = torch.nn.BatchNorm2d(8)
                self.deep = torch.nn.Conv2d(8, 8, 3, padding=1, groups=8)
                self.grouped = torch.nn.Conv2d(8, 8, 3, padding=2, dilation=2, groups=2)
                self.point = torch.nn.Conv2d(8, 6, 1)
                self.up = torch.nn.ConvTranspose2d(6, 6, 4, stride=2, padding=1)
                self.groups = torch.nn.GroupNorm(3, 6)
                self.place = torch.nn.Parameter(torch.randn(1, 6, 10, 8))
                self.last = torch.nn.Linear(6 * 10 * 8, 6)

            def forward(self, x):
                x = torch.relu(self.norm(self.first(x)))
                x = torch.relu(self.deep(x)) + x
                x = torch.relu(self.grouped(x) * x.mean((2, 3), keepdim=True))
                x = self.point(x)
                x = torch.nn.functional.silu(self.groups(self.up(x) + self.place))
                return x, self.last(x.flatten(1))

        def is_last(text):
            return "in X[n, h, w, ci]" in text

        model, x = Images().eval(), torch.randn(2, 3, 9, 8)
        model.norm.running_var.uniform_(0.5, 1.5)
        kinds = {"conv2d", "depthwise", "grouped", "conv", "group", "matmul"}
        for what, dtype, layout in (
            ("16 bits", torch.bfloat16, torch.contiguous_format),
            ("as they lie", torch.float32, torch.channels_last),
        ):
            with self.subTest(what):
                torch._dynamo.reset()
                laid = copy.deepcopy(model).to(dtype=dtype, memory_format=layout)
                given = x.to(dtype).to(memory_format=layout)
                run, report = optimize(laid, given)
                self.assertLess(report.largest_error, 2e-2 if dtype == torch.bfloat16 else 1e-4)
                images = [use for use in report.uses if "conv" in use.operator]
                self.assertEqual({use.operator.split("_")[0] for use in report.uses}, kinds)
                self.assertEqual([use.operator for use in images if not is_last(use.text)], [])
                with torch.no_grad():
                    for got, right in zip(run(given), laid(given), strict=True):
                        self.assertEqual(got.stride(), right.stride())
                    # Weights that were laid out once count as they are at each call.
                    for weight in (laid.first.weight, laid.deep.weight, laid.grouped.weight, laid.up.weight):
                        weight.copy_(weight.flip(0) * 1.5)
                    self.assertLess(fx.difference(run(given), laid(given)), 4e-2)
        _, report = optimize(copy.deepcopy(model), x)
        self.assertEqual([use.operator for use in report.uses if is_last(use.text)], [])
        # What is tuned beforehand is what is wanted then.
        found = fx.extract(copy.deepcopy(model).to(torch.bfloat16), x.to(torch.bfloat16))
        self.assertEqual({plain(w.operator) for w in found.workloads if is_last(found.operators[w.operator])},
                         {plain(use.operator) for use in images})  # fmt: skip

    def test_images_that_are_read_by_their_place_stay(self):
        def model(x, w):
            return torch.nn.functional.conv2d(x, w).as_strided((2, 2), (1, 1))

        x, w = torch.randn(1, 4, 3, 3).bfloat16(), torch.randn(4, 4, 1, 1).bfloat16()
        _, report = optimize(model, x, w)
        self.assertEqual([plain(use.operator) for use in report.uses], ["conv2d"])
        self.assertIn("X[n, ci, h, w]", report.uses[0].text)

    def test_operators_that_know_how_tensors_lie_get_them_so(self):
        @torch.library.custom_op("heddle_test_fx::first_row", mutates_args=(), tags=(torch.Tag.needs_exact_strides,))
        def first_row(x: torch.Tensor) -> torch.Tensor:
            return x.as_strided((8,), (1,)).clone()  # by place in memory

        first_row.register_fake(lambda x: x.new_empty(8))
        conv2d, functional = torch.nn.functional.conv2d, torch.nn.functional

        def behind(x, w):
            y = conv2d(x, w)
            return y.sin(), first_row(y)

        def attended(x, w):
            q = conv2d(x, w).view(2, 2, 4, 16)
            return functional.scaled_dot_product_attention(q, q, q)

        x, w = torch.randn(2, 4, 4, 4).bfloat16(), torch.randn(8, 4, 1, 1).bfloat16()
        for model in (behind, attended):
            with self.subTest(model.__name__):
                torch._dynamo.reset()
                run, report = optimize(model, x, w)
                self.assertLess(fx.difference(run(x, w), model(x, w)), 2e-2)
                self.assertIn("in X[n, h, w, ci]", next(use.text for use in report.uses if "conv" in use.operator))

    def test_a_graph_that_would_differ_with_channels_last_is_left(self):
        real = fx.in_channels_last

        def wrong(module):
            laid = real(module)
            node = next(node for node in laid.graph.nodes if node.target == torch.ops.aten.relu.default)
            node.target = torch.ops.aten.neg.default
            laid.recompile()
            return laid

        x, w = torch.randn(2, 4, 5, 5).bfloat16(), torch.randn(4, 4, 3, 3).bfloat16()
        with mock.patch.object(fx, "in_channels_last", wrong):
            Inductor(self, (1.0, 2.0), (1.0, 2.0))
            run, report = optimize(lambda x, w: torch.relu(torch.nn.functional.conv2d(x, w)), x, w, rest="inductor")
        self.assertRegex(report.left["images with their channels last"], "would differ")
        self.assertIn("in X[n, ci, h, w]", report.uses[0].text)
        self.assertLess(fx.difference(run(x, w), torch.relu(torch.nn.functional.conv2d(x, w))), 2e-2)

    def test_an_image_read_from_a_file_is_taken_as_it_lies(self):
        x = torch.randn(6, 5, 3).permute(2, 0, 1).unsqueeze(0)
        self.assertEqual(x.stride()[1], 1)
        _, report = optimize(torch.nn.functional.conv2d, x, torch.randn(4, 3, 3, 3))
        self.assertIn("in X[n, h, w, ci]", report.uses[0].text)

    def test_weights_are_made_again_when_they_change(self):
        conv = torch.nn.Conv2d(4, 4, 3, bias=False).bfloat16().eval()
        x = torch.randn(1, 4, 5, 5).bfloat16()
        run, _ = optimize(conv, x)

        def is_right():
            with torch.no_grad():
                return fx.difference(run(x), conv(x)) < 2e-2

        (call,) = [call for call in _kernel_call._calls if call._kept]
        (kept,) = call._kept.values()
        with torch.no_grad():
            conv.weight.mul_(-2)
        self.assertTrue(is_right())
        (again,) = call._kept.values()
        self.assertIsNot(again, kept)
        self.assertEqual(again.value.data_ptr(), kept.value.data_ptr(), "captured graphs read it there")
        with torch.inference_mode():
            conv.weight.mul_(-2)
            self.assertLess(fx.difference(run(x), conv(x)), 2e-2)
        with torch.no_grad():
            conv.weight.mul_(-2)
        self.assertTrue(is_right())
        # Past PyTorch's versions.
        conv.weight.data.mul_(-2)
        self.assertFalse(is_right())
        fx.forget_weights()
        self.assertTrue(is_right())
        # A kernel that writes it.
        add = heddle.connect().kernel(
            "vector_add", n=conv.weight.numel(), device="opencl:0", dtype="bfloat16", fallback="default"
        )
        with torch.no_grad():
            flat = conv.weight.detach().view(-1)
            add(flat.clone(), flat.clone(), out=flat)
        self.assertTrue(is_right())
        # What was made of weights that are no more is not kept.
        del conv, flat, call, kept, again
        run = None
        torch._dynamo.reset()
        gc.collect()
        other = torch.nn.Conv2d(4, 4, 3, bias=False).bfloat16().eval()
        optimize(other, x)
        self.assertEqual([len(call._kept) for call in _kernel_call._calls if call._kept], [1])

    def test_weights_without_versions_or_that_are_computed(self):
        x = torch.randn(1, 4, 5, 5).bfloat16()
        with torch.inference_mode():
            model = torch.nn.Conv2d(4, 4, 3).bfloat16().eval()
            given = x.clone()
        run, _ = optimize(model, given)
        with torch.inference_mode():
            model.weight.mul_(-2)
            self.assertLess(fx.difference(run(given), model(given)), 2e-2)
        torch._dynamo.reset()
        normed = torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv2d(4, 4, 3).bfloat16()).eval()
        found = fx.extract(normed, x)
        group = next(group for group in found.groups if group.kind == "conv2d")
        self.assertIsInstance(group.operands[1], str)  # laid out at each call, in its time
        self.assertEqual(group.orders[1], (0, 2, 3, 1))
        torch._dynamo.reset()
        run, report = optimize(normed, x)
        with torch.no_grad():
            self.assertLess(fx.difference(run(x), normed(x)), 2e-2)

    def test_weights_that_take_each_other_s_place(self):
        x = torch.randn(1, 4, 5, 5).bfloat16()
        first = torch.randn(4, 4, 3, 3).bfloat16()
        run, _ = optimize(torch.nn.functional.conv2d, x, first)
        for _ in range(8):  # memory that is free is given out again
            w = torch.randn(4, 4, 3, 3).bfloat16()
            self.assertLess(fx.difference(run(x, w), torch.nn.functional.conv2d(x, w)), 2e-2)
            del w

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

    def test_what_lies_in_another_order_is_read_and_written_so(self):
        def rotated(x, cos, sin):
            left, right = x.chunk(2, -1)
            return x * cos + torch.cat((-right, left), -1) * sin

        def model(q, k, v, cos, sin):
            q, k, v = (x.transpose(1, 2) for x in (q, k, v))
            q, k = rotated(q, cos, sin), rotated(k, cos, sin)
            y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
            return q, y.transpose(1, 2).reshape(2, 5, 12)

        heads = [torch.randn(2, 5, 3, 4) for _ in range(3)]
        tables = [torch.randn(5, 4) for _ in range(2)]
        run, report = optimize(model, *heads, *tables)
        self.assertLess(report.largest_error, 1e-5)
        texts = {plain(use.operator): use.text for use in report.uses}
        self.assertEqual([*sorted(texts)], ["causal_attention", "rotary"])
        # Heads lie within tokens all the way, so that nothing is copied between kernels.
        self.assertIn("X[d0, d2, d1, d3], In1[d2, d3], In2[d2, d3]", texts["rotary"])
        self.assertIn("out Y[i0: d0, i2: d2, i1: d1, i3: d3]", texts["rotary"])
        self.assertIn("in Q[b, s, h, d], K[b, t, h, d], V[b, t, h, e]", texts["causal_attention"])
        self.assertIn("out Y[z: b, i: s, p: h, x: e]", texts["causal_attention"])
        with torch.no_grad():
            q, expected = run(*heads, *tables)[0], model(*heads, *tables)[0]
        self.assertEqual(q.stride(), expected.stride())
        # The kernels' own results and operands are what the graph reads and has.
        copies = []
        with mock.patch.object(torch.Tensor, "copy_", lambda *given: copies.append(given)), torch.no_grad():
            contiguous = torch.Tensor.contiguous

            def counted(tensor):
                copies.extend([] if tensor.is_contiguous() else [tensor.shape])
                return contiguous(tensor)

            with mock.patch.object(torch.Tensor, "contiguous", counted):
                run(*heads, *tables)
        self.assertEqual(copies, [])

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


class Choice(Case):
    """What is Inductor's, and what ours."""

    # How a part of two operands begins that is timed by itself.
    SECTION = ("begin", "getitem", "as", "getitem", "as")

    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        torch._dynamo.reset()
        self.x, self.a, self.b = torch.randn(4, 6), torch.randn(6, 8), torch.randn(8, 6)

    @staticmethod
    def model(x, a, b):
        return torch.cumsum(torch.relu(x @ a) @ b @ a, 0)

    def optimize(self, **options):
        torch._dynamo.reset()
        return optimize(self.model, self.x, self.a, self.b, rest="inductor", **options)

    def test_a_prediction_is_a_share_of_the_whole(self):
        # By themselves the three take 14 us, all together 7.
        Inductor(self, (1.0, 2.0), (1.0, 6.0), (1.0, 6.0), (3.0, 7.0))
        _, report = self.optimize()
        self.assertEqual(len(report.uses), 3)
        self.assertAlmostEqual(report.predicted_us, 1.5)
        # What stays Inductor's has its share, too: again 14 us, of which 4 are saved.
        (Path(os.environ["XDG_CACHE_HOME"]) / "heddle").rename(self.folder / "gone")
        Inductor(self, (9.0, 8.0), (1.0, 3.0), (1.0, 3.0), (4.0, 7.0))
        _, report = self.optimize()
        self.assertEqual((len(report.uses), len(report.slower)), (2, 1))
        self.assertAlmostEqual(report.predicted_us, 7.0 - 0.5 * 4.0)

    def test_a_kernel_that_is_slower_is_left(self):
        # relu(x @ a), what is multiplied by b, what is multiplied by a; then the whole.
        inductor = Inductor(self, (2.0, 1.0), (1.0, 3.0), (1.0, 1.5), (6.0, 8.0))
        run, report = self.optimize()
        self.assertLess(report.largest_error, 1e-5)
        self.assertEqual([plain(use.operator) for use in report.slower], ["matmul_relu"])
        self.assertEqual([(plain(use.operator), use.shape["n"]) for use in report.uses], [("matmul", 6), ("matmul", 8)])
        self.assertEqual((report.inductor_us, report.predicted_us, report.measured_us), (8.0, 5.5, 6.0))
        self.assertAlmostEqual(report.share(report.uses[0]), 1 / 6)
        self.assertIn("out T0[i: m, j: n]", report.uses[0].text)
        said = without_digits(str(report))
        self.assertIn("1 x matmul m=4,n=6,k=8: default, 1.0 us, Inductor 3.0 us, 17 % of the model", said)
        self.assertIn("Inductor's: 1 x matmul_relu m=4,n=8,k=6: default, 2.0 us, Inductor 1.0 us", said)
        # All groups' nodes and kernels at once, and the whole without kernels and with the two that are faster.
        whole, mixed = ["mm", "relu", "mm", "mm", "cumsum"], ["mm", "relu", "heddle", "heddle", "cumsum"]
        self.assertEqual(
            inductor.compiled,
            [[*self.SECTION, "mm", "relu", "end", *self.SECTION, "heddle", "end", *(
                 [*self.SECTION, "mm", "end", *self.SECTION, "heddle", "end"] * 2), "begin", "getitem", "as", "end"],
             whole, mixed],
        )  # fmt: skip
        x = torch.randn(4, 6)
        torch.testing.assert_close(run(x, self.a, self.b), self.model(x, self.a, self.b))
        # What was compared once is known, the whole too: what was the fastest is all that is compiled.
        again = Inductor(self)
        run, report = self.optimize()
        self.assertEqual([use.ours_us for use in report.uses + report.slower], [1.0, 1.0, 2.0])
        self.assertEqual((report.inductor_us, report.measured_us, again.compiled), (8.0, 6.0, [mixed]))
        torch.testing.assert_close(run(x, self.a, self.b), self.model(x, self.a, self.b))

    def test_a_whole_that_is_slower_is_left(self):
        Inductor(self, (1.0, 2.0), (1.0, 2.0), (1.0, 2.0), (9.0, 8.0))
        run, report = self.optimize()
        self.assertEqual((report.uses, len(report.slower), report.measured_us), ([], 3, 8.0))
        self.assertEqual(report.left["a graph"], "9.0 us with kernels, 8.0 us by Inductor alone")
        x = torch.randn(4, 6)
        torch.testing.assert_close(run(x, self.a, self.b), self.model(x, self.a, self.b))

    def test_what_has_no_kernel_is_compiled_once_more_in_its_way(self):
        options = torch._inductor.list_mode_options("max-autotune-no-cudagraphs") | {"max_fusion_size": 30}
        x = torch.randn(4, 6)
        for times, tuned in (((7.0, 8.0),), [True, False]), ((), [False]):
            torch._dynamo.reset()
            Inductor(self, *times)
            with mock.patch("torch._inductor.compile", wraps=torch._inductor.compile) as compiled:
                _, report = optimize(lambda x: x.cumsum(0), x, rest="inductor", options=options)
            given = [call.kwargs["options"].get("max_autotune", False) for call in compiled.call_args_list]
            self.assertEqual((given, report.uses), (tuned, []))

    def test_kernels_that_save_little_are_left_out_where_that_is_faster(self):
        for number, (clear, every, plain_us, uses) in enumerate(((5, 6, 8, 2), (6, 5, 8, 3), (7, 6, 5, 0))):
            with self.subTest(number):
                torch._dynamo.reset()
                Inductor(self, (1.9, 2.0), (1.0, 3.0), (1.0, 2.0), (clear, every, plain_us))
                run, report = self.optimize(options={"max_fusion_size": 20 + number})
                self.assertEqual((len(report.uses), len(report.slower)), (uses, 3 - uses))
                self.assertEqual(report.measured_us, min(clear, every, plain_us))
                again = Inductor(self)
                self.optimize(options={"max_fusion_size": 20 + number})
                self.assertEqual([nodes.count("heddle") for nodes in again.compiled], [uses])

    def test_what_autotuning_makes_slower_is_left(self):
        for number, (untuned_us, tuned_us, whole, tuned, kernels) in enumerate((
            (7.0, 8.0, (6.0, 7.0), [False, True, False, False], 3),
            (9.0, 8.0, (6.0, 8.0), [False, True, False, True], 3),
            (7.0, 8.0, (9.0, 7.0), [False, True, False, False], 0),
        )):  # fmt: skip
            with self.subTest(number):
                torch._dynamo.reset()
                options = torch._inductor.list_mode_options("max-autotune-no-cudagraphs")
                mine = {"epilogue_fusion": False, "max_fusion_size": 10 + number}
                Inductor(self, *[(1.0, 2.0)] * 3, (untuned_us, tuned_us), whole)
                with mock.patch("torch._inductor.compile", wraps=torch._inductor.compile) as compiled:
                    _, report = self.optimize(options=options | mine)
                self.assertLess(report.largest_error, 1e-5)
                # The groups, the whole by Inductor alone in both ways, and with kernels.
                given = [call.kwargs["options"] for call in compiled.call_args_list]
                self.assertEqual(given, [options | mine if autotune else mine for autotune in tuned])
                self.assertEqual((report.measured_us, report.inductor_us), (min(whole), whole[1]))
                self.assertEqual(len(report.uses), kernels)
                with mock.patch("torch._inductor.compile", wraps=torch._inductor.compile) as again:
                    self.optimize(options=options | mine)
                given = [call.kwargs["options"] for call in again.call_args_list]
                self.assertEqual(given, [options | mine if tuned[-1] else mine])

    def test_a_kernel_that_is_wrong_is_left(self):
        real = fx.KernelCall.__call__

        def wrong(call, *tensors):
            return real(call, *tensors) + (call.__name__.startswith("heddle_matmul_relu_"))

        with mock.patch.object(fx.KernelCall, "__call__", wrong):
            Inductor(self, (1.0, 2.0), (1.0, 2.0), (1.0, 2.0))
            _, report = self.optimize()
        self.assertEqual([plain(use.operator) for use in report.uses], ["matmul", "matmul"])
        self.assertRegex(left(report)["matmul_relu {'m': 4, 'n': 8, 'k': 6}"], "^differs from eager's result by ")
        self.assertLess(report.largest_error, 1e-5)

    def test_a_kernel_that_refuses_its_tensors_is_left(self):
        real = fx.KernelCall.__call__

        def refuses(call, *tensors):
            if call.__name__.startswith("heddle_matmul_relu_"):
                raise heddle.InvalidArgument("no such tensor")
            return real(call, *tensors)

        with mock.patch.object(fx.KernelCall, "__call__", refuses):
            Inductor(self, (1.0, 2.0), (1.0, 2.0), (1.0, 2.0))
            _, report = self.optimize()
        self.assertEqual([plain(use.operator) for use in report.uses], ["matmul", "matmul"])
        self.assertEqual(left(report)["matmul_relu {'m': 4, 'n': 8, 'k': 6}"], "no such tensor")

    def test_a_search_that_fails_leaves_kernels_that_are_known(self):
        with mock.patch.object(fx.Backend, "_tune", side_effect=heddle.HeddleError("no device")):
            Inductor(self, (1.0, 2.0), (1.0, 2.0), (1.0, 2.0), (1.0, 2.0))
            _, report = self.optimize(trials=1)
        self.assertEqual(report.left["tuning"], "no device")
        self.assertEqual(len(report.uses), 3)

    def test_graphs_of_inductor_s_own_are_refused(self):
        with self.assertRaisesRegex(heddle.InvalidArgument, "max-autotune-no-cudagraphs"):
            optimize(self.model, self.x, self.a, self.b, options=torch._inductor.list_mode_options("reduce-overhead"))

    def test_a_group_that_inductor_refuses_is_left(self):
        inductor = Inductor(self, (1.0, 2.0), (1.0, 2.0), (1.0, 2.0), refuses="relu")
        _, report = self.optimize()
        self.assertEqual([plain(use.operator) for use in report.uses], ["matmul", "matmul"])
        self.assertIn("could not be compared: RuntimeError no such luck", str(report))
        # All three, the one that is refused, the others, and twice the whole.
        self.assertEqual([nodes.count("begin") for nodes in inductor.compiled], [7, 3, 5, 0, 0])

    def test_what_is_not_compared_in_time_is_left(self):
        inductor = Inductor(self)
        _, report = self.optimize(choice_seconds=0)
        self.assertEqual(left(report)["matmul {'m': 4, 'n': 6, 'k': 8}"], "not compared within 0 s")
        self.assertEqual((report.uses, len(inductor.compiled)), ([], 1))

    def test_places_that_differ_are_compared_each(self):
        def model(x, a, rows, wide, long):
            # Of one operator: alike, with other strides, and of another alignment.
            return x @ a, rows @ a, rows.cos() @ a, wide[:, :6] @ a, long[1:].view(4, 6) @ a

        inductor = Inductor(self, (1.0, 2.0), (3.0, 2.0), (1.5, 2.0), (5.0, 8.0))
        inputs = self.x, self.a, torch.randn(4, 6), torch.randn(4, 8), torch.randn(25)
        run, report = optimize(model, *inputs, rest="inductor")
        self.assertEqual([(use.weight, use.ours_us) for use in report.uses], [(3, 1.0), (1, 1.5)])
        self.assertEqual([(use.weight, use.ours_us) for use in report.slower], [(1, 3.0)])
        self.assertEqual(inductor.compiled[0].count("begin"), 7)
        torch.testing.assert_close(run(*inputs), model(*inputs))

    def test_with_inductor_itself(self):
        # By the processor's clock, so that nobody knows what is faster: kernels are told to be.
        real, compilations = _choice.section_times, []

        def section_times(run, count, device):
            times = real(run, count, device)
            self.assertTrue(all(time > 0 for time in times), times)
            compilations.append(count)
            return [2.0, 1.0] * (count // 2) + [0.0]

        faster = mock.patch("heddle._whole.beside", lambda calls, device: {"all": 1.0, "inductor": 2.0})
        with faster, mock.patch("heddle._choice.section_times", section_times):
            run, report = optimize(
                lambda x, w: torch.softmax((x.sin() @ w).cos().T, -1), self.x, self.a, rest="inductor"
            )
        self.assertEqual([plain(use.operator) for use in report.uses], ["matmul", "softmax"])
        self.assertEqual(compilations, [5])
        x = torch.randn(4, 6)
        torch.testing.assert_close(run(x, self.a), torch.softmax((x.sin() @ self.a).cos().T, -1))

    def test_a_section_reads_copies_of_the_same_form(self):
        base, seen = torch.arange(60.0), []

        def look(*tensors):
            seen.extend(tensors)
            return tensors[0]

        tensors = [base[3:27].view(4, 6), base[:24].view(6, 4).T, base[:5].expand(3, 5), base[1:31:2], base[:0]]
        sections = _sections.Sections(torch.nn.Module())
        sections.add(tensors, lambda graph, copies: graph.call_function(look, tuple(copies)))
        sections.module()(*sections.inputs)
        for tensor, copy in zip(tensors, seen, strict=True):
            self.assertEqual((copy.shape, copy.stride()), (tensor.shape, tensor.stride()))
            self.assertEqual(copy.data_ptr() % 16, tensor.data_ptr() % 16)
            torch.testing.assert_close(copy, tensor)
            self.assertNotEqual(copy.untyped_storage().data_ptr(), base.untyped_storage().data_ptr())
        torch.library.opcheck(torch.ops.heddle_fx.begin.default, ([base, base[1:7]], base, 1))
        torch.library.opcheck(torch.ops.heddle_fx.end.default, (base, 1))

    def test_sizes_that_are_symbols_are_inductor_s(self):
        made = Backend()
        seen = []

        def compile_fx(module, inputs, config_patches):
            seen.append(inputs)
            return module.forward

        with torch.no_grad(), mock.patch("torch._inductor.compile_fx.compile_fx", compile_fx):
            torch.compile(self.model, backend=made, dynamic=True)(self.x, self.a, self.b)
        self.assertEqual(len(seen), 1)
        self.assertIn("dynamic=False", made.report.left["a graph"])


if __name__ == "__main__":
    unittest.main()
