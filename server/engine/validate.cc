#include "server/engine/validate.h"

#include <cmath>
#include <set>
#include <tuple>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "measure/codegen/dialects.h"
#include "measure/judge/memory.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "tuner/records/run_file.h"

namespace heddle::server {
namespace {

constexpr size_t kMaxText = 255;
constexpr size_t kMaxDetail = 16 << 10;         // bytes of a reason: daemons cut theirs to 4 KiB
constexpr int64_t kMaxSize = int64_t{1} << 50;  // of anything that a device may have
constexpr int kMaxAppended = 256;               // records of a call
constexpr int kMaxHeld = 1024;                  // leases and candidates of a daemon
constexpr double kMaxSeconds = 1e8;
constexpr char kNoJobName[] = "must be the name of a job, as CreateJob and ListJobs give it";
constexpr double kMaxWait = 25;
// Of a device's peak, what a program without any decision reaches where it reuses data: matrix
// products do 5 to 10 %. A device that is occupied for longer than this by one run is another's no
// more.
constexpr double kNaiveShare = 0.05, kMaxNaiveSeconds = 10;

// 1 to `size` letters, digits and characters of `others`.
bool IsName(const std::string& text, size_t size, const std::string& others) {
  if (text.empty() || text.size() > size) return false;
  for (char c : text) {
    if (!absl::ascii_isalnum(c) && others.find(c) == std::string::npos) return false;
  }
  return true;
}

void CheckRequestId(const std::string& id, const std::string& field, Violations& wrong) {
  if (!IsName(id, 128, "-_.")) {
    wrong.Add(field, "1 to 128 letters, digits, '-', '_' or '.', new for each new request");
  }
}

void CheckText(const std::string& text, const std::string& field, Violations& wrong,
               size_t most = kMaxText) {
  if (text.size() > most) wrong.Add(field, absl::StrCat("at most ", most, " bytes"));
}

void CheckCount(int64_t value, int64_t most, const std::string& field, Violations& wrong) {
  if (value < 0 || value > most) {
    wrong.Add(field, absl::StrCat(value, " is not in 0 .. ", most));
  }
}

void CheckAmount(double value, const std::string& field, Violations& wrong) {
  if (!(value >= 0) || std::isinf(value)) wrong.Add(field, "must be finite and not negative");
}

template <typename Enum>
void CheckEnum(Enum value, bool known, const std::string& field, Violations& wrong) {
  if (!known) wrong.Add(field, absl::StrCat(static_cast<int>(value), " is no value of it"));
}

// Page tokens are those who make them check (server/api/pages.h).
void CheckPageSize(int32_t size, Violations& wrong) {
  if (size < 0) wrong.Add("page_size", "must not be negative");
}

void CheckJobName(const std::string& name, const std::string& field, Violations& wrong) {
  if (JobId(name) == 0) wrong.Add(field, kNoJobName);
}

// As google.protobuf.Timestamp has it.
bool IsTime(const google::protobuf::Timestamp& time) {
  constexpr int64_t kBeginOfYear1 = -62135596800, kEndOfYear9999 = 253402300799;
  return time.nanos() >= 0 && time.nanos() <= 999999999 && time.seconds() >= kBeginOfYear1 &&
         time.seconds() <= kEndOfYear9999;
}

void CheckBudget(const v1::Budget& budget, const std::string& field, Violations& wrong) {
  CheckCount(budget.trials(), kMaxTrials, field + ".trials", wrong);
  CheckCount(budget.plateau(), kMaxTrials, field + ".plateau", wrong);
  const double seconds = SecondsOf(budget.search_duration());
  if (!(seconds >= 0 && seconds <= kMaxSeconds)) {
    wrong.Add(field + ".search_duration", absl::StrCat("from 0 to ", kMaxSeconds, " seconds"));
  }
  if (budget.trials() == 0 && budget.plateau() == 0 && seconds == 0) {
    wrong.Add(field, "at least one of trials, search_duration and plateau must be set");
  }
}

void CheckLabels(const google::protobuf::Map<std::string, std::string>& labels,
                 const std::string& field, Violations& wrong) {
  if (labels.size() > kMaxLabels) wrong.Add(field, absl::StrCat("at most ", kMaxLabels));
  for (const auto& [key, value] : labels) {
    const std::string path = absl::StrCat(field, "[", key.substr(0, 64), "]");
    if (!IsName(key, 63, "-_./")) {
      wrong.Add(path, "a key is 1 to 63 letters, digits, '-', '_', '.' or '/'");
    }
    CheckText(value, path, wrong);
  }
}

void CheckSession(const std::string& session, Violations& wrong) {
  if (session.empty() || session.size() > kMaxText) {
    wrong.Add("session", "must be what Register returned");
  }
}

void CheckDeviceState(const v1::DeviceState& state, const std::string& field, Violations& wrong) {
  CheckAmount(state.sm_clock_mhz(), field + ".sm_clock_mhz", wrong);
  CheckAmount(state.max_sm_clock_mhz(), field + ".max_sm_clock_mhz", wrong);
  CheckCount(state.other_processes(), INT32_MAX, field + ".other_processes", wrong);
}

// "\"cuda\" or \"opencl\""
std::string KnownApis() {
  return absl::StrCat("\"", absl::StrJoin(measure::ApiNames(), "\" or \""), "\"");
}

// Of a device; 0 = not known. Nothing is a hundred times as fast as the fastest there is.
void CheckRates(double peak_gflops, double memory_gbs, const std::string& prefix,
                Violations& wrong) {
  constexpr double kMostGflops = 1e7, kMostGbs = 1e6;
  const std::tuple<const char*, double, double> rates[] = {
      {"peak_gflops", peak_gflops, kMostGflops}, {"memory_gbs", memory_gbs, kMostGbs}};
  for (const auto& [name, rate, most] : rates) {
    if (rate >= 0 && rate <= most) continue;
    wrong.Add(prefix + name, absl::StrCat(rate, " is not in 0 .. ", most));
  }
}

// What the search divides by or multiplies with.
void CheckTarget(const v1::Target& target, const std::string& field, Violations& wrong) {
  if (target.name().empty()) wrong.Add(field + ".name", "must be the device's model");
  CheckText(target.name(), field + ".name", wrong);
  CheckText(target.arch(), field + ".arch", wrong);
  if (measure::FindDialect(target.api()) == nullptr) wrong.Add(field + ".api", KnownApis());
  const std::tuple<const char*, int64_t, int64_t> sizes[] = {
      {"max_threads_per_block", target.max_threads_per_block(), 1},
      {"max_shared_bytes_per_block", target.max_shared_bytes_per_block(), 0},
      {"static_shared_bytes", target.static_shared_bytes(), 0},
      {"shared_bytes_per_sm", target.shared_bytes_per_sm(), 0},
      {"registers_per_sm", target.registers_per_sm(), 1},
      {"max_registers_per_thread", target.max_registers_per_thread(), 1},
      {"max_threads_per_sm", target.max_threads_per_sm(), 1},
      {"max_blocks_per_sm", target.max_blocks_per_sm(), 1},
      {"max_grid", target.max_grid(), 1},
      {"warp_size", target.warp_size(), 1},
      {"sm_count", target.sm_count(), 1},
      {"l2_bytes", target.l2_bytes(), 0},
      {"memory_bytes", target.memory_bytes(), 0}};
  for (const auto& [name, value, least] : sizes) {
    if (value >= least && value <= kMaxSize) continue;
    wrong.Add(absl::StrCat(field, ".", name),
              absl::StrCat(value, " is not in ", least, " .. ", kMaxSize));
  }
  CheckAmount(target.clock_ghz(), field + ".clock_ghz", wrong);
  CheckRates(target.peak_gflops(), target.memory_gbs(), field + ".", wrong);
}

void CheckResult(const v1::TrialResult& result, const std::string& field, Violations& wrong) {
  CheckEnum(result.outcome(),
            v1::Outcome_IsValid(result.outcome()) && result.outcome() != v1::OUTCOME_UNSPECIFIED,
            field + ".outcome", wrong);
  const std::pair<const char*, double> times[] = {
      {"time_us", result.time_us()},
      {"ci_low_us", result.ci_low_us()},
      {"ci_high_us", result.ci_high_us()},
      {"compile_duration", SecondsOf(result.compile_duration())},
      {"load_duration", SecondsOf(result.load_duration())},
      {"validate_duration", SecondsOf(result.validate_duration())},
      {"time_duration", SecondsOf(result.time_duration())}};
  for (const auto& [name, value] : times) CheckAmount(value, absl::StrCat(field, ".", name), wrong);
  if (result.outcome() == v1::OUTCOME_OK && !(result.time_us() > 0)) {
    wrong.Add(field + ".time_us", "must be positive, as the outcome is OK");
  }
  if (result.ci_low_us() > result.ci_high_us() && result.ci_high_us() >= 0) {
    wrong.Add(field + ".ci_low_us", "must not be above ci_high_us");
  }
  const std::pair<const char*, int64_t> counts[] = {{"samples", result.samples()},
                                                    {"registers", result.registers()},
                                                    {"local_bytes", result.local_bytes()},
                                                    {"shared_bytes", result.shared_bytes()}};
  for (const auto& [name, value] : counts) {
    CheckCount(value, kMaxSize, absl::StrCat(field, ".", name), wrong);
  }
  // Without bound where an output is no number.
  if (result.max_error() < 0) wrong.Add(field + ".max_error", "must not be negative");
  CheckText(result.source_hash(), field + ".source_hash", wrong);
}

// InvalidArgument of another layer, at `field`.
absl::Status At(const std::string& field, const absl::Status& status) {
  return WrongField(field, std::string(status.message()));
}

absl::StatusOr<search_space::Operator> ParseOperator(const v1::Workload& workload,
                                                     const std::string& field) {
  if (workload.operator_case() == v1::Workload::kBuiltin) {
    auto found = search_space::FindOperator(search_space::BuiltinOperators(), workload.builtin());
    if (!found.ok()) return At(field + ".builtin", found.status());
    return found;
  }
  if (workload.op_text().size() > search_space::kMaxNotationBytes) {
    return WrongField(field + ".op_text",
                      absl::StrCat(workload.op_text().size(), " bytes; at most ",
                                   search_space::kMaxNotationBytes));
  }
  auto operators = search_space::ParseOperators(workload.op_text());
  if (!operators.ok()) return At(field + ".op_text", operators.status());
  if (operators->size() != 1) {
    return WrongField(field + ".op_text",
                      absl::StrCat("holds ", operators->size(), " operators; send one"));
  }
  return operators->front();
}

}  // namespace

absl::StatusOr<Workload> ParseWorkload(const v1::Workload& workload, const std::string& field) {
  using search_space::TensorProgram;
  auto shared = [](TensorProgram program) -> Workload {
    return std::make_shared<const TensorProgram>(std::move(program));
  };
  switch (workload.operator_case()) {
    case v1::Workload::OPERATOR_NOT_SET:
      return WrongField(field, "one of builtin, op_text and canonical must be set");
    case v1::Workload::kCanonical: {
      if (!workload.shape().empty()) {
        return WrongField(field + ".shape", "must be empty, as the canonical text has it");
      }
      if (!workload.dtype().empty()) {
        return WrongField(field + ".dtype", "must be empty, as the canonical text has it");
      }
      // A shape and a data type are added to the operator's text.
      if (workload.canonical().size() > 2 * search_space::kMaxNotationBytes) {
        return WrongField(field + ".canonical", "is too long");
      }
      auto program = search_space::ParseWorkload(workload.canonical());
      if (!program.ok()) return At(field + ".canonical", program.status());
      return shared(*std::move(program));
    }
    default:
      break;
  }
  auto dtype = search_space::ParseDType(workload.dtype().empty() ? "float32" : workload.dtype());
  if (!dtype.ok()) return At(field + ".dtype", dtype.status());
  auto op = ParseOperator(workload, field);
  if (!op.ok()) return op.status();
  std::map<std::string, int64_t> shape(workload.shape().begin(), workload.shape().end());
  auto program = op->Instantiate(shape, *dtype);
  if (!program.ok()) return At(field + ".shape", program.status());
  return shared(*std::move(program));
}

absl::StatusOr<std::vector<Workload>> ParseSpec(const v1::JobSpec& spec, absl::Time now,
                                                const std::string& field) {
  Violations wrong;
  if (spec.workloads().empty() || spec.workloads_size() > kMaxWorkloads) {
    wrong.Add(field + ".workloads",
              absl::StrCat("1 to ", kMaxWorkloads, ", not ", spec.workloads_size()));
  }
  const v1::DeviceSelector& device = spec.device();
  CheckText(device.model(), field + ".device.model", wrong);
  CheckText(device.device(), field + ".device.device", wrong);
  if (!device.api().empty() && measure::FindDialect(device.api()) == nullptr) {
    wrong.Add(field + ".device.api", KnownApis() + ", or empty for any");
  }
  CheckEnum(spec.l2(), v1::L2Policy_IsValid(spec.l2()), field + ".l2", wrong);
  CheckBudget(spec.budget(), field + ".budget", wrong);
  CheckLabels(spec.labels(), field + ".labels", wrong);
  if (spec.has_expire_time()) {
    if (!IsTime(spec.expire_time()) || FromProto(spec.expire_time()) <= now) {
      wrong.Add(field + ".expire_time", "must be a time to come");
    }
  }
  if (!spec.search().empty() && spec.search() != "random" && spec.search() != "evolutionary") {
    wrong.Add(field + ".search", "\"random\", \"evolutionary\" or empty for the server's choice");
  }
  if (spec.ByteSizeLong() > kMaxSpecBytes) {
    wrong.Add(field, absl::StrCat(spec.ByteSizeLong(), " bytes; at most ", kMaxSpecBytes,
                                  ": make several jobs of it"));
  }
  if (!wrong.empty()) return wrong.ToStatus();
  std::vector<Workload> workloads;
  size_t text_bytes = 0;
  for (int i = 0; i < spec.workloads_size(); ++i) {
    auto workload = ParseWorkload(spec.workloads(i), absl::StrCat(field, ".workloads[", i, "]"));
    if (!workload.ok()) return workload.status();
    text_bytes += (*workload)->canonical_text.size();
    if (text_bytes > kMaxSpecBytes) {
      return WrongField(field + ".workloads",
                        absl::StrCat("their texts have more than ", kMaxSpecBytes,
                                     " bytes together: make several jobs of it"));
    }
    workloads.push_back(*std::move(workload));
  }
  return workloads;
}

absl::Status CheckCost(const search_space::TensorProgram& program,
                       const search_space::Target& target) {
  if (absl::Status s = measure::CheckMemory(program, target.name, target.memory_bytes); !s.ok()) {
    return s;
  }
  const double seconds = program.Flops() / (kNaiveShare * target.peak_gflops * 1e9);
  if (target.peak_gflops > 0 && seconds > kMaxNaiveSeconds) {
    return absl::ResourceExhaustedError(absl::StrCat(
        "one run of ", program.op, " without any tuning takes about ", std::ceil(seconds), " s on ",
        target.name, ", and at most ", kMaxNaiveSeconds, " are allowed: choose a smaller shape"));
  }
  return absl::OkStatus();
}

absl::Status Check(const v1::CreateJobRequest& request) {
  Violations wrong;
  CheckRequestId(request.request_id(), "request_id", wrong);
  if (!request.has_spec()) wrong.Add("spec", "must be set");
  return wrong.ToStatus();
}

absl::Status Check(const v1::QueryBestRequest& request) {
  Violations wrong;
  if (!request.has_workload()) wrong.Add("workload", "must be set");
  CheckText(request.device(), "device", wrong);
  CheckEnum(request.l2(), v1::L2Policy_IsValid(request.l2()), "l2", wrong);
  CheckEnum(request.fallback(), v1::QueryBestRequest::Fallback_IsValid(request.fallback()),
            "fallback", wrong);
  if (request.has_enqueue()) {
    CheckRequestId(request.enqueue().request_id(), "enqueue.request_id", wrong);
    CheckBudget(request.enqueue().budget(), "enqueue.budget", wrong);
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::GetJobRequest& request) {
  Violations wrong;
  CheckJobName(request.name(), "name", wrong);
  CheckEnum(request.view(), v1::JobView_IsValid(request.view()), "view", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::CancelJobRequest& request) {
  Violations wrong;
  CheckJobName(request.name(), "name", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::ListJobsRequest& request) {
  Violations wrong;
  CheckPageSize(request.page_size(), wrong);
  CheckEnum(request.view(), v1::JobView_IsValid(request.view()), "view", wrong);
  for (int state : request.filter().states()) {
    CheckEnum(state, v1::Job::State_IsValid(state) && state != 0, "filter.states", wrong);
  }
  CheckLabels(request.filter().labels(), "filter.labels", wrong);
  CheckText(request.filter().tenant(), "filter.tenant", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::ListTrialsRequest& request) {
  Violations wrong;
  CheckJobName(request.parent(), "parent", wrong);
  CheckPageSize(request.page_size(), wrong);
  CheckEnum(request.view(), v1::TrialView_IsValid(request.view()), "view", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::WatchJobRequest& request) {
  Violations wrong;
  CheckJobName(request.name(), "name", wrong);
  CheckCount(request.after_seq(), INT64_MAX - 1, "after_seq", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::ExportRequest& request) {
  Violations wrong;
  CheckText(request.filter().op(), "filter.op", wrong);
  CheckText(request.filter().device(), "filter.device", wrong);
  CheckCount(request.after_id(), INT64_MAX, "after_id", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::Record& record) {
  Violations wrong;
  CheckEnum(record.environment().l2(), v1::L2Policy_IsValid(record.environment().l2()),
            "environment.l2", wrong);
  const v1::Outcome outcome = record.result().outcome();
  CheckEnum(outcome, v1::Outcome_IsValid(outcome) && outcome != v1::OUTCOME_UNSPECIFIED,
            "result.outcome", wrong);
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

absl::Status Check(const v1::RegisterRequest& request) {
  Violations wrong;
  if (!IsName(request.host_uuid(), 64, "-")) {
    wrong.Add("host_uuid", "1 to 64 letters, digits or '-'");
  }
  CheckText(request.boot_id(), "boot_id", wrong);
  if (!request.instance().empty() && !IsName(request.instance(), 64, "-")) {
    wrong.Add("instance", "at most 64 letters, digits or '-'");
  }
  CheckText(request.hostname(), "hostname", wrong);
  CheckText(request.build(), "build", wrong);
  if (request.generator() <= 0) wrong.Add("generator", "must be the generator's version");
  if (request.devices_size() > kMaxDevices) {
    wrong.Add("devices", absl::StrCat("at most ", kMaxDevices));
  }
  std::set<std::string> ids;
  for (int i = 0; i < std::min(request.devices_size(), kMaxDevices); ++i) {
    const v1::Device& device = request.devices(i);
    const std::string path = absl::StrCat("devices[", i, "]");
    if (!IsName(device.id(), 64, ":-_.") || !ids.insert(device.id()).second) {
      wrong.Add(path + ".id", "1 to 64 letters, digits, ':', '-', '_' or '.', unique in a session");
    }
    CheckTarget(device.target(), path + ".target", wrong);
    CheckText(device.uuid(), path + ".uuid", wrong);
    CheckText(device.driver(), path + ".driver", wrong);
    CheckText(device.compiler(), path + ".compiler", wrong);
    if (!device.usable()) wrong.Add(path + ".usable", "must be true: register usable devices only");
    CheckText(device.why_not(), path + ".why_not", wrong, kMaxDetail);
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::AcquireRequest& request) {
  Violations wrong;
  CheckSession(request.session(), wrong);
  CheckText(request.device(), "device", wrong);
  CheckRequestId(request.request_id(), "request_id", wrong);
  if (request.max() < 1 || request.max() > kMaxCandidates) {
    wrong.Add("max", absl::StrCat("1 to ", kMaxCandidates));
  }
  const double wait = SecondsOf(request.wait_duration());
  if (!(wait >= 0 && wait <= kMaxWait)) {
    wrong.Add("wait_duration", absl::StrCat("0 to ", kMaxWait, " seconds"));
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::ReportRequest& request) {
  Violations wrong;
  CheckSession(request.session(), wrong);
  if (request.lease() <= 0) wrong.Add("lease", "must be a lease's id");
  if (request.results_size() < 1 || request.results_size() > kMaxCandidates) {
    wrong.Add("results", absl::StrCat("1 to ", kMaxCandidates));
  }
  for (int i = 0; i < std::min(request.results_size(), kMaxCandidates); ++i) {
    const v1::CandidateResult& reported = request.results(i);
    const std::string path = absl::StrCat("results[", i, "]");
    if (reported.candidate() <= 0) wrong.Add(path + ".candidate", "must be a candidate's id");
    CheckResult(reported.result(), path + ".result", wrong);
    CheckDeviceState(reported.device_state(), path + ".device_state", wrong);
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::HeartbeatRequest& request) {
  Violations wrong;
  CheckSession(request.session(), wrong);
  if (request.device_states_size() > kMaxDevices) {
    wrong.Add("device_states", absl::StrCat("at most ", kMaxDevices));
  }
  for (int i = 0; i < std::min(request.device_states_size(), kMaxDevices); ++i) {
    const v1::WorkerStatus& status = request.device_states(i);
    const std::string path = absl::StrCat("device_states[", i, "]");
    CheckText(status.device(), path + ".device", wrong);
    CheckEnum(status.state(),
              v1::WorkerStatus::State_IsValid(status.state()) && status.state() != 0,
              path + ".state", wrong);
    CheckDeviceState(status.device_state(), path + ".device_state", wrong);
    CheckText(status.detail(), path + ".detail", wrong, kMaxDetail);
  }
  for (const auto& [field, size] :
       {std::pair("running", request.running_size()), std::pair("leases", request.leases_size())}) {
    if (size > kMaxHeld) wrong.Add(field, absl::StrCat("at most ", kMaxHeld));
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::ReleaseRequest& request) {
  Violations wrong;
  CheckSession(request.session(), wrong);
  if (request.lease() <= 0) wrong.Add("lease", "must be a lease's id");
  if (request.unstarted_size() > kMaxCandidates) {
    wrong.Add("unstarted", absl::StrCat("at most ", kMaxCandidates));
  }
  CheckEnum(request.fault(), v1::ReleaseRequest::Fault_IsValid(request.fault()), "fault", wrong);
  if (v1::ReleaseRequest::Fault_IsValid(request.fault()) &&
      request.fault() > v1::ReleaseRequest::FAULT_NONE && request.detail().empty()) {
    wrong.Add("detail", "must say what the fault is");
  }
  CheckText(request.detail(), "detail", wrong, kMaxDetail);
  return wrong.ToStatus();
}

template <typename Request>
absl::Status CheckList(const Request& request) {
  Violations wrong;
  CheckPageSize(request.page_size(), wrong);
  return wrong.ToStatus();
}
absl::Status Check(const v1::ListDevicesRequest& request) { return CheckList(request); }
absl::Status Check(const v1::ListModelsRequest& request) { return CheckList(request); }
absl::Status Check(const v1::ListHostsRequest& request) { return CheckList(request); }

absl::Status Check(const v1::SetDeviceStateRequest& request) {
  Violations wrong;
  if (request.id().empty() || request.id().size() > kMaxText) {
    wrong.Add("id", "must be the id of a device, as `ListDevices` has it");
  }
  if (request.state() != v1::FleetDevice::STATE_ENABLED &&
      request.state() != v1::FleetDevice::STATE_DRAINING) {
    wrong.Add("state", "STATE_ENABLED or STATE_DRAINING");
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::PinModelRequest& request) {
  Violations wrong;
  if (request.name().empty()) wrong.Add("name", "must be the model, as `ListModels` has it");
  CheckText(request.name(), "name", wrong);
  CheckText(request.device(), "device", wrong);
  CheckRates(request.peak_gflops(), request.memory_gbs(), "", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::SetHostRequest& request) {
  Violations wrong;
  if (!IsName(request.host_uuid(), 64, "-")) {
    wrong.Add("host_uuid", "must be that of a host, as `ListHosts` has it");
  }
  CheckEnum(request.action(),
            v1::SetHostRequest::Action_IsValid(request.action()) && request.action() != 0, "action",
            wrong);
  return wrong.ToStatus();
}

int PageSize(int32_t asked) { return asked == 0 ? kDefaultPage : std::min(asked, kMaxPage); }

}  // namespace heddle::server
