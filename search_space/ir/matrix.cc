#include "search_space/ir/matrix.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <iterator>

namespace heddle::search_space {
namespace {

constexpr MatrixShape kShapes[] = {
    {.name = "mma_m16n8k16",
     .m = 16,
     .n = 8,
     .k = 16,
     .result = DType::kFloat32,
     .first_arch = "sm_80",
     .of = {DType::kFloat16, DType::kBFloat16},
     .layouts = {{{16, 16, 2}, {8, 16, 2}, {16, 8, 2}}}},
};

// "sm_90a" is 90; 0 for what is no such name.
int NumberOf(const char* arch) {
  return std::strncmp(arch, "sm_", 3) == 0 ? std::atoi(arch + 3) : 0;
}

}  // namespace

Expr FragmentLayout::Lane(const Expr& row, const Expr& col) const {
  return row % Int(kBlockRows) * Int(4) + col % Int(block_cols()) / Int(packed);
}

Expr FragmentLayout::Element(const Expr& row, const Expr& col) const {
  const Expr block = row % Int(rows) / Int(kBlockRows) +
                     col % Int(cols) / Int(block_cols()) * Int(rows / kBlockRows);
  return block * Int(packed) + col % Int(packed);
}

bool MatrixShape::IsOn(const Target& target) const {
  return target.api == Api::kCuda && NumberOf(target.arch.c_str()) >= NumberOf(first_arch);
}

const MatrixShape& ShapeOf(MatrixInstruction instruction) {
  return kShapes[static_cast<size_t>(instruction)];
}

double PeakGflops(const TensorProgram& program, const Target& target) {
  const auto takes = [&](DType type) {
    return std::any_of(std::begin(kShapes), std::end(kShapes), [&](const MatrixShape& shape) {
      return shape.IsOn(target) && shape.Takes(type);
    });
  };
  bool multiplies = false;
  for (const Stage& stage : program.stages) {
    if (stage.combiner != Combiner::kSum) continue;
    Visit(stage.body, [&](const Expr& e) {
      multiplies = multiplies || (e->op == Op::kLoad && takes(e->buffer->dtype));
    });
  }
  return multiplies ? MatrixGflops(target) : target.peak_gflops;
}

}  // namespace heddle::search_space
