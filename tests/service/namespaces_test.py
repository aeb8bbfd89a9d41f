"""Server, daemon and client in three network namespaces, over TLS with tokens, and what becomes of a
job while packets between server and daemon go one way only."""

import os
import signal
import subprocess
import time

from service import Progress, Service, certificates, check_tuned, expect, sh, skip


LEASE = 4


class Namespaces:
    """The server's, with a cable to the daemon's and one to the client's."""

    def __init__(self, mark):
        self.names = {who: f"heddle-{mark}-{who}" for who in ("server", "daemon", "client")}

    def __enter__(self):
        try:
            for name in self.names.values():
                sh("ip", "netns", "add", name)
            for net, who in ((1, "daemon"), (2, "client")):
                near, far = f"hd{os.getpid() % 10000}a{net}", f"hd{os.getpid() % 10000}b{net}"
                sh("ip", "link", "add", near, "type", "veth", "peer", "name", far)
                for link, owner, host in ((near, "server", 1), (far, who, 2)):
                    sh("ip", "link", "set", link, "netns", self.names[owner])
                    inside = ["ip", "-n", self.names[owner]]
                    sh(*inside, "addr", "add", f"10.77.{net}.{host}/24", "dev", link)
                    sh(*inside, "link", "set", link, "up")
                    sh(*inside, "link", "set", "lo", "up")
        except (OSError, subprocess.CalledProcessError) as error:
            self.__exit__()
            skip(f"netns: network namespaces cannot be made here ({error})")
        return {who: ["ip", "netns", "exec", name] for who, name in self.names.items()}

    def __exit__(self, *_):
        for name in self.names.values():
            subprocess.run(["ip", "netns", "del", name], capture_output=True)


with Service() as s:
    if not any(d["usable"] and d["id"] == "opencl:0" for d in s.json("devices", check=False)):
        skip("pocl: no usable OpenCL device")
    with Namespaces(str(os.getpid())) as inside:
        certificates(s.folder, "IP:10.77.1.1,IP:10.77.2.1")
        for role in ("daemon", "tuner", "admin"):
            with open(f"{s.folder}/{role}.token", "w") as out:
                out.write(s.run("token", "create", "--role", role).stdout)
        serving = s.start("server", "serve", "--listen", "0.0.0.0:7443", "--lease", str(LEASE),
                          "--tls-cert", f"{s.folder}/server.pem",
                          "--tls-key", f"{s.folder}/server.key", before=inside["server"])
        tls = ["--tls-ca", f"{s.folder}/ca.pem", "--token-file"]
        to_daemon = ["--server", "10.77.1.1:7443", *tls, f"{s.folder}/daemon.token"]
        to_client = ["--server", "10.77.2.1:7443", *tls, f"{s.folder}/tuner.token"]
        to_admin = ["--server", "10.77.2.1:7443", *tls, f"{s.folder}/admin.token"]
        daemon = s.start("daemon", "measured", "--device", "opencl:0", *to_daemon,
                         before=inside["daemon"])
        s.await_devices(*to_client, before=inside["client"])

        def client(*arguments, **options):
            return s.run(*arguments, before=inside["client"], **options)

        result = s.json("submit", "matmul", "--shape", "m=256,n=256,k=256", "--trials", "16",
                        "--wait", "--timeout", "500", *to_client, before=inside["client"])
        check_tuned(s, result, to_client, trials=16, before=inside["client"], admin=to_admin)

        job = client("submit", "matmul", "--shape", "m=64,n=64,k=64", "--trials", "100000", *to_client)
        progress = Progress(s, job.stdout.strip(), to_client, before=inside["client"])
        progress.await_more("at first")
        for who, lost in (("server", "10.77.1.2"), ("daemon", "10.77.1.1")):
            route = ["blackhole", f"{lost}/32"]
            sh(*inside[who], "ip", "route", "add", *route)
            time.sleep(2.5 * LEASE)  # what the daemon holds is given back meanwhile
            sh(*inside[who], "ip", "route", "del", *route)
            progress.await_more(f"nothing of the {who}'s arrived")
        trials = s.json("trials", progress.job, *to_client, before=inside["client"])
        points = [t["point"] for t in trials if t["state"] == "DONE" and not t["final"]]
        expect(len(set(points)) == len(points), "a point was counted twice")
        lost = [t for t in trials if t["outcome"] in ("WORKER_LOST", "BUILD_TIMEOUT")]
        expect(not lost, f"a partition was counted as candidates' faults: {lost}")
        client("cancel", progress.job, *to_client)

        # Nobody without a token, nobody without the right role, nobody who does not trust the server.
        nobody = ["--server", "10.77.2.1:7443", "--tls-ca", f"{s.folder}/ca.pem"]
        expect(client("jobs", *nobody, check=False).returncode != 0, "no token was needed")
        wrong = [*nobody, "--token-file", f"{s.folder}/daemon.token"]
        expect(client("jobs", *wrong, check=False).returncode != 0, "a daemon may list jobs")
        distrust = ["--server", "10.77.2.1:7443", "--tls", "--token-file", f"{s.folder}/tuner.token"]
        expect(client("jobs", *distrust, check=False).returncode == 4, "the server was trusted")
        with open(f"{s.folder}/tuner.token") as token:
            secret = token.read().strip()
        for name in ("server", "daemon"):
            expect(secret not in s.log(name), f"the {name} logs a token")

        daemon.send_signal(signal.SIGTERM)
        expect(daemon.wait(timeout=60) == 0, "the daemon did not end in order")
        serving.send_signal(signal.SIGTERM)
        expect(serving.wait(timeout=60) == 0, "the server did not end in order")
