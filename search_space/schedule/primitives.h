// Applies steps to a schedule: one function a primitive, those of loops in primitives.cc, those of
// stages in primitives_stages.cc. Each checks everything before it changes anything, so that a
// refused step leaves the schedule as it was. Internal to these two.
#ifndef HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_H_
#define HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "base/status.h"
#include "search_space/schedule/schedule.h"

namespace heddle::search_space {

class StepApplier {
 public:
  explicit StepApplier(Schedule& schedule) : schedule_(schedule), stages_(schedule.stages_) {}

  absl::Status operator()(const Split& step);
  absl::Status operator()(const Fuse& step);
  absl::Status operator()(const Reorder& step);
  absl::Status operator()(const Bind& step);
  absl::Status operator()(const CacheRead& step);
  absl::Status operator()(const SetScope& step);
  absl::Status operator()(const ComputeAt& step);
  absl::Status operator()(const ComputeInline& step);
  absl::Status operator()(const Fetch& step);
  absl::Status operator()(const Rfactor& step);
  absl::Status operator()(const Spread& step);
  absl::Status operator()(const Replicate& step);
  absl::Status operator()(const Winograd& step);
  absl::Status operator()(const CollapseAxes& step);
  absl::Status operator()(const Vectorize& step);
  absl::Status operator()(const Unroll& step);
  absl::Status operator()(const StorageLayout& step);
  absl::Status operator()(const Align& step);
  absl::Status operator()(const Pipeline& step);
  absl::Status operator()(const Interleave& step);
  absl::Status operator()(const BlockSwizzle& step);
  absl::Status operator()(const LaunchBounds& step);

 private:
  absl::StatusOr<ScheduledStage*> FindStage(const std::string& name);
  absl::StatusOr<size_t> FindLoop(const ScheduledStage& stage, const std::string& name);
  // Refuses to change a loop around which another stage is already computed.
  absl::Status CheckNothingAttachedAt(const ScheduledStage& stage, size_t loop);
  bool HasAttached(const ScheduledStage& stage) const;
  bool AnyAttachedAt(const ScheduledStage& stage, const Var& loop) const;
  // A pipeline of an inner loop: its register stages are read one iteration ahead.
  absl::Status PrefetchRegisters(const Pipeline& step, ScheduledStage& stage, size_t at);
  absl::Status SetKind(const std::string& stage, const std::string& loop, LoopKind kind);
  static void SpreadLoops(ScheduledStage& stage);
  // Replaces a loop variable in the stage's values and guards.
  static void Replace(ScheduledStage& stage, const Var& var, const Expr& value);
  int IndexOf(const ScheduledStage& stage) const {
    return static_cast<int>(&stage - stages_.data());
  }

  Schedule& schedule_;
  std::vector<ScheduledStage>& stages_;
};

inline absl::Status Refuse(const std::string& why) { return absl::InvalidArgumentError(why); }

inline bool IsPowerOfTwo(int64_t v) { return v >= 1 && (v & (v - 1)) == 0; }

inline constexpr int64_t kMaxVector = 16;  // elements; 16 bytes of one-byte elements
inline bool IsVectorWidth(int64_t v) { return IsPowerOfTwo(v) && v <= kMaxVector; }

}  // namespace heddle::search_space

#endif  // HEDDLE_SEARCH_SPACE_SCHEDULE_PRIMITIVES_H_
