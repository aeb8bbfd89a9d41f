#include "tuner/records/records.h"

#include <sqlite3.h>
#include <sys/stat.h>

#include <cmath>
#include <istream>
#include <limits>
#include <nlohmann/json.hpp>
#include <ostream>
#include <utility>

#include "absl/container/flat_hash_map.h"
#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "base/sqlite.h"
#include "measure/judge/timing.h"
#include "tuner/records/records_fields.h"
#include "tuner/records/records_file.h"
#include "tuner/records/records_schema.h"
#include "tuner/records/records_sql.h"

namespace heddle::tuner {
namespace {

using search_space::TensorProgram;

constexpr size_t kMaxDetail = 4096;   // bytes of evidence kept
constexpr size_t kMaxLine = 1 << 20;  // bytes of an imported line
constexpr int kImportBatch = 512;     // lines a transaction
constexpr int kExportPage = 4096;     // rows a read: a long one would let the log grow

WorkloadRow RowOf(const TensorProgram& program) {
  return {program.hash, program.op, nlohmann::json(program.shape).dump(), NameOf(program.dtype),
          program.canonical_text};
}

// What is stored of a trial of ours: no more text than needed, and nothing that would come back
// different from what went in.
TrialRecord Normalise(TrialRecord trial) {
  trial.origin = Origin::kMeasured;
  if (trial.stage == TrialStage::kScreening && !trial.point.empty()) trial.steps.clear();
  if (trial.result.detail.size() > kMaxDetail) trial.result.detail.resize(kMaxDetail);
  if (std::isnan(trial.result.max_error)) {
    trial.result.max_error = std::numeric_limits<double>::infinity();
  }
  if (trial.when == absl::UnixEpoch()) trial.when = absl::Now();
  trial.when = absl::FromUnixMicros(absl::ToUnixMicros(trial.when));
  return trial;
}

// Reads a line of at most kMaxLine bytes; the rest of a longer one is skipped.
bool ReadLine(std::istream& in, std::string& line, bool& too_long) {
  line.clear();
  too_long = false;
  std::streambuf* from = in.rdbuf();
  int c = from->sbumpc();
  if (c == std::char_traits<char>::eof()) return false;
  for (; c != '\n' && c != std::char_traits<char>::eof(); c = from->sbumpc()) {
    too_long |= line.size() >= kMaxLine;
    if (!too_long) line.push_back(static_cast<char>(c));
  }
  return true;
}

class SqliteRecords final : public Records {
 public:
  SqliteRecords(Database database, bool read_only, std::string damage)
      : db_(std::move(database)), read_only_(read_only), damage_(std::move(damage)) {}

  absl::StatusOr<int64_t> AddTrial(const TensorProgram& program, const Environment& environment,
                                   const TrialRecord& trial) override {
    absl::Status status = CheckTrial(trial);
    if (!status.ok()) return status;
    const StoredTrial stored{RowOf(program), environment, Normalise(trial)};
    int64_t id = 0;
    status = Write([&]() -> absl::Status {
      absl::StatusOr<Keys> keys = KeysOf(stored);
      if (!keys.ok()) return keys.status();
      return Insert(stored, *keys, id);
    });
    if (!status.ok()) return status;
    return id;
  }

  absl::Status AddIntent(const TensorProgram& program, const Environment& environment,
                         const std::string& point) override {
    const WorkloadRow row = RowOf(program);
    return Write([&]() -> absl::Status {
      absl::StatusOr<int64_t> workload = FindOrAddWorkload(row);
      if (!workload.ok()) return workload.status();
      absl::StatusOr<int64_t> bench = FindOrAddBench(environment.device_name, environment.l2);
      if (!bench.ok()) return bench.status();
      return db_.Run("INSERT OR REPLACE INTO intent VALUES (?, ?, ?, ?)", *workload, *bench, point,
                     process_);
    });
  }

  absl::Status ClearIntent(const TensorProgram& program, const Environment& environment,
                           const std::string& point) override {
    const WorkloadRow row = RowOf(program);
    return Write([&]() -> absl::Status {
      absl::StatusOr<int64_t> workload = FindWorkload(row);
      absl::StatusOr<int64_t> bench = FindBench(environment.device_name, environment.l2);
      if (absl::IsNotFound(workload.status()) || absl::IsNotFound(bench.status())) {
        return absl::OkStatus();
      }
      if (!workload.ok()) return workload.status();
      if (!bench.ok()) return bench.status();
      return db_.Run("DELETE FROM intent WHERE workload = ? AND bench = ? AND point = ?", *workload,
                     *bench, point);
    });
  }

  absl::StatusOr<std::vector<std::string>> StaleIntents(const TensorProgram& program,
                                                        const Environment& environment) override {
    std::vector<std::string> points;
    absl::StatusOr<int64_t> workload = FindWorkload(RowOf(program));
    absl::StatusOr<int64_t> bench = FindBench(environment.device_name, environment.l2);
    if (absl::IsNotFound(workload.status()) || absl::IsNotFound(bench.status())) return points;
    if (!workload.ok()) return workload.status();
    if (!bench.ok()) return bench.status();
    absl::flat_hash_map<std::string, bool> running;
    Cursor rows = db_.Query("SELECT point, owner FROM intent WHERE workload = ? AND bench = ?",
                            *workload, *bench);
    absl::StatusOr<bool> more;
    while ((more = rows.Next()).ok() && *more) {
      const std::string owner = rows.Text(1);
      if (!running.contains(owner)) running[owner] = IsRunning(owner);
      if (!running[owner]) points.push_back(rows.Text(0));
    }
    if (!more.ok()) return more.status();
    return points;
  }

  absl::StatusOr<std::vector<TrialRecord>> Trials(const TensorProgram& program,
                                                  const Environment& environment) override {
    std::vector<TrialRecord> trials;
    absl::StatusOr<int64_t> workload = FindWorkload(RowOf(program));
    absl::StatusOr<int64_t> bench = FindBench(environment.device_name, environment.l2);
    if (absl::IsNotFound(workload.status()) || absl::IsNotFound(bench.status())) return trials;
    if (!workload.ok()) return workload.status();
    if (!bench.ok()) return bench.status();
    Cursor rows = db_.Query(SelectHistory(), *workload, *bench);
    absl::StatusOr<bool> more;
    while ((more = rows.Next()).ok() && *more) {
      std::optional<StoredTrial> stored = ReadTrial(rows);
      if (stored) trials.push_back(std::move(stored->trial));
    }
    if (!more.ok()) return more.status();
    return trials;
  }

  absl::StatusOr<std::optional<Best>> FindBest(const std::string& workload_hash,
                                               const std::string& device_name,
                                               measure::L2Policy l2) override {
    std::optional<Best> best;
    absl::StatusOr<int64_t> bench = FindBench(device_name, l2);
    if (absl::IsNotFound(bench.status())) return best;
    if (!bench.ok()) return bench.status();
    // One row, unless one of the same hash was damaged and written anew.
    std::vector<int64_t> workloads;
    {
      Cursor ids = db_.Query("SELECT id FROM workload WHERE hash = ?", workload_hash);
      absl::StatusOr<bool> more;
      while ((more = ids.Next()).ok() && *more) workloads.push_back(ids.Int(0));
      if (!more.ok()) return more.status();
    }
    // The fastest and its ties, in one run over the index.
    std::vector<Best> ties;
    for (int64_t workload : workloads) {
      Cursor rows = db_.Query(SelectServed(), workload, *bench);
      absl::StatusOr<bool> more;
      while ((more = rows.Next()).ok() && *more) {
        std::optional<StoredTrial> stored = ReadTrial(rows);
        if (!stored) continue;
        double fastest = ties.empty() ? INFINITY : ties.front().trial.result.time_us;
        if (stored->trial.result.time_us > fastest * (1 + measure::kTieMargin)) break;
        ties.push_back({std::move(stored->trial), std::move(stored->environment)});
      }
      if (!more.ok()) return more.status();
    }
    std::vector<measure::TrialResult> finalists;
    std::vector<int64_t> complexity;  // lines, one a step
    for (const Best& tie : ties) {
      const std::string& steps = tie.trial.steps;
      finalists.push_back(tie.trial.result);
      complexity.push_back(std::count(steps.begin(), steps.end(), '\n'));
    }
    int winner = measure::ChooseWinner(finalists, complexity);
    if (winner >= 0) best = std::move(ties[winner]);
    return best;
  }

  absl::StatusOr<std::vector<Neighbour>> Neighbours(const std::string& op,
                                                    const std::string& device_name,
                                                    measure::L2Policy l2) override {
    std::vector<Neighbour> neighbours;
    absl::StatusOr<int64_t> bench = FindBench(device_name, l2);
    if (absl::IsNotFound(bench.status())) return neighbours;
    if (!bench.ok()) return bench.status();
    Cursor rows = db_.Query(SelectNeighbours(), op, *bench);
    absl::StatusOr<bool> more;
    while ((more = rows.Next()).ok() && *more) {
      const auto shape = nlohmann::json::parse(rows.Text(1), nullptr, false);
      if (!shape.is_object()) continue;  // damaged
      Neighbour neighbour{rows.Text(0), {}, rows.Text(2)};
      for (const auto& item : shape.items()) {
        if (item.value().is_number_integer()) neighbour.shape[item.key()] = item.value();
      }
      neighbours.push_back(std::move(neighbour));
    }
    if (!more.ok()) return more.status();
    return neighbours;
  }

  absl::StatusOr<std::vector<Lesson>> Lessons(const Environment& environment,
                                              int64_t limit) override {
    std::vector<Lesson> lessons;
    absl::StatusOr<int64_t> bench = FindBench(environment.device_name, environment.l2);
    if (absl::IsNotFound(bench.status())) return lessons;
    if (!bench.ok()) return bench.status();
    absl::StatusOr<int64_t> workloads =
        db_.QueryInt("SELECT count(DISTINCT workload) FROM trial WHERE bench = ?", *bench);
    if (!workloads.ok()) return workloads.status();
    absl::StatusOr<int64_t> all = CountLessons(environment);
    if (!all.ok()) return all.status();
    int64_t share = *all <= limit ? *all : limit / std::max<int64_t>(1, *workloads);
    Cursor rows = db_.Query(SelectLessons(), *bench, share);
    absl::StatusOr<bool> more;
    while ((more = rows.Next()).ok() && *more) {
      std::optional<StoredTrial> stored = ReadTrial(rows);
      if (!stored) continue;
      lessons.push_back({std::move(stored->workload.text), std::move(stored->environment),
                         std::move(stored->trial)});
    }
    if (!more.ok()) return more.status();
    return lessons;
  }

  absl::StatusOr<int64_t> CountLessons(const Environment& environment) override {
    return db_.QueryInt(
        "SELECT count(*) FROM trial t JOIN bench b ON b.id = t.bench WHERE b.device_name = ? AND "
        "b.l2 = ?",
        environment.device_name, std::string(NameOf(environment.l2)));
  }

  absl::Status SaveModel(const Environment& environment, const StoredModel& model) override {
    return Write([&]() -> absl::Status {
      absl::StatusOr<int64_t> bench = FindOrAddBench(environment.device_name, environment.l2);
      if (!bench.ok()) return bench.status();
      return db_.Run("INSERT OR REPLACE INTO model VALUES (?, ?, ?)", *bench, model.trials,
                     Blob{model.bytes});
    });
  }

  absl::StatusOr<std::optional<StoredModel>> LoadModel(const Environment& environment) override {
    std::optional<StoredModel> model;
    Cursor row = db_.Query(
        "SELECT m.trials, m.bytes FROM model m JOIN bench b ON b.id = m.bench WHERE b.device_name "
        "= ? AND b.l2 = ?",
        environment.device_name, std::string(NameOf(environment.l2)));
    absl::StatusOr<bool> found = row.Next();
    if (!found.ok()) return found.status();
    if (*found) model = StoredModel{row.Text(1), row.Int(0)};
    return model;
  }

  absl::StatusOr<ExportReport> Export(std::ostream& out) override {
    ExportReport report;
    int64_t after = 0;
    for (;;) {
      absl::StatusOr<int> rows = ExportPage(out, after, report);
      if (absl::IsDataLoss(rows.status())) {
        absl::StatusOr<bool> more = SkipDamage(out, after, report);
        if (!more.ok()) return more.status();
        if (!*more) break;
        continue;
      }
      if (!rows.ok()) return rows.status();
      if (!out) {
        return absl::ResourceExhaustedError(
            "the export cannot be written; free space where it goes and export again");
      }
      if (*rows < kExportPage) break;
    }
    out.flush();
    return report;
  }

  absl::StatusOr<ImportReport> Import(std::istream& in) override {
    ImportReport report;
    std::vector<StoredTrial> batch;
    std::string line;
    bool too_long = false;
    for (int64_t number = 1; ReadLine(in, line, too_long); ++number) {
      if (line.find_first_not_of(" \t\r") == std::string::npos) continue;
      absl::StatusOr<StoredTrial> stored =
          too_long ? absl::InvalidArgumentError(absl::StrCat("longer than ", kMaxLine, " bytes"))
                   : ParseLine(line);
      if (!stored.ok()) {
        if (++report.refused <= kMaxRejected) {
          report.rejected.push_back(absl::StrCat("line ", number, ": ", stored.status().message()));
        }
        continue;
      }
      batch.push_back(*std::move(stored));
      if (batch.size() < kImportBatch) continue;
      absl::Status status = AddImported(batch, report);
      if (!status.ok()) return status;
    }
    absl::Status status = AddImported(batch, report);
    if (!status.ok()) return status;
    return report;
  }

  absl::StatusOr<std::vector<StoredTrial>> ReadPage(int64_t& after, int count) override {
    std::vector<StoredTrial> page;
    for (bool more = true; more && page.empty();) {
      more = false;
      Cursor rows = db_.Query(SelectPage(), after, count);
      absl::StatusOr<bool> row;
      while ((row = rows.Next()).ok() && *row) {
        more = true;
        after = rows.Int(0);
        if (std::optional<StoredTrial> stored = ReadTrial(rows)) page.push_back(*std::move(stored));
      }
      if (!row.ok()) return row.status();
    }
    return page;
  }

  absl::Status Batch(absl::FunctionRef<absl::Status()> body) override {
    return Write([&] {
      in_batch_ = true;
      absl::Status status = body();
      in_batch_ = false;
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
  // Row ids of what a trial refers to.
  struct Keys {
    int64_t workload, bench, environment;
    std::optional<int64_t> steps;
  };

  absl::Status Write(absl::FunctionRef<absl::Status()> body) {
    if (!damage_.empty()) return absl::DataLossError(damage_);
    if (read_only_) return db_.Error(SQLITE_READONLY);
    if (in_batch_) return body();
    absl::Status status = db_.Transaction(body);
    if (absl::IsDataLoss(status)) damage_ = std::string(status.message());
    return status;
  }

  absl::StatusOr<int64_t> FindWorkload(const WorkloadRow& row) {
    return db_.QueryInt(SelectWorkload(), row.hash, row.text, row.op, row.shape, row.dtype);
  }
  absl::StatusOr<int64_t> FindBench(const std::string& device_name, measure::L2Policy l2) {
    return db_.QueryInt("SELECT id FROM bench WHERE device_name = ? AND l2 = ?", device_name,
                        std::string(NameOf(l2)));
  }
  // `found` unless it is NotFound, else the id that `sql` inserts.
  template <typename... Args>
  absl::StatusOr<int64_t> OrInsert(absl::StatusOr<int64_t> found, const std::string& sql,
                                   const Args&... args) {
    if (!absl::IsNotFound(found.status())) return found;
    absl::Status status = db_.Run(sql, args...);
    if (!status.ok()) return status;
    return db_.last_insert_id();
  }
  absl::StatusOr<int64_t> FindOrAddWorkload(const WorkloadRow& row) {
    return OrInsert(FindWorkload(row),
                    "INSERT INTO workload (hash, op, shape, dtype, text) VALUES (?, ?, ?, ?, ?)",
                    row.hash, row.op, row.shape, row.dtype, row.text);
  }
  absl::StatusOr<int64_t> FindOrAddBench(const std::string& device_name, measure::L2Policy l2) {
    return OrInsert(FindBench(device_name, l2), "INSERT INTO bench (device_name, l2) VALUES (?, ?)",
                    device_name, std::string(NameOf(l2)));
  }
  absl::StatusOr<int64_t> FindOrAddSteps(const std::string& text) {
    const auto hash = static_cast<int64_t>(HashOf(text));
    return OrInsert(db_.QueryInt("SELECT id FROM steps WHERE hash = ? AND text = ?", hash, text),
                    "INSERT INTO steps (hash, text) VALUES (?, ?)", hash, text);
  }
  absl::StatusOr<int64_t> FindOrAddEnvironment(const Environment& environment) {
    {
      Cursor row = db_.Query(SelectEnvironment());
      VisitEnvironment(environment, Binder{row});
      absl::StatusOr<bool> found = row.Next();
      if (!found.ok()) return found.status();
      if (*found) return row.Int(0);
    }
    Cursor insert = db_.Query(InsertEnvironment());
    VisitEnvironment(environment, Binder{insert});
    absl::StatusOr<bool> done = insert.Next();
    if (!done.ok()) return done.status();
    return db_.last_insert_id();
  }

  absl::StatusOr<Keys> KeysOf(const StoredTrial& stored) {
    absl::StatusOr<int64_t> workload = FindOrAddWorkload(stored.workload);
    if (!workload.ok()) return workload.status();
    const Environment& environment = stored.environment;
    absl::StatusOr<int64_t> bench = FindOrAddBench(environment.device_name, environment.l2);
    if (!bench.ok()) return bench.status();
    absl::StatusOr<int64_t> exact = FindOrAddEnvironment(environment);
    if (!exact.ok()) return exact.status();
    Keys keys{*workload, *bench, *exact, std::nullopt};
    if (!stored.trial.steps.empty()) {
      absl::StatusOr<int64_t> steps = FindOrAddSteps(stored.trial.steps);
      if (!steps.ok()) return steps.status();
      keys.steps = *steps;
    }
    return keys;
  }

  absl::Status Insert(const StoredTrial& stored, const Keys& keys, int64_t& id) {
    Cursor insert = db_.Query(InsertTrial(), keys.workload, keys.bench, keys.environment);
    keys.steps ? insert.Bind(*keys.steps) : insert.BindNull();
    insert.Bind(ChecksumOf(stored));
    VisitTrial(stored.trial, Binder{insert});
    absl::StatusOr<bool> done = insert.Next();
    id = db_.last_insert_id();
    return done.status();
  }

  absl::StatusOr<bool> IsKnown(const StoredTrial& stored, const Keys& keys) {
    const TrialRecord& trial = stored.trial;
    Cursor row = db_.Query(SelectSame(), keys.workload, keys.bench, absl::ToUnixMicros(trial.when),
                           keys.environment, int{trial.stage == TrialStage::kFinal},
                           trial.result.time_us, trial.point);
    keys.steps ? row.Bind(*keys.steps) : row.BindNull();
    return row.Next();
  }

  absl::Status AddImported(std::vector<StoredTrial>& batch, ImportReport& report) {
    if (batch.empty()) return absl::OkStatus();
    int64_t added = 0, duplicate = 0;
    absl::Status status = Write([&]() -> absl::Status {
      for (const StoredTrial& stored : batch) {
        absl::StatusOr<Keys> keys = KeysOf(stored);
        if (!keys.ok()) return keys.status();
        absl::StatusOr<bool> known = IsKnown(stored, *keys);
        if (!known.ok()) return known.status();
        ++(*known ? duplicate : added);
        int64_t id = 0;
        absl::Status inserted = *known ? absl::OkStatus() : Insert(stored, *keys, id);
        if (!inserted.ok()) return inserted;
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
    reader("steps", stored.trial.steps);
    stored.trial.workload_hash = stored.workload.hash;
    if (!reader.valid || ChecksumOf(stored) != checksum) return std::nullopt;
    return stored;
  }

  // Writes up to kExportPage rows after row `after`, which it advances; how many rows it read.
  absl::StatusOr<int> ExportPage(std::ostream& out, int64_t& after, ExportReport& report) {
    Cursor rows = db_.Query(SelectPage(), after, kExportPage);
    int count = 0;
    absl::StatusOr<bool> more;
    while ((more = rows.Next()).ok() && *more) {
      after = rows.Int(0);
      ++count;
      std::optional<StoredTrial> stored = ReadTrial(rows);
      ++(stored ? report.written : report.damaged);
      if (stored) out << PrintLine(*stored) << '\n';
    }
    if (!more.ok()) return more.status();
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
  bool read_only_;
  bool in_batch_ = false;
  std::string damage_;
  const std::string process_ = ThisProcess();
};

}  // namespace

std::unique_ptr<Records> MakeRecords(Database database, bool read_only, std::string damage) {
  return std::make_unique<SqliteRecords>(std::move(database), read_only, std::move(damage));
}

}  // namespace heddle::tuner
