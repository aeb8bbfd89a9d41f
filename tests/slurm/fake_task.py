#!/usr/bin/python3
"""In a tuner's place, where tests kill tasks and nodes: takes an attempt's file as `heddle cluster task` does, and
behaves as FOLDER/mode.INDEX says:

    final T         a final of T microseconds, and the end
    screened T      as final, after a trial of a search that was of half as many
    none            no valid schedule: the end with exit code 3
    interrupted [T] TERM, or the time limit, has come: the end with exit code 130, after a final of T microseconds
    begun T         a final of T microseconds, and then nothing more until TERM comes
    wait T          until there is FOLDER/go, or TERM comes; a final of T microseconds, and the end

Each attempt takes the line of its number, the last one where there are fewer."""

import json
import os
import signal
import sys
import time

TEXT = "op vector_add(n) { in A[n], B[n] out C[i: n] = A[i] + B[i] } n=32 float32"


def fnv(text):
    state = 0xCBF29CE484222325
    for byte in text.encode():
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return f"{state:016x}"


def trial(time_us, final=True):
    return {
        "format": 1,
        "workload": {"hash": fnv(TEXT), "op": "vector_add", "shape": {"n": 32}, "dtype": "float32", "text": TEXT},
        "environment": {"device_name": "Loom 9000", "device_uuid": "u", "arch": "sm_90", "sm_count": 132,
                        "driver": "1", "compiler": "NVRTC", "generator_version": 1, "feature_version": 1,
                        "l2": "cold", "memory_mib": 0, "power_limit_w": 0},
        "trial": {"point": "tile: 1", "steps": "bind(C, i, thread)\n", "final": final, "imported": False,
                  "outcome": "OK", "detail": "", "time_us": time_us, "ci_low_us": time_us, "ci_high_us": time_us,
                  "samples": 1, "noisy": False, "screened_out": False, "max_error": 0.0, "registers": 0,
                  "local_bytes": 0, "shared_bytes": 0, "source_hash": "", "compile_s": 0.0, "load_s": 0.0,
                  "validate_s": 0.0, "time_s": 0.0, "throttled": False, "other_processes": 0,
                  "when_us": time.time_ns() // 1000, "host": os.environ["SLURMD_NODENAME"], "run": "fake"},
    }


folder, index = sys.argv[1], int(sys.argv[3]) + int(os.environ["SLURM_ARRAY_TASK_ID"])
with open(f"{folder}/batch.json") as batch:
    batch = json.load(batch)
run = f"{batch['created']}-{batch['name']}-{index:05}"
for attempt in range(100):
    try:
        out = open(f"{folder}/runs/{run}.{attempt}.jsonl", "x")
        break
    except FileExistsError:
        continue


def write(line):
    out.write(json.dumps(line) + "\n")
    out.flush()


def interrupted(*_):
    write({"format": 1, "end": {"exit_code": 130}})
    sys.exit(130)


signal.signal(signal.SIGTERM, interrupted)
write({"format": 1, "run": {"name": run, "attempt": attempt, "host": os.environ["SLURMD_NODENAME"],
                            "device": "Loom 9000", "generator_version": 1}})
with open(f"{folder}/../mode.{index}") as modes:
    modes = modes.read().splitlines()
mode, *time_us = modes[min(attempt, len(modes) - 1)].split()
if mode == "begun" or mode == "interrupted" and time_us:
    write(trial(float(time_us[0])))
if mode == "interrupted":
    interrupted()
if mode == "none":
    write({"format": 1, "end": {"exit_code": 3}})
    sys.exit(3)
while mode == "begun" or mode == "wait" and not os.path.exists(f"{folder}/../go"):
    time.sleep(0.1)
if mode == "screened":
    write(trial(float(time_us[0]) / 2, final=False))
write(trial(float(time_us[0])))
write({"format": 1, "end": {"exit_code": 0}})
