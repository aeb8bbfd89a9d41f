#include "search_space/check/verify_bulk.h"

#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/simplify.h"

namespace heddle::search_space {
namespace {

std::string CopyProblem(const StmtNode& s) {
  const Buffer& to = *s.buffer;
  const std::string box = absl::StrJoin(s.box, " x ");
  if (s.value->op != Op::kLoad || !IsBulkCopied(*s.value->buffer) ||
      s.value->buffer->dtype != to.dtype || s.box.size() != s.value->args.size() ||
      std::any_of(s.box.begin(), s.box.end(),
                  [](int64_t extent) { return extent < 1 || extent > kMostBulkExtent; })) {
    return absl::StrCat("a bulk copy of ", box, " elements from ", ToString(s.value),
                        "; it must be of up to ", kMostBulkExtent, " in each of up to ",
                        kMostBulkRank,
                        " dimensions, of 16 bits or tf32, in rows that begin at 16 bytes");
  }
  for (const Expr& index : s.value->args) {
    const Interval range = BoundsOf(index);
    if (range.min < INT32_MIN || range.max > INT32_MAX) {
      return absl::StrCat("a bulk copy from ", ToString(s.value), ", beyond 32 bits");
    }
  }
  const int64_t line = s.box.back();
  if (to.scope != Scope::kShared || !SharedMatrix::IsSwizzled(to, line)) {
    return absl::StrCat("a bulk copy of lines of ", line, " elements to ", to.name,
                        ", which is not swizzled as they are");
  }
  Expr offset = Int(0);
  for (size_t i = 0; i < s.indices.size(); ++i) {
    offset = offset + s.indices[i] * Int(to.strides[i]);
  }
  offset = Simplify(offset);
  const int64_t elements =
      std::accumulate(s.box.begin(), s.box.end(), int64_t{1}, std::multiplies<>());
  const int64_t square = SharedMatrix::kSquareRows * line;
  const ModRem m = ModulusRemainder(offset);
  if (m.modulus % square != 0 || m.remainder % square != 0 ||
      BoundsOf(offset).max + elements > to.elements) {
    return absl::StrCat("a bulk copy of ", box, " elements to ",
                        ToString(Load(s.buffer, s.indices)),
                        ", where they do not end inside the buffer or begin between squares");
  }
  return "";
}

}  // namespace

bool IsOfBulkCopies(const StmtNode& s) {
  switch (s.intrinsic) {
    case Intrinsic::kPhaseInit:
    case Intrinsic::kPhaseExpect:
    case Intrinsic::kPhaseWait:
    case Intrinsic::kBulkCopy:
      return s.kind == StmtNode::Kind::kIntrin;
    default:
      return false;
  }
}

std::string FindBulkProblem(const StmtNode& s, const Target& target) {
  if (s.kind == StmtNode::Kind::kIntrin && s.intrinsic == Intrinsic::kHandBack) {
    return HasBulkCopies(target) && s.int_value <= kMostHandBacks
               ? ""
               : absl::StrCat("buffers of ", s.int_value,
                              " numbers are handed back: devices with bulk copies can do it of ",
                              kMostHandBacks);
  }
  if (!IsOfBulkCopies(s)) return "";
  if (!HasBulkCopies(target)) return absl::StrCat(target.arch, " has no bulk copies");
  const bool copies = s.intrinsic == Intrinsic::kBulkCopy;
  const Buffer& phases = copies ? *s.base : *s.buffer;
  if (phases.scope != Scope::kShared || phases.dtype != DType::kInt64 || phases.shape.size() != 1) {
    return absl::StrCat(EffectsOf(s.intrinsic).name, " of ", phases.name,
                        ", which holds no phases: they are int64, in shared memory");
  }
  return copies ? CopyProblem(s) : "";
}

}  // namespace heddle::search_space
