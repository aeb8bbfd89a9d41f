// heddle query: the best known schedule of a workload, or the nearest to it.
#include <iostream>
#include <map>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/schedules.h"
#include "measure/judge/inputs.h"
#include "tuner/model/roofline.h"

namespace heddle::cli {
namespace {

using tuner::Match;

const std::map<std::string, tuner::Fallback> kFallbacks = {{"none", tuner::Fallback::kNone},
                                                           {"nearest", tuner::Fallback::kNearest},
                                                           {"default", tuner::Fallback::kDefault}};

struct QueryFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  ServerFlags server;
  std::string fallback = "none", l2, db;
  bool json = false;
};

Json ToJson(const search_space::TensorProgram& program, const Known& known,
            const std::vector<search_space::Step>& steps) {
  const tuner::Answer& answer = known.answer;
  Json json{{"found", answer.match != Match::kNone},
            {"match", NameOf(answer.match)},
            {"validated", known.validated}};
  if (known.confirmations) json["confirmations"] = *known.confirmations;
  json.update({{"op", program.op},
               {"shape", ShapeJson(program.shape)},
               {"device", known.device},
               {"time_us", nullptr},
               {"time_ci_us", nullptr},
               {"standing", nullptr},
               {"stale_because", Json::array()},
               {"steps", StepsJson(steps)},
               {"fingerprint", nullptr}});
  // A neighbour's time is not this shape's.
  if (answer.match == Match::kExact) {
    const measure::TrialResult& result = answer.source->trial.result;
    json["time_us"] = result.time_us;
    json["time_ci_us"] = {result.ci_low_us, result.ci_high_us};
    json["standing"] = NameOf(known.verdict->standing);
    json["stale_because"] = known.verdict->changed;
  }
  if (answer.source) {
    json["fingerprint"] = EnvironmentJson(answer.source->environment);
    json["fingerprint"]["source_hash"] = answer.source->trial.result.source_hash;
  }
  return json;
}

Result RunQuery(const QueryFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(program, flags.workload.Get());
  HEDDLE_RETURN_IF_ERROR(measure::CheckTypes(*program));
  HEDDLE_ASSIGN_OR_RETURN(schedules, OpenSchedules(flags.server, flags.db));
  HEDDLE_ASSIGN_OR_RETURN(
      known, schedules->Query({program, flags.device, flags.l2, kFallbacks.at(flags.fallback)}));
  // Text that was made by another version may not be understood: better said here than later.
  HEDDLE_ASSIGN_OR_RETURN(steps, search_space::ParseSteps(known.answer.steps));
  const Match match = known.answer.match;
  if (flags.json) {
    PrintJson(ToJson(*program, known, steps));
  } else if (match != Match::kNone) {
    std::cout << known.answer.steps;
  }
  const Place place = schedules->place();
  if (match == Match::kNone) {
    Say(absl::StrCat("heddle: no schedule found for ", known.device, " ", place.where,
                     ". Make one: ", place.tune, " ", flags.workload.CommandLine(),
                     ", or try --fallback nearest or default."));
    return kNoValidSchedule;
  }
  if (match != Match::kExact) {
    Say(absl::StrCat(NameOf(match), ": not measured at this shape; tuning it will do better"));
    return kDone;
  }
  const measure::TrialResult& result = known.answer.source->trial.result;
  Say(absl::StrCat("exact: ", tuner::FormatTime(result.time_us), " (",
                   tuner::FormatTime(result.ci_low_us), " .. ",
                   tuner::FormatTime(result.ci_high_us), ")"));
  if (const std::string stale = known.verdict->Text(); !stale.empty()) {
    Say(absl::StrCat(stale, place.measures_here ? "; to measure it again: heddle time " +
                                                      flags.workload.CommandLine() + " --best"
                                                : ""));
  }
  return kDone;
}

}  // namespace

void AddQuery(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<QueryFlags>();
  CLI::App* sub = app.add_subcommand("query", "the best known schedule of a workload");
  flags->workload.Add(*sub);
  flags->device.Add(*sub, true);
  sub->add_option(
         "--fallback", flags->fallback,
         "where this workload was not tuned: nothing, the nearest shape's schedule, or the "
         "default schedule")
      ->type_name("none|nearest|default")
      ->check(OneOf({"none", "nearest", "default"}))
      ->capture_default_str();
  AddStoredL2Flag(*sub, flags->l2);
  AddDbFlag(*sub, flags->db);
  sub->add_flag("--json", flags->json, "JSON on stdout");
  sub->footer(
      "Exit code 3 when nothing was found. With --server, --device is the full name of a device's\n"
      "model, as `heddle devices --server` prints it; without it the only one that the server\n"
      "knows.");
  flags->server.Add(*sub, false);
  sub->callback([=] { *selected = [=] { return RunQuery(*flags); }; });
}

}  // namespace heddle::cli
