#include "search_space/check/verify_matrix.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

bool IsMultiple(const Expr& e, int64_t of) {
  const ModRem m = ModulusRemainder(e);
  return m.modulus % of == 0 && m.remainder % of == 0;
}

// In elements, without swizzle.
Expr OffsetOf(const Buffer& b, const ExprList& indices) {
  Expr offset = Int(0);
  for (size_t i = 0; i < indices.size() && i < b.strides.size(); ++i) {
    offset = offset + indices[i] * Int(b.strides[i]);
  }
  return offset;
}

// Are so many elements from there on a lane's own, one behind the other?
std::string FragmentProblem(const BufferRef& b, const ExprList& indices, int64_t elements) {
  const Expr offset = OffsetOf(*b, indices);
  if (b->scope == Scope::kLocal && IsMultiple(offset, elements) &&
      BoundsOf(offset).max + elements <= b->elements) {
    return "";
  }
  return absl::StrCat(NameOf(b->scope), " ", ToString(Load(b, indices)), " does not begin ",
                      elements, " elements of a fragment");
}

std::string LoadProblem(const StmtNode& s) {
  const Expr& row = s.value;
  const bool two_or_four = s.int_value == 2 || s.int_value == 4;
  if (!two_or_four || row->op != Op::kLoad || row->buffer->scope != Scope::kShared ||
      row->type != s.buffer->dtype || !IsNarrow(row->type)) {
    return absl::StrCat("load_matrix of ", s.int_value, " blocks from ", ToString(row),
                        "; it must be 2 or 4 of 16 bits or tf32, from shared memory");
  }
  if (s.intrinsic == Intrinsic::kLoadMatrixTransposed && !IsHalf(row->type)) {
    return absl::StrCat("load_matrix of blocks from ", ToString(row),
                        ", transposed: only elements of 16 bits can be");
  }
  const Buffer& b = *row->buffer;
  const int64_t row_elements =
      SharedMatrix::kChunk / SizeOf(row->type);  // elements read in one place
  // The rest of the row belongs to the same innermost axis.
  bool is_inside = false;
  for (size_t i = 0; i < row->args.size(); ++i) {
    is_inside = is_inside || (b.strides[i] == 1 && b.shape[i] % row_elements == 0 &&
                              IsMultiple(row->args[i], row_elements));
  }
  const bool is_whole = b.swizzle == 0 || b.swizzle % row_elements == 0;
  const bool is_aligned = b.alignment % 16 == 0 && IsMultiple(OffsetOf(b, row->args), row_elements);
  if (!is_inside || !is_whole || !is_aligned) {
    return absl::StrCat("shared ", ToString(row), " is not proven to begin ", row_elements,
                        " elements in one place, aligned to 16 bytes");
  }
  return FragmentProblem(s.buffer, s.indices, row_elements / 4 * s.int_value);
}

std::string MultiplyProblem(const StmtNode& s, const Target& target) {
  const MatrixShape& shape = s.matrix();
  if (!shape.IsOn(target)) return absl::StrCat(target.arch, " has no instruction ", shape.name);
  const Expr &a = MatrixOperandOf(s, 0), &b = MatrixOperandOf(s, 1);
  if (shape.in_shared || a->op != Op::kLoad || b->op != Op::kLoad || a->type != b->type ||
      !shape.Takes(a->type) || s.buffer->dtype != shape.result) {
    return absl::StrCat(shape.name, " of ", ToString(a), " and ", ToString(b), " into ",
                        NameOf(s.buffer->dtype), " ", s.buffer->name);
  }
  const auto elements = [&](MatrixOperand operand) { return shape.Layout(operand).elements(); };
  std::string problem = FragmentProblem(a->buffer, a->args, elements(MatrixOperand::kA));
  if (problem.empty()) {
    problem = FragmentProblem(b->buffer, b->args, elements(MatrixOperand::kB));
  }
  return problem.empty() ? FragmentProblem(s.buffer, s.indices, elements(MatrixOperand::kD))
                         : problem;
}

// Does a matrix of rows x cols elements lie at the load as `matrix` says, where the instruction can
// read it?
std::string SharedProblem(const Expr& load, const SharedMatrix& matrix, int64_t rows,
                          int64_t cols) {
  const Buffer& b = *load->buffer;
  const int64_t squares = SharedMatrix::kSquareRows;
  if (b.scope != Scope::kShared || !SharedMatrix::IsSwizzled(b, matrix.span)) {
    return absl::StrCat(ToString(load), " lies in no shared memory that is swizzled for a product");
  }
  if (matrix.transposed && !IsHalf(b.dtype)) {
    return absl::StrCat(ToString(load), ", of ", NameOf(b.dtype),
                        ", is to be transposed: only elements of 16 bits can be");
  }
  // In memory: lines of `span` elements along one of its dimensions, which go on in blocks.
  const int64_t along = matrix.transposed ? rows : cols, across = matrix.transposed ? cols : rows;
  const int64_t blocks = std::max<int64_t>(1, along / matrix.span);
  bool in_line = false, in_lines = false, in_blocks = blocks == 1, in_squares = true;
  for (size_t i = 0; i < load->args.size(); ++i) {
    const Expr& index = load->args[i];
    const int64_t stride = b.strides[i], room = b.shape[i] - BoundsOf(index).max;
    if (b.shape[i] == 1) continue;
    if (stride == 1 && b.shape[i] <= matrix.span) {
      const int64_t unit = std::min(along, matrix.span);
      in_line = in_line || (room >= unit && IsMultiple(index, unit));
    } else if (stride == matrix.span && b.shape[i] % squares == 0) {
      in_lines = in_lines || (room >= across && IsMultiple(index, squares));
    } else {
      in_blocks = in_blocks || (stride == matrix.block && room >= blocks);
      in_squares = in_squares && stride % (squares * matrix.span) == 0;
    }
  }
  if (in_line && in_lines && in_blocks && in_squares && along % std::min(along, matrix.span) == 0) {
    return "";
  }
  return absl::StrCat("shared ", ToString(load), " is not proven to begin a matrix of ", rows,
                      " x ", cols, " elements in lines of ", matrix.span);
}

std::string WarpgroupProblem(const StmtNode& s, const Target& target) {
  const MatrixShape& shape = s.matrix();
  if (!shape.IsOn(target)) return absl::StrCat(target.arch, " has no instruction ", shape.name);
  const Expr &a = MatrixOperandOf(s, 0), &b = MatrixOperandOf(s, 1);
  if (!shape.in_shared || a->op != Op::kLoad || b->op != Op::kLoad || a->type != b->type ||
      !shape.Takes(a->type) || s.buffer->dtype != shape.result) {
    return absl::StrCat(shape.name, " of ", ToString(a), " and ", ToString(b), " into ",
                        NameOf(s.buffer->dtype), " ", s.buffer->name);
  }
  std::string problem =
      a->buffer->scope == Scope::kLocal
          ? FragmentProblem(a->buffer, a->args, shape.Layout(MatrixOperand::kA).elements())
          : SharedProblem(a, s.operands[0], shape.m, shape.k);
  if (problem.empty()) problem = SharedProblem(b, s.operands[1], shape.n, shape.k);
  return problem.empty()
             ? FragmentProblem(s.buffer, s.indices, shape.Layout(MatrixOperand::kD).elements())
             : problem;
}

bool IsOfWarpgroups(Intrinsic intrinsic) {
  return EffectsOf(intrinsic).scope == ExecutionScope::kWarpgroup ||
         intrinsic == Intrinsic::kProxyFence;
}

}  // namespace

std::string FindMatrixProblem(const StmtNode& s, int64_t threads, const Target& target) {
  const bool loads =
      s.intrinsic == Intrinsic::kLoadMatrix || s.intrinsic == Intrinsic::kLoadMatrixTransposed;
  if (IsOfWarpgroups(s.intrinsic)) {
    if (threads % kWarpgroupThreads != 0) {
      return absl::StrCat(EffectsOf(s.intrinsic).name, " in blocks of ", threads,
                          " threads, which are no whole warpgroups");
    }
    if (s.intrinsic == Intrinsic::kWarpgroupMultiply) return WarpgroupProblem(s, target);
    const bool of_registers = s.buffer == nullptr || s.buffer->scope == Scope::kLocal;
    if (!of_registers || s.int_value < 0) {
      return absl::StrCat(EffectsOf(s.intrinsic).name, " of ", s.int_value, " groups and ",
                          s.buffer == nullptr ? "nothing" : s.buffer->name);
    }
    const bool exist = ShapeOf(MatrixInstruction::kM64N8K16).IsOn(target);
    return exist ? "" : absl::StrCat(target.arch, " has no instructions of warpgroups");
  }
  if (!loads && s.intrinsic != Intrinsic::kMatrixMultiply) return "";
  if (threads % kWarpThreads != 0) {
    return absl::StrCat("matrix instructions in blocks of ", threads,
                        " threads, which are no whole warps");
  }
  if (!loads) return MultiplyProblem(s, target);
  // Both came with the same devices.
  if (!ShapeOf(MatrixInstruction::kM16N8K16).IsOn(target)) {
    return absl::StrCat(target.arch, " has no matrix instructions");
  }
  return LoadProblem(s);
}

}  // namespace heddle::search_space
