// heddle space: how large the search space is, and samples of it.
#include <iostream>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "base/clock.h"
#include "base/status.h"
#include "cli/command.h"
#include "tuner/artefact/build.h"

namespace heddle::cli {
namespace {

struct SpaceFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  int sample = 0;
  uint64_t seed = 1;
  bool json = false;
};

Result RunSpace(const SpaceFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(program, flags.workload.Get());
  HEDDLE_ASSIGN_OR_RETURN(device, flags.device.FindDeviceOrTarget());
  HEDDLE_ASSIGN_OR_RETURN(space, search_space::SearchSpace::Create(program, device.target));

  search_space::Rng rng(flags.seed);
  std::vector<std::string> texts;
  int valid = 0;
  const SteadyTime start = SteadyNow();
  for (int i = 0; i < flags.sample; ++i) {
    auto point = space.Sample(rng);
    if (!point) continue;  // a draw may find no valid one
    texts.push_back(space.Print(*point));
    auto steps = space.Steps(*point);
    auto built =
        steps.ok() ? tuner::BuildSource(program, *steps, device.target).status() : steps.status();
    if (built.ok()) {
      ++valid;
    } else {
      Say(absl::StrCat("invalid: ", texts.back(), ": ", built.message()));
    }
  }
  double seconds = SecondsSince(start);
  double per_second = texts.empty() ? 0 : static_cast<double>(texts.size()) / seconds;
  if (flags.json) {
    Json points = Json::array();
    for (const std::string& text : texts) points.push_back(text);
    PrintJson(Json{{"sketches", space.sketch_count()},
                   {"points", space.point_count()},
                   {"sampled", texts.size()},
                   {"valid", valid},
                   {"per_second", per_second},
                   {"sample", points}});
    return kDone;
  }
  for (const std::string& text : texts) std::cout << text << "\n";
  std::string summary =
      absl::StrFormat("%d sketches, %.3g points", space.sketch_count(), space.point_count());
  if (flags.sample > 0) {
    absl::StrAppendFormat(&summary, "; %d sampled, %d valid, %.0f a second", texts.size(), valid,
                          per_second);
  }
  std::cout << summary << "\n";
  return kDone;
}

}  // namespace

void AddSpace(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<SpaceFlags>();
  CLI::App* sub = app.add_subcommand("space", "how many sketches and points there are");
  flags->workload.Add(*sub);
  flags->device.Add(*sub, true);
  sub->add_option("--sample", flags->sample, "draw so many points, lower and verify each")
      ->type_name("N")
      ->check(CLI::Range(0, 1 << 30).description(""));
  sub->add_option("--seed", flags->seed, "of the samples")->type_name("S")->capture_default_str();
  sub->add_flag("--json", flags->json, "JSON on stdout");
  sub->callback([=] { *selected = [=] { return RunSpace(*flags); }; });
}

}  // namespace heddle::cli
