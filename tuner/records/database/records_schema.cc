#include "tuner/records/database/records_schema.h"

namespace heddle::tuner {
namespace {

// A `bench` is what times compare on. It is in each trial, beside the exact environment, so that
// the trials of a workload that compare lie side by side.
constexpr char kVersion1[] = R"sql(
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

CREATE TABLE steps (
  id INTEGER PRIMARY KEY,
  hash INTEGER NOT NULL,
  text TEXT NOT NULL
) STRICT;
CREATE INDEX steps_hash ON steps (hash);

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
CREATE INDEX trial_history ON trial (workload, bench, when_us);
CREATE INDEX trial_served ON trial (workload, bench, time_us)
  WHERE final = 1 AND imported = 0 AND outcome = 'OK' AND screened_out = 0;

-- Candidates that were about to run, and the process that was to run them.
CREATE TABLE intent (
  workload INTEGER NOT NULL REFERENCES workload,
  bench INTEGER NOT NULL REFERENCES bench,
  point TEXT NOT NULL,
  owner TEXT NOT NULL,
  PRIMARY KEY (workload, bench, point)
) STRICT, WITHOUT ROWID;
)sql";

// The service (server/db/store.h). Enumerations are those of the API by number; JSON columns are
// its messages; times are microseconds since 1970.
constexpr char kVersion2[] = R"sql(
CREATE TABLE server (
  epoch INTEGER NOT NULL
) STRICT;
INSERT INTO server VALUES (0);

CREATE TABLE token (
  id INTEGER PRIMARY KEY,
  hash TEXT NOT NULL UNIQUE,    -- SHA-256, hexadecimal
  tenant TEXT NOT NULL,
  role TEXT NOT NULL,
  note TEXT NOT NULL,
  created_us INTEGER NOT NULL,
  revoked_us INTEGER NOT NULL   -- 0 = valid
) STRICT;

-- Requests that may be sent again, and what they made.
CREATE TABLE request (
  tenant TEXT NOT NULL,
  method TEXT NOT NULL,
  request_id TEXT NOT NULL,
  body INTEGER NOT NULL,        -- hash of the request
  result INTEGER NOT NULL,
  when_us INTEGER NOT NULL,
  PRIMARY KEY (tenant, method, request_id)
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
CREATE INDEX job_tenant ON job (tenant, id);
CREATE INDEX job_open ON job (tenant) WHERE end_us = 0;

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

-- Trials of jobs that were leased at least once.
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
CREATE INDEX job_trial_done ON job_trial (job, seq, id);
CREATE INDEX job_trial_open ON job_trial (job) WHERE state < 3;
CREATE INDEX job_trial_record ON job_trial (record);

CREATE TABLE job_event (
  job INTEGER NOT NULL REFERENCES job,
  seq INTEGER NOT NULL,
  when_us INTEGER NOT NULL,
  state INTEGER NOT NULL,
  trial INTEGER NOT NULL,       -- 0 = a change of state
  PRIMARY KEY (job, seq)
) STRICT, WITHOUT ROWID;

CREATE TABLE fleet_device (
  id TEXT PRIMARY KEY,
  device TEXT NOT NULL,         -- JSON
  hostname TEXT NOT NULL,
  state INTEGER NOT NULL,
  generator INTEGER NOT NULL,
  last_seen_us INTEGER NOT NULL
) STRICT, WITHOUT ROWID;
)sql";

// What was learnt from the trials of a bench; it can always be learnt again.
constexpr char kVersion3[] = R"sql(
CREATE TABLE model (
  bench INTEGER PRIMARY KEY REFERENCES bench,
  trials INTEGER NOT NULL,      -- that were in the bench when it was trained
  bytes BLOB NOT NULL           -- as CostModel::Save gives them
) STRICT;
)sql";

// Leases that have expired keep what may still be reported of them.
constexpr char kVersion4[] = R"sql(
CREATE TABLE late_trial (
  lease INTEGER NOT NULL,
  trial INTEGER NOT NULL,       -- job_trial.id
  device TEXT NOT NULL,
  when_us INTEGER NOT NULL,     -- of the expiry
  PRIMARY KEY (lease, trial)
) STRICT, WITHOUT ROWID;

CREATE INDEX request_age ON request (when_us);
)sql";

// Times compare between devices of one size; rows know where they come from; of a schedule's finals
// the newest counts. What may be served is kept by triggers, whoever adds or removes trials.
constexpr char kVersion5[] = R"sql(
CREATE TABLE wider_bench (
  id INTEGER PRIMARY KEY,
  device_name TEXT NOT NULL,
  l2 TEXT NOT NULL,
  sm_count INTEGER NOT NULL,      -- 0 = not known
  memory_mib INTEGER NOT NULL,    -- of GPUs; 0 = not known
  power_limit_w INTEGER NOT NULL, -- of GPUs; 0 = not known
  UNIQUE (device_name, l2, sm_count, memory_mib, power_limit_w)
) STRICT;
-- A bench whose environments differ in sm_count falls apart; the oldest keeps its id.
INSERT INTO wider_bench
  SELECT b.id, b.device_name, b.l2, coalesce(e.sm_count, 0), 0, 0
  FROM bench b LEFT JOIN environment e ON e.id =
    (SELECT min(id) FROM environment WHERE device_name = b.device_name AND l2 = b.l2);
INSERT INTO wider_bench (device_name, l2, sm_count, memory_mib, power_limit_w)
  SELECT DISTINCT e.device_name, e.l2, e.sm_count, 0, 0
  FROM environment e JOIN bench b ON b.device_name = e.device_name AND b.l2 = e.l2
  WHERE NOT EXISTS (SELECT 1 FROM wider_bench w WHERE w.device_name = e.device_name
                    AND w.l2 = e.l2 AND w.sm_count = e.sm_count);
-- Learnt from devices that do not compare.
DELETE FROM model WHERE bench IN (
  SELECT b.id FROM bench b JOIN wider_bench w
  ON w.device_name = b.device_name AND w.l2 = b.l2 AND w.id <> b.id);
DROP TABLE bench;
ALTER TABLE wider_bench RENAME TO bench;
UPDATE trial SET bench = moved.bench FROM (
    SELECT e.id AS environment, b.id AS bench FROM environment e JOIN bench b
    ON b.device_name = e.device_name AND b.l2 = e.l2 AND b.sm_count = e.sm_count) moved
  WHERE trial.environment = moved.environment AND trial.bench <> moved.bench;
ALTER TABLE environment ADD COLUMN memory_mib INTEGER NOT NULL DEFAULT 0;
ALTER TABLE environment ADD COLUMN power_limit_w INTEGER NOT NULL DEFAULT 0;

-- How many processes have begun to run it, the owner included.
ALTER TABLE intent ADD COLUMN attempts INTEGER NOT NULL DEFAULT 1;

-- Where trials come from: '' and 0 = not known.
CREATE TABLE source (
  id INTEGER PRIMARY KEY,
  tenant TEXT NOT NULL,
  token INTEGER NOT NULL,       -- token.id
  host TEXT NOT NULL,
  run TEXT NOT NULL,
  UNIQUE (tenant, token, host, run)
) STRICT;
ALTER TABLE trial ADD COLUMN source INTEGER REFERENCES source;

-- Finals that say something about their schedule.
DROP INDEX trial_served;
CREATE INDEX trial_final_point ON trial (workload, bench, point)
  WHERE final = 1 AND imported = 0 AND outcome <> 'WORKER_LOST';
CREATE INDEX trial_final_steps ON trial (workload, bench, steps)
  WHERE final = 1 AND imported = 0 AND outcome <> 'WORKER_LOST';

-- What `servable` has, so that the best of a workload is one seek.
CREATE TABLE served (
  workload INTEGER NOT NULL,
  bench INTEGER NOT NULL,
  time_us REAL NOT NULL,
  trial INTEGER NOT NULL REFERENCES trial,
  ci_low_us REAL NOT NULL,
  ci_high_us REAL NOT NULL,
  steps INTEGER NOT NULL,         -- how many
  confirmations INTEGER NOT NULL, -- tuner/records/records.h, Records::Best
  PRIMARY KEY (workload, bench, time_us, trial)
) STRICT, WITHOUT ROWID;
CREATE UNIQUE INDEX served_trial ON served (trial);

CREATE VIEW servable AS
SELECT t.workload, t.bench, t.time_us, t.id AS trial, t.ci_low_us, t.ci_high_us,
  length(s.text) - length(replace(s.text, char(10), '')) AS steps,
  (SELECT count(*) FROM (
    SELECT max(n.id), f.host, n.outcome = 'OK' AND n.screened_out = 0
           AND abs(n.time_us - t.time_us) <= 0.1 * t.time_us AS agrees
    FROM (SELECT id FROM trial
          WHERE final = 1 AND imported = 0 AND outcome <> 'WORKER_LOST'
          AND workload = t.workload AND bench = t.bench AND steps = t.steps
          ORDER BY id DESC LIMIT 64) newest
    JOIN trial n ON n.id = newest.id JOIN source f ON f.id = n.source
    WHERE f.host <> '' AND f.host IS NOT (SELECT host FROM source WHERE id = t.source)
    GROUP BY f.host) WHERE agrees) AS confirmations
FROM trial t JOIN steps s ON s.id = t.steps
WHERE t.final = 1 AND t.imported = 0 AND t.outcome = 'OK' AND t.screened_out = 0
  AND NOT EXISTS (SELECT 1 FROM trial n
    WHERE n.final = 1 AND n.imported = 0 AND n.outcome <> 'WORKER_LOST'
    AND n.workload = t.workload AND n.bench = t.bench
    AND n.point = t.point AND t.point <> '' AND n.id > t.id)
  AND NOT EXISTS (SELECT 1 FROM trial n
    WHERE n.final = 1 AND n.imported = 0 AND n.outcome <> 'WORKER_LOST'
    AND n.workload = t.workload AND n.bench = t.bench
    AND n.steps = t.steps AND n.id > t.id);

INSERT INTO served SELECT * FROM servable;

-- Only the newest of a point and of steps can be there, hence those are all that can change.
CREATE TRIGGER trial_added AFTER INSERT ON trial
WHEN NEW.final = 1 AND NEW.imported = 0 AND NEW.outcome <> 'WORKER_LOST'
BEGIN
  DELETE FROM served WHERE trial IN (
    (SELECT max(id) FROM trial WHERE final = 1 AND imported = 0 AND outcome <> 'WORKER_LOST'
     AND workload = NEW.workload AND bench = NEW.bench
     AND point = NEW.point AND NEW.point <> '' AND id < NEW.id),
    (SELECT max(id) FROM trial WHERE final = 1 AND imported = 0 AND outcome <> 'WORKER_LOST'
     AND workload = NEW.workload AND bench = NEW.bench
     AND steps = NEW.steps AND id < NEW.id));
  INSERT INTO served SELECT * FROM servable WHERE trial = NEW.id;
END;

CREATE TRIGGER trial_removed AFTER DELETE ON trial
WHEN OLD.final = 1 AND OLD.imported = 0
BEGIN
  DELETE FROM served WHERE trial = OLD.id;
  INSERT OR REPLACE INTO served SELECT * FROM servable WHERE trial IN (
    (SELECT max(id) FROM trial WHERE final = 1 AND imported = 0 AND outcome <> 'WORKER_LOST'
     AND workload = OLD.workload AND bench = OLD.bench
     AND point = OLD.point AND OLD.point <> ''),
    (SELECT max(id) FROM trial WHERE final = 1 AND imported = 0 AND outcome <> 'WORKER_LOST'
     AND workload = OLD.workload AND bench = OLD.bench AND steps = OLD.steps));
END;
)sql";

// The fleet: whose hosts are, what models are, what tenants have used.
constexpr char kVersion6[] = R"sql(
CREATE TABLE fleet_host (
  host TEXT PRIMARY KEY,
  token INTEGER NOT NULL,       -- token.id of the one that used it first; 0 = the server's socket
  trusted INTEGER NOT NULL,
  released INTEGER NOT NULL     -- the next token that registers it has it
) STRICT, WITHOUT ROWID;

CREATE TABLE fleet_model (
  name TEXT PRIMARY KEY,
  device TEXT NOT NULL          -- JSON, as an administrator has pinned it
) STRICT, WITHOUT ROWID;

-- Where finals of the fleet come from; those without were measured by the database's owner.
CREATE TABLE final_origin (
  trial INTEGER PRIMARY KEY REFERENCES trial ON DELETE CASCADE,
  host TEXT NOT NULL,
  token INTEGER NOT NULL,       -- token.id; 0 = the server's socket
  lease INTEGER NOT NULL,       -- what was measured together has the same
  is_default INTEGER NOT NULL   -- the default schedule
) STRICT;
CREATE INDEX final_origin_lease ON final_origin (lease);
-- Of those that there are it is not known any more who said it: nobody that is trusted.
INSERT INTO final_origin
  SELECT t.id, '', 0, 0, 0 FROM job_trial j JOIN trial t ON t.id = j.record WHERE t.final = 1;

CREATE TABLE tenant_use (
  tenant TEXT NOT NULL,
  day INTEGER NOT NULL,         -- since 1970, UTC
  device_s REAL NOT NULL,
  PRIMARY KEY (tenant, day)
) STRICT, WITHOUT ROWID;
)sql";

// What was collected from runs on nodes, and is not to be collected again when it has been removed.
constexpr char kVersion7[] = R"sql(
CREATE TABLE attempt (
  id INTEGER PRIMARY KEY,
  run TEXT NOT NULL,
  number INTEGER NOT NULL,
  UNIQUE (run, number)
) STRICT;
CREATE TABLE collected (
  attempt INTEGER NOT NULL REFERENCES attempt,
  sequence INTEGER NOT NULL,
  trial INTEGER REFERENCES trial ON DELETE SET NULL,
  PRIMARY KEY (attempt, sequence)
) STRICT, WITHOUT ROWID;
CREATE INDEX collected_trial ON collected (trial);
)sql";

// Tokens end and are bound to a host; what a job's searchers have cost survives the server; labels
// can be looked up. How many hosts agree on what is served is counted from final_origin where it is
// asked, and nowhere else.
constexpr char kVersion8[] = R"sql(
ALTER TABLE token ADD COLUMN expires_us INTEGER NOT NULL DEFAULT 0;   -- 0 = never
ALTER TABLE token ADD COLUMN host TEXT NOT NULL DEFAULT '';           -- '' = any
ALTER TABLE token ADD COLUMN last_used_us INTEGER NOT NULL DEFAULT 0; -- about; 0 = never

ALTER TABLE job ADD COLUMN restarts INTEGER NOT NULL DEFAULT 0; -- searchers lost in a row
CREATE INDEX job_state ON job (tenant, state, id);
CREATE INDEX job_ended ON job (end_us) WHERE end_us > 0;

CREATE TABLE job_label (
  job INTEGER NOT NULL REFERENCES job,
  key TEXT NOT NULL,
  value TEXT NOT NULL,
  PRIMARY KEY (job, key)
) STRICT, WITHOUT ROWID;
CREATE INDEX job_label_value ON job_label (key, value, job);
INSERT INTO job_label
  SELECT j.id, l.key, l.value FROM job j, json_each(iif(json_valid(j.spec), j.spec, '{}'), '$.labels') l
  WHERE l.type = 'text';

DROP VIEW servable;
CREATE VIEW servable AS
SELECT t.workload, t.bench, t.time_us, t.id AS trial, t.ci_low_us, t.ci_high_us,
  length(s.text) - length(replace(s.text, char(10), '')) AS steps
FROM trial t JOIN steps s ON s.id = t.steps
WHERE t.final = 1 AND t.imported = 0 AND t.outcome = 'OK' AND t.screened_out = 0
  AND NOT EXISTS (SELECT 1 FROM trial n
    WHERE n.final = 1 AND n.imported = 0 AND n.outcome <> 'WORKER_LOST'
    AND n.workload = t.workload AND n.bench = t.bench
    AND n.point = t.point AND t.point <> '' AND n.id > t.id)
  AND NOT EXISTS (SELECT 1 FROM trial n
    WHERE n.final = 1 AND n.imported = 0 AND n.outcome <> 'WORKER_LOST'
    AND n.workload = t.workload AND n.bench = t.bench
    AND n.steps = t.steps AND n.id > t.id);
ALTER TABLE served DROP COLUMN confirmations;
)sql";

// Runs that nodes append are their tokens' and certificates'.
constexpr char kVersion9[] = R"sql(
ALTER TABLE attempt ADD COLUMN token INTEGER NOT NULL DEFAULT 0;     -- token.id; 0 = nobody's
ALTER TABLE attempt ADD COLUMN certificate TEXT NOT NULL DEFAULT ''; -- the names in it
)sql";

// Devices are known by the names that they have in the API; they were HOST/DEVICE, neither of which
// has a slash in it.
constexpr char kVersion10[] = R"sql(
UPDATE fleet_device SET id = 'hosts/' || replace(id, '/', '/devices/');
UPDATE job_trial SET device = 'hosts/' || replace(device, '/', '/devices/') WHERE device <> '';
UPDATE late_trial SET device = 'hosts/' || replace(device, '/', '/devices/');
UPDATE job SET spec = json_set(spec, '$.device.device',
    'hosts/' || replace(json_extract(spec, '$.device.device'), '/', '/devices/'))
  WHERE json_extract(iif(json_valid(spec), spec, '{}'), '$.device.device') <> '';
)sql";

// What says something about a schedule: a final, unless its worker was lost, and a screening that
// found it to be wrong. A candidate that was given up for the workers it may have killed is
// recorded as an illegal access without a source, and says nothing.
constexpr char kVersion11[] = R"sql(
ALTER TABLE trial ADD COLUMN speaks INTEGER GENERATED ALWAYS AS (
  imported = 0 AND iif(final = 1, outcome <> 'WORKER_LOST', outcome = 'WRONG_ANSWER' OR
                       outcome = 'ILLEGAL_ACCESS' AND source_hash <> '')) VIRTUAL;
DROP INDEX trial_final_point;
DROP INDEX trial_final_steps;
CREATE INDEX trial_word_point ON trial (workload, bench, point) WHERE speaks = 1;
CREATE INDEX trial_word_steps ON trial (workload, bench, steps) WHERE speaks = 1;

DROP VIEW servable;
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

DROP TRIGGER trial_added;
CREATE TRIGGER trial_added AFTER INSERT ON trial WHEN NEW.speaks = 1
BEGIN
  DELETE FROM served WHERE trial IN (
    (SELECT max(id) FROM trial WHERE speaks = 1 AND workload = NEW.workload AND bench = NEW.bench
     AND point = NEW.point AND NEW.point <> '' AND id < NEW.id),
    (SELECT max(id) FROM trial WHERE speaks = 1 AND workload = NEW.workload AND bench = NEW.bench
     AND steps = NEW.steps AND id < NEW.id));
  INSERT INTO served SELECT * FROM servable WHERE trial = NEW.id;
END;

DROP TRIGGER trial_removed;
CREATE TRIGGER trial_removed AFTER DELETE ON trial WHEN OLD.speaks = 1
BEGIN
  DELETE FROM served WHERE trial = OLD.id;
  INSERT OR REPLACE INTO served SELECT * FROM servable WHERE trial IN (
    (SELECT max(id) FROM trial WHERE speaks = 1 AND workload = OLD.workload AND bench = OLD.bench
     AND point = OLD.point AND OLD.point <> ''),
    (SELECT max(id) FROM trial WHERE speaks = 1 AND workload = OLD.workload AND bench = OLD.bench
     AND steps = OLD.steps));
END;

DELETE FROM served;
INSERT INTO served SELECT * FROM servable;
)sql";

}  // namespace

const std::vector<std::string>& Migrations() {
  static const auto& migrations = *new std::vector<std::string>{
      kVersion1, kVersion2, kVersion3, kVersion4,  kVersion5, kVersion6,
      kVersion7, kVersion8, kVersion9, kVersion10, kVersion11};
  return migrations;
}

}  // namespace heddle::tuner
