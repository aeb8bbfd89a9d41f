"""The rest of a cluster behind api_server.py: the Job controller with its indices, retries and rules for failures, and
nodes, on which a pod is a process."""

import os
import signal
import subprocess
import threading
import time
import uuid

from api_server import now

INDEX = "batch.kubernetes.io/job-completion-index"


class Nodes:
    """`command(pod)` gives a process's (arguments, environment). `endings`: by index, how its pods end without
    having run: a reason of a container's, or "DeadlineExceeded", the pod's own."""

    def __init__(self, api, command):
        self.api, self.command = api, command
        self.processes = {}  # by pod
        self.lost = {}  # of nodes that are away, by pod: nobody knows what becomes of them
        self.unreachable = set()  # pods of such nodes, as long as these are not removed
        self.endings = {}
        self.failures = {}  # by (Job's uid, index)
        self.pods = 0  # so far
        self.deaf = False  # nothing is done
        self.ended = threading.Event()
        self.thread = threading.Thread(target=self.work, daemon=True)
        self.thread.start()

    def close(self):
        self.ended.set()
        self.thread.join()
        for process in [*self.processes.values(), *self.lost.values()]:
            process.kill()
            process.wait()

    def work(self):
        while not self.ended.wait(0.02):
            with self.api.change:
                for job in [] if self.deaf else list(self.api.objects["jobs"].values()):
                    self.sync(job)

    def of(self, job):
        return [pod for pod in self.api.objects["pods"].values()
                if pod["metadata"]["ownerReferences"][0]["uid"] == job["metadata"]["uid"]]

    def sync(self, job):
        pods = self.of(job)
        for pod in pods:
            self.look(pod)
        if "deletionTimestamp" in job["metadata"] or job["spec"].get("suspend"):
            for pod in pods:
                if self.stop(pod):
                    self.api.store("pods", "DELETED", pod)
            if "deletionTimestamp" in job["metadata"] and not self.of(job):
                job["metadata"]["finalizers"].remove("foregroundDeletion")
                self.api.store("jobs", "DELETED", job)
            return
        if any(c["type"] in ("Complete", "Failed") for c in job["status"].get("conditions", [])):
            return
        spec, indices = job["spec"], range(job["spec"]["completions"])
        by_index = {i: [p for p in pods if p["metadata"]["annotations"][INDEX] == str(i)] for i in indices}
        phases = {i: [p["status"]["phase"] for p in by_index[i]] for i in indices}
        done = [i for i in indices if "Succeeded" in phases[i]]
        failed = [i for i in indices if self.failures.get((job["metadata"]["uid"], i), 0) > spec["backoffLimitPerIndex"]]
        active = [i for i in indices if "Running" in phases[i]]
        for index in indices:
            if index not in {*done, *failed, *active} and len(active) < spec["parallelism"]:
                self.begin(job, index)
                active.append(index)
        told = {"active": len(active), "succeeded": len(done), "completedIndexes": ",".join(map(str, done)),
                "failedIndexes": ",".join(map(str, failed)), "startTime": job["metadata"]["creationTimestamp"],
                "failed": sum(p == "Failed" for each in phases.values() for p in each)}
        if len(done) + len(failed) == len(indices):
            kinds = ["FailureTarget", "Failed"] if failed else ["SuccessCriteriaMet", "Complete"]
            told["conditions"] = [{"type": kind, "status": "True", "lastTransitionTime": now(), "lastProbeTime": now(),
                                   **({"reason": "FailedIndexes", "message": "Job has failed indexes"} if failed else {})}
                                  for kind in kinds]
        if any(job["status"].get(k) != v for k, v in told.items()):
            job["status"] = told
            self.api.store("jobs", "MODIFIED", job)

    def begin(self, job, index):
        template = job["spec"]["template"]
        job_name = job["metadata"]["name"]
        self.pods += 1
        labels = {"batch.kubernetes.io/job-name": job_name, "job-name": job_name, INDEX: str(index),
                  "batch.kubernetes.io/controller-uid": job["metadata"]["uid"], **template["metadata"]["labels"]}
        pod = {"apiVersion": "v1", "kind": "Pod",
               "metadata": {"name": f"{job_name}-{index}-{uuid.uuid4().hex[:5]}", "labels": labels,
                            "annotations": {INDEX: str(index)},
                            "ownerReferences": [{"apiVersion": "batch/v1", "kind": "Job", "name": job_name,
                                                 "uid": job["metadata"]["uid"], "controller": True,
                                                 "blockOwnerDeletion": True}]},
               "spec": dict(template["spec"], nodeName=f"n{self.pods}"), "status": {"phase": "Running"}}
        if index not in self.endings:
            arguments, environment = self.command(pod)
            self.processes[pod["metadata"]["name"]] = subprocess.Popen(
                arguments, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.api.make("pods", pod)

    def look(self, pod):
        """Whether its process has ended, and what follows from that."""
        if pod["status"]["phase"] != "Running" or pod["metadata"]["name"] in self.unreachable:
            return
        process = self.processes.get(pod["metadata"]["name"])
        if process:
            if process.poll() is None:
                return
            code, reason = process.returncode, "Completed" if process.returncode == 0 else "Error"
            printed = process.stdout.read().decode(errors="replace")
        else:
            reason = self.endings[int(pod["metadata"]["annotations"][INDEX])]
            code, printed = {"OOMKilled": 137, "Error": 4}.get(reason, 0), "looking\nno usable device" * (reason == "Error")
        if reason == "DeadlineExceeded":
            self.end(pod, "Failed", reason=reason)
            return
        terminated = {"exitCode": code if code >= 0 else 128 - code, "reason": reason}
        if code != 0 and printed:
            terminated["message"] = printed[-2048:]
        self.end(pod, "Failed" if code else "Succeeded", containerStatuses=[
            {"name": "tune", "image": "i", "imageID": "", "ready": False, "restartCount": 0,
             "state": {"terminated": terminated}}])

    def end(self, pod, phase, **more):
        pod["status"] |= {"phase": phase, **more}
        self.api.store("pods", "MODIFIED", pod)
        if phase == "Failed":
            self.judge(pod)

    def judge(self, pod):
        """By the Job's podFailurePolicy: the first rule that applies; none: it counts."""
        owner = pod["metadata"]["ownerReferences"][0]
        job = self.api.objects["jobs"].get(owner["name"])
        if job is None or job["metadata"]["uid"] != owner["uid"]:
            return
        spec = job["spec"]
        codes = [s["state"]["terminated"]["exitCode"] for s in pod["status"].get("containerStatuses", [])]
        counts = 1
        for rule in spec["podFailurePolicy"]["rules"]:
            wanted = [c["type"] for c in rule.get("onPodConditions", [])]
            on_codes = rule.get("onExitCodes", {"values": []})["values"]
            if any(c["type"] in wanted for c in pod["status"].get("conditions", [])) or set(codes) & set(on_codes):
                counts = {"Ignore": 0, "FailIndex": spec["backoffLimitPerIndex"] + 1}[rule["action"]]
                break
        key = (owner["uid"], int(pod["metadata"]["annotations"][INDEX]))
        self.failures[key] = self.failures.get(key, 0) + counts

    def stop(self, pod):
        """TERM, and after the grace KILL; whether the process is gone, as far as anybody knows."""
        if pod["metadata"]["name"] in self.unreachable:
            return False
        process = self.processes.get(pod["metadata"]["name"])
        if process is None or process.poll() is not None:
            return True
        until = pod["metadata"].get("deletionTimestamp")
        if until is None:
            pod["metadata"].update(deletionTimestamp=now(),
                                   deletionGracePeriodSeconds=pod["spec"]["terminationGracePeriodSeconds"])
            self.api.store("pods", "MODIFIED", pod)
            process.send_signal(signal.SIGTERM)
            process.killed_at = time.monotonic() + pod["spec"]["terminationGracePeriodSeconds"]
        elif time.monotonic() > process.killed_at:
            process.kill()
        return False

    # ----------------------------------------------------------------------------------------------- what happens there

    def running(self, index):
        return next((pod for pod in self.api.objects["pods"].values() if pod["status"]["phase"] == "Running"
                     and pod["metadata"]["annotations"][INDEX] == str(index)), None)

    def disrupt(self, index, reason):
        """The pod is taken from its node: TERM ("EvictionByEvictionAPI"). Where that is lost
        ("DeletionByTaintManager") it goes on, and for the API server, which cannot ask, it is being deleted: the Job's
        controller makes another in its place when it has ended (podReplacementPolicy: Failed)."""
        with self.api.change:
            pod = self.running(index)
            name = pod["metadata"]["name"]
            process = self.processes.pop(name)
            told = {"conditions": [{"type": "DisruptionTarget", "status": "True", "reason": reason,
                                    "lastTransitionTime": now()}]}
            if reason == "DeletionByTaintManager":
                self.lost[name] = process
                self.unreachable.add(name)
                pod["metadata"].update(deletionTimestamp=now(),
                                       deletionGracePeriodSeconds=pod["spec"]["terminationGracePeriodSeconds"])
                self.end(pod, "Running", **told)
            else:
                process.send_signal(signal.SIGTERM)
                process.wait()
                self.end(pod, "Failed", **told)

    def remove_node(self):
        """kubectl delete node: what was on the lost one has ended, by the collector of pods."""
        with self.api.change:
            for name in self.unreachable:
                self.end(self.api.objects["pods"][name], "Failed")
            self.unreachable.clear()

    def edit(self, change):
        """As an administrator, with the only Job there is."""
        with self.api.change:
            job, = self.api.objects["jobs"].values()
            change(job)
            self.api.store("jobs", "MODIFIED", job)

    def delete(self):
        """kubectl delete job, in the background: its pods are nobody's and are collected."""
        with self.api.change:
            job, = self.api.objects["jobs"].values()
            for pod in self.of(job):
                self.processes[pod["metadata"]["name"]].kill()
                self.api.store("pods", "DELETED", pod)
            self.api.store("jobs", "DELETED", job)


def environment_of(pod, scratch):
    """Of the container, whose /tmp is `scratch`, and whose image lets it take a processor."""
    os.makedirs(scratch, exist_ok=True)
    container, = pod["spec"]["containers"]
    def value(each):
        if "value" in each:
            return each["value"].replace("/tmp", scratch)
        found = pod  # of the downward API
        for part in each["valueFrom"]["fieldRef"]["fieldPath"].split("."):
            found = found[part]
        return found

    return {each["name"]: value(each) for each in container["env"]} | {
        "PATH": os.environ["PATH"], "TMPDIR": scratch, "HEDDLE_DEVICE": "auto"}
