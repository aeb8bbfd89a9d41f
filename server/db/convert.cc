#include "server/db/convert.h"

#include <google/protobuf/io/coded_stream.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/util/json_util.h>

#include <algorithm>
#include <cstring>
#include <nlohmann/json.hpp>

#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "measure/run/processes/messages.h"
#include "proto/values.h"

namespace heddle::server {
namespace {

constexpr char kJobPrefix[] = "jobs/";
constexpr char kTrialPrefix[] = "/trials/";  // after the job's name

std::string NameOf(const char* prefix, int64_t id) {
  return absl::StrCat(prefix, absl::Hex(id, absl::kZeroPad16));
}

// 0 for what NameOf does not write.
int64_t IdIn(const std::string& name, const char* prefix) {
  int64_t id = 0;
  // Only the one way of writing a number.
  if (!absl::StartsWith(name, prefix) ||
      !absl::SimpleHexAtoi(name.substr(std::strlen(prefix)), &id) || NameOf(prefix, id) != name) {
    return 0;
  }
  return std::max<int64_t>(id, 0);
}

v1::WorkloadKey KeyOf(const tuner::WorkloadRow& row) {
  v1::WorkloadKey key;
  key.set_hash(row.hash);
  key.set_op(row.op);
  key.set_dtype(row.dtype);
  key.set_text(row.text);
  const auto shape = nlohmann::json::parse(row.shape, nullptr, false);
  for (const auto& item : shape.items()) {
    if (item.value().is_number_integer()) (*key.mutable_shape())[item.key()] = item.value();
  }
  return key;
}

v1::Environment EnvironmentOf(const tuner::Environment& environment) {
  v1::Environment message;
  message.set_device_name(environment.device_name);
  message.set_device_uuid(environment.device_uuid);
  message.set_arch(environment.arch);
  message.set_sm_count(environment.sm_count);
  message.set_driver(environment.driver);
  message.set_compiler(environment.compiler);
  message.set_generator_version(environment.generator_version);
  message.set_feature_version(environment.feature_version);
  message.set_l2(server::ToProto(environment.l2));
  message.set_memory_mib(environment.memory_mib);
  message.set_power_limit_w(environment.power_limit_w);
  return message;
}

void FillRecord(const tuner::TrialRecord& trial, v1::Record& record) {
  record.set_id(trial.id);
  record.set_point(trial.point);
  record.set_steps(trial.steps);
  record.set_final(trial.stage == tuner::TrialStage::kFinal);
  record.set_imported(trial.origin == tuner::Origin::kImported);
  *record.mutable_result() = measure::ToProto(trial.result);
  record.set_throttled(trial.throttled);
  record.set_other_processes(trial.other_processes);
  *record.mutable_measure_time() = server::ToProto(trial.when);
  record.set_host(trial.from.host);
  record.set_run(trial.from.run);
}

}  // namespace

v1::Standing ToProto(tuner::Standing standing) {
  switch (standing) {
    case tuner::Standing::kMeasured:
      return v1::STANDING_MEASURED;
    case tuner::Standing::kStale:
      return v1::STANDING_STALE;
    case tuner::Standing::kForeign:
      return v1::STANDING_FOREIGN;
  }
  return v1::STANDING_UNSPECIFIED;
}

// The values of both are in one order, of which the API's begins with "unspecified".
v1::QueryBestResponse::Match ToProto(tuner::Match match) {
  return static_cast<v1::QueryBestResponse::Match>(static_cast<int>(match) + 1);
}

tuner::Match FromProto(v1::QueryBestResponse::Match match) {
  const bool known = v1::QueryBestResponse::Match_IsValid(match);  // a newer server may have more
  return known ? static_cast<tuner::Match>(std::max(match - 1, 0)) : tuner::Match::kNone;
}

v1::QueryBestRequest::Fallback ToProto(tuner::Fallback fallback) {
  return static_cast<v1::QueryBestRequest::Fallback>(static_cast<int>(fallback) + 1);
}

tuner::Fallback FromProto(v1::QueryBestRequest::Fallback fallback) {
  const bool known = v1::QueryBestRequest::Fallback_IsValid(fallback);
  return known ? static_cast<tuner::Fallback>(std::max(fallback - 1, 0)) : tuner::Fallback::kNone;
}

v1::L2Policy ToProto(measure::L2Policy l2) {
  return l2 == measure::L2Policy::kWarm ? v1::L2_POLICY_WARM : v1::L2_POLICY_COLD;
}

measure::L2Policy FromProto(v1::L2Policy l2) {
  return l2 == v1::L2_POLICY_WARM ? measure::L2Policy::kWarm : measure::L2Policy::kCold;
}

google::protobuf::Timestamp ToProto(absl::Time time) {
  google::protobuf::Timestamp message;
  const int64_t micros = absl::ToUnixMicros(time);
  message.set_seconds(micros / 1000000);
  message.set_nanos(static_cast<int32_t>(micros % 1000000 * 1000));
  return message;
}

v1::WorkloadKey KeyOf(const search_space::TensorProgram& program) {
  v1::WorkloadKey key;
  key.set_hash(program.hash);
  key.set_op(program.op);
  key.mutable_shape()->insert(program.shape.begin(), program.shape.end());
  key.set_dtype(search_space::NameOf(program.dtype));
  key.set_text(program.canonical_text);
  return key;
}

v1::Record ToProto(const tuner::StoredTrial& stored) {
  v1::Record record;
  *record.mutable_workload() = KeyOf(stored.workload);
  *record.mutable_environment() = EnvironmentOf(stored.environment);
  FillRecord(stored.trial, record);
  return record;
}

v1::Record ToProto(const tuner::Records::Best& best, const v1::WorkloadKey& workload) {
  v1::Record record;
  *record.mutable_workload() = workload;
  *record.mutable_environment() = EnvironmentOf(best.environment);
  FillRecord(best.trial, record);
  return record;
}

tuner::StoredTrial FromProto(const v1::Record& record) {
  tuner::StoredTrial stored;
  const v1::WorkloadKey& key = record.workload();
  nlohmann::json shape = nlohmann::json::object();
  for (const auto& [name, value] : key.shape()) shape[name] = value;
  stored.workload = {key.hash(), key.op(), shape.dump(), key.dtype(), key.text()};
  const v1::Environment& e = record.environment();
  stored.environment = {e.device_name(),       e.device_uuid(),     e.arch(),
                        e.sm_count(),          e.driver(),          e.compiler(),
                        e.generator_version(), e.feature_version(), FromProto(e.l2()),
                        e.memory_mib(),        e.power_limit_w()};
  tuner::TrialRecord& trial = stored.trial;
  trial.workload_hash = key.hash();
  trial.point = record.point();
  trial.steps = record.steps();
  trial.stage = record.final() ? tuner::TrialStage::kFinal : tuner::TrialStage::kScreening;
  trial.origin = tuner::Origin::kImported;
  trial.result = measure::FromProto(record.result());
  trial.throttled = record.throttled();
  trial.other_processes = record.other_processes();
  trial.when = TimeOf(record.measure_time());
  trial.from.host = record.host();
  trial.from.run = record.run();
  return stored;
}

std::string JobName(int64_t id) { return NameOf(kJobPrefix, id); }
int64_t JobId(const std::string& name) { return IdIn(name, kJobPrefix); }

std::string TrialName(int64_t job, int64_t id) { return JobName(job) + NameOf(kTrialPrefix, id); }

int64_t TrialId(const std::string& name) {
  const size_t end = JobName(1).size();
  return name.size() < end || JobId(name.substr(0, end)) == 0
             ? 0
             : IdIn(name.substr(end), kTrialPrefix);
}

bool IsTerminal(v1::Job::State state) {
  return state == v1::Job::STATE_SUCCEEDED || state == v1::Job::STATE_FAILED ||
         state == v1::Job::STATE_CANCELLED;
}

std::string CanonicalBytes(const google::protobuf::Message& message) {
  std::string bytes;
  {
    google::protobuf::io::StringOutputStream stream(&bytes);
    google::protobuf::io::CodedOutputStream out(&stream);
    out.SetSerializationDeterministic(true);
    message.SerializeToCodedStream(&out);
  }
  return bytes;
}

std::string ToJson(const google::protobuf::Message& message) {
  std::string json;
  if (!google::protobuf::util::MessageToJsonString(message, &json).ok()) json.clear();
  return json;
}

absl::Status FromJson(const std::string& json, google::protobuf::Message& message) {
  google::protobuf::util::JsonParseOptions options;
  options.ignore_unknown_fields = true;
  const auto status = google::protobuf::util::JsonStringToMessage(json, &message, options);
  if (status.ok()) return absl::OkStatus();
  return absl::DataLossError(absl::StrCat("a stored ", message.GetTypeName(),
                                          " cannot be read: ", std::string(status.message())));
}

void HideOrigin(v1::Record& record) {
  record.clear_host();
  record.clear_run();
}

}  // namespace heddle::server
