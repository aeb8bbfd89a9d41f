// Schedules of a database that this process reads itself.
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/schedules.h"

namespace heddle::cli {
namespace {

class LocalSchedules : public Schedules {
 public:
  explicit LocalSchedules(std::unique_ptr<tuner::Records> records) : records_(std::move(records)) {}

  absl::StatusOr<Known> Query(const Question& question) override {
    const Workload& workload = question.workload;
    HEDDLE_ASSIGN_OR_RETURN(device, question.device.FindDeviceOrTarget());
    std::string l2 = question.l2;
    HEDDLE_RETURN_IF_ERROR(SettleL2(*records_, *workload, device, l2));
    const tuner::Bench bench = tuner::BenchOf(device, PolicyOf(l2));
    HEDDLE_ASSIGN_OR_RETURN(answer, tuner::FindExact(*workload, bench, *records_));
    if (answer.match == tuner::Match::kExact) {
      tuner::Verdict verdict = JudgeHere(*answer.source, workload, device);
      return Known{std::move(answer), device.target.name, std::move(verdict), true, {}};
    }
    HEDDLE_ASSIGN_OR_RETURN(
        other, tuner::FallBack(question.fallback, workload, device.target, bench, records_.get()));
    return Known{std::move(other), device.target.name, {}, false, {}};
  }

  Place place() const override { return {"in " + records_->path(), "heddle tune", true}; }

  absl::StatusOr<tuner::Records::ExportReport> Export(std::ostream& out) override {
    return records_->Export(out);
  }
  absl::StatusOr<tuner::Records::ImportReport> Import(std::istream& in) override {
    return records_->Import(in);
  }

 private:
  std::unique_ptr<tuner::Records> records_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Schedules>> OpenLocalSchedules(const std::string& db) {
  HEDDLE_ASSIGN_OR_RETURN(records, OpenRecords(db));
  return std::make_unique<LocalSchedules>(std::move(records));
}

}  // namespace heddle::cli
