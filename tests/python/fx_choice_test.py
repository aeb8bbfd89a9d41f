"""What of a model is Inductor's, and what ours."""

import os
import unittest
from pathlib import Path
from unittest import mock

from fx_support import Inductor, left, optimize, torch, without_digits
from groups import plain
from support import Case

import heddle
from heddle import _choice, _sections, fx
from heddle.fx import Backend


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
                _, report = self.optimize(options={"max_fusion_size": 20 + number})
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
