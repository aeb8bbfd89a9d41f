#include "search_space/ir/matrix.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace heddle::search_space {
namespace {

// An instruction of a warpgroup, whose A has 64 rows and whose B has n.
constexpr MatrixShape Warpgroup(const char* name, int64_t n) {
  return {.name = name,
          .m = 64,
          .n = n,
          .k = 16,
          .result = DType::kFloat32,
          .arch = "sm_90a",
          .in_shared = true,
          .of = {DType::kFloat16, DType::kBFloat16},
          .layouts = {{{64, 16, 2, 4}, {n, 16, 2, 1}, {64, n, 2, 4}}}};
}

constexpr MatrixShape kShapes[] = {
    {.name = "mma_m16n8k16",
     .m = 16,
     .n = 8,
     .k = 16,
     .result = DType::kFloat32,
     .arch = "sm_80",
     .in_shared = false,
     .of = {DType::kFloat16, DType::kBFloat16},
     .layouts = {{{16, 16, 2}, {8, 16, 2}, {16, 8, 2}}}},
    Warpgroup("wgmma_m64n8k16", 8),
    Warpgroup("wgmma_m64n16k16", 16),
    Warpgroup("wgmma_m64n32k16", 32),
    Warpgroup("wgmma_m64n64k16", 64),
    Warpgroup("wgmma_m64n96k16", 96),
    Warpgroup("wgmma_m64n128k16", 128),
    Warpgroup("wgmma_m64n160k16", 160),
    Warpgroup("wgmma_m64n192k16", 192),
    Warpgroup("wgmma_m64n224k16", 224),
    Warpgroup("wgmma_m64n256k16", 256),
};

// "sm_90a" is 90; 0 for what is no such name.
int NumberOf(const char* arch) {
  return std::strncmp(arch, "sm_", 3) == 0 ? std::atoi(arch + 3) : 0;
}

}  // namespace

Expr FragmentLayout::Lane(const Expr& row, const Expr& col) const {
  const Expr lane = row % Int(kBlockRows) * Int(4) + col % Int(block_cols()) / Int(packed);
  return warps == 1 ? lane : row % Int(rows) / Int(rows / warps) * Int(kWarpLanes) + lane;
}

Expr FragmentLayout::Element(const Expr& row, const Expr& col) const {
  const int64_t warp_rows = rows / warps;
  const Expr block = row % Int(warp_rows) / Int(kBlockRows) +
                     col % Int(cols) / Int(block_cols()) * Int(warp_rows / kBlockRows);
  return block * Int(packed) + col % Int(packed);
}

bool MatrixShape::IsOn(const Target& target) const {
  if (target.api != Api::kCuda) return false;
  const int have = NumberOf(target.arch.c_str()), want = NumberOf(arch);
  return arch[std::strlen(arch) - 1] == 'a' ? have == want : have >= want;
}

const MatrixShape& ShapeOf(MatrixInstruction instruction) {
  return kShapes[static_cast<size_t>(instruction)];
}

absl::Span<const MatrixInstruction> WarpgroupInstructions() {
  static constexpr auto kAll = [] {
    std::array<MatrixInstruction, std::size(kShapes) - 1> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<MatrixInstruction>(i + 1);
    return all;
  }();
  return kAll;
}

int64_t SharedMatrix::OffsetOf(int64_t row, int64_t col) const {
  const int64_t line = transposed ? row : col, number = transposed ? col : row;
  return line / span * block + line % span + number * span;
}

double LongestMatrixSum(const TensorProgram& program, const Target& target) {
  const auto takes = [&](DType type) {
    return std::any_of(std::begin(kShapes), std::end(kShapes), [&](const MatrixShape& shape) {
      return shape.IsOn(target) && shape.Takes(type);
    });
  };
  double longest = 0;
  for (const Stage& stage : program.stages) {
    if (stage.combiner != Combiner::kSum) continue;
    bool multiplies = false;
    Visit(stage.body, [&](const Expr& e) { multiplies = multiplies || takes(e->type); });
    double terms = 1;
    for (const Var& axis : stage.reduce_axes) terms *= static_cast<double>(axis->extent);
    if (multiplies) longest = std::max(longest, terms);
  }
  return longest;
}

double PeakGflops(const TensorProgram& program, const Target& target) {
  return LongestMatrixSum(program, target) > 0 ? MatrixGflops(target) : target.peak_gflops;
}

}  // namespace heddle::search_space
