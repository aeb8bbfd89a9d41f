#include "search_space/check/interpret_evaluator.h"

#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/math.h"
#include "search_space/ir/expr/float_format.h"

namespace heddle::search_space {
namespace {

double UnaryFunction(Op op, double a) {
  switch (op) {
    case Op::kNeg:
      return -a;
    case Op::kExp:
      return std::exp(a);
    case Op::kLog:
      return std::log(a);
    case Op::kSqrt:
      return std::sqrt(a);
    case Op::kRsqrt:
      return 1 / std::sqrt(a);
    case Op::kTanh:
      return std::tanh(a);
    case Op::kErf:
      return std::erf(a);
    case Op::kSigmoid:
      return 1 / (1 + std::exp(-a));
    case Op::kAbs:
      return std::abs(a);
    default:
      throw Fault{absl::StrCat(NameOf(op), " of one float")};
  }
}

}  // namespace

int64_t Evaluator::Sum(const ExprCode& e) {
  int64_t sum = e.constant;
  const SumTerm* t = code_.terms.data() + e.first_term;
  for (const SumTerm* end = t + e.term_count; t != end; ++t) {
    sum += t->coef * (t->slot >= 0 ? slots_[t->slot] : Int(t->expr));
  }
  return sum;
}

bool Evaluator::Compare(const ExprCode& e) {
  if (e.float_args) {
    const double a = Float(e.args[0]), b = Float(e.args[1]);
    return e.op == Op::kLt ? a < b : e.op == Op::kLe ? a <= b : e.op == Op::kEq ? a == b : a != b;
  }
  const int64_t a = Int(e.args[0]), b = Int(e.args[1]);
  return e.op == Op::kLt ? a < b : e.op == Op::kLe ? a <= b : e.op == Op::kEq ? a == b : a != b;
}

int64_t Evaluator::Int(int id) {
  const ExprCode& e = code_.exprs[id];
  if (e.is_sum) return Sum(e);
  switch (e.op) {
    case Op::kInt:
      return e.constant;
    case Op::kLoad:
      return static_cast<int64_t>(Read(code_.accesses[e.access]));
    case Op::kMul:
      return Int(e.args[0]) * Int(e.args[1]);
    case Op::kDiv:
      return FloorDivide(Int(e.args[0]), Int(e.args[1]));
    case Op::kMod: {
      const int64_t a = Int(e.args[0]), b = Int(e.args[1]);
      return a - FloorDivide(a, b) * b;
    }
    case Op::kMin:
      return std::min(Int(e.args[0]), Int(e.args[1]));
    case Op::kMax:
      return std::max(Int(e.args[0]), Int(e.args[1]));
    case Op::kLt:
    case Op::kLe:
    case Op::kEq:
    case Op::kNe:
      return Compare(e);
    case Op::kAnd:
      return Int(e.args[0]) != 0 && Int(e.args[1]) != 0;
    case Op::kOr:
      return Int(e.args[0]) != 0 || Int(e.args[1]) != 0;
    case Op::kNot:
      return Int(e.args[0]) == 0;
    case Op::kSelect:
      return Int(e.args[Int(e.args[0]) != 0 ? 1 : 2]);
    case Op::kCast:
      return e.float_args ? static_cast<int64_t>(Float(e.args[0])) : Int(e.args[0]);
    case Op::kAbs:
      return std::abs(Int(e.args[0]));
    default:
      throw Fault{absl::StrCat(NameOf(e.op), " of integers")};
  }
}

double Evaluator::Float(int id) {
  const ExprCode& e = code_.exprs[id];
  const double value = FloatOperation(e);
  return RoundTo(e.type, value);
}

double Evaluator::FloatOperation(const ExprCode& e) {
  switch (e.op) {
    case Op::kFloat:
      return e.value;
    case Op::kLoad:
      return Read(code_.accesses[e.access]);
    case Op::kSelect:
      return Float(e.args[Int(e.args[0]) != 0 ? 1 : 2]);
    case Op::kCast:
      return e.float_args ? Float(e.args[0]) : static_cast<double>(Int(e.args[0]));
    default:
      break;
  }
  const double a = Float(e.args[0]);
  if (e.args[1] < 0) return UnaryFunction(e.op, a);
  const double b = Float(e.args[1]);
  switch (e.op) {
    case Op::kAdd:
      return a + b;
    case Op::kSub:
      return a - b;
    case Op::kMul:
      return a * b;
    case Op::kDiv:
      return a / b;
    case Op::kMin:
      return std::isnan(a) || a < b ? a : b;
    case Op::kMax:
      return std::isnan(a) || a > b ? a : b;
    case Op::kPow:
      return std::pow(a, b);
    default:
      throw Fault{absl::StrCat(NameOf(e.op), " of floats")};
  }
}

std::string Evaluator::Name(const AccessCode& a) {
  return absl::StrCat(
      NameOf(a.buffer->scope), " ", a.buffer->name, "[",
      absl::StrJoin(a.indices, ", ",
                    [this](std::string* out, int index) { absl::StrAppend(out, Int(index)); }),
      "]");
}

void Evaluator::FailPromise(const AccessCode& a, const char* what) {
  throw Fault{absl::StrCat("the access to ", Name(a), " with ", a.lanes, " lanes ", what)};
}

void Evaluator::FailAccess(const char* what, const AccessCode& a) {
  throw Fault{absl::StrCat(what, " ", Name(a), ": ", shared_.problem())};
}

int64_t Evaluator::OffsetOf(AccessCode& a) {
  int64_t offset = 0;
  if (a.offset >= 0) {
    offset = Sum(code_.exprs[a.offset]);
  } else {
    const Buffer& b = *a.buffer;
    for (size_t i = 0; i < a.indices.size(); ++i) {
      const int64_t index = Int(a.indices[i]);
      if (index < 0 || index >= b.shape[i]) {
        throw Fault{absl::StrCat("access out of bounds: ", Name(a), ", shape [",
                                 absl::StrJoin(b.shape, ", "), "]")};
      }
      offset += index * b.strides[i];
    }
    offset = SwizzledOffset(b, offset);
    if (offset >= b.elements) {
      throw Fault{absl::StrCat("access out of bounds: ", Name(a), " is element ", offset, " of ",
                               b.elements, " allocated")};
    }
  }
  if (a.lanes > 1) CheckLane(a, offset);
  return offset;
}

void Evaluator::CheckLane(AccessCode& a, int64_t offset) {
  const int64_t lane = slots_[a.lane_slot] % a.lanes;
  if (lane != a.lanes_seen % a.lanes) FailPromise(a, "is not made for all lanes");
  ++a.lanes_seen;
  if (lane == 0) {
    a.chunk_offset = offset;
    const int64_t size = SizeOf(a.buffer->dtype), width = a.lanes * size;
    const bool is_local = a.buffer->scope == Scope::kLocal;
    if ((!is_local && width > a.buffer->alignment) ||
        (a.byte_offset + offset * size) % width != 0) {
      FailPromise(a, "is not aligned");
    }
  } else if (offset != a.chunk_offset + lane) {
    FailPromise(a, "is not contiguous");
  }
}

double Evaluator::ReadAt(AccessCode& a, int64_t offset) {
  double value = 0;
  switch (a.buffer->scope) {
    case Scope::kLocal:
      CheckRegister(a, offset);
      value = my_local_[a.storage + offset];
      break;
    case Scope::kShared:
      if (!shared_.Read(*a.buffer, ByteOf(a, offset), thread_, value)) FailAccess("read of", a);
      return value;
    case Scope::kGlobal: {
      const Global& g = globals_[a.storage];
      value = g.data[offset];
      if (g.role == Role::kInput) break;
      const Global::Writer& w = g.writers[offset];
      if (w.kernel == kernel_number_ && w.thread != GlobalThread()) {
        throw Fault{absl::StrCat("read of ", Name(a), ", which ", NameOfThread(w.thread),
                                 " wrote in the same kernel")};
      }
      break;
    }
  }
  if (IsUnwritten(value)) {
    throw Fault{absl::StrCat("read of ", Name(a), ": it was never written")};
  }
  return value;
}

void Evaluator::Write(const AccessCode& a, int64_t offset, double value, bool is_async) {
  value = RoundTo(a.buffer->dtype, value);
  switch (a.buffer->scope) {
    case Scope::kLocal:
      CheckRegister(a, offset);
      if (!registers_.empty()) {
        StateOf(a.storage + offset).written = fences(thread_) + 1;
      }
      my_local_[a.storage + offset] = value;
      return;
    case Scope::kShared:
      if (!shared_.Write(*a.buffer, ByteOf(a, offset), thread_, value, is_async)) {
        FailAccess("store to", a);
      }
      return;
    case Scope::kGlobal:
      return WriteGlobal(a, offset, value);
  }
}

void Evaluator::CheckRegister(const AccessCode& a, int64_t offset) {
  if (registers_.empty() || StateOf(a.storage + offset).product == 0) return;
  throw Fault{absl::StrCat("access to ", Name(a), ", into which products are under way")};
}

void Evaluator::WriteGlobal(const AccessCode& a, int64_t offset, double value) {
  Global& g = globals_[a.storage];
  if (g.role == Role::kInput) throw Fault{absl::StrCat("store to input ", Name(a))};
  Global::Writer& w = g.writers[offset];
  const bool same_thread = w.kernel == kernel_number_ && w.thread == GlobalThread();
  const bool written_before = g.role == Role::kOutput ? w.kernel != 0 : w.kernel == kernel_number_;
  if (written_before && !same_thread) {
    throw Fault{absl::StrCat("store to ", Name(a), ", which ", NameOfThread(w.thread),
                             " of kernel ", w.kernel - 1, " has written already")};
  }
  w = {kernel_number_, GlobalThread()};
  g.data[offset] = value;
}

void Evaluator::CombineGlobal(const AccessCode& a, int64_t offset,
                              absl::FunctionRef<double(double)> combined) {
  Global& g = globals_[a.storage];
  if (g.role == Role::kInput) throw Fault{absl::StrCat("update of input ", Name(a))};
  if (IsUnwritten(g.data[offset])) {
    throw Fault{absl::StrCat("atomic update of ", Name(a), ": it was never written")};
  }
  Global::Writer& w = g.writers[offset];
  if (w.kernel == kernel_number_ && w.thread != Global::Writer::kSeveral) {
    throw Fault{absl::StrCat("atomic update of ", Name(a), ", which ", NameOfThread(w.thread),
                             " wrote in the same kernel")};
  }
  w = {kernel_number_, Global::Writer::kSeveral};
  g.data[offset] = combined(g.data[offset]);
}

std::string Evaluator::NameOfThread(int64_t global_thread) const {
  if (global_thread == Global::Writer::kSeveral) return "an atomic update";
  return absl::StrCat("block ", global_thread / threads_, ", thread ", global_thread % threads_);
}

}  // namespace heddle::search_space
