// The parts of query and devices that a server answers.
#include <iostream>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "cli/remote.h"
#include "measure/run/messages.h"
#include "proto/values.h"
#include "search_space/notation/notation.h"
#include "tuner/model/roofline.h"

namespace heddle::cli {
namespace {

Json StandingName(v1::Standing standing) {
  switch (standing) {
    case v1::STANDING_MEASURED:
      return "measured";
    case v1::STANDING_STALE:
      return "stale";
    case v1::STANDING_FOREIGN:
      return "foreign";
    default:
      return nullptr;
  }
}

Json ToJson(const v1::QueryBestResponse& answer, const search_space::TensorProgram& program,
            const std::vector<search_space::Step>& steps) {
  const v1::Record& record = answer.record();
  const v1::Environment& e = record.environment();
  Json json{{"found", answer.match() != v1::QueryBestResponse::MATCH_NONE},
            {"match", answer.match() == v1::QueryBestResponse::MATCH_NONE
                          ? "none"
                          : absl::AsciiStrToLower(WordOf(answer.match()))},
            {"validated", answer.validated()},
            {"confirmations", answer.confirmations()},
            {"op", program.op},
            {"shape", ShapeJson(program.shape)},
            {"device", answer.device()},
            {"time_us", nullptr},
            {"time_ci_us", nullptr},
            {"standing", nullptr},
            {"steps", StepsJson(steps)},
            {"fingerprint", nullptr}};
  // A neighbour's time is not this shape's.
  if (answer.match() == v1::QueryBestResponse::MATCH_EXACT) {
    json["time_us"] = record.result().time_us();
    json["time_ci_us"] = {record.result().ci_low_us(), record.result().ci_high_us()};
    json["standing"] = StandingName(answer.standing());
  }
  if (answer.has_record()) {
    json["fingerprint"] =
        EnvironmentJson({e.device_name(), e.device_uuid(), e.arch(), e.sm_count(), e.driver(),
                         e.compiler(), e.generator_version(), e.feature_version(),
                         PolicyOf(e.l2() == v1::L2_POLICY_WARM ? "warm" : "cold"), e.memory_mib(),
                         e.power_limit_w()});
    json["fingerprint"]["source_hash"] = record.result().source_hash();
    json["stale_because"] = Json::array();
    for (const std::string& reason : answer.stale_because()) {
      json["stale_because"].push_back(reason);
    }
  }
  return json;
}

}  // namespace

Result QueryServer(client::Client& client, const RemoteQuery& query) {
  auto program = query.workload.Get();
  if (!program.ok()) return program.status();
  v1::QueryBestRequest request;
  request.mutable_workload()->set_canonical((*program)->canonical_text);
  request.set_device(query.device);
  if (!query.l2.empty()) {
    request.set_l2(query.l2 == "warm" ? v1::L2_POLICY_WARM : v1::L2_POLICY_COLD);
  }
  if (query.fallback == "nearest") request.set_fallback(v1::QueryBestRequest::FALLBACK_NEAREST);
  if (query.fallback == "default") request.set_fallback(v1::QueryBestRequest::FALLBACK_DEFAULT);
  auto answer = client.QueryBest(request);
  if (!answer.ok()) return answer.status();
  auto steps = search_space::ParseSteps(answer->steps());
  if (!steps.ok()) return steps.status();
  const bool found = answer->match() != v1::QueryBestResponse::MATCH_NONE;
  if (query.json) {
    PrintJson(ToJson(*answer, **program, *steps));
  } else if (found) {
    std::cout << answer->steps();
  }
  if (!found) {
    Say(absl::StrCat("heddle: the server has no schedule for ", answer->device(),
                     ". Make one: heddle submit ", query.workload.CommandLine(),
                     ", or try --fallback nearest or default."));
    return kFailed;
  }
  if (answer->match() == v1::QueryBestResponse::MATCH_EXACT) {
    const v1::TrialResult& result = answer->record().result();
    if (query.l2.empty() && answer->record().environment().l2() == v1::L2_POLICY_WARM) {
      SayWarmOnly();
    }
    Say(absl::StrCat("exact: ", tuner::FormatTime(result.time_us()), " (",
                     tuner::FormatTime(result.ci_low_us()), " .. ",
                     tuner::FormatTime(result.ci_high_us()), ")"));
  } else {
    Say("not measured at this shape; tuning it will do better");
  }
  const auto& changed = answer->stale_because();
  const std::string stale = tuner::VerdictOf({changed.begin(), changed.end()}).Text();
  if (!stale.empty()) Say(stale);
  return kDone;
}

Result ListServerDevices(client::Client& client, bool json) {
  Json all = Json::array();
  v1::ListDevicesRequest request;
  int count = 0;
  do {
    auto page = client.ListDevices(request);
    if (!page.ok()) return page.status();
    for (const v1::FleetDevice& device : page->devices()) {
      ++count;
      const std::string worker = WordOf(device.worker().state());
      if (json) {
        Json one = DeviceJson(measure::FromProto(device.device()));
        one["fleet_id"] = device.id();
        one["host"] = device.hostname();
        one["state"] = WordOf(device.state());
        one["worker"] = worker;
        one["detail"] = device.worker().detail();
        one["job"] = device.job();
        one["no_work_because"] = device.no_work_because();
        all.push_back(std::move(one));
        continue;
      }
      std::cout << absl::StrFormat(
          "%-24s %-10s %-10s %s  (%s)%s%s\n", device.id(), worker,
          device.state() == v1::FleetDevice::STATE_DRAINING ? "draining" : "",
          device.device().target().name(), device.hostname(),
          device.job().empty() ? "" : "  works on " + device.job(),
          device.no_work_because().empty()
              ? device.worker().detail().empty() ? "" : "  " + device.worker().detail()
              : "  gets no work: " + device.no_work_because());
    }
    request.set_page_token(page->next_page_token());
  } while (!request.page_token().empty());
  if (json) PrintJson(all);
  if (count == 0)
    Say("No device yet: start `heddle measured --server ...` on a host that has one.");
  return kDone;
}

}  // namespace heddle::cli
