-- A database as schema version 1 left it.
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
CREATE TABLE bench (
  id INTEGER PRIMARY KEY,
  device_name TEXT NOT NULL,
  l2 TEXT NOT NULL,
  UNIQUE (device_name, l2)
) STRICT;
INSERT INTO bench VALUES(1,'Loom 9000','cold');
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
INSERT INTO environment VALUES(1,'Loom 9000','uuid','sm_90',132,'1','NVRTC 13.0',1,0,'cold');
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
) STRICT;
INSERT INTO trial VALUES(1,1,1,1,NULL,'tile: threads=128',0,0,'OK','',5.0,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000000000000,-3785991773399927290);
INSERT INTO trial VALUES(2,1,1,1,NULL,'tile: threads=1024',0,0,'LAUNCH_ERROR',replace('too many resources requested for launch; it''s "said"\n','\n',char(10)),0.0,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000001000000,425522650092346458);
INSERT INTO trial VALUES(3,1,1,1,1,'tile: threads=256',1,0,'OK','',3.0,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000002000000,3251081957360646983);
INSERT INTO trial VALUES(4,1,1,1,1,'tile: threads=256',1,0,'OK','',2.0,0.0,0.0,0,1,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000003000000,-445867490716914493);
INSERT INTO trial VALUES(5,2,1,1,1,'tile: threads=256',1,0,'OK','',6.5,0.0,0.0,0,0,0,0.0,0,0,0,'',0.0,0.0,0.0,0.0,0,0,1760000004000000,7285905903621505347);
CREATE TABLE intent (
  workload INTEGER NOT NULL REFERENCES workload,
  bench INTEGER NOT NULL REFERENCES bench,
  point TEXT NOT NULL,
  owner TEXT NOT NULL,
  PRIMARY KEY (workload, bench, point)
) STRICT, WITHOUT ROWID;
INSERT INTO intent VALUES(1,1,'tile: threads=64','00000000-0000-4000-8000-000000000000 1 1');
CREATE INDEX workload_hash ON workload (hash);
CREATE INDEX workload_op ON workload (op);
CREATE INDEX steps_hash ON steps (hash);
CREATE INDEX trial_history ON trial (workload, bench, when_us);
CREATE INDEX trial_served ON trial (workload, bench, time_us)
  WHERE final = 1 AND imported = 0 AND outcome = 'OK' AND screened_out = 0;
COMMIT;
PRAGMA application_id = 1212433484;
PRAGMA user_version = 1;
