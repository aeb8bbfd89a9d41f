"""A client made from the .proto files with the grpc tools of Debian submits and queries."""

import time

from service import Service, expect, made_client, skip, vouch

with Service() as s:
    if not any(d["usable"] and d["id"] == "opencl:0" for d in s.json("devices", check=False)):
        skip("pocl: no usable OpenCL device")
    grpc, common, tuning, stubs = made_client(s.folder)

    s.start("server", "serve", "--local", "--listen", s.server_address)
    s.await_devices("--server", s.server_address)
    with grpc.insecure_channel(s.server_address) as channel:
        stub = stubs.TuningStub(channel)
        workload = common.Workload(builtin="matmul", shape={"m": 64, "n": 64, "k": 64})
        spec = tuning.JobSpec(workloads=[workload], budget=tuning.Budget(trials=4))
        job = stub.CreateJob(tuning.CreateJobRequest(request_id="python", spec=spec), timeout=30)
        events = list(stub.WatchJob(tuning.WatchJobRequest(name=job.name), timeout=300))
        expect(events[-1].state == tuning.Job.STATE_SUCCEEDED, events[-1])
        seen = [e.seq for e in events if e.first_seq > 0]
        expect(seen == sorted(set(seen)), f"events out of order: {seen}")
        vouch(s, ["--server", s.server_address])
        answer = stub.QueryBest(tuning.QueryBestRequest(workload=workload), timeout=30)
        expect(answer.match == tuning.QueryBestResponse.MATCH_EXACT and answer.validated, answer)
        expect(answer.record.result.time_us > 0 and answer.steps, answer)
        # What is wrong is named, in the manner of google.rpc.
        spec.workloads[0].shape["m"] = -1
        try:
            stub.CreateJob(tuning.CreateJobRequest(request_id="wrong", spec=spec), timeout=30)
            raise AssertionError("a negative extent was accepted")
        except grpc.RpcError as error:
            expect(error.code() == grpc.StatusCode.INVALID_ARGUMENT, error)
            details = dict(error.trailing_metadata())["grpc-status-details-bin"]
            expect(b"spec.workloads[0]" in details and b"BadRequest" in details, details)
