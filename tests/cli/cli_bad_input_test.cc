// What the program says of bad input and of what is missing: one clear message, and an exit code.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "search_space/notation/notation.h"
#include "tests/cli/cli_support.h"
#include "tuner/records/database/records_schema.h"
#include "tuner/records/records.h"

namespace heddle::tests {
namespace {

using testing::HasSubstr;

struct BadInput {
  std::string line;
  int code;
  std::string message;  // part of standard error
};

class BadInputTest : public CliTest, public testing::WithParamInterface<BadInput> {
 protected:
  void MakeDatabase(const std::string& name, const std::string& sql);
  BadInputTest() {
    Write(folder_ / "text.db", "this is no database, but it is long enough to look like a header");
    Write(folder_ / "binary.op", std::string("op x\0y", 6));
    Write(folder_ / "syntax.op", "op f(n) {\n  in A[n]\n  out B[i n] = A[i]\n}\n");
    Write(folder_ / "range.op", "op f(n) { in A[n]  out B[i: n] = A[i + 1] }");
    Write(folder_ / "cyclic.op", "op f(n) { in A[n] T[i: n] = B[i]  out B[i: n] = T[i] + A[i] }");
    Write(folder_ / "unused.op", "op f(n) { in A[n] T[i: n] = A[i]  out B[i: n] = A[i] }");
    Write(folder_ / "deep.op", "op f(n) { in A[n] out B[i: n] = " + std::string(5000, '(') +
                                   "A[i]" + std::string(5000, ')') + " }");
    Write(folder_ / "large.op", std::string(1 << 20, '#'));
    Write(folder_ / "own.op", "op mine(n) { in A[n]  out B[i: n] = A[i] * 2 }");
    Write(folder_ / "short.op", "op short(n) {\n  in A[n]\n  out B[i:   n - 8] = A[i]\n}\n");
    Write(folder_ / "workloads.txt", "matmul m=8,n=8,k=8\nmatmul m=8,n=8\n");
    Write(folder_ / "weight.txt", "matmul m=8,n=8,k=8 weight=heavy\n");
    Write(folder_ / "type.txt", "matmul m=8,n=8,k=8 dtype=float17\n");
    Write(folder_ / "lines.jsonl", "{\"format\":1, x}\n{\"format\":1\n[1]\n{\"format\":1e999}\n");
    Write(folder_ / "empty.txt", "# nothing\n");
    Write(folder_ / "steps.txt", "split(C, nonsense, [4])\n");
    Write(folder_ / "broken.txt", "split(C, i\n");
    Write(folder_ / "not_empty", "a file where a folder is asked for");
    MakeDatabase("other.db", "CREATE TABLE t (a)");
    MakeDatabase("newer.db", absl::StrCat("PRAGMA user_version = 99; PRAGMA application_id = ",
                                          tuner::kApplicationId));
    MakeDatabase("broken.db", "CREATE TABLE t (a)");
    std::fstream broken(folder_ / "broken.db", std::ios::in | std::ios::out | std::ios::binary);
    broken.seekp(100);  // behind the file's header
    broken << std::string(2000, 'x');
  }
};

void BadInputTest::MakeDatabase(const std::string& name, const std::string& sql) {
  sqlite3* handle = nullptr;
  ASSERT_EQ(sqlite3_open((folder_ / name).c_str(), &handle), SQLITE_OK);
  EXPECT_EQ(sqlite3_exec(handle, sql.c_str(), nullptr, nullptr, nullptr), SQLITE_OK);
  sqlite3_close(handle);
}

TEST_P(BadInputTest, OneClearMessageAndTheRightExitCode) {
  const BadInput& input = GetParam();
  Ran ran = Run(input.line);
  EXPECT_EQ(ran.code, input.code) << input.line << "\n" << ran.err;
  EXPECT_THAT(ran.err, HasSubstr(input.message)) << input.line;
  EXPECT_EQ(ran.out, "") << input.line;
}

std::vector<BadInput> Concat(std::vector<std::vector<BadInput>> lists) {
  std::vector<BadInput> all;
  for (auto& list : lists) all.insert(all.end(), list.begin(), list.end());
  return all;
}

const std::vector<BadInput> kCommands = {
    {"", 2, "subcommand"},
    {"tnue matmul", 2, "unknown command 'tnue'; did you mean 'tune'"},
    {"frobnicate", 2, "unknown command 'frobnicate'"},
    {"help frobnicate", 2, "unknown command 'frobnicate'"},
    {"--db @/x.db show matmul --what source", 2, "heddle show matmul --what source --db "},
    {"--frob", 2, "heddle COMMAND --frob"},
    {"tune", 2, "an operator with its --shape or --workloads FILE"},
    {"tune matmul --frob", 2, "--frob"},
    {"tune matmul --shape m=8,n=8,k=8 --trials many", 2, "--trials"},
    {"tune matmul --shape m=8,n=8,k=8 --trials -3", 2, "--trials"},
    {"tune matmul --shape m=8,n=8,k=8 --l2 hot", 2,
     "heddle: --l2: unknown value 'hot'; known: cold, "},
    {"tune matmul --shape m=8,n=8,k=8 --trials 0", 2, "--seconds"},
    {"show matmul --shape m=8,n=8,k=8 --target h100 --what colours", 2,
     "heddle: --what: unknown value 'colours'; known: schedule, loops, source, ptx, sass, "
     "features"},
    {"show matmul --shape m=8,n=8,k=8 --target h100 --what sourse", 2, "did you mean 'source'"},
    {"show matmul --shape m=8,n=8,k=8 --target h100 --best --naive", 2, "--best"},
    {"time matmul --shape m=8,n=8,k=8", 2, "--best"},
    {"records", 2, "subcommand"},
    {"export matmul --shape m=8,n=8,k=8 --target h100", 2, "--out"},
};

const std::vector<BadInput> kWorkloads = {
    {"space matmull --shape m=8,n=8,k=8 --target h100", 2, "did you mean 'matmul'"},
    {"space matmul --shape m=8,n=8,kk=8 --target h100", 2, "did you mean 'k'"},
    {"export matmul --shape m=8,n=8,k=8 --target h100 --dtype float64 --default --out unmade", 2,
     "is float64: inputs and outputs are float32"},
    {"query matmul --shape m=8,n=8,k=8 --device opencl:0 --dtype float64", 2,
     "is float64: inputs and outputs are float32"},
    {"space matmul --shape m=8,n=8 --target h100", 2, "k"},
    {"space matmul --shape m=0,n=8,k=8 --target h100", 2, "m"},
    {"space matmul --shape m=-4,n=8,k=8 --target h100", 2, "m"},
    {"space matmul --shape m=99999999999999999999,n=8,k=8 --target h100", 2, "m"},
    {"space matmul --shape m=4000000000,n=4000000000,k=4000000000 --target h100", 2, ""},
    {"space matmul --shape m=8,m=8,n=8,k=8 --target h100", 2, "m"},
    {"space matmul --shape m:8 --target h100", 2, "--shape"},
    {"space matmul --shape m=8,n=8,k=8 --dtype float33 --target h100", 2, "float3"},
    {"space f --shape n=8 --op-file @/missing.op --target h100", 2, "missing.op"},
    {"space f --shape n=8 --op-file @ --target h100", 2, "cannot be read"},
    {"space f --shape n=8 --op-file @/binary.op --target h100", 2, "binary"},
    {"space f --shape n=8 --op-file @/syntax.op --target h100", 2, "syntax.op:3:"},
    {"space f --shape n=8 --op-file @/range.op --target h100", 2, "A"},
    {"space f --shape n=8 --op-file @/cyclic.op --target h100", 2, "B"},
    {"space f --shape n=8 --op-file @/unused.op --target h100", 2, "T"},
    {"space f --shape n=8 --op-file @/deep.op --target h100", 2, "deep"},
    {"space f --shape n=8 --op-file @/large.op --target h100", 2, "larger than 65536 bytes"},
    {"space min --shape n=8 --op-file @/own.op --target h100", 2, "mine"},
    {"space short --shape n=7 --op-file @/short.op --target h100", 2, "short.op:3:16: axis 'i'"},
    {"space short --shape n=x --op-file @/short.op --target h100", 2, "heddle: --shape: "},
    {"space conv2d --shape n=1,ci=1,h=2,w=2,co=1,kh=5,kw=5 --target h100", 2,
     "operator conv2d:8:25: axis 'y'"},
    {"show mine --shape n=8 --best --target h100", 2, "--op-file FILE"},
    {"tune --workloads @/workloads.txt", 2, "line 2"},
    {"tune --workloads @/weight.txt", 2, "weight"},
    {"tune --workloads @/type.txt", 2, "unknown data type 'float17'"},
    {"tune --workloads @/empty.txt", 2, "no workload"},
    {"tune --workloads @/missing.txt", 2, "missing.txt"},
    {"tune matmul --workloads @/workloads.txt", 2, "either"},
};

const std::vector<BadInput> kFiles = {
    {"query matmul --shape m=8,n=8,k=8 --target h100 --db @/text.db", 2, "text.db"},
    {"query matmul --shape m=8,n=8,k=8 --target h100 --db @", 2, "heddle"},
    {"query matmul --shape m=8,n=8,k=8 --target h100 --db @/other.db", 2, "another program"},
    {"tune matmul --shape m=8,n=8,k=8 --db @/other.db", 2, "another program"},
    {"query matmul --shape m=8,n=8,k=8 --target h100 --db @/newer.db", 2, "schema version 99"},
    {"tune matmul --shape m=8,n=8,k=8 --db @/newer.db", 2, "install the newer heddle"},
    {"query matmul --shape m=8,n=8,k=8 --target h100 --db @/broken.db", 2, "damaged"},
    {"tune matmul --shape m=8,n=8,k=8 --db @/broken.db", 2, "damaged"},
    {"export matmul --shape m=8,n=8,k=8 --target h100 --out @/x", 3,
     "heddle tune matmul --shape m=8,n=8,k=8"},
    {"export matmul --shape m=8,n=8,k=8 --target h100 --default --out @/not_empty", 2, "not_empty"},
    {"export matmul --shape m=8,n=8,k=8 --target h100 --default --out @", 2, "not empty"},
    {"show matmul --shape m=8,n=8,k=8 --target h100 --best", 3, "heddle tune"},
    {"show matmul --shape m=8,n=8,k=8 --target h100 --point nonsense", 2, "--point"},
    {"show matmul --shape m=8,n=8,k=8 --target h100 --steps @/missing.txt", 2, "missing.txt"},
    {"show matmul --shape m=8,n=8,k=8 --target h100 --steps @/broken.txt", 2, "broken.txt"},
    {"show matmul --shape m=8,n=8,k=8 --target h100 --steps @/steps.txt --what loops", 2,
     "nonsense"},
    {"records import @/missing.jsonl", 2, "missing.jsonl"},
    {"records collect @/missing", 2, "missing: there is no such file or folder"},
    {"records collect @/lines.jsonl", 1, "does not begin as one of a run's"},
    {"records import @/own.op", 1, "line 1: not JSON at column 1, 'op mine(n)"},
    {"records import @/lines.jsonl", 1,
     "line 1: not JSON at column 14, 'x}'; a line is one object"},
    {"records import @/lines.jsonl", 1, "line 2: the line ends within its JSON"},
    {"records import @/lines.jsonl", 1, "line 3: this is JSON, but no object"},
    {"records import @/lines.jsonl", 1, "line 4: a number in it is too large"},
    {"records export @/no/such/folder", 2, "folder"},
};

const std::vector<BadInput> kDevices = {
    {"show matmul --shape m=8,n=8,k=8 --target h1000", 2, "h100"},
    {"show matmul --shape m=8,n=8,k=8 --target h100 --device auto", 2, "--target"},
    {"tune matmul --shape m=8,n=8,k=8 --device cuda:77", 4, "cuda:77"},
    {"tune matmul --shape m=8,n=8,k=8 --device opencl:77", 4, "opencl:77"},
};

std::string CaseName(const testing::TestParamInfo<BadInput>& info) {
  std::string name = absl::StrCat(info.index, "_");
  for (char c : info.param.line.substr(0, 60)) name += std::isalnum(c) ? c : '_';
  return name;
}
INSTANTIATE_TEST_SUITE_P(All, BadInputTest,
                         testing::ValuesIn(Concat({kCommands, kWorkloads, kFiles, kDevices})),
                         CaseName);

TEST_F(CliTest, NoDeviceAtAllSaysWhatToInstall) {
  for (const char* line :
       {"devices", "tune matmul --shape m=8,n=8,k=8", "show matmul --shape m=8,n=8,k=8"}) {
    Ran ran = Run(line, kNoDevices);
    EXPECT_EQ(ran.code, 4) << line << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("pocl-opencl-icd")) << line;
  }
  Ran doctor = Run("doctor", kNoDevices);
  EXPECT_EQ(doctor.code, 4);
  EXPECT_THAT(doctor.out, HasSubstr("Tuning does not work here yet."));
}

TEST_F(CliTest, AMissingNvrtcIsSaidWithTheRemedy) {
  const std::vector<std::string> missing = {"HEDDLE_NVRTC=/nonexistent"};
  for (const char* line :
       {"show matmul --shape m=8,n=8,k=8 --target h100 --what ptx",
        "export matmul --shape m=8,n=8,k=8 --target h100 --default --out @/artefact"}) {
    Ran ran = Run(line, missing);
    EXPECT_EQ(ran.code, 4) << line << ran.err;
    EXPECT_THAT(ran.err, HasSubstr("install the CUDA toolkit's NVRTC")) << line;
    EXPECT_EQ(ran.out, "") << line;
  }
  EXPECT_FALSE(std::filesystem::exists(folder_ / "artefact")) << "half of one is worse than none";
}

TEST_F(CliTest, AFullDiskIsSaid) {
  auto op = search_space::FindOperator(search_space::BuiltinOperators(), "vector_add");
  auto program = op->Instantiate({{"n", 8}}, search_space::DType::kFloat32);
  auto records = tuner::Records::Open(folder_ / "heddle.db");
  ASSERT_TRUE(records.ok()) << records.status();
  tuner::TrialRecord trial;
  trial.point = "some point";
  trial.result.outcome = measure::Outcome::kBuildError;
  ASSERT_TRUE((*records)->AddTrial(*program, {}, trial).ok());
  records->reset();
  Ran ran = Run("records export /dev/full");
  EXPECT_EQ(ran.code, 1) << ran.err;
  EXPECT_THAT(ran.err, HasSubstr("disk"));
}

TEST_F(CliTest, ADatabaseThatCanOnlyBeReadRefusesTuningAndAnswersQueries) {
  ASSERT_EQ(Run("records export -").code, 0);  // creates it
  if (geteuid() == 0) GTEST_SKIP() << "root may write everything";
  std::filesystem::permissions(folder_ / "heddle.db", std::filesystem::perms::owner_read);
  Ran tune = Run("tune matmul --shape m=8,n=8,k=8");
  EXPECT_EQ(tune.code, 2);
  EXPECT_THAT(tune.err, HasSubstr("can only be read"));
  EXPECT_EQ(Run("records export -").code, 0);
}

}  // namespace
}  // namespace heddle::tests
