"""On a real Slurm that accounts (slurmdbd): the time limit, two accounts' fair share and preemption are the engine's, and
cost nothing of what was measured. fake_task.py is in the tuner's place."""

import json
import os
import signal

from batch import Batch
from executor import Server
from slurm import HEDDLE, Slurm, expect


def priorities(*which):
    return [int(each) for each in slurm.run("squeue", "-h", "-r", "-t", "PD", "-o", "%Q", *which).stdout.split()]


with Slurm("--accounts") as slurm:
    # The time limit: TERM before it, what was measured is kept, and the run is submitted again.
    limited = Batch(slurm, "limited", ["begun 9\nfinal 4"] * 3)
    # Slurm looks at limits every half minute, and says so half a minute early; never in a run's first ten seconds.
    limited.command("--submit", "--time", "1", "--sbatch=--signal=B:TERM@20", "--sbatch=--account=weave")
    server = Server(slurm, "server")
    server.start("--sbatch=--account=knit")
    slurm.until("it is submitted again", lambda: limited.collected(1))
    states = [set(limited.jobs(generation).values()) for generation in range(3)]
    expect(states == [{"FAILED"}, {"COMPLETED"}, set()], states)
    expect(limited.trials() == [4, 4, 4, 9, 9, 9], limited.trials())

    # What was used counts from the next calculation on, and there is one when the controller starts.
    control = slurm.pid_of("slurmctld")
    os.kill(control, signal.SIGTERM)
    slurm.until("the controller ends", lambda: slurm.gone(control))
    slurm.run("/usr/sbin/slurmctld")

    # Fair share: whose account has used less comes before who has waited longer.
    weave = Batch(slurm, "weave", ["wait 5"] * 6)
    weave.command("--submit", "--sbatch=--account=weave")
    slurm.until("three run", lambda: len(os.listdir(f"{weave.folder}/runs")) == 3)
    server.modes(*["begun 8\nfinal 3"] * 3)
    knit = server.submit(1, 2, 3)
    slurm.until("six wait", lambda: len(priorities()) == 7)
    # Priorities are of Slurm's last calculation, too.
    slurm.until("it comes first", lambda: max(priorities("-A", "weave")) < min(priorities("-A", "knit")))
    weave.write("go", "")
    slurm.until("the other account's run", lambda: len(server.attempts(knit)) == 3)
    expect(len(os.listdir(f"{weave.folder}/runs")) == 3, slurm.run("squeue").stdout)

    # Preemption: what runs is told to stop, keeps what it has, waits, and goes on as the next attempt.
    urgent = "while [ ! -e urgent ]; do sleep 0.1; done"
    slurm.run("sbatch", "--qos=urgent", "--gres=gpu:1", "--array=0-2", "--export=PATH", "--output=/dev/null", "--wrap", urgent)
    slurm.until("it runs", lambda: slurm.states("-q", "urgent") == dict.fromkeys("012", "RUNNING"))
    with open(f"{slurm.folder}/urgent", "w"):
        pass
    told = server.ends(knit)
    expect(told["state"] == "SUCCEEDED" and [w["best_us"] for w in told["workloads"]] == [3, 3, 3], told)
    slurm.until("the other account's end", lambda: weave.collected(0))
    expect(weave.trials() == [5] * 6, weave.trials())
    lines = slurm.run(HEDDLE, "records", "export", "-", "--db", f"{server.folder}/heddle.db").stdout.splitlines()
    times = sorted(json.loads(line)["trial"]["time_us"] for line in lines)
    expect(times == [3, 3, 3, 8, 8, 8] and len(server.attempts(knit)) == 6, (times, server.attempts(knit)))
    tasks = slurm.run("sacct", "-X", "-D", "-n", "-P", "-A", "knit", "-o", "JobName,State").stdout.split()
    expect(sorted(task.rsplit("|", 1)[1] for task in tasks) == ["COMPLETED"] * 3 + ["PREEMPTED"] * 3, tasks)
    expect(len({task.rsplit("|", 1)[0] for task in tasks}) == 1, f"submitted again: {tasks}")
    server.stop()
    slurm.until("nothing is left in Slurm", lambda: not slurm.run("squeue", "-h", "--me").stdout)
