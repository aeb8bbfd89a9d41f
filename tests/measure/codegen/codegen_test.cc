#include "measure/codegen/codegen.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#define CL_TARGET_OPENCL_VERSION 120
#include <CL/cl.h>

#include <array>
#include <filesystem>
#include <fstream>
#include <functional>
#include <limits>
#include <memory>
#include <set>
#include <sstream>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "base/hash.h"
#include "measure/codegen/dialects.h"
#include "measure/codegen/expr_printer.h"
#include "measure/device/cuda/nvrtc.h"
#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"
#include "search_space/sketch/search_space.h"
#include "tests/golden.h"
#include "tests/measure/sample_programs.h"

namespace heddle::measure {
namespace {

using namespace search_space;  // NOLINT: expressions are built from these names
using ::testing::HasSubstr;
using ::testing::Not;

struct Sample {
  const char* name;
  Program program;
};
std::vector<Sample> Samples() {
  return {{"vector_add", tests::VectorAdd()},
          {"transpose", tests::Transpose()},
          {"padded_copy", tests::PaddedCopy()},
          {"prefixes", tests::Prefixes()},
          {"atomics", tests::Atomics()},
          {"updates", tests::Updates()},
          {"moving_copy", tests::MovingCopy()},
          {"matmul", tests::Matmul(tests::Fetch::kRegisters)},
          {"matmul_async", tests::Matmul(tests::Fetch::kAsync)}};
}

// out[t] = the larger of exp(a[t]) and b[t] where a guard holds, by registers and loops, all of it
// called by words that mean something else.
Program CalledBadly(const std::array<const char*, 6>& names) {
  const auto a = tests::Buf(names[0], Scope::kGlobal, {128}),
             b = tests::Buf(names[1], Scope::kGlobal, {128}),
             out = tests::Buf(names[2], Scope::kGlobal, {128}),
             sum = tests::Buf(names[3], Scope::kLocal, {4}),
             tile = tests::Buf(names[0], Scope::kShared, {32});
  Kernel k{.name = "k0", .block = MakeVar(names[1], 4), .thread = MakeVar(names[2], 32)};
  const Var i = MakeVar(names[4], 4), j = MakeVar(names[5], 4);
  const Expr t = VarExpr(k.block) * Int(32) + VarExpr(k.thread);
  const Expr guarded = Select(t < Int(100), Load(a, {t}), Float(0, DType::kFloat32));
  const Expr value = MakeExpr(Op::kMax, {MakeExpr(Op::kExp, {guarded}), Load(b, {t})});
  k.body = Alloc(
      sum,
      Seq({For(i, ForKind::kSerial, Store(sum, {VarExpr(i)}, value)),
           Store(tile, {VarExpr(k.thread)}, Load(sum, {Int(1)})),
           For(i, ForKind::kSerial,
               For(j, ForKind::kSerial,
                   Store(out, {t}, Load(sum, {VarExpr(j)}) + Load(tile, {VarExpr(k.thread)}))))}));
  k.arguments = {a, b, out};
  k.written = {false, false, true};
  k.shared = {{tile, 0}};
  k.shared_bytes = tile->bytes();
  return tests::OneKernel(std::move(k));
}
std::vector<Sample> SamplesToCompile() {
  std::vector<Sample> samples = Samples();
  constexpr std::array<const char*, 6> kBad[] = {
      {"float", "int", "for", "half", "if", "double"},
      {"block", "thread", "lanes", "arena", "other", "distance"},
      {"threadIdx", "blockIdx", "warpSize", "float4", "make_float4", "uchar"},
      {"exp", "expf", "fmax", "nan_max_f32", "get_group_id", "get_local_id"},
      {"INFINITY", "NAN", "NULL", "INT_MAX", "M_PI", "CLK_LOCAL_MEM_FENCE"},
      {"linux", "unix", "kernel", "global", "local", "restrict"},
      {"same", "same", "same", "same", "same", "same"},
      {"_", "__", "1", "a.b", "a_b", "a__b"},
      {"condition", "same_value", "same", "same_shared", "same.shared", "condition_b"},
      {"QK", "W1", "V_2", "V.2", "and", "not_eq"},
      {"TensorMap", "asm", "barrier", "size_t", "dim3", "vec_step"},
  };
  for (const auto& names : kBad) samples.push_back({names[0], CalledBadly(names)});
  return samples;
}

Target OpenClTarget() {
  Target t;
  t.api = Api::kOpenCl;
  t.arch = "opencl";
  return t;
}

std::string Source(const Program& program, const Target& target) {
  return GenerateSource(program, target, "a test")[0].source;
}

// What a version of the generator stands for: the golden loops and sources, and the steps.
std::string HashOfGoldens() {
  std::vector<std::string> texts = []<size_t... I>(std::index_sequence<I...>) {
    const auto name_of = [](const Step& step) {
      const std::string text = ToString(step);
      return text.substr(0, text.find('('));
    };
    return std::vector<std::string>{name_of(std::variant_alternative_t<I, Step>{})...};
  }
  (std::make_index_sequence<std::variant_size_v<Step>>());
  for (const char* folder : {"loops", "codegen"}) {
    std::set<std::filesystem::path> files;
    const std::string goldens = absl::StrCat(tests::SourceDir(), "/tests/golden/", folder);
    for (const auto& entry : std::filesystem::directory_iterator(goldens)) {
      files.insert(entry.path());
    }
    for (const std::filesystem::path& path : files) {
      std::stringstream text;
      text << path.filename().string() << "\n" << std::ifstream(path).rdbuf();
      texts.push_back(text.str());
    }
  }
  return HexHashOf(absl::StrJoin(texts, "\n"));
}

TEST(Codegen, OtherSourceOrStepsAreAnotherVersion) {
  constexpr int kVersion = 40;
  constexpr char kHash[] = "96956aeedd2417ff";
  EXPECT_EQ(kVersion, kGeneratorVersion) << "say here what it stands for: " << HashOfGoldens();
  EXPECT_EQ(HashOfGoldens(), kHash)
      << "golden sources or steps have changed, or there are more of them: unless every step still "
         "gives the source that it gave, bump kGeneratorVersion (measure/codegen/codegen.h); then "
         "pin both "
         "here";
}

TEST(Codegen, Goldens) {
  for (const Sample& s : Samples()) {
    const std::string base = std::string("codegen/") + s.name;
    tests::ExpectGolden(base + ".cu", Source(s.program, *FindTarget("sm_90")));
    tests::ExpectGolden(base + ".cl", Source(s.program, OpenClTarget()));
  }
}

TEST(Codegen, NvrtcCompilesEverySample) {
  HEDDLE_NEEDS("nvrtc", FindNvrtc().ok(), FindNvrtc().status().message());
  for (const char* arch : {"sm_80", "sm_90"}) {
    for (const Sample& s : SamplesToCompile()) {
      const auto binary = CompileCuda(Source(s.program, *FindTarget(arch)), s.name, arch);
      ASSERT_TRUE(binary.ok()) << s.name << ": " << binary.status();
      EXPECT_EQ(binary->resources.stack_bytes, 0) << s.name << ": an array left the registers";
    }
  }
}

TEST(Codegen, PtxHasWideAccessesAndNoBranchAroundALoad) {
  HEDDLE_NEEDS("nvrtc", FindNvrtc().ok(), FindNvrtc().status().message());
  const Target target = *FindTarget("sm_90");
  const auto add = CompileCuda(Source(tests::VectorAdd(), target), "add", "sm_90");
  ASSERT_TRUE(add.ok()) << add.status();
  EXPECT_THAT(add->ptx, HasSubstr("ld.global.nc.v4"));
  EXPECT_THAT(add->ptx, HasSubstr("st.global.v4"));
  const auto padded = CompileCuda(Source(tests::PaddedCopy(), target), "padded", "sm_90");
  ASSERT_TRUE(padded.ok()) << padded.status();
  const std::string& ptx = padded->ptx;
  const size_t first = ptx.find("ld.global"), last = ptx.rfind("ld.global");
  ASSERT_LT(first, last);
  EXPECT_THAT(ptx.substr(first, last - first), Not(HasSubstr("bra"))) << ptx;
  const auto async = CompileCuda(Source(tests::Matmul(tests::Fetch::kAsync), target), "m", "sm_90");
  ASSERT_TRUE(async.ok()) << async.status();
  EXPECT_THAT(async->ptx, HasSubstr("cp.async.cg.shared.global"));
}

// A launch describes the tensors that bulk copies read, behind its buffers.
TEST(Codegen, BulkCopiesTakeTensorMaps) {
  const Target target = *FindTarget("h100");
  const auto workload = std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), "matmul_nt")
           ->Instantiate(*ParseShape("m=128,n=32,k=256"), DType::kBFloat16));
  const auto space = SearchSpace::Create(workload, target);
  const auto point = space->Parse(
      "warpgroup: swap=0 m.groups=2 n.groups=1 m.tiles=1 columns=32 k.steps=4 split_k=1 pipeline=3 "
      "in_flight=1 block_swizzle=1 min_blocks=0 bulk=1");
  ASSERT_TRUE(point.ok()) << point.status();
  const KernelSource kernel = GenerateSource(*space->Lower(*point), target, "")[0];
  EXPECT_EQ(kernel.launch.arguments, (std::vector<std::string>{"A", "B", "C"}));
  ASSERT_EQ(kernel.launch.maps.size(), 2u);
  const TensorMap& map = kernel.launch.maps[1];
  EXPECT_EQ(map.buffer, "B");
  EXPECT_EQ(map.shape, (std::vector<int64_t>{32, 256}));
  EXPECT_EQ(map.strides, (std::vector<int64_t>{512}));
  EXPECT_EQ(map.box, (std::vector<int64_t>{32, 64}));
  EXPECT_EQ(map.swizzle_bytes, 128);
  EXPECT_THAT(kernel.source, HasSubstr("* __restrict__ C,\n"
                                       "    const __grid_constant__ TensorMap A_map,\n"
                                       "    const __grid_constant__ TensorMap B_map)"));
  HEDDLE_NEEDS("nvrtc", FindNvrtc().ok(), FindNvrtc().status().message());
  const auto binary = CompileCuda(kernel.source, "bulk", target.arch + kernel.arch_suffix);
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_FALSE(binary->resources.serialized) << binary->log;
  EXPECT_THAT(binary->ptx, HasSubstr("cp.async.bulk.tensor.2d.shared::cluster.global"));
}

TEST(Codegen, SeveralElementsAreAddedToAtOnce) {
  const Target target = *FindTarget("h100");
  const std::string text = Source(tests::Updates(4), target);
  EXPECT_THAT(text, HasSubstr("red.global.add.v4.f32"));
  EXPECT_THAT(Source(tests::Updates(), target), Not(HasSubstr("red.global")));
  HEDDLE_NEEDS("nvrtc", FindNvrtc().ok(), FindNvrtc().status().message());
  const auto binary = CompileCuda(text, "updates", target.arch);
  ASSERT_TRUE(binary.ok()) << binary.status();
  EXPECT_THAT(binary->ptx, HasSubstr("red.global.add.v4.f32"));
}

// Sums of floats alone depend on the order of their terms, and what is computed of them.
TEST(Codegen, LaunchesSayWhatIsRoundedAnew) {
  using Names = std::vector<std::string>;
  const auto anew = [](const Program& program) {
    std::vector<Names> names;
    for (const KernelSource& k : GenerateSource(program, OpenClTarget(), "")) {
      names.push_back(k.launch.rounded_anew);
    }
    return names;
  };
  EXPECT_EQ(anew(tests::Atomics()), (std::vector<Names>{{"B"}}));
  EXPECT_EQ(anew(tests::Updates()), (std::vector<Names>{{"B", "C", "D", "E"}}));
  EXPECT_EQ(anew(tests::Matmul(tests::Fetch::kRegisters)), (std::vector<Names>{{}}));
  Program counts = tests::Updates();
  counts.kernels[0].body = Seq({counts.kernels[0].body->body[1], counts.kernels[0].body->body[2]});
  EXPECT_EQ(anew(counts), (std::vector<Names>{{}}));
  // C = A + B in front of the updates of B, and behind them.
  Program chain = tests::Updates();
  const Kernel reader = tests::VectorAdd().kernels[0];
  chain.kernels.insert(chain.kernels.begin(), reader);
  chain.kernels.push_back(reader);
  EXPECT_EQ(anew(chain), (std::vector<Names>{{}, {"B", "C", "D", "E"}, {"C"}}));
}

TEST(Codegen, OpenClCompilesEverySample) {
  cl_platform_id platform;
  cl_device_id device;
  const bool found =
      clGetPlatformIDs(1, &platform, nullptr) == CL_SUCCESS &&
      clGetDeviceIDs(platform, CL_DEVICE_TYPE_ALL, 1, &device, nullptr) == CL_SUCCESS;
  HEDDLE_NEEDS("pocl", found, "no OpenCL platform with a device");
  cl_context context = clCreateContext(nullptr, 1, &device, nullptr, nullptr, nullptr);
  for (const Sample& s : SamplesToCompile()) {
    const std::string source = Source(s.program, OpenClTarget());
    const char* text = source.c_str();
    cl_program program = clCreateProgramWithSource(context, 1, &text, nullptr, nullptr);
    const cl_int error = clBuildProgram(program, 1, &device, "-Werror", nullptr, nullptr);
    std::string log(20000, '\0');
    clGetProgramBuildInfo(program, device, CL_PROGRAM_BUILD_LOG, log.size(), log.data(), nullptr);
    EXPECT_EQ(error, CL_SUCCESS) << s.name << ": " << log.c_str() << "\n" << source;
    clReleaseProgram(program);
  }
  clReleaseContext(context);
}

TEST(Codegen, LargeSharedMemoryIsDynamicOnCuda) {
  Program p = tests::Transpose();
  p.kernels[0].shared_bytes = 64 << 10;
  const KernelSource cuda = GenerateSource(p, *FindTarget("sm_90"), "")[0];
  EXPECT_EQ(cuda.launch.dynamic_shared_bytes, 64 << 10);
  EXPECT_THAT(cuda.source, HasSubstr("extern __shared__ __align__(16) unsigned char arena[];"));
  EXPECT_EQ(GenerateSource(p, OpenClTarget(), "")[0].launch.dynamic_shared_bytes, 0);
}

TEST(Codegen, HeaderCannotLeaveItsComment) {
  const std::string text =
      GenerateSource(tests::VectorAdd(), OpenClTarget(), "one\\\ntwo")[0].source;
  EXPECT_THAT(text, HasSubstr("// one\n// two\n"));
}

// One store of four lanes to Y of select(condition, X[4 t + v], 0), X accessed four at a time.
std::string GuardedVector(const std::function<Expr(Expr t, Expr v)>& condition,
                          bool async = false) {
  const auto xs = tests::Buf("X", Scope::kGlobal, {128});
  const auto ys = tests::Buf("Y", async ? Scope::kShared : Scope::kGlobal, {128});
  Kernel k{.name = "k0_Y", .block = MakeVar("block", 1), .thread = MakeVar("thread", 32)};
  const Var v = MakeVar("v", 4);
  const Expr i = VarExpr(k.thread) * Int(4) + VarExpr(v);
  const Expr value =
      Select(condition(VarExpr(k.thread), VarExpr(v)), Load(xs, {i}, 4), Float(0, DType::kFloat32));
  k.body =
      For(v, ForKind::kVector, async ? AsyncCopy(ys, {i}, value, 4) : Store(ys, {i}, value, 4));
  k.arguments = {xs};
  k.written = {false};
  if (async) {
    k.shared = {{ys, 0}};
    k.shared_bytes = ys->bytes();
  } else {
    k.arguments.push_back(ys);
    k.written.push_back(true);
  }
  return Source(tests::OneKernel(std::move(k)), *FindTarget("sm_90"));
}

TEST(Codegen, AGuardThatIsAlikeInAllLanesKeepsTheWideLoad) {
  // 4 t + v < 100 holds for all four lanes or for none.
  const std::string text = GuardedVector([](Expr t, Expr v) { return t * Int(4) + v < Int(100); });
  EXPECT_THAT(text,
              HasSubstr("const float4 X_vector = *(const float4*)&X[condition ? thread * 4 : 0];"));
}

TEST(Codegen, AGuardThatDiffersBetweenLanesLoadsThemOneByOne) {
  const std::string text = GuardedVector([](Expr t, Expr v) { return t * Int(4) + v < Int(98); });
  EXPECT_THAT(text, Not(HasSubstr("(const float4*)")));
  EXPECT_THAT(text, HasSubstr("const float X_value_d = X["));
  EXPECT_THAT(text, HasSubstr("*(float4*)&Y[thread * 4] = make_float4("));
}

// What every side of a choice reads is read once, and not where the choice is made: compilers see
// that what is computed of it is the same on all sides.
TEST(Codegen, WhatAllSidesReadIsReadOnce) {
  const auto xs = tests::Buf("X", Scope::kGlobal, {128}),
             zs = tests::Buf("Z", Scope::kGlobal, {64}),
             ys = tests::Buf("Y", Scope::kGlobal, {128});
  const auto text = [&](int lanes, const auto& value) {
    Kernel k{.name = "k0_Y", .block = MakeVar("block", 1), .thread = MakeVar("thread", 32)};
    const Var v = MakeVar("v", 4);
    const Expr i = VarExpr(k.thread) * Int(4) + VarExpr(v);
    k.body = For(v, ForKind::kVector, Store(ys, {i}, value(i, Load(xs, {i}, lanes)), 4));
    k.arguments = {xs, zs, ys};
    k.written = {false, false, true};
    return Source(tests::OneKernel(std::move(k)), *FindTarget("sm_90"));
  };
  const auto number = [](double v) { return Float(v, DType::kFloat32); };
  const std::string sides = text(1, [&](const Expr& i, const Expr& x) {
    return Select(i < Int(64), x * Load(zs, {i}), Select(i < Int(98), number(1) - x, x));
  });
  EXPECT_THAT(sides, HasSubstr("const float X_value = X[thread * 4];"));
  EXPECT_THAT(sides, HasSubstr("Z[condition ? thread * 4 : 0];"));
  EXPECT_THAT(sides, Not(HasSubstr("X[condition")));
  // The condition's vector is the side's, too.
  const std::string condition = text(4, [&](const Expr&, const Expr& x) {
    return Select(number(0) < x, Load(xs, x->args), number(0));
  });
  EXPECT_THAT(condition, HasSubstr("const float4 X_vector = *(const float4*)&X[thread * 4];"));
  EXPECT_THAT(condition, HasSubstr("(condition_d ? X_vector.w : 0.0f)"));
  EXPECT_THAT(condition, Not(HasSubstr("X_value")));
}

TEST(Codegen, AsyncCopiesPassTheirGuardOn) {
  const std::string text = GuardedVector([](Expr t, Expr) { return t < Int(25); }, /*async=*/true);
  EXPECT_THAT(text, HasSubstr("async_copy<16>(&Y[thread * 4], &X[thread * 4], thread < 25);"));
}

// Of what an index names: behind the end of the indices there is none to be read, where nothing is
// copied.
TEST(Codegen, AsyncCopiesReadIndicesWhereTheyCopyAlone) {
  const auto xs = tests::Buf("X", Scope::kGlobal, {40, 4});
  const auto is = MakeBuffer("I", DType::kInt32, Scope::kGlobal, {25});
  const auto ys = tests::Buf("Y", Scope::kShared, {32, 4});
  Kernel k{.name = "k0_Y", .block = MakeVar("block", 1), .thread = MakeVar("thread", 32)};
  const Var v = MakeVar("v", 4);
  const Expr t = VarExpr(k.thread);
  const Expr value =
      Select(t < Int(25), Load(xs, {Load(is, {t}), VarExpr(v)}, 4), Float(0, DType::kFloat32));
  k.body = For(v, ForKind::kVector, AsyncCopy(ys, {t, VarExpr(v)}, value, 4));
  k.arguments = {xs, is};
  k.written = {false, false};
  k.shared = {{ys, 0}};
  k.shared_bytes = ys->bytes();
  const std::string text = Source(tests::OneKernel(std::move(k)), *FindTarget("sm_90"));
  EXPECT_THAT(text, HasSubstr("(thread < 25) ? &X["));
  EXPECT_THAT(text, HasSubstr(" : X, thread < 25);"));
}

// Y[i] = X[i] (`guarded`: where i < 100) for i = 32 (t / 8) + 8 e + t % 8, e < 4 unrolled.
std::string UnrolledCopy(bool guarded, bool async) {
  const auto xs = tests::Buf("X", Scope::kGlobal, {128});
  const auto ys = tests::Buf("Y", Scope::kShared, {128});
  Kernel k{.name = "k0_Y", .block = MakeVar("block", 1), .thread = MakeVar("thread", 32)};
  const Var e = MakeVar("e", 4);
  const Expr t = VarExpr(k.thread);
  const Expr i = t / Int(8) * Int(32) + VarExpr(e) * Int(8) + t % Int(8);
  const Expr x = Load(xs, {i});
  const Expr value = guarded ? Select(i < Int(100), x, Float(0, DType::kFloat32)) : x;
  k.body = For(e, ForKind::kUnrolled, async ? AsyncCopy(ys, {i}, value, 1) : Store(ys, {i}, value));
  k.arguments = {xs};
  k.written = {false};
  k.shared = {{ys, 0}};
  k.shared_bytes = ys->bytes();
  return Source(tests::OneKernel(std::move(k)), *FindTarget("sm_90"));
}

TEST(Codegen, AddressesOfAnUnrolledNestStandBeforeIt) {
  const std::string address = "[(thread / 8) * 32 + (thread % 8)];\n";
  const std::string plain = UnrolledCopy(/*guarded=*/false, /*async=*/false);
  EXPECT_THAT(plain, HasSubstr("  const float* const X_ptr = &X" + address));
  EXPECT_THAT(plain, HasSubstr("  float* const Y_ptr = &Y" + address));
  EXPECT_THAT(plain, HasSubstr("Y_ptr[e * 8] = X_ptr[e * 8];"));
}

TEST(Codegen, AGuardedLoadNeverLeavesItsBuffer) {
  const std::string text = UnrolledCopy(/*guarded=*/true, /*async=*/false);
  EXPECT_THAT(text, HasSubstr("const int X_offset = (thread / 8) * 32 + (thread % 8);"));
  EXPECT_THAT(text, HasSubstr("X[condition ? e * 8 + X_offset : 0]"));
}

TEST(Codegen, AnAsyncCopyTakesAnOffset) {
  EXPECT_THAT(UnrolledCopy(/*guarded=*/false, /*async=*/true),
              HasSubstr("async_copy<4>(&Y_ptr[e * 8], &X[e * 8 + X_offset]);"));
}

TEST(Codegen, PointersOfNeighbouringLoopsHaveNamesOfTheirOwn) {
  Kernel k = tests::MovingCopy().kernels[0];
  k.body = Seq({k.body, k.body});
  const std::string text = Source(tests::OneKernel(std::move(k)), *FindTarget("sm_90"));
  EXPECT_THAT(text, HasSubstr("const float* X_ptr = "));
  EXPECT_THAT(text, HasSubstr("const float* X_ptr_b = "));
}

TEST(Codegen, NamesThatDifferOnlyInOddCharactersStayApart) {
  const auto a = tests::Buf("A.b", Scope::kGlobal, {32}),
             b = tests::Buf("A_b", Scope::kGlobal, {32});
  Kernel k{.name = "k0", .block = MakeVar("i@x", 1), .thread = MakeVar("i.x", 32)};
  k.body = Store(b, {VarExpr(k.thread)}, Load(a, {VarExpr(k.thread)}));
  k.arguments = {a, b};
  k.written = {false, true};
  const std::string text = Source(tests::OneKernel(std::move(k)), *FindTarget("sm_90"));
  EXPECT_THAT(text, HasSubstr("A_b_b[thread] = A_b[thread];"));
}

// The hashes of what generator 12 printed, which has other names.
TEST(Codegen, NormalSourceHasNoNamesOrCommentsOfToday) {
  const KernelSource kernel =
      GenerateSource(tests::MovingCopy(), *FindTarget("sm_90"), "a header")[0];
  EXPECT_THAT(kernel.source, HasSubstr("// a header\n"));
  EXPECT_THAT(kernel.normal, Not(HasSubstr("a header")));
  EXPECT_THAT(kernel.source, HasSubstr(" thread = threadIdx.x;"));
  EXPECT_THAT(kernel.normal, HasSubstr(" v_thread = threadIdx.x;"));
  EXPECT_THAT(kernel.normal, HasSubstr("* __restrict__ g_X"));
}

TEST(Codegen, NamesOfLoopsAreExplainedOnce) {
  Kernel k{.name = "k0", .block = MakeVar("i.0@j.0", 4), .thread = MakeVar("thread", 32)};
  const auto y = tests::Buf("Y", Scope::kGlobal, {128});
  const Var r = MakeVar("r.1.0", 4), e = MakeVar("Y.shared.e", 4);
  k.body = For(r, ForKind::kSerial,
               For(e, ForKind::kSerial, Store(y, {VarExpr(r) + VarExpr(e)}, Float(0, y->dtype))));
  k.arguments = {y};
  k.written = {true};
  const std::string text = Source(tests::OneKernel(std::move(k)), *FindTarget("sm_90"));
  EXPECT_THAT(text, HasSubstr("\n// Loops: i.0 is the outermost part of i, "));
  EXPECT_THAT(text, HasSubstr("\n// r_1_0 is the loop r.1.0.\n"));
  EXPECT_THAT(text, HasSubstr("  const int block = blockIdx.x;  // i.0@j.0\n"));
  EXPECT_THAT(text, HasSubstr("  const int thread = threadIdx.x;\n"));
  EXPECT_THAT(text, HasSubstr("Y[r_1_0 + Y_shared_trip] = "));
}

TEST(Codegen, SwizzleIsPrintedAsDefined) {
  Buffer b = *tests::Buf("S", Scope::kShared, {8, 32});
  b.swizzle = 4;
  b.swizzle_row = 32;
  const BufferRef s = std::make_shared<const Buffer>(b);
  ExprPrinter printer(DialectOf(Api::kCuda));
  const Var y = MakeVar("y", 8), x = MakeVar("x", 8);
  printer.Bind(y, "y");
  printer.Bind(x, "x");
  EXPECT_EQ(printer.PrintOffset(*s, {VarExpr(y), VarExpr(x) * Int(4)}),
            "(y * 32 + x * 4) ^ (y * 4)");
}

class ExprText : public ::testing::Test {
 protected:
  std::string Print(const Expr& e) {
    ExprPrinter printer(DialectOf(Api::kCuda));
    printer.Bind(x_, "x");
    printer.Bind(big_, "big");
    return printer.Print(e);
  }
  Var x_ = MakeVar("x", 100), big_ = MakeVar("big", 100000);
  Expr x = VarExpr(x_), big = VarExpr(big_);
};

TEST_F(ExprText, WidensOnlyWhatDoesNotFit32Bits) {
  EXPECT_EQ(Print(x * Int(1000) + Int(5)), "x * 1000 + 5");
  EXPECT_EQ(Print(big * Int(100000) + x), "(long long)big * 100000 + x");
  EXPECT_EQ(Print(big * Int(100000) / Int(100000) + x),
            "(int)(((long long)big * 100000) / 100000) + x");
}

TEST_F(ExprText, DivisionRoundsDownForNegativeNumerators) {
  EXPECT_EQ(Print(x / Int(3)), "(x / 3)");
  EXPECT_EQ(Print((x - Int(5)) / Int(3)), "((x - 5 + 6) / 3 - 2)");
  EXPECT_EQ(Print((x - Int(5)) % Int(3)), "((x - 5 + 6) % 3)");
  EXPECT_EQ(Print((x - Int(5)) / Int(4)), "((x - 5) >> 2)");
  EXPECT_EQ(Print((x - Int(5)) % Int(4)), "((x - 5) & 3)");
}

// The other way round ptxas 13.0 may find every number equal to the greatest.
TEST_F(ExprText, NumbersOfIndicesAreClampedToTheLeastFirst) {
  const auto clamp = [](const Expr& e) {
    return MakeExpr(Op::kMax, {MakeExpr(Op::kMin, {e, Int(2)}), Int(0)});
  };
  EXPECT_EQ(Print(clamp(x)), "((x > 0 ? x : 0) < 2 ? (x > 0 ? x : 0) : 2)");
  const auto number = Load(MakeBuffer("N", DType::kInt32, Scope::kGlobal, {8}), {x});
  ExprPrinter printer(DialectOf(Api::kCuda));
  printer.Bind(x_, "x");
  printer.Bind(number->buffer, "N");
  EXPECT_EQ(printer.Print(MakeExpr(Op::kEq, {clamp(number), x})), "min(max(N[x], 0), 2) == x");
  // No number is between these, so that the order decides.
  const Expr empty = MakeExpr(Op::kMax, {MakeExpr(Op::kMin, {x, Int(1)}), Int(3)});
  EXPECT_EQ(Print(empty), "((x < 1 ? x : 1) > 3 ? (x < 1 ? x : 1) : 3)");
}

// A compiler branches on each condition that decides by itself.
TEST_F(ExprText, AlternativesOfIntegersAreAllAsked) {
  const auto both = [](const Expr& a, const Expr& b) { return MakeExpr(Op::kAnd, {a, b}); };
  const auto either = [](const Expr& a, const Expr& b) { return MakeExpr(Op::kOr, {a, b}); };
  const Expr a = x < Int(3), b = big < Int(5), c = MakeExpr(Op::kEq, {x, big});
  EXPECT_EQ(Print(both(a, b)), "x < 3 && big < 5");
  EXPECT_EQ(Print(either(both(a, b), c)), "((x < 3) & (big < 5)) | (x == big)");
  EXPECT_EQ(Print(both(a, either(b, c))), "(x < 3) & ((big < 5) | (x == big))");
  EXPECT_EQ(Print(either(MakeExpr(Op::kNot, {a}), b)), "(!(x < 3)) | (big < 5)");
  // What is loaded may be there only where the condition before holds.
  const auto number = Load(MakeBuffer("N", DType::kInt32, Scope::kGlobal, {8}), {x});
  ExprPrinter printer(DialectOf(Api::kCuda));
  printer.Bind(x_, "x");
  printer.Bind(number->buffer, "N");
  EXPECT_EQ(printer.Print(either(a, number < Int(2))), "x < 3 || N[x] < 2");
}

// A compiler branches around a function that only one side of a choice calls. What is loaded may be
// out of bounds on the other side, and other operations cost no branch.
TEST_F(ExprText, BothSidesOfAChoiceBetweenRegistersAreComputed) {
  const auto element = [&](const char* name, Scope scope) {
    return Load(MakeBuffer(name, DType::kFloat32, scope, {8}), {x});
  };
  const Expr held = element("R", Scope::kLocal), there = element("G", Scope::kGlobal);
  ExprPrinter printer(DialectOf(Api::kCuda));
  printer.Bind(x_, "x");
  for (const Expr& e : {held, there}) printer.Bind(e->buffer, e->buffer->name);
  const auto log = [](const Expr& e) { return MakeExpr(Op::kLog, {e}); };
  const Expr is_first = x < Int(3);
  EXPECT_EQ(printer.Print(Select(is_first, log(held), held)), "choose(x < 3, logf(R[x]), R[x])");
  EXPECT_EQ(printer.Print(Select(is_first, log(there), held)), "(x < 3 ? logf(G[x]) : R[x])");
  EXPECT_EQ(printer.Print(Select(is_first, held + held, held)), "(x < 3 ? R[x] + R[x] : R[x])");
  EXPECT_THAT(printer.helpers, ::testing::Contains("choose"));
  ExprPrinter opencl(DialectOf(Api::kOpenCl));
  opencl.Bind(x_, "x");
  opencl.Bind(held->buffer, "R");
  EXPECT_EQ(opencl.Print(Select(is_first, log(held), held)), "(x < 3 ? log(R[x]) : R[x])");
}

// Exponentials and others are rough where they, or what they are factors of, are rounded to 16
// bits at once: not where something is added, which may cancel, and not in another language.
TEST_F(ExprText, WhatIsRoundedAtOnceIsRough) {
  const auto number = [](double v) { return Float(v, DType::kFloat32); };
  const Expr v = Cast(DType::kFloat32, x), e = MakeExpr(Op::kExp, {v * number(0.5)});
  const auto rounded = [](const Expr& value) { return Cast(DType::kBFloat16, value); };
  EXPECT_EQ(Print(e), "expf((float)x * 0.5f)");
  EXPECT_EQ(Print(rounded(e)), "to_bfloat16(rough_exp2_or_zero((float)x * 0.721347511f))");
  EXPECT_EQ(Print(rounded(Select(x < Int(3), e, number(0)))),
            "to_bfloat16(choose(x < 3, rough_exp2_or_zero((float)x * 0.721347511f), 0.0f))");
  EXPECT_EQ(Print(rounded(e / v)),
            "to_bfloat16(rough_divide(rough_exp2((float)x * 0.721347511f), (float)x))");
  EXPECT_EQ(Print(rounded(e * v)), "to_bfloat16(rough_exp2((float)x * 0.721347511f) * (float)x)");
  EXPECT_EQ(Print(rounded(e + v)), "to_bfloat16(expf((float)x * 0.5f) + (float)x)");
  EXPECT_EQ(Print(Cast(DType::kTF32, e)), "to_tf32(expf((float)x * 0.5f))");
  ExprPrinter opencl(DialectOf(Api::kOpenCl));
  opencl.Bind(x_, "x");
  EXPECT_EQ(opencl.Print(rounded(e)), "to_bfloat16(exp((float)x * 0.5f))");
}

TEST_F(ExprText, WhatIsRoundedAtOnceIsRoughInOtherFunctions) {
  const auto number = [](double v) { return Float(v, DType::kFloat32); };
  const Expr v = Cast(DType::kFloat32, x);
  const auto rounded = [](const Expr& value) { return Cast(DType::kFloat16, value); };
  const Expr gate = MakeExpr(Op::kSigmoid, {v}), log = MakeExpr(Op::kLog, {v});
  EXPECT_EQ(Print(gate), "(1.0f / (1.0f + expf(-((float)x))))");
  EXPECT_EQ(Print(rounded(gate)), "to_float16(rough_sigmoid_or_zero((float)x))");
  EXPECT_EQ(Print(rounded(v * gate)), "to_float16((float)x * rough_sigmoid((float)x))");
  EXPECT_EQ(Print(rounded(number(1) - gate)),
            "to_float16(1.0f - (1.0f / (1.0f + expf(-((float)x)))))");
  EXPECT_EQ(Print(rounded(v * log)), "to_float16((float)x * rough_log((float)x))");
  EXPECT_EQ(Print(rounded(v + log)), "to_float16((float)x + logf((float)x))");
  EXPECT_EQ(Print(rounded(gate + log)),
            "to_float16((1.0f / (1.0f + expf(-((float)x)))) + logf((float)x))");
  const auto power = [&](double y) { return rounded(MakeExpr(Op::kPow, {v, number(y)})); };
  EXPECT_EQ(Print(power(0.25)), "to_float16(rough_power((float)x, 0.25f))");
  EXPECT_EQ(Print(power(-2.5)), "to_float16(rough_power((float)x, -2.5f))");
  EXPECT_EQ(Print(power(3)), "to_float16(powf((float)x, 3.0f))");
  EXPECT_EQ(Print(power(17.5)), "to_float16(powf((float)x, 17.5f))");
  EXPECT_EQ(Print(MakeExpr(Op::kPow, {v, number(0.25)})), "powf((float)x, 0.25f)");
}

// A sum of what is not negative cannot cancel, nor is the logarithm of 1 + x further off than x.
TEST_F(ExprText, SumsThatCannotCancelAreRough) {
  const auto number = [](double value) { return Float(value, DType::kFloat32); };
  const auto rounded = [](const Expr& value) { return Cast(DType::kFloat16, value); };
  const Expr v = Cast(DType::kFloat32, x), e = MakeExpr(Op::kExp, {v});
  const Expr softplus = MakeExpr(Op::kMax, {v, number(0)}) +
                        MakeExpr(Op::kLog, {number(1) + MakeExpr(Op::kExp, {v * number(-1)})});
  EXPECT_EQ(Print(rounded(softplus)),
            "to_float16(nan_max_f32((float)x, 0.0f) + "
            "rough_log(1.0f + rough_exp2((float)x * -1.44269502f)))");
  EXPECT_EQ(Print(rounded(v * v + e)),
            "to_float16((float)x * (float)x + rough_exp2((float)x * 1.44269502f))");
  EXPECT_EQ(Print(rounded(v * v - e)), "to_float16((float)x * (float)x - expf((float)x))");
  EXPECT_EQ(Print(rounded(number(-1) + e)), "to_float16(-1.0f + expf((float)x))");
  EXPECT_EQ(Print(rounded(v * number(3) + e)), "to_float16((float)x * 3.0f + expf((float)x))");
  // Near 1 the logarithm of a half and something says less than that does.
  EXPECT_EQ(Print(rounded(MakeExpr(Op::kLog, {number(0.5) + e}))),
            "to_float16(rough_log(0.5f + expf((float)x)))");
}

// In float32 21 / 7 is 3 and x / x is 1, which products with reciprocals are not always.
TEST_F(ExprText, QuotientsAreExactUnlessTheyAreRoundedAtOnce) {
  const auto number = [](double v) { return Float(v, DType::kFloat32); };
  const auto rounded = [](const Expr& value) { return Cast(DType::kBFloat16, value); };
  const Expr v = Cast(DType::kFloat32, x), w = Cast(DType::kFloat32, big);
  EXPECT_EQ(Print(v / (v + w)), "(float)x / ((float)x + (float)big)");
  EXPECT_EQ(Print(v / number(7)), "(float)x / 7.0f");
  EXPECT_EQ(Print(MakeExpr(Op::kSqrt, {v})), "sqrtf((float)x)");
  EXPECT_EQ(Print(rounded(v / (v + w))),
            "to_bfloat16(rough_divide((float)x, (float)x + (float)big))");
  EXPECT_EQ(Print(rounded(v / number(7))), "to_bfloat16((float)x * (1.0f / 7.0f))");
  EXPECT_EQ(Print(rounded(v / (number(3) * number(5)))),
            "to_bfloat16((float)x * (1.0f / (3.0f * 5.0f)))");
  EXPECT_EQ(Print(rounded(v / number(0))), "to_bfloat16(rough_divide((float)x, 0.0f))");
  EXPECT_EQ(Print(rounded(v / number(1e-35))), "to_bfloat16(rough_divide((float)x, 1e-35f))");
  ExprPrinter opencl(DialectOf(Api::kOpenCl));
  opencl.Bind(x_, "x");
  EXPECT_EQ(opencl.Print(rounded(v / number(7))), "to_bfloat16((float)x / 7.0f)");
}

TEST_F(ExprText, LiteralsReadBackExactly) {
  const Dialect& cuda = DialectOf(Api::kCuda);
  const double infinity = std::numeric_limits<double>::infinity();
  EXPECT_EQ(FloatLiteral(cuda, 1, DType::kFloat32), "1.0f");
  EXPECT_EQ(FloatLiteral(cuda, 0.1, DType::kFloat32), "0.1f");
  EXPECT_EQ(FloatLiteral(cuda, 1e-5, DType::kFloat64), "1e-05");
  EXPECT_EQ(FloatLiteral(cuda, -infinity, DType::kFloat32), "-__int_as_float(0x7f800000)");
  EXPECT_EQ(FloatLiteral(DialectOf(Api::kOpenCl), infinity, DType::kFloat32), "INFINITY");
  const float third = 1.0f / 3;
  EXPECT_EQ(std::stof(FloatLiteral(cuda, third, DType::kFloat32)), third);
  EXPECT_EQ(std::stod(FloatLiteral(cuda, 1.0 / 3, DType::kFloat64)), 1.0 / 3);
}

}  // namespace
}  // namespace heddle::measure
