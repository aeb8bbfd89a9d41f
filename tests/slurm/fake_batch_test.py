"""A batch on a real Slurm when things go wrong, with a fake in the tuner's place (fake_task.py): lost nodes, lost
replies, time limits, cancelled tasks. Whatever happens, each trial is in the database once, and no attempt that
was replaced overrules the one that replaced it."""

import os
import signal

from batch import Batch
from slurm import HEDDLE, Slurm, expect

with Slurm() as slurm:
    # A node is lost, and the step on it goes on beside the attempt that replaces it.
    lost = Batch(slurm, "lost", ["wait 5\nfinal 8"])
    lost.command("--submit")
    slurm.until("the task runs", lambda: len(os.listdir(f"{lost.folder}/runs")) == 1)
    node = slurm.run("squeue", "-h", "-t", "R", "-o", "%N").stdout.split()[0]
    os.kill(slurm.pid_of(f"slurmd-{node}"), signal.SIGKILL)
    slurm.run("scontrol", "update", f"nodename={node}", "state=down", "reason=test")

    # Meanwhile: interrupted tasks are submitted again by what collects, three times and not by themselves;
    # one that was cancelled is not, nor is one that has succeeded.
    limits = Batch(slurm, "limits", ["interrupted\nfinal 4", "interrupted", "final 6"])
    # Slurm does not answer the first job that collects, which waits.
    os.makedirs(f"{slurm.folder}/deaf")
    with open(f"{slurm.folder}/deaf/squeue", "w") as script:
        script.write("#!/bin/sh\ncase $SLURM_JOB_NAME in "
                     f"*.collect) mkdir {slurm.folder}/asked 2>&- && exit 1; esac\nexec /usr/bin/squeue \"$@\"\n")
    os.chmod(f"{slurm.folder}/deaf/squeue", 0o755)
    submitted = limits.command("--submit", "--parallel", "3", PATH=f"{slurm.folder}/deaf:{slurm.environment['PATH']}")
    again = limits.command("--submit", "--parallel", "3")
    expect(again.stdout == submitted.stdout == limits.folder + "\n", again)
    expect(again.stderr == submitted.stderr, f"submitted twice: {submitted.stderr} {again.stderr}")
    other = limits.command("--submit", "--dtype", "float16", check=False)
    expect(other.returncode == 2 and "other workloads" in other.stderr, other)
    other = limits.command("--submit", "--parallel", "3", "--trials", "77", check=False)
    expect(other.returncode == 2 and ", not 77" in other.stderr, other)

    # What Slurm refuses, or no node could run, is submitted once its flags are right, and what was cancelled is not
    # submitted again. What collects may run elsewhere.
    slurm.run("scontrol", "create", "partition=apart", "nodes=ALL")
    mended = Batch(slurm, "mended", ["final 3"])
    for flags, why in ((["--sbatch=--partition=nope"], "Invalid partition name"), (["--gpu", "h100"], "not available"),
                       (["--collect-partition", "nope"], ".collect cannot be run"), (["--sbatch=--nope"], "--nope")):
        refused = mended.command("--submit", *flags, check=False)
        expect(refused.returncode == 1 and why in refused.stderr, refused)
        expect("as the cluster stands (sbatch --test-only)" in refused.stderr, refused)
        expect(not os.listdir(f"{mended.folder}/jobs") and not mended.jobs(0), refused)
    mended.command("--submit", "--trials", "5", "--collect-partition", "apart")
    slurm.until("the mended batch", lambda: mended.collected(0))
    expect(mended.trials() == [3], mended.trials())
    ran = {name: slurm.run("squeue", "-h", "-t", "all", "-n", name, "-o", "%P").stdout.split()
           for name in (mended.collector(0), mended.collector(0).replace(".collect", ".0"))}
    expect(list(ran.values()) == [["apart"], ["gpu"]], ran)
    cancelled = mended.command("--cancel")
    expect("Cancelled" in cancelled.stderr, cancelled)
    over = mended.command("--submit", "--trials", "5", check=False)
    expect(over.returncode == 2 and "was cancelled" in over.stderr, over)

    slurm.until("all submissions", lambda: limits.collected(3))
    expect(limits.jobs(0).keys() == {"0", "1", "2"}, limits.jobs(0))
    expect(limits.jobs(1).keys() == {"0", "1"}, limits.jobs(1))
    expect(limits.jobs(2).keys() == limits.jobs(3).keys() == {"1"}, limits.jobs(3))
    expect(not limits.jobs(4), "submitted a fourth time")
    expect("does not answer (squeue); the same command goes on later; again in 1s" in limits.log(0), limits.log(0))
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
    control = slurm.pid_of("slurmctld")
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

    # What collects is lost: the command again says how to go on, which does.
    orphan = Batch(slurm, "orphan", ["wait 1\nfinal 2"])
    orphan.command("--submit")
    slurm.until("it runs", lambda: list(orphan.jobs(0).values()) == ["RUNNING"] and orphan.attempts(0))
    slurm.run("scancel", "-n", orphan.collector(0))
    slurm.run("scancel", "--batch", "--signal=TERM", "-n", orphan.collector(0).replace(".collect", ".0"))
    slurm.until("it has ended", lambda: list(orphan.jobs(0).values()) == ["FAILED"])
    said = orphan.command("--submit").stderr
    expect("1 workloads are not complete" in said and not orphan.jobs(1), said)
    slurm.run(HEDDLE, *said.splitlines()[-1].split(": heddle ")[1].split())
    slurm.until("it is collected", lambda: orphan.collected(1))
    expect(orphan.trials() == [2], orphan.trials())

    # Where no node is left without those that found no device that works, these are tried again.
    everywhere = Batch(slurm, "everywhere", ["begun 5\nfinal 4"])
    everywhere.command("--submit")
    slurm.until("it runs", lambda: everywhere.attempts(0) and everywhere.jobs(0) == {"0": "RUNNING"})
    os.makedirs(f"{everywhere.folder}/unfit")
    for each in slurm.run("sinfo", "-h", "-N", "-o", "%N").stdout.split():
        with open(f"{everywhere.folder}/unfit/{each}", "w") as why:
            why.write("cuda:0 has fallen off the bus\n")
    slurm.run("scancel", "--batch", "--signal=TERM", "-n", everywhere.collector(0).replace(".collect", ".0"))
    slurm.until("it is collected", lambda: everywhere.collected(1))
    expect(everywhere.trials() == [4, 5], everywhere.trials())
    expect("is left out" not in everywhere.log(0), everywhere.log(0))

    # Where none is up nobody knows what could run: it waits until one is.
    up = [each for each in ("n1", "n2", "n3") if each != node]
    slurm.run("scontrol", "update", f"nodename={','.join(up)}", "state=drain", "reason=test")
    away = Batch(slurm, "away", ["final 2"])
    away.command("--submit")
    expect(away.jobs(0) == {"0": "PENDING"}, away.jobs(0))
    slurm.run("scontrol", "update", f"nodename={','.join(up)}", "state=resume")
    slurm.until("it is collected", lambda: away.collected(0))
    expect(away.trials() == [2], away.trials())
