"""What the tests on a real Slurm share: a cluster of three nodes in a folder of its own (tests/slurm/cluster)."""

import os
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.join(os.path.dirname(__file__), "..", "service"))
from service import HEDDLE, expect, skip  # noqa: E402

SCRIPT = os.path.join(os.path.dirname(os.path.realpath(__file__)), "cluster")
__all__ = ["HEDDLE", "Slurm", "expect", "skip"]


class Slurm:
    """`with Slurm() as slurm:` has slurm.folder and an environment in which commands find the cluster. Ends
    every process of it and removes the folder. `user`: whose it is, where root tests:
    an id, and that of the user's group."""

    def __init__(self, user=None):
        self.folder = tempfile.mkdtemp(prefix="heddle-slurm-")
        # slurmctld insists on the user's own group.
        self.becoming = {"user": user, "group": user, "extra_groups": []} if user else {}
        if user:
            os.chown(self.folder, user, user)
        self.environment = {"PATH": os.environ["PATH"], "HOME": self.folder,
                            "SLURM_CONF": f"{self.folder}/cluster/slurm.conf"}

    def cluster(self, action):
        return subprocess.run([SCRIPT, action, f"{self.folder}/cluster"], stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=120, **self.becoming)

    def __enter__(self):
        done = self.cluster("start")
        if done.returncode == 0:
            return self
        self.__exit__()
        if done.returncode == 77:
            skip(done.stdout.strip())
        raise AssertionError(f"no cluster\n{done.stdout}\n{done.stderr}")

    def __exit__(self, *_):
        self.cluster("stop")
        if os.environ.get("HEDDLE_KEEP_LOGS"):
            print("logs are in", self.folder)
        else:
            subprocess.run(["rm", "-rf", self.folder], check=True)

    def run(self, *command, check=True, timeout=120, **environment):
        """Runs a command beside the cluster to its end; its CompletedProcess with text."""
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=dict(self.environment, **environment), timeout=timeout,
                              cwd=self.folder, **self.becoming)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n"
                                 f"{done.stderr}")
        return done

    def states(self, *which):
        """Of tasks (squeue's flags say which), ended ones included: {"0": "COMPLETED", ...}."""
        rows = self.run("squeue", "-h", "-r", "-t", "all", "-o", "%K %T", *which).stdout
        return dict(row.split() for row in rows.splitlines())

    def until(self, what, condition, limit=180):
        """Waits for what must come sooner or later."""
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not in {limit} s\n{self.run('squeue', '-t', 'all').stdout}")
            time.sleep(0.1)
