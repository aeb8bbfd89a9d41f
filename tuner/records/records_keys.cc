#include "tuner/records/records_keys.h"

#include <algorithm>

#include "base/status.h"
#include "tuner/records/records_sql.h"

namespace heddle::tuner {

template <typename... Args>
absl::StatusOr<int64_t> RecordKeys::OrInsert(absl::StatusOr<int64_t> found, const std::string& sql,
                                             const Args&... args) {
  if (!absl::IsNotFound(found.status())) return found;
  HEDDLE_RETURN_IF_ERROR(db_.Run(sql, args...));
  return db_.last_insert_id();
}

absl::StatusOr<int64_t> RecordKeys::FindWorkload(const WorkloadRow& row) {
  return db_.QueryInt(SelectWorkload(), row.hash, row.text, row.op, row.shape, row.dtype);
}

absl::StatusOr<int64_t> RecordKeys::FindOrAddWorkload(const WorkloadRow& row) {
  return OrInsert(FindWorkload(row),
                  "INSERT INTO workload (hash, op, shape, dtype, text) VALUES (?, ?, ?, ?, ?)",
                  row.hash, row.op, row.shape, row.dtype, row.text);
}

absl::StatusOr<std::vector<int64_t>> RecordKeys::Workloads(const std::string& hash) {
  return db_.QueryInts("SELECT id FROM workload WHERE hash = ?", hash);
}

absl::StatusOr<int64_t> RecordKeys::FindBench(const Bench& b) {
  const std::string l2 = NameOf(b.l2);
  const auto same =
      db_.QueryInt(SelectBench(), b.device_name, l2, b.sm_count, b.memory_mib, b.power_limit_w);
  if (!absl::IsNotFound(same.status()) || b.memory_mib == 0) return same;
  return db_.QueryInt(SelectNearBench(), b.device_name, l2, b.sm_count, b.memory_mib,
                      b.power_limit_w);
}

absl::StatusOr<int64_t> RecordKeys::FindOrAddBench(const Bench& b) {
  return OrInsert(FindBench(b),
                  "INSERT INTO bench (device_name, l2, sm_count, memory_mib, power_limit_w) "
                  "VALUES (?, ?, ?, ?, ?)",
                  b.device_name, std::string(NameOf(b.l2)), b.sm_count, b.memory_mib,
                  b.power_limit_w);
}

absl::StatusOr<std::vector<int64_t>> RecordKeys::Benches(const Bench& b, bool* is_only) {
  std::vector<int64_t> ids;
  int of_name = 0;
  Cursor rows = db_.Query(SelectBenches(), b.device_name, std::string(NameOf(b.l2)), b.sm_count,
                          b.memory_mib, b.power_limit_w);
  HEDDLE_RETURN_IF_ERROR(rows.ForEachRow([&] {
    ++of_name;
    if (rows.Int(1) != 0) ids.push_back(rows.Int(0));
  }));
  if (is_only != nullptr) *is_only = of_name <= 1;
  std::sort(ids.begin(), ids.end());  // SQLite takes as long to sort them as to find them
  return ids;
}

absl::StatusOr<int64_t> RecordKeys::FindOrAddSteps(const std::string& text) {
  const auto hash = static_cast<int64_t>(HashOf(text));
  return OrInsert(db_.QueryInt("SELECT id FROM steps WHERE hash = ? AND text = ?", hash, text),
                  "INSERT INTO steps (hash, text) VALUES (?, ?)", hash, text);
}

absl::StatusOr<int64_t> RecordKeys::FindOrAddEnvironment(const Environment& environment) {
  {
    Cursor row = db_.Query(SelectEnvironment());
    VisitEnvironment(environment, Binder{row});
    VisitLaterEnvironment(environment, Binder{row});
    HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
    if (found) return row.Int(0);
  }
  Cursor insert = db_.Query(InsertEnvironment());
  VisitEnvironment(environment, Binder{insert});
  VisitLaterEnvironment(environment, Binder{insert});
  HEDDLE_RETURN_IF_ERROR(insert.Next());
  return db_.last_insert_id();
}

absl::StatusOr<int64_t> RecordKeys::FindOrAddSource(const Provenance& from) {
  return OrInsert(
      db_.QueryInt("SELECT id FROM source WHERE tenant = ? AND token = ? AND host = ? AND run = ?",
                   from.tenant, from.token, from.host, from.run),
      "INSERT INTO source (tenant, token, host, run) VALUES (?, ?, ?, ?)", from.tenant, from.token,
      from.host, from.run);
}

absl::StatusOr<TrialKeys> RecordKeys::FindOrAdd(const StoredTrial& stored) {
  HEDDLE_ASSIGN_OR_RETURN(workload, FindOrAddWorkload(stored.workload));
  HEDDLE_ASSIGN_OR_RETURN(bench, FindOrAddBench(BenchOf(stored.environment)));
  HEDDLE_ASSIGN_OR_RETURN(environment, FindOrAddEnvironment(stored.environment));
  TrialKeys keys{workload, bench, environment, std::nullopt, std::nullopt};
  if (!stored.trial.steps.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(steps, FindOrAddSteps(stored.trial.steps));
    keys.steps = steps;
  }
  if (!(stored.trial.from == Provenance{})) {
    HEDDLE_ASSIGN_OR_RETURN(source, FindOrAddSource(stored.trial.from));
    keys.source = source;
  }
  return keys;
}

absl::StatusOr<std::optional<RecordKeys::Same>> RecordKeys::FindSame(const StoredTrial& stored,
                                                                     const TrialKeys& keys) {
  const TrialRecord& trial = stored.trial;
  Cursor row = db_.Query(SelectSame(), keys.workload, keys.bench, absl::ToUnixMicros(trial.when),
                         keys.environment, int{trial.stage == TrialStage::kFinal},
                         trial.result.time_us, trial.point);
  keys.steps ? row.Bind(*keys.steps) : row.BindNull();
  HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
  if (!found) return std::nullopt;
  return Same{row.Int(0), row.Int(1) != 0};
}

absl::StatusOr<int64_t> RecordKeys::Insert(const StoredTrial& stored, const TrialKeys& keys) {
  Cursor insert = db_.Query(InsertTrial(), keys.workload, keys.bench, keys.environment);
  keys.steps ? insert.Bind(*keys.steps) : insert.BindNull();
  keys.source ? insert.Bind(*keys.source) : insert.BindNull();
  insert.Bind(ChecksumOf(stored));
  VisitTrial(stored.trial, Binder{insert});
  HEDDLE_RETURN_IF_ERROR(insert.Next());
  return db_.last_insert_id();
}

}  // namespace heddle::tuner
