// Programs built by hand, the way lowering would, for tests of code generation.
#ifndef HEDDLE_TESTS_MEASURE_SAMPLE_PROGRAMS_H_
#define HEDDLE_TESTS_MEASURE_SAMPLE_PROGRAMS_H_

#include <utility>
#include <vector>

#include "search_space/ir/stmt.h"

namespace heddle::tests {

using namespace search_space;  // NOLINT: a test helper that is made of these names

inline BufferRef Buf(const char* name, Scope scope, std::vector<int64_t> shape) {
  return MakeBuffer(name, DType::kFloat32, scope, std::move(shape));
}

inline Program OneKernel(Kernel kernel) {
  Program program;
  for (size_t i = 0; i < kernel.arguments.size(); ++i) {
    (kernel.written[i] ? program.outputs : program.inputs).push_back(kernel.arguments[i]);
  }
  program.kernels.push_back(std::move(kernel));
  return program;
}

// C = A + B, 4096 elements, 16 bytes an access.
inline Program VectorAdd() {
  const auto a = Buf("A", Scope::kGlobal, {4096}), b = Buf("B", Scope::kGlobal, {4096}),
             c = Buf("C", Scope::kGlobal, {4096});
  Kernel k{.name = "k0_C", .block = MakeVar("block", 8), .thread = MakeVar("thread", 128)};
  const Var v = MakeVar("i.v", 4);
  const Expr i = VarExpr(k.block) * Int(512) + VarExpr(k.thread) * Int(4) + VarExpr(v);
  k.body = For(v, ForKind::kVector, Store(c, {i}, Load(a, {i}, 4) + Load(b, {i}, 4), 4));
  k.arguments = {a, b, c};
  k.written = {false, false, true};
  return OneKernel(std::move(k));
}

// B = the sum of A before an element in its 16, and the greatest behind it in its 32, of 64.
inline Program Prefixes() {
  const auto a = Buf("A", Scope::kGlobal, {64}), b = Buf("B", Scope::kGlobal, {64}),
             r = Buf("r", Scope::kLocal, {2});
  Kernel k{.name = "k0_B", .block = MakeVar("block", 1), .thread = MakeVar("thread", 64)};
  const Expr t = VarExpr(k.thread);
  k.body = Alloc(r, Seq({Store(r, {Int(0)}, Load(a, {t})), Store(r, {Int(1)}, Load(a, {t})),
                         WarpPrefix(Combiner::kSum, r, {Int(0)}, 16),
                         WarpSuffix(Combiner::kMax, r, {Int(1)}, 32),
                         Store(b, {t}, Load(r, {Int(0)}) + Load(r, {Int(1)}))}));
  k.arguments = {a, b};
  k.written = {false, true};
  return OneKernel(std::move(k));
}

// B[p] = what the terms A[t] of place I[t] are counted, added up, multiplied and compared to.
inline Program Atomics() {
  const auto a = Buf("A", Scope::kGlobal, {64}), b = Buf("B", Scope::kGlobal, {8}),
             i = search_space::MakeBuffer("I", DType::kInt32, Scope::kGlobal, {64}),
             n = search_space::MakeBuffer("n", DType::kInt32, Scope::kShared, {8});
  Kernel k{.name = "k0_B", .block = MakeVar("block", 1), .thread = MakeVar("thread", 64)};
  const Expr t = VarExpr(k.thread);
  const Expr place = MakeExpr(Op::kMax, {MakeExpr(Op::kMin, {Load(i, {t}), Int(7)}), Int(0)});
  std::vector<Stmt> begin = {Store(n, {t}, Int(0))},
                    add = {AtomicCombine(Combiner::kSum, n, {place}, Int(1))};
  Expr all = Cast(DType::kFloat32, Load(n, {t}));
  int64_t offset = 0;
  k.shared = {{n, offset}};
  static constexpr std::pair<const char*, Combiner> kOthers[] = {{"total", Combiner::kSum},
                                                                 {"product", Combiner::kProd},
                                                                 {"greatest", Combiner::kMax},
                                                                 {"least", Combiner::kMin}};
  for (const auto& [name, combiner] : kOthers) {
    const BufferRef s = Buf(name, Scope::kShared, {8});
    begin.push_back(Store(s, {t}, search_space::IdentityOf(combiner, DType::kFloat32)));
    add.push_back(AtomicCombine(combiner, s, {place}, Load(a, {t})));
    all = all + Load(s, {t});
    k.shared.push_back({s, offset += 32});
  }
  k.shared_bytes = offset + 32;
  k.body = Seq({If(t < Int(8), Seq(std::move(begin))), search_space::Barrier(), Seq(std::move(add)),
                search_space::Barrier(), If(t < Int(8), Store(b, {t}, all))});
  k.arguments = {a, i, b};
  k.written = {false, false, true};
  return OneKernel(std::move(k));
}

// B[p, l] = the sum of the terms A[t, l] of place I[t], `lanes` of which are added at once, C[p]
// their number, D[p] the greatest first one and E[p] the least.
inline Program Updates(int lanes = 1) {
  const auto a = Buf("A", Scope::kGlobal, {64, 4}), b = Buf("B", Scope::kGlobal, {8, 4}),
             d = Buf("D", Scope::kGlobal, {8}), e = Buf("E", Scope::kGlobal, {8}),
             i = search_space::MakeBuffer("I", DType::kInt32, Scope::kGlobal, {64}),
             c = search_space::MakeBuffer("C", DType::kInt32, Scope::kGlobal, {8});
  Kernel k{.name = "k0_B", .block = MakeVar("block", 1), .thread = MakeVar("thread", 64)};
  const Expr t = VarExpr(k.thread);
  const Expr place = MakeExpr(Op::kMax, {MakeExpr(Op::kMin, {Load(i, {t}), Int(7)}), Int(0)});
  const Var lane = MakeVar("lane", lanes);
  const Expr l = lanes == 1 ? Int(0) : VarExpr(lane);
  Stmt add = AtomicCombine(Combiner::kSum, b, {place, l}, Load(a, {t, l}), lanes);
  if (lanes > 1) add = For(lane, ForKind::kVector, add);
  k.body = Seq({add, AtomicCombine(Combiner::kSum, c, {place}, Int(1)),
                AtomicCombine(Combiner::kMax, d, {place}, Load(a, {t, Int(0)})),
                AtomicCombine(Combiner::kMin, e, {place}, Load(a, {t, Int(0)}))});
  k.arguments = {a, i, b, c, d, e};
  k.written = {false, false, true, true, true, true};
  return OneKernel(std::move(k));
}

// B[n, m] = A[m, n] for 64 x 96, 32 x 32 tiles through shared memory with rows of 33 elements.
inline Program Transpose(bool barrier = true) {
  const auto a = Buf("A", Scope::kGlobal, {64, 96}), b = Buf("B", Scope::kGlobal, {96, 64});
  Buffer tile = *Buf("A.shared", Scope::kShared, {32, 32});
  tile.strides = {33, 1};
  tile.elements = 32 * 33;
  const BufferRef s = std::make_shared<const Buffer>(tile);
  Kernel k{.name = "k0_B", .block = MakeVar("block", 6), .thread = MakeVar("thread", 256)};
  const Expr row = VarExpr(k.block) / Int(3) * Int(32), col = VarExpr(k.block) % Int(3) * Int(32);
  const Expr x = VarExpr(k.thread) % Int(32), y = VarExpr(k.thread) / Int(32);
  const Var e = MakeVar("e", 4), f = MakeVar("e", 4);
  const Expr ye = y + VarExpr(e) * Int(8), yf = y + VarExpr(f) * Int(8);
  k.body = Seq({Comment("A.shared: 32 x 32, one padding element a row"),
                For(e, ForKind::kUnrolled, Store(s, {ye, x}, Load(a, {row + ye, col + x}))),
                barrier ? Barrier() : nullptr,
                For(f, ForKind::kUnrolled, Store(b, {col + yf, row + x}, Load(s, {x, yf})))});
  k.arguments = {a, b};
  k.written = {false, true};
  k.shared = {{s, 0}};
  k.shared_bytes = 32 * 33 * 4;
  return OneKernel(std::move(k));
}

enum class Fetch { kRegisters, kAsync };

// C = relu(A B), 64 x 64 x 40, two 32 x 32 blocks a row, K tiles of 8 in two shared buffers, the
// next one fetched while the current one is multiplied. 64 threads of 4 x 4.
inline Program Matmul(Fetch fetch) {
  constexpr int64_t kTiles = 5, kDepth = 8;
  const auto a = Buf("A", Scope::kGlobal, {64, 40}), b = Buf("B", Scope::kGlobal, {40, 64}),
             c = Buf("C", Scope::kGlobal, {64, 64});
  const auto sa = Buf("A.shared", Scope::kShared, {2, 32, kDepth});
  const auto sb = Buf("B.shared", Scope::kShared, {2, kDepth, 32});
  const auto t = Buf("T", Scope::kLocal, {4, 4});
  const auto ra = Buf("A.next", Scope::kLocal, {4}), rb = Buf("B.next", Scope::kLocal, {4});
  Kernel k{.name = "k0_C", .block = MakeVar("block", 4), .thread = MakeVar("thread", 64)};
  const Expr thread = VarExpr(k.thread);
  const Expr row = VarExpr(k.block) / Int(2) * Int(32), col = VarExpr(k.block) % Int(2) * Int(32);
  const Expr ay = thread / Int(2), ax = thread % Int(2) * Int(4);
  const Expr by = thread / Int(8), bx = thread % Int(8) * Int(4);
  const bool async = fetch == Fetch::kAsync;
  // The two halves of a fetch of K tile `ko` into `buffer`; asynchronous copies have only one.
  const auto vector = [](const auto& body) {
    const Var v = MakeVar("v", 4);
    return For(v, ForKind::kVector, body(VarExpr(v)));
  };
  const auto load = [&](const Expr& ko, const Expr& buffer) {
    const auto copy = [&](const BufferRef& r, const BufferRef& s, ExprList to, const Expr& value,
                          const Expr& v) {
      return async ? AsyncCopy(s, std::move(to), value, 4) : Store(r, {v}, value, 4);
    };
    return Seq({vector([&](const Expr& v) {
                  return copy(ra, sa, {buffer, ay, ax + v},
                              Load(a, {row + ay, ko * Int(kDepth) + ax + v}, 4), v);
                }),
                vector([&](const Expr& v) {
                  return copy(rb, sb, {buffer, by, bx + v},
                              Load(b, {ko * Int(kDepth) + by, col + bx + v}, 4), v);
                }),
                async ? AsyncCommit() : nullptr});
  };
  const auto store = [&](const Expr& buffer) -> Stmt {
    if (async) return nullptr;
    return Seq({vector([&](const Expr& v) {
                  return Store(sa, {buffer, ay, ax + v}, Load(ra, {v}, 4), 4);
                }),
                vector([&](const Expr& v) {
                  return Store(sb, {buffer, by, bx + v}, Load(rb, {v}, 4), 4);
                })});
  };
  const Var i0 = MakeVar("i", 4), j0 = MakeVar("j", 4), ko = MakeVar("k.o", kTiles);
  const Var now = MakeVar("k.buffer", 2), ki = MakeVar("k.i", kDepth);
  const Var i = MakeVar("i", 4), j = MakeVar("j", 4), i2 = MakeVar("i", 4), v2 = MakeVar("j", 4);
  const auto y = [&](const Var& v) { return thread / Int(8) * Int(4) + VarExpr(v); };
  const auto x = [&](const Var& v) { return thread % Int(8) * Int(4) + VarExpr(v); };
  const Expr old = Load(t, {VarExpr(i), VarExpr(j)});
  const Stmt update = For(ki, ForKind::kUnrolled,
                          For(i, ForKind::kUnrolled,
                              For(j, ForKind::kUnrolled,
                                  Store(t, {VarExpr(i), VarExpr(j)},
                                        old + Load(sa, {VarExpr(now), y(i), VarExpr(ki)}) *
                                                  Load(sb, {VarExpr(now), VarExpr(ki), x(j)})))));
  const Expr next = VarExpr(ko) + Int(1);
  const auto if_next = [&](Stmt s) { return s ? If(next < Int(kTiles), std::move(s)) : nullptr; };
  StmtNode loop{.kind = StmtNode::Kind::kFor, .for_kind = ForKind::kSerial, .var = ko};
  loop.rotating = now;
  loop.body = {Seq({async ? Seq({AsyncWait(0), Barrier()}) : nullptr,
                    if_next(load(next, Int(1) - VarExpr(now))), update,
                    if_next(store(Int(1) - VarExpr(now))), async ? nullptr : Barrier()})};
  const Stmt clear = For(
      i0, ForKind::kUnrolled,
      For(j0, ForKind::kUnrolled, Store(t, {VarExpr(i0), VarExpr(j0)}, Float(0, DType::kFloat32))));
  const Stmt write = For(i2, ForKind::kUnrolled,
                         For(v2, ForKind::kVector,
                             Store(c, {row + y(i2), col + x(v2)},
                                   MakeExpr(Op::kMax, {Load(t, {VarExpr(i2), VarExpr(v2)}, 4),
                                                       Float(0, DType::kFloat32)}),
                                   4)));
  Stmt body = Seq({clear, load(Int(0), Int(0)), store(Int(0)), async ? nullptr : Barrier(),
                   std::make_shared<const StmtNode>(std::move(loop)), write});
  if (!async) body = Alloc(ra, Alloc(rb, body));
  k.body = Alloc(t, body);
  k.arguments = {a, b, c};
  k.written = {false, false, true};
  k.shared = {{sa, 0}, {sb, sa->bytes()}};
  k.shared_bytes = sa->bytes() + sb->bytes();
  return OneKernel(std::move(k));
}

// Y[66] = X[y - 1] with zeros outside 0 .. 63: four guarded loads a thread, into registers first.
inline Program PaddedCopy() {
  const auto xs = Buf("X", Scope::kGlobal, {64}), ys = Buf("Y", Scope::kGlobal, {66});
  const auto r = Buf("R", Scope::kLocal, {4});
  Kernel k{.name = "k0_Y", .block = MakeVar("block", 1), .thread = MakeVar("thread", 32)};
  const Var e = MakeVar("e", 4), f = MakeVar("e", 4);
  const auto at = [&](const Var& v) { return VarExpr(v) * Int(32) + VarExpr(k.thread); };
  const Expr p = Int(1) <= at(e) && at(e) < Int(65);
  const Expr zero = Float(0, DType::kFloat32);
  k.body = Alloc(r, Seq({For(e, ForKind::kUnrolled,
                             Store(r, {VarExpr(e)}, Select(p, Load(xs, {at(e) - Int(1)}), zero))),
                         For(f, ForKind::kUnrolled,
                             If(at(f) < Int(66), Store(ys, {at(f)}, Load(r, {VarExpr(f)}))))}));
  k.arguments = {xs, ys};
  k.written = {false, true};
  return OneKernel(std::move(k));
}

// Y[99] = X with zeros past 0 .. 76, in a serial loop whose guarded loads advance by a block.
inline Program MovingCopy() {
  const auto xs = Buf("X", Scope::kGlobal, {77}), ys = Buf("Y", Scope::kGlobal, {99});
  const auto r = Buf("R", Scope::kLocal, {2});
  Kernel k{.name = "k0_Y", .block = MakeVar("block", 1), .thread = MakeVar("thread", 16)};
  const Var step = MakeVar("k", 4), e = MakeVar("e", 2), f = MakeVar("e", 2);
  const auto at = [&](const Var& v) {
    return VarExpr(step) * Int(32) + VarExpr(v) * Int(16) + VarExpr(k.thread);
  };
  const Expr x = Select(at(e) < Int(77), Load(xs, {at(e)}), Float(0, DType::kFloat32));
  k.body =
      For(step, ForKind::kSerial,
          Alloc(r, Seq({For(e, ForKind::kUnrolled, Store(r, {VarExpr(e)}, x)),
                        For(f, ForKind::kUnrolled,
                            If(at(f) < Int(99), Store(ys, {at(f)}, Load(r, {VarExpr(f)}))))})));
  k.arguments = {xs, ys};
  k.written = {false, true};
  return OneKernel(std::move(k));
}

}  // namespace heddle::tests

#endif  // HEDDLE_TESTS_MEASURE_SAMPLE_PROGRAMS_H_
