"""A node that others contradict is listed, and what it has measured in that time can be retracted."""

import itertools
import json
import os
import subprocess
import sys

from service import Service, expect

TASK = os.path.join(os.path.dirname(os.path.realpath(__file__)), "..", "slurm", "fake_task.py")
NUMBERS = itertools.count(100)  # of runs: that of the greatest name is the newest


def measure(service, host, schedule, time_us, width=1.0):
    """Collects a final of a schedule, as a run on that host has left it."""
    number = next(NUMBERS)
    name = f"{number}-{host}"
    folder = f"{service.folder}/{name}"
    os.makedirs(f"{folder}/runs")
    with open(f"{folder}/batch.json", "w") as batch, open(f"{service.folder}/mode.0", "w") as mode:
        json.dump({"created": "20260101T000000Z", "name": name}, batch)
        mode.write(f"final {time_us}")
    subprocess.run([sys.executable, TASK, folder, "", "0"], check=True,
                   env=dict(service.environment, SLURM_ARRAY_TASK_ID="0", SLURMD_NODENAME=host))
    path = f"{folder}/runs/{os.listdir(f'{folder}/runs')[0]}"
    with open(path) as run:
        lines = [json.loads(line) for line in run]
    trial = lines[1]["trial"]
    trial |= {"point": f"tile: {schedule}", "steps": f"split(C, i, [{schedule}])\nbind(C, i, thread)\n",
              "ci_low_us": time_us - width, "ci_high_us": time_us + width, "when_us": number * 3600 * 10**6}
    with open(path, "w") as run:
        run.writelines(json.dumps(line) + "\n" for line in lines)
    service.run("records", "collect", folder)


with Service() as service:
    def outliers(*flags):
        return {each["host"]: each for each in service.json("records", "outliers", *flags)}

    # Hosts that agree: within their intervals, however wide, or within what times differ by anyway.
    measure(service, "n1", 1, 100)
    measure(service, "n2", 1, 108)
    measure(service, "n1", 2, 100, width=30)
    measure(service, "n2", 2, 140, width=30)
    expect(outliers() == {}, outliers())
    # Of two that differ nobody knows which is wrong; a third one tells. The newest word of a host counts.
    measure(service, "n1", 3, 50)
    measure(service, "n2", 3, 90)
    expect(outliers().keys() == {"n1", "n2"}, outliers())
    measure(service, "n3", 3, 51)
    expect(outliers().keys() == {"n2"}, outliers())
    measure(service, "n2", 3, 50.5)
    expect(outliers() == {}, outliers())
    measure(service, "n3", 1, 200)
    measure(service, "n3", 2, 300)
    found = outliers()
    expect(found.keys() == {"n3"}, found)
    n3 = found["n3"]
    expect((n3["compared"], n3["contradicted"], n3["others"]) == (3, 2, 2), n3)
    expect(1.8 < n3["ratio"] < 2.2, n3)

    # What is told is what retracts it, by host and time, and nothing else.
    text = service.run("records", "outliers").stdout
    command = next(line for line in text.splitlines() if "heddle retract" in line).split("heddle ")[1].split()
    server = service.start("server", "serve", "--listen", service.server_address, "--searchers", "1")
    said = service.run(*command[:command.index("--reason")], "--reason", "test", "--server", service.server_address)
    expect(said.stderr.startswith("2 records retracted"), (text, said))
    expect(outliers() == {}, outliers())
    lines = service.run("records", "export", "-").stdout.splitlines()
    hosts = sorted(json.loads(line)["trial"]["host"] for line in lines)
    expect(hosts == ["n1", "n1", "n1", "n2", "n2", "n2", "n2", "n3"], hosts)

    # A folder of which somebody else has begun to bring a run: that alone is refused.
    def bring(who, *paths):
        with open(f"{service.folder}/{who}.token", "a") as token:
            if token.tell() == 0:
                token.write(service.run("token", "create", "--role", "measurer", "--tenant", "team").stdout)
        return service.run("records", "collect", *paths, "--server", service.server_address, "--token-file",
                           f"{service.folder}/{who}.token", check=False)

    done = bring("first", f"{service.folder}/100-n1")
    expect(done.returncode == 0, done)
    done = bring("second", service.folder)
    expect(done.returncode == 1 and "was begun with token 1 and no certificate" in done.stderr, done)
    expect("2 trials added from 10 files, 7 were there already" in done.stderr, done)
    server.terminate()
    expect(server.wait(60) == 0, "the server ended badly")
