#include "search_space/check/interpret_matrix.h"

#include <algorithm>
#include <array>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {

bool MatrixUnit::Executes(Intrinsic intrinsic) {
  switch (intrinsic) {
    case Intrinsic::kLoadMatrix:
    case Intrinsic::kLoadMatrixTransposed:
    case Intrinsic::kMatrixMultiply:
      return true;
    default:
      return EffectsOf(intrinsic).scope == ExecutionScope::kWarpgroup;
  }
}

void MatrixUnit::Run(const StmtCode& s, int64_t first, int64_t end) {
  const bool in_warps = s.scope == ExecutionScope::kWarp;
  const int64_t threads = ThreadsOf(s.scope);
  if (first % threads != 0 || end % threads != 0) {
    throw Fault{"a matrix instruction in threads that are no whole warps"};
  }
  for (warp_ = first; warp_ < end; warp_ += threads) {
    if (in_warps) {
      RunInWarp(s);
    } else {
      RunInWarpgroup(s, warpgroups_[static_cast<size_t>(warp_ / kWarpgroupThreads)]);
    }
  }
  t_.ClearThread();
}

void MatrixUnit::Finish() const {
  for (const Warpgroup& group : warpgroups_) {
    if (!group.locked.empty()) throw Fault{"the block ends before its products do"};
  }
}

void MatrixUnit::RunInWarp(const StmtCode& s) {
  if (s.intrinsic == Intrinsic::kMatrixMultiply) return Multiply(s);
  LoadMatrix(s);
}

void MatrixUnit::RunInWarpgroup(const StmtCode& s, Warpgroup& group) {
  switch (s.intrinsic) {
    case Intrinsic::kWarpgroupMultiply:
      return WarpgroupMultiply(s, group);
    case Intrinsic::kOperandFence:
      ++t_.fences(warp_);
      return;
    case Intrinsic::kProductCommit:
      ++group.products;
      return t_.shared().CommitProducts(warp_ / kWarpgroupThreads);
    default:
      return Wait(s, group);
  }
}

// Each lane reads its elements of the rows that lanes of the warp name.
void MatrixUnit::LoadMatrix(const StmtCode& s) {
  static constexpr int64_t kRows = 8;  // of a block
  const bool transposed = s.intrinsic == Intrinsic::kLoadMatrixTransposed;
  AccessCode& source = t_.code().accesses[t_.code().exprs[s.value].access];
  AccessCode& target = t_.code().accesses[s.access];
  const int64_t size = SizeOf(source.buffer->dtype), cols = SharedMatrix::kChunk / size;
  const int64_t packed = cols / 4;
  std::array<int64_t, kWarpThreads> row{};
  for (int64_t lane = 0; lane < kRows * s.int_value; ++lane) {
    t_.SetThread(warp_ + lane);
    const int64_t offset = row[static_cast<size_t>(lane)] = t_.OffsetOf(source);
    if (t_.ByteOf(source, offset) % SharedMatrix::kChunk != 0) {
      t_.FailPromise(source, "is not aligned");
    }
    if (offset + cols > source.buffer->elements) t_.FailPromise(source, "ends outside");
  }
  for (int64_t lane = 0; lane < kWarpThreads; ++lane) {
    t_.SetThread(warp_ + lane);
    const int64_t to = t_.OffsetOf(target);
    for (int64_t e = 0; e < packed * s.int_value; ++e) {
      const int64_t r = lane / 4, c = lane % 4 * packed + e % packed;
      const auto named = static_cast<size_t>(e / packed * kRows + (transposed ? c : r));
      CheckElement(target, to + e);
      t_.Write(target, to + e, t_.ReadAt(source, row[named] + (transposed ? r : c)), false);
    }
  }
}

// A matrix that the registers of a warp hold from the access on, row by row.
std::vector<double> MatrixUnit::Gather(AccessCode& from, const FragmentLayout& layout) {
  std::vector<double> matrix(static_cast<size_t>(layout.rows * layout.cols));
  for (size_t i = 0; i < matrix.size(); ++i) {
    const Place& place = PlacesOf(layout)[i];
    t_.SetThread(warp_ + place.lane);
    const int64_t offset = t_.OffsetOf(from) + place.element;
    CheckElement(from, offset);
    matrix[i] = t_.ReadAt(from, offset);
  }
  return matrix;
}

// The products are exact and added up in double precision; a sum is rounded once.
void MatrixUnit::Multiply(const StmtCode& s) {
  const MatrixShape& shape = ShapeOf(static_cast<MatrixInstruction>(s.int_value));
  const ExprCode& product = t_.code().exprs[s.value];
  AccessCode& target = t_.code().accesses[s.access];
  const FragmentLayout& layout = shape.Layout(MatrixOperand::kD);
  std::vector<double> operands[2], d = Gather(target, layout);
  for (size_t i = 0; i < 2; ++i) {
    const ExprCode& load = t_.code().exprs[t_.code().exprs[product.args[i]].args[0]];
    operands[i] = Gather(t_.code().accesses[load.access],
                         shape.Layout(i == 0 ? MatrixOperand::kA : MatrixOperand::kB));
  }
  for (int64_t i = 0; i < shape.m * shape.n; ++i) {
    const double* a = operands[0].data() + i / shape.n * shape.k;
    const double* b = operands[1].data() + i % shape.n * shape.k;
    const auto at = static_cast<size_t>(i);
    d[at] = std::inner_product(a, a + shape.k, b, d[at]);
  }
  for (size_t i = 0; i < d.size(); ++i) {
    const Place& place = PlacesOf(layout)[i];
    t_.SetThread(warp_ + place.lane);
    t_.Write(target, t_.OffsetOf(target) + place.element, d[i], false);
  }
}

// A matrix that lies in shared memory from the access on, row by row.
std::vector<double> MatrixUnit::ReadShared(AccessCode& from, const SharedMatrix& matrix,
                                           int64_t rows, int64_t cols) {
  const Buffer& b = *from.buffer;
  t_.SetThread(warp_);
  int64_t first = 0;
  for (size_t i = 0; i < from.indices.size(); ++i) {
    first += t_.Int(from.indices[i]) * b.strides[i];
  }
  std::vector<double> values;
  for (int64_t i = 0; i < rows * cols; ++i) {
    const int64_t offset = SwizzledOffset(b, first + matrix.OffsetOf(i / cols, i % cols));
    if (offset < 0 || offset >= b.elements) t_.FailPromise(from, "ends outside");
    const int64_t group = warp_ / kWarpgroupThreads;
    if (!t_.shared().ReadByProduct(b, t_.ByteOf(from, offset), group, values.emplace_back())) {
      t_.FailAccess("product of", from);
    }
  }
  return values;
}

// A register of the thread that a product of the group under way reads or adds to.
double& MatrixUnit::Lock(AccessCode& a, int64_t offset, Warpgroup& group) {
  Evaluator::Register& state = t_.StateOf(a.storage + offset);
  if (state.written > t_.fences(warp_)) {
    throw Fault{absl::StrCat(t_.Name(a), " was written since the last fence of operands")};
  }
  double& value = t_.Local(a.storage + offset);
  if (IsUnwritten(value)) throw Fault{absl::StrCat("product of ", t_.Name(a), ", not set")};
  if (state.product == 0) group.locked.push_back(&state);
  state.product = group.products + 1;
  return value;
}

// A matrix that the registers of the warpgroup hold, row by row.
std::vector<double> MatrixUnit::ReadRegisters(AccessCode& from, const FragmentLayout& layout,
                                              Warpgroup& group) {
  std::vector<double> values;
  for (int64_t i = 0; i < layout.rows * layout.cols; ++i) {
    const Place& place = PlacesOf(layout)[static_cast<size_t>(i)];
    t_.SetThread(warp_ + place.lane);
    const int64_t offset = t_.OffsetOf(from) + place.element;
    CheckElement(from, offset);
    values.push_back(Lock(from, offset, group));
  }
  return values;
}

// Computed at once: what it reads and what it adds to cannot change until it is waited for.
void MatrixUnit::WarpgroupMultiply(const StmtCode& s, Warpgroup& group) {
  const MatrixShape& shape = ShapeOf(static_cast<MatrixInstruction>(s.int_value));
  const ExprCode& product = t_.code().exprs[s.value];
  const auto operand = [&](size_t i, int64_t rows) {
    const ExprCode& load = t_.code().exprs[t_.code().exprs[product.args[i]].args[0]];
    AccessCode& from = t_.code().accesses[load.access];
    return from.buffer->scope == Scope::kLocal
               ? ReadRegisters(from, shape.Layout(MatrixOperand::kA), group)
               : ReadShared(from, s.operands[i], rows, shape.k);
  };
  const std::vector<double> a = operand(0, shape.m), b = operand(1, shape.n);
  AccessCode& target = t_.code().accesses[s.access];
  const FragmentLayout& layout = shape.Layout(MatrixOperand::kD);
  for (int64_t i = 0; i < shape.m * shape.n; ++i) {
    const Place& place = PlacesOf(layout)[static_cast<size_t>(i)];
    t_.SetThread(warp_ + place.lane);
    const int64_t offset = t_.OffsetOf(target) + place.element;
    CheckElement(target, offset);
    double& d = Lock(target, offset, group);
    const double* row = a.data() + i / shape.n * shape.k;
    const double* col = b.data() + i % shape.n * shape.k;
    d = RoundTo(shape.result, std::inner_product(row, row + shape.k, col, d));
  }
}

void MatrixUnit::Wait(const StmtCode& s, Warpgroup& group) {
  t_.shared().WaitForProducts(warp_ / kWarpgroupThreads, s.int_value);
  std::erase_if(group.locked, [&](Evaluator::Register* state) {
    if (state->product > group.products - s.int_value) return false;
    state->product = 0;
    return true;
  });
}

const std::vector<MatrixUnit::Place>& MatrixUnit::PlacesOf(const FragmentLayout& layout) {
  std::vector<Place>& places = places_[&layout];
  for (int64_t i = std::ssize(places); i < layout.rows * layout.cols; ++i) {
    const Expr row = search_space::Int(i / layout.cols), col = search_space::Int(i % layout.cols);
    places.push_back({Simplify(layout.Lane(row, col))->int_value,
                      Simplify(layout.Element(row, col))->int_value});
  }
  return places;
}

void MatrixUnit::CheckElement(AccessCode& a, int64_t offset) {
  if (offset >= a.buffer->elements) t_.FailPromise(a, "ends outside");
}

}  // namespace heddle::search_space
