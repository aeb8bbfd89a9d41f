// What a run on a node starts from: a part of the owner's database, which lies in the batch's
// folder (docs/cluster.md).
//
//     warm/HASH.db    a snapshot (tuner/records/transfer/snapshot.h), named by its content's hash
//     warm/current    the hash of the newest
#ifndef HEDDLE_CLI_WARM_H_
#define HEDDLE_CLI_WARM_H_

#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "cli/batch.h"
#include "client/client.h"
#include "tuner/records/records.h"

namespace heddle::cli {

// A folder on this machine's own disk, gone with the object.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  ScratchFolder(const ScratchFolder&) = delete;
  ScratchFolder& operator=(const ScratchFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

// Puts what `owner` knows of the batch's workloads into its folder, for runs that begin from then
// on. Nothing where it knows nothing.
absl::Status WriteWarmStart(tuner::Records& owner, const Batch& batch);

// Makes `db`, where no file is, the database that a run begins with: a copy of the newest snapshot,
// else, where `client` is not null and its token may export, the finals of the operator on the
// device model that the server has, else an empty one. Says on standard error which. What cannot be
// had costs time and no run: errors are those of `db` itself.
absl::StatusOr<std::unique_ptr<tuner::Records>> OpenWarm(const Batch& batch, int64_t index,
                                                         const std::string& device,
                                                         client::Client* client,
                                                         const std::string& db);

}  // namespace heddle::cli

#endif  // HEDDLE_CLI_WARM_H_
