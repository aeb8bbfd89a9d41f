// What a run's file holds, on its way to a server (Records.Append, docs/cluster.md).
#ifndef HEDDLE_CLI_RUN_SENDER_H_
#define HEDDLE_CLI_RUN_SENDER_H_

#include <fstream>
#include <optional>
#include <string>

#include "absl/status/status.h"
#include "client/client.h"
#include "tuner/records/records.h"
#include "tuner/records/transfer/run_file.h"

namespace heddle::cli {

class RunSender {
 public:
  // Of an attempt's file, which may still be written.
  RunSender(client::Client& client, std::string path);

  // Sends the whole lines that were not sent yet. What fails is sent again by the next call:
  // nothing is stored twice. InvalidArgument: the file is not a run's; else the server's errors.
  absl::Status Send();

  // What the server has said so far; `rejected` names lines.
  const tuner::Records::ImportReport& report() const { return report_; }
  const std::optional<int>& exit_code() const { return exit_code_; }

 private:
  absl::Status SendBatch(v1::AppendRequest& request);

  client::Client& client_;
  const std::string path_;
  std::streamoff sent_ = 0;  // bytes
  int64_t sequence_ = 0;     // of the last trial sent; 0 with the header alone
  std::optional<tuner::RunHeader> header_;
  std::optional<int> exit_code_;
  tuner::Records::ImportReport report_;
};

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_RUN_SENDER_H_
