// Any message: the validators refuse it with the field that is wrong, or what they accepted can be
// worked with. The first byte chooses the message, the rest is its wire format.
#include <string>

#include "absl/strings/match.h"
#include "absl/time/time.h"
#include "server/db/errors.h"
#include "server/engine/validate.h"
#include "tests/fuzz/fuzz.h"

using heddle::tests::Hold;
namespace server = heddle::server;
namespace v1 = heddle::v1;

namespace {

// A refusal is INVALID_ARGUMENT, says what is wrong, and fits into the headers of a reply.
void HoldRefusal(const absl::Status& status) {
  if (status.ok()) return;
  Hold(absl::IsInvalidArgument(status), status.ToString());
  Hold(!status.message().empty(), "a refusal without a reason");
  constexpr size_t kMostHeaders = 8000;
  const grpc::Status sent = server::ToGrpc(status);
  Hold(sent.error_message().size() + sent.error_details().size() < kMostHeaders,
       "a refusal is too long to arrive");
}

template <typename Message>
void CheckOne(const std::string& bytes) {
  Message message;
  if (message.ParseFromString(bytes)) HoldRefusal(server::Check(message));
}

void CheckSpec(const std::string& bytes) {
  v1::JobSpec spec;
  if (!spec.ParseFromString(bytes)) return;
  auto workloads = server::ParseSpec(spec, absl::UnixEpoch());
  HoldRefusal(workloads.status());
  if (!workloads.ok()) return;
  Hold(static_cast<int>(workloads->size()) == spec.workloads_size(), "workloads are lost");
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string bytes(reinterpret_cast<const char*>(data + 1), size - 1);
  using Check = void (*)(const std::string&);
  constexpr Check kChecks[] = {
      CheckSpec,
      CheckOne<v1::CreateJobRequest>,
      CheckOne<v1::QueryBestRequest>,
      CheckOne<v1::ListJobsRequest>,
      CheckOne<v1::ListTrialsRequest>,
      CheckOne<v1::WatchJobRequest>,
      CheckOne<v1::ExportRequest>,
      CheckOne<v1::AppendRequest>,
      CheckOne<v1::RetractRequest>,
      CheckOne<v1::RegisterRequest>,
      CheckOne<v1::AcquireRequest>,
      CheckOne<v1::ReportRequest>,
      CheckOne<v1::HeartbeatRequest>,
      CheckOne<v1::ReleaseRequest>,
      CheckOne<v1::ListDevicesRequest>,
      CheckOne<v1::SetDeviceStateRequest>,
      CheckOne<v1::WaitJobRequest>,
      CheckOne<v1::RetryJobRequest>,
      CheckOne<v1::UpdateJobRequest>,
  };
  kChecks[data[0] % (sizeof kChecks / sizeof kChecks[0])](bytes);
  return 0;
}
