// Instructions that multiply small matrices, whose operands a warp holds in its registers together.
#ifndef HEDDLE_SEARCH_SPACE_IR_MATRIX_H_
#define HEDDLE_SEARCH_SPACE_IR_MATRIX_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "search_space/ir/expr.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// D[m, n] = A[m, k] B[n, k] + D[m, n].
enum class MatrixOperand : uint8_t { kA, kB, kD };

// How a warp holds a matrix of rows x cols elements: in blocks of 8 rows and 4 * packed columns, of
// which lane row * 4 + q holds columns q * packed .. q * packed + packed - 1. A lane's elements are
// those of one block after another, downwards first (PTX ISA, "Matrix Fragments for mma.m16n8k16"
// and the sections beside it, whose figures all say this).
struct FragmentLayout {
  int64_t rows, cols;
  int64_t packed;

  static constexpr int64_t kLanes = 32, kBlockRows = 8;
  int64_t block_cols() const { return 4 * packed; }
  int64_t blocks() const { return rows / kBlockRows * (cols / block_cols()); }
  int64_t elements() const { return rows * cols / kLanes; }  // of one lane
  // Who holds the element at (row, col), and which of its elements it is there.
  Expr Lane(const Expr& row, const Expr& col) const;
  Expr Element(const Expr& row, const Expr& col) const;
};

struct MatrixShape {
  const char* name;                       // "mma_m16n8k16"
  int64_t m, n, k;                        // elements
  DType result;                           // of D, in which sums are made
  const char* first_arch;                 // that has the instruction: "sm_80"
  std::array<DType, 2> of;                // types that A and B may have, both the same
  std::array<FragmentLayout, 3> layouts;  // of A, B and D

  const FragmentLayout& Layout(MatrixOperand operand) const {
    return layouts[static_cast<size_t>(operand)];
  }
  bool Takes(DType type) const { return of[0] == type || of[1] == type; }
  bool IsOn(const Target& target) const;
};

// The instructions; a step and a statement name one by its place here.
enum class MatrixInstruction : uint8_t { kM16N8K16 };
const MatrixShape& ShapeOf(MatrixInstruction instruction);

// The most that `target` can do of what `program` computes, as Target::peak_gflops: what its matrix
// instructions can where they may take the sums of the program.
double PeakGflops(const TensorProgram& program, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_MATRIX_H_
