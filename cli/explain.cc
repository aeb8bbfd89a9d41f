// heddle explain: why the best schedule won, against the default one.
#include <algorithm>
#include <cmath>
#include <iostream>
#include <map>
#include <random>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "cli/command.h"
#include "tuner/model/cost_model.h"
#include "tuner/model/features.h"
#include "tuner/model/kernel_cost.h"
#include "tuner/model/roofline.h"
#include "tuner/model/terms.h"
#include "tuner/search/default_point.h"
#include "tuner/search/screen.h"

namespace heddle::cli {
namespace {

struct ExplainFlags {
  WorkloadFlags workload;
  DeviceFlags device;
  std::string l2, db;
  bool json = false;
};

// A schedule with what is known of it.
struct Subject {
  std::string point;
  measure::TrialResult result;  // time_us 0: it was not measured
  tuner::FeatureVector features;
  tuner::Terms terms;
  double operator[](const char* name) const {
    return features[static_cast<size_t>(tuner::FeatureIndex(name))];
  }
};

// Rows of the comparison: what it is, the feature it is taken from, whether only a GPU has it.
struct ShownRow {
  const char* what;
  const char* feature;
  bool gpu_only = false;
};
constexpr ShownRow kRows[] = {
    {"kernels", "kernels"},
    {"blocks", "blocks"},
    {"threads a block", "threads"},
    {"shared bytes a block", "shared_bytes"},
    {"registers, estimated", "registers", true},
    {"occupancy", "occupancy", true},
    {"waves", "waves"},
    {"idle share of last wave", "tail"},
    {"requested bytes", "requested_bytes"},
    {"bytes from L2", "l2_bytes", true},
    {"bytes from memory", "dram_bytes", true},
    {"load efficiency", "load_efficiency", true},
    {"bank conflicts, loads", "shared_load_conflicts", true},
    {"multiply-adds a step", "fma_per_step"},
    {"pipeline depth", "pipeline_depth"},
    {"integer per multiply-add", "integer_per_fma"},
    {"analytic time, us", "analytic_us"},
};

void SayLimits(const char* name, const Subject& s, const search_space::Target& target) {
  std::vector<std::pair<double, const char*>> terms;
  for (const tuner::TermInfo& term : tuner::TermTable()) {
    const char* what = term.On(target.processor).what;
    if (what != nullptr) terms.emplace_back(s.terms[term.term], what);
  }
  std::sort(terms.rbegin(), terms.rend());
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

using Effects = std::vector<std::pair<double, std::string>>;

// Features by what they add to the best's score beyond the default's, the largest first.
absl::StatusOr<Effects> FeatureEffects(const tuner::CostModel& model, const Subject& best,
                                       const Subject& normal) {
  auto a = model.Contributions(best.features), b = model.Contributions(normal.features);
  if (!a.ok() || !b.ok()) return a.ok() ? b.status() : a.status();
  Effects effects;
  const auto table = tuner::FeatureTable();
  for (size_t i = 0; i < table.size(); ++i) effects.emplace_back((*a)[i] - (*b)[i], table[i].name);
  std::stable_sort(effects.begin(), effects.end(), [](const auto& x, const auto& y) {
    return std::abs(x.first) > std::abs(y.first);
  });
  return effects;
}

// Holes by how much the score falls, on average, when only that one is set otherwise.
absl::StatusOr<Effects> HoleEffects(const tuner::CostModel& model,
                                    const search_space::SearchSpace& space, const Subject& best) {
  constexpr int kMutants = 400;
  auto point = space.Parse(best.point);
  if (!point.ok()) return Effects{};  // hand-written, or of an older space
  search_space::Rng rng(1);
  std::vector<search_space::Point> mutants;
  std::vector<size_t> holes;
  for (int i = 0; i < kMutants; ++i) {
    auto mutant = space.Mutate(*point, rng);
    if (!mutant || std::find(mutants.begin(), mutants.end(), *mutant) != mutants.end()) continue;
    std::vector<size_t> changed;
    for (size_t h = 0; h < point->choices.size(); ++h) {
      if (mutant->choices[h] != point->choices[h]) changed.push_back(h);
    }
    if (changed.size() != 1) continue;
    holes.push_back(changed[0]);
    mutants.push_back(*std::move(mutant));
  }
  tuner::Screen screen(space, 1);
  const auto features = screen.Features(mutants);
  auto own = model.Score({&best.features, 1});
  if (!own.ok()) return own.status();
  std::map<size_t, std::pair<double, int>> falls;
  for (size_t i = 0; i < mutants.size(); ++i) {
    if (features[i]->empty()) continue;
    auto score = model.Score({features[i], 1});
    if (!score.ok()) return score.status();
    falls[holes[i]].first += (*own)[0] - (*score)[0];
    ++falls[holes[i]].second;
  }
  const std::vector<std::string> words = absl::StrSplit(best.point, ' ');
  Effects effects;
  for (const auto& [hole, fall] : falls) {
    effects.emplace_back(fall.first / fall.second, words[hole + 1]);
  }
  std::stable_sort(effects.rbegin(), effects.rend());
  return effects;
}

// Features and terms of a schedule.
absl::Status Analyse(const Workload& program, const std::vector<search_space::Step>& steps,
                     const search_space::Target& target, Subject& subject) {
  HEDDLE_ASSIGN_OR_RETURN(lowered, search_space::LowerSteps(program, steps));
  HEDDLE_ASSIGN_OR_RETURN(features, tuner::FeaturesOf(lowered, target));
  subject.features = std::move(features);
  subject.terms = tuner::TermsOf(lowered, target);
  return absl::OkStatus();
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

Result RunExplain(const ExplainFlags& flags) {
  auto program = flags.workload.Get();
  if (!program.ok()) return program.status();
  auto device = flags.device.FindDeviceOrTarget();
  if (!device.ok()) return device.status();
  auto records = OpenRecords(flags.db);
  if (!records.ok()) return records.status();
  const measure::L2Policy l2 = PolicyOf(flags.l2);
  const tuner::Environment environment = tuner::MakeEnvironment(*device, l2);
  auto found = FindBest(**records, **program, *device, l2, flags.workload.CommandLine());
  if (!found.ok()) return found.status();
  auto chosen = ChooseStored(*found);
  if (!chosen.ok()) return chosen.status();
  auto space = search_space::SearchSpace::Create(*program, device->target);
  if (!space.ok()) return space.status();

  Subject best{found->trial.point, found->trial.result};
  const search_space::Point default_point = tuner::DefaultPoint(*space);
  Subject normal{space->Print(default_point)};
  auto trials = (*records)->Trials(**program, environment);
  if (!trials.ok()) return trials.status();
  for (const tuner::TrialRecord& trial : *trials) {
    if (trial.point == normal.point) normal.result = trial.result;
  }
  HEDDLE_RETURN_IF_ERROR(Analyse(*program, chosen->steps, device->target, best));
  HEDDLE_ASSIGN_OR_RETURN(default_steps, space->Steps(default_point));
  HEDDLE_RETURN_IF_ERROR(Analyse(*program, default_steps, device->target, normal));

  std::string why_not;
  Effects by_feature, by_hole;
  if (auto model = LoadModel(**records, environment, why_not)) {
    auto some = FeatureEffects(*model, best, normal);
    if (!some.ok()) return some.status();
    by_feature = *std::move(some);
    some = HoleEffects(*model, *space, best);
    if (!some.ok()) return some.status();
    by_hole = *std::move(some);
  }
  const tuner::Roofline roofline = tuner::RooflineOf(**program, device->target, l2);
  const double time = best.result.time_us, before = normal.result.time_us;
  if (flags.json) {
    Json features_json = Json::object();
    for (size_t i = 0; i < best.features.size(); ++i) {
      features_json[tuner::FeatureTable()[i].name] = {best.features[i], normal.features[i]};
    }
    PrintJson(
        Json{{"op", (*program)->op},
             {"shape", ShapeJson((*program)->shape)},
             {"device", device->target.name},
             {"best_us", time},
             {"default_us", KnownOrNull(before)},
             {"roofline", KnownOrNull(roofline.Share(time))},
             {"point", best.point},
             {"features", features_json},
             {"model", {{"features", EffectsJson(by_feature)}, {"holes", EffectsJson(by_hole)}}}});
    return kDone;
  }
  std::cout << absl::StrFormat("%s %s on %s: %s, %s", (*program)->op, ShapeText(**program),
                               device->target.name, tuner::FormatTime(time), roofline.Rate(time));
  if (before > 0)
    std::cout << absl::StrFormat("; %.2fx the default schedule (%s)", before / time,
                                 tuner::FormatTime(before));
  std::cout << ".\n";
  if (roofline.Share(time) > 0) {
    std::cout << absl::StrFormat(
        "Roofline: %.0f %% of what %s allows (%s).\n", 100 * roofline.Share(time),
        roofline.compute_us > roofline.memory_us ? "the arithmetic"
                                                 : "moving inputs and outputs once",
        tuner::FormatTime(roofline.us()));
  }
  SayLimits("Best", best, device->target);
  SayLimits("Default", normal, device->target);
  std::cout << absl::StrFormat("\n%-26s %14s %14s\n", "", "best", "default");
  for (const ShownRow& row : kRows) {
    if (row.gpu_only && device->target.processor) continue;
    std::cout << absl::StrFormat("%-26s %14.5g %14.5g\n", row.what, best[row.feature],
                                 normal[row.feature]);
  }
  if (!why_not.empty()) {
    std::cout << "\nWhich decisions matter is not known: " << why_not << ".\n";
    return kDone;
  }
  std::cout << "\nThe cost model's reasons, as log-odds of being the faster one:\n";
  SayEffects("what sets the best apart from the default, by feature (docs/features.md)",
             by_feature);
  if (by_hole.empty()) {
    std::cout << "what single holes matter is not known: the point is none of today's space\n";
  } else {
    SayEffects("what is lost when one hole of the best is set otherwise", by_hole);
  }
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
