#include "tuner/records/records_lessons.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>

#include "base/sqlite.h"
#include "base/status.h"
#include "tuner/records/shape_distance.h"

namespace heddle::tuner {
namespace {

// A workload teaches at least so many trials, if it has them: fewer say little about each other.
constexpr int64_t kLeastShare = 64;
// The newest of a workload's trials among which those that teach are spread: some sessions.
constexpr int64_t kSpreadOver = 2048;
// The newest workloads that are thought of, and the newest trials that are counted.
constexpr int64_t kWorkloads = 20000, kCounted = 20000;

struct Teacher {
  int64_t workload = 0, bench = 0;
  double distance = 0;
};

std::map<std::string, int64_t> ShapeOf(const std::string& text) {
  std::map<std::string, int64_t> shape;
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (!json.is_object()) return shape;  // damaged
  for (const auto& item : json.items()) {
    if (item.value().is_number_integer()) shape[item.key()] = item.value();
  }
  return shape;
}

// The workloads that have trials on the bench, newest first.
absl::Status AddTeachers(Database& database, int64_t bench,
                         const search_space::TensorProgram& tuned, std::vector<Teacher>& teachers) {
  Cursor rows = database.Query(
      "SELECT w.id, w.op, w.shape FROM workload w WHERE EXISTS "
      "(SELECT 1 FROM trial t WHERE t.workload = w.id AND t.bench = ?) ORDER BY w.id DESC LIMIT ?",
      bench, kWorkloads);
  return rows.ForEachRow([&] {
    const double distance =
        rows.Text(1) == tuned.op ? Distance(tuned.shape, ShapeOf(rows.Text(2))) : INFINITY;
    teachers.push_back({rows.Int(0), bench, distance});
  });
}

// The nearest and the newest take turns: the model is kept, and serves other workloads too.
std::vector<Teacher> InTurns(const std::vector<Teacher>& newest_first) {
  std::vector<size_t> nearest(newest_first.size());
  for (size_t i = 0; i < nearest.size(); ++i) nearest[i] = i;
  std::stable_sort(nearest.begin(), nearest.end(), [&](size_t a, size_t b) {
    return newest_first[a].distance < newest_first[b].distance;
  });
  std::vector<Teacher> order;
  std::vector<bool> taken(newest_first.size());
  const auto take = [&](size_t i) {
    if (!taken[i]) order.push_back(newest_first[i]);
    taken[i] = true;
  };
  for (size_t i = 0; i < nearest.size(); ++i) {
    take(nearest[i]);
    take(i);
  }
  return order;
}

// `share` of the workload's newest screening trials, evenly spread, oldest first.
absl::Status AddSpread(Database& database, const Teacher& teacher, int64_t share,
                       std::vector<int64_t>& lessons) {
  HEDDLE_ASSIGN_OR_RETURN(
      ids,
      database.QueryInts(
          "SELECT id FROM trial WHERE workload = ? AND bench = ? ORDER BY when_us DESC, id DESC "
          "LIMIT ?",
          teacher.workload, teacher.bench, std::max(share, kSpreadOver)));
  std::reverse(ids.begin(), ids.end());
  const auto count = static_cast<int64_t>(ids.size());
  const int64_t taken = std::min(share, count);
  for (int64_t i = 0; i < taken; ++i) {
    // The first and the last are among them.
    const int64_t at = taken == 1 ? count - 1 : i * (count - 1) / (taken - 1);
    const int64_t id = ids[static_cast<size_t>(at)];
    HEDDLE_ASSIGN_OR_RETURN(is_final,
                            database.QueryInt("SELECT final FROM trial WHERE id = ?", id));
    if (is_final == 0) lessons.push_back(id);
  }
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<std::vector<int64_t>> ChooseLessons(Database& database,
                                                   absl::Span<const int64_t> benches,
                                                   const search_space::TensorProgram& tuned,
                                                   int64_t limit) {
  std::vector<Teacher> teachers;
  for (int64_t bench : benches) {
    HEDDLE_RETURN_IF_ERROR(AddTeachers(database, bench, tuned, teachers));
  }
  std::vector<int64_t> lessons;
  auto left = static_cast<int64_t>(teachers.size());
  for (const Teacher& teacher : InTurns(teachers)) {
    const int64_t room = limit - static_cast<int64_t>(lessons.size());
    if (room <= 0) break;
    // What the ones before did not use is the others'.
    const int64_t share = std::min(room, std::max(kLeastShare, room / left--));
    HEDDLE_RETURN_IF_ERROR(AddSpread(database, teacher, share, lessons));
  }
  return lessons;
}

absl::StatusOr<LessonCount> CountLessons(Database& database, absl::Span<const int64_t> benches,
                                         int64_t after) {
  LessonCount count;
  Cursor rows = database.Query(
      "SELECT bench, count(*), sum(id > ?), max(id) FROM "
      "(SELECT id, bench FROM trial ORDER BY id DESC LIMIT ?) GROUP BY bench",
      after, kCounted);
  HEDDLE_RETURN_IF_ERROR(rows.ForEachRow([&] {
    count.newest = std::max(count.newest, rows.Int(3));
    if (std::find(benches.begin(), benches.end(), rows.Int(0)) == benches.end()) return;
    count.trials += rows.Int(1);
    count.newer += rows.Int(2);
  }));
  return count;
}

}  // namespace heddle::tuner
