// Records: every trial ever made, durable in one SQLite file (docs/records.md).
#ifndef HEDDLE_TUNER_RECORDS_H_
#define HEDDLE_TUNER_RECORDS_H_

#include <cstdint>
#include <iosfwd>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "measure/measurer.h"
#include "measure/outcome.h"
#include "search_space/tensor_program.h"

namespace heddle::tuner {

// The device, software and policy a time was measured under. Times compare within one environment.
struct Environment {
  std::string device_name;
  std::string device_uuid;
  std::string arch;
  int64_t sm_count = 0;
  std::string driver;
  std::string compiler;
  int generator_version = 0;
  int feature_version = 0;
  measure::L2Policy l2 = measure::L2Policy::kCold;
};
Environment MakeEnvironment(const measure::DeviceInfo& device, measure::L2Policy l2);

enum class TrialStage : uint8_t { kScreening, kFinal };
enum class Origin : uint8_t { kMeasured, kImported };

struct TrialRecord {
  int64_t id = 0;  // assigned by the database
  std::string workload_hash;
  std::string point;  // SearchSpace::Print; empty for hand-written steps
  std::string steps;  // text; kept for finals and imports, empty otherwise
  TrialStage stage = TrialStage::kScreening;
  Origin origin = Origin::kMeasured;
  measure::TrialResult result;
  bool throttled = false;
  int other_processes = 0;
  absl::Time when;
};

// One open database. Thread-compatible; a second process may use the same file.
class Records {
 public:
  // Opens or creates. "" = $HEDDLE_DB, else heddle/heddle.db in the user's data folder. Refuses
  // with FailedPrecondition and the remedy: a file that is not one of ours, a newer schema, a
  // corrupt file; read-only files open for reading (writes give PermissionDenied).
  static absl::StatusOr<std::unique_ptr<Records>> Open(const std::string& path);
  static std::string DefaultPath();
  virtual ~Records() = default;

  // Durable when it returns OK. Workload and environment rows are created as needed.
  virtual absl::StatusOr<int64_t> AddTrial(const search_space::TensorProgram& program,
                                           const Environment& environment,
                                           const TrialRecord& trial) = 0;
  // A candidate that is about to run: should the host go down with it, it is not proposed again.
  virtual absl::Status AddIntent(const search_space::TensorProgram& program,
                                 const Environment& environment, const std::string& point) = 0;
  virtual absl::Status ClearIntent(const search_space::TensorProgram& program,
                                   const Environment& environment, const std::string& point) = 0;
  // Points whose intent was never cleared (they took their host down), for this workload.
  virtual absl::StatusOr<std::vector<std::string>> StaleIntents(
      const search_space::TensorProgram& program, const Environment& environment) = 0;

  // Every trial of a workload under a policy on a device model, oldest first.
  virtual absl::StatusOr<std::vector<TrialRecord>> Trials(
      const search_space::TensorProgram& program, const Environment& environment) = 0;

  // The best final of (workload, device name, L2 policy) that was measured or confirmed here.
  struct Best {
    TrialRecord trial;
    Environment environment;
  };
  virtual absl::StatusOr<std::optional<Best>> FindBest(const std::string& workload_hash,
                                                       const std::string& device_name,
                                                       measure::L2Policy l2) = 0;
  // Workloads of the same operator that have a served final on this device: for nearest queries.
  struct Neighbour {
    std::string workload_hash;
    std::map<std::string, int64_t> shape;
    std::string dtype;
  };
  virtual absl::StatusOr<std::vector<Neighbour>> Neighbours(const std::string& op,
                                                            const std::string& device_name,
                                                            measure::L2Policy l2) = 0;

  // JSON lines, one trial each with its workload and environment. Import adds what is not there yet
  // (identity: workload, environment, point or steps, stage, time, moment), marks it imported, and
  // reports malformed lines by number.
  virtual absl::StatusOr<int64_t> Export(std::ostream& out) = 0;
  struct ImportReport {
    int64_t added = 0, duplicate = 0;
    std::vector<std::string> rejected;  // "line 3: ..."
  };
  virtual absl::StatusOr<ImportReport> Import(std::istream& in) = 0;
  // A consistent copy (VACUUM INTO) while others write.
  virtual absl::Status Backup(const std::string& path) = 0;

  virtual bool read_only() const = 0;
  virtual const std::string& path() const = 0;
};

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_H_
