// A disk that fails to write, as SQLite meets it: nothing is acknowledged, nothing is half-written,
// and the server goes on when the disk does.
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <atomic>
#include <map>

#include "tests/server/engine_support.h"

namespace heddle::server {
namespace {

std::atomic<int> write_error{SQLITE_OK}, sync_error{SQLITE_OK};

// Set as files are opened, by one thread while others write.
std::atomic<decltype(sqlite3_io_methods::xWrite)> usual_write;
std::atomic<decltype(sqlite3_io_methods::xSync)> usual_sync;

// The same files, but writes and syncs fail when they are told to.
const sqlite3_io_methods* Failing(const sqlite3_io_methods* methods) {
  static absl::Mutex mutex;
  static auto& known = *new std::map<const sqlite3_io_methods*, sqlite3_io_methods>();
  absl::MutexLock lock(&mutex);
  auto [it, added] = known.try_emplace(methods, *methods);
  if (added) {  // SQLite's tables for databases and logs differ in their locks only
    usual_write = methods->xWrite;
    usual_sync = methods->xSync;
    it->second.xWrite = [](sqlite3_file* file, const void* bytes, int size, sqlite3_int64 at) {
      const int error = write_error;
      return error != SQLITE_OK ? error : usual_write.load()(file, bytes, size, at);
    };
    it->second.xSync = [](sqlite3_file* file, int how) {
      const int error = sync_error;
      return error != SQLITE_OK ? error : usual_sync.load()(file, how);
    };
  }
  return &it->second;
}

// Files that SQLite opens from now on are such.
void UseFailingDisk() {
  static sqlite3_vfs* const usual = sqlite3_vfs_find("unix");
  static sqlite3_vfs disk = [] {
    sqlite3_vfs copy = *usual;
    copy.zName = "failing";
    copy.xOpen = [](sqlite3_vfs*, const char* name, sqlite3_file* file, int flags, int* out) {
      const int code = usual->xOpen(usual, name, file, flags, out);
      if (code == SQLITE_OK) file->pMethods = Failing(file->pMethods);
      return code;
    };
    return copy;
  }();
  ASSERT_EQ(sqlite3_vfs_register(&disk, 1), SQLITE_OK);
}

struct Disk {
  std::string name;
  std::atomic<int>& error;
  int code;
};
void PrintTo(const Disk& disk, std::ostream* out) { *out << disk.name; }

class IoFaultTest : public EngineTest, public testing::WithParamInterface<Disk> {
 protected:
  IoFaultTest() {
    Close();
    UseFailingDisk();
    Open();
  }
  ~IoFaultTest() override {
    Break(false);
    Close();
    sqlite3_vfs_register(sqlite3_vfs_find("unix"), 1);
  }
  static void Break(bool broken) { GetParam().error = broken ? GetParam().code : SQLITE_OK; }
};

TEST_P(IoFaultTest, AtCommit) {
  std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(6));
  ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());
  const v1::Lease lease = MustAcquire(session, 2);
  const int64_t records = CountRecords();

  Break(true);
  for (int sent = 0; sent < 3; ++sent) {
    auto refused = Report(ReportOf(session, lease));
    EXPECT_TRUE(absl::IsResourceExhausted(refused.status())) << refused.status();
    EXPECT_TRUE(refused.status().GetPayload("type.googleapis.com/google.rpc.RetryInfo"));
  }
  auto job = Create(MatmulSpec(3), "while-broken");
  EXPECT_TRUE(absl::IsResourceExhausted(job.status())) << job.status();
  EXPECT_EQ(CountRecords(), records);
  // A lease that cannot be written down is not given.
  auto unwritten = Acquire(session, 1);
  EXPECT_FALSE(unwritten.ok() && unwritten->id() != 0);
  Break(false);

  auto again = Report(ReportOf(session, lease));
  ASSERT_TRUE(again.ok()) << again.status();
  EXPECT_EQ(again->committed_size(), lease.candidates_size());
  EXPECT_EQ(CountRecords(), records + lease.candidates_size());
  Restart();
  session = Register("host");
  Work(session, id);
  EXPECT_EQ(Get(id).state(), v1::Job::STATE_SUCCEEDED) << Get(id).error();
  ExpectEachOnce(id, 6);
}

// What the server itself has decided is written when the disk works again.
TEST_P(IoFaultTest, WhileAJobEnds) {
  const std::string session = Register("host");
  const std::string id = MustCreate(MatmulSpec(3));
  ASSERT_TRUE(Report(ReportOf(session, MustAcquire(session))).ok());
  Break(true);
  auto job = Wait<v1::Job>(
      [&](auto reply) { engine_->CancelJob(Tenant("weavers"), JobId(id), std::move(reply)); });
  EXPECT_FALSE(job.ok() && job->state() != v1::Job::STATE_RUNNING) << "said, and not written";
  EXPECT_EQ(Get(id).state(), v1::Job::STATE_RUNNING);
  Break(false);
  EXPECT_TRUE(AwaitState(id, v1::Job::STATE_CANCELLED));
}

INSTANTIATE_TEST_SUITE_P(Disks, IoFaultTest,
                         testing::Values(Disk{"Write", write_error, SQLITE_IOERR_WRITE},
                                         Disk{"Sync", sync_error, SQLITE_IOERR_FSYNC}),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace heddle::server
