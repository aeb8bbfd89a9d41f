"""The examples run: those for a GPU or for PyTorch where that is."""

import importlib.util
import os
import subprocess
import sys
import unittest

from support import SOURCE, Case, require_pocl, skip

if importlib.util.find_spec("numpy") is None:
    skip("python-numpy: not installed (Debian: apt install python3-numpy)")
require_pocl()
NEEDED = {"pytorch_matmul": "torch", "whole_model": "onnx"}


class Examples(Case):
    """Each in one trial for each workload."""

    def test_each(self):
        examples = sorted((SOURCE / "python" / "examples").glob("*.py"))
        self.assertEqual(len(examples), 4)
        for path in examples:
            needed = NEEDED.get(path.stem)
            if needed and importlib.util.find_spec(needed) is None:
                print(f"{path.name} is left out: it needs {needed}")
                continue
            with self.subTest(path.name):
                done = subprocess.run(
                    [sys.executable, path, "1"],
                    capture_output=True,
                    text=True,
                    cwd=self.folder,
                    env=os.environ,
                    check=False,
                )
                self.assertEqual(done.returncode, 0, done.stdout + done.stderr)


if __name__ == "__main__":
    unittest.main()
