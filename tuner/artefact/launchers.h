// The two programs beside an exported kernel that run and check it. They are text written for the
// user of the artefact and depend on nothing of ours.
#ifndef HEDDLE_TUNER_ARTEFACT_LAUNCHERS_H_
#define HEDDLE_TUNER_ARTEFACT_LAUNCHERS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "measure/codegen/codegen.h"
#include "measure/device/backend.h"

namespace heddle::tuner {

struct LauncherBuffer {
  std::string name;
  std::string role;  // "input", "output", "workspace"
  int64_t elements = 0;
  std::string type;          // "float32"
  int64_t index_extent = 0;  // of "int32" inputs: their elements are less than this
};

// run.cc: the tables of one artefact, then code common to all of its back end.
std::string CppLauncher(const measure::LauncherText& driver,
                        const std::vector<LauncherBuffer>& buffers,
                        const std::vector<measure::KernelLaunch>& kernels,
                        const std::vector<std::string>& files, uint64_t input_seed,
                        double input_low, double input_scale);

// run.py, the same for every artefact: it reads the manifest.
extern const char* const kPythonLauncher;

}  // namespace heddle::tuner

#endif  // HEDDLE_TUNER_ARTEFACT_LAUNCHERS_H_
