#include "tuner/records/records_sql.h"

#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/substitute.h"

namespace heddle::tuner {
namespace {

struct Names {
  std::vector<std::string> names;
  template <typename T>
  void operator()(const char* name, const T&) {
    names.push_back(name);
  }
};

const std::vector<std::string>& TrialColumns() {
  static const auto& columns = *new std::vector<std::string>([] {
    Names names;
    const TrialRecord trial;
    VisitTrial(trial, names);
    return names.names;
  }());
  return columns;
}

const std::vector<std::string>& EnvironmentColumns() {
  static const auto& columns = *new std::vector<std::string>([] {
    Names names;
    const Environment environment;
    VisitEnvironment(environment, names);
    VisitLaterEnvironment(environment, names);
    return names.names;
  }());
  return columns;
}

std::string Marks(size_t count) {
  return absl::StrJoin(std::vector<std::string>(count, "?"), ", ");
}

// A cross join keeps SQLite from beginning with another table than trial.
std::string SelectTrials(const std::string& rest) {
  Names workload;
  const WorkloadRow row;
  VisitWorkload(row, workload);
  return absl::StrCat("SELECT t.id, t.checksum, t.", absl::StrJoin(TrialColumns(), ", t."), ", w.",
                      absl::StrJoin(workload.names, ", w."), ", e.",
                      absl::StrJoin(EnvironmentColumns(), ", e."),
                      ", s.text, f.tenant, f.token, f.host, f.run FROM trial t "
                      "CROSS JOIN workload w ON w.id = t.workload "
                      "CROSS JOIN environment e ON e.id = t.environment "
                      "LEFT JOIN steps s ON s.id = t.steps "
                      "LEFT JOIN source f ON f.id = t.source WHERE ",
                      rest);
}

}  // namespace

const std::string& InsertTrial() {
  static const auto& sql = *new std::string(absl::StrCat(
      "INSERT INTO trial (workload, bench, environment, steps, source, checksum, ",
      absl::StrJoin(TrialColumns(), ", "), ") VALUES (", Marks(TrialColumns().size() + 6), ")"));
  return sql;
}

const std::string& InsertEnvironment() {
  static const auto& sql = *new std::string(
      absl::StrCat("INSERT INTO environment (", absl::StrJoin(EnvironmentColumns(), ", "),
                   ") VALUES (", Marks(EnvironmentColumns().size()), ")"));
  return sql;
}

const std::string& SelectWorkload() {
  // Left to itself SQLite may look through all workloads of the operator.
  static const auto& sql = *new std::string(
      "SELECT id FROM workload INDEXED BY workload_hash WHERE hash = ? AND text = ? AND op = ? AND "
      "shape = ? AND dtype = ?");
  return sql;
}

const std::string& SelectEnvironment() {
  static const auto& sql =
      *new std::string(absl::StrCat("SELECT id FROM environment WHERE ",
                                    absl::StrJoin(EnvironmentColumns(), " = ? AND "), " = ?"));
  return sql;
}

const std::string& SelectBench() {
  static const auto& sql = *new std::string(
      "SELECT id FROM bench WHERE device_name = ? AND l2 = ? AND sm_count = ? AND memory_mib = ? "
      "AND power_limit_w = ?");
  return sql;
}

const std::string& SelectNearBench() {
  static const auto& sql = *new std::string(
      "SELECT id FROM bench WHERE device_name = ?1 AND l2 = ?2 AND sm_count = ?3 "
      "AND memory_mib > 0 AND abs(memory_mib - ?4) * 10 <= ?4 AND power_limit_w = ?5 "
      "ORDER BY id LIMIT 1");
  return sql;
}

const std::string& SelectBenches() {
  static const auto& sql = *new std::string(
      "SELECT id, (sm_count = ?3 OR sm_count = 0 OR ?3 = 0) AND (memory_mib = 0 OR ?4 = 0 OR "
      "abs(memory_mib - ?4) * 10 <= ?4) AND (power_limit_w = ?5 OR power_limit_w = 0 OR ?5 = 0) "
      "AND l2 = ?2 FROM bench WHERE device_name = ?1");
  return sql;
}

const std::string& TrialFields() {
  static const auto& fields =
      *new std::string(absl::StrCat("t.", absl::StrJoin(TrialColumns(), ", t.")));
  return fields;
}

const std::string& SelectServed() {
  static const auto& sql = *new std::string(
      "SELECT trial, time_us, ci_low_us, ci_high_us, steps FROM served WHERE workload = ? AND "
      "bench = ? ORDER BY time_us, trial LIMIT ? OFFSET ?");
  return sql;
}

const std::string& SelectLaterElsewhere() {
  static const auto& sql = *new std::string([] {
    // The last word on the schedule on another bench, by what trials of one schedule share. Left to
    // itself SQLite may look through all words that are newer.
    const auto later = [](const char* key, const char* also) {
      return absl::Substitute(
          "EXISTS (SELECT 1 FROM trial t CROSS JOIN bench a ON a.id = t.bench "
          "CROSS JOIN bench b ON b.device_name = a.device_name AND b.id <> a.id "
          "AND (b.sm_count = a.sm_count OR b.sm_count = 0 OR a.sm_count = 0) "
          "CROSS JOIN trial n INDEXED BY trial_word_$0 "
          "ON n.workload = t.workload AND n.bench = b.id AND n.$0 = t.$0 "
          "WHERE t.id = ?1$1 AND n.speaks = 1 AND n.id > t.id AND (n.outcome IN ('WRONG_ANSWER', "
          "'ILLEGAL_ACCESS') OR "
          "(b.l2 = a.l2 AND (?2 = 0 OR n.outcome <> 'OK') AND "
          "(b.memory_mib = 0 OR a.memory_mib = 0 OR "
          "abs(b.memory_mib - a.memory_mib) * 10 <= a.memory_mib) AND "
          "(b.power_limit_w = a.power_limit_w OR b.power_limit_w = 0 OR a.power_limit_w = 0))) "
          "AND NOT EXISTS (SELECT 1 FROM trial m INDEXED BY trial_word_$0 "
          "WHERE m.speaks = 1 AND m.workload = n.workload AND m.bench = n.bench "
          "AND m.$0 = n.$0 AND m.id > n.id))",
          key, also);
    };
    return absl::StrCat("SELECT ", later("steps", ""), " OR ",
                        later("point", " AND t.point <> ''"));
  }());
  return sql;
}

const std::string& SelectHistory() {
  static const auto& sql = *new std::string(
      SelectTrials("t.workload = ? AND t.bench = ? AND t.imported = 0 ORDER BY t.when_us, t.id"));
  return sql;
}

const std::string& SelectImported() {
  static const auto& sql = *new std::string(SelectTrials(
      "t.workload = ? AND t.bench = ? AND t.imported = 1 AND t.outcome = 'OK' AND t.point <> '' "
      "ORDER BY t.time_us, t.id LIMIT ?"));
  return sql;
}

const std::string& SelectPage() {
  static const auto& sql = *new std::string(SelectTrials("t.id > ? ORDER BY t.id LIMIT ?"));
  return sql;
}

const std::string& SelectChosen() {
  static const auto& sql = *new std::string(SelectTrials(
      "t.id > ?1 AND t.id <= ?2 "
      "AND (?3 = '' OR t.workload IN (SELECT id FROM workload WHERE op = ?3)) "
      "AND (?4 = '' OR t.environment IN (SELECT id FROM environment WHERE device_name = ?4)) "
      "AND (?5 = '' OR t.source IN (SELECT id FROM source WHERE tenant = ?5)) "
      "AND t.final >= ?6 ORDER BY t.id LIMIT ?7"));
  return sql;
}

const std::string& SelectOne() {
  static const auto& sql = *new std::string(SelectTrials("t.id = ?"));
  return sql;
}

const std::string& SelectSame() {
  static const auto& sql = *new std::string(
      "SELECT id, imported FROM trial WHERE workload = ? AND bench = ? AND when_us = ? AND "
      "environment = ? AND final = ? AND time_us = ? AND point = ? AND steps IS ?");
  return sql;
}

const std::string& SelectNeighbours() {
  static const auto& sql = *new std::string(
      "SELECT w.hash, w.shape, w.dtype FROM workload w WHERE w.op = ? AND EXISTS (SELECT 1 FROM "
      "served v WHERE v.workload = w.id AND v.bench = ?) ORDER BY w.id");
  return sql;
}

}  // namespace heddle::tuner
