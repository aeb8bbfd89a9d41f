// What searches elsewhere start from.
#include "tuner/records/transfer/snapshot.h"

#include <gmock/gmock.h>

#include <set>
#include <vector>

#include "tests/tuner/records_support.h"

namespace heddle::tuner {
namespace {

using Workload = std::shared_ptr<const search_space::TensorProgram>;

class SnapshotTest : public RecordsFixture {
 protected:
  void AddAt(Records& records, int64_t n, const TrialRecord& trial) {
    program_ = Program(n);
    Add(records, trial);
  }
  static Workload At(int64_t n) {
    return std::make_shared<const search_space::TensorProgram>(Program(n));
  }
  std::unique_ptr<Records> Snapshot(Records& records, const std::vector<Workload>& workloads,
                                    SnapshotReport& report) {
    const std::string path = folder_ + "/snapshot.db";
    auto written = WriteSnapshot(records, workloads, measure::L2Policy::kCold, path);
    EXPECT_TRUE(written.ok()) << written.status();
    if (written.ok()) report = *written;
    auto snapshot = Records::Open(path);
    EXPECT_TRUE(snapshot.ok()) << snapshot.status();
    return snapshot.ok() ? *std::move(snapshot) : nullptr;
  }
};

TEST_F(SnapshotTest, HasTheBestOfTheNearestAndTheModelAndWhatItWasLearntFrom) {
  auto records = MustOpen();
  for (int64_t n = 2; n <= 2048; n *= 2) {
    AddAt(*records, n, FinalOf("slow", 9));
    AddAt(*records, n, FinalOf("fast", static_cast<double>(n)));
  }
  program_ = Program(4);
  Add(*records, Screening("a lesson"));
  environment_.l2 = measure::L2Policy::kWarm;
  AddAt(*records, 1024, FinalOf("warm", 1));
  environment_.l2 = measure::L2Policy::kCold;
  ASSERT_TRUE(records->SaveModel(environment_, {"bytes", 7}).ok());

  SnapshotReport report;
  auto snapshot = Snapshot(*records, {At(1024)}, report);
  ASSERT_NE(snapshot, nullptr);
  EXPECT_EQ(report.models, 1);
  const Bench bench = BenchOf(environment_);
  std::set<int64_t> shapes;
  const auto neighbours = snapshot->Neighbours("vector_add", bench);
  ASSERT_TRUE(neighbours.ok()) << neighbours.status();
  for (const Records::Neighbour& neighbour : *neighbours) {
    shapes.insert(neighbour.shape.at("n"));
  }
  EXPECT_THAT(shapes, testing::ElementsAre(64, 128, 256, 512, 1024, 2048));
  auto best = snapshot->FindBest(Program(64).hash, bench);
  ASSERT_TRUE(best.ok() && best->has_value());
  EXPECT_EQ((*best)->trial.result.time_us, 9);  // 64 is slower
  int lessons = 0;
  for (const StoredTrial& stored : All(*snapshot)) {
    EXPECT_EQ(stored.environment.l2, measure::L2Policy::kCold);
    lessons += stored.trial.stage == TrialStage::kScreening;
  }
  EXPECT_EQ(lessons, 1);
  // Nothing in it is newer than what the model knows.
  auto model = snapshot->LoadModel(environment_);
  ASSERT_TRUE(model.ok() && model->has_value());
  EXPECT_EQ((*model)->bytes, "bytes");
  const auto lessons_now = snapshot->CountLessons(environment_, (*model)->newest);
  ASSERT_TRUE(lessons_now.ok()) << lessons_now.status();
  EXPECT_EQ(lessons_now->newer, 0);
}

TEST_F(SnapshotTest, OfWhatNobodyKnowsThereIsNone) {
  auto records = MustOpen();
  auto written =
      WriteSnapshot(*records, {At(32)}, measure::L2Policy::kCold, folder_ + "/snapshot.db");
  ASSERT_TRUE(written.ok()) << written.status();
  EXPECT_EQ(written->trials, 0);
  EXPECT_FALSE(std::filesystem::exists(folder_ + "/snapshot.db"));
}

}  // namespace
}  // namespace heddle::tuner
