#include "tuner/search/proposers/part_times.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/math.h"

namespace heddle::tuner {

using search_space::Part;
using search_space::Point;

namespace {

// How far a part's time is from its guess, as a share of that, before it was measured.
constexpr double kSpread = 0.5;
// A part takes this share of its guess at least.
constexpr double kLeast = 0.02;
// Of each plan so many of its fastest parts are put together with others.
constexpr size_t kFewParts = 4;
// What is believed of a plan's factor, as a share of what all programs say of it; passes that
// settle factors and times.
constexpr double kRidge = 1e-3;
constexpr int kFactorSweeps = 200, kSweeps = 30;

}  // namespace

void PartTimes::Add(absl::Span<const Part> parts, absl::Span<const double> guess_us, double time_us,
                    double error) {
  ProgramTime program{{}, time_us, error * time_us * error * time_us};
  for (size_t i = 0; i < parts.size(); ++i) {
    const auto [known, is_new] = index_.try_emplace(parts[i], entries_.size());
    if (is_new) {
      const auto [plan, is_first] =
          plans_.try_emplace({parts[i].sketch, parts[i].kernel}, factors_.size());
      if (is_first) {
        factors_.push_back(0);
        parts_of_plan_.emplace_back();
      }
      parts_of_plan_[plan->second].push_back(entries_.size());
      entries_.push_back({parts[i], plan->second, guess_us[i], 0, {}});
    }
    program.parts.push_back(known->second);
    entries_[known->second].programs.push_back(programs_.size());
  }
  programs_.push_back(std::move(program));
}

double PartTimes::Sum(const ProgramTime& program) const {
  double sum = 0;
  for (size_t part : program.parts) sum += entries_[part].time_us;
  return sum;
}

// Factors by which what is guessed of each plan's parts adds up to the programs' times: weighted
// least squares, with a little of what all plans have in common for those that no program tells
// apart.
void PartTimes::FitFactors() {
  std::vector<double> ratios;
  for (const ProgramTime& program : programs_) {
    double guess = 0;
    for (size_t part : program.parts) guess += entries_[part].guess_us;
    ratios.push_back(program.time_us / guess);
  }
  const double common = UpperMedian(std::move(ratios));
  const size_t n = factors_.size();
  std::vector<double> products(n * n), sums(n);
  for (const ProgramTime& program : programs_) {
    for (size_t a : program.parts) {
      const Entry& of = entries_[a];
      sums[of.plan] += of.guess_us * program.time_us / program.variance;
      for (size_t b : program.parts) {
        products[of.plan * n + entries_[b].plan] +=
            of.guess_us * entries_[b].guess_us / program.variance;
      }
    }
  }
  for (size_t p = 0; p < n; ++p) {
    const double ridge = kRidge * products[p * n + p];
    products[p * n + p] += ridge;
    sums[p] += ridge * common;
  }
  factors_.assign(n, common);
  for (int sweep = 0; sweep < kFactorSweeps; ++sweep) {
    for (size_t p = 0; p < n; ++p) {
      double left = sums[p];
      for (size_t q = 0; q < n; ++q) left -= q == p ? 0 : products[p * n + q] * factors_[q];
      factors_[p] = std::max(left / products[p * n + p], kLeast * common);
    }
  }
}

// One pass of coordinate descent: each part's best time for given times of all others.
void PartTimes::Sweep() {
  for (Entry& entry : entries_) {
    const double prior = factors_[entry.plan] * entry.guess_us;
    double precision = 1 / (kSpread * prior * kSpread * prior), mean = prior * precision;
    for (size_t i : entry.programs) {
      const ProgramTime& program = programs_[i];
      precision += 1 / program.variance;
      mean += (program.time_us - (Sum(program) - entry.time_us)) / program.variance;
    }
    entry.time_us = std::max(mean / precision, kLeast * prior);
  }
}

void PartTimes::Estimate() {
  if (programs_.empty()) return;
  FitFactors();
  for (Entry& entry : entries_) entry.time_us = factors_[entry.plan] * entry.guess_us;
  for (int sweep = 0; sweep < kSweeps; ++sweep) Sweep();
}

std::optional<double> PartTimes::Of(const Part& part) const {
  const auto known = index_.find(part);
  if (known == index_.end()) return std::nullopt;
  return entries_[known->second].time_us;
}

std::vector<Part> PartTimes::WithPlanOf(const Part& part) const {
  const auto plan = plans_.find({part.sketch, part.kernel});
  if (plan == plans_.end()) return {};
  std::vector<size_t> order = parts_of_plan_[plan->second];
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return entries_[a].time_us < entries_[b].time_us; });
  std::vector<Part> parts;
  for (size_t i : order) parts.push_back(entries_[i].part);
  return parts;
}

std::vector<Composition> PartTimes::Compose(const search_space::SearchSpace& space,
                                            const search_space::Point& base, size_t most) const {
  std::vector<Composition> composed = {{base, 0}};
  for (const Part& part : space.PartsOf(base)) {
    std::vector<Part> fastest = WithPlanOf(part);
    if (fastest.empty()) continue;
    fastest.resize(std::min(fastest.size(), kFewParts));
    std::vector<Composition> longer;
    for (const Composition& c : composed) {
      for (const Part& other : fastest) {
        std::optional<Point> point = space.Exchange(c.point, other);
        if (point) longer.push_back({*std::move(point), c.time_us + *Of(other)});
      }
    }
    std::stable_sort(longer.begin(), longer.end(), [](const Composition& a, const Composition& b) {
      return a.time_us < b.time_us;
    });
    longer.resize(std::min(longer.size(), most));
    composed = std::move(longer);
  }
  return composed;
}

}  // namespace heddle::tuner
