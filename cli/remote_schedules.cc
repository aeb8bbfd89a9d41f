// Schedules that a server keeps.
#include <istream>
#include <ostream>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "cli/schedules.h"
#include "server/db/convert.h"
#include "tuner/records/records_fields.h"

namespace heddle::cli {
namespace {

class RemoteSchedules : public Schedules {
 public:
  explicit RemoteSchedules(std::unique_ptr<RemoteServer> server) : server_(std::move(server)) {}

  absl::StatusOr<Known> Query(const Question& question) override {
    v1::QueryBestRequest request;
    request.mutable_workload()->set_canonical(question.workload->canonical_text);
    if (question.device.device != "auto") request.set_device(question.device.device);
    if (!question.l2.empty()) request.set_l2(server::ToProto(PolicyOf(question.l2)));
    request.set_fallback(server::ToProto(question.fallback));
    HEDDLE_ASSIGN_OR_RETURN(found, (*server_)->QueryBest(request));
    Known known{{server::FromProto(found.match()), found.steps(), {}},
                found.device(),
                {},
                found.validated(),
                found.confirmations()};
    const bool exact = known.answer.match == tuner::Match::kExact;
    if (exact || found.has_record()) {
      tuner::StoredTrial stored = server::FromProto(found.record());
      known.answer.source = {std::move(stored.trial), std::move(stored.environment)};
    }
    if (!exact) return known;
    const auto& changed = found.stale_because();
    known.verdict = tuner::VerdictOf({changed.begin(), changed.end()});
    const bool warm = known.answer.source->environment.l2 == measure::L2Policy::kWarm;
    if (question.l2.empty() && warm) SayWarmOnly();
    return known;
  }

  Place place() const override { return {"with the server", "heddle submit", false}; }

  absl::StatusOr<tuner::Records::ExportReport> Export(std::ostream& out) override {
    tuner::Records::ExportReport report;
    HEDDLE_RETURN_IF_ERROR((*server_)->ExportRecords({}, [&](const v1::Record& record) {
      out << tuner::PrintLine(server::FromProto(record)) << "\n";
      ++report.written;
      // Whoever gave the stream knows what it writes to.
      return out ? absl::OkStatus() : absl::InternalError("the records could not be written");
    }));
    return report;
  }

  absl::StatusOr<tuner::Records::ImportReport> Import(std::istream& in) override {
    tuner::Records::ImportReport report;
    std::vector<int64_t> numbers;  // of the lines that were sent
    int64_t number = 0;
    const auto refuse = [&](int64_t line, absl::string_view why) {
      if (++report.refused > tuner::Records::kMaxRejected) return;
      report.rejected.push_back(absl::StrCat("line ", line, ": ", why));
    };
    const auto next = [&]() -> std::optional<v1::Record> {
      std::string line;
      while (std::getline(in, line)) {
        ++number;
        if (line.empty()) continue;
        auto stored = tuner::ParseLine(line);
        if (stored.ok()) {
          numbers.push_back(number);
          return server::ToProto(*stored);
        }
        refuse(number, stored.status().message());
      }
      return std::nullopt;
    };
    HEDDLE_ASSIGN_OR_RETURN(response, (*server_)->ImportRecords(next));
    report.added = response.added();
    report.duplicate = response.duplicate();
    for (const auto& rejected : response.rejected()) {
      refuse(numbers.at(static_cast<size_t>(rejected.number() - 1)), rejected.reason());
    }
    report.refused += response.refused() - response.rejected_size();
    return report;
  }

 private:
  std::unique_ptr<RemoteServer> server_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Schedules>> OpenSchedules(const ServerFlags& server,
                                                         const std::string& db) {
  if (!server.given()) return OpenLocalSchedules(db);
  HEDDLE_ASSIGN_OR_RETURN(connected, RemoteServer::Connect(server.Get()));
  return std::make_unique<RemoteSchedules>(std::move(connected));
}

}  // namespace heddle::cli
