// What a process gives up, for good, before it runs what nobody has read: Landlock for files and
// seccomp for system calls, both of which a process without privileges may ask for. Nothing here
// needs a kernel that has them: who calls decides what to do where it has not.
#ifndef HEDDLE_BASE_PROCESS_SANDBOX_H_
#define HEDDLE_BASE_PROCESS_SANDBOX_H_

#include <string>
#include <vector>

#include "absl/status/status.h"

namespace heddle {

// Files, and folders with all that is below them. What does not exist is left out.
struct SandboxRules {
  std::vector<std::string> read;   // read and executed
  std::vector<std::string> write;  // also written; below folders made, renamed and removed
};

// Whether RestrictFiles and RestrictCalls work here: Unavailable with the reason where not.
absl::Status FindLandlock();
absl::Status FindSeccomp();

// Files are opened by `rules` only, no process outside is traced or has its
// memory looked into, and, from Linux 6.12 on, none is sent a signal. For this thread and what it
// starts from now on: other threads stay as they are. What is open already stays open.
absl::Status RestrictFiles(const SandboxRules& rules);

// No new sockets, no tracing, no mounts and namespaces, nothing that is for administrators: such
// calls fail with EPERM. For all threads of this process and what they start. Memory that can be
// written and executed stays allowed, as compilers in the process need it.
absl::Status RestrictCalls();

}  // namespace heddle

#endif  // HEDDLE_BASE_PROCESS_SANDBOX_H_
