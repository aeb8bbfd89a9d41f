// heddle explain: why the best schedule won, against the default one.
#include "tuner/search/explain.h"

#include <algorithm>
#include <cmath>
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/status.h"
#include "cli/command.h"
#include "search_space/ir/matrix.h"
#include "tuner/model/analytic/kernel_cost.h"
#include "tuner/model/roofline.h"
#include "tuner/search/default_point.h"

namespace heddle::cli {
namespace {

struct ExplainFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  std::string l2, db;
  bool json = false;
};

using tuner::Effects;

// A schedule with what is known of it.
struct Subject {
  std::string point;
  measure::TrialResult result;  // time_us 0: it was not measured
  tuner::Analysis analysis;
  double operator[](const char* name) const { return analysis[name]; }
};

void SayLimits(const char* name, const Subject& s, const search_space::Target& target) {
  const auto terms = tuner::LargestTerms(s.analysis.terms, target.processor);
  std::cout << absl::StrFormat("%s: held back most by %s (%s), then by %s (%s).", name,
                               terms[0].second, tuner::FormatTime(terms[0].first), terms[1].second,
                               tuner::FormatTime(terms[1].first));
  if (target.processor) {
    std::cout << absl::StrFormat(
        " %d cores run %.0f blocks in %.0f rounds, the last of which is "
        "%.0f %% idle.\n",
        target.sm_count, s["blocks"], s["waves"], 100 * s["tail"]);
    return;
  }
  std::string limiter = NameOf(static_cast<tuner::Limiter>(s["limiter"]));
  limiter[0] = absl::ascii_toupper(static_cast<unsigned char>(limiter[0]));
  std::cout << absl::StrFormat(
      " %s limit the blocks of a multiprocessor; "
      "occupancy %.0f %%, %.0f waves, the last of which is %.0f %% idle.",
      limiter, 100 * s["occupancy"], s["waves"], 100 * s["tail"]);
  if (s.result.registers > 0) {
    std::cout << absl::StrFormat(" The compiler gave %d registers a thread%s.", s.result.registers,
                                 s.result.local_bytes > 0
                                     ? absl::StrCat(" and spilled ", s.result.local_bytes, " bytes")
                                     : ", nothing spilled");
  }
  std::cout << "\n";
}

// A model of the device: the stored one, or none with the reason.
std::optional<tuner::CostModel> LoadModel(tuner::Records& records,
                                          const tuner::Environment& environment,
                                          std::string& why_not) {
  auto stored = records.LoadModel(environment);
  if (stored.ok() && !stored->has_value()) {
    why_not =
        "no cost model is stored for this device yet; a `heddle tune` that finds some dozens of "
        "its "
        "trials in the database stores one";
    return std::nullopt;
  }
  auto model = stored.ok() ? tuner::CostModel::Load((*stored)->bytes) : stored.status();
  if (model.ok()) return *std::move(model);
  why_not = std::string(model.status().message());
  return std::nullopt;
}

Json EffectsJson(const Effects& effects) {
  Json json = Json::object();
  for (const auto& [effect, name] : effects) json[name] = effect;
  return json;
}

void SayEffects(const char* title, const Effects& effects) {
  constexpr size_t kShown = 8;
  constexpr double kLeast = 0.02;  // log-odds: a coin that falls 50.5 to 49.5
  std::cout << title;
  for (size_t i = 0; i < std::min(kShown, effects.size()); ++i) {
    if (std::abs(effects[i].first) < kLeast) break;
    std::cout << absl::StrFormat("\n  %+6.2f  %s", effects[i].first, effects[i].second);
  }
  std::cout << "\n";
}

// The best schedule beside the default one.
struct Explanation {
  Workload program;
  search_space::Target target;
  tuner::Roofline roofline;
  Subject best, normal;  // normal: the default schedule
  std::string why_not;   // no model says what matters; then there are no effects
  Effects by_feature, by_hole;
};

absl::StatusOr<Explanation> Explain(const ExplainFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(program, flags.workload.Get());
  HEDDLE_ASSIGN_OR_RETURN(device, flags.device.FindDeviceOrTarget());
  HEDDLE_ASSIGN_OR_RETURN(records, OpenRecords(flags.db));
  const search_space::Target& target = device.target;
  const measure::L2Policy l2 = PolicyOf(flags.l2);
  const tuner::Environment environment = tuner::MakeEnvironment(device, l2);
  HEDDLE_ASSIGN_OR_RETURN(found,
                          FindBest(*records, *program, device, l2, flags.workload.CommandLine()));
  HEDDLE_ASSIGN_OR_RETURN(chosen, ChooseStored(found));
  HEDDLE_ASSIGN_OR_RETURN(space, search_space::SearchSpace::Create(program, target));
  const search_space::Point default_point = tuner::DefaultPoint(space);
  HEDDLE_ASSIGN_OR_RETURN(default_steps, space.Steps(default_point));
  HEDDLE_ASSIGN_OR_RETURN(of_best, tuner::Analyse(program, chosen.steps, target));
  HEDDLE_ASSIGN_OR_RETURN(of_default, tuner::Analyse(program, default_steps, target));
  Explanation e{program,
                target,
                tuner::RooflineOf(*program, target, l2),
                {found.trial.point, found.trial.result, std::move(of_best)},
                {space.Print(default_point), {}, std::move(of_default)}};
  HEDDLE_ASSIGN_OR_RETURN(trials, records->Trials(*program, environment));
  for (const tuner::TrialRecord& trial : trials) {
    if (trial.point == e.normal.point) e.normal.result = trial.result;
  }
  if (auto model = LoadModel(*records, environment, e.why_not)) {
    const tuner::FeatureVector& features = e.best.analysis.features;
    HEDDLE_ASSIGN_OR_RETURN(apart,
                            tuner::FeatureEffects(*model, features, e.normal.analysis.features));
    HEDDLE_ASSIGN_OR_RETURN(lost, tuner::HoleEffects(*model, space, e.best.point, features));
    e.by_feature = std::move(apart);
    e.by_hole = std::move(lost);
  }
  return e;
}

Json ToJson(const Explanation& e) {
  Json features = Json::object();
  for (size_t i = 0; i < e.best.analysis.features.size(); ++i) {
    features[tuner::FeatureTable()[i].name] = {e.best.analysis.features[i],
                                               e.normal.analysis.features[i]};
  }
  return {{"op", e.program->op},
          {"shape", ShapeJson(e.program->shape)},
          {"device", e.target.name},
          {"best_us", e.best.result.time_us},
          {"default_us", KnownOrNull(e.normal.result.time_us)},
          {"roofline", KnownOrNull(e.roofline.Share(e.best.result.time_us))},
          {"point", e.best.point},
          {"features", features},
          {"model", {{"features", EffectsJson(e.by_feature)}, {"holes", EffectsJson(e.by_hole)}}}};
}

// How fast the best is, against the default and the roofline.
void SaySpeed(const Explanation& e) {
  const double time = e.best.result.time_us, before = e.normal.result.time_us;
  std::cout << absl::StrFormat("%s %s on %s: %s, %s", e.program->op, ShapeText(*e.program),
                               e.target.name, tuner::FormatTime(time), e.roofline.Rate(time));
  if (before > 0) {
    std::cout << absl::StrFormat("; %.2fx the default schedule (%s)", before / time,
                                 tuner::FormatTime(before));
  }
  std::cout << ".\n";
  if (e.roofline.Share(time) <= 0) return;
  const double peak = search_space::PeakGflops(*e.program, e.target);
  std::cout << absl::StrFormat(
      "Roofline: %.0f %% of what %s allows (%s).\n", 100 * e.roofline.Share(time),
      e.roofline.compute_us > e.roofline.memory_us
          ? absl::StrFormat("the arithmetic of its types, %.0f GFLOP/s,", peak)
          : "moving inputs and outputs once",
      tuner::FormatTime(e.roofline.us()));
}

void SayReasons(const Explanation& e) {
  if (!e.why_not.empty()) {
    std::cout << "\nWhich decisions matter is not known: " << e.why_not << ".\n";
    return;
  }
  std::cout << "\nThe cost model's reasons, as log-odds of being the faster one:\n";
  SayEffects("what sets the best apart from the default, by feature (docs/features.md)",
             e.by_feature);
  if (e.by_hole.empty()) {
    std::cout << "what single holes matter is not known: the point is none of today's space\n";
  } else {
    SayEffects("what is lost when one hole of the best is set otherwise", e.by_hole);
  }
}

Result RunExplain(const ExplainFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(e, Explain(flags));
  if (flags.json) {
    PrintJson(ToJson(e));
    return kDone;
  }
  SaySpeed(e);
  SayLimits("Best", e.best, e.target);
  SayLimits("Default", e.normal, e.target);
  std::cout << absl::StrFormat("\n%-26s %14s %14s\n", "", "best", "default");
  for (const tuner::ComparedFeature& row : tuner::ComparedFeatures()) {
    if (row.gpu_only && e.target.processor) continue;
    std::cout << absl::StrFormat("%-26s %14.5g %14.5g\n", row.what, e.best[row.feature],
                                 e.normal[row.feature]);
  }
  SayReasons(e);
  return kDone;
}

}  // namespace

void AddExplain(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<ExplainFlags>();
  CLI::App* sub = app.add_subcommand("explain", "why the best schedule won, against the default");
  flags->workload.Add(*sub);
  flags->device.Add(*sub, true);
  AddL2Flag(*sub, flags->l2);
  AddDbFlag(*sub, flags->db);
  sub->add_flag("--json", flags->json, "JSON on stdout: every feature of both, every reason");
  sub->callback([=] { *selected = [=] { return RunExplain(*flags); }; });
}

}  // namespace heddle::cli
