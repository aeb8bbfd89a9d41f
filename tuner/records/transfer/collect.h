// Bringing together what runs on nodes have left behind (tuner/records/transfer/run_file.h).
#ifndef HEDDLE_TUNER_RECORDS_TRANSFER_COLLECT_H_
#define HEDDLE_TUNER_RECORDS_TRANSFER_COLLECT_H_

#include <istream>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "tuner/records/plausible.h"
#include "tuner/records/records.h"
#include "tuner/records/transfer/run_file.h"

namespace heddle::tuner {

struct CollectReport {
  RunHeader header;
  std::optional<int> exit_code;  // that the run ended with; none: it goes on, or was killed
  Records::ImportReport trials;
};

// Adds the trials of one file as measured, by the host and the run that its header names: what
// their owner's own nodes have measured is the owner's word, as if `heddle tune` had written into
// this database. A trial is known by run, attempt and sequence, so that files may be collected in
// any order, while they are written, and as often as one likes: what the database holds in the end
// depends on the files alone. Of what speaks of a schedule (its finals, and screenings that
// found it wrong) the newest counts, and among collected ones that is the one with the greatest
// run, then attempt, then sequence: an attempt that was given up and goes on somewhere does not
// overrule the one that replaced it. What was removed from the database stays removed.
//
// Lines that are refused are counted and named: those of no trial, times that cannot be true, and
// another trial under the same run, attempt and sequence. A last line that is not whole is left for
// later. InvalidArgument: the file is not a run's.
absl::StatusOr<CollectReport> Collect(Records& records, std::istream& in);

// The same in parts, each of few enough lines for one transaction: reading judges every operator
// and every time, which takes longer than writing and need not be done where others wait to write.
//
//   auto file = RunReader::Open(in);
//   for (RunPart part = file->Next(); !part.empty(); part = file->Next())
//     CollectPart(records, file->header(), std::move(part), trials);
struct RunLine {
  int64_t sequence;  // from 1
  absl::StatusOr<StoredTrial> stored;
};
using RunPart = std::vector<RunLine>;

class RunReader {
 public:
  // `in` must outlive it. InvalidArgument: no file of a run.
  static absl::StatusOr<RunReader> Open(std::istream& in);

  // Of the lines that are whole; empty: there are no more.
  RunPart Next();

  const RunHeader& header() const { return header_; }
  // As far as it was read.
  std::optional<int> exit_code() const { return exit_code_; }

 private:
  RunReader(std::istream& in, RunHeader header) : in_(&in), header_(std::move(header)) {}

  std::istream* in_;
  RunHeader header_;
  std::optional<int> exit_code_;
  int64_t read_ = 0;  // lines behind the header
  Plausibility plausibility_;
};

// Adds to `trials`.
absl::Status CollectPart(Records& records, const RunHeader& header, RunPart part,
                         Records::ImportReport& trials);

// The name under which a tenant's word of a run is kept: its runs are its own.
std::string RunOfTenant(const std::string& tenant, const std::string& run);

// As Collect, for trials of such a file that somebody has sent: lines of it (ReadPlausible), the
// first of which has the sequence `first`; refusals number them from 1. From whoever has a token
// (`by`) they are a word, as imports are: they teach and propose, are never served, and are known
// by their tenant as well. Collecting the file makes them measurements.
absl::StatusOr<Records::ImportReport> AppendTrials(Records& records, const RunHeader& header,
                                                   const Provenance& by, int64_t first,
                                                   std::vector<absl::StatusOr<StoredTrial>> lines);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_TRANSFER_COLLECT_H_
