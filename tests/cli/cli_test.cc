// The program as a user runs it, where no device is needed.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <regex>
#include <sstream>
#include <string>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/str_split.h"
#include "measure/device/cuda/nvrtc.h"
#include "search_space/notation/notation.h"
#include "tests/cli/cli_support.h"
#include "tests/golden.h"
#include "tuner/model/cost_model.h"
#include "tuner/records/records.h"
#include "tuner/search/default_point.h"
#include "tuner/search/proposers/screen.h"

namespace heddle::tests {
namespace {

using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

TEST_F(CliTest, HelpIsOnStdoutEverywhere) {
  for (const char* line :
       {"--help", "tune --help", "query --help", "show --help", "time --help", "space --help",
        "export --help", "ops --help", "devices --help", "doctor --help", "records --help",
        "records import --help", "retract --help", "help", "help show", "help records import"}) {
    Ran ran = Run(line);
    EXPECT_EQ(ran.code, 0) << line;
    EXPECT_THAT(ran.out, HasSubstr("Usage:")) << line;
  }
  EXPECT_THAT(Run("--version").out, StartsWith("heddle "));
}

TEST_F(CliTest, OpsListsEveryOperator) {
  Ran ran = Run("ops");
  EXPECT_EQ(ran.code, 0);
  EXPECT_THAT(ran.out, HasSubstr("conv2d(n, ci, h, w, co, kh, kw, stride=1, pad=0)\n"));
  EXPECT_THAT(Run("ops matmul").out, StartsWith("op matmul(m, n, k) {"));
  json all = RunJson("ops --json");
  std::vector<std::string> names;
  for (const json& op : all) names.push_back(op["name"]);
  EXPECT_THAT(names,
              testing::IsSupersetOf({"vector_add", "window_sum", "transpose", "matmul", "matmul_nt",
                                     "matmul_tn", "batch_matmul", "gemm_relu_add", "conv2d",
                                     "conv2d_bias_relu", "conv2d_nhwc", "depthwise_conv2d",
                                     "softmax", "layer_norm"}));
}

TEST_F(CliTest, SpaceCountsAndSamples) {
  json space = RunJson("space matmul --shape m=128,n=128,k=128 --target h100 --sample 20 --json");
  EXPECT_GE(space["sketches"], 1);
  EXPECT_GT(space["points"], 100);
  EXPECT_EQ(space["sampled"], 20);
  EXPECT_EQ(space["valid"], 20);
  EXPECT_GT(space["per_second"], 0);
  // The same seed, the same points, whatever the machine.
  std::string line = "space matmul --shape m=128,n=128,k=128 --target h100 --sample 5 --seed 9";
  auto points = [](const std::string& text) {
    std::vector<std::string> lines = absl::StrSplit(text, '\n');
    lines.resize(5);
    return lines;
  };
  EXPECT_EQ(points(Run(line).out), points(Run(line).out));
}

TEST_F(CliTest, ShowGoesFromStepsToSource) {
  std::string matmul = "show matmul --shape m=64,n=48,k=32 --target sm_90";
  Ran schedule = Run(matmul);
  EXPECT_EQ(schedule.code, 0) << schedule.err;
  EXPECT_THAT(schedule.err, HasSubstr("default schedule"));
  // What is printed can be read back.
  Write(folder_ / "steps.txt", schedule.out);
  Ran again = Run(matmul + " --steps @/steps.txt");
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_THAT(schedule.out, HasSubstr(again.out));
  EXPECT_THAT(Run(matmul + " --naive --what loops").out, HasSubstr("for "));
  EXPECT_THAT(
      Run(matmul + " --naive --what features").out,
      testing::AllOf(HasSubstr("flops"), HasSubstr("196608 operations"), HasSubstr("analytic_us")));
  Ran source = Run(matmul + " --what source");
  EXPECT_THAT(source.out, HasSubstr("__global__"));
  EXPECT_THAT(source.out, HasSubstr("matmul"));
  Ran naive = Run(matmul + " --naive --what source");
  EXPECT_THAT(naive.out, HasSubstr("__global__"));
  EXPECT_NE(naive.out, source.out);
}

TEST_F(CliTest, ShowCompilesWhereThereIsNvrtc) {
  HEDDLE_NEEDS("nvrtc", measure::FindNvrtc().ok(), "libnvrtc was not found");
  std::string matmul = "show matmul --shape m=64,n=48,k=32 --target sm_90 --what ";
  EXPECT_THAT(Run(matmul + "ptx").out, HasSubstr(".target sm_90"));
  Ran sass = Run(matmul + "sass");
  if (sass.code == 4) GTEST_SKIP() << sass.err;
  EXPECT_THAT(sass.out, HasSubstr("FFMA"));
}

TEST_F(CliTest, QueryFallsBackOnlyOnRequest) {
  std::string query = "query matmul --shape m=64,n=48,k=32 --target h100 --json";
  Ran none = Run(query);
  EXPECT_EQ(none.code, 3);
  json answer = json::parse(none.out);
  EXPECT_EQ(answer["found"], false);
  EXPECT_EQ(answer["match"], "none");
  EXPECT_EQ(answer["fingerprint"], nullptr);
  EXPECT_EQ(Run(query + " --fallback nearest").code, 3);
  json normal = RunJson(query + " --fallback default");
  EXPECT_EQ(normal["found"], true);
  EXPECT_EQ(normal["match"], "default");
  EXPECT_EQ(normal["validated"], false);
  EXPECT_EQ(normal["time_us"], nullptr);
  EXPECT_EQ(normal["shape"]["n"], 48);
  EXPECT_FALSE(normal["steps"].empty());
}

TEST_F(CliTest, ExportWritesACompleteArtefactWithoutAGpu) {
  HEDDLE_NEEDS("nvrtc", measure::FindNvrtc().ok(), "libnvrtc was not found");
  std::string line =
      "export gemm_relu_add --shape m=64,n=48,k=32 --target sm_90 --default --out @/x";
  Ran ran = Run(line);
  ASSERT_EQ(ran.code, 0) << ran.err;
  json m = json::parse(ReadAll(folder_ / "x/manifest.json"));
  EXPECT_EQ(m["op"], "gemm_relu_add");
  EXPECT_EQ(m["shape"], (json{{"m", 64}, {"n", 48}, {"k", 32}}));
  EXPECT_EQ(m["dtype"], "float32");
  EXPECT_EQ(m["arch"], "sm_90");
  EXPECT_EQ(m["time_us"], nullptr) << "nothing was measured";
  std::vector<std::string> names;
  for (const json& b : m["buffers"]) names.push_back(b["name"]);
  EXPECT_THAT(names, testing::ElementsAre("A", "B", "C", "D"));
  EXPECT_EQ(m["buffers"][0]["role"], "input");
  EXPECT_EQ(m["buffers"][3]["role"], "output");
  EXPECT_EQ(m["buffers"][3]["shape"], (json{64, 48}));
  ASSERT_FALSE(m["kernels"].empty());
  for (const json& k : m["kernels"]) {
    EXPECT_THAT(ReadAll(folder_ / ("x/" + std::string(k["source"]))), HasSubstr(k["entry"]));
    EXPECT_THAT(ReadAll(folder_ / ("x/" + std::string(k["binary"]))), StartsWith("\x7f"
                                                                                 "ELF"));
    EXPECT_THAT(ReadAll(folder_ / ("x/" + std::string(k["ptx"]))), HasSubstr(".target sm_90"));
    EXPECT_EQ(k["grid"].size(), 3u);
    EXPECT_EQ(k["block"].size(), 3u);
  }
  for (const char* file : {"schedule.txt", "loops.txt", "samples.txt", "run.py", "run.cc"}) {
    EXPECT_FALSE(ReadAll(folder_ / ("x/" + std::string(file))).empty()) << file;
  }
  // An earlier export is replaced.
  EXPECT_EQ(Run(line).code, 0);
}

// Of a softmax behind long sums nearly nothing is left on inputs of [-1, 1) but one element a row.
TEST_F(CliTest, WhatAnExportIsCheckedOnTells) {
  HEDDLE_NEEDS("nvrtc", measure::FindNvrtc().ok(), "libnvrtc was not found");
  std::ofstream(folder_ / "router.op") << R"(
op router(m, d, e) {
  in X[m, d], W[e, d]
  L[i: m, j: e] = sum(r: d) X[i, r] * W[j, r]
  M[i: m] = max(j: e) L[i, j]
  S[i: m] = sum(j: e) exp(L[i, j] - M[i])
  out Y[i: m, j: e] = exp(L[i, j] - M[i]) / S[i]
})";
  const Ran ran =
      Run("export router --op-file @/router.op --shape m=32,d=1024,e=64 --target sm_90 --default "
          "--out @/x");
  ASSERT_EQ(ran.code, 0) << ran.err;
  std::stringstream samples(ReadAll(folder_ / "x/samples.txt"));
  int all = 0, told = 0;
  std::string line;
  std::getline(samples, line);  // the heading
  std::string name;
  int64_t offset = 0;
  for (double value = 0, tolerance = 0; samples >> name >> offset >> value >> tolerance; ++all) {
    told += std::abs(value) > tolerance ? 1 : 0;
  }
  EXPECT_EQ(all, 1024);
  EXPECT_GT(told, all / 2);
}

TEST_F(CliTest, RecordsGoOutAndComeBack) {
  EXPECT_EQ(Run("records export @/all.jsonl").code, 0);
  EXPECT_EQ(Run("records import @/all.jsonl").code, 0);
  EXPECT_EQ(Run("records backup @/copy.db").code, 0);
  EXPECT_EQ(Run("records export - --db @/copy.db").code, 0);
  EXPECT_NE(Run("records backup @/copy.db").code, 0) << "backups are not overwritten";
}

// A time is that of the source, the generator and the compiler that gave it.
TEST_F(CliTest, WhatIsExportedIsWhatWasMeasured) {
  HEDDLE_NEEDS("nvrtc", measure::FindNvrtc().ok(), "libnvrtc was not found");
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  auto program = std::make_shared<const search_space::TensorProgram>(
      *op->Instantiate({{"m", 64}, {"n", 64}, {"k", 64}}, search_space::DType::kFloat32));
  measure::DeviceInfo device;
  device.target = *search_space::FindTarget("h100");
  device.compiler = measure::NameOf(*measure::FindNvrtc());
  auto space = search_space::SearchSpace::Create(program, device.target);
  tuner::TrialRecord trial;
  trial.steps = search_space::ToString(*space->Steps(space->Default()));
  trial.stage = tuner::TrialStage::kFinal;
  trial.result.outcome = measure::Outcome::kOk;
  trial.result.time_us = 10;
  const std::string workload = " matmul --shape m=64,n=64,k=64 --target h100";
  const auto record = [&](const std::string& source_hash) {
    trial.result.source_hash = source_hash;
    auto records = tuner::Records::Open(folder_ / "heddle.db");
    const auto environment = tuner::MakeEnvironment(device, measure::L2Policy::kCold);
    ASSERT_TRUE((*records)->AddTrial(*program, environment, trial).ok());
  };
  const auto manifest = [&] {
    const Ran ran = Run("export" + workload + " --out @/stale");
    EXPECT_EQ(ran.code, 0) << ran.err;
    return json::parse(ReadAll(folder_ / "stale/manifest.json"));
  };

  record("x");
  json m = manifest();
  EXPECT_EQ(m["standing"], "stale");
  EXPECT_EQ(m["stale_because"], json{"source"});
  EXPECT_EQ(m["time_us"], nullptr);
  EXPECT_EQ(m["max_error"], nullptr);
  const std::string hash = m["source_hash"];
  EXPECT_THAT(Run("show" + workload + " --best").err, HasSubstr("stale: source has changed"));
  json answer = RunJson("query" + workload + " --json");
  EXPECT_EQ(answer["time_us"], 10);
  EXPECT_EQ(answer["standing"], "stale");
  EXPECT_EQ(answer["stale_because"], json{"source"});

  record(hash);
  m = manifest();
  EXPECT_EQ(m["standing"], "measured");
  EXPECT_EQ(m["time_us"], 10);
  answer = RunJson("query" + workload + " --json");
  EXPECT_EQ(answer["standing"], "measured");

  device.compiler = "NVRTC 1.0";
  record(hash);
  EXPECT_EQ(manifest()["time_us"], nullptr);
}

// What was tuned under the other policy only is found without --l2, and that is said; asked for,
// the default one is what is meant.
TEST_F(CliTest, TheOnlyPolicyThatWasTunedIsTaken) {
  HEDDLE_NEEDS("pocl", Run("devices").out.find("opencl:0") != std::string::npos,
               "no usable OpenCL device");
  const std::string workload = " vector_add --shape n=1000 --device opencl:0";
  const auto said = HasSubstr("tuned with --l2 warm only");
  const auto record = [&](const std::string& l2) {
    const Ran ran = Run("time" + workload + " --default --l2 " + l2);
    ASSERT_EQ(ran.code, 0) << ran.err;
  };
  record("warm");
  for (const char* line : {"query @", "show @ --best", "export @ --out DIR"}) {
    const std::string command =
        absl::StrReplaceAll(line, {{"@", workload}, {"DIR", folder_ / "artefact"}});
    const Ran ran = Run(command);
    EXPECT_EQ(ran.code, 0) << command << ran.err;
    EXPECT_THAT(ran.err, said) << command;
    const Ran cold = Run(command + " --l2 cold");
    EXPECT_NE(cold.code, 0) << command;
    EXPECT_THAT(cold.err, Not(said)) << command;
  }
  EXPECT_EQ(RunJson("query" + workload + " --json")["fingerprint"]["l2"], "warm");
  EXPECT_EQ(Run("time" + workload + " --best --l2 cold").code, 3);
  const Ran timed = Run("time" + workload + " --best --json");
  EXPECT_EQ(timed.code, 0) << timed.err;
  EXPECT_THAT(timed.err, said);
  EXPECT_EQ(json::parse(timed.out)["policy"], "warm");
  // Where there are both, the default one.
  record("cold");
  const Ran both = Run("query" + workload + " --json");
  EXPECT_THAT(both.err, Not(said));
  EXPECT_EQ(json::parse(both.out)["fingerprint"]["l2"], "cold");
}

TEST_F(CliTest, ExplainComparesTheBestWithTheDefault) {
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  auto program = std::make_shared<const search_space::TensorProgram>(
      *op->Instantiate({{"m", 256}, {"n", 256}, {"k", 256}}, search_space::DType::kFloat32));
  auto space = search_space::SearchSpace::Create(program, *search_space::FindTarget("h100"));
  ASSERT_TRUE(space.ok()) << space.status();
  EXPECT_EQ(Run("explain matmul --shape m=256,n=256,k=256 --target h100").code, 3);
  tuner::Environment environment;
  environment.device_name = space->target().name;
  std::vector<tuner::Example> examples;
  {
    auto records = tuner::Records::Open(folder_ / "heddle.db");
    ASSERT_TRUE(records.ok()) << records.status();
    search_space::Rng rng(1);
    std::vector<search_space::Point> points = {tuner::DefaultPoint(*space)};
    while (points.size() < 30) points.push_back(*space->Sample(rng));
    tuner::Screen screen(*space, 1);
    const auto features = screen.Features(points);
    for (size_t i = 0; i < points.size(); ++i) {
      tuner::TrialRecord trial;
      trial.point = space->Print(points[i]);
      trial.steps = search_space::ToString(*space->Steps(points[i]));
      trial.result.outcome = measure::Outcome::kOk;
      trial.result.time_us = i + 1 == points.size() ? 10 : 400;
      trial.result.registers = 123;
      trial.stage = tuner::TrialStage::kFinal;
      ASSERT_TRUE((*records)->AddTrial(*program, environment, trial).ok());
      examples.push_back({*features[i], 0, 10 + 0.1 * (*features[i])[1]});
    }
  }
  const std::string command = "explain matmul --shape m=256,n=256,k=256 --target h100";
  Ran without = Run(command);
  EXPECT_EQ(without.code, 0) << without.err;
  for (const char* part :
       {"10.0 us", "40.00x", "Roofline", "123 registers", "occupancy", "no cost model"}) {
    EXPECT_THAT(without.out, HasSubstr(part));
  }
  auto model = tuner::CostModel::Train(examples, {});
  ASSERT_TRUE(model.ok()) << model.status();
  {
    auto records = tuner::Records::Open(folder_ / "heddle.db");
    ASSERT_TRUE((*records)->SaveModel(environment, {*model->Save(), 30}).ok());
  }
  Ran with = Run(command);
  EXPECT_THAT(with.out, HasSubstr("log-odds"));
  const size_t holes = with.out.find("when one hole");
  ASSERT_NE(holes, std::string::npos);
  EXPECT_NE(with.out.find('=', holes), std::string::npos) << "hole=value, with what it loses";
}

TEST_F(CliTest, ExplainSaysOfAProcessorWhatAProcessorHas) {
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "matmul");
  auto program = std::make_shared<const search_space::TensorProgram>(
      *op->Instantiate({{"m", 64}, {"n", 64}, {"k", 64}}, search_space::DType::kFloat32));
  auto space = search_space::SearchSpace::Create(program, *search_space::FindTarget("cpu"));
  ASSERT_TRUE(space.ok()) << space.status();
  tuner::Environment environment;
  environment.device_name = space->target().name;
  tuner::TrialRecord trial;
  trial.point = space->Print(space->Default());
  trial.steps = search_space::ToString(*space->Steps(space->Default()));
  trial.result.outcome = measure::Outcome::kOk;
  trial.result.time_us = 10;
  trial.stage = tuner::TrialStage::kFinal;
  {
    auto records = tuner::Records::Open(folder_ / "heddle.db");
    ASSERT_TRUE((*records)->AddTrial(*program, environment, trial).ok());
  }
  const Ran ran = Run("explain matmul --shape m=64,n=64,k=64 --target cpu");
  EXPECT_EQ(ran.code, 0) << ran.err;
  // 4,096 results by 256 threads a block.
  EXPECT_THAT(ran.out, HasSubstr("held back most by executing instructions"));
  EXPECT_THAT(ran.out,
              HasSubstr("4 cores run 16 blocks in 4 rounds, the last of which is 0 % idle"));
  EXPECT_EQ(ran.out.find("occupancy"), std::string::npos);
  EXPECT_EQ(ran.out.find("bank"), std::string::npos);
}

// What docs/schedules.md says was printed by the program is what it prints; UPDATE_GOLDEN=1 writes
// it anew.
using ScheduleDocsTest = CliTest;
TEST_F(ScheduleDocsTest, AreAsPrinted) {
  const std::regex head(R"((?:|.* )(?:Before|After|Steps), (?:op )?(\w+)(\(.*\} at)? (\S+):)");
  const std::string indent = "    ";
  const std::vector<std::string> lines =
      absl::StrSplit(ReadAll(SourceDir() + "/docs/schedules.md"), '\n');
  std::vector<std::string> today;
  int examples = 0;
  for (size_t i = 0; i < lines.size(); ++i) {
    today.push_back(lines[i]);
    const std::string& title = lines[i];
    std::smatch parts;
    if (!std::regex_match(title, parts, head)) continue;
    std::string steps, flags;
    for (today.push_back(lines[++i]); !lines[++i].empty(); today.push_back(lines[i])) {
      steps += lines[i].substr(indent.size()) + "\n";
    }
    Write(folder_ / "steps.txt", steps);
    if (parts[2].matched) {
      const size_t op = title.find("op "), end = title.rfind(" at");
      Write(folder_ / "own.op", title.substr(op, end - op));
      flags = " --op-file @/own.op";
    }
    const Ran ran = Run(absl::StrCat("show ", parts[1].str(), " --shape ", parts[3].str(), flags,
                                     " --target h100 --steps @/steps.txt --what loops"));
    EXPECT_EQ(ran.code, 0) << parts[0].str() << "\n" << ran.err;
    today.emplace_back();
    for (const std::string& line :
         std::vector<std::string>(absl::StrSplit(ran.out, '\n', absl::SkipEmpty()))) {
      today.push_back(indent + line);
    }
    while (i + 1 < lines.size() && absl::StartsWith(lines[i + 1], indent)) ++i;
    ++examples;
  }
  EXPECT_GT(examples, 30);
  ExpectGolden("../../docs/schedules.md", absl::StrJoin(today, "\n"));
}

TEST_F(CliTest, DoctorTellsWhatWorks) {
  Ran ran = Run("doctor --json");
  json report = json::parse(ran.out, nullptr, false);
  ASSERT_FALSE(report.is_discarded()) << ran.out;
  EXPECT_EQ(report["can_tune"], ran.code == 0);
  std::vector<std::string> looked_at;
  for (const json& check : report["checks"]) looked_at.push_back(check["what"]);
  EXPECT_THAT(looked_at, testing::IsSupersetOf({"NVRTC", "disassembler", "database", "processor"}));
}

// What a suite of more workloads than Slurm has indices becomes; a cluster is not needed to see it.
TEST_F(CliTest, ASuiteForSlurmIsPrintedInArrays) {
  std::string suite;
  for (int n = 1; n <= 2001; ++n) absl::StrAppend(&suite, "vector_add n=", n, "\n");
  Write(folder_ / "suite", suite);
  const Ran ran =
      Run("cluster slurm --workloads @/suite --partition gpu --gpu h200 --cpus-per-task 8 "
          "--parallel 16 "
          "--seconds 600 --collect-on login --collect-partition small --sbatch=--account=weavers "
          "--folder @/batches");
  ASSERT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.out, testing::ContainsRegex(
                           "sbatch --parsable --job-name=heddle-[0-9TZ]+-suite-0.0 --hold "
                           "--array=0-999%16 --partition=gpu --export=PATH,HOME --gres=gpu:h200:1 "
                           "--cpus-per-task=8 --time=20 --account=weavers .* 0   # ID0\n"));
  EXPECT_THAT(ran.out,
              testing::ContainsRegex("-suite-0.1 --hold --array=0-999%16 .* 1000   # ID1\n"));
  EXPECT_THAT(ran.out, testing::ContainsRegex("-suite-0.2 --hold --array=0%16 .* 2000   # ID2\n"));
  EXPECT_THAT(ran.out, HasSubstr("--dependency=afterany:ID0:ID1:ID2 --partition=small "
                                 "--export=PATH,HOME --nodelist=login --account=weavers"));
  EXPECT_THAT(ran.out, HasSubstr("scontrol release ID2\n"));
  EXPECT_FALSE(std::filesystem::exists(folder_ / "batches")) << "printing writes nothing";
  Write(folder_ / "suite", "vector_add n=8\nvector_ad n=8\n");
  EXPECT_THAT(Run("cluster slurm --workloads @/suite --partition gpu --folder @").err,
              HasSubstr("did you mean 'vector_add'"));
}

}  // namespace
}  // namespace heddle::tests
