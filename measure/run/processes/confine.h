// What workers and compilers may still do once they run what nobody has read: candidates, which on
// a processor are machine code of the worker itself, and source that a server has sent. They need
// devices, libraries and a driver's cache, and nothing of the user whose processes they are: no
// token, no database, no network. The mechanism is base/process/sandbox.h.
#ifndef HEDDLE_MEASURE_RUN_PROCESSES_CONFINE_H_
#define HEDDLE_MEASURE_RUN_PROCESSES_CONFINE_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "measure/device/backend.h"

namespace heddle::measure {

// Of the workers and compilers that this process starts from now on; they are confined unless its
// user has said otherwise.
void SetConfined(bool confined);
bool IsConfined();
// The argument of a hidden subcommand that leaves its process as it is, and the arguments.
inline constexpr char kUnconfined[] = "unconfined";
std::vector<std::string> ConfinementArguments();

// In a worker, around the opening of its device, where candidates run in the worker's own process:
// on threads that the driver starts with the device, hence files before, system calls afterwards.
// On a device of its own a candidate makes no system calls, and the driver is left as its maker
// means it. OK where the kernel lacks what is needed for it.
absl::Status ConfineBeforeDevice(const Backend& backend);
absl::Status ConfineAfterDevice(const Backend& backend);
// A compiler, before it has its first source.
absl::Status ConfineCompiler(const Backend& backend);

// What is in force on this machine, and why not the rest.
struct Confinement {
  bool whole = false;
  std::string text;
};
Confinement FindConfinement();

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_PROCESSES_CONFINE_H_
