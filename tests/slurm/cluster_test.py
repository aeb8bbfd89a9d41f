"""The test cluster itself: three nodes with a GPU each, for root or any user; nothing is left behind."""

import os
import signal
import subprocess

from slurm import Slurm, expect

# A task counts as running before its script's first line: what it says appears as a whole, and later.
TASK = """#!/bin/sh
echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $SECRET > %a.said && mv %a.said %a.task
[ $SLURM_ARRAY_TASK_ID != 5 ] || exec sleep 1000
"""

# As root, who may become anybody, the cluster is somebody's who may nothing.
NOBODY = 65534 if os.getuid() == 0 else None


def marked(slurm):
    """Processes whose environment names the cluster's folder, however they came to be."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{entry}/environ", "rb") as environ, open(f"/proc/{entry}/stat") as stat:
                if slurm.folder.encode() in environ.read() and ") Z " not in (line := stat.read()):
                    found.append(line[:60])
        except OSError:
            continue
    return found


with Slurm(user=NOBODY) as slurm:
    with open(f"{slurm.folder}/task.sh", "w") as script:
        script.write(TASK.replace("%a", "$SLURM_ARRAY_TASK_ID"))
    slurm.run("sbatch", "--parsable", "--array=0-5", "--gres=gpu:1", "--export=PATH,HOME", "--output=/dev/null",
              "task.sh", SECRET="told")
    ended = dict.fromkeys("01234", "COMPLETED") | {"5": "RUNNING"}
    said = [f"{slurm.folder}/{i}.task" for i in range(6)]
    slurm.until("five of six tasks end, and the sixth has begun",
                lambda: slurm.states() == ended and all(map(os.path.exists, said)))
    lines = [open(path).read().split() for path in said]
    expect({node for node, _ in lines} == {"n1", "n2", "n3"}, lines)
    expect({gpu for _, gpu in lines} == {"0"}, lines)

    # A step whose slurmd is gone is nobody's any more, and is stopped all the same.
    node = lines[5][0]
    with open(f"{slurm.folder}/cluster/run/slurmd-{node}.pid") as pid:
        os.kill(int(pid.read()), signal.SIGKILL)
    again = slurm.cluster("start")
    expect(again.returncode == 1 and "already" in again.stderr, again)
    expect(marked(slurm), "the test sees no process of the cluster")
    expect(slurm.cluster("stop").returncode == 0, "stop failed")
    expect(not marked(slurm), f"left behind: {marked(slurm)}")
    expect(slurm.cluster("stop").returncode == 0, "stop may be called again")

# Where there is no Slurm the script says so, and leaves no folder.
bare = subprocess.run(["/usr/bin/env", "PATH=/nonexistent", "/usr/bin/python3", "-c",
                       "import shutil; shutil.which = lambda *a, **k: None; import runpy, sys; "
                       f"sys.argv = ['cluster', 'start', '{slurm.folder}']; "
                       f"runpy.run_path('{os.path.dirname(os.path.realpath(__file__))}/cluster', "
                       "run_name='__main__')"], capture_output=True, text=True)
expect(bare.returncode == 77 and bare.stdout.startswith("slurm: munged, "), bare)
expect(not os.path.exists(slurm.folder), "the folder is left behind")
