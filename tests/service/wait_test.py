"""Who waits for a job is answered after the seconds that he asked for, whichever way the clock jumps."""

import os
import threading
import time

from service import Service, expect, made_client

with Service() as s:
    grpc, common, tuning, stubs = made_client(s.folder)
    jump = f"{s.folder}/jump"
    s.environment.update(HEDDLE_CLOCK_JUMP=jump)

    def jump_by(hours):
        with open(f"{jump}.new", "w") as out:
            out.write(str(3600 * hours))
        os.rename(f"{jump}.new", jump)

    s.start("server", "serve", "--listen", s.server_address,
            before=["env", f"LD_PRELOAD={os.environ['HEDDLE_CLOCK_JUMP_LIBRARY']}"])
    with grpc.insecure_channel(s.server_address) as channel:
        grpc.channel_ready_future(channel).result(timeout=60)
        stub = stubs.TuningStub(channel)
        # One for which there is no device.
        workload = common.Workload(builtin="vector_add", shape={"n": 1024})
        spec = tuning.JobSpec(workloads=[workload], budget=tuning.Budget(trials=1))
        job = stub.CreateJob(tuning.CreateJobRequest(request_id="waits", spec=spec), timeout=60)
        for hours in (2, -2):
            request = tuning.WaitJobRequest(name=job.name)
            request.timeout.seconds = 3
            begin = time.monotonic()
            jumps = threading.Timer(1, jump_by, [hours])
            jumps.start()
            answer = stub.WaitJob(request, timeout=120)
            took = time.monotonic() - begin
            jumps.join()
            expect(answer.state in (tuning.Job.STATE_QUEUED, tuning.Job.STATE_WAITING_DEVICE), answer)
            expect(2.9 < took < 20, f"WaitJob took {took:.1f} s for 3 when the clock jumped {hours} h")
