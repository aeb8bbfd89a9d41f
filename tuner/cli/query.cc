// heddle query: the best known schedule of a workload, or the nearest to it.
#include <algorithm>
#include <cmath>
#include <iostream>

#include "absl/strings/str_cat.h"
#include "search_space/notation.h"
#include "tuner/build.h"
#include "tuner/cli/command.h"
#include "tuner/roofline.h"

namespace heddle::cli {
namespace {

struct QueryFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  std::string fallback = "none", l2, db;
  bool json = false;
};

// How a query was answered.
struct Answer {
  std::string match = "none";  // exact, nearest, default, none
  std::vector<search_space::Step> steps;
  std::optional<tuner::Records::Best> source;
};

// Sum over the parameters of |log(a / b)|: doubling one size counts alike wherever it starts.
// Infinite where the parameters differ in more than size.
double Distance(const std::map<std::string, int64_t>& a, const std::map<std::string, int64_t>& b) {
  double distance = 0;
  for (const auto& [name, value] : a) {
    auto other = b.find(name);
    if (other == b.end()) return INFINITY;
    // Parameters such as pad may be 0.
    distance += std::abs(
        std::log((static_cast<double>(value) + 1) / (static_cast<double>(other->second) + 1)));
  }
  return distance;
}

// The stored schedule at the asked shape: by its point where it has one, since a point's steps
// follow the shape.
absl::StatusOr<std::vector<search_space::Step>> Transfer(const tuner::TrialRecord& trial,
                                                         const Workload& program,
                                                         const search_space::SearchSpace& space) {
  auto point = space.Parse(trial.point);
  auto steps = !trial.point.empty() && point.ok() ? space.Steps(*point)
                                                  : search_space::ParseSteps(trial.steps);
  if (!steps.ok()) return steps.status();
  auto built = tuner::BuildSource(program, *steps, space.target());
  if (!built.ok()) return built.status();
  return steps;
}

absl::StatusOr<Answer> Nearest(const Workload& program, const measure::DeviceInfo& device,
                               measure::L2Policy l2, tuner::Records& records) {
  auto neighbours = records.Neighbours(program->op, device.target.name, l2);
  if (!neighbours.ok()) return neighbours.status();
  std::vector<std::pair<double, std::string>> nearest;
  for (const auto& n : *neighbours) {
    if (n.dtype != search_space::NameOf(program->dtype)) continue;
    double distance = Distance(program->shape, n.shape);
    if (std::isfinite(distance)) nearest.emplace_back(distance, n.workload_hash);
  }
  if (nearest.empty()) return Answer{};
  std::sort(nearest.begin(), nearest.end());
  auto space = search_space::SearchSpace::Create(program, device.target);
  if (!space.ok()) return space.status();
  for (const auto& [distance, hash] : nearest) {
    auto best = records.FindBest(hash, device.target.name, l2);
    if (!best.ok()) return best.status();
    if (!best->has_value()) continue;
    auto steps = Transfer((*best)->trial, program, *space);
    if (steps.ok()) return Answer{"nearest", *std::move(steps), **best};
  }
  return Answer{};
}

absl::StatusOr<Answer> Ask(const QueryFlags& flags, const Workload& program,
                           const measure::DeviceInfo& device, tuner::Records& records) {
  measure::L2Policy l2 = PolicyOf(flags.l2);
  auto best = records.FindBest(program->hash, device.target.name, l2);
  if (!best.ok()) return best.status();
  if (best->has_value()) {
    auto chosen = ChooseStored(**best);
    if (!chosen.ok()) return chosen.status();
    return Answer{"exact", chosen->steps, **best};
  }
  if (flags.fallback == "nearest") return Nearest(program, device, l2, records);
  if (flags.fallback == "default") {
    auto space = search_space::SearchSpace::Create(program, device.target);
    if (!space.ok()) return space.status();
    auto steps = space->Steps(space->Default());
    if (!steps.ok()) return steps.status();
    return Answer{"default", *std::move(steps), {}};
  }
  return Answer{};
}

Json ToJson(const search_space::TensorProgram& program, const measure::DeviceInfo& device,
            const Answer& answer) {
  bool exact = answer.match == "exact";
  Json json{{"found", answer.match != "none"},
            {"match", answer.match},
            {"validated", exact},
            {"op", program.op},
            {"shape", ShapeJson(program.shape)},
            {"device", device.target.name},
            {"time_us", nullptr},
            {"time_ci_us", nullptr},
            {"steps", StepsJson(answer.steps)},
            {"fingerprint", nullptr}};
  // A neighbour's time is not this shape's.
  if (exact) {
    const measure::TrialResult& result = answer.source->trial.result;
    json["time_us"] = result.time_us;
    json["time_ci_us"] = {result.ci_low_us, result.ci_high_us};
  }
  if (answer.source) {
    json["fingerprint"] = EnvironmentJson(answer.source->environment);
    json["fingerprint"]["source_hash"] = answer.source->trial.result.source_hash;
  }
  return json;
}

Result RunQuery(const QueryFlags& flags) {
  auto program = flags.workload.Get();
  if (!program.ok()) return program.status();
  auto device = flags.device.FindDeviceOrTarget();
  if (!device.ok()) return device.status();
  auto records = OpenRecords(flags.db);
  if (!records.ok()) return records.status();
  auto answer = Ask(flags, *program, *device, **records);
  if (!answer.ok()) return answer.status();
  bool found = answer->match != "none";
  if (flags.json) {
    PrintJson(ToJson(**program, *device, *answer));
  } else if (found) {
    std::cout << search_space::ToString(answer->steps);
  }
  if (!found) {
    Say(absl::StrCat("heddle: no schedule found for ", device->target.name, " in ",
                     (*records)->path(), ". Make one: heddle tune ", flags.workload.CommandLine(),
                     ", or try --fallback nearest or default."));
    return kFailed;
  }
  if (answer->match == "exact") {
    const measure::TrialResult& result = answer->source->trial.result;
    Say(absl::StrCat("exact: ", tuner::FormatTime(result.time_us), " (",
                     tuner::FormatTime(result.ci_low_us), " .. ",
                     tuner::FormatTime(result.ci_high_us), ")"));
  } else {
    Say(absl::StrCat(answer->match, ": not measured at this shape; tuning it will do better"));
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
      ->check(CLI::IsMember({"none", "nearest", "default"}).description(""))
      ->capture_default_str();
  AddL2Flag(*sub, flags->l2);
  AddDbFlag(*sub, flags->db);
  sub->add_flag("--json", flags->json, "JSON on stdout");
  sub->footer("Exit code 1 when nothing was found.");
  sub->callback([=] { *selected = [=] { return RunQuery(*flags); }; });
}

}  // namespace heddle::cli
