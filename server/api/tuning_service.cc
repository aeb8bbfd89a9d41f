// The Tuning service of the API (proto/heddle/v1/tuning.proto).
#include <memory>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "heddle/v1/tuning.grpc.pb.h"
#include "measure/codegen/codegen.h"
#include "measure/run/processes/messages.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"
#include "search_space/notation/notation_limits.h"
#include "server/api/audit.h"
#include "server/api/pages.h"
#include "server/api/services.h"
#include "server/api/wait.h"
#include "server/api/watch.h"
#include "server/db/convert.h"
#include "server/db/trust/confirmations.h"
#include "server/engine/byte_cache.h"
#include "server/engine/validate.h"
#include "server/fleet/jobs/cost.h"
#include "tuner/artefact/query.h"
#include "tuner/model/features.h"

namespace heddle::server {
namespace {

// The description of a model: of a device that has registered, or one that ships with the program.
absl::StatusOr<v1::Device> FindModel(const Engine& engine, const std::string& model) {
  auto known = engine.FindModel(model);
  if (known == nullptr) known = ShippedModel(model);
  if (known != nullptr) return known->device;
  return WrongField("device", absl::StrCat("no device \"", model,
                                           "\" has registered here; `heddle devices --server` "
                                           "lists those that have"));
}

// In memory, about.
size_t BytesOf(const search_space::TensorProgram& program) {
  size_t nodes = 0;
  for (const search_space::Stage& stage : program.stages) {
    search_space::Visit(stage.body, [&](const search_space::Expr&) { ++nodes; });
  }
  return nodes * (sizeof(search_space::ExprNode) + 16) + 2 * program.canonical_text.size() + 4096;
}

std::vector<std::string> StaleBecause(const Engine& engine, const tuner::Environment& then) {
  std::vector<std::string> changed;
  if (!measure::SameCode(then.generator_version, measure::kGeneratorVersion)) {
    changed.push_back("generator");
  }
  for (std::string& what : engine.ChangedSince(then)) changed.push_back(std::move(what));
  return changed;
}

// Of a device that the selector admits; NotFound without one.
absl::StatusOr<v1::Device> FindDevice(const Engine& engine, const v1::DeviceSelector& asked) {
  for (const v1::FleetDevice& d : engine.Devices()) {
    const bool matches = (asked.model().empty() || d.device().target().name() == asked.model()) &&
                         (asked.api().empty() || d.device().target().api() == asked.api()) &&
                         (asked.device().empty() || d.name() == asked.device());
    if (matches) return FindModel(engine, d.device().target().name());
  }
  return absl::NotFoundError("no device that matches has registered");
}

v1::WorkloadInfo Describe(const Workload& workload, const absl::StatusOr<v1::Device>& device,
                          Spaces& spaces) {
  v1::WorkloadInfo info;
  *info.mutable_workload() = KeyOf(*workload);
  info.set_bytes(workload->IoBytes());
  info.set_flops(workload->Flops());
  absl::Status status = device.status();
  if (device.ok()) {
    searcher::SpaceQuestion question;
    question.set_workload(workload->canonical_text);
    *question.mutable_device() = *device;
    const auto answer = spaces.Ask(question);
    if (answer.ok()) info.set_points(answer->points());
    status = answer.status();
  }
  info.set_emptied_by(std::string(status.message()));
  return info;
}

// A call that makes a job, which the log names where there is one.
Reply<v1::Job> AuditedJob(const Caller& caller, const char* method, const std::string& request_id,
                          Reply<v1::Job> reply) {
  return [=, reply = std::move(reply)](absl::StatusOr<v1::Job> job) {
    LogChange(caller, method, request_id, job.status(), {{"job", job.ok() ? job->name() : ""}});
    reply(std::move(job));
  };
}

class TuningService final : public v1::Tuning::CallbackService {
 public:
  TuningService(const Gateway& gateway, std::string build, int open_jobs_per_tenant)
      : gateway_(gateway), build_(std::move(build)), open_jobs_(open_jobs_per_tenant) {}

  grpc::ServerUnaryReactor* GetServerInfo(grpc::CallbackServerContext* context,
                                          const v1::GetServerInfoRequest* request,
                                          v1::ServerInfo* response) override {
    return Unary(gateway_, "GetServerInfo", Role::kReader, Where::kInline, context, request,
                 response, [this](const Caller&, const Reply<v1::ServerInfo>& reply) {
                   v1::ServerInfo info;
                   info.set_build(build_);
                   info.set_generator(measure::kGeneratorVersion);
                   info.set_feature_version(tuner::kFeatureVersion);
                   info.set_epoch(gateway_.engine.epoch());
                   v1::Limits& limits = *info.mutable_limits();
                   limits.set_workloads_per_job(kMaxWorkloads);
                   limits.set_op_text_bytes(search_space::kMaxNotationBytes);
                   limits.set_trials_per_job(kMaxTrials);
                   limits.set_open_jobs_per_tenant(open_jobs_);
                   limits.set_page_size(kMaxPage);
                   limits.set_labels(kMaxLabels);
                   limits.set_candidates_per_lease(kMaxCandidates);
                   reply(info);
                 });
  }

  grpc::ServerUnaryReactor* Validate(grpc::CallbackServerContext* context,
                                     const v1::ValidateRequest* request,
                                     v1::ValidateResponse* response) override {
    return Unary(gateway_, "Validate", Role::kReader, Where::kHeavy, context, request, response,
                 [=, this](const Caller&, const Reply<v1::ValidateResponse>& reply) {
                   auto workloads = ParseSpec(request->spec(), absl::Now());
                   if (!workloads.ok()) return reply(workloads.status());
                   const auto device = FindDevice(gateway_.engine, request->spec().device());
                   v1::ValidateResponse answer;
                   for (const Workload& w : *workloads) {
                     if (context->IsCancelled()) return reply(absl::CancelledError("cancelled"));
                     *answer.add_workloads() = Describe(w, device, gateway_.spaces);
                   }
                   reply(answer);
                 });
  }

  grpc::ServerUnaryReactor* CreateJob(grpc::CallbackServerContext* context,
                                      const v1::CreateJobRequest* request,
                                      v1::Job* response) override {
    return Unary(gateway_, "CreateJob", Role::kTuner, Where::kHeavy, context, request, response,
                 [this, request](const Caller& caller, Reply<v1::Job> plain) {
                   const Reply<v1::Job> reply =
                       AuditedJob(caller, "CreateJob", request->request_id(), plain);
                   if (absl::Status s = Check(*request); !s.ok()) return reply(s);
                   {
                     // A request that is sent again is not looked at again: times to come have
                     // passed, devices have gone.
                     auto reader = gateway_.store.Read();
                     auto made = FindRequest(*reader, caller.tenant, "CreateJob",
                                             request->request_id(), HashOfRequest(request->spec()));
                     if (!made.ok()) return reply(made.status());
                     if (made->has_value()) return reply(LoadJob(*reader, **made, caller.tenant));
                   }
                   if (absl::Status s = gateway_.store.CheckRoomForOthers(); !s.ok()) {
                     return reply(s);
                   }
                   auto workloads = ParseSpec(request->spec(), absl::Now());
                   if (!workloads.ok()) return reply(workloads.status());
                   const auto device = FindDevice(gateway_.engine, request->spec().device());
                   for (size_t i = 0; device.ok() && i < workloads->size(); ++i) {
                     const absl::Status s =
                         CheckCost(*(*workloads)[i], measure::FromProto(*device).target);
                     if (s.ok()) continue;
                     return reply(WrongField(absl::StrCat("spec.workloads[", i, "].shape"),
                                             std::string(s.message())));
                   }
                   gateway_.engine.CreateJob(caller.tenant, "CreateJob", request->request_id(),
                                             request->spec(), *std::move(workloads), reply);
                 });
  }

  grpc::ServerUnaryReactor* GetJob(grpc::CallbackServerContext* context,
                                   const v1::GetJobRequest* request, v1::Job* response) override {
    return Unary(gateway_, "GetJob", Role::kReader, Where::kInline, context, request, response,
                 [this, request](const Caller& caller, const Reply<v1::Job>& reply) {
                   if (absl::Status s = Check(*request); !s.ok()) return reply(s);
                   auto reader = gateway_.store.Read();
                   auto job = LoadJob(*reader, JobId(request->name()), VisibleTenant(caller));
                   if (job.ok() && request->view() == v1::JOB_VIEW_BASIC) LeaveOutTexts(*job);
                   reply(std::move(job));
                 });
  }

  grpc::ServerUnaryReactor* ListJobs(grpc::CallbackServerContext* context,
                                     const v1::ListJobsRequest* request,
                                     v1::ListJobsResponse* response) override {
    return Unary(gateway_, "ListJobs", Role::kReader, Where::kLight, context, request, response,
                 [=, this](const Caller& caller, const Reply<v1::ListJobsResponse>& reply) {
                   if (absl::Status s = Check(*request); !s.ok()) return reply(s);
                   auto position = PagePosition(*request);
                   if (!position.ok()) return reply(position.status());
                   int64_t before = 0;
                   if (!position->empty() && !absl::SimpleAtoi(*position, &before)) {
                     return reply(WrongPageToken());
                   }
                   auto reader = gateway_.store.Read([context] { return context->IsCancelled(); });
                   const bool all = caller.role == Role::kAdmin;
                   auto jobs = LoadJobs(*reader, all ? request->filter().tenant() : caller.tenant,
                                        request->filter(), request->view() == v1::JOB_VIEW_FULL,
                                        before, PageSize(request->page_size()));
                   if (!jobs.ok()) return reply(jobs.status());
                   v1::ListJobsResponse page;
                   for (v1::Job& job : *jobs) *page.add_jobs() = std::move(job);
                   if (before > 0)
                     page.set_next_page_token(PageToken(*request, absl::StrCat(before)));
                   reply(page);
                 });
  }

  grpc::ServerUnaryReactor* CancelJob(grpc::CallbackServerContext* context,
                                      const v1::CancelJobRequest* request,
                                      v1::Job* response) override {
    return Unary(gateway_, "CancelJob", Role::kTuner, Where::kInline, context, request, response,
                 [this, request](const Caller& caller, Reply<v1::Job> plain) {
                   const Reply<v1::Job> reply = Audited(
                       caller, "CancelJob", "", {{"job", request->name()}}, std::move(plain));
                   if (absl::Status s = Check(*request); !s.ok()) return reply(s);
                   gateway_.engine.CancelJob(caller, JobId(request->name()), reply);
                 });
  }

  grpc::ServerUnaryReactor* RetryJob(grpc::CallbackServerContext* context,
                                     const v1::RetryJobRequest* request,
                                     v1::Job* response) override {
    return Unary(
        gateway_, "RetryJob", Role::kTuner, Where::kHeavy, context, request, response,
        [this, request](const Caller& caller, Reply<v1::Job> plain) {
          const Reply<v1::Job> reply = Audited(caller, "RetryJob", request->request_id(),
                                               {{"job", request->name()}}, std::move(plain));
          if (absl::Status s = Check(*request); !s.ok()) return reply(s);
          gateway_.engine.RetryJob(caller, JobId(request->name()), request->request_id(), reply);
        });
  }

  grpc::ServerUnaryReactor* UpdateJob(grpc::CallbackServerContext* context,
                                      const v1::UpdateJobRequest* request,
                                      v1::Job* response) override {
    return Unary(gateway_, "UpdateJob", Role::kTuner, Where::kHeavy, context, request, response,
                 [this, request](const Caller& caller, Reply<v1::Job> plain) {
                   const Reply<v1::Job> reply = Audited(
                       caller, "UpdateJob", "", {{"job", request->job().name()}}, std::move(plain));
                   if (absl::Status s = Check(*request); !s.ok()) return reply(s);
                   if (absl::Status s = gateway_.store.CheckRoomForOthers(); !s.ok()) {
                     return reply(s);
                   }
                   gateway_.engine.UpdateJob(caller, JobId(request->job().name()),
                                             UpdateOf(*request), reply);
                 });
  }

  grpc::ServerUnaryReactor* WaitJob(grpc::CallbackServerContext* context,
                                    const v1::WaitJobRequest* request, v1::Job* response) override {
    return StartWait(gateway_, AdmitWatcher(*context, *request), *context, *request, response);
  }

  grpc::ServerWriteReactor<v1::JobEvent>* WatchJob(grpc::CallbackServerContext* context,
                                                   const v1::WatchJobRequest* request) override {
    return StartWatch(gateway_, AdmitWatcher(*context, *request), *request);
  }

  grpc::ServerUnaryReactor* ListTrials(grpc::CallbackServerContext* context,
                                       const v1::ListTrialsRequest* request,
                                       v1::ListTrialsResponse* response) override {
    return Unary(
        gateway_, "ListTrials", Role::kReader, Where::kLight, context, request, response,
        [=, this](const Caller& caller, const Reply<v1::ListTrialsResponse>& reply) {
          if (absl::Status s = Check(*request); !s.ok()) return reply(s);
          const int64_t job = JobId(request->parent());
          auto reader = gateway_.store.Read([context] { return context->IsCancelled(); });
          if (auto found = LoadJob(*reader, job, VisibleTenant(caller)); !found.ok()) {
            return reply(found.status());
          }
          auto position = PagePosition(*request);
          if (!position.ok()) return reply(position.status());
          std::optional<TrialPosition> after;
          if (!position->empty()) {
            after.emplace();
            const size_t dot = position->find('.');
            if (dot == std::string::npos ||
                !absl::SimpleAtoi(position->substr(0, dot), &after->seq) ||
                !absl::SimpleAtoi(position->substr(dot + 1), &after->id)) {
              return reply(WrongPageToken());
            }
          }
          const int size = PageSize(request->page_size());
          auto trials = LoadTrials(*reader, job, after, size);
          if (!trials.ok()) return reply(trials.status());
          v1::ListTrialsResponse page;
          for (v1::Trial& trial : *trials) {
            if (request->view() != v1::TRIAL_VIEW_FULL) trial.clear_steps();
            *page.add_trials() = std::move(trial);
          }
          if (page.trials_size() == size) {
            const v1::Trial& last = page.trials(size - 1);
            const int64_t last_id = TrialId(last.name());
            page.set_next_page_token(PageToken(*request, absl::StrCat(last.seq(), ".", last_id)));
          }
          reply(page);
        });
  }

  grpc::ServerUnaryReactor* QueryBest(grpc::CallbackServerContext* context,
                                      const v1::QueryBestRequest* request,
                                      v1::QueryBestResponse* response) override {
    const Role role = request->has_enqueue() ? Role::kTuner : Role::kReader;
    return Unary(
        gateway_, "QueryBest", role, Where::kInline, context, request, response,
        [=, this](const Caller& caller, const Reply<v1::QueryBestResponse>& reply) {
          if (absl::Status s = Check(*request); !s.ok()) return reply(s);
          auto model = ModelOf(request->device());
          if (!model.ok()) return reply(model.status());
          auto workload = ParseCached(request->workload(), "workload");
          if (!workload.ok()) return reply(workload.status());
          v1::QueryBestResponse answer;
          answer.set_match(v1::QueryBestResponse::MATCH_NONE);
          answer.set_device(*model);
          *answer.mutable_workload() = KeyOf(**workload);
          // As it has registered; any of its name where it has not.
          const auto registered = gateway_.engine.FindModel(*model);
          const auto described = registered != nullptr ? registered : ShippedModel(*model);
          absl::StatusOr<std::optional<Served>> exact;
          {
            auto reader = gateway_.store.Read();
            const auto find = [&](v1::L2Policy l2) {
              exact = FindServed(
                  *reader, **workload,
                  registered != nullptr ? tuner::BenchOf(registered->info, FromProto(l2))
                                        : tuner::Bench{*model, FromProto(l2)},
                  described != nullptr && described->known(),
                  [this](const std::string& host) { return gateway_.engine.TrustsHost(host); });
              return !exact.ok() || exact->has_value();
            };
            const bool any = request->l2() == v1::L2_POLICY_UNSPECIFIED;
            if (!find(any ? v1::L2_POLICY_COLD : request->l2()) && any) find(v1::L2_POLICY_WARM);
          }
          if (!exact.ok()) return reply(exact.status());
          if (exact->has_value()) {
            const Served& served = **exact;
            answer.set_match(v1::QueryBestResponse::MATCH_EXACT);
            answer.set_steps(served.best.trial.steps);
            answer.set_validated(served.validated);
            answer.set_confirmations(served.confirmations);
            *answer.mutable_record() = ToProto(served.best, answer.workload());
            if (caller.role != Role::kAdmin && served.best.trial.from.tenant != caller.tenant) {
              HideOrigin(*answer.mutable_record());
            }
            const tuner::Verdict verdict = Judge(served.best, *workload, described.get());
            answer.set_standing(ToProto(verdict.standing));
            for (const std::string& why : verdict.changed) answer.add_stale_because(why);
            gateway_.metrics.CountQuery("exact", verdict.standing != tuner::Standing::kMeasured);
            return reply(std::move(answer));
          }
          if (FromProto(request->fallback()) == tuner::Fallback::kNone && !request->has_enqueue()) {
            gateway_.metrics.CountQuery("none", false);
            return reply(std::move(answer));
          }
          const bool taken = gateway_.heavy.Run(caller.tenant, [=, this, workload = *workload] {
            if (context->IsCancelled()) return reply(absl::CancelledError("cancelled"));
            Answer(*request, caller, workload, answer, reply);
          });
          if (!taken) reply(Busy("the server has too many such calls waiting; try again"));
        });
  }

 private:
  // Who asks to be told of a job's future.
  template <typename Request>
  absl::StatusOr<Caller> AdmitWatcher(const grpc::CallbackServerContext& context,
                                      const Request& request) const {
    auto caller = gateway_.Admit(context, Role::kReader);
    if (absl::Status s = Check(request); caller.ok() && !s.ok()) return s;
    // Nothing happens here: an event would never come.
    if (caller.ok() && gateway_.replica != nullptr) {
      return OnlyOnPrimary("nothing happens that could be watched");
    }
    return caller;
  }

  absl::StatusOr<Workload> ParseCached(const v1::Workload& workload, const std::string& field) {
    // What has unknown fields is not found so, and looked for again without them.
    if (auto cached = parsed_.Find(CanonicalBytes(workload))) return *std::move(cached);
    v1::Workload known = workload;
    known.DiscardUnknownFields();
    const std::string key = CanonicalBytes(known);
    if (auto cached = parsed_.Find(key)) return *std::move(cached);
    auto parsed = ParseWorkload(known, field);
    if (parsed.ok()) parsed_.Add(key, *parsed, BytesOf(**parsed));
    return parsed;
  }

  // What a record says of what its device model would build and run; nullptr: nobody knows it.
  tuner::Verdict Judge(const tuner::Records::Best& best, const Workload& workload,
                       const DeviceModels::Model* model) {
    std::vector<std::string> changed = StaleBecause(gateway_.engine, best.environment);
    if (model == nullptr) {
      changed.emplace_back("device");  // which nobody here knows
      return tuner::VerdictOf(std::move(changed));
    }
    if (!Agree(tuner::BenchOf(best.environment),
               tuner::BenchOf(model->info, best.environment.l2))) {
      changed.emplace_back("device");
    }
    const std::string key = absl::StrCat(best.trial.id, " ", model->revision);
    std::optional<std::string> hash = hashes_.Find(key);
    if (!hash) {
      hash = tuner::SourceHashNow(best.trial, workload, model->info.target);
      hashes_.Add(key, *hash, hash->size());
    }
    if (hash->empty() || *hash != best.trial.result.source_hash) changed.emplace_back("source");
    return tuner::VerdictOf(std::move(changed));
  }

  // The device model that a query is for.
  absl::StatusOr<std::string> ModelOf(const std::string& asked) const {
    if (!asked.empty()) return asked;
    const std::vector<v1::DeviceModel> models = gateway_.engine.Models();
    if (models.size() == 1) return models.front().name();
    const auto name = [](std::string* out, const auto& model) { *out += model.name(); };
    return WrongField(
        "device", models.empty() ? "name the device's model: none has registered here"
                                 : absl::StrCat("name one of ", absl::StrJoin(models, ", ", name)));
  }

  void Answer(const v1::QueryBestRequest& request, const Caller& caller, const Workload& workload,
              v1::QueryBestResponse response, const Reply<v1::QueryBestResponse>& reply) {
    if (FromProto(request.fallback()) != tuner::Fallback::kNone) {
      auto device = FindModel(gateway_.engine, response.device());
      if (!device.ok()) return reply(device.status());
      searcher::SpaceQuestion question;
      question.set_fallback(request.fallback());
      question.set_workload(workload->canonical_text);
      *question.mutable_device() = *std::move(device);
      question.set_database(gateway_.store.path());
      question.set_l2(request.l2());
      auto found = gateway_.spaces.Ask(question);
      if (!found.ok()) return reply(found.status());
      response.set_match(found->match());
      response.set_steps(found->steps());
      if (found->has_source()) {
        *response.mutable_record() = std::move(*found->mutable_source());
        // It may be another tenant's operator.
        response.mutable_record()->mutable_workload()->clear_text();
        if (caller.role != Role::kAdmin) HideOrigin(*response.mutable_record());
      }
    }
    gateway_.metrics.CountQuery(NameOf(FromProto(response.match())), false);
    if (!request.has_enqueue()) return reply(std::move(response));
    if (absl::Status s = gateway_.store.CheckRoomForOthers(); !s.ok()) return reply(s);
    if (const auto device = FindModel(gateway_.engine, response.device()); device.ok()) {
      const absl::Status s = CheckCost(*workload, measure::FromProto(*device).target);
      if (!s.ok()) return reply(WrongField("workload.shape", std::string(s.message())));
    }
    v1::JobSpec spec;
    spec.add_workloads()->set_canonical(workload->canonical_text);
    spec.mutable_device()->set_model(response.device());
    spec.set_l2(request.l2());
    *spec.mutable_budget() = request.enqueue().budget();
    gateway_.engine.CreateJob(caller.tenant, "QueryBest", request.enqueue().request_id(), spec,
                              {workload},
                              AuditedJob(caller, "QueryBest", request.enqueue().request_id(),
                                         [response, reply](absl::StatusOr<v1::Job> job) mutable {
                                           if (!job.ok()) return reply(job.status());
                                           *response.mutable_job() = *std::move(job);
                                           reply(std::move(response));
                                         }));
  }

  const Gateway& gateway_;
  const std::string build_;
  const int open_jobs_;
  // Parsed workloads of queries, by what is known of their message in its canonical form.
  ByteCache<Workload> parsed_;
  // Hashes of the source that records give now, by record and device.
  ByteCache<std::string> hashes_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeTuningService(const Gateway& gateway, std::string build,
                                                 int open_jobs_per_tenant) {
  return std::make_unique<TuningService>(gateway, std::move(build), open_jobs_per_tenant);
}

}  // namespace heddle::server
