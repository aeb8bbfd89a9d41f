#include "search_space/sketch/rules/rolling_plan.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"

namespace heddle::search_space {
namespace {

// Of all that a product reads of a factor, which several results may share.
double BytesRead(const MatrixKernel& product, const Factor& factor) {
  const TiledKernel& kernel = product.kernel;
  double bytes = static_cast<double>(SizeOf(factor.operand.dtype));
  for (size_t a : factor.axes) {
    const bool is_data = a < kernel.axes.size();
    const TiledAxis& axis = is_data ? kernel.axes[a] : kernel.reduce_axes[a - kernel.axes.size()];
    bytes *= static_cast<double>(axis.extent);
  }
  return bytes;
}

}  // namespace

int64_t RollingPlan::Blocks(const RollingTile& t) const {
  int64_t blocks = 1;
  for (size_t a = 0; a < Kernel().axes.size(); ++a) {
    if (a == ColumnAxis()) continue;
    const int64_t extent = Kernel().axes[a].extent;
    blocks *= a == RowAxis() ? CeilDiv(extent, t.rows()) : extent;
  }
  return blocks;
}

double RollingPlan::Waste(HoleValues v) const {
  const int64_t rows = Kernel().axes[RowAxis()].extent;
  return static_cast<double>(RoundUp(rows, TileOf(v).rows())) / static_cast<double>(rows);
}

absl::Status RollingPlan::Check(HoleValues v) const {
  const TiledKernel& k = Kernel();
  const RollingTile t = TileOf(v);
  if (Terms() % t.terms != 0) {
    return k.Refuse(absl::StrCat(Terms(), " terms are no whole parts of ", t.terms));
  }
  const int64_t rows = k.axes[RowAxis()].extent;
  if (t.rows() > t.layout().rows && t.rows() >= 2 * rows) {
    return k.TooMany(t.rows(), "rows of a block", 2 * rows);
  }
  if (t.threads() > k.target.max_threads_per_block) {
    return k.TooMany(t.threads(), "threads", k.target.max_threads_per_block);
  }
  const int64_t blocks = std::max<int64_t>(1, t.min_blocks);
  if (t.shared_bytes > k.target.max_shared_bytes_per_block) {
    return k.TooMany(t.shared_bytes, "shared bytes", k.target.max_shared_bytes_per_block);
  }
  if (t.shared_bytes * blocks > k.target.shared_bytes_per_sm) {
    return k.TooMany(blocks, "blocks a multiprocessor",
                     k.target.shared_bytes_per_sm / t.shared_bytes);
  }
  const int64_t registers = std::min(k.target.max_registers_per_thread,
                                     k.target.registers_per_sm / (t.threads() * blocks));
  if (t.registers > registers) return k.TooMany(t.registers, "registers", registers);
  if (Blocks(t) > k.target.max_grid) return k.TooMany(Blocks(t), "blocks", k.target.max_grid);
  if (t.buffers > Terms() / t.terms + 1) {
    return k.TooMany(t.buffers, "buffers", Terms() / t.terms + 1);
  }
  if (t.reversed && !t.skips_masked) {
    return k.Refuse("blocks that leave nothing out have all the same to do");
  }
  return absl::OkStatus();
}

// Few draws come from anywhere.
void RollingPlan::Draw(std::mt19937_64& rng, std::vector<int64_t>& values) const {
  static constexpr int kAttempts = 16;
  const bool anywhere = std::uniform_int_distribution<size_t>(0, 7)(rng) == 0;
  for (int attempt = 0; attempt < kAttempts; ++attempt) {
    KernelPlan::Draw(rng, values);
    if (!anywhere) Improve(rng, values);
    if (Check(values).ok()) return;
  }
}

void RollingPlan::DrawMask(std::mt19937_64& rng, int64_t& masked, int64_t& reversed) const {
  const auto below = [&](size_t n) { return std::uniform_int_distribution<size_t>(0, n - 1)(rng); };
  if (chain_.is_masked && below(8) != 0) masked = 1;
  if (masked == 0) {
    reversed = 0;
  } else if (below(4) != 0) {
    reversed = 1;
  }
}

int64_t RollingPlan::ResultsAtOnce(int64_t results) const {
  const double room = static_cast<double>(Kernel().target.l2_bytes) / 2;
  double bytes = BytesRead(chain_.root, chain_.values());
  for (size_t s = 0; s < chain_.scores.size(); ++s) {
    const ScoreProduct& scores = chain_.scores[s];
    if (s != chain_.keys_are_values) bytes += BytesRead(scores.product, scores.keys());
  }
  if (room <= 0 || bytes <= room) return results;
  const auto most = static_cast<int64_t>(room / bytes * static_cast<double>(results));
  int64_t at_once = 1;
  for (int64_t d = 1; d <= results / d; ++d) {
    if (results % d != 0) continue;
    for (const int64_t divisor : {d, results / d}) {
      if (divisor <= most) at_once = std::max(at_once, divisor);
    }
  }
  return at_once;
}

LoopList RollingPlan::OrderBlocks(ScheduleWriter& w, const RollingTile& t, const LoopList& results,
                                  const LoopRef& rows, int64_t at_once) {
  const LoopRef all = w.Fuse(results);
  if (!t.skips_masked) return {all, rows};
  const auto [outer, inner] = w.Split(all, at_once);
  w.Reorder({outer, rows, inner});
  return {outer, rows, inner};
}

// Blocks, warps and lanes, and what each lane holds. Of a mask, blocks that run together have as
// much to do as one another, as far as what they read stays in the cache. Returns the loop of the
// threads.
LoopRef RollingPlan::WriteResult(ScheduleWriter& w, const RollingTile& t) const {
  const StageRef root = Kernel().root;
  const LoopList axes = w.Loops(root);
  const bool in_warpgroups = t.layout().warps > 1;
  std::vector<int64_t> parts = {t.groups, t.tiles};
  if (in_warpgroups) parts.push_back(t.layout().warps);
  parts.insert(parts.end(), {t.layout().row_blocks(), FragmentLayout::kBlockRows});
  LoopList blocks, results, row, col;
  for (size_t a = 0; a < axes.size(); ++a) {
    if (a == RowAxis()) {
      row = w.Split(axes[a], parts);
      if (t.reversed) w.Reverse(row[0]);
      blocks.insert(t.skips_masked ? blocks.begin() : blocks.end(), row[0]);
    } else if (a == ColumnAxis()) {
      col = w.Split(axes[a], {CeilDiv(Columns(), 8), 4, 2});
      blocks.push_back(col[0]);  // one
    } else {
      blocks.push_back(axes[a]);
      results.push_back(axes[a]);
    }
  }
  int64_t count = 1;
  for (const LoopRef& result : results) count *= result.var->extent;
  const int64_t at_once = ResultsAtOnce(count);
  const bool in_turns = at_once < count;
  if (in_turns) blocks = Join({results, {row[0], col[0]}});
  const LoopRef &line = row[row.size() - 1], &row_block = row[row.size() - 2];
  LoopList threads = {row[1]};
  if (in_warpgroups) threads.push_back(row[3]);
  threads.insert(threads.end(), {line, col[2]});
  w.Reorder(Join({blocks, threads, {row[2], row_block, col[1], col[3]}}));
  if (in_turns) blocks = Join({OrderBlocks(w, t, results, row[0], at_once), {col[0]}});
  w.Bind(w.Fuse(blocks), BindTo::kBlock);
  if (t.min_blocks > 0) w.LaunchBounds(root, t.min_blocks);
  const LoopRef thread = w.Fuse(threads);
  w.Bind(thread, BindTo::kThread);
  w.Vectorize(col[3]);
  return thread;
}

void RollingPlan::HoldScores(ScheduleWriter& w, const RollingTile& t, const Root& root,
                             const ScoreProduct& scores) const {
  const StageRef& sum = scores.sum();
  w.SetScope(sum, Scope::kLocal);
  const std::vector<Var> names = Stage(w, sum).axes;
  w.Fragment(sum, t.scores, MatrixOperand::kD, names[scores.queries().own]->name,
             names[scores.keys().own]->name);
  w.ComputeAt(sum, root.iterations);
}

void RollingPlan::HoldBeside(ScheduleWriter& w, const RollingTile& t, const Root& root) const {
  for (const BesideScores& beside : chain_.beside) {
    const StageRef held = w.CacheReadForKernel(beside.tensor, Scope::kLocal, Kernel().root);
    const std::vector<Var> axes = Stage(w, held).axes;
    w.Fragment(held, t.scores, MatrixOperand::kD, axes[beside.row]->name, axes[beside.term]->name);
    w.ComputeAt(held, root.iterations);
  }
}

void RollingPlan::WriteWeights(ScheduleWriter& w, const RollingTile& t, const Root& root) const {
  const StageRef& weights = chain_.weights;
  const std::vector<Var> axes = Stage(w, weights).axes;
  w.SetScope(weights, Scope::kLocal);
  w.Fragment(weights, t.root, MatrixOperand::kA, axes[chain_.weights_row]->name,
             axes[chain_.weights_term]->name);
  w.ComputeAt(weights, root.iterations);
}

void RollingPlan::WriteStatistic(ScheduleWriter& w, size_t number, const RollingTile& t,
                                 const Root& root) const {
  const StageRef& statistic = chain_.statistics[number];
  w.SetScope(statistic, Scope::kLocal);
  w.RowFragment(statistic, t.root, Stage(w, statistic).axes[chain_.statistic_rows[number]]->name);
  w.RollingUpdate(statistic, root.iterations);
}

void RollingPlan::Write(ScheduleWriter& w, HoleValues v) const {
  const RollingTile t = TileOf(v);
  for (const BufferRef& stage : chain_.inlined) w.ComputeInline({stage});
  const StageRef sum = Kernel().reduction;
  if (t.skips_masked) w.SkipMasked(sum);
  const auto tile_of = [&](const StageRef& of, const Factor& factor) {
    return w.GatherRead(of, static_cast<int64_t>(factor.operand.number));
  };
  std::optional<StageRef> values;
  if (!t.shared_keys.has_value()) values = tile_of(sum, chain_.values());
  std::vector<std::pair<StageRef, std::optional<StageRef>>> tiles;  // of queries and keys
  for (size_t s = 0; s < chain_.scores.size(); ++s) {
    const ScoreProduct& scores = chain_.scores[s];
    const StageRef queries = tile_of(scores.sum(), scores.queries());
    tiles.emplace_back(queries, std::nullopt);
    if (s != t.shared_keys) tiles.back().second = tile_of(scores.sum(), scores.keys());
  }

  const LoopRef thread = WriteResult(w, t);
  w.SetScope(sum, Scope::kLocal);
  const std::vector<Var> names = Stage(w, sum).axes;
  w.Fragment(sum, t.root, MatrixOperand::kD, names[RowAxis()]->name, names[ColumnAxis()]->name);
  w.ComputeAt(sum, thread);
  const int64_t k = ShapeOf(t.root).k;
  LoopList parts = w.ReduceLoops(sum);
  const LoopRef terms = parts[chain_.root.depth];
  parts.erase(parts.begin() + static_cast<std::ptrdiff_t>(chain_.root.depth));
  const auto [iterations, step, k16] = w.Split(terms, t.terms / k, k);
  const Root root = {thread, iterations};
  const LoopRef read = WriteRootProduct(w, t, {iterations, step}, parts, k16);
  if (values.has_value()) {
    WriteValues(w, t, root, *values);
    ReadValues(w, *values, read);
  }
  // Who reads a stage is in its place before it.
  const auto index_of = [&](const StageRef& s) { return w.schedule().FindStage(s.tensor.get()); };
  const int weights_at = index_of(chain_.weights);
  const auto write_statistics = [&](bool behind_weights) {
    for (size_t s = chain_.statistics.size(); s-- > 0;) {
      const StageRef& statistic = chain_.statistics[s];
      if ((index_of(statistic) > weights_at) == behind_weights) WriteStatistic(w, s, t, root);
    }
  };
  write_statistics(true);
  WriteWeights(w, t, root);
  write_statistics(false);
  if (t.reads_ahead) HoldBeside(w, t, root);
  for (size_t s = chain_.scores.size(); s-- > 0;) {
    ScoreProduct scores = chain_.scores[s];
    if (s == t.shared_keys) {
      Factor& keys = scores.product.factors[1 - scores.queries_number];
      keys = keys.OfCopy(chain_.values_dims, chain_.values_tensor->shape.size());
    }
    HoldScores(w, t, root, scores);
    const StageRef keys = s == t.shared_keys ? w.CacheReadForKernel(chain_.values_tensor,
                                                                    Scope::kShared, Kernel().root)
                                             : *tiles[s].second;
    WriteScores(w, t, root, scores, tiles[s].first, keys);
    if (s == t.shared_keys) ReadValues(w, keys, read);
  }
  if (t.buffers > 0) w.Pipeline(root.iterations, t.kind, t.buffers);
}

}  // namespace heddle::search_space
