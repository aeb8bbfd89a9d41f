"""A folder of a test's, and programs that run with it."""

import os
import shutil
import subprocess
import tempfile
import time


class Place:
    """`folder`, and the `environment` of all that is run here. `becoming`: as whom, in subprocess.run's words."""

    def __init__(self, name, becoming=None, **environment):
        self.folder = tempfile.mkdtemp(prefix=f"heddle-{name}-")
        self.environment = {"PATH": os.environ["PATH"], "HOME": self.folder, "PYTHONDONTWRITEBYTECODE": "1",
                            **environment}
        self.becoming = becoming or {}

    def run(self, *command, check=True, timeout=120, **environment):
        """Runs a command to its end; its CompletedProcess with text."""
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              env=dict(self.environment, **environment), timeout=timeout, cwd=self.folder,
                              **self.becoming)
        if check and done.returncode != 0:
            raise AssertionError(f"{' '.join(command)} ended with {done.returncode}\n{done.stdout}\n{done.stderr}")
        return done

    def until(self, what, condition, limit=180):
        """Waits for what must come sooner or later."""
        end = time.monotonic() + limit
        while not condition():
            if time.monotonic() > end:
                raise AssertionError(f"{what}: not in {limit} s\n{self.explain()}")
            time.sleep(0.05)

    def explain(self):
        """What helps who reads that something did not come."""
        return ""

    def remove(self):
        if os.environ.get("HEDDLE_KEEP_LOGS"):
            print("logs are in", self.folder)
        else:
            shutil.rmtree(self.folder, ignore_errors=True)
