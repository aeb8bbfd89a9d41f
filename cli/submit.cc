// heddle submit, wait, watch, jobs, cancel, retry, update, trials: tuning jobs of a server.
#include <iostream>
#include <map>
#include <optional>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "base/status.h"
#include "cli/remote.h"
#include "cli/tuned.h"
#include "measure/codegen/dialects.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"

namespace heddle::cli {
namespace {

struct SubmitFlags {
  WorkloadFlags workload;
  ServerFlags server;
  std::string workloads, device, api, l2, search, request_id;
  std::map<std::string, std::string> labels;
  int64_t trials = 200, plateau = 0;
  double seconds = 0, expire = 0, timeout = 0;
  uint64_t seed = 1;
  int32_t priority = 0;
  bool wait = false, json = false;
};

template <typename Number>
void AddPriorityFlag(CLI::App& sub, Number& priority) {
  sub.add_option("--priority", priority,
                 "of your jobs that wait those of the greatest begin first, -100 to 100")
      ->type_name("N")
      ->check(CLI::Range(-100, 100).description(""));
}

absl::StatusOr<v1::CreateJobRequest> RequestOf(const SubmitFlags& flags) {
  HEDDLE_ASSIGN_OR_RETURN(jobs, ReadJobs(flags.workload, flags.workloads));
  v1::CreateJobRequest request;
  request.set_request_id(flags.request_id);
  v1::JobSpec& spec = *request.mutable_spec();
  for (const TuneJob& job : jobs) {
    spec.add_workloads()->set_canonical(job.program->canonical_text);
  }
  spec.mutable_device()->set_model(flags.device);
  spec.mutable_device()->set_api(flags.api);
  spec.set_l2(flags.l2 == "warm" ? v1::L2_POLICY_WARM : v1::L2_POLICY_COLD);
  spec.mutable_budget()->set_trials(flags.trials);
  if (flags.seconds > 0) {
    *spec.mutable_budget()->mutable_search_duration() = DurationOf(flags.seconds);
  }
  spec.mutable_budget()->set_plateau(flags.plateau);
  spec.set_seed(flags.seed);
  spec.set_search(flags.search);
  spec.set_priority(flags.priority);
  for (const auto& [key, value] : flags.labels) (*spec.mutable_labels())[key] = value;
  if (flags.expire > 0) {
    spec.mutable_expire_time()->set_seconds(
        absl::ToUnixSeconds(absl::Now() + absl::Seconds(flags.expire)));
  }
  return request;
}

Result RunSubmit(const SubmitFlags& flags, client::Client& client) {
  HEDDLE_ASSIGN_OR_RETURN(request, RequestOf(flags));
  HEDDLE_ASSIGN_OR_RETURN(job, client.CreateJob(request));
  if (flags.wait) {
    Say("Submitted " + job.name());
    return FollowJob(client, job.name(), flags.json, flags.timeout);
  }
  Print(flags.json, ToJson(job), job.name());
  return kDone;
}

// What tells a job's trials from each other.
std::string ShortName(const v1::Trial& trial) {
  return trial.name().substr(trial.name().rfind('/') + 1);
}

// "12 RUNNING trial 0000000000000022 of workload 0: OK 12.3 us".
std::string EventLine(const v1::JobEvent& event) {
  std::string line = absl::StrCat(event.seq(), " ", WordOf(event.state()));
  if (event.has_trial()) {
    const v1::Trial& trial = event.trial();
    absl::StrAppend(&line, " ", trial.final() ? "final " : "trial ", ShortName(trial),
                    " of workload ", trial.workload(), ": ", WordOf(trial.result().outcome()));
    if (trial.result().time_us() > 0) {
      absl::StrAppend(&line, " ", tuner::FormatTime(trial.result().time_us()));
    }
  } else if (event.has_job()) {
    absl::StrAppend(&line, " ", Describe(event.job()));
  }
  return line;
}

Json TrialJson(const v1::Trial& trial) {
  const v1::TrialResult& result = trial.result();
  Json json{{"id", trial.name()},
            {"job", trial.job()},
            {"workload", trial.workload()},
            {"point", trial.point()},
            {"state", WordOf(trial.state())},
            {"final", trial.final()},
            {"outcome", nullptr},
            {"time_us", KnownOrNull(result.time_us())},
            {"time_ci_us", nullptr},
            {"detail", result.detail()},
            {"kills", trial.kills()},
            {"device", trial.device()},
            {"record", trial.record()}};
  if (result.outcome() != v1::OUTCOME_UNSPECIFIED) {
    json["outcome"] = WordOf(result.outcome());
  }
  if (result.time_us() > 0) json["time_ci_us"] = {result.ci_low_us(), result.ci_high_us()};
  return json;
}

std::string TrialLine(const v1::Trial& trial) {
  const bool done = trial.state() == v1::Trial::STATE_DONE;
  return absl::StrFormat(
      "%-16s %-11s %-14s %10s  %s", ShortName(trial),
      trial.final() ? "final" : WordOf(trial.state()), done ? WordOf(trial.result().outcome()) : "",
      trial.result().time_us() > 0 ? tuner::FormatTime(trial.result().time_us()) : "",
      trial.point());
}

Result RunWatch(const std::string& id, int64_t after, bool json, client::Client& client) {
  absl::Status watched = client.WatchJob(id, after, [&](const v1::JobEvent& event) {
    if (!json) {
      std::cout << EventLine(event) << std::endl;
      return;
    }
    Json line{
        {"first_seq", event.first_seq()}, {"seq", event.seq()}, {"state", WordOf(event.state())}};
    if (event.has_trial()) line["trial"] = TrialJson(event.trial());
    if (event.has_job()) line["job"] = ToJson(event.job());
    std::cout << line.dump(-1, ' ', false, Json::error_handler_t::replace) << std::endl;
  });
  HEDDLE_RETURN_IF_ERROR(watched);
  return kDone;
}

struct JobsFlags {
  std::string id;
  std::vector<std::string> states;
  std::map<std::string, std::string> labels;
  int limit = 50;
  bool json = false;
};

Result RunJobs(const JobsFlags& flags, client::Client& client) {
  v1::ListJobsRequest request;
  if (flags.json) request.set_view(v1::JOB_VIEW_FULL);
  for (const std::string& name : flags.states) {
    v1::Job::State state;
    if (!v1::Job::State_Parse(PrefixOf<v1::Job::State>() + absl::AsciiStrToUpper(name), &state)) {
      return absl::InvalidArgumentError(
          absl::StrCat("no state is called '", name,
                       "': queued, running, waiting_device, succeeded, failed, "
                       "cancelling or cancelled"));
    }
    request.mutable_filter()->add_states(state);
  }
  for (const auto& [key, value] : flags.labels) {
    (*request.mutable_filter()->mutable_labels())[key] = value;
  }
  if (!flags.id.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(job, client.GetJob(flags.id));
    Print(flags.json, ToJson(job), Describe(job));
    return kDone;
  }
  Listing listing(flags.json);
  for (int left = flags.limit; left > 0;) {
    constexpr int kPage = 200;
    request.set_page_size(std::min(kPage, left));
    HEDDLE_ASSIGN_OR_RETURN(page, client.ListJobs(request));
    for (const v1::Job& job : page.jobs()) listing.Add(ToJson(job), Describe(job));
    if (page.next_page_token().empty()) break;
    left -= page.jobs_size();
    request.set_page_token(page.next_page_token());
  }
  return listing.End();
}

Result RunTrials(const std::string& id, bool json, client::Client& client) {
  v1::ListTrialsRequest request;
  request.set_parent(id);
  request.set_page_size(200);
  Listing listing(json);
  do {
    HEDDLE_ASSIGN_OR_RETURN(page, client.ListTrials(request));
    for (const v1::Trial& trial : page.trials()) listing.Add(TrialJson(trial), TrialLine(trial));
    request.set_page_token(page.next_page_token());
  } while (!request.page_token().empty());
  return listing.End();
}

Result RunCancel(const std::string& id, client::Client& client) {
  HEDDLE_ASSIGN_OR_RETURN(job, client.CancelJob(id));
  Say(Describe(job));
  return kDone;
}

CLI::App* AddSubmit(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<SubmitFlags>();
  CLI::App* sub = app.add_subcommand("submit", "let a server tune an operator at a shape");
  flags->workload.Add(*sub, false);
  flags->server.Add(*sub, true);
  sub->add_option(
         "--workloads", flags->workloads,
         "tune each line of a file (op k=v,...), one after the other: each gets the whole of "
         "--trials, --seconds and --plateau, and weights do not count")
      ->type_name("FILE");
  sub->add_option("--device", flags->device, "only on devices of this model, its full name")
      ->type_name("MODEL");
  sub->add_option("--api", flags->api, "only on such devices")
      ->type_name(absl::StrJoin(measure::ApiNames(), "|"))
      ->check(OneOf(measure::ApiNames()));
  sub->add_option("--trials", flags->trials, "stop after so many trials; 0 = no limit")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber.description(""))
      ->capture_default_str();
  sub->add_option("--seconds", flags->seconds, "stop searching after so many seconds")
      ->type_name("S")
      ->check(CLI::NonNegativeNumber.description(""));
  sub->add_option("--plateau", flags->plateau,
                  "stop after so many trials in a row without an improvement of 1 %")
      ->type_name("N")
      ->check(CLI::NonNegativeNumber.description(""));
  sub->add_option("--seed", flags->seed, "of proposals and inputs")
      ->type_name("N")
      ->capture_default_str();
  sub->add_option("--search", flags->search, "how points are proposed [the server's best]")
      ->type_name("NAME");
  AddL2Flag(*sub, flags->l2);
  sub->add_option("--label", flags->labels, "for `heddle jobs --label`; several times for several")
      ->type_name("KEY VALUE");
  AddPriorityFlag(*sub, flags->priority);
  sub->add_option("--expire", flags->expire, "cancel the job when it has not ended by then")
      ->type_name("S")
      ->check(CLI::NonNegativeNumber.description(""));
  sub->add_option("--request-id", flags->request_id,
                  "the same id again gives the same job: for scripts that may be repeated")
      ->type_name("ID");
  sub->add_flag("--wait", flags->wait, "wait for the end, and tell the result as `tune` does");
  sub->add_option("--timeout", flags->timeout, "with --wait: exit with 5 after so many seconds")
      ->type_name("S")
      ->check(CLI::NonNegativeNumber.description(""));
  sub->add_flag("--json", flags->json, "JSON on stdout");
  sub->footer("Ctrl-C while waiting leaves the job running.");
  sub->callback([=] {
    *selected = WithServer(flags->server,
                           [=](client::Client& client) { return RunSubmit(*flags, client); });
  });
  return sub;
}

// A subcommand that names one job, which `run` works on.
struct JobFlags {
  ServerFlags server;
  std::string id;
  bool json = false;
  double timeout = 0;
  int64_t after = 0;
};
using OnJob = std::function<Result(const JobFlags&, client::Client&)>;

CLI::App* AddOnJob(CLI::App& app, const Selected& selected, const char* name, const char* help,
                   const std::shared_ptr<JobFlags>& flags, OnJob run) {
  CLI::App* sub = app.add_subcommand(name, help);
  sub->add_option("job", flags->id, "as `heddle submit` and `heddle jobs` print it")
      ->type_name("JOB")
      ->required();
  flags->server.Add(*sub, true);
  sub->add_flag("--json", flags->json, "JSON on stdout");
  sub->callback([=] {
    *selected =
        WithServer(flags->server, [=](client::Client& client) { return run(*flags, client); });
  });
  return sub;
}

Result RunRetry(const JobFlags& flags, client::Client& client) {
  v1::RetryJobRequest request;
  request.set_name(flags.id);
  HEDDLE_ASSIGN_OR_RETURN(job, client.RetryJob(request));
  Print(flags.json, ToJson(job), Describe(job));
  return kDone;
}

struct UpdateFlags {
  std::map<std::string, std::string> labels;
  bool no_labels = false;
  std::optional<int32_t> priority;
};

Result RunUpdate(const JobFlags& flags, const UpdateFlags& update, client::Client& client) {
  v1::UpdateJobRequest request;
  v1::Job& asked = *request.mutable_job();
  asked.set_name(flags.id);
  google::protobuf::FieldMask& mask = *request.mutable_update_mask();
  if (update.no_labels || !update.labels.empty()) {
    *asked.mutable_spec()->mutable_labels() = {update.labels.begin(), update.labels.end()};
    mask.add_paths("spec.labels");
  }
  if (update.priority) {
    asked.mutable_spec()->set_priority(*update.priority);
    mask.add_paths("spec.priority");
  }
  if (mask.paths().empty()) {
    return absl::InvalidArgumentError("nothing to change: give --priority, --label or --no-labels");
  }
  HEDDLE_ASSIGN_OR_RETURN(job, client.UpdateJob(request));
  Print(flags.json, ToJson(job), Describe(job));
  return kDone;
}

void AddUpdate(CLI::App& app, const Selected& selected) {
  auto flags = std::make_shared<UpdateFlags>();
  CLI::App* sub =
      AddOnJob(app, selected, "update", "change a job's priority or labels",
               std::make_shared<JobFlags>(), [flags](const JobFlags& job, client::Client& client) {
                 return RunUpdate(job, *flags, client);
               });
  AddPriorityFlag(*sub, flags->priority);
  sub->add_option("--label", flags->labels, "in place of those it has; several times for several")
      ->type_name("KEY VALUE");
  sub->add_flag("--no-labels", flags->no_labels, "none in place of those it has")
      ->excludes("--label");
}

}  // namespace

std::string Describe(const v1::Job& job) {
  std::string line = absl::StrFormat("%-10s %-15s", job.name(), WordOf(job.state()));
  for (const v1::WorkloadProgress& workload : job.workloads()) {
    absl::StrAppend(&line, " ", workload.workload().op(), ": ", workload.trials(), " trials");
    if (workload.best_us() > 0) {
      absl::StrAppend(&line, ", best ", tuner::FormatTime(workload.best_us()));
    }
  }
  if (!job.error().empty()) absl::StrAppend(&line, " (", job.error(), ")");
  return line;
}

Json ToJson(const v1::Job& job) {
  auto time = [](bool set, const google::protobuf::Timestamp& t) {
    return set ? Json(absl::FormatTime("%Y-%m-%dT%H:%M:%SZ", absl::FromUnixSeconds(t.seconds()),
                                       absl::UTCTimeZone()))
               : Json(nullptr);
  };
  Json workloads = Json::array();
  for (const v1::WorkloadProgress& from : job.workloads()) {
    Json failed = Json::object();
    for (const auto& [kind, count] : from.failed()) failed[kind] = count;
    Json shape = Json::object();
    for (const auto& [name, value] : std::map<std::string, int64_t>(
             from.workload().shape().begin(), from.workload().shape().end())) {
      shape[name] = value;
    }
    workloads.push_back(
        {{"op", from.workload().op()},
         {"shape", shape},
         {"dtype", from.workload().dtype()},
         {"workload", from.workload().text()},
         {"trials", {{"total", from.trials()}, {"ok", from.ok()}, {"failed", failed}}},
         {"default_us", KnownOrNull(from.default_us())},
         {"best_us",
          KnownOrNull(from.has_best() ? from.best().result().time_us() : from.best_us())}});
  }
  Json labels = Json::object();
  for (const auto& [key, value] : job.spec().labels()) labels[key] = value;
  return Json{{"id", job.name()},
              {"state", WordOf(job.state())},
              {"error", job.error()},
              {"device", job.device_model()},
              {"created", time(job.has_create_time(), job.create_time())},
              {"started", time(job.has_start_time(), job.start_time())},
              {"ended", time(job.has_end_time(), job.end_time())},
              {"labels", labels},
              {"priority", job.spec().priority()},
              {"last_seq", job.last_seq()},
              {"workloads", workloads}};
}

void AddJobs(CLI::App& app, Selected selected) {
  AddSubmit(app, selected);
  auto wait = std::make_shared<JobFlags>();
  AddOnJob(app, selected, "wait", "wait for a job's end, and tell the result as `tune` does", wait,
           [](const JobFlags& flags, client::Client& client) {
             return FollowJob(client, flags.id, flags.json, flags.timeout);
           })
      ->add_option("--timeout", wait->timeout, "exit with 5 after so many seconds")
      ->type_name("S")
      ->check(CLI::NonNegativeNumber.description(""));
  auto watch = std::make_shared<JobFlags>();
  AddOnJob(app, selected, "watch", "print a job's events, a line each, until it ends", watch,
           [](const JobFlags& flags, client::Client& client) {
             return RunWatch(flags.id, flags.after, flags.json, client);
           })
      ->add_option("--after", watch->after, "only events after this number")
      ->type_name("SEQ");
  AddOnJob(app, selected, "trials", "what became of a job's candidates",
           std::make_shared<JobFlags>(), [](const JobFlags& flags, client::Client& client) {
             return RunTrials(flags.id, flags.json, client);
           });
  AddOnJob(
      app, selected, "cancel", "end a job; its trials are kept", std::make_shared<JobFlags>(),
      [](const JobFlags& flags, client::Client& client) { return RunCancel(flags.id, client); });
  AddOnJob(app, selected, "retry", "a job that failed or was cancelled goes on from its trials",
           std::make_shared<JobFlags>(), RunRetry)
      ->footer("With what is left of its budget; `heddle wait` waits for its end.");
  AddUpdate(app, selected);

  struct Flags {
    ServerFlags server;
    JobsFlags jobs;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* jobs = app.add_subcommand("jobs", "list a server's jobs, newest first");
  jobs->add_option("job", flags->jobs.id, "only this one")->type_name("JOB");
  flags->server.Add(*jobs, true);
  jobs->add_option("--state", flags->jobs.states, "only in these states")->type_name("STATE");
  jobs->add_option("--label", flags->jobs.labels, "only with these labels")->type_name("KEY VALUE");
  jobs->add_option("--limit", flags->jobs.limit, "at most so many")
      ->type_name("N")
      ->capture_default_str();
  jobs->add_flag("--json", flags->jobs.json, "JSON on stdout");
  jobs->callback([=] {
    *selected = WithServer(flags->server,
                           [=](client::Client& client) { return RunJobs(flags->jobs, client); });
  });
}

}  // namespace heddle::cli
