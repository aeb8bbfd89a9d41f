"""A suite of 12 workloads twice on a real Slurm that accounts, by a server and by `heddle cluster slurm --submit`, while
the controller, the server, a node's daemon and runs are killed at random, and runs preempted and brought to their time
limit. Both end complete, each trial is there once, and nothing is left in Slurm; submitted again, nothing is.

    kills_test.py SEED KILLS fake|heddle     who tunes: fake_task.py, which waits until the last kill, or the tuner itself"""

import collections
import glob
import json
import os
import random
import signal
import sys
import time

from batch import Batch
from executor import Server, fake_script
from slurm import HEDDLE, Slurm, expect, skip

SEED, KILLS, REAL = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3] == "heddle"
SUITE = ("vector_add n=4096", "vector_add n=5000", "transpose m=64,n=64", "transpose m=100,n=36", "softmax m=32,n=64",
         "softmax m=16,n=100", "layer_norm m=32,n=64", "matmul m=32,n=32,k=32", "matmul_nt m=32,n=24,k=16",
         "matmul_tn m=16,n=32,k=24", "batch_matmul b=2,m=16,n=16,k=16", "window_sum n=4096")
TRIALS = 8
MOST = 2  # kills of a workload's runs: it is submitted again three times
LOOKS = 10  # a second apart, until what runs nowhere is taken to be lost
DELAYS = (2, 8) if REAL else (0.1, 0.6)  # seconds between kills
# A time limit is looked at twice a minute: a fake would have to wait for it (accounts_test.py).
KINDS = ("server", "controller", "node", "preempt", "run", "run") + ("limit", "limit") * REAL


def runs():
    """What runs, by the job's name without the submission, and the index: process and job of Slurm's."""
    found = {}
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as environ:
                words = environ.read().decode(errors="replace").split("\0")
        except OSError:
            continue
        variables = dict(word.split("=", 1) for word in words if "=" in word)
        if variables.get("SLURM_SUBMIT_DIR", "").startswith(slurm.folder) and variables.get("SLURM_TASK_PID") == entry:
            name = variables["SLURM_JOB_NAME"].rsplit("-", 1)[0]
            found[name, variables.get("SLURM_ARRAY_TASK_ID")] = (int(entry), variables["SLURM_JOB_ID"])
    return found


def end(pid):
    if pid:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return
        slurm.until("it has ended", lambda: slurm.gone(pid))


def restart(node):
    end(slurm.pid_of(f"slurmd-{node}"))
    slurm.run("/usr/sbin/slurmd", "-N", node)


def kill(what):
    """Kills it, and starts it again where nobody else does. Whether it could."""
    if what == "server":
        server.kill()
        server.start(*FLAGS)
    elif what == "controller":
        end(slurm.pid_of("slurmctld"))
        slurm.run("/usr/sbin/slurmctld")
    elif what == "node":
        restart(f"n{chance.randrange(3) + 1}")
    elif what == "preempt":
        return slurm.run("sbatch", "--qos=urgent", "--gres=gpu:1", "--export=PATH", "--output=/dev/null", "--wrap",
                         "sleep 1", check=False).returncode == 0
    else:
        living = {which: run for which, run in runs().items() if which[1] and killed[which] < MOST}
        if not living:
            return False
        which = chance.choice(sorted(living))
        pid, number = living[which]
        if what == "run":
            end(pid)
        elif slurm.run("scontrol", "update", f"jobid={number}", "timelimit=1", check=False).returncode != 0:
            return False
        killed[which] += 1
    return True


def heal():
    """What an administrator and the batch's owner do. A controller or a node's daemon that was killed as a task began or ended
    leaves one that runs for Slurm alone, until its node registers again: minutes later, or when its daemon starts."""
    time.sleep(1)
    for node in slurm.run("sinfo", "-h", "-N", "-t", "drain", "-o", "%N", check=False).stdout.split():
        slurm.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)
    # The urgent jobs are nobody's but this test's; Heddle's own are released by Heddle.
    held = slurm.run("squeue", "-h", "-t", "PD", "--name=wrap", "-o", "%A %r", check=False).stdout.splitlines()
    for number in (row.split()[0] for row in held if "held" in row):
        slurm.run("scontrol", "release", number, check=False)
    living = {number for _, number in runs().values()}
    rows = slurm.run("squeue", "-h", "-r", "-t", "R", "-o", "%A %N", check=False).stdout.split()
    lost = {node for number, node in zip(rows[::2], rows[1::2]) if number not in living}
    for node in set(suspects) - lost:
        del suspects[node]
    for node in lost:
        suspects[node] += 1
        # A launch takes long on a busy machine, and one that is cut off fails.
        if suspects[node] == LOOKS:
            del suspects[node]
            restart(node)
    looks.append(lost)
    if len(looks) % LOOKS == 0 and not complete():
        said = batch.command("--submit", *budget, check=False).stderr
        if "not complete" in said:
            owner.append(said)
            slurm.run(HEDDLE, *said.splitlines()[-1].split(": heddle ")[1].split(), check=False)


def complete():
    """Whether each of the batch's workloads has an attempt that has succeeded."""
    ended = set()
    for file in glob.glob(f"{batch.folder}/runs/*.jsonl"):
        with open(file) as lines:
            if '"exit_code":0}' in lines.read().replace(" ", ""):
                ended.add(file.rsplit("/", 1)[1].split(".")[0])
    return len(ended) == len(SUITE)


def known(trial):
    return (trial["workload"]["hash"], *(trial["trial"][key] for key in ("point", "final", "time_us", "when_us")))


def check(what, db, folder):
    """Of a batch that has ended: what its runs have written is in the database, once. One that goes on and that Slurm
    has forgotten, as a controller does that was killed, may write later."""
    written, late = set(), set()
    mark = f"{folder}/ended"
    for file in glob.glob(f"{folder}/runs/*.jsonl"):
        with open(file) as lines:
            # A run that was killed may have left half a line.
            found = {known(json.loads(line)) for line in lines if '"trial"' in line and line.endswith("\n")}
        in_time = not os.path.exists(mark) or os.path.getmtime(file) < os.path.getmtime(mark)
        (written if in_time else late).update(found)
    lines = slurm.run(HEDDLE, "records", "export", "-", "--db", db).stdout.splitlines()
    there = collections.Counter(known(json.loads(line)) for line in lines)
    expect(max(there.values()) == 1, (what, SEED, done, [key for key, n in there.items() if n > 1]))
    expect(written <= set(there) <= written | late, (what, SEED, done, written ^ set(there)))
    tried = collections.Counter(key[0] for key in there if not key[2])
    # A small workload has fewer points than were asked for.
    expect(not REAL or min(tried.values()) >= 2, (what, SEED, done, tried))
    return len(os.listdir(f"{folder}/runs")), sum(there.values())


def arrays():
    return set(slurm.run("squeue", "-h", "-t", "all", "-o", "%F").stdout.split())


def own_script(script):
    """A site's: three nodes are one host, whose device has one lock a node."""
    return script.replace("# module load", f"export HEDDLE_LOCK_FOLDER={slurm.folder}/cluster/lock/$SLURMD_NODENAME "
                          f"TMPDIR={slurm.folder} XDG_CACHE_HOME={slurm.folder}/cache HEDDLE_DEVICE=auto\nmkdir -p $HEDDLE_LOCK_FOLDER\n#")


FLAGS = ("--sbatch=--account=knit",)
script = own_script if REAL else fake_script
chance, killed, suspects = random.Random(SEED), collections.Counter(), collections.Counter()
looks, owner = [], []
with Slurm("--accounts") as slurm:
    print("seed", SEED)
    if REAL and not any(d["usable"] and d["id"].startswith("opencl:") for d in json.loads(
            slurm.run(HEDDLE, "devices", "--json", check=False).stdout)):
        skip("pocl: no usable OpenCL device")
    server = Server(slurm, "kills", script)
    server.start(*FLAGS)
    modes = [f"wait {i + 1}" for i in range(len(SUITE))]
    server.modes(*modes)
    job = server.submit_suite(SUITE, TRIALS)
    batch = Batch(slurm, "batch", modes, SUITE, script)
    budget = ("--trials", str(TRIALS), "--sbatch=--account=weave")
    batch.command("--submit", *budget)
    slurm.until("three run", lambda: len(runs()) == 3)
    done = []
    while len(done) < KILLS and (server.open(job) or not complete()):
        done.append(chance.choice(KINDS))
        if not kill(done[-1]):
            done.pop()
        time.sleep(chance.uniform(*DELAYS))
    for folder in (server.jobs, batch.parent):
        with open(f"{folder}/go", "w"):
            pass
    slurm.until("the ends", lambda: heal() or complete() and not server.open(job), limit=1500 if REAL else 500)
    slurm.until("nothing is left in Slurm", lambda: heal() or not slurm.run("squeue", "-h", "--me").stdout)
    told = server.job(job)
    expect(told["state"] == "SUCCEEDED", (SEED, done, told))
    best = [w["best_us"] for w in told["workloads"]]
    expect(all(best) and (REAL or best == [i + 1 for i in range(len(SUITE))]), (SEED, done, best))
    folder = f"{server.jobs}/{job.removeprefix('jobs/')}"
    slurm.until("it is collected", lambda: os.path.exists(f"{folder}/ended"))
    slurm.run(HEDDLE, "records", "collect", batch.folder, "--db", batch.db)
    counts = [check("server", f"{server.folder}/heddle.db", folder), check("batch", batch.db, batch.folder)]

    # Submitted again, nothing is.
    before = arrays()
    server.requests -= 1
    expect(server.submit_suite(SUITE, TRIALS) == job, "another job")
    expect("not complete" not in batch.command("--submit", *budget).stderr, "it is not complete")
    server.stop()
    expect(arrays() <= before, arrays() - before)
    states = collections.Counter(slurm.run("sacct", "-X", "-D", "-n", "-P", "-o", "State").stdout.replace(
        "CANCELLED by 0", "CANCELLED").split())
    print(f"kills: {dict(collections.Counter(done))}; (attempts, trials) of server and batch: {counts}; "
          f"ends of tasks in Slurm: {dict(states)}; commands by hand: {len(owner)}")
