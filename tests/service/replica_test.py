"""Replicas answer reads alone: while they are replaced, when their primary was killed, and what it has learnt since; and
one of them takes its place."""

import json
import os
import signal
import sqlite3
import threading
import time
import urllib.request

from service import Service, expect, skip

PORT = 20000 + os.getpid() % 6000  # below those that the system gives out
UNTIL = 120  # seconds for what must come sooner or later


def until(what, condition):
    end = time.monotonic() + UNTIL
    while not condition():
        expect(time.monotonic() < end, what)
        time.sleep(0.05)


def final(lines, number, time_us):
    """A run's file with the workload's final at that time, as a node leaves it."""
    stored = json.loads(next(line for line in lines if json.loads(line)["trial"]["final"]))
    name = f"run-{number:04}"
    stored["trial"] |= {"time_us": time_us, "ci_low_us": time_us, "ci_high_us": time_us, "run": name,
                        "when_us": stored["trial"]["when_us"] + number}
    path = f"{service.folder}/{name}.0.jsonl"
    with open(path, "w") as out:
        out.write(json.dumps({"format": 1, "run": {"name": name, "attempt": 0, "host": "n1", "device": "d",
                                                   "generator_version": 1}}) + "\n")
        out.write(json.dumps(stored) + "\n")
    return path


def serve(name, *flags, db):
    address = f"unix:{service.folder}/{name}.sock"
    process = service.start(name, "serve", "--listen", address, "--db", f"{service.folder}/{db}", *flags)
    until(f"{name} listens", lambda: "heddle: serving on" in service.log(name) or process.poll() is not None)
    expect(process.poll() is None, service.tail(name))
    return process, ["--server", address]


def best(server):
    answer = service.json("query", "vector_add", "--shape", "n=4096", "--device", device, *server)
    expect(answer["found"] and answer["match"] == "exact", answer)
    return answer["time_us"]


def refused(*command):
    done = service.run(*command, check=False)
    expect(done.returncode != 0, done)
    return done.stderr


with Service() as service:
    primary_db = f"{service.folder}/primary.db"
    replica_db = f"{service.folder}/replica.db"
    tuned = service.run("tune", "vector_add", "--shape", "n=4096", "--device", "opencl:0", "--trials", "1", "--db",
                        primary_db, check=False)
    if "opencl:0" in tuned.stderr and tuned.returncode == 4:
        skip("pocl: no usable OpenCL device")
    expect(tuned.returncode == 0, tuned)
    lines = service.run("records", "export", "-", "--db", primary_db).stdout.splitlines()
    device = json.loads(lines[0])["environment"]["device_name"]

    primary, to_primary = serve("primary", db="primary.db")
    # Nobody's own database becomes a replica by mistake.
    service.run("records", "backup", f"{service.folder}/own.db", "--db", primary_db)
    said = refused("serve", "--replica-of", primary_db, "--db", f"{service.folder}/own.db")
    expect("database of its own" in said, said)
    said = refused("serve", "--replica-of", f"{service.folder}/none.db", "--db", f"{service.folder}/never.db")
    expect("no such database" in said, said)
    replica, to_replica = serve("replica", "--replica-of", primary_db, "--replica-every", "0.05", "--metrics",
                                f"127.0.0.1:{PORT}", db="replica.db")

    def as_of():
        text = urllib.request.urlopen(f"http://127.0.0.1:{PORT}/metrics").read().decode()
        return float(next(line for line in text.splitlines()
                          if line.startswith("heddle_replica_as_of_timestamp_seconds")).split()[1])

    expect(best(to_replica) == best(to_primary), "the first copy")
    for command in (["submit", "vector_add", "--shape", "n=8192"], ["cancel", "jobs/1"],
                    ["retract", "--host", "n1", "--reason", "test"], ["devices", "pin", device]):
        said = refused(*command, *to_replica)
        expect("is a replica" in said, (command, said))
    said = refused("token", "create", "--role", "reader", "--db", replica_db)
    expect("is a replica" in said, said)

    # Readers of the file and of the server, while the primary grows: each sees it as it was at some moment.
    ended, wrong, read = threading.Event(), [], [0]

    def look():
        database = sqlite3.connect(f"file:{replica_db}?mode=ro", uri=True, timeout=60)
        while not ended.is_set():
            (state,), = database.execute("PRAGMA integrity_check").fetchall()
            # In one transaction a trial comes with what is served of it.
            (torn,), = database.execute("SELECT count(*) FROM servable WHERE trial NOT IN (SELECT trial FROM served)")
            if state != "ok" or torn:
                wrong.append((state, torn))
            read[0] += 1

    def ask():
        while not ended.is_set():
            try:
                best(to_replica)
                read[0] += 1
            except AssertionError as error:
                wrong.append(error)
                return

    readers = [threading.Thread(target=target) for target in (look, ask)]
    for reader in readers:
        reader.start()
    for number in range(1, 6):
        service.run("records", "collect", final(lines, number, 1000 - number), "--db", primary_db)
        until("it catches up", lambda number=number: wrong or best(to_replica) == 1000 - number)
        expect(not wrong, wrong)
    ended.set()
    for reader in readers:
        reader.join()
    expect(not wrong and read[0] > 2, (wrong, read))

    # The primary is killed with a log that nobody has taken in, and its database lost.
    before = as_of()
    until("time passes", lambda: as_of() > before)
    os.kill(primary.pid, signal.SIGKILL)
    primary.wait()
    os.rename(primary_db, f"{service.folder}/lost.db")
    until("it is told", lambda: "replica_not_refreshed" in service.log("replica"))
    stands = as_of()
    expect(best(to_replica) == 995 and stands <= time.time(), service.tail("replica"))
    replica.send_signal(signal.SIGTERM)
    expect(replica.wait(60) == 0, "the replica ended badly")
    replica, to_replica = serve("again", "--replica-of", primary_db, db="replica.db")
    expect(best(to_replica) == 995, "without its primary")
    replica.send_signal(signal.SIGTERM)
    replica.wait()
    # Without the flag it is a primary.
    replica, to_replica = serve("promoted", db="replica.db")
    service.run("submit", "vector_add", "--shape", "n=8192", "--trials", "1", *to_replica)
    expect("replica_promoted" in service.log("promoted") and best(to_replica) == 995, service.tail("promoted"))
    replica.send_signal(signal.SIGTERM)
    expect(replica.wait(60) == 0, "it ended badly")
