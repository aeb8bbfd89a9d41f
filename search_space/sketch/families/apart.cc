#include "search_space/sketch/families/apart.h"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "search_space/sketch/programs/combinations.h"
#include "search_space/sketch/programs/plans.h"

namespace heddle::search_space {
namespace {

// A program with kernels of its own for reductions that a kernel had together.
struct Parted {
  Partitioned divided;
  std::vector<Plans> plans;
};

// All reductions but one of those kernels that only a fallback can do. None where there are none.
std::optional<Parted> PartKernels(const std::shared_ptr<const TensorProgram>& program,
                                  const Target& target, bool together) {
  const auto find = [&](const Partition& p) {
    return together ? FindKernelsTogether(program, p) : FindKernels(program, {}, p);
  };
  const ProgramShape shape = find({});
  Partition partition;
  const std::vector<Plans> plans = PlansOf(shape, true, target);
  for (size_t k = 0; k < plans.size(); ++k) {
    const bool plain = std::all_of(plans[k].begin(), plans[k].end(),
                                   [](const Plan& p) { return p.rule->is_fallback; });
    if (plain) partition.apart.merge(OtherReductions(shape, shape.kernels[k]));
  }
  if (partition.apart.empty()) return std::nullopt;
  Parted parted{{partition, together, std::make_shared<const ProgramShape>(find(partition))}, {}};
  parted.plans = PlansOf(*parted.divided.shape, false, target);
  return parted;
}

}  // namespace

std::vector<Partitioned> AddApart(const std::shared_ptr<const TensorProgram>& program,
                                  const Target& target, const ProgramShape& definition,
                                  std::vector<Sketch>& sketches) {
  const bool has_several =
      std::any_of(definition.kernels.begin(), definition.kernels.end(),
                  [](const KernelShape& k) { return k.reductions.size() > 1; });
  if (!has_several) return {};
  const ProgramShape shape = FindKernelsTogether(program);
  const std::vector<Plans> together = PlansOf(shape, false, target);
  // Of long sums that read one tensor at several places, as products by slices of a matrix do,
  // nothing is known together.
  bool is_known = !together.empty();
  for (size_t k = 0; k < together.size(); ++k) {
    const bool only_fallback = std::all_of(together[k].begin(), together[k].end(),
                                           [](const Plan& p) { return p.rule->is_fallback; });
    constexpr int64_t kMostOfWindow = 128;  // terms that one thread adds up, whatever they read
    const std::vector<int>& sums = shape.kernels[k].reductions;
    const bool are_long = std::any_of(sums.begin(), sums.end(), [&](int s) {
      return ExtentOf(shape.stage(s).reduce_axes) > kMostOfWindow &&
             shape.schedule.HasCompanions(shape.stage(s));
    });
    is_known = is_known && !(only_fallback && are_long);
  }
  std::vector<Parted> all;
  if (!together.empty()) {
    if (auto parted = PartKernels(program, target, true)) all.push_back(*std::move(parted));
  }
  const size_t matrices = CountMatrices(all.empty() ? together : all[0].plans);
  auto parted = PartKernels(program, target, false);
  if (parted && (!is_known || CountMatrices(parted->plans) > matrices)) {
    all.push_back(*std::move(parted));
  }
  const size_t first = sketches.size();
  std::vector<Partitioned> divided;
  for (Parted& p : all) {
    AddCombinations(p.plans, p.divided.shape, sketches);
    divided.push_back(std::move(p.divided));
  }
  for (size_t s = first; s < sketches.size(); ++s) {
    sketches[s].name =
        absl::StrCat("apart/", sketches[s].name, CompanionsIn(sketches[s].shape->schedule));
  }
  return divided;
}

}  // namespace heddle::search_space
