// Conversions between stored records and the API's messages. Those of devices and results are
// measure/run/processes/messages.h.
#ifndef HEDDLE_SERVER_DB_CONVERT_H_
#define HEDDLE_SERVER_DB_CONVERT_H_

#include <google/protobuf/timestamp.pb.h>

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "heddle/v1/common.pb.h"
#include "heddle/v1/tuning.pb.h"
#include "measure/device/outcome.h"
#include "search_space/ir/tensor_program.h"
#include "tuner/artefact/query.h"
#include "tuner/records/records.h"
#include "tuner/records/records_fields.h"
#include "tuner/search/default_point.h"

namespace heddle::server {

v1::L2Policy ToProto(measure::L2Policy l2);
v1::Standing ToProto(tuner::Standing standing);
v1::QueryBestResponse::Match ToProto(tuner::Match match);
tuner::Match FromProto(v1::QueryBestResponse::Match match);  // unspecified is none, as below
v1::QueryBestRequest::Fallback ToProto(tuner::Fallback fallback);
tuner::Fallback FromProto(v1::QueryBestRequest::Fallback fallback);
// Unspecified is cold.
measure::L2Policy FromProto(v1::L2Policy l2);

google::protobuf::Timestamp ToProto(absl::Time time);

v1::WorkloadKey KeyOf(const search_space::TensorProgram& program);
v1::Record ToProto(const tuner::StoredTrial& stored);
v1::Record ToProto(const tuner::Records::Best& best, const v1::WorkloadKey& workload);
// Of what another tenant has measured: which job it was for, and on whose machine, stays theirs.
void HideOrigin(v1::Record& record);
// Does not check the values: tuner::ParseLine does.
tuner::StoredTrial FromProto(const v1::Record& record);

// "jobs/0000000000000011" <-> 17; 0 for what is no such name.
std::string JobName(int64_t id);
int64_t JobId(const std::string& name);
// "jobs/0000000000000011/trials/0000000000000022" <-> 34, of job 17; 0 likewise.
std::string TrialName(int64_t job, int64_t id);
int64_t TrialId(const std::string& name);
bool IsTerminal(v1::Job::State state);

// The same for equal messages, maps included.
std::string CanonicalBytes(const google::protobuf::Message& message);

// Fields in their JSON form, for columns of text.
std::string ToJson(const google::protobuf::Message& message);
absl::Status FromJson(const std::string& json, google::protobuf::Message& message);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_DB_CONVERT_H_
