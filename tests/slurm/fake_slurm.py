#!/usr/bin/python3
"""Slurm's client commands without a Slurm, for tests that kill a server at each step of it. The name by which it is
called says which command it is; what there is lies in $FAKE_SLURM:

    jobs.json     arrays by id: {"name", "tasks": {index: state}, "held", "command": [script, arguments]}
    calls         a line for each call: its step, as in `fault`
    fault         "STEP before", "STEP after" or "sbatch late", once: the server (server.pid) is killed when it comes
                  to that step, which is done or not; `late`: the next sbatch is overtaken by it
    refuse        where it is: sbatch fails without --account=a or of-local
    down          where it is: squeue fails

A released array runs at once, to its end: a task does what $FAKE_SLURM/mode.INDEX says, RUNNING for ever, LAUNCH
(it does not begin, and is held until it is released once more), or a state of Slurm's that it ends in without having
run; else its script is run.
"""

import fcntl
import json
import os
import signal
import subprocess
import sys

FOLDER = os.environ["FAKE_SLURM"]
ENDED = ("COMPLETED", "FAILED", "CANCELLED", "TIMEOUT", "NODE_FAIL", "OUT_OF_MEMORY")


def path(name):
    return os.path.join(FOLDER, name)


def read(name, otherwise=""):
    try:
        with open(path(name)) as file:
            return file.read().strip()
    except FileNotFoundError:
        return otherwise


def write(name, text):
    """At once, as the test reads it meanwhile."""
    with open(path(name + ".partial"), "w") as file:
        file.write(text)
    os.rename(path(name + ".partial"), path(name))


def flag(arguments, name, otherwise=None):
    return next((a.split("=", 1)[1] for a in arguments if a.startswith(name + "=")), otherwise)


def indices(ranges):
    for part in ranges.split("%")[0].split(","):
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)


def submit(jobs, arguments):
    positional = [i for i, a in enumerate(arguments) if not a.startswith("--")]
    job = str(len(jobs) + 1)
    jobs[job] = {"name": flag(arguments, "--job-name"), "held": "--hold" in arguments,
                 "tasks": {str(i): "PENDING" for i in indices(flag(arguments, "--array"))},
                 "command": arguments[positional[0]:]}
    return job


def release(job):
    job["held"] = False
    for index in job["tasks"]:
        mode = read(f"mode.{index}")
        if mode == "LAUNCH" and index not in job.setdefault("launched", []):
            job["launched"].append(index)  # to be released again
            continue
        if job["tasks"][index] in ENDED:
            continue
        if mode == "RUNNING" or mode in ENDED:
            job["tasks"][index] = mode
            continue
        done = subprocess.run(["/bin/sh", *job["command"]], stdout=subprocess.DEVNULL,
                              env=dict(os.environ, SLURM_ARRAY_TASK_ID=index, SLURMD_NODENAME="n1"))
        job["tasks"][index] = "COMPLETED" if done.returncode == 0 else "FAILED"


def cancel(jobs, arguments):
    name, state = flag(arguments, "--name"), flag(arguments, "--state")
    for number, job in jobs.items():
        if job["name"] != name and number not in arguments:
            continue
        for index, stands in job["tasks"].items():
            if stands not in ENDED and state in (None, stands):
                job["tasks"][index] = "FAILED" if "--batch" in arguments else "CANCELLED"


def act(step, jobs, arguments):
    if step in ("test", "sbatch"):
        if os.path.exists(path("refuse")) and not {"--account=a", "--account=of-local"} & set(arguments):
            print("sbatch: error: Batch job submission failed: Invalid account", file=sys.stderr)
            return 1
        if step == "test":
            return 0
        print(submit(jobs, arguments))
        if late := read("late"):
            os.remove(path("late"))
            submit(jobs, json.loads(late))
    elif step == "release":
        release(jobs[arguments[1]])
    elif step == "scancel":
        cancel(jobs, arguments)
    elif step in ("find", "look"):
        if os.path.exists(path("down")):
            return 1
        name = arguments[arguments.index("-n") + 1] if step == "find" else None
        for number, job in jobs.items():
            for index, state in job["tasks"].items():
                launched = "launch failed requeued held" if index in job.get("launched", []) else "None"
                reason = "JobHeldUser" if job["held"] else launched
                if name in (None, job["name"]):
                    print(number, index, state, job["name"], reason)
    elif step == "config":
        print("MaxArraySize            = 1001\nMessageTimeout          = 0 sec")
    elif step == "sinfo":
        print("idle" if "%T" in arguments else "8")
    else:
        return 1  # sacct, where there is no accounting
    return 0


def main():
    command, arguments = os.path.basename(sys.argv[0]), sys.argv[1:]
    step = {"squeue": "find" if "-n" in arguments else "look", "sbatch": "test" if "--test-only" in arguments else command,
            "scontrol": "release" if "release" in arguments else "config"}.get(command, command)
    with open(path("lock"), "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with open(path("calls"), "a") as calls:
            calls.write(step + "\n")
        fault = read("fault")
        fault = fault.removeprefix(step + " ") if fault.startswith(step + " ") else ""
        before = read("jobs.json", "{}")
        jobs = json.loads(before)
        code = 1
        if fault == "late":
            write("late", json.dumps(arguments))
        elif fault != "before":
            code = act(step, jobs, arguments)
            # One that only looks must not undo what the test does to the file meanwhile.
            if json.dumps(jobs) != before:
                write("jobs.json", json.dumps(jobs))
        if fault:
            os.remove(path("fault"))
            os.kill(int(read("server.pid")), signal.SIGKILL)
    return code


if __name__ == "__main__":
    sys.exit(main())
