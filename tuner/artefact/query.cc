#include "tuner/artefact/query.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/status.h"
#include "measure/codegen/codegen.h"
#include "search_space/sketch/search_space.h"
#include "tuner/artefact/build.h"
#include "tuner/records/shape_distance.h"

namespace heddle::tuner {
namespace {

using Workload = std::shared_ptr<const search_space::TensorProgram>;

// The stored schedule at the asked shape: by its point where it has one, since a point's steps
// follow the shape.
absl::StatusOr<std::vector<search_space::Step>> Transfer(const TrialRecord& trial,
                                                         const Workload& program,
                                                         const search_space::SearchSpace& space) {
  auto point = space.Parse(trial.point);
  HEDDLE_ASSIGN_OR_RETURN(steps, !trial.point.empty() && point.ok()
                                     ? space.Steps(*point)
                                     : search_space::ParseSteps(trial.steps));
  HEDDLE_RETURN_IF_ERROR(BuildSource(program, steps, space.target()));
  return steps;
}

}  // namespace

const char* NameOf(Match match) {
  constexpr const char* kNames[] = {"none", "exact", "nearest", "default"};
  return kNames[static_cast<int>(match)];
}

const char* NameOf(Standing standing) {
  constexpr const char* kNames[] = {"measured", "stale", "foreign"};
  return kNames[static_cast<int>(standing)];
}

std::string Verdict::Text() const {
  if (standing == Standing::kMeasured) return "";
  return absl::StrCat(NameOf(standing), ": ", absl::StrJoin(changed, ", "),
                      changed.size() == 1 ? " has" : " have", " changed since it was measured");
}

Verdict VerdictOf(std::vector<std::string> changed) {
  Verdict verdict;
  for (const std::string& what : changed) {
    if (what == "device") {
      verdict.standing = Standing::kForeign;
    } else if (what != "driver" && verdict.standing == Standing::kMeasured) {
      verdict.standing = Standing::kStale;
    }
  }
  verdict.changed = std::move(changed);
  return verdict;
}

std::string SourceHashNow(const TrialRecord& trial, const Workload& program,
                          const search_space::Target& target) {
  auto steps = search_space::ParseSteps(trial.steps);
  if (!steps.ok()) return "";
  auto built = BuildSource(program, *steps, target);
  return built.ok() ? built->source_hash : "";
}

Verdict Judge(const Records::Best& best, const Workload& program,
              const measure::DeviceInfo& device) {
  const Environment& then = best.environment;
  const Environment now = MakeEnvironment(device, then.l2);
  const auto differs = [](const std::string& a, const std::string& b) {
    return !a.empty() && a != b;
  };
  std::vector<std::string> changed;
  if (!Agree(BenchOf(then), BenchOf(now))) changed.emplace_back("device");
  if (!measure::SameCode(now.generator_version, then.generator_version))
    changed.emplace_back("generator");
  if (differs(now.compiler, then.compiler)) changed.emplace_back("compiler");
  if (differs(now.driver, then.driver)) changed.emplace_back("driver");
  const std::string& hash = best.trial.result.source_hash;
  if (hash.empty() || hash != SourceHashNow(best.trial, program, device.target)) {
    changed.emplace_back("source");
  }
  return VerdictOf(std::move(changed));
}

absl::StatusOr<Answer> FindExact(const search_space::TensorProgram& program, const Bench& bench,
                                 Records& records) {
  HEDDLE_ASSIGN_OR_RETURN(best, records.FindBest(program.hash, bench));
  if (!best.has_value()) return Answer{};
  std::string steps = best->trial.steps;
  return Answer{Match::kExact, std::move(steps), std::move(best)};
}

absl::StatusOr<Answer> FindNearest(const Workload& program, const search_space::Target& target,
                                   const Bench& bench, Records& records) {
  HEDDLE_ASSIGN_OR_RETURN(neighbours, records.Neighbours(program->op, bench));
  std::vector<std::pair<double, std::string>> nearest;
  for (const auto& n : neighbours) {
    if (n.dtype != search_space::NameOf(program->dtype)) continue;
    double distance = Distance(program->shape, n.shape);
    if (std::isfinite(distance)) nearest.emplace_back(distance, n.workload_hash);
  }
  if (nearest.empty()) return Answer{};
  std::sort(nearest.begin(), nearest.end());
  HEDDLE_ASSIGN_OR_RETURN(space, search_space::SearchSpace::Create(program, target));
  for (const auto& [distance, hash] : nearest) {
    HEDDLE_ASSIGN_OR_RETURN(best, records.FindBest(hash, bench));
    if (!best.has_value()) continue;
    auto steps = Transfer(best->trial, program, space);
    if (steps.ok()) return Answer{Match::kNearest, search_space::ToString(*steps), *best};
  }
  return Answer{};
}

}  // namespace heddle::tuner
