// The Records service of the API (proto/heddle/v1/records.proto).
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "base/sqlite.h"
#include "base/status.h"
#include "heddle/v1/records.grpc.pb.h"
#include "proto/values.h"
#include "server/api/audit.h"
#include "server/api/services.h"
#include "server/db/convert.h"
#include "server/db/run_owner.h"
#include "server/engine/validate.h"
#include "tuner/records/plausible.h"
#include "tuner/records/records_fields.h"
#include "tuner/records/transfer/collect.h"

namespace heddle::server {
namespace {

// Rows of one read or write, so that neither holds up others for long.
constexpr int kRecordsAtOnce = 256;
constexpr int kMaxReported = 100;
// Of one record, and of the lines that are written together.
constexpr size_t kMaxRecordBytes = 1 << 20, kMaxBatchBytes = 1 << 20;

// Nothing that is measured is larger. Records are numbered from 1.
absl::Status CheckSize(const v1::Record& record, int64_t number) {
  if (record.ByteSizeLong() <= kMaxRecordBytes) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("record ", number, " has ", record.ByteSizeLong(),
                                                 " bytes; at most ", kMaxRecordBytes));
}

// One page in memory, read in the pool when the one before was written. One callback at a time.
class ExportStream : public grpc::ServerWriteReactor<v1::Record> {
 public:
  ExportStream(const Gateway& gateway, const grpc::CallbackServerContext& context,
               const v1::ExportRequest& request)
      : gateway_(gateway),
        context_(context),
        choice_{request.filter().op(), request.filter().device(), "",
                request.filter().finals_only()},
        after_(request.after_id()) {
    auto caller = gateway.Admit(context, Role::kReader);
    absl::Status status = caller.status();
    if (status.ok()) status = Check(request);
    if (!status.ok()) {
      End(status);
      return;
    }
    caller_ = *caller;
    choice_.tenant = VisibleTenant(caller_);
    Next();
  }

  void OnWriteDone(bool ok) override {
    if (!ok) return End(absl::CancelledError("the stream broke"));
    Next();
  }
  void OnDone() override { delete this; }

 private:
  void End(const absl::Status& status) { Finish(gateway_.Finish("Export", start_, status)); }

  void Next() {
    if (page_.empty()) {
      if (!gateway_.heavy.Run(caller_.tenant, [this] { Read(); })) {
        End(Busy("the server is busy; export again after the last id"));
      }
      return;
    }
    current_ = std::move(page_.front());
    page_.pop_front();
    StartWrite(&current_);
  }

  // One page: where nothing of it is wanted the next has to queue again.
  void Read() {
    if (context_.IsCancelled()) return End(absl::CancelledError("the caller has gone"));
    bool more = false;
    absl::StatusOr<std::vector<tuner::StoredTrial>> rows;
    {
      auto reader = gateway_.store.Read([this] { return context_.IsCancelled(); });
      if (absl::Status s = StillValid(*reader, caller_, absl::Now()); !s.ok()) return End(s);
      rows = reader->ReadPage(after_, kRecordsAtOnce, choice_, more);
    }
    if (!rows.ok()) return End(rows.status());
    if (rows->empty() && !more) return End(absl::OkStatus());
    for (const tuner::StoredTrial& row : *rows) page_.push_back(ToProto(row));
    Next();
  }

  const Gateway& gateway_;
  const grpc::CallbackServerContext& context_;
  tuner::Records::Choice choice_;
  Caller caller_;
  const SteadyTime start_ = SteadyNow();
  int64_t after_;
  std::deque<v1::Record> page_;
  v1::Record current_;
};

// Number and reason of "line 3: why".
std::optional<std::pair<int64_t, std::string>> ParseRefusal(const std::string& text) {
  const size_t colon = text.find(':');
  int64_t line = 0;
  if (!absl::SimpleAtoi(text.substr(sizeof "line", colon - sizeof "line"), &line)) return {};
  return std::pair(line, text.substr(colon + 2));
}

// A record as a line of a file, or why it can be none.
absl::StatusOr<std::string> TextOf(const v1::Record& record) {
  HEDDLE_RETURN_IF_ERROR(Check(record));
  return tuner::PrintLine(FromProto(record));
}

// Collects a batch of lines, writes it, goes on. One callback at a time.
class ImportStream : public grpc::ServerReadReactor<v1::Record> {
 public:
  ImportStream(const Gateway& gateway, const grpc::CallbackServerContext& context,
               const absl::StatusOr<Caller>& caller, v1::ImportResponse* response)
      : gateway_(gateway), context_(context), response_(response) {
    if (caller.ok()) {
      caller_ = *caller;
      importer_.tenant = caller->tenant;
      importer_.token = caller->token;
      StartRead(&record_);
    } else {
      End(caller.status());
    }
  }

  void OnReadDone(bool ok) override {
    if (!ok) return Write(/*last=*/true);
    if (absl::Status s = CheckSize(record_, before_ + count_ + 1); !s.ok()) return End(s);
    bytes_ += record_.ByteSizeLong();
    lines_.push_back(TextOf(record_));
    if (++count_ == kRecordsAtOnce || bytes_ >= kMaxBatchBytes) return Write(/*last=*/false);
    StartRead(&record_);
  }
  void OnDone() override { delete this; }

 private:
  void End(const absl::Status& status) {
    if (caller_) {
      LogChange(*caller_, "Import", "", status,
                {{"added", response_->added()}, {"refused", response_->refused()}});
    }
    Finish(gateway_.Finish("Import", start_, status));
  }

  void Write(bool last) {
    if (last && lines_.empty()) return End(absl::OkStatus());
    // Of a server that ends the pool is gone before what waits for the disk.
    if (context_.IsCancelled()) return End(absl::CancelledError("the stream broke"));
    if (absl::Status s = gateway_.store.CheckRoomForOthers(); !s.ok()) return End(s);
    // What the times are compared with is worked out before the writer's turn: for as many
    // operators as there are lines, if somebody likes.
    const bool taken = gateway_.heavy.Run(caller_->tenant, [this, last] { WriteRead(last); });
    if (!taken) End(Busy("the server is busy; import again: what is there already is passed over"));
  }

  void WriteRead(bool last) {
    auto read = std::make_shared<std::vector<absl::StatusOr<tuner::StoredTrial>>>();
    tuner::Plausibility plausibility;
    for (const absl::StatusOr<std::string>& line : lines_) {
      read->push_back(line.ok() ? tuner::ReadPlausible(*line, plausibility) : line.status());
    }
    lines_.clear();
    bytes_ = 0;
    auto report = std::make_shared<tuner::Records::ImportReport>();
    gateway_.store.Write(
        [report, importer = importer_, read](tuner::Records& records) -> absl::Status {
          HEDDLE_ASSIGN_OR_RETURN(imported, records.Import(std::move(*read), importer));
          *report = std::move(imported);
          return absl::OkStatus();
        },
        [this, last, report](const absl::Status& status) {
          if (!status.ok()) return End(status);
          response_->set_added(response_->added() + report->added);
          response_->set_duplicate(response_->duplicate() + report->duplicate);
          response_->set_refused(response_->refused() + report->refused);
          for (const std::string& text : report->rejected) AddRejectedLine(text);
          before_ += count_;
          count_ = 0;
          if (last) return End(absl::OkStatus());
          StartRead(&record_);
        });
  }

  void AddRejectedLine(const std::string& text) {
    if (auto line = ParseRefusal(text)) AddRejected(before_ + line->first, line->second);
  }
  void AddRejected(int64_t number, const std::string& reason) {
    if (response_->rejected_size() >= kMaxReported) return;
    auto* rejected = response_->add_rejected();
    rejected->set_number(number);
    rejected->set_reason(reason);
  }

  const Gateway& gateway_;
  const grpc::CallbackServerContext& context_;
  v1::ImportResponse* response_;
  std::optional<Caller> caller_;  // who was admitted
  tuner::Provenance importer_;
  const SteadyTime start_ = SteadyNow();
  v1::Record record_;
  std::vector<absl::StatusOr<std::string>> lines_;
  size_t bytes_ = 0;  // of their records
  int64_t before_ = 0;
  int count_ = 0;
};

absl::StatusOr<int64_t> Remove(tuner::Records& records, const v1::RetractRequest& request) {
  Database& db = records.database();
  const auto micros = [](bool set, const google::protobuf::Timestamp& time, int64_t otherwise) {
    return set ? absl::ToUnixMicros(TimeOf(time)) : otherwise;
  };
  const int64_t start = micros(request.has_start_time(), request.start_time(), INT64_MIN);
  const int64_t end = micros(request.has_end_time(), request.end_time(), INT64_MAX);
  const auto remove = [&](const char* which, const auto&... values) {
    return db.Run(absl::StrCat("DELETE FROM trial WHERE when_us >= ? AND when_us < ? AND ", which),
                  start, end, values...);
  };
  absl::Status status;
  const v1::RetractRequest::Origin& origin = request.origin();
  switch (request.what_case()) {
    case v1::RetractRequest::kId:
      status = remove("id = ?", request.id());
      break;
    case v1::RetractRequest::kWorkloadHash:
      status =
          remove("workload IN (SELECT id FROM workload WHERE hash = ?)", request.workload_hash());
      break;
    case v1::RetractRequest::kDeviceUuid:
      status = remove("environment IN (SELECT id FROM environment WHERE device_uuid = ?)",
                      request.device_uuid());
      break;
    case v1::RetractRequest::kOrigin:
      status = remove(
          "source IN (SELECT id FROM source WHERE (?3 = '' OR tenant = ?3) AND (?4 = 0 OR "
          "token = ?4) AND (?5 = '' OR host = ?5) AND (?6 = '' OR run = ?6))",
          origin.tenant(), origin.token(), origin.host(), origin.run());
      break;
    default:
      status = remove("imported = 1");
  }
  HEDDLE_RETURN_IF_ERROR(status);
  return db.QueryInt("SELECT changes()");
}

class RecordsService final : public v1::Records::CallbackService {
 public:
  explicit RecordsService(const Gateway& gateway) : gateway_(gateway) {}

  grpc::ServerWriteReactor<v1::Record>* Export(grpc::CallbackServerContext* context,
                                               const v1::ExportRequest* request) override {
    return new ExportStream(gateway_, *context, *request);
  }

  grpc::ServerReadReactor<v1::Record>* Import(grpc::CallbackServerContext* context,
                                              v1::ImportResponse* response) override {
    return new ImportStream(gateway_, *context, gateway_.Admit(*context, Role::kTuner), response);
  }

  grpc::ServerUnaryReactor* Append(grpc::CallbackServerContext* context,
                                   const v1::AppendRequest* request,
                                   v1::AppendResponse* response) override {
    const auto handle = [this, request](const Caller& caller,
                                        const Reply<v1::AppendResponse>& reply) {
      if (absl::Status s = Check(*request); !s.ok()) return reply(s);
      if (absl::Status s = gateway_.store.CheckRoomForOthers(); !s.ok()) return reply(s);
      const v1::AppendRequest::Run& run = request->run();
      if (!caller.host.empty() && caller.host != run.host()) {
        return reply(absl::PermissionDeniedError(
            absl::StrCat("run.host: the token is for host ", caller.host, " alone")));
      }
      auto read = std::make_shared<std::vector<absl::StatusOr<tuner::StoredTrial>>>();
      tuner::Plausibility plausibility;
      for (const v1::Record& record : request->records()) {
        absl::Status status = CheckSize(record, static_cast<int64_t>(read->size()) + 1);
        const absl::StatusOr<std::string> line = status.ok() ? TextOf(record) : status;
        read->push_back(line.ok() ? tuner::ReadPlausible(*line, plausibility) : line.status());
      }
      tuner::RunHeader header{run.name(), run.attempt(), run.host()};
      tuner::Provenance by;
      by.tenant = caller.tenant;
      by.token = caller.token;
      auto report = std::make_shared<tuner::Records::ImportReport>();
      gateway_.store.Write(
          [=, header = std::move(header), by = std::move(by),
           first = request->first_sequence()](tuner::Records& records) -> absl::Status {
            HEDDLE_RETURN_IF_ERROR(ClaimAttempt(records, caller, header, absl::Now()));
            HEDDLE_ASSIGN_OR_RETURN(
                appended, tuner::AppendTrials(records, header, by, first, std::move(*read)));
            *report = std::move(appended);
            return absl::OkStatus();
          },
          [=, run = absl::StrCat(run.name(), ".", run.attempt())](const absl::Status& status) {
            LogChange(caller, "Append", "", status,
                      {{"run", run}, {"added", report->added}, {"refused", report->refused}});
            if (!status.ok()) return reply(status);
            v1::AppendResponse answer;
            answer.set_added(report->added);
            answer.set_duplicate(report->duplicate);
            answer.set_refused(report->refused);
            for (const std::string& text : report->rejected) {
              auto refusal = ParseRefusal(text);
              if (!refusal) continue;
              auto* rejected = answer.add_rejected();
              rejected->set_number(refusal->first);
              rejected->set_reason(refusal->second);
            }
            reply(answer);
          });
    };
    return Unary(gateway_, "Append", Role::kMeasurer, Where::kHeavy, context, request, response,
                 handle);
  }

  grpc::ServerUnaryReactor* Retract(grpc::CallbackServerContext* context,
                                    const v1::RetractRequest* request,
                                    v1::RetractResponse* response) override {
    return Unary(gateway_, "Retract", Role::kAdmin, Where::kInline, context, request, response,
                 [this, request](const Caller& caller, const Reply<v1::RetractResponse>& reply) {
                   if (absl::Status s = Check(*request); !s.ok()) return reply(s);
                   std::string body;
                   request->SerializeToString(&body);
                   auto count = std::make_shared<int64_t>(0);
                   gateway_.store.Write(
                       [=, hash = heddle::HashOf(body)](tuner::Records& records) -> absl::Status {
                         HEDDLE_ASSIGN_OR_RETURN(earlier,
                                                 FindRequest(records, caller.tenant, "Retract",
                                                             request->request_id(), hash));
                         if (earlier.has_value()) {
                           *count = *earlier;
                           return absl::OkStatus();
                         }
                         HEDDLE_ASSIGN_OR_RETURN(removed, Remove(records, *request));
                         *count = removed;
                         return AddRequest(records, caller.tenant, "Retract", request->request_id(),
                                           hash, *count, absl::Now());
                       },
                       [=](const absl::Status& status) {
                         LogChange(caller, "Retract", request->request_id(), status,
                                   {{"count", *count}, {"reason", request->reason()}});
                         if (!status.ok()) return reply(status);
                         v1::RetractResponse answer;
                         answer.set_count(*count);
                         reply(answer);
                       });
                 });
  }

 private:
  const Gateway& gateway_;
};

}  // namespace

std::unique_ptr<grpc::Service> MakeRecordsService(const Gateway& gateway) {
  return std::make_unique<RecordsService>(gateway);
}

}  // namespace heddle::server
