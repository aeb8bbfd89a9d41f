"""Runs tests at the same time that wait for the most part, so that they take the time of one:

    together.py "TEST ARGUMENTS" ...

Fails where one fails; is skipped where one is, with what they say."""

import os
import subprocess
import sys
import tempfile

HERE = os.path.dirname(os.path.realpath(__file__))
SKIPPED = 77
running = []
for test in sys.argv[1:]:
    name, *arguments = test.split()
    # Not a pipe, which what a test leaves behind would keep open.
    output = tempfile.TemporaryFile("w+", errors="replace")
    running.append((test, output, subprocess.Popen([sys.executable, f"{HERE}/{name}_test.py", *arguments],
                                                   stdin=subprocess.DEVNULL, stdout=output, stderr=output)))
codes = [process.wait() for *_, process in running]
# What has failed comes last: of a long output a reader is shown the end at best.
for (test, output, _), code in sorted(zip(running, codes), key=lambda each: each[1] not in (0, SKIPPED)):
    output.seek(0)
    print(f"{output.read().strip()} ({test}: exit code {code})")
failed = [code for code in codes if code not in (0, SKIPPED)]
sys.exit(1 if failed else max(codes))
