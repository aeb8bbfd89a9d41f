"""A suite tuned on three nodes of a real Slurm into one database, by the program itself. Its tasks also send what
they measure to a server; what that lacks is brought to it afterwards."""

import atexit
import glob
import json
import os
import shutil
import subprocess
import sys

from slurm import HEDDLE, Slurm, expect, skip

HERE = os.path.dirname(os.path.realpath(__file__))

with Slurm() as slurm:
    slurm.environment["XDG_CACHE_HOME"] = f"{slurm.folder}/cache"
    devices = json.loads(slurm.run(HEDDLE, "devices", "--json", check=False).stdout)
    if not any(d["usable"] and d["id"].startswith("opencl:") for d in devices):
        skip("pocl: no usable OpenCL device")
    with open(f"{slurm.folder}/suite", "w") as suite:
        suite.write("# a line each\nvector_add n=4096\ntranspose m=64,n=64\nno_such_thing n=1\n")
    command = [HEDDLE, "cluster", "slurm", "--workloads", f"{slurm.folder}/suite", "--partition", "gpu",
               "--trials", "2", "--seconds", "600", "--folder", slurm.folder, "--name", "small", "--db",
               f"{slurm.folder}/heddle.db", "--task-script", f"{slurm.folder}/task.sbatch"]
    with open(f"{HERE}/../../deploy/slurm/tune.sbatch") as script, open(f"{slurm.folder}/task.sbatch", "w") as own:
        # A site's own: here, three nodes are one host, whose device has one lock a node.
        own.write(script.read().replace("# module load", f"export HEDDLE_LOCK_FOLDER={slurm.folder}/cluster/lock/"
                                        "$SLURMD_NODENAME; mkdir -p $HEDDLE_LOCK_FOLDER\n"
                                        f"export XDG_CACHE_HOME={slurm.folder}/cache TMPDIR={slurm.folder}\n"
                                        "export HEDDLE_DEVICE=auto\n"
                                        # Of one task it cannot be reached.
                                        f"export HEDDLE_SERVER=unix:{slurm.folder}/server-$SLURM_ARRAY_TASK_ID\n"
                                        # The node that one batch's first task gets has no device that works.
                                        f"case $1 in */broken) mkdir {slurm.folder}/first 2>&- && "
                                        f"echo $SLURMD_NODENAME > {slurm.folder}/first/node\n"
                                        f'[ "$(cat {slurm.folder}/first/node)" != "$SLURMD_NODENAME" ] || '
                                        "export OCL_ICD_VENDORS=/nonexistent;; esac\n#"))
    with open(f"{slurm.folder}/server.log", "w") as log:
        server = subprocess.Popen([HEDDLE, "serve", "--db", f"{slurm.folder}/served.db", "--listen",
                                   f"unix:{slurm.folder}/server-0"], stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                  env=slurm.environment, cwd=slurm.folder)
    atexit.register(server.kill)
    refused = slurm.run(*command, "--submit", check=False)
    expect(refused.returncode == 2 and "no_such_thing" in refused.stderr, refused)
    with open(f"{slurm.folder}/suite", "w") as suite:
        suite.write("# a line each\nvector_add n=4096\ntranspose m=64,n=64\n")

    printed = slurm.run(*command).stdout
    expect("--array=0-1 " in printed and "--export=PATH,HOME" in printed and "--cpus-per-task=2" in printed, printed)
    expect("--time=20 " in printed and "exec \"$2\" cluster task" in printed, printed)
    expect(not os.path.exists(f"{slurm.folder}/small"), "printing has written something")
    # What the database knows already is what its runs start from.
    fake = [sys.executable, f"{HERE}/fake_task.py", f"{slurm.folder}/known", "", "0"]
    os.makedirs(f"{slurm.folder}/known/runs")
    with open(f"{slurm.folder}/known/batch.json", "w") as known, open(f"{slurm.folder}/mode.0", "w") as mode:
        json.dump({"created": "20200101T000000Z", "name": "known"}, known)
        mode.write("final 50")
    slurm.run(*fake, SLURM_ARRAY_TASK_ID="0", SLURMD_NODENAME="n1")
    slurm.run(HEDDLE, "records", "collect", f"{slurm.folder}/known/runs", "--db", f"{slurm.folder}/heddle.db")
    slurm.run(*command, "--submit", SECRET="hunter2")
    slurm.run(*command, "--submit")
    folder = f"{slurm.folder}/small"
    slurm.until("it is collected", lambda: os.path.exists(f"{folder}/log/collect-0.log") and "are complete" in open(
        f"{folder}/log/collect-0.log").read(), limit=400)
    with open(f"{folder}/log/collect-0.log") as log:
        log = log.read()
    expect("2 of 2 workloads are complete" in log, log)
    expect(len(os.listdir(f"{folder}/runs")) == 2, os.listdir(f"{folder}/runs"))
    with open(f"{folder}/warm/current") as current:
        snapshot = f"{folder}/warm/{current.read()}.db"
    for each in glob.glob(f"{folder}/log/*_*.log"):
        with open(each) as task:
            expect(f"It starts from {snapshot}: 1 trials of 1 workloads and 0 cost models." in (text := task.read()), text)
    for workload in (["vector_add", "--shape", "n=4096"], ["transpose", "--shape", "m=64,n=64"]):
        answer = json.loads(slurm.run(HEDDLE, "query", *workload, "--db", f"{slurm.folder}/heddle.db", "--json").stdout)
        expect(answer["found"] and answer["match"] == "exact", answer)
    lines = slurm.run(HEDDLE, "records", "export", "-", "--db", f"{slurm.folder}/heddle.db").stdout.splitlines()
    trials = [trial for line in lines if (trial := json.loads(line)["trial"])["run"] != "20200101T000000Z-known-00000"]
    expect({t["run"][-5:] for t in trials} == {"00000", "00001"} and not any(t["imported"] for t in trials), trials)
    expect(sum(not t["final"] for t in trials) == 4, "two trials of each workload")
    expect({t["host"] for t in trials} <= {"n1", "n2", "n3"}, "trials are not of their nodes")
    device = json.loads(lines[-1])["environment"]["device_name"]
    query = ["query", "--json", "--server", f"unix:{slurm.folder}/server-0"]
    answer = json.loads(slurm.run(HEDDLE, *query, "vector_add", "--shape", "n=4096", "--device", device).stdout)
    expect(answer["found"] and answer["match"] == "exact", answer)
    measured = len(trials)
    own = sum(t["run"].endswith("00000") for t in trials)
    for added, known in ((measured - own, own), (0, measured)):
        done = slurm.run(HEDDLE, "records", "collect", f"{folder}/runs", "--server", f"unix:{slurm.folder}/server-0")
        expect(done.stderr.startswith(f"{added} trials added from 2 files, {known} were"), done.stderr)
    # Where the folder has nothing, or what is damaged, the server is asked.
    os.mkdir(f"{slurm.folder}/cold")
    for name in ("runs", "warm"):
        os.mkdir(f"{slurm.folder}/cold/{name}")
    with open(f"{folder}/batch.json") as text, open(f"{slurm.folder}/cold/batch.json", "w") as out:
        json.dump(json.load(text) | {"name": "cold", "trials": 1}, out)
    shutil.copy(f"{folder}/warm/current", f"{slurm.folder}/cold/warm/current")
    with open(snapshot, "rb") as text, open(f"{slurm.folder}/cold/warm/{os.path.basename(snapshot)}", "wb") as out:
        out.write(text.read()[:-1] + b"?")
    cold = [HEDDLE, "cluster", "task", "--folder", f"{slurm.folder}/cold", "--index", "0", "--server",
            f"unix:{slurm.folder}/server-0"]
    done = slurm.run(*cold, TMPDIR=slurm.folder, CUDA_VISIBLE_DEVICES="", check=False)
    expect(done.returncode == 4 and "no GPU works here" in done.stderr and " is a processor" in done.stderr, done)
    expect(not os.listdir(f"{slurm.folder}/cold/runs"), "it is an attempt")
    done = slurm.run(*cold, TMPDIR=slurm.folder, HEDDLE_DEVICE="auto")
    expect("it is damaged" in done.stderr and "finals of vector_add that the server has" in done.stderr, done.stderr)
    # What a node without a device that works has ended is submitted again, and goes to another node.
    with open(f"{slurm.folder}/suite", "w") as suite:
        suite.write("vector_add n=4096\n")
    broken = f"{slurm.folder}/broken"
    command[command.index("small")] = "broken"
    slurm.run(*command, "--submit")
    slurm.until("it is collected", lambda: os.path.exists(f"{broken}/log/collect-1.log") and "are complete" in open(
        f"{broken}/log/collect-1.log").read(), limit=400)
    with open(f"{slurm.folder}/first/node") as node, open(f"{broken}/log/collect-0.log") as log:
        node, log = node.read().strip(), log.read()
    expect(f"node {node} is left out: " in log and os.listdir(f"{broken}/unfit") == [node], log)
    with open(f"{broken}/log/collect-1.log") as log:
        expect("1 of 1 workloads are complete" in (log := log.read()), log)
    with open(f"{broken}/batch.json") as batch:
        again = f"heddle-{json.load(batch)['created']}-broken-1.0"
    ran = slurm.run("squeue", "-h", "-t", "all", "-n", again, "-o", "%N").stdout.split()
    expect(ran and node not in ran, f"{ran} after {node}")
    server.terminate()
    expect(server.wait(60) == 0, "the server ended badly")
    expect(not [f for f in os.listdir(slurm.folder) if f.startswith("heddle-task-")], "a task has left its folder behind")
