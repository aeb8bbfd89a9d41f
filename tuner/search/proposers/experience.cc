#include "tuner/search/proposers/experience.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "base/clock.h"
#include "base/status.h"
#include "measure/codegen/codegen.h"
#include "search_space/notation/notation.h"
#include "tuner/records/shape_distance.h"
#include "tuner/search/proposers/screen.h"
#include "tuner/search/proposers/taught.h"

namespace heddle::tuner {
namespace {

using search_space::Point;
using search_space::SearchSpace;

// Fewer are no experience.
constexpr int64_t kLeastLessons = 32;
// A stored model is trained again when there is so large a share of new trials, counted from those
// that it could know.
constexpr double kGrowth = 0.4;
// A trial's weight halves with each of these, counted from the newest, and for every other version
// of the generator: what it timed may have been other code.
constexpr absl::Duration kHalfLife = absl::Hours(24 * 90);
constexpr float kOtherGenerator = 0.5F;
constexpr int kImported = 8;

float LessonWeight(const Records::Lesson& lesson, absl::Time newest, int generator_version) {
  float weight = WeightOf(lesson.trial.result);
  // Clocks that were throttled and neighbours on the device make times worse, not better.
  if (lesson.trial.throttled || lesson.trial.other_processes > 0) weight /= 2;
  if (!measure::SameCode(lesson.environment.generator_version, generator_version))
    weight *= kOtherGenerator;
  const double age = absl::FDivDuration(newest - lesson.trial.when, kHalfLife);
  return weight * static_cast<float>(std::exp2(-age));
}

// The lessons of one workload, which lie side by side.
void AddExamples(absl::Span<const Records::Lesson> lessons, int64_t workload, absl::Time newest,
                 const Environment& environment, const search_space::Target& target, int threads,
                 std::vector<Example>& examples) {
  auto program = search_space::ParseWorkload(lessons[0].workload);
  if (!program.ok()) return;  // of an older notation
  auto space = SearchSpace::Create(
      std::make_shared<const search_space::TensorProgram>(*std::move(program)), target);
  if (!space.ok()) return;
  std::vector<Point> points;
  std::vector<const Records::Lesson*> taught;
  for (const Records::Lesson& lesson : lessons) {
    if (lesson.trial.result.outcome == measure::Outcome::kWorkerLost) continue;
    auto point = space->Parse(lesson.trial.point);
    if (!point.ok() || !space->Check(*point).ok()) continue;  // of an older space
    points.push_back(*std::move(point));
    taught.push_back(&lesson);
  }
  Screen screen(*space, threads);
  const auto features = screen.Features(points);
  for (size_t i = 0; i < points.size(); ++i) {
    if (features[i]->empty()) continue;
    examples.push_back({*features[i], workload, taught[i]->trial.result.time_us,
                        LessonWeight(*taught[i], newest, environment.generator_version)});
  }
}

struct Trained {
  std::optional<CostModel> model;
  size_t examples = 0;
};

absl::StatusOr<Trained> TrainOn(Records& records, const Environment& environment,
                                const SearchSpace& space, int threads) {
  HEDDLE_ASSIGN_OR_RETURN(lessons,
                          records.Lessons(environment, space.program(), Records::kLessons));
  absl::Time newest = absl::InfinitePast();
  for (const Records::Lesson& lesson : lessons) newest = std::max(newest, lesson.trial.when);
  std::vector<Example> examples;
  int64_t workload = 0;
  for (size_t begin = 0, end = 0; begin < lessons.size(); begin = end, ++workload) {
    while (end < lessons.size() && lessons[end].workload == lessons[begin].workload) ++end;
    AddExamples(absl::MakeSpan(lessons).subspan(begin, end - begin), workload, newest, environment,
                space.target(), threads, examples);
  }
  Trained trained;
  trained.examples = examples.size();
  if (examples.size() < static_cast<size_t>(kLeastLessons)) return trained;
  auto model = CostModel::Train(examples, {});
  if (model.ok()) trained.model = *std::move(model);
  return trained;
}

absl::StatusOr<std::vector<Point>> BestOfOthers(Records& records, const Environment& environment,
                                                const SearchSpace& space) {
  const search_space::TensorProgram& program = space.program();
  std::vector<Point> points;
  HEDDLE_ASSIGN_OR_RETURN(imported, records.ImportedPoints(program, environment, kImported));
  for (const std::string& text : imported) {
    auto point = space.Parse(text);
    if (point.ok() && space.Check(*point).ok()) points.push_back(*std::move(point));
  }
  const size_t most = points.size() + Records::kNeighbours;
  HEDDLE_ASSIGN_OR_RETURN(neighbours, records.Neighbours(program.op, BenchOf(environment)));
  std::stable_sort(neighbours.begin(), neighbours.end(), [&](const auto& a, const auto& b) {
    return Distance(program.shape, a.shape) < Distance(program.shape, b.shape);
  });
  for (const Records::Neighbour& neighbour : neighbours) {
    if (points.size() == most) break;
    if (neighbour.workload_hash == program.hash) continue;
    HEDDLE_ASSIGN_OR_RETURN(best, records.FindBest(neighbour.workload_hash, BenchOf(environment)));
    if (!best.has_value()) continue;
    auto point = space.Parse(best->trial.point);
    if (point.ok() && space.Check(*point).ok()) points.push_back(*std::move(point));
  }
  return points;
}

}  // namespace

absl::StatusOr<Experience> Recall(Records& records, const Environment& environment,
                                  const SearchSpace& space, int threads) {
  Experience experience;
  HEDDLE_ASSIGN_OR_RETURN(neighbours, BestOfOthers(records, environment, space));
  experience.neighbours = std::move(neighbours);

  HEDDLE_ASSIGN_OR_RETURN(stored, records.LoadModel(environment));
  HEDDLE_ASSIGN_OR_RETURN(
      there, records.CountLessons(environment, stored.has_value() ? stored->newest : 0));
  std::string why;
  if (stored.has_value()) {
    auto model = CostModel::Load(stored->bytes);
    if (!model.ok()) {
      why = absl::StrCat("; ", std::string(model.status().message()));
    } else if (static_cast<double>(there.newer) <=
               kGrowth * static_cast<double>(there.trials - there.newer) + kLeastLessons) {
      experience.model = std::make_shared<const CostModel>(*std::move(model));
      experience.note = absl::StrCat("The cost model knows all but ", there.newer,
                                     " of the newest trials of this device.");
      return experience;
    }
  }
  const SteadyTime start = SteadyNow();
  HEDDLE_ASSIGN_OR_RETURN(trained, TrainOn(records, environment, space, threads));
  if (!trained.model) {
    experience.note =
        absl::StrCat(trained.examples == 0 ? "No" : absl::StrCat("Only ", trained.examples),
                     " trials of this device to learn from, of ", kLeastLessons,
                     " that it takes: the analytic time leads at first", why, ".");
    return experience;
  }
  if (!records.read_only()) {
    HEDDLE_ASSIGN_OR_RETURN(bytes, trained.model->Save());
    HEDDLE_RETURN_IF_ERROR(records.SaveModel(environment, {bytes, there.newest}));
  }
  experience.model = std::make_shared<const CostModel>(*std::move(trained.model));
  experience.note =
      absl::StrFormat("The cost model was trained on %d trials of this device in %.1f s%s.",
                      trained.examples, SecondsSince(start), why);
  return experience;
}

}  // namespace heddle::tuner
