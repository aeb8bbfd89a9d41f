#include "search_space/ir/matrix.h"

#include <algorithm>
#include <cstring>
#include <iterator>

#include "absl/functional/function_ref.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/parts.h"
#include "search_space/ir/whole_factors.h"

namespace heddle::search_space {
namespace {

constexpr std::array kHalves = {DType::kFloat16, DType::kBFloat16};
constexpr std::array kTF32s = {DType::kTF32, DType::kTF32};

// An instruction of a warpgroup, whose A has 64 rows and whose B has n. A row of a step has 32
// bytes.
constexpr MatrixShape Warpgroup(const char* name, int64_t n, std::array<DType, 2> of = kHalves) {
  const int64_t k = of == kHalves ? 16 : 8, packed = k / 8;
  return {.name = name,
          .m = 64,
          .n = n,
          .k = k,
          .result = DType::kFloat32,
          .arch = "sm_90a",
          .in_shared = true,
          .of = of,
          .layouts = {{{64, k, packed, 4}, {n, k, packed, 1}, {64, n, 2, 4}}}};
}

constexpr MatrixShape kShapes[] = {
    {.name = "mma_m16n8k16",
     .m = 16,
     .n = 8,
     .k = 16,
     .result = DType::kFloat32,
     .arch = "sm_80",
     .in_shared = false,
     .of = kHalves,
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
    {.name = "mma_m16n8k8",
     .m = 16,
     .n = 8,
     .k = 8,
     .result = DType::kFloat32,
     .arch = "sm_80",
     .in_shared = false,
     .of = kTF32s,
     .layouts = {{{16, 8, 1}, {8, 8, 1}, {16, 8, 2}}}},
    Warpgroup("wgmma_m64n8k8", 8, kTF32s),
    Warpgroup("wgmma_m64n16k8", 16, kTF32s),
    Warpgroup("wgmma_m64n32k8", 32, kTF32s),
    Warpgroup("wgmma_m64n64k8", 64, kTF32s),
    Warpgroup("wgmma_m64n96k8", 96, kTF32s),
    Warpgroup("wgmma_m64n128k8", 128, kTF32s),
    Warpgroup("wgmma_m64n160k8", 160, kTF32s),
    Warpgroup("wgmma_m64n192k8", 192, kTF32s),
    Warpgroup("wgmma_m64n224k8", 224, kTF32s),
    Warpgroup("wgmma_m64n256k8", 256, kTF32s),
};
constexpr size_t kOfType = std::size(kShapes) / 2;  // of 16 bits, and of tf32: a warp's, and others

}  // namespace

Expr FragmentLayout::Lane(const Expr& row, const Expr& col) const {
  const Expr lane = row % Int(kBlockRows) * Int(kRowLanes) + col % Int(block_cols()) / Int(packed);
  return warps == 1 ? lane : row % Int(rows) / Int(warp_rows()) * Int(kWarpLanes) + lane;
}

Expr FragmentLayout::Element(const Expr& row, const Expr& col) const {
  const Expr block = row % Int(warp_rows()) / Int(kBlockRows) +
                     col % Int(cols) / Int(block_cols()) * Int(row_blocks());
  return block * Int(packed) + col % Int(packed);
}

Expr FragmentLayout::Row(const Expr& lane, const Expr& element) const {
  const Expr block = element / Int(packed) % Int(row_blocks());
  const Expr row = block * Int(kBlockRows) + lane % Int(kWarpLanes) / Int(kRowLanes);
  return warps == 1 ? row : lane / Int(kWarpLanes) * Int(warp_rows()) + row;
}

Expr FragmentLayout::Col(const Expr& lane, const Expr& element) const {
  const Expr block = element / Int(packed) / Int(row_blocks());
  return block * Int(block_cols()) + lane % Int(kRowLanes) * Int(packed) + element % Int(packed);
}

bool MatrixShape::IsOn(const Target& target) const {
  const int have = CudaArch(target), want = CudaArch(arch);
  return arch[std::strlen(arch) - 1] == 'a' ? have == want : have >= want;
}

const MatrixShape& ShapeOf(MatrixInstruction instruction) {
  return kShapes[static_cast<size_t>(instruction)];
}

MatrixInstruction WarpInstruction(DType type) {
  return type == DType::kTF32 ? MatrixInstruction::kM16N8K8 : MatrixInstruction::kM16N8K16;
}

absl::Span<const MatrixInstruction> WarpgroupInstructions(DType type) {
  static constexpr auto kAll = [] {
    std::array<MatrixInstruction, std::size(kShapes)> all{};
    for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<MatrixInstruction>(i);
    return all;
  }();
  if (!IsNarrow(type)) return {};
  return absl::MakeSpan(kAll).subspan(type == DType::kTF32 ? kOfType + 1 : 1, kOfType - 1);
}

int64_t SharedMatrix::LongestSpanOf(int64_t elements, DType type) {
  for (int64_t span = kLongestSpan / SizeOf(type); IsSpan(span, type); span /= 2) {
    if (elements % span == 0) return span;
  }
  return 0;
}

bool SharedMatrix::IsSwizzled(const Buffer& buffer, int64_t span) {
  const int64_t size = SizeOf(buffer.dtype);
  return IsSpan(span, buffer.dtype) && buffer.swizzle * size == kChunk &&
         buffer.swizzle_row == span && buffer.swizzle_period * span * size == kLongestSpan &&
         buffer.alignment % Alignment(span, buffer.dtype) == 0;
}

int64_t SharedMatrix::OffsetOf(int64_t row, int64_t col) const {
  const int64_t line = transposed ? row : col, number = transposed ? col : row;
  return line / span * block + line % span + number * span;
}

namespace {

// Calls `visit` with what a sum is made of that instructions of `target` take, and its terms.
void VisitProducts(const TensorProgram& program, const Target& target,
                   absl::FunctionRef<void(DType type, double terms)> visit) {
  for (const Stage& stage : program.stages) {
    if (stage.combiner != Combiner::kSum) continue;
    const auto terms = static_cast<double>(ExtentOf(stage.reduce_axes)) *
                       (FindSplittable(program, stage).has_value() ? kPartCount : 1);
    const auto whole = TypeOfWholeFactors(program, stage);
    if (whole.ok() && ShapeOf(WarpInstruction(*whole)).IsOn(target)) visit(*whole, terms);
    Visit(stage.body, [&](const Expr& e) {
      const MatrixShape& shape = ShapeOf(WarpInstruction(e->type));
      if (shape.Takes(e->type) && shape.IsOn(target)) visit(e->type, terms);
    });
  }
}

}  // namespace

double MostMatrixSteps(const TensorProgram& program, const Target& target) {
  double most = 0;
  VisitProducts(program, target, [&](DType type, double terms) {
    most = std::max(most, terms / static_cast<double>(ShapeOf(WarpInstruction(type)).k));
  });
  return most;
}

double PeakGflops(const TensorProgram& program, const Target& target) {
  double peak = target.peak_gflops;
  VisitProducts(program, target, [&](DType type, double /*terms*/) {
    peak = std::max(peak, MatrixGflops(target, type));
  });
  return peak;
}

}  // namespace heddle::search_space
