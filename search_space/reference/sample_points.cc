#include "search_space/reference/sample_points.h"

#include <algorithm>
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "search_space/reference/needed.h"

namespace heddle::search_space {
namespace {

// Finds the axes of an output on which intermediate reductions depend: points that agree in them
// share those reductions. Sets of axes are bit masks.
class SharedAxes {
 public:
  SharedAxes(const TensorProgram& program, const Stage& output) {
    for (size_t d = 0; d < output.axes.size(); ++d) depends_[output.axes[d].get()] = 1u << d;
    reached_.insert(&output);
    // Readers stand behind what they read: of each stage all readers are known when it is its turn,
    // however many ways lead to it.
    for (size_t s = program.stages.size(); s-- > 0;) {
      if (reached_.contains(&program.stages[s])) Follow(program, program.stages[s]);
    }
  }

  bool found() const { return found_; }
  uint32_t mask() const { return mask_; }
  // Of each of the reductions.
  const std::set<uint32_t>& masks() const { return masks_; }

 private:
  void Follow(const TensorProgram& program, const Stage& stage) {
    Visit(stage.body, [&](const Expr& e) {
      const Stage* read = e->op == Op::kLoad ? program.FindStage(e->buffer.get()) : nullptr;
      if (read == nullptr) return;
      reached_.insert(read);
      uint32_t all = 0;
      for (size_t d = 0; d < read->axes.size(); ++d) {
        uint32_t axes = 0;
        Visit(e->args[d], [&](const Expr& part) {
          if (part->op != Op::kVar) return;
          const auto it = depends_.find(part->var.get());
          if (it != depends_.end()) axes |= it->second;
        });
        depends_[read->axes[d].get()] |= axes;
        all |= axes;
      }
      if (!read->is_reduction()) return;
      found_ = true;
      mask_ |= all;
      masks_.insert(all);
    });
  }

  // On which axes of the output each axis of the stages depends.
  std::map<const Variable*, uint32_t> depends_;
  std::set<const Stage*> reached_;
  uint32_t mask_ = 0;
  bool found_ = false;
  std::set<uint32_t> masks_;
};

// The coordinates of `offset` in the axes of `mask`, as one number.
int64_t KeyOf(const Stage& output, uint32_t mask, int64_t offset) {
  int64_t key = 0, factor = 1;
  for (size_t d = output.axes.size(); d-- > 0;) {
    const int64_t extent = output.axes[d]->extent;
    if ((mask >> d & 1) != 0) key += offset % extent * factor;
    if ((mask >> d & 1) != 0) factor *= extent;
    offset /= extent;
  }
  return key;
}

// The axes along which points of a cluster agree; none where they share nothing. Where some
// reduction depends on every axis, as the scores of a softmax do that computes them, those of
// another one, as the scores' maximum, if a point takes half of what it takes alone.
std::optional<uint32_t> AxesToFix(const TensorProgram& program, const Stage& output) {
  const SharedAxes shared(program, output);
  const uint32_t all = (1u << output.axes.size()) - 1;
  if (!shared.found()) return std::nullopt;
  if (shared.mask() != all) return shared.mask();
  std::optional<uint32_t> best;
  double least = Need(program, output).operations_of_a_point() / 2;
  for (const uint32_t mask : shared.masks()) {
    const double operations = Need(program, output, all & ~mask).operations_of_a_point();
    if (mask == all || operations >= least) continue;
    best = mask;
    least = operations;
  }
  return best;
}

}  // namespace

std::vector<Cluster> ChoosePoints(const TensorProgram& program, const Stage& output, int64_t count,
                                  SampleRandom& random) {
  const uint32_t all = (1u << output.axes.size()) - 1;
  const std::optional<uint32_t> shared = AxesToFix(program, output);
  const uint32_t fixed = shared.value_or(0);
  const int64_t elements = output.tensor->elements;
  std::vector<Cluster> clusters;
  if (elements <= count) {
    std::map<std::pair<int64_t, int64_t>, Cluster> rows;
    for (int64_t offset = 0; offset < elements; ++offset) {
      rows[{KeyOf(output, fixed, offset), shared ? 0 : offset / kClusterPoints}].push_back(offset);
    }
    for (auto& [key, cluster] : rows) clusters.push_back(std::move(cluster));
    return clusters;
  }
  const size_t rank = output.axes.size();
  for (int64_t done = 0; done < count; done += kClusterPoints) {
    Cluster cluster;
    std::vector<int64_t> point(rank, 0);
    const auto draw = [&](uint32_t mask) {
      for (size_t d = 0; d < rank; ++d) {
        if ((mask >> d & 1) != 0) point[d] = random.Below(output.axes[d]->extent);
      }
    };
    // The first cluster starts at the first element, the second at the last.
    const bool corner = done < 2 * kClusterPoints;
    for (size_t d = 0; d < rank && done == kClusterPoints; ++d) {
      point[d] = output.axes[d]->extent - 1;
    }
    if (!corner) draw(fixed);
    const int64_t points = std::min(kClusterPoints, count - done);
    while (static_cast<int64_t>(cluster.size()) < points) {
      if (!corner || !cluster.empty()) draw(all & ~fixed);
      int64_t offset = 0;
      for (size_t d = 0; d < rank; ++d) offset = offset * output.axes[d]->extent + point[d];
      cluster.push_back(offset);
    }
    clusters.push_back(std::move(cluster));
  }
  return clusters;
}

}  // namespace heddle::search_space
