// What the records do when the disk, the file or the process fails them.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <fstream>
#include <set>
#include <sstream>

#include "absl/strings/match.h"
#include "tests/tuner/faulty_vfs.h"
#include "tests/tuner/records_support.h"
#include "tuner/records/database/records_file.h"

namespace heddle::tuner {
namespace {

using testing::AllOf;
using testing::HasSubstr;

class RecordsFaultTest : public RecordsFixture {
 protected:
  std::string ReadFile() {
    std::ifstream in(path_, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void WriteFile(const std::string& content) {
    std::ofstream(path_, std::ios::binary).write(content.data(), content.size());
  }
  // Opening must be refused with this code and these words, the path among them.
  void ExpectRefused(absl::StatusCode code, const std::string& words) {
    auto records = Records::Open(path_);
    EXPECT_EQ(records.status().code(), code) << records.status();
    EXPECT_THAT(std::string(records.status().message()), AllOf(HasSubstr(path_), HasSubstr(words)));
  }
  void FlipBytes(size_t stride);
  void EndAtEach(int stride);
  // Fills a database and ends as a killed process does, its log left behind.
  void FillAndDie(int trials) {
    const pid_t child = fork();
    if (child == 0) {
      auto records = Records::Open(path_);
      const absl::Status added = (*records)->Batch([&] {
        absl::Status status;
        for (int i = 0; i < trials; ++i) {
          TrialRecord trial = Final(100 + i);
          trial.point = absl::StrCat("p", i);
          trial.steps = absl::StrCat("split(C, i, [", i + 2, "])");
          trial.result.detail = std::string(300, 'd');
          status.Update((*records)->AddTrial(program_, environment_, trial).status());
        }
        return status;
      });
      _exit(added.ok() ? 0 : 1);
    }
    ASSERT_EQ(ExitCode(child), 0);
  }
};

TEST_F(RecordsFaultTest, AFullDiskIsReportedAndWritingGoesOnAfterwards) {
  for (int code : {SQLITE_FULL, SQLITE_IOERR_WRITE, SQLITE_IOERR_FSYNC}) {
    FaultyVfs vfs;
    auto records = MustOpen();
    const size_t before = records->Trials(program_, environment_)->size();
    // Wherever within the call the disk fills up.
    for (int writes = 0; writes < 3; ++writes) {
      vfs.FailAfter(writes, code);
      auto added = records->AddTrial(program_, environment_, Final(1));
      EXPECT_TRUE(absl::IsResourceExhausted(added.status())) << writes << " " << added.status();
      EXPECT_THAT(std::string(added.status().message()),
                  AllOf(HasSubstr(path_), HasSubstr("free")));
      vfs.Heal();
      EXPECT_EQ(records->Trials(program_, environment_)->size(), before) << "half-written";
    }
    Add(*records, Final(2));
    EXPECT_EQ(records->Trials(program_, environment_)->size(), before + 1);
    EXPECT_EQ(Query("PRAGMA integrity_check"), "ok");
  }
}

TEST_F(RecordsFaultTest, AFullDiskWhileImportingSaysHowFarItCame) {
  std::stringstream lines;
  {
    auto records = MustOpen();
    const absl::Status added = records->Batch([&] {
      for (int i = 0; i < 600; ++i) Add(*records, Screening(absl::StrCat("p", i)));
      return absl::OkStatus();
    });
    ASSERT_TRUE(added.ok()) << added;
    ASSERT_TRUE(records->Export(lines).ok());
  }
  path_ = folder_ + "/other.db";
  FaultyVfs vfs;
  auto records = MustOpen();
  vfs.FailAfter(40, SQLITE_FULL);
  auto report = records->Import(lines);
  EXPECT_TRUE(absl::IsResourceExhausted(report.status())) << report.status();
  vfs.Heal();
  lines.clear();
  lines.seekg(0);
  report = records->Import(lines);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->added + report->duplicate, 600);
  EXPECT_EQ(All(*records).size(), 600u);
}

// A process that ends at each `stride`th of its writes, which it does only half, leaves a database
// that has all that was acknowledged.
void RecordsFaultTest::EndAtEach(int stride) {
  constexpr int kTrials = 3;
  auto run = [&](int writes) {  // exits with the number of trials acknowledged
    FaultyVfs vfs;
    vfs.ExitAfter(writes);
    int pipe_ends[2];
    EXPECT_EQ(pipe(pipe_ends), 0);
    const pid_t child = fork();
    if (child == 0) {
      {
        auto records = Records::Open(path_);
        for (char i = 0; i < kTrials && records.ok(); ++i) {
          if (!(*records)->AddTrial(program_, environment_, Final(1 + i)).ok()) _exit(1);
          if (write(pipe_ends[1], &i, 1) != 1) _exit(1);
        }
      }  // the last connection moves the log into the file
      _exit(2);
    }
    close(pipe_ends[1]);
    size_t acknowledged = 0;
    for (char i; read(pipe_ends[0], &i, 1) > 0;) ++acknowledged;
    close(pipe_ends[0]);
    return std::pair(acknowledged, ExitCode(child));
  };
  int writes = 1;
  for (;; writes += stride) {
    for (const char* suffix : {"", "-wal", "-shm"}) std::filesystem::remove(path_ + suffix);
    const auto [acknowledged, code] = run(writes);
    auto records = MustOpen();
    EXPECT_EQ(records->damage(), "") << "after " << writes << " writes";
    const auto trials = records->Trials(program_, environment_);
    ASSERT_TRUE(trials.ok()) << trials.status();
    EXPECT_GE(trials->size(), acknowledged) << "after " << writes << " writes";
    EXPECT_LE(trials->size(), acknowledged + 1);
    if (code == 2) break;  // it came through
    ASSERT_EQ(code, 0);
  }
  EXPECT_GT(writes, 20);
}

TEST_F(RecordsFaultTest, EndingAtAWriteLosesNothingAcknowledged) { EndAtEach(7); }
TEST_F(RecordsFaultTest, LongEndingAtAnyWriteLosesNothingAcknowledged) { EndAtEach(1); }

// Whatever byte of the file flips, what is served is a trial exactly as it was measured: each
// `stride`th byte is tried.
void RecordsFaultTest::FlipBytes(size_t stride) {
  {
    auto records = MustOpen();
    for (int i = 0; i < 4; ++i) {
      TrialRecord trial = Final(10 + i);
      trial.point = absl::StrCat("p", 10 + i);
      trial.steps = absl::StrCat("split(C, i, [", 10 + i, "])");
      Add(*records, trial);
    }
  }
  const std::string intact = ReadFile();
  int served = 0, passed_over = 0, refused = 0;
  for (size_t at = 0, used = 0; at < intact.size(); ++at) {
    if (intact[at] == 0 && at % 64 != 0) continue;  // most of the file is unused
    if (++used % stride != 0) continue;
    std::string flipped = intact;
    flipped[at] ^= static_cast<char>(1 << (at % 8));
    WriteFile(flipped);
    auto records = Records::Open(path_);
    if (!records.ok()) {
      ++refused;
      continue;
    }
    auto best = (*records)->FindBest(program_.hash, BenchOf(environment_));
    if (!best.ok() || !best->has_value()) {
      ++passed_over;
      continue;
    }
    const TrialRecord& trial = (*best)->trial;
    const int i = static_cast<int>(trial.result.time_us) - 10;
    ASSERT_TRUE(i >= 0 && i < 4) << "byte " << at << ": " << trial.result.time_us;
    ASSERT_EQ(trial.result.time_us, 10 + i) << "byte " << at;
    ASSERT_EQ(trial.point, absl::StrCat("p", 10 + i)) << "byte " << at;
    ASSERT_EQ(trial.steps, absl::StrCat("split(C, i, [", 10 + i, "])")) << "byte " << at;
    ASSERT_EQ((*best)->environment.driver, "1") << "byte " << at;
    ASSERT_EQ((*best)->environment.compiler, "NVRTC 13.0") << "byte " << at;
    i == 0 ? ++served : ++passed_over;
  }
  EXPECT_GT(served, 0);
  EXPECT_GT(passed_over, 0);
  EXPECT_GT(refused, 0);
}

TEST_F(RecordsFaultTest, AFlippedByteIsNeverServed) { FlipBytes(10); }
TEST_F(RecordsFaultTest, LongNoneOfAllBytesFlippedIsServed) { FlipBytes(1); }

TEST_F(RecordsFaultTest, ADamagedFileIsOnlyReadAndCanBeSalvaged) {
  constexpr int kTrials = 400;
  FillAndDie(kTrials);
  Query("PRAGMA wal_checkpoint(TRUNCATE)");
  // Two pages of the trials' table are overwritten, as by a failing disk.
  const std::string roots = Query(
      "SELECT group_concat(pageno) FROM (SELECT pageno FROM dbstat WHERE name = 'trial' AND "
      "pagetype "
      "= 'leaf' LIMIT 2 OFFSET 3)");
  std::string content = ReadFile();
  std::istringstream pages(roots);
  for (std::string page; std::getline(pages, page, ',');) {
    content.replace((std::stoul(page) - 1) * 4096, 4096, std::string(4096, '\x5a'));
  }
  WriteFile(content);
  std::ofstream(path_ + "-wal") << "left behind by a process that was killed";

  std::stringstream lines;
  Records::ExportReport exported;
  {
    auto records = MustOpen();
    EXPECT_TRUE(records->read_only());
    EXPECT_THAT(records->damage(), AllOf(HasSubstr(path_), HasSubstr("heddle records export")));
    auto added = records->AddTrial(program_, environment_, Final(1));
    EXPECT_TRUE(absl::IsDataLoss(added.status())) << added.status();
    EXPECT_EQ(BestTime(*records), 100);
    auto report = records->Export(lines);
    ASSERT_TRUE(report.ok()) << report.status();
    exported = *report;
  }
  EXPECT_GT(exported.written, kTrials / 2);
  EXPECT_GT(exported.damaged, 0);
  EXPECT_EQ(exported.written + exported.damaged, kTrials);

  path_ = folder_ + "/new.db";
  auto salvaged = MustOpen();
  auto report = salvaged->Import(lines);
  ASSERT_TRUE(report.ok()) << report.status();
  EXPECT_EQ(report->added, exported.written);
  EXPECT_EQ(report->refused, 0);
}

TEST_F(RecordsFaultTest, AKilledProcessIsNoDamage) {
  FillAndDie(20);
  EXPECT_TRUE(WasLeftOpen(path_));
  auto records = MustOpen();
  EXPECT_EQ(records->damage(), "");
  EXPECT_FALSE(WasLeftOpen(path_)) << "in use now";
  EXPECT_EQ(records->Trials(program_, environment_)->size(), 20u);
}

TEST_F(RecordsFaultTest, RefusesWhatIsNotOurs) {
  WriteFile("This is a poem about weaving, and long enough for a page of its own.\n" +
            std::string(4096, 'x'));
  const std::string poem = ReadFile();
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "not a database");
  EXPECT_EQ(ReadFile(), poem);

  std::filesystem::remove(path_);
  Query("CREATE TABLE songs (title TEXT)");
  const std::string songs = ReadFile();
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "another program");
  EXPECT_EQ(ReadFile(), songs) << "a file of others is not touched";

  std::filesystem::remove(path_);
  MustOpen();
  Query("PRAGMA user_version = 99");
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "schema version 99");

  std::filesystem::remove(path_);
  std::filesystem::create_directory(path_);
  ExpectRefused(absl::StatusCode::kFailedPrecondition, "name a file");

  path_ = folder_ + "/missing/heddle.db";
  ExpectRefused(absl::StatusCode::kNotFound, "create it");
}

TEST_F(RecordsFaultTest, AnEmptyFileIsANewDatabase) {
  WriteFile("");
  auto records = MustOpen();
  Add(*records, Final(3));
  EXPECT_EQ(BestTime(*records), 3);
}

TEST_F(RecordsFaultTest, ATruncatedFileIsNotServed) {
  {
    auto records = MustOpen();
    Add(*records, Final(3));
  }
  const std::string intact = ReadFile();
  for (size_t size : {100, 4096, 3 * 4096, 5 * 4096 + 17}) {
    WriteFile(intact.substr(0, size));
    auto records = Records::Open(path_);
    if (!records.ok()) {
      EXPECT_THAT(std::string(records.status().message()), HasSubstr(path_));
      continue;
    }
    auto added = (*records)->AddTrial(program_, environment_, Final(4));
    EXPECT_TRUE(absl::IsDataLoss(added.status())) << size << ": " << added.status();
  }
}

// Root may write everywhere: the test becomes somebody else in a child.
TEST_F(RecordsFaultTest, FilesAndFoldersThatCannotBeWrittenAreRead) {
  {
    auto records = MustOpen();
    Add(*records, Final(3));
  }
  for (bool folder : {false, true}) {
    ASSERT_EQ(chmod(path_.c_str(), folder ? 0666 : 0444), 0);
    ASSERT_EQ(chmod(folder_.c_str(), folder ? 0555 : 0777), 0);
    const pid_t child = fork();
    if (child == 0) {
      if (geteuid() == 0 && setresuid(65534, 65534, 65534) != 0) _exit(1);
      auto records = Records::Open(path_);
      if (!records.ok()) _exit(2);
      if (!(*records)->read_only() || BestTime(**records) != 3) _exit(3);
      auto added = (*records)->AddTrial(program_, environment_, Final(1));
      if (!absl::IsPermissionDenied(added.status())) _exit(4);
      if (!absl::StrContains(added.status().message(), path_)) _exit(5);
      if (folder && !absl::IsPermissionDenied(Records::Open(folder_ + "/new.db").status()))
        _exit(6);
      _exit(0);
    }
    EXPECT_EQ(ExitCode(child), 0) << (folder ? "folder" : "file");
  }
}

TEST_F(RecordsFaultTest, AnotherWriterThatNeverEndsIsNamed) {
  auto database = Database::Open(path_, Database::Mode::kCreate);
  ASSERT_TRUE(database.ok());
  ASSERT_TRUE(database->Script("PRAGMA journal_mode = WAL; CREATE TABLE t (x)").ok());
  auto other = Database::Open(path_, Database::Mode::kReadWrite);
  ASSERT_TRUE(other->Script("BEGIN IMMEDIATE").ok());
  database->set_patience(absl::Milliseconds(50));
  const absl::Status status =
      database->Transaction([&] { return database->Script("INSERT INTO t VALUES (1)"); });
  EXPECT_TRUE(absl::IsUnavailable(status)) << status;
  EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr(path_), HasSubstr("fuser")));
  ASSERT_TRUE(other->Script("COMMIT").ok());
  EXPECT_TRUE(
      database->Transaction([&] { return database->Script("INSERT INTO t VALUES (1)"); }).ok());
}

TEST(RecordsFileTest, KnowsNetworkFileSystems) {
  EXPECT_STREQ(NetworkFileSystem(0x6969), "NFS");
  EXPECT_STREQ(NetworkFileSystem(0xff534d42), "SMB");
  EXPECT_EQ(NetworkFileSystem(0xef53), nullptr) << "ext4";
  EXPECT_EQ(NetworkFileSystem(0x9123683e), nullptr) << "btrfs";
}

TEST(RecordsFileTest, KnowsRunningProcesses) {
  EXPECT_TRUE(IsRunning(ThisProcess()));
  EXPECT_FALSE(IsRunning(""));
  EXPECT_FALSE(IsRunning("another-boot 1 1"));
  const std::string mine = ThisProcess();
  EXPECT_FALSE(IsRunning(mine + "0")) << "the same id, started at another time";
}

}  // namespace
}  // namespace heddle::tuner
