"""A server whose jobs Slurm runs, killed at every step that it takes, and what becomes of a job whose tasks end as no
test can have a real Slurm end them. The commands are fake_slurm.py, the tuner is fake_task.py."""

import contextlib
import json
import os
import signal

from executor import HERE, Server
from place import Place
from slurm import HEDDLE, expect

COMMANDS = ("sbatch", "squeue", "scontrol", "scancel", "sacct", "sinfo")


class FakeSlurm(Place):
    """What of slurm.Slurm a Server needs."""

    def __init__(self):
        super().__init__("fake-slurm")
        os.mkdir(f"{self.folder}/bin")
        for command in COMMANDS:
            os.symlink(f"{HERE}/fake_slurm.py", f"{self.folder}/bin/{command}")
        self.environment |= {"PATH": f"{self.folder}/bin:{os.environ['PATH']}", "FAKE_SLURM": self.folder}

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.remove()

    def path(self, name):
        return f"{self.folder}/{name}"

    def say(self, name, text):
        """In one step, as fakes read it meanwhile."""
        with open(self.path(name + ".new"), "w") as out:
            out.write(text)
        os.rename(self.path(name + ".new"), self.path(name))

    @contextlib.contextmanager
    def down(self):
        """Slurm does not answer, so that the server does nothing."""
        self.say("down", "")
        looks = self.calls().count("look")
        self.until("the server has seen it", lambda: self.calls().count("look") > looks + 1)
        yield
        os.remove(self.path("down"))

    def calls(self):
        with open(self.path("calls"), "a+") as calls:
            calls.seek(0)
            return calls.read().split()

    def explain(self):
        with open(self.path("server/server.log"), errors="replace") as log:
            return f"{' '.join(self.calls()[-40:])}\n{log.read()[-4000:]}"

    def modes(self, *modes):
        for index, mode in enumerate(modes):
            self.say(f"mode.{index}", mode)

    def arrays(self, job):
        """States of the tasks of each array of the job, by the submission's number."""
        try:
            with open(self.path("jobs.json")) as text:
                jobs = json.load(text)
        except FileNotFoundError:
            return {}
        found = {}
        for each in jobs.values():
            if f"-{job.removeprefix('jobs/')}-" in each["name"]:
                found.setdefault(each["name"].rsplit("-", 1)[1], []).append(list(each["tasks"].values()))
        return found


with FakeSlurm() as slurm:
    refused = slurm.run(HEDDLE, "serve", "--executor", "slurm", check=False)
    expect(refused.returncode == 2 and "--partition" in refused.stderr, refused)
    for executor, flag in (("slurm", "--image"), ("fleet", "--partition")):
        refused = slurm.run(HEDDLE, "serve", "--executor", executor, flag, "x", check=False)
        expect(refused.returncode == 2 and f"{flag} is a flag of --executor " in refused.stderr, refused)

    server = Server(slurm, "server")
    server.start()

    # Killed at each step, before and after it was done, the server goes on where it was: one array runs, one attempt
    # is made, one result is there. Of two that a killed one's sbatch and the next one's have made, one begins.
    server.modes("final 8")
    size = 0
    for faults in (["config before", "find before", "test before", "sbatch before", "sbatch after", "release before",
                    "release after", "look after"], ["config after", "find after", "sbatch late"]):
        size += 1
        with slurm.down():
            job = server.submit(size)
            slurm.say("fault", faults[0])
        for fault, then in zip(faults, [*faults[1:], ""]):
            expect(server.process.wait(120) == -signal.SIGKILL, fault)
            slurm.say("fault", then)
            server.start()
        told = server.ends(job)
        expect(told["state"] == "SUCCEEDED" and told["device"] == "Loom 9000", (faults, told))
        expect(told["workloads"][0]["best_us"] == 8 and told["workloads"][0]["default_us"] == 8, told)
        states = slurm.arrays(job)
        expect(states["0.0"][0] == ["COMPLETED"] and len(states) == 1, (faults, states))
        expect(len(server.attempts(job)) == 1, (faults, server.attempts(job)))
        twin = "sbatch late" in faults
        slurm.until("no twin is left", lambda: slurm.arrays(job)["0.0"][1:] == [["CANCELLED"]] * twin)

    # What a later job's runs start from is what the earlier ones have measured.
    with open(f"{server.jobs}/{job.removeprefix('jobs/')}/warm/current") as current:
        expect(os.listdir(os.path.dirname(current.name)).count(f"{current.read()}.db") == 1, current.name)

    # How tasks end is told in a user's words, and what others have measured stays. Three times more is enough.
    slurm.modes("OUT_OF_MEMORY", "NODE_FAIL", "", "")
    server.modes("", "", "final 5", "none", "interrupted 4\ninterrupted 3\ninterrupted 2\nfinal 1")
    job = server.submit(31, 32, 33, 34, 35)
    told = server.ends(job)
    expect(told["state"] == "FAILED" and [w["best_us"] for w in told["workloads"]] == [None, None, 5, None, 1], told)
    for words in ("2 of 5 workloads are not complete after 4 submissions", "1 out of memory on its node",
                  "1 on a node that failed", "vector_add(n = 34) has no valid schedule"):
        expect(words in told["error"], (words, told))
    expect({k: len(v[0]) for k, v in slurm.arrays(job).items()} == {"0.0": 5, "1.0": 3, "2.0": 3, "3.0": 3},
           slurm.arrays(job))
    # Each submission had a database of its own to start from: the newest and the one before are left.
    warm = f"{server.jobs}/{job.removeprefix('jobs/')}/warm"
    with open(f"{warm}/current") as current:
        expect(len(os.listdir(warm)) == 3 and f"{current.read()}.db" in os.listdir(warm), os.listdir(warm))

    # A file that is no run's costs nothing but itself. A folder that cannot be read, as on a network that is away, does
    # not say that nothing was submitted, though Slurm has forgotten it.
    slurm.modes("RUNNING", "")
    server.modes("final 5", "final 6")
    job = server.submit(35, 36)
    folder = f"{server.jobs}/{job.removeprefix('jobs/')}"
    slurm.until("a task runs, the other has ended", lambda: slurm.arrays(job) == {"0.0": [["RUNNING", "COMPLETED"]]})
    with open(f"{folder}/runs/damaged.0.jsonl", "w") as damaged:
        damaged.write("no run\n")
    slurm.until("it is told of", lambda: "damaged.0.jsonl" in server.log())
    slurm.until("the other's is there", lambda: server.job(job)["workloads"][1]["best_us"] == 6)
    with slurm.down():
        submitted = slurm.calls().count("sbatch")
        os.rename(slurm.path("jobs.json"), slurm.path("remembered"))
        os.rename(f"{folder}/jobs", f"{folder}/away")
        os.symlink("jobs", f"{folder}/jobs")
    slurm.until("it cannot be read", lambda: f"{folder}/jobs" in server.log())
    looks = slurm.calls().count("look")
    slurm.until("it has looked again", lambda: slurm.calls().count("look") > looks + 3)
    expect(slurm.calls().count("sbatch") == submitted, "submitted again")
    with slurm.down():
        os.remove(f"{folder}/jobs")
        os.rename(f"{folder}/away", f"{folder}/jobs")
        os.rename(slurm.path("remembered"), slurm.path("jobs.json"))
    server.heddle("cancel", job)
    slurm.until("it is told to stop", lambda: slurm.arrays(job) == {"0.0": [["FAILED", "COMPLETED"]]})
    expect(server.log().count("damaged.0.jsonl") == 1, server.log())

    # A task that Slurm holds since its node did not launch it is released.
    slurm.modes("LAUNCH", "")
    # What the finals said of a best counts, not the search.
    server.modes("screened 7", "final 8")
    job = server.submit(37, 38)
    told = server.ends(job)
    expect([w["best_us"] for w in told["workloads"]] == [7, 8], told)
    expect(slurm.arrays(job) == {"0.0": [["COMPLETED", "COMPLETED"]]}, slurm.arrays(job))

    # Cancelled, the server killed at that: what runs is told to stop, once, and nothing is left.
    slurm.modes("RUNNING", "RUNNING")
    for fault in ("scancel before", "scancel after"):
        size += 1
        job = server.submit(41 + size, 51 + size)
        slurm.until("it runs", lambda: slurm.arrays(job) == {"0.0": [["RUNNING", "RUNNING"]]})
        with slurm.down():
            server.heddle("cancel", job)
            slurm.say("fault", fault)
        expect(server.process.wait(60) == -signal.SIGKILL, fault)
        server.start()
        slurm.until("it was told", lambda: slurm.arrays(job) == {"0.0": [["FAILED", "FAILED"]]})
        expect(server.ends(job)["state"] == "CANCELLED", fault)

    # What its runs leave behind when the job has ended is counted, too.
    slurm.modes("RUNNING", "")
    server.modes("screened 6", "")
    job = server.submit(60)
    slurm.until("it runs", lambda: slurm.arrays(job) == {"0.0": [["RUNNING"]]})
    with slurm.down():
        server.heddle("cancel", job)
        expect(server.ends(job)["state"] == "CANCELLED" and not server.job(job)["started"], server.job(job))
        slurm.run(f"{HERE}/fake_task.py", f"{server.jobs}/{job.removeprefix('jobs/')}", "", "0", SLURM_ARRAY_TASK_ID="0",
                  SLURMD_NODENAME="n1")
    slurm.until("it is counted", lambda: server.job(job)["workloads"][0]["best_us"] == 6)
    told = server.job(job)
    expect(told["workloads"][0]["trials"]["total"] == 1 and told["state"] == "CANCELLED", told)
    expect(told["created"] <= told["started"] <= told["ended"] and told["device"] == "Loom 9000", told)

    # What Slurm refuses waits, which the job tells at once, and goes on with flags that it takes.
    slurm.modes("", "")
    server.modes("final 3")
    slurm.say("refuse", "")
    job = server.submit(61)
    slurm.until("it is refused", lambda: "Invalid account" in server.job(job)["error"])
    told = server.job(job)
    expect(not told["ended"] and "does not take it, and it is tried again" in told["error"], told)
    server.stop()
    server.start("--sbatch=--account=of-{tenant}")
    told = server.ends(job)
    expect(told["workloads"][0]["best_us"] == 3 and told["state"] == "SUCCEEDED" and not told["error"], told)

    # A device of a fleet is none of a cluster's; another model than the partition's is said at the first result.
    server.modes("final 3")
    done = server.heddle("submit", "vector_add", "--shape", "n=71", "--device", "Warp 1", "--json")
    told = server.ends(json.loads(done)["id"])
    expect(told["state"] == "FAILED" and "has Loom 9000" in told["error"], told)
    server.stop()
