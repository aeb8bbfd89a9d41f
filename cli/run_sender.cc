#include "cli/run_sender.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "base/status.h"
#include "server/db/convert.h"
#include "tuner/records/records_fields.h"

namespace heddle::cli {
namespace {

// Of a call: below the server's limits (256 records, 4 MiB).
constexpr int kMaxRecords = 200;
constexpr size_t kMaxBytes = 1 << 20;

}  // namespace

RunSender::RunSender(client::Client& client, std::string path)
    : client_(client), path_(std::move(path)) {}

absl::Status RunSender::Send() {
  std::ifstream in(path_, std::ios::binary);
  in.seekg(sent_);
  std::string line;
  bool too_long = false, whole = false;
  if (!header_) {
    if (!tuner::ReadLine(in, line, too_long, whole) || !whole) {
      return absl::InvalidArgumentError("the file is empty, or its first line is not whole yet");
    }
    HEDDLE_ASSIGN_OR_RETURN(header, tuner::ParseRunHeader(line));
    header_ = std::move(header);
    sent_ = in.tellg();
  }
  v1::AppendRequest request;
  // A batch is of consecutive trials: a line that is none ends one.
  const auto flush = [&](std::streamoff end, int64_t sequence) -> absl::Status {
    if (!request.records().empty()) {
      HEDDLE_RETURN_IF_ERROR(SendBatch(request));
      request.clear_records();
    }
    sent_ = end;
    sequence_ = sequence;
    return absl::OkStatus();
  };
  int64_t sequence = sequence_;
  std::streamoff begin = sent_;
  size_t bytes = 0;
  while (tuner::ReadLine(in, line, too_long, whole) && whole) {
    const std::streamoff end = in.tellg();
    const bool full = request.records_size() == kMaxRecords || bytes + line.size() > kMaxBytes;
    if (full && begin > sent_) {
      HEDDLE_RETURN_IF_ERROR(flush(begin, sequence));
      bytes = 0;
    }
    begin = end;
    if (auto code = tuner::ParseRunEnd(line)) {
      exit_code_ = code;
      continue;
    }
    ++sequence;
    auto stored = tuner::ParseLine(line);
    if (!stored.ok()) {
      HEDDLE_RETURN_IF_ERROR(flush(end, sequence));
      ++report_.refused;
      report_.rejected.push_back(
          absl::StrCat("line ", sequence + 1, ": ", stored.status().message()));
      continue;
    }
    if (request.records().empty()) request.set_first_sequence(sequence);
    *request.add_records() = server::ToProto(*stored);
    bytes += line.size();
  }
  return flush(begin, sequence);
}

absl::Status RunSender::SendBatch(v1::AppendRequest& request) {
  v1::AppendRequest::Run& run = *request.mutable_run();
  run.set_name(header_->run);
  run.set_attempt(header_->attempt);
  run.set_host(header_->host);
  HEDDLE_ASSIGN_OR_RETURN(response, client_.Append(request));
  report_.added += response.added();
  report_.duplicate += response.duplicate();
  report_.refused += response.refused();
  for (const auto& rejected : response.rejected()) {
    report_.rejected.push_back(absl::StrCat("line ", request.first_sequence() + rejected.number(),
                                            ": ", rejected.reason()));
  }
  return absl::OkStatus();
}

}  // namespace heddle::cli
