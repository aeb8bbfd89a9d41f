// What commands ask of schedules and records, wherever these are kept: in a database of this
// user's, or with a server.
#ifndef HEDDLE_CLI_SCHEDULES_H_
#define HEDDLE_CLI_SCHEDULES_H_

#include <iosfwd>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "tuner/artefact/query.h"
#include "tuner/records/records.h"
#include "tuner/search/default_point.h"

namespace heddle::cli {

struct Question {
  Workload workload;
  DeviceFlags device;  // of a server only `device`, a model's full name; "auto": the only one
  // "" = cold where there is an exact answer for it, else warm where there is one. Fallbacks are
  // then for cold.
  std::string l2;
  tuner::Fallback fallback = tuner::Fallback::kNone;
};

// What is known of a workload on a device.
struct Known {
  tuner::Answer answer;
  std::string device;                     // the model that was answered for
  std::optional<tuner::Verdict> verdict;  // of an exact answer
  bool validated = false;
  std::optional<int> confirmations;  // by other hosts, where anybody asks them
};

// Where answers come from, in words for people.
struct Place {
  std::string where;   // "in PATH"
  const char* tune;    // the command that makes a schedule
  bool measures_here;  // `heddle time` can measure one again
};

class Schedules {
 public:
  virtual ~Schedules() = default;

  virtual absl::StatusOr<Known> Query(const Question& question) = 0;
  virtual Place place() const = 0;

  // As those of tuner::Records, whichever format a server has.
  virtual absl::StatusOr<tuner::Records::ExportReport> Export(std::ostream& out) = 0;
  virtual absl::StatusOr<tuner::Records::ImportReport> Import(std::istream& in) = 0;
};

// The server's that is given, else those of the database `db`.
absl::StatusOr<std::unique_ptr<Schedules>> OpenSchedules(const ServerFlags& server,
                                                         const std::string& db);
absl::StatusOr<std::unique_ptr<Schedules>> OpenLocalSchedules(const std::string& db);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_SCHEDULES_H_
