// What a stored trial consists of, each field listed once: statements, checksums and JSON lines are
// made from these lists.
#ifndef HEDDLE_TUNER_RECORDS_RECORDS_FIELDS_H_
#define HEDDLE_TUNER_RECORDS_RECORDS_FIELDS_H_

#include <cstdint>
#include <istream>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/fields.h"
#include "base/hash.h"
#include "measure/device/outcome.h"
#include "tuner/records/trial_record.h"

namespace heddle::tuner {

// A workload as records know it; `shape` is a JSON object.
struct WorkloadRow {
  std::string hash, op, shape, dtype, text;
};

// A trial with everything that belongs to it, independent of any database.
struct StoredTrial {
  WorkloadRow workload;
  Environment environment;
  TrialRecord trial;
};

// Calls visit(name, field) for each field; `name` is the column, and the key in JSON lines. The
// order is that of checksums: it must not change within a schema version.
template <typename Workload, typename Visitor>
void VisitWorkload(Workload& w, Visitor&& visit) {
  visit("hash", w.hash);
  visit("op", w.op);
  visit("shape", w.shape);
  visit("dtype", w.dtype);
  visit("text", w.text);
}

template <typename Env, typename Visitor>
void VisitEnvironment(Env& e, Visitor&& visit) {
  visit("device_name", e.device_name);
  visit("device_uuid", e.device_uuid);
  visit("arch", e.arch);
  visit("sm_count", e.sm_count);
  visit("driver", e.driver);
  visit("compiler", e.compiler);
  visit("generator_version", e.generator_version);
  visit("feature_version", e.feature_version);
  visit("l2", e.l2);
}

// What later schema versions added. A checksum has those that are given only, by name, so that that
// of a row which is older than they are still holds.
template <typename Env, typename Visitor>
void VisitLaterEnvironment(Env& e, Visitor&& visit) {
  auto&& later = Later(visit);
  later("memory_mib", e.memory_mib);
  later("power_limit_w", e.power_limit_w);
}

// What lines carry of a provenance: tenants and tokens mean something in their own database only.
template <typename From, typename Visitor>
void VisitPlace(From& from, Visitor&& visit) {
  auto&& later = Later(visit);
  later("host", from.host);
  later("run", from.run);
}

template <typename From, typename Visitor>
void VisitProvenance(From& from, Visitor&& visit) {
  auto&& later = Later(visit);
  later("tenant", from.tenant);
  later("token", from.token);
  VisitPlace(from, visit);
}

// All but the id, the workload's hash and what lies in other tables.
template <typename Trial, typename Visitor>
void VisitTrial(Trial& t, Visitor&& visit) {
  visit("point", t.point);
  visit("final", t.stage);
  visit("imported", t.origin);
  VisitResult(t.result, visit);
  visit("throttled", t.throttled);
  visit("other_processes", t.other_processes);
  visit("when_us", t.when);
}

// Of all that is read with a trial. A row whose checksum does not hold is never served.
int64_t ChecksumOf(const StoredTrial& stored);

// Reads a line of a file of records, of at most kMaxLine bytes; the rest of a longer one is
// skipped. `whole`: whether it ends in a newline. False: there is none.
inline constexpr size_t kMaxLine = 1 << 20;
bool ReadLine(std::istream& in, std::string& line, bool& too_long, bool& whole);

// One JSON line, without the newline, and back. `ParseLine` checks everything that can be checked
// without the workload's operator and marks the trial imported; InvalidArgument says which key is
// wrong and what would be right.
std::string PrintLine(const StoredTrial& stored);
absl::StatusOr<StoredTrial> ParseLine(const std::string& line);

// What holds for every stored trial: a point or steps, numbers that are finite and not negative,
// a positive time when and only when the outcome is OK. InvalidArgument says what does not.
absl::Status CheckTrial(const TrialRecord& trial);

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_RECORDS_FIELDS_H_
