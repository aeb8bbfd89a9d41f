#include "server/engine/validate.h"

#include <gmock/gmock.h>
#include <google/protobuf/any.pb.h>
#include <gtest/gtest.h>

#include <functional>
#include <limits>
#include <set>

#include "absl/strings/str_cat.h"
#include "heddle/v1/errors.pb.h"
#include "proto/values.h"
#include "server/db/convert.h"
#include "server/db/errors.h"
#include "tests/server/engine_support.h"

namespace heddle::server {
namespace {

// The fields that a refusal names, as a caller reads them from its details.
std::set<std::string> FieldsOf(const absl::Status& status) {
  const grpc::Status sent = ToGrpc(status);
  EXPECT_EQ(sent.error_code(), grpc::StatusCode::INVALID_ARGUMENT) << sent.error_message();
  EXPECT_LT(sent.error_details().size(), 4096);
  v1::RpcStatus details;
  EXPECT_TRUE(details.ParseFromString(sent.error_details()));
  std::set<std::string> fields;
  for (const auto& any : details.details()) {
    v1::BadRequest bad;
    if (any.type_url() != "type.googleapis.com/google.rpc.BadRequest") continue;
    EXPECT_TRUE(bad.ParseFromString(any.value()));
    for (const auto& violation : bad.field_violations()) {
      EXPECT_FALSE(violation.description().empty());
      fields.insert(violation.field());
    }
  }
  return fields;
}

// A right request with one thing changed, and the field that is wrong then.
template <typename Request>
struct Case {
  const char* field;
  std::function<void(Request&)> damage;
};

template <typename Request, typename CheckIt>
void ExpectRefused(const Request& right, const std::vector<Case<Request>>& cases,
                   const CheckIt& check) {
  EXPECT_TRUE(check(right).ok()) << check(right);
  for (const auto& c : cases) {
    Request wrong = right;
    c.damage(wrong);
    const absl::Status status = check(wrong);
    ASSERT_FALSE(status.ok()) << c.field << ": " << wrong.ShortDebugString();
    EXPECT_THAT(FieldsOf(status), testing::ElementsAre(c.field));
  }
}

template <typename Request>
absl::Status CheckAny(const Request& request) {
  return Check(request);
}

const double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(ValidateTest, EveryFieldOfASpecification) {
  using S = v1::JobSpec;
  const std::vector<Case<S>> cases = {
      {"spec.workloads", [](S& s) { s.clear_workloads(); }},
      {"spec.workloads",
       [](S& s) {
         while (s.workloads_size() <= kMaxWorkloads) *s.add_workloads() = s.workloads(0);
       }},
      {"spec.workloads[0]", [](S& s) { s.mutable_workloads(0)->clear_builtin(); }},
      {"spec.workloads[0].builtin", [](S& s) { s.mutable_workloads(0)->set_builtin("matmull"); }},
      {"spec.workloads[0].op_text", [](S& s) { s.mutable_workloads(0)->set_op_text("op f("); }},
      {"spec.workloads[0].op_text",
       [](S& s) { s.mutable_workloads(0)->set_op_text(std::string(70000, ' ')); }},
      {"spec.workloads[0].op_text",
       [](S& s) {
         const char* two =
             "op f(n) { in A[n] out B[i: n] = A[i] } op g(n) { in A[n] out B[i: n] "
             "= A[i] }";
         s.mutable_workloads(0)->set_op_text(two);
       }},
      {"spec.workloads[0].canonical",
       [](S& s) {
         s.mutable_workloads(0)->set_canonical("nonsense");
         s.mutable_workloads(0)->clear_shape();
       }},
      {"spec.workloads[0].shape",
       [](S& s) { s.mutable_workloads(0)->set_canonical("float32 op"); }},
      {"spec.workloads[0].dtype",
       [](S& s) {
         s.mutable_workloads(0)->set_canonical("float32 op");
         s.mutable_workloads(0)->clear_shape();
         s.mutable_workloads(0)->set_dtype("float32");
       }},
      {"spec.workloads[0].shape",
       [](S& s) { (*s.mutable_workloads(0)->mutable_shape())["m"] = 0; }},
      {"spec.workloads[0].shape",
       [](S& s) { (*s.mutable_workloads(0)->mutable_shape())["q"] = 1; }},
      {"spec.workloads[0].shape",
       [](S& s) { s.mutable_workloads(0)->mutable_shape()->erase("m"); }},
      {"spec.workloads[0].shape",
       [](S& s) { (*s.mutable_workloads(0)->mutable_shape())["m"] = int64_t{1} << 60; }},
      {"spec.workloads[0].dtype", [](S& s) { s.mutable_workloads(0)->set_dtype("float33"); }},
      {"spec.workloads[0].dtype", [](S& s) { s.mutable_workloads(0)->set_dtype("float64"); }},
      {"spec.device.api", [](S& s) { s.mutable_device()->set_api("metal"); }},
      {"spec.device.model", [](S& s) { s.mutable_device()->set_model(std::string(300, 'x')); }},
      {"spec.device.device", [](S& s) { s.mutable_device()->set_device(std::string(300, 'x')); }},
      {"spec.l2", [](S& s) { s.set_l2(static_cast<v1::L2Policy>(7)); }},
      {"spec.budget", [](S& s) { s.clear_budget(); }},
      {"spec.budget.trials", [](S& s) { s.mutable_budget()->set_trials(-1); }},
      {"spec.budget.trials", [](S& s) { s.mutable_budget()->set_trials(kMaxTrials + 1); }},
      {"spec.budget.plateau", [](S& s) { s.mutable_budget()->set_plateau(-1); }},
      {"spec.budget.search_duration",
       [](S& s) { *s.mutable_budget()->mutable_search_duration() = DurationOf(-1); }},
      {"spec.budget.search_duration",
       [](S& s) { s.mutable_budget()->mutable_search_duration()->set_nanos(1000000000); }},
      {"spec.labels[a b]", [](S& s) { (*s.mutable_labels())["a b"] = ""; }},
      {"spec.labels[k]", [](S& s) { (*s.mutable_labels())["k"] = std::string(256, 'v'); }},
      {"spec.labels",
       [](S& s) {
         for (int i = 0; i <= kMaxLabels; ++i) (*s.mutable_labels())[absl::StrCat(i)] = "";
       }},
      {"spec.expire_time", [](S& s) { s.mutable_expire_time()->set_seconds(1); }},
      {"spec.expire_time",
       [](S& s) {
         s.mutable_expire_time()->set_seconds(4000000000);
         s.mutable_expire_time()->set_nanos(-1);
       }},
      {"spec.search", [](S& s) { s.set_search("clairvoyant"); }},
  };
  ExpectRefused<S>(MatmulSpec(10), cases,
                   [](const S& s) { return ParseSpec(s, absl::Now()).status(); });
}

TEST(ValidateTest, SeveralWrongFieldsAreNamedTogether) {
  v1::JobSpec spec = MatmulSpec(10);
  spec.mutable_device()->set_api("metal");
  spec.mutable_budget()->set_trials(-1);
  EXPECT_THAT(FieldsOf(ParseSpec(spec, absl::Now()).status()),
              testing::ElementsAre("spec.budget.trials", "spec.device.api"));
}

TEST(ValidateTest, TuningRequests) {
  v1::CreateJobRequest create;
  create.set_request_id("a-1_b.2");
  *create.mutable_spec() = MatmulSpec(1);
  ExpectRefused<v1::CreateJobRequest>(
      create,
      {{"request_id", [](auto& r) { r.clear_request_id(); }},
       {"request_id", [](auto& r) { r.set_request_id("white space"); }},
       {"request_id", [](auto& r) { r.set_request_id(std::string(129, 'x')); }},
       {"spec", [](auto& r) { r.clear_spec(); }}},
      CheckAny<v1::CreateJobRequest>);

  v1::QueryBestRequest query;
  query.mutable_workload()->set_builtin("matmul");
  query.mutable_enqueue()->set_request_id("r");
  query.mutable_enqueue()->mutable_budget()->set_trials(1);
  ExpectRefused<v1::QueryBestRequest>(
      query,
      {{"workload", [](auto& r) { r.clear_workload(); }},
       {"device", [](auto& r) { r.set_device(std::string(300, 'x')); }},
       {"l2", [](auto& r) { r.set_l2(static_cast<v1::L2Policy>(9)); }},
       {"fallback",
        [](auto& r) { r.set_fallback(static_cast<v1::QueryBestRequest::Fallback>(9)); }},
       {"enqueue.request_id", [](auto& r) { r.mutable_enqueue()->clear_request_id(); }},
       {"enqueue.budget", [](auto& r) { r.mutable_enqueue()->clear_budget(); }}},
      CheckAny<v1::QueryBestRequest>);

  ExpectRefused<v1::ListJobsRequest>(
      {},
      {{"page_size", [](auto& r) { r.set_page_size(-1); }},
       {"view", [](auto& r) { r.set_view(static_cast<v1::JobView>(3)); }},
       {"filter.states",
        [](auto& r) { r.mutable_filter()->add_states(static_cast<v1::Job::State>(99)); }},
       {"filter.labels[a b]", [](auto& r) { (*r.mutable_filter()->mutable_labels())["a b"]; }}},
      CheckAny<v1::ListJobsRequest>);

  v1::ListTrialsRequest trials;
  trials.set_parent(JobName(1));
  ExpectRefused<v1::ListTrialsRequest>(trials,
                                       {{"parent", [](auto& r) { r.set_parent("1"); }},
                                        {"parent", [](auto& r) { r.set_parent("jobs/1"); }},
                                        {"page_size", [](auto& r) { r.set_page_size(-1); }},
                                        {"view", [](auto& r) { r.set_view(v1::TrialView(7)); }}},
                                       CheckAny<v1::ListTrialsRequest>);

  v1::WaitJobRequest wait;
  wait.set_name(JobName(1));
  ExpectRefused<v1::WaitJobRequest>(
      wait,
      {{"name", [](auto& r) { r.set_name("jobs/1"); }},
       {"timeout", [](auto& r) { r.mutable_timeout()->set_seconds(-1); }},
       {"timeout", [](auto& r) { r.mutable_timeout()->set_seconds(3601); }},
       {"view", [](auto& r) { r.set_view(static_cast<v1::JobView>(9)); }}},
      CheckAny<v1::WaitJobRequest>);
  v1::RetryJobRequest retry;
  retry.set_name(JobName(1));
  retry.set_request_id("r");
  ExpectRefused<v1::RetryJobRequest>(retry,
                                     {{"name", [](auto& r) { r.clear_name(); }},
                                      {"request_id", [](auto& r) { r.clear_request_id(); }}},
                                     CheckAny<v1::RetryJobRequest>);
  v1::UpdateJobRequest update;
  update.mutable_job()->set_name(JobName(1));
  update.mutable_job()->mutable_spec()->set_priority(100);
  ExpectRefused<v1::UpdateJobRequest>(
      update,
      {{"job.name", [](auto& r) { r.mutable_job()->clear_name(); }},
       {"job.spec.priority", [](auto& r) { r.mutable_job()->mutable_spec()->set_priority(101); }},
       {"job.spec.priority",
        [](auto& r) { r.mutable_job()->mutable_spec()->set_priority(INT32_MIN); }},
       {"job.spec.labels[]",
        [](auto& r) { (*r.mutable_job()->mutable_spec()->mutable_labels())[""] = "x"; }},
       {"update_mask", [](auto& r) { r.mutable_update_mask()->add_paths("spec.budget"); }},
       {"update_mask", [](auto& r) { r.mutable_job()->mutable_spec()->clear_priority(); }}},
      CheckAny<v1::UpdateJobRequest>);
  update.mutable_update_mask()->add_paths("*");
  EXPECT_TRUE(UpdateOf(update).labels.has_value()) << "which are then removed";
  EXPECT_EQ(UpdateOf(update).priority, 100);
  v1::WatchJobRequest watch;
  watch.set_name(JobName(1));
  ExpectRefused<v1::WatchJobRequest>(watch,
                                     {{"name", [](auto& r) { r.set_name("jobs/x"); }},
                                      {"after_seq", [](auto& r) { r.set_after_seq(-1); }},
                                      {"after_seq", [](auto& r) { r.set_after_seq(INT64_MAX); }}},
                                     CheckAny<v1::WatchJobRequest>);
}

TEST(ValidateTest, RecordsRequests) {
  ExpectRefused<v1::ExportRequest>(
      {},
      {{"filter.op", [](auto& r) { r.mutable_filter()->set_op(std::string(300, 'x')); }},
       {"filter.device", [](auto& r) { r.mutable_filter()->set_device(std::string(300, 'x')); }},
       {"after_id", [](auto& r) { r.set_after_id(-1); }}},
      CheckAny<v1::ExportRequest>);
  v1::AppendRequest append;
  append.mutable_run()->set_name("suite-1");
  append.mutable_run()->set_host("n1");
  append.set_first_sequence(1);
  append.add_records();
  ExpectRefused<v1::AppendRequest>(
      append,
      {{"run.name", [](auto& r) { r.mutable_run()->set_name("../x"); }},
       {"run.attempt", [](auto& r) { r.mutable_run()->set_attempt(-1); }},
       {"run.host", [](auto& r) { r.mutable_run()->clear_host(); }},
       {"run.host", [](auto& r) { r.mutable_run()->set_host(std::string(300, 'x')); }},
       {"first_sequence", [](auto& r) { r.clear_first_sequence(); }},
       {"first_sequence", [](auto& r) { r.set_first_sequence(INT64_MAX); }},
       {"records", [](auto& r) { r.clear_records(); }},
       {"records",
        [](auto& r) {
          while (r.records_size() < 257) r.add_records();
        }}},
      CheckAny<v1::AppendRequest>);
  v1::RetractRequest retract;
  retract.set_request_id("r");
  retract.set_id(7);
  retract.set_reason("a broken device");
  ExpectRefused<v1::RetractRequest>(
      retract,
      {{"request_id", [](auto& r) { r.set_request_id("?"); }},
       {"what", [](auto& r) { r.clear_id(); }},
       {"id", [](auto& r) { r.set_id(0); }},
       {"workload_hash", [](auto& r) { r.set_workload_hash("short"); }},
       {"workload_hash", [](auto& r) { r.set_workload_hash("' OR 1 = 1; ----"); }},
       {"device_uuid", [](auto& r) { r.set_device_uuid(""); }},
       {"device_uuid", [](auto& r) { r.set_device_uuid(std::string(300, 'x')); }},
       {"imported", [](auto& r) { r.set_imported(false); }},
       {"origin", [](auto& r) { r.mutable_origin(); }},
       {"origin.token", [](auto& r) { r.mutable_origin()->set_token(-1); }},
       {"origin.host", [](auto& r) { r.mutable_origin()->set_host(std::string(300, 'x')); }},
       {"start_time", [](auto& r) { r.mutable_start_time()->set_nanos(-1); }},
       {"end_time", [](auto& r) { r.mutable_end_time()->set_seconds(INT64_MAX); }},
       {"reason", [](auto& r) { r.clear_reason(); }},
       {"reason", [](auto& r) { r.set_reason(std::string(300, 'x')); }}},
      CheckAny<v1::RetractRequest>);
  v1::Record record;
  record.mutable_result()->set_outcome(v1::OUTCOME_OK);
  ExpectRefused<v1::Record>(
      record,
      {{"environment.l2",
        [](auto& r) { r.mutable_environment()->set_l2(static_cast<v1::L2Policy>(9)); }},
       {"result.outcome", [](auto& r) { r.mutable_result()->clear_outcome(); }},
       {"result.outcome",
        [](auto& r) { r.mutable_result()->set_outcome(static_cast<v1::Outcome>(99)); }}},
      CheckAny<v1::Record>);
}

// What is read with a number of a device: each of its fields, found by reflection, so that a new
// one cannot be forgotten.
TEST(ValidateTest, EveryNumberOfADevice) {
  v1::RegisterRequest hello;
  hello.set_host_uuid("abc-1");
  hello.set_generator(1);
  *hello.add_devices() = H100();
  std::vector<std::string> names;
  std::vector<Case<v1::RegisterRequest>> cases;
  const auto* fields = v1::Target::descriptor();
  for (int i = 0; i < fields->field_count(); ++i) {
    const google::protobuf::FieldDescriptor* field = fields->field(i);
    const auto damage = [&](auto set) {
      names.push_back("devices[0].target." + field->name());
      cases.push_back({"", [=](v1::RegisterRequest& r) {
                         v1::Target* target = r.mutable_devices(0)->mutable_target();
                         set(*target->GetReflection(), target, field);
                       }});
    };
    using google::protobuf::FieldDescriptor;
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_INT64) {
      for (int64_t value : {int64_t{-1}, INT64_MAX}) {
        damage([=](auto& set, auto* t, auto* f) { set.SetInt64(t, f, value); });
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_DOUBLE) {
      for (double value : {-1.0, kNan, std::numeric_limits<double>::infinity()}) {
        damage([=](auto& set, auto* t, auto* f) { set.SetDouble(t, f, value); });
      }
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      damage([=](auto& set, auto* t, auto* f) { set.SetString(t, f, std::string(300, 'x')); });
    }
  }
  ASSERT_GT(cases.size(), 30);
  for (size_t i = 0; i < cases.size(); ++i) cases[i].field = names[i].c_str();
  ExpectRefused<v1::RegisterRequest>(hello, cases, CheckAny<v1::RegisterRequest>);
}

TEST(ValidateTest, FleetRequests) {
  v1::RegisterRequest hello;
  hello.set_host_uuid("abc-1");
  hello.set_generator(1);
  *hello.add_devices() = H100();
  ExpectRefused<v1::RegisterRequest>(
      hello,
      {{"host_uuid", [](auto& r) { r.set_host_uuid("a/b"); }},
       {"host_uuid", [](auto& r) { r.clear_host_uuid(); }},
       {"boot_id", [](auto& r) { r.set_boot_id(std::string(300, 'x')); }},
       {"hostname", [](auto& r) { r.set_hostname(std::string(300, 'x')); }},
       {"build", [](auto& r) { r.set_build(std::string(300, 'x')); }},
       {"generator", [](auto& r) { r.set_generator(0); }},
       {"devices[1].id", [](auto& r) { *r.add_devices() = r.devices(0); }},
       {"devices[0].id", [](auto& r) { r.mutable_devices(0)->set_id("a/b"); }},
       {"devices[0].target.name",
        [](auto& r) { r.mutable_devices(0)->mutable_target()->clear_name(); }},
       {"devices[0].target.api",
        [](auto& r) { r.mutable_devices(0)->mutable_target()->set_api("metal"); }},
       {"devices[0].target.warp_size",
        [](auto& r) { r.mutable_devices(0)->mutable_target()->set_warp_size(0); }},
       {"devices[0].uuid", [](auto& r) { r.mutable_devices(0)->set_uuid(std::string(300, 'x')); }},
       {"devices[0].driver",
        [](auto& r) { r.mutable_devices(0)->set_driver(std::string(300, 'x')); }},
       {"devices[0].compiler",
        [](auto& r) { r.mutable_devices(0)->set_compiler(std::string(300, 'x')); }},
       {"devices[0].usable", [](auto& r) { r.mutable_devices(0)->set_usable(false); }},
       {"devices[0].why_not",
        [](auto& r) { r.mutable_devices(0)->set_why_not(std::string(20000, 'x')); }},
       {"devices",
        [](auto& r) {
          for (int i = 0; i < kMaxDevices; ++i)
            *r.add_devices() = H100(absl::StrCat("cuda:", i + 1));
        }}},
      CheckAny<v1::RegisterRequest>);

  v1::AcquireRequest acquire;
  acquire.set_session("s");
  acquire.set_request_id("r");
  acquire.set_max(32);
  ExpectRefused<v1::AcquireRequest>(
      acquire,
      {{"session", [](auto& r) { r.clear_session(); }},
       {"device", [](auto& r) { r.set_device(std::string(300, 'x')); }},
       {"request_id", [](auto& r) { r.clear_request_id(); }},
       {"max", [](auto& r) { r.set_max(0); }},
       {"max", [](auto& r) { r.set_max(33); }},
       {"wait_duration", [](auto& r) { *r.mutable_wait_duration() = DurationOf(26); }},
       {"wait_duration", [](auto& r) { *r.mutable_wait_duration() = DurationOf(-1e-9); }}},
      CheckAny<v1::AcquireRequest>);

  v1::Lease lease;
  lease.set_id(5);
  lease.add_candidates()->set_id(9);
  using R = v1::ReportRequest;
  auto result = [](R& r) { return r.mutable_results(0)->mutable_result(); };
  ExpectRefused<R>(
      ReportOf("s", lease),
      {{"session", [](R& r) { r.clear_session(); }},
       {"lease", [](R& r) { r.set_lease(0); }},
       {"results", [](R& r) { r.clear_results(); }},
       {"results",
        [](R& r) {
          while (r.results_size() <= kMaxCandidates) *r.add_results() = r.results(0);
        }},
       {"results[0].candidate", [](R& r) { r.mutable_results(0)->set_candidate(0); }},
       {"results[0].result.outcome", [&](R& r) { result(r)->clear_outcome(); }},
       {"results[0].result.outcome",
        [&](R& r) { result(r)->set_outcome(static_cast<v1::Outcome>(77)); }},
       {"results[0].result.time_us", [&](R& r) { result(r)->set_time_us(0); }},
       {"results[0].result.ci_low_us", [&](R& r) { result(r)->set_ci_low_us(kNan); }},
       {"results[0].result.ci_high_us", [&](R& r) { result(r)->set_ci_high_us(-1); }},
       {"results[0].result.compile_duration",
        [&](R& r) { *result(r)->mutable_compile_duration() = DurationOf(-1); }},
       {"results[0].result.load_duration",
        [&](R& r) { result(r)->mutable_load_duration()->set_nanos(-1000000000); }},
       {"results[0].result.validate_duration",
        [&](R& r) { *result(r)->mutable_validate_duration() = DurationOf(-1); }},
       {"results[0].result.time_duration",
        [&](R& r) { result(r)->mutable_time_duration()->set_seconds(INT64_MAX); }},
       {"results[0].result.samples", [&](R& r) { result(r)->set_samples(-1); }},
       {"results[0].result.registers", [&](R& r) { result(r)->set_registers(-1); }},
       {"results[0].result.local_bytes", [&](R& r) { result(r)->set_local_bytes(-1); }},
       {"results[0].result.shared_bytes", [&](R& r) { result(r)->set_shared_bytes(-1); }},
       {"results[0].result.ci_low_us", [&](R& r) { result(r)->set_ci_low_us(1e9); }},
       {"results[0].result.max_error", [&](R& r) { result(r)->set_max_error(-1); }},
       {"results[0].device_state.sm_clock_mhz",
        [](R& r) { r.mutable_results(0)->mutable_device_state()->set_sm_clock_mhz(kNan); }},
       {"results[0].device_state.max_sm_clock_mhz",
        [](R& r) { r.mutable_results(0)->mutable_device_state()->set_max_sm_clock_mhz(-1); }},
       {"results[0].device_state.other_processes",
        [](R& r) { r.mutable_results(0)->mutable_device_state()->set_other_processes(-1); }},
       {"results[0].result.source_hash",
        [&](R& r) { result(r)->set_source_hash(std::string(300, 'x')); }}},
      CheckAny<R>);

  v1::HeartbeatRequest beat;
  beat.set_session("s");
  beat.add_device_states()->set_state(v1::WorkerStatus::STATE_IDLE);
  ExpectRefused<v1::HeartbeatRequest>(
      beat,
      {{"session", [](auto& r) { r.clear_session(); }},
       {"device_states[0].state", [](auto& r) { r.mutable_device_states(0)->clear_state(); }},
       {"device_states[0].device",
        [](auto& r) { r.mutable_device_states(0)->set_device(std::string(300, 'x')); }},
       {"device_states[0].detail",
        [](auto& r) { r.mutable_device_states(0)->set_detail(std::string(20000, 'x')); }},
       {"device_states[0].device_state.sm_clock_mhz",
        [](auto& r) {
          r.mutable_device_states(0)->mutable_device_state()->set_sm_clock_mhz(kNan);
        }},
       {"device_states",
        [](auto& r) {
          while (r.device_states_size() <= kMaxDevices) *r.add_device_states() = r.device_states(0);
        }},
       {"running", [](auto& r) { r.mutable_running()->Resize(2000, 1); }},
       {"leases", [](auto& r) { r.mutable_leases()->Resize(2000, 1); }}},
      CheckAny<v1::HeartbeatRequest>);

  v1::ReleaseRequest release;
  release.set_session("s");
  release.set_lease(4);
  ExpectRefused<v1::ReleaseRequest>(
      release,
      {{"session", [](auto& r) { r.clear_session(); }},
       {"lease", [](auto& r) { r.set_lease(-2); }},
       {"unstarted", [](auto& r) { r.mutable_unstarted()->Resize(40, 1); }},
       {"fault", [](auto& r) { r.set_fault(static_cast<v1::ReleaseRequest::Fault>(9)); }},
       {"detail", [](auto& r) { r.set_fault(v1::ReleaseRequest::FAULT_WORKLOAD); }},
       {"detail", [](auto& r) { r.set_detail(std::string(20000, 'x')); }}},
      CheckAny<v1::ReleaseRequest>);

  v1::SetDeviceStateRequest set;
  set.set_name("hosts/host/devices/cuda:0");
  set.set_state(v1::FleetDevice::STATE_DRAINING);
  ExpectRefused<v1::SetDeviceStateRequest>(
      set, {{"name", [](auto& r) { r.clear_name(); }}, {"state", [](auto& r) { r.clear_state(); }}},
      CheckAny<v1::SetDeviceStateRequest>);
  ExpectRefused<v1::ListDevicesRequest>({}, {{"page_size", [](auto& r) { r.set_page_size(-1); }}},
                                        CheckAny<v1::ListDevicesRequest>);
}

TEST(ValidateTest, DurationsAreSeconds) {
  for (const double seconds : {0.0, 1.0, 0.25, -1.5, 1e8, 12.000000001}) {
    EXPECT_NEAR(SecondsOf(DurationOf(seconds)), seconds, 1e-9) << seconds;
  }
  EXPECT_EQ(DurationOf(0.9999999999).seconds(), 1) << "rounded, not cut";
  EXPECT_EQ(DurationOf(kNan).seconds(), 0);
  EXPECT_EQ(DurationOf(1e300).seconds(), 315576000000);
  google::protobuf::Duration mixed;
  mixed.set_seconds(1);
  mixed.set_nanos(-1);
  EXPECT_TRUE(std::isnan(SecondsOf(mixed)));
}

TEST(ValidateTest, ValuesHaveWordsWithoutTheirPrefix) {
  EXPECT_EQ(WordOf(v1::Job::STATE_WAITING_DEVICE), "WAITING_DEVICE");
  EXPECT_EQ(WordOf(v1::OUTCOME_OK), "OK");
  EXPECT_EQ(WordOf(static_cast<v1::Job::State>(99)), "99");
}

TEST(ValidateTest, AnEnumIsRefusedWithTheValueThatItHas) {
  v1::SetHostRequest host;
  host.set_host_uuid("h");
  for (const int action : {0, 99}) {  // one that must be chosen
    host.set_action(static_cast<v1::SetHostRequest::Action>(action));
    EXPECT_THAT(std::string(Check(host).message()),
                testing::HasSubstr(absl::StrCat(action, " is no value of it")));
  }
  v1::GetJobRequest job;  // one that need not be
  job.set_name(JobName(1));
  EXPECT_TRUE(Check(job).ok()) << Check(job);
  job.set_view(static_cast<v1::JobView>(99));
  EXPECT_THAT(FieldsOf(Check(job)), testing::ElementsAre("view"));
}

}  // namespace
}  // namespace heddle::server
