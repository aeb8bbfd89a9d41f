// The records' database when it is large: how long a lookup, an insertion and a session's start
// take. $HEDDLE_BENCH_TRIALS sets how many trials it holds (a million by default).
#include <benchmark/benchmark.h>
#include <sqlite3.h>

#include <cstdlib>
#include <filesystem>
#include <random>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "tuner/records/database/records_schema.h"
#include "tuner/records/records.h"
#include "tuner/records/records_fields.h"
#include "tuner/records/records_sql.h"

namespace heddle::tuner {
namespace {

constexpr int kTrialsPerWorkload = 500;
constexpr int kFinalsPerWorkload = 5;
// Of one more workload, tuned every night for years: all within 10 % of each other.
constexpr int kManyFinals = 10000;
constexpr char kModel[] = "NVIDIA H100 80GB HBM3";

int64_t TrialCount() {
  const char* wanted = std::getenv("HEDDLE_BENCH_TRIALS");
  return wanted != nullptr ? std::atoll(wanted) : 1000000;
}

StoredTrial MakeTrial(int64_t i, std::mt19937_64& rng) {
  StoredTrial stored;
  const int64_t n = i / kTrialsPerWorkload;
  stored.workload = {
      "", "matmul", absl::StrCat("{\"k\":512,\"m\":512,\"n\":", n, "}"), "float32",
      absl::StrCat("op matmul(m, n, k) {\n  in A[m, k], B[k, n]\n  out C[i: m, j: n] "
                   "= sum(r: k) A[i, r] * B[r, j]\n}\nk=512,m=512,n=",
                   n, " float32")};
  stored.workload.hash = absl::StrFormat("%016x", HashOf(stored.workload.text));
  stored.environment.device_name = kModel;
  stored.environment.driver = "580.65";
  TrialRecord& t = stored.trial;
  t.point = absl::StrCat("tile: threads=256 i.tile=", rng() % 64, " j.tile=", rng() % 64,
                         " k.tile=", rng() % 64, " vthread=", i);
  t.result.outcome = measure::Outcome::kOk;
  t.result.time_us = static_cast<double>(10 + rng() % 1000000) / 7;
  t.result.ci_low_us = t.result.time_us * 0.99;
  t.result.ci_high_us = t.result.time_us * 1.01;
  t.result.samples = 20;
  t.result.registers = 128;
  t.result.source_hash = absl::StrFormat("%016x", rng());
  t.result.compile_s = 0.25;
  t.result.time_s = 0.12;
  t.when = absl::FromUnixMicros(1700000000000000 + i * 200000);
  if (i % kTrialsPerWorkload < kFinalsPerWorkload) {
    t.stage = TrialStage::kFinal;
    for (int line = 0; line < 40; ++line)
      absl::StrAppend(&t.steps, "split(C, i, [8, ", rng() % 64, "])\n");
  }
  return stored;
}

StoredTrial MakeOneOfMany(int64_t i, std::mt19937_64& rng) {
  StoredTrial stored = MakeTrial(-kTrialsPerWorkload, rng);
  TrialRecord& t = stored.trial;
  t.stage = TrialStage::kFinal;
  t.point = absl::StrCat("tile: vthread=", i);
  for (int line = 0; line < 40; ++line) absl::StrAppend(&t.steps, "split(C, i, [8, ", i, "])\n");
  t.result.time_us = 100 + static_cast<double>(rng() % 100000) / 1e4;
  t.result.ci_low_us = t.result.time_us * 0.97;
  t.result.ci_high_us = t.result.time_us * 1.03;
  return stored;
}

search_space::TensorProgram ProgramOf(const StoredTrial& stored) {
  search_space::TensorProgram program;
  program.op = stored.workload.op;
  program.shape = {{"m", 512}, {"n", 0}, {"k", 512}};
  program.canonical_text = stored.workload.text;
  program.hash = stored.workload.hash;
  return program;
}

// The database, filled once: rows are written past AddTrial, many in one transaction.
class Filled {
 public:
  Filled() : path_(std::filesystem::temp_directory_path() / "heddle_records_bench.db") {
    Remove();
    if (!Records::Open(path_).ok()) std::abort();
    auto database = Database::Open(path_, Database::Mode::kReadWrite);
    if (!database.ok() || !database->Transaction([&] { return Fill(*database); }).ok())
      std::abort();
    auto records = Records::Open(path_);
    if (!records.ok() || !(*records)->Batch([&] { return AddMany(**records); }).ok()) std::abort();
  }
  ~Filled() { Remove(); }
  const std::string& path() const { return path_; }
  int64_t workloads() const { return TrialCount() / kTrialsPerWorkload; }

 private:
  static absl::Status Fill(Database& db) {
    std::mt19937_64 rng(1);
    absl::Status status;
    for (int64_t i = 0; i < TrialCount() && status.ok(); ++i) {
      const StoredTrial stored = MakeTrial(i, rng);
      const int64_t workload = i / kTrialsPerWorkload + 1;
      if (i == 0) {
        status.Update(db.Run("INSERT INTO bench VALUES (1, ?, 'cold', 0, 0, 0)",
                             stored.environment.device_name));
        Cursor insert = db.Query(InsertEnvironment());
        VisitEnvironment(stored.environment, Binder{insert});
        VisitLaterEnvironment(stored.environment, Binder{insert});
        status.Update(insert.Next().status());
      }
      if (i % kTrialsPerWorkload == 0) {
        const WorkloadRow& w = stored.workload;
        status.Update(db.Run("INSERT INTO workload VALUES (?, ?, ?, ?, ?, ?)", workload, w.hash,
                             w.op, w.shape, w.dtype, w.text));
      }
      int64_t steps = 0;
      if (!stored.trial.steps.empty()) {
        status.Update(db.Run("INSERT INTO steps (hash, text) VALUES (?, ?)",
                             static_cast<int64_t>(HashOf(stored.trial.steps)), stored.trial.steps));
        steps = db.last_insert_id();
      }
      Cursor insert = db.Query(InsertTrial(), workload, 1, 1);
      steps != 0 ? insert.Bind(steps) : insert.BindNull();
      insert.BindNull();
      insert.Bind(ChecksumOf(stored));
      VisitTrial(stored.trial, Binder{insert});
      status.Update(insert.Next().status());
    }
    return status;
  }
  static absl::Status AddMany(Records& records) {
    std::mt19937_64 rng(3);
    absl::Status status;
    for (int64_t i = 0; i < kManyFinals && status.ok(); ++i) {
      const StoredTrial stored = MakeOneOfMany(i, rng);
      status.Update(records.AddTrial(ProgramOf(stored), stored.environment, stored.trial).status());
    }
    return status;
  }
  void Remove() {
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + suffix);
  }

  std::string path_;
};

const Filled& TheDatabase() {
  static const Filled filled;
  return filled;
}

std::unique_ptr<Records> Open() {
  auto records = Records::Open(TheDatabase().path());
  if (!records.ok()) std::abort();
  return *std::move(records);
}

// Hashes of workloads in random order.
std::vector<std::string> Hashes() {
  std::vector<std::string> hashes;
  std::mt19937_64 rng(1);
  for (int64_t w = 0; w < TheDatabase().workloads(); ++w) {
    hashes.push_back(MakeTrial(w * kTrialsPerWorkload, rng).workload.hash);
  }
  std::shuffle(hashes.begin(), hashes.end(), rng);
  return hashes;
}

void BM_OpenDatabase(benchmark::State& state) {
  Open();
  for (auto _ : state) benchmark::DoNotOptimize(Open());
  state.counters["MB"] =
      static_cast<double>(std::filesystem::file_size(TheDatabase().path())) / 1e6;
  state.counters["trials"] = static_cast<double>(TrialCount());
}
BENCHMARK(BM_OpenDatabase)->Unit(benchmark::kMicrosecond);

void BM_FindBest(benchmark::State& state) {
  auto records = Open();
  const std::vector<std::string> hashes = Hashes();
  size_t i = 0;
  for (auto _ : state) {
    auto best = records->FindBest(hashes[i++ % hashes.size()], {kModel});
    if (!best.ok() || !best->has_value()) return state.SkipWithError("not found");
  }
}
BENCHMARK(BM_FindBest)->Unit(benchmark::kMicrosecond);

void BM_FindBestOfMany(benchmark::State& state) {
  auto records = Open();
  std::mt19937_64 rng(3);
  const std::string hash = MakeOneOfMany(0, rng).workload.hash;
  for (auto _ : state) {
    auto best = records->FindBest(hash, {kModel});
    if (!best.ok() || !best->has_value()) return state.SkipWithError("not found");
  }
}
BENCHMARK(BM_FindBestOfMany)->Unit(benchmark::kMicrosecond);

void BM_FindNothing(benchmark::State& state) {
  auto records = Open();
  for (auto _ : state) {
    auto best = records->FindBest("none", {kModel});
    if (!best.ok() || best->has_value()) return state.SkipWithError("found");
  }
}
BENCHMARK(BM_FindNothing)->Unit(benchmark::kMicrosecond);

// Each is one durable transaction: this measures the disk.
void BM_AddTrial(benchmark::State& state) {
  auto records = Open();
  std::mt19937_64 rng(2);
  int64_t i = TrialCount();
  for (auto _ : state) {
    state.PauseTiming();
    const StoredTrial stored = MakeTrial(i++, rng);
    const search_space::TensorProgram program = ProgramOf(stored);
    state.ResumeTiming();
    if (!records->AddTrial(program, stored.environment, stored.trial).ok()) {
      return state.SkipWithError("not added");
    }
  }
  state.SetItemsProcessed(state.iterations());
}
BENCHMARK(BM_AddTrial)->Unit(benchmark::kMicrosecond)->UseRealTime();

}  // namespace
}  // namespace heddle::tuner
