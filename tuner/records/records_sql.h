// The statements of the records, and how fields travel between them and C++.
#ifndef HEDDLE_TUNER_RECORDS_RECORDS_SQL_H_
#define HEDDLE_TUNER_RECORDS_RECORDS_SQL_H_

#include <optional>
#include <string>

#include "absl/time/time.h"
#include "base/sqlite.h"
#include "measure/device/outcome.h"
#include "tuner/records/records_fields.h"

namespace heddle::tuner {

// Binds the fields that it is shown, in order.
struct Binder {
  Cursor& to;

  template <typename T>
  void operator()(const char*, const T& value) const {
    to.Bind(value);
  }
  void operator()(const char*, bool value) const { to.Bind(int{value}); }
  void operator()(const char*, absl::Time value) const { to.Bind(absl::ToUnixMicros(value)); }
  void operator()(const char*, TrialStage value) const {
    to.Bind(int{value == TrialStage::kFinal});
  }
  void operator()(const char*, Origin value) const { to.Bind(int{value == Origin::kImported}); }
  void operator()(const char*, measure::Outcome value) const {
    to.Bind(std::string(NameOf(value)));
  }
  void operator()(const char*, measure::L2Policy value) const {
    to.Bind(std::string(NameOf(value)));
  }
};

// Reads the fields that it is shown from consecutive columns. `valid` ends false when one holds
// something that is no value of its field: the row is damaged.
struct RowReader {
  const Cursor& from;
  int column = 0;
  bool valid = true;

  void operator()(const char*, std::string& value) { value = from.Text(column++); }
  void operator()(const char*, int64_t& value) { value = from.Int(column++); }
  void operator()(const char*, double& value) { value = from.Real(column++); }
  void operator()(const char*, int& value) {
    const int64_t wide = from.Int(column++);
    value = static_cast<int>(wide);
    valid &= value == wide;
  }
  void operator()(const char*, bool& value) { value = Flag(); }
  void operator()(const char*, absl::Time& value) {
    value = absl::FromUnixMicros(from.Int(column++));
  }
  void operator()(const char*, TrialStage& value) {
    value = Flag() ? TrialStage::kFinal : TrialStage::kScreening;
  }
  void operator()(const char*, Origin& value) {
    value = Flag() ? Origin::kImported : Origin::kMeasured;
  }
  void operator()(const char*, measure::Outcome& value) {
    Named(measure::ParseOutcome(from.Text(column++)), value);
  }
  void operator()(const char*, measure::L2Policy& value) {
    Named(measure::ParseL2Policy(from.Text(column++)), value);
  }

 private:
  bool Flag() {
    const int64_t flag = from.Int(column++);
    valid &= flag == 0 || flag == 1;
    return flag == 1;
  }
  template <typename Enum>
  void Named(std::optional<Enum> parsed, Enum& value) {
    valid &= parsed.has_value();
    value = parsed.value_or(Enum{});
  }
};

// workload, bench, environment, steps, source, checksum, fields
const std::string& InsertTrial();
const std::string& InsertEnvironment();  // fields
const std::string& SelectWorkload();     // hash, text, op, shape, dtype -> id
const std::string& SelectEnvironment();  // fields -> id
// device name, L2 policy, sm_count, memory, power limit -> ids of benches: that which is all this,
// the first one of about the same memory, and all of the name with whether they agree.
const std::string& SelectBench();
const std::string& SelectNearBench();
const std::string& SelectBenches();
// "t.point, t.final, ...": what VisitTrial reads of a row `t` of trial.
const std::string& TrialFields();
// What is served of (workload, bench), the fastest first, how many, after how many -> trial, time,
// interval, number of steps.
const std::string& SelectServed();
// trial, by failures alone -> Records::IsSuperseded.
const std::string& SelectLaterElsewhere();
// Trials as id, checksum, fields, workload, environment, steps, source:
const std::string& SelectHistory();   // workload, bench: measured here, oldest first
const std::string& SelectImported();  // workload, bench, how many: OK points, fastest first
const std::string& SelectPage();      // after which id, how many
// After which id, up to which, op, device name, tenant ('' = any), least stage, how many.
const std::string& SelectChosen();
const std::string& SelectOne();  // id
// workload, bench, when, environment, final, time, point, steps -> id and whether it was imported.
const std::string& SelectSame();
// op, bench -> hash, shape, dtype of workloads with a trial that is served.
const std::string& SelectNeighbours();

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_RECORDS_RECORDS_SQL_H_
