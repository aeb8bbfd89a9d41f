"""One command gives a working service: serve --local, submit, query, export."""

import json
import os
import signal
import time

from service import Service, check_tuned, expect, skip


def await_trials(service, job, more_than, server):
    for _ in range(240):
        trials = len(service.json("trials", job, *server))
        if trials > more_than:
            return trials
        time.sleep(0.5)
    raise SystemExit(f"no more than {more_than} trials of {job}")


with Service() as s:
    if not any(d["usable"] and d["id"] == "opencl:0" for d in s.json("devices", check=False)):
        skip("pocl: no usable OpenCL device")
    server = ["--server", s.server_address]
    serving = s.start("server", "serve", "--local", "--listen", s.server_address)
    result = s.json("submit", "matmul", "--shape", "m=256,n=256,k=256", "--trials", "32", "--wait",
                    "--timeout", "500", *server)
    check_tuned(s, result, server, trials=32)

    jobs = s.json("jobs", *server)
    expect([j["id"] for j in jobs] == [result["job"]], jobs)
    trials = s.json("trials", result["job"], *server)
    expect(sum(not t["final"] for t in trials) == 32, f"{len(trials)} trials")
    expect(len({t["id"] for t in trials}) == len(trials), "a trial is listed twice")
    expect("ok   server" in s.run("doctor", *server).stdout, "doctor does not know the server")
    # The same request again is the same job; another one under its name is refused.
    once = ["submit", "vector_add", "--shape", "n=1000", "--trials", "2", "--request-id", "r1"]
    first = s.run(*once, *server).stdout
    expect(s.run(*once, *server).stdout == first, "a repeated request made another job")
    s.run("wait", first.strip(), "--timeout", "200", *server)
    other = s.run(*once, "--seed", "9", *server, check=False)
    expect(other.returncode != 0, "another request under the same name was accepted")
    # Waiting ends at its limit, and the job goes on; cancelling ends it.
    long = s.run("submit", "matmul", "--shape", "m=128,n=128,k=128", "--trials", "1000",
                 *server).stdout.strip()
    expect(s.run("wait", long, "--timeout", "1", *server, check=False).returncode == 5, "deadline")
    done = await_trials(s, long, 0, server)
    s.run("cancel", long, *server)
    expect(s.run("wait", long, "--timeout", "60", *server, check=False).returncode == 1, "cancelled")
    # It goes on from its trials, and is told of beyond its first end; its labels and priority change.
    again = s.json("retry", long, *server)
    expect(again["state"] in ("QUEUED", "RUNNING") and not again["error"], again)
    await_trials(s, long, done + 2, server)  # beyond what was under way
    expect(s.run("wait", long, "--timeout", "1", *server, check=False).returncode == 5, "it goes on")
    updated = s.json("update", long, "--priority", "-5", "--label", "team", "looms", *server)
    expect((updated["priority"], updated["labels"]) == (-5, {"team": "looms"}), updated)
    expect([j["id"] for j in s.json("jobs", "--label", "team", "looms", *server)] == [long], "not found by its label")
    nothing = s.run("update", long, *server, check=False)
    expect(nothing.returncode == 2 and "nothing to change" in nothing.stderr, nothing)
    s.run("cancel", long, *server)
    expect(s.run("wait", long, "--timeout", "60", *server, check=False).returncode == 1, "cancelled again")
    # Another database in the same folder has another server, and there is none.
    other = s.run("jobs", before=["env", f"HEDDLE_DB={s.folder}/other.db"], check=False)
    expect(other.returncode == 4 and "other.db.sock" in other.stderr, other.stderr)
    # Records leave one server and enter another database.
    lines = f"{s.folder}/records.jsonl"
    s.run("records", "export", lines, *server)
    with open(lines) as text:
        expect(len(text.readlines()) >= 33, "records are missing")
    again = s.run("records", "import", lines, *server)
    expect(again.stderr.startswith("0 trials added"), again.stderr)

    # A device out of service takes no work; a host's records are taken back, and served no more.
    device = s.json("devices", *server)[0]["fleet_name"]
    s.run("devices", "drain", device, *server)
    expect(s.json("devices", *server)[0]["state"] == "DRAINING", "the device is in service")
    s.run("devices", "enable", device, *server)
    expect(s.json("devices", *server)[0]["state"] == "ENABLED", "the device is out of service")
    why = ["--reason", "a test", *server]
    none = s.run("retract", "--reason", "a test", *server, check=False)
    expect(none.returncode == 2 and "say which records" in none.stderr, none.stderr)
    wrong = s.run("retract", "--host", "x", "--since", "yesterday", *why, check=False)
    expect(wrong.returncode == 2 and "--since" in wrong.stderr, wrong.stderr)
    host = s.json("devices", "hosts", *server)[0]["host"]
    shape = ["vector_add", "--shape", "n=1000"]
    expect(s.json("query", *shape, *server)["found"], "vector_add was not tuned")
    retracted = s.json("retract", *shape, *why)["retracted"]
    expect(retracted >= 2, f"{retracted} records of vector_add")
    expect(s.run("query", *shape, *server, check=False).returncode == 3, "it is still served")
    expect(s.json("retract", "--host", host, "--until", "2020-01-01", *why)["retracted"] == 0, host)
    once = ["--host", host, "--run", result["job"], "--since", "2020-01-01", "--request-id", "away"]
    retracted = s.json("retract", *once, *why)["retracted"]
    expect(retracted >= 32, f"{retracted} records of {result['job']}")
    expect(s.json("retract", *once, *why)["retracted"] == retracted, "not the same reply")
    found = s.run("query", "matmul", "--shape", "m=256,n=256,k=256", *server, check=False)
    expect(found.returncode == 3, "what was retracted is served")

    # A service manager's signal goes to all processes at once, and costs no candidate.
    last = s.run("submit", "matmul", "--shape", "m=96,n=96,k=96", "--trials", "1000",
                 *server).stdout.strip()
    end = time.monotonic() + 120
    while sum(t["state"] == "DONE" for t in s.json("trials", last, *server)) < 3:
        expect(time.monotonic() < end, "no trials")
        time.sleep(0.2)
    for pid in s.living():
        os.kill(pid, signal.SIGTERM)
    expect(serving.wait(timeout=60) == 0, "the server did not end in order")
    expect(not s.living(), "processes were left behind")
    expect('"completely":true' in s.log("server"), "the daemon gave up what it ran")
    records = s.run("records", "export", "-").stdout.splitlines()
    outcomes = {json.loads(line)["trial"]["outcome"] for line in records}
    expect(not outcomes & {"BUILD_ERROR", "ILLEGAL_ACCESS", "WORKER_LOST"}, outcomes)
