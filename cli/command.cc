#include "cli/command.h"

#include <filesystem>
#include <iostream>

#include "absl/algorithm/container.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/string_view.h"
#include "base/nearest_name.h"
#include "base/status.h"
#include "measure/device/cuda/nvrtc.h"
#include "measure/run/detect.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/notation_limits.h"
#include "server/db/replica.h"
#include "tuner/search/default_point.h"

namespace heddle::cli {

using search_space::TensorProgram;

int ExitCodeOf(const absl::Status& status) {
  switch (status.code()) {
    case absl::StatusCode::kOk:
      return kDone;
    case absl::StatusCode::kInvalidArgument:
    case absl::StatusCode::kNotFound:
    case absl::StatusCode::kOutOfRange:
      return kBadArguments;
    case absl::StatusCode::kFailedPrecondition:
      return kNoValidSchedule;
    case absl::StatusCode::kUnavailable:
      return kUnavailable;
    case absl::StatusCode::kDeadlineExceeded:
      return kDeadline;
    case absl::StatusCode::kCancelled:
      return kInterrupted;
    default:
      return kFailed;
  }
}

absl::Status WithCode(absl::StatusCode code, const absl::Status& status) {
  return absl::Status(code, status.message());
}

CLI::Validator OneOf(std::vector<std::string> values) {
  // An empty description: type_name says what is possible.
  return CLI::Validator(
      [values = std::move(values)](const std::string& value) -> std::string {
        if (absl::c_linear_search(values, value)) return "";
        return absl::StrCat("unknown value '", absl::CHexEscape(value), "'",
                            Suggest(value, values));
      },
      "");
}

// ------------------------------------------------------------------------------------- workload

void WorkloadFlags::Add(CLI::App& app, bool op_required) {
  auto* name = app.add_option("op", op, "operator: see `heddle ops`")->type_name("OP");
  if (op_required) name->required();
  app.add_option("--shape", shape, "every parameter without a default, such as m=512,n=512,k=512")
      ->type_name("k=v,...");
  app.add_option("--dtype", dtype, "data type of the tensors that name none")
      ->type_name("T")
      ->capture_default_str();
  app.add_option("--op-file", op_file, "a file of operators in tensor notation; OP is one of them")
      ->type_name("FILE");
}

absl::StatusOr<Workload> WorkloadFlags::Get(const std::string& op_name,
                                            const std::string& shape_text) const {
  std::vector<search_space::Operator> own;
  if (!op_file.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(text, ReadTextFile(op_file, search_space::kMaxNotationBytes));
    auto parsed = search_space::ParseOperators(text);
    if (!parsed.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(op_file, ":", parsed.status().message()));
    }
    own = *std::move(parsed);
  }
  auto found =
      search_space::FindOperator(op_file.empty() ? search_space::BuiltinOperators() : own, op_name);
  if (!found.ok()) {
    if (!op_file.empty()) return found.status();
    const absl::string_view message = found.status().message();
    return absl::NotFoundError(absl::StrCat(message, absl::EndsWith(message, "?") ? "" : ".",
                                            " For an operator of your own, tuned before or not, "
                                            "give the file it is in: --op-file FILE"));
  }
  HEDDLE_ASSIGN_OR_RETURN(type, search_space::ParseDType(dtype));
  auto values = search_space::ParseShape(shape_text);
  if (!values.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--shape: ", values.status().message()));
  }
  auto program = found->Instantiate(*values, type);
  if (program.ok()) return std::make_shared<const TensorProgram>(*std::move(program));
  // "10:25: ..." is a place in the operator's text, anything else the shape's fault.
  const std::string message(program.status().message());
  if (message.empty() || !absl::ascii_isdigit(static_cast<unsigned char>(message[0]))) {
    return program.status();
  }
  return absl::InvalidArgumentError(
      absl::StrCat(op_file.empty() ? "operator " + op_name : op_file, ":", message));
}

std::string WorkloadFlags::CommandLine() const {
  std::string line = op;
  if (!shape.empty()) absl::StrAppend(&line, " --shape ", shape);
  if (dtype != "float32") absl::StrAppend(&line, " --dtype ", dtype);
  if (!op_file.empty()) absl::StrAppend(&line, " --op-file ", op_file);
  return line;
}

std::string ShapeText(const TensorProgram& program) {
  return absl::StrJoin(program.shape, ",", absl::PairFormatter("="));
}

// --------------------------------------------------------------------------------------- device

measure::L2Policy PolicyOf(const std::string& l2) {
  return l2 == "warm" ? measure::L2Policy::kWarm : measure::L2Policy::kCold;
}

namespace {

CLI::Option* AddPolicy(CLI::App& app, std::string& l2, const std::string& otherwise) {
  return app
      .add_option("--l2", l2,
                  "cold: inputs rotate over more than twice the last-level cache; warm: they stay" +
                      otherwise)
      ->type_name("cold|warm")
      ->check(OneOf({"cold", "warm"}));
}

}  // namespace

void AddL2Flag(CLI::App& app, std::string& l2) {
  l2 = "cold";
  AddPolicy(app, l2, "")->capture_default_str();
}

void AddStoredL2Flag(CLI::App& app, std::string& l2) {
  AddPolicy(app, l2, " [cold, or warm where it was tuned so only]");
}

void DeviceFlags::Add(CLI::App& app, bool with_target) {
  auto* option =
      app.add_option("--device", device, "auto, cuda:N or opencl:N; see `heddle devices`")
          ->type_name("D")
          ->capture_default_str();
  if (!with_target) return;
  app.add_option("--target", target,
                 "a described device instead of one that is here: " +
                     absl::StrJoin(search_space::TargetNames(), ", "))
      ->type_name("NAME")
      ->excludes(option);
}

absl::StatusOr<measure::DeviceInfo> DeviceFlags::FindDevice() const {
  auto found = measure::FindDevice(device);
  if (found.status().code() == absl::StatusCode::kNotFound) {
    return WithCode(absl::StatusCode::kUnavailable, found.status());
  }
  return found;
}

absl::StatusOr<measure::DeviceInfo> DeviceFlags::FindDeviceOrTarget() const {
  if (target.empty()) return FindDevice();
  HEDDLE_ASSIGN_OR_RETURN(found, search_space::FindTarget(target));
  measure::DeviceInfo described;
  described.target = std::move(found);
  described.usable = false;
  described.why_not = "a description only: give --device instead of --target to run something";
  return described;
}

// ------------------------------------------------------------------------------------- database

void AddDbFlag(CLI::App& app, std::string& db) {
  app.add_option(
         "--db", db,
         "database of records [$HEDDLE_DB, else heddle/heddle.db in the user's data folder]")
      ->type_name("FILE");
}

std::string DefaultSocket(const std::string& db) {
  const std::string path = db.empty() ? tuner::Records::DefaultPath() : db;
  return absl::StrCat("unix:", std::filesystem::absolute(path).string(), ".sock");
}

absl::StatusOr<std::unique_ptr<tuner::Records>> OpenRecords(const std::string& db) {
  auto records = tuner::Records::Open(db);
  switch (records.status().code()) {
    case absl::StatusCode::kFailedPrecondition:
    case absl::StatusCode::kPermissionDenied:
    case absl::StatusCode::kDataLoss:
      return WithCode(absl::StatusCode::kInvalidArgument, records.status());
    default:
      return records;
  }
}

absl::StatusOr<std::unique_ptr<tuner::Records>> OpenWritableRecords(const std::string& db) {
  auto records = OpenRecords(db);
  if (records.ok() && server::IsReplica((*records)->path())) {
    return absl::InvalidArgumentError(
        absl::StrCat((*records)->path(),
                     " is a replica, which the next copy of its primary overwrites: name that "
                     "with --db, or start a server on this one, which then is a primary itself"));
  }
  if (!records.ok() || !(*records)->read_only()) return records;
  if (!(*records)->damage().empty()) return absl::InvalidArgumentError((*records)->damage());
  return absl::InvalidArgumentError(
      absl::StrCat((*records)->path(),
                   " can only be read, so trials could not be kept: choose "
                   "another --db or change its permissions"));
}

void SayWarmOnly() { Say("It was tuned with --l2 warm only: that is what is taken."); }

absl::Status SettleL2(tuner::Records& records, const TensorProgram& program,
                      const measure::DeviceInfo& device, std::string& l2) {
  if (!l2.empty()) return absl::OkStatus();
  for (const char* policy : {"cold", "warm"}) {
    HEDDLE_ASSIGN_OR_RETURN(
        best, records.FindBest(program.hash, tuner::BenchOf(device, PolicyOf(policy))));
    if (best.has_value()) {
      l2 = policy;
      break;
    }
  }
  if (l2 == "warm") SayWarmOnly();
  if (l2.empty()) l2 = "cold";
  return absl::OkStatus();
}

absl::StatusOr<tuner::Records::Best> FindBest(tuner::Records& records, const TensorProgram& program,
                                              const measure::DeviceInfo& device,
                                              measure::L2Policy l2,
                                              const std::string& tune_command) {
  HEDDLE_ASSIGN_OR_RETURN(best, records.FindBest(program.hash, tuner::BenchOf(device, l2)));
  if (best.has_value()) return *std::move(best);
  return absl::FailedPreconditionError(
      absl::StrCat("no tuned schedule of ", program.op, " ", ShapeText(program), " on ",
                   device.target.name, " (", measure::NameOf(l2), " L2) in ", records.path(),
                   ". Make one: heddle tune ", tune_command));
}

tuner::Verdict JudgeHere(const tuner::Records::Best& best, const Workload& program,
                         measure::DeviceInfo device) {
  if (device.compiler.empty() && device.target.api == search_space::Api::kCuda) {
    const auto nvrtc = measure::FindNvrtc();
    if (nvrtc.ok()) device.compiler = measure::NameOf(*nvrtc);
  }
  return tuner::Judge(best, program, device);
}

// -------------------------------------------------------------------------------------- schedule

void ScheduleFlags::Add(CLI::App& app) {
  auto* group = app.add_option_group("schedule", "which schedule");
  group->add_flag("--best", best, "the best of the database");
  group->add_flag("--default", use_default, "the one that is trial 1 of every session");
  group->add_flag("--naive", naive, "one thread per output element, one kernel per stage");
  group->add_option("--point", point, "a point, as `heddle space --sample` prints them")
      ->type_name("P");
  group->add_option("--steps", steps_file, "a file of steps, as `heddle show` prints them")
      ->type_name("FILE");
  group->require_option(0, 1);
}

bool ScheduleFlags::any() const {
  return naive || best || use_default || !point.empty() || !steps_file.empty();
}

absl::StatusOr<Chosen> ChooseStored(const tuner::Records::Best& best) {
  auto steps = search_space::ParseSteps(best.trial.steps);
  if (!steps.ok()) {
    return absl::InternalError(absl::StrCat("record ", best.trial.id,
                                            " holds steps that cannot be "
                                            "read: ",
                                            steps.status().message()));
  }
  return Chosen{*std::move(steps), best.trial.point, "best of the database", best};
}

absl::StatusOr<Chosen> ScheduleFlags::Choose(const Workload& program,
                                             const measure::DeviceInfo& device, std::string& l2,
                                             const std::string& db,
                                             const std::string& tune_command) const {
  if (l2.empty() && !best) l2 = "cold";
  if (naive) return Chosen{search_space::NaiveSteps(*program), "", "naive schedule", {}};
  if (!steps_file.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(text, ReadTextFile(steps_file, 1 << 20));
    auto steps = search_space::ParseSteps(text);
    if (!steps.ok()) {
      return absl::InvalidArgumentError(absl::StrCat(steps_file, ": ", steps.status().message()));
    }
    return Chosen{*std::move(steps), "", "steps of " + steps_file, {}};
  }
  if (best) {
    HEDDLE_ASSIGN_OR_RETURN(records, OpenRecords(db));
    HEDDLE_RETURN_IF_ERROR(SettleL2(*records, *program, device, l2));
    HEDDLE_ASSIGN_OR_RETURN(found,
                            FindBest(*records, *program, device, PolicyOf(l2), tune_command));
    HEDDLE_ASSIGN_OR_RETURN(stored, ChooseStored(found));
    stored.verdict = JudgeHere(found, program, device);
    if (const std::string text = stored.verdict->Text(); !text.empty()) {
      absl::StrAppend(&stored.origin, ", ", text);
    }
    return stored;
  }
  HEDDLE_ASSIGN_OR_RETURN(space, search_space::SearchSpace::Create(program, device.target));
  absl::StatusOr<search_space::Point> p =
      point.empty() ? tuner::DefaultPoint(space) : space.Parse(point);
  if (!p.ok()) {
    return absl::InvalidArgumentError(absl::StrCat("--point: ", p.status().message()));
  }
  HEDDLE_ASSIGN_OR_RETURN(steps, space.Steps(*p));
  return Chosen{std::move(steps),
                space.Print(*p),
                point.empty() ? "default schedule" : "the given point",
                {}};
}

// ---------------------------------------------------------------------------------------- output

void PrintJson(const Json& json) {
  // Messages of compilers may hold anything: what is not UTF-8 is replaced, never thrown at.
  std::cout << json.dump(2, ' ', false, Json::error_handler_t::replace) << std::endl;
}

void Print(bool json, const Json& document, const std::string& line) {
  if (json) {
    PrintJson(document);
  } else {
    std::cout << line << "\n";
  }
}

void Listing::Add(Json document, const std::string& line) {
  if (json_) {
    all_.push_back(std::move(document));
  } else {
    std::cout << line << "\n";
  }
}

Result Listing::End() const {
  if (json_) PrintJson(all_);
  return kDone;
}

// In one piece: several threads may have something to say.
void Say(const std::string& line) { std::cerr << line + "\n" << std::flush; }

Json ShapeJson(const std::map<std::string, int64_t>& shape) {
  Json json = Json::object();
  for (const auto& [name, value] : shape) json[name] = value;
  return json;
}

Json EnvironmentJson(const tuner::Environment& e) {
  return Json{{"device", e.device_name},
              {"uuid", e.device_uuid},
              {"arch", e.arch},
              {"sm_count", e.sm_count},
              {"driver", e.driver},
              {"compiler", e.compiler},
              {"generator", e.generator_version},
              {"features", e.feature_version},
              {"l2", measure::NameOf(e.l2)},
              {"memory_mib", e.memory_mib},
              {"power_limit_w", e.power_limit_w}};
}

Json StepsJson(const std::vector<search_space::Step>& steps) {
  Json json = Json::array();
  for (const auto& step : steps) json.push_back(search_space::ToString(step));
  return json;
}

Json KnownOrNull(double value) { return value > 0 ? Json(value) : Json(nullptr); }

}  // namespace heddle::cli
