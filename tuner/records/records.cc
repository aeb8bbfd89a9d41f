#include "tuner/records/records.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <algorithm>
#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "measure/judge/timing.h"
#include "proto/values.h"
#include "tuner/records/database/records_file.h"
#include "tuner/records/database/records_open.h"
#include "tuner/records/database/records_schema.h"
#include "tuner/records/plausible.h"
#include "tuner/records/records_fields.h"
#include "tuner/records/records_keys.h"
#include "tuner/records/records_lessons.h"
#include "tuner/records/records_sql.h"

namespace heddle::tuner {
namespace {

using search_space::TensorProgram;

constexpr int kImportBatch = 512;  // lines a transaction
constexpr int kExportPage = 4096;  // rows a read: a long one would let the log grow
constexpr int kTies = 16;          // of the fastest, looked at for the winner among them
constexpr int kAttempts = 2;       // processes that may end with a candidate

WorkloadRow RowOf(const TensorProgram& program) {
  return {program.hash, program.op, nlohmann::json(program.shape).dump(), NameOf(program.dtype),
          program.canonical_text};
}

// What is stored of a trial of ours: no more text than needed, and nothing that would come back
// different from what went in.
TrialRecord Normalise(TrialRecord trial) {
  trial.origin = Origin::kMeasured;
  // The point gives the steps; by these others know what is wrong.
  if (trial.stage == TrialStage::kScreening && !trial.point.empty() && !ShowsWrong(trial.result)) {
    trial.steps.clear();
  }
  if (trial.result.detail.size() > kDetailBytes) trial.result.detail.resize(kDetailBytes);
  if (std::isnan(trial.result.max_error)) {
    trial.result.max_error = std::numeric_limits<double>::infinity();
  }
  if (trial.when == absl::UnixEpoch()) trial.when = absl::Now();
  trial.when = absl::FromUnixMicros(absl::ToUnixMicros(trial.when));
  return trial;
}

class SqliteRecords final : public Records {
 public:
  SqliteRecords(Database database, bool read_only, std::string damage)
      : db_(std::move(database)), keys_(db_), read_only_(read_only), damage_(std::move(damage)) {}

  absl::StatusOr<int64_t> AddTrial(const TensorProgram& program, const Environment& environment,
                                   const TrialRecord& trial) override {
    HEDDLE_RETURN_IF_ERROR(CheckTrial(trial));
    const StoredTrial stored{RowOf(program), environment, Normalise(trial)};
    absl::StatusOr<int64_t> id;
    HEDDLE_RETURN_IF_ERROR(Write([&]() -> absl::Status {
      HEDDLE_ASSIGN_OR_RETURN(keys, keys_.FindOrAdd(stored));
      id = keys_.Insert(stored, keys);
      return id.status();
    }));
    return id;
  }

  absl::Status AddIntent(const TensorProgram& program, const Environment& environment,
                         const std::string& point) override {
    const WorkloadRow row = RowOf(program);
    return Write([&]() -> absl::Status {
      HEDDLE_ASSIGN_OR_RETURN(workload, keys_.FindOrAddWorkload(row));
      HEDDLE_ASSIGN_OR_RETURN(bench, keys_.FindOrAddBench(BenchOf(environment)));
      return db_.Run(
          "INSERT INTO intent (workload, bench, point, owner) VALUES (?, ?, ?, ?) ON CONFLICT DO "
          "UPDATE SET attempts = attempts + (owner <> excluded.owner), owner = excluded.owner",
          workload, bench, point, Owner());
    });
  }

  absl::Status ClearIntent(const TensorProgram& program, const Environment& environment,
                           const std::string& point) override {
    const WorkloadRow row = RowOf(program);
    return Write([&] {
      return InEachBench(row, BenchOf(environment), [&](int64_t workload, int64_t bench) {
        return db_.Run("DELETE FROM intent WHERE workload = ? AND bench = ? AND point = ?",
                       workload, bench, point);
      });
    });
  }

  absl::StatusOr<std::vector<std::string>> StaleIntents(const TensorProgram& program,
                                                        const Environment& environment) override {
    std::vector<std::string> points;
    absl::flat_hash_map<std::string, bool> running;
    HEDDLE_RETURN_IF_ERROR(InEachBench(
        RowOf(program), BenchOf(environment), [&](int64_t workload, int64_t bench) -> absl::Status {
          Cursor rows = db_.Query(
              "SELECT point, owner FROM intent WHERE workload = ? AND bench = ? AND attempts >= ?",
              workload, bench, kAttempts);
          return rows.ForEachRow([&] {
            const std::string owner = rows.Text(1);
            if (!running.contains(owner)) running[owner] = IsRunning(owner);
            if (!running[owner]) points.push_back(rows.Text(0));
          });
        }));
    return points;
  }

  absl::StatusOr<std::vector<TrialRecord>> Trials(const TensorProgram& program,
                                                  const Environment& environment) override {
    std::vector<TrialRecord> trials;
    int benches = 0;
    HEDDLE_RETURN_IF_ERROR(InEachBench(RowOf(program), BenchOf(environment),
                                       [&](int64_t workload, int64_t bench) -> absl::Status {
                                         ++benches;
                                         Cursor rows = db_.Query(SelectHistory(), workload, bench);
                                         return rows.ForEachRow([&] {
                                           std::optional<StoredTrial> stored = ReadTrial(rows);
                                           if (stored) trials.push_back(std::move(stored->trial));
                                         });
                                       }));
    if (benches > 1) {
      std::stable_sort(trials.begin(), trials.end(), [](const auto& a, const auto& b) {
        return std::pair(a.when, a.id) < std::pair(b.when, b.id);
      });
    }
    return trials;
  }

  absl::StatusOr<std::vector<std::string>> ImportedPoints(const TensorProgram& program,
                                                          const Environment& environment,
                                                          int count) override {
    std::vector<std::pair<double, std::string>> fastest;
    HEDDLE_RETURN_IF_ERROR(InEachBench(
        RowOf(program), BenchOf(environment), [&](int64_t workload, int64_t bench) -> absl::Status {
          Cursor rows = db_.Query(SelectImported(), workload, bench, count);
          return rows.ForEachRow([&] {
            std::optional<StoredTrial> stored = ReadTrial(rows);
            if (stored) fastest.emplace_back(stored->trial.result.time_us, stored->trial.point);
          });
        }));
    std::sort(fastest.begin(), fastest.end());
    std::vector<std::string> points;
    for (auto& [time_us, point] : fastest) {
      if (static_cast<int>(points.size()) < count) points.push_back(std::move(point));
    }
    return points;
  }

  absl::StatusOr<std::optional<Best>> FindBest(const std::string& workload_hash,
                                               const Bench& bench) override {
    std::optional<Best> best;
    HEDDLE_ASSIGN_OR_RETURN(workloads, keys_.Workloads(workload_hash));
    if (workloads.empty()) return best;
    bool is_only = false;
    HEDDLE_ASSIGN_OR_RETURN(benches, keys_.Benches(bench, &is_only));
    // Once, unless all that was looked at is damaged.
    for (int after = 0;; after += kTies) {
      std::vector<Served> served;
      for (int64_t workload : workloads) {
        for (int64_t id : benches) {
          HEDDLE_RETURN_IF_ERROR(ReadServed(workload, id, kTies, after, served));
        }
      }
      if (served.empty()) return best;
      for (int winner; !best && (winner = WinnerOf(served)) >= 0;) {
        // Within a bench `served` has the last word already.
        bool superseded = false;
        if (!is_only) {
          HEDDLE_ASSIGN_OR_RETURN(elsewhere, IsSuperseded(served[winner].trial, false));
          superseded = elsewhere;
        }
        if (!superseded) HEDDLE_RETURN_IF_ERROR(ReadBest(served[winner], best));
        served.erase(served.begin() + winner);
      }
      if (best) return best;
    }
  }

  absl::StatusOr<bool> IsSuperseded(int64_t trial, bool by_failures) override {
    HEDDLE_ASSIGN_OR_RETURN(found, db_.QueryInt(SelectLaterElsewhere(), trial, int{by_failures}));
    return found != 0;
  }

  absl::StatusOr<std::vector<int64_t>> FastestServed(const std::string& workload_hash,
                                                     const Bench& bench, int count) override {
    HEDDLE_ASSIGN_OR_RETURN(workloads, keys_.Workloads(workload_hash));
    HEDDLE_ASSIGN_OR_RETURN(benches, keys_.Benches(bench));
    std::vector<Served> served;
    for (int64_t workload : workloads) {
      for (int64_t id : benches) {
        HEDDLE_RETURN_IF_ERROR(ReadServed(workload, id, count, 0, served));
      }
    }
    std::sort(served.begin(), served.end(), [](const Served& a, const Served& b) {
      return std::pair(a.result.time_us, a.trial) < std::pair(b.result.time_us, b.trial);
    });
    std::vector<int64_t> trials;
    for (const Served& s : served) {
      if (static_cast<int>(trials.size()) < count) trials.push_back(s.trial);
    }
    return trials;
  }

  absl::StatusOr<std::vector<Neighbour>> Neighbours(const std::string& op,
                                                    const Bench& bench) override {
    std::vector<Neighbour> neighbours;
    HEDDLE_ASSIGN_OR_RETURN(benches, keys_.Benches(bench));
    absl::flat_hash_set<std::string> known;
    for (int64_t id : benches) {
      Cursor rows = db_.Query(SelectNeighbours(), op, id);
      HEDDLE_RETURN_IF_ERROR(rows.ForEachRow([&] {
        const auto shape = nlohmann::json::parse(rows.Text(1), nullptr, false);
        if (!shape.is_object()) return;  // damaged
        Neighbour neighbour{rows.Text(0), {}, rows.Text(2)};
        if (!known.insert(neighbour.workload_hash).second) return;
        for (const auto& item : shape.items()) {
          if (item.value().is_number_integer()) neighbour.shape[item.key()] = item.value();
        }
        neighbours.push_back(std::move(neighbour));
      }));
    }
    return neighbours;
  }

  absl::StatusOr<std::vector<Lesson>> Lessons(const Environment& environment,
                                              const search_space::TensorProgram& tuned,
                                              int64_t limit) override {
    std::vector<Lesson> lessons;
    HEDDLE_ASSIGN_OR_RETURN(benches, keys_.Benches(BenchOf(environment)));
    HEDDLE_ASSIGN_OR_RETURN(ids, ChooseLessons(db_, benches, tuned, limit));
    for (int64_t id : ids) {
      Cursor row = db_.Query(SelectOne(), id);
      HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
      std::optional<StoredTrial> stored;
      if (found) stored = ReadTrial(row);
      if (!stored) continue;
      lessons.push_back({std::move(stored->workload.text), std::move(stored->environment),
                         std::move(stored->trial)});
    }
    return lessons;
  }

  absl::StatusOr<LessonCount> CountLessons(const Environment& environment, int64_t after) override {
    HEDDLE_ASSIGN_OR_RETURN(benches, keys_.Benches(BenchOf(environment)));
    return tuner::CountLessons(db_, benches, after);
  }

  absl::Status SaveModel(const Environment& environment, const StoredModel& model) override {
    return Write([&]() -> absl::Status {
      HEDDLE_ASSIGN_OR_RETURN(bench, keys_.FindOrAddBench(BenchOf(environment)));
      return db_.Run("INSERT OR REPLACE INTO model VALUES (?, ?, ?)", bench, model.newest,
                     Blob{model.bytes});
    });
  }

  absl::StatusOr<std::optional<StoredModel>> LoadModel(const Environment& environment) override {
    std::optional<StoredModel> model;
    if (!IsOwn(path())) return model;
    // The bench itself, else one that agrees: a description knows less than the device.
    HEDDLE_ASSIGN_OR_RETURN(benches, keys_.Benches(BenchOf(environment)));
    absl::StatusOr<int64_t> exact = keys_.FindBench(BenchOf(environment));
    if (exact.ok()) benches.insert(benches.begin(), *exact);
    for (int64_t bench : benches) {
      Cursor row = db_.Query("SELECT trials, bytes FROM model WHERE bench = ?", bench);
      HEDDLE_ASSIGN_OR_RETURN(found, row.Next());
      if (!found) continue;
      model = StoredModel{row.Text(1), row.Int(0)};
      break;
    }
    return model;
  }

  absl::StatusOr<ExportReport> Export(std::ostream& out) override {
    ExportReport report;
    int64_t after = 0;
    for (;;) {
      absl::StatusOr<int> rows = ExportPage(out, after, report);
      if (absl::IsDataLoss(rows.status())) {
        HEDDLE_ASSIGN_OR_RETURN(more, SkipDamage(out, after, report));
        if (!more) break;
        continue;
      }
      HEDDLE_RETURN_IF_ERROR(rows);
      if (!out) {
        return absl::ResourceExhaustedError(
            "the export cannot be written; free space where it goes and export again");
      }
      if (*rows < kExportPage) break;
    }
    out.flush();
    return report;
  }

  absl::StatusOr<ImportReport> Import(std::istream& in, const Provenance& importer) override {
    ImportReport report;
    Plausibility plausibility;
    std::vector<StoredTrial> batch;
    std::string line;
    bool too_long = false, whole = false;
    for (int64_t number = 1; ReadLine(in, line, too_long, whole); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      absl::StatusOr<StoredTrial> stored =
          too_long ? absl::InvalidArgumentError(absl::StrCat("longer than ", kMaxLine, " bytes"))
                   : ReadPlausible(line, plausibility);
      HEDDLE_RETURN_IF_ERROR(TakeImported(number, std::move(stored), importer, batch, report));
    }
    HEDDLE_RETURN_IF_ERROR(AddImported(batch, report));
    return report;
  }

  absl::StatusOr<ImportReport> Import(std::vector<absl::StatusOr<StoredTrial>> lines,
                                      const Provenance& importer) override {
    ImportReport report;
    std::vector<StoredTrial> batch;
    int64_t number = 0;
    for (absl::StatusOr<StoredTrial>& line : lines) {
      HEDDLE_RETURN_IF_ERROR(TakeImported(++number, std::move(line), importer, batch, report));
    }
    HEDDLE_RETURN_IF_ERROR(AddImported(batch, report));
    return report;
  }

  absl::StatusOr<std::vector<StoredTrial>> ReadPage(int64_t& after, int count) override {
    std::vector<StoredTrial> page;
    for (int rows = count; rows > 0 && page.empty();) {
      HEDDLE_ASSIGN_OR_RETURN(read, ReadRows(db_.Query(SelectPage(), after, count), after, page));
      rows = read;
    }
    return page;
  }

  absl::StatusOr<std::vector<StoredTrial>> ReadPage(int64_t& after, int count, const Choice& choice,
                                                    bool& more) override {
    HEDDLE_ASSIGN_OR_RETURN(newest, db_.QueryInt("SELECT coalesce(max(id), 0) FROM trial"));
    const int64_t end = after < newest ? std::min(newest, after + kMaxLook) : after;
    std::vector<StoredTrial> page;
    HEDDLE_ASSIGN_OR_RETURN(
        read, ReadRows(db_.Query(SelectChosen(), after, end, choice.op, choice.device_name,
                                 choice.tenant, int{choice.finals_only}, count),
                       after, page));
    if (read < count) after = end;
    more = after < newest;
    return page;
  }

  absl::Status Batch(absl::FunctionRef<absl::Status()> body) override {
    return Write([&] {
      // It may be part of a batch itself, which goes on after it.
      const bool outer = std::exchange(in_batch_, true);
      absl::Status status = body();
      in_batch_ = outer;
      return status;
    });
  }

  Database& database() override { return db_; }

  absl::Status Backup(const std::string& path) override {
    struct stat info;
    if (lstat(path.c_str(), &info) == 0) {
      return absl::AlreadyExistsError(
          absl::StrCat(path, ": this file exists; name one that does not, or remove it"));
    }
    return CopyTo(db_, path);
  }

  bool read_only() const override { return read_only_ || !damage_.empty(); }
  const std::string& damage() const override { return damage_; }
  const std::string& path() const override { return db_.path(); }

 private:
  // What `served` has of a trial.
  struct Served {
    int64_t trial;
    measure::TrialResult result;  // the time and its interval
    int64_t steps;
  };

  const std::string& Owner() {
    if (owner_.empty()) owner_ = ThisProcess();
    return owner_;
  }

  absl::Status Write(absl::FunctionRef<absl::Status()> body) {
    if (!damage_.empty()) return absl::DataLossError(damage_);
    if (read_only_) return db_.Error(SQLITE_READONLY);
    if (in_batch_) return body();
    absl::Status status = db_.Transaction(body);
    if (absl::IsDataLoss(status)) damage_ = std::string(status.message());
    return status;
  }

  // Calls body(workload, bench) for the benches that agree; not where there is no such workload.
  absl::Status InEachBench(const WorkloadRow& row, const Bench& bench,
                           absl::FunctionRef<absl::Status(int64_t, int64_t)> body) {
    absl::StatusOr<int64_t> workload = keys_.FindWorkload(row);
    if (absl::IsNotFound(workload.status())) return absl::OkStatus();
    HEDDLE_RETURN_IF_ERROR(workload);
    HEDDLE_ASSIGN_OR_RETURN(benches, keys_.Benches(bench));
    for (int64_t id : benches) {
      HEDDLE_RETURN_IF_ERROR(body(*workload, id));
    }
    return absl::OkStatus();
  }

  // Appends the fastest `count` after the first `after`.
  absl::Status ReadServed(int64_t workload, int64_t bench, int count, int after,
                          std::vector<Served>& served) {
    Cursor rows = db_.Query(SelectServed(), workload, bench, count, after);
    return rows.ForEachRow([&] {
      measure::TrialResult result;
      result.outcome = measure::Outcome::kOk;
      result.time_us = rows.Real(1);
      result.ci_low_us = rows.Real(2);
      result.ci_high_us = rows.Real(3);
      served.push_back({rows.Int(0), result, rows.Int(4)});
    });
  }

  static int WinnerOf(const std::vector<Served>& served) {
    std::vector<measure::TrialResult> finalists;
    std::vector<int64_t> complexity;
    for (const Served& s : served) {
      finalists.push_back(s.result);
      complexity.push_back(s.steps);
    }
    return measure::ChooseWinner(finalists, complexity);
  }

  // Appends the rows that are not damaged; how many there were. `after` is the last one's id.
  static absl::StatusOr<int> ReadRows(Cursor rows, int64_t& after, std::vector<StoredTrial>& page) {
    int count = 0;
    HEDDLE_RETURN_IF_ERROR(rows.ForEachRow([&] {
      ++count;
      after = rows.Int(0);
      if (std::optional<StoredTrial> stored = ReadTrial(rows)) page.push_back(*std::move(stored));
    }));
    return count;
  }

  // Leaves `best` empty where the row is damaged, or what `served` has of it.
  absl::Status ReadBest(const Served& served, std::optional<Best>& best) {
    Cursor row = db_.Query(SelectOne(), served.trial);
    absl::StatusOr<bool> found = row.Next();
    if (!found.ok() || !*found) return found.status();
    std::optional<StoredTrial> stored = ReadTrial(row);
    if (!stored || stored->trial.result.time_us != served.result.time_us) return absl::OkStatus();
    best = Best{std::move(stored->trial), std::move(stored->environment)};
    return absl::OkStatus();
  }

  // Refuses a line, or puts it into the batch, and writes that where it is full.
  absl::Status TakeImported(int64_t number, absl::StatusOr<StoredTrial> line,
                            const Provenance& importer, std::vector<StoredTrial>& batch,
                            ImportReport& report) {
    if (!line.ok()) {
      if (++report.refused <= kMaxRejected) {
        report.rejected.push_back(absl::StrCat("line ", number, ": ", line.status().message()));
      }
      return absl::OkStatus();
    }
    line->trial.from.tenant = importer.tenant;
    line->trial.from.token = importer.token;
    batch.push_back(*std::move(line));
    return batch.size() < kImportBatch ? absl::OkStatus() : AddImported(batch, report);
  }

  absl::Status AddImported(std::vector<StoredTrial>& batch, ImportReport& report) {
    if (batch.empty()) return absl::OkStatus();
    int64_t added = 0, duplicate = 0;
    absl::Status status = Write([&]() -> absl::Status {
      for (const StoredTrial& stored : batch) {
        HEDDLE_ASSIGN_OR_RETURN(keys, keys_.FindOrAdd(stored));
        HEDDLE_ASSIGN_OR_RETURN(same, keys_.FindSame(stored, keys));
        ++(same.has_value() ? duplicate : added);
        if (same.has_value()) continue;
        HEDDLE_RETURN_IF_ERROR(keys_.Insert(stored, keys).status());
      }
      return absl::OkStatus();
    });
    batch.clear();
    if (!status.ok()) {
      return absl::Status(status.code(),
                          absl::StrCat(status.message(), "; ", report.added,
                                       " records were imported before, and importing the same file "
                                       "again adds the rest"));
    }
    report.added += added;
    report.duplicate += duplicate;
    return absl::OkStatus();
  }

  // The trial of the current row; nullopt when its checksum does not hold.
  static std::optional<StoredTrial> ReadTrial(const Cursor& row) {
    StoredTrial stored;
    RowReader reader{row, 0};
    reader("id", stored.trial.id);
    int64_t checksum = 0;
    reader("checksum", checksum);
    VisitTrial(stored.trial, reader);
    VisitWorkload(stored.workload, reader);
    VisitEnvironment(stored.environment, reader);
    VisitLaterEnvironment(stored.environment, reader);
    reader("steps", stored.trial.steps);
    VisitProvenance(stored.trial.from, reader);
    stored.trial.workload_hash = stored.workload.hash;
    if (!reader.valid || ChecksumOf(stored) != checksum) return std::nullopt;
    return stored;
  }

  // Writes up to kExportPage rows after row `after`, which it advances; how many rows it read.
  absl::StatusOr<int> ExportPage(std::ostream& out, int64_t& after, ExportReport& report) {
    Cursor rows = db_.Query(SelectPage(), after, kExportPage);
    int count = 0;
    HEDDLE_RETURN_IF_ERROR(rows.ForEachRow([&] {
      after = rows.Int(0);
      ++count;
      std::optional<StoredTrial> stored = ReadTrial(rows);
      ++(stored ? report.written : report.damaged);
      if (stored) out << PrintLine(*stored) << '\n';
    }));
    return count;
  }

  // After row `after` a page cannot be read: tries row by row until one can be. False: there is
  // none.
  absl::StatusOr<bool> SkipDamage(std::ostream& out, int64_t& after, ExportReport& report) {
    constexpr int64_t kLeastRowBytes = 64;  // no row takes less, so the file bounds the ids
    absl::StatusOr<int64_t> last = db_.QueryInt("SELECT max(id) FROM trial");
    if (!last.ok()) {
      struct stat info;
      if (stat(path().c_str(), &info) != 0) return last.status();
      last = info.st_size / kLeastRowBytes;
    }
    while (++after <= *last) {
      Cursor row = db_.Query(SelectOne(), after);
      absl::StatusOr<bool> found = row.Next();
      if (!found.ok() && !absl::IsDataLoss(found.status())) return found.status();
      if (!found.ok()) ++report.damaged;
      if (!found.ok() || !*found) continue;
      std::optional<StoredTrial> stored = ReadTrial(row);
      ++(stored ? report.written : report.damaged);
      if (stored) out << PrintLine(*stored) << '\n';
      return true;
    }
    return false;
  }

  Database db_;
  RecordKeys keys_;
  bool read_only_;
  bool in_batch_ = false;
  std::string damage_;
  std::string owner_;  // ThisProcess(), once an intent was added
};

}  // namespace

std::string Records::DefaultPath() { return DefaultRecordsPath(); }

absl::StatusOr<std::unique_ptr<Records>> Records::Open(const std::string& given) {
  const std::string path = given.empty() ? DefaultPath() : given;
  if (given.empty()) HEDDLE_RETURN_IF_ERROR(CreateFolderOf(path));
  HEDDLE_ASSIGN_OR_RETURN(opened, OpenRecords(path));
  return std::make_unique<SqliteRecords>(std::move(opened.database), opened.read_only,
                                         std::move(opened.damage));
}

}  // namespace heddle::tuner
