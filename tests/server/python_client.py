"""A client made from the .proto files alone: submits a job, waits for it, asks for the schedule, and
looks at health and reflection. Usage: python_client.py PROTO_FOLDER SCRATCH_FOLDER SERVER"""
import subprocess
import sys
import time

import grpc

protos, scratch, server = sys.argv[1:]
names = [f"heddle/v1/{n}.proto" for n in ("common", "tuning", "records", "fleet", "errors")]
subprocess.check_call(
    [sys.executable, "-m", "grpc_tools.protoc", "-I", protos, f"--python_out={scratch}",
     f"--grpc_python_out={scratch}", *names])
sys.path.insert(0, scratch)
from heddle.v1 import common_pb2, tuning_pb2, tuning_pb2_grpc  # noqa: E402

channel = grpc.insecure_channel(server)
tuning = tuning_pb2_grpc.TuningStub(channel)
workload = common_pb2.Workload(builtin="matmul", shape={"m": 64, "n": 64, "k": 64})
job = tuning.CreateJob(tuning_pb2.CreateJobRequest(
    request_id="python",
    spec=tuning_pb2.JobSpec(workloads=[workload], budget=tuning_pb2.Budget(trials=4))))
for _ in range(600):
    job = tuning.GetJob(tuning_pb2.GetJobRequest(name=job.name))
    if job.HasField("end_time"):
        break
    time.sleep(0.1)
assert job.state == tuning_pb2.Job.STATE_SUCCEEDED, job
best = tuning.QueryBest(tuning_pb2.QueryBestRequest(workload=workload))
assert best.match == tuning_pb2.QueryBestResponse.MATCH_EXACT and best.steps, best
assert not best.validated and best.confirmations == 0, "one host alone has measured it"

try:
    tuning.CreateJob(tuning_pb2.CreateJobRequest(request_id="?"))
    raise AssertionError("a wrong request was taken")
except grpc.RpcError as error:
    assert error.code() == grpc.StatusCode.INVALID_ARGUMENT and "request_id" in error.details()

# Both have .proto files of their own, which need not be here: SERVING, and a list of services.
health = channel.unary_unary("/grpc.health.v1.Health/Check")(b"")
assert health == b"\x08\x01", health
reflect = channel.stream_stream("/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo")
listed = next(reflect(iter([b"\x3a\x00"])))
for service in (b"heddle.v1.Tuning", b"heddle.v1.Records", b"heddle.v1.Fleet"):
    assert service in listed, listed
