#include "tuner/records/transfer/collect.h"

#include <set>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "tuner/records/records_fields.h"
#include "tuner/records/records_keys.h"
#include "tuner/records/records_sql.h"

namespace heddle::tuner {
namespace {

constexpr size_t kBatch = 512;  // lines a transaction

struct Line {
  int64_t sequence;
  StoredTrial stored;
};

class Collector {
 public:
  // A trial of sequence S is line S + `offset` to who reads the report.
  Collector(Records& records, const RunHeader& header, const Provenance& by, int64_t offset,
            Records::ImportReport& report)
      : records_(records),
        db_(records.database()),
        keys_(db_),
        header_(header),
        from_{by.tenant, by.token, header.host, header.run},
        is_word_(by.token != 0),
        run_(is_word_ ? RunOfTenant(by.tenant, header.run) : header.run),
        offset_(offset),
        report_(report) {}

  // Writes what waits.
  absl::Status Flush() {
    if (lines_.empty()) return absl::OkStatus();
    Records::ImportReport before = report_;
    absl::Status status = records_.Batch([&]() -> absl::Status {
      HEDDLE_ASSIGN_OR_RETURN(attempt, FindOrAddAttempt());
      std::set<std::pair<int64_t, int64_t>> touched;  // workload, bench
      for (const Line& line : lines_) {
        HEDDLE_RETURN_IF_ERROR(Add(attempt, line, touched));
      }
      for (const auto& [workload, bench] : touched) {
        HEDDLE_RETURN_IF_ERROR(Order(workload, bench));
      }
      return absl::OkStatus();
    });
    lines_.clear();
    if (!status.ok()) report_ = std::move(before);
    return status;
  }

  absl::Status Take(int64_t sequence, absl::StatusOr<StoredTrial> stored) {
    if (!stored.ok()) {
      Refuse(sequence, stored.status().message());
      return absl::OkStatus();
    }
    stored->trial.origin = is_word_ ? Origin::kImported : Origin::kMeasured;
    stored->trial.from = from_;
    lines_.push_back({sequence, *std::move(stored)});
    return lines_.size() < kBatch ? absl::OkStatus() : Flush();
  }

 private:
  void Refuse(int64_t sequence, absl::string_view why) {
    if (++report_.refused > Records::kMaxRejected) return;
    report_.rejected.push_back(absl::StrCat("line ", sequence + offset_, ": ", why));
  }

  absl::StatusOr<int64_t> FindOrAddAttempt() {
    HEDDLE_RETURN_IF_ERROR(db_.Run("INSERT OR IGNORE INTO attempt (run, number) VALUES (?, ?)",
                                   run_, header_.attempt));
    return db_.QueryInt("SELECT id FROM attempt WHERE run = ? AND number = ?", run_,
                        header_.attempt);
  }

  absl::Status Add(int64_t attempt, const Line& line,
                   std::set<std::pair<int64_t, int64_t>>& touched) {
    {
      Cursor known = db_.Query(
          "SELECT c.trial, t.checksum, s.tenant, s.token, s.host, s.run, t.imported FROM collected "
          "c "
          "LEFT JOIN trial t ON t.id = c.trial LEFT JOIN source s ON s.id = t.source "
          "WHERE c.attempt = ? AND c.sequence = ?",
          attempt, line.sequence);
      HEDDLE_ASSIGN_OR_RETURN(found, known.Next());
      if (found) {
        // Whoever brought it first.
        StoredTrial same = line.stored;
        same.trial.from = {known.Text(2), known.Int(3), known.Text(4), known.Text(5)};
        same.trial.origin = known.Int(6) != 0 ? Origin::kImported : Origin::kMeasured;
        if (known.IsNull(0) || known.Int(1) == ChecksumOf(same)) {
          ++report_.duplicate;
        } else {
          Refuse(line.sequence,
                 "another trial was collected under the same run, attempt and sequence: two "
                 "files claim to be one, and the first is kept");
        }
        return absl::OkStatus();
      }
    }
    HEDDLE_ASSIGN_OR_RETURN(keys, keys_.FindOrAdd(line.stored));
    HEDDLE_ASSIGN_OR_RETURN(same, keys_.FindSame(line.stored, keys));
    if (same.has_value() && is_word_) {
      ++report_.duplicate;
      return db_.Run("INSERT INTO collected (attempt, sequence, trial) VALUES (?, ?, ?)", attempt,
                     line.sequence, same->id);
    }
    // It was another's word until now.
    if (same.has_value() && same->imported) {
      HEDDLE_RETURN_IF_ERROR(db_.Run("DELETE FROM trial WHERE id = ?", same->id));
    }
    HEDDLE_ASSIGN_OR_RETURN(id, keys_.Insert(line.stored, keys));
    ++report_.added;
    const TrialRecord& trial = line.stored.trial;
    const bool may_speak = trial.stage == TrialStage::kFinal || ShowsWrong(trial.result);
    if (!is_word_ && may_speak) touched.insert({keys.workload, keys.bench});
    return db_.Run("INSERT INTO collected (attempt, sequence, trial) VALUES (?, ?, ?)", attempt,
                   line.sequence, id);
  }

  // Which of two words on a schedule is the newer is told by their ids: gives those that were
  // collected new ones, from the first that has a lower id than one before it in the order of runs,
  // attempts and sequences.
  absl::Status Order(int64_t workload, int64_t bench) {
    HEDDLE_ASSIGN_OR_RETURN(words,
                            db_.QueryInts("SELECT t.id FROM trial t INDEXED BY trial_word_steps "
                                          "CROSS JOIN collected c ON c.trial = t.id "
                                          "CROSS JOIN attempt a ON a.id = c.attempt "
                                          "WHERE t.workload = ? AND t.bench = ? AND t.speaks = 1 "
                                          "ORDER BY a.run, a.number, c.sequence",
                                          workload, bench));
    int64_t highest = 0;
    for (int64_t id : words) {
      if (id < highest) {
        HEDDLE_ASSIGN_OR_RETURN(moved, Renew(id));
        id = moved;
      }
      highest = id;
    }
    return absl::OkStatus();
  }

  // The same row under a new id, the greatest of all.
  absl::StatusOr<int64_t> Renew(int64_t id) {
    static const auto& copy = *new std::string([] {
      const std::string columns =
          absl::StrCat("workload, bench, environment, steps, source, checksum, ",
                       absl::StrReplaceAll(TrialFields(), {{"t.", ""}}));
      return absl::StrCat("INSERT INTO trial (", columns, ") SELECT ", columns,
                          " FROM trial WHERE id = ?");
    }());
    HEDDLE_RETURN_IF_ERROR(db_.Run(copy, id));
    const int64_t renewed = db_.last_insert_id();
    HEDDLE_RETURN_IF_ERROR(db_.Run("UPDATE collected SET trial = ? WHERE trial = ?", renewed, id));
    HEDDLE_RETURN_IF_ERROR(db_.Run("DELETE FROM trial WHERE id = ?", id));
    return renewed;
  }

  Records& records_;
  Database& db_;
  RecordKeys keys_;
  const RunHeader& header_;
  const Provenance from_;
  const bool is_word_;     // of somebody with a token: no measurement of this database's owner
  const std::string run_;  // under which its trials are known: a tenant's words are its own
  const int64_t offset_;
  Records::ImportReport& report_;
  std::vector<Line> lines_;
};

}  // namespace

absl::StatusOr<RunReader> RunReader::Open(std::istream& in) {
  std::string text;
  bool too_long = false, whole = false;
  if (!ReadLine(in, text, too_long, whole) || !whole) {
    return absl::InvalidArgumentError("the file is empty, or its first line is not whole yet");
  }
  HEDDLE_ASSIGN_OR_RETURN(header, ParseRunHeader(text));
  return RunReader(in, std::move(header));
}

RunPart RunReader::Next() {
  RunPart part;
  std::string text;
  bool too_long = false, whole = false;
  while (part.size() < kBatch && ReadLine(*in_, text, too_long, whole) && whole) {
    ++read_;
    exit_code_ = ParseRunEnd(text);
    if (exit_code_) continue;
    part.push_back({read_, too_long ? absl::InvalidArgumentError("too long for a trial")
                                    : ReadPlausible(text, plausibility_)});
  }
  return part;
}

absl::Status CollectPart(Records& records, const RunHeader& header, RunPart part,
                         Records::ImportReport& trials) {
  Collector collector(records, header, {}, 1, trials);
  for (RunLine& line : part) {
    HEDDLE_RETURN_IF_ERROR(collector.Take(line.sequence, std::move(line.stored)));
  }
  return collector.Flush();
}

absl::StatusOr<CollectReport> Collect(Records& records, std::istream& in) {
  HEDDLE_ASSIGN_OR_RETURN(file, RunReader::Open(in));
  CollectReport report;
  for (RunPart part = file.Next(); !part.empty(); part = file.Next()) {
    HEDDLE_RETURN_IF_ERROR(CollectPart(records, file.header(), std::move(part), report.trials));
  }
  report.header = file.header();
  report.exit_code = file.exit_code();
  return report;
}

std::string RunOfTenant(const std::string& tenant, const std::string& run) {
  return absl::StrCat(tenant, "/", run);
}

absl::StatusOr<Records::ImportReport> AppendTrials(Records& records, const RunHeader& header,
                                                   const Provenance& by, int64_t first,
                                                   std::vector<absl::StatusOr<StoredTrial>> lines) {
  Records::ImportReport report;
  Collector collector(records, header, by, 1 - first, report);
  for (absl::StatusOr<StoredTrial>& line : lines) {
    HEDDLE_RETURN_IF_ERROR(collector.Take(first++, std::move(line)));
  }
  HEDDLE_RETURN_IF_ERROR(collector.Flush());
  return report;
}

}  // namespace heddle::tuner
