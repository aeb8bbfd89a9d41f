"""What the tests of `heddle serve --executor slurm` share, on a real Slurm and on a fake one."""

import atexit
import json
import os
import signal
import subprocess

from slurm import HEDDLE, expect

UNAVAILABLE = 4  # the exit code
HERE = os.path.dirname(os.path.realpath(__file__))


def shipped_script():
    with open(f"{HERE}/../../deploy/slurm/tune.sbatch") as script:
        return script.read()


def fake_script(script):
    """The site's script with fake_task.py in the tuner's place."""
    return script.replace('exec "$2" cluster task', f"exec {HERE}/fake_task.py").replace(
        '--folder "$1" --index "$(($3 + SLURM_ARRAY_TASK_ID))"', '"$@"')


class Server:
    """A server beside `cluster` (slurm.Slurm, or what looks like it), with its folder NAME there. `script` makes the
    site's script of deploy/slurm's."""

    def __init__(self, cluster, name, script=fake_script):
        self.cluster, self.folder = cluster, f"{cluster.folder}/{name}"
        self.jobs = f"{self.folder}/jobs"
        os.makedirs(self.jobs)
        self.script = f"{self.folder}/task.sbatch"
        with open(self.script, "w") as out:
            out.write(script(shipped_script()))
        cluster.environment |= {"HEDDLE_DB": f"{self.folder}/heddle.db", "XDG_CACHE_HOME": f"{cluster.folder}/cache"}
        self.process, self.starts, self.requests = None, 0, 0

    def start(self, *flags):
        with open(f"{self.folder}/server.log", "ab") as log:
            self.process = subprocess.Popen(
                [HEDDLE, "serve", "--executor", "slurm", "--partition", "gpu", "--cpus-per-task", "1", "--folder",
                 self.jobs, "--task-script", self.script, "--look-every", "0.1", *flags],
                env=self.cluster.environment, stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder)
        atexit.register(self.process.kill)
        with open(f"{self.cluster.folder}/server.pid", "w") as pid:
            pid.write(str(self.process.pid))
        # A client that comes too early waits for seconds until it tries again.
        self.starts += 1
        self.cluster.until("the server listens", lambda: self.log().count("heddle: serving on") == self.starts)

    def log(self):
        with open(f"{self.folder}/server.log", errors="replace") as log:
            return log.read()

    def stop(self):
        self.process.send_signal(signal.SIGTERM)
        expect(self.process.wait(120) == 0, "the server ended badly")

    def kill(self):
        self.process.kill()
        self.process.wait()

    def heddle(self, *arguments):
        """Of a server that may just have been started."""
        done = None

        def answers():
            nonlocal done
            done = self.cluster.run(HEDDLE, *arguments, check=False)
            expect(done.returncode in (0, UNAVAILABLE), done)
            return done.returncode == 0

        self.cluster.until(f"heddle {arguments[0]}", answers)
        return done.stdout

    def modes(self, *modes):
        """What the fake tuner does for each workload (fake_task.py)."""
        for index, mode in enumerate(modes):
            with open(f"{self.jobs}/mode.{index}", "w") as out:
                out.write(mode)

    def submit(self, *sizes):
        """A job of vector_add, a workload for each size."""
        return self.submit_suite([f"vector_add n={n}" for n in sizes])

    def submit_suite(self, workloads, trials=2):
        with open(f"{self.folder}/suite", "w") as suite:
            suite.writelines(f"{workload}\n" for workload in workloads)
        # The same request, however often it must be sent.
        self.requests += 1
        return json.loads(self.heddle("submit", "--workloads", f"{self.folder}/suite", "--trials", str(trials), "--request-id",
                                      f"{os.path.basename(self.folder)}-{self.requests}", "--json"))["id"]

    def job(self, job):
        found = json.loads(self.heddle("jobs", job, "--json"))
        return found[0] if isinstance(found, list) else found

    def open(self, job):
        return self.job(job)["state"] not in ("SUCCEEDED", "FAILED", "CANCELLED")

    def ends(self, job):
        """The job, when it has ended."""
        self.cluster.until(f"the end of {job}", lambda: not self.open(job), limit=400)
        return self.job(job)

    def attempts(self, job):
        try:
            return sorted(os.listdir(f"{self.jobs}/{job.removeprefix('jobs/')}/runs"))
        except FileNotFoundError:
            return []
