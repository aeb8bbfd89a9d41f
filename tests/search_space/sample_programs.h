// Small programs written by hand in the statement IR, for the tests of whatever reads it.
#ifndef HEDDLE_TESTS_SEARCH_SPACE_SAMPLE_PROGRAMS_H_
#define HEDDLE_TESTS_SEARCH_SPACE_SAMPLE_PROGRAMS_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "search_space/check/interpret.h"
#include "search_space/ir/stmt.h"

namespace heddle::tests {

using namespace search_space;

inline Expr V(const Var& v) { return VarExpr(v); }

inline Stmt Rotate(const Stmt& loop, const Var& companion) {
  StmtNode node = *loop;
  node.rotating = companion;
  return std::make_shared<const StmtNode>(std::move(node));
}

// One kernel that reads `inputs` and writes `output`.
inline Program OneKernel(std::vector<BufferRef> inputs, BufferRef output, Var block, Var thread,
                         Stmt body, std::vector<Kernel::SharedBuffer> shared = {}) {
  Program p;
  p.op = "sample";
  p.inputs = inputs;
  p.outputs = {output};
  Kernel k;
  k.name = "k0_" + output->name;
  k.block = std::move(block);
  k.thread = std::move(thread);
  k.body = std::move(body);
  k.arguments = std::move(inputs);
  k.written.assign(k.arguments.size(), false);
  k.arguments.push_back(std::move(output));
  k.written.push_back(true);
  k.shared = std::move(shared);
  for (const auto& s : k.shared) {
    k.shared_bytes = std::max(k.shared_bytes, s.offset + (s.buffer->bytes() + 15) / 16 * 16);
  }
  p.kernels.push_back(std::move(k));
  return p;
}

inline BufferRef F32(std::string name, Scope scope, std::vector<int64_t> shape) {
  return MakeBuffer(std::move(name), DType::kFloat32, scope, std::move(shape));
}

// C[i] = A[i] + B[i] for n elements, 8 threads a block, 4 lanes a thread where `vector` (n must be
// a multiple of 4 then).
inline Program VectorAdd(int64_t n, bool vector = false) {
  const int lanes = vector ? 4 : 1;
  const auto a = F32("A", Scope::kGlobal, {n}), b = F32("B", Scope::kGlobal, {n}),
             c = F32("C", Scope::kGlobal, {n});
  const Var block = MakeVar("block", (n + 8 * lanes - 1) / (8 * lanes)), thread = MakeVar("t", 8);
  const Expr first = (V(block) * Int(8) + V(thread)) * Int(lanes);
  const auto add = [&](const Expr& i) {
    return Store(c, {i}, Load(a, {i}, lanes) + Load(b, {i}, lanes), lanes);
  };
  Stmt body;
  if (vector) {
    const Var v = MakeVar("v", 4);
    body = For(v, ForKind::kVector, add(first + V(v)));
  } else {
    body = add(first);
  }
  return OneKernel({a, b}, c, block, thread, If(first < Int(n), body));
}

// C[k] = how many of A's elements are k, of 8 threads.
inline Program Histogram() {
  const std::vector<int64_t> bins = {4};
  const auto a = MakeBuffer("A", DType::kInt32, Scope::kGlobal, {32});
  const auto c = F32("C", Scope::kGlobal, bins), s = F32("S", Scope::kShared, bins);
  const Var thread = MakeVar("t", 8), round = MakeVar("i", 4);
  const Expr bin = MakeExpr(
      Op::kMax,
      {MakeExpr(Op::kMin, {Load(a, {V(round) * Int(8) + V(thread)}), Int(bins[0] - 1)}), Int(0)});
  const auto one = Float(1, DType::kFloat32);
  const Expr inside = V(thread) < Int(bins[0]);
  return OneKernel({a}, c, MakeVar("block", 1), thread,
                   Seq({If(inside, Store(s, {V(thread)}, Float(0, DType::kFloat32))), Barrier(),
                        For(round, ForKind::kSerial, AtomicCombine(Combiner::kSum, s, {bin}, one)),
                        Barrier(), If(inside, Store(c, {V(thread)}, Load(s, {V(thread)})))}),
                   {{s, 0}});
}

// C[l] = the sum of A[4 t + l] over 8 threads t, in global memory; `lanes` (1 or 4) at once.
inline Program Updates(int lanes = 1) {
  const auto a = F32("A", Scope::kGlobal, {32}), c = F32("C", Scope::kGlobal, {4});
  const Var block = MakeVar("block", 1), thread = MakeVar("t", 8), lane = MakeVar("l", 4);
  Program p = OneKernel({}, c, block, thread,
                        If(V(thread) < Int(4), Store(c, {V(thread)}, Float(0, DType::kFloat32))));
  const ForKind kind = lanes == 1 ? ForKind::kUnrolled : ForKind::kVector;
  const Expr term = Load(a, {V(thread) * Int(4) + V(lane)}, lanes);
  const Program add =
      OneKernel({a}, c, block, thread,
                For(lane, kind, AtomicCombine(Combiner::kSum, c, {V(lane)}, term, lanes)));
  p.inputs = add.inputs;
  p.kernels.push_back(add.kernels[0]);
  p.kernels[1].name = "k1_C";
  return p;
}

enum class Staging { kPlain, kDoubleBuffered, kAsync };

// C = A B for 8 x 8 matrices: one block of 8 threads, thread t computes row t, K tiles of 2.
//   kPlain: load; barrier; multiply; barrier
//   kDoubleBuffered: the next tile goes to the other buffer while this one is multiplied
//   kAsync: the same with asynchronous copies of 2 lanes
inline Program Matmul(Staging staging) {
  const auto a = F32("A", Scope::kGlobal, {8, 8}), b = F32("B", Scope::kGlobal, {8, 8}),
             c = F32("C", Scope::kGlobal, {8, 8});
  const int64_t depth = staging == Staging::kPlain ? 1 : 2;
  const auto as = F32("As", Scope::kShared, {depth, 8, 2}),
             bs = F32("Bs", Scope::kShared, {depth, 2, 8}), acc = F32("acc", Scope::kLocal, {8});
  const Var block = MakeVar("block", 1), thread = MakeVar("t", 8), ko = MakeVar("ko", 4),
            ki = MakeVar("ki", 2), j = MakeVar("j", 8), half = MakeVar("half", depth);
  const Expr t = V(thread);
  // Thread t brings A[t, 2 ko .. +1] and B[2 ko + t / 4, 2 (t % 4) .. +1].
  const auto fetch = [&](const Expr& tile, const Expr& slot) {
    const auto copy = [&](const BufferRef& to, ExprList at, const BufferRef& from, ExprList source,
                          const Var& v) {
      Stmt s = staging == Staging::kAsync ? AsyncCopy(to, at, Load(from, source, 2), 2)
                                          : Store(to, at, Load(from, source, 2), 2);
      return For(v, ForKind::kVector, s);
    };
    const Var va = MakeVar("va", 2), vb = MakeVar("vb", 2);
    const Expr column = (t % Int(4)) * Int(2) + V(vb);
    return Seq({copy(as, {slot, t, V(va)}, a, {t, tile * Int(2) + V(va)}, va),
                copy(bs, {slot, t / Int(4), column}, b, {tile * Int(2) + t / Int(4), column}, vb)});
  };
  const auto multiply = [&](const Expr& slot) {
    const Expr product = Load(as, {slot, t, V(ki)}) * Load(bs, {slot, V(ki), V(j)});
    return For(ki, ForKind::kSerial,
               For(j, ForKind::kUnrolled, Store(acc, {V(j)}, Load(acc, {V(j)}) + product)));
  };
  const Expr next = V(ko) + Int(1), has_next = next < Int(4), other = Int(1) - V(half);
  Stmt main;
  switch (staging) {
    case Staging::kPlain:
      main = For(ko, ForKind::kSerial,
                 Seq({fetch(V(ko), Int(0)), Barrier(), multiply(Int(0)), Barrier()}));
      break;
    case Staging::kDoubleBuffered:
      main = Seq({fetch(Int(0), Int(0)), Barrier(),
                  Rotate(For(ko, ForKind::kSerial,
                             Seq({If(has_next, fetch(next, other)), multiply(V(half)), Barrier()})),
                         half)});
      break;
    case Staging::kAsync:
      main = Seq({fetch(Int(0), Int(0)), AsyncCommit(),
                  Rotate(For(ko, ForKind::kSerial,
                             Seq({AsyncWait(0), Barrier(), If(has_next, fetch(next, other)),
                                  AsyncCommit(), multiply(V(half))})),
                         half)});
      break;
  }
  const Var i0 = MakeVar("i0", 8), i1 = MakeVar("i1", 8);
  Stmt body = Alloc(
      acc, Seq({For(i0, ForKind::kUnrolled, Store(acc, {V(i0)}, Float(0, DType::kFloat32))), main,
                For(i1, ForKind::kUnrolled, Store(c, {t, V(i1)}, Load(acc, {V(i1)})))}));
  return OneKernel({a, b}, c, block, thread, body, {{as, 0}, {bs, as->bytes()}});
}

// Inputs of small integers, so that sums are exact.
inline TensorValues InputsFor(const Program& p) {
  TensorValues values;
  for (const BufferRef& b : p.inputs) {
    std::vector<double>& v = values[b->name];
    for (int64_t i = 0; i < b->elements; ++i) {
      v.push_back(static_cast<double>((i * 7 + static_cast<int64_t>(values.size())) % 11 - 5));
    }
  }
  return values;
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_SEARCH_SPACE_SAMPLE_PROGRAMS_H_
