-- A database as commit 12d5b75 (schema version 4) left it, killed with jobs open: 1 runs, with one trial
-- leased and one that waits after a lost worker; 2 is being cancelled; 3 waits.
BEGIN TRANSACTION;
CREATE TABLE bench (
  id INTEGER PRIMARY KEY,
  device_name TEXT NOT NULL,
  l2 TEXT NOT NULL,
  UNIQUE (device_name, l2)
) STRICT;
CREATE TABLE environment (
  id INTEGER PRIMARY KEY,
  device_name TEXT NOT NULL,
  device_uuid TEXT NOT NULL,
  arch TEXT NOT NULL,
  sm_count INTEGER NOT NULL,
  driver TEXT NOT NULL,
  compiler TEXT NOT NULL,
  generator_version INTEGER NOT NULL,
  feature_version INTEGER NOT NULL,
  l2 TEXT NOT NULL
) STRICT;
CREATE TABLE fleet_device (
  id TEXT PRIMARY KEY,
  device TEXT NOT NULL,         -- JSON
  hostname TEXT NOT NULL,
  state INTEGER NOT NULL,
  generator INTEGER NOT NULL,
  last_seen_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO "fleet_device" VALUES('host/cuda:0','{"id":"cuda:0","uuid":"GPU-cuda:0","target":{"name":"NVIDIA H100 80GB HBM3","arch":"sm_90","smCount":132}}','host',1,4,1760000002000000);
CREATE TABLE intent (
  workload INTEGER NOT NULL REFERENCES workload,
  bench INTEGER NOT NULL REFERENCES bench,
  point TEXT NOT NULL,
  owner TEXT NOT NULL,
  PRIMARY KEY (workload, bench, point)
) STRICT, WITHOUT ROWID;
CREATE TABLE job (
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  spec TEXT NOT NULL,           -- JSON
  state INTEGER NOT NULL,
  stop_reason INTEGER NOT NULL,
  error TEXT NOT NULL,
  device_model TEXT NOT NULL,
  create_us INTEGER NOT NULL,
  start_us INTEGER NOT NULL,
  end_us INTEGER NOT NULL,
  expire_us INTEGER NOT NULL,   -- 0 = never
  last_seq INTEGER NOT NULL
) STRICT;
INSERT INTO "job" VALUES(1,'weavers','{"workloads":[{"builtin":"matmul","shape":{"m":"64","n":"64","k":"64"}}],"budget":{"trials":"4"},"seed":"3"}',2,0,'','NVIDIA H100 80GB HBM3',1760000000000000,1760000001000000,0,0,2);
INSERT INTO "job" VALUES(2,'weavers','{"workloads":[{"builtin":"matmul","shape":{"m":"64","n":"64","k":"64"}}],"budget":{"trials":"4"},"seed":"3"}',6,0,'','NVIDIA H100 80GB HBM3',1760000000000000,1760000001000000,0,0,2);
INSERT INTO "job" VALUES(3,'weavers','{"workloads":[{"builtin":"matmul","shape":{"m":"64","n":"64","k":"64"}}],"budget":{"trials":"4"},"seed":"3"}',1,0,'','NVIDIA H100 80GB HBM3',1760000000000000,1760000001000000,0,0,2);
CREATE TABLE job_event (
  job INTEGER NOT NULL REFERENCES job,
  seq INTEGER NOT NULL,
  when_us INTEGER NOT NULL,
  state INTEGER NOT NULL,
  trial INTEGER NOT NULL,       -- 0 = a change of state
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO "job_event" VALUES(1,1,1760000000000000,1,0);
INSERT INTO "job_event" VALUES(1,2,1760000001000000,2,0);
INSERT INTO "job_event" VALUES(2,1,1760000000000000,1,0);
INSERT INTO "job_event" VALUES(2,2,1760000001000000,6,0);
INSERT INTO "job_event" VALUES(3,1,1760000000000000,1,0);
INSERT INTO "job_event" VALUES(3,2,1760000001000000,1,0);
CREATE TABLE job_trial (
  id INTEGER PRIMARY KEY,
  job INTEGER NOT NULL REFERENCES job,
  workload INTEGER NOT NULL,
  point TEXT NOT NULL,
  steps TEXT NOT NULL,          -- until it is done
  state INTEGER NOT NULL,
  final INTEGER NOT NULL,
  kills INTEGER NOT NULL,
  running INTEGER NOT NULL,     -- on a device, at the last heartbeat
  lease INTEGER NOT NULL,
  device TEXT NOT NULL,
  seq INTEGER NOT NULL,
  record INTEGER REFERENCES trial ON DELETE SET NULL
) STRICT;
INSERT INTO "job_trial" VALUES(7,1,0,'old-leased','steps-7',2,0,0,1,21474836481,'host/cuda:0',0,NULL);
INSERT INTO "job_trial" VALUES(8,1,0,'old-waiting','steps-8',1,0,1,0,17179869193,'host/cuda:0',0,NULL);
CREATE TABLE job_workload (
  job INTEGER NOT NULL REFERENCES job,
  number INTEGER NOT NULL,
  hash TEXT NOT NULL,
  text TEXT NOT NULL,
  trials INTEGER NOT NULL,
  ok INTEGER NOT NULL,
  failed TEXT NOT NULL,         -- a JSON object
  default_us REAL NOT NULL,
  best_us REAL NOT NULL,
  search_s REAL NOT NULL,
  ended INTEGER NOT NULL,
  PRIMARY KEY (job, number)
) STRICT, WITHOUT ROWID;
INSERT INTO "job_workload" VALUES(1,0,'83c51fe33e2344b3','float32 op matmul(m = 64, n = 64, k = 64) {
  in A[m, k], B[k, n]
  out C[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]
}
',0,0,'{}',0.0,0.0,12.5,0);
INSERT INTO "job_workload" VALUES(2,0,'83c51fe33e2344b3','float32 op matmul(m = 64, n = 64, k = 64) {
  in A[m, k], B[k, n]
  out C[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]
}
',0,0,'{}',0.0,0.0,12.5,0);
INSERT INTO "job_workload" VALUES(3,0,'83c51fe33e2344b3','float32 op matmul(m = 64, n = 64, k = 64) {
  in A[m, k], B[k, n]
  out C[i: m, j: n] = sum(r: k) A[i, r] * B[r, j]
}
',0,0,'{}',0.0,0.0,12.5,0);
CREATE TABLE late_trial (
  lease INTEGER NOT NULL,
  trial INTEGER NOT NULL,       -- job_trial.id
  device TEXT NOT NULL,
  when_us INTEGER NOT NULL,     -- of the expiry
  PRIMARY KEY (lease, trial)
) STRICT, WITHOUT ROWID;
INSERT INTO "late_trial" VALUES(17179869193,8,'host/cuda:0',1760000002000000);
CREATE TABLE model (
  bench INTEGER PRIMARY KEY REFERENCES bench,
  trials INTEGER NOT NULL,      -- that were in the bench when it was trained
  bytes BLOB NOT NULL           -- as CostModel::Save gives them
) STRICT;
CREATE TABLE request (
  tenant TEXT NOT NULL,
  method TEXT NOT NULL,
  request_id TEXT NOT NULL,
  body INTEGER NOT NULL,        -- hash of the request
  result INTEGER NOT NULL,
  when_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, method, request_id)
) STRICT, WITHOUT ROWID;
INSERT INTO "request" VALUES('weavers','CreateJob','r-1',4711,1,1760000000000000);
CREATE TABLE server (
  epoch INTEGER NOT NULL
) STRICT;
INSERT INTO "server" VALUES(5);
CREATE TABLE steps (
  id INTEGER PRIMARY KEY,
  hash INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE TABLE token (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,    -- SHA-256, hexadecimal
  tenant TEXT NOT NULL,
  role TEXT NOT NULL,
  note TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  revoked_us INTEGER NOT NULL   -- 0 = valid
) STRICT;
INSERT INTO "token" VALUES(1,'abababababababababababababababababababababababababababababababab','weavers','tuner','of an earlier version',1760000000000000,0);
CREATE TABLE trial (
  id INTEGER PRIMARY KEY,
  workload INTEGER NOT NULL REFERENCES workload,
  bench INTEGER NOT NULL REFERENCES bench,
  environment INTEGER NOT NULL REFERENCES environment,
  steps INTEGER REFERENCES steps,
  point TEXT NOT NULL,
  final INTEGER NOT NULL,       -- 0 screening, 1 final
  imported INTEGER NOT NULL,    -- 0 measured here, 1 imported
  outcome TEXT NOT NULL,
  detail TEXT NOT NULL,
  time_us REAL NOT NULL,
  ci_low_us REAL NOT NULL,
  ci_high_us REAL NOT NULL,
  samples INTEGER NOT NULL,
  noisy INTEGER NOT NULL,
  screened_out INTEGER NOT NULL,
  max_error REAL NOT NULL,
  registers INTEGER NOT NULL,
  local_bytes INTEGER NOT NULL,
  shared_bytes INTEGER NOT NULL,
  source_hash TEXT NOT NULL,
  compile_s REAL NOT NULL,
  load_s REAL NOT NULL,
  validate_s REAL NOT NULL,
  time_s REAL NOT NULL,
  throttled INTEGER NOT NULL,
  other_processes INTEGER NOT NULL,
  when_us INTEGER NOT NULL,     -- microseconds since 1970 (UTC)
  checksum INTEGER NOT NULL     -- of everything that is read with the row, other tables included
) STRICT;
CREATE TABLE workload (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL,
  op TEXT NOT NULL,
  shape TEXT NOT NULL,   -- a JSON object
  dtype TEXT NOT NULL,
  text TEXT NOT NULL     -- canonical; the identity is hash and text together
) STRICT;
CREATE INDEX workload_hash ON workload (hash);
CREATE INDEX workload_op ON workload (op);
CREATE INDEX steps_hash ON steps (hash);
CREATE INDEX trial_history ON trial (workload, bench, when_us);
CREATE INDEX trial_served ON trial (workload, bench, time_us)
  WHERE final = 1 AND imported = 0 AND outcome = 'OK' AND screened_out = 0;
CREATE INDEX job_tenant ON job (tenant, id);
CREATE INDEX job_open ON job (tenant) WHERE end_us = 0;
CREATE INDEX job_trial_done ON job_trial (job, seq, id);
CREATE INDEX job_trial_open ON job_trial (job) WHERE state < 3;
CREATE INDEX job_trial_record ON job_trial (record);
CREATE INDEX request_age ON request (when_us);
COMMIT;
PRAGMA application_id = 1212433484;
PRAGMA user_version = 4;
