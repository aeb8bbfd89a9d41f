#include "search_space/sketch/search_space.h"

#include <algorithm>
#include <limits>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "base/check.h"
#include "base/status.h"
#include "search_space/lower/lower.h"
#include "search_space/schedule/schedule.h"
#include "search_space/schedule/threads/scatter_in_memory.h"
#include "search_space/sketch/kernels/schedule_writer.h"
#include "search_space/sketch/sketches.h"

namespace heddle::search_space {
namespace {

// Attempts at a valid choice. The first that pads little is taken, and after some patience the one
// that pads least: where tiles of 8 cover an axis of 7, few do better.
constexpr int kSampleAttempts = 4000, kSamplePatience = 32;
constexpr double kLittleWaste = 1.3;
// Redraws of one group, for plans whose limits few values meet.
constexpr int kMutationAttempts = 400;

// Of eight draws those of sketches with other kernels than the first ones, which are fewer.
constexpr int kOfPartitions = 3;

template <typename T>
size_t Draw(Rng& rng, const std::vector<T>& from) {
  return std::uniform_int_distribution<size_t>(0, from.size() - 1)(rng);
}

}  // namespace

struct SearchSpace::Impl {
  std::shared_ptr<const TensorProgram> program;
  Target target;
  std::vector<Sketch> sketches;

  const Sketch& SketchOf(const Point& p) const { return sketches[p.sketch]; }

  std::vector<int64_t> ValuesOf(const Point& p) const {
    const Sketch& sketch = SketchOf(p);
    std::vector<int64_t> values(p.choices.size());
    for (size_t i = 0; i < values.size(); ++i) {
      values[i] = sketch.holes[i].domain[p.choices[i]];
    }
    return values;
  }

  // Calls `use` with every plan and its values.
  template <typename F>
  void ForEachPlan(const Point& p, const F& use) const {
    const Sketch& sketch = SketchOf(p);
    const std::vector<int64_t> values = ValuesOf(p);
    for (size_t i = 0; i < sketch.plans.size(); ++i) {
      use(*sketch.plans[i],
          HoleValues(values.data() + sketch.plan_begin[i], sketch.plans[i]->holes().size()));
    }
  }

  bool IsWellFormed(const Point& p) const {
    if (p.sketch >= sketches.size() || p.choices.size() != SketchOf(p).holes.size()) return false;
    for (size_t i = 0; i < p.choices.size(); ++i) {
      if (p.choices[i] >= SketchOf(p).holes[i].domain.size()) return false;
    }
    return true;
  }

  absl::Status Check(const Point& p) const {
    absl::Status status;
    ForEachPlan(p, [&](const KernelPlan& plan, HoleValues values) {
      if (status.ok()) status = plan.Check(values);
    });
    return status;
  }

  // InvalidArgument when a step does not apply.
  absl::Status Write(const Point& p, ScheduleWriter& writer) const {
    absl::Status written;
    ForEachPlan(p, [&](const KernelPlan& plan, HoleValues values) {
      if (written.ok()) written = plan.WriteTo(writer, values);
    });
    return written;
  }

  // Draws the holes of one plan until its limits are met.
  bool SamplePlan(const Sketch& sketch, size_t plan, Rng& rng,
                  std::vector<uint8_t>& choices) const {
    const KernelPlan& drawn = *sketch.plans[plan];
    std::vector<int64_t> values, best;
    double least = std::numeric_limits<double>::infinity();
    for (int attempt = 0; attempt < kSampleAttempts && least > kLittleWaste; ++attempt) {
      if (attempt >= kSamplePatience && !best.empty()) break;
      drawn.Draw(rng, values);
      const double waste = drawn.Waste(values);
      if (waste >= least || !drawn.Check(values).ok()) continue;
      least = waste;
      best = values;
    }
    for (size_t h = 0; h < best.size(); ++h) {
      const auto& domain = drawn.holes()[h].domain;
      choices[sketch.plan_begin[plan] + h] =
          static_cast<uint8_t>(std::find(domain.begin(), domain.end(), best[h]) - domain.begin());
    }
    return !best.empty();
  }

  // Holes that belong together: the same plan and the same group.
  std::vector<size_t> GroupOf(const Sketch& sketch, size_t hole) const {
    size_t plan = 0;
    while (plan + 1 < sketch.plan_begin.size() && sketch.plan_begin[plan + 1] <= hole) ++plan;
    std::vector<size_t> group;
    for (size_t h = 0; h < sketch.plans[plan]->holes().size(); ++h) {
      const size_t index = sketch.plan_begin[plan] + h;
      if (sketch.holes[index].group == sketch.holes[hole].group) group.push_back(index);
    }
    return group;
  }
};

SearchSpace::SearchSpace(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

absl::StatusOr<SearchSpace> SearchSpace::Create(std::shared_ptr<const TensorProgram> program,
                                                const Target& target) {
  auto impl = std::make_shared<Impl>();
  impl->program = program;
  impl->target = target;
  impl->sketches = SketchesOf(program, target);
  HEDDLE_CHECK(impl->sketches.size() <= kMostSketches, "a point numbers its sketch in a byte");
  SearchSpace space(impl);
  if (absl::Status s = space.Check(space.Default()); !s.ok()) {
    return absl::FailedPreconditionError(absl::StrCat("no schedule of ", program->op,
                                                      " is valid on ", target.name, ": ",
                                                      std::string(s.message())));
  }
  return space;
}

int SearchSpace::sketch_count() const { return static_cast<int>(impl_->sketches.size()); }

double SearchSpace::point_count() const {
  double total = 0;
  for (const Sketch& sketch : impl_->sketches) {
    double points = 1;
    for (const Hole& hole : sketch.holes) points *= static_cast<double>(hole.domain.size());
    total += points;
  }
  return total;
}

Point SearchSpace::Default() const {
  Point point;
  for (const auto& plan : impl_->sketches[0].plans) {
    const std::vector<uint8_t> choices = plan->Default();
    point.choices.insert(point.choices.end(), choices.begin(), choices.end());
  }
  return point;
}

std::optional<Point> SearchSpace::Sample(Rng& rng, From from) const {
  Point point;
  // The first sketch is the streaming one: a space of few points beside tiled ones.
  std::vector<uint8_t> others, partitions;
  for (size_t s = 1; s < impl_->sketches.size(); ++s) {
    const Sketch& sketch = impl_->sketches[s];
    std::vector<uint8_t>& drawn = sketch.is_partition ? partitions : others;
    if (!sketch.superseded) drawn.insert(drawn.end(), sketch.draws, static_cast<uint8_t>(s));
  }
  if (from == From::kAny && !partitions.empty()) {
    const bool draws_partition = std::uniform_int_distribution<int>(1, 8)(rng) <= kOfPartitions;
    from = draws_partition ? From::kPartitions : From::kFirst;
  }
  if (from == From::kPartitions) {
    if (partitions.empty()) return std::nullopt;
    point.sketch = partitions[Draw(rng, partitions)];
  } else {
    const bool simple = others.empty() || std::uniform_int_distribution<int>(0, 7)(rng) == 0;
    point.sketch = simple ? uint8_t{0} : others[Draw(rng, others)];
  }
  const Sketch& sketch = impl_->sketches[point.sketch];
  point.choices.resize(sketch.holes.size());
  for (size_t p = 0; p < sketch.plans.size(); ++p) {
    if (!impl_->SamplePlan(sketch, p, rng, point.choices)) return std::nullopt;
  }
  return point;
}

std::optional<Point> SearchSpace::Mutate(const Point& point, Rng& rng) const {
  if (!impl_->IsWellFormed(point)) return std::nullopt;
  const Sketch& sketch = impl_->SketchOf(point);
  for (int attempt = 0; attempt < kMutationAttempts; ++attempt) {
    Point mutant = point;
    const size_t hole = Draw(rng, sketch.holes);
    // One hole at first; its whole group when that meets no limits.
    const std::vector<size_t> redraw =
        attempt < kMutationAttempts / 2 ? std::vector<size_t>{hole} : impl_->GroupOf(sketch, hole);
    for (size_t h : redraw) {
      mutant.choices[h] = static_cast<uint8_t>(Draw(rng, sketch.holes[h].domain));
    }
    if (mutant != point && impl_->Check(mutant).ok()) return mutant;
  }
  return std::nullopt;
}

std::optional<Point> SearchSpace::Crossover(const Point& a, const Point& b, Rng& rng) const {
  if (a.sketch != b.sketch || !impl_->IsWellFormed(a) || !impl_->IsWellFormed(b)) {
    return std::nullopt;
  }
  const Sketch& sketch = impl_->SketchOf(a);
  for (int attempt = 0; attempt < kMutationAttempts; ++attempt) {
    Point child = a;
    for (size_t h : impl_->GroupOf(sketch, Draw(rng, sketch.holes))) {
      child.choices[h] = b.choices[h];
    }
    if (child != a && child != b && impl_->Check(child).ok()) return child;
  }
  return std::nullopt;
}

std::optional<Point> SearchSpace::Exchange(const Point& point, const Part& part) const {
  const Sketch& sketch = impl_->SketchOf(point);
  const size_t k = part.kernel;
  if (k >= sketch.plans.size() || sketch.plans[k] != impl_->sketches[part.sketch].plans[k]) {
    return std::nullopt;
  }
  Point exchanged = point;
  std::copy(part.choices.begin(), part.choices.end(),
            exchanged.choices.begin() + static_cast<std::ptrdiff_t>(sketch.plan_begin[k]));
  return exchanged;
}

std::optional<std::vector<Point>> SearchSpace::Enumerate(double most) const {
  if (point_count() > most) return std::nullopt;
  std::vector<Point> points;
  for (size_t s = 0; s < impl_->sketches.size(); ++s) {
    const std::vector<Hole>& holes = impl_->sketches[s].holes;
    Point point{static_cast<uint8_t>(s), std::vector<uint8_t>(holes.size(), 0)};
    for (size_t next = 0; next < holes.size();) {
      if (next == 0 && impl_->Check(point).ok()) points.push_back(point);
      // Counts up, the first hole fastest.
      if (++point.choices[next] < holes[next].domain.size()) {
        next = 0;
      } else {
        point.choices[next++] = 0;
      }
    }
  }
  return points;
}

absl::Status SearchSpace::Check(const Point& point) const {
  if (!impl_->IsWellFormed(point)) {
    return absl::InvalidArgumentError("the point is not one of this space");
  }
  return impl_->Check(point);
}

absl::StatusOr<Program> SearchSpace::Lower(const Point& point) const {
  HEDDLE_RETURN_IF_ERROR(Check(point));
  ScheduleWriter writer(impl_->SketchOf(point).shape->schedule);
  HEDDLE_RETURN_IF_ERROR(impl_->Write(point, writer));
  return search_space::Lower(writer.schedule());
}

absl::StatusOr<std::vector<Step>> SearchSpace::Steps(const Point& point) const {
  HEDDLE_RETURN_IF_ERROR(Check(point));
  const ProgramShape& shape = *impl_->SketchOf(point).shape;
  ScheduleWriter writer(shape.schedule);
  // Whoever applies them is told of a step that does not apply.
  (void)impl_->Write(point, writer);
  std::vector<Step> steps = shape.steps;
  steps.insert(steps.end(), writer.steps().begin(), writer.steps().end());
  return steps;
}

std::vector<Part> SearchSpace::PartsOf(const Point& point) const {
  const Sketch& sketch = impl_->SketchOf(point);
  std::vector<Part> parts(sketch.plans.size());
  for (size_t k = 0; k < parts.size(); ++k) {
    const auto first = std::find_if(
        impl_->sketches.begin(), impl_->sketches.end(),
        [&](const Sketch& s) { return k < s.plans.size() && s.plans[k] == sketch.plans[k]; });
    parts[k].sketch = static_cast<uint8_t>(first - impl_->sketches.begin());
    parts[k].kernel = static_cast<uint16_t>(k);
    const auto begin = point.choices.begin() + static_cast<std::ptrdiff_t>(sketch.plan_begin[k]);
    parts[k].choices.assign(begin,
                            begin + static_cast<std::ptrdiff_t>(sketch.plans[k]->holes().size()));
  }
  return parts;
}

absl::StatusOr<Program> SearchSpace::Lower(const Part& part) const {
  const Sketch& sketch = impl_->sketches[part.sketch];
  const KernelPlan& plan = *sketch.plans[part.kernel];
  std::vector<int64_t> values;
  for (size_t h = 0; h < part.choices.size(); ++h) {
    values.push_back(plan.holes()[h].domain[part.choices[h]]);
  }
  HEDDLE_RETURN_IF_ERROR(plan.Check(values));
  const Schedule& unscheduled = sketch.shape->schedule;
  ScheduleWriter writer(unscheduled);
  HEDDLE_RETURN_IF_ERROR(plan.WriteTo(writer, values));
  const int root = sketch.shape->kernels[part.kernel].root;
  const BufferRef& result = sketch.shape->stage(root).tensor;
  // The kernel's own stage and what the plan put before it; the others belong to other parts.
  return search_space::Lower(writer.schedule(), [&](const ScheduledStage& s) {
    return s.tensor == result || unscheduled.FindStage(s.tensor.get()) < 0 ||
           s.Note<ScatterInMemory>() != nullptr;
  });
}

std::string SearchSpace::Print(const Point& point) const {
  const Sketch& sketch = impl_->SketchOf(point);
  const std::vector<int64_t> values = impl_->ValuesOf(point);
  std::string out = sketch.name + ":";
  for (size_t i = 0; i < values.size(); ++i) {
    absl::StrAppend(&out, " ", sketch.holes[i].name, "=", values[i]);
  }
  return out;
}

absl::StatusOr<Point> SearchSpace::Parse(const std::string& text) const {
  const size_t colon = text.find(':');
  const std::string name = text.substr(0, colon);
  const auto sketch = std::find_if(impl_->sketches.begin(), impl_->sketches.end(),
                                   [&](const Sketch& s) { return s.name == name; });
  if (colon == std::string::npos || sketch == impl_->sketches.end()) {
    return absl::InvalidArgumentError(absl::StrCat(
        "point '", text, "' names no sketch of this space; the sketches are ",
        absl::StrJoin(impl_->sketches, ", ",
                      [](std::string* out, const Sketch& s) { out->append(s.name); })));
  }
  Point point;
  point.sketch = static_cast<uint8_t>(sketch - impl_->sketches.begin());
  const std::vector<std::string> fields =
      absl::StrSplit(text.substr(colon + 1), ' ', absl::SkipEmpty());
  size_t next = 0;
  for (const Hole& hole : sketch->holes) {
    auto at = hole.domain.begin();
    if (next < fields.size() && absl::StartsWith(fields[next], hole.name + "=")) {
      int64_t value = 0;
      const bool number = absl::SimpleAtoi(fields[next].substr(hole.name.size() + 1), &value);
      at = std::find(hole.domain.begin(), hole.domain.end(), value);
      if (!number || at == hole.domain.end()) {
        return absl::InvalidArgumentError(absl::StrCat("'", fields[next], "' should be ", hole.name,
                                                       "= one of ",
                                                       absl::StrJoin(hole.domain, ", ")));
      }
      ++next;
    }
    point.choices.push_back(static_cast<uint8_t>(at - hole.domain.begin()));
  }
  if (next != fields.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("point '", text, "': '", fields[next], "' is no hole of sketch ", name,
                     " at this place; its holes are, in this order, ",
                     absl::StrJoin(sketch->holes, ", ",
                                   [](std::string* out, const Hole& h) { out->append(h.name); })));
  }
  return point;
}

const TensorProgram& SearchSpace::program() const { return *impl_->program; }
const Target& SearchSpace::target() const { return impl_->target; }

namespace {

// A longer sum than this loses too much when a thread adds up one term after another: 16 million
// positive ones are off by 3 %.
constexpr int64_t kLongestPlainSum = 4096;

// Makes `s`, where it is a long sum, add up partial sums, about as many as each has terms. Returns
// their stage.
std::optional<StageRef> SumInParts(ScheduleWriter& w, const ScheduledStage& s) {
  const int64_t terms = ExtentOf(s.reduce_axes);
  int64_t length = 1;
  if (s.combiner != Combiner::kSum || terms <= kLongestPlainSum) return std::nullopt;
  while (length * length < terms) length *= 2;
  return w.Rfactor(w.Split(w.Fuse(w.ReduceLoops({s.tensor})), length)[0]);
}

void WriteNaively(ScheduleWriter& w) {
  static constexpr int64_t kThreads = 128;
  const Schedule unscheduled = w.schedule();
  absl::flat_hash_map<const Buffer*, StageRef> partial;  // sums, in registers
  for (const ScheduledStage& s : unscheduled.stages()) {
    if (const auto sums = SumInParts(w, s)) partial[s.tensor.get()] = *sums;
  }
  for (const ScheduledStage& s : unscheduled.stages()) {
    if (s.is_reduction()) continue;
    const auto parts = w.Split(w.Fuse(w.Loops({s.tensor})), kThreads);
    w.Bind(parts[0], BindTo::kBlock);
    w.Bind(parts[1], BindTo::kThread);
    absl::flat_hash_set<const Buffer*> placed;
    Visit(s.body, [&](const Expr& node) {
      const int r = node->op == Op::kLoad ? unscheduled.FindStage(node->buffer.get()) : -1;
      if (r < 0 || !unscheduled.stage(r).is_reduction()) return;
      if (!placed.insert(node->buffer.get()).second) return;
      w.SetScope({node->buffer}, Scope::kLocal);
      w.ComputeAt({node->buffer}, parts[1]);
      const auto sums = partial.find(node->buffer.get());
      if (sums == partial.end()) return;
      w.SetScope(sums->second, Scope::kLocal);
      w.ComputeAt(sums->second, w.ReduceLoops({node->buffer})[0]);
    });
  }
}

}  // namespace

std::vector<Step> NaiveSteps(const TensorProgram& program) {
  // A program of its own reference, which the schedule only looks at.
  ScheduleWriter w(Schedule(std::make_shared<const TensorProgram>(program)));
  // A step that does not apply is the last one, for LowerSteps to say so.
  (void)ScheduleWriter::Try([&] { WriteNaively(w); });
  return w.steps();
}

absl::StatusOr<Program> LowerSteps(std::shared_ptr<const TensorProgram> program,
                                   const std::vector<Step>& steps) {
  Schedule schedule(std::move(program));
  HEDDLE_RETURN_IF_ERROR(Apply(steps, schedule));
  return Lower(schedule);
}

}  // namespace heddle::search_space
