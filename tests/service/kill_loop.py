"""Kills server, daemon, searchers, workers and compilers at random during a job: it must end complete, every trial that was
acknowledged present once, and no process left behind.

    kill_loop.py [SECONDS [SEED]]
"""

import json
import os
import random
import signal
import sys
import time

from service import Progress, Service, expect, skip

seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 300
seed = int(sys.argv[2]) if len(sys.argv) > 2 else random.randrange(1 << 30)
print("seed", seed)
draw = random.Random(seed)


with Service() as s:
    if not any(d["usable"] and d["id"] == "opencl:0" for d in s.json("devices", check=False)):
        skip("pocl: no usable OpenCL device")
    at = ["--server", s.server_address]
    commands = {
        "server": ["serve", "--listen", s.server_address, "--lease", "5"],
        "daemon": ["measured", "--device", "opencl:0", *at],
    }
    running = {name: s.start(name, *command) for name, command in commands.items()}
    s.await_devices(*at)
    job = s.run("submit", "matmul", "--shape", "m=64,n=64,k=64", "--trials", "100000",
                "--seconds", str(seconds), *at).stdout.strip()

    killed = {"server": 0, "daemon": 0, "worker": 0, "searcher": 0}
    progress = Progress(s, job, at)
    searched = 0  # how many trials were done when a searcher was killed last

    end = time.monotonic() + seconds
    while time.monotonic() < end:
        time.sleep(draw.uniform(1, 8))
        done = progress.done()
        victim = draw.choice(list(killed))
        # A job fails when searchers are lost again and again without a result between, which on a
        # slow machine they would be.
        if victim == "searcher" and done == searched:
            continue
        if victim in ("worker", "searcher"):
            commands_of = {"worker": ("__worker", "__compiler"), "searcher": ("__searcher",)}
            candidates = s.children(*commands_of[victim])
            if not candidates:
                continue
            try:
                os.kill(draw.choice(candidates), signal.SIGKILL)
            except ProcessLookupError:
                continue
        else:
            running[victim].kill()
            running[victim].wait()
            time.sleep(draw.uniform(0, 2))
            running[victim] = s.start(victim, *commands[victim])
        killed[victim] += 1
        if victim == "searcher":
            searched = done
        for name, process in running.items():
            if process.poll() is not None:  # a device that is not free yet, as a supervisor would
                running[name] = s.start(name, *commands[name])

    for _ in range(20):  # the daemon may still have to wait for its device
        if running["daemon"].poll() is None:
            time.sleep(1)
        else:
            running["daemon"] = s.start("daemon", *commands["daemon"])
    result = s.json("wait", job, "--timeout", str(seconds + 240), *at)
    expect(result["state"] == "SUCCEEDED", result)
    expect(result["best_us"] and result["final"], result)
    trials = s.json("trials", job, *at)
    ids = [t["id"] for t in trials]
    expect(len(set(ids)) == len(ids), "a trial is there twice")
    points = [t["point"] for t in trials if t["state"] == "DONE" and not t["final"]]
    expect(len(set(points)) == len(points), "a point was counted twice")
    by_id = {t["id"]: (t["outcome"], t["time_us"]) for t in trials}
    for trial, said in progress.acknowledged.items():
        expect(by_id.get(trial) == said, f"trial {trial} was {said} and is {by_id.get(trial)}")
    expect(max(t["kills"] for t in trials) <= 2, "a candidate killed more than two workers")
    events = s.run("watch", job, "--json", *at).stdout.splitlines()
    seqs = [json.loads(line) for line in events]
    seen = 0
    for event in seqs:
        if event["first_seq"] == 0:
            continue
        expect(event["first_seq"] == seen + 1, f"a gap after event {seen}: {event}")
        seen = event["seq"]

    for name in ("daemon", "server"):
        running[name].send_signal(signal.SIGTERM)
        expect(running[name].wait(timeout=60) == 0, f"the {name} did not end in order")
    expect(not s.living(), "processes were left behind")
    print(f"killed {killed}; {len(progress.acknowledged)} trials acknowledged on the way, {len(trials)} in all")
