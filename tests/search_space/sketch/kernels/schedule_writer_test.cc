// Schedules are written with handles: what a step makes is what the next one is given.
#include "search_space/sketch/kernels/schedule_writer.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "search_space/notation/notation.h"
#include "search_space/schedule/step.h"

namespace heddle::search_space {
namespace {

using ::testing::HasSubstr;

ScheduleWriter WriterOf(const std::string& op, const std::string& shape) {
  return ScheduleWriter(Schedule(std::make_shared<const TensorProgram>(
      *FindOperator(BuiltinOperators(), op)->Instantiate(*ParseShape(shape), DType::kFloat32))));
}

StageRef Find(const ScheduleWriter& w, const std::string& name) {
  return {w.schedule().stage(w.schedule().FindStage(name)).tensor};
}

std::vector<std::string> NamesOf(const LoopList& loops) {
  std::vector<std::string> names;
  for (const LoopRef& l : loops) names.push_back(l.name());
  return names;
}

TEST(ScheduleWriter, HandsOutWhatStepsMake) {
  ScheduleWriter w = WriterOf("matmul", "m=64,n=64,k=64");
  const StageRef c = Find(w, "C"), sum = Find(w, "C.acc");
  LoopList loops = w.Loops(c);
  const auto [rows, row] = w.Split(loops[0], 8);
  const LoopList columns = w.Split(loops[1], {4, 2});
  w.Reorder({rows, columns[0], row, columns[1], columns[2]});
  const LoopRef block = w.Fuse({rows, columns[0]});
  const LoopRef thread = w.Fuse({row, columns[1]});
  w.Bind(block, BindTo::kBlock);
  w.Bind(w.Fuse({thread}), BindTo::kThread);  // of one loop, that loop
  w.SetScope(sum, Scope::kLocal);
  w.ComputeAt(sum, thread);
  EXPECT_THAT(NamesOf(w.DataLoops(sum)), testing::ElementsAre("i", "j"));
  EXPECT_THAT(NamesOf(w.ReduceLoops(sum)), testing::ElementsAre("r"));
  const auto [outer, inner] = w.Split(w.ReduceLoops(sum)[0], 4);
  w.Reorder(Join({{outer, inner}, w.DataLoops(sum)}));
  const BufferRef a = w.schedule().program().inputs[0];
  const StageRef tile = w.CacheRead(a, Scope::kShared, sum);
  w.ComputeAt(tile, outer);
  w.StorageLayout(tile, {1, 0}, 4, 0);
  w.Fetch(tile, 32, 1);
  EXPECT_EQ(ToString(w.steps()), R"(split(C, i, [8])
split(C, j, [4, 2])
reorder(C, [i.0, j.0, i.1, j.1, j.2])
fuse(C, [i.0, j.0])
fuse(C, [i.1, j.1])
bind(C, i.0@j.0, block)
bind(C, i.1@j.1, thread)
set_scope(C.acc, local)
compute_at(C.acc, C, i.1@j.1)
split(C.acc, r, [4])
reorder(C.acc, [r.0, r.1, i, j])
cache_read(A, shared, C.acc)
compute_at(A.shared, C.acc, r.0)
storage_layout(A.shared, [d1, d0], 4, 0)
fetch(A.shared, 32, 1)
)");
  // What was written is what was scheduled.
  ScheduleWriter again = WriterOf("matmul", "m=64,n=64,k=64");
  Schedule schedule = again.schedule();
  ASSERT_TRUE(Apply(w.steps(), schedule).ok());
  ASSERT_EQ(schedule.stages().size(), w.schedule().stages().size());
}

// Nobody has to know what a second copy is called, or who made the first.
TEST(ScheduleWriter, CopiesAreWhatTheyAreCalled) {
  ScheduleWriter w = WriterOf("matmul", "m=8,n=8,k=64");
  const StageRef sum = Find(w, "C.acc");
  const BufferRef a = w.schedule().program().inputs[0];
  EXPECT_EQ(w.CacheReadForKernel(a, Scope::kShared, sum).name(), "A.shared");
  const StageRef partial = w.Rfactor(w.Split(w.ReduceLoops(sum)[0], 16)[0]);
  EXPECT_EQ(partial.name(), "C.acc.rf");
  EXPECT_EQ(w.CacheRead(Find(w, "A.shared").tensor, Scope::kLocal, partial).name(),
            "A.shared.local");
  const BufferRef b = w.schedule().program().inputs[1];
  EXPECT_EQ(w.CacheRead(b, Scope::kShared, partial).name(), "B.shared");
  EXPECT_EQ(w.Replicate(Find(w, "C"), 4).name(), "lane");
}

TEST(ScheduleWriter, AStepThatDoesNotApplyIsTheLast) {
  ScheduleWriter w = WriterOf("vector_add", "n=64");
  const absl::Status written = ScheduleWriter::Try([&] {
    const LoopRef axis = w.Loops(Find(w, "C"))[0];
    w.Bind(axis, BindTo::kThread);
    w.Split(axis, 8);
    ADD_FAILURE() << "a bound loop was split";
  });
  EXPECT_THAT(std::string(written.message()), HasSubstr("split(C, i, [8]) does not apply"));
  EXPECT_EQ(ToString(w.steps()), "bind(C, i, thread)\nsplit(C, i, [8])\n");
}

}  // namespace
}  // namespace heddle::search_space
