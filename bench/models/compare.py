#!/usr/bin/env python3
"""Whole models: heddle.optimize beside torch.compile, on one GPU, both in CUDA graphs of one process.

    PYTHONPATH=python bench/models/compare.py --out DIR [--models NAME,...] [--batch N,...] [--shard I/N]
               [--trials N] [--seconds S] [--mode MODE] [--rounds N] [--table-only]

For each model of models.py at each batch, in a process of its own: the model is tuned into an empty database (cold) and
once more from it (warm); its result, eager's and torch.compile's are compared with those in float64; then graphs of
all three are replayed in turn. DIR keeps a JSON file of each, and what is there is not done again; DIR/results.md is
the table of all that DIR holds. Shards share nothing but DIR: run --shard 1/4 to 4/4 on four machines, copy their
folders into one and run again with --table-only. Exit code 1 if a case failed. Needs the package (docs/python.md).

float32 without TF32; cuDNN tries its algorithms (benchmark mode). --mode is torch.compile's: by default
max-autotune-no-cudagraphs, since the graphs are ours, and the default one where that has not ended after five minutes.
"""

import argparse
import copy
import json
import math
import os
import re
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent
MODE_SECONDS = 300  # that --mode may take before the default one is taken
CASE_SECONDS = 1500
BATCHES = (1, 16)
KERNEL = re.compile(r"^k\d+_")  # how kernels of Heddle are called


class TooLong(Exception):
    pass


def case(name, batch, options):
    """Measures one model at one batch; what is found, as JSON has it."""
    import torch
    from models import MODELS

    import heddle

    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    torch.backends.cudnn.benchmark = True
    model, inputs = MODELS[name].build(batch)
    model, inputs = model.cuda(), tuple(x.cuda() for x in inputs)
    torch.set_grad_enabled(False)

    def flat(results):
        return results if isinstance(results, tuple) else (results,)

    double = copy.deepcopy(model).double()
    expected = flat(double(*(x.double() if x.is_floating_point() else x for x in inputs)))
    del double

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
            model, *inputs, trials=options.trials, seconds=options.seconds, tolerance=1e-2, progress=False
        )
        return run, report, time.monotonic() - begin

    row = {"model": name, "batch": batch, "device": torch.cuda.get_device_name(), "torch": torch.__version__}
    _, _, row["cold_seconds"] = tuned()
    ours, report, row["warm_seconds"] = tuned()
    row["groups"] = [vars(use) for use in report.uses]
    row["left"] = report.left
    peer, row["mode"] = compiled(model, inputs, options.mode)
    runs = {"ours": ours, "peer": peer, "eager": model}
    row["error"] = {kind: error(run(*inputs)) for kind, run in runs.items()}
    graphs = {kind: captured(lambda run=run: run(*inputs)) for kind, run in runs.items()}
    times = replayed({kind: graph.replay for kind, graph in graphs.items()}, options.rounds)
    row["times_us"] = {kind: statistics.median(found) for kind, found in times.items()}
    # Each round's, as both sides of it had the same clocks.
    row["ratio"] = statistics.median(b / a for a, b in zip(times["ours"], times["peer"], strict=True))
    row["share"] = share(graphs["ours"].replay)
    return row


def compiled(model, inputs, mode):
    """torch.compile's, and in which mode: `mode`, unless that takes too long or fails."""
    import torch

    def over(*_):
        raise TooLong(f"not done after {MODE_SECONDS} s")

    tried = []
    for now in dict.fromkeys((mode, "default")):
        torch._dynamo.reset()
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


def captured(call):
    import torch

    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(3):
            call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        call()
    return graph


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
    rows = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
    lines = [
        "| model | batch | ours us | torch.compile us | mode | eager us | ratio | share % | error | torch.compile's "
        "| eager's | cold s | warm s | kernels |",
        "|---|---:|---:|---:|---|" + "---:|" * 9,
    ]
    ratios = {}
    for row in sorted(rows, key=lambda row: (row["batch"], row["model"])):
        if "failed" in row:
            lines.append(f"| {row['model']} | {row['batch']} | **{row['failed'][:80]}** |" + " |" * 11)
            continue
        times, errors = row["times_us"], row["error"]
        ratios.setdefault(row["batch"], []).append(row["ratio"])
        cells = [row["model"], row["batch"], *(f"{times[kind]:.0f}" for kind in ("ours", "peer")), row["mode"]]
        cells += [f"{times['eager']:.0f}", f"{row['ratio']:.2f}", f"{100 * row['share']:.0f}"]
        cells += [f"{errors[kind]:.1e}" + (" **" if errors[kind] > 2 * errors["eager"] else "") for kind in errors]
        cells += [f"{row['cold_seconds']:.0f}", f"{row['warm_seconds']:.0f}", sum(g["weight"] for g in row["groups"])]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    summary = [f"Devices: {', '.join(sorted({r['device'] for r in rows if 'device' in r})) or 'none'}."]
    for batch, found in sorted(ratios.items()):
        summary.append(
            f"Batch {batch}: ratio to torch.compile (above 1: ours is faster), geomean {geomean(found):.3f}, "
            f"least {min(found):.3f}, of {len(found)} models."
        )
    summary.append("**: an error of more than twice eager's.")
    return "\n".join([*summary, "", *lines]) + "\n"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("model-results"))
    parser.add_argument("--models", help="of models.py; by default all")
    parser.add_argument("--batch", default=",".join(map(str, BATCHES)))
    parser.add_argument("--shard", default="1/1", metavar="I/N")
    parser.add_argument("--trials", type=int, default=64, help="for each workload on average")
    parser.add_argument("--seconds", type=float, default=240, help="for tuning a model")
    parser.add_argument("--mode", default="max-autotune-no-cudagraphs")
    parser.add_argument("--rounds", type=int, default=21)
    parser.add_argument("--table-only", action="store_true")
    parser.add_argument("--case", help=argparse.SUPPRESS)  # NAME/BATCH, measured in this process
    options = parser.parse_args()

    if options.case:
        name, batch = options.case.split("/")
        print(json.dumps(case(name, int(batch), options)))
        return 0
    options.out.mkdir(parents=True, exist_ok=True)
    failed = 0
    if not options.table_only:
        names = options.models.split(",") if options.models else known_models()
        cases = [(name, int(batch)) for name in names for batch in options.batch.split(",")]
        number, count = map(int, options.shard.split("/"))
        if not 1 <= number <= count:
            sys.exit("--shard wants I/N with 1 <= I <= N")
        for name, batch in cases[number - 1 :: count]:
            failed += not measured(name, batch, options)
    text = table(options.out)
    (options.out / "results.md").write_text(text)
    print(text)
    return 1 if failed else 0


def known_models():
    """Without PyTorch, which only the cases' own processes load."""
    return re.findall(r'^    "(\w+)": Model\(', (HERE / "models.py").read_text(), re.MULTILINE)


def measured(name, batch, options):
    """Runs a case in a process of its own, unless its file is there; was it measured?"""
    path = options.out / f"{name}-{batch}.json"
    if path.exists() and "failed" not in json.loads(path.read_text()):
        return True
    stem = options.out / f"{name}-{batch}"
    words = [sys.executable, __file__, "--case", f"{name}/{batch}", "--trials", str(options.trials)]
    words += ["--seconds", str(options.seconds), "--mode", options.mode, "--rounds", str(options.rounds)]
    database = Path(f"{stem}.db")
    database.unlink(missing_ok=True)  # cold
    environment = {**os.environ, "HEDDLE_DB": str(database)}
    environment.pop("HEDDLE_SERVER", None)
    with tempfile.TemporaryDirectory() as cache, open(f"{stem}.log", "w") as log:
        environment["XDG_CACHE_HOME"] = cache  # compiled kernels: cold as well
        try:
            done = subprocess.run(
                words, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, timeout=CASE_SECONDS, check=False
            )
            row = json.loads(done.stdout.splitlines()[-1]) if done.returncode == 0 else None
            why = f"exit code {done.returncode}"
        except subprocess.TimeoutExpired:
            row, why = None, f"not done after {CASE_SECONDS} s"
    said = f"{row['ratio']:.2f} of torch.compile's speed" if row else f"failed: {why}: see {stem}.log"
    print(f"{name} at batch {batch}: {said}", flush=True)
    row = row or {"model": name, "batch": batch, "failed": why}
    partial = path.with_suffix(".part")
    partial.write_text(json.dumps(row, indent=1))
    partial.replace(path)
    return "failed" not in row


if __name__ == "__main__":
    sys.exit(main())
