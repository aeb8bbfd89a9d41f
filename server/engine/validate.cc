// Requests of the service Tuning, and what all have of workloads.
#include "server/engine/validate.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "measure/codegen/dialects.h"
#include "measure/judge/inputs.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/notation_limits.h"
#include "server/db/convert.h"
#include "server/engine/validate_fields.h"

namespace heddle::server {
namespace {

constexpr double kMaxSeconds = 1e8;
constexpr int kMaxPriority = 100;
// What UpdateJob takes.
constexpr char kLabelsPath[] = "spec.labels", kPriorityPath[] = "spec.priority", kAllPaths[] = "*";

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

void CheckPriority(int32_t priority, const std::string& field, Violations& wrong) {
  if (std::abs(int64_t{priority}) > kMaxPriority) {
    wrong.Add(field, absl::StrCat("from ", -kMaxPriority, " to ", kMaxPriority));
  }
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
  const auto shared = [](TensorProgram program, const std::string& of) -> absl::StatusOr<Workload> {
    if (absl::Status s = measure::CheckTypes(program); !s.ok()) return At(of, s);
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
      return shared(*std::move(program), field + ".canonical");
    }
    default:
      break;
  }
  auto dtype = search_space::ParseDType(workload.dtype().empty() ? "float32" : workload.dtype());
  if (!dtype.ok()) return At(field + ".dtype", dtype.status());
  HEDDLE_ASSIGN_OR_RETURN(op, ParseOperator(workload, field));
  std::map<std::string, int64_t> shape(workload.shape().begin(), workload.shape().end());
  auto program = op.Instantiate(shape, *dtype);
  if (!program.ok()) return At(field + ".shape", program.status());
  return shared(*std::move(program), field + (workload.dtype().empty() ? ".op_text" : ".dtype"));
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
  CheckEnum(spec.l2(), field + ".l2", wrong);
  CheckBudget(spec.budget(), field + ".budget", wrong);
  CheckLabels(spec.labels(), field + ".labels", wrong);
  CheckPriority(spec.priority(), field + ".priority", wrong);
  if (spec.has_expire_time()) {
    if (!IsTime(spec.expire_time()) || TimeOf(spec.expire_time()) <= now) {
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
    HEDDLE_ASSIGN_OR_RETURN(
        workload, ParseWorkload(spec.workloads(i), absl::StrCat(field, ".workloads[", i, "]")));
    text_bytes += workload->canonical_text.size();
    if (text_bytes > kMaxSpecBytes) {
      return WrongField(field + ".workloads",
                        absl::StrCat("their texts have more than ", kMaxSpecBytes,
                                     " bytes together: make several jobs of it"));
    }
    workloads.push_back(std::move(workload));
  }
  return workloads;
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
  CheckEnum(request.l2(), "l2", wrong);
  CheckEnum(request.fallback(), "fallback", wrong);
  if (request.has_enqueue()) {
    CheckRequestId(request.enqueue().request_id(), "enqueue.request_id", wrong);
    CheckBudget(request.enqueue().budget(), "enqueue.budget", wrong);
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::GetJobRequest& request) {
  Violations wrong;
  CheckJobName(request.name(), "name", wrong);
  CheckEnum(request.view(), "view", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::CancelJobRequest& request) {
  Violations wrong;
  CheckJobName(request.name(), "name", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::WaitJobRequest& request) {
  Violations wrong;
  CheckJobName(request.name(), "name", wrong);
  const double seconds = SecondsOf(request.timeout());
  if (!(seconds >= 0 && seconds <= kMaxWaitForJob)) {
    wrong.Add("timeout", absl::StrCat("0 to ", kMaxWaitForJob, " seconds"));
  }
  CheckEnum(request.view(), "view", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::RetryJobRequest& request) {
  Violations wrong;
  CheckJobName(request.name(), "name", wrong);
  CheckRequestId(request.request_id(), "request_id", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::UpdateJobRequest& request) {
  Violations wrong;
  CheckJobName(request.job().name(), "job.name", wrong);
  for (const std::string& path : request.update_mask().paths()) {
    if (path == kLabelsPath || path == kPriorityPath || path == kAllPaths) continue;
    wrong.Add("update_mask", absl::StrCat("\"", kLabelsPath, "\", \"", kPriorityPath, "\" and \"",
                                          kAllPaths, "\", which is both, can be changed"));
    break;
  }
  CheckLabels(request.job().spec().labels(), "job.spec.labels", wrong);
  CheckPriority(request.job().spec().priority(), "job.spec.priority", wrong);
  const JobUpdate update = UpdateOf(request);
  if (wrong.empty() && !update.labels && !update.priority) {
    wrong.Add("update_mask", "must name what is to be changed, as nothing in `job` is set");
  }
  return wrong.ToStatus();
}

absl::Status Check(const v1::ListJobsRequest& request) {
  Violations wrong;
  CheckPageSize(request.page_size(), wrong);
  CheckEnum(request.view(), "view", wrong);
  for (int state : request.filter().states()) {
    CheckChosen(static_cast<v1::Job::State>(state), "filter.states", wrong);
  }
  CheckLabels(request.filter().labels(), "filter.labels", wrong);
  CheckText(request.filter().tenant(), "filter.tenant", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::ListTrialsRequest& request) {
  Violations wrong;
  CheckJobName(request.parent(), "parent", wrong);
  CheckPageSize(request.page_size(), wrong);
  CheckEnum(request.view(), "view", wrong);
  return wrong.ToStatus();
}

absl::Status Check(const v1::WatchJobRequest& request) {
  Violations wrong;
  CheckJobName(request.name(), "name", wrong);
  CheckCount(request.after_seq(), INT64_MAX - 1, "after_seq", wrong);
  return wrong.ToStatus();
}

JobUpdate UpdateOf(const v1::UpdateJobRequest& request) {
  const v1::JobSpec& spec = request.job().spec();
  bool labels = !spec.labels().empty(), priority = spec.priority() != 0;
  if (const auto& paths = request.update_mask().paths(); !paths.empty()) {
    const auto has = [&](const char* field) {
      return std::any_of(paths.begin(), paths.end(), [&](const std::string& path) {
        return path == field || path == kAllPaths;
      });
    };
    labels = has(kLabelsPath);
    priority = has(kPriorityPath);
  }
  JobUpdate update;
  if (labels) update.labels.emplace(spec.labels().begin(), spec.labels().end());
  if (priority) update.priority = spec.priority();
  return update;
}

int PageSize(int32_t asked) { return asked == 0 ? kDefaultPage : std::min(asked, kMaxPage); }

}  // namespace heddle::server
