#!/usr/bin/env python3
"""Whole models: heddle.optimize beside torch.compile, on one GPU, both in CUDA graphs of one process.

    PYTHONPATH=python bench/models/compare.py --out DIR [--models NAME,...] [--batch N,...] [--dtype TYPE,...]
               [--mode MODE,...] [--shard I/N] [--trials N] [--seconds S] [--choice-seconds S] [--rounds N]
               [--case-seconds S] [--total-seconds S] [--cold] [--table-only]

For each model of models.py at each batch, type and mode, in a process of its own: the model is tuned into an empty
database (cold), torch.compile compiles it, the results of both and eager's are compared with those in float64, graphs
of all three are replayed in turn, and the model is optimised once more from what is known (warm). DIR keeps a JSON file
of each, written after each of these steps, its database and its cache: what is there is not done again, what was not
finished goes on from its database, without a cold time; --cold begins anew. Modes share a database, so that the first
has the cold time. DIR/results.md is the table of all that DIR holds.
--case-seconds limits each case, --total-seconds all of them. Shards share nothing but DIR: run --shard 1/4 to 4/4 on
four machines, copy their folders into one and run again with --table-only. Or run several with one DIR on one machine,
as compilers take most of the time: whatever measures on the device, a search too, holds DIR/device.lock meanwhile.
Only the times cold and warm are longer then, by what a case waited. Exit code 1 if a case failed. Needs the package
(docs/python.md).

float32 is without TF32; cuDNN tries its algorithms (benchmark mode). --mode is torch.compile's, and what
heddle.optimize leaves to Inductor has its options: by default max-autotune-no-cudagraphs, since the graphs are ours,
and for torch.compile the default one where that has not ended after five minutes. All there is, in some hours:

    bench/models/compare.py --out DIR --dtype float32,bfloat16 --mode max-autotune-no-cudagraphs,default
"""

import argparse
import copy
import fcntl
import functools
import itertools
import json
import logging
import math
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import threading
import time
from collections import namedtuple
from contextlib import contextmanager, suppress
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODE_SECONDS = 300  # that --mode may take before the default one is taken
BATCHES = (1, 16)
DTYPES = ("float32", "float16", "bfloat16")
KERNEL = re.compile(r"^k\d+_")  # how kernels of Heddle are called


Case = namedtuple("Case", "model batch dtype mode")


class TooLong(Exception):
    pass


class Turns:
    """Who measures on the device holds a file's lock, so that no two processes do at once. All threads of a process are
    one: what holds the lock may wait for another thread that measures."""

    def __init__(self, path):
        self._path = path
        self._counting = threading.Lock()
        self._depth = 0
        self.waited = 0.0  # seconds

    @contextmanager
    def turn(self):
        with self._counting:
            if self._depth == 0:
                begin = time.monotonic()
                self._file = open(self._path, "w")  # noqa: SIM115
                fcntl.flock(self._file, fcntl.LOCK_EX)
                self.waited += time.monotonic() - begin
            self._depth += 1
        try:
            yield
        finally:
            with self._counting:
                self._depth -= 1
                if self._depth == 0:
                    self._file.close()

    def take(self, owner, name, before=None):
        """Has a function of a module or a class wait for its turn; `before` is called with its arguments first, without
        a wait."""
        call = getattr(owner, name)

        @functools.wraps(call)
        def in_turn(*arguments, **named):
            if before is not None:
                before(*arguments)
            with self.turn():
                return call(*arguments, **named)

        setattr(owner, name, in_turn)


def case(name, batch, options, keep):
    """Measures one model at one batch; `keep` is given what is known after each step, as JSON has it."""
    import torch
    import torch._inductor
    from models import MODELS
    from torch._inductor.runtime.benchmarking import InductorBenchmarker

    import heddle
    from heddle import _choice, _whole, fx
    from heddle._timing import captured

    turns = Turns(options.out / "device.lock")
    turns.take(heddle.Database, "tune_workloads")
    turns.take(fx, "_values")
    turns.take(fx.Backend, "_laid")
    # A first call compiles.
    turns.take(_choice, "section_times", lambda run, *_: run())
    turns.take(_whole, "beside", lambda calls, *_: [call() for call in calls.values()])
    turns.take(InductorBenchmarker, "benchmark_gpu")  # of autotuning
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    model, inputs = MODELS[name].build(batch)
    dtype = getattr(torch, options.dtype)
    model, inputs = model.cuda().to(dtype), tuple(x.cuda() for x in inputs)
    inputs = tuple(x.to(dtype) if x.is_floating_point() else x for x in inputs)
    torch.set_grad_enabled(False)

    def flat(results):
        return results if isinstance(results, tuple) else (results,)

    with turns.turn():
        double = copy.deepcopy(model).double()
        expected = flat(double(*(x.double() if x.is_floating_point() else x for x in inputs)))
        del double
        model(*inputs)  # cuDNN tries its algorithms
        torch.cuda.synchronize()

    def error(results):
        """The largest, relative to the largest element."""
        return max(
            float((got.double() - right).abs().max() / right.abs().max())
            for got, right in zip(flat(results), expected, strict=True)
        )

    def tuned():
        torch._dynamo.reset()
        begin = time.monotonic()
        # The comparison with float64 below is the stricter one.
        run, report = heddle.optimize(
            model,
            *inputs,
            trials=options.trials,
            seconds=options.seconds,
            tolerance=0.1,
            progress=False,
            options=torch._inductor.list_mode_options(options.mode),
            choice_seconds=options.choice_seconds,
        )
        return run, report, time.monotonic() - begin

    logging.basicConfig(level=logging.WARNING, format="%(asctime)s %(message)s")
    logging.getLogger("heddle").setLevel(logging.INFO)
    row = {"device": torch.cuda.get_device_name(), "torch": torch.__version__}
    cold = not Path(os.environ["HEDDLE_DB"]).exists()
    ours, report, seconds = tuned()
    print(report, file=sys.stderr, flush=True)
    row |= {"cold_seconds": seconds if cold else None, "left": report.left}
    row |= {"groups": [vars(use) for use in report.uses], "slower": [vars(use) for use in report.slower]}
    row |= {kind: getattr(report, kind) for kind in ("inductor_us", "predicted_us", "measured_us", "seconds")}
    keep(row)
    peer, row["mode"] = compiled(model, inputs, options.mode)
    runs = {"ours": ours, "peer": peer, "eager": model}
    with turns.turn():
        row["error"] = {kind: error(run(*inputs)) for kind, run in runs.items()}
        graphs = {kind: captured(lambda run=run: run(*inputs))[0] for kind, run in runs.items()}
        times = replayed({kind: graph.replay for kind, graph in graphs.items()}, options.rounds)
        row["share"] = share(graphs["ours"].replay)
    row["times_us"] = {kind: statistics.median(found) for kind, found in times.items()}
    # Each round's, as both sides of it had the same clocks.
    row["ratio"] = statistics.median(b / a for a, b in zip(times["ours"], times["peer"], strict=True))
    row["waited_seconds"] = turns.waited
    keep(row)
    _, _, row["warm_seconds"] = tuned()
    keep(row)


def compiled(model, inputs, mode):
    """torch.compile's, and in which mode: `mode`, unless that takes too long or fails."""
    import torch

    def over(*_):
        raise TooLong(f"not done after {MODE_SECONDS} s")

    tried = []
    for now in dict.fromkeys((mode, "default")):
        # Without a reset, behind which ours would be compiled again at its next call.
        peer = torch.compile(model, mode=now, dynamic=False)
        signal.signal(signal.SIGALRM, over)
        signal.alarm(MODE_SECONDS)
        try:
            peer(*inputs)
            return peer, "; ".join([now, *tried])
        except Exception as why:
            tried.append(f"{now}: {type(why).__name__} {str(why)[:100]}")
        finally:
            signal.alarm(0)
    raise RuntimeError("torch.compile failed: " + "; ".join(tried))


def replayed(calls, rounds):
    """Microseconds of each call in each round, in which they take turns; by the device's clock."""
    import torch

    times = {kind: [] for kind in calls}
    for number in range(rounds + 2):
        for kind, call in calls.items():
            begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
            call()
            begin.record()
            for _ in range(10):
                call()
            end.record()
            end.synchronize()
            if number >= 2:
                times[kind].append(begin.elapsed_time(end) * 100)
    return times


def share(call):
    """Of the time that kernels take, that of Heddle's."""
    import torch

    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        call()
        torch.cuda.synchronize()
    found = [(e.key, e.self_device_time_total) for e in profile.key_averages()]
    return sum(t for name, t in found if KERNEL.match(name)) / max(sum(t for _, t in found), 1e-9)


def geomean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def table(folder):
    """Markdown of every case that the folder holds."""
    rows = []
    for path in sorted(folder.glob("*.json")):
        with suppress(FileNotFoundError):  # another process begins that case again
            rows.append(json.loads(path.read_text()))
    lines = [
        "| model | batch | type | ours us | torch.compile us | mode | eager us | ratio | to the faster | share % "
        "| error | torch.compile's | eager's | cold s | warm s | kernels |",
        "|---|---:|---|---:|---:|---|" + "---:|" * 10,
    ]
    ratios, to_faster = {}, {}
    for row in sorted(rows, key=lambda row: (row["dtype"], row["batch"], row["asked"], row["model"])):
        if "ratio" not in row:
            failed = f"**{row.get('failed', 'not done')[:80]}**"
            lines.append(f"| {row['model']} | {row['batch']} | {row['dtype']} | {failed} |" + " |" * 12)
            continue
        times, errors = row["times_us"], row["error"]
        # Where eager PyTorch is faster than torch.compile, that is what a user has.
        faster = min(row["ratio"], times["eager"] / times["ours"])
        for kept, ratio in ((ratios, row["ratio"]), (to_faster, faster)):
            kept.setdefault((row["batch"], row["dtype"], row["asked"]), []).append(ratio)
        cells = [
            row["model"],
            row["batch"],
            row["dtype"],
            *(f"{times[kind]:.0f}" for kind in ("ours", "peer")),
            row["mode"],
        ]
        cells += [f"{times['eager']:.0f}", f"{row['ratio']:.2f}", f"{faster:.2f}", f"{100 * row['share']:.0f}"]
        cells += [f"{errors[kind]:.1e}" + (" **" if errors[kind] > 2 * errors["eager"] else "") for kind in errors]
        cells += [f"{row[key]:.0f}" if row.get(key) else "" for key in ("cold_seconds", "warm_seconds")]
        cells.append(sum(group["weight"] for group in row["groups"]))
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    summary = [f"Devices: {', '.join(sorted({r['device'] for r in rows if 'device' in r})) or 'none'}."]
    for (batch, dtype, mode), found in sorted(ratios.items()):
        summary.append(
            f"Batch {batch}, {dtype}, {mode}: ratio to torch.compile (above 1: ours is faster), "
            f"geomean {geomean(found):.3f}, least {min(found):.3f}, of {len(found)} models; "
            f"to the faster of it and eager {geomean(to_faster[batch, dtype, mode]):.3f}."
        )
    summary.append("**: an error of more than twice eager's.")
    return "\n".join([*summary, "", *lines]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("model-results"))
    parser.add_argument("--models", help="of models.py; by default all")
    parser.add_argument("--batch", default=",".join(map(str, BATCHES)))
    parser.add_argument("--dtype", default="float32", help=f"of {', '.join(DTYPES)}")
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--trials", type=int, default=64, help="for each workload on average")
    parser.add_argument("--seconds", type=float, default=240, help="for tuning a model")
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs")
    parser.add_argument(
        "--choice-seconds", type=float, default=60, help="in which kernels are compared, as optimize has it"
    )
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--case-seconds", type=float, default=1500, help="for a model at a batch")
    parser.add_argument("--total-seconds", type=float, default=math.inf, help="for all of them")
    parser.add_argument("--cold", action="store_true", help="forget what is known of cases that are not finished")
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # NAME/BATCH, measured in this process
    options = parser.parse_args()

    if options.case:
        name, batch = options.case.split("/")
        options.out.mkdir(parents=True, exist_ok=True)
        path = result_of(Case(name, int(batch), options.dtype, options.mode), options)
        first = first_of(Case(name, int(batch), options.dtype, options.mode))
        case(name, int(batch), options, lambda row: written(path, first | row))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    if not options.table_only:
        names = options.models.split(",") if options.models else known_models()
        dtypes = options.dtype.split(",")
        for dtype in set(dtypes).difference(DTYPES):
            parser.error(f"--dtype: {dtype} is none of {', '.join(DTYPES)}")
        number, count = map(int, options.shard.split("/"))
        if not 1 <= number <= count:
            sys.exit("--shard wants I/N with 1 <= I <= N")
        # Modes, which share a database, are one shard's.
        stems = [*itertools.product(names, map(int, options.batch.split(",")), dtypes)][number - 1 :: count]
        end = time.monotonic() + options.total_seconds
        known = set()  # databases that --cold leaves as they are
        for one in (Case(*stem, mode) for stem in stems for mode in options.mode.split(",")):
            failed += not measured(one, options, end, known)
            (options.out / "results.md").write_text(table(options.out))
    text = table(options.out)
    (options.out / "results.md").write_text(text)
    print(text)
    return 1 if failed else 0


def known_models():
    """Without PyTorch, which only the cases' own processes load."""
    return re.findall(r'^    "(\w+)": Model\(', (HERE / "models.py").read_text(), re.MULTILINE)


def stem_of(one, options):
    """Of the files that a case's modes share."""
    return options.out / f"{one.model}-{one.batch}-{one.dtype}"


def result_of(one, options):
    return Path(f"{stem_of(one, options)}-{one.mode}.json")


def first_of(one):
    """What is known of a case before it is measured."""
    return {"model": one.model, "batch": one.batch, "dtype": one.dtype, "asked": one.mode}


def written(path, row):
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(row, indent=1))
    partial.replace(path)


def measured(one, options, end, known):
    """Runs a case in a process of its own, unless its file is there; was it measured?"""
    path, stem = result_of(one, options), stem_of(one, options)
    database, cache = Path(f"{stem}.db"), Path(f"{stem}.cache")
    what = f"{one.model} at batch {one.batch}, {one.dtype}, {one.mode}"
    row = json.loads(path.read_text()) if path.exists() else {}
    if "ratio" in row:
        return True
    seconds = min(options.case_seconds, end - time.monotonic())
    if seconds < 1:
        print(f"{what}: no time is left", flush=True)
        return False
    if options.cold and stem not in known:
        for old in stem.parent.glob(f"{stem.name}.db*"):
            old.unlink()
        shutil.rmtree(cache, ignore_errors=True)
    known.add(stem)
    words = [sys.executable, __file__, "--case", f"{one.model}/{one.batch}", "--out", str(options.out)]
    words += ["--dtype", one.dtype, "--mode", one.mode]
    for key in ("trials", "seconds", "choice_seconds", "rounds"):
        words += [f"--{key.replace('_', '-')}", str(getattr(options, key))]
    # Compiled kernels, and what was chosen, are of this case alone: cold as well, the first time.
    environment = {**os.environ, "HEDDLE_DB": str(database), "XDG_CACHE_HOME": str(cache)}
    environment.pop("HEDDLE_SERVER", None)
    before = row.get("cold_seconds")
    path.unlink(missing_ok=True)
    with open(f"{stem}.log", "a") as log:
        try:
            done = subprocess.run(words, stdout=log, stderr=log, env=environment, timeout=seconds, check=False)
            why = f"exit code {done.returncode}" if done.returncode else ""
        except subprocess.TimeoutExpired:
            why = f"not done after {seconds:.0f} s"
    row = json.loads(path.read_text()) if path.exists() else first_of(one)
    if row.get("cold_seconds") is None:
        row["cold_seconds"] = before
    if why:
        row["failed"] = why
    written(path, row)
    said = f"{row['ratio']:.2f} of torch.compile's speed" if "ratio" in row else f"failed: {why}: see {stem}.log"
    print(f"{what}: {said}", flush=True)
    return "ratio" in row


if __name__ == "__main__":
    sys.exit(main())
