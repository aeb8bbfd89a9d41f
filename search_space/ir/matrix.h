// Instructions that multiply small matrices: a warp's, whose operands its lanes hold in registers
// together, and a warpgroup's, which read theirs from shared memory while the threads go on.
#ifndef HEDDLE_SEARCH_SPACE_IR_MATRIX_H_
#define HEDDLE_SEARCH_SPACE_IR_MATRIX_H_

#include <array>
#include <cstdint>

#include "absl/types/span.h"
#include "search_space/ir/expr/expr.h"
#include "search_space/ir/target.h"
#include "search_space/ir/tensor_program.h"

namespace heddle::search_space {

// D[m, n] = A[m, k] B[n, k] + D[m, n].
enum class MatrixOperand : uint8_t { kA, kB, kD };

// How neighbouring warps hold a matrix of rows x cols elements, each an equal share of the rows: in
// blocks of 8 rows and 4 * packed columns, of which lane row * 4 + q holds columns q * packed ..
// q * packed + packed - 1. A lane's elements are those of one block after another, downwards first
// (PTX ISA, "Matrix Fragments for mma.m16n8k16", "Register Fragments for wgmma.mma_async.m64nNk16"
// and the sections beside them, whose figures all say this).
struct FragmentLayout {
  int64_t rows, cols;
  int64_t packed;
  int64_t warps = 1;

  static constexpr int64_t kWarpLanes = 32, kBlockRows = 8;
  static constexpr int64_t kRowLanes = 4;  // that hold elements of one row of a block
  int64_t lanes() const { return kWarpLanes * warps; }
  int64_t warp_rows() const { return rows / warps; }
  int64_t row_blocks() const { return warp_rows() / kBlockRows; }  // of a warp, along its rows
  int64_t block_cols() const { return kRowLanes * packed; }
  int64_t blocks() const { return rows / kBlockRows * (cols / block_cols()); }
  int64_t elements() const { return rows * cols / lanes(); }  // of one lane
  // Who holds the element at (row, col), of all lanes, and which of its elements it is there.
  Expr Lane(const Expr& row, const Expr& col) const;
  Expr Element(const Expr& row, const Expr& col) const;
  // Where that element of a lane stands.
  Expr Row(const Expr& lane, const Expr& element) const;
  Expr Col(const Expr& lane, const Expr& element) const;
};

struct MatrixShape {
  const char* name;                       // "mma_m16n8k16"
  int64_t m, n, k;                        // elements
  DType result;                           // of D, in which sums are made
  const char* arch;                       // "sm_80": from it on; "sm_90a": devices of that alone
  bool in_shared;                         // is B, and may A be, read from there, in background?
  std::array<DType, 2> of;                // types that A and B may have, both the same
  std::array<FragmentLayout, 3> layouts;  // of A, B and D

  const FragmentLayout& Layout(MatrixOperand operand) const {
    return layouts[static_cast<size_t>(operand)];
  }
  bool Takes(DType type) const { return of[0] == type || of[1] == type; }
  bool IsOn(const Target& target) const;
};

// The instructions; a step and a statement name one by its place here.
enum class MatrixInstruction : uint8_t {
  kM16N8K16,
  kM64N8K16,  // and those behind it are of a warpgroup
  kM64N16K16,
  kM64N32K16,
  kM64N64K16,
  kM64N96K16,
  kM64N128K16,
  kM64N160K16,
  kM64N192K16,
  kM64N224K16,
  kM64N256K16,
  kM16N8K8,  // a warp's of tf32
  kM64N8K8,  // and those behind it are of a warpgroup
  kM64N16K8,
  kM64N32K8,
  kM64N64K8,
  kM64N96K8,
  kM64N128K8,
  kM64N160K8,
  kM64N192K8,
  kM64N224K8,
  kM64N256K8,
};
const MatrixShape& ShapeOf(MatrixInstruction instruction);
// What a warp multiplies numbers of the type with, and those of a warpgroup, narrowest first. Of
// types that have none the first is that of 16 bits, which does not take them, and there are none.
MatrixInstruction WarpInstruction(DType type);
absl::Span<const MatrixInstruction> WarpgroupInstructions(DType type);

// A matrix in shared memory as instructions of a warpgroup read it: in rows (columns, where
// transposed) of `span` elements, one behind the other. Every 8 of them are a swizzled square of
// 16-byte chunks (Buffer::swizzle). What is longer than a span goes on `block` elements further
// (PTX ISA, "Shared Memory Matrix Layout" of wgmma). Only elements of 16 bits are transposed.
struct SharedMatrix {
  bool transposed = false;
  int64_t span = 0, block = 0;

  static constexpr int64_t kSquareRows = 8, kChunk = 16, kLongestSpan = 128;  // bytes, the last two
  // Elements from that at row 0, column 0, before swizzling.
  int64_t OffsetOf(int64_t row, int64_t col) const;
  // The spans that instructions know, and what a buffer has to be aligned to for each, in bytes.
  static bool IsSpan(int64_t span, DType type) {
    const int64_t bytes = span * SizeOf(type);
    return bytes == 32 || bytes == 64 || bytes == kLongestSpan;
  }
  static int64_t Alignment(int64_t span, DType type) { return kSquareRows * span * SizeOf(type); }
  // The longest into which so many elements can be cut; 0: there is none.
  static int64_t LongestSpanOf(int64_t elements, DType type);
  // Are its elements swizzled in lines of `span`, at an address that suits?
  static bool IsSwizzled(const Buffer& buffer, int64_t span);
};

// The steps, each of an instruction's k terms, of the longest of the program's sums that matrix
// instructions of `target` may take: of anything of a type that they multiply, and of what may be
// split into parts of it (parts.h), each of which is a term. 0 where there is none.
double MostMatrixSteps(const TensorProgram& program, const Target& target);

// The most that `target` can do of what `program` computes, as Target::peak_gflops: what its matrix
// instructions can where they may take the sums of the program.
double PeakGflops(const TensorProgram& program, const Target& target);

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_IR_MATRIX_H_
