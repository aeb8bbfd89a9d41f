// heddle retract: an administrator takes back what a server has and should not serve.
#include <iostream>

#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "base/status.h"
#include "cli/command.h"
#include "cli/remote.h"
#include "heddle/v1/records.pb.h"

namespace heddle::cli {
namespace {

struct RetractFlags {
  WorkloadFlags workload;
  ServerFlags server;
  v1::RetractRequest request;
  v1::RetractRequest::Origin origin;
  std::string device_uuid, since, until;
  int64_t record = 0;
  bool imported = false, json = false;
};

// "2026-03-01", "2026-03-01T12:00:00Z" or with another offset; a day begins at midnight UTC.
absl::Status ReadTime(const char* flag, const std::string& text,
                      google::protobuf::Timestamp* time) {
  absl::Time parsed;
  std::string error;
  if (!absl::ParseTime("%Y-%m-%d", text, &parsed, &error) &&
      !absl::ParseTime(absl::RFC3339_full, text, &parsed, &error)) {
    return absl::InvalidArgumentError(
        absl::StrCat(flag, ": '", text, "' is no time such as 2026-03-01 or 2026-03-01T12:00:00Z"));
  }
  const int64_t micros = absl::ToUnixMicros(parsed);
  const int64_t seconds = absl::ToUnixSeconds(parsed);
  time->set_seconds(seconds);
  time->set_nanos(static_cast<int32_t>((micros - seconds * 1000000) * 1000));
  return absl::OkStatus();
}

absl::StatusOr<v1::RetractRequest> RequestOf(const RetractFlags& flags) {
  v1::RetractRequest request = flags.request;
  int chosen = 0;
  if (!flags.workload.op.empty()) {
    HEDDLE_ASSIGN_OR_RETURN(program, flags.workload.Get());
    request.set_workload_hash(program->hash);
    ++chosen;
  }
  if (flags.record != 0) {
    request.set_id(flags.record);
    ++chosen;
  }
  if (!flags.device_uuid.empty()) {
    request.set_device_uuid(flags.device_uuid);
    ++chosen;
  }
  if (flags.imported) {
    request.set_imported(true);
    ++chosen;
  }
  if (flags.origin.ByteSizeLong() > 0) {
    *request.mutable_origin() = flags.origin;
    ++chosen;
  }
  if (chosen != 1) {
    return absl::InvalidArgumentError(
        "say which records, in one way: OP with --shape, --record, --device-uuid, --imported, or "
        "where they come from: --host, --tenant, --token and --run");
  }
  if (!flags.since.empty()) {
    HEDDLE_RETURN_IF_ERROR(ReadTime("--since", flags.since, request.mutable_start_time()));
  }
  if (!flags.until.empty()) {
    HEDDLE_RETURN_IF_ERROR(ReadTime("--until", flags.until, request.mutable_end_time()));
  }
  return request;
}

Result RunRetract(const v1::RetractRequest& request, bool json, client::Client& client) {
  HEDDLE_ASSIGN_OR_RETURN(retracted, client.Retract(request));
  if (json) PrintJson({{"retracted", retracted.count()}});
  Say(absl::StrCat(retracted.count(), " records retracted"));
  return kDone;
}

}  // namespace

void AddRetract(CLI::App& app, Selected selected) {
  auto flags = std::make_shared<RetractFlags>();
  CLI::App* sub = app.add_subcommand(
      "retract", "remove records from a server's database for good (administrators)");
  flags->workload.Add(*sub, false);
  sub->add_option("--record", flags->record, "one record: its id, as `heddle trials --json` has it")
      ->type_name("ID")
      ->check(CLI::PositiveNumber.description(""));
  sub->add_option("--device-uuid", flags->device_uuid, "what was measured on this device")
      ->type_name("UUID");
  sub->add_flag("--imported", flags->imported, "all that was imported");
  v1::RetractRequest::Origin& origin = flags->origin;
  sub->add_option("--host", *origin.mutable_host(),
                  "what this host measured, as `heddle devices hosts` lists it")
      ->type_name("HOST");
  sub->add_option("--tenant", *origin.mutable_tenant(),
                  "what this tenant's jobs gave or it imported")
      ->type_name("TENANT");
  sub->add_option_function<int64_t>(
         "--token", [flags](const int64_t& id) { flags->origin.set_token(id); },
         "what came with this token, as `heddle token list` numbers it")
      ->type_name("ID")
      ->check(CLI::PositiveNumber.description(""));
  sub->add_option("--run", *origin.mutable_run(), "what this job or session gave")
      ->type_name("RUN");
  sub->add_option("--since", flags->since, "of them only what was measured from then on")
      ->type_name("TIME");
  sub->add_option("--until", flags->until, "of them only what was measured before")
      ->type_name("TIME");
  sub->add_option("--reason", *flags->request.mutable_reason(), "why, for the server's log")
      ->type_name("TEXT")
      ->required();
  sub->add_option("--request-id", *flags->request.mutable_request_id(),
                  "the same id again does nothing more: for scripts that may be repeated")
      ->type_name("ID");
  flags->server.Add(*sub, true);
  sub->add_flag("--json", flags->json, "JSON on stdout");
  sub->footer(
      "--host, --tenant, --token and --run go together, and --since and --until with everything.\n"
      "A time is a day (2026-03-01, from midnight UTC) or 2026-03-01T12:00:00Z.");
  sub->callback([=] {
    *selected = [=]() -> Result {
      HEDDLE_ASSIGN_OR_RETURN(request, RequestOf(*flags));
      return WithServer(flags->server, [=](client::Client& client) {
        return RunRetract(request, flags->json, client);
      })();
    };
  });
}

}  // namespace heddle::cli
