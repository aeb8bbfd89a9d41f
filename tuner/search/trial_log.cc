#include "tuner/search/trial_log.h"

#include <utility>

#include "base/status.h"

namespace heddle::tuner {
namespace {

class RecordsLog : public TrialLog {
 public:
  RecordsLog(Records& records, const search_space::TensorProgram& program,
             const Environment& environment)
      : records_(records), program_(program), environment_(environment) {}

  absl::StatusOr<Known> Load() override {
    HEDDLE_ASSIGN_OR_RETURN(trials, records_.Trials(program_, environment_));
    HEDDLE_ASSIGN_OR_RETURN(stale, records_.StaleIntents(program_, environment_));
    return Known{std::move(trials), std::move(stale)};
  }
  // A commit waits for the disk: one for all of them, and one for a result and its intent's end.
  absl::Status Begin(absl::Span<const std::string> points) override {
    return records_.Batch([&] {
      for (const std::string& point : points) {
        HEDDLE_RETURN_IF_ERROR(records_.AddIntent(program_, environment_, point));
      }
      return absl::OkStatus();
    });
  }
  absl::Status Add(const TrialRecord& trial) override {
    return records_.Batch([&] {
      HEDDLE_RETURN_IF_ERROR(records_.AddTrial(program_, environment_, trial));
      return trial.stage == TrialStage::kScreening ? Abandon({trial.point}) : absl::OkStatus();
    });
  }
  absl::Status Abandon(absl::Span<const std::string> points) override {
    return records_.Batch([&] {
      for (const std::string& point : points) {
        HEDDLE_RETURN_IF_ERROR(records_.ClearIntent(program_, environment_, point));
      }
      return absl::OkStatus();
    });
  }

 private:
  Records& records_;
  const search_space::TensorProgram& program_;
  const Environment& environment_;
};

}  // namespace

std::unique_ptr<TrialLog> MakeTrialLog(Records& records, const search_space::TensorProgram& program,
                                       const Environment& environment) {
  return std::make_unique<RecordsLog>(records, program, environment);
}

}  // namespace heddle::tuner
