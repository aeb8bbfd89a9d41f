"""Which groups are found in the models of bench/models. Their sizes are tiny here, their structure is the same."""

import argparse
import contextlib
import io
import json
import re
import subprocess
import sys
import types
import unittest
import warnings
from collections import Counter
from pathlib import Path
from unittest import mock

from support import SOURCE, Case, skip

try:
    import torch

    torch.library.opcheck  # noqa: B018
except (ImportError, AttributeError) as error:
    skip(f"python-torch: {error} (pip install 'torch>=2.4')")

import groups
from torch._inductor.runtime.benchmarking import InductorBenchmarker

import heddle
from heddle import _choice, _timing, _whole, fx
from heddle.fx import extract

sys.path.insert(0, str(SOURCE / "bench" / "models"))
import compare
from models import MODELS

# Of each model the groups that are computed by kernels, by what they consist of.
EXPECTED = {
    "resnet50": {
        "conv2d_bias_relu": 7, "conv2d_bias_add_relu": 3, "conv2d_bias": 2, "matmul_nt_add": 1, "max_pool": 1,
        "row_mean": 1,
    },
    "mobilenet_v2": {
        "conv2d_bias_clip": 4, "depthwise_conv2d_bias_clip": 3, "conv2d_bias_add": 2, "conv2d_bias": 1,
        "matmul_nt_add": 1, "row_mean": 1,
    },
    "bert_base": {
        "matmul_nt_add": 6, "matmul_nt_add_add": 4, "matmul_nt_add_gelu": 2, "matmul_nt_add_tanh": 1, "layer_norm": 5,
        "attention": 2,
    },
    "unet_block": {"group_norm_silu": 2, "conv2d_bias": 2, "conv2d_bias_add": 1, "conv_transpose2d_bias": 1},
    "decoder": {
        "matmul_nt": 9, "matmul_nt_add": 4, "matmul_nt_silu_mul": 2, "rows_pow_mean_add_rsqrt_mul_mul": 5, "rotary": 4,
        "causal_attention": 2,
    },
}  # fmt: skip


class Models(Case):
    def test_groups(self):
        self.assertEqual(set(MODELS), set(EXPECTED))
        for name, expected in EXPECTED.items():
            with self.subTest(name):
                torch._dynamo.reset()
                model, inputs = MODELS[name].build(batch=2, tiny=True)
                for dtype in (torch.float32, torch.bfloat16):
                    torch._dynamo.reset()
                    model = model.to(dtype)
                    inputs = [x.to(dtype) if x.is_floating_point() else x for x in inputs]
                    found = Counter()
                    for workload in extract(model, *inputs).workloads:
                        self.assertEqual(workload.dtype, str(dtype).removeprefix("torch."))
                        if not workload.operator.startswith("map_"):
                            found[groups.plain(workload.operator)] += workload.weight
                    self.assertEqual(found, expected)

    def test_groups_of_the_whole(self):
        """At full size. onnx_test.py finds the same without PyTorch."""
        for name in groups.MODELS:
            with self.subTest(name):
                torch._dynamo.reset()
                model, inputs = MODELS[name].build(batch=1)
                found = extract(model, *inputs)
                groups.write_golden(name, found)
                self.assertEqual(groups.text_of(found), groups.golden(name))

    def test_exported_to_onnx(self):
        """By both exporters of PyTorch: what onnx_models.py builds is what these write."""
        try:
            import onnxscript  # noqa: F401
        except ImportError as error:
            self.skipTest(f"{error}: pip install onnx onnxscript")
        from heddle.onnx import extract as extract_onnx

        others = set(MODELS)
        for name in groups.MODELS:
            model, inputs = MODELS[name].build(batch=1)
            path = self.folder / f"{name}.onnx"
            for options in ({"dynamo": True}, {"dynamo": True, "opset_version": 18},
                            {"dynamo": False, "opset_version": 17}):  # fmt: skip
                quiet = contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO())
                with self.subTest(name, **options), quiet[0], quiet[1], warnings.catch_warnings():
                    warnings.simplefilter("ignore")
                    torch.onnx.export(model, inputs, str(path), **options)
                    found = extract_onnx(path, weights="torch")
                    self.assertEqual(groups.text_of(found), groups.golden(name))
                    if options == {"dynamo": True}:
                        others.remove(name)
        # Of the others the decoder's file has its causal mask as a tensor.
        self.assertEqual(others, {"unet_block", "decoder"})
        for name in others:
            torch._dynamo.reset()
            model, inputs = MODELS[name].build(batch=1, tiny=True)
            with self.subTest(name), contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                torch.onnx.export(model, inputs, str(path), dynamo=True)
                found, expected = extract_onnx(path, weights="torch"), extract(model, *inputs)
                lines = [sorted(map(str, one.workloads)) for one in (found, expected)]
                masked = [
                    [re.sub("(causal_)?attention_[0-9a-f]{4}", "attention", line) for line in one] for one in lines
                ]
                self.assertEqual(sorted(masked[0]), sorted(masked[1]))
                self.assertEqual(*({o: text for o, text in one.operators.items() if "attention" not in o}
                                   for one in (found, expected)))  # fmt: skip

    def test_their_sizes(self):
        # Parameters as the papers have them, in millions.
        for name, millions in (("resnet50", 25.56), ("mobilenet_v2", 3.50), ("bert_base", 109.48)):
            with torch.device("meta"):
                model = MODELS[name].make(**MODELS[name].sizes)
            # BERT's list of places has 512 entries and its kinds of tokens 2, which are not computed with here.
            more = (512 - 128 + 2) * 768 if name == "bert_base" else 0
            count = sum(p.numel() for p in model.parameters()) + more
            self.assertAlmostEqual(count / 1e6, millions, places=2)


class Table(Case):
    def test_of_what_was_measured(self):
        self.assertEqual(compare.known_models(), list(MODELS))
        row = {
            "model": "resnet50", "batch": 1, "dtype": "float32", "asked": "fast", "device": "H", "torch": "2",
            "cold_seconds": 200.4, "warm_seconds": 20.0,
            "groups": [{"weight": 3}, {"weight": 1}], "left": {}, "mode": "default", "ratio": 2.0, "share": 0.5,
            "error": {"ours": 3e-6, "peer": 1e-6, "eager": 1e-6},
            "times_us": {"ours": 100.0, "peer": 200.0, "eager": 300.0},
        }  # fmt: skip
        for other in (
            row,
            row | {"model": "unet_block", "ratio": 0.5},
            row | {"model": "decoder", "asked": "default", "ratio": 4.0},
            {"model": "resnet50", "batch": 16, "dtype": "float32", "asked": "fast", "failed": "exit code 1"},
        ):
            (self.folder / f"{other['model']}-{other['batch']}.json").write_text(json.dumps(other))
        text = compare.table(self.folder)
        self.assertIn(
            "Batch 1, float32, fast: ratio to torch.compile (above 1: ours is faster), geomean 1.000, least 0.500", text
        )
        self.assertIn(
            "Batch 1, float32, default: ratio to torch.compile (above 1: ours is faster), geomean 4.000", text
        )
        times, errors = "100 | 200 | default | 300 | 2.00 | 2.00 | 50", "3.0e-06 ** | 1.0e-06 | 1.0e-06"
        self.assertIn(f"resnet50 | 1 | float32 | {times} | {errors} | 200 | 20 | 4 |", text)
        self.assertIn("| resnet50 | 16 | float32 | **exit code 1**", text)
        columns = {line.count("|") for line in text.splitlines() if line.startswith("|")}
        self.assertEqual(len(columns), 1)

    def compare(self, run, *arguments):
        """compare.py's exit code with `run` in the place of a case's process: (words, environment, file of results)."""
        out = self.folder / "out"

        def process(words, env, timeout, **_):
            name, batch = words[words.index("--case") + 1].split("/")
            dtype, mode = (words[words.index(flag) + 1] for flag in ("--dtype", "--mode"))
            kept = out / f"{name}-{batch}-{dtype}-{mode}.json"
            return subprocess.CompletedProcess(words, run((name, int(batch)), env, kept, timeout) or 0)

        arguments = ["compare.py", "--out", str(out), *arguments]
        quiet = contextlib.redirect_stdout(io.StringIO())
        with quiet, mock.patch.object(sys, "argv", arguments), mock.patch.object(subprocess, "run", process):
            return compare.main()

    def test_a_case_that_fails_is_kept_and_tried_again(self):
        asked = []

        def run(case, *_):
            asked.append(case)
            return 1

        arguments = ["--models", "unet_block,decoder", "--batch", "1,2", "--shard", "2/4"]
        self.assertEqual([self.compare(run, *arguments) for _ in range(2)], [1, 1])
        self.assertEqual(asked, [("unet_block", 2)] * 2)
        (kept,) = (self.folder / "out").glob("*.json")
        row = {"model": "unet_block", "batch": 2, "dtype": "float32", "asked": "max-autotune-no-cudagraphs"}
        self.assertEqual(json.loads(kept.read_text()), row | {"cold_seconds": None, "failed": "exit code 1"})
        self.assertIn("**exit code 1**", (self.folder / "out" / "results.md").read_text())

    def test_a_case_from_beginning_to_end(self):
        """On a processor, with CUDA's graphs, clock and profile left out."""
        model, made, rows = MODELS["decoder"], [], []
        options = argparse.Namespace(
            out=self.folder, dtype="float32", mode="default", trials=0, seconds=0, choice_seconds=60, rounds=2
        )

        class Backend(fx.Backend):
            def __init__(self, *given, **named):
                super().__init__(*given, **named)
                made.append(self.report)

        def replayed(calls, rounds):
            for call in calls.values():
                call()
            return {"ours": [2.0] * rounds, "peer": [3.0] * rounds, "eager": [4.0] * rounds}

        with contextlib.ExitStack() as stack:

            def patched(owner, name, value):
                stack.enter_context(mock.patch.object(owner, name, value))

            for owner, name in (
                (heddle.Database, "tune_workloads"), (fx, "_values"), (_choice, "section_times"),
                (_whole, "beside"), (fx.Backend, "_laid"), (InductorBenchmarker, "benchmark_gpu"),
            ):  # fmt: skip
                patched(owner, name, getattr(owner, name))  # they are afterwards what they were
            patched(fx, "Backend", Backend)
            patched(torch.cuda, "synchronize", lambda: None)
            patched(torch.cuda, "get_device_name", lambda: "a processor")
            for owner in (torch.nn.Module, torch.Tensor):
                patched(owner, "cuda", lambda self: self)
            patched(_timing, "captured", lambda call: (types.SimpleNamespace(replay=call), None))
            patched(compare, "replayed", replayed)
            patched(compare, "share", lambda call: 0.5)
            tiny = types.SimpleNamespace(build=lambda batch: model.build(batch, tiny=True))
            stack.enter_context(mock.patch.dict(MODELS, decoder=tiny))
            stack.enter_context(contextlib.redirect_stderr(io.StringIO()))
            self.addCleanup(torch.set_grad_enabled, torch.is_grad_enabled())
            compare.case("decoder", 2, options, lambda row: rows.append(dict(row)))
        steps = [[key in row for key in ("measured_us", "ratio", "warm_seconds")] for row in rows]
        self.assertEqual(steps, [[True, False, False], [True, True, False], [True, True, True]])
        self.assertEqual((rows[-1]["ratio"], rows[-1]["mode"], rows[-1]["device"]), (1.5, "default", "a processor"))
        for kind in ("ours", "peer", "eager"):
            self.assertLess(rows[-1]["error"][kind], 1e-5)
        # Cold and warm: what torch.compile makes in between has nothing of ours made anew.
        self.assertEqual(len(made), 2)
        self.assertEqual(made[0].measured_us, rows[0]["measured_us"])

    def test_what_measures_takes_turns(self):
        path, log = self.folder / "lock", self.folder / "log"
        code = (
            f"import sys, time; sys.path.insert(0, {str(SOURCE / 'bench' / 'models')!r}); import compare, types\n"
            "def timed():\n"
            f"  log = open({str(log)!r}, 'a', buffering=1); log.write('in\\n'); time.sleep(0.2); log.write('out\\n')\n"
            f"owner, turns = types.SimpleNamespace(timed=timed), compare.Turns({str(path)!r})\n"
            "before = []; turns.take(owner, 'timed', lambda: before.append(turns._depth))\n"
            "with turns.turn():\n"  # one that has its turn does not wait for itself, whichever thread of it asks
            "  import threading; one = threading.Thread(target=owner.timed); one.start(); one.join()\n"
            "owner.timed(); print(before, turns.waited)\n"
        )
        running = [subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True) for _ in range(3)]
        said = [one.communicate(timeout=60)[0] for one in running]
        self.assertEqual(log.read_text().split(), ["in", "out"] * 6)
        self.assertTrue(all(one.startswith("[1, 0] ") for one in said), said)
        self.assertGreater(max(float(one.split()[-1]) for one in said), 0.2)

    def test_one_command_for_all_types_and_modes(self):
        asked = []

        def run(case, env, kept, _):
            database = Path(env["HEDDLE_DB"])
            asked.append((case, kept.name, database.name, database.exists()))
            database.touch()
            return 1

        words = ["--models", "decoder", "--batch", "16", "--dtype", "float32,bfloat16", "--mode", "default,fast"]
        words.append("--cold")
        self.assertEqual(self.compare(run, *words), 1)
        # What was tuned serves all modes.
        self.assertEqual(
            asked,
            [
                (("decoder", 16), f"decoder-16-{dtype}-{mode}.json", f"decoder-16-{dtype}.db", mode == "fast")
                for dtype in ("float32", "bfloat16")
                for mode in ("default", "fast")
            ],
        )
        with contextlib.redirect_stderr(io.StringIO()) as said, self.assertRaises(SystemExit):
            self.compare(run, "--dtype", "int8")
        self.assertIn("int8 is none of float32, float16, bfloat16", said.getvalue())

    def test_what_a_case_had_when_its_time_was_up_is_kept(self):
        steps = []

        def run(case, env, kept, timeout):
            row = {"model": case[0], "batch": case[1], "dtype": "float32", "asked": "m", "groups": [], "left": {}}
            database, cache = Path(env["HEDDLE_DB"]), Path(env["XDG_CACHE_HOME"])
            steps.append((database.exists(), cache.exists()))
            if not database.exists():
                database.touch()
                cache.mkdir()
                kept.write_text(json.dumps(row | {"cold_seconds": 70.0}))
                raise subprocess.TimeoutExpired([], timeout)
            self.assertLessEqual(timeout, 100)
            errors = {kind: 1e-6 for kind in ("ours", "peer", "eager")}
            done = {"times_us": dict.fromkeys(errors, 10.0), "error": errors, "ratio": 1.0, "share": 0.5, "mode": "m"}
            kept.write_text(json.dumps(row | done | {"cold_seconds": None, "device": "H"}))

        arguments = ["--models", "unet_block", "--batch", "1", "--case-seconds", "100"]
        codes = [self.compare(run, *arguments, *more) for more in ([], ["--cold"], [], [])]
        # Tuned, tuned anew, gone on with, and done.
        self.assertEqual((codes, steps), ([1, 1, 0, 0], [(False, False), (False, False), (True, True)]))
        self.assertIn("| 70 |  | 0 |", (self.folder / "out" / "results.md").read_text())
        self.assertEqual(self.compare(run, "--models", "decoder", "--total-seconds", "0"), 1)
        self.assertEqual(len(steps), 3)


if __name__ == "__main__":
    unittest.main()
