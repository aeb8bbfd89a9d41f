// What the subcommands share: their common flags, what these flags name, and how a command ends.
#ifndef HEDDLE_CLI_COMMAND_H_
#define HEDDLE_CLI_COMMAND_H_

#include <CLI/CLI.hpp>
#include <functional>
#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/files.h"
#include "measure/run/measurer.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"
#include "search_space/sketch/search_space.h"
#include "tuner/artefact/query.h"
#include "tuner/records/records.h"

namespace heddle::cli {

// Keys keep their order, so that documents read as they are described.
using Json = nlohmann::ordered_json;

// Exit codes (README).
enum ExitCode {
  kDone = 0,
  kFailed = 1,
  kBadArguments = 2,
  kNoValidSchedule = 3,
  kUnavailable = 4,
  kDeadline = 5,
  kInterrupted = 130,
};
// The one place where an error becomes an exit code: InvalidArgument, NotFound and OutOfRange are
// the caller's arguments; FailedPrecondition: there is no valid schedule, or a server cannot do it
// as things stand; Unavailable: no server or device; DeadlineExceeded; Cancelled: interrupted;
// everything else failed.
int ExitCodeOf(const absl::Status& status);

// The same status under another code, where a caller knows better whose fault it is.
absl::Status WithCode(absl::StatusCode code, const absl::Status& status);

// A command's result: its exit code, or the error that main prints and maps.
using Result = absl::StatusOr<int>;
using Action = std::function<Result()>;
// The parsed command line: set by the subcommand that was named.
using Selected = std::shared_ptr<Action>;

// Each adds its subcommands to `app`; parsing one of them sets `*selected`.
void AddOps(CLI::App& app, Selected selected);
void AddDevices(CLI::App& app, Selected selected);
void AddTune(CLI::App& app, Selected selected);
void AddQuery(CLI::App& app, Selected selected);
void AddShow(CLI::App& app, Selected selected);
void AddExplain(CLI::App& app, Selected selected);
void AddTime(CLI::App& app, Selected selected);
void AddSpace(CLI::App& app, Selected selected);
void AddExport(CLI::App& app, Selected selected);
void AddRecords(CLI::App& app, Selected selected);
void AddRetract(CLI::App& app, Selected selected);
void AddMeasured(CLI::App& app, Selected selected);
void AddServe(CLI::App& app, Selected selected);
void AddToken(CLI::App& app, Selected selected);
void AddJobs(CLI::App& app, Selected selected);
// `app` must outlive the command.
void AddManual(CLI::App& app, Selected selected);

// Accepts these values of an option; another is refused with the nearest of them, or with all.
CLI::Validator OneOf(std::vector<std::string> values);

// ------------------------------------------------------------------------------------- workload

using Workload = std::shared_ptr<const search_space::TensorProgram>;

struct WorkloadFlags {
  std::string op, shape, dtype = "float32", op_file;
  std::string canonical;  // a workload's canonical text, in the place of all others
  // `positional`: whether the operator's name must be given.
  void Add(CLI::App& app, bool op_required = true);
  absl::StatusOr<Workload> Get() const { return Get(op, shape); }
  // The same file and data type with another operator and shape.
  absl::StatusOr<Workload> Get(const std::string& op_name, const std::string& shape_text) const;
  // The flags that name this workload again, for the command lines that messages suggest.
  std::string CommandLine() const;
};

// "m=512,n=512"
std::string ShapeText(const search_space::TensorProgram& program);

// --------------------------------------------------------------------------------------- device

measure::L2Policy PolicyOf(const std::string& l2);
void AddL2Flag(CLI::App& app, std::string& l2);
// The same for a command that looks something up: "" where it is not given, for SettleL2.
void AddStoredL2Flag(CLI::App& app, std::string& l2);

// A device of this machine, or the description of one that need not be here.
struct DeviceFlags {
  std::string device = "auto", target;
  void Add(CLI::App& app, bool with_target);
  // The device; a target has none. Unavailable says what exists.
  absl::StatusOr<measure::DeviceInfo> FindDevice() const;
  // With --target a DeviceInfo whose id is empty and whose `target` is what was asked for.
  absl::StatusOr<measure::DeviceInfo> FindDeviceOrTarget() const;
};

// ------------------------------------------------------------------------------------- database

void AddDbFlag(CLI::App& app, std::string& db);
// Where a server of this database listens, and its clients look, unless told otherwise: a socket
// beside it, where nobody else may connect.
std::string DefaultSocket(const std::string& db);
// Problems with the file are the caller's to solve: InvalidArgument.
absl::StatusOr<std::unique_ptr<tuner::Records>> OpenRecords(const std::string& db);
// The same for a command that is going to write.
absl::StatusOr<std::unique_ptr<tuner::Records>> OpenWritableRecords(const std::string& db);
// The best stored schedule; FailedPrecondition tells how to get one.
absl::StatusOr<tuner::Records::Best> FindBest(tuner::Records& records,
                                              const search_space::TensorProgram& program,
                                              const measure::DeviceInfo& device,
                                              measure::L2Policy l2,
                                              const std::string& tune_command);

// Which policy was taken where none was asked for, and why.
void SayWarmOnly();
// Where `l2` is "" the policy under which the workload was tuned on the device: cold, or, which is
// said, warm where that is the only one; cold where there is none.
absl::Status SettleL2(tuner::Records& records, const search_space::TensorProgram& program,
                      const measure::DeviceInfo& device, std::string& l2);

// What a record says of what would be built here; for a device that is only described, with the
// compiler that is here.
tuner::Verdict JudgeHere(const tuner::Records::Best& best, const Workload& program,
                         measure::DeviceInfo device);

// -------------------------------------------------------------------------------------- schedule

// A schedule of a workload and where it comes from.
struct Chosen {
  std::vector<search_space::Step> steps;
  std::string point;   // empty where it was not made from one
  std::string origin;  // "default schedule", "best of the database", ...
  std::optional<tuner::Records::Best> best;
  std::optional<tuner::Verdict> verdict;  // of `best`, on the device that it was chosen for
};

struct ScheduleFlags {
  bool naive = false, best = false, use_default = false;
  std::string point, steps_file;
  void Add(CLI::App& app);
  bool any() const;
  // Settles `l2`.
  absl::StatusOr<Chosen> Choose(const Workload& program, const measure::DeviceInfo& device,
                                std::string& l2, const std::string& db,
                                const std::string& tune_command) const;
};

// The steps of a stored trial at `program`.
absl::StatusOr<Chosen> ChooseStored(const tuner::Records::Best& best);

// ---------------------------------------------------------------------------------------- output

// One JSON document on stdout.
void PrintJson(const Json& json);
// A line on stderr.
void Say(const std::string& line);

// A result: the document with --json, else the line.
void Print(bool json, const Json& document, const std::string& line);
// Several: with --json one array at the end, else a line each as they come.
class Listing {
 public:
  explicit Listing(bool json) : json_(json) {}
  void Add(Json document, const std::string& line);
  Result End() const;

 private:
  const bool json_;
  Json all_ = Json::array();
};

Json DeviceJson(const measure::DeviceInfo& device);
Json ShapeJson(const std::map<std::string, int64_t>& shape);
Json EnvironmentJson(const tuner::Environment& environment);
// The steps, one string each.
Json StepsJson(const std::vector<search_space::Step>& steps);
// A number, or null where it is 0 and thus unknown.
Json KnownOrNull(double value);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_COMMAND_H_
