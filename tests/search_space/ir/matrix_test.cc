// Matrix instructions: who holds what, what the interpreter makes of them, and what verification
// and interpreter refuse.
#include <gtest/gtest.h>

#include "absl/strings/match.h"
#include "search_space/check/interpret.h"
#include "search_space/check/verify.h"
#include "search_space/ir/expr/simplify.h"
#include "search_space/notation/notation.h"
#include "tests/search_space/sample_programs.h"

namespace heddle::search_space {
namespace {

using tests::V;

int64_t ValueOf(const Expr& e) { return Simplify(e)->int_value; }

// The formulas of "Matrix Fragments for mma.m16n8k16 with floating point type", PTX ISA.
TEST(MatrixLayouts, AreThoseOfThePtxTables) {
  const MatrixShape& shape = ShapeOf(MatrixInstruction::kM16N8K16);
  const auto expect = [&](MatrixOperand operand, int64_t elements, const auto& position) {
    const FragmentLayout& layout = shape.Layout(operand);
    EXPECT_EQ(layout.elements(), elements);
    for (int64_t lane = 0; lane < 32; ++lane) {
      for (int64_t i = 0; i < elements; ++i) {
        const auto [row, col] = position(lane / 4, lane % 4, i);
        EXPECT_EQ(ValueOf(layout.Lane(Int(row), Int(col))), lane) << row << ", " << col;
        EXPECT_EQ(ValueOf(layout.Element(Int(row), Int(col))), i) << row << ", " << col;
      }
    }
  };
  using Position = std::pair<int64_t, int64_t>;
  expect(MatrixOperand::kA, 8, [](int64_t group, int64_t thread, int64_t i) {
    const bool upper = i < 2 || (i >= 4 && i < 6);
    return Position{upper ? group : group + 8, thread * 2 + (i & 1) + (i >= 4 ? 8 : 0)};
  });
  // Of B the table gives rows along k; a fragment's rows are along n.
  expect(MatrixOperand::kB, 4, [](int64_t group, int64_t thread, int64_t i) {
    return Position{group, thread * 2 + (i & 1) + (i >= 2 ? 8 : 0)};
  });
  expect(MatrixOperand::kD, 4, [](int64_t group, int64_t thread, int64_t i) {
    return Position{i < 2 ? group : group + 8, thread * 2 + (i & 1)};
  });
}

// Those of "Matrix Fragments for mma.m16n8k8", .tf32.
TEST(MatrixLayouts, OfTF32AreThoseOfThePtxTables) {
  const MatrixShape& shape = ShapeOf(MatrixInstruction::kM16N8K8);
  const auto expect = [&](MatrixOperand operand, int64_t elements, int64_t rows) {
    const FragmentLayout& layout = shape.Layout(operand);
    EXPECT_EQ(layout.elements(), elements);
    for (int64_t lane = 0; lane < 32; ++lane) {
      for (int64_t i = 0; i < elements; ++i) {
        const int64_t row = lane / 4 + (rows == 16 && i % 2 == 1 ? 8 : 0);
        const int64_t col = lane % 4 + (i >= elements / 2 ? 4 : 0);
        EXPECT_EQ(ValueOf(layout.Lane(Int(row), Int(col))), lane) << row << ", " << col;
        EXPECT_EQ(ValueOf(layout.Element(Int(row), Int(col))), i) << row << ", " << col;
      }
    }
  };
  expect(MatrixOperand::kA, 4, 16);
  expect(MatrixOperand::kB, 2, 8);
}

// Row and Col say of each element of a lane where it stands.
TEST(MatrixLayouts, KnowWhereElementsStand) {
  for (int number = 0; number <= static_cast<int>(MatrixInstruction::kM64N256K8); ++number) {
    for (const FragmentLayout& layout : ShapeOf(static_cast<MatrixInstruction>(number)).layouts) {
      if (layout.rows % (8 * layout.warps) != 0) continue;
      for (int64_t lane = 0; lane < layout.lanes(); lane += 5) {
        for (int64_t i = 0; i < layout.elements(); ++i) {
          const Expr row = Simplify(layout.Row(Int(lane), Int(i)));
          const Expr col = Simplify(layout.Col(Int(lane), Int(i)));
          ASSERT_EQ(ValueOf(layout.Lane(row, col)), lane) << number;
          ASSERT_EQ(ValueOf(layout.Element(row, col)), i) << number;
        }
      }
    }
  }
}

// C[16, 8] = A[16, 16] B[16, 8] or, `transposed`, of a B that is stored [n, k], by one warp.
struct Product {
  bool barrier = true;    // behind the stores to shared memory
  int64_t first_row = 0;  // element of A at which LoadMatrix begins
  Expr only;              // condition around the product
  bool b_is_transposed = true;
};

Program Multiply(const Product& p) {
  const DType type = DType::kFloat16;
  const auto half = [&](const char* name, Scope scope, std::vector<int64_t> shape) {
    return MakeBuffer(name, type, scope, std::move(shape));
  };
  const int64_t bk = p.b_is_transposed ? 16 : 8, bn = p.b_is_transposed ? 8 : 16;
  const auto a = half("A", Scope::kGlobal, {16, 16}), b = half("B", Scope::kGlobal, {bk, bn});
  const auto c = tests::F32("C", Scope::kGlobal, {16, 8});
  const auto as = half("As", Scope::kShared, {17, 16}), bs = half("Bs", Scope::kShared, {bk, bn});
  const auto ar = half("Ar", Scope::kLocal, {8}), br = half("Br", Scope::kLocal, {4});
  const auto d = tests::F32("D", Scope::kLocal, {4});
  const Var block = MakeVar("block", 1), t = MakeVar("t", 32);
  const auto copy = [&](const BufferRef& to, const BufferRef& from, int64_t rows, int64_t cols) {
    const Var i = MakeVar("i", rows * cols / 32);
    const Expr at = V(i) * Int(32) + V(t);
    return For(
        i, ForKind::kUnrolled,
        Store(to, {at / Int(cols), at % Int(cols)}, Load(from, {at / Int(cols), at % Int(cols)})));
  };
  const Var e = MakeVar("e", 4), z = MakeVar("z", 4);
  const Expr line = V(t) % Int(16);
  const Expr bt = p.b_is_transposed ? Load(bs, {line, Int(0)})
                                    : Load(bs, {V(t) % Int(8), V(t) / Int(8) % Int(2) * Int(8)});
  Stmt multiply =
      Seq({LoadMatrix(ar, {Int(0)}, Load(as, {line, V(t) / Int(16) * Int(8) + Int(p.first_row)}), 4,
                      false),
           LoadMatrix(br, {Int(0)}, bt, 2, p.b_is_transposed),
           MatrixMultiply(MatrixInstruction::kM16N8K16, d, {Int(0)}, Load(ar, {Int(0)}),
                          Load(br, {Int(0)}))});
  if (p.only != nullptr) {
    multiply = If(Substitute(p.only, [&](const Var&) { return V(t); }), multiply);
  }
  const Expr row = V(e) / Int(2) * Int(8) + V(t) / Int(4);
  const Expr col = V(t) % Int(4) * Int(2) + V(e) % Int(2);
  Stmt body = Seq({copy(as, a, 16, 16), copy(bs, b, bk, bn), p.barrier ? Barrier() : nullptr,
                   For(z, ForKind::kUnrolled, Store(d, {V(z)}, Float(0, DType::kFloat32))),
                   multiply, For(e, ForKind::kUnrolled, Store(c, {row, col}, Load(d, {V(e)})))});
  body = Alloc(ar, Alloc(br, Alloc(d, body)));
  return tests::OneKernel({a, b}, c, block, t, body, {{as, 0}, {bs, 17 * 16 * 2}});
}

absl::Status RunProduct(const Product& p, TensorValues& values) {
  for (int64_t i = 0; i < 256; ++i) values["A"].push_back(static_cast<double>(i % 7) - 3);
  for (int64_t i = 0; i < 128; ++i) values["B"].push_back(static_cast<double>(i % 5) - 2);
  return Interpret(Multiply(p), values);
}

TEST(MatrixInstructions, MultiplyWhatLanesHold) {
  const Target target = *FindTarget("sm_80");
  for (const bool transposed : {true, false}) {
    const Product p{.b_is_transposed = transposed};
    EXPECT_TRUE(Verify(Multiply(p), target).ok()) << Verify(Multiply(p), target);
    TensorValues values;
    const absl::Status ran = RunProduct(p, values);
    ASSERT_TRUE(ran.ok()) << ran;
    for (size_t i = 0; i < 16; ++i) {
      for (size_t j = 0; j < 8; ++j) {
        double sum = 0;
        for (size_t k = 0; k < 16; ++k) {
          sum += values["A"][i * 16 + k] * values["B"][transposed ? k * 8 + j : j * 16 + k];
        }
        EXPECT_EQ(values["C"][i * 8 + j], sum) << i << ", " << j;
      }
    }
  }
}

TEST(MatrixInstructions, AreRefusedWhereTheyWouldGoWrong) {
  const Target target = *FindTarget("sm_80");
  const auto refused = [&](const Product& p, const Target& on, const char* why) {
    const absl::Status verified = Verify(Multiply(p), on);
    EXPECT_TRUE(absl::StrContains(verified.message(), why)) << verified;
  };
  refused({}, *FindTarget("sm_75"), "sm_75 has no matrix instructions");
  refused({.first_row = 4}, target, "not proven to begin 8 elements");
  refused({.only = V(MakeVar("any", 32)) < Int(16)}, target, "control flow that differs");

  const auto fails = [&](const Product& p, const char* why) {
    TensorValues values;
    const absl::Status ran = RunProduct(p, values);
    EXPECT_TRUE(absl::StrContains(ran.message(), why)) << ran;
  };
  fails({.barrier = false}, "thread");
  fails({.first_row = 4}, "is not aligned");
  fails({.only = V(MakeVar("any", 32)) < Int(16)}, "divergent");
}

// Two blocks of 8 x 4 numbers of tf32, spread over a warp.
TEST(MatrixInstructions, LoadRowsOfTF32AndTransposeNone) {
  const auto tf32 = [](const char* name, Scope scope, std::vector<int64_t> shape) {
    return MakeBuffer(name, DType::kTF32, scope, std::move(shape));
  };
  const auto a = tf32("A", Scope::kGlobal, {16, 4}), as = tf32("As", Scope::kShared, {16, 4});
  const auto ar = tf32("Ar", Scope::kLocal, {2});
  const auto c = tests::F32("C", Scope::kGlobal, {16, 4});
  const auto load = [&](bool transposed, const Expr& first) {
    const Var block = MakeVar("block", 1), t = MakeVar("t", 32);
    const Var i = MakeVar("i", 2), e = MakeVar("e", 2);
    const Expr row = V(i) * Int(8) + V(t) / Int(4), held = V(e) * Int(8) + V(t) / Int(4);
    const Expr col = V(t) % Int(4);
    Stmt body =
        Seq({For(i, ForKind::kUnrolled, Store(as, {row, col}, Load(a, {row, col}))), Barrier(),
             LoadMatrix(ar, {Int(0)}, Load(as, {V(t) % Int(16), first}), 2, transposed),
             For(e, ForKind::kUnrolled,
                 Store(c, {held, col}, Cast(DType::kFloat32, Load(ar, {V(e)}))))});
    return tests::OneKernel({a}, c, block, t, Alloc(ar, body), {{as, 0}});
  };
  const Target target = *FindTarget("sm_80");
  const Program rows = load(false, Int(0));
  EXPECT_TRUE(Verify(rows, target).ok()) << Verify(rows, target);
  TensorValues values;
  for (int i = 0; i < 64; ++i) values["A"].push_back(i + 1);
  const absl::Status ran = Interpret(rows, values);
  ASSERT_TRUE(ran.ok()) << ran;
  EXPECT_EQ(values["C"], values["A"]);
  const auto refused = [&](const Program& program, const char* why) {
    const absl::Status verified = Verify(program, target);
    EXPECT_TRUE(absl::StrContains(verified.message(), why)) << verified;
  };
  refused(load(true, Int(0)), "transposed: only elements of 16 bits can be");
  refused(load(false, Int(2)), "not proven to begin 4 elements");
}

// 989 TFLOP/s at the clock that the H100's data sheet has for matrix instructions, 1.83 GHz.
TEST(MatrixInstructions, RaiseThePeakOfWhatTheyCompute) {
  const auto peak = [](const char* op, const char* shape, DType type, const char* target) {
    const auto program =
        FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), type);
    return PeakGflops(*program, *FindTarget(target)) / FindTarget(target)->peak_gflops;
  };
  const char* const shape = "m=64,n=64,k=64";
  EXPECT_EQ(peak("matmul", shape, DType::kBFloat16, "h100"), 16);
  EXPECT_EQ(peak("matmul", shape, DType::kFloat16, "a100"), 16);
  EXPECT_EQ(peak("matmul", shape, DType::kFloat32, "h100"), 1);
  EXPECT_EQ(peak("matmul_nt", shape, DType::kTF32, "h100"), 8);
  EXPECT_EQ(peak("matmul", shape, DType::kTF32, "cpu"), 1);
  EXPECT_EQ(peak("matmul", shape, DType::kFloat16, "sm_75"), 1) << "has none that kernels use";
  EXPECT_EQ(peak("vector_add", "n=64", DType::kBFloat16, "h100"), 1);
  // What is read may be wider than what is multiplied.
  const auto cast = ParseOperators(
      "op f(n) { in A[n, n] out C[i: n, j: n] = sum(r: n) bfloat16(A[i, r]) * bfloat16(A[r, j]) }");
  const TensorProgram rounded = *cast->front().Instantiate({{"n", 64}}, DType::kFloat32);
  EXPECT_EQ(PeakGflops(rounded, *FindTarget("h100")), MatrixGflops(*FindTarget("h100")));
  EXPECT_EQ(MostMatrixSteps(rounded, *FindTarget("h100")), 64 / 16);
  EXPECT_EQ(MostMatrixSteps(rounded, *FindTarget("sm_75")), 0);
  EXPECT_NEAR(MatrixGflops(*FindTarget("h100")) * 1.83 / 1.98, 989e3, 1e3);
  EXPECT_NEAR(MatrixGflops(*FindTarget("h100"), DType::kTF32) * 1.83 / 1.98, 494.7e3, 1e3);
}

}  // namespace
}  // namespace heddle::search_space
