// What this executable does as a child of itself: the process that owns a device, a compiler, or
// device detection. subprocess.h starts them.
#ifndef HEDDLE_MEASURE_RUN_WORKER_MAIN_H_
#define HEDDLE_MEASURE_RUN_WORKER_MAIN_H_

#include <optional>

namespace heddle::measure {

// To be called first in main(), of tests too: when the arguments are those of a hidden subcommand,
// runs it to its end and returns the exit code; otherwise returns nullopt at once.
//   heddle __worker SUPERVISOR_PID [unconfined]    owns a device: validates and times programs
//   heddle __compiler SUPERVISOR_PID [unconfined]  compiles one kernel after another
//   heddle __devices SUPERVISOR_PID API            lists the devices of "cuda" or "opencl"
std::optional<int> RunHiddenCommand(int argc, char** argv);

}  // namespace heddle::measure

#endif  // HEDDLE_MEASURE_RUN_WORKER_MAIN_H_
