// Which trials a cost model learns from, and what it costs to find them.
#include "tuner/records/records_lessons.h"

#include <gmock/gmock.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/strings/str_split.h"
#include "tests/support.h"
#include "tests/tuner/records_support.h"

namespace heddle::tuner {
namespace {

class LessonsTest : public RecordsFixture {
 protected:
  // `count` screening trials of each of `workloads` workloads, n = 1, 2, ..., one a microsecond.
  void Fill(Records& records, int64_t workloads, int64_t count) {
    const absl::Status added = records.Batch([&] {
      for (int64_t n = 1; n <= workloads; ++n) {
        for (int64_t i = 0; i < count; ++i) {
          TrialRecord trial = Screening(absl::StrCat("p", i));
          trial.when = absl::FromUnixMicros(1000 + i);
          auto id = records.AddTrial(Program(n), environment_, trial);
          if (!id.ok()) return id.status();
        }
      }
      return absl::OkStatus();
    });
    ASSERT_TRUE(added.ok()) << added;
  }
  // By workload, how many lessons there are before `n` is tuned.
  std::map<std::string, int> Taught(Records& records, int64_t n, int64_t limit) {
    auto lessons = records.Lessons(environment_, Program(n), limit);
    EXPECT_TRUE(lessons.ok()) << lessons.status();
    std::map<std::string, int> taught;
    std::set<std::string> ended;
    for (size_t i = 0; i < lessons->size(); ++i) {
      const std::string& workload = (*lessons)[i].workload;
      EXPECT_FALSE(ended.contains(workload)) << "not side by side";
      if (i > 0 && (*lessons)[i - 1].workload != workload) ended.insert((*lessons)[i - 1].workload);
      ++taught[workload];
    }
    return taught;
  }
  // The virtual machine's steps of SQLite, in hundreds.
  template <typename Body>
  static int Steps(Records& records, const Body& body) {
    int steps = 0;
    sqlite3_progress_handler(
        records.database().handle(), 100, [](void* to) { return ++*static_cast<int*>(to), 0; },
        &steps);
    body();
    sqlite3_progress_handler(records.database().handle(), 0, nullptr, nullptr);
    return steps;
  }
};

TEST_F(LessonsTest, ALimitThatBindsLeavesSome) {
  auto records = MustOpen();
  Fill(*records, 5, 3);
  int all = 0;
  for (const auto& [workload, count] : Taught(*records, 100, 4)) all += count;
  EXPECT_EQ(all, 4);
  all = 0;
  for (const auto& [workload, count] : Taught(*records, 100, 1000)) all += count;
  EXPECT_EQ(all, 15);
}

// With more workloads than there is room for, each that teaches does so with enough trials, and it
// is the nearest that do.
TEST_F(LessonsTest, ManyWorkloadsTeachAsMuchAsFew) {
  constexpr int64_t kLimit = 640;
  auto records = MustOpen();
  Fill(*records, 40, 70);
  const std::map<std::string, int> few = Taught(*records, 20, kLimit);
  EXPECT_EQ(few.size(), 10u);
  for (const auto& [workload, count] : few) EXPECT_EQ(count, 64) << workload;
  for (int64_t n : {19, 20, 21}) EXPECT_TRUE(few.contains(Program(n).canonical_text)) << n;
  for (int64_t n : {40, 39}) EXPECT_TRUE(few.contains(Program(n).canonical_text)) << "the newest";
  EXPECT_FALSE(few.contains(Program(1).canonical_text));

  Fill(*records, 100, 70);
  int all = 0;
  for (const auto& [workload, count] : Taught(*records, 20, kLimit)) all += count;
  EXPECT_EQ(all, kLimit);
}

TEST_F(LessonsTest, AreSpreadOverTheSessionAndNoFinals) {
  auto records = MustOpen();
  Fill(*records, 2, 1000);
  for (int i = 0; i < 8; ++i) Add(*records, Final(5));
  auto lessons = records->Lessons(environment_, Program(1), 300);
  ASSERT_TRUE(lessons.ok()) << lessons.status();
  std::vector<int64_t> when;
  for (const Records::Lesson& lesson : *lessons) {
    EXPECT_EQ(lesson.trial.stage, TrialStage::kScreening);
    if (lesson.workload == Program(1).canonical_text) {
      when.push_back(absl::ToUnixMicros(lesson.trial.when));
    }
  }
  EXPECT_EQ(when.size(), 100u);
  EXPECT_TRUE(std::is_sorted(when.begin(), when.end()));
  EXPECT_EQ(when.front(), 1000);
  EXPECT_EQ(when.back(), 1999);
  for (size_t i = 1; i < when.size(); ++i) EXPECT_LE(when[i] - when[i - 1], 12);
}

TEST_F(LessonsTest, CountsWhatIsNew) {
  auto records = MustOpen();
  auto count = records->CountLessons(environment_, 0);
  ASSERT_TRUE(count.ok()) << count.status();
  EXPECT_EQ(count->trials, 0);
  Fill(*records, 2, 10);
  count = records->CountLessons(environment_, 0);
  EXPECT_EQ(count->trials, 20);
  EXPECT_EQ(count->newer, 20);
  const int64_t then = count->newest;
  Add(*records, Screening("new"));
  environment_.device_name = "Loom 1";
  Add(*records, Screening("elsewhere"));
  environment_.device_name = "Loom 9000";
  count = records->CountLessons(environment_, then);
  EXPECT_EQ(count->trials, 21);
  EXPECT_EQ(count->newer, 1);
  EXPECT_EQ(count->newest, then + 2);
}

// Ten times the trials, the same work.
TEST_F(LessonsTest, ASessionsStartDoesNotScanTheDatabase) {
  constexpr int64_t kLimit = 640;
  auto records = MustOpen();
  Fill(*records, 10, 64);
  const auto copy = [&](int times) {
    std::string columns;
    for (const absl::string_view name : absl::StrSplit(
             Query("SELECT name || ' ' FROM pragma_table_info('trial')"), ' ', absl::SkipEmpty())) {
      if (name != "id") absl::StrAppend(&columns, columns.empty() ? "" : ", ", name);
    }
    Query(absl::StrCat("INSERT INTO trial (", columns, ") SELECT ", columns,
                       " FROM (SELECT * FROM trial LIMIT 640), (WITH RECURSIVE c(x) AS (SELECT 1 "
                       "UNION ALL SELECT x + 1 FROM c LIMIT ",
                       times, ") SELECT x FROM c)"));
  };
  const int64_t bench = records->database().QueryInt("SELECT max(bench) FROM trial").value_or(0);
  const auto start = [&] {
    ASSERT_TRUE(records->CountLessons(environment_, 1).ok());
    auto chosen = ChooseLessons(records->database(), {&bench, 1}, Program(3), kLimit);
    ASSERT_TRUE(chosen.ok()) << chosen.status();
    EXPECT_EQ(chosen->size(), static_cast<size_t>(kLimit));
  };
  copy(39);  // 25,600 in all
  const int before = Steps(*records, start);
  copy(80);
  const int after = Steps(*records, start);
  EXPECT_GT(before, 0);
  EXPECT_LT(after, before * 1.1) << "it grows with the database";
}

// A model's bytes go to a library that was not made for hostile files.
TEST_F(LessonsTest, AModelIsReadFromTheUsersOwnFileOnly) {
  auto records = MustOpen();
  Add(*records, Screening("p"));
  ASSERT_TRUE(records->SaveModel(environment_, {"bytes", 1}).ok());
  const auto is_given = [&] {
    auto model = records->LoadModel(environment_);
    EXPECT_TRUE(model.ok()) << model.status();
    return model.ok() && model->has_value();
  };
  EXPECT_TRUE(is_given());
  ASSERT_EQ(chmod(path_.c_str(), 0666), 0);
  EXPECT_FALSE(is_given()) << "anybody may have written it";
  ASSERT_EQ(chmod(path_.c_str(), 0644), 0);
  EXPECT_TRUE(is_given());
  HEDDLE_NEEDS("root", chown(path_.c_str(), 65534, static_cast<gid_t>(-1)) == 0,
               "giving a file away takes the right to");
  EXPECT_FALSE(is_given()) << "another user's";
}

}  // namespace
}  // namespace heddle::tuner
