"""What only a GPU can show: kernels on PyTorch's CUDA tensors. Skipped without one; under four minutes on an H100.

    python3 tests/python/gpu_test.py [--json FILE] [unittest's arguments]

It takes the package that is installed, or the checkout's with PYTHONPATH=python and $HEDDLE_PROGRAM. A check that fails
does not keep the next ones from running. Figures are printed as they come, and FILE has them all.
"""

import contextlib
import ctypes
import faulthandler
import functools
import gc
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import unittest
from pathlib import Path

from support import SOURCE, readme_lines, skip

try:
    import torch
except ImportError as error:
    skip(f"python-torch: {error} (pip install 'torch>=2.4')")
if not torch.cuda.is_available():
    skip("gpu: PyTorch finds no CUDA device")

import heddle
from heddle import _cuda
from heddle._timing import captured
from heddle.kernel import Kernel

LIMIT_SECONDS = 235
GEMM = {"m": 256, "n": 256, "k": 256, "device": "cuda:0"}
SOFTMAX = {"m": 96, "n": 512, "device": "cuda:0"}  # its default schedule has workspaces
CAN_COMPILE = shutil.which("cc") or shutil.which("gcc")  # for what Inductor writes
figures = {}
figures_file = None
folder = tempfile.TemporaryDirectory(prefix="heddle-gpu-")
# torch.ops keeps the names of operators whose Library is gone, and PyTorch fails when it goes through them all.
libraries = []


def setUpModule():
    faulthandler.dump_traceback_later(LIMIT_SECONDS, exit=True)
    os.environ.update(HEDDLE_DB=f"{folder.name}/heddle.db", XDG_CACHE_HOME=f"{folder.name}/cache")
    os.environ.pop("HEDDLE_SERVER", None)
    # Products are compared with float64's: PyTorch's, too, are to be float32's.
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False


def tearDownModule():
    faulthandler.cancel_dump_traceback_later()
    folder.cleanup()


def figure(name, value, unit=""):
    """Keeps what was measured, at once, so that nothing is lost where a later check takes the process down."""
    figures[name] = value
    shown = f"{value:.4g}" if isinstance(value, float) else value
    print(f"  {name}: {shown} {unit}".rstrip(), file=sys.stderr, flush=True)
    if figures_file:
        Path(figures_file).write_text(json.dumps(figures, indent=1) + "\n")


@functools.cache
def gemm():
    return heddle.connect().kernel("gemm_relu_add", **GEMM, fallback="default")


@functools.cache
def softmax():
    return heddle.connect().kernel("softmax", **SOFTMAX, fallback="default")


@functools.cache
def vector_add():
    return heddle.connect().kernel("vector_add", n=1024, device="cuda:0", fallback="default")


def matrices(seed=1):
    torch.manual_seed(seed)
    return [torch.randn(256, 256, device="cuda") for _ in range(3)]


def error(got, expected):
    """Of a result against the one in float64, relative to the largest element."""
    return float((got.double() - expected).abs().max() / expected.abs().max())


def gemm64(a, b, c):
    return torch.relu(a.double() @ b.double()) + c.double()


def microseconds(calls, each=500, rounds=41):
    """Of one call of each, the median of blocks that take turns; the device is waited for between them."""
    times = {name: [] for name in calls}
    for _ in range(rounds):
        for name, call in calls.items():
            call()
            torch.cuda.synchronize()
            begin = time.perf_counter()
            for _ in range(each):
                call()
            times[name].append((time.perf_counter() - begin) / each * 1e6)
    return {name: statistics.median(found) for name, found in times.items()}


def replay_microseconds(graph, replays=50):
    """Of a replay, by the device's clock."""
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    times = []
    for _ in range(5):
        begin.record()
        for _ in range(replays):
            graph.replay()
        end.record()
        end.synchronize()
        times.append(begin.elapsed_time(end) * 1e3 / replays)
    return statistics.median(times)


class Databases(unittest.TestCase):
    def test_tune_query_and_call(self):
        (device,) = [d for d in heddle.connect().devices() if d.id == "cuda:0"]
        self.assertTrue(device.usable, device.why_not)
        figure("device", f"{device.name}, {device.driver}, {device.compiler}, PyTorch {torch.__version__}")
        db = heddle.connect()
        with self.assertRaises(heddle.NotFound):
            db.query("gemm_relu_add", **GEMM)
        result = db.tune("gemm_relu_add", **GEMM, trials=48, progress=False)
        figure("tune gemm_relu_add 256: best", result.best_us, "us")
        figure("tune gemm_relu_add 256: trials", f"{result.trials} in {result.seconds:.1f} s")
        self.assertGreater(result.trials.ok, 40)
        f = db.kernel("gemm_relu_add", **GEMM)
        self.assertEqual((f.record.match, f.device), ("exact", "cuda:0"))
        self.assertEqual(f.record.time_us, db.query("gemm_relu_add", **GEMM).time_us)
        worst = error(f(*matrices()), gemm64(*matrices()))
        figure("tuned gemm_relu_add 256: error", worst)
        self.assertLess(worst, 1e-5)
        near = db.kernel("gemm_relu_add", **GEMM | {"m": 512}, fallback="nearest")
        self.assertEqual(near.record.match, "nearest")
        _, b, _ = matrices()
        a, c = (torch.randn(512, 256, device="cuda") for _ in range(2))
        self.assertLess(error(near(a, b, c), gemm64(a, b, c)), 1e-5)

    def test_events_of_a_job(self):
        job = heddle.connect().tune("vector_add", n=4096, device="cuda:0", trials=12, progress=False, wait=False)
        events = list(job.events())
        self.assertEqual(events[-1].state, "SUCCEEDED")
        self.assertEqual(job.result().trials.total, events[-1].trials)

    def test_a_folder_is_loaded_without_a_database(self):
        db = heddle.connect()
        db.export(f"{folder.name}/exported", "gemm_relu_add", **GEMM, fallback="default")
        f = heddle.load(f"{folder.name}/exported")
        self.assertIsNone(f.record)
        self.assertTrue(torch.equal(f(*matrices()), gemm()(*matrices())) or db.query("gemm_relu_add", **GEMM))
        self.assertLess(error(f(*matrices()), gemm64(*matrices())), 1e-5)

    def test_a_table(self):
        sizes, n, k = [16, 64], 96, 64
        table = heddle.connect().table("matmul", m=sizes, n=n, k=k, device="cuda:0", default=torch.matmul)
        op = table.register("heddle_gpu::linear")
        w = torch.randn(k, n, device="cuda")
        compiled = torch.compile(lambda x, w: op(x, w).relu(), backend="aot_eager", fullgraph=True, dynamic=True)
        for m in (5, 16, 33, 64, 100):
            x = torch.randn(m, k, device="cuda")
            expected = x.double() @ w.double()
            with contextlib.ExitStack() as stack:
                if m > sizes[-1]:
                    stack.enter_context(self.assertLogs("heddle"))
                self.assertLess(error(table(x, w), expected), 1e-5)
            self.assertLess(error(compiled(x, w), expected.relu()), 1e-5)

    def test_importing_is_quick(self):
        code = "import time; t = time.perf_counter(); import heddle, sys; print(time.perf_counter() - t); "
        code += "assert not {'torch', 'numpy'} & {*sys.modules}"
        taken = [float(subprocess.check_output([sys.executable, "-c", code])) for _ in range(3)]
        figure("import heddle", min(taken) * 1e3, "ms")


class Calls(unittest.TestCase):
    def test_out_allocates_nothing(self):
        f, (a, b, c) = gemm(), matrices()
        out = torch.empty_like(c)
        expected = f(a, b, c)
        self.assertLess(error(expected, gemm64(a, b, c)), 1e-5)
        before = torch.cuda.memory_stats()["allocation.all.allocated"]
        self.assertIs(f(a, b, c, out=out), out)
        self.assertEqual(f(a, b, c, out=(out,)), (out,))
        self.assertEqual(torch.cuda.memory_stats()["allocation.all.allocated"], before)
        self.assertTrue(torch.equal(out, expected))

    def test_a_call_is_enqueued_on_the_current_stream_and_waits_for_nothing(self):
        for f, inputs in ((gemm(), matrices()), (softmax(), [torch.randn(96, 512, device="cuda")])):
            with self.subTest(f.manifest.op):
                expected = f(*inputs)
                late = torch.zeros_like(inputs[0])
                side = torch.cuda.Stream()
                torch.cuda.synchronize()
                with torch.cuda.stream(side):
                    f(*inputs)  # its workspaces on this stream
                    torch.cuda._sleep(int(4e8))  # clocks: some 0.2 s
                    late.copy_(inputs[0])
                    begin = time.perf_counter()
                    out = f(late, *inputs[1:])
                    taken = time.perf_counter() - begin
                self.assertFalse(side.query(), "the stream's work ended before it could be looked at")
                self.assertLess(taken, 0.05)
                side.synchronize()
                self.assertTrue(torch.equal(out, expected))

    def test_two_threads_and_two_streams(self):
        f, g = gemm(), softmax()
        _, b, c = matrices()
        inputs = [torch.randn(256, 256, device="cuda") for _ in range(4)]
        rows = [torch.randn(96, 512, device="cuda") for _ in range(4)]
        products, shares = [f(a, b, c) for a in inputs], [g(x) for x in rows]
        for a, got in zip(inputs, products, strict=True):
            self.assertLess(error(got, gemm64(a, b, c)), 1e-5)
        for x, got in zip(rows, shares, strict=True):
            self.assertLess(error(got, torch.softmax(x.double(), -1)), 1e-5)
        torch.cuda.synchronize()
        wrong, failed = {}, []

        def calls(number, stream):
            try:
                with torch.cuda.stream(stream) if stream else contextlib.nullcontext():
                    bad = torch.zeros((), dtype=torch.int64, device="cuda")
                    for i in range(2000):
                        at = (i + number) % 4
                        bad += (f(inputs[at], b, c) != products[at]).any()
                        bad += (g(rows[at]) != shares[at]).any()
                    wrong[number] = int(bad)
            except Exception as why:
                failed.append(why)

        # The third has the default stream, and nothing of CUDA before its first call.
        streams = [torch.cuda.Stream(), torch.cuda.Stream(), None]
        threads = [threading.Thread(target=calls, args=one) for one in enumerate(streams)]
        [t.start() for t in threads]
        [t.join() for t in threads]
        self.assertEqual(failed, [])
        self.assertEqual(wrong, {0: 0, 1: 0, 2: 0})

    def test_many_calls_leak_nothing(self):
        f, (a, b, c) = gemm(), matrices()
        g, x = softmax(), torch.randn(96, 512, device="cuda")
        out = torch.empty_like(c)

        def calls(count):
            for _ in range(count):
                f(a, b, c)
                f(a, b, c, out=out)
                g(x)
            torch.cuda.synchronize()
            gc.collect()
            resident = int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
            return (torch.cuda.memory_allocated(), torch.cuda.mem_get_info()[0], resident, sys.getallocatedblocks())

        before = calls(1000)
        begin = time.perf_counter()
        after = calls(33_334)
        figure("10^5 calls", time.perf_counter() - begin, "s")
        figure("10^5 calls: growth of the process", (after[2] - before[2]) / 1e6, "MB")
        self.assertEqual(after[0], before[0])
        self.assertGreaterEqual(after[1], before[1] - (4 << 20))
        self.assertLess(after[2] - before[2], 5e6)  # fifty bytes a call
        self.assertLess(after[3] - before[3], 1000)

    def test_wrong_tensors_are_named(self):
        f, (a, b, c) = gemm(), matrices()
        long = torch.randn(256 * 256 + 1, device="cuda")
        for wrong, message in [
            ([0.0], "given a list, not a torch tensor"),
            (b.double(), "given float64"),
            (b.half(), "given float16"),
            (b[:128], r"the shape \[128, 256\]"),
            (b.t(), r"strides \(1, 256\), not \(256, 1\).*B\.contiguous\(\)"),
            (long[1:].view(256, 256), r"multiple of 16 bytes.*B\.clone\(\)"),
            (b.cpu(), "on cpu; this kernel runs on cuda:0"),
            (b.to_sparse(), "layout torch.sparse_coo"),
            (b.clone().requires_grad_(), r"gradient.*B\.detach\(\)"),
        ]:
            with self.assertRaisesRegex(heddle.TensorError, rf"input B\[256, 256\] float32: .*{message}"):
                f(a, wrong, c)
        with torch.no_grad():
            f(a, b.clone().requires_grad_(), c)
        with self.assertRaisesRegex(heddle.TensorError, "output C.*shares memory with input A|shares memory"):
            f(a, b, c, out=a)
        with self.assertRaisesRegex(heddle.TensorError, "takes 3 inputs"):
            f(a, b)

    def test_what_a_call_costs(self):
        f = vector_add()
        a, b = (torch.randn(1024, device="cuda") for _ in range(2))
        out = torch.empty_like(a)
        registered = f.register("heddle_gpu::vector_add")
        # What an operator costs that does nothing: the part of PyTorch's dispatcher, on this host.
        library = torch.library.Library("heddle_gpu_nothing", "FRAGMENT")
        library.define("nothing(Tensor a, Tensor b) -> Tensor")
        library.impl("nothing", lambda a, b: out, "CUDA")
        library.impl("nothing", torch.library.fallthrough_kernel, "Autograd")
        libraries.append(library)
        nothing = torch.ops.heddle_gpu_nothing.nothing
        # The same launch through ctypes, and nothing else.
        driver = _cuda.driver()
        image = (f.folder / f.manifest.launches[0].binary).read_bytes()
        launch = f.manifest.launches[0]
        function = driver.function(0, image, launch.entry, launch.shared_bytes)
        form = (function, *launch.grid, *launch.block, launch.shared_bytes)
        cells = [ctypes.c_uint64(t.data_ptr()) for t in (a, b, out)]
        arguments = (ctypes.c_void_p * 3)(*map(ctypes.addressof, cells))
        raw = driver.library.cuLaunchKernel
        raw.argtypes = [ctypes.c_void_p, *[ctypes.c_uint] * 7, *[ctypes.c_void_p] * 3]
        stream = torch.cuda.current_stream().cuda_stream
        with torch.no_grad():
            times = microseconds(
                {
                    "cuLaunchKernel through ctypes": lambda: raw(*form, stream, arguments, None),
                    "PyTorch's a + b": lambda: a + b,
                    "PyTorch's add, out=": lambda: torch.add(a, b, out=out),
                    "an operator in Python that does nothing": lambda: nothing(a, b),
                    "f(a, b, out=c)": lambda: f(a, b, out=out),
                    "f(a, b)": lambda: f(a, b),
                    "registered": lambda: registered(a, b),
                    "registered, by the dispatcher": lambda: registered.default(a, b),
                    "replay of f(a, b, out=c)": captured(lambda: f(a, b, out=out))[0].replay,
                }
            )
        self.assertTrue(torch.equal(out, a + b))
        for name, time_us in times.items():
            figure(f"call: {name}", time_us, "us")
        for name in ("f(a, b, out=c)", "f(a, b)", "registered"):
            over = times[name] - times["cuLaunchKernel through ctypes"]
            figure(f"call: {name} over cuLaunchKernel", over, "us")
            with self.subTest(name):
                self.assertLessEqual(over, 6.0)


class Graphs(unittest.TestCase):
    def replays(self, f, call, place, values, expected, result):
        """10^4 replays of a captured call, its input at `place` changed before each."""
        graph, out = captured(call)
        out = result if result is not None else out
        bad = torch.zeros((), dtype=torch.int64, device="cuda")
        for i in range(10_000):
            place.copy_(values[i % len(values)])
            graph.replay()
            bad += (out != expected[i % len(values)]).any()
        self.assertEqual(int(bad), 0)
        figure(f"replay: {f.manifest.op}", replay_microseconds(graph), "us")

    def test_replays_with_changing_inputs(self):
        f, (a, b, c) = gemm(), matrices()
        values = [torch.randn(256, 256, device="cuda") for _ in range(7)]
        expected = [f(v, b, c) for v in values]
        for value, got in zip(values, expected, strict=True):
            self.assertLess(error(got, gemm64(value, b, c)), 1e-5)
        out = torch.empty_like(c)
        self.replays(f, lambda: f(a, b, c, out=out), a, values, expected, out)

    def test_replays_of_a_kernel_with_workspaces_beside_calls(self):
        f = softmax()
        x = torch.randn(96, 512, device="cuda")
        values = [torch.randn(96, 512, device="cuda") for _ in range(7)]
        expected = [f(v) for v in values]
        for value, got in zip(values, expected, strict=True):
            self.assertLess(error(got, torch.softmax(value.double(), -1)), 1e-5)
        self.replays(f, lambda: f(x), x, values, expected, None)
        # Replays on one stream, calls on another: neither has the other's workspaces.
        graph, out = captured(lambda: f(x))
        x.copy_(values[0])
        side = torch.cuda.Stream()
        torch.cuda.synchronize()
        bad = torch.zeros((), dtype=torch.int64, device="cuda")
        aside = torch.zeros_like(bad)
        torch.cuda.synchronize()
        for i in range(2000):
            graph.replay()
            bad += (out != expected[0]).any()
            with torch.cuda.stream(side):
                aside += (f(values[1 + i % 6]) != expected[1 + i % 6]).any()
        torch.cuda.synchronize()
        self.assertEqual((int(bad), int(aside)), (0, 0))

    def test_a_graph_outlives_the_kernel(self):
        f = Kernel(gemm().folder, device="cuda:0")
        a, b, c = matrices()
        expected = f(a, b, c)
        out = torch.empty_like(c)
        graph, _ = captured(functools.partial(f, a, b, c, out=out))
        del f
        gc.collect()
        out.zero_()
        graph.replay()
        self.assertTrue(torch.equal(out, expected))


class Operators(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.op = gemm().register("heddle_gpu::gemm")

    def test_opcheck(self):
        torch.library.opcheck(self.op.default, tuple(matrices()))

    def test_gradients_are_refused(self):
        a, b, c = matrices()
        with self.assertRaisesRegex(heddle.TensorError, r"input A\[256, 256\].* requires a gradient"):
            self.op(a.requires_grad_(), b, c)
        f = Kernel(gemm().folder, device="cuda:0")
        with torch.no_grad():
            f(a, b, c)  # what was learned from it holds without gradients alone
        with self.assertRaisesRegex(heddle.TensorError, r"input A\[256, 256\].* requires a gradient"):
            f(a, b, c)

    def test_torch_compile_takes_it_whole(self):
        a, b, c = matrices()
        expected = gemm64(a, b, c).sin()
        for backend in ("aot_eager", "inductor"):
            if backend == "inductor" and not CAN_COMPILE:
                print("  inductor is left out: there is no C compiler", file=sys.stderr)
                continue
            with self.subTest(backend):
                torch._dynamo.reset()
                compiled = torch.compile(lambda a, b, c: self.op(a, b, c).sin(), backend=backend, fullgraph=True)
                # The sine's argument has an error that is relative to the largest product.
                self.assertLess(error(compiled(a, b, c), expected), 1e-3)
        a, b, c = matrices()
        graph, out = captured(lambda: self.op(a, b, c))
        a.zero_()
        graph.replay()
        self.assertTrue(torch.equal(out, c))


class Convolutions(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.first = torch.nn.Conv2d(3, 32, 3, padding=1, stride=2, bias=False)
        self.norm = torch.nn.BatchNorm2d(32)
        self.second = torch.nn.Conv2d(32, 32, 3, padding=1, bias=False)
        self.last = torch.nn.Linear(32, 10)

    def forward(self, x):
        x = torch.relu(self.norm(self.first(x)))
        x = torch.relu(self.second(x) + x)
        return torch.softmax(self.last(x.mean((2, 3))), -1)


class Rows(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(128)
        self.up, self.down = torch.nn.Linear(128, 512), torch.nn.Linear(512, 128)

    def forward(self, x):
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))


class Models(unittest.TestCase):
    def setUp(self):
        torch._dynamo.reset()
        torch.manual_seed(1)

    def both(self, model, x, trials, tolerance=1e-4):
        """Ours beside eager and Inductor, in graphs."""
        name = f"{type(model).__name__} {str(x.dtype).removeprefix('torch.')}"
        begin = time.perf_counter()
        run, report = heddle.optimize(model, x, trials=trials, db=heddle.connect(), progress=False, rest="eager")
        figure(f"{name}: optimize", time.perf_counter() - begin, "s")
        print("  " + str(report).replace("\n", "\n  "), file=sys.stderr)
        figure(f"{name}: largest difference from eager", report.largest_error)
        self.assertLess(report.largest_error, tolerance)
        with torch.no_grad():
            graph, out = captured(lambda: run(x))
            x.copy_(torch.randn_like(x))
            expected = model(x)
            graph.replay()
            self.assertLess(error(out, expected.double()), tolerance)
            figure(f"{name}: ours", replay_microseconds(graph), "us")
            figure(f"{name}: eager", replay_microseconds(captured(lambda: model(x))[0]), "us")
            if CAN_COMPILE:
                torch._dynamo.reset()
                compiled = torch.compile(model)
                figure(f"{name}: Inductor", replay_microseconds(captured(lambda: compiled(x))[0]), "us")
        return report

    def test_convolutions(self):
        report = self.both(Convolutions().cuda().eval(), torch.randn(4, 3, 32, 32, device="cuda"), 6)
        kinds = {use.operator.split("_")[0] for use in report.uses}
        self.assertEqual(kinds, {"conv2d", "matmul", "softmax"})
        self.assertEqual({use.match for use in report.uses}, {"exact"})

    def test_convolutions_in_16_bits(self):
        # Their images lie with the channels last, whatever the model's do, and no weight is laid out at a call.
        model, x = Convolutions().cuda().eval().bfloat16(), torch.randn(4, 3, 32, 32, device="cuda").bfloat16()
        for layout in (torch.contiguous_format, torch.channels_last):
            torch._dynamo.reset()
            report = self.both(model.to(memory_format=layout), x.to(memory_format=layout), 6, tolerance=2e-2)
            images = [use.text for use in report.uses if use.operator.startswith("conv2d")]
            self.assertEqual(len(images), 2)
            for text in images:
                self.assertIn("in X[n, h, w, ci], W[co, kh, kw, ci]", text)

    def test_rows(self):
        report = self.both(Rows().cuda().eval(), torch.randn(64, 128, device="cuda"), 0)
        self.assertEqual({use.operator.split("_")[0] for use in report.uses}, {"layer", "matmul"})

    def test_the_choice(self):
        if not CAN_COMPILE:
            self.skipTest("there is no C compiler")
        model, x = Rows().cuda().eval(), torch.randn(64, 128, device="cuda")
        begin = time.perf_counter()
        run, report = heddle.optimize(model, x, trials=4, db=heddle.connect(), progress=False)
        figure("the choice: optimize", time.perf_counter() - begin, "s")
        print("  " + str(report).replace("\n", "\n  "), file=sys.stderr)
        # Each kernel was compared; those that are taken are faster, and the whole is no slower than without them.
        self.assertEqual({use.operator.split("_")[0] for use in report.uses + report.slower}, {"layer", "matmul"})
        for use in report.uses:
            self.assertLess(use.ours_us, use.inductor_us)
        self.assertLessEqual(report.measured_us, report.inductor_us)
        with torch.no_grad():
            graph, out = captured(lambda: run(x))
            x.copy_(torch.randn_like(x))
            graph.replay()
            self.assertLess(error(out, model(x).double()), 1e-4)

    def test_the_backend_by_name(self):
        import torch._dynamo

        from heddle.fx import backend

        installed = "heddle" in torch._dynamo.list_backends(exclude_tags=())
        print(f"  the backend's name is {'' if installed else 'not '}known", file=sys.stderr)
        with torch.no_grad():
            a, b, _ = matrices()
            got = torch.compile(torch.matmul, backend="heddle" if installed else backend)(a, b)
            self.assertLess(error(got, a.double() @ b.double()), 1e-5)


class Documents(unittest.TestCase):
    """What a user is shown, run as it is written; what it prints is printed."""

    def shown(self, *words):
        done = subprocess.run([sys.executable, *words], capture_output=True, text=True, timeout=120, check=False)
        print("  " + "\n  ".join((done.stderr + done.stdout).strip().splitlines()), file=sys.stderr)
        self.assertEqual(done.returncode, 0)

    def test_the_readme_s_lines_on_tensors(self):
        lines = readme_lines()
        for numpy_s, ours in (
            ("numpy as np", "torch"),
            ("np.random.rand(512, 512).astype(np.float32)", "torch.rand(512, 512, device='cuda')"),
        ):
            self.assertIn(numpy_s, lines)
            lines = lines.replace(numpy_s, ours)
        expected = "(a.double() @ b.double()).relu().float() + c"
        check = f"torch.testing.assert_close(f(a, b, c), {expected}, rtol=1e-5, atol=1e-4)"
        self.shown("-c", f"{lines}\n{check}\nassert f.record.match == 'exact', f.record.match")

    def test_the_example(self):
        self.shown(str(SOURCE / "python" / "examples" / "pytorch_matmul.py"), "32")


if __name__ == "__main__":
    if "--json" in sys.argv:
        at = sys.argv.index("--json")
        figures_file = sys.argv[at + 1]
        del sys.argv[at : at + 2]
    unittest.main(verbosity=2)
