"""A server whose jobs a real Slurm runs: a suite is tuned, and meanwhile the server, the controller and a run are
killed, and jobs cancelled. In the cases where things go wrong fake_task.py is in the tuner's place. Whatever happens,
a job ends, and leaves nothing behind in Slurm (fake_executor_test.py kills the server at every step)."""

import json
import os
import signal
import time

from executor import Server
from slurm import HEDDLE, Slurm, expect, skip


def arrays(job):
    """What Slurm knows of the job: {submission: states of its tasks}."""
    found = {}
    for row in slurm.run("squeue", "-h", "-r", "-t", "all", "-o", "%j %T").stdout.splitlines():
        name, state = row.split()
        if f"-{job.removeprefix('jobs/')}-" in name:
            found.setdefault(name.rsplit("-", 1)[1], []).append(state)
    return {submission: sorted(states) for submission, states in found.items()}


def quiet(job):
    return not {"PENDING", "RUNNING", "COMPLETING"} & {state for states in arrays(job).values() for state in states}


def run_of(job, index):
    """The process id of a task that runs."""
    folder = f"{server.jobs}/{job.removeprefix('jobs/')}".encode()
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/cmdline", "rb") as command, open(f"/proc/{entry}/environ", "rb") as environ:
                words, variables = command.read().split(b"\0"), environ.read().split(b"\0")
                if folder in words and f"SLURM_ARRAY_TASK_ID={index}".encode() in variables and any(
                        word.endswith(b"/fake_task.py") for word in words):
                    return int(entry)
        except OSError:
            continue
    return None


with Slurm() as slurm:
    server = Server(slurm, "fake")
    server.start()

    # The server is killed while runs go on, one of which is, too; its controller just before a release.
    server.modes("wait 4\nfinal 6", "wait 5")
    job = server.submit(1, 2)
    slurm.until("both run", lambda: len(server.attempts(job)) == 2 and run_of(job, 0) and run_of(job, 1))
    server.kill()
    os.kill(run_of(job, 0), signal.SIGKILL)
    with open(f"{server.jobs}/go", "w"):
        pass
    slurm.until("all is quiet", lambda: quiet(job))
    server.start()
    told = server.ends(job)
    expect(told["state"] == "SUCCEEDED" and told["device"] == "Loom 9000", told)
    expect([w["best_us"] for w in told["workloads"]] == [6, 5], told)
    expect(arrays(job) == {"0.0": ["COMPLETED", "FAILED"], "1.0": ["COMPLETED"]}, arrays(job))
    expect(len(server.attempts(job)) == 3, server.attempts(job))

    # The controller writes its state down up to 5 s late: what has ended would run for ever for the next one.
    time.sleep(6)
    with open(f"{slurm.folder}/cluster/run/slurmctld.pid") as pid:
        os.kill(int(pid.read()), signal.SIGKILL)
    server.modes("final 7")
    job = server.submit(3)
    slurm.run("/usr/sbin/slurmctld")
    expect(server.ends(job)["workloads"][0]["best_us"] == 7, server.job(job))
    expect(arrays(job) == {"0.0": ["COMPLETED"]}, arrays(job))

    # Cancelled: what runs keeps what it has, what waits never begins. Cancelled in Slurm, the job has failed.
    os.remove(f"{server.jobs}/go")
    server.modes("wait 1", "wait 1", "wait 1", "wait 1")
    job = server.submit(21, 22, 23, 24)
    slurm.until("three run", lambda: len(server.attempts(job)) == 3)
    server.heddle("cancel", job)
    slurm.until("none is left", lambda: arrays(job) and quiet(job))
    expect(server.ends(job)["state"] == "CANCELLED" and len(server.attempts(job)) == 3, server.job(job))
    job = server.submit(25)
    slurm.until("it runs", lambda: len(server.attempts(job)) == 1)
    slurm.run("scancel", "-n", slurm.run("squeue", "-h", "-t", "R", "-o", "%j").stdout.strip())
    told = server.ends(job)
    expect(told["state"] == "FAILED" and "1 cancelled in Slurm" in told["error"], told)
    server.stop()

    # And with the tuner itself, which is told the workload as the server has it.
    devices = json.loads(slurm.run(HEDDLE, "devices", "--json", check=False).stdout)
    if not any(d["usable"] and d["id"].startswith("opencl:") for d in devices):
        skip("pocl: no usable OpenCL device")
    server = Server(slurm, "real", lambda script: script.replace(
        "# module load", f"export HEDDLE_LOCK_FOLDER={slurm.folder}/cluster/lock/$SLURMD_NODENAME TMPDIR={slurm.folder} "
        f"XDG_CACHE_HOME={slurm.folder}/cache; mkdir -p $HEDDLE_LOCK_FOLDER\n#"))
    server.start("--sbatch=--export=PATH,HOME,HEDDLE_DEVICE=auto")
    told = server.ends(server.submit(4096, 2048))
    expect(told["state"] == "SUCCEEDED" and [w["trials"]["total"] for w in told["workloads"]] == [2, 2], told)
    expect(all(w["best_us"] > 0 and w["default_us"] > 0 for w in told["workloads"]), told)
    answer = json.loads(slurm.run(HEDDLE, "query", "vector_add", "--shape", "n=4096", "--db",
                                  f"{server.folder}/heddle.db", "--json").stdout)
    expect(answer["found"] and answer["match"] == "exact", answer)
    server.stop()
