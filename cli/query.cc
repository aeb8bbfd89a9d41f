// heddle query: the best known schedule of a workload, or the nearest to it.
#include "tuner/artefact/query.h"

#include <iostream>

#include "absl/strings/str_cat.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "search_space/notation/notation.h"
#include "tuner/model/roofline.h"
#include "tuner/search/default_point.h"

namespace heddle::cli {
namespace {

using tuner::Match;

struct QueryFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  ServerFlags server;
  std::string fallback = "none", l2, db;
  bool json = false;
};

absl::StatusOr<tuner::Answer> Ask(const QueryFlags& flags, const Workload& program,
                                  const measure::DeviceInfo& device, tuner::Records& records) {
  const tuner::Bench bench = tuner::BenchOf(device, PolicyOf(flags.l2));
  auto exact = tuner::FindExact(*program, bench, records);
  if (!exact.ok() || exact->match == Match::kExact) return exact;
  if (flags.fallback == "nearest")
    return tuner::FindNearest(program, device.target, bench, records);
  if (flags.fallback == "default") return tuner::MakeDefault(program, device.target);
  return exact;
}

Json ToJson(const search_space::TensorProgram& program, const measure::DeviceInfo& device,
            const tuner::Answer& answer, const std::optional<tuner::Verdict>& verdict,
            const std::vector<search_space::Step>& steps) {
  bool exact = answer.match == Match::kExact;
  Json json{{"found", answer.match != Match::kNone},
            {"match", NameOf(answer.match)},
            {"validated", exact},
            {"op", program.op},
            {"shape", ShapeJson(program.shape)},
            {"device", device.target.name},
            {"time_us", nullptr},
            {"time_ci_us", nullptr},
            {"standing", nullptr},
            {"stale_because", Json::array()},
            {"steps", StepsJson(steps)},
            {"fingerprint", nullptr}};
  // A neighbour's time is not this shape's.
  if (exact) {
    const measure::TrialResult& result = answer.source->trial.result;
    json["time_us"] = result.time_us;
    json["time_ci_us"] = {result.ci_low_us, result.ci_high_us};
  }
  if (verdict) {
    json["standing"] = NameOf(verdict->standing);
    json["stale_because"] = verdict->changed;
  }
  if (answer.source) {
    json["fingerprint"] = EnvironmentJson(answer.source->environment);
    json["fingerprint"]["source_hash"] = answer.source->trial.result.source_hash;
  }
  return json;
}

Result RunQuery(QueryFlags flags) {
  auto program = flags.workload.Get();
  if (!program.ok()) return program.status();
  auto device = flags.device.FindDeviceOrTarget();
  if (!device.ok()) return device.status();
  auto records = OpenRecords(flags.db);
  if (!records.ok()) return records.status();
  if (absl::Status s = SettleL2(**records, **program, *device, flags.l2); !s.ok()) return s;
  auto answer = Ask(flags, *program, *device, **records);
  if (!answer.ok()) return answer.status();
  // Text that was made by another version may not be understood: better said here than later.
  auto steps = search_space::ParseSteps(answer->steps);
  if (!steps.ok()) return steps.status();
  bool found = answer->match != Match::kNone;
  std::optional<tuner::Verdict> verdict;
  if (answer->match == Match::kExact) verdict = JudgeHere(*answer->source, *program, *device);
  if (flags.json) {
    PrintJson(ToJson(**program, *device, *answer, verdict, *steps));
  } else if (found) {
    std::cout << answer->steps;
  }
  if (!found) {
    Say(absl::StrCat("heddle: no schedule found for ", device->target.name, " in ",
                     (*records)->path(), ". Make one: heddle tune ", flags.workload.CommandLine(),
                     ", or try --fallback nearest or default."));
    return kFailed;
  }
  if (answer->match == Match::kExact) {
    const measure::TrialResult& result = answer->source->trial.result;
    Say(absl::StrCat("exact: ", tuner::FormatTime(result.time_us), " (",
                     tuner::FormatTime(result.ci_low_us), " .. ",
                     tuner::FormatTime(result.ci_high_us), ")"));
    if (verdict->standing != tuner::Standing::kMeasured) {
      Say(absl::StrCat(verdict->Text(), "; to measure it again: heddle time ",
                       flags.workload.CommandLine(), " --best"));
    }
  } else {
    Say(absl::StrCat(NameOf(answer->match),
                     ": not measured at this shape; tuning it will do better"));
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
      "Exit code 1 when nothing was found. With --server, --device is the full name of a device's\n"
      "model, as `heddle devices --server` prints it; without it the only one that the server\n"
      "knows.");
  flags->server.Add(*sub, false);
  sub->callback([=] {
    if (!flags->server.given()) {
      *selected = [=] { return RunQuery(*flags); };
      return;
    }
    *selected = WithServer(flags->server, [=](client::Client& client) {
      const std::string& device = flags->device.device;
      return QueryServer(client, {flags->workload, device == "auto" ? "" : device, flags->fallback,
                                  flags->l2, flags->json});
    });
  });
}

}  // namespace heddle::cli
