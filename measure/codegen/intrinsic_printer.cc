#include "measure/codegen/intrinsic_printer.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "measure/codegen/helpers.h"
#include "search_space/ir/background.h"
#include "search_space/ir/expr/float_format.h"
#include "search_space/ir/expr/queries.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/ir/matrix.h"

namespace heddle::measure {

using search_space::BufferRef;
using search_space::DType;
using search_space::Expr;
using search_space::ExprList;
using search_space::Intrinsic;
using search_space::StmtNode;
using search_space::Var;

std::string IntrinsicPrinter::MapParameters() {
  std::string out;
  for (const StmtNode* copy : search_space::BulkCopiesOf(kernel_.body)) {
    maps_.emplace_back(copy, out_.names.Declare(NameKind::kMap, copy->value->buffer->name));
    absl::StrAppend(&out, ",\n    const __grid_constant__ TensorMap ", maps_.back().second);
  }
  return out;
}

void IntrinsicPrinter::Declare() {
  DeclareWarpgroup();
  DeclareLanes();
}

// The number of the thread's warpgroup, where descriptors depend on it: compilers keep what one
// lane tells the others in a register of the whole warp, as descriptors must be.
void IntrinsicPrinter::DeclareWarpgroup() {
  bool multiplies = false;
  VisitStmts(kernel_.body, [&](const StmtNode& s) {
    multiplies = multiplies || (s.kind == StmtNode::Kind::kIntrin &&
                                s.intrinsic == Intrinsic::kWarpgroupMultiply);
  });
  const int64_t groups = kernel_.thread->extent / search_space::kWarpgroupThreads;
  if (!multiplies || groups == 1) return;
  warpgroup_ = search_space::MakeVar("warpgroup", groups);
  const std::string name = out_.names.Declare(NameKind::kIndex, warpgroup_->name, "warpgroup");
  out_.exprs.Bind(warpgroup_, name);
  out_.Line("const int ", name, " = __shfl_sync(0xffffffffu, ", out_.exprs.NameOf(kernel_.thread),
            " / ", search_space::kWarpgroupThreads, ", 0);");
}

// Where there are no shuffles, threads exchange values through an array.
void IntrinsicPrinter::DeclareLanes() {
  if (out_.dialect.shuffle != nullptr) return;
  VisitStmts(kernel_.body, [&](const StmtNode& s) {
    if (s.kind != StmtNode::Kind::kIntrin || !search_space::CombinesWarps(s.intrinsic)) return;
    std::string& lanes = lanes_[s.buffer->dtype];
    if (!lanes.empty()) return;
    lanes = out_.names.Declare(NameKind::kOther, "lanes");
    out_.Line(out_.dialect.shared_array, TypeName(out_.dialect, s.buffer->dtype), " ", lanes, "[",
              kernel_.thread->extent, "];");
  });
}

void IntrinsicPrinter::Print(const StmtNode& s) {
  switch (s.intrinsic) {
    case Intrinsic::kBarrier:
      return out_.Line(out_.dialect.barrier);
    case Intrinsic::kWarpReduce:
      return PrintWarpReduce(s);
    case Intrinsic::kWarpPrefix:
    case Intrinsic::kWarpSuffix:
      return PrintWarpScan(s);
    case Intrinsic::kAtomicCombine:
      return PrintAtomicCombine(s, nullptr);
    case Intrinsic::kLoadMatrix:
    case Intrinsic::kLoadMatrixTransposed:
      return PrintLoadMatrix(s);
    case Intrinsic::kMatrixMultiply:
      return PrintMatrixMultiply(s);
    case Intrinsic::kWarpgroupMultiply:
      return PrintWarpgroupMultiply(s);
    case Intrinsic::kOperandFence:
      return out_.Line("operand_fence(", out_.exprs.NameOf(s.buffer), ");");
    case Intrinsic::kProductCommit:
      return out_.Line("product_commit();");
    case Intrinsic::kProductWait:
      return out_.Line("product_wait<", s.int_value, ">(", out_.exprs.NameOf(s.buffer), ");");
    case Intrinsic::kProxyFence:
      return out_.Line("proxy_fence();");
    case Intrinsic::kPhaseInit:
    case Intrinsic::kPhaseExpect:
    case Intrinsic::kPhaseWait:
    case Intrinsic::kHandBack:
      return PrintPhase(s);
    case Intrinsic::kBulkCopy:
      return PrintBulkCopy(s);
    case Intrinsic::kAsyncCopy:
      return PrintAsyncCopy(s, nullptr);
    case Intrinsic::kAsyncCommit:
      if (async_copies_) out_.Call("async_copy", "async_commit();");
      return;
    case Intrinsic::kAsyncWait:
      if (async_copies_) out_.Call("async_copy", "async_wait<", s.int_value, ">();");
      return;
  }
}

void IntrinsicPrinter::ShareValues(const std::string& value, const std::string& lanes,
                                   const std::string& next) {
  out_.Line(out_.dialect.barrier);  // the array may still be read
  out_.Line(lanes, "[", out_.exprs.NameOf(kernel_.thread), "] = ", value, ";");
  out_.Line(out_.dialect.barrier);
  out_.Line(value, " = ", next, ";");
}

Expr IntrinsicPrinter::CombinedWith(const StmtNode& s, const std::string& other) {
  return search_space::Combine(s.combiner, Load(s.buffer, s.indices),
                               stores_.Constant("other", other, s.buffer->dtype));
}

void IntrinsicPrinter::PrintAtomicCombine(const StmtNode& s, const Var& var) {
  const bool is_whole = s.buffer->dtype == DType::kInt32;
  const std::string helper =
      absl::StrCat("atomic_", NameOf(s.combiner), is_whole ? "_i32" : "_f32",
                   s.lanes > 1 ? absl::StrCat("x", s.lanes) : "",
                   s.buffer->scope == search_space::Scope::kGlobal ? "_global" : "");
  for (int64_t base = 0; base < (var == nullptr ? 1 : var->extent); base += s.lanes) {
    const Chunk chunk{var, base, s.lanes};
    std::string values;
    for (int lane = 0; lane < s.lanes; ++lane) {
      absl::StrAppend(&values, ", ", out_.exprs.Print(chunk.At(s.value, lane)));
    }
    out_.Call(helper, helper, "(&", out_.exprs.PrintElement(s.buffer, chunk.At(s.indices, 0)),
              values, ");");
  }
}

void IntrinsicPrinter::PrintWarpReduce(const StmtNode& s) {
  const std::string mine = out_.exprs.PrintElement(s.buffer, s.indices);
  const bool shuffles = out_.dialect.shuffle != nullptr;
  const size_t mark = out_.names.Mark();
  const std::string lane = out_.names.Declare(NameKind::kOther, shuffles ? "distance" : "lane");
  std::string other;
  if (shuffles) {
    out_.Line("#pragma unroll");
    out_.Open("for (int ", lane, " = ", s.int_value / 2, "; ", lane, " > 0; ", lane, " /= 2)");
    other = absl::StrCat(out_.dialect.shuffle, "(0xffffffffu, ", mine, ", ", lane, ")");
  } else {
    const std::string& lanes = lanes_.at(s.buffer->dtype);
    const std::string thread = out_.exprs.NameOf(kernel_.thread);
    const std::string first = absl::StrCat(thread, " / ", s.int_value, " * ", s.int_value);
    ShareValues(mine, lanes, absl::StrCat(lanes, "[", first, "]"));
    out_.Open("for (int ", lane, " = 1; ", lane, " < ", s.int_value, "; ++", lane, ")");
    other = absl::StrCat(lanes, "[", first, " + ", lane, "]");
  }
  stores_.PrintScalar(s.buffer, s.indices, CombinedWith(s, other));
  out_.Close();
  out_.names.Release(mark);
}

void IntrinsicPrinter::PrintWarpScan(const StmtNode& s) {
  const bool backwards = s.intrinsic == Intrinsic::kWarpSuffix;
  const std::string mine = out_.exprs.PrintElement(s.buffer, s.indices);
  const std::string thread = out_.exprs.NameOf(kernel_.thread);
  const std::string place = absl::StrCat(thread, " % ", s.int_value);
  const std::string none = out_.exprs.Print(IdentityOf(s.combiner, s.buffer->dtype));
  const size_t mark = out_.names.Mark();
  if (out_.dialect.shuffle == nullptr) {
    const std::string& lanes = lanes_.at(s.buffer->dtype);
    const std::string lane = out_.names.Declare(NameKind::kOther, "lane");
    ShareValues(mine, lanes, none);
    const std::string first =
        backwards ? absl::StrCat(thread, " + 1") : absl::StrCat(thread, " - ", place);
    const std::string end =
        backwards ? absl::StrCat(thread, " - ", place, " + ", s.int_value) : thread;
    out_.Open("for (int ", lane, " = ", first, "; ", lane, " < ", end, "; ++", lane, ")");
    stores_.PrintScalar(s.buffer, s.indices, CombinedWith(s, absl::StrCat(lanes, "[", lane, "]")));
    out_.Close();
    out_.names.Release(mark);
    return;
  }
  const std::string distance = out_.names.Declare(NameKind::kOther, "distance");
  const auto shuffled = [&](const std::string& by) {
    return absl::StrCat(backwards ? out_.dialect.shuffle_down : out_.dialect.shuffle_up,
                        "(0xffffffffu, ", mine, ", ", by, ", ", s.int_value, ")");
  };
  out_.Line("#pragma unroll");
  out_.Open("for (int ", distance, " = 1; ", distance, " < ", s.int_value, "; ", distance,
            " *= 2)");
  const Expr value = CombinedWith(s, shuffled(distance));
  out_.Open(backwards ? absl::StrCat("if (", place, " + ", distance, " < ", s.int_value, ")")
                      : absl::StrCat("if (", place, " >= ", distance, ")"));
  stores_.PrintScalar(s.buffer, s.indices, value);
  out_.Close();
  out_.Close();
  out_.Line(mine, " = ", shuffled("1"), ";");
  out_.Line("if (", place, " == ", backwards ? s.int_value - 1 : 0, ") ", mine, " = ", none, ";");
  out_.names.Release(mark);
}

// Elements in registers of 32 bits, as instructions take them: of 16 bits two by two.
std::string IntrinsicPrinter::PairsAt(const BufferRef& buffer, const ExprList& indices) {
  return absl::StrCat("(unsigned*)&", out_.exprs.PrintElement(buffer, indices));
}

void IntrinsicPrinter::PrintLoadMatrix(const StmtNode& s) {
  const bool transposed = s.intrinsic == Intrinsic::kLoadMatrixTransposed;
  out_.Call("load_matrix", "load_matrix<", s.int_value, ", ", transposed ? "true" : "false", ">(",
            PairsAt(s.buffer, s.indices), ", &",
            out_.exprs.PrintElement(s.value->buffer, s.value->args), ");");
  // What is copied from inputs may have more digits, which products would cut off.
  if (s.buffer->dtype == DType::kTF32) {
    out_.Call("round_tf32", "round_tf32<", s.int_value, ">(", PairsAt(s.buffer, s.indices), ");");
  }
}

void IntrinsicPrinter::PrintMatrixMultiply(const StmtNode& s) {
  const Expr &a = MatrixOperandOf(s, 0), &b = MatrixOperandOf(s, 1);
  const std::string name = absl::StrCat(s.matrix().name, "_", NameOf(a->type));
  out_.Call(name, name, "(&", out_.exprs.PrintElement(s.buffer, s.indices), ", ",
            PairsAt(a->buffer, a->args), ", ", PairsAt(b->buffer, b->args), ");");
}

Expr IntrinsicPrinter::ByWarpgroup(const Expr& index) const {
  if (warpgroup_ == nullptr) return index;
  return Rewrite(index, [&](const Expr& e) -> Expr {
    const bool is_number =
        e->op == search_space::Op::kDiv && e->args[0]->op == search_space::Op::kVar &&
        e->args[0]->var == kernel_.thread && IsInt(e->args[1], search_space::kWarpgroupThreads);
    return is_number ? search_space::VarExpr(warpgroup_) : nullptr;
  });
}

// Of the matrix that begins at the load: instructions swizzle addresses themselves.
std::string IntrinsicPrinter::DescriptorOf(const Expr& load,
                                           const search_space::SharedMatrix& matrix) {
  static constexpr int64_t kUnit = 16;  // bytes, in which descriptors count
  const int64_t size = SizeOf(load->buffer->dtype);
  const Expr offset =
      Simplify(OffsetOf(*load->buffer, load->args) / search_space::Int(kUnit / size));
  return absl::StrCat("matrix_descriptor<", matrix.span * size, ", ", matrix.block * size, ">(",
                      out_.exprs.NameOf(load->buffer), ", ", out_.exprs.Print(ByWarpgroup(offset)),
                      ")");
}

void IntrinsicPrinter::PrintWarpgroupMultiply(const StmtNode& s) {
  const Expr &a = MatrixOperandOf(s, 0), &b = MatrixOperandOf(s, 1);
  const bool held = a->buffer->scope == search_space::Scope::kLocal;
  const std::string name = WarpgroupHelper(s.matrix(), a->type, held);
  const std::string of_a = held ? "" : absl::StrCat(s.operands[0].transposed ? 1 : 0, ", ");
  const std::string transposes =
      search_space::IsHalf(a->type) ? absl::StrCat("<", of_a, s.operands[1].transposed ? 1 : 0, ">")
                                    : "";
  out_.Call(name, name, transposes, "(&", out_.exprs.PrintElement(s.buffer, s.indices), ", ",
            held ? PairsAt(a->buffer, a->args) : DescriptorOf(a, s.operands[0]), ", ",
            DescriptorOf(b, s.operands[1]), ");");
  out_.exprs.helpers.insert("products");
  if (held) out_.exprs.helpers.insert("held_operand");
}

void IntrinsicPrinter::PrintPhase(const StmtNode& s) {
  if (s.intrinsic == Intrinsic::kHandBack) {
    return out_.Call("phases", "hand_back<", kernel_.thread->extent, ">(",
                     out_.exprs.Print(s.indices[0]), ");");
  }
  const std::string name = out_.exprs.NameOf(s.buffer);
  if (s.intrinsic == Intrinsic::kPhaseInit) {
    return out_.Call("phases", "phase_init<", s.buffer->elements, ">(", name, ");");
  }
  const bool waits = s.intrinsic == Intrinsic::kPhaseWait;
  out_.Call("phases", waits ? "phase_wait(&" : "phase_expect(&", name, "[",
            out_.exprs.Print(s.indices[0]), "], ",
            waits ? out_.exprs.Print(s.value) : absl::StrCat(s.int_value), ");");
}

void IntrinsicPrinter::PrintBulkCopy(const StmtNode& s) {
  const auto map = std::find_if(maps_.begin(), maps_.end(), [&](const auto& m) {
    return m.first->value->buffer == s.value->buffer && m.first->box == s.box;
  });
  const Expr offset = Simplify(OffsetOf(*s.buffer, s.indices));
  std::string first;  // innermost dimension first
  for (size_t d = s.value->args.size(); d-- > 0;) {
    absl::StrAppend(&first, ", ", out_.exprs.Print(s.value->args[d]));
  }
  const std::string helper = BulkCopyHelper(s.box.size());
  out_.Call(helper, helper, "(", out_.exprs.NameOf(s.buffer), " + (", out_.exprs.Print(offset),
            "), &", map->second, first, ", &", out_.exprs.NameOf(s.base), "[",
            out_.exprs.Print(s.indices[0]), "]);");
  out_.exprs.helpers.insert("phases");
}

void IntrinsicPrinter::PrintAsyncCopy(const StmtNode& s, const Var& var) {
  const int64_t bytes = s.lanes * SizeOf(s.buffer->dtype);
  const bool possible = bytes == 4 || bytes == 8 || bytes == 16;
  // At once is as good as a copy that completes early.
  if (!async_copies_ || !possible) return stores_.Print(s, var);
  const Expr load = s.value->op == search_space::Op::kSelect ? s.value->args[1] : s.value;
  const bool reads_indices =
      std::any_of(load->args.begin(), load->args.end(), search_space::ReadsMemory);
  for (int64_t base = 0; base < (var == nullptr ? 1 : var->extent); base += s.lanes) {
    const Chunk chunk{var, base, s.lanes};
    std::string from =
        absl::StrCat("&", out_.exprs.PrintElement(load->buffer, chunk.At(load->args, 0)));
    if (s.value->op == search_space::Op::kSelect) {
      const std::string valid = out_.exprs.Print(Simplify(chunk.At(s.value->args[0], 0)));
      // Where nothing is copied there may be no index that says whence.
      if (reads_indices) {
        from = absl::StrCat("(", valid, ") ? ", from, " : ", out_.exprs.NameOf(load->buffer));
      }
      absl::StrAppend(&from, ", ", valid);
    }
    out_.Line("async_copy<", bytes, ">(&",
              out_.exprs.PrintElement(s.buffer, chunk.At(s.indices, 0)), ", ", from, ");");
  }
  out_.exprs.helpers.insert("async_copy");
}

}  // namespace heddle::measure
