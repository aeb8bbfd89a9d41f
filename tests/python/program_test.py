"""How the program is found and called, and what its answers become."""

import contextlib
import io
import os
import subprocess
import sys
import threading
import time
import unittest
from pathlib import Path
from unittest import mock

from support import SOURCE, Case

import heddle

PROGRESS = r"""
def say(trials, best_us=None, op="matmul", **failed):
    line = dict(op=op, shape=dict(m=4), dtype="float32", device="opencl:0", trials=trials, seconds=1.0, best_us=best_us,
                failed=failed, text=f"{trials}/3 trials")
    print(json.dumps(line), file=sys.stderr, flush=True)
"""
RESULT = {
    "op": "matmul", "shape": {"m": 4}, "dtype": "float32", "workload": "w", "device": "d", "policy": "cold",
    "trials": {"total": 2, "ok": 1, "failed": {"WRONG_ANSWER": 1}}, "default_us": 20.0, "best_us": 10.0,
    "best_ci_us": [9.0, 11.0], "gflops": 1.0, "gbs": 1.0, "roofline": None, "speedup": 2.0, "seconds": 1.0,
    "trials_per_second": 2.0, "interrupted": False, "steps": ["split(C, i, [2])"], "a field of later": 1,
}  # fmt: skip


def screen(text):
    """What a notebook or a terminal shows of a text in which lines begin anew."""
    lines = []
    for written in text.split("\n"):
        shown = ""
        for part in written.split("\r"):
            shown = part.removesuffix("\033[K") if part.endswith("\033[K") else part + shown[len(part) :]
        lines.append(shown.rstrip())
    return [line for line in lines if line]


class Package(Case):
    def test_importing_it_is_light(self):
        # What takes long to load comes with the first use. (A limit of time would depend on the machine.)
        heavy = "numpy torch onnx grpc ctypes heddle.kernel heddle.table"
        code = f"import sys, heddle; print([m for m in '{heavy}'.split() if m in sys.modules])"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        self.assertEqual(done.stdout.strip(), "[]")

    def test_what_needs_a_package_that_is_not_there_says_which(self):
        for name, package in (("optimize", "torch"), ("fx", "torch"), ("torch", "torch"), ("onnx", "onnx")):
            code = f"import sys; sys.modules['{package}'] = None; import heddle; heddle.{name}"
            done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
            wanted = f"heddle.{name} needs the package {package}: pip install 'heddle[{package}]'"
            # NumPy, which heddle.onnx needs first, may be missing as well.
            if "numpy" not in done.stderr:
                self.assertTrue(done.stderr.rstrip().endswith(wanted), done.stderr)

    def test_every_public_name_is_there(self):
        for name in heddle.__all__:
            self.assertIsNotNone(getattr(heddle, name), name)
        with self.assertRaises(AttributeError):
            heddle.no_such_name  # noqa: B018

    def test_its_version_is_the_program_s(self):
        self.assertIn(f"project(heddle VERSION {heddle.__version__} ", (SOURCE / "CMakeLists.txt").read_text())


class Errors(Case):
    def test_an_exit_code_is_a_class_and_the_message_is_the_program_s(self):
        for code, kind in heddle.errors.BY_EXIT_CODE.items():
            self.stand_in(f"print('a note\\nheddle: what is wrong\\nand where', file=sys.stderr); sys.exit({code})")
            with self.assertRaises(kind) as caught:
                heddle.connect().query("matmul", m=1)
            self.assertEqual(str(caught.exception), "what is wrong\nand where")
            self.assertEqual(caught.exception.code, code)

    def test_a_signal_is_told(self):
        self.stand_in("os.kill(os.getpid(), 11)")
        with self.assertRaisesRegex(heddle.ProgramFailed, "signal 11"):
            heddle.connect().query("matmul", m=1)

    def test_the_program_is_told_where_packages_are(self):
        # NVRTC may be one of them; an environment that was activated stays the one.
        self.stand_in("print(json.dumps([dict(id=os.environ['VIRTUAL_ENV'], name='', api='', arch='', usable=True)]))")
        os.environ.pop("VIRTUAL_ENV", None)
        self.assertEqual(heddle.connect().devices()[0].id, sys.prefix)
        os.environ["VIRTUAL_ENV"] = "/another"
        self.assertEqual(heddle.connect().devices()[0].id, "/another")

    def test_threads_that_keep_the_same_file_agree(self):
        from concurrent.futures import ThreadPoolExecutor

        from heddle.operator import keep_file

        both, write = threading.Barrier(2, timeout=60), Path.write_text

        def slowly(path, *arguments, **named):
            write(path, *arguments, **named)
            both.wait()  # neither is done before both have written

        kept = self.folder / "kept"
        with mock.patch.object(Path, "write_text", slowly), ThreadPoolExecutor(2) as threads:
            self.assertEqual(list(threads.map(lambda _: keep_file(kept, "text"), range(2))), [kept] * 2)
        self.assertEqual(kept.read_text(), "text")
        self.assertEqual([path.name for path in self.folder.glob("kept*")], ["kept"])

    def test_no_program(self):
        del os.environ["HEDDLE_PROGRAM"]
        with self.assertRaisesRegex(heddle.ProgramMissing, r"scripts/wheel.*\$HEDDLE_PROGRAM"):
            heddle.connect().query("matmul", m=1)

    def test_a_size_that_is_no_number(self):
        for wrong in (1.5, "4", None, True):
            with self.assertRaisesRegex(heddle.InvalidArgument, "m="):
                heddle.connect().query("matmul", m=wrong)


class Arguments(Case):
    """What the program is asked, by a program that answers with its arguments."""

    def asked(self, call):
        self.stand_in("print(sys.argv[1:], file=sys.stderr); sys.exit(2)")
        with self.assertRaises(heddle.InvalidArgument) as caught:
            call()
        return eval(str(caught.exception))

    def test_a_file(self):
        words = self.asked(lambda: heddle.connect("x.db").query("matmul", m=1, n=2, fallback="nearest"))
        self.assertEqual(words[:4], ["query", "matmul", "--shape", "m=1,n=2"])
        self.assertIn("nearest", words)
        self.assertNotIn("--server", words)

    def test_a_server(self):
        for server in ("host:70", "unix:/tmp/s.sock"):
            words = self.asked(lambda server=server: heddle.connect(server, flags=["--tls"]).query("matmul", m=1))
            self.assertEqual(words[words.index("--server") :][:3], ["--server", server, "--tls"])
            # Without a device it is the only model that the server knows; "auto" would be a model's name.
            self.assertNotIn("auto", words)

    def test_a_parameter_with_the_name_of_an_argument(self):
        words = self.asked(lambda: heddle.connect().query("conv", shape={"device": 3}, n=1))
        self.assertEqual(words[3], "device=3,n=1")


class LocalJobs(Case):
    def test_events_and_result(self):
        self.stand_in(
            PROGRESS
            + f"""
print("Tuning matmul", file=sys.stderr)
say(0)
say(1, 1500.0, WRONG_ANSWER=1, BUILD_ERROR=2)
say(3, 900.0, WRONG_ANSWER=1, BUILD_ERROR=2)
print(json.dumps({RESULT!r}))
"""
        )
        job = heddle.connect().tune("matmul", m=4, wait=False, progress=False)
        events = list(job.events())
        self.assertEqual([e.seq for e in events], [1, 2, 3, 4])
        self.assertEqual([e.trials for e in events], [0, 1, 3, 3])
        self.assertEqual([e.best_us for e in events], [None, 1500, 900, 900])
        self.assertEqual([e.failed for e in events], [{}, *[{"WRONG_ANSWER": 1, "BUILD_ERROR": 2}] * 3])
        self.assertEqual([e.state for e in events], ["RUNNING"] * 3 + ["SUCCEEDED"])
        self.assertEqual(list(job.events(after=2)), events[2:])
        result = job.result()
        self.assertEqual(result.best_ci_us, (9.0, 11.0))
        self.assertEqual(result.trials.failed, {"WRONG_ANSWER": 1})
        self.assertEqual(result.steps, ("split(C, i, [2])",))

    def test_trials_of_several_workloads_are_one_sum(self):
        self.stand_in(
            PROGRESS
            + f"""
say(1, 9.0); say(2, 8.0, HANG=1)
say(1, 5.0, op="softmax", HANG=1)
say(0, 8.0); say(4, 7.0, HANG=2)  # another turn of the first
print(json.dumps([{RESULT!r}] * 2))
"""
        )
        told = []
        heddle.connect().tune_workloads("w.txt", progress=told.append)
        self.assertEqual([e.trials for e in told], [1, 2, 3, 3, 7, 7])
        self.assertEqual({e.best_us for e in told}, {None})
        self.assertEqual(told[-1].failed, {"HANG": 4})

    def test_what_is_shown(self):
        self.stand_in(
            PROGRESS
            + f"""
print("Tuning matmul", file=sys.stderr); say(1, 9.0); say(2, 9.0); say(3, 7.0)
print('{{"op": "mat', file=sys.stderr)  # cut off
print(json.dumps({RESULT!r}))
"""
        )
        with contextlib.redirect_stderr(io.StringIO()) as shown:
            heddle.connect().tune("matmul", m=4)
        # On no terminal, those that are better.
        self.assertEqual(shown.getvalue().splitlines(), ["Tuning matmul", "1/3 trials", "3/3 trials", '{"op": "mat'])

    def test_a_bar_that_changes(self):
        """On terminals and in notebooks."""
        self.stand_in(
            PROGRESS
            + f"""
print("Tuning matmul", file=sys.stderr); say(1, 9.0); say(2, 9.0)
print("x" * 150, file=sys.stderr)
print(json.dumps({RESULT!r}))
"""
        )

        class Terminal(io.StringIO):  # without a size
            def isatty(self):
                return True

        class OutStream(io.StringIO):
            __module__ = "ipykernel.iostream"

        for stream in (Terminal(), OutStream()):
            with contextlib.redirect_stderr(stream):
                heddle.connect().tune("matmul", m=4)
            lines = ["Tuning matmul", "1/3 trials", "2/3 trials", "x" * 150]
            self.assertEqual([part.replace("\033[K", "").rstrip() for part in stream.getvalue().split("\r")[1:]], lines)
            self.assertEqual(screen(stream.getvalue()), ["Tuning matmul", "x" * 150])
        with mock.patch("sys.stderr", None):
            heddle.connect().tune("matmul", m=4)

    def test_a_bar_in_a_notebook(self):
        try:
            import ipykernel  # noqa: F401
            import nbclient
            import nbformat
        except ImportError as error:
            self.skipTest(f"{error}: pip install ipykernel nbclient")
        self.stand_in(
            PROGRESS
            + f"""
print("Tuning matmul", file=sys.stderr)
for n in (1, 2, 3): say(n, 9.0); time.sleep(0.2)
print("Best: 9 us", file=sys.stderr)
print(json.dumps({RESULT!r}))
"""
        )
        cell = nbformat.v4.new_code_cell("import heddle; heddle.connect().tune('matmul', m=4); None")
        book = nbformat.v4.new_notebook(cells=[cell])
        with contextlib.redirect_stderr(io.StringIO()):
            nbclient.NotebookClient(book, timeout=120, kernel_name="python3").execute()
        self.assertEqual({output.get("name") for output in cell.outputs}, {"stderr"}, cell.outputs)
        text = "".join(output["text"] for output in cell.outputs)
        self.assertEqual(screen(text), ["Tuning matmul", "Best: 9 us"])
        self.assertEqual(text.count("/3 trials"), 3)

    def test_a_function_is_told_the_events(self):
        self.stand_in(
            PROGRESS
            + f"""
import signal
def end(*_): open({str(self.folder / "ended")!r}, "w"); os._exit(130)
signal.signal(signal.SIGINT, end)
say(1, 2.0); say(2, 1.0)
while sys.argv[2] == "softmax": time.sleep(1)
print(json.dumps([{RESULT!r}] if "--workloads" in sys.argv else {RESULT!r}))
"""
        )
        told = []
        result = heddle.connect().tune("matmul", m=4, progress=told.append)
        self.assertEqual([(e.state, e.best_us) for e in told], [("RUNNING", 2), ("RUNNING", 1), ("SUCCEEDED", 1)])
        self.assertEqual(result.best_us, 10.0)
        told.clear()
        heddle.connect().tune_workloads("w.txt", progress=told.append)
        self.assertEqual(told[-1].state, "SUCCEEDED")
        with self.assertRaisesRegex(heddle.InvalidArgument, r"job\.events\(\)"):
            heddle.connect().tune("matmul", m=4, progress=told.append, wait=False)

        def fail(event):
            raise RuntimeError("enough")

        with self.assertRaisesRegex(RuntimeError, "enough"):
            heddle.connect().tune("softmax", m=4, progress=fail)
        while not (self.folder / "ended").exists():
            time.sleep(0.01)

    def test_cancelled_it_keeps_what_was_measured_and_says_so(self):
        self.stand_in(
            PROGRESS
            + f"""
import signal
def end(*_): print(json.dumps({RESULT | {"interrupted": True}!r}), flush=True); os._exit(130)
signal.signal(signal.SIGINT, end)
say(1, 2.0)
while True: time.sleep(1)
"""
        )
        job = heddle.connect().tune("matmul", m=4, wait=False, progress=False)
        self.assertEqual(next(job.events()).best_us, 2.0)
        job.cancel()
        with self.assertRaisesRegex(heddle.Interrupted, "kept in the database"):
            job.result()

    def test_no_valid_schedule(self):
        nothing = RESULT | {"best_us": None, "best_ci_us": None, "steps": []}
        said = "print('heddle: no valid schedule among 2', file=sys.stderr)"
        self.stand_in(f"print(json.dumps({nothing!r})); {said}; sys.exit(3)")
        with self.assertRaisesRegex(heddle.NoValidSchedule, "no valid schedule among 2"):
            heddle.connect().tune("matmul", m=4, progress=False)

    def test_a_refusal_has_the_program_s_message(self):
        self.stand_in("print('Tuning\\nheddle: no such thing', file=sys.stderr); sys.exit(4)")
        with self.assertRaisesRegex(heddle.Unavailable, "^no such thing$"):
            heddle.connect().tune("matmul", m=4, progress=False)

    def test_what_is_raised_is_not_shown_as_well(self):
        error = "print('heddle: no such thing\\nbut this', file=sys.stderr)"
        went_on = "print('heddle: one failed\\nso it did', file=sys.stderr); say(1, 2.0)"
        for script, raised, shown in (
            (f"{went_on}; {error}; sys.exit(4)", True, ["heddle: one failed", "so it did", "1/3 trials"]),
            # What is not raised is shown.
            (f"{error}; print(json.dumps([{RESULT!r}])); sys.exit(2)", False, ["heddle: no such thing", "but this"]),
            (f"{error}; print(json.dumps([{RESULT!r}]))", False, ["heddle: no such thing", "but this"]),
        ):
            self.stand_in(f"{PROGRESS}\n{script}\n")
            expected = self.assertRaisesRegex(heddle.Unavailable, "^no such thing\nbut this$")
            with contextlib.redirect_stderr(io.StringIO()) as said, expected if raised else contextlib.nullcontext():
                heddle.connect().tune_workloads("w.txt")
            self.assertEqual(said.getvalue().splitlines(), shown)

    def test_of_several_workloads_those_that_were_tuned(self):
        failed = {"op": "softmax", "shape": {}, "error": "it does not compile"}
        for documents, code, error in [
            ([RESULT, failed], 2, None),
            ([failed], 2, heddle.InvalidArgument),
            ([RESULT, failed], 4, heddle.Unavailable),
        ]:
            self.stand_in(f"print(json.dumps({documents!r})); print('heddle: why', file=sys.stderr); sys.exit({code})")
            if error is None:
                results = heddle.connect().tune_workloads("w.txt", progress=False)
                self.assertEqual([r.op for r in results], ["matmul"])
            else:
                with self.assertRaisesRegex(error, "^why$"):
                    heddle.connect().tune_workloads("w.txt", progress=False)

    def test_nothing_found_is_told_and_nothing_valid_as_well(self):
        none = {"found": False, "op": "matmul", "shape": {"m": 4}, "device": "X"}
        for shown, error in ((f"print(json.dumps({none!r}))", heddle.NotFound), ("", heddle.NoValidSchedule)):
            self.stand_in(f"{shown}; print('heddle: why', file=sys.stderr); sys.exit(3)".lstrip("; "))
            with self.assertRaises(error):
                heddle.connect("unix:s").query("matmul", m=4)

    def test_a_running_job_ends_with_its_interpreter(self):
        self.stand_in(f"open({str(self.folder / 'pid')!r}, 'w').write(str(os.getpid()))\nwhile True: time.sleep(1)")
        code = (
            "import heddle, os, time\n"
            "job = heddle.connect().tune('matmul', m=4, wait=False, progress=False)\n"
            f"while not os.path.exists({str(self.folder / 'pid')!r}): time.sleep(0.01)\n"
        )
        subprocess.run([sys.executable, "-c", code], check=True)
        pid = int((self.folder / "pid").read_text() or 0)
        for _ in range(6000):
            try:
                with open(f"/proc/{pid}/stat") as stat:
                    if stat.read().rsplit(")", 1)[1].split()[0] == "Z":
                        return
            except FileNotFoundError:
                return
            time.sleep(0.01)
        self.fail("it still runs")


class ServerJobs(Case):
    def test_events_are_counted_from_the_first_on(self):
        def trial(outcome, us, final=False):
            return {"final": final, "outcome": outcome, "time_us": us}

        def job(total, best, **failed):
            return {"workloads": [{"trials": {"total": total, "failed": failed}, "best_us": best}]}

        lines = [
            # A snapshot tells the job as it is now, the events behind it how it came to that.
            {"first_seq": 0, "seq": 0, "state": "SUCCEEDED", "job": job(9, 1.0)},
            {"first_seq": 1, "seq": 1, "state": "RUNNING"},
            {"first_seq": 2, "seq": 2, "state": "RUNNING", "trial": trial("OK", 7.0)},
            {"first_seq": 3, "seq": 3, "state": "RUNNING", "trial": trial("WRONG_ANSWER", None)},
            {"first_seq": 4, "seq": 6, "state": "RUNNING", "job": job(5, 6.0, WRONG_ANSWER=1, HANG=1)},
            {"first_seq": 7, "seq": 7, "state": "RUNNING", "trial": trial("OK", 5.0, final=True)},
            {"first_seq": 8, "seq": 8, "state": "SUCCEEDED"},
        ]
        self.stand_in(f"""
if sys.argv[1] == "submit": print(json.dumps(dict(id="job-1")))
if sys.argv[1] == "wait": print(json.dumps({RESULT!r}))
if sys.argv[1] == "watch":
    for line in {lines!r}: print(json.dumps(line))
""")
        job = heddle.connect("unix:/s").tune("matmul", m=4, wait=False)
        self.assertEqual(job.id, "job-1")
        events = list(job.events())
        self.assertEqual([e.seq for e in events], [1, 2, 3, 6, 7, 8])
        self.assertEqual([e.trials for e in events], [0, 1, 2, 5, 5, 5])
        self.assertEqual([e.best_us for e in events], [None, 7.0, 7.0, 6.0, 6.0, 6.0])
        self.assertEqual(events[-1].failed, {"HANG": 1, "WRONG_ANSWER": 1})
        self.assertEqual(list(job.events(after=3)), events[3:])
        self.assertEqual(job.result().best_us, 10.0)

    def test_a_file_of_workloads_is_one_job(self):
        nothing = RESULT | {"op": "softmax", "best_us": None, "best_ci_us": None, "steps": []}
        for documents, code, expected in [
            ([RESULT, nothing], 3, ["matmul"]),
            (RESULT, 0, ["matmul"]),
            ([nothing], 3, None),
        ]:
            self.stand_in(f"""
open({str(self.folder / "asked")!r}, "a").write(" ".join(sys.argv[1:]) + "\\n")
if sys.argv[1] == "submit": print(json.dumps(dict(id="job-1")))
if sys.argv[1] == "wait": print(json.dumps({documents!r})); sys.exit({code})
""")
            db = heddle.connect("unix:/s")
            if expected is None:
                with self.assertRaisesRegex(heddle.NoValidSchedule, "job job-1"):
                    db.tune_workloads("w.txt", op_file="o.op", trials=7)
            else:
                self.assertEqual([r.op for r in db.tune_workloads("w.txt", op_file="o.op", trials=7)], expected)
        asked = (self.folder / "asked").read_text().splitlines()
        submit = "submit --workloads w.txt --trials 7 --seconds 0 --op-file o.op --server unix:/s --json"
        self.assertEqual(asked[:2], [submit, "wait job-1 --server unix:/s --json"])


if __name__ == "__main__":
    unittest.main()
