"""Tensors of models that lie in other orders than their dimensions come in, and what is made of weights for that."""

import copy
import gc
import unittest
from unittest import mock

from fx_support import Inductor, optimize, torch
from groups import plain
from support import Case

import heddle
from heddle import _kernel_call, fx


class Layouts(Case):
    def setUp(self):
        super().setUp()
        torch.manual_seed(1)
        torch._dynamo.reset()

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

        def is_right(model):
            with torch.no_grad():
                return fx.difference(run(x), model(x)) < 2e-2

        (call,) = [call for call in _kernel_call._calls if call._kept]
        (kept,) = call._kept.values()
        with torch.no_grad():
            conv.weight.mul_(-2)
        self.assertTrue(is_right(conv))
        (again,) = call._kept.values()
        self.assertIsNot(again, kept)
        self.assertEqual(again.value.data_ptr(), kept.value.data_ptr(), "captured graphs read it there")
        with torch.inference_mode():
            conv.weight.mul_(-2)
            self.assertLess(fx.difference(run(x), conv(x)), 2e-2)
        with torch.no_grad():
            conv.weight.mul_(-2)
        self.assertTrue(is_right(conv))
        # Past PyTorch's versions.
        conv.weight.data.mul_(-2)
        self.assertFalse(is_right(conv))
        fx.forget_weights()
        self.assertTrue(is_right(conv))
        # A kernel that writes it.
        add = heddle.connect().kernel(
            "vector_add", n=conv.weight.numel(), device="opencl:0", dtype="bfloat16", fallback="default"
        )
        with torch.no_grad():
            flat = conv.weight.detach().view(-1)
            add(flat.clone(), flat.clone(), out=flat)
        self.assertTrue(is_right(conv))
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
        run, _ = optimize(normed, x)
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


if __name__ == "__main__":
    unittest.main()
