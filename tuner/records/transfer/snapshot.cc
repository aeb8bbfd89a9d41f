#include "tuner/records/transfer/snapshot.h"

#include <algorithm>
#include <cstdio>
#include <map>
#include <optional>
#include <set>
#include <utility>
#include <vector>

#include "base/sqlite.h"
#include "base/status.h"
#include "tuner/records/records_keys.h"
#include "tuner/records/shape_distance.h"

namespace heddle::tuner {
namespace {

using Program = std::shared_ptr<const search_space::TensorProgram>;

// One environment of each bench: all that is looked up by here is what times compare on.
absl::StatusOr<std::vector<Environment>> Benches(Records& records, measure::L2Policy l2) {
  std::vector<Environment> benches;
  Cursor rows = records.database().Query(
      "SELECT device_name, sm_count, memory_mib, power_limit_w FROM bench WHERE l2 = ? ORDER BY id",
      std::string(measure::NameOf(l2)));
  HEDDLE_RETURN_IF_ERROR(rows.ForEachRow([&] {
    Environment bench;
    bench.device_name = rows.Text(0);
    bench.sm_count = rows.Int(1);
    bench.memory_mib = rows.Int(2);
    bench.power_limit_w = rows.Int(3);
    bench.l2 = l2;
    benches.push_back(std::move(bench));
  }));
  return benches;
}

// Workloads whose best is worth knowing: these and the nearest of their operators.
absl::StatusOr<std::set<std::string>> HashesNear(Records& records,
                                                 absl::Span<const Program> workloads,
                                                 const Bench& bench) {
  std::set<std::string> hashes;
  std::map<std::string, std::vector<Records::Neighbour>> by_op;
  for (const Program& program : workloads) {
    auto [found, first] = by_op.try_emplace(program->op);
    std::vector<Records::Neighbour>& neighbours = found->second;
    if (first) {
      HEDDLE_ASSIGN_OR_RETURN(known, records.Neighbours(program->op, bench));
      neighbours = std::move(known);
    }
    const size_t count = std::min(Records::kNeighbours, neighbours.size());
    std::partial_sort(neighbours.begin(), neighbours.begin() + static_cast<std::ptrdiff_t>(count),
                      neighbours.end(), [&](const auto& a, const auto& b) {
                        return Distance(program->shape, a.shape) <
                               Distance(program->shape, b.shape);
                      });
    hashes.insert(program->hash);
    for (size_t i = 0; i < count; ++i) hashes.insert(neighbours[i].workload_hash);
  }
  return hashes;
}

// Ids of what is to be copied, so that what is the newest there is the newest here.
absl::StatusOr<std::set<int64_t>> Choose(Records& records, absl::Span<const Program> workloads,
                                         const Environment& environment) {
  std::set<int64_t> ids;
  HEDDLE_ASSIGN_OR_RETURN(hashes, HashesNear(records, workloads, BenchOf(environment)));
  for (const std::string& hash : hashes) {
    HEDDLE_ASSIGN_OR_RETURN(best, records.FindBest(hash, BenchOf(environment)));
    if (best.has_value()) ids.insert(best->trial.id);
  }
  std::map<std::string, Program> ops;
  for (const Program& program : workloads) ops.emplace(program->op, program);
  for (const auto& [op, program] : ops) {
    const int64_t share = Records::kLessons / static_cast<int64_t>(ops.size());
    HEDDLE_ASSIGN_OR_RETURN(lessons, records.Lessons(environment, *program, share));
    for (const Records::Lesson& lesson : lessons) ids.insert(lesson.trial.id);
  }
  return ids;
}

absl::Status Fill(Records& records, const std::vector<Environment>& benches,
                  const std::set<int64_t>& ids, Records& snapshot) {
  auto id = ids.begin();
  HEDDLE_RETURN_IF_ERROR(
      AddAsMeasured(snapshot, [&]() -> absl::StatusOr<std::optional<StoredTrial>> {
        while (id != ids.end()) {
          int64_t before = *id - 1;
          HEDDLE_ASSIGN_OR_RETURN(page, records.ReadPage(before, 1));
          const int64_t wanted = *id++;
          // Else it is damaged, or was removed meanwhile.
          if (!page.empty() && page[0].trial.id == wanted) return std::move(page[0]);
        }
        return std::nullopt;
      }));
  HEDDLE_ASSIGN_OR_RETURN(newest,
                          snapshot.database().QueryInt("SELECT coalesce(max(id), 0) FROM trial"));
  for (const Environment& bench : benches) {
    HEDDLE_ASSIGN_OR_RETURN(model, records.LoadModel(bench));
    // It may know less than all that is here, and more than that.
    if (model.has_value()) {
      HEDDLE_RETURN_IF_ERROR(snapshot.SaveModel(bench, {model->bytes, newest}));
    }
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status AddAsMeasured(
    Records& records, const std::function<absl::StatusOr<std::optional<StoredTrial>>()>& next) {
  return records.Batch([&]() -> absl::Status {
    RecordKeys keys(records.database());
    for (;;) {
      HEDDLE_ASSIGN_OR_RETURN(stored, next());
      if (!stored.has_value()) return absl::OkStatus();
      HEDDLE_ASSIGN_OR_RETURN(found, keys.FindOrAdd(*stored));
      HEDDLE_ASSIGN_OR_RETURN(added, keys.Insert(*stored, found));
      static_cast<void>(added);
    }
  });
}

absl::StatusOr<SnapshotReport> WriteSnapshot(Records& records, absl::Span<const Program> workloads,
                                             measure::L2Policy l2, const std::string& path) {
  HEDDLE_ASSIGN_OR_RETURN(benches, Benches(records, l2));
  std::set<int64_t> ids;
  for (const Environment& bench : benches) {
    HEDDLE_ASSIGN_OR_RETURN(chosen, Choose(records, workloads, bench));
    ids.merge(chosen);
  }
  if (ids.empty()) return SnapshotReport();
  const std::string partial = path + ".partial";
  std::remove(partial.c_str());
  HEDDLE_ASSIGN_OR_RETURN(snapshot, Records::Open(partial));
  HEDDLE_RETURN_IF_ERROR(Fill(records, benches, ids, *snapshot));
  HEDDLE_ASSIGN_OR_RETURN(report, ReadSnapshot(*snapshot));
  // One file, without a log beside it.
  HEDDLE_RETURN_IF_ERROR(snapshot->Backup(path));
  snapshot.reset();
  std::remove(partial.c_str());
  return report;
}

absl::StatusOr<SnapshotReport> ReadSnapshot(Records& snapshot) {
  SnapshotReport report;
  Cursor row = snapshot.database().Query(
      "SELECT (SELECT count(*) FROM trial), (SELECT count(*) FROM workload), "
      "(SELECT count(*) FROM model)");
  HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
  if (found) report = {row.Int(0), row.Int(1), row.Int(2)};
  return report;
}

}  // namespace heddle::tuner
