"""What the tests of `heddle cluster slurm --submit` on a real Slurm share."""

import json
import os

from executor import fake_script, shipped_script
from slurm import HEDDLE


class Batch:
    """A batch in a folder NAME of the cluster's, as `heddle cluster slurm` makes it. `modes`: of each task, what its attempts do
    (fake_task.py). `script` makes the site's script of deploy/slurm's."""

    def __init__(self, slurm, name, modes, workloads=None, script=fake_script):
        self.slurm, self.name = slurm, name
        self.parent = f"{slurm.folder}/{name}"
        self.folder = f"{self.parent}/{name}"
        self.db = f"{self.parent}/heddle.db"
        os.mkdir(self.parent)
        for index, mode in enumerate(modes):
            self.write(f"mode.{index}", mode)
        self.write("suite", "\n".join(workloads or [f"vector_add n={i + 1}" for i in range(len(modes))]) + "\n")
        self.write("task.sbatch", script(shipped_script()))

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
