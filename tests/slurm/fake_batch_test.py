"""A batch on a real Slurm when things go wrong, with a fake in the tuner's place (fake_task.py): lost nodes, lost
replies, time limits, cancelled tasks. Whatever happens, each trial is in the database once, and no attempt that
was replaced overrules the one that replaced it."""

import json
import os
import signal

from slurm import HEDDLE, Slurm, expect

HERE = os.path.dirname(os.path.realpath(__file__))


class Batch:
    def __init__(self, slurm, name, modes):
        """`modes`: of each task, what its attempts do (fake_task.py)."""
        self.slurm, self.name = slurm, name
        self.parent = f"{slurm.folder}/{name}"
        self.folder = f"{self.parent}/{name}"
        self.db = f"{self.parent}/heddle.db"
        os.mkdir(self.parent)
        for index, mode in enumerate(modes):
            self.write(f"mode.{index}", mode)
        self.write("suite", "".join(f"vector_add n={i + 1}\n" for i in range(len(modes))))
        with open(f"{HERE}/../../deploy/slurm/tune.sbatch") as script:
            script = script.read()
        self.write("task.sbatch", script.replace('exec "$2" cluster task', f"exec {HERE}/fake_task.py")
                   .replace('--folder "$1" --index "$(($3 + SLURM_ARRAY_TASK_ID))"', '"$@"'))

    def write(self, name, text):
        with open(f"{self.parent}/{name}", "w") as out:
            out.write(text)

    def command(self, *flags, check=True, **environment):
        return self.slurm.run(HEDDLE, "cluster", "slurm", "--workloads", f"{self.parent}/suite", "--partition", "gpu",
                              "--cpus-per-task", "1", "--name", self.name, "--folder", self.parent, "--db", self.db,
                              "--task-script", f"{self.parent}/task.sbatch", *flags, check=check, **environment)

    def jobs(self, generation):
        """Of the tasks of a submission: states by index."""
        with open(f"{self.folder}/batch.json") as batch:
            batch = json.load(batch)
        return self.slurm.states("-n", f"heddle-{batch['created']}-{self.name}-{generation}.0")

    def collected(self, generation):
        """Whether what collects after this submission has ended."""
        try:
            with open(f"{self.folder}/log/collect-{generation}.log") as log:
                return "workloads are complete" in log.read() and not self.slurm.run(
                    "squeue", "-h", "-n", self.collector(generation)).stdout
        except OSError:
            return False

    def collector(self, generation):
        with open(f"{self.folder}/batch.json") as batch:
            batch = json.load(batch)
        return f"heddle-{batch['created']}-{self.name}-{generation}.collect"

    def log(self, generation):
        with open(f"{self.folder}/log/collect-{generation}.log") as log:
            return log.read()

    def trials(self):
        lines = self.slurm.run(HEDDLE, "records", "export", "-", "--db", self.db).stdout.splitlines()
        return sorted(json.loads(line)["trial"]["time_us"] for line in lines)

    def attempts(self, index):
        return sorted(f for f in os.listdir(f"{self.folder}/runs") if f"-{index:05}." in f)


def pid_of(slurm, daemon):
    with open(f"{slurm.folder}/cluster/run/{daemon}.pid") as pid:
        return int(pid.read())


with Slurm() as slurm:
    # A node is lost, and the step on it goes on beside the attempt that replaces it.
    lost = Batch(slurm, "lost", ["wait 5\nfinal 8"])
    lost.command("--submit")
    slurm.until("the task runs", lambda: len(os.listdir(f"{lost.folder}/runs")) == 1)
    node = slurm.run("squeue", "-h", "-t", "R", "-o", "%N").stdout.split()[0]
    os.kill(pid_of(slurm, f"slurmd-{node}"), signal.SIGKILL)
    slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    # Meanwhile: interrupted tasks are submitted again by what collects, three times and not by themselves;
    # one that was cancelled is not, nor is one that has succeeded.
    limits = Batch(slurm, "limits", ["interrupted\nfinal 4", "interrupted", "final 6"])
    submitted = limits.command("--submit", "--parallel", "3")
    again = limits.command("--submit", "--parallel", "3")
    expect(again.stdout == submitted.stdout == limits.folder + "\n", again)
    expect(again.stderr == submitted.stderr, f"submitted twice: {submitted.stderr} {again.stderr}")
    other = limits.command("--submit", "--dtype", "float16", check=False)
    expect(other.returncode == 2 and "other workloads" in other.stderr, other)

    slurm.until("all submissions", lambda: limits.collected(3))
    expect(limits.jobs(0).keys() == {"0", "1", "2"}, limits.jobs(0))
    expect(limits.jobs(1).keys() == {"0", "1"}, limits.jobs(1))
    expect(limits.jobs(2).keys() == limits.jobs(3).keys() == {"1"}, limits.jobs(3))
    expect(not limits.jobs(4), "submitted a fourth time")
    expect("given up: vector_add n=2" in limits.log(3), limits.log(3))
    expect(limits.trials() == [4, 6], limits.trials())
    expect([len(limits.attempts(i)) for i in range(3)] == [2, 4, 1], os.listdir(f"{limits.folder}/runs"))

    slurm.until("the attempt that replaces", lambda: lost.collected(0))
    expect(lost.trials() == [8], lost.trials())
    lost.write("go", "")
    slurm.until("the attempt that was replaced", lambda: open(
        f"{lost.folder}/runs/{lost.attempts(0)[0]}").read().count("\n") == 3)
    for added in ("1 trials added", "0 trials added"):
        done = slurm.run(HEDDLE, "records", "collect", lost.folder, "--db", lost.db)
        expect(done.stderr.startswith(added), done.stderr)
    expect(lost.trials() == [5, 8], lost.trials())
    served = slurm.run("sqlite3", lost.db, "SELECT time_us FROM served") if os.path.exists(
        "/usr/bin/sqlite3") else None
    expect(served is None or served.stdout == "8.0\n", served)

    # The reply to sbatch is lost: its job is found by its name, and is the only one.
    os.makedirs(f"{slurm.folder}/bin")
    control = pid_of(slurm, "slurmctld")
    with open(f"{slurm.folder}/bin/sbatch", "w") as script:
        script.write(f"#!/bin/sh\nkill -STOP {control}; (sleep 12; kill -CONT {control}) >&- 2>&- &\n"
                     'exec /usr/bin/sbatch "$@"\n')
    os.chmod(f"{slurm.folder}/bin/sbatch", 0o755)
    reply = Batch(slurm, "reply", ["final 3"])
    first = reply.command("--submit", check=False, PATH=f"{slurm.folder}/bin:{slurm.environment['PATH']}")
    slurm.until("the command again", lambda: reply.command("--submit", check=False).returncode == 0)
    expect(first.returncode in (0, 1, 4), first)
    slurm.until("it is collected", lambda: reply.collected(0))
    ids = set(slurm.run("squeue", "-h", "-t", "all", "--me", "-o", "%F %j").stdout.splitlines())
    expect(len([i for i in ids if "-reply-0.0" in i]) == 1, ids)
    expect(reply.trials() == [3] and len(reply.attempts(0)) == 1, reply.trials())

    # Cancelled: what waits never runs, what runs keeps what it has, and nothing rises again.
    cancelled = Batch(slurm, "cancelled", ["wait 1"] * 4)
    cancelled.command("--submit")
    slurm.until("two run", lambda: list(cancelled.jobs(0).values()).count("RUNNING") == 2
                and len(os.listdir(f"{cancelled.folder}/runs")) == 2)
    cancelled.command("--cancel")
    slurm.until("all have ended", lambda: cancelled.collected(0))
    # Slurm shows those that had not begun as one.
    expect(sorted(cancelled.jobs(0).values()) == ["CANCELLED", "FAILED", "FAILED"], cancelled.jobs(0))
    expect(len(os.listdir(f"{cancelled.folder}/runs")) == 2, "a task that was cancelled has run")
    expect("was cancelled" in cancelled.log(0) and not cancelled.jobs(1), cancelled.log(0))
    # So with scancel: of what runs, and of what had not begun. The node that was lost is not back.
    array = Batch(slurm, "array", ["wait 1"] * 4)
    array.command("--submit")
    slurm.until("two run", lambda: list(array.jobs(0).values()).count("RUNNING") == 2
                and len(os.listdir(f"{array.folder}/runs")) == 2)
    with open(f"{array.folder}/jobs/{array.collector(0).replace('.collect', '.0')}") as job:
        slurm.run("scancel", job.read().strip())
    slurm.until("it is collected", lambda: array.collected(0))
    expect("4 were cancelled and stay so" in array.log(0) and not array.jobs(1), array.log(0))
