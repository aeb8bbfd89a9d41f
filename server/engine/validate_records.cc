// Requests of the service Records.
#include <utility>

#include "absl/strings/str_cat.h"
#include "server/engine/validate.h"
#include "server/engine/validate_fields.h"
#include "tuner/records/transfer/run_file.h"

namespace heddle::server {
namespace {

constexpr int kMaxAppended = 256;  // records of a call

}  // namespace

absl::Status Check(const v1::ExportRequest& request) {
  Violations wrong;
  CheckText(request.filter().op(), "filter.op", wrong);
  CheckText(request.filter().device(), "filter.device", wrong);
  CheckCount(request.after_id(), INT64_MAX, "after_id", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::Record& record) {
  Violations wrong;
  CheckEnum(record.environment().l2(), "environment.l2", wrong);
  CheckChosen(record.result().outcome(), "result.outcome", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::AppendRequest& request) {
  Violations wrong;
  const v1::AppendRequest::Run& run = request.run();
  if (!tuner::IsRunName(run.name())) {
    wrong.Add("run.name", "1 to 128 letters, digits and \"-_.\", the first a letter or a digit");
  }
  if (run.attempt() < 0) wrong.Add("run.attempt", "a number from 0 on");
  if (run.host().empty()) wrong.Add("run.host", "must name the host that has measured");
  CheckText(run.host(), "run.host", wrong);
  if (request.first_sequence() < 1 || request.first_sequence() > INT64_MAX - kMaxAppended) {
    wrong.Add("first_sequence", "a number from 1 on, as lines of a file have");
  }
  if (request.records().empty() || request.records_size() > kMaxAppended) {
    wrong.Add("records", absl::StrCat("1 to ", kMaxAppended));
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::RetractRequest& request) {
  Violations wrong;
  CheckRequestId(request.request_id(), "request_id", wrong);
  switch (request.what_case()) {
    case v1::RetractRequest::kId:
      if (request.id() <= 0) wrong.Add("id", "must be a record's id, which is positive");
      break;
    case v1::RetractRequest::kWorkloadHash:
      if (request.workload_hash().size() != 16 ||
          request.workload_hash().find_first_not_of("0123456789abcdef") != std::string::npos) {
        wrong.Add("workload_hash", "16 hexadecimal digits, as WorkloadKey.hash has them");
      }
      break;
    case v1::RetractRequest::kDeviceUuid:
      if (request.device_uuid().empty()) wrong.Add("device_uuid", "must not be empty");
      CheckText(request.device_uuid(), "device_uuid", wrong);
      break;
    case v1::RetractRequest::kImported:
      if (!request.imported()) wrong.Add("imported", "must be true");
      break;
    case v1::RetractRequest::kOrigin: {
      const v1::RetractRequest::Origin& origin = request.origin();
      if (origin.tenant().empty() && origin.token() == 0 && origin.host().empty() &&
          origin.run().empty()) {
        wrong.Add("origin", "at least one of tenant, token, host and run must be set");
      }
      for (const auto& [field, text] :
           {std::pair("tenant", &origin.tenant()), std::pair("host", &origin.host()),
            std::pair("run", &origin.run())}) {
        CheckText(*text, absl::StrCat("origin.", field), wrong);
      }
      CheckCount(origin.token(), INT64_MAX, "origin.token", wrong);
      break;
    }
    case v1::RetractRequest::WHAT_NOT_SET:
      wrong.Add("what", "one of id, workload_hash, device_uuid, imported and origin must be set");
  }
  for (const auto& [field, time] : {std::pair("start_time", &request.start_time()),
                                    std::pair("end_time", &request.end_time())}) {
    if (!IsTime(*time)) wrong.Add(field, "must be a time of the years 1 to 9999");
  }
  if (request.reason().empty()) wrong.Add("reason", "must say why, for the log");
  CheckText(request.reason(), "reason", wrong);
  return wrong.ToStatus();
}

}  // namespace heddle::server
