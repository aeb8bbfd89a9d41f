"""What the tests on a real Slurm share: a cluster of three nodes in a folder of its own (tests/slurm/cluster)."""

import os
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "service"))
from place import Place  # noqa: E402
from service import HEDDLE, expect, skip  # noqa: E402

SCRIPT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "cluster")
__all__ = ["HEDDLE", "Slurm", "expect", "skip"]


class Slurm(Place):
    """`with Slurm() as slurm:` has slurm.folder and an environment in which commands find the cluster. Ends
    every process of it and removes the folder. `user`: whose it is, where root tests:
    an id, and that of the user's group. `flags`: of the script."""

    def __init__(self, *flags, user=None):
        # slurmctld insists on the user's own group.
        super().__init__("slurm", {"user": user, "group": user, "extra_groups": []} if user else {})
        self.flags = flags
        self.environment["SLURM_CONF"] = f"{self.folder}/cluster/slurm.conf"
        if user:
            os.chown(self.folder, user, user)

    def cluster(self, action, *flags):
        return subprocess.run([SCRIPT, action, f"{self.folder}/cluster", *flags], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=300, **self.becoming)

    def __enter__(self):
        done = self.cluster("start", *self.flags)
        if done.returncode == 0:
            return self
        self.__exit__()
        if done.returncode == 77:
            skip(done.stdout.strip())
        raise AssertionError(f"no cluster\n{done.stdout}\n{done.stderr}")

    def __exit__(self, *_):
        self.cluster("stop")
        self.remove()

    def explain(self):
        return self.run("squeue", "-t", "all", check=False).stdout

    def states(self, *which):
        """Of tasks (squeue's flags say which), ended ones included: {"0": "COMPLETED", ...}."""
        rows = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%K %T", *which).stdout
        return dict(row.split() for row in rows.splitlines())

    def pid_of(self, daemon):
        """0 where it has none."""
        try:
            with open(f"{self.folder}/cluster/run/{daemon}.pid") as pid:
                return int(pid.read())
        except (OSError, ValueError):
            return 0

    @staticmethod
    def gone(pid):
        try:
            with open(f"/proc/{pid}/stat") as stat:
                return ") Z " in stat.read()
        except OSError:
            return True
