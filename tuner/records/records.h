// Records: every trial ever made, durable in one SQLite file (docs/records.md).
#ifndef HEDDLE_TUNER_RECORDS_RECORDS_H_
#define HEDDLE_TUNER_RECORDS_RECORDS_H_

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "search_space/ir/tensor_program.h"
#include "tuner/records/lesson_count.h"
#include "tuner/records/trial_record.h"

namespace heddle {
class Database;
}

namespace heddle::tuner {
struct StoredTrial;

// One open database. Thread-compatible; a second process may use the same file. Errors name the
// file and the remedy: ResourceExhausted (disk full, or it cannot be written: nothing is
// half-written, and the same call works once there is space), PermissionDenied (read-only),
// DataLoss (damaged: see damage()), Unavailable (another process kept it locked for too long).
class Records {
 public:
  // Opens or creates. "" = DefaultPath(), whose folders are created. Refuses with
  // FailedPrecondition a file that is not one of ours, a newer schema, a network file system; with
  // DataLoss a file so damaged that not even its schema can be read. Files that cannot be written,
  // and damaged ones, open for reading.
  static absl::StatusOr<std::unique_ptr<Records>> Open(const std::string& path);
  // $HEDDLE_DB, else heddle/heddle.db in the user's data folder ($XDG_DATA_HOME, else
  // ~/.local/share).
  static std::string DefaultPath();
  virtual ~Records() = default;

  // Durable when it returns OK; the new row's id. Workload and environment rows are created as
  // needed. InvalidArgument: no point and no steps, an OK outcome without a positive time, times
  // that are negative or not finite.
  virtual absl::StatusOr<int64_t> AddTrial(const search_space::TensorProgram& program,
                                           const Environment& environment,
                                           const TrialRecord& trial) = 0;
  // A candidate that may run from now on. Should this process end before ClearIntent, it may be
  // tried once more; should the next one end as well, the candidate is stale.
  virtual absl::Status AddIntent(const search_space::TensorProgram& program,
                                 const Environment& environment, const std::string& point) = 0;
  virtual absl::Status ClearIntent(const search_space::TensorProgram& program,
                                   const Environment& environment, const std::string& point) = 0;
  // Points of this workload whose intents two processes that are gone have left: they seem to take
  // their host, or the tuner, down.
  virtual absl::StatusOr<std::vector<std::string>> StaleIntents(
      const search_space::TensorProgram& program, const Environment& environment) = 0;

  // Every trial of a workload that was measured here on the environment's bench, oldest first.
  virtual absl::StatusOr<std::vector<TrialRecord>> Trials(
      const search_space::TensorProgram& program, const Environment& environment) = 0;

  // The fastest points of a workload on a bench that were imported, fastest first: others' word for
  // what is worth measuring here. Empty where there is none.
  virtual absl::StatusOr<std::vector<std::string>> ImportedPoints(
      const search_space::TensorProgram& program, const Environment& environment, int count) = 0;

  // A final is served when it was measured here and is OK, and nothing newer speaks of the same
  // point or the same steps on its bench, be it a final or a screening that found them wrong: of a
  // schedule the last word counts, not the luckiest.
  struct Best {
    TrialRecord trial;
    Environment environment;
  };
  // The winner (measure::ChooseWinner) among the 16 fastest that are served on benches that agree
  // with `bench`, whichever sessions they are of: who wins one session is served, unless another's
  // is faster by more than ties are. A row whose checksum does not hold, and one that is
  // superseded, is passed over.
  virtual absl::StatusOr<std::optional<Best>> FindBest(const std::string& workload_hash,
                                                       const Bench& bench) = 0;
  // Has another bench of the device's name, with as many units, a later last word on the schedule
  // (its point or its steps): that it is wrong, or, where the benches agree (what one of them does
  // not know is no difference), any other word, with `by_failures` none but failures?
  virtual absl::StatusOr<bool> IsSuperseded(int64_t trial, bool by_failures) = 0;
  // The finals that are served on benches that agree with `bench`, superseded ones included, by id:
  // at most so many, the fastest first.
  virtual absl::StatusOr<std::vector<int64_t>> FastestServed(const std::string& workload_hash,
                                                             const Bench& bench, int count) = 0;
  // Workloads of the same operator that have a served final on this bench: for nearest queries.
  static constexpr size_t kNeighbours = 6;  // the nearest, whose best a search begins with
  struct Neighbour {
    std::string workload_hash;
    std::map<std::string, int64_t> shape;
    std::string dtype;
  };
  virtual absl::StatusOr<std::vector<Neighbour>> Neighbours(const std::string& op,
                                                            const Bench& bench) = 0;

  // Screening trials to learn from before `tuned` is, on the device model under the policy: some
  // `limit`, of each workload spread over its sessions, at least 64 if it has them, from as many
  // workloads as there is room for, those of the nearest shapes and the newest in turn. Those of
  // one workload lie side by side, oldest first.
  static constexpr int64_t kLessons = 6000;  // a model's, at most: some seconds of a core
  struct Lesson {
    std::string workload;  // TensorProgram::canonical_text
    Environment environment;
    TrialRecord trial;
  };
  virtual absl::StatusOr<std::vector<Lesson>> Lessons(const Environment& environment,
                                                      const search_space::TensorProgram& tuned,
                                                      int64_t limit) = 0;
  // Counts those to learn from on the device model under the policy, and those of them with an id
  // above `after`.
  virtual absl::StatusOr<LessonCount> CountLessons(const Environment& environment,
                                                   int64_t after) = 0;
  // What was learnt from them: one model (CostModel::Save) for each device model and policy. A
  // library that was not made for hostile files reads it: it is given only where the database's
  // file is this user's own and not everybody's to write.
  struct StoredModel {
    std::string bytes;
    int64_t newest = 0;  // LessonCount::newest when it was trained
  };
  virtual absl::Status SaveModel(const Environment& environment, const StoredModel& model) = 0;
  virtual absl::StatusOr<std::optional<StoredModel>> LoadModel(const Environment& environment) = 0;

  // JSON lines, one trial each with its workload and environment (docs/records.md). Works on a
  // damaged file too: rows that cannot be read, or whose checksum does not hold, are left out and
  // counted.
  struct ExportReport {
    int64_t written = 0, damaged = 0;
  };
  virtual absl::StatusOr<ExportReport> Export(std::ostream& out) = 0;
  // Adds what is not there yet (identity: workload, environment, point or steps, stage, time,
  // moment), marks it imported by `importer` (its tenant and token; host and run stay those of the
  // line), and reports lines that are refused by number, the first kMaxRejected with the reason:
  // what ParseLine refuses, and times that cannot be true (tuner/records/plausible.h). Imports are
  // lessons and proposals; nothing that is measured here is judged, left out or served by them.
  static constexpr int kMaxRejected = 1000;
  struct ImportReport {
    int64_t added = 0, duplicate = 0, refused = 0;
    std::vector<std::string> rejected;  // "line 3: ..."; at most kMaxRejected of the `refused`
  };
  virtual absl::StatusOr<ImportReport> Import(std::istream& in, const Provenance& importer) = 0;
  absl::StatusOr<ImportReport> Import(std::istream& in) { return Import(in, {}); }
  // The same of lines that somebody has read (ReadPlausible), as that may take long; those that are
  // errors are refused for it. Numbers count from 1.
  virtual absl::StatusOr<ImportReport> Import(std::vector<absl::StatusOr<StoredTrial>> lines,
                                              const Provenance& importer) = 0;
  // At most `count` trials with an id above `after`, by id; those that are damaged are left out,
  // but `after` passes them. None: there are no more.
  virtual absl::StatusOr<std::vector<StoredTrial>> ReadPage(int64_t& after, int count) = 0;
  // The same of some trials only. Looks at no more than kMaxLook ids at a time, so that a page can
  // be empty without being the last: `more` says whether anything is left behind `after`.
  static constexpr int64_t kMaxLook = 50000;
  struct Choice {
    std::string op, device_name, tenant;  // "" = any
    bool finals_only = false;
  };
  virtual absl::StatusOr<std::vector<StoredTrial>> ReadPage(int64_t& after, int count,
                                                            const Choice& choice, bool& more) = 0;
  // One transaction of everything that `body` writes, here and through database(): all or nothing,
  // durable when it returns OK. An error of `body` is returned and undoes it. Within another's body
  // it is part of that one.
  virtual absl::Status Batch(absl::FunctionRef<absl::Status()> body) = 0;
  // The connection, for tables that others keep in the same file (records_schema.cc has them all).
  virtual Database& database() = 0;
  // A consistent copy while others write. AlreadyExists when there is a file at `path`.
  virtual absl::Status Backup(const std::string& path) = 0;

  virtual bool read_only() const = 0;
  // What is wrong with the file and the remedy; empty when nothing is known to be. A damaged file
  // is read-only: salvage it with Export and Import into a new one.
  virtual const std::string& damage() const = 0;
  virtual const std::string& path() const = 0;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_RECORDS_H_
