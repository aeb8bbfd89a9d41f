// Tuning for real, on the CPU through PoCL: tune, continue, interrupt, query, time, export, run.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/e2e/tune_support.h"
#include "tests/process.h"

namespace heddle::tests {
namespace {

using testing::HasSubstr;

// The processes that this one has started, and theirs.
std::vector<pid_t> Descendants(pid_t pid) {
  std::vector<pid_t> all;
  std::error_code gone;
  for (const auto& thread :
       std::filesystem::directory_iterator(absl::StrCat("/proc/", pid, "/task"), gone)) {
    std::ifstream in(thread.path() / "children");
    for (pid_t child = 0; in >> child;) {
      all.push_back(child);
      for (pid_t below : Descendants(child)) all.push_back(below);
    }
  }
  return all;
}

constexpr char kMatmul[] = "matmul --shape m=61,n=37,k=101 --device opencl:0";

TEST_F(TuneTest, TuneQueryShowTimeExportRun) {
  json tuned = RunJson(absl::StrCat("tune ", kMatmul, " --trials 8 --plot @/curve.svg"));
  EXPECT_EQ(tuned["op"], "matmul");
  EXPECT_EQ(tuned["shape"], (json{{"m", 61}, {"n", 37}, {"k", 101}}));
  EXPECT_EQ(tuned["dtype"], "float32");
  EXPECT_EQ(tuned["policy"], "cold");
  EXPECT_EQ(tuned["trials"]["total"], 8);
  EXPECT_GE(tuned["trials"]["ok"], 7) << tuned.dump(1);
  EXPECT_EQ(tuned["interrupted"], false);
  EXPECT_GT(tuned["best_us"], 0);
  EXPECT_LE(tuned["best_ci_us"][0], tuned["best_us"]);
  EXPECT_GE(tuned["best_ci_us"][1], tuned["best_us"]);
  double gflops = 2.0 * 61 * 37 * 101 / static_cast<double>(tuned["best_us"]) / 1e3;
  EXPECT_NEAR(tuned["gflops"], gflops, gflops * 1e-6);
  EXPECT_NEAR(tuned["speedup"],
              static_cast<double>(tuned["default_us"]) / static_cast<double>(tuned["best_us"]),
              1e-6);
  EXPECT_GT(tuned["naive_us"], 0);
  EXPECT_NEAR(tuned["naive_speedup"],
              static_cast<double>(tuned["naive_us"]) / static_cast<double>(tuned["best_us"]), 1e-6);
  const json& phases = tuned["phase_seconds"];
  const auto busy = phases["load"].get<double>() + phases["validate"].get<double>() +
                    phases["time"].get<double>();
  const auto idle = phases["idle_compiling"].get<double>() +
                    phases["idle_proposing"].get<double>() + phases["idle_otherwise"].get<double>();
  const auto seconds = tuned["seconds"].get<double>();
  EXPECT_NEAR(tuned["device_busy_share"], busy / seconds, 1e-9);
  EXPECT_NEAR(busy + idle, seconds, 1e-6);
  EXPECT_GT(busy, 0);
  EXPECT_GT(phases["compile"], 0);
  EXPECT_GT(phases["search"], 0);
  EXPECT_FALSE(tuned["steps"].empty());
  EXPECT_THAT(ReadAll(folder_ / "curve.svg"), HasSubstr("<svg"));

  json found = RunJson(absl::StrCat("query ", kMatmul));
  EXPECT_EQ(found["match"], "exact");
  EXPECT_EQ(found["validated"], true);
  EXPECT_EQ(found["fingerprint"]["device"], tuned["device"]);
  EXPECT_EQ(found["fingerprint"]["l2"], "cold");
  // Another shape: nothing, unless a neighbour will do.
  std::string other = "query matmul --shape m=64,n=40,k=100 --device opencl:0";
  EXPECT_EQ(RunJson(other, 3)["match"], "none");
  json nearest = RunJson(other + " --fallback nearest");
  EXPECT_EQ(nearest["match"], "nearest");
  EXPECT_EQ(nearest["validated"], false);

  Ran shown = Run(absl::StrCat("show ", kMatmul, " --best --what source"));
  EXPECT_EQ(shown.code, 0) << shown.err;
  EXPECT_THAT(shown.out, HasSubstr("__kernel"));

  json timed = RunJson(absl::StrCat("time ", kMatmul, " --best"));
  EXPECT_EQ(timed["outcome"], "OK");
  EXPECT_LE(timed["max_error"], 1);

  ASSERT_EQ(Run(absl::StrCat("export ", kMatmul, " --out @/artefact")).code, 0);
  json manifest = json::parse(ReadAll(folder_ / "artefact/manifest.json"));
  EXPECT_EQ(manifest["arch"], "opencl");
  EXPECT_GT(manifest["time_us"], 0);
  ExpectItsLauncherRuns(folder_ / "artefact");
}

TEST_F(TuneTest, TuningAgainContinues) {
  std::string line = "tune vector_add --shape n=1000 --device opencl:0 --trials 3";
  RunJson(line);
  json again = RunJson(line);
  EXPECT_GE(again["earlier_trials"], 3);
  EXPECT_TRUE(again["started_from"]["cost_model"].is_boolean());
  EXPECT_GT(again["default_us"], 0) << "known from the first run";
}

TEST_F(TuneTest, AWorkloadsFileGivesOneDocument) {
  std::ofstream(folder_ / "w.txt") << "vector_add n=1000 weight=3\n# and\ntranspose m=37,n=61\n";
  json all = RunJson("tune --workloads @/w.txt --device opencl:0 --trials 2");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["op"], "vector_add");
  EXPECT_EQ(all[0]["weight"], 3);
  EXPECT_EQ(all[1]["op"], "transpose");
}

TEST_F(TuneTest, WorkloadsShareOneBudget) {
  // All schedules of the sum take the same time, some of the product's are faster than others.
  std::ofstream(folder_ / "w.txt") << "vector_add n=1\nmatmul m=4,n=4,k=8\n";
  std::ofstream(folder_ / "fake.json") << R"({"rules": [
      {"match": "A[0] + B[0]", "time_us": 20},
      {"one_in": 29, "time_us": 500}, {"one_in": 7, "time_us": 700}, {"time_us": 1000}]})";
  setenv("HEDDLE_FAKE_DEVICE", (folder_ / "fake.json").c_str(), 1);
  json all = RunJson("tune --workloads @/w.txt --device fake:0 --trials 32 --search random");
  unsetenv("HEDDLE_FAKE_DEVICE");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["best_us"], 20);
  EXPECT_EQ(all[0]["trials"]["total"], 16) << "its part";
  EXPECT_EQ(all[1]["trials"]["total"], 48) << "its part and what both have left";
}

TEST_F(TuneTest, ThePlateauIsCountedThroughAllTurnsOfAWorkload) {
  // Nothing is faster than anything else, and the sum's weight gives it the later turns, too.
  std::ofstream(folder_ / "w.txt") << "vector_add n=100 weight=1000\ntranspose m=37,n=61\n";
  std::ofstream(folder_ / "fake.json") << R"({"rules": [{"time_us": 20}]})";
  setenv("HEDDLE_FAKE_DEVICE", (folder_ / "fake.json").c_str(), 1);
  json all =
      RunJson("tune --workloads @/w.txt --device fake:0 --trials 32 --plateau 20 --search random");
  unsetenv("HEDDLE_FAKE_DEVICE");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0]["stopped_by"], "plateau");
  EXPECT_GT(all[0]["trials"]["total"], 16) << "a second turn";
  EXPECT_LT(all[0]["trials"]["total"], 16 + 16) << "which ends with the twentieth trial, or so";
}

// The devices that have measured what `json_lines` exports.
std::set<std::string> DevicesOf(const std::string& json_lines) {
  std::set<std::string> devices;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(json_lines, '\n', absl::SkipEmpty()))) {
    devices.insert(json::parse(line)["environment"]["device_uuid"]);
  }
  return devices;
}

// Two workloads of many points that compile quickly, and as many devices.
class DevicesTest : public TuneTest {
 protected:
  std::vector<std::string> Script(const std::string& rules) {
    std::ofstream(folder_ / "w.txt") << "matmul m=4,n=4,k=8\ntranspose m=4,n=8\n";
    std::ofstream(folder_ / "fake.json") << R"({"devices": 2, "rules": [)" << rules << "]}";
    return {"HEDDLE_FAKE_DEVICE=" + (folder_ / "fake.json")};
  }
  const std::string tune_ =
      "tune --workloads @/w.txt --device fake:all --search random --no-finals --json --trials ";
};

TEST_F(DevicesTest, EachTakesTurnsOfOneBudget) {
  const auto script = Script(R"({"time_us": 20})");
  const Ran ran = Run(tune_ + "2", script);
  ASSERT_EQ(ran.code, 0) << ran.err;
  for (const json& one : json::parse(ran.out)) EXPECT_EQ(one["trials"]["total"], 2) << ran.err;
  EXPECT_THAT(DevicesOf(Run("records export -").out), testing::ElementsAre("fake-0", "fake-1"));
  EXPECT_THAT(ran.err, HasSubstr("4 trials in"));
  EXPECT_THAT(ran.err, HasSubstr("on 2 devices"));

  const Ran one = Run("tune transpose --shape m=4,n=8 --device fake:all", script);
  EXPECT_EQ(one.code, 2);
  EXPECT_THAT(one.err, HasSubstr("several --workloads: for one name one of them, such as fake:0"));
}

TEST_F(DevicesTest, WhatIsSomebodyElsesLeavesItsTurnsToTheOther) {
  const int lock =
      open((folder_ / "heddle-fake-1.lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644);
  ASSERT_EQ(flock(lock, LOCK_EX), 0);
  const Ran ran = Run(tune_ + "1", Script(R"({"time_us": 20})"));
  close(lock);
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("fake:1 takes no further turn, 1 other goes on: fake:1 (Fake "
                                 "device) is in use"));
  EXPECT_THAT(ran.err, HasSubstr("2 trials in"));
}

TEST_F(DevicesTest, OneThatComputesWrongCostsNoWorkload) {
  const Ran ran =
      Run(tune_ + "1", Script(R"({"device": 1, "do": "wrong", "time_us": 20}, {"time_us": 20})"));
  EXPECT_EQ(ran.code, 0) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("on fake:1: the naive program is wrong"));
  for (const json& one : json::parse(ran.out)) EXPECT_EQ(one["trials"]["total"], 1) << ran.err;
  EXPECT_THAT(DevicesOf(Run("records export -").out), testing::ElementsAre("fake-0"));
}

TEST_F(DevicesTest, WhenAllFailThatIsTheRunsError) {
  const Ran ran = Run(tune_ + "1", Script(R"({"do": "crash"})"));
  EXPECT_EQ(ran.code, 4) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("1 other goes on"));
  EXPECT_THAT(ran.err, HasSubstr("fails on the naive program"));
}

TEST_F(DevicesTest, CtrlCKeepsWhatEachHasMeasured) {
  Script(R"({"time_us": 20})");
  setenv("HEDDLE_FAKE_DEVICE", (folder_ / "fake.json").c_str(), 1);
  Process tune = StartHeddle(Db(), Words(tune_ + "100000"));
  unsetenv("HEDDLE_FAKE_DEVICE");
  for (int i = 0; i < 600 && DevicesOf(Run("records export -").out).size() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  tune.Signal(SIGINT);
  const Ran ran = tune.Wait();
  EXPECT_EQ(ran.code, 130) << ran.err;
  int trials = 0;
  for (const json& one : json::parse(ran.out)) {
    EXPECT_EQ(one["interrupted"], true);
    trials += one["trials"]["total"].get<int>();
  }
  EXPECT_EQ(trials, AllTrials());
  EXPECT_EQ(DevicesOf(Run("records export -").out).size(), 2u);
}

// The file as it was opened stays the one that processes may read, and is never seen half-written.
void WriteScript(const std::string& path, std::string rules) {
  constexpr size_t kLength = 512;  // of any script: spaces change nothing
  rules.resize(kLength, ' ');
  const bool is_new = !std::filesystem::exists(path);
  std::fstream file(path, is_new ? std::ios::out : std::ios::in | std::ios::out);
  file << rules << std::flush;
}

// Of a device on which the first workload has its turns, until `rules` apply from the second's
// first turn on.
Ran RunWithLateRules(const std::string& db, const TempFolder& folder,
                     const std::vector<std::string>& words, const std::string& rules) {
  const std::string script = folder / "fake.json";
  WriteScript(script, R"({"rules": [{"time_us": 20}]})");
  setenv("HEDDLE_FAKE_DEVICE", script.c_str(), 1);
  Process tune = StartHeddle(db, words);
  unsetenv("HEDDLE_FAKE_DEVICE");
  // Soon, since the second workload's turn, which it must be in, takes a fraction of a second.
  for (int i = 0; i < 150000 && tune.err().find("[2/2]") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  WriteScript(script, rules);
  return tune.Wait();
}

TEST_F(TuneTest, AnErrorInALateTurnIsToldBesideTheResultsOfTheEarlierOnes) {
  std::ofstream(folder_ / "w.txt") << "softmax m=7,n=33 weight=1000\nmatmul m=4,n=4,k=8\n";
  const auto words = Words(
      "tune --workloads @/w.txt --device fake:0 --trials 32 --search random --no-finals --json");
  // Nothing that has an exponential compiles any more: the second turn of softmax fails.
  const Ran its_own = RunWithLateRules(Db(), folder_, words, R"({"rules": [
      {"match": "exp", "do": "build_error"}, {"time_us": 20}]})");
  EXPECT_NE(its_own.code, 0);
  json all = json::parse(its_own.out, nullptr, false);
  ASSERT_EQ(all.size(), 2u) << its_own.out << its_own.err;
  EXPECT_EQ(all[0]["trials"]["total"], 16);
  EXPECT_EQ(all[0]["best_us"], 20);
  EXPECT_THAT(all[0].value("error", ""), HasSubstr("compile"));
  EXPECT_FALSE(all[1].contains("error"));
}

TEST_F(TuneTest, WhenTheDeviceIsGoneTheResultsBeforeThatAreThere) {
  std::ofstream(folder_ / "w.txt") << "vector_add n=100 weight=1000\ntranspose m=37,n=61\n";
  const Ran ran = RunWithLateRules(
      Db(), folder_,
      Words("tune --workloads @/w.txt --device fake:0 --trials 32 --search random --no-finals "
            "--json"),
      "no JSON");
  EXPECT_NE(ran.code, 0);
  EXPECT_THAT(ran.err, HasSubstr("fake.json"));
  json all = json::parse(ran.out, nullptr, false);
  ASSERT_FALSE(all.is_discarded()) << ran.out << ran.err;
  EXPECT_EQ(all[0]["trials"]["total"], 16);
  EXPECT_EQ(all[0]["best_us"], 20);
  EXPECT_TRUE(std::any_of(all.begin(), all.end(), [](const json& one) {
    return one.value("error", "").find("fake.json") != std::string::npos;
  })) << ran.out;
}

// Points that were screened more than once.
int Repeated(const std::string& json_lines) {
  std::set<std::pair<std::string, std::string>> seen;
  int repeated = 0;
  for (const std::string& line :
       std::vector<std::string>(absl::StrSplit(json_lines, '\n', absl::SkipEmpty()))) {
    const json record = json::parse(line);
    if (record["trial"]["final"]) continue;
    repeated += !seen.emplace(record["workload"]["hash"], record["trial"]["point"]).second;
  }
  return repeated;
}

TEST_F(TuneTest, WorkloadsThatWereInterruptedContinueAndRepeatNothing) {
  std::ofstream(folder_ / "w.txt") << "transpose m=37,n=61\nmatmul m=61,n=37,k=101\n";
  const std::string line = "tune --workloads @/w.txt --device opencl:0 --search random --trials ";
  Process tune = StartHeddle(Db(), Words(line + "4"));
  // Soon, since the second workload's turn, which it must be in, takes a fraction of a second.
  for (int i = 0; i < 150000 && tune.err().find("[2/2]") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  tune.Signal(SIGINT);
  EXPECT_EQ(tune.Wait().code, 130);
  const Ran between = Run("records export -");
  EXPECT_THAT(between.out, HasSubstr("transpose"));
  json again = RunJson(line + "6");
  ASSERT_EQ(again.size(), 2u);
  EXPECT_GE(again[0]["earlier_trials"], 4);
  EXPECT_EQ(again[0]["trials"]["total"], 6);
  EXPECT_EQ(again[1]["trials"]["total"], 6);
  EXPECT_EQ(Repeated(Run("records export -").out), 0);
}

TEST_F(TuneTest, AnOperatorOfTheUsersOwn) {
  std::ofstream(folder_ / "lse.op") << "op lse(m, n) {\n"
                                       "  in X[m, n]\n"
                                       "  M[i: m] = max(j: n) X[i, j]\n"
                                       "  S[i: m] = sum(j: n) exp(X[i, j] - M[i])\n"
                                       "  out Y[i: m] = M[i] + log(S[i])\n"
                                       "}\n";
  json tuned =
      RunJson("tune lse --op-file @/lse.op --shape m=37,n=101 --device opencl:0 --trials 1");
  EXPECT_GT(tuned["best_us"], 0) << tuned.dump(1);
}

TEST_F(TuneTest, AnOperatorWithIndices) {
  const std::string suite = SourceDir() + "/bench/suites/gather.op";
  const std::string bag =
      absl::StrCat("embedding_bag --op-file ", suite, " --shape n=13,s=5,v=37,d=20");
  json tuned = RunJson(absl::StrCat("tune ", bag, " --device opencl:0 --trials 4"));
  EXPECT_GT(tuned["best_us"], 0) << tuned.dump(1);
  ASSERT_EQ(Run(absl::StrCat("export ", bag, " --device opencl:0 --out @/bag")).code, 0);
  const json buffers = json::parse(ReadAll(folder_ / "bag/manifest.json"))["buffers"];
  EXPECT_EQ(buffers[0]["dtype"], "int32");
  EXPECT_EQ(buffers[0]["index_extent"], 37);
  EXPECT_FALSE(buffers[1].contains("index_extent"));
  ExpectItsLauncherRuns(folder_ / "bag");
}

TEST_F(TuneTest, AShapeThatDoesNotFitTheMemoryIsRefusedAtOnce) {
  auto start = std::chrono::steady_clock::now();
  Ran ran = Run("tune matmul --shape m=2000000,n=2000000,k=16 --device opencl:0");
  EXPECT_EQ(ran.code, 2) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("memory"));
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(20));
}

TEST_F(TuneTest, CtrlCKeepsEverythingAndSaysSo) {
  Process tune =
      StartHeddle(Db(), Words(absl::StrCat("tune ", kMatmul, " --trials 100000 --json")));
  // Until a few trials are there.
  for (int i = 0; i < 600 && AllTrials() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  tune.Signal(SIGINT);
  auto start = std::chrono::steady_clock::now();
  Ran ran = tune.Wait();
  EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(15));
  EXPECT_EQ(ran.code, 130) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("are kept in the database"));
  json document = json::parse(ran.out, nullptr, false);
  ASSERT_FALSE(document.is_discarded()) << ran.out;
  EXPECT_EQ(document["interrupted"], true);
  EXPECT_EQ(document["trials"]["total"], AllTrials());
  EXPECT_GE(AllTrials(), 3);
}

// A batch system's or service manager's: to every process of the run at once.
TEST_F(TuneTest, ASignalToAllProcessesCostsNoCandidate) {
  Process tune = StartHeddle(Db(), Words(absl::StrCat("tune ", kMatmul, " --trials 100000")));
  for (int i = 0; i < 600 && AllTrials() < 3; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  int signalled = 0;
  for (pid_t pid : Descendants(tune.pid())) signalled += kill(pid, SIGTERM) == 0 ? 1 : 0;
  EXPECT_GE(signalled, 1) << "a worker at least";
  tune.Signal(SIGTERM);
  Ran ran = tune.Wait();
  EXPECT_EQ(ran.code, 130) << ran.err;
  std::istringstream lines(Run("records export -").out);
  int trials = 0;
  for (std::string line; std::getline(lines, line); ++trials) {
    const json record = json::parse(line, nullptr, false);
    EXPECT_THAT(record["trial"].value("outcome", ""),
                testing::AnyOf("OK", "WRONG_ANSWER", "RESOURCE_LIMIT"))
        << line;
  }
  EXPECT_GE(trials, 3);
}

TEST_F(TuneTest, ASecondSignalEndsItAtOnce) {
  Process tune = StartHeddle(Db(), Words(absl::StrCat("tune ", kMatmul, " --trials 100000")));
  for (int i = 0; i < 600 && tune.err().find("Tuning") == std::string::npos; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(500));
  tune.Signal(SIGTERM);
  tune.Signal(SIGTERM);
  EXPECT_EQ(tune.Wait().code, 130);
  // The database is whole.
  EXPECT_EQ(Run("records export -").code, 0);
}

TEST_F(TuneTest, KilledInTheMiddleItContinues) {
  Process tune = StartHeddle(Db(), Words(absl::StrCat("tune ", kMatmul, " --trials 100000")));
  for (int i = 0; i < 600 && AllTrials() < 2; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(100));
  }
  tune.Signal(SIGKILL);
  tune.Wait();
  int kept = AllTrials();
  EXPECT_GE(kept, 2);
  json again = RunJson(absl::StrCat("tune ", kMatmul, " --trials 2"));
  EXPECT_GE(again["earlier_trials"], 2);
  EXPECT_GE(AllTrials(), kept + 2);
}

}  // namespace
}  // namespace heddle::tests
