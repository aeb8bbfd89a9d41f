// Search spaces of callers' operators. Whatever an operator costs, the server does not pay for it:
// spaces are made in processes of their own, which may have so much memory and time.
#ifndef HEDDLE_SERVER_ENGINE_SPACES_H_
#define HEDDLE_SERVER_ENGINE_SPACES_H_

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/process/subprocess.h"
#include "proto/searcher.pb.h"
#include "server/engine/byte_cache.h"

namespace heddle::server {

struct SpaceOptions {
  // For one question; time in which others have the processors does not count.
  absl::Duration time = absl::Seconds(2);
  // Beyond what the program itself takes.
  size_t memory_bytes = size_t{512} << 20;
};

class Spaces {
 public:
  explicit Spaces(SpaceOptions options = {}) : options_(options) {}

  // Blocks; as many processes as callers. The process's own error where there is no space;
  // ResourceExhausted where it would take more than a question may; Unavailable when the process
  // was lost. Answers but those of NEAREST, which follow the database, are kept and given again.
  absl::StatusOr<searcher::SpaceAnswer> Ask(const searcher::SpaceQuestion& question);

 private:
  absl::StatusOr<searcher::SpaceAnswer> AskProcess(const searcher::SpaceQuestion& question);
  std::unique_ptr<Subprocess> TakeIdle();

  const SpaceOptions options_;
  absl::Mutex mutex_;
  // At most one: questions mostly come one after another.
  std::unique_ptr<Subprocess> idle_ ABSL_GUARDED_BY(mutex_);
  ByteCache<absl::StatusOr<searcher::SpaceAnswer>> answers_;
};

// In the process itself: answers until the server closes its end.
//   heddle __space SUPERVISOR_PID BYTES
std::optional<int> RunSpaceCommand(int argc, char** argv);

}  // namespace heddle::server

#endif  // HEDDLE_SERVER_ENGINE_SPACES_H_
