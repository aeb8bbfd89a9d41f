"""A suite of 12 workloads on a server whose jobs a real Slurm runs, while the controller, the server, a node's daemon
and runs are killed at random: it ends complete, each trial is there once, and nothing is left in Slurm.

    kills_test.py SEED KILLS

fake_task.py is in the tuner's place, and waits until the last kill."""

import collections
import json
import os
import random
import signal
import sys
import time

from executor import Server
from slurm import HEDDLE, Slurm, expect

SEED, KILLS = int(sys.argv[1]), int(sys.argv[2])
WORKLOADS = 12
MOST = 2  # kills of a workload's runs: it is submitted again three times
LOOKS = 10  # a second apart, until what runs nowhere is taken to be lost
DELAYS = (0.1, 0.6)  # seconds between kills


def runs(job):
    """Process ids of the job's tasks that run, by index."""
    folder = f"{server.jobs}/{job.removeprefix('jobs/')}".encode()
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as command, open(f"/proc/{entry}/environ", "rb") as environ:
                words, variables = command.read().split(b"\0"), environ.read().split(b"\0")
        except OSError:
            continue
        if folder not in words or not any(w.endswith(b"/fake_task.py") for w in words):
            continue
        index = next((v for v in variables if v.startswith(b"SLURM_ARRAY_TASK_ID=")), None)
        if index is not None:
            found[int(index.split(b"=")[1])] = int(entry)
    return found


def pid_of(daemon):
    try:
        with open(f"{slurm.folder}/cluster/run/{daemon}.pid") as pid:
            return int(pid.read())
    except (OSError, ValueError):
        return None


def end(pid):
    try:
        os.kill(pid, signal.SIGKILL)
    except (ProcessLookupError, TypeError):
        return
    slurm.until("it has ended", lambda: not os.path.exists(f"/proc/{pid}") or ") Z " in open(f"/proc/{pid}/stat").read())


def restart(node):
    end(pid_of(f"slurmd-{node}"))
    slurm.run("/usr/sbin/slurmd", "-N", node)


def kill(what):
    """Kills it, and starts it again where nobody else does."""
    if what == "server":
        server.kill()
        server.start()
    elif what == "controller":
        end(pid_of("slurmctld"))
        slurm.run("/usr/sbin/slurmctld")
    elif what == "node":
        restart(f"n{chance.randrange(3) + 1}")
    else:
        living = {index: pid for index, pid in runs(job).items() if killed[index] < MOST}
        if not living:
            return
        index = chance.choice(sorted(living))
        killed[index] += 1
        end(living[index])


def heal():
    """A controller or a node's daemon that was killed as a task began or ended leaves one that runs for Slurm alone, until
    its node registers again: minutes later, or when its daemon starts."""
    time.sleep(1)
    rows = slurm.run("squeue", "-h", "-r", "-t", "R", "-o", "%K %N", check=False).stdout.split()
    for node in slurm.run("sinfo", "-h", "-N", "-t", "drain", "-o", "%N", check=False).stdout.split():
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
    living = runs(job)
    lost = {node for index, node in zip(rows[::2], rows[1::2]) if int(index) not in living}
    for node in set(suspects) - lost:
        del suspects[node]
    for node in lost:
        suspects[node] += 1
        # A launch takes long on a busy machine, and one that is cut off fails.
        if suspects[node] == LOOKS:
            del suspects[node]
            restart(node)


def ended():
    return server.job(job)["state"] in ("SUCCEEDED", "FAILED", "CANCELLED")


chance, killed, suspects = random.Random(SEED), collections.Counter(), collections.Counter()
with Slurm() as slurm:
    print("seed", SEED)
    server = Server(slurm, "kills")
    server.start()
    server.modes(*(f"wait {i + 1}" for i in range(WORKLOADS)))
    job = server.submit(*(4096 + 64 * i for i in range(WORKLOADS)))
    slurm.until("three run", lambda: len(runs(job)) == 3)
    done = []
    while len(done) < KILLS:
        done.append(chance.choice(("server", "controller", "node", "run", "run")))
        kill(done[-1])
        time.sleep(chance.uniform(*DELAYS))
    with open(f"{server.jobs}/go", "w"):
        pass
    slurm.until("the end", lambda: heal() or ended(), limit=500)
    told = server.job(job)
    expect(told["state"] == "SUCCEEDED", (SEED, done, told))
    best = [w["best_us"] for w in told["workloads"]]
    expect(best == [i + 1 for i in range(WORKLOADS)], (SEED, done, best))
    lines = slurm.run(HEDDLE, "records", "export", "-", "--db", f"{server.folder}/heddle.db").stdout.splitlines()
    trials = [json.loads(line) for line in lines]
    keys = collections.Counter((t["workload"]["hash"], t["trial"]["point"], t["trial"]["final"], t["trial"]["time_us"],
                                t["trial"]["when_us"])
                               for t in trials)
    expect(max(keys.values()) == 1, (SEED, done, [k for k, n in keys.items() if n > 1]))
    # Each workload is complete by one attempt, and no more are there than were submitted or requeued.
    slurm.until("nothing is left in Slurm", lambda: heal() or not slurm.run("squeue", "-h", "--me").stdout)
    expect(len(server.attempts(job)) >= WORKLOADS, server.attempts(job))
    server.stop()
