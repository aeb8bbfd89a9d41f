-- A database as schema version 11 left it.
BEGIN TRANSACTION;
CREATE TABLE workload (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL,
  op TEXT NOT NULL,
  shape TEXT NOT NULL,   -- a JSON object
  dtype TEXT NOT NULL,
  text TEXT NOT NULL     -- canonical; the identity is hash and text together
) STRICT;
INSERT INTO workload VALUES(1,'e3259ee7d619cd51','vector_add','{"n":32}','float32','op vector_add(n) { ... } n=32 float32');
INSERT INTO workload VALUES(2,'1a5a0b0a7640a7ba','vector_add','{"n":64}','float32','op vector_add(n) { ... } n=64 float32');
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
, memory_mib INTEGER NOT NULL DEFAULT 0, power_limit_w INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO environment VALUES(1,'Loom 9000','uuid','sm_90',132,'1','NVRTC 13.0',1,0,'cold',0,0);
INSERT INTO environment VALUES(2,'Loom 9000','uuid','sm_90',132,'1','NVRTC 13.0',1,0,'cold',81559,700);
CREATE TABLE steps (
  id INTEGER PRIMARY KEY,
  hash INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;
INSERT INTO steps VALUES(1,-6781519946081811775,'bind(C, i, thread)');
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
, source INTEGER REFERENCES source, speaks INTEGER GENERATED ALWAYS AS (
  imported = 0 AND iif(final = 1, outcome <> 'WORKER_LOST', outcome = 'WRONG_ANSWER' OR
                       outcome = 'ILLEGAL_ACCESS' AND source_hash <> '')) VIRTUAL) STRICT;
INSERT INTO trial VALUES(1,1,1,1,NULL,'tile: threads=128',0,0,'OK','',5.0,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000000000000,-3785991773399927290,NULL);
INSERT INTO trial VALUES(2,1,1,1,NULL,'tile: threads=1024',0,0,'LAUNCH_ERROR',replace('too many resources requested for launch; it''s "said"\n','\n',char(10)),0.0,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000001000000,425522650092346458,NULL);
INSERT INTO trial VALUES(3,1,1,1,1,'tile: threads=256',1,0,'OK','',3.0,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000002000000,3251081957360646983,NULL);
INSERT INTO trial VALUES(4,1,1,1,1,'tile: threads=256',1,0,'OK','',2.0,0.0,0.0,0,1,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000003000000,-445867490716914493,NULL);
INSERT INTO trial VALUES(5,2,1,1,1,'tile: threads=256',1,0,'OK','',6.5,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000004000000,7285905903621505347,NULL);
INSERT INTO trial VALUES(6,2,2,2,1,'tile: threads=256',1,0,'OK','',7.0,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000020000000,5665798592255575113,1);
INSERT INTO trial VALUES(7,2,2,2,1,'tile: threads=256',1,0,'OK','',7.0,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000020000000,169155912154772424,2);
CREATE TABLE intent (
  workload INTEGER NOT NULL REFERENCES workload,
  bench INTEGER NOT NULL REFERENCES bench,
  point TEXT NOT NULL,
  owner TEXT NOT NULL, attempts INTEGER NOT NULL DEFAULT 1,
  PRIMARY KEY (workload, bench, point)
) STRICT, WITHOUT ROWID;
INSERT INTO intent VALUES(1,1,'tile: threads=64','00000000-0000-4000-8000-000000000000 1 1',1);
CREATE TABLE server (
  epoch INTEGER NOT NULL
) STRICT;
INSERT INTO server VALUES(4);
CREATE TABLE token (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,    -- SHA-256, hexadecimal
  tenant TEXT NOT NULL,
  role TEXT NOT NULL,
  note TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  revoked_us INTEGER NOT NULL   -- 0 = valid
, expires_us INTEGER NOT NULL DEFAULT 0, host TEXT NOT NULL DEFAULT '', last_used_us INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO token VALUES(1,'9f86d081884c7d659a2feaa0c55ad015a3bf4f1b2b0b822cd15d6c15b0f00a08','weavers','tuner','ci',1760000000000000,0,0,'',0);
INSERT INTO token VALUES(2,'1b4f0e9851971998e732078544c96b36c3d01cedf7caa332359d6f1d83567014','fleet','daemon','loom-1',1760000000000000,0,1790000000000000,'loom-1',1760000003000000);
CREATE TABLE request (
  tenant TEXT NOT NULL,
  method TEXT NOT NULL,
  request_id TEXT NOT NULL,
  body INTEGER NOT NULL,        -- hash of the request
  result INTEGER NOT NULL,
  when_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, method, request_id)
) STRICT, WITHOUT ROWID;
INSERT INTO request VALUES('weavers','CreateJob','r-1',-77,1,1760000000000000);
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
, restarts INTEGER NOT NULL DEFAULT 0) STRICT;
INSERT INTO job VALUES(1,'weavers','{"workloads":[{"builtin":"vector_add","shape":{"n":"32"}}],"budget":{"trials":"3"}}',5,1,'','Loom 9000',1760000000000000,1760000001000000,1760000009000000,0,4,0);
INSERT INTO job VALUES(2,'weavers','{"workloads":[{"builtin":"vector_add","shape":{"n":"32"}}],"budget":{"trials":"9"}}',2,0,'','Loom 9000',1760000010000000,1760000011000000,0,0,2,2);
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
INSERT INTO job_workload VALUES(1,0,'e3259ee7d619cd51','op vector_add(n) { ... } n=32 float32',2,1,'{"LAUNCH_ERROR":1}',5.0,3.0,8.5,1);
INSERT INTO job_workload VALUES(2,0,'e3259ee7d619cd51','op vector_add(n) { ... } n=32 float32',0,0,'{}',0.0,0.0,0.0,0);
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
INSERT INTO job_trial VALUES(1,1,0,'tile: threads=128','',3,0,0,0,4294967297,'hosts/host/devices/cuda:0',3,1);
INSERT INTO job_trial VALUES(2,1,0,'tile: threads=1024','',4,0,2,0,4294967298,'hosts/host/devices/cuda:0',4,2);
INSERT INTO job_trial VALUES(3,2,0,'tile: threads=64','bind(C, i, thread)',2,0,1,1,17179869185,'hosts/host/devices/cuda:0',0,NULL);
CREATE TABLE job_event (
  job INTEGER NOT NULL REFERENCES job,
  seq INTEGER NOT NULL,
  when_us INTEGER NOT NULL,
  state INTEGER NOT NULL,
  trial INTEGER NOT NULL,       -- 0 = a change of state
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;
INSERT INTO job_event VALUES(1,1,1760000000000000,1,0);
INSERT INTO job_event VALUES(1,2,1760000001000000,2,0);
INSERT INTO job_event VALUES(1,3,1760000002000000,2,1);
INSERT INTO job_event VALUES(1,4,1760000009000000,5,0);
INSERT INTO job_event VALUES(2,1,1760000010000000,1,0);
INSERT INTO job_event VALUES(2,2,1760000011000000,2,0);
CREATE TABLE fleet_device (
  id TEXT PRIMARY KEY,
  device TEXT NOT NULL,         -- JSON
  hostname TEXT NOT NULL,
  state INTEGER NOT NULL,
  generator INTEGER NOT NULL,
  last_seen_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO fleet_device VALUES('hosts/host/devices/cuda:0','{"id":"cuda:0","target":{"name":"Loom 9000"}}','host.example.org',1,1,1760000011000000);
CREATE TABLE model (
  bench INTEGER PRIMARY KEY REFERENCES bench,
  trials INTEGER NOT NULL,      -- that were in the bench when it was trained
  bytes BLOB NOT NULL           -- as CostModel::Save gives them
) STRICT;
INSERT INTO model VALUES(1,4,X'00ff10');
CREATE TABLE late_trial (
  lease INTEGER NOT NULL,
  trial INTEGER NOT NULL,       -- job_trial.id
  device TEXT NOT NULL,
  when_us INTEGER NOT NULL,     -- of the expiry
  PRIMARY KEY (lease, trial)
) STRICT, WITHOUT ROWID;
INSERT INTO late_trial VALUES(17179869184,3,'hosts/other/devices/cuda:0',1760000012000000);
CREATE TABLE IF NOT EXISTS "bench" (
  id INTEGER PRIMARY KEY,
  device_name TEXT NOT NULL,
  l2 TEXT NOT NULL,
  sm_count INTEGER NOT NULL,      -- 0 = not known
  memory_mib INTEGER NOT NULL,    -- of GPUs; 0 = not known
  power_limit_w INTEGER NOT NULL, -- of GPUs; 0 = not known
  UNIQUE (device_name, l2, sm_count, memory_mib, power_limit_w)
) STRICT;
INSERT INTO bench VALUES(1,'Loom 9000','cold',132,0,0);
INSERT INTO bench VALUES(2,'Loom 9000','cold',132,81559,700);
CREATE TABLE source (
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  token INTEGER NOT NULL,       -- token.id
  host TEXT NOT NULL,
  run TEXT NOT NULL,
  UNIQUE (tenant, token, host, run)
) STRICT;
INSERT INTO source VALUES(1,'weavers',1,'loom-1','job-1');
INSERT INTO source VALUES(2,'weavers',1,'loom-2','job-1');
CREATE TABLE served (
  workload INTEGER NOT NULL,
  bench INTEGER NOT NULL,
  time_us REAL NOT NULL,
  trial INTEGER NOT NULL REFERENCES trial,
  ci_low_us REAL NOT NULL,
  ci_high_us REAL NOT NULL,
  steps INTEGER NOT NULL, -- tuner/records.h, Records::Best
  PRIMARY KEY (workload, bench, time_us, trial)
) STRICT, WITHOUT ROWID;
INSERT INTO served VALUES(1,1,2.0,4,0.0,0.0,0);
INSERT INTO served VALUES(2,1,6.5,5,0.0,0.0,0);
INSERT INTO served VALUES(2,2,7.0,7,0.0,0.0,0);
CREATE TABLE fleet_host (
  host TEXT PRIMARY KEY,
  token INTEGER NOT NULL,       -- token.id of the one that used it first; 0 = the server's socket
  trusted INTEGER NOT NULL,
  released INTEGER NOT NULL     -- the next token that registers it has it
) STRICT, WITHOUT ROWID;
INSERT INTO fleet_host VALUES('host',1,1,0);
CREATE TABLE fleet_model (
  name TEXT PRIMARY KEY,
  device TEXT NOT NULL          -- JSON, as an administrator has pinned it
) STRICT, WITHOUT ROWID;
INSERT INTO fleet_model VALUES('Loom 9000','{"id":"cuda:0","target":{"name":"Loom 9000","peakGflops":9000}}');
CREATE TABLE final_origin (
  trial INTEGER PRIMARY KEY REFERENCES trial ON DELETE CASCADE,
  host TEXT NOT NULL,
  token INTEGER NOT NULL,       -- token.id; 0 = the server's socket
  lease INTEGER NOT NULL,       -- what was measured together has the same
  is_default INTEGER NOT NULL   -- the default schedule
) STRICT;
INSERT INTO final_origin VALUES(3,'host',1,4294967299,1);
CREATE TABLE tenant_use (
  tenant TEXT NOT NULL,
  day INTEGER NOT NULL,         -- since 1970, UTC
  device_s REAL NOT NULL,
  PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;
INSERT INTO tenant_use VALUES('weavers',20370,12.5);
CREATE TABLE attempt (
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  number INTEGER NOT NULL, token INTEGER NOT NULL DEFAULT 0, certificate TEXT NOT NULL DEFAULT '',
  UNIQUE (run, number)
) STRICT;
INSERT INTO attempt VALUES(1,'20261122T070000Z-suite-0',0,0,'');
INSERT INTO attempt VALUES(2,'20261122T070000Z-suite-0',1,0,'');
INSERT INTO attempt VALUES(3,'team/20261122T070000Z-suite-0',1,2,'node-b,node-b.example.org');
CREATE TABLE collected (
  attempt INTEGER NOT NULL REFERENCES attempt,
  sequence INTEGER NOT NULL,
  trial INTEGER REFERENCES trial ON DELETE SET NULL,
  PRIMARY KEY (attempt, sequence)
) STRICT, WITHOUT ROWID;
INSERT INTO collected VALUES(2,1,NULL);
INSERT INTO collected VALUES(1,1,4);
CREATE TABLE job_label (
  job INTEGER NOT NULL REFERENCES job,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (job, key)
) STRICT, WITHOUT ROWID;
INSERT INTO job_label VALUES(1,'team','loom');
CREATE INDEX workload_hash ON workload (hash);
CREATE INDEX workload_op ON workload (op);
CREATE INDEX steps_hash ON steps (hash);
CREATE INDEX trial_history ON trial (workload, bench, when_us);
CREATE INDEX job_tenant ON job (tenant, id);
CREATE INDEX job_open ON job (tenant) WHERE end_us = 0;
CREATE INDEX job_trial_done ON job_trial (job, seq, id);
CREATE INDEX job_trial_open ON job_trial (job) WHERE state < 3;
CREATE INDEX job_trial_record ON job_trial (record);
CREATE INDEX request_age ON request (when_us);
CREATE INDEX final_origin_lease ON final_origin (lease);
CREATE UNIQUE INDEX served_trial ON served (trial);
CREATE INDEX collected_trial ON collected (trial);
CREATE INDEX job_state ON job (tenant, state, id);
CREATE INDEX job_ended ON job (end_us) WHERE end_us > 0;
CREATE INDEX job_label_value ON job_label (key, value, job);
CREATE INDEX trial_word_point ON trial (workload, bench, point) WHERE speaks = 1;
CREATE INDEX trial_word_steps ON trial (workload, bench, steps) WHERE speaks = 1;
CREATE VIEW servable AS
SELECT t.workload, t.bench, t.time_us, t.id AS trial, t.ci_low_us, t.ci_high_us,
  length(s.text) - length(replace(s.text, char(10), '')) AS steps
FROM trial t JOIN steps s ON s.id = t.steps
WHERE t.speaks = 1 AND t.final = 1 AND t.outcome = 'OK' AND t.screened_out = 0
  AND NOT EXISTS (SELECT 1 FROM trial n
    WHERE n.speaks = 1 AND n.workload = t.workload AND n.bench = t.bench
    AND n.point = t.point AND t.point <> '' AND n.id > t.id)
  AND NOT EXISTS (SELECT 1 FROM trial n
    WHERE n.speaks = 1 AND n.workload = t.workload AND n.bench = t.bench
    AND n.steps = t.steps AND n.id > t.id);
CREATE TRIGGER trial_added AFTER INSERT ON trial WHEN NEW.speaks = 1
BEGIN
  DELETE FROM served WHERE trial IN (
    (SELECT max(id) FROM trial WHERE speaks = 1 AND workload = NEW.workload AND bench = NEW.bench
     AND point = NEW.point AND NEW.point <> '' AND id < NEW.id),
    (SELECT max(id) FROM trial WHERE speaks = 1 AND workload = NEW.workload AND bench = NEW.bench
     AND steps = NEW.steps AND id < NEW.id));
  INSERT INTO served SELECT * FROM servable WHERE trial = NEW.id;
END;
CREATE TRIGGER trial_removed AFTER DELETE ON trial WHEN OLD.speaks = 1
BEGIN
  DELETE FROM served WHERE trial = OLD.id;
  INSERT OR REPLACE INTO served SELECT * FROM servable WHERE trial IN (
    (SELECT max(id) FROM trial WHERE speaks = 1 AND workload = OLD.workload AND bench = OLD.bench
     AND point = OLD.point AND OLD.point <> ''),
    (SELECT max(id) FROM trial WHERE speaks = 1 AND workload = OLD.workload AND bench = OLD.bench
     AND steps = OLD.steps));
END;
COMMIT;
PRAGMA application_id = 1212433484;
PRAGMA user_version = 11;
